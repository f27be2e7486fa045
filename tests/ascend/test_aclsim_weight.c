/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in FRACTAL_NZ in the simulator: their sizes, where their elements lie, and what products make of them. */
#include "devices/ascend/acl.h"
#include "devices/ascend/sim/sim_op.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"

static const struct ngd_acl *acl;
static void *context, *stream;

static void open_simulator(const char *api)
{
    struct ngd_diag diag = {0};

    simulator_set("api", api);
    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
}

static void close_simulator(void)
{
    static const char *const kinds[] = {"streams", "bytes", "contexts", "operands", "executors"};

    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
    simulator_set("api", "9.1");
}

static ngd_acl_error_t size_of(const int64_t *dims, uint64_t rank, int dtype, uint64_t *elements_p)
{
    struct aclIntArray *shape = acl->aclCreateIntArray(dims, rank);
    ngd_acl_error_t code = acl->aclnnCalculateMatmulWeightSizeV2(shape, dtype, elements_p);

    acl->aclDestroyIntArray(shape);
    return code;
}

static void *on_device(const void *values, size_t bytes, size_t room)
{
    void *mem;

    ck_assert_int_eq(acl->aclrtMalloc(&mem, room, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, room, values, bytes, NGD_ACL_COPY_H2D), 0);
    return mem;
}

static struct aclTensor *tensor(const int64_t *dims, uint64_t rank, int dtype, const int64_t *strides, int format,
                                const int64_t *storage, uint64_t storage_rank, void *mem)
{
    struct aclTensor *t = acl->aclCreateTensor(dims, rank, dtype, strides, 0, format, storage, storage_rank, mem);

    ck_assert_ptr_nonnull(t);
    return t;
}

static struct aclTensor *plain(const int64_t *dims, uint64_t rank, int dtype, void *mem)
{
    return tensor(dims, rank, dtype, NULL, NGD_ACL_FORMAT_ND, dims, rank, mem);
}

