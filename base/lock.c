/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranked mutexes.
 *
 * Debug builds record the ranks that each thread holds. They abort when a thread that holds a lock takes
 * one of the same or a lower rank, and print both ranks. So the first run of such a path fails, without a
 * second thread. trylock cannot deadlock, so it is recorded but not checked. NGD_RANK_NONE is outside
 * the order.
 *
 * A pthread call fails here only if an invariant of ours is broken (a mutex was not initialised, or
 * another thread unlocks it), hence the aborts.
 */
#include "base/lock.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void broken(const char *what, int err)
{
    fprintf(stderr, "lock: %s: %s\n", what, strerror(err));
    abort();
}

#ifndef NDEBUG
#define HELD_MAX 16

static _Thread_local struct {
    ngd_lock_rank_t rank[HELD_MAX];
    unsigned n;
} held;

static void rank_check(ngd_lock_rank_t rank)
{
    if (rank == NGD_RANK_NONE)
        return;
    for (unsigned i = 0; i < held.n; i++) {
        if (held.rank[i] >= rank) {
            fprintf(stderr, "lock: rank inversion: rank %d is taken while rank %d is held (base/lock_rank.h)\n",
                    (int)rank, (int)held.rank[i]);
            abort();
        }
    }
}

static void rank_push(ngd_lock_rank_t rank)
{
    if (rank == NGD_RANK_NONE)
        return;
    if (held.n == HELD_MAX)
        broken("too many locks are held by one thread", EDEADLK);
    held.rank[held.n++] = rank;
}

static void rank_pop(ngd_lock_rank_t rank)
{
    if (rank == NGD_RANK_NONE)
        return;
    for (unsigned i = held.n; i-- > 0;) {
        if (held.rank[i] == rank) {
            memmove(&held.rank[i], &held.rank[i + 1], (held.n - i - 1) * sizeof(held.rank[0]));
            held.n--;
            return;
        }
    }
    broken("unlock of a lock that this thread does not hold", EPERM);
}
#else
static void rank_check(ngd_lock_rank_t rank)
{
    (void)rank;
}
static void rank_push(ngd_lock_rank_t rank)
{
    (void)rank;
}
static void rank_pop(ngd_lock_rank_t rank)
{
    (void)rank;
}
#endif

void ngd_mutex_init(struct ngd_mutex *mutex, ngd_lock_rank_t rank)
{
    int err = pthread_mutex_init(&mutex->m, NULL);

    if (err)
        broken("mutex_init", err);
    mutex->rank = rank;
}

void ngd_mutex_fini(struct ngd_mutex *mutex)
{
    int err = pthread_mutex_destroy(&mutex->m);

    if (err)
        broken("mutex_fini", err);
}

void ngd_mutex_lock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    int err;

    rank_check(mutex->rank);
    err = pthread_mutex_lock(&mutex->m);
    if (err)
        broken("mutex_lock", err);
    rank_push(mutex->rank);
}

bool ngd_mutex_trylock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    int err = pthread_mutex_trylock(&mutex->m);

    if (err == EBUSY)
        return false;
    if (err)
        broken("mutex_trylock", err);
    rank_push(mutex->rank);
    return true;
}

void ngd_mutex_unlock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    int err;

    rank_pop(mutex->rank);
    err = pthread_mutex_unlock(&mutex->m);
    if (err)
        broken("mutex_unlock", err);
}

void ngd_cond_init(struct ngd_cond *cond)
{
    pthread_condattr_t attr;
    int err;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_cond_init(&cond->c, &attr);
    pthread_condattr_destroy(&attr);
    if (err)
        broken("cond_init", err);
}

void ngd_cond_fini(struct ngd_cond *cond)
{
    int err = pthread_cond_destroy(&cond->c);

    if (err)
        broken("cond_fini", err);
}

/* Keeps the rank recorded during the wait: the thread sleeps and takes no lock. */
void ngd_cond_wait(struct ngd_cond *cond, struct ngd_mutex *mutex)
{
    int err = pthread_cond_wait(&cond->c, &mutex->m);

    if (err)
        broken("cond_wait", err);
}

bool ngd_cond_wait_until(struct ngd_cond *cond, struct ngd_mutex *mutex, ngd_nsec_t until)
{
    struct timespec ts;
    int err;

    if (until == NGD_NSEC_NEVER) {
        ngd_cond_wait(cond, mutex);
        return true;
    }
    if (until < 0)
        until = 0;
    ts.tv_sec = until / NGD_SEC;
    ts.tv_nsec = until % NGD_SEC;
    err = pthread_cond_timedwait(&cond->c, &mutex->m, &ts);
    if (err && err != ETIMEDOUT)
        broken("cond_wait_until", err);
    return err == 0;
}

void ngd_cond_signal(struct ngd_cond *cond)
{
    pthread_cond_signal(&cond->c);
}

void ngd_cond_broadcast(struct ngd_cond *cond)
{
    pthread_cond_broadcast(&cond->c);
}

int ngd_thread_start(pthread_t *thread_p, const char *name, void *(*run)(void *), void *arg)
{
    char short_name[16]; /* the kernel's limit; a longer name would be refused, not cut */
    sigset_t all, old;
    pthread_t thread;
    int err;

    /* Signals are blocked before the thread exists, because only the loop thread handles them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return err;
    snprintf(short_name, sizeof(short_name), "%s", name);
    pthread_setname_np(thread, short_name);
    *thread_p = thread;
    return 0;
}
