/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places waits between streams, and computes clocks.
 *
 * A point has a number for each stream: 1 + the index of the stream's last call that has certainly ended. An event
 * records a point, a wait joins one, and the clock of a call is one. The join of two points is their maximum.
 *
 * Data: for each root that may be written, and each stream, the code keeps the extent of all reads and that of all
 * writes so far, each with the last call. An extent covers more bytes than the single accesses, so sometimes a call
 * waits although the bytes differ. But the parts of a cat that are computed on different streams do not wait for each
 * other.
 */
#include "graphs/plan_streams.h"
#include "base/mem.h"
#include "graphs/plan_int.h"
#include <string.h>

struct point {
    uint32_t at[NGD_GRAPH_MAX_STREAMS];
};

static void join_points(struct point *p, const struct point *q)
{
    for (uint32_t u = 0; u < NGD_GRAPH_MAX_STREAMS; u++)
        if (p->at[u] < q->at[u])
            p->at[u] = q->at[u];
}

/* ---- events ---- */

struct event {
    const char *tag;
    struct point point;
};

struct asked { /* a call that waits because of the graph's events */
    uint32_t call;
    struct point point;
};

struct ngd_plan_syncs {
    struct point last;                           /* the calls so far */
    struct point pending[NGD_GRAPH_MAX_STREAMS]; /* indexed by stream: waits for which no call has come yet */
    bool waits[NGD_GRAPH_MAX_STREAMS];
    struct event *events;
    struct asked *asked;
    uint32_t n_events, n_asked, cap_events, cap_asked;
};

ngd_status_t ngd_plan_syncs_create(const struct ngd_graph *graph, struct ngd_plan_syncs **syncs_p)
{
    struct ngd_plan_syncs *s = NGD_NEW(struct ngd_plan_syncs);
    uint32_t n_records = 0, n_waits = 0;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        n_records += (graph->nodes[i].op->flags & NGD_OPF_RECORD) != 0;
        n_waits += (graph->nodes[i].op->flags & NGD_OPF_WAIT) != 0;
    }
    if (!s)
        return NGD_ERR_NO_MEMORY;
    s->cap_events = n_records;
    s->cap_asked = n_waits; /* enough: each such call has at least one wait */
    s->events = NGD_NEW_N(struct event, n_records + 1u);
    s->asked = NGD_NEW_N(struct asked, n_waits + 1u);
    if (!s->events || !s->asked) {
        ngd_plan_syncs_destroy(s);
        return NGD_ERR_NO_MEMORY;
    }
    *syncs_p = s;
    return NGD_OK;
}

void ngd_plan_syncs_destroy(struct ngd_plan_syncs *syncs)
{
    if (!syncs)
        return;
    ngd_free(syncs->events);
    ngd_free(syncs->asked);
    ngd_free(syncs);
}

ngd_status_t ngd_plan_syncs_node(struct ngd_plan_syncs *syncs, const struct ngd_node *event)
{
    const char *tag = event->attrs[0].s;
    uint16_t s = event->scope.stream;

    if (event->op->flags & NGD_OPF_RECORD) {
        struct event *e = &syncs->events[syncs->n_events];

        if (syncs->n_events++ == syncs->cap_events)
            return NGD_ERR_INTERNAL;
        *e = (struct event){.tag = tag, .point = syncs->pending[s]};
        if (e->point.at[s] < syncs->last.at[s])
            e->point.at[s] = syncs->last.at[s];
        return NGD_OK;
    }
    for (uint32_t i = 0; i < syncs->n_events; i++) {
        if (strcmp(syncs->events[i].tag, tag) != 0)
            continue;
        join_points(&syncs->pending[s], &syncs->events[i].point);
        syncs->waits[s] = true;
        return NGD_OK;
    }
    return NGD_ERR_INTERNAL; /* cannot happen: validation has found the record */
}

