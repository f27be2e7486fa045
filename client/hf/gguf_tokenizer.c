/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes of a GGUF file's metadata the tokenizer.json and the tokenizer_config.json that the model was published with.
 * The file has tokens, their kinds, and merges or scores. It does not have the expressions that split a text: it names
 * them (tokenizer.ggml.pre). A name that is not in the table is refused, since ids would be others.
 */
#include "client/hf/gguf.h"
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX  NPUGRAPH__MAX_ADDED
#define PIECE_MAX  256 /* bytes of a token that is taken apart */
#define MERGES_MAX 2000000
#define STAGES_MAX 6  /* expressions of a pre-tokenizer */
#define MERGES_OF  16 /* merges for each token, of those that scores make; models have 2 to 4 */
#define SPACE      "\xe2\x96\x81"

/* Kinds of tokens (tokenizer.ggml.token_type). */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct gguf_token {
    const char *s; /* as the file has it, not terminated */
    size_t n;
    int64_t kind;
    double score;
};

struct gguf_vocab {
    struct npugraph__gguf *g;
    struct gguf_token *tokens;
    size_t n;
    bool has_scores;
    json_t *ids; /* by text */
};

/* ---- tokens ---- */

/* Finds an array with an element of the type for each token. *v_p is NULL if it is absent and not required. */
static int find_token_array(const struct gguf_vocab *vocab, const char *key, bool required,
                            const struct ngd_gguf_value **v_p)
{
    *v_p = ngd_gguf_value(&vocab->g->header, key);
    if (*v_p == NULL)
        return required ? npugraph__corrupt(&vocab->g->from, "metadata %s: is missing", key) : 0;
    if (!(*v_p)->array || ((*v_p)->n != vocab->n && vocab->n != 0))
        return npugraph__corrupt(&vocab->g->from, "metadata %s: is not an array with an element for each token", key);
    return 0;
}

static int take_token_text(struct gguf_vocab *vocab, const struct ngd_gguf_value *v, const uint8_t **at, size_t i)
{
    struct gguf_token *t = &vocab->tokens[i];
    char text[TOKEN_MAX + 1];

    if (!ngd_gguf_take_string(v, at, &t->s, &t->n) || t->n == 0 || t->n > TOKEN_MAX ||
        memchr(t->s, '\0', t->n) != NULL || !npugraph__is_utf8(t->s, t->n))
        return npugraph__unsupported(
            &vocab->g->from, "metadata tokenizer.ggml.tokens: token %zu is not a text in UTF-8 of 1 to %d bytes", i,
            TOKEN_MAX);
    memcpy(text, t->s, t->n);
    text[t->n] = '\0';
    t->kind = TOKEN_NORMAL;
    if (json_object_get(vocab->ids, text) != NULL)
        return npugraph__corrupt(&vocab->g->from, "metadata tokenizer.ggml.tokens: token %zu is there twice", i);
    return json_object_set_new(vocab->ids, text, json_integer((json_int_t)i)) == 0
               ? 0
               : npugraph__no_memory(vocab->g->from.err);
}

static int take_token_texts(struct gguf_vocab *vocab)
{
    const struct ngd_gguf_value *v;
    const uint8_t *at;
    int rc = find_token_array(vocab, "tokenizer.ggml.tokens", true, &v);

    if (rc != 0)
        return rc;
    if (v->n == 0 || v->n > NPUGRAPH__MAX_VOCAB)
        return npugraph__unsupported(&vocab->g->from,
                                     "metadata tokenizer.ggml.tokens: has %" PRIu64 " tokens; 1 to %d "
                                     "are supported",
                                     v->n, NPUGRAPH__MAX_VOCAB);
    vocab->tokens = calloc((size_t)v->n, sizeof(*vocab->tokens));
    if (vocab->tokens == NULL)
        return npugraph__no_memory(vocab->g->from.err);
    at = v->data;
    for (; rc == 0 && vocab->n < v->n; vocab->n++)
        rc = take_token_text(vocab, v, &at, vocab->n);
    return rc;
}

