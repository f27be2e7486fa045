/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/health.h"
#include "proto/health.pb-c.h"
#include <string.h>

#define SERVICES_MAX 16

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_t;
#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

/* One Watch call. Memory: its call's. */
struct watch {
    struct ngd_health_watcher watcher;
    struct ngd_call *call;
    bool known, told;
};

static bool is_known_service(const char *service)
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
    return ngd_daemon_ready(d) ? SERVING : NOT_SERVING;
}

static void tell_health(struct ngd_health_watcher *watcher)
{
    struct watch *w = ngd_container_of(watcher, struct watch, watcher);
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    if (w->told && !w->known) /* an unknown service does not change */
        return;
    w->told = true;
    r.status = w->known ? serving(w->call->daemon) : SERVICE_UNKNOWN;
    if (ngd_call_send(w->call, &r.base) != NGD_OK) /* the client must not rely on an older state */
        ngd_call_end(w->call, NGD_ERR_NO_MEMORY, "the state could not be sent; watch again");
}

static void check_health(struct ngd_call *call, const void *msg)
{
    const Grpc__Health__V1__HealthCheckRequest *q = msg;
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct ngd_diag diag;

    if (!is_known_service(q->service)) {
        ngd_diag_set(&diag, NGD_ERR_NOT_FOUND, "there is no service \"%.200s\" here; List names them", q->service);
        ngd_call_fail(call, NGD_ERR_NOT_FOUND, &diag);
        return;
    }
    r.status = serving(call->daemon);
    ngd_call_reply(call, &r.base);
}

static void list_health(struct ngd_call *call, const void *msg)
{
    Grpc__Health__V1__HealthListResponse r = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entries[SERVICES_MAX], *ptrs[SERVICES_MAX];
    Grpc__Health__V1__HealthCheckResponse status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const char *last = NULL;

    (void)msg;
    status.status = serving(call->daemon);
    r.statuses = ptrs;
    /* Lists "" and each service of the table once; the table is sorted by service. */
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

static void watch_health(struct ngd_call *call, const void *msg)
{
    const Grpc__Health__V1__HealthCheckRequest *q = msg;
    struct watch *w = ngd_arena_alloc(&call->life, sizeof(*w));

    if (!w) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    *w = (struct watch){.watcher = {.tell = tell_health}, .call = call, .known = is_known_service(q->service)};
    call->state = w;
    ngd_health_watch(call->daemon->health, &w->watcher);
}

static void stop_watching(struct ngd_call *call)
{
    struct watch *w = call->state;

    ngd_health_unwatch(call->daemon->health, &w->watcher);
    ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
}

const struct ngd_rpc_ops ngd_rpc_health_check = {.request = check_health};
const struct ngd_rpc_ops ngd_rpc_health_list = {.request = list_health};
const struct ngd_rpc_ops ngd_rpc_health_watch = {.request = watch_health, .cancelled = stop_watching};
