/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the events of a graph: each is recorded once, and waits are below their record.
 *
 * The order of nodes is an order of execution, so a wait above its record is always wrong. The diagnosis says whether
 * the streams would wait for each other for ever, or the record only has to move up. To find out, a search follows the
 * nodes that cannot begin before the wait, along streams and from records to waits. If it reaches the record, there is
 * a cycle.
 *
 * Streams need no check: they all begin with the main stream and are joined with it at the end of the graph.
 */
#include "graphs/graph_int.h"
#include <string.h>

#define NO_NODE UINT32_MAX

struct event {
    const char *tag;
    uint32_t record; /* the node that records it */
};

struct events {
    const struct ngd_graph *graph;
    struct event *slots; /* open addressing, by tag */
    uint32_t mask, n;
};

static const char *tag_of(const struct ngd_node *node)
{
    return node->attrs[0].s;
}

static const char *node_stream_name(const struct ngd_graph *graph, const struct ngd_node *node)
{
    return node->scope.stream ? graph->streams[node->scope.stream] : "(main)";
}

static struct event *event_slot(const struct events *e, const char *tag)
{
    uint32_t at = (uint32_t)ngd_hash64(tag, strlen(tag), 0) & e->mask;

    while (e->slots[at].tag && strcmp(e->slots[at].tag, tag) != 0)
        at = (at + 1) & e->mask;
    return &e->slots[at];
}

static ngd_status_t note_record(struct events *e, uint32_t node, struct ngd_diag *diag)
{
    const struct ngd_node *n = &e->graph->nodes[node];
    struct event *slot = event_slot(e, tag_of(n));

    if (slot->tag)
        return ngd_op_fail(e->graph, n, diag, NGD_ERR_GRAPH_EVENT,
                           "event \"%.64s\" is recorded already by node %u (line %u): a replay records an event once; "
                           "give each event its own tag",
                           slot->tag, slot->record, e->graph->nodes[slot->record].line);
    if (e->n++ == NGD_GRAPH_MAX_EVENTS)
        return ngd_op_fail(e->graph, n, diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than %d events",
                           NGD_GRAPH_MAX_EVENTS);
    *slot = (struct event){tag_of(n), node};
    return NGD_OK;
}

/* Returns the wait above `record`, on its stream, through which `record` waits for node `wait`; NO_NODE:
 * there is none. */
static uint32_t find_cycle(const struct events *e, uint32_t wait, uint32_t record)
{
    const struct ngd_graph *g = e->graph;
    uint32_t reach[NGD_GRAPH_MAX_STREAMS], to = g->nodes[record].scope.stream;
    bool more = true;

    memset(reach, 0xff, sizeof(reach)); /* for each stream, the first node that cannot begin before `wait` ends */
    reach[g->nodes[wait].scope.stream] = wait;
    while (more && reach[to] > record) {
        more = false;
        for (uint32_t w = 0; w < g->n_nodes; w++) {
            const struct ngd_node *n = &g->nodes[w];
            const struct event *from = n->op->flags & NGD_OPF_WAIT ? event_slot(e, tag_of(n)) : NULL;

            if (!from || !from->tag || from->record < reach[g->nodes[from->record].scope.stream] ||
                w >= reach[n->scope.stream])
                continue;
            reach[n->scope.stream] = w;
            more = true;
        }
    }
    return reach[to] <= record ? reach[to] : NO_NODE;
}

static ngd_status_t refuse_late_record(const struct events *e, uint32_t wait, uint32_t record, struct ngd_diag *diag)
{
    const struct ngd_graph *g = e->graph;
    const struct ngd_node *w = &g->nodes[wait], *r = &g->nodes[record], *other;
    uint32_t cycle = find_cycle(e, wait, record);

    if (cycle == NO_NODE)
        return ngd_op_fail(g, w, diag, NGD_ERR_GRAPH_EVENT,
                           "stream \"%.32s\" waits for event \"%.64s\", which is recorded below, by node %u (line %u): "
                           "nodes are in order of execution, move the record up",
                           node_stream_name(g, w), tag_of(w), record, r->line);
    if (cycle == wait)
        return ngd_op_fail(
            g, w, diag, NGD_ERR_GRAPH_DEADLOCK,
            "stream \"%.32s\" waits for event \"%.64s\", which it records itself below, in node %u (line "
            "%u), so it would never go on: remove the wait",
            node_stream_name(g, w), tag_of(w), record, r->line);
    other = &g->nodes[cycle];
    return ngd_op_fail(g, w, diag, NGD_ERR_GRAPH_DEADLOCK,
                       "stream \"%.32s\" waits here for event \"%.64s\", recorded by node %u (line %u) on stream "
                       "\"%.32s\", which waits before that, in node %u (line %u), for event \"%.64s\", and so for this "
                       "stream: they would wait for each other for ever",
                       node_stream_name(g, w), tag_of(w), record, r->line, node_stream_name(g, r), cycle, other->line,
                       tag_of(other));
}

static ngd_status_t check_wait(const struct events *e, uint32_t node, struct ngd_diag *diag)
{
    const struct ngd_node *n = &e->graph->nodes[node];
    const struct event *slot = event_slot(e, tag_of(n));

    if (!slot->tag)
        return ngd_op_fail(e->graph, n, diag, NGD_ERR_GRAPH_EVENT,
                           "stream \"%.32s\" waits for event \"%.64s\", which no node records: record it on the stream "
                           "to be waited for, or remove the wait",
                           node_stream_name(e->graph, n), tag_of(n));
    return slot->record > node ? refuse_late_record(e, node, slot->record, diag) : NGD_OK;
}

static ngd_status_t check_all(struct events *e, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < e->graph->n_nodes && !status; i++)
        if (e->graph->nodes[i].op->flags & NGD_OPF_RECORD)
            status = note_record(e, i, diag);
    for (uint32_t i = 0; i < e->graph->n_nodes && !status; i++)
        if (e->graph->nodes[i].op->flags & NGD_OPF_WAIT)
            status = check_wait(e, i, diag);
    return status;
}

ngd_status_t ngd_graph_check_events(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    struct events e = {.graph = graph, .mask = 4 * 1024 - 1};
    ngd_status_t status;
    uint32_t i = 0;

    _Static_assert(NGD_GRAPH_MAX_EVENTS < 2048, "the table of events stays half empty");
    while (i < graph->n_nodes && !(graph->nodes[i].op->flags & NGD_OPF_EVENT))
        i++;
    if (i == graph->n_nodes)
        return NGD_OK;
    e.slots = NGD_NEW_N(struct event, e.mask + 1);
    if (!e.slots)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory while validating the graph");
    status = check_all(&e, diag);
    ngd_free(e.slots);
    return status;
}
