/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators of one operand: rows NGD_HOST_UNARY of kernels_basic.def. Their functions are in
 * k_elementwise.def and k_elementwise_int.def.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_elementwise.h"
#include <math.h>

/* ---- shared with k_binary.c ---- */

void ngd_ew_run(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_ew_params *e = call->params;
    int64_t begin, end;

    /* With 256 elements, no two parts write to one cache line, whatever the type is. */
    if (ngd_nd_part(call, run, e->nd.total, e->nd.inner, 256, part, parts, &begin, &end))
        ngd_nd_apply(&e->nd, call->ptrs, begin, end, e->fn, &e->args);
}

static double estimate_ns(const struct ngd_nd *nd, double ns, ngd_isa_t isa)
{
    double bytes = 0, runs = (double)nd->total / (double)(nd->dims[nd->rank - 1] + 1);

    for (uint32_t o = 0; o < nd->n_ops; o++)
        bytes += nd->size[o];
    if (isa == NGD_ISA_SCALAR)
        ns = ns * 4 + 0.5;
    if (!nd->plain)
        ns += 1;
    return 15 + (double)nd->total * (bytes * 0.03 + ns) + runs * 5;
}

ngd_status_t ngd_ew_prepare(struct ngd_host_prepare *p, const struct ngd_ew_params *params, uint32_t bcast, double ns,
                            struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0), *ops[NGD_ND_MAX_OPS];
    struct ngd_ew_params *e;

    if (!params->fn)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no kernel of %s for %s", p->call->op->name,
                            ngd_dtype_name(ngd_call_in(p->plan, p->call, 0)->dtype));
    e = ngd_arena_alloc(p->arena, sizeof(*e));
    if (!e)
        return NGD_ERR_NO_MEMORY;
    *e = *params;
    for (uint32_t i = 0; i < p->call->n_in; i++)
        ops[i] = ngd_call_in(p->plan, p->call, i);
    ops[p->call->n_in] = out;
    ngd_nd_init(&e->nd, out, 0, ops, p->call->n_in + 1, bcast);
    p->fn = ngd_ew_run;
    p->params = e;
    p->cost_ns = estimate_ns(&e->nd, ns, p->isa);
    return NGD_OK;
}

/* ---- one operand ---- */

struct unary_row {
    uint8_t f; /* ngd_ew_unary_t, or ngd_ew_test_t */
    uint8_t i; /* ngd_ei_t for integers */
    uint8_t b; /* ngd_ei_t for bool */
    bool test; /* the result is bool */
    /* Sets constants, and may change the function. */
    void (*args)(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args);
};

static int64_t int_of(const struct ngd_host_prepare *p, const char *name)
{
    return ngd_scalar_i64(ngd_call_scalar(p->call, name));
}

static float float_of(const struct ngd_host_prepare *p, const char *name)
{
    return ngd_scalar_f32(ngd_call_scalar(p->call, name));
}

/* Rounds the constant to the tensor's type, as PyTorch does for comparisons and clamps: 0.1 is another number there. */
static float in_type_of(const struct ngd_host_prepare *p, const char *name)
{
    ngd_dtype_t t = ngd_call_in(p->plan, p->call, 0)->dtype;
    const float v = float_of(p, name);

    if (t == NGD_F16)
        return ngd_f16_to_f32(ngd_f32_to_f16(v));
    return t == NGD_BF16 ? ngd_bf16_to_f32(ngd_f32_to_bf16(v)) : v;
}

static void args_add(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    const double alpha = ngd_call_float(p->call, "alpha");

    (void)row;
    args->f[0] = alpha == 1 ? float_of(p, "other") : (float)(ngd_call_float(p->call, "other") * alpha);
    /* PyTorch multiplies in the tensor's type, where it wraps. */
    args->i[0] = (int64_t)((uint64_t)int_of(p, "other") * (uint64_t)int_of(p, "alpha"));
}

static void args_sub(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    args_add(p, row, args);
    args->f[0] = -args->f[0];
    args->i[0] = (int64_t)(0 - (uint64_t)args->i[0]);
}

static void args_rsub(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)row;
    args->f[0] = float_of(p, "other");
    args->f[1] = float_of(p, "alpha");
    args->i[0] = int_of(p, "other");
    args->i[1] = int_of(p, "alpha");
}

static void args_other(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)row;
    args->f[0] = float_of(p, "other");
    args->i[0] = int_of(p, "other");
}

/* Rounds the constant to the tensor's type before it divides, as PyTorch does. */
static void args_divisor(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)row;
    args->f[0] = in_type_of(p, "other");
    args->i[0] = int_of(p, "other");
}

