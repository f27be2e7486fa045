/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.quant_matmul: brings operands to one form (struct ngd_qmm), and walks them in blocks of NGD_QMM_COLS columns, and
 * of NGD_QMM_ROWS rows within them. Parts take runs of columns, so a thread reads weights in the order of memory.
 */
#include "devices/host/kernels/k_quant_matmul.h"
#include "base/mem.h"
#include "devices/host/kernels/k_gemm.h"
#include <string.h>

#define COLS_PER_PART 16          /* at least: parts share no line of an f32 result */
#define STREAM_BYTES  (512 << 10) /* weights above this do not stay in the L2 cache from step to step */

/* ---- running ---- */

static void read_columns(const struct ngd_qmm *q, const struct ngd_qmm_data *d, int64_t n, int64_t cols,
                         struct ngd_qmm_columns *c)
{
    memset(c, 0, sizeof(*c));
    c->n = cols;
    c->dtype = q->out_type;
    c->whole = d->bias && q->bias_type == NGD_I32;
    c->biased = d->bias && !c->whole;
    for (int64_t i = 0; i < cols; i++) {
        c->scale[i] = ngd_float_at(d->scale, q->scale_type, (n + i) * q->scale_n);
        if (c->whole)
            c->whole_bias[i] = ((const int32_t *)(const void *)d->bias)[(n + i) * q->bias_n];
        else if (c->biased)
            c->bias[i] = ngd_float_at(d->bias, q->bias_type, (n + i) * q->bias_n);
    }
}

/* Copies columns [n, n + cols) of x2 into rows of K. */
static const int8_t *copy_columns(const struct ngd_qmm *q, const struct ngd_qmm_data *d, int64_t n, int64_t cols)
{
    int8_t *to = (int8_t *)d->workspace;

    for (int64_t k = 0; k < q->k; k++)
        for (int64_t c = 0; c < cols; c++)
            to[c * q->k + k] = d->x2[(n + c) * q->w_n + k * q->w_k];
    return to;
}

/* Makes a row of the result of its sums. */
static void put_sums_row(const struct ngd_qmm *q, const struct ngd_qmm_columns *c, int32_t *sums, float row_scale,
                         char *y)
{
    for (int64_t i = 0; c->whole && i < c->n; i++)
        sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)c->whole_bias[i]);
    if (c->dtype == NGD_I32)
        memcpy(y, sums, (size_t)c->n * sizeof(*sums));
    else
        q->table->finish(c, sums, row_scale, y);
}

/* Computes columns [n, n + cols), at most NGD_QMM_COLS, of all rows. */
static void run_columns(const struct ngd_qmm *q, const struct ngd_qmm_data *d, int64_t rows, int64_t n, int64_t cols)
{
    const int8_t *w = q->streams ? d->x2 + n * q->w_n : copy_columns(q, d, n, cols);
    const int64_t ldw = q->streams ? q->w_n : q->k, size = q->out_type == NGD_F32 || q->out_type == NGD_I32 ? 4 : 2;
    int32_t sums[NGD_QMM_ROWS][NGD_QMM_COLS];
    struct ngd_qmm_columns c;

    read_columns(q, d, n, cols, &c);
    for (int64_t m = 0; m < rows; m += NGD_QMM_ROWS) {
        const int64_t some = rows - m < NGD_QMM_ROWS ? rows - m : NGD_QMM_ROWS;

        q->table->sums(d->x1 + m * q->ldx, q->ldx, some, w, ldw, q->k, cols, q->from_memory && m == 0, sums);
        for (int64_t r = 0; r < some; r++)
            put_sums_row(q, &c, sums[r],
                         d->row_scale ? ngd_float_at(d->row_scale, NGD_F32, (m + r) * q->row_scale_m) : 1,
                         d->y + ((m + r) * q->n + n) * size);
    }
}

void ngd_qmm_run(const struct ngd_qmm *q, const struct ngd_qmm_data *d, int64_t rows, uint32_t part, uint32_t parts)
{
    int64_t n, end;

    if (rows <= 0)
        return;
    for (ngd_host_split(q->n, COLS_PER_PART, part, parts, &n, &end); n < end; n += NGD_QMM_COLS)
        run_columns(q, d, rows, n, end - n < NGD_QMM_COLS ? end - n : NGD_QMM_COLS);
}

