/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.CreateGroup, GroupRoot, JoinRanks, ListGroups: devices whose graphs run collectives together. */
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/models.h"
#include "daemon/rpc/call_job.h"
#include "daemon/session.h"
#include "devices/comm.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/model/model.h"
#include "scheduler/run/sched.h"

/* ---- create ---------------------------------------------------------------------------------------------- */

#define TIME_LIMIT_MIN_MS 100
#define TIME_LIMIT_MAX_MS 600000

/* A root makes the daemon connect to where it says, and makes others ranks of a group: not for everybody. */
static ngd_status_t check_spans_allowed(const struct ngd_call *call, struct ngd_diag *diag)
{
    if (call->identity->admin)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                        "%s may not make groups that span daemons; only administrators may (option admin-identities)",
                        call->identity->name);
}

/* *span is for params->span. */
static ngd_status_t read_span(struct ngd_call *call, const Npugraph__V1__CreateGroupRequest *q,
                              struct ngd_comm_span *span, struct ngd_group_params *params, struct ngd_diag *diag)
{
    const Npugraph__V1__GroupSpan *m = q->span;

    if (q->time_limit_ms && (q->time_limit_ms < TIME_LIMIT_MIN_MS || q->time_limit_ms > TIME_LIMIT_MAX_MS))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "time_limit_ms of group \"%.64s\" is %u; allowed: %d to %d, or 0 for the default", q->name,
                            q->time_limit_ms, TIME_LIMIT_MIN_MS, TIME_LIMIT_MAX_MS);
    params->time_limit = (ngd_nsec_t)q->time_limit_ms * NGD_MSEC;
    if (!m)
        return NGD_OK;
    *span = (struct ngd_comm_span){
        .size = m->ranks, .first = m->first_rank, .root = m->root.data, .root_bytes = m->root.len};
    params->span = span;
    return check_spans_allowed(call, diag);
}

static ngd_status_t make_group(struct ngd_call *call, const Npugraph__V1__CreateGroupRequest *q,
                               struct ngd_group **group_p, struct ngd_diag *diag)
{
    struct ngd_device *devices[NGD_GROUP_MAX_RANKS];
    struct ngd_group_params params = {.name = q->name, .devices = devices, .n = (uint32_t)q->n_devices};
    struct ngd_comm_span span;
    ngd_status_t status = read_span(call, q, &span, &params, diag);

    if (status)
        return status;
    if (q->n_devices > NGD_GROUP_MAX_RANKS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%.64s\" has %zu devices; a group has 2 to %d",
                            q->name, q->n_devices, NGD_GROUP_MAX_RANKS);
    for (size_t i = 0; i < q->n_devices && status == NGD_OK; i++) {
        if (q->devices[i][0] == '\0') /* groups have no default device: each is named */
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "device %zu of group \"%.64s\" has no name", i,
                                q->name);
        status = ngd_sched_find_device(call->daemon->sched, q->devices[i], &devices[i], diag);
    }
    return status ? status : ngd_group_create(call->daemon->sched, &params, group_p, diag);
}

/* Creates the group on a job thread: the devices connect for the first time, which may take seconds, or minutes if they
 * wait for other daemons. */
static ngd_status_t run_create(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__CreateGroupResponse reply = NPUGRAPH__V1__CREATE_GROUP_RESPONSE__INIT;
    struct ngd_group_object *o;
    struct ngd_group *group;
    const Npugraph__V1__CreateGroupRequest *q = msg;
    ngd_status_t status = ngd_session_check_name(call->session, NGD_OBJECT_GROUP, q->name, diag);

    if (status == NGD_OK)
        status = make_group(call, q, &group, diag);
    if (status != NGD_OK)
        return status;
    if (q->span && atomic_load(&call->cancelled)) { /* nobody knows of it who could release it */
        ngd_group_unref(group);
        return NGD_ERR_CANCELLED;
    }
    o = ngd_group_object_create(group);
    status = o ? ngd_session_add(call->session, &o->base, &reply.group, diag) : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_object_unref(o ? &o->base : NULL);
    return status;
}

static void create_group(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__CreateGroupRequest *q = msg;

    if (q->span)
        ngd_call_job_add(call->daemon->span_jobs, call, msg, run_create, 0);
    else
        ngd_call_job_add(call->daemon->jobs, call, msg, run_create, NGD_CALL_JOB_SLOW);
}

