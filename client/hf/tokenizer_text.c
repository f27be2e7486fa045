/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers, UTF-8, and patterns. A text with characters that the tables of an older Oniguruma lack is searched in a copy
 * in which stand-ins of the same length and category are in their places, so offsets are those of the text.
 */
#include "client/hf/tokenizer_text.h"
#include "client/lib/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a search may cost. tokenizers has Oniguruma's own limit of a match and panics there. */
#define SEARCH_STEPS 10000000ul
#define SEARCH_BYTES 16384                 /* that one call may search */
#define SEARCH_STACK (1u << 22)            /* entries */
#define ENCODE_NS    UINT64_C(20000000000) /* of one text */
#define CLOCK_STEPS  65536                 /* after which the clock is read */

/* ---- buffers ------------------------------------------------------------------------------------------------- */

bool npugraph__text_add(struct npugraph__text *t, const char *s, size_t n)
{
    if (t->room - t->n < n || t->s == NULL) {
        size_t room = 2 * t->n + n + 64;
        char *more = realloc(t->s, room);

        if (more == NULL)
            return false;
        t->s = more;
        t->room = room;
    }
    if (n != 0)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    return true;
}

void npugraph__text_fini(struct npugraph__text *t)
{
    free(t->s);
    *t = (struct npugraph__text){0};
}

bool npugraph__span_add(struct npugraph__spans *spans, size_t begin, size_t end, bool match)
{
    if (spans->n == spans->room) {
        size_t room = 2 * spans->n + 16;
        struct npugraph__span *more = realloc(spans->items, room * sizeof(*more));

        if (more == NULL)
            return false;
        spans->items = more;
        spans->room = room;
    }
    spans->items[spans->n++] = (struct npugraph__span){begin, end, match};
    return true;
}

/* ---- UTF-8 --------------------------------------------------------------------------------------------------- */

/* Returns the bytes of the character that begins with b, 0 if none does. */
static size_t length_of(unsigned char b)
{
    return b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 0;
}

enum npugraph__character_state npugraph__character_state(const char *s, size_t n, size_t *len_p)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t len = length_of(p[0]), k = 1;
    unsigned low = p[0] == 0xe0   ? 0xa0
                   : p[0] == 0xf0 ? 0x90
                                  : 0x80,
             high = p[0] == 0xed   ? 0x9f
                    : p[0] == 0xf4 ? 0x8f
                                   : 0xbf;

    /* Overlong forms, surrogates and what is above U+10FFFF show in the second byte. */
    while (k < len && k < n && p[k] >= (k == 1 ? low : 0x80) && p[k] <= (k == 1 ? high : 0xbf))
        k++;
    *len_p = k;
    return k == len             ? NPUGRAPH__CHARACTER_WHOLE
           : k == n && len != 0 ? NPUGRAPH__CHARACTER_CUT
                                : NPUGRAPH__CHARACTER_WRONG;
}

bool npugraph__is_utf8(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (npugraph__character_state(s + i, n - i, &len) != NPUGRAPH__CHARACTER_WHOLE)
            return false;
    return true;
}

