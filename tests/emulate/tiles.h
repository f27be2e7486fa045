/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_EMULATE_TILES_H
#define NGD_TESTS_EMULATE_TILES_H

/*
 * The instructions of AMX as C, with the names of devices/host/kernels/k_gemm_tile_impl.h. Sums run in f32 along K, and
 * numbers below 2^-126 count as 0. Each thread has tiles of its own.
 */
#include <stdint.h>
#include <string.h>

/* The operand of ldtilecfg. */
struct ngd_emulated_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct ngd_emulated_tiles {
    struct ngd_emulated_config config;
    _Alignas(64) uint8_t tile[8][16][64];
};
static _Thread_local struct ngd_emulated_tiles ngd_tiles;

static inline void ngd_emulate_load(int t, const void *p, int64_t step)
{
    memset(ngd_tiles.tile[t], 0, sizeof(ngd_tiles.tile[t]));
    for (int i = 0; i < ngd_tiles.config.rows[t]; i++)
        memcpy(ngd_tiles.tile[t][i], (const char *)p + i * step, ngd_tiles.config.row_bytes[t]);
}

static inline void ngd_emulate_store(int t, void *p, int64_t step)
{
    for (int i = 0; i < ngd_tiles.config.rows[t]; i++)
        memcpy((char *)p + i * step, ngd_tiles.tile[t][i], ngd_tiles.config.row_bytes[t]);
}

static inline float ngd_emulate_flush(float v)
{
    return v > -0x1p-126F && v < 0x1p-126F ? 0 : v;
}

static inline float ngd_emulate_bf16(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float v;

    memcpy(&v, &bits, sizeof(v));
    return ngd_emulate_flush(v);
}

/* c[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1] */
static inline void ngd_emulate_dot(int c, int a, int b)
{
    for (int m = 0; m < ngd_tiles.config.rows[c]; m++) {
        const uint16_t *x = (const void *)ngd_tiles.tile[a][m];
        float *sums = (void *)ngd_tiles.tile[c][m];

        for (int k = 0; k < ngd_tiles.config.row_bytes[a] / 4; k++) {
            const uint16_t *w = (const void *)ngd_tiles.tile[b][k];
            const float even = ngd_emulate_bf16(x[2 * k]), odd = ngd_emulate_bf16(x[2 * k + 1]);

            for (int n = 0; n < ngd_tiles.config.row_bytes[c] / 4; n++) {
                const float s = ngd_emulate_flush(sums[n] + even * ngd_emulate_bf16(w[2 * n]));

                sums[n] = ngd_emulate_flush(s + odd * ngd_emulate_bf16(w[2 * n + 1]));
            }
        }
    }
}

/* c[m][n] += the products of four i8 a[m][4k...] and b[k][4n...] */
static inline void ngd_emulate_dot_i8(int c, int a, int b)
{
    for (int m = 0; m < ngd_tiles.config.rows[c]; m++)
        for (int k = 0; k < ngd_tiles.config.row_bytes[a] / 4; k++)
            for (int n = 0; n < ngd_tiles.config.row_bytes[c] / 4; n++) {
                const int8_t *x = (const int8_t *)ngd_tiles.tile[a][m] + 4 * k,
                             *w = (const int8_t *)ngd_tiles.tile[b][k] + 4 * n;
                int32_t *sum = (int32_t *)(void *)ngd_tiles.tile[c][m] + n;

                for (int i = 0; i < 4; i++)
                    *sum += x[i] * w[i];
            }
}

#define NGD_TILE_LOAD(t, p, step)  ngd_emulate_load(t, p, step)
#define NGD_TILE_STORE(t, p, step) ngd_emulate_store(t, p, step)
#define NGD_TILE_ZERO(t)           memset(ngd_tiles.tile[t], 0, sizeof(ngd_tiles.tile[t]))
#define NGD_TILE_DOT(c, a, b)      ngd_emulate_dot(c, a, b)
#define NGD_TILE_DOT_I8(c, a, b)   ngd_emulate_dot_i8(c, a, b)
#define NGD_TILE_CONFIG(c)         memcpy(&ngd_tiles.config, &(c), sizeof(ngd_tiles.config))
#define NGD_TILE_RELEASE()         memset(&ngd_tiles, 0, sizeof(ngd_tiles))

#endif
