/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes are laid out once, at capture. The main stream has lane 0, which the launching thread runs. Side streams go to
 * the lane with the least work, the most expensive stream first. Then each thread goes to the lane with the most work
 * per thread, up to the lane's limit of cores.
 *
 * If no helper has begun a lane when the launching thread has to wait for it, since helpers sleep or the machine is
 * busy, the launching thread runs that lane. So lanes cost little where they cannot run at the same time.
 *
 * The progress of a stream is one number: the last finished call that others wait for, + 1. Only the stream's lane
 * writes it. Calls of one lane run in order, so a wait within a lane is no wait at all.
 */
#include "devices/host/lanes.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/relax.h"
#include "devices/host/host.h"
#include <linux/futex.h>
#include <limits.h>
#include <stdalign.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYNC_NS 1000.0  /* from the end of a call to the begin of a call that waits for it on another, spinning CPU */
#define WAKE_NS 10000.0 /* until a sleeping helper runs its lane */
#define GAIN    0.9     /* lanes are used if their estimated time is below this part of the time without them */
#define SPINS   4000

struct wait {
    uint16_t stream;
    uint32_t done; /* the least progress that ends the wait */
};

struct step {
    uint32_t call;
    uint16_t stream;
    bool signals; /* another lane waits for it */
    uint32_t n_waits;
    const struct wait *waits;
};

struct lane {
    uint32_t threads, n_steps;
    struct step *steps;
};

struct ngd_host_lanes {
    uint32_t n_lanes, n_streams;
    uint32_t threads[NGD_LANES_MAX];
    struct lane lanes[NGD_LANES_MAX];
    uint8_t lane_of[NGD_GRAPH_MAX_STREAMS];
};

struct ngd_host_progress {
    alignas(64) _Atomic uint32_t done;
    _Atomic uint32_t sleepers;
};

_Static_assert(NGD_LANES_MAX >= NGD_GRAPH_MAX_STREAMS, "each stream may have a lane");

/* ---- layout ------------------------------------------------------------------------------------------ */

uint32_t ngd_host_cores(const struct ngd_plan_call *call, uint32_t threads)
{
    uint32_t limit = call->scope.aicore > call->scope.vectorcore ? call->scope.aicore : call->scope.vectorcore;

    return limit && limit < threads ? limit : threads;
}

static double time_of(const struct ngd_plan_call *call, const struct ngd_host_cost *cost, uint32_t threads)
{
    uint32_t cores = ngd_host_cores(call, threads);

    return ngd_host_parts(cost, cores) > 1 ? cost->ns / cores : cost->ns;
}

/* Computes the cost of each stream, and the most cores that it may use. */
static void sum_up_costs(const struct ngd_plan *plan, const struct ngd_host_cost *costs, uint32_t threads, double *cost,
                         uint32_t *cores)
{
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        uint16_t s = plan->calls[c].scope.stream;
        uint32_t most = ngd_host_cores(&plan->calls[c], threads);

        cost[s] += costs[c].ns;
        if (cores[s] < most)
            cores[s] = most;
    }
}

static uint32_t least_loaded(const double *load, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t l = 1; l < n; l++)
        if (load[l] < load[best])
            best = l;
    return best;
}

/* Returns the most expensive stream that has no lane yet, 0 if all have one. */
static uint32_t next_stream(const struct ngd_host_lanes *lanes, const double *cost, const bool *placed)
{
    uint32_t best = 0;

    for (uint32_t s = 1; s < lanes->n_streams; s++)
        if (!placed[s] && (best == 0 || cost[s] > cost[best]))
            best = s;
    return best;
}

static void divide(struct ngd_host_lanes *lanes, const double *cost, const uint32_t *cores, uint32_t threads)
{
    double load[NGD_LANES_MAX] = {cost[0]};
    uint32_t most[NGD_LANES_MAX] = {cores[0] ? cores[0] : 1}, left;
    bool placed[NGD_GRAPH_MAX_STREAMS] = {true};

    lanes->n_lanes = lanes->n_streams < threads ? lanes->n_streams : threads;
    for (uint32_t s = next_stream(lanes, cost, placed); s; s = next_stream(lanes, cost, placed)) {
        uint32_t l = least_loaded(load, lanes->n_lanes);

        placed[s] = true;
        lanes->lane_of[s] = (uint8_t)l;
        load[l] += cost[s];
        if (most[l] < cores[s])
            most[l] = cores[s];
    }
    for (uint32_t l = 0; l < lanes->n_lanes; l++)
        lanes->threads[l] = 1;
    for (left = threads - lanes->n_lanes; left; left--) {
        uint32_t best = lanes->n_lanes;

        for (uint32_t l = 0; l < lanes->n_lanes; l++)
            if (lanes->threads[l] < most[l] &&
                (best == lanes->n_lanes || load[l] / lanes->threads[l] > load[best] / lanes->threads[best]))
                best = l;
        if (best == lanes->n_lanes)
            return; /* all lanes are at their limits */
        lanes->threads[best]++;
    }
}

/* ---- estimate of the gain ---------------------------------------------------------------------------- */

