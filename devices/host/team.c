/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The team of threads.
 *
 * One 64-bit word holds the job on offer: its epoch, its number of parts and the next part to claim. Leader and helpers
 * claim parts by compare-and-swap on it. So a late helper finds no part left, and a helper that was descheduled before
 * it claimed anything cannot hold up the leader. The job's fields are written before the word (release) and read after
 * a claim (acquire). They do not change while any part is claimed and not done, because the leader publishes the next
 * job only when `done` has reached the number of parts. The epoch keeps a slow compare-and-swap from claiming a part of
 * a later job with the same numbers.
 *
 *                 begin                  no work for SPINS            end
 *   asleep on bell -----> spinning -------------------> asleep   spinning ----> asleep
 *
 * Spinning is bounded everywhere: a thread spins, then yields, then sleeps on a futex. Client processes run on the same
 * CPUs, and a helper that spins for a leader which is not running would only keep it from running.
 *
 * Lanes: the leader gives each helper that it needs a seat (a lane, and a number in it), opens the seats, and rings the
 * bell. A helper takes its seat by compare-and-swap from open to taken. The first helper of a lane runs the lane's
 * function. The others serve it as they would serve the leader, through the lane's own team, which has no threads of
 * its own. At the end the leader closes the seats of helpers that have not come, and waits for the others to leave. A
 * lane whose first helper has not come is claimed in the same way, by closing its seat.
 *
 * Sleep and wake follow Dekker: a helper raises `sleepers` and then reads the word; the leader writes the word and then
 * reads `sleepers`. Both are sequentially consistent, so at least one of them sees the other.
 */
#include "devices/host/team.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/relax.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A pause takes 10 to 140 cycles, so 2000 take 10 to 110 µs: about the longest part of a step that is not shared. */
#define SPINS 2000

#define WORD(epoch, parts, next) ((uint64_t)(epoch) << 32 | (uint64_t)(parts) << 16 | (uint64_t)(next))
#define WORD_PARTS(w)            ((uint32_t)((w) >> 16) & 0xffff)
#define WORD_NEXT(w)             ((uint32_t)(w)&0xffff)

struct job {
    const struct ngd_host_call *call;
    struct ngd_host_run *run;
};

struct ngd_team {
    alignas(64) _Atomic uint64_t word;
    struct job job;
    uint32_t epoch;
    alignas(64) _Atomic uint32_t done; /* parts of the current job; a futex word */
    _Atomic uint32_t leader_sleeps;
    alignas(64) _Atomic uint32_t bell; /* futex word of the helpers: rung when there may be something to do */
    _Atomic uint32_t sleepers;
    _Atomic bool running; /* between begin and end */
    _Atomic bool stop;
    alignas(64) uint32_t threads; /* the leader included */
    uint32_t started;             /* helpers that run */
    bool tried;                   /* to start them */
    char name[16];
    struct {
        alignas(64) _Atomic uint32_t epoch; /* of the seats that were opened last */
        ngd_lane_fn *fn;
        void *arg;
        struct ngd_team *parts[NGD_LANES_MAX]; /* the lanes' teams */
    } lanes;
    struct helper {
        struct ngd_team *team;
        uint32_t index; /* in the team, from 1 */
        pthread_t thread;
        _Atomic uint64_t seat; /* SEAT(epoch, state) */
        uint32_t lane, in_lane;
        uint32_t seen; /* the last lanes.epoch that the helper saw; only it writes this */
    } helpers[];
};

enum seat { SEAT_OPEN, SEAT_TAKEN, SEAT_CLOSED };
#define SEAT(epoch, state) ((uint64_t)(epoch) << 2 | (uint64_t)(state))

_Thread_local uint32_t ngd_host_thread;

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static bool has_part(uint64_t word)
{
    return WORD_NEXT(word) < WORD_PARTS(word);
}

/* Claims a part of the job on offer. */
static bool claim(struct ngd_team *team, uint32_t *part_p, uint32_t *parts_p)
{
    uint64_t w = atomic_load_explicit(&team->word, memory_order_acquire);

    while (has_part(w)) {
        if (atomic_compare_exchange_weak_explicit(&team->word, &w, w + 1, memory_order_acq_rel, memory_order_acquire)) {
            *part_p = WORD_NEXT(w);
            *parts_p = WORD_PARTS(w);
            return true;
        }
    }
    return false;
}

static void finish_part(struct ngd_team *team, uint32_t parts)
{
    uint32_t done = atomic_fetch_add(&team->done, 1) + 1;

    if (done == parts && atomic_load(&team->leader_sleeps))
        futex_wake(&team->done, 1);
}

