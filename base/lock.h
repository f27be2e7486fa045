/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LOCK_H
#define NGD_BASE_LOCK_H

/* Ranked mutexes and conditions. Debug builds (not NDEBUG) abort on a rank inversion. */
#include "base/annotations.h"
#include "base/clock.h"
#include "base/lock_rank.h"
#include <pthread.h>
#include <stdbool.h>

struct NGD_LOCKABLE ngd_mutex {
    pthread_mutex_t m;
    ngd_lock_rank_t rank;
};
struct ngd_cond {
    pthread_cond_t c; /* on CLOCK_MONOTONIC */
};

/* For locks of static storage. */
#define NGD_MUTEX_INITIALIZER(rank_)                    \
    {                                                   \
        .m = PTHREAD_MUTEX_INITIALIZER, .rank = (rank_) \
    }

void ngd_mutex_init(struct ngd_mutex *mutex, ngd_lock_rank_t rank);
void ngd_mutex_fini(struct ngd_mutex *mutex);
void ngd_mutex_lock(struct ngd_mutex *mutex) NGD_ACQUIRE(mutex);
bool ngd_mutex_trylock(struct ngd_mutex *mutex) NGD_TRY_ACQUIRE(true, mutex);
void ngd_mutex_unlock(struct ngd_mutex *mutex) NGD_RELEASE(mutex);

void ngd_cond_init(struct ngd_cond *cond);
void ngd_cond_fini(struct ngd_cond *cond);
void ngd_cond_wait(struct ngd_cond *cond, struct ngd_mutex *mutex) NGD_REQUIRES(mutex);
/* False when the (real, monotonic) time `until` passed first. */
bool ngd_cond_wait_until(struct ngd_cond *cond, struct ngd_mutex *mutex, ngd_nsec_t until) NGD_REQUIRES(mutex);
void ngd_cond_signal(struct ngd_cond *cond);
void ngd_cond_broadcast(struct ngd_cond *cond);

/* Starts a named, joinable thread with all signals blocked. Returns 0 or an errno. */
int ngd_thread_start(pthread_t *thread_p, const char *name, void *(*run)(void *), void *arg);

#endif
