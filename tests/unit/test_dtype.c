/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares conversions with values computed from the definitions in double precision, which shares
 * nothing with the bit arithmetic under test. It tests every half and, for the way back, every midpoint
 * between neighbours, where rounding is decided, with the floats on both sides of it.
 */
#include "base/dtype.h"
#include "tests/unit/unit.h"
#include <math.h>

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return u;
}

/* Returns the value of a number in a binary format with the given widths. The largest exponent counts as
 * finite, so that the midpoint before infinity can be computed. */
static double value_of(uint32_t h, int exp_bits, int frac_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1;
    int exp = (int)(h >> frac_bits) & ((1 << exp_bits) - 1);
    double frac = (double)(h & ((1u << frac_bits) - 1));
    double v = exp ? ldexp(ldexp(1.0, frac_bits) + frac, exp - bias - frac_bits) : ldexp(frac, 1 - bias - frac_bits);

    return h >> (exp_bits + frac_bits) ? -v : v;
}

START_TEST(every_half_widens_to_its_exact_value)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = ngd_f16_to_f32((uint16_t)h);

        if ((h & 0x7c00) == 0x7c00) {
            if (h & 0x3ff)
                ck_assert(isnan(f));
            else
                ck_assert(isinf(f));
        } else {
            ck_assert((double)f == value_of(h, 5, 10));
        }
        ck_assert_int_eq(signbit(f) != 0, h >> 15);
    }
}
END_TEST

START_TEST(every_half_survives_the_way_to_f32_and_back)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t back = ngd_f32_to_f16(ngd_f16_to_f32((uint16_t)h));

        if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff))
            ck_assert_uint_eq(back, h | 0x200); /* NaNs come back quiet */
        else
            ck_assert_uint_eq(back, h);
    }
}
END_TEST

START_TEST(every_bfloat_survives_the_way_to_f32_and_back)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t back = ngd_f32_to_bf16(ngd_bf16_to_f32((uint16_t)h));

        if ((h & 0x7f80) == 0x7f80 && (h & 0x7f))
            ck_assert_uint_eq(back, h | 0x40);
        else
            ck_assert_uint_eq(back, h);
    }
}
END_TEST

/* Checks every interval between neighbours of a 16-bit format: values below the midpoint round down, those
 * above round up, and the midpoint rounds to even. */
static void check_midpoints(uint16_t (*narrow)(float), int exp_bits, int frac_bits)
{
    uint32_t inf = ((1u << exp_bits) - 1) << frac_bits;

    for (uint32_t h = 0; h < inf; h++) {
        double mid = (value_of(h, exp_bits, frac_bits) + value_of(h + 1, exp_bits, frac_bits)) / 2;
        float f = (float)mid;
        uint32_t even = h & 1 ? h + 1 : h;

        ck_assert((double)f == mid); /* f32 has a bit more everywhere, so midpoints are exact */
        ck_assert_uint_eq(narrow(f), even);
        ck_assert_uint_eq(narrow(-f), even | 0x8000);
        ck_assert_uint_eq(narrow(float_of(bits_of(f) - 1)), h);
        ck_assert_uint_eq(narrow(float_of(bits_of(f) + 1)), h + 1);
    }
}

START_TEST(f16_rounds_to_nearest_even_between_all_neighbours)
{
    check_midpoints(ngd_f32_to_f16, 5, 10);
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even_between_all_neighbours)
{
    check_midpoints(ngd_f32_to_bf16, 8, 7);
}
END_TEST

START_TEST(narrowing_keeps_nan_infinity_zero_and_sign)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f80ffff};

    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
        ck_assert(isnan(ngd_f16_to_f32(ngd_f32_to_f16(float_of(nans[i])))));
        ck_assert(isnan(ngd_bf16_to_f32(ngd_f32_to_bf16(float_of(nans[i])))));
        ck_assert_int_eq(ngd_f32_to_f16(float_of(nans[i])) >> 15, (int)(nans[i] >> 31));
        ck_assert_int_eq(ngd_f32_to_bf16(float_of(nans[i])) >> 15, (int)(nans[i] >> 31));
    }
    ck_assert_uint_eq(ngd_f32_to_f16(INFINITY), 0x7c00);
    ck_assert_uint_eq(ngd_f32_to_f16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(ngd_f32_to_f16(1e30f), 0x7c00);
    ck_assert_uint_eq(ngd_f32_to_f16(-0.0f), 0x8000);
    ck_assert_uint_eq(ngd_f32_to_f16(float_of(1)), 0);
    ck_assert_uint_eq(ngd_f32_to_bf16(INFINITY), 0x7f80);
    ck_assert_uint_eq(ngd_f32_to_bf16(-0.0f), 0x8000);
    ck_assert_uint_eq(ngd_f32_to_bf16(float_of(0x7f7fffff)), 0x7f80); /* FLT_MAX rounds up */
}
END_TEST