static int take_token_kinds(struct gguf_vocab *vocab)
{
    const struct ngd_gguf_value *kinds, *scores;
    const uint8_t *kind_at, *score_at;
    int rc = find_token_array(vocab, "tokenizer.ggml.token_type", false, &kinds);

    if (rc == 0)
        rc = find_token_array(vocab, "tokenizer.ggml.scores", false, &scores);
    if (rc != 0)
        return rc;
    kind_at = kinds != NULL ? kinds->data : NULL;
    score_at = scores != NULL ? scores->data : NULL;
    vocab->has_scores = scores != NULL;
    for (size_t i = 0; i < vocab->n; i++) {
        struct gguf_token *t = &vocab->tokens[i];

        if (kinds != NULL &&
            (!ngd_gguf_take_int(kinds, &kind_at, &t->kind) || t->kind < TOKEN_NORMAL || t->kind > TOKEN_BYTE))
            return npugraph__corrupt(&vocab->g->from,
                                     "metadata tokenizer.ggml.token_type: element %zu is not a kind, "
                                     "1 to 6",
                                     i);
        if (scores != NULL && (!ngd_gguf_take_number(scores, &score_at, &t->score) || !isfinite(t->score)))
            return npugraph__corrupt(&vocab->g->from, "metadata tokenizer.ggml.scores: element %zu is not a number", i);
    }
    return 0;
}

/* Tokens that are cut out of a text before it is split. */
static json_t *added_tokens(const struct gguf_vocab *vocab)
{
    json_t *list = json_array();

    for (size_t i = 0; i < vocab->n; i++) {
        const struct gguf_token *t = &vocab->tokens[i];

        if (t->kind == TOKEN_CONTROL || t->kind == TOKEN_USER || t->kind == TOKEN_UNKNOWN)
            npugraph__gguf_add(vocab->g, list,
                               json_pack("{s:I, s:s%, s:b, s:b}", "id", (json_int_t)i, "content", t->s, t->n, "special",
                                         t->kind != TOKEN_USER, "normalized", 0));
    }
    return list;
}

/* The token whose id a key has, as a new text; NULL: the key is absent, or *rc says why not. */
static json_t *special_token(const struct gguf_vocab *vocab, const char *key, int *rc, int64_t *id_p)
{
    int64_t id = -1;
    json_t *text;

    if (*rc == 0)
        *rc = npugraph__gguf_int(vocab->g, key, &id);
    if (*rc != 0 || ngd_gguf_value(&vocab->g->header, key) == NULL)
        return NULL;
    if (id < 0 || (uint64_t)id >= vocab->n) {
        *rc = npugraph__corrupt(&vocab->g->from, "metadata %s: is %" PRId64 "; the file has %zu tokens", key, id,
                                vocab->n);
        return NULL;
    }
    *id_p = id;
    text = json_stringn(vocab->tokens[id].s, vocab->tokens[id].n);
    vocab->g->no_memory |= text == NULL;
    return text;
}

/* ---- what stands before and behind a text ---- */

static int add_template_token(const struct gguf_vocab *vocab, const char *key, json_t *single, json_t *known)
{
    int64_t id = 0;
    int rc = 0;
    json_t *text = special_token(vocab, key, &rc, &id);

    if (text == NULL)
        return rc != 0 ? rc : npugraph__corrupt(&vocab->g->from, "metadata %s: is missing", key);
    npugraph__gguf_add(vocab->g, single, json_pack("{s:{s:O, s:i}}", "SpecialToken", "id", text, "type_id", 0));
    npugraph__gguf_set(vocab->g, known, json_string_value(text), json_pack("{s:[I]}", "ids", (json_int_t)id));
    json_decref(text);
    return 0;
}

