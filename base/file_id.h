/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_FILE_ID_H
#define NGD_BASE_FILE_ID_H

/*
 * Identifies a file's contents by device, inode, size, and times of modification and of change. Two equal ids mean the
 * same contents. The time of change (ctime) cannot be set back by anybody.
 *
 * The kernel's timestamps move in steps (4 ms, or 1 to 2 s on some file systems). A file that is written twice within a
 * step has the same time of change both times. So an id identifies only contents that were read after the step was
 * over. A write gets its time of change when it begins. The later part of a long write, or of one through a shared
 * mapping, does not show in an id; ngd_file_is_written finds such writers. Writes to the device below show nowhere.
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

/* Fills every byte, so that ids can be hashed and compared as bytes. IO: fstat failed. */
ngd_status_t ngd_file_identify(int fd, struct ngd_file_id *id, struct ngd_diag *diag);
bool ngd_file_id_equal(const struct ngd_file_id *a, const struct ngd_file_id *b);

#define NGD_FILE_SETTLE_MAX (2100 * NGD_MSEC)
/*
 * Returns the ns from `now` (CLOCK_REALTIME, ns since 1970) until any further change of the file is certain to have
 * another time of change; 0: this is certain now. More than NGD_FILE_SETTLE_MAX: the file's clock is ahead, and waiting
 * does not help.
 */
ngd_nsec_t ngd_file_settles_in(const struct ngd_file_id *id, ngd_nsec_t now);
ngd_nsec_t ngd_file_clock(void); /* ns since 1970: the clock for `now` above */

/*
 * Returns true if some process has the file open for writing now, or has a writable shared mapping of it. `fd` is open
 * for reading only. The answer is known for files of this user, or with CAP_LEASE, on local file systems; elsewhere it
 * is false. Uses F_SETLEASE of fcntl(2); the process ignores SIGIO.
 */
bool ngd_file_is_written(int fd);

#endif
