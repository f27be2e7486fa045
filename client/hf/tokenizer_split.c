/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers. Each stage splits a piece and passes the parts to the next one at once, so no list of pieces is ever
 * held; the model takes what comes out of the last stage. Each stage has buffers of its own in the encoding.
 */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's expression, which ByteLevel applies if use_regex is set. */
#define GPT2_SPLIT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int read_behavior(const struct npugraph__source *from, const json_t *object, const char *where,
                         struct npugraph__split *split)
{
    static const char *const names[] = {[NPUGRAPH__ISOLATED] = "Isolated",
                                        [NPUGRAPH__REMOVED] = "Removed",
                                        [NPUGRAPH__CONTIGUOUS] = "Contiguous",
                                        [NPUGRAPH__MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [NPUGRAPH__MERGED_WITH_NEXT] = "MergedWithNext"};
    const char *name = "Isolated";
    int rc = npugraph__take_string(from, object, where, "behavior", &name);

    for (size_t i = 0; rc == 0 && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0) {
            split->behavior = (enum npugraph__behavior)i;
            return 0;
        }
    return rc != 0 ? rc : npugraph__unsupported(from, "%s.behavior is \"%.40s\"", where, name);
}

static int read_pattern_split(const struct npugraph__source *from, const json_t *object, const char *where,
                              struct npugraph__split *split)
{
    int rc = npugraph__take_pattern(from, object, where, &split->pattern);

    split->kind = NPUGRAPH__SPLIT_PATTERN;
    if (rc == 0)
        rc = npugraph__take_bool(from, object, where, "invert", &split->invert);
    return rc == 0 ? read_behavior(from, object, where, split) : rc;
}

static int read_byte_level(const struct npugraph__source *from, const json_t *object, const char *where,
                           struct npugraph__split *split)
{
    char why[160];
    int rc;

    split->kind = NPUGRAPH__SPLIT_BYTE_LEVEL;
    split->regex = true;
    if (json_object_get(object, "add_prefix_space") == NULL || json_object_get(object, "trim_offsets") == NULL)
        return npugraph__corrupt(from, "%s has no add_prefix_space or no trim_offsets", where);
    if ((rc = npugraph__take_bool(from, object, where, "add_prefix_space", &split->add_prefix_space)) != 0 ||
        (rc = npugraph__take_bool(from, object, where, "use_regex", &split->regex)) != 0)
        return rc;
    if (split->regex && !npugraph__regex_compile(&split->pattern, GPT2_SPLIT, why, sizeof(why)))
        return npugraph__unsupported(from, "%s: %s", where, why);
    return 0;
}

static int read_metaspace(const struct npugraph__source *from, const json_t *object, const char *where,
                          const struct npugraph_tokenizer *tok, struct npugraph__split *split)
{
    const char *mark = NULL, *scheme = "always";
    bool add = true;
    int32_t c;
    int rc;

    split->kind = NPUGRAPH__SPLIT_METASPACE;
    split->split = true;
    if ((rc = npugraph__take_string(from, object, where, "replacement", &mark)) != 0 ||
        (rc = npugraph__take_string(from, object, where, "prepend_scheme", &scheme)) != 0 ||
        (rc = npugraph__take_bool(from, object, where, "add_prefix_space", &add)) != 0 ||
        (rc = npugraph__take_bool(from, object, where, "split", &split->split)) != 0)
        return rc;
    if (mark == NULL || mark[0] == '\0' || npugraph__character(mark, strlen(mark), &c) != strlen(mark))
        return npugraph__corrupt(from, "%s.replacement is not one character", where);
    if (!add && json_object_get(object, "prepend_scheme") != NULL && strcmp(scheme, "never") != 0)
        return npugraph__corrupt(from, "%s.add_prefix_space contradicts prepend_scheme", where);
    split->prepend = !add || strcmp(scheme, "never") == 0 ? NPUGRAPH__PREPEND_NEVER
                     : strcmp(scheme, "first") == 0       ? NPUGRAPH__PREPEND_FIRST
                                                          : NPUGRAPH__PREPEND_ALWAYS;
    if (split->prepend == NPUGRAPH__PREPEND_ALWAYS && strcmp(scheme, "always") != 0)
        return npugraph__unsupported(from, "%s.prepend_scheme is \"%.40s\"", where, scheme);
    /* Which piece is the first one depends on offsets that such stages move. */
    if (split->prepend == NPUGRAPH__PREPEND_FIRST && tok->n_splits > 1)
        return npugraph__unsupported(from, "%s.prepend_scheme is \"first\" behind another pre-tokenizer", where);
    for (size_t i = 0; split->prepend == NPUGRAPH__PREPEND_FIRST && i < tok->n_normals; i++)
        if (tok->normals[i].kind == NPUGRAPH__NORMAL_PREPEND)
            return npugraph__unsupported(from, "%s.prepend_scheme is \"first\" behind a Prepend normalizer", where);
    return npugraph__literal_set(&split->pattern, mark) ? 0 : npugraph__no_memory(from->err);
}

static int read_class(const struct npugraph__source *from, const json_t *object, const char *where,
                      struct npugraph__split *split)
{
    const char *type = npugraph__type_of(object);
    bool each = false;
    int rc;

