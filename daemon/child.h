/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CHILD_H
#define NGD_DAEMON_CHILD_H

/*
 * A program that the daemon runs beside itself, and whose last words it keeps. The program has a process group of its
 * own, no signal of the daemon's is blocked or ignored in it, and none of the daemon's descriptors is open.
 *
 * Threads: one owner. Bounds: NGD_CHILD_TAIL bytes of what it writes.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NGD_CHILD_TAIL 1024

struct ngd_child {
    pid_t pid; /* 0: none runs */
    int fd;    /* its standard error */
    size_t n;
    char tail[NGD_CHILD_TAIL]; /* the end of what it wrote there */
};

/* Runs argv[0], a path, with this environment. After an error nothing runs. */
ngd_status_t ngd_child_start(struct ngd_child *child, char *const *argv, char *const *env, struct ngd_diag *diag);
/* Reads what it wrote, without waiting. True: it has ended, and *status_p is that of waitpid. */
bool ngd_child_ended(struct ngd_child *child, int *status_p);
/* Kills it and its group, if it runs. A process that waits for a disk may live on for a while: ngd_child_ended tells.
 */
void ngd_child_kill(struct ngd_child *child);
/* Kills it, and forgets it. */
void ngd_child_fini(struct ngd_child *child);
/* Copies the last line that it wrote, as printable UTF-8; empty if there is none. */
void ngd_child_last_line(const struct ngd_child *child, char *line, size_t room);

#endif
