/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of the simulator that programs of others call and our backend does not, and what the setting "lenient" lets
 * pass. tests/ascend/ggml_cann.py runs such a program on them.
 */
#include "devices/ascend/acl.h"
#include "devices/ascend/sim/sim_op.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"
#include <math.h>

#define ROOM 4096 /* bytes of each operand */

static const struct ngd_acl *acl;
static void *context, *stream;
static char *memory; /* on the device */
static uint32_t n_tensors;
static struct aclTensor *tensors[16];

static void open_simulator(const char *lenient)
{
    struct ngd_diag diag = {0};

    simulator_set("lenient", lenient);
    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
    ck_assert_int_eq(acl->aclrtMalloc((void **)&memory, 16 * ROOM, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    n_tensors = 0;
}

static void close_simulator(void)
{
    static const char *const kinds[] = {"streams", "bytes", "contexts", "operands", "executors"};

    while (n_tensors > 0)
        ck_assert_int_eq(acl->aclDestroyTensor(tensors[--n_tensors]), 0);
    ck_assert_int_eq(acl->aclrtFree(memory), 0);
    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
    simulator_set("lenient", "0");
}

struct shape {
    uint64_t rank;
    int64_t dims[4], strides[4]; /* strides[0] == 0: contiguous */
    int64_t shift;               /* bytes by which the address is not that of its room */
};

/* A tensor of these values, which are given as numbers; i4: as bytes. */
static struct aclTensor *put(int dtype, struct shape s, const double *values, size_t n)
{
    char bytes[ROOM] = {0}, *mem = memory + n_tensors * ROOM + s.shift;
    const int64_t storage = 512;
    struct aclTensor *t;

    for (size_t i = 0; i < n; i++) {
        if (dtype == NGD_ACL_INT4)
            bytes[i] = (char)(int)values[i];
        else
            sim_store(bytes + i * sim_size(dtype), dtype, values[i]);
    }
    ck_assert_int_eq(acl->aclrtMemcpy(mem, ROOM / 2, bytes, ROOM / 2, NGD_ACL_COPY_H2D), 0);
    t = acl->aclCreateTensor(s.dims, s.rank, dtype, s.strides[0] ? s.strides : NULL, 0, NGD_ACL_FORMAT_ND, &storage, 1,
                             mem);
    ck_assert_ptr_nonnull(t);
    return tensors[n_tensors++] = t;
}

#define SHAPE(r, ...) ((struct shape){.rank = r, .dims = {__VA_ARGS__}})
#define PUT(dtype, s, ...) \
    put(dtype, s, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
#define EMPTY(dtype, s) put(dtype, s, NULL, 0)

/* The operator, whose second phase and end must succeed if the first one does. */
#define CALL(name, ...)                                                          \
    run_phase2("aclnn" #name, &planned,                                          \
               ((__typeof__(&aclnn##name##GetWorkspaceSize))simulator_symbol_in( \
                   "libopapi.so", "aclnn" #name "GetWorkspaceSize"))(__VA_ARGS__, &planned.bytes, &planned.executor))

static struct planned {
    uint64_t bytes;
    struct aclOpExecutor *executor;
} planned;

static int run_phase2(const char *name, struct planned *p, int code)
{
    ngd_aclnn_run_t run = (ngd_aclnn_run_t)simulator_symbol_in("libopapi.so", name);

    if (code)
        return code;
    ck_assert_uint_le(p->bytes, ROOM * 2);
    ck_assert_int_eq(run(memory + 14 * ROOM, p->bytes, p->executor, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 10000), 0);
    return 0;
}

/* The memory of a tensor, in the order in which it lies there. */
static void is(const struct aclTensor *t, const double *want, size_t n)
{
    char bytes[ROOM];

    ck_assert_int_eq(acl->aclrtMemcpy(bytes, ROOM, t->data, ROOM / 2, NGD_ACL_COPY_D2H), 0);
    for (size_t i = 0; i < n; i++) {
        double got = sim_load(bytes + i * sim_size(t->dtype), t->dtype);

        ck_assert_msg(fabs(got - want[i]) <= 1e-6 * fmax(1, fabs(want[i])), "element %zu is %.9g, not %.9g", i, got,
                      want[i]);
    }
}

#define IS(t, ...) is(t, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
#define VECTOR(n)  SHAPE(1, n)

static struct aclScalar *scalar(float v)
{
    return acl->aclCreateScalar(&v, NGD_ACL_FLOAT);
}

/* ---- tests --------------------------------------------------------------------------------------- */

START_TEST(operators_in_place_do_what_those_with_a_result_do)
{
    struct aclTensor *x, *f, *other;
    struct aclScalar *two, *one;

    open_simulator("0");
    two = scalar(2);
    one = scalar(1);
    x = PUT(NGD_ACL_FLOAT, VECTOR(3), 1, -2, 4);
    f = PUT(NGD_ACL_FLOAT, VECTOR(2), 0, 0);
    other = PUT(NGD_ACL_FLOAT, VECTOR(1), 2);
    ck_assert_int_eq(CALL(InplaceMul, x, other), 0);
    IS(x, 2, -4, 8);
    ck_assert_int_eq(CALL(InplaceDiv, x, other), 0);
    IS(x, 1, -2, 4);
    ck_assert_int_eq(CALL(InplaceSub, x, other, two), 0);
    IS(x, -3, -6, 0);
    ck_assert_int_eq(CALL(InplaceAdds, x, two, two), 0);
    IS(x, 1, -2, 4);
    ck_assert_int_eq(CALL(InplaceSubs, x, one, one), 0);
    IS(x, 0, -3, 3);
    ck_assert_int_eq(CALL(InplaceMuls, x, two), 0);
    IS(x, 0, -6, 6);
    ck_assert_int_eq(CALL(InplaceDivs, x, two), 0);
    IS(x, 0, -3, 3);
    ck_assert_int_eq(CALL(InplaceClampMax, x, one), 0);
    IS(x, 0, -3, 1);
    ck_assert_int_eq(CALL(InplaceThreshold, x, one, two), 0);
    IS(x, 2, 2, 2);
    ck_assert_int_eq(CALL(InplacePowTensorTensor, x, x), 0);
    IS(x, 4, 4, 4);
    ck_assert_int_eq(CALL(InplaceZero, x), 0);
    IS(x, 0, 0, 0);
    ck_assert_int_eq(CALL(InplaceCos, f), 0);
    IS(f, 1, 1);
    ck_assert_int_eq(CALL(InplaceSin, f), 0);
    IS(f, sin(1), sin(1));
    ck_assert_int_eq(CALL(InplaceExp, f), 0);
    IS(f, exp(sin(1)), exp(sin(1)));
    acl->aclDestroyScalar(one);
    acl->aclDestroyScalar(two);
    close_simulator();
}
END_TEST

/* The numbers are PyTorch's. */
START_TEST(activations_have_their_definitions)
{
    struct aclTensor *x, *y;
    struct aclScalar *one, *two, *twenty;

    open_simulator("0");
    one = scalar(1);
    two = scalar(2);
    twenty = scalar(20);
    x = PUT(NGD_ACL_FLOAT, VECTOR(4), -4, -1, 0.5, 25);
    y = EMPTY(NGD_ACL_FLOAT, VECTOR(4));
    ck_assert_int_eq(CALL(Hardsigmoid, x, y), 0);
    IS(y, 0, 1.0 / 3, 3.5 / 6, 1);
    ck_assert_int_eq(CALL(Hardswish, x, y), 0);
    IS(y, 0, -1.0 / 3, 0.5 * 3.5 / 6, 25);
    ck_assert_int_eq(CALL(Elu, x, two, one, one, y), 0);
    IS(y, 2 * expm1(-4), 2 * expm1(-1), 0.5, 25);
    ck_assert_int_eq(CALL(Softplus, x, one, twenty, y), 0);
    IS(y, log1p(exp(-4)), log1p(exp(-1)), log1p(exp(0.5)), 25);
    ck_assert_int_eq(CALL(ClampMin, x, one, y), 0);
    IS(y, 1, 1, 1, 25);
    ck_assert_int_eq(CALL(PowScalarTensor, two, x, y), 0);
    IS(y, 0.0625, 0.5, sqrt(2), 33554432);
    ck_assert_int_eq(CALL(Gelu, x, y), 0);
    IS(y, -7.0232e-5, -0.158808, 0.345714, 25);
    ck_assert_int_eq(CALL(Hardswish, x, tensors[0]), 0);
    ck_assert_int_eq(CALL(Elu, x, NULL, one, one, y), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyScalar(one);
    acl->aclDestroyScalar(two);
    acl->aclDestroyScalar(twenty);
    close_simulator();
}
END_TEST

START_TEST(views_are_permuted_sliced_repeated_gathered_and_padded)
{
    static const int64_t turn[2] = {1, 0}, twice[2] = {0, 0}, around[4] = {1, 0, 0, 1};
    struct aclIntArray *dims, *bad, *pad;
    struct aclTensor *x, *y, *index;
    struct aclScalar *nine;

    open_simulator("0");
    nine = scalar(9);
    dims = acl->aclCreateIntArray(turn, 2);
    bad = acl->aclCreateIntArray(twice, 2);
    pad = acl->aclCreateIntArray(around, 4);
    x = PUT(NGD_ACL_FLOAT, SHAPE(2, 2, 3), 0, 1, 2, 3, 4, 5);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 3, 2));
    ck_assert_int_eq(CALL(Permute, x, dims, y), 0);
    IS(y, 0, 3, 1, 4, 2, 5);
    ck_assert_int_eq(CALL(Permute, x, bad, y), NGD_ACL_NN_PARAM_INVALID);
    ck_assert_int_eq(CALL(Permute, x, dims, x), NGD_ACL_NN_PARAM_INVALID);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 2));
    ck_assert_int_eq(CALL(Slice, x, -1, 0, 3, 2, y), 0);
    IS(y, 0, 2, 3, 5);
    ck_assert_int_eq(CALL(Slice, x, -1, -2, 100, 1, y), 0);
    IS(y, 1, 2, 4, 5);
    ck_assert_int_eq(CALL(Slice, x, 2, 0, 2, 1, y), NGD_ACL_NN_PARAM_INVALID);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 4, 3));
    ck_assert_int_eq(CALL(RepeatInterleaveIntWithDim, x, 2, 0, 4, y), 0);
    IS(y, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
    ck_assert_int_eq(CALL(RepeatInterleaveIntWithDim, x, 2, 1, 6, y), NGD_ACL_NN_PARAM_INVALID);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 6));
    ck_assert_int_eq(CALL(RepeatInterleaveIntWithDim, x, 2, 1, 6, y), 0);
    IS(y, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5);
    index = PUT(NGD_ACL_INT32, VECTOR(2), 2, 0);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 2));
    ck_assert_int_eq(CALL(GatherV2, x, 1, index, y), 0);
    IS(y, 2, 0, 5, 3);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 3, 4));
    ck_assert_int_eq(CALL(ConstantPadNd, x, pad, nine, y), 0);
    IS(y, 9, 0, 1, 2, 9, 3, 4, 5, 9, 9, 9, 9);
    ck_assert_int_eq(CALL(ConstantPadNd, x, pad, nine, x), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyIntArray(dims);
    acl->aclDestroyIntArray(bad);
    acl->aclDestroyIntArray(pad);
    acl->aclDestroyScalar(nine);
    close_simulator();
}
END_TEST

