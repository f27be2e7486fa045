/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TIMEOUTS_H
#define NGD_DAEMON_TIMEOUTS_H

/*
 * Deadlines of work that has no other timer: the loop looks at them every tenth of a second. Replays have the
 * scheduler's expiry thread, which is exact.
 *
 * Threads: any. Memory: the owner embeds a timeout in an object that it counts. While the timeout is in the list, the
 * object must have a reference; fire() gets one of its own.
 */
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include <stdbool.h>

struct ngd_timeout {
    struct ngd_list link;
    ngd_nsec_t at;
    bool over;                                 /* it was removed, or has fired; under the list's lock */
    void (*hold)(struct ngd_timeout *timeout); /* takes a reference on the object; under the lock */
    void (*fire)(struct ngd_timeout *timeout); /* the time has come; drops that reference. Without a lock */
};

struct ngd_timeouts {
    struct ngd_mutex lock;
    struct ngd_list all NGD_GUARDED_BY(lock);
};

void ngd_timeouts_init(struct ngd_timeouts *all);
void ngd_timeouts_fini(struct ngd_timeouts *all); /* there is none */
/* Adds a timeout, unless it was removed already. Its fields are set, and its link is initialised. */
void ngd_timeouts_add(struct ngd_timeouts *all, struct ngd_timeout *timeout);
void ngd_timeouts_remove(struct ngd_timeouts *all, struct ngd_timeout *timeout); /* also one that was never added */
void ngd_timeouts_run(struct ngd_timeouts *all, ngd_nsec_t now);

#endif
