/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_SIMD_MATH_H
#define NGD_DEVICES_HOST_KERNELS_SIMD_MATH_H

/*
 * Elementary functions on simd_f. The plain C twin calls the C library; the vector forms are polynomials whose
 * coefficients were fitted at Chebyshev nodes in 120-bit arithmetic. Largest errors of the vector forms, in units in
 * the last place of f32, over all f32 arguments (measured by tests/ops/test_simd_math.c, which holds them to these
 * bounds):
 *
 *     exp 1    log 1    tanh 1.5    sigmoid 2.5    erf, erfc 1.25    sin, cos 1.75
 *
 * Special values follow C: exp(-inf) = 0, log(0) = -inf, log(<0) = NaN, and a NaN stays one. Subnormal arguments and
 * results are exact to the same bounds. sin and cos of more than 1e5 in magnitude call the C library lane by lane:
 * rotary positions never get there, so an exact vector reduction of large angles is not worth its code.
 */
#include "devices/host/kernels/simd.h"

#if NGD_SIMD == 1

SIMD_INLINE simd_f simd_exp(simd_f x)
{
    return expf(x);
}
SIMD_INLINE simd_f simd_log(simd_f x)
{
    return logf(x);
}
SIMD_INLINE simd_f simd_tanh(simd_f x)
{
    return tanhf(x);
}
SIMD_INLINE simd_f simd_erf(simd_f x)
{
    return erff(x);
}
SIMD_INLINE simd_f simd_erfc(simd_f x)
{
    return (float)erfc((double)x); /* erfcf of glibc 2.36 is off by 2.8 units in the last place */
}
SIMD_INLINE simd_f simd_sin(simd_f x)
{
    return sinf(x);
}
SIMD_INLINE simd_f simd_cos(simd_f x)
{
    return cosf(x);
}
SIMD_INLINE simd_f simd_lanes2(simd_f x, simd_f y, float (*fn)(float, float))
{
    return fn(x, y);
}

#else

SIMD_INLINE simd_f simd_exp(simd_f x)
{
    const simd_m none = simd_lt(x, simd_set1(-104.0f));
    simd_f n, r, p;

    /*
     * Beyond these bounds the result is 0 or infinity anyway, and within them the scaling does not overflow. A NaN
     * passes. Results that vanish are not computed: scaling them down would produce subnormal numbers, which take a CPU
     * a hundred cycles and more, and masked scores (-inf) are frequent.
     */
    x = simd_min(simd_set1(89.0f), simd_select(none, simd_zero(), x));
    n = simd_round(simd_mul(x, simd_set1(1.44269504f)));
    r = simd_fnma(n, simd_set1(0.69287109375f), x);
    r = simd_fnma(n, simd_set1(0.00027608682285f), r);
    p = simd_fma(r, simd_set1(0.000198929918f), simd_set1(0.00139354518f));
    p = simd_fma(r, p, simd_set1(0.00833330909f));
    p = simd_fma(r, p, simd_set1(0.0416664484f));
    p = simd_fma(r, p, simd_set1(0.166666667f));
    p = simd_fma(r, p, simd_set1(0.5f));
    p = simd_fma(simd_mul(r, r), p, r);
    return simd_select(none, simd_zero(), simd_scale2(simd_add(p, simd_set1(1.0f)), n));
}

