/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.Explain: returns the flight recorder's events of a graph, a key or a request. */
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handlers/graph_info.h"
#include "daemon/handlers/graphs.h"
#include "daemon/handlers/methods.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/record/recorder.h"
#include "scheduler/run/sched.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_EVENTS 100
#define MAX_EVENTS     1000
#define MIN_DIGITS     6

struct filter {
    const struct ngd_identity *who;
    uint64_t program; /* 0 = any */
    const char *key;
    uint64_t tag;
};

static char *print_key(struct ngd_arena *arena, uint64_t hash)
{
    char text[17] = "";

    if (hash)
        snprintf(text, sizeof(text), "%016" PRIx64, hash);
    return ngd_arena_strdup(arena, text);
}

static bool matches(void *ctx, const struct ngd_flight_event *e)
{
    const struct filter *f = ctx;
    char key[17];

    snprintf(key, sizeof(key), "%016" PRIx64, e->key);
    return ngd_may_see_key(f->who, e->owner) && (!f->program || e->program == f->program) &&
           (!f->key[0] || (e->key && strncmp(key, f->key, strlen(f->key)) == 0));
}

static uint64_t ms_ago(ngd_nsec_t now, ngd_nsec_t then)
{
    return now > then ? (uint64_t)((now - then) / NGD_MSEC) : 0;
}

static Npugraph__V1__FlightEvent *event_message(struct ngd_arena *arena, const struct ngd_flight_event *e,
                                                ngd_nsec_t now)
{
    Npugraph__V1__FlightEvent *m = ngd_arena_calloc(arena, 1, sizeof(*m));
    char *hex = ngd_arena_alloc(arena, NGD_DIGEST_HEX);

    if (!m || !hex)
        return NULL;
    npugraph__v1__flight_event__init(m);
    ngd_digest_hex(&e->graph, hex);
    m->number = e->number;
    m->kind = (char *)(uintptr_t)ngd_event_infos[e->reason].kind;
    m->reason = (char *)(uintptr_t)ngd_event_infos[e->reason].name;
    m->help = (char *)(uintptr_t)ngd_event_infos[e->reason].help;
    m->graph = ngd_arena_strdup(arena, e->name);
    m->digest = hex;
    m->key = print_key(arena, e->key);
    m->tag = e->tag;
    m->count = e->count;
    m->first_ms_ago = ms_ago(now, e->first);
    m->last_ms_ago = ms_ago(now, e->last);
    m->text = ngd_arena_strdup(arena, e->text);
    return m->graph && m->key && m->text ? m : NULL;
}

static bool add_events(struct ngd_call *call, struct filter *f, uint32_t limit, Npugraph__V1__ExplainResponse *reply)
{
    struct ngd_flight_event *list = ngd_arena_calloc(&call->life, limit, sizeof(*list));
    ngd_nsec_t now = ngd_now();
    uint32_t n;

    reply->events = ngd_arena_calloc(&call->life, limit, sizeof(*reply->events));
    if (!list || !reply->events)
        return false;
    n = ngd_recorder_read(ngd_sched_recorder(call->daemon->sched), f->tag, matches, f, list, limit);
    for (uint32_t i = 0; i < n; i++) {
        reply->events[i] = event_message(&call->life, &list[i], now);
        if (!reply->events[i])
            return false;
        reply->n_events++;
    }
    return true;
}

static bool add_counts(struct ngd_call *call, Npugraph__V1__ExplainResponse *reply)
{
    reply->counts = ngd_arena_calloc(&call->life, NGD_EVENT_MAX, sizeof(*reply->counts));
    for (int i = 0; reply->counts && i < NGD_EVENT_MAX; i++) {
        uint64_t count = ngd_metric_row_get(ngd_metric_row(NGD_M_FLIGHT_EVENTS, ngd_event_infos[i].name));
        Npugraph__V1__ReasonCount *m = count ? ngd_arena_calloc(&call->life, 1, sizeof(*m)) : NULL;

        if (!m)
            continue;
        npugraph__v1__reason_count__init(m);
        m->reason = (char *)(uintptr_t)ngd_event_infos[i].name;
        m->kind = (char *)(uintptr_t)ngd_event_infos[i].kind;
        m->count = count;
        reply->counts[reply->n_counts++] = m;
    }
    return reply->counts != NULL;
}

struct keys {
    struct ngd_arena *arena;
    Npugraph__V1__ExplainResponse *reply;
    size_t room;
};

static void add_explained_key(void *ctx, const struct ngd_key_info *info)
{
    struct keys *k = ctx;
    Npugraph__V1__KeyInfo *m;

    if (k->reply->n_keys == k->room || !(m = ngd_arena_calloc(k->arena, 1, sizeof(*m))))
        return;
    npugraph__v1__key_info__init(m);
    m->symbols = ngd_arena_strdup(k->arena, info->symbols);
    m->key = print_key(k->arena, info->hash);
    m->uses = info->uses;
    m->replays = info->runs;
    m->padded_replays = info->padded_runs;
    m->expected_ns = (uint64_t)info->expected;
    m->static_kernels = (char *)(uintptr_t)info->static_kernels;
    m->capture_ns = (uint64_t)info->capture_time;
    m->pool_bytes = info->pool_bytes;
    m->kernels = info->kernels;
    if (m->symbols && m->key)
        k->reply->keys[k->reply->n_keys++] = m;
}

static bool add_keys(struct ngd_call *call, struct ngd_program *prog, Npugraph__V1__ExplainResponse *reply)
{
    struct keys k = {.arena = &call->life, .reply = reply, .room = MAX_EVENTS};

    reply->keys = ngd_arena_calloc(&call->life, k.room, sizeof(*reply->keys));
    if (reply->keys)
        ngd_program_for_each_key(prog, add_explained_key, &k);
    return reply->keys != NULL;
}

static bool add_program(struct ngd_call *call, struct ngd_program *prog, Npugraph__V1__ExplainResponse *reply)
{
    reply->guards = ngd_guard_list(ngd_program_graph(prog), &call->life, &reply->n_guards);
    return reply->guards && add_keys(call, prog, reply);
}

static ngd_status_t choose_program(struct ngd_call *call, const Npugraph__V1__ExplainRequest *q,
                                   struct ngd_program **prog_p, struct filter *f, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (q->limit > MAX_EVENTS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a call returns at most %d events; limit is %u", MAX_EVENTS,
                            q->limit);
    if (q->key[0] && (strlen(q->key) < MIN_DIGITS || strlen(q->key) > 16))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a key must be named by %d to 16 digits of its hash",
                            MIN_DIGITS);
    if (q->graph || q->digest[0])
        status = ngd_rpc_find_program(call, q->graph, q->digest, false, prog_p, diag);
    *f = (struct filter){
        .who = call->identity, .program = *prog_p ? ngd_program_number(*prog_p) : 0, .key = q->key, .tag = q->tag};
    return status;
}

static void explain(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ExplainRequest *q = msg;
    Npugraph__V1__ExplainResponse reply = NPUGRAPH__V1__EXPLAIN_RESPONSE__INIT;
    struct ngd_program *prog = NULL;
    struct ngd_diag diag = {0};
    struct filter f;
    ngd_status_t status = choose_program(call, q, &prog, &f, &diag);

    if (status == NGD_OK && (!add_events(call, &f, q->limit ? q->limit : DEFAULT_EVENTS, &reply) ||
                             !add_counts(call, &reply) || (prog && !add_program(call, prog, &reply))))
        status = NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
    ngd_program_unref(prog);
}

const struct ngd_rpc_ops ngd_rpc_graphs_explain = {.request = explain};
