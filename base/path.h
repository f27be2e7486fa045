/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_PATH_H
#define NGD_BASE_PATH_H

/*
 * Paths that a client names, and opening them below a directory that the operator allows.
 * Threads: any. Memory: nothing is allocated.
 */
#include <stdbool.h>

/* Returns the part of path that lies below dir, without leading slashes. Compares texts only. "": path is dir itself;
 * NULL: path is absolute and not below dir. A relative path is below any directory. */
const char *ngd_path_below(const char *dir, const char *path);
/* Returns true if a component of the path is "..". */
bool ngd_path_has_parent(const char *path);
/*
 * Opens a relative path for reading. The file lies below the directory `dir`, in spite of links and races. Never blocks
 * on a FIFO or a device. Returns -1 with errno on failure; EXDEV or ELOOP: the path leads out of dir.
 * The kernel resolves the path (openat2) and follows links that stay below dir. If the kernel has no openat2, or a
 * filter of system calls forbids it, the path is walked component by component, and no link and no ".." is followed.
 * EAGAIN: files were renamed during each of many tries; that says nothing about the path. The caller checks what kind
 * of file it got.
 */
int ngd_open_below(int dir, const char *path);

#endif