/* The bytes that are printable in Latin-1 are their own characters; the others follow from U+0100 on. */
static bool is_printable_byte(int32_t b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

int32_t npugraph__byte_character(unsigned char byte)
{
    if (is_printable_byte(byte))
        return byte;
    return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

bool npugraph__character_byte(int32_t c, char *byte_p)
{
    if (is_printable_byte(c)) {
        *byte_p = (char)c;
        return true;
    }
    if (c < 256 || c > 256 + 67)
        return false;
    c -= 256;
    *byte_p = (char)(c <= 32 ? c : c < 67 ? c - 33 + 127 : 173);
    return true;
}

size_t npugraph__character(const char *s, size_t n, int32_t *character_p)
{
    size_t len = length_of((unsigned char)s[0]);
    int32_t c = (unsigned char)s[0];

    if (len > 1)
        c &= 0x7f >> len;
    for (size_t k = 1; k < len && k < n; k++)
        c = c << 6 | (s[k] & 0x3f);
    *character_p = c;
    return len != 0 && len <= n ? len : 1;
}

size_t npugraph__put_character(char out[4], int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* ---- words --------------------------------------------------------------------------------------------------- */

static int compare_words(const void *x, const void *y)
{
    const struct npugraph__word *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

    return order != 0 ? order : a->n < b->n ? -1 : a->n > b->n;
}

void npugraph__words_sort(struct npugraph__word *words, size_t n)
{
    qsort(words, n, sizeof(*words), compare_words);
}

/* Returns the first word whose byte `at` is not below `byte`. */
static const struct npugraph__word *first_not_below(const struct npugraph__words *r, unsigned byte)
{
    const struct npugraph__word *low = r->begin, *high = r->end;

    while (low < high) {
        const struct npugraph__word *middle = low + (high - low) / 2;

        if (middle->n <= r->at || (unsigned char)middle->text[r->at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool npugraph__words_narrow(struct npugraph__words *range, unsigned char byte)
{
    const struct npugraph__word *begin = first_not_below(range, byte);

    range->end = first_not_below(range, byte + 1u);
    range->begin = begin;
    range->at++;
    return range->begin < range->end;
}

const struct npugraph__word *npugraph__words_whole(const struct npugraph__words *range)
{
    return range->begin < range->end && range->begin->n == range->at ? range->begin : NULL;
}

/* ---- patterns ------------------------------------------------------------------------------------------------ */

static void start_oniguruma(void)
{
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;

    onig_initialize(&utf8, 1);
}

/* What means other things in other versions of Oniguruma: [:punct:] has symbols since 6.9.9, and the rest follows
 * tables of Unicode that stand-ins cannot mend. \G asks where a search began, which is elsewhere here. */
static const char *find_changed(const char *expression)
{
    static const char *const changed[] = {
        "punct", "emoji", "pictographic", "grapheme", "age=", "p{in", "\\X", "\\y", "\\Y", "\\G"};

    for (size_t i = 0; i < sizeof(changed) / sizeof(changed[0]); i++)
        if (changed[i][0] == '\\' ? strstr(expression, changed[i]) != NULL : strcasestr(expression, changed[i]) != NULL)
            return changed[i];
    return NULL;
}

bool npugraph__regex_compile(struct npugraph__pattern *pattern, const char *expression, char *why, size_t room)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const OnigUChar *s = (const OnigUChar *)expression;
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    size_t n = strlen(expression);
    OnigErrorInfo info;
    int rc;

    if (n > NPUGRAPH__MAX_PATTERN) {
        snprintf(why, room, "it has %zu bytes; the limit is %d", n, NPUGRAPH__MAX_PATTERN);
        return false;
    }
    if (find_changed(expression) != NULL) {
        snprintf(why, room, "it has %s, which depends on the version of Oniguruma or on the search",
                 find_changed(expression));
        return false;
    }
    pthread_once(&once, start_oniguruma);
    rc = onig_new(&pattern->regex, s, s + n, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (rc == ONIG_NORMAL)
        return true;
    pattern->regex = NULL;
    onig_error_code_to_str(message, rc, &info);
    snprintf(why, room, "%s", (const char *)message);
    return false;
}

bool npugraph__literal_set(struct npugraph__pattern *pattern, const char *literal)
{
    pattern->literal = strdup(literal);
    pattern->n = strlen(literal);
    return pattern->literal != NULL;
}

void npugraph__pattern_fini(struct npugraph__pattern *pattern)
{
    free(pattern->literal);
    onig_free(pattern->regex);
    *pattern = (struct npugraph__pattern){0};
}

static int find_literal(const struct npugraph__pattern *p, const char *s, size_t n, struct npugraph__spans *spans,
                        struct npugraph_error *err)
{
    size_t at = 0;
    const char *found;

    while ((found = memmem(s + at, n - at, p->literal, p->n)) != NULL) {
        size_t begin = (size_t)(found - s);

        if ((begin > at && !npugraph__span_add(spans, at, begin, false)) ||
            !npugraph__span_add(spans, begin, begin + p->n, true))
            return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        at = begin + p->n;
    }
    return at == n || npugraph__span_add(spans, at, n, false) ? 0
                                                              : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* Gives a copy of the text with stand-ins, NULL if it needs none. Returns false without memory. */
static bool make_shadow(const char *s, size_t n, char **shadow_p)
{
    char *shadow = NULL;
    size_t len;
    int32_t c;

    for (size_t i = 0; i < n; i += len) {
        len = npugraph__character(s + i, n - i, &c);
        if (len < 3 || npugraph__stand_in(c) == c)
            continue;
        if (shadow == NULL && (shadow = malloc(n)) == NULL)
            return false;
        if (*shadow_p == NULL)
            memcpy(shadow, s, n);
        *shadow_p = shadow;
        npugraph__put_character(shadow + i, npugraph__stand_in(c));
    }
    return true;
}

static bool is_late(struct npugraph__deadline *d)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    if (d->end_ns == 0)
        d->end_ns = now + ENCODE_NS;
    return now > d->end_ns;
}

int npugraph__deadline_count(struct npugraph__deadline *d, size_t steps, struct npugraph_error *err)
{
    d->steps += steps;
    if (d->steps < CLOCK_STEPS)
        return 0;
    d->steps = 0;
    return !is_late(d) ? 0
                       : npugraph__error(err, 3, "INVALID_ARGUMENT",
                                         "the tokenizer takes too long on this text; give a shorter text");
}

struct search {
    regex_t *regex;
    const OnigUChar *s;
    size_t n;
    OnigRegion *region;
    OnigMatchParam *limits;
};

/* Finds the next match from *from_p on, and moves that to where the search ended. A single call may take time that is
 * quadratic in what it searches, so a long text is tried character by character. */
static int find_match(const struct search *q, size_t *from_p, struct npugraph__deadline *deadline)
{
    size_t from = *from_p;
    int rc = ONIG_MISMATCH;

    for (; rc == ONIG_MISMATCH && q->n - from > SEARCH_BYTES && !is_late(deadline); from += length_of(q->s[from])) {
        *from_p = from;
        rc = onig_match_with_param(q->regex, q->s, q->s + q->n, q->s + from, q->region, ONIG_OPTION_NONE, q->limits);
    }
    if (rc != ONIG_MISMATCH || is_late(deadline))
        return rc;
    *from_p = from;
    return onig_search_with_param(q->regex, q->s, q->s + q->n, q->s + from, q->s + q->n, q->region, ONIG_OPTION_NONE,
                                  q->limits);
}

/* Collects the matches. An empty match right behind the last one does not count; the search goes on a character
 * later. */
static int collect_matches(const struct search *q, struct npugraph__spans *spans, struct npugraph__deadline *deadline,
                           struct npugraph_error *err)
{
    size_t from = 0, end = 0;
    bool any = false;

    while (from <= q->n) {
        int rc = find_match(q, &from, deadline);
        size_t b, e;

        if (rc == ONIG_MISMATCH && !is_late(deadline))
            break;
        if (rc < 0 || is_late(deadline))
            return npugraph__error(err, 3, "INVALID_ARGUMENT",
                                   "the tokenizer's expression takes too many steps on this text (Oniguruma %d); give "
                                   "a shorter text",
                                   rc < 0 ? rc : 0);
        b = (size_t)q->region->beg[0];
        e = (size_t)q->region->end[0];
        if (b == e && any && e == end) {
            size_t step = from < q->n ? length_of(q->s[from]) : 1;

            from += step;
            continue;
        }
        if ((b > end && !npugraph__span_add(spans, end, b, false)) || !npugraph__span_add(spans, b, e, true))
            return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        from = end = e;
        any = true;
    }
    return end == q->n || npugraph__span_add(spans, end, q->n, false)
               ? 0
               : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

static int find_regex(const struct npugraph__pattern *p, const char *s, size_t n, struct npugraph__spans *spans,
                      struct npugraph__deadline *deadline, struct npugraph_error *err)
{
    struct search q = {.regex = p->regex, .n = n};
    char *shadow = NULL;
    int rc;

    if (!make_shadow(s, n, &shadow))
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    q.s = (const OnigUChar *)(shadow != NULL ? shadow : s);
    q.region = onig_region_new();
    q.limits = onig_new_match_param();
    if (q.region == NULL || q.limits == NULL) {
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    } else {
        onig_initialize_match_param(q.limits);
        onig_set_retry_limit_in_match_of_match_param(q.limits, SEARCH_STEPS);
        onig_set_retry_limit_in_search_of_match_param(q.limits, SEARCH_STEPS);
        onig_set_match_stack_limit_size_of_match_param(q.limits, SEARCH_STACK);
        rc = collect_matches(&q, spans, deadline, err);
    }
    if (q.region != NULL)
        onig_region_free(q.region, 1);
    if (q.limits != NULL)
        onig_free_match_param(q.limits);
    free(shadow);
    return rc;
}

int npugraph__pattern_find(const struct npugraph__pattern *pattern, const char *s, size_t n,
                           struct npugraph__spans *spans, struct npugraph__deadline *deadline,
                           struct npugraph_error *err)
{
    spans->n = 0;
    if (n == 0)
        return 0;
    return pattern->literal != NULL ? find_literal(pattern, s, n, spans, err)
                                    : find_regex(pattern, s, n, spans, deadline, err);
}
