/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_TRUSTED_FILE_H
#define NGD_BASE_TRUSTED_FILE_H

/*
 * Files of the operator that say whom the daemon believes: hashes of tokens, keys of issuers. Whoever could write one
 * could be anybody, so its owner and mode are checked. Threads: any.
 */
#include "base/status.h"

typedef enum ngd_trusted_kind {
    NGD_TRUSTED_SECRET, /* only the owner may write, and only the owner's group may read it too */
    NGD_TRUSTED_PUBLIC, /* only the owner may write it; everybody may read it */
} ngd_trusted_kind_t;

/*
 * Reads a whole file. CONFIG: it cannot be read, is not a regular file, is larger than max_bytes, changed meanwhile,
 * belongs to another user than root and this one, or has a mode that its kind forbids. The text is terminated; the
 * caller frees *text_p with ngd_free.
 */
ngd_status_t ngd_trusted_file_read(const char *path, ngd_trusted_kind_t kind, size_t max_bytes, char **text_p,
                                   size_t *n_p, struct ngd_diag *diag);

#endif
