/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SDNOTIFY_H
#define NGD_DAEMON_SDNOTIFY_H

/* Talks to systemd: readiness, watchdog, passed sockets. Everything is a no-op if systemd is not there, or support was
 * not compiled in. Threads: the loop. */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>

struct ngd_daemon;

/* Starts telling systemd's watchdog, if it is on, that the daemon lives, as long as `lives` returns true on the
 * loop. */
ngd_status_t ngd_sdnotify_start(struct ngd_daemon *d, bool (*lives)(const struct ngd_daemon *d));
void ngd_sdnotify_stop(struct ngd_daemon *d);
/* Returns WatchdogSec; 0: systemd's watchdog is off. */
ngd_nsec_t ngd_sdnotify_watchdog(void);
/*
 * For a daemon that replaces another one of the same unit. prepare_main: the watchdog that systemd set up for the old
 * process is ours; call it before any thread starts. main: tells systemd that this process is the unit's main one.
 */
void ngd_sdnotify_prepare_main(void);
void ngd_sdnotify_main(void);
void ngd_sdnotify_ready(const char *status_text);
void ngd_sdnotify_status(const char *status_text);
void ngd_sdnotify_stopping(const char *status_text);
/* Returns the number of passed sockets; *first_p is the first descriptor. They are close-on-exec. */
int ngd_sdnotify_listen_fds(int *first_p);

#endif