START_TEST(products_take_several_dtypes_and_groups_of_scales)
{
    double ones[64], i4[64];
    struct aclTensor *x, *w, *y, *scale;

    open_simulator("1");
    x = PUT(NGD_ACL_FLOAT, SHAPE(2, 1, 2), 1, 1.0001); /* which f16 does not hold */
    w = PUT(NGD_ACL_FLOAT16, SHAPE(2, 2, 2), 1, 2, 3, 4);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 1, 2));
    ck_assert_int_eq(CALL(Mm, x, w, y, 0), 0);
    IS(y, 1 + 3 * 1.0001, 2 + 4 * 1.0001);
    ck_assert_int_eq(CALL(Mm, x, w, y, 2), 0);
    IS(y, 4, 6);
    ck_assert_int_eq(CALL(Mm, w, x, y, 2), NGD_ACL_NN_PARAM_INVALID);

    /* A batch of matrices times one matrix, and one that is repeated. */
    x = PUT(NGD_ACL_FLOAT, SHAPE(3, 2, 1, 2), 1, 0, 0, 1);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(3, 2, 1, 2));
    ck_assert_int_eq(CALL(Matmul, x, w, y, 0), 0);
    IS(y, 1, 2, 3, 4);

    for (int i = 0; i < 64; i++) {
        ones[i] = 1;
        i4[i] = i % 2 ? 0x7f : 0x18; /* i4 by pairs, the first is the lower half: -8, 1 and -1, 7 */
    }
    x = put(NGD_ACL_FLOAT16, SHAPE(2, 1, 64), ones, 64);
    w = put(NGD_ACL_INT8, ((struct shape){.rank = 2, .dims = {64, 1}, .strides = {1, 64}}), ones, 64);
    scale = PUT(NGD_ACL_FLOAT16, SHAPE(2, 2, 1), 0.5, 2);
    y = EMPTY(NGD_ACL_FLOAT16, SHAPE(2, 1, 1));
    ck_assert_int_eq(CALL(WeightQuantBatchMatmulV2, x, w, scale, NULL, NULL, NULL, NULL, 32, y), 0);
    IS(y, 32 * 0.5 + 32 * 2);
    ck_assert_int_eq(CALL(WeightQuantBatchMatmulV2, x, w, scale, NULL, NULL, NULL, NULL, 48, y),
                     NGD_ACL_NN_PARAM_INVALID);
    w = put(NGD_ACL_INT4, ((struct shape){.rank = 2, .dims = {64, 1}, .strides = {1, 64}}), i4, 32);
    ck_assert_int_eq(CALL(WeightQuantBatchMatmulV2, x, w, scale, NULL, NULL, NULL, NULL, 32, y), 0);
    ck_assert_int_eq(CALL(Neg, w, w), NGD_ACL_NN_PARAM_INVALID); /* no other operator takes i4 */
    IS(y, 8 * (-8 + 1 - 1 + 7) * 0.5 + 8 * (-8 + 1 - 1 + 7) * 2);
    close_simulator();
}
END_TEST

