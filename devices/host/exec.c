/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executables of the host device: a plan as a flat list of kernel calls.
 *
 * instantiate asks every kernel once to choose a function and to compute its parameters. What is left of a plan tensor
 * is its address, kept as (base, offset). bind creates an instance: a copy of the list whose addresses are patched for
 * one pool and one set of buffers. Binding again patches in place. A replay copies the inputs in, walks the list, and
 * copies the wanted results out. It allocates nothing, computes no shape and takes no lock.
 *
 * Calls whose estimated time is above SHARE_NS are split into parts for the team. The number of parts is fixed here;
 * results do not depend on it (kernel.h).
 *
 * A plan with several streams may run them at the same time (lanes.c).
 *
 * Static kernels (static.h) are another array of functions for the same calls. A replay reads the array's address once,
 * when it begins or continues after a pause, and a swap is one store. So a replay that is under way keeps its array.
 * Calls that a team shares keep their own functions.
 *
 * An eager launch runs the same plan the way a framework without capture does. For every operator, every time, it looks
 * the kernel up, asks whether it can run, prepares parameters, resolves addresses and dispatches.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "base/stop.h"
#include "devices/host/copies.h"
#include "devices/host/host.h"
#include "devices/host/static.h"
#include "devices/meeting.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Handing a call to a spinning helper and back costs about a microsecond. Splitting pays from 10 microseconds on. */
#define SHARE_NS    10000.0
#define PART_NS     5000.0
/* A launch that may be stopped reads the clock before each call that takes CLOCK_NS or more, and before each
 * CLOCK_CALLS-th call. */
#define CLOCK_NS    10000.0
#define CLOCK_CALLS 16
/* A long call is split into pieces of about this time, even on a single thread, so that a launch can end in between. */
#define PIECE_NS    10e6
#define PIECES_MAX  60000 /* a team counts parts in 16 bits */

enum base { BASE_NONE, BASE_POOL, BASE_BOUND };

struct source {
    enum base base;
    uint32_t bound;
    uint64_t offset;
};

struct host_exec {
    const struct ngd_plan *plan; /* the device's executable holds the reference */
    const struct host_device *dev;
    struct ngd_arena arena;      /* kernels' parameters */
    struct ngd_host_call *calls; /* without addresses */
    uint64_t *workspaces;        /* offsets in the pool */
    struct source *sources;      /* sources of the ptrs of all calls, one call after the other */
    uint32_t n_calls, n_ptrs;
    bool shares;
    struct ngd_host_lanes *lanes; /* streams that run at the same time; NULL: calls run one after the other */
    struct ngd_backend_group groups[NGD_GRAPH_MAX_GROUPS];
    uint32_t collectives[NGD_GRAPH_MAX_GROUPS]; /* by group: the number of its calls */
    uint32_t n_groups;
    ngd_host_fn *own;                 /* the calls' own functions */
    _Atomic(const ngd_host_fn *) fns; /* what replays run: `own`, or the functions of the static object */
    struct ngd_static_loaded
        *_Atomic fast; /* the static object; once set, it stays until the executable is destroyed */
};

struct host_inst {
    struct host_exec *exec;
    char *pool;
    void **bound;
    struct ngd_host_call *calls;
    char **ptrs;
    struct ngd_host_progress *progress; /* NULL without lanes */
    uint32_t *took;                     /* estimated ns of each call, learned from launches that may pause */
    struct ngd_arena eager;
};

/* ---- instantiate ------------------------------------------------------------------------------------- */

static struct source source_of(const struct ngd_plan *plan, uint32_t tensor)
{
    const struct ngd_plan_tensor *t;

    if (tensor == NGD_PLAN_NONE)
        return (struct source){.base = BASE_NONE};
    t = &plan->tensors[tensor];
    if (t->space == NGD_SPACE_POOL)
        return (struct source){.base = BASE_POOL, .offset = t->offset};
    return (struct source){.base = BASE_BOUND, .bound = t->bound, .offset = t->offset};
}

