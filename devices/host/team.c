/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The team of threads.
 *
 * The parts of a job are divided into a range for each thread (if there are fewer parts than threads, the first threads
 * have one each). A thread claims parts of its own range on a cache line of its own, so that threads do not wait for
 * each other's lines, and a thread gets the same parts, with the same weights, in each replay. What is left of a range
 * may be claimed by any thread: the leader looks at all ranges after its own, a helper after PATIENCE turns without
 * work, since looking takes the lines away from those who work on them. A helper publishes what
 * it has done before it looks, so that the leader does not wait for that.
 *
 * The offer, one 64-bit word, holds the number of the job and its parts. Jobs have 48-bit numbers, which are never used
 * again: at a call each microsecond they last for 8 years. `next` of a range and `done` of a thread carry the number of
 * the job that they are of, and so need no resetting: a value below that of a job's beginning is of an earlier job, and
 * is as good as the beginning. A claim is a compare-and-swap of `next` to a larger value of the job on offer.
 *
 * Why a claim is of the job that runs: the leader returns, and offers the next job, only when the threads have done as
 * many parts as the job has. By then `next` is at the end of each range that has parts, or beyond, and it only rises.
 * So a helper that was late with an old offer finds no part of it, and one that has claimed a part keeps the job's
 * fields as they are until it has published the part in `done`. A helper that was descheduled before it claimed
 * anything cannot hold up the leader, and one in the middle of its range holds up only the part that it has claimed.
 *
 * The leader writes the job's fields, then the offer (release). A helper reads the offer (acquire), claims, and reads
 * the fields. It publishes in `done` (release), and the leader adds up `done` of all threads (acquire). So claims need
 * no order of their own.
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
 * its own; a lane's team changes its size only while no helper serves it. At the end the leader closes the seats of
 * helpers that have not come, and waits for the others to leave. A lane whose first helper has not come is claimed in
 * the same way, by closing its seat.
 *
 * Sleep and wake follow Dekker: a helper raises `sleepers` and then reads the offer; the leader writes the offer and
 * then reads `sleepers`. Both are sequentially consistent, so at least one of them sees the other. In the same way the
 * leader sets `leader_sleeps` and then reads `done`; a helper writes `done` and then reads `leader_sleeps`.
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

/* Turns without work after which a helper looks for parts of others: half a microsecond at most. */
#define PATIENCE 8

/* Number of a job, and parts of it: all, or how many of a range or by a thread. */
#define OF_JOB(job, parts) ((uint64_t)(job) << 16 | (uint64_t)(parts))
#define JOB(of_job)        ((of_job) >> 16)
#define PARTS(of_job)      ((uint32_t)(of_job)&0xffff)

struct member {
    alignas(128) _Atomic uint64_t next; /* OF_JOB: parts of the thread's range that are claimed */
    _Atomic uint64_t done;              /* OF_JOB: parts that the thread has done; only it writes this */
    alignas(64) struct ngd_team *team;  /* from here on: of a helper */
    uint32_t index;                     /* in the team, from 1 */
    pthread_t thread;
    _Atomic uint64_t seat; /* SEAT(epoch, state) */
    uint32_t lane, in_lane;
    uint32_t seen; /* the last lanes.epoch that the helper saw; only it writes this */
};

struct ngd_team {
    alignas(128) _Atomic uint64_t offer; /* OF_JOB: the job, and how many parts it has */
    const struct ngd_host_call *call;    /* of the job, on the same line, since who claims a part reads both */
    struct ngd_host_run *run;
    alignas(128) _Atomic uint32_t reports; /* a futex word: changed when the leader sleeps and there may be news */
    _Atomic bool leader_sleeps;
    alignas(128) _Atomic uint32_t bell; /* futex word of the helpers: rung when there may be something to do */
    _Atomic uint32_t sleepers;
    _Atomic bool running; /* between begin and end */
    _Atomic bool stop;
    alignas(128) uint32_t threads; /* the leader included */
    uint32_t started;              /* helpers that run */
    bool tried;                    /* to start them */
    char name[16];
    struct {
        alignas(64) _Atomic uint32_t epoch; /* of the seats that were opened last */
        _Atomic uint32_t left;              /* helpers that have left their seats */
        ngd_lane_fn *fn;
        void *arg;
        struct ngd_team *parts[NGD_LANES_MAX]; /* the lanes' teams */
    } lanes;
    struct member members[]; /* 0 is the leader */
};

enum seat { SEAT_CLOSED, SEAT_OPEN, SEAT_TAKEN }; /* closed is 0, as numbers of epochs come again */
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

/* An offer, taken apart. The ranges from `longer` on have a part more than the others. */
struct job {
    uint64_t begin; /* OF_JOB: no part */
    uint32_t parts, ranges, each, longer;
};

