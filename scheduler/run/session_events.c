/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each record is an object; an event's name leads to its latest record. A record is referenced by its name, by the
 * request that records it, and by the requests that wait for it. One lock for each session protects all of this. Nobody
 * holds it while a request moves on: released requests are handed to the caller in a list.
 *
 *   PENDING --the request ended well--> DONE       --it failed, was cancelled or refused--> FAILED
 */
#include "scheduler/run/session_events.h"
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <stdio.h>
#include <string.h>

enum event_state { EVENT_PENDING, EVENT_DONE, EVENT_FAILED };

struct ngd_session_event {
    char name[NGD_SESSION_EVENT_NAME_MAX + 1];
    uint32_t refs;
    enum event_state state;
    ngd_status_t status; /* FAILED: the request's status */
    struct ngd_list waiters;
};

struct ngd_session_events {
    struct ngd_mutex lock; /* rank EVENTS */
    uint32_t refs NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
    struct ngd_session_event *latest[NGD_SESSION_EVENTS_MAX] NGD_GUARDED_BY(lock);
};

/* No other thread uses the object yet. */
ngd_status_t ngd_session_events_create(struct ngd_session_events **events_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_session_events *events = NGD_NEW(struct ngd_session_events);

    if (!events)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&events->lock, NGD_RANK_EVENTS);
    events->refs = 1;
    *events_p = events;
    return NGD_OK;
}

static void event_unref(struct ngd_session_event *event)
{
    if (event && --event->refs == 0)
        ngd_free(event);
}

/* Gives up one reference; the last one frees all. */
static void events_unref(struct ngd_session_events *events)
{
    bool last;

    ngd_mutex_lock(&events->lock);
    last = --events->refs == 0;
    for (uint32_t i = 0; last && i < events->n; i++)
        event_unref(events->latest[i]);
    ngd_mutex_unlock(&events->lock);
    if (!last)
        return;
    ngd_mutex_fini(&events->lock);
    ngd_free(events);
}

void ngd_session_events_destroy(struct ngd_session_events *events)
{
    if (events)
        events_unref(events);
}

/* Returns the index of the latest record of that name; events->n: there is none. */
static uint32_t find_event(const struct ngd_session_events *events, const struct ngd_session_event_name *name)
    NGD_REQUIRES(events->lock)
{
    uint32_t i = 0;

    while (i < events->n &&
           !(strlen(events->latest[i]->name) == name->n && memcmp(events->latest[i]->name, name->p, name->n) == 0))
        i++;
    return i;
}

static ngd_status_t check_event_name(const struct ngd_session_event_name *name, struct ngd_diag *diag)
{
    if (name->n > NGD_SESSION_EVENT_NAME_MAX || (name->n && memchr(name->p, '\0', name->n)))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "an event's name must have 1 to %d bytes and no zero byte",
                            NGD_SESSION_EVENT_NAME_MAX);
    return NGD_OK;
}

static ngd_status_t find_wait(struct ngd_session_events *events, struct ngd_request *req, struct ngd_diag *diag)
    NGD_REQUIRES(events->lock)
{
    uint32_t i = find_event(events, &req->wait_event);

    if (i == events->n)
        return ngd_diag_set(diag, NGD_ERR_EVENT_UNKNOWN,
                            "event \"%.*s\" has not been recorded in this session: submit the replay that records it "
                            "before the one that waits",
                            (int)req->wait_event.n, req->wait_event.p);
    req->waits = events->latest[i];
    req->waits->refs++;
    return NGD_OK;
}

static ngd_status_t add_record(struct ngd_session_events *events, struct ngd_request *req, struct ngd_diag *diag)
    NGD_REQUIRES(events->lock)
{
    uint32_t i = find_event(events, &req->record_event);
    struct ngd_session_event *event;

    if (i == NGD_SESSION_EVENTS_MAX)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "the session has %d events, which is the limit: use one of their names again",
                            NGD_SESSION_EVENTS_MAX);
    event = NGD_NEW(struct ngd_session_event);
    if (!event)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no memory for an event");
    memcpy(event->name, req->record_event.p, req->record_event.n);
    event->refs = 2;
    ngd_list_init(&event->waiters);
    if (i < events->n)
        event_unref(events->latest[i]);
    else
        events->n++;
    events->latest[i] = req->records = event;
    return NGD_OK;
}

ngd_status_t ngd_session_event_enter(struct ngd_request *req, struct ngd_diag *diag)
{
    struct ngd_session_events *events = req->events;
    ngd_status_t status = check_event_name(&req->wait_event, diag);

    if (status == NGD_OK)
        status = check_event_name(&req->record_event, diag);
    if (status)
        return status;
    ngd_mutex_lock(&events->lock);
    events->refs++;
    if (req->wait_event.n)
        status = find_wait(events, req, diag);
    if (status == NGD_OK && req->record_event.n)
        status = add_record(events, req, diag);
    ngd_mutex_unlock(&events->lock);
    req->in_events = true;
    return status;
}

ngd_status_t ngd_session_event_await(struct ngd_request *req, bool *parked_p, struct ngd_diag *diag)
{
    struct ngd_session_events *events = req->events;
    struct ngd_session_event *event = req->waits;
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&events->lock);
    if (event->state == EVENT_FAILED)
        status = ngd_diag_set(diag, NGD_ERR_EVENT_FAILED,
                              "event \"%s\" will not be recorded: the replay that should record it ended with %s",
                              event->name, ngd_status_name(event->status));
    else if (event->state == EVENT_PENDING && atomic_load(&req->cancelled))
        status = NGD_ERR_CANCELLED;
    else if (event->state == EVENT_PENDING)
        *parked_p = true;
    if (*parked_p) {
        atomic_store_explicit(&req->state, NGD_REQUEST_WAITING_EVENT, memory_order_relaxed);
        ngd_list_push_back(&event->waiters, &req->event_link);
    } else {
        event_unref(event);
        req->waits = NULL;
    }
    ngd_mutex_unlock(&events->lock);
    return status;
}

bool ngd_session_event_unpark(struct ngd_request *req)
{
    bool waited;

    if (!req->in_events)
        return false;
    ngd_mutex_lock(&req->events->lock);
    waited = !ngd_list_empty(&req->event_link);
    ngd_list_remove(&req->event_link);
    ngd_mutex_unlock(&req->events->lock);
    return waited;
}

/* Moves the requests that waited for the record into `ready`. They are between two places then, and the caller's. */
static void let_waiters_go(struct ngd_session_event *event, struct ngd_list *ready)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(&event->waiters))) {
        struct ngd_request *req = ngd_container_of(l, struct ngd_request, event_link);

        atomic_store_explicit(&req->state, NGD_REQUEST_MOVING, memory_order_relaxed);
        ngd_list_push_back(ready, &req->ready_link);
    }
}

void ngd_session_event_leave(struct ngd_request *req, ngd_status_t status, struct ngd_list *ready)
{
    struct ngd_session_events *events = req->events;

    if (!req->in_events)
        return;
    ngd_mutex_lock(&events->lock);
    event_unref(req->waits);
    if (req->records) {
        req->records->state = status ? EVENT_FAILED : EVENT_DONE;
        req->records->status = status;
        let_waiters_go(req->records, ready);
        event_unref(req->records);
    }
    ngd_mutex_unlock(&events->lock);
    req->waits = req->records = NULL;
    req->in_events = false;
    events_unref(events);
}
