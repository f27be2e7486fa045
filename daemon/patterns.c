/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/patterns.h"
#include "base/lock.h"
#include "base/mem.h"
#include "daemon/promises.h"
#include <stdio.h>
#include <string.h>

struct entry {
    struct ngd_pattern *pattern;
    char owner[NGD_IDENTITY_MAX]; /* "": for all */
};

struct ngd_patterns {
    struct ngd_promises *promises;
    struct ngd_mutex lock; /* rank PATTERNS */
    struct entry entries[NGD_PATTERNS_IN_ALL] NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_patterns_create(struct ngd_promises *promises, struct ngd_patterns **patterns_p)
{
    struct ngd_patterns *p = NGD_NEW(struct ngd_patterns);

    if (!p)
        return NGD_ERR_NO_MEMORY;
    p->promises = promises;
    ngd_mutex_init(&p->lock, NGD_RANK_PATTERNS);
    *patterns_p = p;
    return NGD_OK;
}

void ngd_patterns_destroy(struct ngd_patterns *p)
{
    if (!p)
        return;
    ngd_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++)
        ngd_pattern_unref(p->entries[i].pattern);
    p->n = 0;
    ngd_mutex_unlock(&p->lock);
    ngd_mutex_fini(&p->lock);
    ngd_free(p);
}

/* ---- registering ---- */

static ngd_status_t check_right(const struct ngd_identity *who, bool for_all, struct ngd_diag *diag)
{
    if (!for_all || who->admin)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                        "%s may change only its own patterns; the daemon's own user, root and admin-identities "
                        "may change those for all",
                        who->name);
}

static struct entry *find_pattern_locked(struct ngd_patterns *p, const char *owner, const char *name)
    NGD_REQUIRES(p->lock)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->entries[i].owner, owner) == 0 && strcmp(p->entries[i].pattern->name, name) == 0)
            return &p->entries[i];
    return NULL;
}

static uint32_t count_locked(const struct ngd_patterns *p, const char *owner) NGD_REQUIRES(p->lock)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += strcmp(p->entries[i].owner, owner) == 0;
    return n;
}

static ngd_status_t check_builtin(const char *name, struct ngd_diag *diag)
{
    struct ngd_pattern_set *set = ngd_pattern_set_builtin();
    bool taken = false;

    for (uint32_t i = 0; set && i < set->n; i++)
        taken = taken || strcmp(set->patterns[i]->name, name) == 0;
    ngd_pattern_set_unref(set);
    return taken ? ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS, "\"%s\" is a built-in pattern; give yours another name",
                                name)
                 : NGD_OK;
}

static ngd_status_t check_locked(struct ngd_patterns *p, const char *owner, struct ngd_pattern *const *added,
                                 uint32_t n, struct ngd_diag *diag) NGD_REQUIRES(p->lock)
{
    uint32_t fresh = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct entry *old = find_pattern_locked(p, owner, added[i]->name);

        fresh += old == NULL;
        if (old && !ngd_digest_equal(&old->pattern->digest, &added[i]->digest) &&
            added[i]->version <= old->pattern->version)
            return ngd_diag_set(
                diag, NGD_ERR_ALREADY_EXISTS,
                "pattern \"%s\" already exists in version %u with another text: give the new text a higher version",
                added[i]->name, old->pattern->version);
    }
    if (count_locked(p, owner) + fresh > NGD_PATTERNS_PER_OWNER || p->n + fresh > NGD_PATTERNS_IN_ALL)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "at most %d patterns for each identity and %d in all; remove some", NGD_PATTERNS_PER_OWNER,
                            NGD_PATTERNS_IN_ALL);
    return NGD_OK;
}

static void put_locked(struct ngd_patterns *p, const char *owner, struct ngd_pattern *pattern) NGD_REQUIRES(p->lock)
{
    struct entry *e = find_pattern_locked(p, owner, pattern->name);

    if (!e) {
        e = &p->entries[p->n++];
        e->pattern = NULL;
        snprintf(e->owner, sizeof(e->owner), "%s", owner);
    }
    ngd_pattern_unref(e->pattern);
    e->pattern = ngd_pattern_ref(pattern);
}

ngd_status_t ngd_patterns_register(struct ngd_patterns *p, const struct ngd_identity *who, const char *text,
                                   bool for_all, struct ngd_pattern **added, uint32_t max, uint32_t *n_p,
                                   struct ngd_diag *diag)
{
    const char *owner = for_all ? "" : who->name;
    uint32_t n = 0;
    ngd_status_t status = check_right(who, for_all, diag);