/* Returns the estimated time with lanes. `ends` is scratch with room for each call. */
static double time_with(const struct ngd_host_lanes *lanes, const struct ngd_plan *plan,
                        const struct ngd_host_cost *costs, double *ends)
{
    double free_at[NGD_LANES_MAX] = {0}, last = 0;

    for (uint32_t c = 0; c < plan->n_calls; c++) {
        const struct ngd_plan_call *call = &plan->calls[c];
        uint32_t l = lanes->lane_of[call->scope.stream];
        double start = free_at[l];

        for (uint32_t i = 0; i < call->n_waits; i++) {
            bool apart = lanes->lane_of[plan->calls[call->waits[i]].scope.stream] != l;
            double there = ends[call->waits[i]] + (apart ? SYNC_NS : 0);

            start = there > start ? there : start;
        }
        ends[c] = free_at[l] = start + time_of(call, &costs[c], lanes->threads[l]);
        last = ends[c] > last ? ends[c] : last;
    }
    return last + WAKE_NS;
}

static double time_without(const struct ngd_plan *plan, const struct ngd_host_cost *costs, uint32_t threads)
{
    double sum = 0;

    for (uint32_t c = 0; c < plan->n_calls; c++)
        sum += time_of(&plan->calls[c], &costs[c], threads);
    return sum;
}

/* ---- steps ------------------------------------------------------------------------------------------- */

static bool crosses(const struct ngd_host_lanes *lanes, const struct ngd_plan *plan, uint32_t c, uint32_t wait)
{
    return lanes->lane_of[plan->calls[c].scope.stream] != lanes->lane_of[plan->calls[wait].scope.stream];
}

static ngd_status_t add_lane_step(struct ngd_host_lanes *lanes, const struct ngd_plan *plan, uint32_t c,
                                  const bool *signals, struct ngd_arena *arena)
{
    const struct ngd_plan_call *call = &plan->calls[c];
    struct lane *lane = &lanes->lanes[lanes->lane_of[call->scope.stream]];
    struct step *step = &lane->steps[lane->n_steps++];
    struct wait *waits = ngd_arena_calloc(arena, call->n_waits + 1, sizeof(*waits));

    if (!waits)
        return NGD_ERR_NO_MEMORY;
    *step = (struct step){.call = c, .stream = call->scope.stream, .signals = signals[c], .waits = waits};
    for (uint32_t i = 0; i < call->n_waits; i++)
        if (crosses(lanes, plan, c, call->waits[i]))
            waits[step->n_waits++] = (struct wait){plan->calls[call->waits[i]].scope.stream, call->waits[i] + 1};
    return NGD_OK;
}

static ngd_status_t make_steps(struct ngd_host_lanes *lanes, const struct ngd_plan *plan, struct ngd_arena *arena)
{
    bool *signals = NGD_NEW_N(bool, plan->n_calls + 1u);
    ngd_status_t status = signals ? NGD_OK : NGD_ERR_NO_MEMORY;
    uint32_t n[NGD_LANES_MAX] = {0};

    for (uint32_t c = 0; c < plan->n_calls && !status; c++) {
        n[lanes->lane_of[plan->calls[c].scope.stream]]++;
        for (uint32_t i = 0; i < plan->calls[c].n_waits; i++)
            signals[plan->calls[c].waits[i]] |= crosses(lanes, plan, c, plan->calls[c].waits[i]);
    }
    for (uint32_t l = 0; l < lanes->n_lanes && !status; l++) {
        lanes->lanes[l].threads = lanes->threads[l];
        lanes->lanes[l].steps = ngd_arena_calloc(arena, n[l] + 1, sizeof(struct step));
        if (!lanes->lanes[l].steps)
            status = NGD_ERR_NO_MEMORY;
    }
    for (uint32_t c = 0; c < plan->n_calls && !status; c++)
        status = add_lane_step(lanes, plan, c, signals, arena);
    ngd_free(signals);
    return status;
}

ngd_status_t ngd_host_lanes_create(const struct ngd_plan *plan, const struct ngd_host_cost *costs, uint32_t threads,
                                   struct ngd_arena *arena, struct ngd_host_lanes **lanes_p)
{
    double cost[NGD_GRAPH_MAX_STREAMS] = {0}, *ends;
    uint32_t cores[NGD_GRAPH_MAX_STREAMS] = {0};
    struct ngd_host_lanes *lanes;
    ngd_status_t status = NGD_OK;

    *lanes_p = NULL;
    if (plan->n_streams < 2 || threads < 2)
        return NGD_OK;
    lanes = ngd_arena_calloc(arena, 1, sizeof(*lanes));
    ends = NGD_NEW_N(double, plan->n_calls);
    if (!lanes || !ends) {
        ngd_free(ends);
        return NGD_ERR_NO_MEMORY;
    }
    lanes->n_streams = plan->n_streams;
    sum_up_costs(plan, costs, threads, cost, cores);
    divide(lanes, cost, cores, threads);
    if (NGD_FAULT(HOST_LANES) || time_with(lanes, plan, costs, ends) < GAIN * time_without(plan, costs, threads)) {
        status = make_steps(lanes, plan, arena);
        *lanes_p = lanes;
    }
    ngd_free(ends);
    return status;
}

