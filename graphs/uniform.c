/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/uniform.h"
#include "graphs/op_int.h"
#include "graphs/op_traits.h"
#include <math.h>
#include <string.h>

/* f64 does not have all larger integers, and a fill value is written as f64. */
#define LARGEST_INT 0x1p53

/* ---- numbers of a dtype ---- */

static float nearest(ngd_dtype_t dtype, float v)
{
    if (dtype == NGD_F16)
        return ngd_f16_to_f32(ngd_f32_to_f16(v));
    return dtype == NGD_BF16 ? ngd_bf16_to_f32(ngd_f32_to_bf16(v)) : v;
}

/* Returns true unless the value is NaN or so small that a device may flush it to zero. */
static bool is_plain_value(ngd_dtype_t dtype, double v)
{
    return v == v && (v == 0 || fabs(v) >= (dtype == NGD_F16 ? 0x1p-14 : 0x1p-126));
}

static bool int_fits(ngd_dtype_t dtype, double v)
{
    static const double least[NGD_DTYPE_MAX] = {[NGD_I8] = -128, [NGD_I32] = -0x1p31, [NGD_I64] = -LARGEST_INT};
    static const double most[NGD_DTYPE_MAX] = {
        [NGD_I8] = 127, [NGD_U8] = 255, [NGD_I32] = 0x1p31 - 1, [NGD_I64] = LARGEST_INT, [NGD_BOOL] = 1};

    return v >= least[dtype] && v <= most[dtype];
}

bool ngd_uniform_round(ngd_dtype_t dtype, double v, struct ngd_uniform *u_p)
{
    struct ngd_uniform u = {0};

    if (ngd_dtype_is_float(dtype)) {
        u.f = (double)nearest(dtype, (float)v);
        if (!is_plain_value(dtype, v) || !is_plain_value(dtype, u.f))
            return false;
    } else {
        if (!int_fits(dtype, v) || v != trunc(v))
            return false;
        u.i = (int64_t)v;
    }
    *u_p = u;
    return true;
}

/* Casts a value. Casts that round or cut off are left to the device, except between floats, where all devices agree. */
bool ngd_uniform_cast(ngd_dtype_t from, const struct ngd_uniform *x, ngd_dtype_t to, struct ngd_uniform *u_p)
{
    double v = ngd_uniform_number(from, x);
    struct ngd_uniform u = {0};

    if (to == NGD_BOOL)
        u.i = v != 0;
    else if (!ngd_uniform_round(to, v, &u))
        return false;
    if (to != NGD_BOOL && !ngd_dtype_is_float(from) && ngd_uniform_number(to, &u) != v)
        return false;
    *u_p = u;
    return true;
}

bool ngd_uniform_equal(ngd_dtype_t dtype, const struct ngd_uniform *a, const struct ngd_uniform *b)
{
    return ngd_dtype_is_float(dtype) ? memcmp(&a->f, &b->f, sizeof(a->f)) == 0 : a->i == b->i;
}

bool ngd_uniform_of(const struct ngd_rewrite *rw, uint32_t value, struct ngd_uniform *u_p)
{
    const ngd_dtype_t dtype = ngd_rewrite_type(rw, value)->dtype;
    uint32_t maker = ngd_rewrite_maker(rw, ngd_rewrite_root(rw, value));
    const struct ngd_node *n = maker == NGD_NODE_NONE ? NULL : ngd_rewrite_node(rw, maker);

    struct ngd_scalar v;

    if (!n || !ngd_op_fills_all(n->op))
        return false;
    v = ngd_op_fill_value(n->op, n->attrs);
    return v.i == 0 && ngd_uniform_round(dtype, v.f, u_p);
}

/* ---- operators: x and y are the operands, or y is the attribute `other` ---- */

#define FLOAT(name, value)                      \
    static float float_##name(float x, float y) \
    {                                           \
        (void)y;                                \
        return value;                           \
    }
