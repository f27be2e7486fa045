/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of patterns, and the set of built-in ones: the text of patterns.txt, parsed once. */
#include "base/mem.h"
#include "graphs/pattern.h"
#include <pthread.h>
#include <string.h>

#define BUILTIN_MAX 64

static const char builtin_text[] =
#include "graphs/patterns_text.inc"
    ;

static struct ngd_pattern_set *builtin;
static pthread_once_t once = PTHREAD_ONCE_INIT;

ngd_status_t ngd_pattern_set_create(struct ngd_pattern_set **set_p)
{
    struct ngd_pattern_set *set = NGD_NEW(struct ngd_pattern_set);

    if (!set)
        return NGD_ERR_NO_MEMORY;
    set->refs = 1;
    *set_p = set;
    return NGD_OK;
}

/* Adds a pattern. The set's digest chains those of its patterns, because their order is their priority. */
ngd_status_t ngd_pattern_set_add(struct ngd_pattern_set *set, struct ngd_pattern *p)
{
    struct {
        struct ngd_digest before, added;
    } both = {set->digest, p->digest};

    if (set->n == set->cap) {
        uint32_t cap = set->cap ? set->cap * 2 : 32;
        struct ngd_pattern **patterns = ngd_reallocarray(set->patterns, cap, sizeof(struct ngd_pattern *));

        if (!patterns)
            return NGD_ERR_NO_MEMORY;
        set->patterns = patterns;
        set->cap = cap;
    }
    set->patterns[set->n++] = ngd_pattern_ref(p);
    ngd_digest_of(&both, sizeof(both), &set->digest);
    return NGD_OK;
}

static bool set_has_pattern(const struct ngd_pattern_set *set, const char *name, size_t n)
{
    for (uint32_t i = 0; set && i < set->n; i++)
        if (strlen(set->patterns[i]->name) == n && memcmp(set->patterns[i]->name, name, n) == 0)
            return true;
    return false;
}

ngd_status_t ngd_pattern_set_check(const struct ngd_pattern_set *set, const char *names, struct ngd_diag *diag)
{
    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',')
        if (!set_has_pattern(set, p, strcspn(p, ",")))
            return ngd_diag_set(
                diag, NGD_ERR_NOT_FOUND,
                "there is no pattern \"%.*s\": register it, or list the patterns (npugraphctl patterns)",
                (int)strcspn(p, ","), p);
    return NGD_OK;
}

struct ngd_pattern_set *ngd_pattern_set_ref(struct ngd_pattern_set *set)
{
    __atomic_fetch_add(&set->refs, 1, __ATOMIC_RELAXED);
    return set;
}

struct ngd_pattern_set *ngd_pattern_set_unref(struct ngd_pattern_set *set)
{
    if (set && __atomic_sub_fetch(&set->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        for (uint32_t i = 0; i < set->n; i++)
            ngd_pattern_unref(set->patterns[i]);
        ngd_free(set->patterns);
        ngd_free(set);
    }
    return NULL;
}

/* Parses the built-in patterns. A test shows that the text parses. Without memory there is no set, and so no fusion. */
static void make_builtin(void)
{
    struct ngd_pattern *patterns[BUILTIN_MAX];
    struct ngd_pattern_set *set = NULL;
    uint32_t n = 0;
    ngd_status_t status;

    if (ngd_patterns_parse_trusted(builtin_text, sizeof(builtin_text) - 1, patterns, BUILTIN_MAX, &n, NULL))
        return;
    status = ngd_pattern_set_create(&set);
    for (uint32_t i = 0; i < n; i++) {
        if (!status)
            status = ngd_pattern_set_add(set, patterns[i]);
        ngd_pattern_unref(patterns[i]);
    }
    if (!status)
        builtin = set;
}

struct ngd_pattern_set *ngd_pattern_set_builtin(void)
{
    pthread_once(&once, make_builtin);
    return builtin ? ngd_pattern_set_ref(builtin) : NULL;
}

const char *ngd_patterns_builtin_text(void)
{
    return builtin_text;
}
