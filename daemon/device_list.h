/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_DEVICE_LIST_H
#define NGD_DAEMON_DEVICE_LIST_H

/*
 * Opens the devices that the options name. Keeps those that opened, in their order, and those that were refused, with
 * the reason. Threads: like the daemon's other parts; refused devices stay until the stop.
 */
#include "daemon/daemon.h"
#include "devices/device.h"

struct ngd_refused_device {
    char name[48]; /* "ascend:0", even if the option has another form */
    char backend[32];
    struct ngd_device_params params; /* for another attempt */
    struct ngd_diag why;
};

/* Fails only if no device opens. */
ngd_status_t ngd_device_list_start(struct ngd_daemon *d, struct ngd_diag *diag);
/* The first device of the options. NULL: there is none, which diag says. */
const char *ngd_device_list_first(const struct ngd_daemon *d, struct ngd_diag *diag);
/* Parses "host" or "host:1". Writes the backend's name to `backend`, which params borrow. */
ngd_status_t ngd_device_list_parse(const struct ngd_daemon *d, const char *text, char backend[static 32],
                                   struct ngd_device_params *params_p, struct ngd_diag *diag);
void ngd_device_list_stop(struct ngd_daemon *d);
/* Returns NULL if no device of that name was refused. */
const struct ngd_refused_device *ngd_device_list_find_refused(const struct ngd_daemon *d, const char *name);

#endif
