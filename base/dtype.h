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
bool ngd_dtype_is_int(ngd_dtype_t t); /* i8 u8 i32 i64; not bool */

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
uint16_t ngd_f32_to_f16(float f);

#endif
