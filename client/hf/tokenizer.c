/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes text to ids. Added tokens are cut out, and the rest is normalised and split by the pre-tokenizer's
 * expression. Each piece is merged pair by pair, lowest rank first (ties: leftmost). A heap makes the cost of a long
 * piece n log n.
 */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct out {
    int32_t *ids;
    size_t n, cap;
};

static bool emit(struct out *o, int32_t id)
{
    if (o->n == o->cap) {
        size_t cap = o->cap != 0 ? 2 * o->cap : 64;
        int32_t *ids = realloc(o->ids, cap * sizeof(*ids));

        if (ids == NULL)
            return false;
        o->ids = ids;
        o->cap = cap;
    }
    o->ids[o->n++] = id;
    return true;
}

/* ---- one piece ---------------------------------------------------------------------------------------------- */

struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};
struct candidate {
    int32_t rank, left, id; /* id: the merged token */
    int32_t left_id, right_id;
};
struct piece {
    struct symbol *symbols;
    struct candidate *heap;
    size_t n_heap;
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

static void consider(const struct npugraph_tokenizer *tok, struct piece *p, int32_t left)
{
    int32_t right = left >= 0 ? p->symbols[left].next : -1;
    const struct npugraph__merge *m;

    if (right < 0)
        return;
    m = npugraph__merge_find(tok, p->symbols[left].id, p->symbols[right].id);
    if (m != NULL)
        heap_push(p, (struct candidate){m->rank, left, m->id, p->symbols[left].id, p->symbols[right].id});
}

static void merge_all(const struct npugraph_tokenizer *tok, struct piece *p)
{
    while (p->n_heap > 0) {
        struct candidate c = heap_pop(p);
        struct symbol *l = &p->symbols[c.left];
        int32_t r = l->next;

        /* The entry is stale if one side has been merged since. */
        if (l->id != c.left_id || r < 0 || p->symbols[r].id != c.right_id)
            continue;
        l->id = c.id;
        l->next = p->symbols[r].next;
        p->symbols[r].id = -1;
        if (l->next >= 0)
            p->symbols[l->next].prev = c.left;
        consider(tok, p, l->prev);
        consider(tok, p, c.left);
    }
}

static int encode_piece(const struct npugraph_tokenizer *tok, const char *s, size_t n, struct out *o,
                        struct npugraph_error *err)
{
    int32_t whole = tok->ignore_merges ? npugraph__token_find(tok, s, n) : -1;
    struct piece p = {0};
    bool ok = true;