/* Both phases, and the end of the work. */
static ngd_acl_error_t trans(struct aclTensor *t)
{
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    void *workspace = NULL;
    ngd_acl_error_t code = acl->aclnnTransMatmulWeightGetWorkspaceSize(t, &bytes, &executor);

    if (code)
        return code;
    if (bytes)
        ck_assert_int_eq(acl->aclrtMalloc(&workspace, bytes, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    code = acl->aclnnTransMatmulWeight(workspace, bytes, executor, stream);
    if (!code)
        code = acl->aclrtSynchronizeStreamWithTimeout(stream, 10000);
    if (workspace)
        ck_assert_int_eq(acl->aclrtFree(workspace), 0);
    return code;
}

/* ---- tests --------------------------------------------------------------------------------------- */

/* The two that the documents give, and what they say of others. */
START_TEST(size_of_a_weight_is_its_shape_in_whole_fractals)
{
    static const struct {
        int64_t dims[7];
        uint64_t rank, want;
        int dtype, code;
    } cases[] = {
        {{510, 510}, 2, 262144, NGD_ACL_FLOAT16, 0},
        {{510, 270}, 2, 147456, NGD_ACL_INT8, 0},
        {{510, 510}, 2, 262144, NGD_ACL_BF16, 0},
        {{3, 17, 1}, 3, 3 * 32 * 16, NGD_ACL_FLOAT16, 0},
        {{2, 2, 2, 2, 16, 33}, 6, 16 * 16 * 64, NGD_ACL_INT8, 0},
        {{16}, 1, 0, NGD_ACL_FLOAT16, NGD_ACL_NN_PARAM_INVALID},
        {{1, 1, 1, 1, 1, 16, 16}, 7, 0, NGD_ACL_FLOAT16, NGD_ACL_NN_PARAM_INVALID},
        {{16, 0}, 2, 0, NGD_ACL_FLOAT16, NGD_ACL_NN_PARAM_INVALID},
        {{16, 16}, 2, 0, NGD_ACL_FLOAT, NGD_ACL_NN_PARAM_INVALID},
    };
    uint64_t n;

    open_simulator("9.1");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = 0;
        ck_assert_int_eq(size_of(cases[i].dims, cases[i].rank, cases[i].dtype, &n), cases[i].code);
        ck_assert_uint_eq(n, cases[i].want);
    }
    ck_assert_int_eq(acl->aclnnCalculateMatmulWeightSizeV2(NULL, NGD_ACL_INT8, &n), NGD_ACL_NN_PARAM_NULLPTR);
    ck_assert_int_eq(size_of(cases[0].dims, 2, NGD_ACL_FLOAT16, NULL), NGD_ACL_NN_PARAM_NULLPTR);
    close_simulator();
}
END_TEST

/* Written out by hand from the documents: blocks go down the rows first, a block has 16 rows of 32 bytes. */
static size_t expected_at(int64_t rows, int64_t bytes, int64_t row, int64_t column)
{
    int64_t c0 = 32 / bytes, blocks = (rows + 15) / 16;
    int64_t block = column / c0 * blocks + row / 16;

    return (size_t)(block * 16 * c0 + row % 16 * c0 + column % c0);
}

START_TEST(elements_of_a_weight_lie_in_fractals_and_the_rest_is_zero)
{
    static const int dtypes[] = {NGD_ACL_FLOAT16, NGD_ACL_BF16, NGD_ACL_INT8};

    open_simulator("9.1");
    for (int d = 0; d < 3; d++) {
        const int64_t dims[3] = {d == 1 ? 2 : 1, 37, 41}, *shape = d == 1 ? dims : dims + 1;
        const uint64_t rank = d == 1 ? 3 : 2, size = dtypes[d] == NGD_ACL_INT8 ? 1 : 2;
        unsigned char nd[2 * 37 * 41 * 2], *nz, *want;
        struct aclTensor *t;
        uint64_t n = 0;
        void *mem;

        ck_assert_int_eq(size_of(shape, rank, dtypes[d], &n), 0);
        nz = calloc(n, size);
        want = calloc(n, size);
        for (size_t i = 0; i < sizeof(nd); i++)
            nd[i] = (unsigned char)(i * 131 % 251 + 1);
        for (int64_t b = 0; b < dims[0]; b++)
            for (int64_t r = 0; r < 37; r++)
                for (int64_t c = 0; c < 41; c++)
                    memcpy(want + (b * (int64_t)n / dims[0] + (int64_t)expected_at(37, (int64_t)size, r, c)) *
                                      (int64_t)size,
                           nd + ((b * 37 + r) * 41 + c) * (int64_t)size, size);
        mem = on_device(nd, (size_t)dims[0] * 37 * 41 * size, n * size);
        t = plain(shape, rank, dtypes[d], mem);
        ck_assert_int_eq(trans(t), 0);
        ck_assert_int_eq(trans(t), NGD_ACL_NN_PARAM_INVALID); /* it is in NZ now */
        ck_assert_int_eq(acl->aclrtMemcpy(nz, n * size, mem, n * size, NGD_ACL_COPY_D2H), 0);
        ck_assert_int_eq(memcmp(nz, want, n * size), 0);
        acl->aclDestroyTensor(t);
        ck_assert_int_eq(acl->aclrtFree(mem), 0);
        free(nz);
        free(want);
    }
    close_simulator();
}
END_TEST

START_TEST(weight_that_a_device_would_not_lay_out_is_refused)
{
    const int64_t dims[2] = {16, 32}, strides[2] = {1, 16}, four[4] = {1, 1, 16, 16}, n = 512;
    float values[512] = {0};
    void *mem;
    struct aclTensor *bad[4];

    open_simulator("9.1");
    mem = on_device(values, sizeof(values), sizeof(values));
    bad[0] = plain(dims, 2, NGD_ACL_FLOAT, mem);
    bad[1] = plain(four, 4, NGD_ACL_FLOAT16, mem); /* i8 may have so many dimensions */
    bad[2] = tensor(dims, 2, NGD_ACL_FLOAT16, strides, NGD_ACL_FORMAT_ND, &n, 1, mem);
    bad[3] = plain(dims, 1, NGD_ACL_FLOAT16, mem);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(trans(bad[i]), NGD_ACL_NN_PARAM_INVALID);
        acl->aclDestroyTensor(bad[i]);
    }
    ck_assert_int_eq(trans(NULL), NGD_ACL_NN_PARAM_NULLPTR);
    /* Memory for the elements, and none for what fills the last fractal. */
    ck_assert_int_eq(acl->aclrtFree(mem), 0);
    mem = on_device(values, 2 * 17 * 16, 2 * 17 * 16);
    bad[0] = plain((const int64_t[]){17, 16}, 2, NGD_ACL_FLOAT16, mem);
    ck_assert_int_ne(trans(bad[0]), 0);
    acl->aclDestroyTensor(bad[0]);
    acl->aclrtFree(mem);
    close_simulator();
}
END_TEST

