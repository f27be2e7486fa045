/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators of two operands with broadcasting (rows NGD_HOST_BINARY of kernels_basic.def), aten.where and
 * aten.masked_fill.
 */
#include "devices/host/kernels/k_elementwise.h"
#include "devices/host/kernels/k_make.h"

struct binary_row {
    uint8_t f;    /* ngd_ew_binary_t, or ngd_ew_compare_t */
    uint8_t i;    /* ngd_ei_t for integers and bool */
    bool compare; /* the result is bool */
    int8_t alpha; /* the sign with which the attribute alpha goes to the second operand; 0 = no such attribute */
    bool rounds;  /* has an attribute rounding_mode, floor or trunc */
};

static const struct binary_row rows[NGD_OP_MAX] = {
#define NGD_HOST_UNARY(OP, floats, integers, bools, test, args)
#define NGD_HOST_BINARY(OP, floats, integers, compare, alpha, rounds) \
    [NGD_OP_##OP] = {floats, integers, compare, alpha, rounds},
#define NGD_HOST_KERNEL(OP, symbol)
#include "devices/host/kernels/kernels_basic.def"
#undef NGD_HOST_KERNEL
};

static const double binary_ns[NGD_EW_BINARY_MAX + 1] = {
#define NGD_EW_BINARY(NAME, ns, value) ns,
#include "devices/host/kernels/k_elementwise.def"
};

static ngd_nd_fn binary_float_fn(const struct binary_row *row, ngd_isa_t isa, ngd_dtype_t t)
{
    const struct ngd_ew_table *table = NGD_BY_ISA(isa, ngd_ew);

    if (row->compare)
        return table->compare[row->f][t];
    return row->f < NGD_EW_BINARY_MAX ? table->binary[row->f][t] : NULL;
}

static void set_alpha(const struct ngd_plan_call *call, struct binary_row *row, struct ngd_ew_args *args)
{
    double alpha = ngd_call_float(call, "alpha");

    if (alpha != 1)
        row->f = NGD_EW_BINARY_ADD_SCALED;
    args->f[0] = (float)(row->alpha * alpha);
    /* The shape rule makes sure that alpha is whole for integers. It wraps, as all integer arithmetic does. */
    args->i[0] = (int64_t)((uint64_t)(int64_t)row->alpha * (uint64_t)ngd_scalar_i64(ngd_call_scalar(call, "alpha")));
}

static void set_mode(const struct ngd_plan_call *call, struct binary_row *row)
{
    if (strcmp(ngd_call_str(call, "rounding_mode"), "trunc") == 0) {
        row->f = NGD_EW_BINARY_TRUNC_DIVIDE;
        row->i = NGD_EI_BINARY_TRUNC_DIVIDE;
    }
}

static ngd_status_t prepare_binary(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    ngd_dtype_t t = ngd_call_in(p->plan, p->call, 0)->dtype;
    struct binary_row row = rows[p->call->op->id];
    struct ngd_ew_params e = {0};
    double ns;

    if (row.alpha)
        set_alpha(p->call, &row, &e.args);
    if (row.rounds)
        set_mode(p->call, &row);
    e.fn = ngd_dtype_is_float(t) ? binary_float_fn(&row, p->isa, t) : ngd_ei[row.i][t - NGD_I8];
    ns = row.compare || !ngd_dtype_is_float(t) ? 0.05 : binary_ns[row.f];
    return ngd_ew_prepare(p, &e, 3, ns, diag);
}

const struct ngd_host_kernel ngd_host_binary = {.select = ngd_select_strided, .prepare = prepare_binary};

/* ---- where: it only copies values, so one function per element size is enough ---- */

#define WHERE(bits)                                                                                            \
    static void where_##bits(char *const *p, const int64_t *step, int64_t n, const void *arg)                  \
    {                                                                                                          \
        const uint8_t *c = (const void *)p[0];                                                                 \
        const int64_t sc = step[0] != 0, sa = step[1] != 0, sb = step[2] != 0;                                 \
        (void)arg;                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                                        \
            memcpy(p[3] + i * (bits / 8), c[i * sc] ? p[1] + i * sa * (bits / 8) : p[2] + i * sb * (bits / 8), \
                   bits / 8);                                                                                  \
    }
WHERE(8)
WHERE(16)
WHERE(32)
WHERE(64)

static ngd_status_t prepare_where(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    size_t bytes = ngd_dtype_bytes(ngd_call_out(p->plan, p->call, 0)->dtype);
    struct ngd_ew_params e = {.fn = bytes == 1 ? where_8 : bytes == 2 ? where_16 : bytes == 4 ? where_32 : where_64};

    return ngd_ew_prepare(p, &e, 7, 0.5, diag);
}

const struct ngd_host_kernel ngd_host_where = {.select = ngd_select_strided, .prepare = prepare_where};

/* ---- masked_fill: where, with a constant instead of one operand ---- */

#define MASKED_FILL(bits)                                                                                     \
    static void masked_fill_##bits(char *const *p, const int64_t *step, int64_t n, const void *arg)           \
    {                                                                                                         \
        const struct ngd_ew_args *args = arg;                                                                 \
        const uint8_t *mask = (const void *)p[1];                                                             \
        const int64_t sx = step[0] != 0, sm = step[1] != 0;                                                   \
        char element[bits / 8];                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                     \
            memcpy(element, mask[i * sm] ? (const char *)&args->i[0] : p[0] + i * sx * (bits / 8), bits / 8); \
            memcpy(p[2] + i * (bits / 8), element, bits / 8);                                                 \
        }                                                                                                     \
    }
MASKED_FILL(8)
MASKED_FILL(16)
MASKED_FILL(32)
MASKED_FILL(64)

static ngd_status_t prepare_masked_fill(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    ngd_dtype_t t = ngd_call_out(p->plan, p->call, 0)->dtype;
    size_t bytes = ngd_dtype_bytes(t);
    struct ngd_ew_params e = {.fn = bytes == 1   ? masked_fill_8
                                    : bytes == 2 ? masked_fill_16
                                    : bytes == 4 ? masked_fill_32
                                                 : masked_fill_64};

    ngd_constant_put(t, ngd_call_scalar(p->call, "value"), (char *)&e.args.i[0]);
    return ngd_ew_prepare(p, &e, 3, 0.5, diag);
}

const struct ngd_host_kernel ngd_host_masked_fill = {.select = ngd_select_strided, .prepare = prepare_masked_fill};
