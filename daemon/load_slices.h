/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_SLICES_H
#define NGD_DAEMON_LOAD_SLICES_H

/*
 * Which tensors of a file a load wants, which slices of them, and where their bytes lie. Pure: reads no file.
 * Threads: any.
 */
#include "daemon/load.h"

/*
 * Fills load->tensors from load->index: what is named, or all, each with its shape and bytes. TENSOR_MISSING,
 * INVALID_ARGUMENT, NO_MEMORY.
 */
ngd_status_t ngd_load_choose(struct ngd_load *load, struct ngd_diag *diag);

/* A tensor, or its slice, in the file: so many runs of `bytes` each, one every `stride`, the first at `offset`. */
struct ngd_load_runs {
    uint64_t n, offset, bytes, stride;
};
struct ngd_load_runs ngd_load_runs(const struct ngd_loaded *t);

#endif
