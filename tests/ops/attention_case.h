/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_ATTENTION_CASE_H
#define NGD_TESTS_OPS_ATTENTION_CASE_H

/* Paged attention by its definition, in double: a shape, its graph, data for it, and the expected results. */
#include "base/strbuf.h"
#include "tests/ops/device_run.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

#define ATTENTION_SEQS 6

struct attention_shape {
    int64_t heads, kv_heads, d, block_size, blocks, table_width;
    ngd_dtype_t qt, ct; /* ct i8 or f8_e4m3fn: the cache has scales */
    double scale;
    int64_t n_seqs;
    int64_t rows[ATTENTION_SEQS], keys[ATTENTION_SEQS]; /* keys with the rows */
    int64_t tail;                                       /* rows of the query tensor that belong to no sequence */
    int64_t window;                                     /* keys that a row sees; 0: all */
    bool freed;                                         /* blocks before the window of the first row are no blocks */
    bool sinks;                                         /* each row has a score without a value, by head */
    double cap;                                         /* of the scores; 0: none */
    int64_t rope;                                       /* numbers of the second part of a key in a latent cache, whose
                                                         * keys are the values too; 0: the cache has keys and values */
};

RUN bool attention_scaled(const struct attention_shape *s)
{
    return s->ct == NGD_I8 || s->ct == NGD_F8_E4M3FN;
}

RUN int64_t attention_all_rows(const struct attention_shape *s)
{
    int64_t n = s->tail;

    for (int64_t i = 0; i < s->n_seqs; i++)
        n += s->rows[i];
    return n;
}

/* Appends an operand of the graph: `head` ("param", "input"), its name and type. */
RUN void attention_operand(struct ngd_strbuf *sb, const char *head, char name, ngd_dtype_t dtype, const int64_t *dims,
                           int rank)
{
    ngd_strbuf_printf(sb, " %s %%%c : %s[", head, name, ngd_dtype_name(dtype));
    for (int i = 0; i < rank; i++)
        ngd_strbuf_printf(sb, "%s%lld", i ? "," : "", (long long)dims[i]);
    ngd_strbuf_append(sb, "]\n");
}

RUN ngd_dtype_t sink_type(const struct attention_shape *s)
{
    return s->qt == NGD_F16 ? NGD_F16 : NGD_BF16;
}

RUN void attention_text(const struct attention_shape *s, struct ngd_strbuf *sb)
{
    const int64_t rows = attention_all_rows(s);

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"a\" {\n");
    attention_operand(sb, "param", 'k', s->ct, (int64_t[]){s->blocks, s->block_size, s->kv_heads, s->d}, 4);
    attention_operand(sb, "param", s->rope ? 'r' : 'v', s->ct,
                      (int64_t[]){s->blocks, s->block_size, s->kv_heads, s->rope ? s->rope : s->d}, 4);
    if (s->sinks)
        attention_operand(sb, "param", 'z', sink_type(s), (int64_t[]){s->heads}, 1);
    for (int i = 0; i < 2 && attention_scaled(s); i++)
        attention_operand(sb, "param", i ? 'n' : 'm', NGD_F32, (int64_t[]){s->blocks, s->kv_heads, s->block_size}, 3);
    attention_operand(sb, "input", 'q', s->qt, (int64_t[]){rows, s->heads, s->d}, 3);
    attention_operand(sb, "input", 't', NGD_I32, (int64_t[]){s->n_seqs, s->table_width}, 2);
    if (s->rope)
        attention_operand(sb, "input", 'p', s->qt, (int64_t[]){rows, s->heads, s->rope}, 3);
    ngd_strbuf_printf(sb,
                      " host %%ql : i64[%lld]\n host %%kl : i64[%lld]\n"
                      " %%y = npu.fused_infer_attention_score(%%q, %%k, %%%c, %%t, %%ql, %%kl%s%s%s) {num_heads=%lld, "
                      "num_key_value_heads=%lld, scale=%.17g, block_size=%lld",
                      (long long)s->n_seqs, (long long)s->n_seqs, s->rope ? 'k' : 'v',
                      s->rope                           ? ", %p, %r"
                      : s->sinks || attention_scaled(s) ? ", none, none"
                                                        : "",
                      s->sinks              ? ", %z"
                      : attention_scaled(s) ? ", none"
                                            : "",
                      attention_scaled(s) ? ", %m, %n" : "", (long long)s->heads, (long long)s->kv_heads, s->scale,
                      (long long)s->block_size);
    if (s->window)
        ngd_strbuf_printf(sb, ", sparse_mode=4, pre_tokens=%lld, next_tokens=0", (long long)s->window - 1);
    if (s->cap > 0)
        ngd_strbuf_printf(sb, ", soft_cap=%.17g", s->cap);
    if (attention_scaled(s))
        ngd_strbuf_append(sb, ", key_antiquant_mode=5, value_antiquant_mode=5");
    ngd_strbuf_append(sb, "}\n return \"y\" = %y\n}\n");
}

