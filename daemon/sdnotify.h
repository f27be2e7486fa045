/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SDNOTIFY_H
#define NGD_DAEMON_SDNOTIFY_H

/*
 * What systemd is told and what it gives: readiness, watchdog, passed sockets. Everything is a no-op when systemd is
 * not there, or support was not compiled in. Threads: the loop.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>

struct ngd_daemon;

/* Tells systemd that the daemon lives, if it wants to hear that and as long as `lives` says so, on the loop. */
ngd_status_t ngd_sdnotify_start(struct ngd_daemon *d, bool (*lives)(const struct ngd_daemon *d));
void ngd_sdnotify_stop(struct ngd_daemon *d);
/* WatchdogSec; 0: systemd wants none. */
ngd_nsec_t ngd_sdnotify_watchdog(void);
void ngd_sdnotify_ready(const char *status_text);
void ngd_sdnotify_stopping(const char *status_text);
/* Number of passed sockets; the first has descriptor *first_p. They are close-on-exec. */
int ngd_sdnotify_listen_fds(int *first_p);

#endif
