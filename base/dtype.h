/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_DTYPE_H
#define NGD_BASE_DTYPE_H

/*
 * Element types, shared by the runtime, the wire and the client. Little endian; bool is one byte 0/1.
 * Conversions round to nearest even, as in IEEE 754 and PyTorch. Pure functions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum ngd_dtype {
#define NGD_DTYPE(ID, name, bytes, kind, torch, st) NGD_##ID,
#include "base/dtype.def"
#undef NGD_DTYPE
    NGD_DTYPE_MAX
} ngd_dtype_t;

size_t ngd_dtype_bytes(ngd_dtype_t t);
const char *ngd_dtype_name(ngd_dtype_t t);                           /* "bf16" */
bool ngd_dtype_parse(const char *name, size_t n, ngd_dtype_t *t_p);  /* "bf16" */
bool ngd_dtype_from_safetensors(const char *name, ngd_dtype_t *t_p); /* "BF16" */
bool ngd_dtype_is_float(ngd_dtype_t t);
bool ngd_dtype_is_int(ngd_dtype_t t);    /* i8 u8 i32 i64; not bool */
bool ngd_dtype_is_stored(ngd_dtype_t t); /* f8_e4m3fn: is only stored */

static inline float ngd_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t ngd_f32_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* keep NaN a NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float ngd_f16_to_f32(uint16_t h);
/* Returns element i of floats: f32, f16 or bf16. */
static inline float ngd_float_at(const void *p, ngd_dtype_t t, int64_t i)
{
    if (t == NGD_F32)
        return ((const float *)p)[i];
    return t == NGD_F16 ? ngd_f16_to_f32(((const uint16_t *)p)[i]) : ngd_bf16_to_f32(((const uint16_t *)p)[i]);
}
uint16_t ngd_f32_to_f16(float f);

/* f8_e4m3fn has no infinity. 0x7f and 0xff are NaN; the largest number is 448. */
static inline float ngd_f8_to_f32(uint8_t b)
{
    const uint32_t mag = b & 0x7fu,
                   small = mag < 8 ? 1u << 23 : 0; /* 0 and subnormals: m/8 * 2^-6 = (1 + m/8 - 1) * 2^-6 */
    uint32_t u = (mag << 20) + (120u << 23) + small, v;
    float f;

    memcpy(&f, &u, 4);
    f -= small ? 0x1p-6f : 0;
    memcpy(&v, &f, 4);
    v = (mag == 0x7f ? 0x7fc00000u : v) | (uint32_t)(b & 0x80u) << 24;
    memcpy(&f, &v, 4);
    return f;
}
/* Rounds to nearest even. Beyond 464 and for NaN, the result is NaN, as in PyTorch. */
uint8_t ngd_f32_to_f8(float f);

#endif
