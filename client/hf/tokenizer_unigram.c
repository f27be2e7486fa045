/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram: of all ways to write a piece in tokens, the one with the largest sum of scores. */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* below the lowest score of the vocabulary */

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int read_scores(const struct npugraph__source *from, const json_t *vocab, struct npugraph_tokenizer *tok)
{
    struct npugraph__unigram *u = &tok->unigram;
    double lowest = INFINITY;
    const json_t *row;
    size_t i;

    u->n = json_array_size(vocab);
    u->scores = calloc(u->n + 1, sizeof(*u->scores));
    u->words = calloc(u->n + 1, sizeof(*u->words));
    if (u->scores == NULL || u->words == NULL)
        return npugraph__no_memory(from->err);
    json_array_foreach(vocab, i, row)
    {
        const json_t *text = json_array_get(row, 0), *score = json_array_get(row, 1);
        size_t n = json_string_length(text);
        int rc;

        if (!json_is_string(text) || !json_is_number(score) || json_array_size(row) != 2)
            return npugraph__corrupt(from, "model.vocab[%zu] is not a token and its score", i);
        if (n != 0 && npugraph__token_find(tok, json_string_value(text), n) >= 0)
            return npugraph__corrupt(from, "model.vocab[%zu] is there twice", i);
        rc = npugraph__token_add(from, tok, json_string_value(text), n, (int64_t)i);
        if (rc != 0)
            return rc;
        u->scores[i] = json_number_value(score);
        lowest = u->scores[i] < lowest ? u->scores[i] : lowest;
        u->words[i] = (struct npugraph__word){tok->tokens[i].text, n, i};
    }
    u->unk_score = lowest - UNKNOWN_PENALTY;
    npugraph__words_sort(u->words, u->n);
    return 0;
}

int npugraph__unigram_read(const struct npugraph__source *from, const json_t *model, struct npugraph_tokenizer *tok)
{
    const json_t *vocab = json_object_get(model, "vocab"), *unk = json_object_get(model, "unk_id");
    int rc;

    tok->encode_piece = npugraph__unigram_encode;
    tok->unigram.unk = -1;
    if (!json_is_array(vocab))
        return npugraph__corrupt(from, "model.vocab is not an array");
    if (unk != NULL && !json_is_null(unk)) {
        if (!json_is_integer(unk) || json_integer_value(unk) < 0 ||
            (size_t)json_integer_value(unk) >= json_array_size(vocab))
            return npugraph__corrupt(from, "model.unk_id is not in model.vocab");
        tok->unigram.unk = (int32_t)json_integer_value(unk);
    }
    rc = npugraph__take_bool(from, model, "model", "byte_fallback", &tok->unigram.byte_fallback);
    if (rc == 0)
        rc = read_scores(from, vocab, tok);
    if (rc == 0)
        npugraph__byte_tokens(tok, tok->unigram.byte_id);
    return rc;
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

struct node { /* the best way to write the text up to here */
    double score;
    int32_t id;
    int32_t from; /* where its last token begins; -1 = no way yet */
};

static void offer_node(struct node *node, double score, int32_t id, size_t from)
{
    if (node->from < 0 || score > node->score)
        *node = (struct node){score, id, (int32_t)from};
}

static int fill_nodes(struct npugraph__encoding *e, const char *s, size_t n, struct node *nodes)
{
    const struct npugraph__unigram *u = &e->tok->unigram;
    size_t len, k;
    int rc = 0;
    int32_t c;

    for (size_t i = 0; rc == 0 && i < n; i += len) {
        struct npugraph__words range = {u->words, u->words + u->n, 0};
        double score = nodes[i].score;
        bool single = false;

        len = npugraph__character(s + i, n - i, &c);
        for (k = i; k < n && npugraph__words_narrow(&range, (unsigned char)s[k]); k++) {
            const struct npugraph__word *w = npugraph__words_whole(&range);

            if (w == NULL)
                continue;
            offer_node(&nodes[k + 1], u->scores[w->value] + score, (int32_t)w->value, i);
            single = single || k + 1 - i == len;
        }
        if (!single)
            offer_node(&nodes[i + len], u->unk_score + score, u->unk, i);
        rc = npugraph__deadline_count(&e->deadline, 1 + k - i, e->err);
    }
    return rc;
}

/* Emits the token that a part of the text is; or a token for each of its bytes; or the unknown token. */
static int emit_part(struct npugraph__encoding *e, const char *s, size_t n)
{
    const struct npugraph__unigram *u = &e->tok->unigram;
    int32_t id = npugraph__token_find(e->tok, s, n);
    bool bytes = u->byte_fallback;
    int rc = 0;

    if (id >= 0)
        return npugraph__emit(e, id);
    for (size_t i = 0; bytes && i < n; i++)
        bytes = u->byte_id[(unsigned char)s[i]] >= 0;
    for (size_t i = 0; bytes && rc == 0 && i < n; i++)
        rc = npugraph__emit(e, u->byte_id[(unsigned char)s[i]]);
    return bytes ? rc : npugraph__emit(e, u->unk);
}

/* Turns the links round, so that each part says where it ends, and emits the parts. Unknown ones in a row are one. */
static int emit_parts(struct npugraph__encoding *e, const char *s, size_t n, struct node *nodes)
{
    const struct npugraph__unigram *u = &e->tok->unigram;
    size_t begin = 0, end = n;
    int rc = 0;

    while (end > 0) {
        size_t from = (size_t)nodes[end].from;
        int32_t id = nodes[end].id;

        while (id == u->unk && from > 0 && nodes[from].id == u->unk)
            from = (size_t)nodes[from].from;
        nodes[from].score = (double)end; /* from here on: where the part ends that begins here */
        end = from;
    }
    for (; rc == 0 && begin < n; begin = end) {
        end = (size_t)nodes[begin].score;
        rc = emit_part(e, s + begin, end - begin);
    }
    return rc;
}

int npugraph__unigram_encode(struct npugraph__encoding *e, const char *s, size_t n)
{
    const struct npugraph__unigram *u = &e->tok->unigram;
    struct node *nodes;
    int rc = 0;

    if (n > INT32_MAX / 2)
        return npugraph__error(e->err, 3, "INVALID_ARGUMENT", "a piece of the text has %zu bytes; give a shorter text",
                               n);
    nodes = calloc(n + 1, sizeof(*nodes));
    if (nodes == NULL)
        return npugraph__no_memory(e->err);
    for (size_t i = 1; i <= n; i++)
        nodes[i].from = -1;
    rc = fill_nodes(e, s, n, nodes);
    for (size_t at = n; rc == 0 && u->unk < 0 && at > 0; at = (size_t)nodes[at].from)
        if (nodes[at].id < 0)
            rc = npugraph__error(e->err, 3, "INVALID_ARGUMENT",
                                 "the text has a character that the vocabulary lacks, and model.unk_id is not set");
    if (rc == 0)
        rc = emit_parts(e, s, n, nodes);
    free(nodes);
    return rc;
}
