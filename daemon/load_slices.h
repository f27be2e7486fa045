/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_SLICES_H
#define NGD_DAEMON_LOAD_SLICES_H

/* Chooses the tensors of a file that a load wants, with their slices, and computes where their bytes are. Pure: reads
 * no file. Threads: any. */
#include "daemon/load.h"

/* Fills load->tensors from load->index: the named tensors, or all, each with its shape and bytes. TENSOR_MISSING,
 * INVALID_ARGUMENT, NO_MEMORY. */
ngd_status_t ngd_load_choose(struct ngd_load *load, struct ngd_diag *diag);

/* The bytes of a tensor, or of its slice, in the file: n runs of `bytes` each, one every `stride`, the first at
 * `offset`. Of a plane (daemon/gguf.h): as if the plane lay at the tensor's offset, without the blocks. */
struct ngd_load_runs {
    uint64_t n, offset, bytes, stride;
};
struct ngd_load_runs ngd_load_runs(const struct ngd_loaded *t);

#endif
