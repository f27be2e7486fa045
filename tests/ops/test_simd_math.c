/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that the elementary functions of simd_math.h keep the bounds that it states, on every instruction set, over all
 * f32 arguments in steps of STRIDE units in the last place (a prime, so that all low bits occur).
 */
#include "devices/host/cpu.h"
#include "devices/host/kernels/k_elementwise.h"
#include "tests/ops/each_isa.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>

#define STRIDE 499
#define BATCH  4096

struct bound {
    const char *name;
    ngd_ew_unary_t f;
    double (*exact)(double);
    double ulps;
};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct bound bounds[] = {
    {"exp", NGD_EW_EXP, exp, 1},      {"log", NGD_EW_LOG, log, 1},
    {"tanh", NGD_EW_TANH, tanh, 1.5}, {"sigmoid", NGD_EW_SIGMOID, sigmoid, 2.5},
    {"erf", NGD_EW_ERF, erf, 1.25},   {"sin", NGD_EW_SIN, sin, 1.75},
    {"cos", NGD_EW_COS, cos, 1.75},   {"erfc", NGD_EW_ERFC, erfc, 1.25},
};

/* Returns the bound of a function. The scalar twin is the C library, which has other bounds (tanhf: 2.2). */
static double bound_of(const struct bound *b, int isa)
{
    return isa == NGD_ISA_SCALAR ? 2.5 : b->ulps;
}

/* Returns the distance in units in the last place of the exact result. */
static double distance(float got, double want)
{
    float near = (float)want, a = fabsf(near);
    double ulp = a < 0x1p-126f ? 0x1p-149 : (double)nextafterf(a, INFINITY) - (double)a;

    if (want != want || got != got)
        return want != want && got != got ? 0 : INFINITY;
    if (isinf(near) || isinf(got))
        return near == got ? 0 : INFINITY;
    return fabs((double)got - want) / ulp;
}

static double worst_of(const struct bound *b, ngd_nd_fn fn, float *at_p)
{
    static float x[BATCH], y[BATCH];
    const int64_t step[] = {4, 4};
    const struct ngd_ew_args args = {{0}, {0}};
    char *const p[] = {(char *)x, (char *)y};
    double worst = 0;

    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += (uint64_t)STRIDE * BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t u = (uint32_t)(bits + (uint64_t)i * STRIDE);

            memcpy(&x[i], &u, 4);
        }
        fn(p, step, BATCH, &args);
        for (uint32_t i = 0; i < BATCH; i++) {
            double d = distance(y[i], b->exact((double)x[i]));

            if (d > worst) {
                worst = d;
                *at_p = x[i];
            }
        }
    }
    return worst;
}

START_TEST(elementary_functions_of_every_f32_stay_within_their_stated_error)
{
    EACH_ISA (isa) {
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
            float at = 0;
            double worst = worst_of(&bounds[i], NGD_BY_ISA(isa, ngd_ew)->unary[bounds[i].f][NGD_F32], &at);

            printf("%-8s %-8s %.3f ulp at %a\n", ngd_isa_name((ngd_isa_t)isa), bounds[i].name, worst, (double)at);
            ck_assert_msg(worst <= bound_of(&bounds[i], isa), "%s on %s: %g ulp at %a, stated are %g", bounds[i].name,
                          ngd_isa_name((ngd_isa_t)isa), worst, (double)at, bound_of(&bounds[i], isa));
        }
    }
}
END_TEST

static float special(ngd_nd_fn fn, float x)
{
    const int64_t step[] = {4, 4};
    const struct ngd_ew_args args = {{0}, {0}};
    float y;
    char *const p[] = {(char *)&x, (char *)&y};

    fn(p, step, 1, &args);
    return y;
}

START_TEST(elementary_functions_of_special_values_follow_c)
{
    static const float values[] = {0.0f,       -0.0f,     INFINITY, -INFINITY, NAN,  0x1p-149f,
                                   -0x1p-149f, 0x1p-126f, 3.4e38f,  -3.4e38f,  1.0f, -1.0f};

    EACH_ISA (isa)
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
            for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
                float got = special(NGD_BY_ISA(isa, ngd_ew)->unary[bounds[i].f][NGD_F32], values[k]);
                double d = distance(got, bounds[i].exact((double)values[k]));

                ck_assert_msg(d <= bound_of(&bounds[i], isa), "%s(%a) on %s is %a", bounds[i].name, (double)values[k],
                              ngd_isa_name((ngd_isa_t)isa), (double)got);
            }
}
END_TEST

UNIT_MAIN("ops/simd_math", elementary_functions_of_every_f32_stay_within_their_stated_error,
          elementary_functions_of_special_values_follow_c)
