/* SPDX-License-Identifier: Apache-2.0 */
/* npu.rotary_mul. Heads have any strides, but each head is contiguous. Rows are tokens; parts split the heads of each
 * token. */
#include "devices/host/kernels/k_rotary.h"
#include "base/mem.h"
#include "devices/host/kernels/nd.h"

struct rotary_params {
    struct ngd_nd heads; /* of x, cos, sin */
    ngd_rotary_fn fn;
    int64_t half, head_bytes;
    ngd_dtype_t cos_type, sin_type;
};

static void run_rotary_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct rotary_params *r = call->params;
    const uint32_t last = r->heads.rank - 1;
    const int64_t *const step[] = {&r->heads.step[0][last], &r->heads.step[1][last], &r->heads.step[2][last]};
    int64_t begin, end;
    struct ngd_nd_it it;
    char *y;

    if (!ngd_nd_part(call, run, r->heads.total, r->heads.inner, 1, part, parts, &begin, &end))
        return;
    y = call->ptrs[3] + begin * r->head_bytes;
    for (ngd_nd_start(&it, &r->heads, call->ptrs, begin, end); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++, y += r->head_bytes)
            r->fn(it.p[0] + i * *step[0], it.p[1] + i * *step[1], r->cos_type, it.p[2] + i * *step[2], r->sin_type, y,
                  r->half);
}

/* Turns [T,D] into [T,1,D], which broadcasts over heads. */
static struct ngd_plan_tensor over_heads(const struct ngd_plan_tensor *t)
{
    struct ngd_plan_tensor r = *t;

    if (t->rank == 2) {
        r.rank = 3;
        r.dims[1] = 1;
        r.dims[2] = t->dims[1];
        r.strides[2] = t->strides[1];
    }
    return r;
}

static ngd_status_t prepare_rotary(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    struct ngd_plan_tensor cos = over_heads(ngd_call_in(p->plan, p->call, 1)),
                           sin = over_heads(ngd_call_in(p->plan, p->call, 2));
    struct rotary_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));

    (void)diag;
    if (!r)
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&r->heads, x, 1, (const struct ngd_plan_tensor *[]){x, &cos, &sin}, 3, 0);
    r->fn = NGD_BY_ISA(p->isa, ngd_gate)->rotary[x->dtype];
    r->half = x->dims[2] / 2;
    r->head_bytes = x->dims[2] * (int64_t)ngd_dtype_bytes(x->dtype);
    r->cos_type = cos.dtype;
    r->sin_type = sin.dtype;
    p->fn = run_rotary_part;
    p->params = r;
    p->cost_ns = 20 + (double)r->heads.total * (5 + (double)r->half * (p->isa == NGD_ISA_SCALAR ? 4 : 0.3));
    return NGD_OK;
}

static ngd_status_t select_rotary(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)threads;
    (void)diag;
    *strided_p = 0;
    *workspace_p = 0;
    for (uint32_t i = 0; i < 3; i++) {
        const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);

        if (t->strides[t->rank - 1] == 1)
            *strided_p |= 1u << i;
    }
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_rotary = {.select = select_rotary, .prepare = prepare_rotary};
