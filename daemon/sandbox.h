/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SANDBOX_H
#define NGD_DAEMON_SANDBOX_H

/* Opens files that clients name, only below the configured directories. Links that lead out of them are not followed.
 * Threads: any. */
#include "base/config.h"

/*
 * Opens a regular file for reading. PATH_NOT_ALLOWED (also for a link that leads out), FILE_NOT_FOUND,
 * FILE_UNSUPPORTED, IO. An error of the machine, such as too few descriptors, is reported as such and says nothing
 * about the path.
 */
ngd_status_t ngd_sandbox_open(const struct ngd_config_list *dirs, const char *path, int *fd_p, struct ngd_diag *diag);
/* The same; *dir_p is the item of `dirs` below which the file is. */
ngd_status_t ngd_sandbox_find(const struct ngd_config_list *dirs, const char *path, int *fd_p, const char **dir_p,
                              struct ngd_diag *diag);

#endif
