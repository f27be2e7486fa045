/* SPDX-License-Identifier: Apache-2.0 */
/* Opens tokenizer.json of Hugging Face tokenizers, and encodes: the parts of tokenizer_int.h, in their order. */
#include "client/hf/gguf.h"
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ids ----------------------------------------------------------------------------------------------------- */

bool npugraph__id_add(struct npugraph__id_list *list, int32_t id)
{
    if (list->n == list->room) {
        size_t room = list->room != 0 ? 2 * list->room : 64;
        int32_t *more = realloc(list->ids, room * sizeof(*more));

        if (more == NULL)
            return false;
        list->ids = more;
        list->room = room;
    }
    list->ids[list->n++] = id;
    return true;
}

int npugraph__emit(struct npugraph__encoding *e, int32_t id)
{
    return npugraph__id_add(&e->out, id) ? 0 : npugraph__no_memory(e->err);
}

static int emit_all(struct npugraph__encoding *e, const struct npugraph__id_list *list)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < list->n; i++)
        rc = npugraph__emit(e, list->ids[i]);
    return rc;
}

/* ---- the vocabulary ------------------------------------------------------------------------------------------ */

static uint64_t hash_text(const char *s, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 29;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 32;
}

int32_t npugraph__token_find(const struct npugraph_tokenizer *tok, const char *text, size_t n)
{
    size_t mask = tok->vocab.index_size - 1;

    for (size_t i = hash_text(text, n) & mask; tok->vocab.index[i] >= 0; i = (i + 1) & mask) {
        const struct npugraph__token *t = &tok->tokens[tok->vocab.index[i]];

        if (t->n == n && memcmp(t->text, text, n) == 0)
            return tok->vocab.index[i];
    }
    return -1;
}

int npugraph__token_add(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const char *text, size_t n,
                        int64_t id)
{
    size_t mask = tok->vocab.index_size - 1, i = hash_text(text, n) & mask;
    struct npugraph__token *t;

    if (id < 0 || (uint64_t)id >= tok->n_tokens || tok->tokens[id].text != NULL)
        return npugraph__corrupt(from, "model.vocab has id %lld twice or outside its range", (long long)id);
    if (n > NPUGRAPH__MAX_TOKEN)
        return npugraph__unsupported(from, "token %lld has %zu bytes; the limit is %d", (long long)id, n,
                                     NPUGRAPH__MAX_TOKEN);
    t = &tok->tokens[id];
    t->text = malloc(n + 1);
    if (t->text == NULL)
        return npugraph__no_memory(from->err);
    memcpy(t->text, text, n);
    t->text[n] = '\0';
    t->n = (uint32_t)n;
    while (tok->vocab.index[i] >= 0)
        i = (i + 1) & mask;
    tok->vocab.index[i] = (int32_t)id;
    tok->vocab.count++;
    return 0;
}

void npugraph__byte_tokens(const struct npugraph_tokenizer *tok, int32_t ids[256])
{
    char name[8];

    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        ids[b] = npugraph__token_find(tok, name, 6);
    }
}

/* Allocates tables for ids up to the largest of the model and of the added tokens. */
static int make_token_table(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
                 *added = json_object_get(root, "added_tokens");
    size_t count = json_is_array(vocab) ? json_array_size(vocab) : json_object_size(vocab), i, size = 16;
    json_int_t max = json_is_array(vocab) ? (json_int_t)count - 1 : -1, id;
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)vocab, key, v) max = json_integer_value(v) > max ? json_integer_value(v) : max;
    json_array_foreach(added, i, v)
    {
        id = json_integer_value(json_object_get(v, "id"));
        max = id > max ? id : max;
    }
    if (max < 0 || max >= NPUGRAPH__MAX_VOCAB)
        return npugraph__corrupt(from, "model.vocab is empty or an id is above %d", NPUGRAPH__MAX_VOCAB - 1);
    while (size < 2 * count)
        size *= 2;
    tok->n_tokens = (size_t)max + 1;
    tok->tokens = calloc(tok->n_tokens, sizeof(*tok->tokens));
    tok->vocab.index = malloc(size * sizeof(*tok->vocab.index));
    tok->vocab.index_size = size;
    if (tok->tokens == NULL || tok->vocab.index == NULL)
        return npugraph__no_memory(from->err);
    memset(tok->vocab.index, 0xff, size * sizeof(*tok->vocab.index));
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