static uint32_t default_row_tensor(const struct ngd_plan_call *call)
{
    if (call->n_out)
        return call->out[0];
    return call->n_in ? call->in[0] : NGD_PLAN_NONE;
}

static void set_call_rows(struct ngd_host_call *hc, const struct ngd_plan *plan, uint32_t tensor)
{
    const struct ngd_plan_tensor *t = tensor == NGD_PLAN_NONE ? NULL : &plan->tensors[tensor];

    hc->row_sym = t ? t->row_sym : NGD_NO_ROW_SYM;
    hc->row_mult = t ? t->row_mult : 0;
    hc->rows = t && t->rank ? t->dims[0] : 1;
}

/* A number of parts that is no multiple of the threads would leave some of them idle in the last turn. */
uint16_t ngd_host_parts(const struct ngd_host_cost *cost, uint32_t threads)
{
    const uint32_t max = ngd_host_max_parts(threads);
    const double turns = cost->ns / PART_NS / threads;

    if (cost->serial || threads < 2 || cost->ns < SHARE_NS)
        return 1;
    if (turns * threads >= max || threads >= max)
        return (uint16_t)max;
    return (uint16_t)((turns < 1 ? 1 : (uint32_t)turns) * threads);
}

static uint16_t choose_pieces(const struct ngd_host_cost *cost)
{
    if (cost->serial || cost->few_parts || cost->ns < 2 * PIECE_NS)
        return 1;
    return (uint16_t)(cost->ns / PIECE_NS < PIECES_MAX ? cost->ns / PIECE_NS : PIECES_MAX);
}

/* A call with a limit of cores is split into as many parts as cores, so that no more threads can claim one. */
static void choose_parts(struct ngd_host_call *hc, const struct ngd_plan_call *call, const struct ngd_host_cost *cost,
                         uint32_t threads)
{
    const uint32_t cores = ngd_host_cores(call, threads), parts = ngd_host_parts(cost, cores);

    hc->pieces = choose_pieces(cost);
    hc->shared = (uint16_t)(cores < threads && parts > cores                      ? cores
                            : cores == threads && parts > 1 && hc->pieces > parts ? hc->pieces
                                                                                  : parts);
}

/* Fills everything but the addresses. */
static ngd_status_t prepare_host_call(const struct host_exec *exec, const struct ngd_plan_call *call,
                                      struct ngd_arena *arena, struct ngd_host_call *hc, struct ngd_host_cost *cost,
                                      struct ngd_diag *diag)
{
    const struct host_device *dev = exec->dev;
    const struct ngd_plan *plan = exec->plan;
    const struct ngd_host_kernel *kernel = ngd_host_kernel_of(call->op->id);
    struct ngd_host_prepare p = {
        .plan = plan,
        .call = call,
        .isa = dev->isa,
        .threads = dev->threads,
        .arena = arena,
        .groups = exec->groups,
        .n_groups = exec->n_groups,
        .row_tensor = default_row_tensor(call),
    };
    ngd_status_t status;

    if (!kernel || call->n_in > UINT16_MAX || call->n_out > UINT16_MAX)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no kernel for %s with %u operands",
                            call->op->name, call->n_in);
    status = kernel->prepare(&p, diag);
    if (status)
        return status;
    memset(hc, 0, sizeof(*hc));
    hc->fn = p.fn;
    hc->params = p.params;
    hc->n_in = (uint16_t)call->n_in;
    hc->n_out = (uint16_t)call->n_out;
    hc->n_ptrs = call->n_in + call->n_out;
    hc->node = call->node;
    *cost = (struct ngd_host_cost){p.cost_ns, p.serial, p.few_parts};
    choose_parts(hc, call, cost, dev->threads);
    hc->slow = cost->ns >= CLOCK_NS;
    set_call_rows(hc, plan, p.row_tensor);
    return NGD_OK;
}