uint32_t ngd_host_lanes_threads(const struct ngd_host_lanes *lanes, const struct ngd_plan_call *call)
{
    return lanes->threads[lanes->lane_of[call->scope.stream]];
}

/* ---- running ----------------------------------------------------------------------------------------- */

struct ngd_host_progress *ngd_host_progress_create(const struct ngd_host_lanes *lanes)
{
    struct ngd_host_progress *p = ngd_aligned_alloc(64, lanes->n_streams * sizeof(*p));

    if (p)
        memset(p, 0, lanes->n_streams * sizeof(*p));
    return p;
}

void ngd_host_progress_destroy(struct ngd_host_progress *progress)
{
    ngd_free(progress);
}

struct lanes_run {
    const struct ngd_host_lanes *lanes;
    struct ngd_host_progress *progress;
    struct ngd_team *team;
    const struct ngd_host_call *calls;
    struct ngd_host_run *run;
    struct ngd_launch *launch;
    uint32_t at[NGD_LANES_MAX]; /* by lane: the next step; only the thread that runs the lane uses it */
    bool own[NGD_LANES_MAX];    /* side lanes that the launching thread has taken over */
};

/* Publishes the progress. This side and the sleeper's are sequentially consistent, so one of the two sees the other. */
static void signal_done(struct ngd_host_progress *p, uint32_t done)
{
    atomic_store(&p->done, done);
    if (atomic_load(&p->sleepers))
        syscall(SYS_futex, &p->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void sleep_until(struct ngd_host_progress *p, uint32_t done)
{
    uint32_t seen;

    for (uint32_t spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) >= done)
            return;
        ngd_relax(spin);
    }
    atomic_fetch_add(&p->sleepers, 1);
    while ((seen = atomic_load(&p->done)) < done)
        syscall(SYS_futex, &p->done, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void run_lane_until(struct lanes_run *r, uint32_t lane, bool launching, struct ngd_team *part, uint32_t end);

/* Claims the lane for the launching thread. Returns false if a helper has begun it. */
static bool take_over_lane(struct lanes_run *r, uint32_t lane)
{
    if (!r->own[lane])
        r->own[lane] = ngd_team_claim_lane(r->team, lane);
    return r->own[lane];
}

/*
 * Waits for another lane. Before the launching thread waits for a call, it runs all earlier calls of the lanes that it
 * has taken over, since the lane that it waits for may wait for any of them. Each of these calls waits for earlier
 * calls only, so the recursion ends.
 */
static void await_signal(struct lanes_run *r, const struct wait *wait, bool launching)
{
    struct ngd_host_progress *p = &r->progress[wait->stream];
    uint32_t lane = r->lanes->lane_of[wait->stream];

    if (atomic_load_explicit(&p->done, memory_order_acquire) >= wait->done)
        return;
    if (launching && lane)
        (void)take_over_lane(r, lane);
    for (uint32_t l = 1; launching && l < r->lanes->n_lanes; l++)
        if (r->own[l])
            run_lane_until(r, l, true, NULL, wait->done);
    sleep_until(p, wait->done);
}

/* Runs the next steps of the lane, up to and excluding the first whose call is `end` or later. */
static void run_lane_until(struct lanes_run *r, uint32_t lane, bool launching, struct ngd_team *part, uint32_t end)
{
    const struct lane *l = &r->lanes->lanes[lane];

    while (r->at[lane] < l->n_steps && l->steps[r->at[lane]].call < end) {
        const struct step *step = &l->steps[r->at[lane]++];

        for (uint32_t k = 0; k < step->n_waits; k++)
            await_signal(r, &step->waits[k], launching);
        if (!ngd_host_ends(&r->calls[step->call], r->run, r->calls[step->call].slow || step->call % 16 == 0))
            ngd_host_step(&r->calls[step->call], r->run, part, r->launch, step->call);
        if (step->signals)
            signal_done(&r->progress[step->stream], step->call + 1);
    }
}

static void lane_main(void *arg, uint32_t lane, struct ngd_team *part)
{
    struct lanes_run *r = arg;

    run_lane_until(r, lane, lane == 0, part, UINT32_MAX);
    if (lane)
        return;
    for (uint32_t l = 1; l < r->lanes->n_lanes; l++)
        (void)take_over_lane(r, l);
    for (uint32_t l = 1; l < r->lanes->n_lanes; l++)
        if (r->own[l])
            run_lane_until(r, l, true, NULL, UINT32_MAX);
}

bool ngd_host_lanes_run(const struct ngd_host_lanes *lanes, struct ngd_host_progress *progress, struct ngd_team *team,
                        const struct ngd_host_call *calls, struct ngd_host_run *run, struct ngd_launch *launch)
{
    struct lanes_run r = {
        .lanes = lanes, .progress = progress, .team = team, .calls = calls, .run = run, .launch = launch};

    for (uint32_t s = 0; s < lanes->n_streams; s++)
        atomic_store_explicit(&progress[s].done, 0, memory_order_relaxed);
    return ngd_team_run_lanes(team, lanes->threads, lanes->n_lanes, lane_main, &r);
}