static int add_post_processor(const struct gguf_vocab *vocab, bool begins, json_t *root)
{
    json_t *single = json_array(), *known = json_object();
    bool ends = false;
    int rc = npugraph__gguf_bool(vocab->g, "tokenizer.ggml.add_bos_token", &begins);

    if (rc == 0)
        rc = npugraph__gguf_bool(vocab->g, "tokenizer.ggml.add_eos_token", &ends);
    if (rc == 0 && begins)
        rc = add_template_token(vocab, "tokenizer.ggml.bos_token_id", single, known);
    npugraph__gguf_add(vocab->g, single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
    if (rc == 0 && ends)
        rc = add_template_token(vocab, "tokenizer.ggml.eos_token_id", single, known);
    npugraph__gguf_set(
        vocab->g, root, "post_processor",
        json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", single, "special_tokens", known));
    return rc;
}

/* ---- byte-level BPE ("gpt2") ---- */

/* What names in tokenizer.ggml.pre stand for, as the models' own tokenizer.json have it. A file does not say whether a
 * piece that is a token needs merges (ignore_merges). Where models differ, merges must make each token, so that it does
 * not matter. */
static const struct pre_tokenizer {
    const char *names;                   /* each behind a space */
    const char *expressions[STAGES_MAX]; /* one splits the pieces of the one before; none: that of GPT-2 */
    bool digits;                         /* each one by itself, before the expressions */
    bool nfc, begins;
    enum { MERGES_COUNT, MERGES_IGNORED, MERGES_MAKE_ALL } merges;
} pre_tokenizers[] = {
#define SHORT         "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BEFORE        "[^\\r\\n\\p{L}\\p{N}]?"
#define WORDS         SHORT "|" BEFORE "\\p{L}+|"
#define SPACES        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(behind) BEFORE UPPER "*" LOWER "+" behind "|" BEFORE UPPER "+" LOWER "*" behind "|"
#define SLASHES       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
#define HAN_KANA      "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define EAST_ASIAN    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define PUNCTUATION   "[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define ASCII_SIGN    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define SIGNS_V3      "| ?[\\p{P}\\p{S}]+[\\r\\n]*"
#define WORDS_V3      ASCII_SIGN "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" SIGNS_V3 SPACES
#define CASED_LETTERS                                                                                      \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"        \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}" \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"        \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"      \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"      \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"                 \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"                \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"      \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"        \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                 \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"                 \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"       \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"      \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"                     \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"                 \
    "\\x{1e900}-\\x{1e943}"
    {" llama-bpe llama3 llama-v3", {WORDS "\\p{N}{1,3}" REST}, false, false, true, MERGES_IGNORED},
    {" falcon3 pixtral", {WORDS "\\p{N}{1,3}" REST}, false, false, true, MERGES_MAKE_ALL},
    {" smaug-bpe dbrx glm4 chatglm-bpe", {WORDS "\\p{N}{1,3}" REST}, false, false, false, MERGES_MAKE_ALL},
    {" qwen2 deepseek-r1-qwen", {WORDS "\\p{N}" REST}, false, true, false, MERGES_COUNT},
    {" tekken", {CASED("") "\\p{N}" SLASHES}, false, false, true, MERGES_MAKE_ALL},
    {" gpt-4o", {CASED(SHORT "?") "\\p{N}{1,3}" SLASHES}, false, false, false, MERGES_MAKE_ALL},
    {" gpt-2", {NULL}, false, false, false, MERGES_COUNT},
    {" olmo", {NULL}, false, true, false, MERGES_COUNT},
    {" smollm refact starcoder", {NULL}, true, false, false, MERGES_COUNT},
    {" command-r", {NULL}, true, true, false, MERGES_COUNT},
    {" deepseek-llm",
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+", "\\s?" PUNCTUATION, "(?<!\\s)(?>\\s+)$", EAST_ASIAN, "\\p{N}"},
     false,
     false,
     true,
     MERGES_COUNT},
    {" deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN, "\\p{N}"},
     false,
     false,
     true,
     MERGES_COUNT},
    {" deepseek-v3", {"\\p{N}{1,3}", HAN_KANA, WORDS_V3}, false, false, true, MERGES_COUNT},
};

static bool has_pre_name(const struct pre_tokenizer *pre, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = pre->names; (at = strchr(at, ' ')) != NULL; at++)
        if (strncmp(at + 1, name, n) == 0 && (at[n + 1] == ' ' || at[n + 1] == '\0'))
            return true;
    return false;
}

static int find_pre_tokenizer(const struct npugraph__gguf *g, const struct pre_tokenizer **pre_p)
{
    char name[64] = "", known[512] = "";
    int rc = npugraph__gguf_text(g, "tokenizer.ggml.pre", name, sizeof(name));

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < sizeof(pre_tokenizers) / sizeof(pre_tokenizers[0]); i++) {
        *pre_p = &pre_tokenizers[i];
        if (has_pre_name(*pre_p, name))
            return 0;
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s", (*pre_p)->names);
    }
    return npugraph__unsupported(
        &g->from, "metadata tokenizer.ggml.pre: is \"%s\"; known are%s. Use the model's tokenizer.json instead", name,
        known);
}