static void run_quant_matmul(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_qmm *q = call->params;
    const struct ngd_qmm_data d = {
        .x1 = (const int8_t *)call->ptrs[0],
        .x2 = (const int8_t *)call->ptrs[1],
        .scale = call->ptrs[2],
        .row_scale = call->n_in > 4 ? call->ptrs[4] : NULL,
        .bias = call->n_in > 5 ? call->ptrs[5] : NULL,
        .y = call->ptrs[call->n_in],
        .workspace = call->workspace + ngd_host_thread * q->thread_workspace,
    };

    ngd_qmm_run(q, &d, ngd_host_rows(call, run) * q->rows_mult, part, parts);
}

/* ---- choosing ---- */

static int64_t step_of(const struct ngd_plan_tensor *t)
{
    return !t || t->dims[0] == 1 ? 0 : t->strides[0];
}

static struct ngd_qmm form_i8_product(const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                      uint32_t *strided_p)
{
    const struct ngd_plan_tensor *w = ngd_call_in(plan, call, 1), *bias = ngd_call_in(plan, call, 5);
    struct ngd_gemm g;
    struct ngd_qmm q;

    ngd_gemm_of_linear(plan, call, 1, 0xff, &g, strided_p);
    q = (struct ngd_qmm){
        .n = w->dims[1],
        .k = g.k,
        .rows_mult = g.rows_mult,
        .ldx = g.ldx,
        .w_n = w->strides[1],
        .w_k = w->strides[0],
        .scale_n = step_of(ngd_call_in(plan, call, 2)),
        .row_scale_m = step_of(ngd_call_in(plan, call, 4)),
        .bias_n = step_of(bias),
        .scale_type = ngd_call_in(plan, call, 2)->dtype,
        .bias_type = bias ? bias->dtype : NGD_F32,
        .out_type = ngd_call_out(plan, call, 0)->dtype,
    };
    *strided_p |= 1u << 1 | 1u << 2 | 1u << 4 | 1u << 5;
    return q;
}

void ngd_qmm_choose(struct ngd_qmm *q, ngd_isa_t isa)
{
    q->streams = q->w_k == 1 || q->k <= 1;
    q->from_memory = q->streams && q->w_n == q->k && (double)q->n * (double)q->k > STREAM_BYTES;
    q->thread_workspace = q->streams ? 0 : ((uint64_t)q->k * NGD_QMM_COLS + 63) & ~(uint64_t)63;
    q->table = NGD_BY_ISA(isa, ngd_qmm);
#if defined(NGD_HAVE_AVX512VNNI)
    if (ngd_cpu_has_vnni(isa))
        q->table = &ngd_qmm_vnni;
#endif
}

static ngd_status_t select_quant_matmul(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                        uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct ngd_qmm q = form_i8_product(plan, call, strided_p);

    (void)diag;
    ngd_qmm_choose(&q, NGD_ISA_SCALAR);
    *workspace_p = q.thread_workspace * threads;
    return NGD_OK;
}

/* Returns the estimated time of reading x2 at 10 GB/s, or of the arithmetic if that is longer. */
static double product_ns(const struct ngd_qmm *q, double rows, ngd_isa_t isa)
{
    static const double products_per_ns[NGD_ISA_MAX] = {2, 40, 80, 160, 160};
    const double weights = (double)q->n * (double)q->k, read = weights / 10,
                 math = weights * rows / products_per_ns[isa];

    return 50 + (read > math ? read : math);
}

static ngd_status_t prepare_quant_matmul(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *y = ngd_call_out(p->plan, p->call, 0);
    struct ngd_qmm *q = ngd_arena_alloc(p->arena, sizeof(*q));
    double rows = 1;
    uint32_t strided;

    if (!q)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    *q = form_i8_product(p->plan, p->call, &strided);
    ngd_qmm_choose(q, p->isa);
    for (uint32_t i = 0; i + 1 < y->rank; i++)
        rows *= (double)y->dims[i];
    p->params = q;
    p->fn = run_quant_matmul;
    p->cost_ns = product_ns(q, rows, p->isa);
    return NGD_OK;
}

extern const struct ngd_host_kernel ngd_host_quant_matmul;
const struct ngd_host_kernel ngd_host_quant_matmul = {.select = select_quant_matmul, .prepare = prepare_quant_matmul};