static uint32_t count_ptrs(const struct ngd_plan *plan)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_calls; i++)
        n += plan->calls[i].n_in + plan->calls[i].n_out;
    return n;
}

static ngd_status_t prepare_calls(struct host_exec *exec, struct ngd_host_cost *costs, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    struct source *src = exec->sources;

    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *call = &plan->calls[i];
        ngd_status_t status = ngd_stop_check();

        if (status == NGD_OK)
            status = prepare_host_call(exec, call, &exec->arena, &exec->calls[i], &costs[i], diag);
        if (status)
            return status;
        exec->shares |= exec->calls[i].shared > 1;
        exec->own[i] = exec->calls[i].fn;
        exec->workspaces[i] = call->workspace_offset;
        for (uint32_t j = 0; j < call->n_in; j++)
            *src++ = source_of(plan, call->in[j]);
        for (uint32_t j = 0; j < call->n_out; j++)
            *src++ = source_of(plan, call->out[j]);
    }
    return NGD_OK;
}

/* Lays the lanes out, and splits each call for the threads of its lane. */
static ngd_status_t lay_lanes(struct host_exec *exec, const struct ngd_host_cost *costs, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    ngd_status_t status = ngd_host_lanes_create(plan, costs, exec->dev->threads, &exec->arena, &exec->lanes);

    if (status)
        return ngd_diag_set(diag, status, "no host memory for the streams of an executable");
    for (uint32_t i = 0; exec->lanes && i < plan->n_calls; i++)
        choose_parts(&exec->calls[i], &plan->calls[i], &costs[i], ngd_host_lanes_threads(exec->lanes, &plan->calls[i]));
    return NGD_OK;
}

static ngd_status_t fill_all(struct host_exec *exec, struct ngd_diag *diag)
{
    struct ngd_host_cost *costs = NGD_NEW_N(struct ngd_host_cost, exec->n_calls);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!costs)
        return ngd_diag_set(diag, status, "no host memory for an executable of %u calls", exec->n_calls);
    status = prepare_calls(exec, costs, diag);
    if (!status)
        status = lay_lanes(exec, costs, diag);
    ngd_free(costs);
    return status;
}

static void take_groups(struct host_exec *exec, const struct ngd_backend_group *groups, uint32_t n)
{
    memcpy(exec->groups, groups, n * sizeof(groups[0]));
    exec->n_groups = n;
    for (uint32_t i = 0; i < exec->plan->n_calls; i++)
        for (uint32_t g = 0; g < n && (exec->plan->calls[i].op->flags & NGD_OPF_COLLECTIVE); g++)
            exec->collectives[g] += strcmp(ngd_call_str(&exec->plan->calls[i], "group_name"), groups[g].name) == 0;
}

ngd_status_t ngd_host_instantiate(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                  uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag)
{
    struct host_exec *exec = NGD_NEW(struct host_exec);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!exec)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    ngd_arena_init(&exec->arena, 16 << 10);
    exec->plan = plan;
    exec->dev = dev;
    exec->n_calls = plan->n_calls;
    exec->n_ptrs = count_ptrs(plan);
    take_groups(exec, groups, n_groups);
    exec->calls = NGD_NEW_N(struct ngd_host_call, plan->n_calls);
    exec->workspaces = NGD_NEW_N(uint64_t, plan->n_calls);
    exec->sources = NGD_NEW_N(struct source, exec->n_ptrs);
    exec->own = NGD_NEW_N(ngd_host_fn, plan->n_calls);
    atomic_init(&exec->fns, exec->own);
    if (exec->calls && exec->workspaces && exec->sources && exec->own)
        status = fill_all(exec, diag);
    else
        ngd_diag_set(diag, status, "no host memory for an executable of %u calls", plan->n_calls);
    if (status) {
        ngd_host_destroy(dev, exec);
        return status;
    }
    *bytes_p = sizeof(*exec) + plan->n_calls * (sizeof(struct ngd_host_call) + sizeof(uint64_t) + sizeof(ngd_host_fn)) +
               exec->n_ptrs * sizeof(struct source);
    *exec_p = exec;
    return NGD_OK;
}