    split->kind = NPUGRAPH__SPLIT_CLASS;
    if (strcmp(type, "WhitespaceSplit") == 0) {
        split->is_in = npugraph__is_space;
        split->behavior = NPUGRAPH__REMOVED;
        return 0;
    }
    if (strcmp(type, "Punctuation") == 0) {
        split->is_in = npugraph__is_punctuation;
        return read_behavior(from, object, where, split);
    }
    split->is_in = npugraph__is_numeric;
    rc = npugraph__take_bool(from, object, where, "individual_digits", &each);
    split->behavior = each ? NPUGRAPH__ISOLATED : NPUGRAPH__CONTIGUOUS;
    return rc;
}

static int read_split(const struct npugraph__source *from, const json_t *object, const char *where,
                      struct npugraph_tokenizer *tok)
{
    struct npugraph__split *split = &tok->splits[tok->n_splits];
    const char *type = npugraph__type_of(object);

    if (tok->n_splits == NPUGRAPH__MAX_STAGES)
        return npugraph__unsupported(from, "%s: more than %d pre-tokenizers", where, NPUGRAPH__MAX_STAGES);
    tok->n_splits++;
    if (strcmp(type, "Split") == 0)
        return read_pattern_split(from, object, where, split);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(from, object, where, split);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(from, object, where, tok, split);
    if (strcmp(type, "Digits") == 0 || strcmp(type, "Punctuation") == 0 || strcmp(type, "WhitespaceSplit") == 0)
        return read_class(from, object, where, split);
    return npugraph__unsupported(from,
                                 "%s.type is \"%.40s\"; Split, ByteLevel, Metaspace, Digits, Punctuation, "
                                 "WhitespaceSplit and Sequence are supported",
                                 where, type);
}

int npugraph__split_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    return npugraph__read_stages(from, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                                 read_split, tok);
}

/* ---- spans --------------------------------------------------------------------------------------------------- */

static int find_class(const struct npugraph__split *split, const char *s, size_t n, struct npugraph__spans *spans,
                      struct npugraph_error *err)
{
    size_t from = 0, len;
    int32_t c;

    spans->n = 0;
    for (size_t i = 0; i < n; i += len) {
        len = npugraph__character(s + i, n - i, &c);
        if (!split->is_in(c))
            continue;
        if ((i > from && !npugraph__span_add(spans, from, i, false)) || !npugraph__span_add(spans, i, i + len, true))
            return npugraph__no_memory(err);
        from = i + len;
    }
    return from == n || npugraph__span_add(spans, from, n, false) ? 0 : npugraph__no_memory(err);
}

/* Joins spans as the behavior says, in the order given, which is reversed for MergedWithNext. */
static void join_spans(struct npugraph__spans *spans, enum npugraph__behavior behavior)
{
    bool previous = false;
    size_t n = 0;

    for (size_t i = 0; i < spans->n; i++) {
        struct npugraph__span s = spans->items[i];
        bool join = behavior == NPUGRAPH__CONTIGUOUS ? s.match == previous : s.match && !previous;

        previous = s.match;
        if (join && n > 0) {
            struct npugraph__span *last = &spans->items[n - 1];

            last->begin = s.begin < last->begin ? s.begin : last->begin;
            last->end = s.end > last->end ? s.end : last->end;
        } else {
            spans->items[n++] = s;
        }
    }
    spans->n = n;
}

static void reverse_spans(struct npugraph__spans *spans)
{
    for (size_t i = 0; 2 * i + 1 < spans->n; i++) {
        struct npugraph__span s = spans->items[i];

        spans->items[i] = spans->items[spans->n - 1 - i];
        spans->items[spans->n - 1 - i] = s;
    }
}

static void apply_behavior(struct npugraph__spans *spans, enum npugraph__behavior behavior, bool invert)
{
    for (size_t i = 0; invert && i < spans->n; i++)
        spans->items[i].match = !spans->items[i].match;
    if (behavior == NPUGRAPH__MERGED_WITH_NEXT)
        reverse_spans(spans);
    if (behavior != NPUGRAPH__ISOLATED && behavior != NPUGRAPH__REMOVED)
        join_spans(spans, behavior);
    if (behavior == NPUGRAPH__MERGED_WITH_NEXT)
        reverse_spans(spans);
}

/* ---- stages -------------------------------------------------------------------------------------------------- */

