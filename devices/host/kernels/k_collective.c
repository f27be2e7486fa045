/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of the host device. Data goes through the stages of the group's meeting, one stage at a time: a rank
 * copies its part into its stage, meets the others, and reads what it needs from their stages.
 *
 * Each rank reduces the elements that it keeps by itself, in the order of ranks. So all ranks get the same bits,
 * whoever comes first and however many rounds it takes. f16 and bf16 are summed in f32 and rounded once; integers wrap.
 *
 * Only the leader of a launch's team runs a collective: helpers would have nothing to do while ranks wait for each
 * other.
 */
#include "base/mem.h"
#include "devices/backend.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"
#include "devices/meeting.h"
#include <string.h>

#define BLOCK 256 /* elements that are reduced over all ranks at a time */

/* Reduces n elements of each rank's part. */
typedef void (*reduce_fn)(const char *const *parts, uint32_t ranks, char *result, uint64_t n);

struct collective {
    struct ngd_meeting *meeting;
    bool (*run)(const struct collective *c, const struct ngd_host_call *call, struct ngd_host_run *run,
                const struct ngd_collective *what);
    /* For collectives of run_whole: reads from the ranks' stages. */
    void (*take)(const struct collective *c, const struct ngd_collective *what, char *result, uint64_t at, uint64_t n);
    reduce_fn reduce;
    uint32_t rank, size;
    uint64_t element, row_bytes; /* of the operand */
    struct ngd_collective what;  /* with the planned rows */
};

/* ---- reducing ------------------------------------------------------------------------------------------ */

#define ADD_FLOAT(a, v)  ((a) + (v))
#define MUL_FLOAT(a, v)  ((a) * (v))
#define MIN_FLOAT(a, v)  ((v) < (a) || (v) != (v) ? (v) : (a)) /* NaN wins: it is neither less nor given up */
#define MAX_FLOAT(a, v)  ((v) > (a) || (v) != (v) ? (v) : (a))
#define ADD_INT(a, v)    ((int64_t)((uint64_t)(a) + (uint64_t)(v)))
#define MUL_INT(a, v)    ((int64_t)((uint64_t)(a) * (uint64_t)(v)))
#define MIN_INT(a, v)    ((v) < (a) ? (v) : (a))
#define MAX_INT(a, v)    ((v) > (a) ? (v) : (a))
#define KEEP(a, ranks)   (a)
#define DIVIDE(a, ranks) ((a) / (float)(ranks))

