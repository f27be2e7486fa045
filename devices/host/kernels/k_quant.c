/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.quantize, npu.dynamic_quant, npu.swiglu_quant, npu.add_rms_norm_quant, npu.add_rms_norm_dynamic_quant.
 *
 * A row goes through f32 memory of its thread: it is made (widened, normalised, gated), scaled, rounded and narrowed.
 * Vectors of scales are widened once per part. An operator that is fused in front rounds its row to x's dtype, as a
 * separate operator would, so that fusing changes no result.
 */
#include "devices/host/kernels/k_quant.h"
#include "base/mem.h"
#include "devices/host/kernels/axis.h"
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/k_norm.h"
#include "devices/host/kernels/k_rotary.h"
#include <string.h>

#define ABSENT  0xff
/* The largest f32 below 2^31. */
#define I32_TOP 2147483520.0f

/* A vector operand with a value for each column, or with one for all columns. */
struct vector {
    uint8_t index; /* in ptrs; ABSENT */
    ngd_dtype_t dtype;
    int64_t n;
};

/* How rows become integers. */
struct target {
    bool dynamic;        /* the scale is computed for each row, and is a result */
    bool divide;         /* if not dynamic: v / scale, else v * scale */
    struct vector scale; /* if dynamic: the smoothing factors */
    struct vector zero;
    uint8_t y, scale_out; /* indices in ptrs; scale_out ABSENT: not a result */
    ngd_dtype_t dtype;    /* of y */
};

struct quant_params {
    const struct ngd_quant_table *table;
    ngd_isa_t isa;
    ngd_dtype_t xt;
    int64_t n, rows, rows_per_row; /* columns of a quantised row; rows; rows per index of dimension 0 */
    int64_t x_bytes;               /* from row to row of x */
    ngd_rms_fn norm;               /* normalises x1 + x2; `sum` is the index of the result that gets the sum */
    uint8_t sum;
    float eps;
    struct vector beta;
    ngd_swiglu_fn swiglu;
    bool left; /* the left half is the gate */
    struct target out[2];
    uint32_t n_out;
    uint64_t thread_workspace;
};

/* Areas of a thread's workspace, n floats each: the row, its half-width form, scales and zeros of both targets. */
enum { ROW, HALF, KEPT, BETA, SCALE0, ZERO0, SCALE1, ZERO1, AREAS };

static float *area(const struct quant_params *q, const struct ngd_host_call *call, int which)
{
    char *room = call->workspace + ngd_host_thread * q->thread_workspace;

    return (float *)(void *)(room + (uint64_t)which * (q->thread_workspace / AREAS));
}

static void to_f32(const char *from, ngd_dtype_t t, int64_t n, ngd_isa_t isa, float *to)
{
    char *const p[2] = {(char *)(uintptr_t)from, (char *)to};
    const int64_t step[2] = {(int64_t)ngd_dtype_bytes(t), 4};
    ngd_nd_fn fn = ngd_cast_fn(t, NGD_F32, isa);

    if (fn)
        fn(p, step, n, NULL);
    else
        memcpy(to, from, (size_t)n * sizeof(float));
}

static const float *vector(const struct quant_params *q, const struct ngd_host_call *call, const struct vector *v,
                           int which)
{
    float *to = area(q, call, which);

    if (v->index == ABSENT)
        return NULL;
    to_f32(call->ptrs[v->index], v->dtype, v->n, q->isa, to);
    return to;
}

static void narrow_line(const float *v, ngd_dtype_t t, int64_t n, char *y)
{
    for (int64_t i = 0; i < n; i++) {
        if (t == NGD_I8)
            ((int8_t *)y)[i] = (int8_t)v[i];
        else if (t == NGD_U8)
            ((uint8_t *)y)[i] = (uint8_t)v[i];
        else
            ((int32_t *)(void *)y)[i] = (int32_t)v[i];
    }
}

static void limits(ngd_dtype_t t, struct ngd_quant_line *line)
{
    line->lo = t == NGD_I8 ? -128.0f : t == NGD_U8 ? 0.0f : -2147483648.0f;
    line->hi = t == NGD_I8 ? 127.0f : t == NGD_U8 ? 255.0f : I32_TOP;
}

