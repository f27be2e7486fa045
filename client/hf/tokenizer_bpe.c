/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte pair encoding: the characters of a piece are merged pair by pair, lowest rank first (ties: leftmost). A heap
 * makes the cost of a long piece n log n.
 */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------------- */

static uint64_t mix_pair(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

/* Returns the slot of a pair: its own or the empty one where it belongs. */
static struct npugraph__merge *merge_slot(const struct npugraph__bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = bpe->merges_size - 1, i = mix_pair(pair) & mask;

    while (bpe->merges[i].pair != UINT64_MAX && bpe->merges[i].pair != pair)
        i = (i + 1) & mask;
    return &bpe->merges[i];
}

struct merge_parts {
    const char *left, *right;
    size_t n_left, n_right;
};

/* Splits a merge, which is "left right" in older files and ["left", "right"] in newer ones. */
static bool split_merge(const json_t *m, struct merge_parts *p)
{
    const char *whole = json_string_value(m), *space = whole != NULL ? strchr(whole, ' ') : NULL;

    if (json_is_array(m) && json_array_size(m) == 2) {
        p->left = json_string_value(json_array_get(m, 0));
        p->right = json_string_value(json_array_get(m, 1));
        p->n_left = json_string_length(json_array_get(m, 0));
        p->n_right = json_string_length(json_array_get(m, 1));
        return p->left != NULL && p->right != NULL;
    }
    if (space == NULL || strchr(space + 1, ' ') != NULL || strlen(whole) != json_string_length(m))
        return false;
    *p = (struct merge_parts){whole, space + 1, (size_t)(space - whole), strlen(space + 1)};
    return true;
}

static int read_merge(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const json_t *m, size_t at,
                      int32_t rank, struct npugraph__text *joined)
{
    size_t n_prefix = tok->bpe.prefix != NULL ? strlen(tok->bpe.prefix) : 0;
    struct merge_parts p = {0};
    struct npugraph__merge *slot;
    int32_t a, b, whole;

    if (!split_merge(m, &p) || p.n_right < n_prefix)
        return npugraph__corrupt(from, "model.merges[%zu] is not a pair of tokens", at);
    joined->n = 0;
    if (!npugraph__text_add(joined, p.left, p.n_left) ||
        !npugraph__text_add(joined, p.right + n_prefix, p.n_right - n_prefix))
        return npugraph__no_memory(from->err);
    a = npugraph__token_find(tok, p.left, p.n_left);
    b = npugraph__token_find(tok, p.right, p.n_right);
    whole = npugraph__token_find(tok, joined->s, joined->n);
    if (a < 0 || b < 0 || whole < 0)
        return npugraph__corrupt(from, "model.merges[%zu] names a token that model.vocab lacks", at);
    slot = merge_slot(&tok->bpe, a, b);
    *slot = (struct npugraph__merge){(uint64_t)(uint32_t)a << 32 | (uint32_t)b, rank, whole}; /* the last one counts */
    return 0;
}

static int read_merges(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const json_t *merges)
{
    struct npugraph__text joined = {0};
    size_t size = 16, i;
    int32_t rank = 0;
    int rc = 0;
    json_t *m;

    while (size < 2 * json_array_size(merges))
        size *= 2;
    tok->bpe.merges = malloc(size * sizeof(*tok->bpe.merges));
    tok->bpe.merges_size = size;
    if (tok->bpe.merges == NULL)
        return npugraph__no_memory(from->err);
    memset(tok->bpe.merges, 0xff, size * sizeof(*tok->bpe.merges));
    json_array_foreach(merges, i, m)
    {
        const char *line = json_string_value(m);

        if (line != NULL && strncmp(line, "#version", 8) == 0)
            continue; /* of merges.txt, which older files were made from */
        rc = read_merge(from, tok, m, i, rank++, &joined);
        if (rc != 0)
            break;
    }
    npugraph__text_fini(&joined);
    return rc;
}

static int read_vocab_object(const struct npugraph__source *from, struct npugraph_tokenizer *tok, json_t *vocab)
{
    const char *key;
    json_t *v;

    json_object_foreach(vocab, key, v)
    {
        int rc = npugraph__token_add(from, tok, key, strlen(key), json_is_integer(v) ? json_integer_value(v) : -1);

        if (rc != 0)
            return rc;
    }
    return 0;
}

static int read_affix(const struct npugraph__source *from, const json_t *model, const char *name, char **affix_p)
{
    const char *affix = NULL;
    int rc = npugraph__take_string(from, model, "model", name, &affix);

    if (rc != 0 || affix == NULL || affix[0] == '\0')
        return rc;
    if (strlen(affix) > NPUGRAPH__MAX_ADDED)
        return npugraph__unsupported(from, "model.%s is longer than %d bytes", name, NPUGRAPH__MAX_ADDED);
    *affix_p = strdup(affix);
    return *affix_p != NULL ? 0 : npugraph__no_memory(from->err);
}

static int read_unknown(const struct npugraph__source *from, const json_t *model, struct npugraph_tokenizer *tok)
{
    const char *unk = NULL;
    int rc = npugraph__take_string(from, model, "model", "unk_token", &unk);

    tok->bpe.unk = -1;
    if (rc != 0 || unk == NULL)
        return rc;
    tok->bpe.unk = npugraph__token_find(tok, unk, strlen(unk));
    return tok->bpe.unk >= 0 ? 0 : npugraph__corrupt(from, "model.unk_token names a token that model.vocab lacks");
}

int npugraph__bpe_read(const struct npugraph__source *from, const json_t *model, struct npugraph_tokenizer *tok)
{
    struct npugraph__bpe *bpe = &tok->bpe;
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges"),
           *dropout = json_object_get(model, "dropout");
    int rc;

    tok->encode_piece = npugraph__bpe_encode;
    if (!json_is_object(vocab) || !json_is_array(merges))
        return npugraph__corrupt(from, "model.vocab must be an object and model.merges an array");
    if (dropout != NULL && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return npugraph__unsupported(from, "model.dropout is set; it makes ids random, so make it null");
    if ((rc = npugraph__take_bool(from, model, "model", "fuse_unk", &bpe->fuse_unk)) != 0 ||
        (rc = npugraph__take_bool(from, model, "model", "byte_fallback", &bpe->byte_fallback)) != 0 ||
        (rc = npugraph__take_bool(from, model, "model", "ignore_merges", &bpe->ignore_merges)) != 0 ||
        (rc = read_affix(from, model, "continuing_subword_prefix", &bpe->prefix)) != 0 ||
        (rc = read_affix(from, model, "end_of_word_suffix", &bpe->suffix)) != 0 ||
        (rc = read_vocab_object(from, tok, vocab)) != 0 || (rc = read_merges(from, tok, merges)) != 0)
        return rc;
    npugraph__byte_tokens(tok, bpe->byte_id);
    return read_unknown(from, model, tok);
}

void npugraph__bpe_fini(struct npugraph__bpe *bpe)
{
    free(bpe->merges);
    free(bpe->prefix);
    free(bpe->suffix);
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};
struct candidate {
    int32_t rank, left, id; /* id: the merged token */
};
struct piece {
    const struct npugraph__bpe *bpe;
    struct symbol *symbols;
    struct candidate *heap;
    size_t n, n_heap;
    bool unknown; /* characters not in the vocabulary wait to become the unknown token */
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void heap_push(struct piece *p, struct candidate c)
{
    size_t i = p->n_heap++;

    for (; i > 0 && before(&c, &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = c;
}

static struct candidate heap_pop(struct piece *p)
{
    struct candidate top = p->heap[0], last = p->heap[--p->n_heap];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < p->n_heap; i = child) {
        if (child + 1 < p->n_heap && before(&p->heap[child + 1], &p->heap[child]))
            child++;
        if (!before(&p->heap[child], &last))
            break;
        p->heap[i] = p->heap[child];
    }
    p->heap[i] = last;
    return top;
}

static void consider(struct piece *p, int32_t left)
{
    int32_t right = left >= 0 ? p->symbols[left].next : -1;
    const struct npugraph__merge *m;

    if (right < 0)
        return;
    m = merge_slot(p->bpe, p->symbols[left].id, p->symbols[right].id);
    if (m->pair != UINT64_MAX)
        heap_push(p, (struct candidate){m->rank, left, m->id});
}

static void merge_all(struct piece *p)
{
    while (p->n_heap > 0) {
        struct candidate c = heap_pop(p);
        struct symbol *l = &p->symbols[c.left];
        int32_t r = l->next;
        const struct npugraph__merge *m;

        /* The entry is stale if a side has been merged since, and the pair now gives something else or nothing. */
        if (l->id < 0 || r < 0)
            continue;
        m = merge_slot(p->bpe, l->id, p->symbols[r].id);
        if (m->pair == UINT64_MAX || m->id != c.id)
            continue;
        l->id = c.id;
        l->next = p->symbols[r].next;
        p->symbols[r].id = -1;
        if (l->next >= 0)
            p->symbols[l->next].prev = c.left;
        consider(p, l->prev);
        consider(p, c.left);
    }
}

static void append_symbol(struct piece *p, int32_t id)
{
    int32_t at = (int32_t)p->n++;

    p->symbols[at] = (struct symbol){id, at - 1, -1};
    if (at > 0)
        p->symbols[at - 1].next = at;
}

static void end_unknown(struct piece *p)
{
    if (p->unknown)
        append_symbol(p, p->bpe->unk);
    p->unknown = false;
}

/* Adds a character with its affixes: its token; or a token for each byte; or the unknown token, one for several
 * unknown characters in a row if fuse_unk is set. Without any of these the character is dropped, as in the library. */
static void add_character(struct npugraph__encoding *e, struct piece *p, const char *s, size_t n)
{
    int32_t id = npugraph__token_find(e->tok, s, n);
    bool bytes = p->bpe->byte_fallback;

    if (id >= 0) {
        end_unknown(p);
        append_symbol(p, id);
        return;
    }
    for (size_t i = 0; bytes && i < n; i++)
        bytes = p->bpe->byte_id[(unsigned char)s[i]] >= 0;
    for (size_t i = 0; bytes && i < n; i++)
        append_symbol(p, p->bpe->byte_id[(unsigned char)s[i]]);
    if (bytes || p->bpe->unk < 0)
        return;
    if (!p->bpe->fuse_unk)
        end_unknown(p);
    p->unknown = true;
}

static void add_characters(struct npugraph__encoding *e, struct piece *p, const char *s, size_t n)
{
    char with[2 * NPUGRAPH__MAX_ADDED + 4];
    size_t len;
    int32_t c;

    for (size_t i = 0; i < n; i += len) {
        const char *prefix = i > 0 && p->bpe->prefix != NULL ? p->bpe->prefix : "", *suffix = "";

        len = npugraph__character(s + i, n - i, &c);
        if (i + len == n && p->bpe->suffix != NULL)
            suffix = p->bpe->suffix;
        if (prefix[0] == '\0' && suffix[0] == '\0') {
            add_character(e, p, s + i, len);
        } else {
            size_t n_prefix = strlen(prefix), n_suffix = strlen(suffix);

            memcpy(with, prefix, n_prefix);
            memcpy(with + n_prefix, s + i, len);
            memcpy(with + n_prefix + len, suffix, n_suffix);
            add_character(e, p, with, n_prefix + len + n_suffix);
        }
    }
    end_unknown(p);
}

/* Bytes that the symbols of a piece may need: byte_fallback gives one symbol for each byte, affixes included. */
static size_t most_symbols(const struct npugraph__bpe *bpe, size_t n)
{
    size_t prefix = bpe->byte_fallback && bpe->prefix != NULL ? strlen(bpe->prefix) : 0,
           suffix = bpe->byte_fallback && bpe->suffix != NULL ? strlen(bpe->suffix) : 0;

    return n * (1 + prefix) + suffix;
}

int npugraph__bpe_encode(struct npugraph__encoding *e, const char *s, size_t n)
{
    const struct npugraph__bpe *bpe = &e->tok->bpe;
    int32_t whole = bpe->ignore_merges ? npugraph__token_find(e->tok, s, n) : -1;
    struct piece p = {.bpe = bpe};
    size_t room = most_symbols(bpe, n);
    int rc = 0;

    if (whole >= 0)
        return npugraph__emit(e, whole);
    if (room > INT32_MAX / 4)
        return npugraph__error(e->err, 3, "INVALID_ARGUMENT", "a piece of the text has %zu bytes; give a shorter text",
                               n);
    p.symbols = malloc(room * sizeof(*p.symbols) + 1);
    p.heap = malloc(3 * room * sizeof(*p.heap) + 1); /* n - 1 pairs, and two more for each of the n - 1 merges */
    if (p.symbols == NULL || p.heap == NULL) {
        rc = npugraph__no_memory(e->err);
    } else {
        add_characters(e, &p, s, n);
        for (size_t i = 0; i + 1 < p.n; i++)
            consider(&p, (int32_t)i);
        merge_all(&p);
        for (int32_t i = p.n > 0 ? 0 : -1; rc == 0 && i >= 0; i = p.symbols[i].next)
            rc = npugraph__emit(e, p.symbols[i].id);
    }
    free(p.symbols);
    free(p.heap);
    return rc;
}

/* Says whether a text may have the token as a piece: its characters are tokens, and stand for UTF-8. */
static bool may_be_piece(const struct npugraph_tokenizer *tok, const struct npugraph__token *t)
{
    int32_t c;

    if (t->text == NULL || t->added || !npugraph__is_utf8(t->bytes, t->n_bytes))
        return false;
    for (size_t i = 0, len; i < t->n; i += len) {
        len = npugraph__character(t->text + i, t->n - i, &c);
        if (npugraph__token_find(tok, t->text + i, len) < 0)
            return false;
    }
    return true;
}

int npugraph__bpe_check_merges(const struct npugraph__source *from, const struct npugraph_tokenizer *tok)
{
    struct npugraph__encoding e = {.tok = tok, .err = from->err};
    int rc = 0;

    for (size_t id = 0; rc == 0 && id < tok->n_tokens; id++) {
        const struct npugraph__token *t = &tok->tokens[id];

        if (!may_be_piece(tok, t))
            continue;
        e.out.n = 0;
        rc = npugraph__bpe_encode(&e, t->text, t->n);
        if (rc == 0 && (e.out.n != 1 || e.out.ids[0] != (int32_t)id))
            rc = npugraph__unsupported(from,
                                       "metadata tokenizer.ggml.merges: make no token %zu, and the file does not say "
                                       "whether it is one nevertheless. Use the model's tokenizer.json instead",
                                       id);
    }
    free(e.out.ids);
    return rc;
}
