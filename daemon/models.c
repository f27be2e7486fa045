/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/models.h"

#include "base/mem.h"
#include "base/metrics.h"
#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include <stdio.h>
#include <string.h>

struct entry {
    struct ngd_list link;
    uint64_t serial; /* rises along the list */
    char name[NGD_MODEL_NAME_MAX + 1];
    struct ngd_model *model;    /* a reference */
    struct ngd_identity *owner; /* a reference */
    struct ngd_share *share;    /* the owner's, a reference */
    struct ngd_charge charge;   /* of one model */
    uint64_t session;           /* 0: kept */
    struct ngd_audience audience;
    void *request; /* packed; owned */
    size_t n_request;
};

struct ngd_models {
    struct ngd_daemon *daemon;
    struct ngd_mutex lock;
    struct ngd_list all NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
    uint64_t serials NGD_GUARDED_BY(lock); /* serial of the last entry */
};

#define WALK_STEP 16 /* models that a walk holds at a time */

static void entry_free(struct entry *e)
{
    ngd_model_unref(e->model);
    ngd_charge_end(&e->charge);
    ngd_identity_unref(e->owner);
    ngd_share_unref(e->share);
    ngd_audience_fini(&e->audience);
    ngd_free(e->request);
    ngd_free(e);
}

ngd_status_t ngd_models_create(struct ngd_daemon *d, struct ngd_models **models_p)
{
    struct ngd_models *m = NGD_NEW(struct ngd_models);

    if (!m)
        return NGD_ERR_NO_MEMORY;
    m->daemon = d;
    ngd_mutex_init(&m->lock, NGD_RANK_OBJECTS);
    ngd_list_init(&m->all);
    *models_p = m;
    return NGD_OK;
}

static void unlink_entry(struct ngd_models *m, struct entry *e) NGD_REQUIRES(m->lock)
{
    ngd_list_remove(&e->link);
    m->n--;
    ngd_metric_dec(NGD_M_MODELS);
}

void ngd_models_destroy(struct ngd_models *m)
{
    struct ngd_list *e;

    if (!m)
        return;
    while ((e = ngd_list_pop_front(&m->all)))
        entry_free(ngd_container_of(e, struct entry, link));
    ngd_mutex_fini(&m->lock);
    ngd_free(m);
}

/* ---- names ----------------------------------------------------------------------------------------------- */

/* Order in which a lookup prefers models of one name; NOT_SEEN: the model is not considered. */
enum { OWN, PUBLIC, SHARED, ADMINISTERED, NOT_SEEN };

static int nearness(const struct ngd_models *m, const struct entry *e, const struct ngd_identity *who)
{
    if (!who || e->owner == who)
        return OWN;
    if (e->audience.kind == NGD_AUDIENCE_PUBLIC)
        return PUBLIC;
    if (ngd_audience_has(&m->daemon->options, &e->audience, who))
        return SHARED;
    return who->admin ? ADMINISTERED : NOT_SEEN;
}

/* True if `name` is the entry's NAME or OWNER/NAME. Names of models have no slash. */
static bool is_called(const struct entry *e, const char *name)
{
    const char *slash = strrchr(name, '/');
    size_t n = slash ? (size_t)(slash - name) : 0;

    if (!slash)
        return strcmp(e->name, name) == 0;
    return strlen(e->owner->name) == n && memcmp(e->owner->name, name, n) == 0 && strcmp(e->name, slash + 1) == 0;
}

static ngd_status_t not_found(struct ngd_models *m, const struct ngd_identity *who, const char *name,
                              struct ngd_diag *diag) NGD_REQUIRES(m->lock)
{
    struct ngd_strbuf names;
    ngd_status_t status;

    ngd_strbuf_init(&names);
    ngd_list_for_each (pos, &m->all) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);

        if (nearness(m, e, who) != NOT_SEEN)
            ngd_strbuf_printf(&names, "%s%s", names.len ? ", " : "", e->name);
    }
    status = ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND, "no model \"%.64s\" is loaded for %s; loaded: %s", name,
                          who->name, names.len ? ngd_strbuf_str(&names) : "none");
    ngd_strbuf_fini(&names);
    return status;
}

