/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STOP_GUARD_H
#define NGD_DAEMON_STOP_GUARD_H

/*
 * Bounds the time in which the daemon stops.
 *
 * Why: parts stop by waiting for their threads, and a thread may be inside a kernel that never returns. The supervisor
 * should learn which part that is, and get the process back, before it has to kill it.
 *
 * Threads: one of its own, from start to stop. It touches only memory that no stopping part frees before its threads
 * have ended.
 */
#include "base/clock.h"
#include "base/status.h"

struct ngd_daemon;
struct ngd_stop_guard;

/* Gives the process `limit` to stop. After that, the guard logs what is stuck and exits with `exit_code` at once. */
ngd_status_t ngd_stop_guard_start(struct ngd_daemon *d, ngd_nsec_t limit, int exit_code,
                                  struct ngd_stop_guard **guard_p);
/* Notes the part that is being stopped, a string constant. */
void ngd_stop_guard_at(struct ngd_stop_guard *guard, const char *part); /* guard may be NULL */
void ngd_stop_guard_stop(struct ngd_stop_guard *guard);                 /* NULL is fine */

#endif
