/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on streams. The last rank that comes to a round computes it for all, from copies of what they send, so
 * that operands may lie anywhere, also on each other; the others wait. Reductions are made in the order of ranks,
 * floats in f32 with one rounding, integers wrap.
 */
#include "devices/ascend/sim/sim_hccl.h"
#include "devices/ascend/sim/sim_op.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS 2000000 /* how late a waiting rank sees that its stream is aborted */

struct collective {
    struct sim_kernel kernel;
    struct hccl_comm *comm;
    struct hccl_op op;
};

size_t hccl_size(int dtype)
{
    static const unsigned char sizes[] = {
        [NGD_HCCL_INT8] = 1,   [NGD_HCCL_INT16] = 2,  [NGD_HCCL_INT32] = 4,  [NGD_HCCL_FP16] = 2,
        [NGD_HCCL_FP32] = 4,   [NGD_HCCL_INT64] = 8,  [NGD_HCCL_UINT64] = 8, [NGD_HCCL_UINT8] = 1,
        [NGD_HCCL_UINT16] = 2, [NGD_HCCL_UINT32] = 4, [NGD_HCCL_FP64] = 8,   [NGD_HCCL_BFP16] = 2,
    };

    return dtype >= 0 && (size_t)dtype < sizeof(sizes) ? sizes[dtype] : 0;
}

/* ---- elements ------------------------------------------------------------------------------------ */

static bool is_float(int dtype)
{
    return dtype == NGD_HCCL_FP16 || dtype == NGD_HCCL_FP32 || dtype == NGD_HCCL_BFP16;
}

static int acl_type(int dtype)
{
    return dtype == NGD_HCCL_FP16 ? NGD_ACL_FLOAT16 : dtype == NGD_HCCL_BFP16 ? NGD_ACL_BF16 : NGD_ACL_FLOAT;
}

static int64_t load_element_int(const char *p, int dtype)
{
    int16_t v;

    if (dtype == NGD_HCCL_INT16) {
        memcpy(&v, p, 2);
        return v;
    }
    return sim_load_int(p, dtype == NGD_HCCL_INT64   ? NGD_ACL_INT64
                           : dtype == NGD_HCCL_INT32 ? NGD_ACL_INT32
                                                     : NGD_ACL_INT8);
}

static float join_floats(int reduce, float a, float v)
{
    switch (reduce) {
    case NGD_HCCL_SUM:
        return a + v;
    case NGD_HCCL_PROD:
        return a * v;
    case NGD_HCCL_MAX:
        return v > a || isnan(v) ? v : a;
    default:
        return v < a || isnan(v) ? v : a;
    }
}

static int64_t join_ints(int reduce, int64_t a, int64_t v)
{
    switch (reduce) {
    case NGD_HCCL_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)v);
    case NGD_HCCL_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)v);
    case NGD_HCCL_MAX:
        return v > a ? v : a;
    default:
        return v < a ? v : a;
    }
}

/* Elements first .. first+n of all ranks' data. */
static void reduce_into(const struct hccl_group *g, char *const *data, uint64_t first, uint64_t n, char *to)
{
    const int dtype = g->ops[0]->dtype, how = g->ops[0]->reduce;
    const size_t size = hccl_size(dtype);

    for (uint64_t i = 0; i < n; i++) {
        const size_t at = (first + i) * size;

        if (is_float(dtype)) {
            float f = (float)sim_load(data[0] + at, acl_type(dtype));

            for (uint32_t r = 1; r < g->n; r++)
                f = join_floats(how, f, (float)sim_load(data[r] + at, acl_type(dtype)));
            sim_store(to + i * size, acl_type(dtype), (double)f);
        } else {
            int64_t v = load_element_int(data[0] + at, dtype);

            for (uint32_t r = 1; r < g->n; r++)
                v = join_ints(how, v, load_element_int(data[r] + at, dtype));
            memcpy(to + i * size, &v, size); /* little endian: the low part wraps */
        }
    }
}

/* ---- a round ------------------------------------------------------------------------------------- */

/* Elements that a rank sends, and receives. */
static uint64_t exchange_extent(const uint64_t *counts, const uint64_t *at, uint32_t n)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < n; i++)
        if (counts[i] && at[i] + counts[i] > end)
            end = at[i] + counts[i];
    return end;
}