static json_t *byte_level(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                     (int)regex);
}

static json_t *split_stages(const struct gguf_vocab *vocab, const struct pre_tokenizer *pre)
{
    json_t *list = json_array();

    if (pre->digits)
        npugraph__gguf_add(vocab->g, list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    for (size_t i = 0; i < STAGES_MAX && pre->expressions[i] != NULL; i++)
        npugraph__gguf_add(vocab->g, list,
                           json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                     pre->expressions[i], "behavior", "Isolated", "invert", 0));
    npugraph__gguf_add(vocab->g, list, byte_level(pre->expressions[0] == NULL));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
}

static int take_merges(const struct gguf_vocab *vocab, json_t *merges)
{
    const struct ngd_gguf_value *v = ngd_gguf_value(&vocab->g->header, "tokenizer.ggml.merges");
    const uint8_t *at = v != NULL ? v->data : NULL;
    const char *s;
    size_t n;

    if (v == NULL || !v->array || v->type != NGD_GGUF_STRING || v->n > MERGES_MAX)
        return npugraph__corrupt(&vocab->g->from,
                                 "metadata tokenizer.ggml.merges: is missing, or not an array of at most %d texts",
                                 MERGES_MAX);
    for (uint64_t i = 0; i < v->n; i++) {
        json_t *text = ngd_gguf_take_string(v, &at, &s, &n) ? json_stringn(s, n) : NULL;

        if (text == NULL)
            return npugraph__corrupt(&vocab->g->from,
                                     "metadata tokenizer.ggml.merges: element %" PRIu64 " is not UTF-8", i);
        npugraph__gguf_add(vocab->g, merges, text);
    }
    return 0;
}