/* The value of each f8 is that of its definition, and it is the nearest f8 of itself. */
START_TEST(every_f8_widens_to_its_exact_value_and_back)
{
    for (int b = 0; b < 256; b++) {
        const int e = b >> 3 & 15, m = b & 7;
        const float want = (b & 0x80 ? -1.0f : 1.0f) * (e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9));

        if ((b & 0x7f) == 0x7f) {
            ck_assert(isnan(ngd_f8_to_f32((uint8_t)b)));
        } else {
            const float got = ngd_f8_to_f32((uint8_t)b);

            ck_assert_msg(memcmp(&got, &want, sizeof(got)) == 0, "byte %d is %g, should be %g", b, (double)got,
                          (double)want);
        }
        ck_assert_int_eq(ngd_f32_to_f8(ngd_f8_to_f32((uint8_t)b)), b);
    }
}
END_TEST

/* Between two neighbours the nearer one is chosen, and in the middle the even one. */
START_TEST(a_float_becomes_the_nearest_f8)
{
    for (int b = 0; b < 0x7e; b++) {
        const float low = ngd_f8_to_f32((uint8_t)b), high = ngd_f8_to_f32((uint8_t)(b + 1)), middle = (low + high) / 2;

        ck_assert_int_eq(ngd_f32_to_f8(middle), b % 2 ? b + 1 : b);
        ck_assert_int_eq(ngd_f32_to_f8(nextafterf(middle, 0)), b);
        ck_assert_int_eq(ngd_f32_to_f8(-nextafterf(middle, 1000)), 0x80 | (b + 1));
    }
    ck_assert_int_eq(ngd_f32_to_f8(464), 0x7e);
    ck_assert_int_eq(ngd_f32_to_f8(nextafterf(464, 1000)), 0x7f);
    ck_assert_int_eq(ngd_f32_to_f8(-INFINITY), 0xff);
    ck_assert_int_eq(ngd_f32_to_f8(NAN) & 0x7f, 0x7f);
}
END_TEST

START_TEST(every_type_parses_from_its_own_names)
{
    for (int t = 0; t < NGD_DTYPE_MAX; t++) {
        const char *name = ngd_dtype_name((ngd_dtype_t)t);
        ngd_dtype_t back;

        ck_assert(ngd_dtype_parse(name, strlen(name), &back));
        ck_assert_int_eq(back, t);
        ck_assert_uint_gt(ngd_dtype_bytes((ngd_dtype_t)t), 0);
    }
    ck_assert_uint_eq(ngd_dtype_bytes(NGD_I64), 8);
    ck_assert_uint_eq(ngd_dtype_bytes(NGD_BF16), 2);
}
END_TEST

START_TEST(names_that_are_nearly_right_do_not_parse)
{
    ngd_dtype_t t = NGD_BOOL;

    ck_assert(!ngd_dtype_parse("f3", 2, &t));
    ck_assert(!ngd_dtype_parse("f321", 4, &t));
    ck_assert(!ngd_dtype_parse("F32", 3, &t));
    ck_assert(!ngd_dtype_parse("", 0, &t));
    ck_assert(!ngd_dtype_from_safetensors("bf16", &t));
    ck_assert(!ngd_dtype_from_safetensors("F64", &t));
    ck_assert_int_eq(t, NGD_BOOL); /* untouched on failure */
    ck_assert(ngd_dtype_parse("f32x", 3, &t));
    ck_assert_int_eq(t, NGD_F32);
    ck_assert(ngd_dtype_from_safetensors("BF16", &t));
    ck_assert_int_eq(t, NGD_BF16);
}
END_TEST

START_TEST(kinds_are_disjoint_and_bool_is_neither)
{
    for (int t = 0; t < NGD_DTYPE_MAX; t++)
        ck_assert(!(ngd_dtype_is_float((ngd_dtype_t)t) && ngd_dtype_is_int((ngd_dtype_t)t)));
    ck_assert(ngd_dtype_is_float(NGD_F16));
    ck_assert(ngd_dtype_is_int(NGD_U8));
    ck_assert(!ngd_dtype_is_int(NGD_BOOL));
    ck_assert(!ngd_dtype_is_float(NGD_BOOL));
    for (int t = 0; t < NGD_DTYPE_MAX; t++)
        ck_assert_int_eq(ngd_dtype_is_stored((ngd_dtype_t)t), t == NGD_F8_E4M3FN);
    ck_assert(!ngd_dtype_is_float(NGD_F8_E4M3FN));
    ck_assert(!ngd_dtype_is_int(NGD_F8_E4M3FN));
    ck_assert_uint_eq(ngd_dtype_bytes(NGD_DTYPE_MAX), 0);
}
END_TEST

UNIT_MAIN("base/dtype", every_half_widens_to_its_exact_value, every_f8_widens_to_its_exact_value_and_back,
          a_float_becomes_the_nearest_f8, every_half_survives_the_way_to_f32_and_back,
          every_bfloat_survives_the_way_to_f32_and_back, f16_rounds_to_nearest_even_between_all_neighbours,
          bf16_rounds_to_nearest_even_between_all_neighbours, narrowing_keeps_nan_infinity_zero_and_sign,
          every_type_parses_from_its_own_names, names_that_are_nearly_right_do_not_parse,
          kinds_are_disjoint_and_bool_is_neither)