/* (weight + offset) * scale + bias, and scales beside a transposed weight in the order in which it lies. */
START_TEST(quantised_products_add_offsets_and_biases)
{
    double w[128], ones[64];
    struct aclTensor *x, *weight, *scale, *offset, *bias, *y;

    open_simulator("0");
    for (int i = 0; i < 128; i++)
        w[i] = i / 64 ? 3 : -2; /* of column 0, then of column 1 */
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    x = put(NGD_ACL_BF16, SHAPE(2, 1, 64), ones, 64);
    weight = put(NGD_ACL_INT8, ((struct shape){.rank = 2, .dims = {64, 2}, .strides = {1, 64}}), w, 128);
    scale = PUT(NGD_ACL_BF16, ((struct shape){.rank = 2, .dims = {2, 2}, .strides = {1, 2}}), 1, 2, 4, 8);
    offset = PUT(NGD_ACL_BF16, ((struct shape){.rank = 2, .dims = {2, 2}, .strides = {1, 2}}), 0, 1, 0, 1);
    bias = PUT(NGD_ACL_FLOAT, VECTOR(2), 100, -100);
    y = EMPTY(NGD_ACL_BF16, SHAPE(2, 1, 2));
    ck_assert_int_eq(CALL(WeightQuantBatchMatmulV2, x, weight, scale, offset, NULL, NULL, bias, 32, y), 0);
    IS(y, 32 * (-2 * 1 + -1 * 2) + 100 - 4 + 4, sim_from_bf16(sim_to_bf16(32 * (3 * 4 + 4 * 8) - 100)));
    close_simulator();
}
END_TEST

