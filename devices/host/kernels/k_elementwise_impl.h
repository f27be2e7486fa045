/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of k_elementwise.def for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_elementwise.h"
#include "devices/host/kernels/simd_math.h"

/* Python's sign rule: the result has the sign of b. */
static float ew_remainder(float a, float b)
{
    float m = fmodf(a, b);

    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

/* Computed from the remainder, as in PyTorch, since a / b may be rounded up to an integer. */
static float ew_floor_divide(float a, float b)
{
    float m, q, whole;

    if (b == 0)
        return a / b;
    m = fmodf(a, b);
    q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0))
        q -= 1;
    if (q == 0)
        return copysignf(0, a / b);
    whole = floorf(q);
    return q - whole > 0.5f ? whole + 1 : whole;
}

SIMD_INLINE simd_f ew_trunc(simd_f x)
{
    return simd_select(simd_lt(x, simd_zero()), simd_ceil(x), simd_floor(x));
}

#define NGD_EW_CONSTANTS                                               \
    const struct ngd_ew_args *args = arg;                              \
    const simd_f a = simd_set1(args->f[0]), b = simd_set1(args->f[1]); \
    (void)a;                                                           \
    (void)b

/* One loop for whole vectors and the tail: the functions are long, and the branch is predicted. */
#define UNARY(NAME, T, value)                                                                       \
    static void unary_##NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                               \
        NGD_EW_CONSTANTS;                                                                           \
        const ngd_el_##T *s = (const void *)p[0];                                                   \
        ngd_el_##T *d = (void *)p[1];                                                               \
        (void)step;                                                                                 \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                   \
            const bool whole = n - i >= SIMD_W;                                                     \
            const simd_f x = whole ? simd_load_##T(s + i) : simd_load_n_##T(s + i, n - i);          \
            const simd_f r = (value);                                                               \
            (void)x;                                                                                \
            if (whole)                                                                              \
                simd_store_##T(d + i, r);                                                           \
            else                                                                                    \
                simd_store_n_##T(d + i, r, n - i);                                                  \
        }                                                                                           \
    }
#define TEST(NAME, T, truth)                                                                         \
    static void test_##NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg)   \
    {                                                                                                \
        NGD_EW_CONSTANTS;                                                                            \
        const ngd_el_##T *s = (const void *)p[0];                                                    \
        uint8_t *d = (void *)p[1];                                                                   \
        (void)step;                                                                                  \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                    \
            const simd_f x = n - i >= SIMD_W ? simd_load_##T(s + i) : simd_load_n_##T(s + i, n - i); \
            simd_store_mask(d + i, (truth), n - i);                                                  \
        }                                                                                            \
    }

/* A source with step 0 is one value for the whole run, which the loops keep in a register. */
#define PAIR_LOOP(T, loadx, loady, tailx, taily, store, tail) \
    do {                                                      \
        int64_t i = 0;                                        \
        for (; i + SIMD_W <= n; i += SIMD_W) {                \
            const simd_f x = loadx, y = loady;                \
            store;                                            \
        }                                                     \
        if (i < n) {                                          \
            const simd_f x = tailx, y = taily;                \
            tail;                                             \
        }                                                     \
    } while (0)
#define PAIR(T, store, tail)                                                                                           \
    NGD_EW_CONSTANTS;                                                                                                  \
    const ngd_el_##T *s = (const void *)p[0], *t = (const void *)p[1];                                                 \
    const simd_f s0 = simd_set1(ngd_get_##T(*s)), t0 = simd_set1(ngd_get_##T(*t));                                     \
    if (step[0] && step[1])                                                                                            \
        PAIR_LOOP(T, simd_load_##T(s + i), simd_load_##T(t + i), simd_load_n_##T(s + i, n - i),                        \
                  simd_load_n_##T(t + i, n - i), store, tail);                                                         \
    else if (step[0])                                                                                                  \
        PAIR_LOOP(T, simd_load_##T(s + i), t0, simd_load_n_##T(s + i, n - i), t0, store, tail);                        \
    else                                                                                                               \
        PAIR_LOOP(T, s0, step[1] ? simd_load_##T(t + i) : t0, s0, step[1] ? simd_load_n_##T(t + i, n - i) : t0, store, \
                  tail)

#define BINARY(NAME, T, value)                                                                       \
    static void binary_##NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                                \
        ngd_el_##T *d = (void *)p[2];                                                                \
        PAIR(T, simd_store_##T(d + i, (value)), simd_store_n_##T(d + i, (value), n - i));            \
    }
#define COMPARE(NAME, T, truth)                                                                       \
    static void compare_##NAME##_##T(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                                 \
        uint8_t *d = (void *)p[2];                                                                    \
        PAIR(T, simd_store_mask(d + i, (truth), SIMD_W), simd_store_mask(d + i, (truth), n - i));     \
    }

#define EACH(F, NAME, what)             F(NAME, f32, what) F(NAME, f16, what) F(NAME, bf16, what)
#define NGD_EW_UNARY(NAME, ns, value)   EACH(UNARY, NAME, value)
#define NGD_EW_TEST(NAME, ns, truth)    EACH(TEST, NAME, truth)
#define NGD_EW_BINARY(NAME, ns, value)  EACH(BINARY, NAME, value)
#define NGD_EW_COMPARE(NAME, ns, truth) EACH(COMPARE, NAME, truth)
#include "devices/host/kernels/k_elementwise.def"

#define ROW(kind, NAME) {kind##_##NAME##_f32, kind##_##NAME##_f16, kind##_##NAME##_bf16},
const struct ngd_ew_table SIMD_NAME(ngd_ew) = {
    .unary =
        {
#define NGD_EW_UNARY(NAME, ns, value) ROW(unary, NAME)
#include "devices/host/kernels/k_elementwise.def"
        },
    .test =
        {
#define NGD_EW_TEST(NAME, ns, truth) ROW(test, NAME)
#include "devices/host/kernels/k_elementwise.def"
        },
    .binary =
        {
#define NGD_EW_BINARY(NAME, ns, value) ROW(binary, NAME)
#include "devices/host/kernels/k_elementwise.def"
        },
    .compare =
        {
#define NGD_EW_COMPARE(NAME, ns, truth) ROW(compare, NAME)
#include "devices/host/kernels/k_elementwise.def"
        },
};
