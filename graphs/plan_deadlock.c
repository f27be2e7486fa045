/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/plan_deadlock.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>

struct play {
    const struct ngd_plan *plan;
    uint32_t *next; /* indexed by call: the next call on its stream; NGD_PLAN_NONE: none */
    bool *done;
    uint32_t at[NGD_GRAPH_MAX_STREAMS]; /* each stream's current call; NGD_PLAN_NONE: the stream has ended */
    uint32_t n_done;
};

#define NAME_MAX_BYTES 96

/* Prints a call's name: "%y (aten.mm) on stream "s"". */
static const char *name_of_call(const struct ngd_plan *plan, uint32_t c, char *text)
{
    const struct ngd_plan_call *call = &plan->calls[c];
    const struct ngd_graph *g = plan->graph;
    const struct ngd_node *n = call->node == NGD_PLAN_NONE ? NULL : &g->nodes[call->node];
    const char *value = n && n->n_out ? g->values[n->out[0]].name : NULL;

    snprintf(text, NAME_MAX_BYTES, "%s%.24s (%.30s) on stream \"%.16s\"", value ? "%" : "call", value ? value : "",
             call->op->name, call->scope.stream ? g->streams[call->scope.stream] : "(main)");
    return text;
}

/* ---- waits ---- */

static void find_streams(struct play *p)
{
    uint32_t last[NGD_GRAPH_MAX_STREAMS];

    for (uint32_t s = 0; s < NGD_GRAPH_MAX_STREAMS; s++)
        p->at[s] = last[s] = NGD_PLAN_NONE;
    for (uint32_t c = 0; c < p->plan->n_calls; c++) {
        uint16_t s = p->plan->calls[c].scope.stream;

        p->next[c] = NGD_PLAN_NONE;
        if (last[s] == NGD_PLAN_NONE)
            p->at[s] = c;
        else
            p->next[last[s]] = c;
        last[s] = c;
    }
}

/* Returns the call that the stream waits for; NGD_PLAN_NONE: it can go on. */
static uint32_t waits_for(const struct play *p, uint32_t stream)
{
    const struct ngd_plan_call *call = &p->plan->calls[p->at[stream]];

    for (uint32_t i = 0; i < call->n_waits; i++)
        if (call->waits[i] >= p->plan->n_calls || !p->done[call->waits[i]])
            return call->waits[i];
    return NGD_PLAN_NONE;
}

static bool go_on(struct play *p, uint32_t stream)
{
    bool moved = false;

    while (p->at[stream] != NGD_PLAN_NONE && waits_for(p, stream) == NGD_PLAN_NONE) {
        p->done[p->at[stream]] = true;
        p->n_done++;
        p->at[stream] = p->next[p->at[stream]];
        moved = true;
    }
    return moved;
}

static ngd_status_t refuse_waits(const struct play *p, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;
    char a[NAME_MAX_BYTES], b[NAME_MAX_BYTES];

    ngd_strbuf_init(&sb);
    for (uint32_t s = 0; s < NGD_GRAPH_MAX_STREAMS; s++) {
        uint32_t wait = p->at[s] == NGD_PLAN_NONE ? NGD_PLAN_NONE : waits_for(p, s);

        if (wait == NGD_PLAN_NONE)
            continue;
        ngd_strbuf_printf(&sb, "%s%s waits for %s", sb.len ? "; " : "", name_of_call(p->plan, p->at[s], a),
                          wait < p->plan->n_calls ? name_of_call(p->plan, wait, b) : "a call that does not exist");
    }
    ngd_diag_set(diag, NGD_ERR_GRAPH_DEADLOCK, "deadlock_check: streams of graph %.60s would never end: %.380s",
                 p->plan->graph->name, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return NGD_ERR_GRAPH_DEADLOCK;
}

static ngd_status_t check_waits(struct play *p, struct ngd_diag *diag)
{
    bool moved = true;

    find_streams(p);
    while (moved) {
        moved = false;
        for (uint32_t s = 0; s < NGD_GRAPH_MAX_STREAMS; s++)
            moved |= go_on(p, s);
    }
    return p->n_done == p->plan->n_calls ? NGD_OK : refuse_waits(p, diag);
}

/* ---- cores ---- */

static ngd_status_t refuse_pair(const struct ngd_plan *plan, uint32_t a, uint32_t b, const char *kind, uint32_t x,
                                uint32_t y, uint32_t total, struct ngd_diag *diag)
{
    char first[NAME_MAX_BYTES], second[NAME_MAX_BYTES];

    return ngd_diag_set(diag, NGD_ERR_GRAPH_DEADLOCK,
                        "deadlock_check: %s, with %" PRIu32 " %s cores, and %s, with %" PRIu32
                        ", may run at the same time, and the device has %" PRIu32
                        ": if one waited for the other neither would end; lower their limits or let one wait for the "
                        "other's event",
                        name_of_call(plan, a, first), x, kind, name_of_call(plan, b, second), y, total);
}

static ngd_status_t check_collective_pair(const struct ngd_plan *plan, const struct ngd_plan_target *target, uint32_t a,
                                          uint32_t b, struct ngd_diag *diag)
{
    const struct ngd_node_scope *x = &plan->calls[a].scope, *y = &plan->calls[b].scope;

    if (target->vectorcores && x->vectorcore + y->vectorcore > (int)target->vectorcores)
        return refuse_pair(plan, a, b, "vector", x->vectorcore, y->vectorcore, target->vectorcores, diag);
    if (target->aicores && x->aicore + y->aicore > (int)target->aicores)
        return refuse_pair(plan, a, b, "AI", x->aicore, y->aicore, target->aicores, diag);
    return NGD_OK;
}

static ngd_status_t check_cores(const struct ngd_plan *plan, const struct ngd_plan_target *target,
                                struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t b = 0; b < plan->n_calls; b++)
        for (uint32_t a = 0; a < b && plan->calls[b].scope.aicore && !status; a++)
            if (plan->calls[a].scope.aicore && plan->calls[a].scope.stream != plan->calls[b].scope.stream &&
                !ngd_plan_before(plan, a, b))
                status = check_collective_pair(plan, target, a, b, diag);
    return status;
}

ngd_status_t ngd_plan_check_deadlock(const struct ngd_plan *plan, const struct ngd_plan_target *target,
                                     struct ngd_diag *diag)
{
    struct play p = {.plan = plan};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (plan->n_streams < 2)
        return NGD_OK;
    p.next = NGD_NEW_N(uint32_t, plan->n_calls);
    p.done = NGD_NEW_N(bool, plan->n_calls);
    if (p.next && p.done)
        status = check_waits(&p, diag);
    else
        ngd_diag_set(diag, status, "no host memory for deadlock_check");
    if (!status)
        status = check_cores(plan, target, diag);
    ngd_free(p.done);
    ngd_free(p.next);
    return status;
}
