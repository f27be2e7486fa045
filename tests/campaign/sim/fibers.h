/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_SIM_FIBERS_H
#define NGD_TESTS_SIM_FIBERS_H

/*
 * Threads of the simulation: fibers on one thread of the machine, and virtual time.
 *
 * locks.c gives the daemon's own code (base/lock.h, base/clock.h, base/wakeup.h, pthread_join and pthread_self) these
 * fibers in place of threads. Wherever that code locks, unlocks, waits, signals or looks at the clock, the seed decides
 * which fiber goes on. Time moves when no fiber can run, to when the first one wakes up; and a little when it is looked
 * at. So one seed is one schedule, and the same one each time.
 *
 * What is not simulated: between two such places a fiber runs alone, so orders of atomic operations that need another
 * thread to come between them are only found where one of these places lies between.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

struct sim_fiber;

/* How schedules are drawn. */
struct sim_schedule {
    uint32_t preempt;      /* of 1024 places, at how many another fiber goes on */
    uint32_t stall;        /* of 65536 places, at how many the fiber sleeps, as a thread does whose CPU is taken */
    ngd_nsec_t stall_most; /* how long at most */
    ngd_nsec_t tick;       /* by how much a look at the clock moves it at most */
    bool by_rank;          /* the ready fiber of the highest drawn rank goes on, instead of any */
};

/* Runs fn as the first fiber, with all others, until it returns. */
void sim_run(uint64_t seed, const struct sim_schedule *schedule, void (*fn)(void *arg), void *arg);
uint64_t sim_hash(void);     /* of the schedule so far */
uint64_t sim_switches(void); /* from one fiber to another */
ngd_nsec_t sim_time(void);   /* without moving it */

/* Draws from the seed. */
uint64_t sim_random(void);
uint64_t sim_below(uint64_t n); /* 0 to n - 1; n > 0 */
bool sim_chance(uint32_t n, uint32_t of);
/* From least to most, small ones as likely as large ones: each doubling has the same chance. */
int64_t sim_between(int64_t least, int64_t most);

/* A place where another fiber may go on. */
void sim_point(void);
void sim_sleep_until(ngd_nsec_t t);
/* From now on each look at the clock by this fiber takes so long: the work between two looks. */
void sim_set_work(ngd_nsec_t each);

struct sim_fiber *sim_self(void);
/* What this fiber has in place of a thread's own variable (base/stop.c). */
const void **sim_own(void);
struct sim_fiber *sim_start(const char *name, void *(*run)(void *arg), void *arg);
void sim_join(struct sim_fiber *fiber);

/* For locks.c: sleeps until woken, or until the time `until`; false: it was the time. what: for people. */
struct sim_queue {
    struct sim_fiber *first, *last;
};
bool sim_wait(struct sim_queue *queue, ngd_nsec_t until, const char *what);
void sim_wake_one(struct sim_queue *queue); /* any of them */
void sim_wake_all(struct sim_queue *queue);

/* Ends the process: what the simulation was to show does not hold. Says the time and where each fiber is. */
void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
#define sim_check(cond, ...)       \
    do {                           \
        if (!(cond))               \
            sim_fail(__VA_ARGS__); \
    } while (0)

#endif
