/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assign_streams: places independent branches on side streams, if that makes the graph faster.
 *
 * The pass simulates a schedule of the nodes in their order. Each node goes to the stream on which it begins first. It
 * leaves its operands' stream only if this saves more than the handover costs. The estimated time of a node is that of
 * reading and writing its bytes and of its arithmetic on one core. Only the order of magnitude matters: a projection
 * takes hundreds of times as long as a normalisation. Streams are kept only if the graph then ends at least a tenth
 * earlier. Records and waits are added where a value, or a state, goes from one stream to another.
 *
 * Correct because streams never change results (docs/graph-text.md): the planner adds all waits that are needed. A
 * graph with scopes or events of its own is left alone. So is one with collectives, because ranks rely on their order.
 * A second run finds the scopes of the first.
 */
#include "base/mem.h"
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include <stdio.h>
#include <string.h>

#define KERNEL_NS    500.0 /* fixed cost of any kernel */
#define BYTES_PER_NS 10.0  /* one core */
#define FLOPS_PER_NS 50.0
#define HANDOVER_NS  2000.0 /* cost of going from a stream to another; a branch must save more */
#define GAIN         0.9    /* the schedule may take at most this fraction of the time on one stream */

struct placed {
    double end;
    uint32_t position; /* 1 + the position among nodes */
    uint8_t stream;
};

struct toucher { /* the nodes that used a state's storage last */
    uint32_t writer;
    uint32_t readers[NGD_GRAPH_MAX_STREAMS]; /* the last reader on each stream since the last write */
};

struct needs {
    uint32_t n;
    uint32_t nodes[NGD_GRAPH_MAX_OPERANDS * (2 + NGD_GRAPH_MAX_STREAMS)];
};

struct assignment {
    struct ngd_pass_context *ctx;
    uint32_t n_streams;
    struct placed *of;      /* indexed by node */
    struct toucher *states; /* indexed by value */
    double free_at[NGD_GRAPH_MAX_STREAMS], serial;
    uint32_t known[NGD_GRAPH_MAX_STREAMS]
                  [NGD_GRAPH_MAX_STREAMS]; /* position up to which a stream has waited for another */
    uint32_t n_events;
    char (*tags)[24];   /* indexed by node: tag of the record behind it; "" = none */
    struct needs needs; /* of the node being placed */
};

/* ---- dependencies of a node ---- */

static void need(struct needs *needs, uint32_t node)
{
    if (node != NGD_NODE_NONE)
        needs->nodes[needs->n++] = node;
}

static bool is_state_root(const struct ngd_rewrite *rw, uint32_t root)
{
    return rw->g->values[root].cls == NGD_VALUE_STATE;
}

static bool writes_operand(const struct ngd_node *n, uint32_t operand)
{
    return operand < 32 && (n->op->mutates >> operand & 1);
}

static void find_needs(struct assignment *a, uint32_t node)
{
    struct needs *needs = &a->needs;
    const struct ngd_rewrite *rw = a->ctx->rw;
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    needs->n = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t root;

        if (n->in[i] == NGD_VALUE_NONE)
            continue;
        need(needs, ngd_rewrite_maker(rw, n->in[i]));
        root = ngd_rewrite_root(rw, n->in[i]);
        if (!is_state_root(rw, root))
            continue;
        need(needs, a->states[root].writer);
        for (uint32_t s = 0; writes_operand(n, i) && s < a->n_streams; s++)
            need(needs, a->states[root].readers[s]);
    }
}

static void note_touches(struct assignment *a, uint32_t node)
{
    const struct ngd_rewrite *rw = a->ctx->rw;
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t root = n->in[i] == NGD_VALUE_NONE ? NGD_VALUE_NONE : ngd_rewrite_root(rw, n->in[i]);
        struct toucher *t;

        if (root == NGD_VALUE_NONE || !is_state_root(rw, root))
            continue;
        t = &a->states[root];
        if (writes_operand(n, i)) {
            memset(t, 0xff, sizeof(*t));
            t->writer = node;
        } else {
            t->readers[a->of[node].stream] = node;
        }
    }
}

