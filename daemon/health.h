/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HEALTH_H
#define NGD_DAEMON_HEALTH_H

/*
 * Tells watchers when the daemon begins or ceases to serve (grpc.health.v1 watches: handlers/health.c).
 *
 * Threads: any. Memory: a watcher belongs to its owner, who keeps it from watch to unwatch.
 */
#include "base/list.h"
#include "base/status.h"

struct ngd_health;

struct ngd_health_watcher {
    /* Reads the state and reports it. Called under the lock, so that an older state cannot overtake a newer one. */
    void (*tell)(struct ngd_health_watcher *watcher);
    struct ngd_list link;
};

ngd_status_t ngd_health_create(struct ngd_health **health_p);
void ngd_health_destroy(struct ngd_health *health); /* no watcher may be left; NULL is fine */
/* Tells the watcher now and at each change. */
void ngd_health_watch(struct ngd_health *health, struct ngd_health_watcher *watcher);
void ngd_health_unwatch(struct ngd_health *health, struct ngd_health_watcher *watcher);
/* Tells the watchers that the daemon's state has changed. NULL is fine. */
void ngd_health_changed(struct ngd_health *health);

#endif