/* (x1 * x2 + bias) * scale * row's scale for a bias of int32; a bias of floats is added at the end. */
START_TEST(products_of_i8_have_scales_of_columns_and_rows)
{
    struct aclTensor *x, *w, *scale, *rows, *whole, *bias, *y;

    open_simulator("0");
    x = PUT(NGD_ACL_INT8, SHAPE(2, 2, 3), 1, 2, 3, -128, 0, 127);
    w = PUT(NGD_ACL_INT8, ((struct shape){.rank = 2, .dims = {3, 2}, .strides = {1, 3}}), 1, 1, 1, -128, 5, 127);
    scale = PUT(NGD_ACL_FLOAT, VECTOR(2), 0.5, 2);
    rows = PUT(NGD_ACL_FLOAT, VECTOR(2), 1, 0.25);
    whole = PUT(NGD_ACL_INT32, VECTOR(2), 10, -1000);
    bias = PUT(NGD_ACL_FLOAT, VECTOR(2), 3, 1);
    y = EMPTY(NGD_ACL_INT32, SHAPE(2, 2, 2));
    ck_assert_int_eq(CALL(QuantMatmulV4, x, w, scale, NULL, NULL, whole, false, false, y), 0);
    IS(y, 6 + 10, -128 + 10 + 381 - 1000, -1 + 10, 16384 + 16129 - 1000);
    y = EMPTY(NGD_ACL_FLOAT16, SHAPE(2, 2, 2));
    ck_assert_int_eq(CALL(QuantMatmulV4, x, w, scale, NULL, rows, whole, false, false, y), 0);
    IS(y, 8, -1474, 9 * 0.125, sim_from_f16(sim_to_f16(31513 * 0.5)));
    ck_assert_int_eq(CALL(QuantMatmulV4, x, w, scale, NULL, rows, bias, false, false, y), 0);
    IS(y, 6, 527, -0.125 + 3, sim_from_f16(sim_to_f16(32513 * 0.5 + 1)));
    close_simulator();
}
END_TEST

