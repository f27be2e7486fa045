/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

static const struct {
    const char *name;
    const char *safetensors;
    size_t bytes;
    char kind; /* F I U B S */
} types[] = {
#define NGD_DTYPE(ID, name, bytes, kind, torch, st) [NGD_##ID] = {name, st, bytes, #kind[0]},
#include "base/dtype.def"
#undef NGD_DTYPE
};

static bool valid(ngd_dtype_t t)
{
    return (unsigned)t < NGD_DTYPE_MAX;
}

size_t ngd_dtype_bytes(ngd_dtype_t t)
{
    return valid(t) ? types[t].bytes : 0;
}

const char *ngd_dtype_name(ngd_dtype_t t)
{
    return valid(t) ? types[t].name : "?";
}

bool ngd_dtype_parse(const char *name, size_t n, ngd_dtype_t *t_p)
{
    for (int i = 0; i < NGD_DTYPE_MAX; i++) {
        if (strlen(types[i].name) == n && memcmp(types[i].name, name, n) == 0) {
            *t_p = (ngd_dtype_t)i;
            return true;
        }
    }
    return false;
}

bool ngd_dtype_from_safetensors(const char *name, ngd_dtype_t *t_p)
{
    for (int i = 0; i < NGD_DTYPE_MAX; i++) {
        if (strcmp(types[i].safetensors, name) == 0) {
            *t_p = (ngd_dtype_t)i;
            return true;
        }
    }
    return false;
}

bool ngd_dtype_is_float(ngd_dtype_t t)
{
    return valid(t) && types[t].kind == 'F';
}

bool ngd_dtype_is_stored(ngd_dtype_t t)
{
    return valid(t) && types[t].kind == 'S';
}

bool ngd_dtype_is_int(ngd_dtype_t t)
{
    return valid(t) && (types[t].kind == 'I' || types[t].kind == 'U');
}

uint8_t ngd_f32_to_f8(float f)
{
    uint32_t u, sign, mag;
    float a;

    memcpy(&u, &f, 4);
    sign = u >> 24 & 0x80u;
    mag = u & 0x7fffffffu;
    if (mag > 0x43e80000u) /* 464, the middle of 448 and 480, goes to 448, which is even */
        return (uint8_t)(sign | 0x7fu);
    if (mag < 0x3c800000u) { /* below 2^-6: multiples of 2^-9, which the sum's rounding finds */
        memcpy(&a, &mag, 4);
        a += 0x1p14f;
        memcpy(&mag, &a, 4);
        return (uint8_t)(sign | (mag & 0xfu));
    }
    mag += 0x7ffffu + (mag >> 20 & 1u);
    return (uint8_t)(sign | ((mag >> 20) - (120u << 3)));
}

float ngd_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 0x1fu, frac = h & 0x3ffu, u;
    float f;

    if (exp == 0x1f) {
        u = sign | 0x7f800000u | frac << 13;
        if (frac)
            u |= 0x400000u; /* a signalling NaN comes out quiet, as from the hardware */
    } else if (exp) {
        u = sign | (exp + 127 - 15) << 23 | frac << 13;
    } else if (frac) {
        /* A subnormal is normal in f32: shift until the leading bit is the hidden one. */
        unsigned shift = (unsigned)__builtin_clz(frac) - 21;

        u = sign | (127 - 15 + 1 - shift) << 23 | (frac << shift & 0x3ffu) << 13;
    } else {
        u = sign;
    }
    memcpy(&f, &u, 4);
    return f;
}

uint16_t ngd_f32_to_f16(float f)
{
    uint32_t u, sign, mag, rest, half, h;
    unsigned shift;

    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000u;
    mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x33000000u) /* below 2^-25: less than half of the smallest subnormal */
        return (uint16_t)sign;
    if (mag >= 0x38800000u) {
        shift = 13;
        h = mag - ((127 - 15) << 23);
    } else {
        shift = 126 - (mag >> 23);
        h = (mag & 0x7fffffu) | 0x800000u;
    }
    rest = h & ((1u << shift) - 1);
    half = 1u << (shift - 1);
    h >>= shift;
    if (rest > half || (rest == half && (h & 1)))
        h++; /* may carry into the exponent, which is what rounding up should do */
    return (uint16_t)(sign | h);
}
