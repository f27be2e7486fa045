/* SPDX-License-Identifier: Apache-2.0 */
/* npu.swiglu along any dimension: the first half of each outer index gates the second half. */
#include "base/mem.h"
#include "devices/host/kernels/axis.h"
#include "devices/host/kernels/k_rotary.h"

struct swiglu_params {
    ngd_swiglu_fn fn;
    int64_t half, size; /* elements of a half; bytes of an element */
    int64_t total, per_row;
};

static void run_swiglu_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct swiglu_params *s = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, s->total, s->per_row, 256, part, parts, &begin, &end))
        return;
    while (begin < end) {
        const int64_t o = begin / s->half, i = begin - o * s->half,
                      n = s->half - i < end - begin ? s->half - i : end - begin;
        const char *a = call->ptrs[0] + (2 * o * s->half + i) * s->size;

        s->fn(a, a + s->half * s->size, call->ptrs[1] + begin * s->size, n);
        begin += n;
    }
}

static ngd_status_t prepare_swiglu(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    struct ngd_axis axis = ngd_axis_of(x, ngd_call_int(p->call, "dim"));
    struct swiglu_params *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    (void)diag;
    if (!s)
        return NGD_ERR_NO_MEMORY;
    s->fn = NGD_BY_ISA(p->isa, ngd_gate)->swiglu[x->dtype];
    s->half = axis.n / 2 * axis.inner;
    s->size = (int64_t)ngd_dtype_bytes(x->dtype);
    s->total = axis.outer * s->half;
    s->per_row = axis.outer_per_row * s->half;
    p->fn = run_swiglu_part;
    p->params = s;
    p->cost_ns = 20 + (double)s->total * (p->isa == NGD_ISA_SCALAR ? 8 : 0.8);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_swiglu = {.select = ngd_select_contiguous, .prepare = prepare_swiglu};