/* With its tensors, which are destroyed at the end else. */
static void destroy_list(const struct aclTensorList *list)
{
    for (uint64_t k = 0; k < list->n; k++)
        for (uint32_t i = 0; i < n_tensors; i++)
            if (tensors[i] == list->t[k])
                tensors[i] = tensors[--n_tensors];
    ck_assert_int_eq(acl->aclDestroyTensorList(list), 0);
}

/* Rows go to their experts, are multiplied by 10 and 100, and come back with their shares. */
START_TEST(mixtures_of_experts_have_their_definitions)
{
    struct aclTensor *x, *experts, *rows, *to, *counts, *groups, *product, *shares, *y, *columns;
    struct aclTensorList *a, *w, *out;

    open_simulator("0");
    x = PUT(NGD_ACL_FLOAT, SHAPE(2, 3, 1), 1, 2, 3);
    experts = PUT(NGD_ACL_INT32, SHAPE(2, 3, 2), 1, 0, 0, 1, 1, 1);
    rows = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 6, 1));
    to = EMPTY(NGD_ACL_INT32, VECTOR(6));
    counts = EMPTY(NGD_ACL_INT32, VECTOR(2));
    ck_assert_int_eq(CALL(MoeInitRoutingV2, x, experts, 0, 0, 2, 0, 1, false, rows, to, counts, NULL), 0);
    IS(counts, 2, 6);
    ck_assert_int_eq(CALL(MoeInitRoutingV2, x, experts, 0, 0, 2, 0, 2, false, rows, to, counts, NULL), 0);
    IS(counts, 2, 4);
    IS(rows, 1, 2, 1, 2, 3, 3);
    IS(to, 2, 0, 1, 3, 4, 5);
    groups = PUT(NGD_ACL_INT64, VECTOR(2), 2, 4);
    product = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 6, 1));
    a = acl->aclCreateTensorList((const struct aclTensor *const[]){rows}, 1);
    w = acl->aclCreateTensorList((const struct aclTensor *const[]){PUT(NGD_ACL_FLOAT, SHAPE(2, 1, 1), 10),
                                                                   PUT(NGD_ACL_FLOAT, SHAPE(2, 1, 1), 100)},
                                 2);
    out = acl->aclCreateTensorList((const struct aclTensor *const[]){product}, 1);
    ck_assert_int_eq(CALL(GroupedMatmulV4, a, w, NULL, NULL, NULL, NULL, NULL, NULL, groups, NULL, NULL, NULL, 3, 0, 1,
                          0, out, NULL, NULL),
                     0);
    IS(product, 10, 20, 100, 200, 300, 300);
    groups = PUT(NGD_ACL_INT64, VECTOR(2), 2, 6); /* where they end */
    ck_assert_int_eq(CALL(GroupedMatmulV4, a, w, NULL, NULL, NULL, NULL, NULL, NULL, groups, NULL, NULL, NULL, 3, 0, 0,
                          0, out, NULL, NULL),
                     0);
    IS(product, 10, 20, 100, 200, 300, 300);
    shares = PUT(NGD_ACL_FLOAT, SHAPE(2, 3, 2), 1, 2, 1, 1, 0.5, 0.25);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 3, 1));
    ck_assert_int_eq(CALL(MoeFinalizeRoutingV2, product, to, NULL, NULL, NULL, shares, NULL, 2, y), 0);
    IS(y, 100 + 2 * 10, 20 + 200, 300 * 0.75);
    columns = PUT(NGD_ACL_INT32, VECTOR(6), 2, 1, 4, 0, 3, 5); /* the same by places */
    ck_assert_int_eq(CALL(MoeFinalizeRoutingV2, product, columns, NULL, NULL, NULL, shares, NULL, 0, y), 0);
    IS(y, 100 + 2 * 10, 20 + 200, 300 * 0.75);
    for (size_t i = 0; i < 3; i++)
        destroy_list((struct aclTensorList *[]){a, w, out}[i]);
    close_simulator();
}
END_TEST

