/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of floats for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_reduce.h"
#include "devices/host/kernels/simd_math.h"

/*
 * Blocks of SIMD_SUM_BLOCK elements are summed in four vectors of partial sums, and the blocks are added in f64. A lane
 * adds at most a quarter of a block, so the error does not grow with the length of the run. npu.rms_norm adds its
 * squares in this order too.
 */
#define SUM(T)                                                                                                     \
    static float reduce_sum_block_##T(const ngd_el_##T *x, int64_t n)                                              \
    {                                                                                                              \
        simd_f s0 = simd_zero(), s1 = s0, s2 = s0, s3 = s0;                                                        \
        int64_t i = 0;                                                                                             \
        for (; i + 4 * SIMD_W <= n; i += 4 * SIMD_W) {                                                             \
            s0 = simd_add(s0, simd_load_##T(x + i));                                                               \
            s1 = simd_add(s1, simd_load_##T(x + i + SIMD_W));                                                      \
            s2 = simd_add(s2, simd_load_##T(x + i + 2 * SIMD_W));                                                  \
            s3 = simd_add(s3, simd_load_##T(x + i + 3 * SIMD_W));                                                  \
        }                                                                                                          \
        for (; i < n; i += SIMD_W)                                                                                 \
            s0 = simd_add(s0, simd_load_up_to_##T(x + i, n - i));                                                  \
        return simd_hsum(simd_add(simd_add(s0, s1), simd_add(s2, s3)));                                            \
    }                                                                                                              \
    static void reduce_sum_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                        \
    {                                                                                                              \
        const ngd_el_##T *x = (const void *)p;                                                                     \
        (void)step;                                                                                                \
        for (int64_t i = 0; i < n; i += SIMD_SUM_BLOCK)                                                            \
            acc->f += (double)reduce_sum_block_##T(x + i, n - i < SIMD_SUM_BLOCK ? n - i : SIMD_SUM_BLOCK);        \
    }                                                                                                              \
    static void reduce_sum_cols_##T(float *acc, const char *p, int64_t n)                                          \
    {                                                                                                              \
        const ngd_el_##T *x = (const void *)p;                                                                     \
        for (int64_t i = 0; i < n; i += SIMD_W)                                                                    \
            simd_store_up_to_f32(                                                                                  \
                acc + i, simd_add(simd_load_up_to_f32(acc + i, n - i), simd_load_up_to_##T(x + i, n - i)), n - i); \
    }

/*
 * Computes the extreme of a run, which is NaN if an element is. A lane that is NaN stays NaN. Runs are handled in
 * blocks, as for sums, since the lanes that 0 and -0 are in decide which of them is the result.
 */
#define EXTREME(name, T, pick, fold, worst)                                                                            \
    static float reduce_##name##_of_##T(const ngd_el_##T *x, int64_t n)                                                \
    {                                                                                                                  \
        simd_f m = simd_set1(worst);                                                                                   \
        int64_t i = 0;                                                                                                 \
        for (; i + SIMD_W <= n; i += SIMD_W)                                                                           \
            m = pick(m, simd_load_##T(x + i));                                                                         \
        if (i < n)                                                                                                     \
            m = pick(m, simd_fill(simd_load_n_##T(x + i, n - i), n - i, worst));                                       \
        return simd_m_any(simd_isnan(m)) ? NAN : fold(m);                                                              \
    }                                                                                                                  \
    static void reduce_##name##_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                       \
    {                                                                                                                  \
        const ngd_el_##T *x = (const void *)p;                                                                         \
        (void)step;                                                                                                    \
        for (int64_t i = 0; i < n; i += SIMD_SUM_BLOCK) {                                                              \
            const simd_f v =                                                                                           \
                simd_set1(reduce_##name##_of_##T(x + i, n - i < SIMD_SUM_BLOCK ? n - i : SIMD_SUM_BLOCK));             \
            acc->f = (double)fold(pick(simd_set1((float)acc->f), v));                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void reduce_##name##_cols_##T(float *acc, const char *p, int64_t n)                                         \
    {                                                                                                                  \
        const ngd_el_##T *x = (const void *)p;                                                                         \
        for (int64_t i = 0; i < n; i += SIMD_W)                                                                        \
            simd_store_up_to_f32(acc + i,                                                                              \
                                 pick(simd_load_up_to_f32(acc + i, n - i), simd_load_up_to_##T(x + i, n - i)), n - i); \
    }                                                                                                                  \
    static int64_t reduce_arg##name##_##T(const char *p, int64_t n)                                                    \
    {                                                                                                                  \
        const ngd_el_##T *x = (const void *)p;                                                                         \
        const float best = reduce_##name##_of_##T(x, n);                                                               \
        const simd_f b = simd_set1(best);                                                                              \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                                      \
            const simd_f v = simd_load_up_to_##T(x + i, n - i);                                                        \
            const simd_m hit = best != best ? simd_isnan(v) : simd_eq(v, b);                                           \
            if (simd_m_any(hit) && i + simd_m_first(hit) < n)                                                          \
                return i + simd_m_first(hit);                                                                          \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

#define BEYOND(name, T, truth)                                                           \
    static int64_t reduce_##name##_##T(const char *p, int64_t i, int64_t n, float limit) \
    {                                                                                    \
        const ngd_el_##T *x = (const void *)p;                                           \
        const simd_f l = simd_set1(limit);                                               \
        for (; i < n; i += SIMD_W) {                                                     \
            const simd_f v = simd_load_up_to_##T(x + i, n - i);                          \
            const simd_m hit = simd_m_or(truth, simd_isnan(v));                          \
            if (simd_m_any(hit))                                                         \
                return i + simd_m_first(hit) < n ? i + simd_m_first(hit) : n;            \
        }                                                                                \
        return n;                                                                        \
    }

#define REDUCE(T)                                       \
    SUM(T)                                              \
    EXTREME(max, T, simd_max_nan, simd_hmax, -INFINITY) \
    EXTREME(min, T, simd_min_nan, simd_hmin, INFINITY)  \
    BEYOND(above, T, simd_lt(l, v))                     \
    BEYOND(below, T, simd_lt(v, l))
REDUCE(f32)
REDUCE(f16)
REDUCE(bf16)

#define TYPES(name)                                                    \
    {                                                                  \
        reduce_##name##_f32, reduce_##name##_f16, reduce_##name##_bf16 \
    }
const struct ngd_reduce_table SIMD_NAME(ngd_reduce) = {
    .run = {[NGD_REDUCE_SUM] = TYPES(sum), [NGD_REDUCE_MAX] = TYPES(max), [NGD_REDUCE_MIN] = TYPES(min)},
    .cols =
        {[NGD_REDUCE_SUM] = TYPES(sum_cols), [NGD_REDUCE_MAX] = TYPES(max_cols), [NGD_REDUCE_MIN] = TYPES(min_cols)},
    .argmax = TYPES(argmax),
    .argmin = TYPES(argmin),
    .above = TYPES(above),
    .below = TYPES(below),
};
