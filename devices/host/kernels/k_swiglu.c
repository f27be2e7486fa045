/* SPDX-License-Identifier: Apache-2.0 */
/* npu.swiglu along any dimension: the first half of each outer index gates the second half. npu.clipped_swiglu. */
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

/* ---- npu.clipped_swiglu ---- */

struct clipped_params {
    ngd_clipped_fn fn;
    struct ngd_clip clip;
    int64_t n, size;      /* results of a row; bytes of an element */
    int64_t step, second; /* elements from pair to pair, and to the other of a pair */
    int64_t total, per_row;
};

static void run_clipped_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct clipped_params *s = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, s->total, s->per_row, 256, part, parts, &begin, &end))
        return;
    while (begin < end) {
        const int64_t row = begin / s->n, i = begin - row * s->n, n = s->n - i < end - begin ? s->n - i : end - begin;
        const char *g = call->ptrs[0] + (2 * row * s->n + i * s->step) * s->size;

        s->fn(g, g + s->second * s->size, s->step, &s->clip, call->ptrs[1] + begin * s->size, n);
        begin += n;
    }
}

static ngd_status_t prepare_clipped(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    const struct ngd_axis axis = ngd_axis_of(x, -1);
    const bool interleaved = ngd_call_int(p->call, "interleaved") != 0;
    struct clipped_params *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    s->fn = NGD_BY_ISA(p->isa, ngd_gate)->clipped[x->dtype];
    s->clip = (struct ngd_clip){.alpha = (float)ngd_call_float(p->call, "alpha"),
                                .limit = (float)ngd_call_float(p->call, "limit"),
                                .bias = (float)ngd_call_float(p->call, "bias")};
    s->n = axis.n / 2;
    s->size = (int64_t)ngd_dtype_bytes(x->dtype);
    s->step = interleaved ? 2 : 1;
    s->second = interleaved ? 1 : s->n;
    s->total = axis.outer * s->n;
    s->per_row = axis.outer_per_row * s->n;
    p->fn = run_clipped_part;
    p->params = s;
    p->cost_ns = 20 + (double)s->total * (p->isa == NGD_ISA_SCALAR ? 8 : 1.5);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_clipped_swiglu = {.select = ngd_select_contiguous, .prepare = prepare_clipped};
const struct ngd_host_kernel ngd_host_swiglu = {.select = ngd_select_contiguous, .prepare = prepare_swiglu};
