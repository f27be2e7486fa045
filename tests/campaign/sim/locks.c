/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/lock.h, base/clock.h, base/stop.h and base/wakeup.h on fibers. The linker takes these functions before those of
 * the base library, and gives the daemon's code those of pthread that it calls itself by --wrap
 * (tests/campaign/local.mk).
 *
 * The order of locks is not looked at here: builds with asserts do that wherever the same code runs on threads.
 */
#include "base/lock.h"
#include "base/stop.h"
#include "base/wakeup.h"
#include "tests/campaign/sim/fibers.h"
#include <sys/resource.h>

/* In the place of a pthread_mutex_t; all zeros is an unlocked one. */
struct __attribute__((may_alias)) sim_mutex {
    struct sim_fiber *owner;
    struct sim_queue waiting;
};
struct __attribute__((may_alias)) sim_cond {
    struct sim_queue waiting;
};
_Static_assert(sizeof(struct sim_mutex) <= sizeof(pthread_mutex_t), "it has room");
_Static_assert(sizeof(struct sim_cond) <= sizeof(pthread_cond_t), "it has room");

static struct sim_mutex *of_mutex(struct ngd_mutex *mutex)
{
    return (struct sim_mutex *)(void *)&mutex->m;
}

static struct sim_cond *of_cond(struct ngd_cond *cond)
{
    return (struct sim_cond *)(void *)&cond->c;
}

void ngd_mutex_init(struct ngd_mutex *mutex, ngd_lock_rank_t rank)
{
    *of_mutex(mutex) = (struct sim_mutex){0};
    mutex->rank = rank;
}

void ngd_mutex_fini(struct ngd_mutex *mutex)
{
    sim_check(!of_mutex(mutex)->owner && !of_mutex(mutex)->waiting.first, "a lock of rank %d goes while it is used",
              (int)mutex->rank);
}

void ngd_mutex_lock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    struct sim_mutex *m = of_mutex(mutex);

    sim_point();
    sim_check(m->owner != sim_self(), "a lock of rank %d is taken twice", (int)mutex->rank);
    while (m->owner)
        (void)sim_wait(&m->waiting, NGD_NSEC_NEVER, "a lock");
    m->owner = sim_self();
}

bool ngd_mutex_trylock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    struct sim_mutex *m = of_mutex(mutex);

    sim_point();
    if (m->owner)
        return false;
    m->owner = sim_self();
    return true;
}

static void unlock(struct ngd_mutex *mutex)
{
    struct sim_mutex *m = of_mutex(mutex);

    sim_check(m->owner == sim_self(), "a lock of rank %d is given back by who does not have it", (int)mutex->rank);
    m->owner = NULL;
    sim_wake_one(&m->waiting);
}

void ngd_mutex_unlock(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    unlock(mutex);
    sim_point();
}

void ngd_cond_init(struct ngd_cond *cond)
{
    *of_cond(cond) = (struct sim_cond){0};
}

void ngd_cond_fini(struct ngd_cond *cond)
{
    sim_check(!of_cond(cond)->waiting.first, "a condition goes while somebody waits for it");
}

/* Sometimes it ends for nothing, as conditions may. */
bool ngd_cond_wait_until(struct ngd_cond *cond, struct ngd_mutex *mutex, ngd_nsec_t until)
{
    struct sim_mutex *m = of_mutex(mutex);
    bool woken = true;

    unlock(mutex);
    if (!sim_chance(1, 4096))
        woken = sim_wait(&of_cond(cond)->waiting, until, "a signal");
    while (m->owner)
        (void)sim_wait(&m->waiting, NGD_NSEC_NEVER, "a lock");
    m->owner = sim_self();
    return woken;
}

void ngd_cond_wait(struct ngd_cond *cond, struct ngd_mutex *mutex)
{
    (void)ngd_cond_wait_until(cond, mutex, NGD_NSEC_NEVER);
}

void ngd_cond_signal(struct ngd_cond *cond)
{
    sim_wake_one(&of_cond(cond)->waiting);
    sim_point();
}

void ngd_cond_broadcast(struct ngd_cond *cond)
{
    sim_wake_all(&of_cond(cond)->waiting);
    sim_point();
}

/* ---- threads ------------------------------------------------------------------------------------------ */

int ngd_thread_start(pthread_t *thread_p, const char *name, void *(*run)(void *), void *arg)
{
    *thread_p = (pthread_t)(uintptr_t)sim_start(name, run, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result_p);
int __wrap_pthread_join(pthread_t thread, void **result_p)
{
    (void)result_p;
    sim_join((struct sim_fiber *)(uintptr_t)thread);
    return 0;
}

pthread_t __wrap_pthread_self(void);
pthread_t __wrap_pthread_self(void)
{
    return (pthread_t)(uintptr_t)sim_self();
}

/* The threads that would give way to others are all this one. */
int __wrap_setpriority(int which, id_t who, int value);
int __wrap_setpriority(int which, id_t who, int value)
{
    (void)which;
    (void)who;
    (void)value;
    return 0;
}

void __wrap_ngd_mem_warm(size_t bytes);
void __wrap_ngd_mem_warm(size_t bytes)
{
    (void)bytes;
}

ngd_wakeup_t ngd_wakeup_ask(ngd_wakeup_t most)
{
    (void)most;
    return NGD_WAKEUP_ORDINARY;
}

const char *ngd_wakeup_name(ngd_wakeup_t wakeup)
{
    (void)wakeup;
    return "simulated";
}

/* ---- what a thread has for itself ---------------------------------------------------------------------- */

void ngd_stop_set(const struct ngd_stop *stop)
{
    *sim_own() = stop;
}

ngd_status_t ngd_stop_check(void)
{
    const struct ngd_stop *stop = *sim_own();

    sim_point();
    if (!stop)
        return NGD_OK;
    if (atomic_load_explicit(&stop->gone, memory_order_relaxed))
        return NGD_ERR_CANCELLED;
    return stop->at && ngd_now() >= stop->at ? stop->late : NGD_OK;
}

/* ---- the clock ---------------------------------------------------------------------------------------- */

ngd_nsec_t ngd_now(void)
{
    return ngd_clock_real();
}

void ngd_clock_set_fake(ngd_nsec_t t)
{
    (void)t;
    sim_fail("the simulation's clock is nobody else's");
}
