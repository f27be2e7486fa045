/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators, casts, copies, fills; operands are broadcast as the real ones do. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>

/* The second phases of all operators. */
#define NGD_ACLNN(name, args, since, instead)                                                                  \
    ngd_acl_error_t aclnn##name(void *workspace, uint64_t bytes, struct aclOpExecutor *executor, void *stream) \
    {                                                                                                          \
        SIM_RELEASE("aclnn" #name);                                                                            \
        return ngd_aclsim_execute("aclnn" #name, workspace, bytes, executor, stream, SIM_RELEASED);            \
    }
#include "devices/ascend/aclnn_symbols.def"
#include "devices/ascend/sim/sim_aclnn_symbols.def"
#undef NGD_ACLNN

/* ---- the shapes of results ----------------------------------------------------------------------- */

/* Gives v the shape of out: dimensions of 1 and missing ones are repeated. */
static void broadcast(struct sim_op *op, struct sim_view *v, const struct sim_view *out)
{
    int64_t dims[SIM_MAX_RANK], strides[SIM_MAX_RANK];
    uint32_t shift = out->rank - v->rank;

    if (op->code)
        return;
    ngd_aclsim_check(op, v->rank <= out->rank, "an operand has more dimensions than the result");
    if (op->code)
        return;
    for (uint32_t i = 0; i < out->rank; i++) {
        bool has = i >= shift && v->dims[i - shift] != 1;

        ngd_aclsim_check(op, !has || v->dims[i - shift] == out->dims[i], "shapes cannot be broadcast to the result's");
        dims[i] = out->dims[i];
        strides[i] = has ? v->strides[i - shift] : 0;
    }
    memcpy(v->dims, dims, sizeof(dims));
    memcpy(v->strides, strides, sizeof(strides));
    v->rank = out->rank;
}

/* Two loops: over rows, and over the last dimension, whose steps are given to fn. */
typedef void (*row_fn)(struct sim_op *op, char *const *p, const int64_t *steps, int64_t n);

static void for_rows(struct sim_op *op, row_fn fn)
{
    const struct sim_view *out = &op->t[op->n - 1];
    int64_t total = sim_elements(out), n = out->rank ? out->dims[out->rank - 1] : 1;
    char *p[4];
    int64_t steps[4];

    if (total == 0)
        return;
    for (uint32_t i = 0; i < op->n; i++)
        steps[i] = (out->rank ? op->t[i].strides[out->rank - 1] : 0) * (int64_t)sim_size(op->t[i].dtype);
    for (int64_t at = 0; at < total; at += n) {
        for (uint32_t i = 0; i < op->n; i++)
            p[i] = sim_at(&op->t[i], at);
        fn(op, p, steps, n);
    }
}

/* ---- one operand --------------------------------------------------------------------------------- */

enum unary {
    ABS,
    CEIL,
    COS,
    ERF,
    ERFC,
    EXP,
    FLOOR,
    LOG,
    NEG,
    RECIPROCAL,
    RELU,
    ROUND,
    RSQRT,
    SIGMOID,
    SILU,
    SIN,
    SQRT,
    TANH,
    NOT,
    GELU_ERF,
    GELU_TANH,
    CLAMP,
    ADDS,
    MULS,
    DIVS,
    POWS,
    EQS,
    NES,
    LTS,
    LES,
    GTS,
    GES,
    COPY,
    BITNOT,
    SIGN,
    TRUNC,
    ISINF,
    LEAKY,
};

static double unary_value(const struct sim_op *op, double x)
{
    switch ((enum unary)op->variant) {
    case ABS:
        return fabs(x);
    case CEIL:
        return ceil(x);
    case COS:
        return cos(x);
    case ERF:
        return erf(x);
    case ERFC:
        return erfc(x);
    case EXP:
        return exp(x);
    case FLOOR:
        return floor(x);
    case LOG:
        return log(x);
    case NEG:
        return -x;
    case RECIPROCAL:
        return 1 / x;
    case RELU:
        return x < 0 ? 0 : x;
    case ROUND:
        return nearbyint(x);
    case RSQRT:
        return 1 / sqrt(x);
    case SIGMOID:
        return 1 / (1 + exp(-x));
    case SILU:
        return x / (1 + exp(-x));
    case SIN:
        return sin(x);
    case SQRT:
        return sqrt(x);
    case TANH:
        return tanh(x);
    case NOT:
        return x == 0;
    case GELU_ERF:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case CLAMP:
        return isnan(x) ? x : fmin(fmax(x, op->f[0]), op->f[1]);
    case ADDS:
        return x + op->f[0];
    case MULS:
        return x * op->f[0];
    case DIVS:
        return x / op->f[0];
    case POWS:
        return pow(x, op->f[0]);
    case EQS:
        return x == op->f[0];
    case NES:
        return x != op->f[0];
    case LTS:
        return x < op->f[0];
    case LES:
        return x <= op->f[0];
    case GTS:
        return x > op->f[0];
    case GES:
        return x >= op->f[0];
    case SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case TRUNC:
        return trunc(x);
    case ISINF:
        return isinf(x) != 0;
    case LEAKY:
        return x > 0 ? x : x * op->f[0];
    case COPY:
    case BITNOT: /* takes no floats */
        return x;
    }
    return x;
}

/* With a scalar of integers: no bit is lost. */
static int64_t compare_int_value(const struct sim_op *op, int64_t x)
{
    switch ((enum unary)op->variant) {
    case EQS:
        return x == op->i[0];
    case NES:
        return x != op->i[0];
    case LTS:
        return x < op->i[0];
    case LES:
        return x <= op->i[0];
    case GTS:
        return x > op->i[0];
    case GES:
        return x >= op->i[0];
    default:
        return (int64_t)unary_value(op, (double)x);
    }
}

static int64_t unary_int(const struct sim_op *op, int64_t x)
{
    switch ((enum unary)op->variant) {
    case ABS:
        return x < 0 ? -x : x;
    case NEG:
        return -x;
    case RELU:
        return x < 0 ? 0 : x;
    case COPY:
        return x;
    case BITNOT:
        return op->t[0].dtype == NGD_ACL_BOOL ? !x : ~x;
    case ADDS:
        return (int64_t)((uint64_t)x + (uint64_t)op->i[0]);
    case MULS:
        return (int64_t)((uint64_t)x * (uint64_t)op->i[0]);
    default:
        return op->i[1] ? compare_int_value(op, x) : (int64_t)unary_value(op, (double)x);
    }
}

static void unary_row(struct sim_op *op, char *const *p, const int64_t *steps, int64_t n)
{
    int from = op->t[0].dtype, to = op->t[1].dtype;
    bool ints = !sim_is_float(from) && !sim_is_float(to);

    for (int64_t i = 0; i < n; i++) {
        const char *x = p[0] + i * steps[0];
        char *y = p[1] + i * steps[1];

        if (ints)
            sim_store_int(y, to, unary_int(op, sim_load_int(x, from)));
        else if (from == NGD_ACL_INT64 && op->variant == COPY) /* one rounding: a double does not hold every int64 */
            sim_store(y, to, (double)(float)sim_load_int(x, from));
        else
            sim_store(y, to, unary_value(op, sim_load(x, from)));
    }
}

static void run_unary(struct sim_op *op)
{
    for_rows(op, unary_row);
}

static struct sim_op *make_unary(const char *name, int variant, const struct aclTensor *self,
                                 const struct aclTensor *out, bool same_dtype)
{
    struct sim_op *op = ngd_aclsim_op(name, run_unary);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    ngd_aclsim_check(op, !same_dtype || x->dtype == y->dtype || ngd_aclsim_lenient(),
                     "operand and result are of two dtypes");
    if (!op->code && !sim_same_shape(x, y))
        broadcast(op, x, y);
    return op;
}

#define UNARY(Name, VARIANT, floats)                                                                                   \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(const struct aclTensor *self, struct aclTensor *out, NGD_ACL_PHASE1) \
    {                                                                                                                  \
        struct sim_op *op;                                                                                             \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                                    \
        op = make_unary("aclnn" #Name, VARIANT, self, out, true);                                                      \
        ngd_aclsim_check(op, !(floats) || op->code || sim_is_float(op->t[0].dtype), "takes floats");                   \
        return ngd_aclsim_finish(op, workspace_p, executor_p);                                                         \
    }
UNARY(Abs, ABS, false)
UNARY(Ceil, CEIL, true)
UNARY(Cos, COS, true)
UNARY(Erf, ERF, true)
UNARY(Erfc, ERFC, true)
UNARY(Exp, EXP, true)
UNARY(Floor, FLOOR, true)
UNARY(Log, LOG, true)
UNARY(Neg, NEG, false)
UNARY(Reciprocal, RECIPROCAL, true)
UNARY(Relu, RELU, false)
UNARY(Round, ROUND, true)
UNARY(Rsqrt, RSQRT, true)
UNARY(Sigmoid, SIGMOID, true)
UNARY(Silu, SILU, true)
UNARY(Sin, SIN, true)
UNARY(Sqrt, SQRT, true)
UNARY(Tanh, TANH, true)
UNARY(BitwiseNot, BITNOT, false)
UNARY(Sign, SIGN, false)
UNARY(Trunc, TRUNC, true)

ngd_acl_error_t aclnnIsInfGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnIsInfGetWorkspaceSize");
    op = make_unary("aclnnIsInf", ISINF, x, (struct aclTensor *)(uintptr_t)out, false);
    ngd_aclsim_check(op, op->t[1].dtype == NGD_ACL_BOOL, "the result is bool");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnLogicalNotGetWorkspaceSize(const struct aclTensor *self, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnLogicalNotGetWorkspaceSize");
    op = make_unary("aclnnLogicalNot", NOT, self, out, false);
    ngd_aclsim_check(op, op->t[1].dtype == NGD_ACL_BOOL, "the result is bool");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnGeluV2GetWorkspaceSize(const struct aclTensor *x, int64_t approximate, struct aclTensor *y,
                                            NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnGeluV2GetWorkspaceSize");
    op = make_unary("aclnnGeluV2", approximate == 0 ? GELU_ERF : GELU_TANH, x, y, true);
    ngd_aclsim_check(op, approximate == 0 || approximate == 1, "approximate is 0 (erf) or 1 (tanh)");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnClampGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *min,
                                           const struct aclScalar *max, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnClampGetWorkspaceSize");
    op = make_unary("aclnnClamp", CLAMP, self, out, true);
    op->f[0] = min ? min->f : -INFINITY;
    op->f[1] = max ? max->f : INFINITY;
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnCastGetWorkspaceSize(const struct aclTensor *self, const int dtype, struct aclTensor *out,
                                          NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnCastGetWorkspaceSize");
    op = make_unary("aclnnCast", COPY, self, out, false);
    ngd_aclsim_check(op, op->t[1].dtype == dtype, "the result is not of the dtype that is asked for");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnInplaceCopyGetWorkspaceSize(struct aclTensor *self, const struct aclTensor *src, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnInplaceCopyGetWorkspaceSize");
    return ngd_aclsim_finish(make_unary("aclnnInplaceCopy", COPY, src, self, false), workspace_p, executor_p);
}

/* alpha: the scalar's factor; a difference has the other sign. */
static int with_scalar(const char *name, int variant, const struct aclTensor *self, const struct aclScalar *other,
                       const struct aclScalar *alpha, int sign, struct aclTensor *out, bool compare, NGD_ACL_PHASE1)
{
    struct sim_op *op = make_unary(name, variant, self, out, !compare);

    op->f[0] = sign * (alpha ? alpha->f : 1) * other->f;
    op->i[0] = (int64_t)((uint64_t)(int64_t)sign * (uint64_t)(alpha ? alpha->i : 1) * (uint64_t)other->i);
    op->i[1] = !sim_is_float(other->dtype);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

#define SCALAR(Name, VARIANT, compare)                                                                           \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *other,   \
                                                  struct aclTensor *out, NGD_ACL_PHASE1)                         \
    {                                                                                                            \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                              \
        if (!other)                                                                                              \
            return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");                    \
        return with_scalar("aclnn" #Name, VARIANT, self, other, NULL, 1, out, compare, workspace_p, executor_p); \
    }
SCALAR(Muls, MULS, false)
SCALAR(Divs, DIVS, false)
SCALAR(EqScalar, EQS, true)
SCALAR(NeScalar, NES, true)
SCALAR(LtScalar, LTS, true)
SCALAR(LeScalar, LES, true)
SCALAR(GtScalar, GTS, true)
SCALAR(GeScalar, GES, true)

ngd_acl_error_t aclnnLeakyReluGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *slope,
                                               struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnLeakyReluGetWorkspaceSize");
    if (!slope)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");
    return with_scalar("aclnnLeakyRelu", LEAKY, self, slope, NULL, 1, out, false, workspace_p, executor_p);
}

ngd_acl_error_t aclnnPowTensorScalarGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *exponent,
                                                     const struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnPowTensorScalarGetWorkspaceSize");
    if (!exponent)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");
    return with_scalar("aclnnPowTensorScalar", POWS, self, exponent, NULL, 1, (struct aclTensor *)(uintptr_t)out, false,
                       workspace_p, executor_p);
}

#define ALPHA_SCALAR(Name, sign)                                                                                \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *other,  \
                                                  const struct aclScalar *alpha, struct aclTensor *out,         \
                                                  NGD_ACL_PHASE1)                                               \
    {                                                                                                           \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                             \
        if (!other || !alpha)                                                                                   \
            return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");                   \
        return with_scalar("aclnn" #Name, ADDS, self, other, alpha, sign, out, false, workspace_p, executor_p); \
    }
ALPHA_SCALAR(Adds, 1)
ALPHA_SCALAR(Subs, -1)

/* ---- two and three operands ---------------------------------------------------------------------- */

enum binary {
    ADD,
    MUL,
    DIV,
    MAX,
    MIN,
    EQ,
    NE,
    LT,
    LE,
    GT,
    GE,
    LAND,
    LOR,
    LXOR,
    BAND,
    BOR,
    BXOR,
    REM,
    POW,
    DIV_TRUNC,
    DIV_FLOOR
};

static double binary_value(const struct sim_op *op, double a, double b)
{
    switch ((enum binary)op->variant) {
    case ADD:
        return a + op->f[0] * b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MAX:
        return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    case MIN:
        return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    case EQ:
        return a == b;
    case NE:
        return a != b;
    case LT:
        return a < b;
    case LE:
        return a <= b;
    case GT:
        return a > b;
    case GE:
        return a >= b;
    case LAND:
        return a != 0 && b != 0;
    case LOR:
        return a != 0 || b != 0;
    case LXOR:
        return (a != 0) != (b != 0);
    case REM: {
        double r = fmod(a, b);

        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case POW:
        return pow(a, b);
    case DIV_TRUNC:
        return trunc(a / b);
    case DIV_FLOOR:
        return floor(a / b);
    case BAND:
    case BOR:
    case BXOR:
        break; /* take no floats */
    }
    return 0;
}

static int64_t binary_int(const struct sim_op *op, int64_t a, int64_t b)
{
    switch ((enum binary)op->variant) {
    case ADD:
        return a + (int64_t)op->f[0] * b;
    case MUL:
        return a * b;
    case DIV:
        return b ? a / b : 0;
    case MAX:
        return a > b ? a : b;
    case MIN:
        return a < b ? a : b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    case LT:
        return a < b;
    case LE:
        return a <= b;
    case GT:
        return a > b;
    case GE:
        return a >= b;
    case LAND:
        return a != 0 && b != 0;
    case LOR:
        return a != 0 || b != 0;
    case LXOR:
        return (a != 0) != (b != 0);
    case BAND:
        return a & b;
    case BOR:
        return a | b;
    case BXOR:
        return a ^ b;
    case REM: {
        int64_t r = b ? a % b : 0;

        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case DIV_TRUNC:
        return b == -1 ? (int64_t)(0 - (uint64_t)a) : b ? a / b : 0;
    case DIV_FLOOR:
        return b == -1 ? (int64_t)(0 - (uint64_t)a) : b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
    case POW:
        break; /* takes no integers */
    }
    return 0;
}

/* Operands meet in i[2], and the result is cast from there: comparisons give bool. */
static void binary_row(struct sim_op *op, char *const *p, const int64_t *steps, int64_t n)
{
    const int from[2] = {op->t[0].dtype, op->t[1].dtype}, meet = (int)op->i[2], to = op->t[2].dtype,
              between = op->i[3] ? NGD_ACL_BOOL : meet;
    char met[2][8], made[8];

    for (int64_t i = 0; i < n; i++) {
        const char *x[2] = {p[0] + i * steps[0], p[1] + i * steps[1]};

        for (int k = 0; k < 2 && sim_is_float(meet); k++)
            sim_store(met[k], meet, sim_load(x[k], from[k]));
        if (sim_is_float(meet))
            sim_store(made, between, binary_value(op, sim_load(met[0], meet), sim_load(met[1], meet)));
        else
            sim_store_int(made, between, binary_int(op, sim_load_int(x[0], from[0]), sim_load_int(x[1], from[1])));
        if (sim_is_float(between))
            sim_store(p[2] + i * steps[2], to, sim_load(made, between));
        else if (sim_is_float(to))
            sim_store(p[2] + i * steps[2], to, (double)sim_load_int(made, between));
        else
            sim_store_int(p[2] + i * steps[2], to, sim_load_int(made, between));
    }
}

static void run_binary(struct sim_op *op)
{
    for_rows(op, binary_row);
}

static int two(const char *name, int variant, const struct aclTensor *self, const struct aclTensor *other, double alpha,
               const struct aclTensor *out, bool compare, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_binary);
    struct sim_view *a = ngd_aclsim_operand(op, self), *b = ngd_aclsim_operand(op, other),
                    *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    op->f[0] = alpha;
    op->i[2] = sim_promote(a->dtype, b->dtype);
    op->i[3] = compare;
    /* hicann/ops-math c4193324, OP_CHECK_RESULT_DTYPE_CAST_FAILED in CheckPromoteType of aclnn_mul.cpp, aclnn_add.cpp
     * and others: dtypes are promoted, and the result may be of any to which PyTorch would cast. */
    ngd_aclsim_check(op, compare || !sim_is_float((int)op->i[2]) || sim_is_float(y->dtype),
                     "floats are not cast to integers");
    ngd_aclsim_check(op, compare || op->i[2] == NGD_ACL_BOOL || y->dtype != NGD_ACL_BOOL,
                     "numbers are not cast to bool");
    broadcast(op, a, y);
    broadcast(op, b, y);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

#define TWO(Name, VARIANT, compare)                                                                            \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, \
                                                  struct aclTensor *out, NGD_ACL_PHASE1)                       \
    {                                                                                                          \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                            \
        return two("aclnn" #Name, VARIANT, self, other, 1, out, compare, workspace_p, executor_p);             \
    }
TWO(Mul, MUL, false)
TWO(Div, DIV, false)
TWO(Maximum, MAX, false)
TWO(Minimum, MIN, false)
TWO(EqTensor, EQ, true)
TWO(NeTensor, NE, true)
TWO(LtTensor, LT, true)
TWO(LeTensor, LE, true)
TWO(GtTensor, GT, true)
TWO(GeTensor, GE, true)
TWO(LogicalAnd, LAND, true)
TWO(LogicalOr, LOR, true)
TWO(LogicalXor, LXOR, true)
TWO(BitwiseAndTensor, BAND, false)
TWO(BitwiseOrTensor, BOR, false)
TWO(BitwiseXorTensor, BXOR, false)
TWO(RemainderTensorTensor, REM, false)
TWO(PowTensorTensor, POW, false)

ngd_acl_error_t aclnnDivModGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, int mode,
                                            struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnDivModGetWorkspaceSize");
    if (mode != NGD_ACL_DIV_TRUNC && mode != NGD_ACL_DIV_FLOOR)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "mode 0, a quotient as it is", "mode %d of aclnnDivMod", mode);
    return two("aclnnDivMod", mode == NGD_ACL_DIV_TRUNC ? DIV_TRUNC : DIV_FLOOR, self, other, 1, out, false,
               workspace_p, executor_p);
}

#define ALPHA_TENSOR(Name, sign)                                                                               \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, \
                                                  const struct aclScalar *alpha, struct aclTensor *out,        \
                                                  NGD_ACL_PHASE1)                                              \
    {                                                                                                          \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                            \
        if (!alpha)                                                                                            \
            return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "alpha is NULL");                     \
        return two("aclnn" #Name, ADD, self, other, (sign)*alpha->f, out, false, workspace_p, executor_p);     \
    }
ALPHA_TENSOR(Add, 1)
ALPHA_TENSOR(Sub, -1)

ngd_acl_error_t aclnnInplaceAddGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other,
                                                const struct aclScalar *alpha, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnInplaceAddGetWorkspaceSize");
    if (!alpha)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "alpha is NULL");
    return two("aclnnInplaceAdd", ADD, self, other, alpha->f, self, false, workspace_p, executor_p);
}

static void where_row(struct sim_op *op, char *const *p, const int64_t *steps, int64_t n)
{
    size_t size = sim_size(op->t[3].dtype);

    for (int64_t i = 0; i < n; i++)
        memcpy(p[3] + i * steps[3], p[0][i * steps[0]] ? p[1] + i * steps[1] : p[2] + i * steps[2], size);
}

static void run_where(struct sim_op *op)
{
    for_rows(op, where_row);
}

ngd_acl_error_t aclnnSWhereGetWorkspaceSize(const struct aclTensor *condition, const struct aclTensor *self,
                                            const struct aclTensor *other, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnSWhereGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnSWhere", run_where);
    ngd_aclsim_operand(op, condition);
    ngd_aclsim_operand(op, self);
    ngd_aclsim_operand(op, other);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_check(op, op->t[0].dtype == NGD_ACL_BOOL, "the condition is bool");
    ngd_aclsim_check(op, op->t[1].dtype == op->t[2].dtype && op->t[1].dtype == op->t[3].dtype, "dtypes differ");
    for (int i = 0; i < 3; i++)
        broadcast(op, &op->t[i], &op->t[3]);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- makers
 * ---------------------------------------------------------------------------------------------------------------------
 */

static void run_maker(struct sim_op *op)
{
    int64_t n = sim_elements(&op->t[0]);

    for (int64_t i = 0; i < n; i++)
        if (op->t[0].dtype == NGD_ACL_INT64 && op->i[1]) /* which a double may not hold */
            sim_store_int(sim_at(&op->t[0], i), NGD_ACL_INT64, op->i[0]);
        else
            sim_store(sim_at(&op->t[0], i), op->t[0].dtype, op->f[0] + (double)i * op->f[1]);
}

ngd_acl_error_t aclnnInplaceFillScalarGetWorkspaceSize(struct aclTensor *self, const struct aclScalar *value,
                                                       NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnInplaceFillScalarGetWorkspaceSize");
    if (!value)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "the value is NULL");
    op = ngd_aclsim_op("aclnnInplaceFillScalar", run_maker);
    ngd_aclsim_operand(op, self);
    op->f[0] = value->f;
    op->i[0] = value->i;
    op->i[1] = !sim_is_float(value->dtype);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnArangeGetWorkspaceSize(const struct aclScalar *start, const struct aclScalar *end,
                                            const struct aclScalar *step, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnArangeGetWorkspaceSize");
    if (!start || !end || !step)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");
    op = ngd_aclsim_op("aclnnArange", run_maker);
    ngd_aclsim_operand(op, out);
    op->f[0] = start->f;
    op->f[1] = step->f;
    /* hicann/ops-math c4193324, aclnn_arange.cpp, CheckParams: the result's length is not compared with the range's. */
    ngd_aclsim_check(op, step->f != 0 && (end->f - start->f) / step->f >= 0, "the step leads away from the end");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