void ngd_host_destroy(void *dev, void *exec_v)
{
    struct host_exec *exec = exec_v;

    (void)dev;
    if (!exec)
        return;
    ngd_static_unload(atomic_load(&exec->fast));
    ngd_arena_fini(&exec->arena);
    ngd_free(exec->own);
    ngd_free(exec->calls);
    ngd_free(exec->workspaces);
    ngd_free(exec->sources);
    ngd_free(exec);
}

const struct ngd_host_call *ngd_host_calls(const struct host_exec *exec, const struct ngd_plan **plan_p,
                                           const struct host_device **dev_p)
{
    *plan_p = exec->plan;
    *dev_p = exec->dev;
    return exec->calls;
}

bool ngd_host_swap(struct host_exec *exec, struct ngd_static_loaded *fast, const ngd_host_fn *fns)
{
    struct ngd_static_loaded *none = NULL;

    if (!atomic_compare_exchange_strong(&exec->fast, &none, fast))
        return false;
    atomic_store_explicit(&exec->fns, fns, memory_order_release);
    return true;
}

/* ---- bind -------------------------------------------------------------------------------------------- */

static char *address(const struct host_inst *inst, const struct source *src)
{
    switch (src->base) {
    case BASE_POOL:
        return inst->pool + src->offset;
    case BASE_BOUND:
        return (char *)inst->bound[src->bound] + src->offset;
    default:
        return NULL;
    }
}

static char *tensor_address(const struct host_inst *inst, uint32_t tensor)
{
    struct source src = source_of(inst->exec->plan, tensor);

    return address(inst, &src);
}

static void patch(struct host_inst *inst)
{
    const struct host_exec *exec = inst->exec;
    char **ptrs = inst->ptrs;

    for (uint32_t i = 0; i < exec->n_ptrs; i++)
        ptrs[i] = address(inst, &exec->sources[i]);
    for (uint32_t i = 0; i < exec->n_calls; i++) {
        inst->calls[i].ptrs = ptrs;
        inst->calls[i].workspace = inst->pool + exec->workspaces[i];
        ptrs += inst->calls[i].n_ptrs;
    }
}

static struct host_inst *alloc_inst(struct host_exec *exec, uint32_t n)
{
    struct host_inst *inst = NGD_NEW(struct host_inst);
    size_t bytes = exec->n_calls * sizeof(struct ngd_host_call);

    if (!inst)
        return NULL;
    inst->exec = exec;
    ngd_arena_init(&inst->eager, 4096);
    inst->calls = ngd_aligned_alloc(64, bytes);
    inst->ptrs = NGD_NEW_N(char *, exec->n_ptrs);
    inst->bound = NGD_NEW_N(void *, n);
    if (exec->lanes)
        inst->progress = ngd_host_progress_create(exec->lanes);
    inst->took = NGD_NEW_N(uint32_t, exec->n_calls);
    if (!inst->calls || !inst->ptrs || !inst->bound || !inst->took || (exec->lanes && !inst->progress)) {
        ngd_host_unbind(NULL, inst);
        return NULL;
    }
    memcpy(inst->calls, exec->calls, bytes);
    return inst;
}

ngd_status_t ngd_host_bind(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                           struct ngd_diag *diag)
{
    struct host_inst *inst = *inst_p;

    (void)dev;
    if (!inst)
        inst = alloc_inst(exec, n);
    if (!inst)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance");
    inst->pool = pool_mem;
    for (uint32_t i = 0; i < n; i++)
        inst->bound[i] = bound_mem[i];
    patch(inst);
    *inst_p = inst;
    return NGD_OK;
}

void ngd_host_unbind(void *dev, void *inst_v)
{
    struct host_inst *inst = inst_v;

    (void)dev;
    ngd_arena_fini(&inst->eager);
    ngd_free(inst->calls);
    ngd_free(inst->ptrs);
    ngd_free(inst->bound);
    ngd_host_progress_destroy(inst->progress);
    ngd_free(inst->took);
    ngd_free(inst);
}