/* ---- the schedule ---- */

static double node_cost(struct ngd_pass_context *ctx, uint32_t node)
{
    double flops, bytes;

    if (ngd_rewrite_node(ctx->rw, node)->op->flags & NGD_OPF_VIEW)
        return 0;
    ngd_pass_work(ctx, node, &flops, &bytes);
    return KERNEL_NS + bytes / BYTES_PER_NS + flops / FLOPS_PER_NS;
}

static double start_on(const struct assignment *a, uint32_t stream)
{
    const struct needs *needs = &a->needs;
    double start = a->free_at[stream];

    for (uint32_t i = 0; i < needs->n; i++) {
        const struct placed *p = &a->of[needs->nodes[i]];
        double there = p->end + (p->stream != stream ? HANDOVER_NS : 0);

        start = there > start ? there : start;
    }
    return start;
}

/* Returns the stream of the node's last dependency; the main stream if it has none. */
static uint32_t home_of(const struct assignment *a)
{
    const struct needs *needs = &a->needs;
    uint32_t home = 0;
    double last = -1;

    for (uint32_t i = 0; i < needs->n; i++) {
        if (a->of[needs->nodes[i]].end > last) {
            last = a->of[needs->nodes[i]].end;
            home = a->of[needs->nodes[i]].stream;
        }
    }
    return home;
}

static void place_on_stream(struct assignment *a, uint32_t node, uint32_t position)
{
    double cost = node_cost(a->ctx, node), start;
    uint32_t stream;

    find_needs(a, node);
    stream = home_of(a);
    start = start_on(a, stream);
    for (uint32_t s = 0; cost > 0 && s < a->n_streams; s++) {
        double other = start_on(a, s);

        if (other + HANDOVER_NS < start) {
            stream = s;
            start = other;
        }
    }
    a->of[node] = (struct placed){.end = start + cost, .position = position, .stream = (uint8_t)stream};
    a->free_at[stream] = start + cost;
    a->serial += cost;
    note_touches(a, node);
}

static bool pays(const struct assignment *a)
{
    double last = 0;

    for (uint32_t s = 0; s < a->n_streams; s++)
        last = a->free_at[s] > last ? a->free_at[s] : last;
    return last < GAIN * a->serial;
}

/* ---- changes of the graph ---- */

static ngd_status_t name_streams(struct assignment *a, uint16_t *streams)
{
    ngd_status_t status = NGD_OK;

    streams[0] = 0;
    for (uint32_t s = 1; s < a->n_streams && !status; s++) {
        char name[24];

        snprintf(name, sizeof(name), "assigned.%u", s);
        status = ngd_graph_add_stream(a->ctx->rw->g, name, &streams[s], a->ctx->diag);
    }
    return status;
}

static ngd_status_t add_event(struct assignment *a, ngd_op_id_t op, uint32_t before, uint32_t like, const char *tag)
{
    struct ngd_attr_value attr = {.s = tag};
    uint32_t made;
    ngd_status_t status;

    ngd_rewrite_scope_as(a->ctx->rw, like);
    status = ngd_rewrite_add(a->ctx->rw, before, ngd_op_by_id(op), NULL, 0, &attr, &made, a->ctx->diag);
    ngd_rewrite_scope_as(a->ctx->rw, NGD_NODE_NONE);
    return status;
}

/* Makes the node wait for `from`, which is on another stream, unless the node's stream has waited for it already. */
static ngd_status_t add_wait(struct assignment *a, uint32_t node, uint32_t from)
{
    const struct placed *p = &a->of[from];
    uint32_t *known = &a->known[a->of[node].stream][p->stream];
    ngd_status_t status = NGD_OK;

    if (p->stream == a->of[node].stream || *known >= p->position || a->n_events == NGD_GRAPH_MAX_EVENTS)
        return NGD_OK; /* past the limit of events, the planner still adds the waits that are needed */
    *known = p->position;
    if (!a->tags[from][0]) {
        snprintf(a->tags[from], sizeof(a->tags[from]), "assigned.%u", a->n_events++);
        status =
            add_event(a, NGD_OP_NPUGRAPH_EX_TAGGED_EVENT_RECORD, a->ctx->rw->nodes[from].next, from, a->tags[from]);
    }
    return status ? status : add_event(a, NGD_OP_NPUGRAPH_EX_TAGGED_EVENT_WAIT, node, node, a->tags[from]);
}