/* Stores one row of floats as the integers of a target. Overwrites the floats. */
static void put_quantized(const struct quant_params *q, const struct ngd_host_call *call, const struct target *t,
                          float *v, const float *scale, const float *zero, int64_t row)
{
    struct ngd_quant_line line = {.divide = t->dynamic || t->divide, .zero = zero, .zero_step = t->zero.n > 1};
    float own = 1;

    limits(t->dtype, &line);
    if (t->dynamic) {
        own = q->table->smooth(v, scale, q->n) / 127.0f;
        line.scale = &own;
    } else {
        line.scale = scale ? scale : &own;
        line.scale_step = scale && t->scale.n > 1;
    }
    q->table->quantize(&line, v, q->n);
    narrow_line(v, t->dtype, q->n, call->ptrs[t->y] + row * q->n * (int64_t)ngd_dtype_bytes(t->dtype));
    if (t->scale_out != ABSENT)
        ((float *)(void *)call->ptrs[t->scale_out])[row] = own;
}

/* Returns the row that is quantised, in x's dtype. Makes it first if something is fused in front. */
static const char *make_row(const struct quant_params *q, const struct ngd_host_call *call, int64_t row)
{
    const char *x = call->ptrs[0] + row * q->x_bytes;
    char *made = (char *)area(q, call, HALF);
    float rstd;

    if (q->norm)
        q->norm(x, call->ptrs[1] + row * q->x_bytes, call->ptrs[2], made, &rstd, call->ptrs[q->sum] + row * q->x_bytes,
                q->n, q->eps);
    else if (q->swiglu)
        q->swiglu(q->left ? x : x + q->x_bytes / 2, q->left ? x + q->x_bytes / 2 : x, made, q->n);
    else
        return x;
    return made;
}

static void run_quant_rows(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct quant_params *q = call->params;
    const float *beta = vector(q, call, &q->beta, BETA), *scale[2] = {NULL}, *zero[2] = {NULL};
    float *v = area(q, call, ROW), *kept = area(q, call, KEPT);
    int64_t begin, end;

    for (uint32_t i = 0; i < q->n_out; i++) {
        scale[i] = vector(q, call, &q->out[i].scale, SCALE0 + 2 * (int)i);
        zero[i] = vector(q, call, &q->out[i].zero, ZERO0 + 2 * (int)i);
    }
    if (!ngd_nd_part(call, run, q->rows, q->rows_per_row, 1, part, parts, &begin, &end))
        return;
    for (int64_t row = begin; row < end; row++) {
        to_f32(make_row(q, call, row), q->xt, q->n, q->isa, v);
        for (int64_t i = 0; beta && i < q->n; i++)
            v[i] += beta[i];
        if (q->n_out > 1)
            memcpy(kept, v, (size_t)q->n * sizeof(float));
        put_quantized(q, call, &q->out[0], v, scale[0], zero[0], row);
        if (q->n_out > 1)
            put_quantized(q, call, &q->out[1], kept, scale[1], zero[1], row);
    }
}

static struct vector vector_of(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t i)
{
    const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);

    return t ? (struct vector){(uint8_t)i, t->dtype, ngd_tensor_count(t)} : (struct vector){.index = ABSENT};
}

static uint64_t quant_thread_bytes(int64_t n)
{
    return (((uint64_t)(n > 0 ? n : 1) * sizeof(float) + 63) & ~(uint64_t)63) * AREAS;
}

/* Returns the columns of a quantised row, which are the result's. The operand of swiglu has twice as many. */
static int64_t quant_columns(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const struct ngd_plan_tensor *y = ngd_call_out(plan, call, 0);

    return y->dims[y->rank - 1];
}

static ngd_status_t select_quant_rows(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                      uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)diag;
    *strided_p = 0;
    *workspace_p = quant_thread_bytes(quant_columns(plan, call)) * threads;
    return NGD_OK;
}

