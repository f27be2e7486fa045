/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_DEPART_H
#define NGD_DAEMON_HANDOVER_DEPART_H

/*
 * Sessions that leave for the next daemon (docs/decisions/0060): those that asked for it are frozen and described, with
 * the contents of their buffers and the keys and values of their sequences. A session that does not become quiet soon,
 * or has something that cannot move, stays: it is thawed, and the log says why.
 *
 * Threads: any; one at a time. Bounds: NGD_DEPART_SESSIONS, NGD_DEPART_BYTES, NGD_DEPART_WAIT for all together. What is
 * beyond them stays.
 */
#include "base/clock.h"
#include "daemon/handover/describe.h"
#include "daemon/handover/pause.h"
#include <stddef.h>

struct ngd_session;

#define NGD_DEPART_SESSIONS 4096
#define NGD_DEPART_BYTES    ((uint64_t)256 << 20)
#define NGD_DEPART_WAIT     (100 * NGD_MSEC) /* for calls that are under way */

struct ngd_departure {
    struct ngd_description record;
    struct ngd_session **sessions; /* references; as in the record */
    size_t n;
    struct ngd_pause pause; /* up to NGD_PAUSE_DESCRIBE */
};

/* Freezes and describes. Without a session that can move, *departure_p is empty. began: the handover has stopped to
 * accept. */
void ngd_depart(struct ngd_daemon *d, ngd_nsec_t began, struct ngd_departure *departure_p);
/* The next daemon has these sessions: the others are thawed. */
void ngd_departure_commit(struct ngd_departure *departure, const uint64_t *taken, size_t n);
/* The next daemon does not give them back any more. */
void ngd_departure_let_go(const struct ngd_departure *departure);
/* Thaws all, also those that have moved, but for those that the next daemon has served: they have ended here. */
void ngd_departure_undo(struct ngd_departure *departure);
void ngd_departure_fini(struct ngd_departure *departure); /* may be zeroed or finished */

#endif
