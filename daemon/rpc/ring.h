/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RING_H
#define NGD_DAEMON_RPC_RING_H

/*
 * Rings: replays and steps of clients on the same machine by shared memory (base/ring.h). A lane is a call of
 * ReplayStream or StepStream, as far as its handler sees, with the same messages, checks and errors.
 *
 * Threads: one of its own takes the requests of all rings, and runs what a receiving thread would run. It looks for
 * more for a while before it sleeps, as long as that was worth it; rings that have been silent since are not looked at,
 * but have an eventfd. The other functions may be called from any thread. Memory: a ring lives until its last request
 * has ended. Bounds: NGD_RINGS_MAX, of them NGD_RINGS_EACH of an identity; the memory is charged to host_bytes.
 */
#include "base/beat.h"
#include "base/status.h"

struct ngd_daemon;
struct ngd_ring;
struct ngd_rings;
struct ngd_session;

#define NGD_RINGS_MAX  256
#define NGD_RINGS_EACH 64

ngd_status_t ngd_rings_create(struct ngd_daemon *d, struct ngd_rings **rings_p);
ngd_status_t ngd_rings_start(struct ngd_rings *rings);
/* Ends all rings and waits until their requests have ended. */
void ngd_rings_stop(struct ngd_rings *rings);
void ngd_rings_destroy(struct ngd_rings *rings); /* NULL is fine */
void ngd_rings_ask(struct ngd_rings *rings);     /* for the watchdog */
const struct ngd_beat *ngd_rings_beat(const struct ngd_rings *rings);

/* Opens a ring of the session, whose reference it takes, also if it fails. *ring_p is a reference; fds: descriptors of
 * the memory and of the eventfd, which the caller closes. */
ngd_status_t ngd_ring_open(struct ngd_rings *rings, struct ngd_session *session, struct ngd_ring **ring_p, int fds[2],
                           struct ngd_diag *diag);
/* Ends the ring, since its client is gone, and drops the reference. */
void ngd_ring_close(struct ngd_ring *ring);

#endif
