/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the host device: two counters. A record takes the next ticket when it is queued; the event is
 * complete when the newest ticket is. A wait is for the ticket that was newest when the wait was queued, so a later
 * record of the same event does not prolong it (as in CUDA and ACL).
 */
#include "base/mem.h"
#include "devices/host/host.h"

struct host_event {
    struct ngd_mutex lock;
    struct ngd_cond completed;
    _Atomic uint64_t taken;
    _Atomic uint64_t done;
};

ngd_status_t ngd_host_event_create(void *dev, void **event_p)
{
    struct host_event *event = NGD_NEW(struct host_event);

    (void)dev;
    if (!event)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&event->lock, NGD_RANK_STREAM);
    ngd_cond_init(&event->completed);
    *event_p = event;
    return NGD_OK;
}

void ngd_host_event_destroy(void *dev, void *event_v)
{
    struct host_event *event = event_v;

    (void)dev;
    /* Who completes the event may still hold the lock after a waiter has seen the counter. */
    ngd_mutex_lock(&event->lock);
    ngd_mutex_unlock(&event->lock);
    ngd_cond_fini(&event->completed);
    ngd_mutex_fini(&event->lock);
    ngd_free(event);
}

uint64_t ngd_host_event_take(struct host_event *event)
{
    return atomic_fetch_add(&event->taken, 1) + 1;
}

uint64_t ngd_host_event_last(const struct host_event *event)
{
    return atomic_load(&event->taken);
}

bool ngd_host_event_done(const struct host_event *event, uint64_t ticket)
{
    return atomic_load(&event->done) >= ticket;
}

void ngd_host_event_complete(struct host_event *event, uint64_t ticket)
{
    ngd_mutex_lock(&event->lock);
    if (atomic_load(&event->done) < ticket)
        atomic_store(&event->done, ticket);
    ngd_cond_broadcast(&event->completed);
    ngd_mutex_unlock(&event->lock);
}

void ngd_host_event_await(struct host_event *event, uint64_t ticket)
{
    ngd_mutex_lock(&event->lock);
    while (!ngd_host_event_done(event, ticket))
        ngd_cond_wait(&event->completed, &event->lock);
    ngd_mutex_unlock(&event->lock);
}

bool ngd_host_event_query(const void *event_v)
{
    const struct host_event *event = event_v;

    return ngd_host_event_done(event, ngd_host_event_last(event));
}

ngd_status_t ngd_host_event_sync(void *event_v)
{
    struct host_event *event = event_v;

    ngd_host_event_await(event, ngd_host_event_last(event));
    return NGD_OK;
}
