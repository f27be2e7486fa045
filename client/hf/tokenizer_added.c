/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens. Those that are not normalised are cut out of the text as it is; the others are cut, in their normalised
 * form, out of the normalised text between. At each place the longest one counts, and the search goes on behind it.
 * Patterns are ordered, so a search at one place narrows a range of them byte by byte.
 */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* Gives the id that the tokenizers library gives: the model's own, or the next one. */
static int check_added_id(const struct npugraph__source *from, const struct npugraph_tokenizer *tok,
                          const char *content, int64_t id, int64_t *next, size_t at)
{
    int32_t own = npugraph__token_find(tok, content, strlen(content));
    int64_t expected = own >= 0 ? own : *next;

    if (id < 0 || (uint64_t)id >= tok->n_tokens)
        return npugraph__corrupt(from, "added_tokens[%zu].id is missing or outside the vocabulary", at);
    if (id != expected)
        return npugraph__unsupported(from, "added_tokens[%zu].id is %lld; the tokenizers library would use %lld", at,
                                     (long long)id, (long long)expected);
    /* The library counts on from the largest id of an added token, but begins no lower than the model's size. */
    if (id >= (int64_t)tok->vocab.count)
        *next = id + 1 > *next ? id + 1 : *next;
    return 0;
}

static int set_added_text(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const char *content,
                          int32_t id, bool special, size_t at)
{
    struct npugraph__token *t = &tok->tokens[id];

    if (t->text != NULL && strcmp(t->text, content) != 0)
        return npugraph__corrupt(from, "added_tokens[%zu].id is that of another token", at);
    if (t->text == NULL && (t->text = strdup(content)) == NULL)
        return npugraph__no_memory(from->err);
    t->n = (uint32_t)strlen(content);
    t->special = special;
    t->added = true;
    return 0;
}

static int set_pattern(const struct npugraph__source *from, const struct npugraph_tokenizer *tok, const char *content,
                       struct npugraph__added *a, size_t at)
{
    struct npugraph__deadline deadline = {0};
    struct npugraph__text normal = {0};
    int rc = 0;

    if (a->normalized)
        rc = npugraph__normalize(tok, content, strlen(content), &normal, &deadline, from->err);
    else if (!npugraph__text_add(&normal, content, strlen(content)))
        rc = npugraph__no_memory(from->err);
    if (rc == 0 && normal.n == 0)
        rc = npugraph__unsupported(from, "added_tokens[%zu] is empty once it is normalised", at);
    if (rc == 0 && (a->pattern = malloc(normal.n)) == NULL)
        rc = npugraph__no_memory(from->err);
    if (rc == 0)
        memcpy(a->pattern, normal.s, a->n = normal.n);
    npugraph__text_fini(&normal);
    return rc;
}

static int read_one_added(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const json_t *v,
                          size_t at, int64_t *next)
{
    struct npugraph__added a = {.normalized = true};
    struct npugraph__added_set *set;
    const char *content = NULL;
    json_t *id = json_object_get(v, "id");
    char where[48];
    int rc;

    snprintf(where, sizeof(where), "added_tokens[%zu]", at);
    if ((rc = npugraph__take_string(from, v, where, "content", &content)) != 0 ||
        (rc = npugraph__take_bool(from, v, where, "special", &a.special)) != 0 ||
        (rc = npugraph__take_bool(from, v, where, "normalized", &a.normalized)) != 0 ||
        (rc = npugraph__take_bool(from, v, where, "single_word", &a.single_word)) != 0 ||
        (rc = npugraph__take_bool(from, v, where, "lstrip", &a.lstrip)) != 0 ||
        (rc = npugraph__take_bool(from, v, where, "rstrip", &a.rstrip)) != 0)
        return rc;
    if (content == NULL || content[0] == '\0' || strlen(content) > NPUGRAPH__MAX_ADDED)
        return npugraph__corrupt(from, "%s.content is missing, empty or longer than %d bytes", where,
                                 NPUGRAPH__MAX_ADDED);
    rc = check_added_id(from, tok, content, json_is_integer(id) ? json_integer_value(id) : -1, next, at);
    if (rc != 0)
        return rc;
    a.id = (int32_t)json_integer_value(id);
    rc = set_added_text(from, tok, content, a.id, a.special, at);
    if (rc == 0)
        rc = set_pattern(from, tok, content, &a, at);
    if (rc != 0)
        return rc;
    set = &tok->added[a.normalized];
    set->items[set->n++] = a;
    return 0;
}

static int order_added(const struct npugraph__source *from, struct npugraph__added_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        set->words[i] = (struct npugraph__word){set->items[i].pattern, set->items[i].n, i};
    npugraph__words_sort(set->words, set->n);
    for (size_t i = 1; i < set->n; i++)
        if (set->words[i - 1].n == set->words[i].n &&
            memcmp(set->words[i - 1].text, set->words[i].text, set->words[i].n) == 0)
            return npugraph__unsupported(from, "added_tokens has \"%.*s\" twice, perhaps once it is normalised",
                                         (int)set->words[i].n, set->words[i].text);
    return 0;
}