static void lengths(const struct hccl_group *g, const struct hccl_op *op, uint64_t *send_p, uint64_t *recv_p)
{
    *send_p = *recv_p = op->count;
    switch (op->kind) {
    case HCCL_ALL_GATHER:
        *recv_p = op->count * g->n;
        break;
    case HCCL_REDUCE_SCATTER:
        *send_p = op->count * g->n;
        break;
    case HCCL_ALL_TO_ALL:
        *send_p = exchange_extent(op->sends, op->send_at, g->n);
        *recv_p = exchange_extent(op->receives, op->receive_at, g->n);
        break;
    default:
        break;
    }
}

static bool collective_fits(const struct hccl_group *g)
{
    const struct hccl_op *a = g->ops[0];

    for (uint32_t i = 1; i < g->n; i++) {
        const struct hccl_op *b = g->ops[i];

        if (a->kind != b->kind || a->dtype != b->dtype || a->reduce != b->reduce || a->root != b->root ||
            a->count != b->count)
            return false;
    }
    for (uint32_t i = 0; i < g->n && a->kind == HCCL_ALL_TO_ALL; i++)
        for (uint32_t k = 0; k < g->n; k++)
            if (g->ops[i]->sends[k] != g->ops[k]->receives[i])
                return false;
    return true;
}

static void deliver_rank(const struct hccl_group *g, uint32_t rank, char *const *data)
{
    const struct hccl_op *op = g->ops[rank];
    const size_t size = hccl_size(op->dtype);
    char *to = ngd_aclsim_host(op->recv);

    switch (op->kind) {
    case HCCL_ALL_REDUCE:
        reduce_into(g, data, 0, op->count, to);
        break;
    case HCCL_REDUCE_SCATTER:
        reduce_into(g, data, rank * op->count, op->count, to);
        break;
    case HCCL_ALL_GATHER:
        for (uint32_t i = 0; i < g->n && op->count; i++)
            memcpy(to + i * op->count * size, data[i], op->count * size);
        break;
    case HCCL_BROADCAST:
        if (op->count)
            memcpy(to, data[op->root], op->count * size);
        break;
    case HCCL_ALL_TO_ALL:
        for (uint32_t i = 0; i < g->n; i++)
            if (op->receives[i])
                memcpy(to + op->receive_at[i] * size, data[i] + g->ops[i]->send_at[rank] * size,
                       op->receives[i] * size);
        break;
    case HCCL_BARRIER:
    case HCCL_LINK:
        break;
    }
}

static void compute_collective(const struct hccl_group *g)
{
    char *data[HCCL_MAX_RANKS];

    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t sent, received;

        lengths(g, g->ops[i], &sent, &received);
        data[i] = malloc(sent * hccl_size(g->ops[i]->dtype) + 1);
        if (!data[i])
            abort();
        if (sent)
            memcpy(data[i], ngd_aclsim_host(g->ops[i]->send), sent * hccl_size(g->ops[i]->dtype));
    }
    for (uint32_t i = 0; i < g->n; i++)
        deliver_rank(g, i, data);
    for (uint32_t i = 0; i < g->n; i++)
        free(data[i]);
}

uint64_t hccl_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap_in_group(struct hccl_group *g)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += NAP_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&g->changed, &g->lock, &t);
}

/* With the group's lock: until the round is over, or the time, or the stream. */
static void await_round(struct collective *c, uint64_t round)
{
    struct hccl_group *g = c->comm->group;
    uint64_t limit = ngd_aclsim_setting("hccl_exec_ms"), until = hccl_now_ms() + limit;
    bool late = false;

    while (g->round == round && !late && !ngd_aclsim_stopped()) {
        nap_in_group(g);
        late = hccl_now_ms() >= until;
    }
    if (g->round != round)
        return;
    g->torn = true; /* the others' order is not this rank's any more */
    if (g->ops[c->comm->rank] == &c->op) {
        g->ops[c->comm->rank] = NULL;
        g->arrived--;
    }
    if (late) {
        atomic_store(&c->comm->async_error, NGD_HCCL_E_TIMEOUT);
        ngd_aclsim_raise_code(NGD_ACL_RT_FFTS_PLUS_TIMEOUT,
                              "waited %llu ms for other ranks, which did not come or do something else",
                              (unsigned long long)limit);
    }
}

