/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.Buckets: lists the sizes that requests had for a symbol and its buckets, and proposes better buckets. */
#include "daemon/daemon.h"
#include "daemon/handlers/graphs.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "graphs/buckets.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/program/program.h"

#include <inttypes.h>
#include <string.h>

struct work {
    struct ngd_call *call;
    const Npugraph__V1__BucketsRequest *q;
    struct ngd_program *prog; /* a reference */
    uint32_t symbol;
    struct ngd_size_count *list;
    uint32_t n;
    struct ngd_bucket_set present, proposed;
};

static ngd_status_t find_symbol(struct work *w, struct ngd_diag *diag)
{
    const struct ngd_graph *g = ngd_program_graph(w->prog);

    for (w->symbol = 0; w->symbol < g->n_symbols; w->symbol++) {
        const struct ngd_symbol *s = &g->symbols[w->symbol];

        if (w->q->symbol[0] ? strcmp(s->name, w->q->symbol) == 0 : s->policy == NGD_SYMBOL_BUCKETS)
            return NGD_OK;
    }
    if (w->q->symbol[0])
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "graph \"%.100s\" has no symbol %.100s", g->name, w->q->symbol);
    return ngd_diag_set(diag, NGD_ERR_NOT_FOUND,
                        "graph \"%.100s\" has no symbol with buckets; declare them in its text", g->name);
}

static ngd_status_t propose_bucket_set(struct work *w, struct ngd_diag *diag)
{
    const struct ngd_symbol *sym = &ngd_program_graph(w->prog)->symbols[w->symbol];
    uint32_t captures = w->q->captures ? w->q->captures : w->present.n ? w->present.n : 1;

    if (w->q->captures >= NGD_MAX_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "captures is %" PRIu32 "; allowed: 1 to %d, or 0 for the present number of buckets",
                            w->q->captures, NGD_MAX_BUCKETS - 1);
    if (w->q->n_set > NGD_MAX_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "at most %d buckets are allowed, not %zu", NGD_MAX_BUCKETS,
                            w->q->n_set);
    if (w->q->n_set) {
        w->proposed.n = (uint32_t)w->q->n_set;
        memcpy(w->proposed.sizes, w->q->set, w->q->n_set * sizeof(w->q->set[0]));
        return ngd_buckets_check(sym, &w->proposed, diag);
    }
    if (sym->policy != NGD_SYMBOL_BUCKETS)
        return NGD_OK; /* proposes nothing: the rows of an exact symbol may depend on one another */
    return ngd_buckets_propose(w->list, w->n, captures < NGD_MAX_BUCKETS ? captures : NGD_MAX_BUCKETS - 1, sym->max,
                               &w->proposed, diag);
}

static ngd_status_t may_apply(const struct work *w, struct ngd_diag *diag)
{
    if (w->q->graph || w->call->identity->admin)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_PERMISSION_DENIED,
        "%s may not change buckets of others' graphs: name the graph by its id in your session, or be an "
        "admin identity",
        w->call->identity->name);
}

static uint32_t captures_of(const struct ngd_bucket_set *set, const struct ngd_size_count *list, uint32_t n)
{
    uint32_t used = 0, at = 0;

    for (uint32_t b = 0; b < set->n; b++) {
        uint32_t before = at;

        while (at < n && list[at].size <= set->sizes[b])
            at++;
        used += at > before;
    }
    return used;
}

static Npugraph__V1__BucketSet *set_message(struct work *w, const struct ngd_bucket_set *set)
{
    Npugraph__V1__BucketSet *m = ngd_arena_calloc(&w->call->life, 1, sizeof(*m));

    if (!m)
        return NULL;
    npugraph__v1__bucket_set__init(m);
    m->n_buckets = set->n;
    m->buckets = (int64_t *)(uintptr_t)set->sizes;
    m->padding = ngd_buckets_padding(set, w->list, w->n);
    m->rows = ngd_buckets_asked(w->list, w->n);
    m->captures = set->n ? captures_of(set, w->list, w->n) : w->n;
    return m;
}

static bool fill_buckets(struct work *w, Npugraph__V1__BucketsResponse *reply)
{
    reply->graph = ngd_program_graph(w->prog)->name;
    reply->symbol = ngd_program_graph(w->prog)->symbols[w->symbol].name;
    reply->sizes = ngd_arena_calloc(&w->call->life, w->n + 1u, sizeof(*reply->sizes));
    for (uint32_t i = 0; reply->sizes && i < w->n; i++) {
        Npugraph__V1__SizeCount *m = ngd_arena_calloc(&w->call->life, 1, sizeof(*m));

        if (!m)
            return false;
        npugraph__v1__size_count__init(m);
        m->size = w->list[i].size;
        m->count = w->list[i].count;
        reply->sizes[reply->n_sizes++] = m;
    }
    reply->present = set_message(w, &w->present);
    reply->proposed = set_message(w, &w->proposed);
    return reply->sizes && reply->present && reply->proposed;
}

static ngd_status_t work_on_buckets(struct work *w, Npugraph__V1__BucketsResponse *reply, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_rpc_find_program(w->call, w->q->graph, w->q->digest, false, &w->prog, diag);

    if (status == NGD_OK)
        status = find_symbol(w, diag);
    if (status)
        return status;
    w->list = ngd_arena_calloc(&w->call->life, NGD_SIZES_MAX, sizeof(*w->list));
    if (!w->list)
        return NGD_ERR_NO_MEMORY;
    w->n = ngd_program_sizes(w->prog, w->symbol, w->list);
    ngd_program_buckets(w->prog, w->symbol, &w->present);
    status = propose_bucket_set(w, diag);
    if (status == NGD_OK && !fill_buckets(w, reply))
        status = NGD_ERR_NO_MEMORY;
    if (status || !w->q->apply)
        return status;
    status = may_apply(w, diag);
    if (status == NGD_OK)
        status = ngd_program_apply_buckets(w->prog, w->symbol, &w->proposed, &reply->dropped, diag);
    reply->applied = status == NGD_OK;
    return status;
}

static void buckets(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__BucketsResponse reply = NPUGRAPH__V1__BUCKETS_RESPONSE__INIT;
    struct work *w = ngd_arena_calloc(&call->life, 1, sizeof(*w));
    struct ngd_program *prog = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (w) {
        w->call = call;
        w->q = msg;
        status = work_on_buckets(w, &reply, &diag);
        prog = w->prog; /* `w` is freed with the call; names in `reply` belong to the program */
    }
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
    ngd_program_unref(prog);
}

const struct ngd_rpc_ops ngd_rpc_graphs_buckets = {.once = true, .request = buckets};
