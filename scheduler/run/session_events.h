/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SESSION_EVENTS_H
#define NGD_SCHEDULER_RUN_SESSION_EVENTS_H

/*
 * Events between the logical streams of a session. A request may record an event, by name, when it ends. Another
 * request may wait for the event before it begins.
 *
 * A wait is for the latest record that was submitted before the waiting request. So a request waits only for earlier
 * submissions, and streams cannot wait for each other forever. A name that has no record is refused at once. If the
 * recording request fails or is cancelled, the requests that wait for the record fail with EVENT_FAILED and say why.
 *
 * Threads: any. Memory: allocated by the first request that names an event; other sessions pay nothing. Bounds:
 * NGD_SESSION_EVENTS_MAX names for each session. Recording a name again takes no more memory.
 */
#include "base/status.h"
#include <stddef.h>

#define NGD_SESSION_EVENTS_MAX     256
#define NGD_SESSION_EVENT_NAME_MAX 64

struct ngd_session_events;
struct ngd_session_event;

ngd_status_t ngd_session_events_create(struct ngd_session_events **events_p);
/* NULL is fine. Requests that use it may still be under way. */
void ngd_session_events_destroy(struct ngd_session_events *events);

#endif