static ngd_status_t find_model_locked(struct ngd_models *m, const struct ngd_identity *who, const char *name,
                                      struct entry **e_p, struct ngd_diag *diag) NGD_REQUIRES(m->lock)
{
    struct entry *best = NULL;
    int nearest = NOT_SEEN;
    bool several = false;

    ngd_list_for_each (pos, &m->all) {
        struct entry *e = ngd_container_of(pos, struct entry, link);
        int near = is_called(e, name) ? nearness(m, e, who) : NOT_SEEN;

        if (near == NOT_SEEN || near > nearest)
            continue;
        several = near == nearest;
        best = e;
        nearest = near;
    }
    *e_p = best;
    if (!best)
        return not_found(m, who, name, diag);
    return several ? ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                  "several identities share a model \"%.64s\" with %s; say OWNER/NAME, as in %s/%.64s",
                                  name, who->name, best->owner->name, best->name)
                   : NGD_OK;
}

/* True if a public model of this name exists besides `but`. */
static bool is_public_locked(struct ngd_models *m, const char *name, const struct entry *but) NGD_REQUIRES(m->lock)
{
    ngd_list_for_each (pos, &m->all) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);

        if (e != but && e->audience.kind == NGD_AUDIENCE_PUBLIC && strcmp(e->name, name) == 0)
            return true;
    }
    return false;
}

static ngd_status_t check_name_free_locked(struct ngd_models *m, const struct entry *fresh, struct ngd_diag *diag)
    NGD_REQUIRES(m->lock)
{
    ngd_list_for_each (pos, &m->all) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);

        if (e->owner == fresh->owner && strcmp(e->name, fresh->name) == 0)
            return ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                                "a model \"%s\" is loaded already; unload it first, or choose another name", e->name);
    }
    if (fresh->audience.kind == NGD_AUDIENCE_PUBLIC && is_public_locked(m, fresh->name, fresh))
        return ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                            "a public model \"%s\" is loaded already; choose another name, or keep yours private",
                            fresh->name);
    return NGD_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------- */

ngd_status_t ngd_models_add(struct ngd_models *m, struct ngd_model_place *place, struct ngd_model *model,
                            struct ngd_diag *diag)
{
    struct entry *e = NGD_NEW(struct entry);
    ngd_status_t status;

    if (!e)
        return NGD_ERR_NO_MEMORY;
    snprintf(e->name, sizeof(e->name), "%s", place->name);
    e->owner = ngd_identity_ref(place->owner);
    e->share = ngd_share_ref(place->share);
    e->session = place->session;
    e->audience = place->audience;
    e->n_request = place->n_request;
    e->request = ngd_memdup(place->request, place->n_request);
    ngd_mutex_lock(&m->lock);
    status = e->request ? check_name_free_locked(m, e, diag) : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK && e->session == 0)
        status = ngd_promises_change(&m->daemon->promises, diag);
    if (status == NGD_OK) {
        e->model = model;
        e->charge = ngd_charge_move(&place->charge);
        e->serial = ++m->serials;
        ngd_list_push_back(&m->all, &e->link);
        m->n++;
        ngd_metric_inc(NGD_M_MODELS);
    }
    ngd_mutex_unlock(&m->lock);
    if (status == NGD_OK) {
        place->audience = (struct ngd_audience){0};
    } else {
        e->audience = (struct ngd_audience){0}; /* still the caller's */
        entry_free(e);
    }
    return status;
}

ngd_status_t ngd_models_get(struct ngd_models *m, const struct ngd_identity *who, const char *name,
                            struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct entry *e;
    ngd_status_t status;

    ngd_mutex_lock(&m->lock);
    status = find_model_locked(m, who, name, &e, diag);
    if (status == NGD_OK)
        *model_p = ngd_model_ref(e->model);
    ngd_mutex_unlock(&m->lock);
    return status;
}

