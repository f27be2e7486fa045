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
/* Adopts the descriptor of a lock that the daemon which is replaced holds too; take() of its path then succeeds. Takes
 * fd, also if it fails. */
ngd_status_t ngd_locks_adopt(struct ngd_locks *locks, const char *path, int fd);
void ngd_locks_sign(struct ngd_locks *locks); /* writes our pid into all of them */
/* Calls fn for each lock that is held. */
void ngd_locks_for_each(struct ngd_locks *locks, void (*fn)(void *ctx, const char *path, int fd), void *ctx);
/* Releases the lock of that path, if it is held. */
void ngd_locks_release(struct ngd_locks *locks, const char *path);

#endif