struct attention_data {
    struct numbers q, k, v; /* of a latent cache, v has the second parts of the keys, and p those of the queries */
    struct numbers p;
    struct numbers z;    /* sinks */
    struct numbers m, n; /* scales of keys and of values; those have the products as values */
    int32_t *table;
    int64_t ends[ATTENTION_SEQS];
    double *want, *size; /* size: the largest |v| that an element is a mean of */
};

/* The first key that a row sees which has `keys` keys with its own. */
RUN int64_t first_seen(const struct attention_shape *s, int64_t keys)
{
    return s->window && keys > s->window ? keys - s->window : 0;
}

/* Fills the block table in random order. Entries that no context reaches have an invalid number. */
RUN void make_table(const struct attention_shape *s, struct attention_data *d, struct random *r)
{
    d->table = calloc((size_t)(s->n_seqs * s->table_width), sizeof(int32_t));
    for (int64_t i = 0; i < s->n_seqs; i++)
        for (int64_t b = 0; b < s->table_width; b++)
            d->table[i * s->table_width + b] =
                s->rows[i] && b * s->block_size < s->keys[i] &&
                        (!s->freed || (b + 1) * s->block_size > first_seen(s, s->keys[i] - s->rows[i] + 1))
                    ? (int32_t)random_below(r, s->blocks)
                    : -1 - (int32_t)b;
}

/* Where a key's numbers begin in a cache with n of them. */
RUN int64_t slot_of(const struct attention_shape *s, const struct attention_data *d, int64_t seq, int64_t key,
                    int64_t head, int64_t n)
{
    int64_t block = d->table[seq * s->table_width + key / s->block_size];

    return ((block * s->block_size + key % s->block_size) * s->kv_heads + head) * n;
}

RUN double product_of(const struct numbers *a, int64_t at, const struct numbers *b, int64_t begin, int64_t n)
{
    double sum = 0;

    for (int64_t e = 0; e < n; e++)
        sum += a->value[at + e] * b->value[begin + e];
    return sum;
}

RUN void attend(const struct attention_shape *s, struct attention_data *d, int64_t seq, int64_t row, int64_t head,
                int64_t keys)
{
    const struct numbers *values = s->rope ? &d->k : &d->v;
    double *score = calloc((size_t)keys, sizeof(double)), top = -INFINITY, sum = 0;
    int64_t at = (row * s->heads + head) * s->d, kv_head = head / (s->heads / s->kv_heads), first = first_seen(s, keys);

    for (int64_t j = first; j < keys; j++) {
        score[j] = product_of(&d->q, at, &d->k, slot_of(s, d, seq, j, kv_head, s->d), s->d);
        if (s->rope)
            score[j] += product_of(&d->p, (row * s->heads + head) * s->rope, &d->v,
                                   slot_of(s, d, seq, j, kv_head, s->rope), s->rope);
        score[j] *= s->scale;
        score[j] = s->cap > 0 ? s->cap * tanh(score[j] / s->cap) : score[j];
        top = fmax(top, score[j]);
    }
    if (s->sinks) {
        top = fmax(top, d->z.value[head]);
        sum = exp(d->z.value[head] - top);
    }
    for (int64_t j = first; j < keys; j++)
        sum += score[j] = exp(score[j] - top);
    for (int64_t e = 0; e < s->d; e++) {
        double y = 0, size = 0;

        for (int64_t j = first; j < keys; j++) {
            double v = values->value[slot_of(s, d, seq, j, kv_head, s->d) + e];

            y += score[j] / sum * v;
            size = fmax(size, fabs(v));
        }
        d->want[at + e] = y;
        d->size[at + e] = size;
    }
    free(score);
}

/* Numbers of any bytes but NaN, and a scale for each row and head that makes them values of -most to most. One scale in
 * 40 is 0. */
RUN void quantised_open(const struct attention_shape *s, struct numbers *t, struct numbers *scale, double most,
                        struct random *r)
{
    const int64_t slots = s->blocks * s->block_size;