static void work_on_parts(struct ngd_team *team, uint32_t part, uint32_t parts)
{
    const struct ngd_host_call *call = team->job.call;

    if (!ngd_host_ends(call, team->job.run, call->slow))
        call->fn(call, team->job.run, part, parts);
    finish_part(team, parts);
}

/* Does the parts on offer, and spins for more until SPINS are over or the run ends. */
static void serve_team(struct ngd_team *team)
{
    for (uint32_t spin = 0; spin < SPINS && atomic_load_explicit(&team->running, memory_order_acquire); spin++) {
        uint32_t part, parts;

        while (claim(team, &part, &parts)) {
            work_on_parts(team, part, parts);
            spin = 0;
        }
        ngd_relax(spin);
    }
}

/* Serves a lane until it ends. */
static void serve_lane(struct ngd_team *part)
{
    while (atomic_load(&part->running)) {
        uint32_t bell = atomic_load(&part->bell);

        serve_team(part);
        atomic_fetch_add(&part->sleepers, 1);
        if (!has_part(atomic_load(&part->word)) && atomic_load(&part->running))
            futex_wait(&part->bell, bell);
        atomic_fetch_sub(&part->sleepers, 1);
    }
}

static void wake_helpers(struct ngd_team *team)
{
    atomic_fetch_add(&team->bell, 1);
    if (atomic_load(&team->sleepers))
        futex_wake(&team->bell, INT_MAX);
}

static void end_part(struct ngd_team *part)
{
    atomic_store(&part->running, false);
    wake_helpers(part);
}

static void run_team_lane(struct ngd_team *team, uint32_t lane)
{
    struct ngd_team *part = team->lanes.parts[lane];

    team->lanes.fn(team->lanes.arg, lane, part->threads > 1 ? part : NULL);
    end_part(part);
}

static void take_seat(struct helper *self, uint32_t epoch)
{
    struct ngd_team *team = self->team;
    uint64_t open = SEAT(epoch, SEAT_OPEN);

    if (!atomic_compare_exchange_strong(&self->seat, &open, SEAT(epoch, SEAT_TAKEN)))
        return; /* the helper has no seat, or comes too late */
    ngd_host_thread = self->in_lane;
    if (self->in_lane == 0)
        run_team_lane(team, self->lane);
    else
        serve_lane(team->lanes.parts[self->lane]);
    ngd_host_thread = self->index;
    atomic_fetch_add(&team->done, 1);
    if (atomic_load(&team->leader_sleeps))
        futex_wake(&team->done, 1);
}

static void *helper_main(void *arg)
{
    struct helper *self = arg;
    struct ngd_team *team = self->team;

    ngd_host_thread = self->index;
    while (!atomic_load(&team->stop)) {
        uint32_t bell = atomic_load(&team->bell), epoch = atomic_load(&team->lanes.epoch);

        if (epoch != self->seen) {
            self->seen = epoch;
            take_seat(self, epoch);
            continue;
        }
        serve_team(team);
        atomic_fetch_add(&team->sleepers, 1);
        if (!has_part(atomic_load(&team->word)) && !atomic_load(&team->stop))
            futex_wait(&team->bell, bell); /* returns at once if it was rung since */
        atomic_fetch_sub(&team->sleepers, 1);
    }
    return NULL;
}

ngd_status_t ngd_team_create(uint32_t threads, const char *name, struct ngd_team **team_p)
{
    size_t bytes = sizeof(struct ngd_team) + threads * sizeof(struct helper);
    struct ngd_team *team = ngd_aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    if (!team)
        return NGD_ERR_NO_MEMORY;
    memset(team, 0, bytes);
    team->threads = threads;
    snprintf(team->name, sizeof(team->name), "%s", name);
    *team_p = team;
    return NGD_OK;
}

void ngd_team_destroy(struct ngd_team *team)
{
    if (!team)
        return;
    atomic_store(&team->stop, true);
    wake_helpers(team);
    for (uint32_t i = 0; i < team->started; i++)
        pthread_join(team->helpers[i].thread, NULL);
    for (uint32_t i = 0; i < NGD_LANES_MAX; i++)
        ngd_free(team->lanes.parts[i]);
    ngd_free(team);
}

uint32_t ngd_team_threads(const struct ngd_team *team)
{
    return team->threads;
}

