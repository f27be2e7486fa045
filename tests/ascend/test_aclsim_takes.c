/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator takes because devices do: operands of several dtypes, strided rows, storage at any address. */
#include "devices/ascend/acl.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"

static const struct ngd_acl *acl;
static void *context, *stream;

static void open_device(void)
{
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStreamWithConfig(&stream, 0, 0), 0);
}

static void close_device(void)
{
    ck_assert_int_eq(acl->aclrtDestroyStream(stream), 0);
    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
}

static char *on_device(const void *data, uint64_t bytes)
{
    void *mem;

    ck_assert_int_eq(acl->aclrtMalloc(&mem, bytes, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    ck_assert_uint_eq((uintptr_t)mem % 128, 0);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, bytes, data, bytes, NGD_ACL_COPY_H2D), 0);
    return mem;
}

static struct aclTensor *matrix(int dtype, int64_t rows, int64_t columns, int64_t step, void *mem)
{
    const int64_t dims[] = {rows, columns}, strides[] = {step, 1}, n = rows * step;

    return acl->aclCreateTensor(dims, 2, dtype, strides, 0, NGD_ACL_FORMAT_ND, &n, 1, mem);
}

/* Runs the second phase and reads the result. */
static void finish(ngd_acl_error_t code, ngd_aclnn_run_t run, struct aclOpExecutor *const *executor_p,
                   const uint64_t *bytes_p, const void *from, void *to, uint64_t n)
{
    const uint64_t bytes = *bytes_p;
    void *workspace = NULL;

    ck_assert_msg(code == 0, "%s", acl->aclGetRecentErrMsg());
    if (bytes)
        ck_assert_int_eq(acl->aclrtMalloc(&workspace, bytes, 0), 0);
    ck_assert_int_eq(run(workspace, bytes, *executor_p, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    if (workspace)
        ck_assert_int_eq(acl->aclrtFree(workspace), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(to, n, from, n, NGD_ACL_COPY_D2H), 0);
}

START_TEST(operands_of_several_dtypes_meet_in_the_wider_one)
{
    const float x[] = {1, 2, 3, 4};
    const uint16_t half[] = {0x4000, 0x4000, 0x4200, 0x4200}; /* 2, 2, 3, 3 */
    const int16_t small[] = {1, 3, 3, 5};
    struct aclTensor *a, *b, *c, *d, *y;
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    char *mem[4];
    float got[4];

    open_device();
    mem[0] = on_device(x, sizeof(x));
    mem[1] = on_device(half, sizeof(half));
    mem[2] = on_device(small, sizeof(small));
    mem[3] = on_device(x, sizeof(x));
    a = matrix(NGD_ACL_FLOAT, 2, 2, 2, mem[0]);
    b = matrix(NGD_ACL_FLOAT16, 2, 2, 2, mem[1]);
    c = matrix(NGD_ACL_INT16, 2, 2, 2, mem[2]);
    y = matrix(NGD_ACL_FLOAT, 2, 2, 2, mem[3]);
    finish(acl->aclnnMulGetWorkspaceSize(b, a, y, &bytes, &executor), acl->aclnnMul, &executor, &bytes, mem[3], got,
           sizeof(got));
    ck_assert(got[0] == 2 && got[1] == 4 && got[2] == 9 && got[3] == 12);
    finish(acl->aclnnEqTensorGetWorkspaceSize(a, c, y, &bytes, &executor), acl->aclnnEqTensor, &executor, &bytes,
           mem[3], got, sizeof(got));
    ck_assert(got[0] == 1 && got[1] == 0 && got[2] == 1 && got[3] == 0);
    finish(acl->aclnnMatmulGetWorkspaceSize(a, b, y, NGD_ACL_CUBE_KEEP_DTYPE, &bytes, &executor), acl->aclnnMatmul,
           &executor, &bytes, mem[3], got, sizeof(got));
    ck_assert(got[0] == 8 && got[1] == 8 && got[2] == 18 && got[3] == 18);
    d = matrix(NGD_ACL_INT32, 2, 2, 2, mem[3]);
    ck_assert_int_eq(acl->aclnnMulGetWorkspaceSize(a, a, d, &bytes, &executor), NGD_ACL_NN_PARAM_INVALID);
    acl->aclDestroyTensor(a);
    acl->aclDestroyTensor(b);
    acl->aclDestroyTensor(c);
    acl->aclDestroyTensor(d);
    acl->aclDestroyTensor(y);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(acl->aclrtFree(mem[i]), 0);
    close_device();
}
END_TEST

START_TEST(storages_at_any_address_and_strided_rows_are_taken)
{
    const float x[] = {0, 3, 4, 99, 99, 8, 6, 99, 99}, ones[] = {1, 1};
    const int64_t two = 2, rstd_dims[] = {2, 1};
    struct aclTensor *a, *g, *y, *r;
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    char *mem[4];
    float got[4];

    open_device();
    mem[0] = on_device(x, sizeof(x));
    mem[1] = on_device(ones, sizeof(ones));
    mem[2] = on_device(x, 16);
    mem[3] = on_device(x, 8);
    a = matrix(NGD_ACL_FLOAT, 2, 2, 4, mem[0] + 4);
    g = acl->aclCreateTensor(&two, 1, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &two, 1, mem[1]);
    y = matrix(NGD_ACL_FLOAT, 2, 2, 2, mem[2]);
    r = acl->aclCreateTensor(rstd_dims, 2, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &two, 1, mem[3]);
    finish(acl->aclnnRmsNormGetWorkspaceSize(a, g, 0, y, r, &bytes, &executor), acl->aclnnRmsNorm, &executor, &bytes,
           mem[2], got, sizeof(got));
    ck_assert_float_eq_tol(got[0], 3 / 3.5355339f, 1e-6f);
    ck_assert_float_eq_tol(got[3], 6 / 7.0710678f, 1e-6f);
    acl->aclDestroyTensor(a);
    acl->aclDestroyTensor(g);
    acl->aclDestroyTensor(y);
    acl->aclDestroyTensor(r);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(acl->aclrtFree(mem[i]), 0);
    close_device();
}
END_TEST

UNIT_MAIN("ascend/aclsim_takes", operands_of_several_dtypes_meet_in_the_wider_one,
          storages_at_any_address_and_strided_rows_are_taken)
