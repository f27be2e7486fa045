/* SPDX-License-Identifier: Apache-2.0 */
/* embed: embeddings of texts, one on a line of output for each text, in their order. */
#include "client/ctl/ctl_tokens.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TEXT     ((size_t)64 << 20)
#define EMBED_AT_ONCE 64 /* texts of a call */

struct embed {
    struct ctl *ctl;
    const char *model, *file, *tokenizer;
    bool json_lines;
    struct npugraph_embed_params params;
    struct npugraph_tokenizer *tok;
    struct npugraph_prompt *prompts; /* of all texts; their tokens are allocated one by one */
    size_t n, room;
    uint64_t tokens;
    json_t *rows;
};

/* Encodes one more text. Returns 1 after an error that it has printed. */
static int embed_text(struct embed *e, const char *text, size_t len)
{
    struct npugraph_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;

    if (e->n == e->room) {
        const size_t room = e->room == 0 ? EMBED_AT_ONCE : 2 * e->room;
        struct npugraph_prompt *more = realloc(e->prompts, room * sizeof(*more));

        if (more == NULL)
            return ctl_error("out of memory");
        e->prompts = more;
        e->room = room;
    }
    if (npugraph_tokenizer_encode(e->tok, text, len, NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &ids, &n,
                                  &err) != 0)
        return ctl_fail(&err);
    e->prompts[e->n++] = (struct npugraph_prompt){ids, n};
    e->tokens += n;
    return n != 0 ? 0 : ctl_error("text %zu has no tokens", e->n);
}

/* A line of JSON: a string, or an object whose `text` is one. */
static int embed_json_line(struct embed *e, const char *line, size_t len, size_t number)
{
    json_error_t error;
    json_t *v = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error),
           *text = json_is_object(v) ? json_object_get(v, "text") : v;
    int rc = 0;

    if (!json_is_string(text))
        rc =
            ctl_error("line %zu: %s", number, v == NULL ? error.text : "is neither a string nor an object with a text");
    else
        rc = embed_text(e, json_string_value(text), json_string_length(text));
    json_decref(v);
    return rc;
}

/* Encodes the lines of a file; empty ones are left out. */
static int embed_file(struct embed *e)
{
    size_t n, number = 0;
    char *data = ctl_read_file(e->file, MOST_TEXT, &n);
    int rc = data != NULL ? 0 : 1;

    for (size_t at = 0; rc == 0 && at < n;) {
        const char *line = data + at, *end = memchr(line, '\n', n - at);
        const size_t len = end != NULL ? (size_t)(end - line) : n - at;

        number++;
        at += len + 1;
        if (len != 0)
            rc = e->json_lines ? embed_json_line(e, line, len, number) : embed_text(e, line, len);
    }
    free(data);
    return rc;
}

static void put_embedding_row(const struct embed *e, const float *row, size_t size)
{
    json_t *list = e->ctl->json ? json_array() : NULL;

    for (size_t i = 0; i < size; i++) {
        if (list != NULL)
            json_array_append_new(list, json_real((double)row[i]));
        else
            fprintf(e->ctl->out, "%s%.9g", i != 0 ? " " : "", (double)row[i]);
    }
    if (list != NULL)
        json_array_append_new(e->rows, list);
    else
        fputc('\n', e->ctl->out);
}

static int embed_some(const struct embed *e, size_t at)
{
    const size_t n = e->n - at < EMBED_AT_ONCE ? e->n - at : EMBED_AT_ONCE;
    struct npugraph_embeddings *got = NULL;
    struct npugraph_error err = {0};

    if (npugraph_embed(e->ctl->client, e->model, e->prompts + at, n, &e->params, &got, &err) != 0)
        return ctl_fail(&err);
    for (size_t i = 0; i < n; i++)
        put_embedding_row(e, got->values + i * got->size, got->size);
    npugraph_embeddings_free(got);
    return 0;
}

static int embed_all(struct embed *e)
{
    int rc = 0;

    if (e->n == 0)
        return ctl_error("there is no text");
    if (!ctl_connect(e->ctl))
        return 1;
    e->rows = json_array();
    for (size_t at = 0; rc == 0 && at < e->n; at += EMBED_AT_ONCE)
        rc = embed_some(e, at);
    if (rc == 0 && e->ctl->json) {
        json_object_set(e->ctl->root, "embeddings", e->rows);
        json_object_set_new(e->ctl->root, "prompt_tokens", json_integer((json_int_t)e->tokens));
    }
    json_decref(e->rows);
    return rc;
}

/* Texts of --text are encoded behind the options, when the tokenizer is known. */
static int embed_option(struct embed *e, const struct ctl_command *command, const char *name, const char *value)
{
    uint64_t v;

    if (strcmp(name, "file") == 0) {
        e->file = value;
    } else if (strcmp(name, "tokenizer") == 0) {
        e->tokenizer = value;
    } else if (strcmp(name, "json-lines") == 0) {
        e->json_lines = true;
    } else if (strcmp(name, "unit") == 0) {
        e->params.unit = true;
    } else {
        if (!ctl_parse_uint(value, INT32_MAX, &v) || v == 0)
            return ctl_usage(command, "--dimensions takes a number of 1 or more");
        e->params.dimensions = (uint32_t)v;
    }
    return 0;
}

/* Reads the options. texts: those of --text, in their order. */
static int embed_arguments(struct embed *e, int argc, char **argv, const char **texts, size_t *n_p)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, "json-lines unit", "text file tokenizer dimensions", &value, &e->model,
                                   "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "text") == 0)
            texts[(*n_p)++] = value;
        else if (embed_option(e, o.command, name, value) != 0)
            return 2;
    }
    if (e->model == NULL || (*n_p == 0) == (e->file == NULL))
        return ctl_usage(o.command, "embed needs a model and either --text or --file");
    return 0;
}

static void free_prompts(struct embed *e)
{
    for (size_t i = 0; i < e->n; i++)
        free((void *)(uintptr_t)e->prompts[i].tokens);
    free(e->prompts);
}

int ctl_cmd_embed(struct ctl *ctl, int argc, char **argv)
{
    struct embed e = {.ctl = ctl};
    const char **texts = calloc((size_t)argc, sizeof(*texts));
    size_t n = 0;
    int rc = texts != NULL ? embed_arguments(&e, argc, argv, texts, &n) : ctl_error("out of memory");

    if (rc == 0) {
        e.tok = e.tokenizer != NULL ? ctl_open_tokenizer(e.tokenizer) : ctl_open_model_tokenizer(ctl, e.model, NULL);
        rc = e.tok != NULL ? 0 : 1;
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = embed_text(&e, texts[i], strlen(texts[i]));
    if (rc == 0 && e.file != NULL)
        rc = embed_file(&e);
    if (rc == 0)
        rc = embed_all(&e);
    free_prompts(&e);
    npugraph_tokenizer_close(e.tok);
    free(texts);
    return rc;
}
