/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_FILE_ID_H
#define NGD_BASE_FILE_ID_H

/*
 * Tells whether two looks at a file saw the same contents: same device, inode, size, and times of modification and of
 * change. The time of change (ctime) is the one that nobody can set back.
 *
 * The kernel's timestamps move in steps (4 ms, or 1 to 2 s on some file systems). A file that is written twice within a
 * step has the same time of change both times. So contents are only known by their id if they were read after the step
 * was over. A write gets its time of change when it begins: what a long write, or one through a shared mapping, does
 * later shows in no id, so it is asked for apart (ngd_file_is_written). Nothing shows writing to the device below.
 * Threads: any. Memory: values.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_file_id {
    uint64_t dev, ino, size;
    int64_t mtime, ctime; /* ns since 1970 */
};

/* Fills every byte, so that ids can be hashed and compared as bytes. IO when the file cannot be looked at. */
ngd_status_t ngd_file_identify(int fd, struct ngd_file_id *id, struct ngd_diag *diag);
bool ngd_file_id_equal(const struct ngd_file_id *a, const struct ngd_file_id *b);

#define NGD_FILE_SETTLE_MAX (2100 * NGD_MSEC)
/*
 * At the time `now` (CLOCK_REALTIME, ns since 1970): ns until the next change of the file is sure to have another time
 * of change; 0: it has from now on. More than NGD_FILE_SETTLE_MAX: the file's clock is ahead, and waiting is no use.
 */
ngd_nsec_t ngd_file_settles_in(const struct ngd_file_id *id, ngd_nsec_t now);
ngd_nsec_t ngd_file_clock(void); /* the clock of `now` above */

/*
 * True when somebody has the file open for writing, or mapped so: at this moment. `fd` is open for reading only. It is
 * known for files of this user, or with CAP_LEASE, on local file systems; elsewhere the answer is false.
 * The source: F_SETLEASE in fcntl(2). The process ignores SIGIO.
 */
bool ngd_file_is_written(int fd);

#endif
