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

        ck_assert_msg(npugraph_tokenizer_encode(tok, text, json_string_length(json_object_get(c, "text")),
                                                NPUGRAPH_ENCODE_SPECIAL, &ids, &n, &err) == 0,
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

    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL, &ids, &n, NULL), 0);
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

    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL, &ids, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_ptr_nonnull(npugraph_tokenizer_bytes(tok, ids[0], &n, &special));
    ck_assert(special);
    ck_assert(npugraph_tokenizer_is_added(tok, ids[0]) && !npugraph_tokenizer_is_added(tok, 0));
    ck_assert(!npugraph_tokenizer_is_added(tok, -1) && !npugraph_tokenizer_is_added(tok, INT32_MAX));
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
    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, len, NPUGRAPH_ENCODE_SPECIAL, &ids, &n, NULL), 0);
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

/* Long texts are searched in another way than short ones. */
START_TEST(a_long_text_has_the_ids_of_its_lines)
{
    static const char line[] = "In the beginning, 12345 \xe4\xb8\xad\xc3\xa9  God's  \t\n";
    const size_t len = sizeof(line) - 1, times = 1000;
    struct npugraph_tokenizer *tok = open_bundled();
    char *text = malloc(times * len);
    int32_t *one = NULL, *all = NULL;
    size_t n_one = 0, n_all = 0;

    for (size_t i = 0; i < times; i++)
        memcpy(text + i * len, line, len);
    ck_assert_int_eq(npugraph_tokenizer_encode(tok, line, len, 0, &one, &n_one, NULL), 0);
    ck_assert_int_eq(npugraph_tokenizer_encode(tok, text, times * len, 0, &all, &n_all, NULL), 0);
    ck_assert_uint_eq(n_all, times * n_one);
    for (size_t i = 0; i < n_all; i++)
        ck_assert_int_eq(all[i], one[i % n_one]);
    free(one);
    free(all);
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

    ck_assert_int_ne(npugraph_tokenizer_encode(tok, "\xff\xfe", 2, NPUGRAPH_ENCODE_SPECIAL, &ids, &n, &err), 0);
    ck_assert_str_eq(err.reason, "INVALID_ARGUMENT");
    npugraph_tokenizer_close(tok);
}
END_TEST

/* Opens a tokenizer.json. Returns the message of the refusal, "" if there is none. */
static struct npugraph_tokenizer *open_text(const char *json, struct npugraph_error *err)
{
    char path[] = "/tmp/npugraph-tok-XXXXXX";
    struct npugraph_tokenizer *tok = NULL;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, json, strlen(json)), (ssize_t)strlen(json));
    close(fd);
    npugraph_tokenizer_open(path, &tok, err);
    unlink(path);
    return tok;
}

/* A small BPE, with fields added to its model and to the whole. */
#define BPE(model, whole) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" model "}" whole "}"
#define BYTE_LEVEL                   "\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true"
#define TIMES_4(x)                   x "," x "," x "," x
#define REPLACE(content)             "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"" content "\"}"
#define A_16                         "aaaaaaaaaaaaaaaa"
#define SEQUENCE(part, list, stages) ",\"" part "\":{\"type\":\"Sequence\",\"" list "\":[" stages "]}"