/* Numbers of 3 experts and of rows by columns; a finished row has the number behind the last one. */
START_TEST(gates_have_their_definition)
{
    const double a = 1 / (1 + exp(-1) + exp(-2)), b = a * exp(-1);
    struct aclTensor *x, *done, *y, *experts, *rows;

    open_simulator("0");
    x = PUT(NGD_ACL_FLOAT, SHAPE(2, 2, 3), 0, 2, 1, 7, 5, 6);
    done = PUT(NGD_ACL_BOOL, VECTOR(2), 0, 1);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 2));
    experts = EMPTY(NGD_ACL_INT32, SHAPE(2, 2, 2));
    rows = EMPTY(NGD_ACL_INT32, SHAPE(2, 2, 2));
    ck_assert_int_eq(CALL(MoeGatingTopKSoftmax, x, NULL, 2, y, experts, rows), 0);
    IS(y, a, b, a, b);
    IS(experts, 1, 2, 0, 2);
    IS(rows, 0, 2, 1, 3);
    ck_assert_int_eq(CALL(MoeGatingTopKSoftmax, x, done, 2, y, experts, rows), 0);
    IS(experts, 1, 2, 3, 3);
    close_simulator();
}
END_TEST

/* One query of two heads over two keys of one head: the scores are made equal by pse, or the first one is masked. */
START_TEST(attention_over_tensors_adds_pse_to_its_scores)
{
    double q[32] = {1}, k[32] = {4}, v[32];
    struct aclTensor *query, *key, *value, *pse, *y;
    struct aclTensorList *keys, *values;
    char layout[] = "BSND";

    q[16] = 1;
    for (int i = 0; i < 32; i++)
        v[i] = i < 16 ? 1 : 3;
    open_simulator("0");
    query = put(NGD_ACL_FLOAT16, SHAPE(4, 1, 1, 2, 16), q, 32);
    key = put(NGD_ACL_FLOAT16, SHAPE(4, 1, 2, 1, 16), k, 32);
    value = put(NGD_ACL_FLOAT16, SHAPE(4, 1, 2, 1, 16), v, 32);
    pse = PUT(NGD_ACL_FLOAT16, SHAPE(4, 1, 2, 1, 2), -2, 0, -INFINITY, 0);
    y = EMPTY(NGD_ACL_FLOAT16, SHAPE(4, 1, 1, 2, 16));
    keys = acl->aclCreateTensorList((const struct aclTensor *const[]){key}, 1);
    values = acl->aclCreateTensorList((const struct aclTensor *const[]){value}, 1);
#define ATTEND(pse, heads, layout, out)                                                                               \
    CALL(FusedInferAttentionScoreV2, query, keys, values, pse, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,  \
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, heads, 0.5, 65535, 65535, layout, 1, 0, 0, \
         0, 0, false, 0, 0, out, NULL)
    ck_assert_int_eq(ATTEND(pse, 2, layout, y), 0);
    IS(y, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3);
    ck_assert_int_eq(ATTEND(NULL, 4, layout, y), NGD_ACL_NN_PARAM_INVALID);
    ck_assert_int_eq(ATTEND(query, 2, layout, y), NGD_ACL_NN_PARAM_INVALID);
    layout[0] = 'T';
    ck_assert_int_eq(ATTEND(pse, 2, layout, y), NGD_ACL_NN_PARAM_INVALID);
    ck_assert_int_eq(acl->aclDestroyTensorList(keys), 0); /* with their tensors, which are not the last ones here */
    ck_assert_int_eq(acl->aclDestroyTensorList(values), 0);
    tensors[1] = pse;
    tensors[2] = y;
    n_tensors = 3;
    close_simulator();
}
END_TEST

