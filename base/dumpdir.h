/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_DUMPDIR_H
#define NGD_BASE_DUMPDIR_H

/*
 * Directories that the daemon writes diagnostics into, below those that its configuration allows.
 *
 * A client names the directory, so its path is not trusted. It must lie below an allowed directory, without "..", and
 * no component below that one may be a link. Missing directories are made (0700). Each file is a new one (0600), never
 * written through a link and never over another file. Threads: any.
 * Bounds: `budget` bytes in all, and each payer's limit; beyond them RESOURCE_EXHAUSTED. The disk space of a file
 * counts, because small files and directories take far more of it than their bytes. Nothing reports that a file was
 * removed, so both bounds count what was written since the start.
 */
#include "base/charge.h"
#include "base/lock.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_DUMP_BLOCK 4096u /* bytes: a file counts in multiples of it, a directory counts as one */
#define NGD_DUMP_FILE  1024u /* bytes that each file counts in addition, an empty one too */

struct ngd_dump_writer;

struct ngd_dumps {
    struct ngd_mutex lock;
    const char *const *allowed NGD_GUARDED_BY(lock); /* absolute paths; borrowed */
    size_t n_allowed NGD_GUARDED_BY(lock);
    _Atomic uint64_t budget; /* bytes; 0 = no limit */
    _Atomic uint64_t written;
    _Atomic(struct ngd_dump_writer *) writers; /* what each payer has written */
};

/* allowed: borrowed until fini or the next set. */
void ngd_dumps_init(struct ngd_dumps *dumps, const char *const *allowed, size_t n_allowed, uint64_t budget);
/* Changes what is allowed from now on. Any thread; the former list is unused when this returns. */
void ngd_dumps_set(struct ngd_dumps *dumps, const char *const *allowed, size_t n_allowed, uint64_t budget);

/*
 * Opens the directory and makes it if it is missing. path: absolute and below an allowed directory, or relative to the
 * first of them. *fd_p: a descriptor that the caller closes. payer: pays for the directories that are made; NULL:
 * nobody. PERMISSION_DENIED: the path is not below an allowed directory, or leads through a link; the text says which.
 * RESOURCE_EXHAUSTED: a directory is missing, and the budget does not allow another one.
 */
ngd_status_t ngd_dumps_open(struct ngd_dumps *dumps, struct ngd_payer *payer, const char *path, int *fd_p,
                            struct ngd_diag *diag);
/* Checks the path against the directories that exist now, and makes nothing. Used when a graph is registered. */
ngd_status_t ngd_dumps_check(struct ngd_dumps *dumps, const char *path, struct ngd_diag *diag);
/* Writes one new file; a failure leaves no file. Bytes of name other than letters, digits, '.', '_' and '-' become '_'.
 * payer: NULL for nobody. */
ngd_status_t ngd_dumps_write(struct ngd_dumps *dumps, struct ngd_payer *payer, int dir, const char *name,
                             const void *data, size_t n, struct ngd_diag *diag);
/* Gives the payers back what they were charged. No other thread may use the dumps any more. */
void ngd_dumps_fini(struct ngd_dumps *dumps);

#endif
