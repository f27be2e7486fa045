/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV caches in i8 and f8 on every instruction set: attention over them against the definition in double, and what is
 * written to them against its definition, bit by bit: sizes around those of vectors, rows of zeros, of subnormal and of
 * huge numbers, NaN and infinities.
 */
#include "tests/ops/attention_case.h"
#include "tests/ops/each_isa.h"
#include "tests/unit/unit.h"
#include <float.h>

static const ngd_dtype_t kinds[] = {NGD_I8, NGD_F8_E4M3FN};
static const ngd_dtype_t floats[] = {NGD_F32, NGD_F16, NGD_BF16};

/* ---- attention ----------------------------------------------------------------------------------------- */

static void check_scaled(struct bench *benches, const struct attention_shape *s, struct random *r)
{
    struct ngd_strbuf sb;
    struct attention_data d;

    ngd_strbuf_init(&sb);
    attention_text(s, &sb);
    attention_data_open(s, &d, r);
    EACH_ISA (isa)
        attention_run(&benches[isa], s, &d, ngd_strbuf_str(&sb), 1);
    attention_data_close(&d);
    ngd_strbuf_fini(&sb);
}

START_TEST(attention_over_quantised_caches_of_any_size_is_right)
{
    static const int64_t groups[][2] = {{1, 1}, {4, 2}, {5, 5}, {6, 3}, {20, 1}};
    static const int64_t dims[] = {1, 3, 8, 15, 17, 64, 80, 128, 130};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {31};

    benches_open(benches);
    for (size_t g = 0; g < 5; g++)
        for (size_t d = 0; d < 9; d++) {
            struct attention_shape s = {.heads = groups[g][0],
                                        .kv_heads = groups[g][1],
                                        .d = dims[d],
                                        .block_size = 1 + random_below(&r, 17),
                                        .blocks = 40,
                                        .table_width = 300,
                                        .qt = floats[(g + d) % 3],
                                        .ct = kinds[(g + d / 2) % 2],
                                        .scale = 1 / sqrt((double)dims[d]),
                                        .n_seqs = 4,
                                        .rows = {1, 0, 7, 3},
                                        .keys = {129, 3, 7, 290},
                                        .tail = 1};

            check_scaled(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

/* Windows whose first key lies within a chunk and a block, sinks, and caps: scales come before them. */
START_TEST(attention_with_scales_in_windows_with_sinks_and_caps_is_right)
{
    static const int64_t windows[] = {0, 1, 7, 100, 128, 129, 5000};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {32};

    benches_open(benches);
    for (size_t i = 0; i < 14; i++) {
        struct attention_shape s = {.heads = 6,
                                    .kv_heads = 2,
                                    .d = 20,
                                    .block_size = i % 3 ? 16 : 5,
                                    .blocks = 50,
                                    .table_width = 80,
                                    .qt = floats[i % 3],
                                    .ct = kinds[i / 7],
                                    .scale = 2, /* peaked, so that a key that should not be seen would show */
                                    .n_seqs = 3,
                                    .rows = {1, 37, 5},
                                    .keys = {300, 300, 5},
                                    .window = windows[i % 7],
                                    .freed = true,
                                    .sinks = i % 2,
                                    .cap = i % 4 == 1 ? 3 : 0};

        check_scaled(benches, &s, &r);
    }
    benches_close(benches);
}
END_TEST

/* 0x7f and 0xff are NaN: a key's score is NaN, so all of its row; a value's column is NaN. A scale that is NaN makes
 * all NaN; a subnormal one is no zero. */
START_TEST(numbers_and_scales_that_are_nan_are_seen)
{
    enum { D = 37 };
    const struct attention_shape s = {.heads = 1,
                                      .kv_heads = 1,
                                      .d = D,
                                      .block_size = 4,
                                      .blocks = 3,
                                      .table_width = 1,
                                      .qt = NGD_F32,
                                      .ct = NGD_F8_E4M3FN,
                                      .scale = 0.1,
                                      .n_seqs = 1,
                                      .rows = {1},
                                      .keys = {3}};
    struct bench benches[NGD_ISA_MAX];
    struct attention_data d;
    struct ngd_strbuf sb;
    struct random r = {33};
    float y[D], nan = NAN, tiny = 0x1p-140f;
    int64_t at;

    benches_open(benches);
    ngd_strbuf_init(&sb);
    attention_text(&s, &sb);
    attention_data_open(&s, &d, &r);
    at = (int64_t)d.table[0] * 4 + 1; /* the second key */
    EACH_ISA (isa)
        for (int64_t e = 0; e < D; e += 9) {
            char *bytes[2] = {d.k.data + at * D + e, d.v.data + at * D + e};

            for (int i = 0; i < 2; i++) {
                const char before = *bytes[i];

                *bytes[i] = (char)(e % 2 ? 0x7f : 0xff);
                attention_compute(&benches[isa], &s, &d, ngd_strbuf_str(&sb), (char *)y);
                for (int64_t k = 0; k < D; k++)
                    ck_assert_msg(!isnan(y[k]) == (i == 1 && k != e), "%s: %d, %lld of %lld: %g", benches[isa].name, i,
                                  (long long)k, (long long)e, (double)y[k]);
                *bytes[i] = before;
            }
        }
    memcpy(d.n.data + at * 4, &nan, 4);
    EACH_ISA (isa) {
        attention_compute(&benches[isa], &s, &d, ngd_strbuf_str(&sb), (char *)y);
        for (int64_t k = 0; k < D; k++)
            ck_assert(isnan(y[k]));
    }
    for (int64_t i = 0; i < d.n.n; i++)
        memcpy(d.n.data + i * 4, &tiny, 4);
    EACH_ISA (isa) {
        bool some = false;

        attention_compute(&benches[isa], &s, &d, ngd_strbuf_str(&sb), (char *)y);
        for (int64_t k = 0; k < D; k++)
            some |= y[k] != 0;
        ck_assert(some);
    }
    attention_data_close(&d);
    ngd_strbuf_fini(&sb);
    benches_close(benches);
}
END_TEST

/* ---- writing -------------------------------------------------------------------------------------------- */

struct written {
    int64_t rows, heads, d, dv, blocks, block_size;
    ngd_dtype_t from, to;
    struct numbers x[2];
    int32_t *slots;
    uint8_t *want[2];
    float *scales[2];
};

/* One head by the definition, in the f32 that it names. */
static void quantise(const struct written *w, const double *x, int64_t n, uint8_t *y, float *scale_p)
{
    const float largest = w->to == NGD_I8 ? 127 : 448;
    float most = 0, scale;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            most = NAN;
        if (fabs(x[i]) > (double)most)
            most = (float)fabs(x[i]);
    }
    scale = most / largest;
    *scale_p = scale;
    for (int64_t i = 0; i < n; i++) {
        const float v = scale > 0 ? fminf(fmaxf((float)x[i] / scale, -largest), largest) : 0;

        y[i] = w->to == NGD_I8 ? (uint8_t)(int8_t)lrintf(v) : ngd_f32_to_f8(v);
    }
}

/* Rows of all kinds: some zeros, some tiny or huge, some with NaN or an infinity. */
static void make_rows(struct written *w, int i, int64_t n, struct random *r)
{
    static const double sizes[] = {1, 0, 0x1p-149, 0x1p-127, 3e-6, 900, 60000, 3e38};

    numbers_open(&w->x[i], w->from, w->rows * w->heads * n);
    for (int64_t h = 0; h < w->rows * w->heads; h++) {
        const double size = sizes[random_below(r, 8)] * (1 + random_value(r) / 2);
        const int64_t odd = random_below(r, 12);

        for (int64_t e = 0; e < n; e++)
            numbers_put(&w->x[i], h * n + e, size * random_value(r));
        if (n && odd < 3)
            numbers_put(&w->x[i], h * n + random_below(r, n),
                        odd == 0   ? (double)NAN
                        : odd == 1 ? (double)INFINITY
                                   : -(double)INFINITY);
    }
}

static void open_written(struct written *w, struct random *r)
{
    const int64_t slots = w->blocks * w->block_size, n[2] = {w->d, w->dv};

    w->slots = calloc((size_t)w->rows + 1, sizeof(int32_t));
    for (int64_t t = 0; t < w->rows; t++)
        w->slots[t] = (int32_t)(random_below(r, slots + 1) - 1);
    for (int i = 0; i < 2; i++) {
        make_rows(w, i, n[i], r);
        w->want[i] = calloc((size_t)(slots * w->heads * n[i]) + 1, 1);
        w->scales[i] = calloc((size_t)(slots * w->heads) + 1, sizeof(float));
        for (int64_t t = 0; t < w->rows; t++)
            for (int64_t h = 0; h < w->heads && w->slots[t] >= 0; h++)
                quantise(w, w->x[i].value + (t * w->heads + h) * n[i], n[i],
                         w->want[i] + (w->slots[t] * w->heads + h) * n[i],
                         w->scales[i] + (w->slots[t] / w->block_size * w->heads + h) * w->block_size +
                             w->slots[t] % w->block_size);
    }
}

static void close_written(struct written *w)
{
    for (int i = 0; i < 2; i++) {
        numbers_close(&w->x[i]);
        free(w->want[i]);
        free(w->scales[i]);
    }
    free(w->slots);
}

static void written_text(const struct written *w, struct ngd_strbuf *sb)
{
    const char *from = ngd_dtype_name(w->from), *to = ngd_dtype_name(w->to);
    const long long t = w->rows, h = w->heads, nb = w->blocks, bs = w->block_size;

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"w\" {\n state %%kc : %s[%lld,%lld,%lld,%lld]\n", to, nb, bs, h,
                      (long long)w->d);
    ngd_strbuf_printf(sb, " state %%vc : %s[%lld,%lld,%lld,%lld]\n", to, nb, bs, h, (long long)w->dv);
    ngd_strbuf_printf(sb, " state %%ks : f32[%lld,%lld,%lld]\n state %%vs : f32[%lld,%lld,%lld]\n", nb, h, bs, nb, h,
                      bs);
    ngd_strbuf_printf(sb, " input %%k : %s[%lld,%lld,%lld]\n input %%v : %s[%lld,%lld,%lld]\n input %%i : i32[%lld]\n",
                      from, t, h, (long long)w->d, from, t, h, (long long)w->dv, t);
    ngd_strbuf_append(sb, " npu.scatter_pa_kv_cache(%k, %v, %i, %kc, %vc, %ks, %vs)\n return \"k\" = %k\n}\n");
}

static void check_state(struct ready *r, uint32_t i, const void *want, uint64_t bytes, const char *what, const char *on)
{
    char *got = malloc(bytes + 1);
    struct ngd_diag diag = {0};

    if (bytes)
        run_check(ngd_buffer_read(r->bound[i], 0, got, bytes, &diag), &diag, what);
    for (uint64_t b = 0; b < bytes; b++)
        if (got[b] != ((const char *)want)[b])
            ck_abort_msg("%s: byte %llu of %s is %d, should be %d", on, (unsigned long long)b, what, got[b],
                         ((const char *)want)[b]);
    free(got);
}

static void check_written(struct bench *b, const struct written *w)
{
    const uint64_t slots = (uint64_t)(w->blocks * w->block_size * w->heads);
    struct ngd_span in[3] = {{w->x[0].data, numbers_bytes(&w->x[0])},
                             {w->x[1].data, numbers_bytes(&w->x[1])},
                             {w->slots, (uint64_t)w->rows * 4}};
    struct ngd_out out = {calloc(1, numbers_bytes(&w->x[0]) + 1), numbers_bytes(&w->x[0])};
    struct ngd_launch launch = {.inputs = in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ready r;

    ngd_strbuf_init(&sb);
    written_text(w, &sb);
    run_check(ready_open(&r, b, ngd_strbuf_str(&sb), NULL, &diag), &diag, ngd_strbuf_str(&sb));
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, "write");
    check_state(&r, 0, w->want[0], slots * (uint64_t)w->d, "keys", b->name);
    check_state(&r, 1, w->want[1], slots * (uint64_t)w->dv, "values", b->name);
    for (int i = 0; i < 2; i++) { /* all NaN are alike */
        float *got = malloc(slots * 4 + 1);

        run_check(ngd_buffer_read(r.bound[2 + i], 0, got, slots * 4, &diag), &diag, "scales");
        for (uint64_t k = 0; k < slots; k++)
            ck_assert_msg(memcmp(&got[k], &w->scales[i][k], 4) == 0 || (isnan(got[k]) && isnan(w->scales[i][k])),
                          "%s: scale %llu is %.9g, should be %.9g", b->name, (unsigned long long)k, (double)got[k],
                          (double)w->scales[i][k]);
        free(got);
    }
    ready_close(&r);
    ngd_strbuf_fini(&sb);
    free(out.data);
}

START_TEST(heads_are_written_as_their_definition_says)
{
    static const int64_t dims[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 128, 131};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {34};

    benches_open(benches);
    for (size_t i = 0; i < 12; i++)
        for (size_t t = 0; t < 6; t++) {
            struct written w = {.rows = 1 + random_below(&r, 30),
                                .heads = 1 + random_below(&r, 5),
                                .d = dims[i],
                                .dv = t % 2 ? dims[i] : dims[(i + 5) % 12],
                                .blocks = 3,
                                .block_size = 1 + random_below(&r, 20),
                                .from = floats[t % 3],
                                .to = kinds[t / 3]};

            open_written(&w, &r);
            EACH_ISA (isa)
                check_written(&benches[isa], &w);
            close_written(&w);
        }
    benches_close(benches);
}
END_TEST

/* No number is further from x than half a step of its kind: in i8 half a scale, in f8 a sixteenth of x. */
START_TEST(written_numbers_are_near)
{
    struct random r = {35};

    for (size_t t = 0; t < 2; t++)
        for (int round = 0; round < 200; round++) {
            struct written w = {.rows = 1, .heads = 1, .d = 64, .to = kinds[t], .from = NGD_F32};
            const double size = exp2(30 * random_value(&r));
            uint8_t y[64];
            double x[64];
            float scale;

            for (int e = 0; e < 64; e++)
                x[e] = (double)(float)(size * random_value(&r));
            quantise(&w, x, 64, y, &scale);
            for (int e = 0; e < 64; e++) {
                const double n = t ? (double)ngd_f8_to_f32(y[e]) : (double)(int8_t)y[e];
                const double most = t ? fmax(fabs(x[e]) / 16, 0x1p-10 * (double)scale) : (double)scale / 2;

                ck_assert_msg(fabs(x[e] - n * (double)scale) <= most * (1 + 1e-5), "%g is %g", x[e], n * (double)scale);
            }
        }
}
END_TEST

UNIT_MAIN("ops/kv_quant", attention_over_quantised_caches_of_any_size_is_right,
          attention_with_scales_in_windows_with_sinks_and_caps_is_right, numbers_and_scales_that_are_nan_are_seen,
          heads_are_written_as_their_definition_says, written_numbers_are_near)