bool ngd_models_may_use(struct ngd_models *m, const struct ngd_identity *who, const struct ngd_model *model)
{
    bool may = false;

    ngd_mutex_lock(&m->lock);
    ngd_list_for_each (pos, &m->all) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);

        may |= e->model == model && nearness(m, e, who) != NOT_SEEN;
    }
    ngd_mutex_unlock(&m->lock);
    return may;
}

bool ngd_models_has_any_of(struct ngd_models *m, uint64_t session)
{
    bool has = false;

    ngd_mutex_lock(&m->lock);
    ngd_list_for_each (pos, &m->all)
        has |= ngd_container_of(pos, struct entry, link)->session == session;
    ngd_mutex_unlock(&m->lock);
    return has;
}

static ngd_status_t find_managed_locked(struct ngd_models *m, const struct ngd_identity *who, const char *name,
                                        struct entry **e_p, struct ngd_diag *diag) NGD_REQUIRES(m->lock)
{
    ngd_status_t status = find_model_locked(m, who, name, e_p, diag);

    if (status == NGD_OK && !ngd_may_manage(who, (*e_p)->owner))
        status = ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                              "model \"%s\" belongs to %s; only that identity and administrators may change it",
                              (*e_p)->name, (*e_p)->owner->name);
    return status;
}

ngd_status_t ngd_models_share(struct ngd_models *m, const struct ngd_identity *who, const char *name,
                              struct ngd_audience *audience, struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct ngd_audience old = {0};
    struct entry *e;
    ngd_status_t status;

    ngd_mutex_lock(&m->lock);
    status = find_managed_locked(m, who, name, &e, diag);
    if (status == NGD_OK && audience->kind == NGD_AUDIENCE_PUBLIC && is_public_locked(m, e->name, e))
        status = ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                              "a public model \"%s\" is loaded already; share this one with identities", e->name);
    if (status == NGD_OK && e->session == 0)
        status = ngd_promises_change(&m->daemon->promises, diag);
    if (status == NGD_OK) {
        old = e->audience;
        e->audience = *audience;
        *audience = (struct ngd_audience){0};
        *model_p = ngd_model_ref(e->model);
    }
    ngd_mutex_unlock(&m->lock);
    ngd_audience_fini(&old);
    return status;
}

ngd_status_t ngd_models_remove(struct ngd_models *m, const struct ngd_identity *who, const char *name, bool force,
                               struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct ngd_model_stats stats;
    ngd_status_t status;
    struct entry *e;

    ngd_mutex_lock(&m->lock);
    status = find_managed_locked(m, who, name, &e, diag);
    if (status == NGD_OK) {
        ngd_model_stats(e->model, &stats);
        if (stats.sequences && !force)
            status =
                ngd_diag_set(diag, NGD_ERR_BUSY, "model \"%s\" has %u open sequences; close them, or unload with force",
                             e->name, stats.sequences);
        else if (e->session == 0)
            status = ngd_promises_change(&m->daemon->promises, diag);
        if (status == NGD_OK)
            unlink_entry(m, e);
    }
    ngd_mutex_unlock(&m->lock);
    if (status == NGD_OK) {
        *model_p = e->model;
        e->model = NULL;
        entry_free(e);
    }
    return status;
}

void ngd_models_session_ended(struct ngd_models *m, uint64_t session)
{
    struct ngd_list gone, *e;

    ngd_list_init(&gone);
    ngd_mutex_lock(&m->lock);
    ngd_list_for_each_safe (pos, tmp, &m->all) {
        struct entry *x = ngd_container_of(pos, struct entry, link);

        if (x->session && x->session == session) {
            unlink_entry(m, x);
            ngd_list_push_back(&gone, &x->link);
        }
    }
    ngd_mutex_unlock(&m->lock);
    while ((e = ngd_list_pop_front(&gone)))
        entry_free(ngd_container_of(e, struct entry, link));
}

uint32_t ngd_models_count(struct ngd_models *m)
{
    uint32_t n;

    ngd_mutex_lock(&m->lock);
    n = m->n;
    ngd_mutex_unlock(&m->lock);
    return n;
}