static struct job job_of(const struct ngd_team *team, uint64_t offer)
{
    const uint32_t parts = PARTS(offer), ranges = parts < team->threads ? parts : team->threads;

    return (struct job){.begin = offer - parts,
                        .parts = parts,
                        .ranges = ranges,
                        .each = ranges ? parts / ranges : 0,
                        .longer = ranges ? ranges - parts % ranges : 0};
}

/* Returns the first part of the range, 0 <= range <= job->ranges. */
static uint32_t first_of_range(const struct job *job, uint32_t range)
{
    return range * job->each + (range > job->longer ? range - job->longer : 0);
}

static uint64_t end_of_range(const struct job *job, uint32_t range)
{
    return job->begin + job->each + (range >= job->longer);
}

/* Claims a part of the range. */
static bool claim(struct ngd_team *team, const struct job *job, uint32_t range, uint32_t *part_p)
{
    _Atomic uint64_t *next = &team->members[range].next;
    uint64_t seen = atomic_load_explicit(next, memory_order_relaxed), mine;

    do {
        mine = seen < job->begin ? job->begin : seen;
        if (mine >= end_of_range(job, range))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(next, &seen, mine + 1, memory_order_relaxed, memory_order_relaxed));
    *part_p = first_of_range(job, range) + (uint32_t)(mine - job->begin);
    return true;
}

/* Tells the leader, if it sleeps, that there is something to look at. */
static void wake_leader(struct ngd_team *team)
{
    if (!atomic_load(&team->leader_sleeps))
        return;
    atomic_fetch_add(&team->reports, 1);
    futex_wake(&team->reports, 1);
}

/* Publishes that this thread has done so many more parts of the job. */
static void publish_parts(struct ngd_team *team, const struct job *job, uint32_t parts)
{
    _Atomic uint64_t *done = &team->members[ngd_host_thread].done;
    const uint64_t before = atomic_load_explicit(done, memory_order_relaxed);

    atomic_store(done, (before < job->begin ? job->begin : before) + parts);
    wake_leader(team);
}

/* Does what is left of the range. Returns the number of parts. */
static uint32_t work_on_range(struct ngd_team *team, const struct job *job, uint32_t range)
{
    uint32_t part, did = 0;

    for (; claim(team, job, range, &part); did++) {
        const struct ngd_host_call *call = team->call;

        if (!ngd_host_ends(call, team->run, call->slow))
            call->fn(call, team->run, part, job->parts);
    }
    return did;
}

/* Does what is left of n ranges, from `range` on, and around. Returns false if nothing was left. */
static bool work_on_ranges(struct ngd_team *team, uint64_t offer, uint32_t range, uint32_t n)
{
    const struct job job = job_of(team, offer);
    uint32_t did = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = (range + i) % team->threads;

        if (r < job.ranges)
            did += work_on_range(team, &job, r);
    }
    if (did)
        publish_parts(team, &job, did);
    return did;
}

/* Returns true if a part of the job on offer is not claimed. */
static bool has_part(struct ngd_team *team)
{
    const struct job job = job_of(team, atomic_load(&team->offer));

    for (uint32_t r = 0; r < job.ranges; r++)
        if (atomic_load(&team->members[r].next) < end_of_range(&job, r))
            return true;
    return false;
}

/* Does the parts on offer, and spins for more until SPINS are over or the run ends. */
static void serve_team(struct ngd_team *team)
{
    const uint32_t self = ngd_host_thread;
    uint64_t known = 0; /* the offer seen last */
    uint32_t idle = 0;  /* turns since then, or since its own range ended */

    for (uint32_t spin = 0; spin < SPINS && atomic_load_explicit(&team->running, memory_order_acquire); spin++) {
        const uint64_t offer = atomic_load_explicit(&team->offer, memory_order_acquire);
        bool worked = false;

        if (offer != known) {
            known = offer;
            idle = 0;
            worked = work_on_ranges(team, offer, self, 1);
        } else if (++idle == PATIENCE) {
            worked = work_on_ranges(team, offer, self + 1, team->threads - 1);
        }
        if (worked)
            spin = 0;
        else
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
        if (!has_part(part) && atomic_load(&part->running))
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

static void take_seat(struct member *self, uint32_t epoch)
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
    atomic_fetch_add(&team->lanes.left, 1);
    wake_leader(team);
}

static void *helper_main(void *arg)
{
    struct member *self = arg;
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
        if (!has_part(team) && !atomic_load(&team->stop))
            futex_wait(&team->bell, bell); /* returns at once if it was rung since */
        atomic_fetch_sub(&team->sleepers, 1);
    }
    return NULL;
}

