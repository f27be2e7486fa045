/* SPDX-License-Identifier: Apache-2.0 */
/* aten._softmax and aten._log_softmax along any dimension. */
#include "devices/host/kernels/k_softmax.h"
#include "base/mem.h"
#include "devices/host/kernels/axis.h"

struct softmax_params {
    struct ngd_nd rows; /* if the axis is last: lines are rows of any outer strides */
    struct ngd_axis axis;
    ngd_softmax_fn line;
    ngd_softmax_lines_fn lines;
    int64_t x_bytes, y_bytes; /* of an outer index */
    bool log;
};

static void run_softmax_lines(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct softmax_params *s = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, s->axis.outer, s->axis.outer_per_row, 1, part, parts, &begin, &end))
        return;
    for (int64_t o = begin; o < end; o++)
        s->lines(call->ptrs[0] + o * s->x_bytes, call->ptrs[1] + o * s->y_bytes, s->axis.n, s->axis.inner, s->log);
}

static void run_softmax_rows(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct softmax_params *s = call->params;
    const int64_t step = s->rows.step[0][s->rows.rank - 1];
    int64_t begin, end;
    struct ngd_nd_it it;
    char *y;

    if (!ngd_nd_part(call, run, s->rows.total, s->rows.inner, 1, part, parts, &begin, &end))
        return;
    y = call->ptrs[1] + begin * s->y_bytes;
    for (ngd_nd_start(&it, &s->rows, call->ptrs, begin, end); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++, y += s->y_bytes)
            s->line(it.p[0] + i * step, y, s->axis.n, s->log);
}

static ngd_status_t prepare_softmax_kind(struct ngd_host_prepare *p, bool log)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *y = ngd_call_out(p->plan, p->call, 0);
    const struct ngd_softmax_table *table = NGD_BY_ISA(p->isa, ngd_softmax);
    struct softmax_params *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    if (!s)
        return NGD_ERR_NO_MEMORY;
    s->axis = ngd_axis_of(x, ngd_call_int(p->call, "dim"));
    s->line = table->line[x->dtype][y->dtype];
    s->lines = table->lines[x->dtype][y->dtype];
    s->x_bytes = s->axis.n * s->axis.inner * (int64_t)ngd_dtype_bytes(x->dtype);
    s->y_bytes = s->axis.n * s->axis.inner * (int64_t)ngd_dtype_bytes(y->dtype);
    s->log = log;
    if (s->axis.inner == 1 && s->axis.dim + 1 == x->rank)
        ngd_nd_init(&s->rows, x, 1, &x, 1, 0);
    p->fn = s->rows.rank ? run_softmax_rows : run_softmax_lines;
    p->params = s;
    p->cost_ns = 20 + (double)(s->axis.outer * s->axis.n * s->axis.inner) * (p->isa == NGD_ISA_SCALAR ? 10 : 1);
    return NGD_OK;
}

static ngd_status_t prepare_softmax(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_softmax_kind(p, false);
}

static ngd_status_t prepare_log_softmax(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_softmax_kind(p, true);
}

/* If the axis is the last dimension, only the line itself must be contiguous. */
static ngd_status_t select_softmax(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0);
    struct ngd_axis axis = ngd_axis_of(x, ngd_call_int(call, "dim"));

    (void)threads;
    (void)diag;
    *strided_p = axis.dim + 1 == x->rank && (x->strides[axis.dim] == 1 || axis.n == 1);
    *workspace_p = 0;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_softmax = {.select = select_softmax, .prepare = prepare_softmax};
const struct ngd_host_kernel ngd_host_log_softmax = {.select = select_softmax, .prepare = prepare_log_softmax};
