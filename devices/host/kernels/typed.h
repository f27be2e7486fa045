/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_TYPED_H
#define NGD_DEVICES_HOST_KERNELS_TYPED_H

/*
 * Elements by the dtype's name, for plain C templates that paste it: ngd_el_<t> is how one is stored, ngd_get_<t>()
 * widens it to float or int64_t, ngd_put_<t>() rounds or cuts it back. A bool is b8 (bool is a macro of C) and reads as
 * 0 or 1, whatever a client's bytes hold.
 */
#include "base/dtype.h"

typedef float ngd_el_f32;
typedef uint16_t ngd_el_f16;
typedef uint16_t ngd_el_bf16;
typedef int8_t ngd_el_i8;
typedef uint8_t ngd_el_f8; /* f8_e4m3fn */
typedef uint8_t ngd_el_u8;
typedef int32_t ngd_el_i32;
typedef int64_t ngd_el_i64;
typedef uint8_t ngd_el_b8;

static inline float ngd_get_f32(ngd_el_f32 v)
{
    return v;
}
static inline float ngd_get_f16(ngd_el_f16 v)
{
    return ngd_f16_to_f32(v);
}
static inline float ngd_get_bf16(ngd_el_bf16 v)
{
    return ngd_bf16_to_f32(v);
}
static inline int64_t ngd_get_i8(ngd_el_i8 v)
{
    return v;
}
static inline int64_t ngd_get_u8(ngd_el_u8 v)
{
    return v;
}
static inline int64_t ngd_get_i32(ngd_el_i32 v)
{
    return v;
}
static inline int64_t ngd_get_i64(ngd_el_i64 v)
{
    return v;
}
static inline int64_t ngd_get_b8(ngd_el_b8 v)
{
    return v != 0;
}

static inline ngd_el_f32 ngd_put_f32(float v)
{
    return v;
}
static inline ngd_el_f16 ngd_put_f16(float v)
{
    return ngd_f32_to_f16(v);
}
static inline ngd_el_bf16 ngd_put_bf16(float v)
{
    return ngd_f32_to_bf16(v);
}
static inline ngd_el_i8 ngd_put_i8(int64_t v)
{
    return (int8_t)v;
}
static inline ngd_el_u8 ngd_put_u8(int64_t v)
{
    return (uint8_t)v;
}
static inline ngd_el_i32 ngd_put_i32(int64_t v)
{
    return (int32_t)v;
}
static inline ngd_el_i64 ngd_put_i64(int64_t v)
{
    return v;
}
static inline ngd_el_b8 ngd_put_b8(int64_t v)
{
    return v != 0;
}

/* Converts towards zero. A value out of range becomes the nearest end of it, NaN becomes 0; C leaves both undefined. */
static inline int64_t ngd_float_to_int(double v, int64_t min, int64_t max)
{
    if (v != v)
        return 0;
    if (v >= (double)max)
        return max;
    return v <= (double)min ? min : (int64_t)v;
}

/* Expand F(t, wide) once per dtype; wide is the type of ngd_get_<t>(). */
#define NGD_EACH_FLOAT(F) F(f32, float) F(f16, float) F(bf16, float)
#define NGD_EACH_INT(F)   F(i8, int64_t) F(u8, int64_t) F(i32, int64_t) F(i64, int64_t) F(b8, int64_t)
#define NGD_EACH_TYPE(F)  NGD_EACH_FLOAT(F) NGD_EACH_INT(F)
/* Initialises a table indexed by dtype with the functions name_<t>. */
#define NGD_BY_TYPE(name)                                                                            \
    {                                                                                                \
        name##_f32, name##_f16, name##_bf16, name##_i8, name##_u8, name##_i32, name##_i64, name##_b8 \
    }

#endif
