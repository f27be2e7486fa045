/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"
#include "daemon/daemon.h"
#include "daemon/health.h"
#include "daemon/rpc_methods.h"
#include "proto/health.pb-c.h"
#include <string.h>

#define SERVICES_MAX 16

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_t;
#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

/* One Watch; lives in its call's memory and holds a reference on it. */
struct watcher {
    struct ngd_list link;
    struct ngd_call *call;
    bool known;
};

struct ngd_health {
    struct ngd_daemon *daemon;
    struct ngd_mutex lock;
    struct ngd_list watchers NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_health_create(struct ngd_daemon *d, struct ngd_health **health_p)
{
    struct ngd_health *health = NGD_NEW(struct ngd_health);

    if (!health)
        return NGD_ERR_NO_MEMORY;
    health->daemon = d;
    ngd_mutex_init(&health->lock, NGD_RANK_DRAIN);
    ngd_list_init(&health->watchers);
    *health_p = health;
    return NGD_OK;
}

void ngd_health_destroy(struct ngd_health *health)
{
    if (!health)
        return;
    ngd_mutex_fini(&health->lock);
    ngd_free(health);
}

static bool is_known(const char *service)
{
    if (*service == '\0')
        return true;
    for (size_t i = 0; i < ngd_n_methods; i++)
        if (strcmp(ngd_methods[i].service, service) == 0)
            return true;
    return false;
}

static serving_t serving(const struct ngd_daemon *d)
{
    return ngd_daemon_state(d) == NGD_DAEMON_SERVING && !atomic_load(&d->hangs) ? SERVING : NOT_SERVING;
}

static void tell(const struct ngd_health *health, const struct watcher *w)
{
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    r.status = w->known ? serving(health->daemon) : SERVICE_UNKNOWN;
    if (ngd_call_send(w->call, &r.base) != NGD_OK) /* it must not go on with what it was told before */
        ngd_call_end(w->call, NGD_ERR_NO_MEMORY, "the state could not be told; watch again");
}

void ngd_health_changed(struct ngd_health *health)
{
    if (!health)
        return;
    ngd_mutex_lock(&health->lock);
    ngd_list_for_each (pos, &health->watchers) {
        const struct watcher *w = ngd_container_of(pos, struct watcher, link);

        if (w->known)
            tell(health, w);
    }
    ngd_mutex_unlock(&health->lock);
}

static void check(struct ngd_call *call, const void *msg)
{
    const Grpc__Health__V1__HealthCheckRequest *q = msg;
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct ngd_diag diag;

    if (!is_known(q->service)) {
        ngd_diag_set(&diag, NGD_ERR_NOT_FOUND, "there is no service \"%.200s\" here; List names them", q->service);
        ngd_call_fail(call, NGD_ERR_NOT_FOUND, &diag);
        return;
    }
    r.status = serving(call->daemon);
    ngd_call_reply(call, &r.base);
}

static void list(struct ngd_call *call, const void *msg)
{
    Grpc__Health__V1__HealthListResponse r = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entries[SERVICES_MAX], *ptrs[SERVICES_MAX];
    Grpc__Health__V1__HealthCheckResponse status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const char *last = NULL;

    (void)msg;
    status.status = serving(call->daemon);
    r.statuses = ptrs;
    /* "" and, since the table is sorted by service, every name that differs from the row before. */
    for (size_t i = 0; i <= ngd_n_methods && r.n_statuses < SERVICES_MAX; i++) {
        const char *service = i == 0 ? "" : ngd_methods[i - 1].service;

        if (last && strcmp(last, service) == 0)
            continue;
        last = service;
        grpc__health__v1__health_list_response__statuses_entry__init(&entries[r.n_statuses]);
        entries[r.n_statuses].key = (char *)(uintptr_t)service;
        entries[r.n_statuses].value = &status;
        ptrs[r.n_statuses] = &entries[r.n_statuses];
        r.n_statuses++;
    }
    ngd_call_reply(call, &r.base);
}

static void watch(struct ngd_call *call, const void *msg)
{
    const Grpc__Health__V1__HealthCheckRequest *q = msg;
    struct ngd_health *health = call->daemon->health;
    struct watcher *w = ngd_arena_alloc(&call->life, sizeof(*w));

    if (!w) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    w->call = call;
    w->known = is_known(q->service);
    call->state = w;
    ngd_mutex_lock(&health->lock);
    ngd_list_push_back(&health->watchers, &w->link);
    tell(health, w); /* under the lock, so that a change cannot overtake it */
    ngd_mutex_unlock(&health->lock);
}

static void stop_watching(struct ngd_call *call)
{
    struct ngd_health *health = call->daemon->health;
    struct watcher *w = call->state;

    ngd_mutex_lock(&health->lock);
    ngd_list_remove(&w->link);
    ngd_mutex_unlock(&health->lock);
    ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
}

const struct ngd_rpc_ops ngd_rpc_health_check = {.request = check};
const struct ngd_rpc_ops ngd_rpc_health_list = {.request = list};
const struct ngd_rpc_ops ngd_rpc_health_watch = {.request = watch, .cancelled = stop_watching};
