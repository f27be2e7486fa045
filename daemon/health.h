/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HEALTH_H
#define NGD_DAEMON_HEALTH_H

/* grpc.health.v1: the daemon and each of its services serve while its state is SERVING. Threads: any. */
#include "base/status.h"

struct ngd_daemon;
struct ngd_health;

ngd_status_t ngd_health_create(struct ngd_daemon *d, struct ngd_health **health_p);
void ngd_health_destroy(struct ngd_health *health); /* every Watch must be over; NULL is fine */
/* Tells the watchers; the daemon's state has changed. */
void ngd_health_changed(struct ngd_health *health);

#endif