ngd_status_t ngd_plan_syncs_call(struct ngd_plan_syncs *syncs, uint32_t call, uint16_t stream)
{
    if (syncs->waits[stream]) {
        if (syncs->n_asked == syncs->cap_asked)
            return NGD_ERR_INTERNAL;
        syncs->asked[syncs->n_asked++] = (struct asked){call, syncs->pending[stream]};
        syncs->waits[stream] = false;
        memset(&syncs->pending[stream], 0, sizeof(syncs->pending[stream]));
    }
    syncs->last.at[stream] = call + 1;
    return NGD_OK;
}

/* ---- data ---- */

struct access {
    uint32_t last; /* the last call + 1; 0: none */
    uint64_t begin, end;
};

struct touched {
    struct access reads[NGD_GRAPH_MAX_STREAMS], writes[NGD_GRAPH_MAX_STREAMS];
};

struct waiter {
    struct ngd_plan *plan;
    uint32_t n_streams;
    uint32_t *slot_of; /* indexed by root: 1 + the index in `touched`; 0: none yet */
    struct touched *touched;
    uint32_t n_touched, cap_touched;
    struct point *points; /* indexed by call: its clock */
    struct point last;    /* for each stream, 1 + the index of its last call so far */
};

static struct touched *touched_of(struct waiter *w, uint32_t root)
{
    if (w->slot_of[root] == 0) {
        if (w->n_touched == w->cap_touched) {
            uint32_t cap = w->cap_touched ? 2 * w->cap_touched : 64;
            struct touched *more = ngd_reallocarray(w->touched, cap, sizeof(*more));

            if (!more)
                return NULL;
            w->touched = more;
            w->cap_touched = cap;
        }
        memset(&w->touched[w->n_touched], 0, sizeof(w->touched[0]));
        w->slot_of[root] = ++w->n_touched;
    }
    return &w->touched[w->slot_of[root] - 1];
}

static bool meets(const struct access *a, uint64_t begin, uint64_t end)
{
    return a->last && a->begin < end && begin < a->end;
}

static void grow_access(struct access *a, uint64_t begin, uint64_t end, uint32_t call)
{
    if (a->last == 0 || begin < a->begin)
        a->begin = begin;
    if (a->last == 0 || end > a->end)
        a->end = end;
    a->last = call + 1;
}

/* Returns true for parameters, which are never written. */
static bool is_constant(const struct ngd_plan *plan, uint32_t tensor)
{
    return plan->tensors[tensor].space == NGD_SPACE_BOUND && plan->tensors[tensor].bound < plan->graph->n_params;
}

/* Adds to `need` what call c must wait for because of a tensor that it reads or writes. */
static ngd_status_t need_of(struct waiter *w, uint32_t c, uint32_t tensor, bool writes, struct point *need)
{
    const struct ngd_plan_tensor *t = &w->plan->tensors[tensor];
    const struct ngd_plan_tensor *root = &w->plan->tensors[t->root];
    uint64_t begin = t->offset - root->offset, end = begin + t->bytes;
    uint16_t s = w->plan->calls[c].scope.stream;
    struct touched *x;

    if (is_constant(w->plan, tensor) || t->bytes == 0)
        return NGD_OK;
    x = touched_of(w, t->root);
    if (!x)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t u = 0; u < w->n_streams; u++) {
        if (u == s)
            continue;
        if (meets(&x->writes[u], begin, end) && need->at[u] < x->writes[u].last)
            need->at[u] = x->writes[u].last;
        if (writes && meets(&x->reads[u], begin, end) && need->at[u] < x->reads[u].last)
            need->at[u] = x->reads[u].last;
    }
    grow_access(writes ? &x->writes[s] : &x->reads[s], begin, end, c);
    return NGD_OK;
}

static ngd_status_t need_of_data(struct waiter *w, uint32_t c, struct point *need)
{
    const struct ngd_plan_call *call = &w->plan->calls[c];
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < call->n_in && !status; i++)
        if (call->in[i] != NGD_PLAN_NONE)
            status = need_of(w, c, call->in[i], i < 32 && (call->op->mutates >> i & 1), need);
    for (uint32_t i = 0; i < call->n_out && !status; i++)
        status = need_of(w, c, call->out[i], true, need);
    return status;
}

