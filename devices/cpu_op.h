/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_CPU_OP_H
#define NGD_DEVICES_CPU_OP_H

/*
 * One operator of a plan on the CPU, by the kernels of `host`: for backends whose device lacks it.
 *
 * Threads: any; a prepared one does not change and is run by its callers' own. Memory: of the caller's arena; a run
 * allocates nothing.
 */
#include "base/mem.h"
#include "devices/device.h"

struct ngd_cpu_op;

/* OP_UNSUPPORTED: there is no kernel that takes this call. */
ngd_status_t ngd_cpu_op_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_diag *diag);
/* *scratch_p: bytes, 64-byte aligned, that a run needs. */
ngd_status_t ngd_cpu_op_prepare(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_arena *arena,
                                const struct ngd_cpu_op **op_p, uint64_t *scratch_p, struct ngd_diag *diag);
/* ptrs: the call's operands (NULL: absent), then its results. An error is in launch->diag too. */
ngd_status_t ngd_cpu_op_run(const struct ngd_cpu_op *op, char **ptrs, char *scratch, struct ngd_launch *launch);

#endif