/* What all ranks have sent, as the group of a round that is complete. */
static void deliver_remote(struct collective *c, struct hccl_op *ops, char *const *data)
{
    struct hccl_group g = {.n = c->comm->group->n};

    for (uint32_t i = 0; i < g.n; i++)
        g.ops[i] = &ops[i];
    g.ops[c->comm->rank] = &c->op;
    deliver_rank(&g, c->comm->rank, data);
}

/* Sends, and waits for all others; those that went away or do something else are waited for too. */
static bool exchange_remote(struct collective *c, const void *data, uint64_t bytes, uint64_t limit, bool *late_p)
{
    uint64_t until = hccl_now_ms() + limit;
    struct hccl_op ops[HCCL_MAX_RANKS] = {{0}};
    char *received[HCCL_MAX_RANKS] = {NULL};
    int there = hccl_net_send(c->comm, &c->op, data, bytes) ? 0 : -1;

    *late_p = false;
    while (there != 1 && !*late_p && !ngd_aclsim_stopped()) {
        if (there == 0)
            there = hccl_net_receive(c->comm, NAP_NS / 1000000, ops, received);
        else
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        *late_p = hccl_now_ms() >= until;
    }
    if (there == 1 && c->op.kind != HCCL_LINK)
        deliver_remote(c, ops, received);
    for (uint32_t i = 0; i < c->comm->group->n; i++) {
        free(ops[i].sends);
        free(received[i]);
    }
    *late_p &= there != 1;
    c->comm->cut |= there != 1;
    return there == 1;
}

static void run_remote_collective(struct collective *c)
{
    uint64_t limit = ngd_aclsim_setting("hccl_exec_ms"), sent, received;
    bool late;

    lengths(c->comm->group, &c->op, &sent, &received);
    sent *= hccl_size(c->op.dtype);
    (void)exchange_remote(c, sent ? ngd_aclsim_host(c->op.send) : NULL, sent, limit, &late);
    if (!late)
        return;
    atomic_store(&c->comm->async_error, NGD_HCCL_E_TIMEOUT);
    ngd_aclsim_raise_code(NGD_ACL_RT_FFTS_PLUS_TIMEOUT,
                          "waited %llu ms for other ranks, which did not come or do something else",
                          (unsigned long long)limit);
}

