/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOCKFILE_H
#define NGD_DAEMON_LOCKFILE_H

/*
 * Locks that keep a second daemon away from a socket. A lock is flock(2) on a file. The file stays when the daemon
 * ends: removing it would let two daemons lock two files of one name. It holds the daemon's pid, for people.
 *
 * Threads: one owner.
 */
#include "base/status.h"

struct ngd_locks;

ngd_status_t ngd_locks_create(struct ngd_locks **locks_p);
void ngd_locks_destroy(struct ngd_locks *locks); /* releases the locks; NULL is fine */
/* BUSY: another daemon holds the lock; the diagnosis says which. */
ngd_status_t ngd_locks_take(struct ngd_locks *locks, const char *path, struct ngd_diag *diag);
/* Releases the lock of that path, if it is held. */
void ngd_locks_release(struct ngd_locks *locks, const char *path);

#endif