FLOAT(neg, -x)
FLOAT(abs, fabsf(x))
FLOAT(sqrt, sqrtf(x))
FLOAT(rsqrt, 1.0f / sqrtf(x))
FLOAT(reciprocal, 1.0f / x)
FLOAT(relu, 0.0f > x ? 0.0f : x)
FLOAT(floor, floorf(x))
FLOAT(ceil, ceilf(x))
FLOAT(round, rintf(x))
FLOAT(trunc, x < 0 ? ceilf(x) : floorf(x))
FLOAT(sign, (float)((x > 0) - (x < 0)))
FLOAT(add, x + y)
FLOAT(sub, x - y)
FLOAT(rsub, y - x)
FLOAT(mul, x *y)
FLOAT(div, x / y)
FLOAT(maximum, x > y ? x : y)
FLOAT(minimum, x < y ? x : y)

#define INT(name, value)                                   \
    static uint64_t int_##name(int64_t x, int64_t y)       \
    {                                                      \
        const uint64_t ux = (uint64_t)x, uy = (uint64_t)y; \
        (void)ux, (void)uy;                                \
        return (uint64_t)(value);                          \
    }
INT(neg, 0 - ux)
INT(abs, x < 0 ? 0 - ux : ux)
INT(relu, x < 0 ? 0 : x)
INT(sign, (x > 0) - (x < 0))
INT(add, ux + uy)
INT(sub, ux - uy)
INT(rsub, uy - ux)
INT(mul, ux *uy)
INT(maximum, x > y ? x : y)
INT(minimum, x < y ? x : y)
INT(and, ux &uy)
INT(or, ux | uy)
INT(xor, ux ^ uy)
INT(not, ~ux)
INT(bool_not, !ux)

/* Tests of numbers of any dtype, which f64 has exactly. */
#define TEST(name, truth)                       \
    static bool test_##name(double x, double y) \
    {                                           \
        (void)y;                                \
        return truth;                           \
    }
TEST(eq, x == y)
TEST(ne, x != y)
TEST(lt, x < y)
TEST(le, x <= y)
TEST(gt, x > y)
TEST(ge, x >= y)
TEST(and, x != 0 && y != 0)
TEST(or, x != 0 || y != 0)
TEST(xor, (x != 0) != (y != 0))
TEST(not, x == 0)
TEST(isinf, isinf(x))
TEST(isnan, x != x)

/* Computes the powers that kernels compute by multiplying. Returns false for others. */
static bool power(float x, double exponent, float *r_p)
{
    static const struct {
        double exponent;
        int32_t products;
        bool root, inverse;
    } known[] = {{1, 1, false, false}, {2, 2, false, false},  {3, 3, false, false},  {-1, 1, false, true},
                 {-2, 2, false, true}, {0.5, 1, true, false}, {-0.5, 1, true, true}, {0, 0, false, false}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        float r = known[i].products ? x : 1;

        if (known[i].exponent != exponent)
            continue;
        for (int32_t k = 1; k < known[i].products; k++)
            r *= x;
        r = known[i].root ? sqrtf(r) : r;
        *r_p = known[i].inverse ? 1.0f / r : r;
        return true;
    }
    return false;
}

static bool whole_pow(const struct ngd_node *n, ngd_dtype_t dtype, const struct ngd_uniform *x, struct ngd_uniform *u_p)
{
    float r;

    return power((float)x->f, ngd_op_float(n, "exponent"), &r) && ngd_uniform_round(dtype, (double)r, u_p);
}

/* Computes min(max, max(min, x)). Returns false if the dtype does not have the bounds. */
static bool whole_clamp(const struct ngd_node *n, ngd_dtype_t dtype, const struct ngd_uniform *x,
                        struct ngd_uniform *u_p)
{
    double v = ngd_uniform_number(dtype, x), low = ngd_op_float(n, "min"), high = ngd_op_float(n, "max");

    if (ngd_dtype_is_float(dtype)) {
        low = (double)nearest(dtype, (float)low);
        high = (double)nearest(dtype, (float)high);
    }
    v = low > v ? low : v;
    return ngd_uniform_round(dtype, high < v ? high : v, u_p);
}

