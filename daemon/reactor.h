/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_REACTOR_H
#define NGD_DAEMON_REACTOR_H

/*
 * An event loop: timers, descriptors and posted messages. The loop of the daemon is on the main thread and takes
 * signals; the local socket has another one.
 *
 * Threads: everything on the loop's thread, except ngd_reactor_post and ngd_reactor_stop (any thread).
 * Memory: watches and timers belong to the reactor until removed; destroy drops messages that were not run.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>

struct event_base;
struct ngd_reactor;
struct ngd_reactor_watch;
typedef void (*ngd_reactor_fn)(void *arg);

/* with_signals: blocks the signals that the loop takes; call it before any thread starts. */
ngd_status_t ngd_reactor_create(bool with_signals, struct ngd_reactor **reactor_p);
void ngd_reactor_destroy(struct ngd_reactor *reactor); /* NULL is fine */
void ngd_reactor_run(struct ngd_reactor *reactor);     /* until stop */
void ngd_reactor_stop(struct ngd_reactor *reactor);

/* Runs fn on the loop, in the order of posting. NO_MEMORY: it will not run. */
ngd_status_t ngd_reactor_post(struct ngd_reactor *reactor, ngd_reactor_fn fn, void *arg);

/* True if SIGTERM or SIGINT has come, and the loop has not taken it: for what blocks before the loop runs. */
bool ngd_reactor_stop_asked(void);
/* Sets fn, which runs on the loop for SIGTERM, SIGINT (drain) and SIGHUP (reload). */
void ngd_reactor_on_signal(struct ngd_reactor *reactor, void (*fn)(void *arg, int signo), void *arg);

/* Runs fn while fd is readable. fd stays the caller's. */
ngd_status_t ngd_reactor_watch_fd(struct ngd_reactor *reactor, int fd, ngd_reactor_fn fn, void *arg,
                                  struct ngd_reactor_watch **watch_p);
/* Runs fn every `interval`, for the first time after one interval. */
ngd_status_t ngd_reactor_every(struct ngd_reactor *reactor, ngd_nsec_t interval, ngd_reactor_fn fn, void *arg,
                               struct ngd_reactor_watch **watch_p);
/* Silences the watch of a descriptor for a while; for accept when no descriptor is free. */
void ngd_reactor_pause(struct ngd_reactor_watch *watch, ngd_nsec_t time);
void ngd_reactor_remove(struct ngd_reactor_watch *watch); /* NULL is fine */

/* For the HTTP endpoint, the other user of libevent. */
struct event_base *ngd_reactor_base(struct ngd_reactor *reactor);

#endif
