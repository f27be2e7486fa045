/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_DRAIN_H
#define NGD_DAEMON_DRAIN_H

/*
 * Stops the daemon in order: it reports not ready, finishes what runs, then stops.
 *
 *   SERVING --begin--> DRAINING --(no work left, or grace over)--> end streams --(all calls over, or 1 s)--> loop stops
 *
 * While draining, calls that read, free and close are served. Calls that bring new work are refused with DRAINING.
 * Threads: begin from any; the rest on the loop.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_drain;

ngd_status_t ngd_drain_create(struct ngd_daemon *d, struct ngd_drain **drain_p);
void ngd_drain_destroy(struct ngd_drain *drain); /* NULL is fine */
/* Begins a drain. grace 0: the option drain-grace. stay: the process goes on, and refuses work. A second begin without
 * stay can shorten the grace. */
void ngd_drain_begin(struct ngd_drain *drain, ngd_nsec_t grace, bool stay);

/*
 * Lets another daemon, which has taken over the sockets, serve new clients:
 *
 *   SERVING --yield--> (sessions end; new work of theirs is served) --the last one has ended--> end streams, as above
 *                           |                       |
 *                           +--resume--> SERVING    +--drain-grace is over--> DRAINING
 *
 * Both on the loop. yield: DRAINING, the daemon drains already. resume: the other one is gone, and this one serves as
 * before; false: it drains, and does not come back.
 */
ngd_status_t ngd_drain_yield(struct ngd_drain *drain);
bool ngd_drain_resume(struct ngd_drain *drain);

#endif