static int fill_byte_level(const struct gguf_vocab *vocab, json_t *root)
{
    const struct pre_tokenizer *pre = NULL;
    json_t *merges = json_array();
    int rc = find_pre_tokenizer(vocab->g, &pre);

    if (rc == 0)
        rc = take_merges(vocab, merges);
    if (rc == 0)
        rc = add_post_processor(vocab, pre->begins, root);
    if (rc != 0) {
        json_decref(merges);
        return rc;
    }
    npugraph__gguf_set(vocab->g, root, "model",
                       json_pack("{s:s, s:b, s:O, s:o}", "type", "BPE", "ignore_merges",
                                 (int)(pre->merges == MERGES_IGNORED), "vocab", vocab->ids, "merges", merges));
    vocab->g->merges_make_all = pre->merges == MERGES_MAKE_ALL;
    if (pre->nfc)
        npugraph__gguf_set(vocab->g, root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    npugraph__gguf_set(vocab->g, root, "pre_tokenizer", split_stages(vocab, pre));
    npugraph__gguf_set(vocab->g, root, "decoder", byte_level(true));
    return 0;
}

/* ---- SentencePiece's BPE ("llama") ---- */

/* A pair of tokens whose texts together are a token. Pairs are merged by the score of that token. */
struct scored_merge {
    double score;
    uint32_t left, right;             /* ids */
    uint32_t left_chars, right_chars; /* longer ones come first where scores are equal */
    uint32_t at;                      /* order of the tokens */
};

struct scored_merges {
    struct scored_merge *items;
    size_t n, room;
};

static int add_scored_merge(const struct gguf_vocab *vocab, struct scored_merges *m, const struct scored_merge *one)
{
    if (m->n >= MERGES_MAX || m->n >= MERGES_OF * vocab->n)
        return npugraph__unsupported(&vocab->g->from,
                                     "metadata tokenizer.ggml.tokens: makes more than %d merges for each token, or %d",
                                     MERGES_OF, MERGES_MAX);
    if (m->n == m->room) {
        const size_t room = m->room != 0 ? 2 * m->room : 1024;
        struct scored_merge *more = realloc(m->items, room * sizeof(*more));

        if (more == NULL)
            return npugraph__no_memory(vocab->g->from.err);
        m->items = more;
        m->room = room;
    }
    m->items[m->n++] = *one;
    return 0;
}

static uint32_t count_characters(const char *s, size_t n)
{
    uint32_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* Takes a token apart at each character. */
static int split_token(const struct gguf_vocab *vocab, size_t id, struct scored_merges *m)
{
    const struct gguf_token *t = &vocab->tokens[id];
    const uint32_t chars = count_characters(t->s, t->n);
    char text[PIECE_MAX + 1];
    int rc = 0;

    memcpy(text, t->s, t->n);
    text[t->n] = '\0';
    for (size_t i = 1; rc == 0 && i < t->n; i++) {
        const char cut = text[i];
        const json_t *left, *right;

        if (((unsigned char)cut & 0xc0) == 0x80)
            continue;
        right = json_object_get(vocab->ids, text + i);
        text[i] = '\0';
        left = right != NULL ? json_object_get(vocab->ids, text) : NULL;
        text[i] = cut;
        if (left != NULL) {
            const uint32_t left_chars = count_characters(text, i);

            rc = add_scored_merge(vocab, m,
                                  &(struct scored_merge){t->score, (uint32_t)json_integer_value(left),
                                                         (uint32_t)json_integer_value(right), left_chars,
                                                         chars - left_chars, (uint32_t)id});
        }
    }
    return rc;
}

#define ORDER(a, b) \
    if ((a) != (b)) \
    return (a) < (b) ? -1 : 1

/* The order of transformers' SentencePieceExtractor: the scores of both libraries decide; ties by lengths. */
static int order_merges(const void *a, const void *b)
{
    const struct scored_merge *x = a, *y = b;

    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    ORDER(y->left_chars, x->left_chars);
    ORDER(y->right_chars, x->right_chars);
    ORDER(x->at, y->at);
    ORDER(x->left, y->left);
    ORDER(x->right, y->right);
    return 0;
}

static int make_merges(const struct gguf_vocab *vocab, json_t *merges)
{
    struct scored_merges m = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < vocab->n; i++)
        if (vocab->tokens[i].n <= PIECE_MAX)
            rc = split_token(vocab, i, &m);
        else if (vocab->tokens[i].kind == TOKEN_NORMAL)
            rc = npugraph__unsupported(
                &vocab->g->from, "metadata tokenizer.ggml.tokens: token %zu has more than %d bytes", i, PIECE_MAX);
    if (rc == 0 && m.n != 0)
        qsort(m.items, m.n, sizeof(*m.items), order_merges);
    for (size_t i = 0; rc == 0 && i < m.n; i++) {
        const struct gguf_token *l = &vocab->tokens[m.items[i].left], *r = &vocab->tokens[m.items[i].right];

        npugraph__gguf_add(vocab->g, merges, json_pack("[s%, s%]", l->s, l->n, r->s, r->n));
    }
    free(m.items);
    return rc;
}

static json_t *replace_stage(const char *from, const char *to)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content", to);
}