ngd_status_t ngd_team_create(uint32_t threads, const char *name, struct ngd_team **team_p)
{
    const size_t bytes = sizeof(struct ngd_team) + threads * sizeof(struct member);
    struct ngd_team *team = ngd_aligned_alloc(alignof(struct ngd_team), bytes);

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
    for (uint32_t i = 1; i <= team->started; i++)
        pthread_join(team->members[i].thread, NULL);
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
    for (uint32_t i = 1; i < team->threads; i++) {
        struct member *h = &team->members[i];
        int err;

        h->team = team;
        h->index = i;
        err = ngd_thread_start(&h->thread, team->name, helper_main, h);

        if (err) {
            ngd_warning("devices", "team %s: helper %u does not start (%s), going on with %u threads", team->name, i,
                        strerror(err), i);
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

/* Returns true if all parts of the job are done. */
static bool job_is_done(struct ngd_team *team, uint64_t offer)
{
    const uint32_t parts = PARTS(offer);
    const uint64_t begin = offer - parts;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < team->threads; i++) {
        const uint64_t done = atomic_load(&team->members[i].done);

        sum += done < begin ? 0 : done - begin;
    }
    return sum == parts;
}

static bool seats_are_left(struct ngd_team *team, uint64_t n)
{
    return atomic_load(&team->lanes.left) == n;
}

/* Waits until is_so(team, arg). Whoever makes it so calls wake_leader afterwards. */
static void wait_until(struct ngd_team *team, bool (*is_so)(struct ngd_team *team, uint64_t arg), uint64_t arg)
{
    for (uint32_t spin = 0; spin < SPINS; spin++) {
        if (is_so(team, arg))
            return;
        ngd_relax(spin);
    }
    atomic_store(&team->leader_sleeps, true);
    for (;;) {
        const uint32_t reports = atomic_load(&team->reports);

        if (is_so(team, arg))
            break;
        futex_wait(&team->reports, reports);
    }
    atomic_store_explicit(&team->leader_sleeps, false, memory_order_relaxed);
}

/* Offers a job to the helpers. */
static uint64_t offer_job(struct ngd_team *team, uint32_t parts)
{
    const uint64_t offer = OF_JOB(JOB(atomic_load_explicit(&team->offer, memory_order_relaxed)) + 1, parts);

    atomic_store(&team->offer, offer);
    return offer;
}

void ngd_team_share(struct ngd_team *team, const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t parts)
{
    uint64_t offer;

    team->call = call;
    team->run = run;
    offer = offer_job(team, parts);
    if (atomic_load(&team->sleepers))
        wake_helpers(team);
    work_on_ranges(team, offer, 0, team->threads);
    wait_until(team, job_is_done, offer);
}

/* ---- lanes ---- */

/* Creates or resizes the lanes' teams, which have no threads of their own. An empty job comes first: a helper could
 * take the last one's offer for that of a team of the new size, and find parts in it. */
static bool make_parts(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes)
{
    for (uint32_t l = 0; l < n_lanes; l++) {
        if (!team->lanes.parts[l] && ngd_team_create(team->threads, team->name, &team->lanes.parts[l]))
            return false;
        offer_job(team->lanes.parts[l], 0);
        team->lanes.parts[l]->tried = true;
        team->lanes.parts[l]->threads = threads[l];
    }
    return true;
}

static void seat_helpers(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes, uint32_t epoch)
{
    struct member *h = &team->members[1];

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
static bool close_seat(struct member *h, uint32_t epoch)
{
    uint64_t open = SEAT(epoch, SEAT_OPEN);

    return atomic_compare_exchange_strong(&h->seat, &open, SEAT(epoch, SEAT_CLOSED));
}

bool ngd_team_claim_lane(struct ngd_team *team, uint32_t lane)
{
    uint32_t epoch = atomic_load(&team->lanes.epoch);

    for (uint32_t i = 1; i <= team->started; i++) {
        struct member *h = &team->members[i];

        if (atomic_load(&h->seat) >> 2 != epoch || h->lane != lane || h->in_lane != 0)
            continue;
        if (!close_seat(h, epoch))
            return false;
        end_part(team->lanes.parts[lane]); /* the lane's other helpers are not needed */
        return true;
    }
    return false;
}

/* Closes the open seats of n helpers. Returns how many have taken theirs. */
static uint32_t close_seats(struct ngd_team *team, uint32_t n, uint32_t epoch)
{
    uint32_t taken = 0;

    for (uint32_t i = 1; i <= n; i++) {
        struct member *h = &team->members[i];

        taken += !close_seat(h, epoch) && atomic_load(&h->seat) != SEAT(epoch, SEAT_CLOSED);
    }
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
    atomic_store(&team->lanes.left, 0);
    seat_helpers(team, threads, n_lanes, epoch);
    atomic_store(&team->lanes.epoch, epoch);
    wake_helpers(team);
    run_team_lane(team, 0);
    wait_until(team, seats_are_left, close_seats(team, n - 1, epoch));
    return true;
}
