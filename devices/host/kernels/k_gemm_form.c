/* SPDX-License-Identifier: Apache-2.0 */
/* Brings shapes and strides of the operands of matrix products to one form (struct ngd_gemm); see k_gemm.h. */
#include "devices/host/kernels/k_gemm_quant.h"

/* Takes the strides of x's last two dimensions. Returns true if its rows are contiguous. */
static bool left_strides(const struct ngd_plan_tensor *t, int64_t *ld_p)
{
    *ld_p = t->strides[t->rank - 2];
    return t->strides[t->rank - 1] == 1 || t->dims[t->rank - 1] == 1;
}

/*
 * Takes the strides of w's last two dimensions, [N,K] or [K,N]. The contiguous dimension decides the way. A matrix of
 * one row or column could go either way: its shape decides, so that it goes the same way before and after a
 * transposition. Returns false if a copy is needed; *nk_p and *ld_p describe the copy then.
 */
static bool right_strides(const struct ngd_plan_tensor *t, bool rows_are_n, int64_t *ld_p, bool *nk_p)
{
    const uint32_t k = t->rank - (rows_are_n ? 1u : 2u), n = t->rank - (rows_are_n ? 2u : 1u);
    const bool by_k = t->strides[k] == 1, by_n = t->strides[n] == 1;

    *nk_p = t->dims[k] == 1 ? false : t->dims[n] == 1 ? true : by_k || (!by_n && rows_are_n);
    *ld_p = t->strides[*nk_p ? n : k];
    if (*nk_p ? by_k : by_n || (t->dims[k] == 1 && t->dims[n] == 1))
        return true;
    *ld_p = *nk_p == rows_are_n ? t->dims[t->rank - 1] : 1;
    return false;
}

/* Describes all dimensions but the last as rows at one distance; the last must be contiguous. */
static bool row_strides(const struct ngd_plan_tensor *t, int64_t *rows_p, int64_t *ld_p)
{
    int64_t rows = 1, ld = 0;
    uint32_t d = t->rank - 1;

    if (t->dims[d] != 1 && t->strides[d] != 1)
        return false;
    while (d-- > 0) {
        if (t->dims[d] == 1)
            continue;
        if (rows == 1)
            ld = t->strides[d];
        else if (t->strides[d] != ld * rows)
            return false;
        rows *= t->dims[d];
    }
    *rows_p = rows;
    *ld_p = ld;
    return true;
}

static int64_t dims_product(const int64_t *dims, uint32_t n)
{
    int64_t p = 1;

    for (uint32_t i = 0; i < n; i++)
        p *= dims[i];
    return p;
}

struct form {
    struct ngd_gemm g;
    uint32_t strided; /* bits of operands that may keep their strides */
};

static struct form empty_form(const struct ngd_plan *plan)
{
    return (struct form){.g = {.alpha = 1, .beta = 1, .batch = 1, .i_bias = 0xff, .precision = plan->matmul_precision}};
}

static void set_bias(struct form *f, const struct ngd_plan_tensor *bias, uint8_t index)
{
    struct ngd_gemm *g = &f->g;

    g->i_bias = 0xff;
    if (!bias)
        return;
    g->i_bias = index;
    g->bias_type = bias->dtype;
    g->bias_col = bias->rank && bias->dims[bias->rank - 1] != 1 ? bias->strides[bias->rank - 1] : 0;
    g->bias_row = bias->rank == 2 && bias->dims[0] != 1 ? bias->strides[0] : 0;
    f->strided |= 1u << index;
}

/* Sets w from the last two dimensions of an operand: [K,N] as it is stored, or, transposed, rows of K. */
static void set_w(struct form *f, const struct ngd_plan_tensor *w, uint8_t index, bool rows_are_n)
{
    struct ngd_gemm *g = &f->g;

    if (right_strides(w, rows_are_n, &g->ldw, &g->nk))
        f->strided |= 1u << index; /* otherwise the plan makes a contiguous copy */
    g->wt = w->dtype;
    g->i_w = index;
}

/* For mm and addmm: x[M,K] is operand i, w[K,N] the next one. */
static void form_product(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint8_t i, struct form *f)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, i), *w = ngd_call_in(plan, call, i + 1u);
    const struct ngd_plan_tensor *y = ngd_call_out(plan, call, 0);
    struct ngd_gemm *g = &f->g;

    g->m = x->dims[0];
    g->k = x->dims[1];
    g->n = w->dims[1];
    g->rows_mult = 1;
    g->xt = x->dtype;
    g->i_x = i;
    if (left_strides(x, &g->ldx))
        f->strided |= 1u << i;
    else
        g->ldx = g->k;
    g->ldy = y->strides[0];
    set_w(f, w, (uint8_t)(i + 1), false);
}

void ngd_gemm_of_linear(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint8_t w, uint8_t bias,
                        struct ngd_gemm *g, uint32_t *strided_p)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0), *weight = ngd_call_in(plan, call, w);
    struct form f = {.g = {.alpha = 1, .beta = 1, .batch = 1, .i_bias = 0xff, .precision = plan->matmul_precision}};

    f.g.k = x->dims[x->rank - 1];
    f.g.n = weight->dims[0];
    f.g.vector = x->rank == 1;
    f.g.rows_mult = f.g.vector ? 1 : dims_product(x->dims + 1, x->rank - 2u);
    f.g.xt = x->dtype;
    f.g.m = dims_product(x->dims, x->rank - 1u);
    if (row_strides(x, &f.g.m, &f.g.ldx))
        f.strided |= 1u;
    else
        f.g.ldx = f.g.k;
    f.g.ldy = f.g.n;
    set_w(&f, weight, w, true);
    if (bias != 0xff)
        set_bias(&f, ngd_call_in(plan, call, bias), bias);
    *g = f.g;
    *strided_p = f.strided;
}

