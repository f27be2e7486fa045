/* SPDX-License-Identifier: Apache-2.0 */
/* The `ascend` backend: the tables of backend.h. */
#include "devices/ascend/facts.h"
#include "devices/ascend/group_span.h"
#include "devices/ascend/issue.h"

/* Whether CANN is there is said by open(), with the reason. */
static int probe_cann(void)
{
    return 1;
}

static ngd_status_t ascend_select(void *dev_v, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ascend_op *op = ngd_ascend_op_of(call->op->id);
    struct ascend_device *dev = dev_v;
    struct ngd_diag why = {0};
    uint64_t nz = 0;
    ngd_status_t status;

    *strided_p = 0;
    *workspace_p = 0;
    if (ngd_ascend_is_tail(call))
        return ngd_ascend_select_tail(plan, call, diag);
    status = ngd_ascend_facts_check(dev, plan, call, diag);
    if (status)
        return status;
    if (op && op->strided)
        *strided_p = UINT32_MAX;
    status = ngd_ascend_measure(dev, plan, call, workspace_p, diag);
    /* Whether CANN takes the weight in NZ is asked again for the executable; here it is about the workspace. */
    if (status == NGD_OK && dev->nz.on && ngd_ascend_nz_fits(plan, call) &&
        ngd_ascend_measure_nz(dev, plan, call, &nz, &why) == NGD_OK && nz > *workspace_p)
        *workspace_p = nz;
    return status;
}

extern const struct ngd_backend ngd_backend_ascend;
const struct ngd_backend ngd_backend_ascend = {
    .api = NGD_BACKEND_API,
    .name = "ascend",
    .lifecycle = {.probe = probe_cann,
                  .open = ngd_ascend_open,
                  .count = ngd_ascend_nz_count,
                  .close = ngd_ascend_close,
                  .describe = ngd_ascend_describe,
                  .doctor = ngd_ascend_doctor,
                  .ask = ngd_ascend_probe},
    .memory = {.alloc = ngd_ascend_alloc,
               .free = ngd_ascend_free,
               .write = ngd_ascend_write,
               .read = ngd_ascend_read,
               .grow = ngd_ascend_grow},
    .code =
        {
            .select = ascend_select,
            .instantiate = ngd_ascend_instantiate,
            .destroy = ngd_ascend_destroy,
            .note = ngd_ascend_note,
            .bind = ngd_ascend_bind,
            .unbind = ngd_ascend_unbind,
        },
    .stream = NGD_SERIAL_STREAM(ngd_ascend_stream_create),
    .comm =
        {
            .create = ngd_ascend_comm_create,
            .root = ngd_ascend_root,
            .join = ngd_ascend_comm_join,
            .destroy = ngd_ascend_comm_destroy,
            .abort = ngd_ascend_comm_abort,
            .status = ngd_ascend_comm_status,
            .reset = ngd_ascend_comm_reset,
        },
    .telemetry = {.numbers = ngd_ascend_telemetry_numbers,
                  .open = ngd_ascend_telemetry_open,
                  .sample = ngd_ascend_telemetry_sample,
                  .close = ngd_ascend_telemetry_close},
};
