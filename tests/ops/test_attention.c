/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares paged attention on every instruction set with the definition in double: groups of heads, block tables in any
 * order, contexts of many chunks, odd head sizes, sequences without rows, and dtypes of queries and cache.
 */
#include "tests/ops/attention_case.h"
#include "tests/ops/each_isa.h"
#include "tests/unit/unit.h"

static void check_shape(struct bench *benches, const struct attention_shape *s, struct random *r)
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

static const ngd_dtype_t types[][2] = {
    {NGD_F32, NGD_F32}, {NGD_F32, NGD_BF16}, {NGD_F32, NGD_F16}, {NGD_BF16, NGD_BF16}, {NGD_F16, NGD_F16}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

START_TEST(attention_of_any_group_and_head_size_is_right)
{
    static const int64_t groups[][2] = {{1, 1}, {2, 1}, {4, 2}, {8, 2}, {5, 5}, {6, 3}, {16, 1}, {20, 1}, {34, 2}};
    static const int64_t dims[] = {1, 3, 8, 16, 17, 64, 80, 128, 130};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {11};

    benches_open(benches);
    for (size_t g = 0; g < 9; g++)
        for (size_t d = 0; d < 9; d++) {
            struct attention_shape s = {.heads = groups[g][0],
                                        .kv_heads = groups[g][1],
                                        .d = dims[d],
                                        .block_size = 4,
                                        .blocks = 9,
                                        .table_width = 6,
                                        .qt = types[(g + d) % N_TYPES][0],
                                        .ct = types[(g + d) % N_TYPES][1],
                                        .scale = 1 / sqrt((double)dims[d]),
                                        .n_seqs = 3,
                                        .rows = {1, 7, 2},
                                        .keys = {9, 7, 24}};

            check_shape(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

START_TEST(attention_over_contexts_around_a_chunk_and_far_beyond_is_right)
{
    static const int64_t contexts[] = {1, 2, 127, 128, 129, 255, 256, 257, 1000, 3001};
    static const int64_t blocks[] = {1, 3, 16, 128, 200};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {12};

    benches_open(benches);
    for (size_t c = 0; c < 10; c++)
        for (size_t b = 0; b < 5; b++) {
            int64_t width = (contexts[c] + blocks[b] - 1) / blocks[b];
            struct attention_shape s = {.heads = 4,
                                        .kv_heads = 2,
                                        .d = 20,
                                        .block_size = blocks[b],
                                        .blocks = width / 2 + 2,
                                        .table_width = width + 1,
                                        .qt = types[(c + b) % N_TYPES][0],
                                        .ct = types[(c + b) % N_TYPES][1],
                                        .scale = 0.25,
                                        .n_seqs = 2,
                                        .rows = {1, 1},
                                        .keys = {contexts[c], contexts[c] / 2 + 1}};

            check_shape(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

/* Chunks of prompts: later rows see more keys, and a row's chunk of keys may be empty for the row before it. */
START_TEST(attention_of_prompt_chunks_is_causal)
{
    static const int64_t chunks[][2] = {{5, 5},     {64, 64},   {130, 130}, {3, 129},
                                        {40, 1000}, {129, 130}, {200, 256}, {17, 128}};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {13};

    benches_open(benches);
    for (size_t c = 0; c < 8; c++)
        for (size_t t = 0; t < N_TYPES; t += 2) {
            struct attention_shape s = {.heads = 6,
                                        .kv_heads = 2,
                                        .d = 32,
                                        .block_size = 16,
                                        .blocks = 70,
                                        .table_width = 64,
                                        .qt = types[t][0],
                                        .ct = types[t][1],
                                        .scale = 2, /* peaked, so that a key that should not be seen would show */
                                        .n_seqs = 1,
                                        .rows = {chunks[c][0]},
                                        .keys = {chunks[c][1]}};

            check_shape(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

/* Sequences of all kinds side by side, some without rows; rows past the last sequence are zero. */
START_TEST(attention_of_mixed_sequences_is_right_and_rows_of_nobody_are_zero)
{
    struct bench benches[NGD_ISA_MAX];
    struct random r = {14};

    benches_open(benches);
    for (int round = 0; round < 12; round++) {
        struct attention_shape s = {.heads = 8,
                                    .kv_heads = 4,
                                    .d = 24,
                                    .block_size = 1 + random_below(&r, 9),
                                    .blocks = 50,
                                    .table_width = 40,
                                    .qt = types[(size_t)round % N_TYPES][0],
                                    .ct = types[(size_t)round % N_TYPES][1],
                                    .scale = 0.2,
                                    .n_seqs = ATTENTION_SEQS,
                                    .tail = random_below(&r, 4)};

        for (int i = 0; i < ATTENTION_SEQS; i++) {
            s.rows[i] = random_below(&r, 3) ? random_below(&r, 30) : random_below(&r, 2);
            s.keys[i] = s.rows[i] + random_below(&r, 40 * s.block_size);
            s.keys[i] = s.keys[i] > 40 * s.block_size ? 40 * s.block_size : s.keys[i];
            s.rows[i] = s.rows[i] > s.keys[i] ? s.keys[i] : s.rows[i];
        }
        if (attention_all_rows(&s) == 0)
            s.tail = 1;
        check_shape(benches, &s, &r);
    }
    benches_close(benches);
}
END_TEST

/* Scores that overflow an exponential, or are far below all others. */
START_TEST(attention_with_extreme_scores_is_right)
{
    static const double scales[] = {0, 1e-30, -3, 40, 300};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {15};

    benches_open(benches);
    for (size_t i = 0; i < 5; i++) {
        struct attention_shape s = {.heads = 2,
                                    .kv_heads = 1,
                                    .d = 16,
                                    .block_size = 8,
                                    .blocks = 40,
                                    .table_width = 40,
                                    .qt = NGD_F32,
                                    .ct = NGD_F32,
                                    .scale = scales[i],
                                    .n_seqs = 2,
                                    .rows = {4, 1},
                                    .keys = {200, 300}};
        struct ngd_strbuf sb;
        struct attention_data d;

        ngd_strbuf_init(&sb);
        attention_text(&s, &sb);
        attention_data_open(&s, &d, &r);
        for (int64_t e = 0; e < d.q.n; e++) /* scores of this size carry an error of their own */
            d.size[e] *= 1 + fabs(scales[i]) * 4;
        EACH_ISA (isa)
            attention_run(&benches[isa], &s, &d, ngd_strbuf_str(&sb), 1);
        attention_data_close(&d);
        ngd_strbuf_fini(&sb);
    }
    benches_close(benches);
}
END_TEST

/* Windows smaller than a block, larger than the context, around a chunk; the blocks before them are no blocks. */
START_TEST(attention_in_a_window_reads_that_window_alone)
{
    static const int64_t windows[] = {1, 2, 7, 16, 100, 127, 128, 129, 200, 300, 5000};
    static const int64_t blocks[] = {1, 16, 200};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {16};

    benches_open(benches);
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++)
        for (size_t b = 0; b < 3; b++) {
            struct attention_shape s = {.heads = 6,
                                        .kv_heads = 2,
                                        .d = 20,
                                        .block_size = blocks[b],
                                        .blocks = 50,
                                        .table_width = (400 + blocks[b] - 1) / blocks[b],
                                        .qt = types[(w + b) % N_TYPES][0],
                                        .ct = types[(w + b) % N_TYPES][1],
                                        .scale = 2, /* peaked, so that a key that should not be seen would show */
                                        .n_seqs = 4,
                                        .rows = {1, 0, 37, 5},
                                        .keys = {300, 12, 300, 5},
                                        .window = windows[w],
                                        .freed = true};

            check_shape(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

START_TEST(attention_caps_scores)
{
    struct bench benches[NGD_ISA_MAX];
    struct random r = {17};

    benches_open(benches);
    for (size_t t = 0; t < 3 * N_TYPES; t++) {
        struct attention_shape s = {.heads = 4,
                                    .kv_heads = 4 >> t % 3,
                                    .d = 17,
                                    .block_size = 16,
                                    .blocks = 20,
                                    .table_width = 20,
                                    .qt = types[t % N_TYPES][0],
                                    .ct = types[t % N_TYPES][1],
                                    .scale = 3,
                                    .n_seqs = 3,
                                    .rows = {1, 19, 2},
                                    .keys = {1, 19, 300},
                                    .window = t % 2 ? 20 : 0,
                                    .cap = t % 2 ? 50 : 1.5};

        check_shape(benches, &s, &r);
    }
    benches_close(benches);
}
END_TEST

/* Each row as a sequence of its own, in a replay of its own. */
START_TEST(row_in_a_window_has_the_same_bits_alone)
{
    const struct attention_shape s = {.heads = 6,
                                      .kv_heads = 3,
                                      .d = 24,
                                      .block_size = 16,
                                      .blocks = 30,
                                      .table_width = 20,
                                      .qt = NGD_F32,
                                      .ct = NGD_BF16,
                                      .scale = 0.5,
                                      .n_seqs = 1,
                                      .rows = {21},
                                      .keys = {290},
                                      .window = 150,
                                      .cap = 4};
    const size_t row = (size_t)(s.heads * s.d) * sizeof(float);
    struct attention_shape one = s;
    struct bench benches[NGD_ISA_MAX];
    struct ngd_strbuf all_text, one_text;
    struct attention_data d, alone;
    struct random r = {18};
    char *together = malloc(21 * row), *y = malloc(row);

    benches_open(benches);
    one.rows[0] = 1;
    ngd_strbuf_init(&all_text);
    ngd_strbuf_init(&one_text);
    attention_text(&s, &all_text);
    attention_text(&one, &one_text);
    attention_data_open(&s, &d, &r);
    EACH_ISA (isa) {
        attention_compute(&benches[isa], &s, &d, ngd_strbuf_str(&all_text), together);
        for (int64_t t = 0; t < s.rows[0]; t++) {
            alone = d;
            alone.q.data = (char *)d.q.data + (size_t)t * row;
            alone.q.n = s.heads * s.d;
            alone.ends[0] = 1;
            one.keys[0] = s.keys[0] - s.rows[0] + t + 1;
            attention_compute(&benches[isa], &one, &alone, ngd_strbuf_str(&one_text), y);
            ck_assert_mem_eq(y, together + (size_t)t * row, row);
        }
    }
    attention_data_close(&d);
    ngd_strbuf_fini(&all_text);
    ngd_strbuf_fini(&one_text);
    benches_close(benches);
    free(together);
    free(y);
}
END_TEST

/* Keys of two parts of any sizes, whose first part is the values. 40 heads of one key head: more than are computed
 * together. */
START_TEST(attention_over_a_latent_cache_is_right)
{
    static const int64_t heads[][2] = {{16, 1}, {40, 1}, {1, 1}, {6, 2}, {5, 1}};
    static const int64_t dims[][2] = {{1, 1}, {16, 8}, {17, 6}, {48, 17}, {128, 64}};
    struct bench benches[NGD_ISA_MAX];
    struct random r = {19};

    benches_open(benches);
    for (size_t h = 0; h < 5; h++)
        for (size_t d = 0; d < 5; d++) {
            struct attention_shape s = {.heads = heads[h][0],
                                        .kv_heads = heads[h][1],
                                        .d = dims[d][0],
                                        .rope = dims[d][1],
                                        .block_size = 1 + random_below(&r, 20),
                                        .blocks = 40,
                                        .table_width = 300,
                                        .qt = types[(h + d) % N_TYPES][0],
                                        .ct = types[(h + d) % N_TYPES][1],
                                        .scale = 0.2,
                                        .n_seqs = 4,
                                        .rows = {1, 0, 13, 2},
                                        .keys = {129, 3, 13, 290},
                                        .window = h % 2 ? 0 : 100,
                                        .freed = true};

            check_shape(benches, &s, &r);
        }
    benches_close(benches);
}
END_TEST

/* The sizes of DeepSeek-V2. */
START_TEST(attention_over_a_latent_cache_of_published_sizes_is_right)
{
    struct bench benches[NGD_ISA_MAX];
    struct random r = {20};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++) {
        struct attention_shape s = {.heads = 16,
                                    .kv_heads = 1,
                                    .d = 512,
                                    .rope = 64,
                                    .block_size = 16,
                                    .blocks = 20,
                                    .table_width = 20,
                                    .qt = types[t][0],
                                    .ct = types[t][1],
                                    .scale = 0.114,
                                    .n_seqs = 2,
                                    .rows = {1, 3},
                                    .keys = {300, 130}};

        check_shape(benches, &s, &r);
    }
    benches_close(benches);
}
END_TEST

/* A score without a value, beside few keys and many, in a window, and for a row that sees its own key alone. */
START_TEST(attention_with_sinks_is_right)
{
    struct bench benches[NGD_ISA_MAX];
    struct random r = {21};

    benches_open(benches);
    for (size_t t = 0; t < 2 * N_TYPES; t++) {
        struct attention_shape s = {.heads = 6,
                                    .kv_heads = t % 2 ? 2 : 1,
                                    .d = 20,
                                    .rope = t % 3 ? 0 : 6,
                                    .block_size = 16,
                                    .blocks = 30,
                                    .table_width = 20,
                                    .qt = types[t % N_TYPES][0],
                                    .ct = types[t % N_TYPES][1],
                                    .scale = 0.3,
                                    .n_seqs = 4,
                                    .rows = {1, 1, 20, 0},
                                    .keys = {1, 300, 20, 7},
                                    .tail = 1,
                                    .window = t < N_TYPES ? 0 : 5,
                                    .freed = true,
                                    .sinks = true};

        check_shape(benches, &s, &r);
    }
    benches_close(benches);
}
END_TEST

UNIT_MAIN("ops/attention", attention_of_any_group_and_head_size_is_right,
          attention_over_contexts_around_a_chunk_and_far_beyond_is_right, attention_of_prompt_chunks_is_causal,
          attention_of_mixed_sequences_is_right_and_rows_of_nobody_are_zero, attention_with_extreme_scores_is_right,
          attention_in_a_window_reads_that_window_alone, attention_caps_scores, attention_over_a_latent_cache_is_right,
          attention_over_a_latent_cache_of_published_sizes_is_right, attention_with_sinks_is_right,
          row_in_a_window_has_the_same_bits_alone)