/* ---- running ----------------------------------------------------------------------------------------- */

void ngd_host_fail(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status, int64_t value)
{
    int none = NGD_OK;

    if (!atomic_compare_exchange_strong(&run->error, &none, (int)status))
        return;
    atomic_store(&run->error_node, call->node);
    atomic_store(&run->error_value, value);
}

/* `done` is the number of pieces of the call that have run; it is reported if the launch ends here. */
static bool ends_after(const struct ngd_host_call *call, struct ngd_host_run *run, bool clock, int64_t done)
{
    if (atomic_load_explicit(&run->error, memory_order_relaxed) != NGD_OK)
        return true;
    if (run->stop && atomic_load_explicit(run->stop, memory_order_relaxed))
        ngd_host_fail(call, run, NGD_ERR_CANCELLED, done);
    else if (clock && run->stop_at && ngd_now() >= run->stop_at)
        ngd_host_fail(call, run, NGD_ERR_REPLAY_STOPPED, done);
    else
        return false;
    return true;
}

bool ngd_host_ends(const struct ngd_host_call *call, struct ngd_host_run *run, bool clock)
{
    return ends_after(call, run, clock, 0);
}

/* Reads the clock before slow calls, and before each CLOCK_CALLS-th of the others. */
static inline bool ends_before(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t i)
{
    return ngd_host_ends(call, run, call->slow || i % CLOCK_CALLS == 0);
}

static uint64_t host_io_bytes(const struct ngd_plan_io *io, const int64_t *symbols)
{
    return io->row_sym == NGD_NO_ROW_SYM ? io->bytes : io->row_bytes * (uint64_t)(symbols[io->row_sym] * io->row_mult);
}

static void host_copy_inputs(const struct host_inst *inst, struct ngd_team *team, const struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;

    for (uint32_t i = 0; i < plan->graph->n_inputs; i++) {
        const struct ngd_plan_io *io = &plan->inputs[i];
        const uint64_t bytes = host_io_bytes(io, launch->symbols);

        if (io->tensor != NGD_PLAN_NONE && bytes) /* an empty tensor may have no address */
            ngd_host_copy(team, tensor_address(inst, io->tensor), launch->inputs[i].data, bytes);
    }
}

static void host_copy_outputs(const struct host_inst *inst, struct ngd_team *team, const struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;

    for (uint32_t i = 0; i < plan->graph->n_outputs; i++) {
        const struct ngd_plan_io *io = &plan->outputs[i];
        const uint64_t bytes = host_io_bytes(io, launch->symbols);

        if (launch->outputs[i].data && bytes)
            ngd_host_copy(team, launch->outputs[i].data, tensor_address(inst, io->tensor), bytes);
    }
}

bool ngd_host_first_part(const struct ngd_host_call *call, const struct ngd_host_run *run)
{
    static _Thread_local struct {
        const struct ngd_host_call *call;
        uint64_t serial;
    } last;

    if (run->serial && last.call == call && last.serial == run->serial)
        return false;
    last.call = call;
    last.serial = run->serial;
    return true;
}

static uint64_t next_serial(void)
{
    static _Atomic uint64_t serial;

    return atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed) + 1;
}

static void init_run(struct ngd_host_run *run, const struct ngd_launch *launch)
{
    run->fns = NULL;
    run->serial = next_serial();
    run->symbols = launch->symbols;
    run->hosts = launch->hosts;
    run->stop = launch->stop;
    run->stop_at = launch->stop_at;
    atomic_init(&run->error, NGD_OK);
    atomic_init(&run->error_node, 0);
    atomic_init(&run->error_value, 0);
}