/* x = 2^e * m with m in [sqrt(1/2), sqrt(2)); log x = e*ln2 + log1p(m - 1). */
SIMD_INLINE simd_f simd_log(simd_f x)
{
    const simd_m tiny = simd_lt(x, simd_set1(0x1p-126f));
    simd_f v = simd_select(tiny, simd_mul(x, simd_set1(0x1p23f)), x), e, f, p, r;
    simd_i bits = simd_f_bits(v), k = simd_i_sar(simd_i_sub(bits, simd_i_set1(0x3f3504f3)), 23);

    f = simd_sub(simd_bits_f(simd_i_sub(bits, simd_i_shl(k, 23))), simd_set1(1.0f));
    e = simd_sub(simd_cvt_f(k), simd_select(tiny, simd_set1(23.0f), simd_zero()));
    p = simd_fma(f, simd_set1(0.0697161147f), simd_set1(-0.114797338f));
    p = simd_fma(f, p, simd_set1(0.116854199f));
    p = simd_fma(f, p, simd_set1(-0.124256873f));
    p = simd_fma(f, p, simd_set1(0.142490576f));
    p = simd_fma(f, p, simd_set1(-0.166678023f));
    p = simd_fma(f, p, simd_set1(0.200007157f));
    p = simd_fma(f, p, simd_set1(-0.24999997f));
    p = simd_fma(f, p, simd_set1(0.333333312f));
    p = simd_mul(simd_mul(f, f), simd_fma(f, p, simd_set1(-0.5f)));
    p = simd_fma(e, simd_set1(0.00027608682285f), p);
    r = simd_fma(e, simd_set1(0.69287109375f), simd_add(f, p));
    r = simd_select(simd_eq(x, simd_zero()), simd_set1(-INFINITY), r);
    r = simd_select(simd_lt(x, simd_zero()), simd_set1(NAN), r);
    return simd_select(simd_lt(x, simd_set1(INFINITY)), r, simd_add(x, x)); /* infinity and NaN stay */
}

SIMD_INLINE simd_f simd_tanh(simd_f x)
{
    const simd_f a = simd_abs(x), z = simd_mul(x, x), one = simd_set1(1.0f);
    simd_f p, big;

    p = simd_fma(z, simd_set1(0.00229274482f), simd_set1(-0.00834394552f));
    p = simd_fma(z, p, simd_set1(0.0217689187f));
    p = simd_fma(z, p, simd_set1(-0.0539592596f));
    p = simd_fma(z, p, simd_set1(0.133333036f));
    p = simd_fma(z, p, simd_set1(-0.333333332f));
    p = simd_fma(simd_mul(x, z), p, x);
    big = simd_sub(one, simd_div(simd_set1(2.0f), simd_add(simd_exp(simd_add(a, a)), one)));
    return simd_select(simd_lt(a, simd_set1(0.625f)), p, simd_copysign(big, x));
}

/* erf x below 0.9375 in magnitude, where z is x * x. */
SIMD_INLINE simd_f simd_erf_near(simd_f x, simd_f z)
{
    simd_f p = simd_fma(z, simd_set1(8.28582655e-5f), simd_set1(-0.000812296089f));

    p = simd_fma(z, p, simd_set1(0.0051993182f));
    p = simd_fma(z, p, simd_set1(-0.0268587227f));
    p = simd_fma(z, p, simd_set1(0.112836837f));
    p = simd_fma(z, p, simd_set1(-0.37612633f));
    p = simd_fma(z, p, simd_set1(0.128379167f));
    return simd_fma(x, p, x);
}

SIMD_INLINE simd_f simd_erf(simd_f x)
{
    const simd_f a = simd_abs(x), t = simd_min(simd_set1(4.0f), a), p = simd_erf_near(x, simd_mul(t, t));
    simd_f q;

    /* log erfc(t) between 0.9375 and 4, where erf becomes 1. */
    q = simd_fma(t, simd_set1(1.64328315e-6f), simd_set1(-4.61751103e-5f));
    q = simd_fma(t, q, simd_set1(0.000597748048f));
    q = simd_fma(t, q, simd_set1(-0.00476375076f));
    q = simd_fma(t, q, simd_set1(0.0264320247f));
    q = simd_fma(t, q, simd_set1(-0.110097287f));
    q = simd_fma(t, q, simd_set1(-0.631810278f));
    q = simd_fma(t, q, simd_set1(-1.13024093f));
    q = simd_fma(t, q, simd_set1(0.000321486962f));
    q = simd_copysign(simd_sub(simd_set1(1.0f), simd_exp(q)), x);
    return simd_select(simd_lt(a, simd_set1(0.9375f)), p, q);
}

/*
 * (1 + 2t) e^(t*t) erfc t for t between 0.46 and 10.1, as *lo_p + the result. It is a polynomial of (t - 3)/(t + 3).
 * The remainder of the division corrects the last place of that quotient.
 */
