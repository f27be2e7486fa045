/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STARTUP_H
#define NGD_DAEMON_STARTUP_H

/* Starts the daemon's parts in order, and stops them in the reverse order. If a part fails to start, those before it
 * are stopped. Threads: the main thread. */
#include "base/status.h"

struct ngd_daemon;

ngd_status_t ngd_startup(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_shutdown(struct ngd_daemon *d);

#endif