/* Runs the pieces on this thread alone. The launch may end between two of them. */
static void run_pieces(const struct ngd_host_call *call, ngd_host_fn fn, struct ngd_host_run *run)
{
    for (uint32_t i = 0; i < call->pieces && !ends_after(call, run, true, i); i++)
        fn(call, run, i, call->pieces);
}

static inline void run_call(const struct ngd_host_call *call, ngd_host_fn fn, struct ngd_host_run *run,
                            struct ngd_team *team)
{
    if (call->shared > 1 && team)
        ngd_team_share(team, call, run, call->shared);
    else if (call->pieces > 1)
        run_pieces(call, fn, run);
    else
        fn(call, run, 0, 1);
}

/* ---- groups of ranks ---- */

/* Puts into the launch's diagnosis why a group of it is broken. Returns false if `status` has another reason. */
static bool say_broken(const struct host_inst *inst, struct ngd_launch *launch, ngd_status_t status)
{
    for (uint32_t i = 0; i < inst->exec->n_groups; i++)
        if (ngd_meeting_status(inst->exec->groups[i].comm, &launch->diag) == status)
            return true;
    return false;
}

/* Begins the launch in its groups. *n_p gets how many have begun it: all, or those before the one that refuses. */
static ngd_status_t begin_groups(const struct host_exec *exec, uint32_t *n_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (*n_p = 0; *n_p < exec->n_groups && !status; *n_p += !status)
        status = ngd_meeting_begin(exec->groups[*n_p].comm, exec->groups[*n_p].rank, diag);
    return status;
}

static void end_groups(const struct host_exec *exec, uint32_t n, const struct ngd_launch *launch)
{
    for (uint32_t i = 0; i < n; i++)
        ngd_meeting_end(exec->groups[i].comm, exec->groups[i].rank, exec->collectives[i], launch->diag.text);
}

void ngd_host_not_run(struct host_inst *inst, const char *why)
{
    const struct host_exec *exec = inst->exec;

    for (uint32_t i = 0; i < exec->n_groups; i++) {
        char text[NGD_DIAG_MAX];

        snprintf(text, sizeof(text), "rank %u does not run: %.900s", exec->groups[i].rank, why);
        ngd_meeting_abort(exec->groups[i].comm, NGD_ERR_GROUP_BROKEN, text);
    }
}

static ngd_status_t conclude_replay(const struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch,
                                    const struct ngd_host_run *run, ngd_nsec_t start)
{
    const struct ngd_graph *g = inst->exec->plan->graph;
    ngd_status_t status = (ngd_status_t)atomic_load(&run->error);
    uint32_t node = atomic_load(&run->error_node);
    const ngd_nsec_t computed = ngd_now();
    ngd_nsec_t end;

    if (status == NGD_ERR_INDEX_RANGE)
        ngd_diag_set(&launch->diag, status, "node %u (%s): index %" PRId64 " is outside its tensor", node,
                     node < g->n_nodes ? g->nodes[node].op->name : "copy", atomic_load(&run->error_value));
    else if (status && say_broken(inst, launch, status))
        ; /* the group's reason says more */
    else if (status == NGD_ERR_CANCELLED || status == NGD_ERR_REPLAY_STOPPED)
        ngd_diag_set(&launch->diag, status, "stopped at node %u (%s)%s", node,
                     node < g->n_nodes ? g->nodes[node].op->name : "copy",
                     atomic_load(&run->error_value) ? ", of which a part was done" : "");
    else if (status)
        ngd_diag_set(&launch->diag, status, "node %u (%s): %s (%" PRId64 ")", node,
                     node < g->n_nodes ? g->nodes[node].op->name : "copy", ngd_status_text(status),
                     atomic_load(&run->error_value));
    else
        host_copy_outputs(inst, team, launch);
    end = ngd_now();
    launch->copy_out_time = end - computed;
    launch->device_time = end - start;
    launch->status = status;
    return status;
}

/* For tests of checks that find wrong kernels. Changes the first result's first element: its last bit only, or, if it
 * is an f32, to four times its value. */
