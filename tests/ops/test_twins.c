/* SPDX-License-Identifier: Apache-2.0 */
/* Compares vector functions with their scalar twins: the results must be the same, and nothing else may be written. */
#include "devices/host/kernels/k_elementwise.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/golden.h"
#include "tests/ops/random_io.h"

#define LONGEST 70
#define GUARD   64

/* Memory for a run, not aligned, with guards on both sides. */
struct run_room {
    char bytes[GUARD + 8 * (LONGEST + 1) + GUARD];
};

static void check_twin(ngd_nd_fn plain, ngd_nd_fn fast, ngd_dtype_t t, ngd_dtype_t to, uint32_t n_in, int64_t n,
                       const int64_t *step, const char *what)
{
    const struct ngd_ew_args args = {{0.75f, 1.5f}, {0, 0}};
    const size_t size = ngd_dtype_bytes(to);
    static struct run_room in[2], out[2];
    char *p[2][3];

    for (uint32_t i = 0; i < n_in; i++)
        fill_random(t, in[i].bytes + GUARD + ngd_dtype_bytes(t), LONGEST);
    for (int k = 0; k < 2; k++) {
        memset(&out[k], 0x5a, sizeof(out[k]));
        for (uint32_t i = 0; i < n_in; i++)
            p[k][i] = in[i].bytes + GUARD + ngd_dtype_bytes(t);
        p[k][n_in] = out[k].bytes + GUARD + size;
        (k ? fast : plain)(p[k], step, n, &args);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = golden_value(to, p[0][n_in], (uint64_t)i), b = golden_value(to, p[1][n_in], (uint64_t)i);
        double ulp = to == NGD_F32 ? 1.2e-7 : to == NGD_F16 ? 1e-3 : 8e-3;

        if (!((a != a && b != b) || a == b || (to != NGD_BOOL && fabs(a - b) <= 4 * ulp * fabs(a) + 1e-7)))
            ck_abort_msg("%s of %s: element %lld of %lld is %.9g, plain %.9g", what, ngd_dtype_name(t), (long long)i,
                         (long long)n, b, a);
    }
    memset(p[1][n_in], 0x5a, (size_t)n * size);
    for (size_t i = 0; i < sizeof(out[1].bytes); i++)
        if (out[1].bytes[i] != 0x5a)
            ck_abort_msg("%s of %s with n = %lld writes outside", what, ngd_dtype_name(t), (long long)n);
}

static void check_unary_twins(const struct ngd_ew_table *fast, int64_t n)
{
    static const char *const names[] = {
#define NGD_EW_UNARY(NAME, ns, value) #NAME,
#include "devices/host/kernels/k_elementwise.def"
    };
    const int64_t step[] = {4, 4};

    for (int t = 0; t < NGD_FLOAT_TYPES; t++) {
        for (int f = 0; f < NGD_EW_UNARY_MAX; f++)
            check_twin(ngd_ew_scalar.unary[f][t], fast->unary[f][t], (ngd_dtype_t)t, (ngd_dtype_t)t, 1, n, step,
                       names[f]);
        for (int f = 0; f < NGD_EW_TEST_MAX; f++)
            check_twin(ngd_ew_scalar.test[f][t], fast->test[f][t], (ngd_dtype_t)t, NGD_BOOL, 1, n, step, "a test");
    }
}

static void check_binary_twins(const struct ngd_ew_table *fast, int64_t n, int64_t step0, int64_t step1)
{
    static const char *const names[] = {
#define NGD_EW_BINARY(NAME, ns, value) #NAME,
#include "devices/host/kernels/k_elementwise.def"
    };
    const int64_t step[] = {step0, step1, 1};

    for (int t = 0; t < NGD_FLOAT_TYPES; t++) {
        for (int f = 0; f < NGD_EW_BINARY_MAX; f++)
            check_twin(ngd_ew_scalar.binary[f][t], fast->binary[f][t], (ngd_dtype_t)t, (ngd_dtype_t)t, 2, n, step,
                       names[f]);
        for (int f = 0; f < NGD_EW_COMPARE_MAX; f++)
            check_twin(ngd_ew_scalar.compare[f][t], fast->compare[f][t], (ngd_dtype_t)t, NGD_BOOL, 2, n, step,
                       "a comparison");
    }
}

START_TEST(vector_functions_of_any_length_agree_with_their_plain_twins_and_write_no_more)
{
    EACH_ISA (isa) {
        const struct ngd_ew_table *fast = NGD_BY_ISA(isa, ngd_ew);

        for (int64_t n = 1; n <= LONGEST; n += n < 34 ? 1 : 12) {
            check_unary_twins(fast, n);
            check_binary_twins(fast, n, 1, 1);
            check_binary_twins(fast, n, 1, 0);
            check_binary_twins(fast, n, 0, 1);
            check_binary_twins(fast, n, 0, 0);
        }
    }
}
END_TEST

UNIT_MAIN("ops/twins", vector_functions_of_any_length_agree_with_their_plain_twins_and_write_no_more)
