/* SPDX-License-Identifier: Apache-2.0 */
/* Row functions of the normalisations for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_norm.h"
#include "devices/host/kernels/simd.h"

/*
 * Sums `value` (of v, the elements at i) over the elements from..to of a row. Four partial sums hide the latency of the
 * addition. The tail is added to the first of them; its missing lanes are zero, or LOAD makes them zero.
 */
#define ROW_SUM(result, from, to, LOAD, value)                              \
    do {                                                                    \
        simd_f s0 = simd_zero(), s1 = s0, s2 = s0, s3 = s0, v;              \
        int64_t i = (from);                                                 \
        for (; i + 4 * SIMD_W <= (to); i += 4 * SIMD_W) {                   \
            v = LOAD(i, SIMD_W);                                            \
            s0 = value(s0);                                                 \
            v = LOAD(i + SIMD_W, SIMD_W);                                   \
            s1 = value(s1);                                                 \
            v = LOAD(i + 2 * SIMD_W, SIMD_W);                               \
            s2 = value(s2);                                                 \
            v = LOAD(i + 3 * SIMD_W, SIMD_W);                               \
            s3 = value(s3);                                                 \
        }                                                                   \
        for (; i < (to); i += SIMD_W) {                                     \
            v = LOAD(i, (to)-i);                                            \
            s0 = value(s0);                                                 \
        }                                                                   \
        (result) = simd_hsum(simd_add(simd_add(s0, s1), simd_add(s2, s3))); \
    } while (0)

#define PLUS_V(s)      simd_add(s, v)
#define PLUS_SQUARE(s) simd_add(s, simd_mul(v, v))

/*
 * Computes the mean of a row's squares, with the bits of aten.pow and aten.mean.dim (k_reduce_impl.h), since a pass
 * replaces a norm that is written with those operators. Each square is rounded, and blocks are added in f64. For one
 * block, the f32 quotient equals the rounded f64 quotient.
 */
#define MEAN_SQUARE(result, LOAD)                                                     \
    do {                                                                              \
        double total = 0;                                                             \
        float ss = 0;                                                                 \
        for (int64_t from = 0; from < n; from += SIMD_SUM_BLOCK) {                    \
            const int64_t to = n - from < SIMD_SUM_BLOCK ? n : from + SIMD_SUM_BLOCK; \
            ROW_SUM(ss, from, to, LOAD, PLUS_SQUARE);                                 \
            total += (double)ss;                                                      \
        }                                                                             \
        (result) = n <= SIMD_SUM_BLOCK ? ss / (float)n : (float)(total / (double)n);  \
    } while (0)

#define AS_IT_IS(gamma) (gamma)
#define PLUS_ONE(gamma) simd_add(gamma, simd_set1(1.0f))