static void form_linear(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    ngd_gemm_of_linear(plan, call, 1, 2, &f->g, &f->strided);
}

static void form_weight_quant(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    ngd_gemm_of_quant(plan, call, &f->g, &f->strided);
}

static void form_bmm(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0), *w = ngd_call_in(plan, call, 1);
    struct ngd_gemm *g = &f->g;

    g->batch = x->dims[0];
    g->m = x->dims[1];
    g->k = x->dims[2];
    g->n = w->dims[2];
    g->xt = x->dtype;
    if (left_strides(x, &g->ldx))
        f->strided |= 1u;
    else
        g->ldx = g->k;
    g->step_x = f->strided & 1u ? x->strides[0] : g->m * g->k;
    set_w(f, w, 1, false);
    g->step_w = f->strided & 2u ? w->strides[0] : g->k * g->n;
    g->ldy = g->n;
    g->step_y = g->m * g->n;
}

/* Returns t with its dimensions in another order. Without `strided`, the strides are those of a contiguous t. */
static struct ngd_plan_tensor permuted(const struct ngd_plan_tensor *t, const struct ngd_attr_value *perm,
                                       const int64_t otherwise[3], bool contiguous)
{
    const int64_t *order = perm->n ? perm->list : otherwise;
    const int64_t packed[] = {t->dims[1] * t->dims[2], t->dims[2], 1};
    struct ngd_plan_tensor r = *t;

    for (uint32_t i = 0; i < 3; i++) {
        r.dims[i] = t->dims[order[i]];
        r.strides[i] = contiguous ? packed[order[i]] : t->strides[order[i]];
    }
    return r;
}

static void form_transpose_bmm(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    static const int64_t as_is[] = {0, 1, 2}, swapped[] = {1, 0, 2};
    const struct ngd_attr_value *pa = ngd_call_ints(call, "perm_x1"), *pb = ngd_call_ints(call, "perm_x2"),
                                *py = ngd_call_ints(call, "perm_y");
    struct ngd_plan_tensor x = permuted(ngd_call_in(plan, call, 0), pa, as_is, false),
                           w = permuted(ngd_call_in(plan, call, 1), pb, as_is, false), y;
    struct ngd_gemm *g = &f->g;

    if (left_strides(&x, &g->ldx)) {
        f->strided |= 1u;
    } else {
        x = permuted(ngd_call_in(plan, call, 0), pa, as_is, true);
        left_strides(&x, &g->ldx);
    }
    if (right_strides(&w, false, &g->ldw, &g->nk)) {
        f->strided |= 2u;
    } else {
        w = permuted(ngd_call_in(plan, call, 1), pb, as_is, true);
        if (!right_strides(&w, false, &g->ldw, &g->nk)) { /* one column that is not contiguous: rows of one element */
            g->nk = false;
            g->ldw = w.strides[1];
        }
    }
    g->wt = w.dtype;
    g->i_w = 1;
    g->batch = x.dims[0];
    g->m = x.dims[1];
    g->k = x.dims[2];
    g->n = w.dims[2];
    g->xt = x.dtype;
    g->step_x = x.strides[0];
    g->step_w = w.strides[0];
    /* perm_y is its own inverse, so it gives the result's dimensions in the product's order. */
    y = permuted(ngd_call_out(plan, call, 0), py, swapped, true);
    g->step_y = y.strides[0];
    g->ldy = y.strides[1];
    g->by_batch = py->n && py->list[0] == 0;
}

static void form_mm(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    form_product(plan, call, 0, f);
}

static void form_addmm(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct form *f)
{
    form_product(plan, call, 1, f);
    f->g.alpha = (float)ngd_call_float(call, "alpha");
    f->g.beta = (float)ngd_call_float(call, "beta");
    /* As in PyTorch, a beta of 0 ignores the bias, even a NaN in it. */
    if (f->g.beta != 0)
        set_bias(f, ngd_call_in(plan, call, 0), 0);
}

void ngd_gemm_of_call(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_gemm *g,
                      uint32_t *strided_p)
{
    static void (*const forms[NGD_OP_MAX])(const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                           struct form *f) = {
        [NGD_OP_ATEN_MM] = form_mm,
        [NGD_OP_ATEN_BMM] = form_bmm,
        [NGD_OP_ATEN_ADDMM] = form_addmm,
        [NGD_OP_ATEN_LINEAR] = form_linear,
        [NGD_OP_NPU_TRANSPOSE_BATCHMATMUL] = form_transpose_bmm,
        [NGD_OP_NPU_WEIGHT_QUANT_BATCHMATMUL] = form_weight_quant,
    };
    struct form f = empty_form(plan);

    forms[call->op->id](plan, call, &f);
    *g = f.g;
    *strided_p = f.strided;
}
