/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_PATH_H
#define NGD_BASE_PATH_H

/*
 * Paths that a client names, and opening them below a directory that the operator allows.
 * Threads: any. Memory: nothing is allocated.
 */
#include <stdbool.h>

/* What of path lies below the directory, by their text, without slashes in front; "": the directory itself; NULL: path
 * is absolute and not below it. A relative path is below any directory. */
const char *ngd_path_below(const char *dir, const char *path);
/* Whether a component of the path is "..". */
bool ngd_path_has_parent(const char *path);
/*
 * Opens a relative path for reading, below the directory `dir` whatever links and races do; never blocks on a FIFO or a
 * device. -1 with errno: EXDEV or ELOOP if the path leads out. The kernel resolves it (openat2), and links that stay
 * below are followed. If the kernel cannot, or a filter of system calls forbids it, the path is walked component by
 * component, and no link and no ".." is followed. EAGAIN: files were renamed at each of many tries; that says nothing
 * about the path. The caller looks at what kind of file it got.
 */
int ngd_open_below(int dir, const char *path);

#endif