const struct ngd_rpc_ops ngd_rpc_groups_create = {.once = true, .request = create_group};

/* ---- root ----------------------------------------------------------------------------------------------- */

static ngd_status_t run_root(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__GroupRootResponse reply = NPUGRAPH__V1__GROUP_ROOT_RESPONSE__INIT;
    const Npugraph__V1__GroupRootRequest *q = msg;
    struct ngd_device *dev;
    ngd_status_t status = check_spans_allowed(call, diag);

    if (status == NGD_OK)
        status = ngd_sched_find_device(call->daemon->sched, q->device, &dev, diag);
    if (status != NGD_OK)
        return status;
    reply.root.data = ngd_arena_alloc(&call->life, NGD_COMM_ROOT_MAX);
    if (!reply.root.data)
        return NGD_ERR_NO_MEMORY;
    status = ngd_comm_root(dev, reply.root.data, &reply.root.len, diag);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    return status;
}

static void group_root(struct ngd_call *call, const void *msg)
{
    ngd_call_job_add(call->daemon->jobs, call, msg, run_root, 0);
}

const struct ngd_rpc_ops ngd_rpc_groups_root = {.request = group_root};

/* ---- join ------------------------------------------------------------------------------------------------ */

struct join {
    struct ngd_binding *bindings[NGD_GROUP_MAX_RANKS]; /* references */
    uint32_t n;
};

static ngd_status_t collect_ranks(struct ngd_call *call, const Npugraph__V1__JoinRanksRequest *q, struct join *j,
                                  struct ngd_diag *diag)
{
    if (q->n_graphs > NGD_GROUP_MAX_RANKS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%zu graphs are named; a group has at most %d ranks",
                            q->n_graphs, NGD_GROUP_MAX_RANKS);
    for (; j->n < q->n_graphs; j->n++) {
        struct ngd_object *o;
        ngd_status_t status = ngd_session_get(call->session, q->graphs[j->n], NGD_OBJECT_GRAPH, &o, diag);

        if (status != NGD_OK)
            return status;
        j->bindings[j->n] = ngd_graph_object_binding(ngd_container_of(o, struct ngd_graph_object, base));
        ngd_object_unref(o);
    }
    return NGD_OK;
}

static ngd_status_t add_gang(struct ngd_call *call, struct ngd_binding *gang, Npugraph__V1__JoinRanksResponse *reply,
                             struct ngd_diag *diag)
{
    struct ngd_graph_object *o = ngd_graph_object_create(gang);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!o)
        return status;
    reply->generation = ngd_binding_generation(gang);
    status = ngd_session_add(call->session, &o->base, &reply->graph, diag);
    if (status != NGD_OK)
        ngd_object_unref(&o->base);
    return status;
}

static void join_ranks(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__JoinRanksResponse reply = NPUGRAPH__V1__JOIN_RANKS_RESPONSE__INIT;
    const Npugraph__V1__JoinRanksRequest *q = msg;
    struct ngd_binding *gang = NULL;
    struct join j = {.n = 0};
    struct ngd_diag diag = {0};
    ngd_status_t status = collect_ranks(call, q, &j, &diag);

    if (status == NGD_OK)
        status = ngd_gang_create(j.bindings, j.n, q->replicated, &gang, &diag);
    if (status == NGD_OK)
        status = add_gang(call, gang, &reply, &diag);
    while (j.n > 0)
        ngd_binding_unref(j.bindings[--j.n]);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_groups_join = {.once = true, .request = join_ranks};

/* ---- list ------------------------------------------------------------------------------------------------ */

struct listed {
    struct ngd_group *group; /* a reference */
    uint64_t id, session;
    const char *model; /* "": none */
};

struct listing {
    const struct ngd_identity *who;
    struct listed *items; /* NULL: groups are only counted */
    size_t n, room;
    uint64_t session; /* id of the session that is being listed */
    struct ngd_arena *arena;
};

static void hold_group(void *ctx, uint64_t id, struct ngd_object *object)
{
    struct listing *l = ctx;

    if (object->kind != NGD_OBJECT_GROUP)
        return;
    l->room += !l->items;
    if (!l->items || l->n == l->room)
        return;
    l->items[l->n++] = (struct listed){ngd_group_ref(ngd_container_of(object, struct ngd_group_object, base)->group),
                                       id, l->session, ""};
}

/* Adds the group of a model. It may be a session's too: then it is listed once, with both. */
static void hold_model_group(void *ctx, const struct ngd_model_listed *listed)
{
    struct listing *l = ctx;
    struct ngd_model_stats stats;
    const char *name;

    ngd_model_stats(listed->model, &stats);
    if (!stats.group)
        return;
    l->room += !l->items;
    name = l->items ? ngd_arena_strdup(l->arena, stats.name) : NULL;
    if (!name)
        return;
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].group == stats.group) {
            l->items[i].model = name;
            return;
        }
    }
    if (l->n < l->room)
        l->items[l->n++] = (struct listed){ngd_group_ref(stats.group), 0, 0, name};
}

