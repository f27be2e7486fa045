/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize, and what commands with a tokenizer share. */
#include "client/ctl/ctl_tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct npugraph_tokenizer *ctl_open_tokenizer(const char *path)
{
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    struct stat sb;
    char full[4096];

    snprintf(full, sizeof(full), "%s%s", path, stat(path, &sb) == 0 && S_ISDIR(sb.st_mode) ? "/tokenizer.json" : "");
    if (npugraph_tokenizer_open(full, &tok, &err) != 0) {
        ctl_fail(&err);
        return NULL;
    }
    return tok;
}

struct npugraph_tokenizer *ctl_open_model_tokenizer(struct ctl *ctl, const char *model,
                                                    struct npugraph_checkpoint_copy **copy_p)
{
    struct npugraph_checkpoint_copy *copy;
    struct npugraph_tokenizer *tok;
    struct npugraph_error err = {0};

    if (!ctl_connect(ctl))
        return NULL;
    if (npugraph_model_copy_open(ctl->client, model, &copy, &err) != 0) {
        ctl_fail(&err);
        return NULL;
    }
    tok = ctl_open_tokenizer(npugraph_checkpoint_copy_path(copy));
    if (tok != NULL && copy_p != NULL)
        *copy_p = copy;
    else
        npugraph_checkpoint_copy_close(copy);
    return tok;
}

bool ctl_parse_ids(const char *text, int32_t **ids_p, size_t *n_p)
{
    int32_t *ids = calloc(strlen(text) + 1, sizeof(*ids));
    size_t n = 0;
    char *end;

    while (ids != NULL && *text != '\0') {
        long v;

        errno = 0;
        v = strtol(text, &end, 10);
        if (end == text || errno != 0 || v < 0 || v > INT32_MAX || (*end != ',' && *end != '\0')) {
            free(ids);
            return false;
        }
        ids[n++] = (int32_t)v;
        text = *end == ',' ? end + 1 : end;
    }
    *ids_p = ids;
    *n_p = n;
    return ids != NULL;
}

static int decode_ids(const struct npugraph_tokenizer *tok, const char *list)
{
    struct npugraph_detokenizer *text = NULL;
    struct npugraph_error err = {0};
    const char *part;
    int32_t *ids = NULL;
    size_t n = 0, len;
    int rc;

    if (!ctl_parse_ids(list, &ids, &n))
        return ctl_usage(ctl_find_command("tokenize"), "--decode takes token ids, N,N,...");
    rc = npugraph_detokenizer_create(tok, NULL, 0, true, &text, &err);
    for (size_t i = 0; rc == 0 && i <= n; i++) {
        rc = i < n ? npugraph_detokenizer_add(text, ids[i], &part, &len, &err)
                   : npugraph_detokenizer_end(text, &part, &len, &err);
        if (rc == 0)
            fwrite(part, 1, len, stdout);
    }
    npugraph_detokenizer_destroy(text);
    free(ids);
    if (rc != 0)
        return ctl_fail(&err);
    putchar('\n');
    return 0;
}

static int print_ids(struct ctl *ctl, const struct npugraph_tokenizer *tok, const char *text)
{
    struct npugraph_error err = {0};
    json_t *array = json_array();
    int32_t *ids = NULL;
    size_t n = 0;

    if (npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &ids, &n,
                                  &err) != 0) {
        json_decref(array);
        return ctl_fail(&err);
    }
    for (size_t i = 0; i < n; i++) {
        if (!ctl->json)
            printf("%s%d", i != 0 ? "," : "", ids[i]);
        json_array_append_new(array, json_integer(ids[i]));
    }
    if (!ctl->json)
        putchar('\n');
    json_object_set_new(ctl->root, "ids", array);
    free(ids);
    return 0;
}

int ctl_cmd_tokenize(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *file = ctl_next_argument(&o), *name, *value, *ids = NULL, *text;
    struct npugraph_tokenizer *tok;
    int rc;

    if (file == NULL)
        return ctl_usage(o.command, "tokenize needs a tokenizer.json");
    while ((name = ctl_next_option(&o, "", "decode", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        ids = value;
    }
    text = ctl_next_argument(&o);
    if ((text == NULL) == (ids == NULL) || ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "tokenize takes one text or --decode");
    tok = ctl_open_tokenizer(file);
    if (tok == NULL)
        return 1;
    rc = ids != NULL ? decode_ids(tok, ids) : print_ids(ctl, tok, text);
    npugraph_tokenizer_close(tok);
    return rc;
}
