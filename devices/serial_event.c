/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of streams in software: a counter, and the tickets that are out. A record takes the next ticket when it is
 * queued, and completes it when its stream reaches the record. The event is complete when its newest ticket is. A wait
 * is for the ticket that was newest when the wait was queued. So a later record of the same event neither prolongs the
 * wait nor, on a faster stream, ends it early (as in CUDA and ACL).
 *
 * Few tickets are out: one for each record of this event that a stream has queued, usually one in all.
 */
#include "base/lock.h"
#include "base/mem.h"
#include "devices/serial.h"
#include <stdatomic.h>
#include <string.h>

struct ngd_serial_event {
    struct ngd_mutex lock;
    struct ngd_cond completed;
    _Atomic uint64_t taken;
    _Atomic uint64_t oldest; /* the oldest ticket that is out; UINT64_MAX = none is out */
    uint64_t *out NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock), cap NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_serial_event_create(void *dev, void **event_p)
{
    struct ngd_serial_event *event = NGD_NEW(struct ngd_serial_event);

    (void)dev;
    if (!event)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&event->lock, NGD_RANK_STREAM);
    ngd_cond_init(&event->completed);
    atomic_init(&event->oldest, UINT64_MAX);
    *event_p = event;
    return NGD_OK;
}

void ngd_serial_event_destroy(void *dev, void *event_v)
{
    struct ngd_serial_event *event = event_v;

    (void)dev;
    /* The thread that completes the event may still hold the lock after a waiter has seen that it is complete. */
    ngd_mutex_lock(&event->lock);
    ngd_free(event->out);
    event->out = NULL;
    ngd_mutex_unlock(&event->lock);
    ngd_cond_fini(&event->completed);
    ngd_mutex_fini(&event->lock);
    ngd_free(event);
}

/* ---- tickets ----------------------------------------------------------------------------------------- */

static ngd_status_t make_event_room(struct ngd_serial_event *event) NGD_REQUIRES(event->lock)
{
    uint32_t cap = event->cap ? event->cap * 2 : 4;
    uint64_t *out;

    if (event->n < event->cap)
        return NGD_OK;
    out = NGD_NEW_N(uint64_t, cap);
    if (!out)
        return NGD_ERR_NO_MEMORY;
    if (event->n)
        memcpy(out, event->out, event->n * sizeof(*out));
    ngd_free(event->out);
    event->out = out;
    event->cap = cap;
    return NGD_OK;
}

static void show_oldest(struct ngd_serial_event *event) NGD_REQUIRES(event->lock)
{
    atomic_store(&event->oldest, event->n ? event->out[0] : UINT64_MAX);
}

ngd_status_t ngd_serial_event_take(struct ngd_serial_event *event, uint64_t *ticket_p)
{
    ngd_status_t status;

    ngd_mutex_lock(&event->lock);
    status = make_event_room(event);
    if (!status) {
        *ticket_p = atomic_load(&event->taken) + 1;
        event->out[event->n++] = *ticket_p; /* ascending, since tickets are counted under the lock */
        show_oldest(event);
        atomic_store(&event->taken, *ticket_p);
    }
    ngd_mutex_unlock(&event->lock);
    return status;
}

void ngd_serial_event_complete(struct ngd_serial_event *event, uint64_t ticket)
{
    ngd_mutex_lock(&event->lock);
    for (uint32_t i = 0; i < event->n; i++) {
        if (event->out[i] != ticket)
            continue;
        memmove(&event->out[i], &event->out[i + 1], (event->n - 1 - i) * sizeof(event->out[0]));
        event->n--;
        break;
    }
    show_oldest(event);
    ngd_cond_broadcast(&event->completed);
    ngd_mutex_unlock(&event->lock);
}

uint64_t ngd_serial_event_last(const struct ngd_serial_event *event)
{
    return atomic_load(&event->taken);
}

static bool is_out(const struct ngd_serial_event *event, uint64_t ticket) NGD_REQUIRES(event->lock)
{
    for (uint32_t i = 0; i < event->n; i++)
        if (event->out[i] == ticket)
            return true;
    return false;
}

bool ngd_serial_event_done(const struct ngd_serial_event *event, uint64_t ticket)
{
    struct ngd_serial_event *e = (struct ngd_serial_event *)(uintptr_t)event; /* the lock is not part of its value */
    bool out;

    if (ticket < atomic_load(&event->oldest))
        return true;
    ngd_mutex_lock(&e->lock);
    out = is_out(e, ticket);
    ngd_mutex_unlock(&e->lock);
    return !out;
}

void ngd_serial_event_await(struct ngd_serial_event *event, uint64_t ticket)
{
    ngd_mutex_lock(&event->lock);
    while (is_out(event, ticket))
        ngd_cond_wait(&event->completed, &event->lock);
    ngd_mutex_unlock(&event->lock);
}

bool ngd_serial_event_query(const void *event_v)
{
    const struct ngd_serial_event *event = event_v;

    return ngd_serial_event_done(event, ngd_serial_event_last(event));
}

ngd_status_t ngd_serial_event_sync(void *event_v)
{
    struct ngd_serial_event *event = event_v;

    ngd_serial_event_await(event, ngd_serial_event_last(event));
    return NGD_OK;
}
