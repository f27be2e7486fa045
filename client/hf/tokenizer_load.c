/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json of Hugging Face tokenizers into tables. Refuses, by name, what is not byte-level BPE. */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the printable alphabet of byte-level BPE (GPT-2): byte <-> code point ---------------------------------- */

static bool is_printable_byte(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static void make_alphabet(int16_t to_byte[512])
{
    unsigned next = 256;

    memset(to_byte, 0xff, 512 * sizeof(*to_byte));
    for (unsigned b = 0; b < 256; b++)
        to_byte[is_printable_byte(b) ? b : next++] = (int16_t)b;
}

/* Converts printable characters back to bytes in `out`, which has room for strlen bytes. Returns false if a character
 * is not in the alphabet. */
static bool to_raw_bytes(const int16_t to_byte[512], const char *s, char *out, uint32_t *n_p)
{
    uint32_t n = 0;

    while (*s != '\0') {
        unsigned c = (unsigned char)*s++, cp = c;

        if (c >= 0x80) {
            if ((c & 0xe0) != 0xc0 || ((unsigned char)*s & 0xc0) != 0x80)
                return false; /* the alphabet ends below U+0200 */
            cp = (c & 0x1f) << 6 | ((unsigned char)*s++ & 0x3f);
        }
        if (cp >= 512 || to_byte[cp] < 0)
            return false;
        out[n++] = (char)to_byte[cp];
    }
    *n_p = n;
    return true;
}

/* ---- hash tables -------------------------------------------------------------------------------------------- */

uint64_t npugraph__mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
    return npugraph__mix(h);
}

int32_t npugraph__token_find(const struct npugraph_tokenizer *tok, const char *bytes, size_t n)
{
    size_t mask = tok->index_size - 1;

    for (size_t i = hash_bytes(bytes, n) & mask; tok->index[i] >= 0; i = (i + 1) & mask) {
        const struct npugraph__token *t = &tok->tokens[tok->index[i]];

        if (t->n == n && memcmp(t->bytes, bytes, n) == 0)
            return tok->index[i];
    }
    return -1;
}

static void index_token(struct npugraph_tokenizer *tok, int32_t id)
{
    size_t mask = tok->index_size - 1, i = hash_bytes(tok->tokens[id].bytes, tok->tokens[id].n) & mask;

    while (tok->index[i] >= 0)
        i = (i + 1) & mask;
    tok->index[i] = id;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const struct npugraph__merge *npugraph__merge_find(const struct npugraph_tokenizer *tok, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right);
    size_t mask = tok->merges_size - 1;

    for (size_t i = npugraph__mix(pair) & mask; tok->merges[i].pair != UINT64_MAX; i = (i + 1) & mask)
        if (tok->merges[i].pair == pair)
            return &tok->merges[i];
    return NULL;
}

static void add_merge(struct npugraph_tokenizer *tok, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    size_t mask = tok->merges_size - 1, i;

    if (npugraph__merge_find(tok, left, right) != NULL)
        return;
    for (i = npugraph__mix(pair_of(left, right)) & mask; tok->merges[i].pair != UINT64_MAX;)
        i = (i + 1) & mask;
    tok->merges[i] = (struct npugraph__merge){pair_of(left, right), rank, id};
}

