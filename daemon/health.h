/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HEALTH_H
#define NGD_DAEMON_HEALTH_H

/*
 * Who wants to hear when the daemon begins or ceases to serve (grpc.health.v1 does: handlers/health.c).
 *
 * Threads: any. Memory: a watcher is its owner's, from watch to unwatch.
 */
#include "base/list.h"
#include "base/status.h"

struct ngd_health;

struct ngd_health_watcher {
    /* Looks at the state and tells it. Called under the lock, so that a change cannot overtake one before it. */
    void (*tell)(struct ngd_health_watcher *watcher);
    struct ngd_list link;
};

ngd_status_t ngd_health_create(struct ngd_health **health_p);
void ngd_health_destroy(struct ngd_health *health); /* nobody watches any more; NULL is fine */
/* Tells the watcher at once, and at each change. */
void ngd_health_watch(struct ngd_health *health, struct ngd_health_watcher *watcher);
void ngd_health_unwatch(struct ngd_health *health, struct ngd_health_watcher *watcher);
/* The daemon's state has changed: tells the watchers. NULL is fine. */
void ngd_health_changed(struct ngd_health *health);

#endif