/* ---- waits ---- */

/* Returns the clock of the call that is stream u's last one at this point. */
static const struct point *point_at(const struct waiter *w, const struct point *p, uint32_t u)
{
    return &w->points[p->at[u] - 1];
}

/* Returns true if the wait for stream u follows from what is known, or from the waits of `need` for other streams. */
static bool follows(const struct waiter *w, const struct point *need, const struct point *known, uint32_t u)
{
    if (need->at[u] <= known->at[u])
        return true;
    for (uint32_t v = 0; v < w->n_streams; v++)
        if (v != u && need->at[v] > known->at[v] && point_at(w, need, v)->at[u] >= need->at[u])
            return true;
    return false;
}

static ngd_status_t place_wait(struct waiter *w, uint32_t c, const struct point *need)
{
    struct ngd_plan_call *call = &w->plan->calls[c];
    uint16_t s = call->scope.stream;
    struct point known = {{0}};
    uint32_t list[NGD_GRAPH_MAX_STREAMS], n = 0, *copy;

    if (w->last.at[s])
        known = *point_at(w, &w->last, s);
    for (uint32_t u = 0; u < w->n_streams; u++)
        if (u != s && !follows(w, need, &known, u))
            list[n++] = need->at[u] - 1;
    for (uint32_t i = 0; i < n; i++)
        join_points(&known, &w->points[list[i]]);
    known.at[s] = c + 1;
    w->points[c] = known;
    w->last.at[s] = c + 1;
    if (n == 0)
        return NGD_OK;
    copy = ngd_arena_alloc(w->plan->arena, n * sizeof(list[0]));
    if (!copy)
        return NGD_ERR_NO_MEMORY;
    memcpy(copy, list, n * sizeof(list[0]));
    call->waits = copy;
    call->n_waits = n;
    return NGD_OK;
}

static ngd_status_t keep_clocks(struct waiter *w)
{
    struct ngd_plan *plan = w->plan;
    uint32_t *clocks = ngd_arena_calloc(plan->arena, (size_t)plan->n_calls * w->n_streams + 1, sizeof(*clocks));

    if (!clocks)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t c = 0; c < plan->n_calls; c++)
        memcpy(&clocks[(size_t)c * w->n_streams], w->points[c].at, w->n_streams * sizeof(*clocks));
    plan->clocks = clocks;
    return NGD_OK;
}

static ngd_status_t place_syncs(struct waiter *w, const struct ngd_plan_syncs *syncs)
{
    uint32_t asked = 0;
    ngd_status_t status = NGD_OK;

    for (uint32_t c = 0; c < w->plan->n_calls && !status; c++) {
        struct point need = {{0}};

        if (asked < syncs->n_asked && syncs->asked[asked].call == c)
            need = syncs->asked[asked++].point;
        status = need_of_data(w, c, &need);
        if (!status)
            status = place_wait(w, c, &need);
    }
    return status ? status : keep_clocks(w);
}

static uint32_t count_streams(const struct ngd_plan *plan)
{
    uint32_t n = 1;

    for (uint32_t c = 0; c < plan->n_calls; c++)
        if (plan->calls[c].scope.stream >= n)
            n = plan->calls[c].scope.stream + 1u;
    return n;
}

ngd_status_t ngd_plan_place_waits(struct ngd_plan *plan, const struct ngd_plan_syncs *syncs)
{
    struct waiter w = {.plan = plan, .n_streams = count_streams(plan)};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    plan->n_streams = w.n_streams;
    if (w.n_streams == 1)
        return NGD_OK;
    w.slot_of = NGD_NEW_N(uint32_t, plan->n_tensors);
    w.points = NGD_NEW_N(struct point, plan->n_calls);
    if (w.slot_of && w.points)
        status = place_syncs(&w, syncs);
    ngd_free(w.points);
    ngd_free(w.touched);
    ngd_free(w.slot_of);
    return status;
}