static void args_rounded(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    if (strcmp(ngd_call_str(p->call, "rounding_mode"), "trunc") == 0) {
        row->f = NGD_EW_TRUNC_DIVIDE_CONST;
        row->i = NGD_EI_TRUNC_DIVIDE_CONST;
    }
    args_divisor(p, row, args);
}

static void args_clamp(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)row;
    args->f[0] = in_type_of(p, "min");
    args->f[1] = in_type_of(p, "max");
    args->i[0] = int_of(p, "min");
    args->i[1] = int_of(p, "max");
}

static void args_leaky_relu(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)row;
    args->f[0] = (float)ngd_call_float(p->call, "negative_slope");
}

static void args_gelu(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    (void)args;
    if (strcmp(ngd_call_str(p->call, "approximate"), "tanh") == 0)
        row->f = NGD_EW_GELU_TANH;
}

static void args_pow(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    static const struct {
        double exponent;
        ngd_ew_unary_t f;
    } exact[] = {{0, NGD_EW_POW_0},   {1, NGD_EW_POW_1},  {2, NGD_EW_POW_2},    {3, NGD_EW_POW_3},
                 {-2, NGD_EW_POW_M2}, {0.5, NGD_EW_SQRT}, {-0.5, NGD_EW_RSQRT}, {-1, NGD_EW_RECIPROCAL}};
    double exponent = ngd_call_float(p->call, "exponent");

    args->f[0] = (float)exponent;
    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
        if (exact[i].exponent == exponent)
            row->f = (uint8_t)exact[i].f;
}

/* Compares integers with a float constant exactly, which a conversion of x to float would not: x < 1.5 is x <= 1, and
 * x == 1.5 is never true. */
static void args_compare(const struct ngd_host_prepare *p, struct unary_row *row, struct ngd_ew_args *args)
{
    const struct ngd_scalar other = ngd_call_scalar(p->call, "other");
    const double v = other.f, whole = floor(v);
    bool eq = row->i == NGD_EI_TEST_EQ_CONST, ne = row->i == NGD_EI_TEST_NE_CONST;
    bool less = row->i == NGD_EI_TEST_LT_CONST || row->i == NGD_EI_TEST_LE_CONST;

    args->f[0] = in_type_of(p, "other");
    args->i[0] = other.i ? other.i : ngd_scalar_i64((struct ngd_scalar){.f = whole});
    if (other.i)
        ; /* a whole constant may be equal to an integer */
    else if (v != v || whole >= 0x1p63 || whole < -0x1p63)
        row->i = ne || (!eq && v == v && less == (v > 0)) ? NGD_EI_TEST_ALWAYS : NGD_EI_TEST_NEVER;
    else if (whole != v)
        row->i = eq ? NGD_EI_TEST_NEVER : ne ? NGD_EI_TEST_ALWAYS : less ? NGD_EI_TEST_LE_CONST : NGD_EI_TEST_GT_CONST;
    row->b = row->i;
}

static const struct unary_row rows[NGD_OP_MAX] = {
#define NGD_HOST_UNARY(OP, floats, integers, bools, test, args) [NGD_OP_##OP] = {floats, integers, bools, test, args},
#define NGD_HOST_BINARY(OP, floats, integers, compare, alpha, rounds)
#define NGD_HOST_KERNEL(OP, symbol)
#include "devices/host/kernels/kernels_basic.def"
#undef NGD_HOST_KERNEL
};

static const double unary_ns[NGD_EW_UNARY_MAX + 1] = {
#define NGD_EW_UNARY(NAME, ns, value) ns,
#include "devices/host/kernels/k_elementwise.def"
};

static ngd_nd_fn unary_float_fn(const struct unary_row *row, ngd_isa_t isa, ngd_dtype_t t)
{
    const struct ngd_ew_table *table = NGD_BY_ISA(isa, ngd_ew);

    if (row->test)
        return table->test[row->f][t];
    return row->f < NGD_EW_UNARY_MAX ? table->unary[row->f][t] : NULL;
}

static ngd_status_t prepare_unary(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    ngd_dtype_t t = ngd_call_in(p->plan, p->call, 0)->dtype;
    struct unary_row row = rows[p->call->op->id];
    struct ngd_ew_params e = {0};
    double ns;

    if (row.args)
        row.args(p, &row, &e.args);
    if (ngd_dtype_is_float(t))
        e.fn = unary_float_fn(&row, p->isa, t);
    else
        e.fn = ngd_ei[t == NGD_BOOL ? row.b : row.i][t - NGD_I8];
    ns = row.test || !ngd_dtype_is_float(t) ? 0.05 : unary_ns[row.f];
    return ngd_ew_prepare(p, &e, 0, ns, diag);
}

const struct ngd_host_kernel ngd_host_unary = {.select = ngd_select_strided, .prepare = prepare_unary};
