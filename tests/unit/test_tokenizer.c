/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the tokenizer with ids of Hugging Face tokenizers (tests/golden/tokenizer_cases.json). */
#include "client/hf/npugraph_hf.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *source_dir(void)
{
    return getenv("top_srcdir") != NULL ? getenv("top_srcdir") : ".";
}

static struct npugraph_tokenizer *open_bundled(void)
{
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    char path[4096];

    snprintf(path, sizeof(path), "%s/examples/model/tokenizer.json", source_dir());
    ck_assert_msg(npugraph_tokenizer_open(path, &tok, &err) == 0, "%s", err.message);
    return tok;
}

static json_t *golden_cases(json_t **root_p)
{
    char path[4096];
    json_error_t e;

    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer_cases.json", source_dir());
    *root_p = json_load_file(path, JSON_ALLOW_NUL, &e);
    ck_assert_msg(*root_p != NULL, "%s: %s", path, e.text);
    return json_object_get(*root_p, "cases");
}

START_TEST(encode_gives_the_ids_of_hugging_face_tokenizers)
{
    struct npugraph_tokenizer *tok = open_bundled();
    json_t *root, *cases = golden_cases(&root), *c;
    size_t i, wrong = 0;

    ck_assert_uint_gt(json_array_size(cases), 40);
    json_array_foreach(cases, i, c)
    {
        const char *text = json_string_value(json_object_get(c, "text"));
        json_t *want = json_object_get(c, "ids");
        struct npugraph_error err = {0};
        int32_t *ids = NULL;
        size_t n = 0;
        bool same;

        ck_assert_msg(npugraph_tokenizer_encode(tok, text, json_string_length(json_object_get(c, "text")), true, &ids,
                                                &n, &err) == 0,
                      "\"%s\": %s", text, err.message);
        same = n == json_array_size(want);
        for (size_t k = 0; same && k < n; k++)
            same = ids[k] == json_integer_value(json_array_get(want, k));
        if (!same) {
            fprintf(stderr, "case %zu \"%s\": %zu ids, expected %zu\n", i, text, n, json_array_size(want));
            wrong++;
        }
        free(ids);
    }
    ck_assert_uint_eq(wrong, 0);
    json_decref(root);
    npugraph_tokenizer_close(tok);
}
END_TEST

START_TEST(decoding_the_ids_gives_the_text_back)
{
    struct npugraph_tokenizer *tok = open_bundled();
    const char *text =
        "In the beginning God created the heaven\nand the earth. \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 42";
    char back[512] = "";
    size_t n = 0, at = 0;
    int32_t *ids = NULL;

    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, strlen(text), true, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = npugraph_tokenizer_bytes(tok, ids[i], &len, NULL);

        ck_assert_ptr_nonnull(bytes);
        memcpy(back + at, bytes, len);
        at += len;
    }
    back[at] = '\0';
    ck_assert_str_eq(back, text);
    free(ids);
    npugraph_tokenizer_close(tok);
}
END_TEST

START_TEST(special_tokens_are_recognised_only_when_asked_for)
{
    struct npugraph_tokenizer *tok = open_bundled();
    const char *text = "<|endoftext|>";
    int32_t *ids = NULL;
    size_t n = 0;
    bool special = false;

    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, strlen(text), true, &ids, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_ptr_nonnull(npugraph_tokenizer_bytes(tok, ids[0], &n, &special));
    ck_assert(special);
    free(ids);
    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, strlen(text), false, &ids, &n, NULL), 0);
    ck_assert_uint_gt(n, 1);
    free(ids);
    npugraph_tokenizer_close(tok);
}
END_TEST

START_TEST(a_piece_of_a_megabyte_is_encoded_in_reasonable_time)
{
    struct npugraph_tokenizer *tok = open_bundled();
    size_t len = 1 << 20, n = 0, bytes = 0;
    char *text = malloc(len);
    int32_t *ids = NULL;

    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + i * 7919 % 26);
    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, len, true, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        size_t k;

        npugraph_tokenizer_bytes(tok, ids[i], &k, NULL);
        bytes += k;
    }
    ck_assert_uint_eq(bytes, len);
    free(ids);
    free(text);
    npugraph_tokenizer_close(tok);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_refused)
{
    struct npugraph_tokenizer *tok = open_bundled();
    struct npugraph_error err = {0};
    int32_t *ids = NULL;
    size_t n;

    ck_assert_int_ne(npugraph_tokenizer_encode(tok, "\xff\xfe", 2, true, &ids, &n, &err), 0);
    ck_assert_str_eq(err.reason, "INVALID_ARGUMENT");
    npugraph_tokenizer_close(tok);
}
END_TEST

static void expect_refused(const char *json, const char *reason)
{
    char path[] = "/tmp/npugraph-tok-XXXXXX";
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, json, strlen(json)), (ssize_t)strlen(json));
    close(fd);
    ck_assert_int_ne(npugraph_tokenizer_open(path, &tok, &err), 0);
    unlink(path);
    ck_assert_str_eq(err.reason, reason);
}

START_TEST(files_that_are_not_byte_level_bpe_are_refused_by_name)
{
    const char *bpe = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]%s}%s}";
    char json[1024];

    expect_refused("{", "FILE_CORRUPT");
    expect_refused("{\"model\":{\"type\":\"Unigram\"}}", "FILE_UNSUPPORTED");
    snprintf(json, sizeof(json), bpe, ",\"byte_fallback\":true", "");
    expect_refused(json, "FILE_UNSUPPORTED");
    snprintf(json, sizeof(json), bpe, "", ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}");
    expect_refused(json, "FILE_UNSUPPORTED");
    snprintf(json, sizeof(json), bpe, "",
             ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\","
             "\"invert\":false}");
    expect_refused(json, "FILE_UNSUPPORTED");
    expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "FILE_CORRUPT");
    expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "FILE_CORRUPT");
    expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}}", "FILE_CORRUPT");
}
END_TEST

UNIT_MAIN("client/tokenizer", encode_gives_the_ids_of_hugging_face_tokenizers, decoding_the_ids_gives_the_text_back,
          special_tokens_are_recognised_only_when_asked_for, a_piece_of_a_megabyte_is_encoded_in_reasonable_time,
          text_that_is_not_utf8_is_refused, files_that_are_not_byte_level_bpe_are_refused_by_name)
