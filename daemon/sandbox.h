/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SANDBOX_H
#define NGD_DAEMON_SANDBOX_H

/*
 * Opens files that clients name: below the configured directories only, without following links out of them.
 * Threads: any.
 */
#include "base/config.h"

/*
 * A regular file, for reading. PATH_NOT_ALLOWED, also for a link that leads out; FILE_NOT_FOUND, FILE_UNSUPPORTED, IO;
 * the machine's trouble, which says nothing of the path.
 */
ngd_status_t ngd_sandbox_open(const struct ngd_config_list *dirs, const char *path, int *fd_p, struct ngd_diag *diag);

#endif
