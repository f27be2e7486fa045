/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expiry: one thread answers each request that still waits when its deadline passes, wherever it waits and whatever the
 * device does.
 *
 * Only requests that have a deadline and do not run at once come here. The thread that takes a request out of the place
 * where it waits calls ngd_expiry_forget before it answers the request: until then the expiry thread may read it. If a
 * request is between two places when its deadline passes, the thread finds it nowhere and looks again soon. The thread
 * asks to be woken up promptly (base/wakeup.h), since the device's threads may use all CPUs.
 */
#include "base/fault.h"
#include "base/wakeup.h"
#include "scheduler/run/sched_int.h"
#include <time.h>

#define LOOK_AGAIN (100 * NGD_USEC)

static bool earlier(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct ngd_request, expiry_node)->look_at <
           ngd_container_of(b, struct ngd_request, expiry_node)->look_at;
}

void ngd_expiry_init(struct ngd_expiry *expiry, ngd_expire_fn *expire)
{
    expiry->expire = expire;
    ngd_mutex_init(&expiry->lock, NGD_RANK_EXPIRY);
    ngd_cond_init(&expiry->wake);
    ngd_cond_init(&expiry->idle);
    ngd_heap_init(&expiry->requests, earlier);
}

void ngd_expiry_fini(struct ngd_expiry *expiry)
{
    ngd_cond_fini(&expiry->idle);
    ngd_cond_fini(&expiry->wake);
    ngd_mutex_fini(&expiry->lock);
}

static void insert_expiring_locked(struct ngd_expiry *expiry, struct ngd_request *req, ngd_nsec_t at)
    NGD_REQUIRES(expiry->lock)
{
    req->look_at = at;
    req->in_expiry = true;
    ngd_heap_push(&expiry->requests, &req->expiry_node);
}

/* Wakes the thread only if it would sleep too long. If it wakes up too early, it just looks once more. */
void ngd_expiry_watch(struct ngd_expiry *expiry, struct ngd_request *req)
{
    if (req->deadline == NGD_NSEC_NEVER || req->watched)
        return;
    ngd_mutex_lock(&expiry->lock);
    req->watched = true;
    insert_expiring_locked(expiry, req, req->deadline);
    if (req->deadline < expiry->asleep_until) {
        expiry->asleep_until = req->deadline;
        ngd_cond_signal(&expiry->wake);
    }
    ngd_mutex_unlock(&expiry->lock);
}

void ngd_expiry_forget(struct ngd_expiry *expiry, struct ngd_request *req)
{
    if (!req->watched)
        return;
    ngd_mutex_lock(&expiry->lock);
    while (expiry->expiring == req && !pthread_equal(expiry->thread, pthread_self()))
        ngd_cond_wait(&expiry->idle, &expiry->lock);
    if (req->in_expiry)
        ngd_heap_remove(&expiry->requests, &req->expiry_node);
    if (expiry->expiring == req)
        expiry->expiring = NULL; /* the expiry thread itself answers it, and must not come back to it */
    req->in_expiry = false;
    req->watched = false;
    ngd_mutex_unlock(&expiry->lock);
}

/*
 * Answers an expired request if it still waits. Gives up the lock meanwhile. The request stays valid, since another
 * thread that would answer it waits in ngd_expiry_forget.
 */
static void expire_locked(struct ngd_expiry *expiry, struct ngd_request *req) NGD_REQUIRES(expiry->lock)
{
    ngd_heap_remove(&expiry->requests, &req->expiry_node);
    req->in_expiry = false;
    expiry->expiring = req;
    ngd_mutex_unlock(&expiry->lock);
    (void)expiry->expire(req);
    ngd_mutex_lock(&expiry->lock);
    if (expiry->expiring != req)
        return;
    insert_expiring_locked(expiry, req, ngd_now() + LOOK_AGAIN);
    expiry->expiring = NULL;
    ngd_cond_broadcast(&expiry->idle);
}

/* Lets the thread hang while the fault point is armed, for tests. */
static void hang(struct ngd_expiry *expiry) NGD_REQUIRES(expiry->lock)
{
    while (NGD_FAULT(EXPIRY_HANG)) {
        ngd_mutex_unlock(&expiry->lock);
        nanosleep(&(struct timespec){.tv_nsec = 10 * NGD_MSEC}, NULL);
        ngd_mutex_lock(&expiry->lock);
    }
}

static void *expiry_main(void *arg)
{
    struct ngd_expiry *expiry = arg;

    atomic_store_explicit(&expiry->wakeup, (int)ngd_wakeup_ask(NGD_WAKEUP_REALTIME), memory_order_relaxed);
    ngd_mutex_lock(&expiry->lock);
    while (!expiry->stopping) {
        struct ngd_heap_node *first = ngd_heap_first(&expiry->requests);
        struct ngd_request *req = first ? ngd_container_of(first, struct ngd_request, expiry_node) : NULL;
        ngd_nsec_t left = req ? req->look_at - ngd_now() : 0;

        ngd_beat_answer(&expiry->beat);
        if (req && left <= 0) {
            expire_locked(expiry, req);
            continue;
        }
        expiry->asleep_until = req ? req->look_at : NGD_NSEC_NEVER;
        if (req)
            (void)ngd_cond_wait_until(&expiry->wake, &expiry->lock, ngd_clock_real() + left);
        else
            ngd_cond_wait(&expiry->wake, &expiry->lock);
        expiry->asleep_until = 0; /* it is awake, so nobody needs to wake it */
        hang(expiry);
    }
    ngd_mutex_unlock(&expiry->lock);
    return NULL;
}

ngd_status_t ngd_expiry_start(struct ngd_expiry *expiry)
{
    int err = ngd_thread_start(&expiry->thread, "expiry", expiry_main, expiry);

    expiry->started = err == 0;
    return err ? ngd_status_from_errno(err) : NGD_OK;
}

/*
 * Takes no lock, since a thread that hangs may hold it. If the signal comes just before the thread sleeps, it is lost,
 * and the next call wakes the thread.
 */
void ngd_expiry_ask(struct ngd_expiry *expiry)
{
    ngd_beat_ask(&expiry->beat);
    ngd_cond_signal(&expiry->wake);
}

/* Call when all requests have been answered. */
void ngd_expiry_stop(struct ngd_expiry *expiry)
{
    if (!expiry->started)
        return;
    ngd_mutex_lock(&expiry->lock);
    expiry->stopping = true;
    ngd_cond_signal(&expiry->wake);
    ngd_mutex_unlock(&expiry->lock);
    pthread_join(expiry->thread, NULL);
    expiry->started = false;
}