    if (!status)
        status = ngd_patterns_parse(text, strlen(text), added, max, &n, diag);
    for (uint32_t i = 0; i < n && !status; i++)
        status = check_builtin(added[i]->name, diag);
    if (!status) {
        ngd_mutex_lock(&p->lock);
        status = check_locked(p, owner, added, n, diag);
        if (!status)
            status = ngd_promises_change(p->promises, diag);
        for (uint32_t i = 0; i < n && !status; i++)
            put_locked(p, owner, added[i]);
        ngd_mutex_unlock(&p->lock);
    }
    for (uint32_t i = 0; i < n && status; i++)
        ngd_pattern_unref(added[i]);
    *n_p = status ? 0 : n;
    return status;
}

ngd_status_t ngd_patterns_remove(struct ngd_patterns *p, const struct ngd_identity *who, const char *name, bool for_all,
                                 struct ngd_diag *diag)
{
    struct ngd_pattern *gone = NULL;
    struct entry *e;
    ngd_status_t status = check_right(who, for_all, diag);

    if (status)
        return status;
    ngd_mutex_lock(&p->lock);
    e = find_pattern_locked(p, for_all ? "" : who->name, name);
    if (e)
        status = ngd_promises_change(p->promises, diag);
    if (e && !status) {
        gone = e->pattern;
        memmove(e, e + 1, (size_t)(&p->entries[p->n] - (e + 1)) * sizeof(*e));
        p->n--;
    }
    ngd_mutex_unlock(&p->lock);
    ngd_pattern_unref(gone);
    if (status)
        return status;
    return gone ? NGD_OK
                : ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no pattern \"%.64s\" %s", name,
                               for_all ? "for all identities" : "of this identity");
}

void ngd_patterns_for_each(struct ngd_patterns *p, void (*fn)(void *ctx, const char *owner, const char *text),
                           void *ctx)
{
    ngd_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++)
        fn(ctx, p->entries[i].owner, p->entries[i].pattern->text);
    ngd_mutex_unlock(&p->lock);
}

void ngd_patterns_remove_all(struct ngd_patterns *p)
{
    ngd_mutex_lock(&p->lock);
    while (p->n > 0)
        ngd_pattern_unref(p->entries[--p->n].pattern);
    ngd_mutex_unlock(&p->lock);
}

/* ---- using ---- */

static uint32_t add_owned_locked(struct ngd_patterns *p, const char *owner, struct ngd_pattern_item *items, uint32_t n,
                                 uint32_t max, const char *shown) NGD_REQUIRES(p->lock)
{
    for (uint32_t i = 0; i < p->n && n < max; i++)
        if (strcmp(p->entries[i].owner, owner) == 0)
            items[n++] = (struct ngd_pattern_item){ngd_pattern_ref(p->entries[i].pattern), shown};
    return n;
}

uint32_t ngd_patterns_list(struct ngd_patterns *p, const struct ngd_identity *who, struct ngd_pattern_item *items,
                           uint32_t max)
{
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin();
    uint32_t n = 0;

    ngd_mutex_lock(&p->lock);
    if (who)
        n = add_owned_locked(p, who->name, items, n, max, who->name);
    n = add_owned_locked(p, "", items, n, max, "");
    ngd_mutex_unlock(&p->lock);
    for (uint32_t i = 0; builtin && i < builtin->n && n < max; i++)
        items[n++] = (struct ngd_pattern_item){ngd_pattern_ref(builtin->patterns[i]), NULL};
    ngd_pattern_set_unref(builtin);
    return n;
}

struct ngd_pattern_set *ngd_patterns_set_for(struct ngd_patterns *p, const struct ngd_identity *who)
{
    struct ngd_pattern_item items[3 * NGD_PATTERNS_PER_OWNER];
    struct ngd_pattern_set *set = NULL;
    uint32_t n = ngd_patterns_list(p, who, items, sizeof(items) / sizeof(items[0]));
    ngd_status_t status = NGD_OK;

    if (n > 0 && !items[0].owner) /* nothing was registered: one set serves everybody */
        set = ngd_pattern_set_builtin();
    else
        status = ngd_pattern_set_create(&set);
    for (uint32_t i = 0; i < n; i++) {
        if (!status && set && items[0].owner)
            status = ngd_pattern_set_add(set, items[i].pattern);
        ngd_pattern_unref(items[i].pattern);
    }
    return status ? ngd_pattern_set_unref(set) : set;
}