/* Prepares what the operators have in common. */
static struct quant_params *prepare_common(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    struct quant_params *q = ngd_arena_calloc(p->arena, 1, sizeof(*q));

    if (!q) {
        ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
        return NULL;
    }
    q->table = NGD_BY_ISA(p->isa, ngd_quant);
    q->isa = p->isa;
    q->xt = x->dtype;
    q->n = quant_columns(p->plan, p->call);
    q->rows = 1;
    for (uint32_t d = 0; d + 1u < x->rank; d++)
        q->rows *= x->dims[d];
    q->rows_per_row = x->rank > 1 && x->dims[0] ? q->rows / x->dims[0] : 1;
    q->x_bytes = x->dims[x->rank - 1] * (int64_t)ngd_dtype_bytes(x->dtype);
    q->beta.index = ABSENT;
    q->thread_workspace = quant_thread_bytes(q->n);
    q->n_out = 1;
    for (int i = 0; i < 2; i++)
        q->out[i] = (struct target){
            .scale = {.index = ABSENT}, .zero = {.index = ABSENT}, .scale_out = ABSENT, .dtype = NGD_I8};
    q->out[0].y = (uint8_t)p->call->n_in;
    p->params = q;
    p->fn = run_quant_rows;
    p->row_tensor = p->call->in[0];
    p->cost_ns = 50 + (double)(q->rows * q->n) * (p->isa == NGD_ISA_SCALAR ? 15 : 2);
    return q;
}

static ngd_status_t prepare_dynamic(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct quant_params *q = prepare_common(p, diag);

    if (!q)
        return NGD_ERR_NO_MEMORY;
    q->out[0].dynamic = true;
    q->out[0].scale = vector_of(p->plan, p->call, 1);
    q->out[0].scale_out = (uint8_t)(p->call->n_in + 1);
    return NGD_OK;
}

static ngd_status_t prepare_swiglu_quant(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct quant_params *q = prepare_common(p, diag);

    if (!q)
        return NGD_ERR_NO_MEMORY;
    q->swiglu = NGD_BY_ISA(p->isa, ngd_gate)->swiglu[q->xt];
    q->left = ngd_call_int(p->call, "activate_left") != 0;
    q->out[0].dynamic = ngd_call_int(p->call, "quant_mode") == 1;
    q->out[0].scale = vector_of(p->plan, p->call, 1);
    q->out[0].zero = vector_of(p->plan, p->call, 2);
    q->out[0].scale_out = (uint8_t)(p->call->n_in + 1);
    return NGD_OK;
}

static struct quant_params *prepare_norm(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const ngd_dtype_t gamma = ngd_call_in(p->plan, p->call, 2)->dtype;
    struct quant_params *q = prepare_common(p, diag);

    if (!q)
        return NULL;
    q->norm = NGD_BY_ISA(p->isa, ngd_norm)->add_rms[q->xt][gamma];
    q->eps = (float)ngd_call_float(p->call, "epsilon");
    q->beta = vector_of(p->plan, p->call, 5);
    q->sum = (uint8_t)(p->call->n_in + 2);
    q->out[1].y = (uint8_t)(p->call->n_in + 1);
    return q;
}

static ngd_status_t prepare_norm_static(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct quant_params *q = prepare_norm(p, diag);

    if (!q)
        return NGD_ERR_NO_MEMORY;
    q->n_out = ngd_call_in(p->plan, p->call, 6) ? 2 : 1;
    for (uint32_t i = 0; i < 2; i++) {
        q->out[i].divide = ngd_call_int(p->call, "div_mode") != 0;
        q->out[i].scale = vector_of(p->plan, p->call, 3 + 3 * i);
        q->out[i].zero = vector_of(p->plan, p->call, 4 + 3 * i);
    }
    return NGD_OK;
}

