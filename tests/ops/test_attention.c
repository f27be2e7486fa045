/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paged attention on every instruction set against the definition in double: groups of heads, block tables in any
 * order, contexts of many chunks, odd head sizes, sequences without rows, and dtypes of queries and cache.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

#define MAX_SEQS 6

struct shape {
    int64_t heads, kv_heads, d, block_size, blocks, table_width;
    ngd_dtype_t qt, ct;
    double scale;
    int64_t n_seqs;
    int64_t rows[MAX_SEQS], keys[MAX_SEQS]; /* keys with the rows */
    int64_t tail;                           /* rows of the query tensor that no sequence has */
};

static int64_t all_rows(const struct shape *s)
{
    int64_t n = s->tail;

    for (int64_t i = 0; i < s->n_seqs; i++)
        n += s->rows[i];
    return n;
}

static void shape_text(const struct shape *s, struct ngd_strbuf *sb)
{
    for (int i = 0; i < 2; i++)
        ngd_strbuf_printf(sb, "%s %%%c : %s[%lld,%lld,%lld,%lld]\n", i ? " param" : "npugraph 1\ngraph \"a\" {\n param",
                          "kv"[i], ngd_dtype_name(s->ct), (long long)s -> blocks, (long long)s -> block_size,
                          (long long)s -> kv_heads, (long long)s -> d);
    ngd_strbuf_printf(sb,
                      " input %%q : %s[%lld,%lld,%lld]\n input %%t : i32[%lld,%lld]\n host %%ql : i64[%lld]\n"
                      " host %%kl : i64[%lld]\n",
                      ngd_dtype_name(s->qt), (long long)all_rows(s), (long long)s->heads, (long long)s->d,
                      (long long)s->n_seqs, (long long)s->table_width, (long long)s->n_seqs, (long long)s->n_seqs);
    ngd_strbuf_printf(sb,
                      " %%y = npu.fused_infer_attention_score(%%q, %%k, %%v, %%t, %%ql, %%kl) {num_heads=%lld, "
                      "num_key_value_heads=%lld, scale=%.17g, block_size=%lld}\n return \"y\" = %%y\n}\n",
                      (long long)s->heads, (long long)s->kv_heads, s->scale, (long long)s->block_size);
}

struct data {
    struct numbers q, k, v;
    int32_t *table;
    int64_t ends[MAX_SEQS];
    double *want, *size; /* size: the largest |v| that an element is a mean of */
};

/* Blocks in random order; those that no context reaches hold a number that would be an error. */
static void make_table(const struct shape *s, struct data *d, struct random *r)
{
    d->table = calloc((size_t)(s->n_seqs * s->table_width), sizeof(int32_t));
    for (int64_t i = 0; i < s->n_seqs; i++)
        for (int64_t b = 0; b < s->table_width; b++)
            d->table[i * s->table_width + b] =
                s->rows[i] && b * s->block_size < s->keys[i] ? (int32_t)random_below(r, s->blocks) : -1 - (int32_t)b;
}

static int64_t slot_of(const struct shape *s, const struct data *d, int64_t seq, int64_t key, int64_t head)
{
    int64_t block = d->table[seq * s->table_width + key / s->block_size];

    return ((block * s->block_size + key % s->block_size) * s->kv_heads + head) * s->d;
}