static void start_helpers(struct ngd_team *team)
{
    team->tried = true;
    for (uint32_t i = 0; i + 1 < team->threads; i++) {
        struct helper *h = &team->helpers[i];
        int err;

        *h = (struct helper){.team = team, .index = i + 1};
        err = ngd_thread_start(&h->thread, team->name, helper_main, h);

        if (err) {
            ngd_warning("devices", "team %s: helper %u does not start (%s), going on with %u threads", team->name,
                        i + 1, strerror(err), i + 1);
            return;
        }
        team->started++;
    }
}

void ngd_team_begin(struct ngd_team *team)
{
    if (!team->tried)
        start_helpers(team);
    atomic_store(&team->running, true);
    wake_helpers(team);
}

void ngd_team_end(struct ngd_team *team)
{
    atomic_store_explicit(&team->running, false, memory_order_release);
}

/* Waits for the parts that helpers have claimed. */
static void wait_done(struct ngd_team *team, uint32_t parts)
{
    uint32_t done;

    for (uint32_t spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&team->done, memory_order_acquire) == parts)
            return;
        ngd_relax(spin);
    }
    atomic_store(&team->leader_sleeps, 1);
    while ((done = atomic_load(&team->done)) != parts)
        futex_wait(&team->done, done);
    atomic_store_explicit(&team->leader_sleeps, 0, memory_order_relaxed);
}

void ngd_team_share(struct ngd_team *team, const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t parts)
{
    uint32_t part;

    team->job = (struct job){.call = call, .run = run};
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    atomic_store(&team->word, WORD(++team->epoch, parts, 0));
    if (atomic_load(&team->sleepers))
        wake_helpers(team);
    while (claim(team, &part, &parts))
        work_on_parts(team, part, parts);
    wait_done(team, parts);
}

/* ---- lanes ---- */

/* Creates or resizes the lanes' teams, which have no threads of their own. */
static bool make_parts(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes)
{
    for (uint32_t l = 0; l < n_lanes; l++) {
        if (!team->lanes.parts[l] && ngd_team_create(0, team->name, &team->lanes.parts[l]))
            return false;
        team->lanes.parts[l]->tried = true;
        team->lanes.parts[l]->threads = threads[l];
    }
    return true;
}

static void seat_helpers(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes, uint32_t epoch)
{
    struct helper *h = team->helpers;

    for (uint32_t l = 0; l < n_lanes; l++) {
        atomic_store(&team->lanes.parts[l]->running, true);
        for (uint32_t i = l ? 0 : 1; i < threads[l]; i++, h++) {
            h->lane = l;
            h->in_lane = i;
            atomic_store(&h->seat, SEAT(epoch, SEAT_OPEN));
        }
    }
}

/* Closes an open seat. Returns false if the helper has taken it, or if it is closed already. */
static bool close_seat(struct helper *h, uint32_t epoch)
{
    uint64_t open = SEAT(epoch, SEAT_OPEN);

    return atomic_compare_exchange_strong(&h->seat, &open, SEAT(epoch, SEAT_CLOSED));
}

bool ngd_team_claim_lane(struct ngd_team *team, uint32_t lane)
{
    uint32_t epoch = atomic_load(&team->lanes.epoch);

    for (uint32_t i = 0; i < team->started; i++) {
        struct helper *h = &team->helpers[i];

        if (atomic_load(&h->seat) >> 2 != epoch || h->lane != lane || h->in_lane != 0)
            continue;
        if (!close_seat(h, epoch))
            return false;
        end_part(team->lanes.parts[lane]); /* the lane's other helpers are not needed */
        return true;
    }
    return false;
}

/* Closes the open seats. Returns how many helpers have taken theirs. */
static uint32_t close_seats(struct ngd_team *team, uint32_t n, uint32_t epoch)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < n; i++)
        taken +=
            !close_seat(&team->helpers[i], epoch) && atomic_load(&team->helpers[i].seat) != SEAT(epoch, SEAT_CLOSED);
    return taken;
}

bool ngd_team_run_lanes(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes, ngd_lane_fn *fn, void *arg)
{
    uint32_t epoch = atomic_load(&team->lanes.epoch) + 1, n = 0;

    if (!team->tried)
        start_helpers(team);
    for (uint32_t l = 0; l < n_lanes; l++)
        n += threads[l];
    if (n - 1 > team->started || n_lanes > NGD_LANES_MAX || !make_parts(team, threads, n_lanes))
        return false;
    team->lanes.fn = fn;
    team->lanes.arg = arg;
    atomic_store(&team->done, 0);
    seat_helpers(team, threads, n_lanes, epoch);
    atomic_store(&team->lanes.epoch, epoch);
    wake_helpers(team);
    run_team_lane(team, 0);
    wait_done(team, close_seats(team, n - 1, epoch));
    return true;
}