    if (whole >= 0)
        return emit(o, whole) ? 0 : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    p.symbols = malloc(n * sizeof(*p.symbols) + 1);
    p.heap = malloc(3 * n * sizeof(*p.heap) + 1); /* n - 1 pairs, and at most two more for each of the n - 1 merges */
    for (size_t i = 0; p.symbols != NULL && p.heap != NULL && i < n; i++) {
        int32_t id = tok->byte_id[(unsigned char)s[i]];

        if (id < 0) {
            free(p.symbols);
            free(p.heap);
            return npugraph__error(err, 3, "FILE_UNSUPPORTED", "the vocabulary has no token for byte 0x%02x",
                                   (unsigned char)s[i]);
        }
        p.symbols[i] = (struct symbol){id, (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    }
    ok = p.symbols != NULL && p.heap != NULL;
    for (size_t i = 0; ok && i + 1 < n; i++)
        consider(tok, &p, (int32_t)i);
    if (ok)
        merge_all(tok, &p);
    for (int32_t i = 0; ok && n > 0 && i >= 0; i = p.symbols[i].next)
        ok = emit(o, p.symbols[i].id);
    free(p.symbols);
    free(p.heap);
    return ok ? 0 : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* ---- text between added tokens -------------------------------------------------------------------------------- */

static int encode_split(const struct npugraph_tokenizer *tok, const char *s, size_t n, struct out *o,
                        struct npugraph_error *err)
{
    pcre2_match_data *md = pcre2_match_data_create_from_pattern(tok->split, NULL);
    size_t at = 0;
    int rc = md != NULL ? 0 : npugraph__error(err, 8, "NO_MEMORY", "out of memory");

    while (rc == 0 && at < n) {
        int m = pcre2_match(tok->split, (PCRE2_SPTR)s, n, at, at != 0 ? PCRE2_NO_UTF_CHECK : 0, md, NULL);
        PCRE2_SIZE *v = pcre2_get_ovector_pointer(md);
        size_t begin = n, end = n;

        if (m < 0 && m != PCRE2_ERROR_NOMATCH) {
            rc = npugraph__error(err, 3, "INVALID_ARGUMENT", "the text cannot be split (PCRE2 error %d)", m);
            break;
        }
        if (m > 0 && v[1] > v[0]) {
            begin = v[0];
            end = v[1];
        }
        if (begin > at) /* with "Isolated", text between matches is a piece too */
            rc = encode_piece(tok, s + at, begin - at, o, err);
        if (rc == 0 && end > begin)
            rc = encode_piece(tok, s + begin, end - begin, o, err);
        at = end;
    }
    pcre2_match_data_free(md);
    return rc;
}

static int encode_plain(const struct npugraph_tokenizer *tok, const char *s, size_t n, struct out *o,
                        struct npugraph_error *err)
{
    utf8proc_uint8_t *nfc = NULL;
    utf8proc_ssize_t len = (utf8proc_ssize_t)n;
    int rc;

    if (n == 0)
        return 0;
    if (tok->nfc) {
        len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (len < 0)
            return npugraph__error(err, 3, "INVALID_ARGUMENT", "the text is not valid UTF-8: %s", utf8proc_errmsg(len));
        s = (const char *)nfc;
    }
    rc = tok->split != NULL ? encode_split(tok, s, (size_t)len, o, err) : encode_piece(tok, s, (size_t)len, o, err);
    free(nfc);
    return rc;
}

/* Returns the added token that begins at s, or -1. */
static int32_t added_at(const struct npugraph_tokenizer *tok, const char *s, size_t n)
{
    for (size_t i = 0; i < tok->n_added; i++) {
        const struct npugraph__token *t = &tok->tokens[tok->added[i]];

        if (t->n <= n && t->bytes[0] == s[0] && memcmp(t->bytes, s, t->n) == 0)
            return tok->added[i];
    }
    return -1;
}

int npugraph_tokenizer_encode(const struct npugraph_tokenizer *tok, const char *text, size_t n, bool special,
                              int32_t **ids_p, size_t *n_ids_p, struct npugraph_error *err)
{
    struct out o = {0};
    size_t from = 0;
    int rc = 0;

    for (size_t at = 0; rc == 0 && special && at < n;) {
        int32_t id = added_at(tok, text + at, n - at);

        if (id < 0) {
            at++;
            continue;
        }
        rc = encode_plain(tok, text + from, at - from, &o, err);
        if (rc == 0 && !emit(&o, id))
            rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        at += tok->tokens[id].n;
        from = at;
    }
    if (rc == 0)
        rc = encode_plain(tok, text + from, n - from, &o, err);
    if (rc == 0 && o.ids == NULL && (o.ids = malloc(sizeof(*o.ids))) == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    if (rc != 0) {
        free(o.ids);
        return rc;
    }
    *ids_p = o.ids;
    *n_ids_p = o.n;
    return 0;
}

const char *npugraph_tokenizer_bytes(const struct npugraph_tokenizer *tok, int32_t id, size_t *n_p, bool *special_p)
{
    if (id < 0 || (size_t)id >= tok->n_tokens || tok->tokens[id].bytes == NULL)
        return NULL;
    *n_p = tok->tokens[id].n;
    if (special_p != NULL)
        *special_p = tok->tokens[id].special;
    return tok->tokens[id].bytes;
}

size_t npugraph_tokenizer_size(const struct npugraph_tokenizer *tok)
{
    return tok->n_tokens;
}