static const struct row {
    float (*of_floats)(float x, float y);
    uint64_t (*of_ints)(int64_t x, int64_t y);
    bool (*test)(double x, double y);
    uint64_t (*of_bools)(int64_t x, int64_t y); /* NULL: of_ints is used */
    /* For operators of one operand with attributes of their own; replaces the other functions. */
    bool (*whole)(const struct ngd_node *n, ngd_dtype_t dtype, const struct ngd_uniform *x, struct ngd_uniform *u_p);
} rows[NGD_OP_MAX] = {
    [NGD_OP_ATEN_NEG] = {.of_floats = float_neg, .of_ints = int_neg},
    [NGD_OP_ATEN_ABS] = {.of_floats = float_abs, .of_ints = int_abs},
    [NGD_OP_ATEN_SQRT] = {.of_floats = float_sqrt},
    [NGD_OP_ATEN_RSQRT] = {.of_floats = float_rsqrt},
    [NGD_OP_ATEN_RECIPROCAL] = {.of_floats = float_reciprocal},
    [NGD_OP_ATEN_RELU] = {.of_floats = float_relu, .of_ints = int_relu},
    [NGD_OP_ATEN_FLOOR] = {.of_floats = float_floor},
    [NGD_OP_ATEN_CEIL] = {.of_floats = float_ceil},
    [NGD_OP_ATEN_ROUND] = {.of_floats = float_round},
    [NGD_OP_ATEN_TRUNC] = {.of_floats = float_trunc},
    [NGD_OP_ATEN_SIGN] = {.of_floats = float_sign, .of_ints = int_sign},
    [NGD_OP_ATEN_ADD_TENSOR] = {.of_floats = float_add, .of_ints = int_add},
    [NGD_OP_ATEN_SUB_TENSOR] = {.of_floats = float_sub, .of_ints = int_sub},
    [NGD_OP_ATEN_MUL_TENSOR] = {.of_floats = float_mul, .of_ints = int_mul},
    [NGD_OP_ATEN_DIV_TENSOR] = {.of_floats = float_div},
    [NGD_OP_ATEN_MAXIMUM] = {.of_floats = float_maximum, .of_ints = int_maximum},
    [NGD_OP_ATEN_MINIMUM] = {.of_floats = float_minimum, .of_ints = int_minimum},
    [NGD_OP_ATEN_ADD_SCALAR] = {.of_floats = float_add, .of_ints = int_add},
    [NGD_OP_ATEN_SUB_SCALAR] = {.of_floats = float_sub, .of_ints = int_sub},
    [NGD_OP_ATEN_RSUB_SCALAR] = {.of_floats = float_rsub, .of_ints = int_rsub},
    [NGD_OP_ATEN_MUL_SCALAR] = {.of_floats = float_mul, .of_ints = int_mul},
    [NGD_OP_ATEN_DIV_SCALAR] = {.of_floats = float_div},
    [NGD_OP_ATEN_BITWISE_AND_TENSOR] = {.of_ints = int_and},
    [NGD_OP_ATEN_BITWISE_OR_TENSOR] = {.of_ints = int_or},
    [NGD_OP_ATEN_BITWISE_XOR_TENSOR] = {.of_ints = int_xor},
    [NGD_OP_ATEN_BITWISE_NOT] = {.of_ints = int_not, .of_bools = int_bool_not},
    [NGD_OP_ATEN_POW_TENSOR_SCALAR] = {.whole = whole_pow},
    [NGD_OP_ATEN_CLAMP] = {.whole = whole_clamp},
    [NGD_OP_ATEN_EQ_TENSOR] = {.test = test_eq},
    [NGD_OP_ATEN_NE_TENSOR] = {.test = test_ne},
    [NGD_OP_ATEN_LT_TENSOR] = {.test = test_lt},
    [NGD_OP_ATEN_LE_TENSOR] = {.test = test_le},
    [NGD_OP_ATEN_GT_TENSOR] = {.test = test_gt},
    [NGD_OP_ATEN_GE_TENSOR] = {.test = test_ge},
    [NGD_OP_ATEN_EQ_SCALAR] = {.test = test_eq},
    [NGD_OP_ATEN_NE_SCALAR] = {.test = test_ne},
    [NGD_OP_ATEN_LT_SCALAR] = {.test = test_lt},
    [NGD_OP_ATEN_LE_SCALAR] = {.test = test_le},
    [NGD_OP_ATEN_GT_SCALAR] = {.test = test_gt},
    [NGD_OP_ATEN_GE_SCALAR] = {.test = test_ge},
    [NGD_OP_ATEN_LOGICAL_AND] = {.test = test_and},
    [NGD_OP_ATEN_LOGICAL_OR] = {.test = test_or},
    [NGD_OP_ATEN_LOGICAL_XOR] = {.test = test_xor},
    [NGD_OP_ATEN_LOGICAL_NOT] = {.test = test_not},
    [NGD_OP_ATEN_ISINF] = {.test = test_isinf},
    [NGD_OP_ATEN_ISNAN] = {.test = test_isnan},
};

