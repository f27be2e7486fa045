/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STARTUP_H
#define NGD_DAEMON_STARTUP_H

/*
 * The parts of the daemon in the order in which they start; they stop in the reverse order. A part that fails to start
 * stops those before it. Threads: the main thread.
 */
#include "base/status.h"

struct ngd_daemon;

ngd_status_t ngd_startup(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_shutdown(struct ngd_daemon *d);

#endif