static void run_rank_collective(struct sim_kernel *kernel)
{
    struct collective *c = (struct collective *)(void *)kernel;
    struct hccl_group *g = c->comm->group;
    uint64_t round;

    if (atomic_load(&c->comm->gone)) {
        ngd_aclsim_raise_code(NGD_ACL_RT_AICORE_EXCEPTION, "uses a communicator that was destroyed");
        return;
    }
    if (g->remote) {
        run_remote_collective(c);
        return;
    }
    pthread_mutex_lock(&g->lock);
    round = g->round;
    if (!g->torn && !g->ops[c->comm->rank]) {
        g->ops[c->comm->rank] = &c->op;
        g->arrived++;
    }
    if (!g->torn && g->arrived == g->n && collective_fits(g)) {
        compute_collective(g);
        memset(g->ops, 0, sizeof(g->ops));
        g->arrived = 0;
        g->round++;
        pthread_cond_broadcast(&g->changed);
    } else {
        await_round(c, round);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- queueing ------------------------------------------------------------------------------------ */

static void release_collective(struct sim_kernel *kernel)
{
    struct collective *c = (struct collective *)(void *)kernel;

    hccl_comm_unref(c->comm);
    free(c->op.sends);
    free(c);
}

static void add_rank_span(struct sim_kernel *k, const void *addr, uint64_t bytes)
{
    k->spans[k->n_spans].addr = addr;
    k->spans[k->n_spans++].bytes = bytes;
}

static int link_remote(struct hccl_comm *comm)
{
    struct collective c = {.comm = comm, .op = {.kind = HCCL_LINK, .dtype = NGD_HCCL_INT8}};
    bool late;

    if (!exchange_remote(&c, NULL, 0, ngd_aclsim_setting("hccl_connect_ms"), &late))
        return ngd_aclsim_fail(NGD_HCCL_E_TIMEOUT, "the same, after HCCL_CONNECT_TIMEOUT (120 s)",
                               "not all %u ranks called their first collective", comm->group->n);
    atomic_store(&comm->warm, true);
    return 0;
}

/* The first collective connects the ranks: the calling thread waits until all have called theirs. */
static int link_ranks(struct hccl_comm *comm)
{
    struct hccl_group *g = comm->group;
    uint64_t until = hccl_now_ms() + ngd_aclsim_setting("hccl_connect_ms");
    bool there;

    if (g->remote)
        return link_remote(comm);
    pthread_mutex_lock(&g->lock);
    if (++g->linked == g->n)
        pthread_cond_broadcast(&g->changed);
    while (g->linked < g->n && hccl_now_ms() < until)
        nap_in_group(g);
    there = g->linked == g->n;
    if (!there)
        g->linked--;
    pthread_mutex_unlock(&g->lock);
    if (!there)
        return ngd_aclsim_fail(NGD_HCCL_E_TIMEOUT, "the same, after HCCL_CONNECT_TIMEOUT (120 s)",
                               "not all %u ranks called their first collective", g->n);
    atomic_store(&comm->warm, true);
    return 0;
}

static int prepare_rank(struct hccl_comm *comm, void *stream, bool captured)
{
    if (!atomic_load(&comm->warm)) {
        if (!captured)
            return link_ranks(comm);
        ngd_aclsim_capture_spoil(stream,
                                 "the first collective of a communicator synchronises: run one before a capture");
        return NGD_HCCL_E_RUNTIME;
    }
    if (captured)
        return ngd_aclsim_capture_takes(stream, comm, (uint32_t)ngd_aclsim_setting("hccl_streams"));
    return 0;
}

/*
 * All threads that issue collectives of a communicator on a device use one context (hicann/hccl 09300b70,
 * user guide, api_comm_impl:39): its streams and notifies are of that one, and the runtime refuses them in
 * another one with 107003 (hicann/runtime 681ef76, src/runtime/api/impl/api_impl.cc:1610 for waits, 2153 for events,
 * 2883 for copies, 4845 and 4922 for notifies).
 */
static int check_issuer(const char *name, struct hccl_comm *comm)
{
    void *now = NULL, *first = NULL;
    int code = aclrtGetCurrentContext(&now);

    if (code || atomic_compare_exchange_strong(&comm->context, &first, now) || first == now)
        return code;
    return ngd_aclsim_fail(NGD_ACL_RT_STREAM_CONTEXT, "the same",
                           "%s: rank %u was used in another context before, and its streams are not in this one", name,
                           comm->rank);
}

int hccl_launch(const char *name, struct hccl_comm *comm, struct hccl_op *op, void *stream)
{
    struct collective *c;
    uint64_t sent, received;
    bool captured = false;
    int device = 0, code = ngd_aclsim_stream_at(stream, &device, &captured);

    if (!code && device != comm->device)
        code = ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same, or faults", "%s: the stream is of device %d, rank %u of %d",
                               name, device, comm->rank, comm->device);
    if (!code)
        code = check_issuer(name, comm);
    if (!code)
        code = prepare_rank(comm, stream, captured);
    if (code) {
        free(op->sends);
        return code < 100 ? code : NGD_HCCL_E_RUNTIME;
    }
    c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    c->kernel = (struct sim_kernel){
        .name = name, .run = run_rank_collective, .release = release_collective, .collective = true};
    atomic_init(&c->kernel.refs, 1);
    c->comm = comm;
    atomic_fetch_add(&comm->refs, 1);
    c->op = *op;
    lengths(comm->group, op, &sent, &received);
    add_rank_span(&c->kernel, op->send, sent * hccl_size(op->dtype));
    add_rank_span(&c->kernel, op->recv, received * hccl_size(op->dtype));
    return ngd_aclsim_launch(&c->kernel, stream) ? NGD_HCCL_E_RUNTIME : 0;
}