static bool is_event(const struct ngd_rewrite *rw, uint32_t node)
{
    return ngd_rewrite_node(rw, node)->op->flags & NGD_OPF_EVENT;
}

static ngd_status_t add_waits(struct assignment *a)
{
    const uint32_t none = NGD_NODE_NONE;
    struct ngd_rewrite *rw = a->ctx->rw;
    ngd_status_t status = NGD_OK;

    for (uint32_t v = 0; v < rw->g->n_values; v++)
        memset(&a->states[v], 0xff, sizeof(a->states[v]));
    for (uint32_t n = rw->first, next; n != none && !status; n = next) {
        next = rw->nodes[n].next;
        if (is_event(rw, n))
            continue;
        find_needs(a, n);
        for (uint32_t i = 0; i < a->needs.n && !status; i++)
            status = add_wait(a, n, a->needs.nodes[i]);
        note_touches(a, n);
    }
    return status;
}

static ngd_status_t apply(struct assignment *a)
{
    struct ngd_rewrite *rw = a->ctx->rw;
    uint16_t streams[NGD_GRAPH_MAX_STREAMS];
    ngd_status_t status = name_streams(a, streams);

    for (uint32_t n = rw->first; n != NGD_NODE_NONE && !status; n = rw->nodes[n].next) {
        ngd_rewrite_node(rw, n)->scope.stream = streams[a->of[n].stream];
        a->ctx->changed += a->of[n].stream != 0;
    }
    return status ? status : add_waits(a);
}

/* ---- the pass ---- */

static bool has_scopes(const struct ngd_rewrite *rw)
{
    for (uint32_t n = rw->first; n != NGD_NODE_NONE; n = rw->nodes[n].next) {
        const struct ngd_node_scope *scope = &ngd_rewrite_node(rw, n)->scope;

        if (scope->stream || scope->aicore || is_event(rw, n) ||
            (ngd_rewrite_node(rw, n)->op->flags & NGD_OPF_COLLECTIVE))
            return true;
    }
    return false;
}

static ngd_status_t assign_streams(struct assignment *a)
{
    const struct ngd_rewrite *rw = a->ctx->rw;
    uint32_t position = 0;

    for (uint32_t v = 0; v < rw->g->n_values; v++)
        memset(&a->states[v], 0xff, sizeof(a->states[v]));
    for (uint32_t n = rw->first; n != NGD_NODE_NONE; n = rw->nodes[n].next)
        place_on_stream(a, n, ++position);
    return pays(a) ? apply(a) : NGD_OK;
}

ngd_status_t ngd_pass_assign_streams(struct ngd_pass_context *ctx)
{
    uint32_t n_nodes = ctx->rw->g->n_nodes + 1;
    struct assignment *a;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (has_scopes(ctx->rw))
        return NGD_OK;
    a = NGD_NEW(struct assignment);
    if (a) {
        a->ctx = ctx;
        a->n_streams = 1 + (uint32_t)ctx->options->assign_streams;
        a->of = NGD_NEW_N(struct placed, n_nodes);
        a->states = NGD_NEW_N(struct toucher, ctx->rw->g->n_values + 1u);
        a->tags = ngd_calloc(n_nodes, sizeof(*a->tags));
    }
    if (a && a->of && a->states && a->tags)
        status = assign_streams(a);
    else
        ngd_diag_set(ctx->diag, status, "out of host memory");
    if (a) {
        ngd_free(a->tags);
        ngd_free(a->states);
        ngd_free(a->of);
    }
    ngd_free(a);
    return status;
}
