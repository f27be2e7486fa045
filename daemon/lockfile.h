/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOCKFILE_H
#define NGD_DAEMON_LOCKFILE_H

/*
 * Locks that keep a second daemon away from a socket. A lock is flock(2) on a file that stays when we go: removing it
 * would let two daemons lock two files of one name. The file holds our pid, for people.
 * Threads: one owner.
 */
#include "base/status.h"

struct ngd_locks;

ngd_status_t ngd_locks_create(struct ngd_locks **locks_p);
void ngd_locks_destroy(struct ngd_locks *locks); /* gives the locks up; NULL is fine */
/* BUSY: another daemon holds it; the diagnosis says which. */
ngd_status_t ngd_locks_take(struct ngd_locks *locks, const char *path, struct ngd_diag *diag);

#endif
