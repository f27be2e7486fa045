/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares tokenizers of each kind with Hugging Face tokenizers: ids, and text that comes token by token. The texts are
 * those of tests/golden/tokenizers.json, or of the file that TOKENIZERS names (tests/golden/make_tokenizers.py).
 */
#include "client/hf/npugraph_hf.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_MAX 5 /* differences that are printed for each kind */

static json_t *load_kinds(void)
{
    const char *file = getenv("TOKENIZERS"), *top = getenv("top_srcdir");
    char path[4096];
    json_error_t e;
    json_t *root;

    snprintf(path, sizeof(path), "%s/tests/golden/tokenizers.json", top != NULL ? top : ".");
    root = json_load_file(file != NULL ? file : path, JSON_ALLOW_NUL, &e);
    ck_assert_msg(root != NULL, "%s: %s", path, e.text);
    return root;
}

static struct npugraph_tokenizer *open_kind(const json_t *root, const json_t *kind)
{
    char path[] = "/tmp/npugraph-tok-XXXXXX";
    json_t *spec = json_deep_copy(json_object_get(kind, "tokenizer"));
    size_t at = (size_t)json_integer_value(json_object_get(kind, "tables"));
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    int fd = mkstemp(path);

    json_object_update(json_object_get(spec, "model"), json_array_get(json_object_get(root, "tables"), at));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(json_dumpfd(spec, fd, 0), 0);
    close(fd);
    ck_assert_msg(npugraph_tokenizer_open(path, &tok, &err) == 0, "%s: %s",
                  json_string_value(json_object_get(kind, "name")), err.message);
    unlink(path);
    json_decref(spec);
    return tok;
}

static bool encodes_to(const struct npugraph_tokenizer *tok, const json_t *text, unsigned flags, const json_t *want)
{
    struct npugraph_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    bool same;

    if (npugraph_tokenizer_encode(tok, json_string_value(text), json_string_length(text), flags, &ids, &n, &err) != 0) {
        fprintf(stderr, "refused: %s\n", err.message);
        return false;
    }
    same = n == json_array_size(want);
    for (size_t k = 0; same && k < n; k++)
        same = ids[k] == json_integer_value(json_array_get(want, k));
    if (!same)
        for (size_t k = 0; k < n; k++)
            fprintf(stderr, "%d%s", ids[k], k + 1 < n ? "," : "\n");
    free(ids);
    return same;
}

/* Adds the ids one by one. What came so far must be a beginning of the whole text each time. */
static bool decodes_to(const struct npugraph_tokenizer *tok, const json_t *ids, bool special, const json_t *want)
{
    const char *whole = json_string_value(want), *part;
    size_t size = json_string_length(want), at = 0, n;
    struct npugraph_detokenizer *text = NULL;
    bool same = true;

    ck_assert_int_eq(npugraph_detokenizer_create(tok, NULL, 0, special, &text, NULL), 0);
    for (size_t i = 0; same && i <= json_array_size(ids); i++) {
        if (i < json_array_size(ids))
            npugraph_detokenizer_add(text, (int32_t)json_integer_value(json_array_get(ids, i)), &part, &n, NULL);
        else
            npugraph_detokenizer_end(text, &part, &n, NULL);
        same = n <= size - at && memcmp(part, whole + at, n) == 0;
        at += n;
    }
    npugraph_detokenizer_destroy(text);
    return same && at == size;
}

static bool case_is_right(const struct npugraph_tokenizer *tok, const json_t *c)
{
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
                 *plain = json_object_get(c, "plain");

    if (text == NULL)
        return decodes_to(tok, json_object_get(c, "decode"), false, json_object_get(c, "shown"));
    return encodes_to(tok, text, NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, ids) &&
           encodes_to(tok, text, 0, plain) && decodes_to(tok, ids, true, json_object_get(c, "all")) &&
           decodes_to(tok, plain, false, json_object_get(c, "shown"));
}

START_TEST(each_kind_gives_the_ids_and_the_text_of_hugging_face_tokenizers)
{
    json_t *root = load_kinds(), *kinds = json_object_get(root, "kinds"), *kind, *c;
    size_t i, k, wrong_kinds = 0;

    ck_assert_uint_gt(json_array_size(kinds), getenv("TOKENIZERS") != NULL ? 0 : 40);
    json_array_foreach(kinds, i, kind)
    {
        struct npugraph_tokenizer *tok = open_kind(root, kind);
        size_t wrong = 0;

        json_array_foreach(json_object_get(kind, "cases"), k, c)
        {
            char *shown;

            if (case_is_right(tok, c) || wrong++ >= SHOWN_MAX)
                continue;
            shown = json_dumps(c, JSON_ENSURE_ASCII);
            fprintf(stderr, "%s, case %zu: %s\n", json_string_value(json_object_get(kind, "name")), k, shown);
            free(shown);
        }
        if (wrong != 0)
            fprintf(stderr, "%s: %zu of %zu are wrong\n", json_string_value(json_object_get(kind, "name")), wrong, k);
        wrong_kinds += wrong != 0;
        npugraph_tokenizer_close(tok);
    }
    json_decref(root);
    ck_assert_uint_eq(wrong_kinds, 0);
}
END_TEST

UNIT_MAIN("client/tokenizers", each_kind_gives_the_ids_and_the_text_of_hugging_face_tokenizers)