#define REDUCE(NAME, T, wide, join, finish)                                                                 \
    static void collective_##NAME##_##T(const char *const *parts, uint32_t ranks, char *result, uint64_t n) \
    {                                                                                                       \
        ngd_el_##T *d = (void *)result;                                                                     \
        wide acc[BLOCK];                                                                                    \
        for (uint64_t at = 0; at < n; at += BLOCK) {                                                        \
            const uint64_t m = n - at < BLOCK ? n - at : BLOCK;                                             \
            for (uint64_t i = 0; i < m; i++)                                                                \
                acc[i] = ngd_get_##T(((const ngd_el_##T *)(const void *)parts[0])[at + i]);                 \
            for (uint32_t r = 1; r < ranks; r++) {                                                          \
                const ngd_el_##T *s = (const ngd_el_##T *)(const void *)parts[r] + at;                      \
                for (uint64_t i = 0; i < m; i++)                                                            \
                    acc[i] = join(acc[i], ngd_get_##T(s[i]));                                               \
            }                                                                                               \
            for (uint64_t i = 0; i < m; i++)                                                                \
                d[at + i] = ngd_put_##T(finish(acc[i], ranks));                                             \
        }                                                                                                   \
    }
#define REDUCE_FLOAT(T, wide)                 \
    REDUCE(sum, T, wide, ADD_FLOAT, KEEP)     \
    REDUCE(avg, T, wide, ADD_FLOAT, DIVIDE)   \
    REDUCE(product, T, wide, MUL_FLOAT, KEEP) \
    REDUCE(min, T, wide, MIN_FLOAT, KEEP)     \
    REDUCE(max, T, wide, MAX_FLOAT, KEEP)
#define REDUCE_INT(T, wide)                 \
    REDUCE(sum, T, wide, ADD_INT, KEEP)     \
    REDUCE(product, T, wide, MUL_INT, KEEP) \
    REDUCE(min, T, wide, MIN_INT, KEEP)     \
    REDUCE(max, T, wide, MAX_INT, KEEP)
NGD_EACH_FLOAT(REDUCE_FLOAT)
REDUCE_INT(i32, int64_t)
REDUCE_INT(i64, int64_t)

#define FLOATS(NAME) \
    [NGD_F32] = collective_##NAME##_f32, [NGD_F16] = collective_##NAME##_f16, [NGD_BF16] = collective_##NAME##_bf16
#define AND_INTS(NAME) FLOATS(NAME), [NGD_I32] = collective_##NAME##_i32, [NGD_I64] = collective_##NAME##_i64
static const struct {
    const char *name;
    reduce_fn fns[NGD_DTYPE_MAX];
} reductions[] = {
    {"sum", {AND_INTS(sum)}}, {"avg", {FLOATS(avg)}},   {"product", {AND_INTS(product)}},
    {"min", {AND_INTS(min)}}, {"max", {AND_INTS(max)}},
};

/* Returns the function, NULL if there is none. */
static reduce_fn find_reduction(const char *name, ngd_dtype_t dtype)
{
    for (size_t i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++)
        if (strcmp(reductions[i].name, name) == 0)
            return reductions[i].fns[dtype];
    return NULL;
}

/* ---- running ------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool meet_ranks(const struct collective *c, struct ngd_host_run *run)
{
    return ngd_meeting_round(c->meeting, c->rank, &run->error);
}

/* Called when n bytes of each rank's operand, from `at` on, are in the stages. */
static void take_all_reduce(const struct collective *c, const struct ngd_collective *what, char *result, uint64_t at,
                            uint64_t n)
{
    const char *parts[NGD_GROUP_MAX_RANKS];

    (void)what;
    for (uint32_t i = 0; i < c->size; i++)
        parts[i] = ngd_meeting_staged(c->meeting, c->rank, i);
    c->reduce(parts, c->size, result + at, n / c->element);
}

static void take_all_gather(const struct collective *c, const struct ngd_collective *what, char *result, uint64_t at,
                            uint64_t n)
{
    const uint64_t bytes = (uint64_t)what->dims[0] * c->row_bytes;

    for (uint32_t i = 0; i < c->size; i++)
        memcpy(result + i * bytes + at, ngd_meeting_staged(c->meeting, c->rank, i), n);
}

static void take_broadcast(const struct collective *c, const struct ngd_collective *what, char *result, uint64_t at,
                           uint64_t n)
{
    memcpy(result + at, ngd_meeting_staged(c->meeting, c->rank, what->src), n);
}

/* Runs collectives to which ranks contribute whole tensors. Even without elements there is a round: it shows that all
 * ranks have come. */
static bool run_whole(const struct collective *c, const struct ngd_host_call *call, struct ngd_host_run *run,
                      const struct ngd_collective *what)
{
    const uint64_t bytes = (uint64_t)what->dims[0] * c->row_bytes;
    const bool gives = c->take != take_broadcast || c->rank == what->src;
    uint64_t at = 0;

    do {
        uint64_t n = least(bytes - at, NGD_MEETING_STAGE);

        if (n && gives)
            memcpy(ngd_meeting_stage(c->meeting, c->rank), call->ptrs[0] + at, n);
        if (!meet_ranks(c, run))
            return false;
        if (n)
            c->take(c, what, call->ptrs[1], at, n);
        at += n;
    } while (at < bytes);
    return true;
}

/* Runs an all_to_all. A stage has room for a part for each rank. */
static uint64_t part_of_stage(const struct collective *c)
{
    return NGD_MEETING_STAGE / c->size & ~(uint64_t)63;
}

static bool run_reduce_scatter(const struct collective *c, const struct ngd_host_call *call, struct ngd_host_run *run,
                               const struct ngd_collective *what)
{
    const uint64_t bytes = (uint64_t)what->dims[0] * c->row_bytes / c->size, room = part_of_stage(c);
    const char *parts[NGD_GROUP_MAX_RANKS];
    uint64_t at = 0;

    do {
        uint64_t n = least(bytes - at, room);

        for (uint32_t i = 0; i < c->size && n; i++)
            memcpy(ngd_meeting_stage(c->meeting, c->rank) + i * room, call->ptrs[0] + i * bytes + at, n);
        if (!meet_ranks(c, run))
            return false;
        for (uint32_t i = 0; i < c->size; i++)
            parts[i] = ngd_meeting_staged(c->meeting, c->rank, i) + c->rank * room;
        c->reduce(parts, c->size, call->ptrs[1] + at, n / c->element);
        at += n;
    } while (at < bytes);
    return true;
}

/* Returns the largest part that any rank sends: all ranks take the same number of rounds. */
static uint64_t largest_part(const struct collective *c)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->size; i++) {
        const struct ngd_collective *said = ngd_meeting_said(c->meeting, c->rank, i);

        for (uint32_t k = 0; k < c->size; k++)
            most = said->sends[k] > most ? said->sends[k] : most;
    }
    return most;
}

