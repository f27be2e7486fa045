/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole decoder on every backend. Some steps of tests/golden/graphs/qwen3_decode.txt with random weights must give
 * what the host device gives when it runs its plain C kernels eagerly (tests/models compares those with transformers).
 * Both are fed the reference's tokens, so that a near tie cannot lead them to different texts.
 */
#include "tests/backend/conform.h"
#include "tests/ops/reference.h"

#define BATCH  3
#define STEPS  20 /* more than a KV block */
#define VOCAB  256
#define BLOCKS 8 /* largest number of blocks of a sequence */
#define HIDDEN 64

static char *decoder_file(void)
{
    const char *top = getenv("top_srcdir");
    char name[512], *text = calloc(1, 1 << 16);
    FILE *f;

    snprintf(name, sizeof(name), "%s/tests/golden/graphs/qwen3_decode.txt", top ? top : ".");
    f = fopen(name, "rb");
    ck_assert_msg(f != NULL, "cannot open %s", name);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, f), (1 << 16) - 1);
    fclose(f);
    return text;
}

struct decoder {
    struct ready r;
    struct conform_io io;
    int64_t batch;
    int32_t tokens[BATCH], positions[BATCH], slots[BATCH], table[BATCH][BLOCKS], top_k[BATCH], chosen[BATCH];
    float temperature[BATCH], top_p[BATCH], logits[BATCH][VOCAB];
    int64_t seed[BATCH], offset[BATCH], rows[BATCH], lengths[BATCH];
};

/* Fills norms with values around one, rope tables with rotations, and everything else with small values. */
static void fill_param(const struct ngd_value *v, struct ngd_buffer *buf, uint32_t seed)
{
    bool norm = v->type.rank == 1, rope = v->type.dtype == NGD_BF16 && strncmp(v->label, "rope", 4) == 0;
    int64_t n = (int64_t)(ngd_buffer_bytes(buf) / ngd_dtype_bytes(v->type.dtype));
    struct numbers t;
    struct random r = {seed};

    numbers_open(&t, v->type.dtype, n);
    for (int64_t i = 0; i < n; i++) {
        double angle = (double)(i / 16) * pow(0.3, (double)(i % 8));

        numbers_put(&t, i,
                    norm   ? 1 + 0.2 * random_value(&r)
                    : rope ? (strstr(v->label, "cos") ? cos(angle) : sin(angle))
                           : 0.3 * random_value(&r));
    }
    CONFORM_OK(ngd_buffer_write(buf, 0, t.data, numbers_bytes(&t), &diag_));
    numbers_close(&t);
}

static void decoder_open(struct decoder *d, struct bench *b, const char *text, int64_t batch)
{
    struct ngd_diag diag = {0};

    memset(d, 0, sizeof(*d));
    d->batch = batch;
    run_check(ready_open(&d->r, b, text, &d->batch, &diag), &diag, "decoder");
    for (uint32_t i = 0; i < d->r.graph->n_params; i++)
        fill_param(&d->r.graph->values[d->r.graph->params[i]], d->r.bound[i], 1000 + i);
    for (int s = 0; s < BATCH; s++) {
        d->top_p[s] = 1;
        for (int i = 0; i < BLOCKS; i++)
            d->table[s][i] = (i * 5 + s * 7 + 3) % 32; /* in no particular order, and no block twice */
        d->rows[s] = s + 1;
    }
}

/* Runs a step. The inputs are in the order of the graph's text, and all have `batch` rows. */
static void decoder_step(struct decoder *d, struct bench *b, int32_t position, bool eager)
{
    const uint64_t n = (uint64_t)d->batch;
    const struct ngd_span in[] = {{d->tokens, n * 4},         {d->positions, n * 4},   {d->slots, n * 4},
                                  {d->table, n * BLOCKS * 4}, {d->temperature, n * 4}, {d->top_k, n * 4},
                                  {d->top_p, n * 4},          {d->seed, n * 8},        {d->offset, n * 8}};
    const struct ngd_host_value hosts[] = {{d->rows, (uint32_t)n}, {d->lengths, (uint32_t)n}};
    const struct ngd_out out[] = {{d->chosen, n * 4}, {d->logits, n * VOCAB * 4}};
    struct ngd_launch launch = {.symbols = &d->batch, .inputs = in, .hosts = hosts, .outputs = out, .eager = eager};

    for (int s = 0; s < BATCH; s++) {
        d->positions[s] = position;
        d->slots[s] = d->table[s][position / 16] * 16 + position % 16;
        d->lengths[s] = position + 1;
    }
    CONFORM_OK(ngd_launch_check(d->r.plan, &launch, 9, 2, 2, &diag_));
    run_check(ngd_stream_run(b->stream, d->r.inst, &launch), &launch.diag, "step");
}