static bool node_has_attr(const struct ngd_node *n, const char *attr)
{
    return ngd_op_attr_index(n->op, attr, strlen(attr)) >= 0;
}

/* Returns the second operand as a number. *exact_p false: it is scaled by alpha, which devices may do differently. */
static double second(const struct ngd_node *n, ngd_dtype_t dtype, const struct ngd_uniform *in, bool *exact_p)
{
    const double alpha = node_has_attr(n, "alpha") ? ngd_op_float(n, "alpha") : 1;
    double y = 0;

    *exact_p = alpha == 1;
    if (n->n_in == 2)
        y = ngd_uniform_number(dtype, &in[1]);
    else if (node_has_attr(n, "other"))
        y = ngd_op_float(n, "other");
    if (n->n_in == 1 && ngd_op_adds(n->op)) {
        y *= alpha; /* a plain number that is added, so all devices get the same */
        *exact_p = true;
    }
    return y;
}

static int64_t cut(ngd_dtype_t dtype, uint64_t v)
{
    switch (ngd_dtype_bytes(dtype)) {
    case 1:
        return dtype == NGD_BOOL ? v != 0 : dtype == NGD_U8 ? (int64_t)(uint8_t)v : (int64_t)(int8_t)v;
    case 4:
        return (int64_t)(int32_t)v;
    default:
        return (int64_t)v;
    }
}

static bool compute_int(const struct ngd_node *n, ngd_dtype_t dtype, int64_t x, double y, struct ngd_uniform *u_p)
{
    const struct row *row = &rows[n->op->id];
    int64_t v;

    if (!(fabs(y) < LARGEST_INT) || y != trunc(y)) /* the f64 product may have been rounded to 2^53 */
        return false;
    v = cut(dtype, (dtype == NGD_BOOL && row->of_bools ? row->of_bools : row->of_ints)(x, (int64_t)y));
    if (v < (int64_t)-LARGEST_INT || v > (int64_t)LARGEST_INT)
        return false;
    *u_p = (struct ngd_uniform){.i = v};
    return true;
}

static bool compute_float(const struct ngd_node *n, ngd_dtype_t dtype, float x, float y, struct ngd_uniform *u_p)
{
    return rows[n->op->id].of_floats && ngd_uniform_round(dtype, (double)rows[n->op->id].of_floats(x, y), u_p);
}

bool ngd_uniform_compute(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p)
{
    const ngd_dtype_t dtype = ngd_rewrite_type(rw, n->in[0])->dtype;
    const bool is_float = ngd_dtype_is_float(dtype);
    bool exact;
    double y = second(n, dtype, in, &exact);

    if (n->op->flags & NGD_OPF_IDENTITY)
        return ngd_uniform_cast(dtype, &in[0], ngd_rewrite_type(rw, n->out[0])->dtype, u_p);
    if (rows[n->op->id].whole)
        return rows[n->op->id].whole(n, dtype, &in[0], u_p);
    if (!exact)
        return false;
    if (rows[n->op->id].test) {
        if (is_float && n->n_in == 1)
            y = (double)nearest(dtype, (float)y);
        *u_p = (struct ngd_uniform){.i = rows[n->op->id].test(ngd_uniform_number(dtype, &in[0]), y)};
        return true;
    }
    if (is_float)
        return is_plain_value(NGD_F32, y) && is_plain_value(NGD_F32, (double)(float)y) &&
               compute_float(n, dtype, (float)in[0].f, (float)y, u_p);
    return rows[n->op->id].of_ints && compute_int(n, dtype, in[0].i, y, u_p);
}