int npugraph__added_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    const json_t *added = json_object_get(root, "added_tokens"), *v;
    int64_t next = (int64_t)tok->vocab.count;
    size_t i;
    int rc = 0;

    if (added != NULL && !json_is_null(added) && !json_is_array(added))
        return npugraph__corrupt(from, "added_tokens is not an array");
    for (size_t k = 0; k < 2; k++) {
        tok->added[k].items = calloc(json_array_size(added) + 1, sizeof(*tok->added[k].items));
        tok->added[k].words = calloc(json_array_size(added) + 1, sizeof(*tok->added[k].words));
        if (tok->added[k].items == NULL || tok->added[k].words == NULL)
            return npugraph__no_memory(from->err);
    }
    json_array_foreach(added, i, v)
    {
        rc = read_one_added(from, tok, v, i, &next);
        if (rc != 0)
            return rc;
    }
    for (size_t k = 0; k < 2; k++) {
        rc = order_added(from, &tok->added[k]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- cutting ------------------------------------------------------------------------------------------------- */

/* Returns the longest pattern that s begins with, NULL if there is none. */
static const struct npugraph__added *longest_at(const struct npugraph__added_set *set, const char *s, size_t n,
                                                size_t *steps_p)
{
    struct npugraph__words range = {set->words, set->words + set->n, 0};
    const struct npugraph__word *best = NULL;

    for (size_t i = 0; i < n && npugraph__words_narrow(&range, (unsigned char)s[i]); i++) {
        const struct npugraph__word *w = npugraph__words_whole(&range);

        best = w != NULL ? w : best;
        (*steps_p)++;
    }
    return best != NULL ? &set->items[best->value] : NULL;
}

static size_t spaces_from(const char *s, size_t n)
{
    size_t i = 0, len;
    int32_t c;

    for (; i < n; i += len) {
        len = npugraph__character(s + i, n - i, &c);
        if (!npugraph__is_space(c))
            break;
    }
    return i;
}

/* Returns where the character begins that ends before s + end. end > 0. */
static size_t character_before(const char *s, size_t end, int32_t *c_p)
{
    size_t begin = end - 1;

    while (begin > 0 && (s[begin] & 0xc0) == 0x80)
        begin--;
    npugraph__character(s + begin, end - begin, c_p);
    return begin;
}

static size_t spaces_before(const char *s, size_t end)
{
    int32_t c;

    while (end > 0) {
        size_t begin = character_before(s, end, &c);

        if (!npugraph__is_space(c))
            break;
        end = begin;
    }
    return end;
}

static bool is_single_word(const char *s, size_t n, size_t begin, size_t end)
{
    int32_t c;

    if (begin > 0) {
        character_before(s, begin, &c);
        if (npugraph__is_word(c))
            return false;
    }
    if (end == n)
        return true;
    npugraph__character(s + end, n - end, &c);
    return !npugraph__is_word(c);
}

/* Normalises and goes on, or splits. */
static int encode_between(struct npugraph__encoding *e, const char *s, size_t n, bool normalized, bool first)
{
    int rc;

    if (n == 0)
        return 0;
    if (normalized)
        return npugraph__split_encode(e, 0, s, n, first);
    rc = npugraph__normalize(e->tok, s, n, &e->normal, &e->deadline, e->err);
    return rc == 0 ? npugraph__added_encode(e, e->normal.s, e->normal.n, true, first) : rc;
}

int npugraph__added_encode(struct npugraph__encoding *e, const char *s, size_t n, bool normalized, bool first)
{
    const struct npugraph__added_set *set = &e->tok->added[normalized];
    size_t from = 0, at = 0;
    int rc = 0;

    while (rc == 0 && set->n != 0 && at < n) {
        size_t begin = at, end, steps = 1;
        const struct npugraph__added *a = longest_at(set, s + at, n - at, &steps);

        rc = npugraph__deadline_count(&e->deadline, steps, e->err);
        if (rc != 0)
            return rc;
        if (a == NULL) {
            at++;
            continue;
        }
        at += a->n;
        end = at;
        if ((a->special && !e->special) || (a->single_word && !is_single_word(s, n, begin, end)))
            continue;
        if (a->lstrip)
            begin = spaces_before(s, begin);
        begin = a->lstrip && begin < from ? from : begin;
        if (begin > end)
            return npugraph__error(e->err, 3, "INVALID_ARGUMENT",
                                   "the spaces that an added token strips are another added token");
        if (a->rstrip)
            end += spaces_from(s + end, n - end);
        if (begin > from)
            rc = encode_between(e, s + from, begin - from, normalized, first && from == 0);
        if (rc == 0)
            rc = npugraph__emit(e, a->id);
        from = end;
    }
    return rc == 0 && from < n ? encode_between(e, s + from, n - from, normalized, first && from == 0) : rc;
}