static void spoil_result(const struct ngd_host_call *call, bool bit)
{
    if (call->n_out && bit)
        call->ptrs[call->n_in][0] ^= 1;
    else if (call->n_out)
        call->ptrs[call->n_in][3]++;
}

static inline void run_step(const struct ngd_host_call *call, struct ngd_host_run *run, struct ngd_team *team,
                            const struct ngd_launch *launch, uint32_t i)
{
    if (launch->times)
        launch->times[2 * i] = ngd_now();
    run_call(call, run->fns[i], run, team);
    if (launch->times)
        launch->times[2 * i + 1] = ngd_now();
    if (NGD_FAULT(REPLAY_WRONG))
        spoil_result(call, false);
    if (NGD_FAULT(REPLAY_BIT))
        spoil_result(call, true);
}

void ngd_host_step(const struct ngd_host_call *call, struct ngd_host_run *run, struct ngd_team *team,
                   const struct ngd_launch *launch, uint32_t i)
{
    run_step(call, run, team, launch, i);
}

static void run_calls_in_order(struct host_inst *inst, struct ngd_team *team, struct ngd_host_run *run,
                               const struct ngd_launch *launch)
{
    const struct host_exec *exec = inst->exec;

    if (team && exec->shares)
        ngd_team_begin(team);
    for (uint32_t i = 0; i < exec->n_calls && !ends_before(&inst->calls[i], run, i); i++)
        run_step(&inst->calls[i], run, team, launch, i);
    if (team && exec->shares)
        ngd_team_end(team);
}

/* Updates the estimate of a call's time: a longer time replaces it at once, a shorter one lowers it by an eighth of the
 * difference. */
static void learn_call_time(uint32_t *took, ngd_nsec_t t)
{
    if (t >= *took)
        *took = t < UINT32_MAX ? (uint32_t)t : UINT32_MAX;
    else
        *took -= (*took - (uint32_t)t) / 8;
}

/* Returns true if it stopped before the call launch->resume, which would have run past pause_at. */
static bool run_calls_until(struct host_inst *inst, struct ngd_team *team, struct ngd_host_run *run,
                            struct ngd_launch *launch)
{
    const uint32_t n = inst->exec->n_calls, first = launch->paused ? launch->resume : 0;
    ngd_nsec_t now = ngd_now();

    launch->longest = 0;
    for (uint32_t i = first; i < n && !ends_before(&inst->calls[i], run, i); i++) {
        const ngd_nsec_t before = now;

        if (i > first && now + inst->took[i] > launch->pause_at) {
            launch->resume = i;
            return true;
        }
        run_step(&inst->calls[i], run, team, launch, i);
        now = ngd_now();
        learn_call_time(&inst->took[i], now - before);
        if (now - before > launch->longest)
            launch->longest = now - before;
    }
    return false;
}

/* Runs the calls in the order of the plan, which is always correct. Lanes have no point at which all could stop. */
static bool run_all_until(struct host_inst *inst, struct ngd_team *team, struct ngd_host_run *run,
                          struct ngd_launch *launch)
{
    const bool shares = team && inst->exec->shares;
    bool paused;

    if (shares)
        ngd_team_begin(team);
    paused = run_calls_until(inst, team, run, launch);
    if (shares)
        ngd_team_end(team);
    return paused;
}

static ngd_status_t replay_calls(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch)
{
    const struct host_exec *exec = inst->exec;
    ngd_nsec_t start = ngd_now();
    struct ngd_host_run run;
    bool paused = false;

    init_run(&run, launch);
    run.fns = atomic_load_explicit(&exec->fns, memory_order_acquire);
    if (!launch->paused)
        host_copy_inputs(inst, team, launch);
    launch->copy_in_time = ngd_now() - start;
    if (launch->pause_at && !exec->n_groups) /* a rank that paused would make the others wait */
        paused = run_all_until(inst, team, &run, launch);
    else if (!exec->lanes || !team || !ngd_host_lanes_run(exec->lanes, inst->progress, team, inst->calls, &run, launch))
        run_calls_in_order(inst, team, &run, launch);
    launch->paused = paused;
    if (!paused)
        return conclude_replay(inst, team, launch, &run, start);
    launch->device_time = ngd_now() - start;
    return launch->status = NGD_OK;
}