START_TEST(rotation_turns_halves_or_neighbours_and_repeats_its_angles)
{
    struct aclTensor *x, *cosine, *sine, *y;

    open_simulator("0");
    x = PUT(NGD_ACL_FLOAT, SHAPE(4, 2, 1, 1, 4), 1, 2, 3, 4, 5, 6, 7, 8);
    cosine = PUT(NGD_ACL_FLOAT, SHAPE(4, 1, 1, 1, 4), 0, 0, 0, 0);
    sine = PUT(NGD_ACL_FLOAT, SHAPE(4, 1, 1, 1, 4), 1, 1, 1, 1);
    y = EMPTY(NGD_ACL_FLOAT, SHAPE(4, 2, 1, 1, 4));
    ck_assert_int_eq(CALL(RotaryPositionEmbedding, x, cosine, sine, 0, y), 0);
    IS(y, -3, -4, 1, 2, -7, -8, 5, 6);
    ck_assert_int_eq(CALL(RotaryPositionEmbedding, x, cosine, sine, 1, y), 0);
    IS(y, -2, 1, -4, 3, -6, 5, -8, 7);
    ck_assert_int_eq(CALL(RotaryPositionEmbedding, x, cosine, sine, 1, x), 0); /* in place */
    IS(x, -2, 1, -4, 3, -6, 5, -8, 7);
    ck_assert_int_eq(CALL(RotaryPositionEmbedding, x, cosine, sine, 2, y), NGD_ACL_NN_PARAM_INVALID);
    close_simulator();
}
END_TEST

/* What programs of others pass and devices take: some of it is refused unless the simulator is told to be lenient. */
START_TEST(lenient_simulator_takes_what_devices_take)
{
    for (int lenient = 0; lenient < 2; lenient++) {
        const int code = lenient ? 0 : NGD_ACL_NN_PARAM_INVALID;
        struct aclTensor *x, *half, *bytes, *y, *shifted, *strided, *gamma, *rstd, *beyond;
        struct aclScalar *two;

        open_simulator(lenient ? "1" : "0");
        two = scalar(2);
        x = PUT(NGD_ACL_FLOAT, VECTOR(2), 1.0001, 3);
        half = PUT(NGD_ACL_FLOAT16, VECTOR(2), 1.0009765625, 3); /* 1 + 2^-10 */
        bytes = PUT(NGD_ACL_INT8, VECTOR(2), 3, 2);
        y = EMPTY(NGD_ACL_FLOAT, VECTOR(2));
        shifted = PUT(NGD_ACL_FLOAT, ((struct shape){.rank = 1, .dims = {2}, .shift = 4}), 5, 6);
        ck_assert_int_eq(CALL(Mul, x, half, y), 0);
        IS(y, 1.0001f * 1.0009765625, 9);
        ck_assert_int_eq(CALL(Mul, bytes, half, y), 0);
        IS(y, 3.00390625, 6); /* computed in f16, which has no 3.0029296875 */
        ck_assert_int_eq(CALL(GtScalar, x, two, y), 0);
        IS(y, 0, 1);
        ck_assert_int_eq(CALL(Neg, shifted, y), 0);
        IS(y, -5, -6);
        ck_assert_int_eq(CALL(Neg, half, y), code);
        if (lenient)
            IS(y, -1.0009765625, -3);
        beyond = EMPTY(NGD_ACL_FLOAT, ((struct shape){.rank = 2, .dims = {2, 1}, .strides = {600, 1}}));
        ck_assert_int_eq(CALL(Neg, beyond, beyond), code);
        strided = PUT(NGD_ACL_FLOAT, ((struct shape){.rank = 2, .dims = {2, 2}, .strides = {3, 1}}), 3, 4, 99, 0, 2);
        gamma = PUT(NGD_ACL_FLOAT, VECTOR(2), 1, 2);
        rstd = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 1));
        y = EMPTY(NGD_ACL_FLOAT, SHAPE(2, 2, 2));
        ck_assert_int_eq(CALL(RmsNorm, strided, gamma, 0.0, y, rstd), 0);
        IS(y, 3 / sqrt(12.5), 8 / sqrt(12.5), 0, 4 / sqrt(2));
        acl->aclDestroyScalar(two);
        close_simulator();
    }
}
END_TEST

