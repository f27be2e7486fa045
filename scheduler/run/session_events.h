/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SESSION_EVENTS_H
#define NGD_SCHEDULER_RUN_SESSION_EVENTS_H

/*
 * Events between the logical streams of a session: a request may record one, under a name, when it ends, and another
 * one may wait for it before it begins.
 *
 * Which record a wait is for is decided at the submission of the waiting request: the latest one submitted so far. So a
 * wait is always for an earlier submission, and streams cannot wait for each other for ever; a name that nobody has
 * recorded is refused at once. When the recording request fails or is cancelled, those that wait for it fail with
 * EVENT_FAILED, and say why.
 *
 * Threads: any. Memory: what allocates is the first request that names an event; others pay nothing.
 * Bounds: NGD_SESSION_EVENTS_MAX names for each session. A name that is recorded again costs no more.
 */
#include "base/status.h"
#include <stddef.h>

#define NGD_SESSION_EVENTS_MAX     256
#define NGD_SESSION_EVENT_NAME_MAX 64

struct ngd_session_events;
struct ngd_session_event;

ngd_status_t ngd_session_events_create(struct ngd_session_events **events_p);
/* NULL is fine; requests that name it may still be under way. */
void ngd_session_events_destroy(struct ngd_session_events *events);

#endif