static uint64_t rest(uint64_t bytes, uint64_t at, uint64_t room)
{
    return at < bytes ? least(bytes - at, room) : 0;
}

static bool run_all_to_all(const struct collective *c, const struct ngd_host_call *call, struct ngd_host_run *run,
                           const struct ngd_collective *what)
{
    const uint64_t room = part_of_stage(c);
    uint64_t most = 0, at = 0;

    do {
        const char *from = call->ptrs[0];
        char *stage = ngd_meeting_stage(c->meeting, c->rank), *to = call->ptrs[1];

        for (uint32_t i = 0; i < c->size; from += what->sends[i++])
            if (rest(what->sends[i], at, room))
                memcpy(stage + i * room, from + at, rest(what->sends[i], at, room));
        if (!meet_ranks(c, run))
            return false;
        if (at == 0)
            most = largest_part(c);
        for (uint32_t i = 0; i < c->size; to += what->receives[i++])
            if (rest(what->receives[i], at, room))
                memcpy(to + at, ngd_meeting_staged(c->meeting, c->rank, i) + c->rank * room,
                       rest(what->receives[i], at, room));
        at += room;
    } while (at < most);
    return true;
}

static void run_collective_call(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,
                                uint32_t parts)
{
    const struct collective *c = call->params;
    struct ngd_collective what = c->what;

    (void)part;
    (void)parts;
    if (call->row_sym != NGD_NO_ROW_SYM)
        what.dims[0] = ngd_host_rows(call, run);
    if (!ngd_meeting_enter(c->meeting, c->rank, &what) || !c->run(c, call, run, &what))
        ngd_host_fail(call, run, ngd_meeting_status(c->meeting, NULL), 0);
}

/* ---- at capture ---------------------------------------------------------------------------------------- */

static const struct {
    ngd_op_id_t op;
    bool (*run)(const struct collective *c, const struct ngd_host_call *call, struct ngd_host_run *run,
                const struct ngd_collective *what);
    void (*take)(const struct collective *c, const struct ngd_collective *what, char *result, uint64_t at, uint64_t n);
} runs[] = {
    {NGD_OP_C10D_ALL_REDUCE, run_whole, take_all_reduce},
    {NGD_OP_C10D_ALL_GATHER_INTO_TENSOR, run_whole, take_all_gather},
    {NGD_OP_C10D_REDUCE_SCATTER_TENSOR, run_reduce_scatter, NULL},
    {NGD_OP_C10D_BROADCAST, run_whole, take_broadcast},
    {NGD_OP_C10D_ALL_TO_ALL_SINGLE, run_all_to_all, NULL},
};

static const struct ngd_backend_group *find_call_group(const struct ngd_host_prepare *p)
{
    const char *name = ngd_call_str(p->call, "group_name");

    for (uint32_t i = 0; i < p->n_groups; i++)
        if (strcmp(p->groups[i].name, name) == 0)
            return &p->groups[i];
    return NULL;
}

static ngd_status_t prepare_collective(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    const struct ngd_backend_group *group = find_call_group(p);
    struct collective *c;

    if (!group)
        return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND, "node %u (%s) has no group", p->call->node, p->call->op->name);
    c = ngd_arena_calloc(p->arena, 1, sizeof(*c));
    if (!c)
        return NGD_ERR_NO_MEMORY;
    c->meeting = group->comm;
    c->rank = group->rank;
    c->size = group->size;
    c->element = ngd_dtype_bytes(x->dtype);
    ngd_collective_say(p->call, x, c->size, &c->what, &c->row_bytes);
    if (*c->what.reduce)
        c->reduce = find_reduction(c->what.reduce, x->dtype);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        if (runs[i].op != p->call->op->id)
            continue;
        c->run = runs[i].run;
        c->take = runs[i].take;
    }
    if (!c->run || (*c->what.reduce && !c->reduce))
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no %s with %s of %s", p->call->op->name,
                            c->what.reduce, ngd_dtype_name(x->dtype));
    p->fn = run_collective_call;
    p->params = c;
    p->cost_ns = 2000 + (double)x->bytes * 0.2 * (c->size + 1);
    p->serial = true;
    p->row_tensor = p->call->in[0];
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_collective = {.select = ngd_select_contiguous, .prepare = prepare_collective};