SIMD_INLINE simd_f simd_erfc_scaled(simd_f t, simd_f *lo_p)
{
    const simd_f three = simd_set1(3.0f), one = simd_set1(1.0f), c = simd_set1(1.25300801f);
    const simd_f inverse = simd_div(one, simd_add(t, three));
    simd_f q = simd_mul(simd_sub(t, three), inverse), left, p, top, sum;

    left = simd_fnma(q, t, simd_fnma(simd_add(q, one), three, t));
    q = simd_fma(left, inverse, q);
    p = simd_fma(q, simd_set1(-0.000520075036f), simd_set1(0.00183552504f));
    p = simd_fma(q, p, simd_set1(0.00238328271f));
    p = simd_fma(q, p, simd_set1(-0.023762897f));
    p = simd_fma(q, p, simd_set1(0.0683403825f));
    p = simd_fma(q, p, simd_set1(-0.119273951f));
    p = simd_fma(q, p, simd_set1(0.129642349f));
    p = simd_fma(q, p, simd_set1(-0.0475622872f));
    p = simd_fma(q, p, simd_set1(-0.135621039f));
    top = simd_mul(q, p);
    sum = simd_add(c, top);
    *lo_p = simd_add(simd_add(simd_sub(c, sum), top), simd_sub(simd_set1(5.00134e-8f), simd_fnma(q, p, top)));
    return sum;
}

/*
 * 1 - erf x would lose the tail, which is e^(-x*x) times something near 1/(2x). The exponent, the quotient and the
 * product carry their rounding errors along, so that small results are as exact as large ones.
 */
SIMD_INLINE simd_f simd_erfc(simd_f x)
{
    const simd_f a = simd_abs(x), t = simd_min(simd_set1(10.1f), a), one = simd_set1(1.0f), h = simd_mul(t, t);
    const simd_f d = simd_fma(simd_set1(2.0f), t, one), inverse = simd_div(one, d);
    const simd_f n = simd_round(simd_mul(h, simd_set1(-1.44269504f)));
    simd_f lo, u, v, r, rest, tail, p, e;

    /* u + v: erfc t * e^(t*t) */
    u = simd_erfc_scaled(t, &lo);
    v = u;
    u = simd_mul(v, inverse);
    v = simd_add(simd_fnma(u, d, v), lo);
    v = simd_mul(simd_fnma(u, simd_fma(simd_set1(2.0f), t, simd_sub(one, d)), v), inverse);
    /* -t*t = n * ln2 + r + tail, and e = e^r - 1 */
    rest = simd_fma(n, simd_set1(0.00027608682285f), simd_fma(t, t, simd_neg(h)));
    tail = simd_fnma(n, simd_set1(0.69287109375f), simd_neg(h));
    r = simd_sub(tail, rest);
    tail = simd_sub(simd_sub(tail, r), rest);
    p = simd_fma(r, simd_set1(0.000198913914f), simd_set1(0.00139340107f));
    p = simd_fma(r, p, simd_set1(0.00833331056f));
    p = simd_fma(r, p, simd_set1(0.0416664617f));
    p = simd_fma(r, p, simd_set1(0.166666667f));
    p = simd_mul(simd_mul(r, r), simd_fma(r, p, simd_set1(0.5f)));
    e = simd_add(r, p);
    v = simd_fma(u, simd_add(simd_add(simd_sub(r, e), p), tail), v);
    p = simd_scale2(simd_add(u, simd_fma(u, e, simd_fma(v, e, v))), n);
    p = simd_select(simd_lt(simd_set1(10.0547f), a), simd_zero(), p);
    p = simd_select(simd_lt(x, simd_zero()), simd_sub(simd_set1(2.0f), p), p);
    return simd_select(simd_lt(a, simd_set1(0.46875f)), simd_sub(one, simd_erf_near(x, h)), p);
}

/* Calls the C library for lanes that the reduction below does not cover: large, infinite, NaN. */
static __attribute__((noinline, unused)) simd_f simd_lanes(simd_f x, float (*fn)(float))
{
    float t[SIMD_W];

    simd_store_f32(t, x);
    for (int i = 0; i < SIMD_W; i++)
        t[i] = fn(t[i]);
    return simd_load_f32(t);
}

static __attribute__((noinline, unused)) simd_f simd_lanes2(simd_f x, simd_f y, float (*fn)(float, float))
{
    float t[SIMD_W], u[SIMD_W];

    simd_store_f32(t, x);
    simd_store_f32(u, y);
    for (int i = 0; i < SIMD_W; i++)
        t[i] = fn(t[i], u[i]);
    return simd_load_f32(t);
}