#define RMS_OF(name, X, G, SCALE)                                                                                    \
    static void name##_##X##_##G(const void *xp, const void *x2p, const void *gp, void *yp, float *rstd, void *sump, \
                                 int64_t n, float eps)                                                               \
    {                                                                                                                \
        const ngd_el_##X *x = xp;                                                                                    \
        const ngd_el_##G *g = gp;                                                                                    \
        ngd_el_##X *y = yp;                                                                                          \
        float mean;                                                                                                  \
        simd_f r;                                                                                                    \
        (void)x2p;                                                                                                   \
        (void)sump;                                                                                                  \
        MEAN_SQUARE(mean, LOAD_X_##X);                                                                               \
        *rstd = 1.0f / sqrtf(mean + eps);                                                                            \
        r = simd_set1(*rstd);                                                                                        \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                                    \
            const simd_f v = simd_mul(simd_load_up_to_##X(x + i, n - i), r);                                         \
            simd_store_up_to_##X(y + i, simd_mul(v, SCALE(simd_load_up_to_##G(g + i, n - i))), n - i);               \
        }                                                                                                            \
    }

#define RMS(X, G)                                                                                              \
    RMS_OF(rms_norm, X, G, AS_IT_IS)                                                                           \
    RMS_OF(gemma_rms_norm, X, G, PLUS_ONE)                                                                     \
    static void add_rms_norm_##X##_##G(const void *xp, const void *x2p, const void *gp, void *yp, float *rstd, \
                                       void *sump, int64_t n, float eps)                                       \
    {                                                                                                          \
        const ngd_el_##X *x = xp, *x2 = x2p;                                                                   \
        const ngd_el_##G *g = gp;                                                                              \
        ngd_el_##X *y = yp, *sum = sump;                                                                       \
        float mean;                                                                                            \
        simd_f r;                                                                                              \
        MEAN_SQUARE(mean, LOAD_SUM_##X);                                                                       \
        *rstd = 1.0f / sqrtf(mean + eps);                                                                      \
        r = simd_set1(*rstd);                                                                                  \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                              \
            const simd_f v = simd_mul(simd_load_up_to_##X(sum + i, n - i), r);                                 \
            simd_store_up_to_##X(y + i, simd_mul(v, simd_load_up_to_##G(g + i, n - i)), n - i);                \
        }                                                                                                      \
    }
#define LOAD_X_f32(i, left)  simd_load_up_to_f32(x + (i), left)
#define LOAD_X_f16(i, left)  simd_load_up_to_f16(x + (i), left)
#define LOAD_X_bf16(i, left) simd_load_up_to_bf16(x + (i), left)
/* Stores and reloads the sum, so that it is rounded: the result is that of rms_norm on the returned sum. */
#define LOAD_SUM(X, i, left)                                                                                    \
    (simd_store_up_to_##X(sum + (i), simd_add(LOAD_X_##X(i, left), simd_load_up_to_##X(x2 + (i), left)), left), \
     simd_load_up_to_##X(sum + (i), left))
#define LOAD_SUM_f32(i, left)  LOAD_SUM(f32, i, left)
#define LOAD_SUM_f16(i, left)  LOAD_SUM(f16, i, left)
#define LOAD_SUM_bf16(i, left) LOAD_SUM(bf16, i, left)

RMS(f32, f32)
RMS(f32, f16)
RMS(f32, bf16)
RMS(f16, f16)
RMS(bf16, bf16)

/* Computes the mean first, then the variance of the differences. One pass with sums of squares would lose digits to
 * cancellation. */
#define LAYER(X)                                                                                           \
    static void layer_norm_##X(const struct ngd_layer_norm *l, const void *xp, void *yp, float moments[2]) \
    {                                                                                                      \
        const ngd_el_##X *x = xp;                                                                          \
        ngd_el_##X *y = yp;                                                                                \
        const int64_t n = l->n;                                                                            \
        float sum, var;                                                                                    \
        simd_f mean, r;                                                                                    \
        ROW_SUM(sum, 0, n, LOAD_X_##X, PLUS_V);                                                            \
        moments[0] = n ? sum / (float)n : 0;                                                               \
        mean = simd_set1(moments[0]);                                                                      \
        ROW_SUM(var, 0, n, LOAD_DIFF_##X, PLUS_SQUARE);                                                    \
        moments[1] = 1.0f / sqrtf(var / (float)n + l->eps);                                                \
        r = simd_set1(moments[1]);                                                                         \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                          \
            simd_f v = simd_mul(simd_sub(simd_load_up_to_##X(x + i, n - i), mean), r);                     \
            if (l->weight)                                                                                 \
                v = simd_mul(v, simd_load_any(l->weight, l->weight_type, i, n - i));                       \
            if (l->bias)                                                                                   \
                v = simd_add(v, simd_load_any(l->bias, l->bias_type, i, n - i));                           \
            simd_store_up_to_##X(y + i, v, n - i);                                                         \
        }                                                                                                  \
    }
/* The missing lanes of a tail must count as a difference of 0, not as an element of 0. */
#define LOAD_DIFF(v, left)      ((left) >= SIMD_W ? simd_sub(v, mean) : simd_keep(simd_sub(v, mean), left))
#define LOAD_DIFF_f32(i, left)  LOAD_DIFF(LOAD_X_f32(i, left), left)
#define LOAD_DIFF_f16(i, left)  LOAD_DIFF(LOAD_X_f16(i, left), left)
#define LOAD_DIFF_bf16(i, left) LOAD_DIFF(LOAD_X_bf16(i, left), left)

LAYER(f32)
LAYER(f16)
LAYER(bf16)

SIMD_TABLE const struct ngd_norm_table SIMD_NAME(ngd_norm) = {
    .rms = {[NGD_F32] = {rms_norm_f32_f32, rms_norm_f32_f16, rms_norm_f32_bf16},
            [NGD_F16] = {[NGD_F16] = rms_norm_f16_f16},
            [NGD_BF16] = {[NGD_BF16] = rms_norm_bf16_bf16}},
    .gemma = {[NGD_F32] = {gemma_rms_norm_f32_f32, gemma_rms_norm_f32_f16, gemma_rms_norm_f32_bf16},
              [NGD_F16] = {[NGD_F16] = gemma_rms_norm_f16_f16},
              [NGD_BF16] = {[NGD_BF16] = gemma_rms_norm_bf16_bf16}},
    .add_rms = {[NGD_F32] = {add_rms_norm_f32_f32, add_rms_norm_f32_f16, add_rms_norm_f32_bf16},
                [NGD_F16] = {[NGD_F16] = add_rms_norm_f16_f16},
                [NGD_BF16] = {[NGD_BF16] = add_rms_norm_bf16_bf16}},
    .layer = {[NGD_F32] = layer_norm_f32, [NGD_F16] = layer_norm_f16, [NGD_BF16] = layer_norm_bf16},
};
