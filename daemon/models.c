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
    char name[NGD_MODEL_NAME_MAX + 1];
    struct ngd_model *model;    /* a reference */
    struct ngd_identity *owner; /* a reference */
    uint64_t session;           /* 0: kept */
};

struct ngd_models {
    struct ngd_daemon *daemon;
    struct ngd_mutex lock;
    struct ngd_list all NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
};

static void entry_free(struct entry *e)
{
    ngd_model_unref(e->model);
    ngd_identity_unref(e->owner);
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

static struct entry *find_locked(struct ngd_models *m, const char *name) NGD_REQUIRES(m->lock)
{
    ngd_list_for_each (pos, &m->all) {
        struct entry *e = ngd_container_of(pos, struct entry, link);

        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static ngd_status_t not_found(struct ngd_models *m, const char *name, struct ngd_diag *diag) NGD_REQUIRES(m->lock)
{
    struct ngd_strbuf names;
    ngd_status_t status;

    ngd_strbuf_init(&names);
    ngd_list_for_each (pos, &m->all)
        ngd_strbuf_printf(&names, "%s%s", names.len ? ", " : "", ngd_container_of(pos, struct entry, link)->name);
    status = ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND, "no model \"%.64s\" is loaded; loaded: %s", name,
                          names.len ? ngd_strbuf_str(&names) : "none");
    ngd_strbuf_fini(&names);
    return status;
}

ngd_status_t ngd_models_add(struct ngd_models *m, const char *name, struct ngd_model *model, struct ngd_identity *owner,
                            uint64_t session, struct ngd_diag *diag)
{
    struct entry *e = NGD_NEW(struct entry);
    bool exists;

    if (!e)
        return NGD_ERR_NO_MEMORY;
    snprintf(e->name, sizeof(e->name), "%s", name);
    e->owner = ngd_identity_ref(owner);
    e->session = session;
    ngd_mutex_lock(&m->lock);
    exists = find_locked(m, name) != NULL;
    if (!exists) {
        e->model = model;
        ngd_list_push_back(&m->all, &e->link);
        m->n++;
        ngd_metric_inc(NGD_M_MODELS);
    }
    ngd_mutex_unlock(&m->lock);
    if (exists)
        entry_free(e);
    return exists ? ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                                 "a model \"%s\" is loaded already; unload it first, or choose another name", name)
                  : NGD_OK;
}

ngd_status_t ngd_models_get(struct ngd_models *m, const char *name, struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct entry *e;
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&m->lock);
    e = find_locked(m, name);
    if (e)
        *model_p = ngd_model_ref(e->model);
    else
        status = not_found(m, name, diag);
    ngd_mutex_unlock(&m->lock);
    return status;
}

bool ngd_models_has(struct ngd_models *m, const struct ngd_model *model)
{
    bool found = false;

    ngd_mutex_lock(&m->lock);
    ngd_list_for_each (pos, &m->all)
        found |= ngd_container_of(pos, struct entry, link)->model == model;
    ngd_mutex_unlock(&m->lock);
    return found;
}

ngd_status_t ngd_models_remove(struct ngd_models *m, const char *name, const struct ngd_identity *who, bool force,
                               struct ngd_diag *diag)
{
    struct ngd_model_stats stats;
    ngd_status_t status = NGD_OK;
    struct entry *e;

    ngd_mutex_lock(&m->lock);
    e = find_locked(m, name);
    if (!e) {
        status = not_found(m, name, diag);
    } else if (e->owner != who && !who->admin) {
        status = ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED, "model \"%s\" belongs to %s", e->name, e->owner->name);
    } else {
        ngd_model_stats(e->model, &stats);
        if (stats.sequences && !force)
            status =
                ngd_diag_set(diag, NGD_ERR_BUSY, "model \"%s\" has %u open sequences; close them, or unload with force",
                             e->name, stats.sequences);
        else
            unlink_entry(m, e);
    }
    ngd_mutex_unlock(&m->lock);
    if (status == NGD_OK)
        entry_free(e);
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

void ngd_models_for_each(struct ngd_models *m, void (*fn)(void *ctx, struct ngd_model *model), void *ctx)
{
    struct ngd_model **list;
    uint32_t n = 0;

    ngd_mutex_lock(&m->lock);
    list = NGD_NEW_N(struct ngd_model *, m->n + 1);
    ngd_list_for_each (pos, &m->all) {
        if (list && n < m->n)
            list[n++] = ngd_model_ref(ngd_container_of(pos, struct entry, link)->model);
    }
    ngd_mutex_unlock(&m->lock);
    for (uint32_t i = 0; i < n; i++) {
        fn(ctx, list[i]);
        ngd_model_unref(list[i]);
    }
    ngd_free(list);
}

static void add_sequences(void *ctx, struct ngd_model *model)
{
    struct ngd_model_stats stats;

    ngd_model_stats(model, &stats);
    *(uint32_t *)ctx += stats.sequences;
}

uint32_t ngd_models_sequences(struct ngd_models *m)
{
    uint32_t n = 0;

    ngd_models_for_each(m, add_sequences, &n);
    return n;
}