/* Holds a few models at a time, without a list: a list has to be allocated, and a walk that failed would look as if
 * there were no models. */
void ngd_models_for_each(struct ngd_models *m, const struct ngd_identity *who,
                         void (*fn)(void *ctx, const struct ngd_model_listed *listed), void *ctx)
{
    struct ngd_model_listed some[WALK_STEP];
    uint64_t seen = 0, last = 0;
    uint32_t n;

    do {
        n = 0;
        seen = last;
        ngd_mutex_lock(&m->lock);
        ngd_list_for_each (pos, &m->all) {
            const struct entry *e = ngd_container_of(pos, struct entry, link);

            if (n == WALK_STEP || e->serial <= seen || nearness(m, e, who) == NOT_SEEN)
                continue;
            some[n].model = ngd_model_ref(e->model);
            snprintf(some[n].owner, sizeof(some[n].owner), "%s", e->owner->name);
            ngd_audience_print(&e->audience, !who || ngd_may_manage(who, e->owner), some[n].audience,
                               sizeof(some[n].audience));
            n++;
            last = e->serial;
        }
        ngd_mutex_unlock(&m->lock);
        for (uint32_t i = 0; i < n; i++) {
            fn(ctx, &some[i]);
            ngd_model_unref(some[i].model);
        }
    } while (n == WALK_STEP);
}

static void add_sequences(void *ctx, const struct ngd_model_listed *listed)
{
    struct ngd_model_stats stats;

    ngd_model_stats(listed->model, &stats);
    *(uint32_t *)ctx += stats.sequences;
}

uint32_t ngd_models_sequences(struct ngd_models *m)
{
    uint32_t n = 0;

    ngd_models_for_each(m, NULL, add_sequences, &n);
    return n;
}

/* ---- for the next daemon ------------------------------------------------------------------------------- */

static ngd_status_t copy_kept(const struct entry *e, struct ngd_model_kept *kept)
{
    kept->model = ngd_model_ref(e->model);
    snprintf(kept->owner, sizeof(kept->owner), "%s", e->owner->name);
    kept->request = ngd_memdup(e->request, e->n_request);
    kept->n_request = e->n_request;
    return kept->request && ngd_audience_copy(&e->audience, &kept->audience) == NGD_OK ? NGD_OK : NGD_ERR_NO_MEMORY;
}

ngd_status_t ngd_models_list_kept(struct ngd_models *m, struct ngd_model_kept **list_p, size_t *n_p)
{
    ngd_status_t status = NGD_OK;
    struct ngd_model_kept *list;
    size_t n = 0;

    ngd_mutex_lock(&m->lock);
    list = NGD_NEW_N(struct ngd_model_kept, m->n + 1u);
    ngd_list_for_each (pos, &m->all) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);

        if (list && e->session == 0 && status == NGD_OK)
            status = copy_kept(e, &list[n++]);
    }
    ngd_mutex_unlock(&m->lock);
    if (!list || status != NGD_OK) {
        ngd_models_free_kept(list, n);
        return NGD_ERR_NO_MEMORY;
    }
    *list_p = list;
    *n_p = n;
    return NGD_OK;
}

void ngd_models_free_kept(struct ngd_model_kept *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ngd_model_unref(list[i].model);
        ngd_audience_fini(&list[i].audience);
        ngd_free(list[i].request);
    }
    ngd_free(list);
}

void ngd_models_remove_all(struct ngd_models *m)
{
    struct ngd_list gone, *e;

    ngd_list_init(&gone);
    ngd_mutex_lock(&m->lock);
    ngd_list_for_each_safe (pos, tmp, &m->all) {
        unlink_entry(m, ngd_container_of(pos, struct entry, link));
        ngd_list_push_back(&gone, pos);
    }
    ngd_mutex_unlock(&m->lock);
    while ((e = ngd_list_pop_front(&gone)))
        entry_free(ngd_container_of(e, struct entry, link));
}