static void attend(const struct shape *s, struct data *d, int64_t seq, int64_t row, int64_t head, int64_t keys)
{
    double *score = calloc((size_t)keys, sizeof(double)), top = -INFINITY, sum = 0;
    int64_t at = (row * s->heads + head) * s->d, kv_head = head / (s->heads / s->kv_heads);

    for (int64_t j = 0; j < keys; j++) {
        int64_t k = slot_of(s, d, seq, j, kv_head);

        for (int64_t e = 0; e < s->d; e++)
            score[j] += s->scale * d->q.value[at + e] * d->k.value[k + e];
        top = fmax(top, score[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += score[j] = exp(score[j] - top);
    for (int64_t e = 0; e < s->d; e++) {
        double y = 0, size = 0;

        for (int64_t j = 0; j < keys; j++) {
            double v = d->v.value[slot_of(s, d, seq, j, kv_head) + e];

            y += score[j] / sum * v;
            size = fmax(size, fabs(v));
        }
        d->want[at + e] = y;
        d->size[at + e] = size;
    }
    free(score);
}

static void data_open(const struct shape *s, struct data *d, struct random *r)
{
    int64_t n = all_rows(s) * s->heads * s->d, cache = s->blocks * s->block_size * s->kv_heads * s->d, row = 0;

    numbers_random(&d->q, s->qt, n, 1, r);
    numbers_random(&d->k, s->ct, cache, 1, r);
    numbers_random(&d->v, s->ct, cache, 3, r);
    make_table(s, d, r);
    d->want = calloc((size_t)n + 1, sizeof(double));
    d->size = calloc((size_t)n + 1, sizeof(double));
    for (int64_t i = 0; i < s->n_seqs; i++) {
        for (int64_t t = 0; t < s->rows[i]; t++)
            for (int64_t h = 0; h < s->heads; h++)
                attend(s, d, i, row + t, h, s->keys[i] - s->rows[i] + t + 1);
        d->ends[i] = row += s->rows[i];
    }
}

static void data_close(struct data *d)
{
    numbers_close(&d->q);
    numbers_close(&d->k);
    numbers_close(&d->v);
    free(d->table);
    free(d->want);
    free(d->size);
}

static void run_shape(struct bench *b, const struct shape *s, const struct data *d, const char *text)
{
    uint64_t table_bytes = (uint64_t)(s->n_seqs * s->table_width) * 4;
    char *y = malloc(numbers_bytes(&d->q) + 1);
    struct ngd_span in[2] = {{d->q.data, numbers_bytes(&d->q)}, {d->table, table_bytes}};
    struct ngd_host_value hosts[2] = {{d->ends, (uint32_t)s->n_seqs}, {s->keys, (uint32_t)s->n_seqs}};
    struct ngd_out out = {y, numbers_bytes(&d->q)};
    struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r;

    run_check(ready_open(&r, b, text, NULL, &diag), &diag, text);
    run_check(ngd_buffer_write(r.bound[0], 0, d->k.data, numbers_bytes(&d->k), &diag), &diag, "k");
    run_check(ngd_buffer_write(r.bound[1], 0, d->v.data, numbers_bytes(&d->v), &diag), &diag, "v");
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, text);
    for (int64_t i = 0; i < d->q.n; i++) {
        double got = numbers_got(s->qt, y, i), allowed = 3e-6 * d->size[i] + 1.01 * rounding_of(s->qt, d->want[i]);

        if (!(fabs(got - d->want[i]) <= allowed))
            ck_abort_msg("%s: element %lld (row %lld) is %.9g, should be %.9g, and may be %.3g off\n%s", b->name,
                         (long long)i, (long long)(i / (s->heads * s->d)), got, d->want[i], allowed, text);
    }
    ready_close(&r);
    free(y);
}

static void check_shape(struct bench *benches, const struct shape *s, struct random *r)
{
    struct ngd_strbuf sb;
    struct data d;

    ngd_strbuf_init(&sb);
    shape_text(s, &sb);
    data_open(s, &d, r);
    EACH_ISA (isa)
        run_shape(&benches[isa], s, &d, ngd_strbuf_str(&sb));
    data_close(&d);
    ngd_strbuf_fini(&sb);
}

static void benches_open(struct bench *benches)
{
    EACH_ISA (isa)
        bench_open(&benches[isa], (ngd_isa_t)isa, 2);
}

static void benches_close(struct bench *benches)
{
    EACH_ISA (isa)
        bench_close(&benches[isa]);
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
            struct shape s = {.heads = groups[g][0],
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
            struct shape s = {.heads = 4,
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
            struct shape s = {.heads = 6,
                              .kv_heads = 2,
                              .d = 32,
                              .block_size = 16,
                              .blocks = 70,
                              .table_width = 64,
                              .qt = types[t][0],
                              .ct = types[t][1],
                              .scale = 2, /* peaked: a key that should not be seen would show */
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
        struct shape s = {.heads = 8,
                          .kv_heads = 4,
                          .d = 24,
                          .block_size = 1 + random_below(&r, 9),
                          .blocks = 50,
                          .table_width = 40,
                          .qt = types[(size_t)round % N_TYPES][0],
                          .ct = types[(size_t)round % N_TYPES][1],
                          .scale = 0.2,
                          .n_seqs = MAX_SEQS,
                          .tail = random_below(&r, 4)};

        for (int i = 0; i < MAX_SEQS; i++) {
            s.rows[i] = random_below(&r, 3) ? random_below(&r, 30) : random_below(&r, 2);
            s.keys[i] = s.rows[i] + random_below(&r, 40 * s.block_size);
            s.keys[i] = s.keys[i] > 40 * s.block_size ? 40 * s.block_size : s.keys[i];
            s.rows[i] = s.rows[i] > s.keys[i] ? s.keys[i] : s.rows[i];
        }
        if (all_rows(&s) == 0)
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
        struct shape s = {.heads = 2,
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
        struct data d;

        ngd_strbuf_init(&sb);
        shape_text(&s, &sb);
        data_open(&s, &d, &r);
        for (int64_t e = 0; e < d.q.n; e++) /* scores of this size carry an error of their own */
            d.size[e] *= 1 + fabs(scales[i]) * 4;
        EACH_ISA (isa)
            run_shape(&benches[isa], &s, &d, ngd_strbuf_str(&sb));
        data_close(&d);
        ngd_strbuf_fini(&sb);
    }
    benches_close(benches);
}
END_TEST

UNIT_MAIN("ops/attention", attention_of_any_group_and_head_size_is_right,
          attention_over_contexts_around_a_chunk_and_far_beyond_is_right, attention_of_prompt_chunks_is_causal,
          attention_of_mixed_sequences_is_right_and_rows_of_nobody_are_zero, attention_with_extreme_scores_is_right)
