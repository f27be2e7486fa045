/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_WATCHDOG_H
#define NGD_DAEMON_WATCHDOG_H

/*
 * Checks that every thread that serves still responds. /readyz, grpc.health.v1 and systemd's watchdog ask for the
 * result.
 *
 * Every two seconds, or a quarter of the bound, the loop asks the receiving threads, the front and the expiry thread to
 * answer from their own loops. It also makes a call to the daemon itself, over a connection like a client's: a thread
 * that is stuck inside gRPC reads no more calls, even if events still reach it. A thread that does not answer within
 * the bound hangs.
 *
 * The bound is ten seconds, or WatchdogSec if that is less. A client's request takes one of these threads far less
 * time: decoding a message of max-message bytes, a replay within inline-limit, a walk over as many ids as a message
 * holds. Time in which the loop itself did not run does not count.
 *
 * A replay that runs for three bounds beyond max-replay-time hangs too, and /readyz says so. systemd's watchdog is
 * still told that the daemon lives: some kernels cannot be stopped, and a client must not be able to end the daemon
 * with one. Job, load, capture and compile threads are not asked: their work has no bound.
 *
 * Threads: the loop.
 */
#include "base/status.h"
#include <stdbool.h>

struct ngd_daemon;

ngd_status_t ngd_watchdog_start(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_watchdog_stop(struct ngd_daemon *d);
/* True if each thread that serves answers. */
bool ngd_watchdog_threads_answer(const struct ngd_daemon *d);
/* Returns what hangs and since when, in words; NULL: nothing. Valid until the loop goes on. */
const char *ngd_watchdog_why(const struct ngd_daemon *d);

#endif
