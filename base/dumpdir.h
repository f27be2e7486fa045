/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_DUMPDIR_H
#define NGD_BASE_DUMPDIR_H

/*
 * Directories that the daemon writes diagnostics into, below those that its configuration allows.
 *
 * A client names the directory, so nothing of its path is trusted: it has to lie below an allowed one, without "..",
 * and no component below that may be a link; directories that are missing are made (0700). Files are new ones (0600),
 * never written through a link and never over another. Threads: any. Bounds: `budget` bytes in all, and what each payer
 * allows, then RESOURCE_EXHAUSTED. What counts is what the disk gives: small files and directories cost far more than
 * their bytes. Nobody tells when a file is removed, so both count what was written since the start.
 */
#include "base/charge.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_DUMP_BLOCK 4096u /* bytes that a file's bytes are rounded up to, and that a directory counts */
#define NGD_DUMP_FILE  1024u /* bytes that each file counts besides, also an empty one */

struct ngd_dump_writer;

struct ngd_dumps {
    const char *const *allowed; /* absolute paths; borrowed */
    size_t n_allowed;
    uint64_t budget; /* bytes; 0 = no limit */
    _Atomic uint64_t written;
    _Atomic(struct ngd_dump_writer *) writers; /* what each payer has written */
};

/*
 * Opens (and makes) the directory. path: absolute and below an allowed one, or relative to the first. *fd_p is a
 * descriptor to close. payer: of the directories that are made; NULL for nobody. PERMISSION_DENIED: not below what is
 * allowed, or through a link; CONFIG-like refusals say which. RESOURCE_EXHAUSTED: a directory is missing, and there is
 * no budget for it.
 */
ngd_status_t ngd_dumps_open(struct ngd_dumps *dumps, struct ngd_payer *payer, const char *path, int *fd_p,
                            struct ngd_diag *diag);
/* The check alone, of what is there now: for registrations, before anything is made. */
ngd_status_t ngd_dumps_check(const struct ngd_dumps *dumps, const char *path, struct ngd_diag *diag);
/* One new file, or none; bytes of name other than letters, digits, '.', '_' and '-' become '_'. payer: NULL for nobody.
 */
ngd_status_t ngd_dumps_write(struct ngd_dumps *dumps, struct ngd_payer *payer, int dir, const char *name,
                             const void *data, size_t n, struct ngd_diag *diag);
/* Gives payers back what they were charged. No other thread uses the dumps any more. */
void ngd_dumps_fini(struct ngd_dumps *dumps);

#endif