/* ---- eager ------------------------------------------------------------------------------------------- */

static ngd_status_t select_again(const struct host_exec *exec, const struct ngd_plan_call *call, struct ngd_diag *diag)
{
    const struct ngd_host_kernel *kernel = ngd_host_kernel_of(call->op->id);
    uint32_t strided = 0; /* kernels set bits in it, as for host_select */
    uint64_t workspace = 0;

    if (!kernel)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no kernel for %s", call->op->name);
    return kernel->select(exec->plan, call, exec->dev->threads, &strided, &workspace, diag);
}

/* Launches one operator. */
static ngd_status_t launch_op(struct host_inst *inst, struct ngd_team *team, const struct ngd_plan_call *call,
                              struct ngd_host_run *run, struct ngd_diag *diag)
{
    struct ngd_host_call hc;
    struct ngd_host_cost cost;
    ngd_status_t status;

    ngd_arena_reset(&inst->eager);
    run->fns = NULL;
    run->serial = next_serial(); /* the next operator's call may have this one's address */
    status = select_again(inst->exec, call, diag);
    if (status == NGD_OK)
        status = prepare_host_call(inst->exec, call, &inst->eager, &hc, &cost, diag);
    if (status)
        return status;
    hc.ptrs = ngd_arena_calloc(&inst->eager, hc.n_ptrs ? hc.n_ptrs : 1, sizeof(char *));
    if (!hc.ptrs)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an eager launch");
    for (uint32_t j = 0; j < call->n_in; j++)
        hc.ptrs[j] = tensor_address(inst, call->in[j]);
    for (uint32_t j = 0; j < call->n_out; j++)
        hc.ptrs[call->n_in + j] = tensor_address(inst, call->out[j]);
    hc.workspace = inst->pool + call->workspace_offset;
    if (team && hc.shared > 1)
        ngd_team_begin(team);
    run_call(&hc, hc.fn, run, team);
    if (team && hc.shared > 1)
        ngd_team_end(team);
    return NGD_OK;
}

static ngd_status_t launch_ops(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch)
{
    const struct host_exec *exec = inst->exec;
    const struct ngd_plan *plan = exec->plan;
    ngd_nsec_t start = ngd_now();
    struct ngd_host_run run;

    init_run(&run, launch);
    host_copy_inputs(inst, team, launch);
    launch->copy_in_time = ngd_now() - start;
    for (uint32_t i = 0; i < plan->n_calls && !ends_before(&exec->calls[i], &run, i); i++) {
        ngd_status_t status = launch_op(inst, team, &plan->calls[i], &run, &launch->diag);

        if (status)
            return launch->status = status;
    }
    return conclude_replay(inst, team, launch, &run, start);
}

/* ---- a launch ---------------------------------------------------------------------------------------- */

/* Fills the pool with 0xff, for tests that look for reads of memory that was not written. A paused launch keeps its
 * results. */
static void poison_pool(const struct host_inst *inst, const struct ngd_launch *launch)
{
    if (inst->pool && !launch->paused)
        memset(inst->pool, 0xff, inst->exec->plan->pool_bytes);
}

ngd_status_t ngd_host_launch(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch)
{
    const struct host_exec *exec = inst->exec;
    uint32_t n = 0;

    if (NGD_FAULT(HOST_POISON))
        poison_pool(inst, launch);
    launch->status = begin_groups(exec, &n, &launch->diag);
    if (launch->status)
        ngd_host_not_run(inst, launch->diag.text);
    else if (launch->eager)
        launch_ops(inst, team, launch);
    else
        replay_calls(inst, team, launch);
    end_groups(exec, n, launch);
    return launch->status;
}