    numbers_open(t, s->ct, slots * s->kv_heads * s->d);
    numbers_open(scale, NGD_F32, slots * s->kv_heads);
    for (int64_t i = 0; i < scale->n; i++)
        numbers_put(scale, i,
                    random_below(r, 40) ? most * (0.75 + random_value(r) / 4) / (s->ct == NGD_I8 ? 127 : 448) : 0);
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t row = i / s->d, slot = row / s->kv_heads, head = row % s->kv_heads;
        const double by =
            scale->value[(slot / s->block_size * s->kv_heads + head) * s->block_size + slot % s->block_size];

        t->data[i] = (char)(random_below(r, 255) - 127);
        if (s->ct == NGD_I8)
            t->value[i] = by * (double)(int8_t)t->data[i];
        else
            t->value[i] =
                by * (double)ngd_f8_to_f32((uint8_t)((t->data[i] & 0x7f) == 0x7f ? --t->data[i] : t->data[i]));
    }
}

RUN void attention_data_open(const struct attention_shape *s, struct attention_data *d, struct random *r)
{
    int64_t heads = attention_all_rows(s) * s->heads, n = heads * s->d, row = 0,
            slots = s->blocks * s->block_size * s->kv_heads;

    numbers_random(&d->q, s->qt, n, 1, r);
    if (attention_scaled(s)) {
        quantised_open(s, &d->k, &d->m, 1, r);
        quantised_open(s, &d->v, &d->n, 3, r);
    } else {
        numbers_random(&d->k, s->ct, slots * s->d, 1, r);
        numbers_random(&d->v, s->ct, slots * (s->rope ? s->rope : s->d), s->rope ? 1 : 3, r);
        numbers_open(&d->m, NGD_F32, 0);
        numbers_open(&d->n, NGD_F32, 0);
    }
    numbers_random(&d->p, s->qt, heads * s->rope, 1, r);
    numbers_open(&d->z, sink_type(s), s->heads);
    for (int64_t h = 0; s->sinks && h < s->heads; h++)
        numbers_put(&d->z, h, 4 * random_value(r));
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

RUN void attention_data_close(struct attention_data *d)
{
    numbers_close(&d->q);
    numbers_close(&d->k);
    numbers_close(&d->v);
    numbers_close(&d->p);
    numbers_close(&d->z);
    numbers_close(&d->m);
    numbers_close(&d->n);
    free(d->table);
    free(d->want);
    free(d->size);
}

/* Runs a case; y has room for the result. */
RUN void attention_compute(struct bench *b, const struct attention_shape *s, const struct attention_data *d,
                           const char *text, char *y)
{
    uint64_t table_bytes = (uint64_t)(s->n_seqs * s->table_width) * 4;
    struct ngd_span in[3] = {
        {d->q.data, numbers_bytes(&d->q)}, {d->table, table_bytes}, {d->p.data, numbers_bytes(&d->p)}};
    struct ngd_host_value hosts[2] = {{d->ends, (uint32_t)s->n_seqs}, {s->keys, (uint32_t)s->n_seqs}};
    struct ngd_out out = {y, numbers_bytes(&d->q)};
    struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r;

    run_check(ready_open(&r, b, text, NULL, &diag), &diag, text);
    run_check(ngd_buffer_write(r.bound[0], 0, d->k.data, numbers_bytes(&d->k), &diag), &diag, "k");
    run_check(ngd_buffer_write(r.bound[1], 0, d->v.data, numbers_bytes(&d->v), &diag), &diag, "v");
    if (s->sinks)
        run_check(ngd_buffer_write(r.bound[2], 0, d->z.data, numbers_bytes(&d->z), &diag), &diag, "z");
    for (int i = 0; i < 2 && attention_scaled(s); i++) {
        const struct numbers *scale = i ? &d->n : &d->m;

        run_check(ngd_buffer_write(r.bound[2 + s->sinks + i], 0, scale->data, numbers_bytes(scale), &diag), &diag, "m");
    }
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, text);
    ready_close(&r);
}

/* Runs a case and compares. looser: factor on the allowed error (1: the host's kernels). */
RUN void attention_run(struct bench *b, const struct attention_shape *s, const struct attention_data *d,
                       const char *text, double looser)
{
    char *y = malloc(numbers_bytes(&d->q) + 1);

    attention_compute(b, s, d, text, y);
    for (int64_t i = 0; i < d->q.n; i++) {
        double got = numbers_got(s->qt, y, i),
               allowed = looser * 3e-6 * d->size[i] + 1.01 * rounding_of(s->qt, d->want[i]);

        if (!(fabs(got - d->want[i]) <= allowed))
            ck_abort_msg("%s: element %lld (row %lld) is %.9g, should be %.9g, and may be %.3g off\n%s", b->name,
                         (long long)i, (long long)(i / (s->heads * s->d)), got, d->want[i], allowed, text);
    }
    free(y);
}

#endif