static size_t table_size(size_t n)
{
    size_t size = 16;

    while (size < 2 * n)
        size *= 2;
    return size;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

struct source {
    const char *path;
    json_t *root, *model;
    int16_t to_byte[512];
    struct npugraph_error *err;
};

static int refuse_tokenizer(struct source *s, const char *reason, const char *what)
{
    return npugraph__error(s->err, 3, reason, "%s: %s", s->path, what);
}
static int unsupported(struct source *s, const char *what)
{
    return refuse_tokenizer(s, "FILE_UNSUPPORTED", what);
}
static int corrupt(struct source *s, const char *what)
{
    return refuse_tokenizer(s, "FILE_CORRUPT", what);
}
static int tokenizer_no_memory(struct source *s)
{
    return npugraph__error(s->err, 8, "NO_MEMORY", "out of memory");
}

static bool is_type(const json_t *object, const char *type)
{
    const char *t = json_string_value(json_object_get(object, "type"));

    return t != NULL && strcmp(t, type) == 0;
}

static int check_model(struct source *s)
{
    s->model = json_object_get(s->root, "model");
    if (!json_is_object(s->model) || (json_object_get(s->model, "type") != NULL && !is_type(s->model, "BPE")))
        return unsupported(s, "only models of type BPE are supported");
    if (json_is_true(json_object_get(s->model, "byte_fallback")))
        return unsupported(s, "byte_fallback is set: only byte-level BPE is supported");
    if (!json_is_object(json_object_get(s->model, "vocab")) || !json_is_array(json_object_get(s->model, "merges")))
        return corrupt(s, "model.vocab must be an object and model.merges an array");
    return 0;
}

static int64_t largest_id(struct source *s)
{
    json_t *v, *added = json_object_get(s->root, "added_tokens");
    const char *key;
    int64_t max = -1;
    size_t i;

    json_object_foreach(json_object_get(s->model, "vocab"), key, v) max =
        json_integer_value(v) > max ? json_integer_value(v) : max;
    json_array_foreach(added, i, v) if (json_integer_value(json_object_get(v, "id")) > max) max =
        json_integer_value(json_object_get(v, "id"));
    return max;
}

static int read_vocab(struct source *s, struct npugraph_tokenizer *tok)
{
    const char *key;
    json_t *v;

    json_object_foreach(json_object_get(s->model, "vocab"), key, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        struct npugraph__token *t;

        if (id < 0 || (size_t)id >= tok->n_tokens || tok->tokens[id].bytes != NULL)
            return corrupt(s, "model.vocab has an id twice or outside its range");
        t = &tok->tokens[id];
        t->bytes = malloc(strlen(key) + 1);
        if (t->bytes == NULL)
            return tokenizer_no_memory(s);
        if (!to_raw_bytes(s->to_byte, key, t->bytes, &t->n)) { /* the vocabulary may list added tokens too */
            t->n = (uint32_t)strlen(key);
            memcpy(t->bytes, key, t->n);
        }
        index_token(tok, (int32_t)id);
        if (t->n == 1)
            tok->byte_id[(unsigned char)t->bytes[0]] = (int32_t)id;
    }
    return 0;
}

/* Splits a merge, which is "left right" in older files and ["left", "right"] in newer ones. */
static bool split_merge(const json_t *m, char *left, char *right, size_t room)
{
    const char *l = json_string_value(json_array_get(m, 0)), *r = json_string_value(json_array_get(m, 1)),
               *whole = json_string_value(m);
    const char *space = whole != NULL ? strchr(whole, ' ') : NULL;
    size_t n;

    if (space != NULL) {
        l = whole;
        r = space + 1;
    }
    if (l == NULL || r == NULL)
        return false;
    n = space != NULL ? (size_t)(space - whole) : strlen(l);
    if (n >= room || strlen(r) >= room)
        return false;
    memcpy(left, l, n);
    left[n] = '\0';
    memcpy(right, r, strlen(r) + 1);
    return true;
}

static int read_merges(struct source *s, struct npugraph_tokenizer *tok)
{
    char left[1024], right[1024], raw[2048];
    uint32_t nl, nr;
    size_t rank;
    json_t *m;

    json_array_foreach(json_object_get(s->model, "merges"), rank, m)
    {
        int32_t a, b, whole;

        if (!split_merge(m, left, right, sizeof(left)) || !to_raw_bytes(s->to_byte, left, raw, &nl) ||
            !to_raw_bytes(s->to_byte, right, raw + nl, &nr))
            return corrupt(s, "model.merges has an entry that is not a pair of tokens");
        a = npugraph__token_find(tok, raw, nl);
        b = npugraph__token_find(tok, raw + nl, nr);
        whole = npugraph__token_find(tok, raw, nl + nr);
        if (a < 0 || b < 0 || whole < 0)
            return corrupt(s, "model.merges names a token that model.vocab lacks");
        add_merge(tok, a, b, (int32_t)rank, whole);
    }
    tok->ignore_merges = json_is_true(json_object_get(s->model, "ignore_merges"));
    return 0;
}

static int add_one(struct source *s, struct npugraph_tokenizer *tok, const json_t *v)
{
    const char *content = json_string_value(json_object_get(v, "content"));
    json_int_t id = json_integer_value(json_object_get(v, "id"));
    struct npugraph__token *t;

    if (content == NULL || content[0] == '\0' || id < 0 || (size_t)id >= tok->n_tokens)
        return corrupt(s, "added_tokens has an entry without content or with an id outside its range");
    if (json_is_true(json_object_get(v, "lstrip")) || json_is_true(json_object_get(v, "rstrip")) ||
        json_is_true(json_object_get(v, "single_word")))
        return unsupported(s, "added_tokens with lstrip, rstrip or single_word are not supported");
    t = &tok->tokens[id];
    free(t->bytes);
    t->bytes = strdup(content);
    if (t->bytes == NULL)
        return tokenizer_no_memory(s);
    t->n = (uint32_t)strlen(content);
    t->added = true;
    t->special = json_is_true(json_object_get(v, "special"));
    tok->added[tok->n_added++] = (int32_t)id;
    return 0;
}

static int read_added(struct source *s, struct npugraph_tokenizer *tok)
{
    json_t *added = json_object_get(s->root, "added_tokens"), *v;
    size_t i;
    int rc = 0;

    tok->added = calloc(json_array_size(added) + 1, sizeof(*tok->added));
    if (tok->added == NULL)
        return tokenizer_no_memory(s);
    json_array_foreach(added, i, v)
    {
        rc = add_one(s, tok, v);
        if (rc != 0)
            return rc;
    }
    /* Longest first, so that the first match at a place is the longest. */
    for (size_t k = 1; k < tok->n_added; k++)
        for (size_t j = k; j > 0 && tok->tokens[tok->added[j]].n > tok->tokens[tok->added[j - 1]].n; j--) {
            int32_t t = tok->added[j];

            tok->added[j] = tok->added[j - 1];
            tok->added[j - 1] = t;
        }
    return 0;
}

static int compile_split(struct source *s, struct npugraph_tokenizer *tok, const char *pattern)
{
    PCRE2_UCHAR text[128];
    PCRE2_SIZE where;
    int code;

    tok->split = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
    if (tok->split != NULL) {
        pcre2_jit_compile(tok->split, PCRE2_JIT_COMPLETE); /* optional: if it fails, PCRE2 interprets the expression */
        return 0;
    }
    pcre2_get_error_message(code, text, sizeof(text));
    return npugraph__error(s->err, 3, "FILE_UNSUPPORTED",
                           "%s: the pre-tokenizer's expression does not compile at %zu: %s", s->path, where,
                           (const char *)text);
}

/* GPT-2's expression, which ByteLevel applies if use_regex is set. */
#define GPT2_SPLIT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int read_one_pre(struct source *s, struct npugraph_tokenizer *tok, const json_t *p)
{
    const json_t *pattern = json_object_get(p, "pattern"), *use = json_object_get(p, "use_regex");
    const char *regex = json_string_value(json_object_get(pattern, "Regex")),
               *how = json_string_value(json_object_get(p, "behavior"));

    if (is_type(p, "ByteLevel")) {
        if (json_is_true(json_object_get(p, "add_prefix_space")))
            return unsupported(s, "add_prefix_space is not supported");
        if ((use == NULL || json_is_true(use)) && tok->split == NULL)
            return compile_split(s, tok, GPT2_SPLIT);
        return json_is_true(use) ? unsupported(s, "two splitting pre-tokenizers are not supported") : 0;
    }
    if (!is_type(p, "Split") || regex == NULL || how == NULL || strcmp(how, "Isolated") != 0 ||
        json_is_true(json_object_get(p, "invert")) || tok->split != NULL)
        return unsupported(s, "the pre-tokenizer must be a Split by a Regex (Isolated), a ByteLevel, or both");
    return compile_split(s, tok, regex);
}

static int read_pre_tokenizer(struct source *s, struct npugraph_tokenizer *tok)
{
    json_t *pre = json_object_get(s->root, "pre_tokenizer"), *list = json_object_get(pre, "pretokenizers"), *p;
    size_t i;
    int rc = 0;

    if (!is_type(pre, "Sequence"))
        return json_is_object(pre) ? read_one_pre(s, tok, pre)
                                   : unsupported(s, "there is no pre-tokenizer: not byte-level BPE");
    json_array_foreach(list, i, p)
    {
        rc = read_one_pre(s, tok, p);
        if (rc != 0)
            break;
    }
    return rc;
}

static int read_normalizer(struct source *s, struct npugraph_tokenizer *tok)
{
    json_t *n = json_object_get(s->root, "normalizer");

    tok->nfc = is_type(n, "NFC");
    return n == NULL || json_is_null(n) || tok->nfc ? 0 : unsupported(s, "the normalizer must be NFC or none");
}

static int make_token_tables(struct source *s, struct npugraph_tokenizer *tok)
{
    int64_t max = largest_id(s);

    if (max < 0 || max >= NPUGRAPH__MAX_VOCAB)
        return corrupt(s, "the vocabulary is empty or has an id above 4194303");
    tok->n_tokens = (size_t)max + 1;
    tok->index_size = table_size(tok->n_tokens);
    tok->merges_size = table_size(json_array_size(json_object_get(s->model, "merges")));
    tok->tokens = calloc(tok->n_tokens, sizeof(*tok->tokens));
    tok->index = malloc(tok->index_size * sizeof(*tok->index));
    tok->merges = malloc(tok->merges_size * sizeof(*tok->merges));
    if (tok->tokens == NULL || tok->index == NULL || tok->merges == NULL)
        return tokenizer_no_memory(s);
    memset(tok->index, 0xff, tok->index_size * sizeof(*tok->index));
    memset(tok->merges, 0xff, tok->merges_size * sizeof(*tok->merges));
    memset(tok->byte_id, 0xff, sizeof(tok->byte_id));
    return 0;
}

static int read_tokenizer(struct source *s, struct npugraph_tokenizer *tok)
{
    int rc = check_model(s);

    if (rc == 0)
        rc = make_token_tables(s, tok);
    if (rc == 0)
        rc = read_vocab(s, tok);
    if (rc == 0)
        rc = read_merges(s, tok);
    if (rc == 0)
        rc = read_normalizer(s, tok);
    if (rc == 0)
        rc = read_pre_tokenizer(s, tok);
    return rc == 0 ? read_added(s, tok) : rc;
}

int npugraph_tokenizer_open(const char *path, struct npugraph_tokenizer **tok_p, struct npugraph_error *err)
{
    struct source s = {.path = path, .err = err};
    struct npugraph_tokenizer *tok;
    json_error_t e;
    int rc;

    s.root = json_load_file(path, 0, &e);
    if (s.root == NULL)
        return npugraph__error(err, 3,
                               json_error_code(&e) == json_error_cannot_open_file ? "FILE_NOT_FOUND" : "FILE_CORRUPT",
                               "%s: %s", path, e.text);
    tok = calloc(1, sizeof(*tok));
    if (tok == NULL) {
        json_decref(s.root);
        return tokenizer_no_memory(&s);
    }
    make_alphabet(s.to_byte);
    rc = read_tokenizer(&s, tok);
    json_decref(s.root);
    if (rc != 0)
        npugraph_tokenizer_close(tok);
    else
        *tok_p = tok;
    return rc;
}

void npugraph_tokenizer_close(struct npugraph_tokenizer *tok)
{
    if (tok == NULL)
        return;
    for (size_t i = 0; tok->tokens != NULL && i < tok->n_tokens; i++)
        free(tok->tokens[i].bytes);
    free(tok->tokens);
    free(tok->index);
    free(tok->merges);
    free(tok->added);
    pcre2_code_free(tok->split);
    free(tok);
}