static ngd_status_t prepare_norm_dynamic(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct quant_params *q = prepare_norm(p, diag);

    if (!q)
        return NGD_ERR_NO_MEMORY;
    q->n_out = ngd_tensor_count(ngd_call_out(p->plan, p->call, 1)) ? 2 : 1;
    for (uint32_t i = 0; i < 2; i++) {
        q->out[i].dynamic = true;
        q->out[i].scale = vector_of(p->plan, p->call, 3 + i);
        q->out[i].scale_out = (uint8_t)(p->call->n_in + 3 + i);
    }
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_dynamic_quant = {.select = select_quant_rows, .prepare = prepare_dynamic};
const struct ngd_host_kernel ngd_host_swiglu_quant = {.select = select_quant_rows, .prepare = prepare_swiglu_quant};
const struct ngd_host_kernel ngd_host_add_rms_norm_quant = {.select = select_quant_rows,
                                                            .prepare = prepare_norm_static};
const struct ngd_host_kernel ngd_host_add_rms_norm_dynamic_quant = {.select = select_quant_rows,
                                                                    .prepare = prepare_norm_dynamic};

/* ---- quantize: scales along any dimension ---- */

struct quantize_params {
    struct quant_params common; /* for lines instead of rows: n is their length */
    struct ngd_axis axis;
    struct ngd_quant_line line;
    int64_t scale_n, zero_n;
};

/* If the axis is the last dimension, a line has a scale for each element, otherwise one scale. */
static void run_quantize(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct quantize_params *z = call->params;
    const struct quant_params *q = &z->common;
    const struct target *t = &q->out[0];
    const float *scale = vector(q, call, &t->scale, SCALE0), *zero = vector(q, call, &t->zero, ZERO0);
    const bool last = z->axis.inner == 1;
    const int64_t lines = last ? 1 : z->axis.n, n = last ? z->axis.n : z->axis.inner,
                  size = (int64_t)ngd_dtype_bytes(q->xt), y_size = (int64_t)ngd_dtype_bytes(t->dtype);
    float *v = area(q, call, ROW);
    int64_t begin, end;

    if (!ngd_nd_part(call, run, z->axis.outer, z->axis.outer_per_row, 1, part, parts, &begin, &end))
        return;
    for (int64_t i = begin * lines; i < end * lines; i++) {
        struct ngd_quant_line line = z->line;

        line.scale = scale + (last || z->scale_n == 1 ? 0 : i % lines);
        line.scale_step = last && z->scale_n > 1;
        line.zero = zero ? zero + (last || z->zero_n == 1 ? 0 : i % lines) : NULL;
        line.zero_step = last && z->zero_n > 1;
        to_f32(call->ptrs[0] + i * n * size, q->xt, n, q->isa, v);
        q->table->quantize(&line, v, n);
        narrow_line(v, t->dtype, n, call->ptrs[t->y] + i * n * y_size);
    }
}

static int64_t longest_line(const struct ngd_axis *axis)
{
    return axis->inner > axis->n ? axis->inner : axis->n;
}

static ngd_status_t select_quantize(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                    uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_axis axis = ngd_axis_of(ngd_call_in(plan, call, 0), ngd_call_int(call, "axis"));

    (void)diag;
    *strided_p = 0;
    *workspace_p = quant_thread_bytes(longest_line(&axis)) * threads;
    return NGD_OK;
}

static ngd_status_t prepare_quantize(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *y = ngd_call_out(p->plan, p->call, 0);
    struct quantize_params *z = ngd_arena_calloc(p->arena, 1, sizeof(*z));

    if (!z)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    z->axis = ngd_axis_of(x, ngd_call_int(p->call, "axis"));
    z->common = (struct quant_params){.table = NGD_BY_ISA(p->isa, ngd_quant), .isa = p->isa, .xt = x->dtype};
    z->common.thread_workspace = quant_thread_bytes(longest_line(&z->axis));
    z->common.out[0] = (struct target){
        .scale = vector_of(p->plan, p->call, 1),
        .zero = vector_of(p->plan, p->call, 2),
        .y = (uint8_t)p->call->n_in,
        .dtype = y->dtype,
    };
    z->scale_n = z->common.out[0].scale.n;
    z->zero_n = z->common.out[0].zero.n;
    z->line.divide = ngd_call_int(p->call, "div_mode") != 0;
    limits(y->dtype, &z->line);
    p->params = z;
    p->fn = run_quantize;
    p->cost_ns = 50 + (double)ngd_tensor_count(x) * (p->isa == NGD_ISA_SCALAR ? 10 : 1.5);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_quantize = {.select = select_quantize, .prepare = prepare_quantize};