static int read_model(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = npugraph__type_of(model);

    if (strcmp(type, "Unigram") == 0)
        return npugraph__unigram_read(from, model, tok);
    if (strcmp(type, "BPE") == 0 || (type[0] == '\0' && json_is_array(json_object_get(model, "merges"))))
        return npugraph__bpe_read(from, model, tok);
    return npugraph__unsupported(from, "model.type is \"%.40s\"; BPE and Unigram are supported", type);
}

/* A single text is neither shortened nor padded here. Padding to the longest text of a batch does nothing to one. */
static int check_limits(const struct npugraph__source *from, const json_t *root)
{
    const json_t *truncation = json_object_get(root, "truncation"), *padding = json_object_get(root, "padding"),
                 *version = json_object_get(root, "version");
    const char *longest = json_string_value(json_object_get(padding, "strategy"));

    if (version != NULL && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return npugraph__unsupported(from, "version is not \"1.0\"");
    if (truncation != NULL && !json_is_null(truncation))
        return npugraph__unsupported(from, "truncation is set; make it null, since prompts are not cut here");
    if (padding != NULL && !json_is_null(padding) &&
        (longest == NULL || strcmp(longest, "BatchLongest") != 0 ||
         json_integer_value(json_object_get(padding, "pad_to_multiple_of")) > 0))
        return npugraph__unsupported(from, "padding is set; make it null, since prompts are not padded here");
    return 0;
}

static int read_parts(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    static int (*const parts[])(const struct npugraph__source *, const json_t *, struct npugraph_tokenizer *) = {
        make_token_table,     read_model,           npugraph__normal_read,
        npugraph__split_read, npugraph__added_read, npugraph__template_read,
        npugraph__decode_read};
    int rc = check_limits(from, root);

    for (size_t i = 0; rc == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        rc = parts[i](from, root, tok);
    return rc;
}

static int read_tokenizer_json(const struct npugraph__source *from, json_t **root_p)
{
    json_error_t e;

    *root_p = npugraph__load_json(from->path, JSON_ALLOW_NUL, &e);
    if (*root_p != NULL)
        return 0;
    if (json_error_code(&e) == json_error_cannot_open_file)
        return npugraph__error(from->err, 3, "FILE_NOT_FOUND", "%s", e.text);
    return npugraph__corrupt(from, "%s (line %d)", e.text, e.line);
}

/* *make_all_p: merges must make each token. */
static int read_gguf_tokenizer(const struct npugraph__source *from, json_t **root_p, bool *make_all_p)
{
    struct npugraph__gguf *g = NULL;
    int rc = npugraph__gguf_open(from->path, &g, from->err);

    if (rc == 0)
        rc = npugraph__gguf_tokenizer(g, root_p);
    *make_all_p = g != NULL && g->merges_make_all;
    npugraph__gguf_close(g);
    return rc;
}

int npugraph_tokenizer_open(const char *path, struct npugraph_tokenizer **tok_p, struct npugraph_error *err)
{
    struct npugraph__source from = {path, err};
    struct npugraph_tokenizer *tok = NULL;
    json_t *root = NULL;
    bool make_all = false;
    int rc = npugraph__gguf_is(path) ? read_gguf_tokenizer(&from, &root, &make_all) : read_tokenizer_json(&from, &root);

    if (rc != 0)
        return rc;
    tok = calloc(1, sizeof(*tok));
    rc = tok != NULL ? read_parts(&from, root, tok) : npugraph__no_memory(err);
    json_decref(root);
    if (rc == 0 && make_all)
        rc = npugraph__bpe_check_merges(&from, tok);
    if (rc != 0)
        npugraph_tokenizer_close(tok);
    else
        *tok_p = tok;
    return rc;
}

static void free_stages(struct npugraph_tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_normals; i++) {
        npugraph__pattern_fini(&tok->normals[i].pattern);
        free(tok->normals[i].content);
    }
    for (size_t i = 0; i < tok->n_splits; i++)
        npugraph__pattern_fini(&tok->splits[i].pattern);
    for (size_t i = 0; i < tok->n_decodes; i++) {
        free(tok->decodes[i].pattern);
        free(tok->decodes[i].content);
    }
}

void npugraph_tokenizer_close(struct npugraph_tokenizer *tok)
{
    if (tok == NULL)
        return;
    for (size_t i = 0; tok->tokens != NULL && i < tok->n_tokens; i++) {
        if (tok->tokens[i].bytes != tok->tokens[i].text)
            free(tok->tokens[i].bytes);
        free(tok->tokens[i].text);
    }
    free(tok->tokens);
    free(tok->vocab.index);
    npugraph__bpe_fini(&tok->bpe);
    free(tok->unigram.scores);
    free(tok->unigram.words);
    free_stages(tok);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < tok->added[k].n; i++)
            free(tok->added[k].items[i].pattern);
        free(tok->added[k].items);
        free(tok->added[k].words);
    }
    free(tok->before.ids);
    free(tok->behind.ids);
    free(tok);
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