/* Writes spaces as SentencePiece does. prefix: a text begins with one. */
static void add_space_stages(const struct gguf_vocab *vocab, json_t *root, bool prefix)
{
    json_t *before = json_array(), *decoders = json_array();

    if (prefix)
        npugraph__gguf_add(vocab->g, before, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE));
    npugraph__gguf_add(vocab->g, before, replace_stage(" ", SPACE));
    npugraph__gguf_add(vocab->g, decoders, replace_stage(SPACE, " "));
    npugraph__gguf_add(vocab->g, decoders, json_pack("{s:s}", "type", "ByteFallback"));
    npugraph__gguf_add(vocab->g, decoders, json_pack("{s:s}", "type", "Fuse"));
    if (prefix)
        npugraph__gguf_add(vocab->g, decoders,
                           json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    npugraph__gguf_set(vocab->g, root, "normalizer",
                       json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", before));
    npugraph__gguf_set(vocab->g, root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", decoders));
}

static int fill_sentencepiece(const struct gguf_vocab *vocab, json_t *root)
{
    json_t *merges = json_array(), *unknown;
    bool prefix = true;
    int64_t id;
    int rc = npugraph__gguf_bool(vocab->g, "tokenizer.ggml.add_space_prefix", &prefix);

    if (rc == 0 && !vocab->has_scores)
        rc = npugraph__corrupt(&vocab->g->from, "metadata tokenizer.ggml.scores: is missing");
    if (rc == 0)
        rc = make_merges(vocab, merges);
    if (rc == 0)
        rc = add_post_processor(vocab, true, root);
    unknown = special_token(vocab, "tokenizer.ggml.unknown_token_id", &rc, &id);
    if (rc != 0) {
        json_decref(merges);
        json_decref(unknown);
        return rc;
    }
    npugraph__gguf_set(vocab->g, root, "model",
                       json_pack("{s:s, s:b, s:b, s:O, s:o, s:o?}", "type", "BPE", "byte_fallback", 1, "fuse_unk", 1,
                                 "vocab", vocab->ids, "merges", merges, "unk_token", unknown));
    add_space_stages(vocab, root, prefix);
    return 0;
}

/* ---- the whole ---- */

/* Keys of the tokenizer that are read, or that change no ids: any other one is refused. */
static bool is_known_key(const char *key, size_t n)
{
    static const char *const known[] = {"model",
                                        "pre",
                                        "tokens",
                                        "token_type",
                                        "scores",
                                        "merges",
                                        "add_bos_token",
                                        "add_eos_token",
                                        "add_sep_token",
                                        "add_space_prefix",
                                        "token_type_count",
                                        "remove_extra_whitespaces"};
    const size_t id = strlen("_token_id");

    if (n > id && memcmp(key + n - id, "_token_id", id) == 0)
        return true;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i]) == n && memcmp(known[i], key, n) == 0)
            return true;
    return false;
}

static int check_tokenizer_keys(const struct npugraph__gguf *g)
{
    static const char prefix[] = "tokenizer.ggml.";
    const size_t n = sizeof(prefix) - 1;
    bool off = false;
    int rc = npugraph__gguf_bool(g, "tokenizer.ggml.add_sep_token", &off);

    if (rc == 0 && off)
        rc = npugraph__unsupported(&g->from, "metadata tokenizer.ggml.add_sep_token: is true");
    off = false;
    if (rc == 0)
        rc = npugraph__gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &off);
    if (rc == 0 && off)
        rc = npugraph__unsupported(&g->from, "metadata tokenizer.ggml.remove_extra_whitespaces: is true");
    for (size_t i = 0; rc == 0 && i < g->header.n_values; i++) {
        const struct ngd_gguf_value *v = &g->header.values[i];

        if (v->key_bytes > n && memcmp(v->key, prefix, n) == 0 && !is_known_key(v->key + n, v->key_bytes - n))
            rc = npugraph__unsupported(&g->from, "metadata %.*s: is not supported",
                                       v->key_bytes < 80 ? (int)v->key_bytes : 80, v->key);
    }
    return rc;
}

