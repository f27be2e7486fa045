/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_TILE_IMPL_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_TILE_IMPL_H

/*
 * The instructions of AMX, and what products on tiles do with vectors. Tiles are numbered by constants from 0 to 7. For
 * tests there are functions in C with the names of the instructions: tests/emulate.
 */
#include "devices/host/kernels/k_gemm_tile.h"
#include "devices/host/kernels/unroll.h"
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

struct ngd_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#ifndef NGD_TILE_LOAD
/* The "memory" clobber makes sure that data for a tile is stored before the tile is loaded. `step`: bytes from row to
 * row. */
#define NGD_TILE_LOAD(t, p, step) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(step)) : "memory")
#define NGD_TILE_STORE(t, p, step) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(step)) : "memory")
#define NGD_TILE_ZERO(t)         __asm__ volatile("tilezero %%tmm" #t ::)
#define NGD_TILE_DOT(c, a, b)    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define NGD_TILE_DOT_I8(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define NGD_TILE_CONFIG(c)       __asm__ volatile("ldtilecfg %0" ::"m"(c) : "memory")
#define NGD_TILE_RELEASE()       __asm__ volatile("tilerelease" ::)
#endif

/* Configures tiles of 16 rows of 64 bytes. */
static inline struct ngd_tile_config ngd_tile_full(void)
{
    struct ngd_tile_config c = {.palette = 1};

    for (int t = 0; t < 8; t++) {
        c.rows[t] = NGD_TILE_ROWS;
        c.row_bytes[t] = NGD_TILE_LINE;
    }
    return c;
}

/* Packs the upper halves of 32 elements: a row of a tile. */
static inline __m512i ngd_tile_upper(__m512i a, __m512i b)
{
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                         23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);

    return _mm512_permutex2var_epi16(a, odd, b);
}

/* Takes the last term of 32 elements: they are rounded to nearest. */
static inline __m512i ngd_tile_last(__m512 a, __m512 b)
{
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

/* Takes the next term, the upper half, and leaves the rest. Infinities and NaN have one term only. */
static inline __m512i ngd_tile_term(__m512 *x)
{
    const __mmask16 nan = _mm512_fpclass_ps_mask(*x, 0x81), odd = nan | _mm512_fpclass_ps_mask(*x, 0x18);
    __m512i hi = _mm512_and_si512(_mm512_castps_si512(*x), _mm512_set1_epi32((int)0xffff0000));

    hi = _mm512_mask_or_epi32(hi, nan, hi, _mm512_set1_epi32(0x00400000)); /* its payload may be in the lower half */
    *x = _mm512_maskz_sub_ps((__mmask16)~odd, *x, _mm512_castsi512_ps(hi));
    return hi;
}

/* Takes the next term of 32 elements: a row of a tile. */
static inline __m512i ngd_tile_take(__m512 *a, __m512 *b, bool last)
{
    if (last)
        return ngd_tile_last(*a, *b);
    return ngd_tile_upper(ngd_tile_term(a), ngd_tile_term(b));
}

/* Transposes 16 rows of 16 words. */
static inline void ngd_tile_transpose(__m512i *v)
{
    __m512i t[16];

    NGD_UNROLL for (int i = 0; i < 8; i++)
    {
        t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    NGD_UNROLL for (int i = 0; i < 8; i++)
    {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

#endif