size_t npugraph__most_grown(size_t n)
{
    return n < (SIZE_MAX - NPUGRAPH__MIN_GROWN) / NPUGRAPH__MAX_GROWTH ? n * NPUGRAPH__MAX_GROWTH + NPUGRAPH__MIN_GROWN
                                                                       : SIZE_MAX;
}

int npugraph__overgrown(struct npugraph_error *err)
{
    return npugraph__error(err, 3, "FILE_UNSUPPORTED",
                           "the tokenizer's stages make more than %d bytes of each byte of a text, which is not "
                           "supported",
                           NPUGRAPH__MAX_GROWTH);
}

int npugraph_tokenizer_encode(const struct npugraph_tokenizer *tok, const char *text, size_t n, unsigned flags,
                              int32_t **ids_p, size_t *n_ids_p, struct npugraph_error *err)
{
    struct npugraph__encoding e = {
        .tok = tok, .err = err, .special = (flags & NPUGRAPH_ENCODE_SPECIAL) != 0, .left = npugraph__most_grown(n)};
    bool whole = (flags & NPUGRAPH_ENCODE_TEMPLATE) != 0;
    int rc = 0;

    if (!npugraph__is_utf8(text, n))
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "the text is not valid UTF-8");
    if (whole)
        rc = emit_all(&e, &tok->before);
    if (rc == 0)
        rc = npugraph__added_encode(&e, text, n, false, true);
    if (rc == 0 && whole)
        rc = emit_all(&e, &tok->behind);
    if (rc == 0 && e.out.ids == NULL && (e.out.ids = malloc(sizeof(*e.out.ids))) == NULL)
        rc = npugraph__no_memory(err);
    npugraph__text_fini(&e.normal);
    for (size_t i = 0; i < NPUGRAPH__MAX_STAGES; i++) {
        free(e.scratch[i].spans.items);
        npugraph__text_fini(&e.scratch[i].text);
        npugraph__text_fini(&e.scratch[i].bytes);
    }
    if (rc != 0) {
        free(e.out.ids);
        return rc;
    }
    *ids_p = e.out.ids;
    *n_ids_p = e.out.n;
    return 0;
}

const char *npugraph_tokenizer_bytes(const struct npugraph_tokenizer *tok, int32_t id, size_t *n_p, bool *special_p)
{
    if (id < 0 || (size_t)id >= tok->n_tokens || tok->tokens[id].text == NULL)
        return NULL;
    *n_p = tok->tokens[id].n_bytes;
    if (special_p != NULL)
        *special_p = tok->tokens[id].special;
    return tok->tokens[id].bytes;
}

bool npugraph_tokenizer_is_added(const struct npugraph_tokenizer *tok, int32_t id)
{
    return id >= 0 && (size_t)id < tok->n_tokens && tok->tokens[id].added;
}

size_t npugraph_tokenizer_size(const struct npugraph_tokenizer *tok)
{
    return tok->n_tokens;
}
