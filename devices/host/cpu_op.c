/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels of the host for devices that are no CPUs: one call at a time, in one part. */
#include "devices/cpu_op.h"
#include "devices/host/cpu.h"
#include <inttypes.h>

struct ngd_cpu_op {
    struct ngd_host_call call; /* without addresses */
    const char *name;
};

static ngd_status_t select_kernel(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint64_t *scratch_p,
                                  struct ngd_diag *diag)
{
    uint32_t strided;

    return ngd_host_kernel_of(call->op->id)->select(plan, call, 1, &strided, scratch_p, diag);
}

ngd_status_t ngd_cpu_op_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_diag *diag)
{
    uint64_t scratch;

    return select_kernel(plan, call, &scratch, diag);
}

ngd_status_t ngd_cpu_op_prepare(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_arena *arena,
                                const struct ngd_cpu_op **op_p, uint64_t *scratch_p, struct ngd_diag *diag)
{
    struct ngd_host_prepare p = {
        .plan = plan, .call = call, .isa = ngd_cpu_isa(), .threads = 1, .arena = arena, .row_tensor = call->out[0]};
    const struct ngd_plan_tensor *t = &plan->tensors[call->out[0]];
    struct ngd_cpu_op *op;
    uint64_t scratch = 0;
    ngd_status_t status = select_kernel(plan, call, &scratch, diag);

    if (status == NGD_OK)
        status = ngd_host_kernel_of(call->op->id)->prepare(&p, diag);
    if (status)
        return status;
    op = ngd_arena_calloc(arena, 1, sizeof(*op));
    if (!op)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    op->name = call->op->name;
    op->call = (struct ngd_host_call){.fn = p.fn,
                                      .params = p.params,
                                      .n_in = (uint16_t)call->n_in,
                                      .n_out = (uint16_t)call->n_out,
                                      .n_ptrs = call->n_in + call->n_out,
                                      .node = call->node,
                                      .shared = 1,
                                      .rows = t->rank ? t->dims[0] : 1,
                                      .row_sym = t->row_sym,
                                      .row_mult = t->row_mult};
    *op_p = op;
    *scratch_p = scratch;
    return NGD_OK;
}

ngd_status_t ngd_cpu_op_run(const struct ngd_cpu_op *op, char **ptrs, char *scratch, struct ngd_launch *launch)
{
    struct ngd_host_call call = op->call;
    struct ngd_host_run run = {.symbols = launch->symbols, .hosts = launch->hosts};
    ngd_status_t status;

    call.ptrs = ptrs;
    call.workspace = scratch;
    call.fn(&call, &run, 0, 1);
    status = (ngd_status_t)atomic_load(&run.error);
    if (status)
        ngd_diag_set(&launch->diag, status, "node %u (%s): %s (%" PRId64 ")", call.node, op->name,
                     ngd_status_text(status), atomic_load(&run.error_value));
    return status;
}