START_TEST(what_would_not_give_the_same_ids_is_refused_by_name)
{
    static const struct {
        const char *json, *reason, *field;
    } files[] = {
        {"{", "FILE_CORRUPT", ""},
        {"{\"model\":{\"type\":\"WordLevel\"}}", "FILE_CORRUPT", "model.vocab"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}", "FILE_UNSUPPORTED", "model.type"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "FILE_CORRUPT", "model.vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "FILE_CORRUPT", "model.vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}}", "FILE_CORRUPT", "model.merges[0]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}", "FILE_CORRUPT", "model.vocab[1]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", "FILE_CORRUPT", "model.unk_id"},
        {BPE(",\"dropout\":0.1", ""), "FILE_UNSUPPORTED", "model.dropout"},
        {BPE(",\"fuse_unk\":\"yes\"", ""), "FILE_CORRUPT", "model.fuse_unk"},
        {BPE(",\"unk_token\":\"<unk>\"", ""), "FILE_CORRUPT", "model.unk_token"},
        {BPE("", ",\"version\":\"2.0\""), "FILE_UNSUPPORTED", "version"},
        {BPE("", ",\"truncation\":{\"max_length\":8}"), "FILE_UNSUPPORTED", "truncation"},
        {BPE("", ",\"padding\":{\"strategy\":{\"Fixed\":8}}"), "FILE_UNSUPPORTED", "padding"},
        {BPE("",
             ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"),
         "FILE_UNSUPPORTED", "normalizer.normalizers[1].type"},
        {BPE("", ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), "FILE_UNSUPPORTED", "pre_tokenizer.type"},
        {BPE("", ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
         "FILE_UNSUPPORTED", "pre_tokenizer.pattern.Regex"},
        {BPE("", ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[[:punct:]]\"}}"), "FILE_UNSUPPORTED",
         "pre_tokenizer.pattern.Regex"},
        {BPE("", ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Joined\"}"),
         "FILE_UNSUPPORTED", "pre_tokenizer.behavior"},
        {BPE("",
             ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{" BYTE_LEVEL "},{\"type\":\"Metaspace\","
             "\"replacement\":\"_\",\"prepend_scheme\":\"first\"}]}"),
         "FILE_UNSUPPORTED", "pre_tokenizer.pretokenizers[1].prepend_scheme"},
        {BPE("", ",\"added_tokens\":[{\"id\":7,\"content\":\"<s>\"}]"), "FILE_UNSUPPORTED", "added_tokens[0].id"},
        {BPE("", ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"lstrip\":1}]"), "FILE_CORRUPT",
         "added_tokens[0].lstrip"},
        {BPE("", ",\"added_tokens\":[{\"id\":3,\"content\":\"\"}]"), "FILE_CORRUPT", "added_tokens[0].content"},
        {BPE("", ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"), "FILE_UNSUPPORTED",
         "post_processor.single"},
        {BPE("", ",\"decoder\":{\"type\":\"CTC\"}"), "FILE_UNSUPPORTED", "decoder.type"},
        {BPE("", ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}"),
         "FILE_UNSUPPORTED", "decoder.decoders[1]"},
        {BPE("", SEQUENCE("decoder", "decoders", TIMES_4(REPLACE(A_16)))), "FILE_UNSUPPORTED", "Replace decoders"},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct npugraph_error err = {0};

        ck_assert_msg(open_text(files[i].json, &err) == NULL, "accepted: %s", files[i].json);
        ck_assert_msg(strcmp(err.reason, files[i].reason) == 0 && strstr(err.message, files[i].field) != NULL,
                      "%s: %s [%s]", files[i].json, err.message, err.reason);
    }
}
END_TEST

START_TEST(expressions_without_end_are_refused_when_they_meet_the_text)
{
    struct npugraph_error err = {0};
    struct npugraph_tokenizer *tok = open_text(
        BPE("",
            ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa|b)+$\"},\"behavior\":\"Isolated\"}"),
        &err);
    char text[101];
    int32_t *ids = NULL;
    size_t n;

    ck_assert_msg(tok != NULL, "%s", err.message);
    memset(text, 'a', 99);
    text[99] = '!';
    ck_assert_int_ne(npugraph_tokenizer_encode(tok, text, 100, 0, &ids, &n, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "too many steps"));
    npugraph_tokenizer_close(tok);
}
END_TEST

/* U+00E9 becomes two characters of two bytes each, and so on. */
#define DOUBLING "{" BYTE_LEVEL ",\"use_regex\":false}"
/* A mark before each character, and then before each of those. */
#define MARKING(mark)                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Isolated\"}," \
    "{\"type\":\"Metaspace\",\"replacement\":\"" mark "\",\"prepend_scheme\":\"always\",\"split\":false}"

/* Each would give more than a million times as many bytes. */
START_TEST(stages_that_multiply_a_text_are_refused_when_they_meet_it)
{
    static const char *const files[] = {
        BPE("", SEQUENCE("normalizer", "normalizers", TIMES_4(REPLACE(A_16 A_16 A_16 A_16)))),
        BPE("", SEQUENCE("pre_tokenizer", "pretokenizers", TIMES_4(TIMES_4(DOUBLING)) "," TIMES_4(DOUBLING))),
        BPE("", SEQUENCE("pre_tokenizer", "pretokenizers",
                         MARKING("0") "," MARKING("1") "," MARKING("2") "," MARKING("3") "," MARKING("4") "," MARKING(
                             "5") "," MARKING("6") "," MARKING("7") "," MARKING("8") "," MARKING("9"))),
    };
    char text[2048];

    for (size_t i = 0; i < sizeof(text); i += 4)
        memcpy(text + i, "aa\xc3\xa9", 4);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct npugraph_error err = {0};
        struct npugraph_tokenizer *tok = open_text(files[i], &err);
        int32_t *ids = NULL;
        size_t n;

        ck_assert_msg(tok != NULL, "%s", err.message);
        ck_assert_int_ne(npugraph_tokenizer_encode(tok, text, sizeof(text), 0, &ids, &n, &err), 0);
        ck_assert_msg(strstr(err.message, "of each byte of a text") != NULL, "%zu: %s", i, err.message);
        npugraph_tokenizer_close(tok);
    }
}
END_TEST

UNIT_MAIN("client/tokenizer", encode_gives_the_ids_of_hugging_face_tokenizers, decoding_the_ids_gives_the_text_back,
          special_tokens_are_recognised_only_when_asked_for, a_piece_of_a_megabyte_is_encoded_in_reasonable_time,
          a_long_text_has_the_ids_of_its_lines, text_that_is_not_utf8_is_refused,
          what_would_not_give_the_same_ids_is_refused_by_name,
          expressions_without_end_are_refused_when_they_meet_the_text,
          stages_that_multiply_a_text_are_refused_when_they_meet_it)
