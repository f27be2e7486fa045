/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_CPU_OP_H
#define NGD_DEVICES_CPU_OP_H

/*
 * Runs one operator of a plan on the CPU with the kernels of `host`, for backends whose device lacks the operator.
 *
 * Threads: any. A prepared operator does not change; it runs on the calling thread. Memory: comes from the caller's
 * arena; a run allocates nothing.
 */
#include "base/mem.h"
#include "devices/device.h"

struct ngd_cpu_op;

/* Checks whether a kernel takes this call; OP_UNSUPPORTED if none does. */
ngd_status_t ngd_cpu_op_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_diag *diag);
/* Prepares the call. *scratch_p gets the number of bytes of scratch, 64-byte aligned, that a run needs. */
ngd_status_t ngd_cpu_op_prepare(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_arena *arena,
                                const struct ngd_cpu_op **op_p, uint64_t *scratch_p, struct ngd_diag *diag);
/* Runs the operator. ptrs are the addresses of the call's operands (NULL: absent), then of its results. An error is
 * reported in launch->diag too. */
ngd_status_t ngd_cpu_op_run(const struct ngd_cpu_op *op, char **ptrs, char *scratch, struct ngd_launch *launch);

#endif