/* A block that a kernel uses after it was freed: a fault, unless the simulator is lenient and it was freed newly. */
START_TEST(lenient_simulator_lets_programs_free_too_early)
{
    for (int lenient = 0; lenient < 2; lenient++) {
        const int64_t n = 500;
        struct aclTensor *y;
        struct aclTensor *early;
        void *mem, *other;
        int status = -1;

        open_simulator(lenient ? "1" : "0");
        ck_assert_int_eq(acl->aclrtMalloc(&mem, ROOM, NGD_ACL_MALLOC_HUGE_FIRST), 0);
        ck_assert_uint_eq((uintptr_t)mem % (lenient ? 512 : 128), 0);
        ck_assert_int_eq(acl->aclrtMemset(mem, ROOM, 0, ROOM), 0);
        early = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, mem);
        ck_assert_int_eq(acl->aclrtFree(mem), 0);
        ck_assert_int_ne(acl->aclrtFree(mem), 0); /* it is gone for the program */
        ck_assert_int_eq(acl->aclrtMalloc(&other, ROOM, NGD_ACL_MALLOC_HUGE_FIRST), 0);
        ck_assert_int_eq(acl->aclrtFree(other), 0);
        y = EMPTY(NGD_ACL_FLOAT, VECTOR(500));
        ck_assert_int_eq(acl->aclnnCosGetWorkspaceSize(early, y, &planned.bytes, &planned.executor), 0);
        ck_assert_int_eq(acl->aclnnCos(NULL, 0, planned.executor, stream), 0);
        if (lenient) {
            ck_assert_int_eq(acl->aclrtStreamQuery(stream, &status), 0);
            ck_assert_int_eq(status, NGD_ACL_STREAM_COMPLETE); /* without waiting for it */
            IS(y, 1, 1);
        } else {
            ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_AICORE_EXCEPTION);
        }
        ck_assert_int_eq(acl->aclDestroyTensor(early), 0);
        close_simulator();
    }
}
END_TEST

/* The oldest of what was freed is given back when there is too much of it. */
START_TEST(lenient_simulator_keeps_a_bounded_part_of_what_was_freed)
{
    const int64_t n = 2;
    struct aclTensor *early;
    void *mem, *other;

    open_simulator("1");
    ck_assert_int_eq(acl->aclrtMalloc(&mem, 8 << 20, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    early = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, mem);
    ck_assert_int_eq(acl->aclrtFree(mem), 0);
    for (int i = 0; i < 5000; i++) {
        ck_assert_int_eq(acl->aclrtMalloc(&other, 64, NGD_ACL_MALLOC_HUGE_FIRST), 0);
        ck_assert_int_eq(acl->aclrtFree(other), 0);
    }
    ck_assert_int_eq(simulator_count("bytes"), 16 * ROOM + 32);
    ck_assert_int_eq(acl->aclnnCosGetWorkspaceSize(early, early, &planned.bytes, &planned.executor), 0);
    ck_assert_int_eq(acl->aclnnCos(NULL, 0, planned.executor, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_int_eq(acl->aclDestroyTensor(early), 0);
    close_simulator();
}
END_TEST

UNIT_MAIN("ascend/aclsim_others", operators_in_place_do_what_those_with_a_result_do, activations_have_their_definitions,
          views_are_permuted_sliced_repeated_gathered_and_padded, products_take_several_dtypes_and_groups_of_scales,
          quantised_products_add_offsets_and_biases, products_of_i8_have_scales_of_columns_and_rows,
          gates_have_their_definition, mixtures_of_experts_have_their_definitions,
          attention_over_tensors_adds_pse_to_its_scores, rotation_turns_halves_or_neighbours_and_repeats_its_angles,
          lenient_simulator_takes_what_devices_take, lenient_simulator_lets_programs_free_too_early,
          lenient_simulator_keeps_a_bounded_part_of_what_was_freed)