static int read_gguf_vocab(struct gguf_vocab *vocab)
{
    int rc = take_token_texts(vocab);

    return rc == 0 ? take_token_kinds(vocab) : rc;
}

static int fill_tokenizer(struct gguf_vocab *vocab, json_t *root)
{
    char model[64] = "";
    int rc = check_tokenizer_keys(vocab->g);

    if (rc == 0)
        rc = npugraph__gguf_text(vocab->g, "tokenizer.ggml.model", model, sizeof(model));
    if (rc == 0 && strcmp(model, "gpt2") != 0 && strcmp(model, "llama") != 0)
        rc = npugraph__unsupported(&vocab->g->from,
                                   "metadata tokenizer.ggml.model: is \"%s\"; gpt2 and llama are supported. Use "
                                   "the model's tokenizer.json instead",
                                   model);
    if (rc == 0)
        rc = read_gguf_vocab(vocab);
    if (rc == 0)
        rc = strcmp(model, "gpt2") == 0 ? fill_byte_level(vocab, root) : fill_sentencepiece(vocab, root);
    if (rc == 0)
        npugraph__gguf_set(vocab->g, root, "added_tokens", added_tokens(vocab));
    return rc;
}

/* Calls fn with an empty vocabulary and an object, which it fills. */
static int make_from_vocab(struct npugraph__gguf *g, int (*fn)(struct gguf_vocab *, json_t *), json_t **made_p)
{
    struct gguf_vocab vocab = {.g = g, .ids = json_object()};
    json_t *made = json_object();
    int rc;

    g->no_memory = false;
    rc = vocab.ids != NULL && made != NULL ? fn(&vocab, made) : npugraph__no_memory(g->from.err);
    if (rc == 0 && g->no_memory)
        rc = npugraph__no_memory(g->from.err);
    json_decref(vocab.ids);
    free(vocab.tokens);
    if (rc == 0)
        *made_p = made;
    else
        json_decref(made);
    return rc;
}

int npugraph__gguf_tokenizer(struct npugraph__gguf *g, json_t **root_p)
{
    return make_from_vocab(g, fill_tokenizer, root_p);
}

static int fill_tokenizer_config(struct gguf_vocab *vocab, json_t *config)
{
    static const char *const tokens[][2] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    const struct ngd_gguf_value *v = ngd_gguf_value(&vocab->g->header, "tokenizer.chat_template");
    const char *s;
    size_t n;
    int rc = read_gguf_vocab(vocab);

    for (size_t i = 0; rc == 0 && i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        int64_t id;
        json_t *text = special_token(vocab, tokens[i][0], &rc, &id);

        if (text != NULL)
            npugraph__gguf_set(vocab->g, config, tokens[i][1], text);
    }
    if (rc != 0 || v == NULL)
        return rc;
    if (v->array || !ngd_gguf_take_string(v, &(const uint8_t *){v->data}, &s, &n) || n > (1u << 20) ||
        memchr(s, '\0', n) != NULL || json_object_set_new(config, "chat_template", json_stringn(s, n)) != 0)
        return npugraph__unsupported(&vocab->g->from,
                                     "metadata tokenizer.chat_template: is not a text in UTF-8 of at most 1 MiB");
    return 0;
}

int npugraph__gguf_tokenizer_config(struct npugraph__gguf *g, json_t **config_p)
{
    return make_from_vocab(g, fill_tokenizer_config, config_p);
}