/* Computes sin(x + quarter * pi/2). Three-part Cody-Waite steps reduce x to [-pi/4, pi/4]. */
SIMD_INLINE simd_f simd_sincos(simd_f x, int quarter)
{
    const simd_f k = simd_round(simd_mul(x, simd_set1(0.636619772f)));
    const simd_i q = simd_i_add(simd_cvt_i(k), simd_i_set1(quarter));
    simd_f r, z, s, c;

    r = simd_fnma(k, simd_set1(1.5707963705062866f), x);
    r = simd_fnma(k, simd_set1(-4.371138828673793e-08f), r);
    r = simd_fnma(k, simd_set1(-1.7151245100058819e-15f), r);
    z = simd_mul(r, r);
    s = simd_fma(z, simd_set1(2.72437814e-6f), simd_set1(-0.000198400389f));
    s = simd_fma(z, s, simd_set1(0.00833333179f));
    s = simd_fma(z, s, simd_set1(-0.166666667f));
    s = simd_fma(simd_mul(r, z), s, r);
    c = simd_fma(z, simd_set1(-2.72958308e-7f), simd_set1(2.48005604e-5f));
    c = simd_fma(z, c, simd_set1(-0.00138888876f));
    c = simd_fma(z, c, simd_set1(0.0416666667f));
    c = simd_fma(simd_mul(z, z), c, simd_fma(z, simd_set1(-0.5f), simd_set1(1.0f)));
    s = simd_select(simd_i_nonzero(simd_i_and(q, simd_i_set1(1))), c, s);
    return simd_bits_f(simd_i_xor(simd_f_bits(s), simd_i_shl(simd_i_and(q, simd_i_set1(2)), 30)));
}
/* Computes the vector form, and calls the C library for lanes of large magnitude. The choice is made lane by lane, so
 * that a lane's result does not depend on its neighbours. */
SIMD_INLINE simd_f simd_angle(simd_f x, int quarter, float (*fn)(float))
{
    const simd_m small = simd_le(simd_abs(x), simd_set1(1e5f));
    simd_f r = simd_sincos(x, quarter);

    return __builtin_expect(simd_m_all(small), 1) ? r : simd_select(small, r, simd_lanes(x, fn));
}
SIMD_INLINE simd_f simd_sin(simd_f x)
{
    return simd_angle(x, 0, sinf);
}
SIMD_INLINE simd_f simd_cos(simd_f x)
{
    return simd_angle(x, 1, cosf);
}

#endif

/* Computed from e^-|x|, so that neither side overflows and small results keep their precision. */
SIMD_INLINE simd_f simd_sigmoid(simd_f x)
{
    const simd_f one = simd_set1(1.0f), e = simd_exp(simd_neg(simd_abs(x)));

    return simd_div(simd_select(simd_lt(x, simd_zero()), e, one), simd_add(one, e));
}
SIMD_INLINE simd_f simd_silu(simd_f x)
{
    return simd_mul(x, simd_sigmoid(x));
}
SIMD_INLINE simd_f simd_gelu(simd_f x)
{
    simd_f h = simd_mul(simd_set1(0.5f), x);

    return simd_fma(h, simd_erf(simd_mul(x, simd_set1(0.70710678f))), h);
}
SIMD_INLINE simd_f simd_gelu_tanh(simd_f x)
{
    simd_f h = simd_mul(simd_set1(0.5f), x), x3 = simd_mul(simd_mul(x, x), x);

    return simd_fma(h, simd_tanh(simd_mul(simd_set1(0.79788456f), simd_fma(simd_set1(0.044715f), x3, x))), h);
}

/* NaN wins, as in PyTorch; simd_max gives its second operand when either is one. */
SIMD_INLINE simd_f simd_max_nan(simd_f a, simd_f b)
{
    return simd_select(simd_isnan(a), a, simd_max(a, b));
}
SIMD_INLINE simd_f simd_min_nan(simd_f a, simd_f b)
{
    return simd_select(simd_isnan(a), a, simd_min(a, b));
}

#endif