static void hold_all(void *ctx, struct ngd_session *session)
{
    struct listing *l = ctx;

    if (!ngd_may_manage(l->who, ngd_session_identity(session)))
        return;
    l->session = ngd_session_id(session);
    ngd_session_for_each(session, hold_group, l);
}

static Npugraph__V1__GroupInfo *describe_group(struct ngd_call *call, const struct listed *item)
{
    Npugraph__V1__GroupInfo *m = ngd_arena_calloc(&call->life, 1, sizeof(*m));
    const uint32_t n = ngd_group_size(item->group);
    struct ngd_group_stats stats;

    if (!m)
        return NULL;
    ngd_group_stats(item->group, &stats);
    npugraph__v1__group_info__init(m);
    m->group = call->session && ngd_session_id(call->session) == item->session ? item->id : 0;
    m->session = m->group || call->identity->admin ? item->session : 0;
    m->name = ngd_arena_strdup(&call->life, ngd_group_name(item->group));
    m->state = stats.closed.status ? NGD_PB(GROUP_STATE, CLOSED) : NGD_PB(GROUP_STATE, OPEN);
    m->reason = ngd_arena_strdup(&call->life, stats.closed.status ? stats.closed.text : "");
    m->replays = stats.replays;
    m->resets = stats.resets;
    m->model = (char *)(uintptr_t)item->model;
    m->ranks = ngd_group_ranks(item->group);
    m->first_rank = ngd_group_first(item->group);
    m->devices = ngd_arena_calloc(&call->life, n, sizeof(*m->devices));
    if (!m->name || !m->reason || !m->devices)
        return NULL;
    for (; m->n_devices < n; m->n_devices++) {
        const struct ngd_device *dev = ngd_group_device(item->group, (uint32_t)m->n_devices);

        m->devices[m->n_devices] = ngd_arena_strdup(&call->life, ngd_device_info(dev)->name);
        if (!m->devices[m->n_devices])
            return NULL;
    }
    return m;
}

static void list_groups(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__ListGroupsResponse reply = NPUGRAPH__V1__LIST_GROUPS_RESPONSE__INIT;
    struct listing l = {.who = call->identity, .arena = &call->life};
    ngd_status_t status = NGD_OK;

    (void)msg;
    ngd_sessions_for_each(call->daemon->sessions, hold_all, &l);
    ngd_models_for_each(call->daemon->models, call->identity, hold_model_group, &l);
    l.items = ngd_arena_calloc(&call->life, l.room + 1, sizeof(*l.items));
    reply.groups = ngd_arena_calloc(&call->life, l.room + 1, sizeof(*reply.groups));
    if (!l.items || !reply.groups) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    ngd_sessions_for_each(call->daemon->sessions, hold_all, &l);
    ngd_models_for_each(call->daemon->models, call->identity, hold_model_group, &l);
    for (size_t i = 0; i < l.n; i++) {
        Npugraph__V1__GroupInfo *m = describe_group(call, &l.items[i]);

        if (m)
            reply.groups[reply.n_groups++] = m;
        else
            status = NGD_ERR_NO_MEMORY;
        ngd_group_unref(l.items[i].group);
    }
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, NULL);
}

const struct ngd_rpc_ops ngd_rpc_groups_list = {.request = list_groups};