static int encode_spans(struct npugraph__encoding *e, size_t stage, const char *s, bool removed, bool first)
{
    const struct npugraph__spans *spans = &e->scratch[stage].spans;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < spans->n; i++)
        if (spans->items[i].end > spans->items[i].begin && !(removed && spans->items[i].match))
            rc = npugraph__split_encode(e, stage + 1, s + spans->items[i].begin,
                                        spans->items[i].end - spans->items[i].begin,
                                        first && spans->items[i].begin == 0);
    return rc;
}

/* Writes each byte as the character that byte-level BPE has for it. */
static bool put_byte_level(struct npugraph__text *out, const char *s, size_t n)
{
    char character[4];

    out->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!npugraph__text_add(out, character,
                                npugraph__put_character(character, npugraph__byte_character((unsigned char)s[i]))))
            return false;
    return true;
}

static int encode_byte_level(struct npugraph__encoding *e, size_t stage, const char *s, size_t n, bool first)
{
    const struct npugraph__split *split = &e->tok->splits[stage];
    struct npugraph__scratch *own = &e->scratch[stage];
    int rc = 0;

    own->text.n = 0;
    if (split->add_prefix_space && s[0] != ' ') {
        if (!npugraph__text_add(&own->text, " ", 1) || !npugraph__text_add(&own->text, s, n))
            return npugraph__no_memory(e->err);
        s = own->text.s;
        n = own->text.n;
    }
    own->spans.n = 0;
    if (split->regex)
        rc = npugraph__pattern_find(&split->pattern, s, n, &own->spans, &e->deadline, e->err);
    else if (!npugraph__span_add(&own->spans, 0, n, false))
        rc = npugraph__no_memory(e->err);
    for (size_t i = 0; rc == 0 && i < own->spans.n; i++) {
        const struct npugraph__span *span = &own->spans.items[i];

        if (span->end == span->begin)
            continue;
        if (!put_byte_level(&own->bytes, s + span->begin, span->end - span->begin))
            return npugraph__no_memory(e->err);
        rc = npugraph__split_encode(e, stage + 1, own->bytes.s, own->bytes.n, first && span->begin == 0);
    }
    return rc;
}

static int encode_metaspace(struct npugraph__encoding *e, size_t stage, const char *s, size_t n, bool first)
{
    const struct npugraph__split *split = &e->tok->splits[stage];
    const char *mark = split->pattern.literal;
    struct npugraph__text *text = &e->scratch[stage].text;
    struct npugraph__spans *spans = &e->scratch[stage].spans;
    bool prepend = split->prepend == NPUGRAPH__PREPEND_ALWAYS || (split->prepend == NPUGRAPH__PREPEND_FIRST && first),
         marked = s[0] == ' ' || (n >= split->pattern.n && memcmp(s, mark, split->pattern.n) == 0), ok = true;
    int rc;

    text->n = 0;
    if (prepend && !marked)
        ok = npugraph__text_add(text, mark, split->pattern.n);
    for (size_t i = 0; ok && i < n; i++)
        ok = s[i] == ' ' ? npugraph__text_add(text, mark, split->pattern.n) : npugraph__text_add(text, s + i, 1);
    if (!ok)
        return npugraph__no_memory(e->err);
    if (!split->split)
        return npugraph__split_encode(e, stage + 1, text->s, text->n, first);
    rc = npugraph__pattern_find(&split->pattern, text->s, text->n, spans, &e->deadline, e->err);
    if (rc != 0)
        return rc;
    apply_behavior(spans, NPUGRAPH__MERGED_WITH_NEXT, false);
    return encode_spans(e, stage, text->s, false, first);
}

int npugraph__split_encode(struct npugraph__encoding *e, size_t stage, const char *s, size_t n, bool first)
{
    const struct npugraph__split *split = &e->tok->splits[stage];
    struct npugraph__spans *spans;
    int rc;

    if (n == 0)
        return 0;
    if (n > e->left)
        return npugraph__overgrown(e->err);
    e->left -= n;
    rc = npugraph__deadline_count(&e->deadline, n, e->err);
    if (rc != 0)
        return rc;
    if (stage == e->tok->n_splits)
        return e->tok->encode_piece(e, s, n);
    spans = &e->scratch[stage].spans;
    if (split->kind == NPUGRAPH__SPLIT_BYTE_LEVEL)
        return encode_byte_level(e, stage, s, n, first);
    if (split->kind == NPUGRAPH__SPLIT_METASPACE)
        return encode_metaspace(e, stage, s, n, first);
    rc = split->kind == NPUGRAPH__SPLIT_CLASS
             ? find_class(split, s, n, spans, e->err)
             : npugraph__pattern_find(&split->pattern, s, n, spans, &e->deadline, e->err);
    if (rc != 0)
        return rc;
    apply_behavior(spans, split->behavior, split->invert);
    return encode_spans(e, stage, s, split->behavior == NPUGRAPH__REMOVED, first);
}