static ngd_acl_error_t product(struct aclTensor *a, struct aclTensor *b, struct aclTensor *y, bool nz)
{
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    void *workspace = NULL;
    ngd_acl_error_t code = nz ? acl->aclnnMatmulWeightNzGetWorkspaceSize(a, b, y, 0, &bytes, &executor)
                              : acl->aclnnMatmulGetWorkspaceSize(a, b, y, 0, &bytes, &executor);

    if (code)
        return code;
    ck_assert_int_eq(acl->aclrtMalloc(&workspace, bytes, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    code = nz ? acl->aclnnMatmulWeightNz(workspace, bytes, executor, stream)
              : acl->aclnnMatmul(workspace, bytes, executor, stream);
    if (!code)
        code = acl->aclrtSynchronizeStreamWithTimeout(stream, 10000);
    ck_assert_int_eq(acl->aclrtFree(workspace), 0);
    return code;
}

/* The bytes decide, not the label: what is called NZ and is not gives another product. */
START_TEST(product_reads_its_weight_where_fractals_have_it)
{
    enum { M = 3, K = 21, N = 35 };
    uint16_t a[M * K], w[K * N], y[2][M * N], wt[N * K];
    const int64_t da[2] = {M, K}, dw[2] = {K, N}, dy[2] = {M, N}, dt[2] = {N, K};
    const int64_t straight[2] = {N, 1}, turned[2] = {1, K};
    void *ma, *mw, *mt, *my, *raw;
    struct aclTensor *ta, *tw, *ty, *t;
    int64_t fractal[4], other[4];

    open_simulator("9.1");
    for (int i = 0; i < M * K; i++)
        a[i] = sim_to_f16((float)(i % 7) - 3);
    for (int i = 0; i < K * N; i++)
        w[i] = sim_to_f16((float)(i % 11) - 5);
    for (int k = 0; k < K; k++)
        for (int n = 0; n < N; n++)
            wt[n * K + k] = w[k * N + n];
    ma = on_device(a, sizeof(a), sizeof(a));
    raw = on_device(w, sizeof(w), 8192);
    mw = on_device(w, sizeof(w), 8192);
    mt = on_device(wt, sizeof(wt), 8192);
    my = on_device(y, sizeof(y[0]), sizeof(y[0]));
    ta = plain(da, 2, NGD_ACL_FLOAT16, ma);
    ty = plain(dy, 2, NGD_ACL_FLOAT16, my);
    tw = plain(dw, 2, NGD_ACL_FLOAT16, mw);
    ck_assert_int_eq(product(ta, tw, ty, true), NGD_ACL_NN_PARAM_INVALID); /* in ND */
    ck_assert_int_eq(product(ta, tw, ty, false), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(y[0], sizeof(y[0]), my, sizeof(y[0]), NGD_ACL_COPY_D2H), 0);
    ck_assert_int_eq(trans(tw), 0);
    ck_assert_int_eq(product(ta, tw, ty, false), NGD_ACL_NN_PARAM_INVALID); /* in NZ */
    acl->aclDestroyTensor(tw);
    t = plain(dt, 2, NGD_ACL_FLOAT16, mt);
    ck_assert_int_eq(trans(t), 0);
    acl->aclDestroyTensor(t);
    ngd_acl_fractal(K, N, 2, fractal);
    ngd_acl_fractal(N, K, 2, other);
    for (int i = 0; i < 3; i++) {
        tw = tensor(dw, 2, NGD_ACL_FLOAT16, i == 1 ? turned : straight, NGD_ACL_FORMAT_NZ, i == 1 ? other : fractal, 4,
                    i == 0   ? mw
                    : i == 1 ? mt
                             : raw);
        ck_assert_int_eq(product(ta, tw, ty, true), 0);
        ck_assert_int_eq(acl->aclrtMemcpy(y[1], sizeof(y[1]), my, sizeof(y[1]), NGD_ACL_COPY_D2H), 0);
        ck_assert_int_eq(memcmp(y[0], y[1], sizeof(y[0])) == 0, i < 2);
        acl->aclDestroyTensor(tw);
    }
    /* A storage of the other shape, of two dimensions; strides that are neither. */
    tw = tensor(dw, 2, NGD_ACL_FLOAT16, straight, NGD_ACL_FORMAT_NZ, other, 4, mw);
    ck_assert_int_eq(product(ta, tw, ty, true), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(tw);
    tw = tensor(dw, 2, NGD_ACL_FLOAT16, straight, NGD_ACL_FORMAT_NZ, dw, 2, mw);
    ck_assert_int_eq(product(ta, tw, ty, true), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(tw);
    tw = tensor(dw, 2, NGD_ACL_FLOAT16, (const int64_t[]){N + 1, 1}, NGD_ACL_FORMAT_NZ, fractal, 4, mw);
    ck_assert_int_eq(product(ta, tw, ty, true), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(tw);
    /* One column. */
    acl->aclDestroyTensor(ty);
    ty = plain((const int64_t[]){M, 1}, 2, NGD_ACL_FLOAT16, my);
    ngd_acl_fractal(K, 1, 2, fractal);
    tw = tensor((const int64_t[]){K, 1}, 2, NGD_ACL_FLOAT16, NULL, NGD_ACL_FORMAT_NZ, fractal, 4, mw);
    ck_assert_int_eq(product(ta, tw, ty, true), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(tw);
    acl->aclDestroyTensor(ta);
    acl->aclDestroyTensor(ty);
    acl->aclrtFree(ma);
    acl->aclrtFree(mw);
    acl->aclrtFree(mt);
    acl->aclrtFree(my);
    acl->aclrtFree(raw);
    close_simulator();
}
END_TEST

/* Those that lay weights out are there, and the products with them are not. */
START_TEST(cann_8_1_has_no_products_with_weights_in_nz)
{
    const int64_t dims[3] = {2, 16, 16};
    uint16_t values[512] = {0};
    struct aclTensor *t;
    uint64_t n;
    void *mem;

    open_simulator("8.1");
    ck_assert(!acl->aclnnMatmulWeightNz && !acl->aclnnMatmulWeightNzGetWorkspaceSize);
    ck_assert(!acl->aclnnAddmmWeightNz && !acl->aclnnAddmmWeightNzGetWorkspaceSize);
    ck_assert_int_eq(size_of(dims + 1, 2, NGD_ACL_FLOAT16, &n), 0);
    ck_assert_int_eq(size_of(dims + 1, 2, NGD_ACL_BF16, &n), NGD_ACL_NN_PARAM_INVALID);
    mem = on_device(values, sizeof(values), sizeof(values));
    t = plain(dims, 3, NGD_ACL_FLOAT16, mem);
    ck_assert_int_eq(trans(t), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(t);
    t = plain(dims + 1, 2, NGD_ACL_FLOAT16, mem);
    ck_assert_int_eq(trans(t), 0);
    acl->aclDestroyTensor(t);
    acl->aclrtFree(mem);
    close_simulator();
}
END_TEST

UNIT_MAIN("ascend/aclsim_weight", size_of_a_weight_is_its_shape_in_whole_fractals,
          elements_of_a_weight_lie_in_fractals_and_the_rest_is_zero, weight_that_a_device_would_not_lay_out_is_refused,
          product_reads_its_weight_where_fractals_have_it, cann_8_1_has_no_products_with_weights_in_nz)