static double logits_range(const float *logits)
{
    double low = logits[0], high = logits[0];

    for (int v = 0; v < VOCAB; v++) {
        /* Not fmin and fmax: gcc 12 for aarch64 fails to compile their reduction. */
        low = logits[v] < low ? logits[v] : low;
        high = logits[v] > high ? logits[v] : high;
    }
    return high - low;
}

/*
 * Compares as tests/golden does: the logits may differ by a part of their range, and the token must be the same
 * wherever the choice is clearer than that.
 */
static void compare_row(const struct decoder *got, const struct decoder *want, int s, int step, double tolerance)
{
    double allowed = 1e-3 * tolerance * logits_range(want->logits[s]);
    double margin = want->logits[s][want->chosen[s]] - want->logits[s][got->chosen[s]];

    ck_assert(logits_range(want->logits[s]) > 0);
    for (int v = 0; v < VOCAB; v++)
        ck_assert_msg(fabs(got->logits[s][v] - want->logits[s][v]) <= allowed,
                      "step %d, sequence %d, logit %d is %g, should be %g, and may be %g off", step, s, v,
                      (double)got->logits[s][v], (double)want->logits[s][v], allowed);
    ck_assert_msg(margin <= 2 * allowed, "step %d, sequence %d: token %d, should be %d", step, s, got->chosen[s],
                  want->chosen[s]);
}

START_TEST(decoder_gives_what_the_plain_host_gives)
{
    static struct decoder got, want;
    struct conform c;
    struct bench plain;
    char *text = decoder_file();

    conform_open(&c, _i);
    bench_open(&plain, NGD_ISA_SCALAR, 1);
    decoder_open(&got, &c.b, text, BATCH); /* in a bucket of 4 */
    decoder_open(&want, &plain, text, BATCH);
    for (int step = 0; step < STEPS; step++) {
        for (int s = 0; s < BATCH; s++)
            got.tokens[s] = want.tokens[s] = step ? want.chosen[s] : 17 + 50 * s;
        decoder_step(&got, &c.b, step, step % 4 == 3);
        decoder_step(&want, &plain, step, true);
        for (int s = 0; s < BATCH; s++)
            compare_row(&got, &want, s, step, c.backend->model_tolerance);
    }
    ready_close(&got.r);
    ready_close(&want.r);
    bench_close(&plain);
    conform_close(&c);
    free(text);
}
END_TEST

/* A row does not depend on the rows beside it, nor on the bucket it runs in. */
START_TEST(decoder_row_alone_equals_the_row_in_a_batch)
{
    static struct decoder alone, batch;
    static float seen[STEPS][VOCAB];
    static int32_t token[STEPS];
    struct conform c;
    char *text = decoder_file();

    conform_open(&c, _i);
    decoder_open(&alone, &c.b, text, 1);
    for (int step = 0; step < STEPS; step++) {
        alone.tokens[0] = step ? alone.chosen[0] : 17;
        decoder_step(&alone, &c.b, step, false);
        memcpy(seen[step], alone.logits[0], sizeof(seen[step]));
        token[step] = alone.chosen[0];
    }
    ready_close(&alone.r);
    decoder_open(&batch, &c.b, text, 2);
    for (int step = 0; step < STEPS; step++) {
        batch.tokens[0] = step ? token[step - 1] : 17;
        batch.tokens[1] = (step * 37) % VOCAB;
        decoder_step(&batch, &c.b, step, false);
        memcpy(alone.logits[0], seen[step], sizeof(seen[step]));
        alone.chosen[0] = token[step];
        compare_row(&batch, &alone, 0, step, c.backend->exact_rows ? 0 : c.backend->model_tolerance);
    }
    ready_close(&batch.r);
    conform_close(&c);
    free(text);
}
END_TEST

TCase *conform_decoder(void)
{
    TCase *tcase = tcase_create("decoder");

    CONFORM_ADD(tcase, decoder_gives_what_the_plain_host_gives, decoder_row_alone_equals_the_row_in_a_batch);
    return tcase;
}
