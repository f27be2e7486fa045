/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of k_elementwise_int.def. Plain C for every machine: integer tensors are positions, lengths and masks,
 * so they are small.
 */
#include "devices/host/kernels/k_elementwise.h"
#include "devices/host/kernels/typed.h"

/* Python's sign rule. A divisor of 0 gives 0, since data must not be able to kill the daemon. */
static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t m;

    if (b == 0 || b == -1)
        return 0;
    m = a % b;
    return m && (m < 0) != (b < 0) ? m + b : m;
}

/* A divisor of 0 gives 0 here too. The one quotient that overflows wraps. */
static int64_t trunc_divide(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return b ? (int64_t)(0 - (uint64_t)a) : 0;
    return a / b;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    const int64_t q = trunc_divide(a, b);

    return b && b != -1 && a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

#define CONSTANTS                                 \
    const struct ngd_ew_args *args = arg;         \
    const int64_t a = args->i[0], b = args->i[1]; \
    (void)a;                                      \
    (void)b

#define UNARY(NAME, T, D, cut, value)                                                       \
    static void NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                       \
        CONSTANTS;                                                                          \
        const ngd_el_##T *s = (const void *)p[0];                                           \
        D *d = (void *)p[1];                                                                \
        (void)step;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                   \
            const int64_t x = ngd_get_##T(s[i]);                                            \
            d[i] = cut((value));                                                            \
        }                                                                                   \
    }
#define BINARY(NAME, T, D, cut, value)                                                      \
    static void NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                       \
        CONSTANTS;                                                                          \
        const int64_t sx = step[0] != 0, sy = step[1] != 0;                                 \
        const ngd_el_##T *s = (const void *)p[0], *t = (const void *)p[1];                  \
        D *d = (void *)p[2];                                                                \
        for (int64_t i = 0; i < n; i++) {                                                   \
            const int64_t x = ngd_get_##T(s[i * sx]), y = ngd_get_##T(t[i * sy]);           \
            d[i] = cut((value));                                                            \
        }                                                                                   \
    }

#define SAME(F, NAME, v)                  \
    F(NAME, i8, int8_t, ngd_put_i8, v)    \
    F(NAME, u8, uint8_t, ngd_put_u8, v)   \
    F(NAME, i32, int32_t, ngd_put_i32, v) \
    F(NAME, i64, int64_t, ngd_put_i64, v) F(NAME, b8, uint8_t, ngd_put_b8, v)
#define TRUTH(F, NAME, v)                \
    F(NAME, i8, uint8_t, ngd_put_b8, v)  \
    F(NAME, u8, uint8_t, ngd_put_b8, v)  \
    F(NAME, i32, uint8_t, ngd_put_b8, v) \
    F(NAME, i64, uint8_t, ngd_put_b8, v) F(NAME, b8, uint8_t, ngd_put_b8, v)

#define NGD_EI_UNARY(NAME, value)   SAME(UNARY, UNARY_##NAME, value)
#define NGD_EI_TEST(NAME, truth)    TRUTH(UNARY, TEST_##NAME, truth)
#define NGD_EI_BINARY(NAME, value)  SAME(BINARY, BINARY_##NAME, value)
#define NGD_EI_COMPARE(NAME, truth) TRUTH(BINARY, COMPARE_##NAME, truth)
#include "devices/host/kernels/k_elementwise_int.def"

#define ROW(NAME)                                               \
    {                                                           \
        NAME##_i8, NAME##_u8, NAME##_i32, NAME##_i64, NAME##_b8 \
    }
const ngd_nd_fn ngd_ei[NGD_EI_MAX][NGD_INT_TYPES] = {
#define NGD_EI_UNARY(NAME, value)   [NGD_EI_##NAME] = ROW(UNARY_##NAME),
#define NGD_EI_TEST(NAME, truth)    [NGD_EI_TEST_##NAME] = ROW(TEST_##NAME),
#define NGD_EI_BINARY(NAME, value)  [NGD_EI_BINARY_##NAME] = ROW(BINARY_##NAME),
#define NGD_EI_COMPARE(NAME, truth) [NGD_EI_COMPARE_##NAME] = ROW(COMPARE_##NAME),
#include "devices/host/kernels/k_elementwise_int.def"
};
