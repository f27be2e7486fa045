/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode of a random checkpoint through a daemon, compared with the machine's read bandwidth.
 *
 * Each round has a plain read of as many bytes as a step reads of weights, steps of one sequence, and steps of eight,
 * so that a slow phase of the machine affects all three. A ninth sequence makes sure that the eight run as one batch:
 * while its step runs, the steps of the others arrive and wait, and the worker then takes all of them together. The
 * times of steps are those of the device (npugraph_step.device_ns); the times that the caller sees are printed beside
 * them.
 *
 * --to int8|int4: of the checkpoint as `npugraphctl quantize` writes it; the logits' weight, which is that of the
 * embedding, stays bf16.
 */
#include "bench/rpc/bench_rpc.h"
#include "bench/rpc/read_memory.h"
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH  8
#define PROMPT 16

struct bed {
    struct npugraph_client *client;
    struct npugraph_sequence *seqs[BATCH + 1]; /* the last one steps in front of each batch */
    pthread_t threads[BATCH];
    pthread_barrier_t begin, end;
    bool stop;
    ngd_nsec_t head_start; /* time between the start of the ninth step and that of the others */
    struct {
        struct bed *bed;
        int number;
        struct npugraph_step step;
    } rows[BATCH];
    struct samples read, one, one_wall, eight;
    int missed; /* rounds in which the eight did not run as one batch */
};

static void step_sequence(struct npugraph_sequence *seq, struct npugraph_step *step_p)
{
    struct npugraph_error err = {0};

    if (npugraph_sequence_step(seq, NULL, step_p, &err) != 0)
        bench_fail("step: %s", err.message);
}

static void pause_for(ngd_nsec_t t)
{
    struct timespec ts = {(time_t)(t / NGD_SEC), (long)(t % NGD_SEC)};

    nanosleep(&ts, NULL);
}

static void *step_in_batch(void *arg)
{
    struct bed *b = ((__typeof__(&((struct bed *)0)->rows[0]))arg)->bed;
    int i = ((__typeof__(&b->rows[0]))arg)->number;

    for (;;) {
        pthread_barrier_wait(&b->begin);
        if (b->stop)
            return NULL;
        pause_for(b->head_start);
        step_sequence(b->seqs[i], &b->rows[i].step);
        pthread_barrier_wait(&b->end);
    }
}

static void open_sequences(struct bed *b)
{
    struct npugraph_error err = {0};
    int32_t prompt[PROMPT];

    for (int i = 0; i <= BATCH; i++) {
        for (int k = 0; k < PROMPT; k++)
            prompt[k] = (i * 131 + k * 17 + 3) % 500;
        if (npugraph_sequence_open(b->client, "bench", prompt, PROMPT, NULL, &b->seqs[i], NULL, &err) != 0)
            bench_fail("open: %s", err.message);
    }
}

static void start_rows(struct bed *b)
{
    pthread_barrier_init(&b->begin, NULL, BATCH + 1);
    pthread_barrier_init(&b->end, NULL, BATCH + 1);
    for (int i = 0; i < BATCH; i++) {
        b->rows[i].bed = b;
        b->rows[i].number = i;
        if (pthread_create(&b->threads[i], NULL, step_in_batch, &b->rows[i]) != 0)
            bench_fail("a thread cannot be started");
    }
}

static void stop_rows(struct bed *b)
{
    b->stop = true;
    pthread_barrier_wait(&b->begin);
    for (int i = 0; i < BATCH; i++)
        pthread_join(b->threads[i], NULL);
    for (int i = 0; i <= BATCH; i++)
        npugraph_sequence_close(b->seqs[i]);
}

static void run_one(struct bed *b, bool keep)
{
    ngd_nsec_t begin = ngd_now();
    struct npugraph_step s;

    step_sequence(b->seqs[BATCH], &s);
    if (!keep)
        return;
    samples_add(&b->one, (double)s.device_ns);
    samples_add(&b->one_wall, (double)(ngd_now() - begin));
}

static void run_eight(struct bed *b, bool keep)
{
    struct npugraph_step front;
    bool whole = true;

    pthread_barrier_wait(&b->begin);
    step_sequence(b->seqs[BATCH], &front);
    pthread_barrier_wait(&b->end);
    for (int i = 0; i < BATCH; i++)
        whole &= b->rows[i].step.batch == BATCH;
    if (keep && whole)
        samples_add(&b->eight, (double)b->rows[0].step.device_ns);
    b->missed += keep && !whole;
}

static void run_round(struct bed *b, struct reader *r, int steps, bool keep)
{
    for (int i = 0; i < steps; i++) {
        double read = reader_run(r);

        if (keep)
            samples_add(&b->read, read);
    }
    for (int i = 0; i < steps; i++)
        run_one(b, keep);
    for (int i = 0; i < steps; i++)
        run_eight(b, keep);
}

/* What a form of weights is wanted to reach. */
struct wanted {
    double read, batch;
};

static void report(struct bed *b, uint64_t bytes, const struct wanted *wanted)
{
    double read, one, eight;

    samples_print(&b->read, "pure read of the same bytes", "ms", 1e-6);
    samples_print(&b->one, "decode step, batch 1, device", "ms", 1e-6);
    samples_print(&b->one_wall, "decode step, batch 1, at the client", "ms", 1e-6);
    samples_print(&b->eight, "decode step, batch 8, device", "ms", 1e-6);
    read = samples_quantile(&b->read, 0.5);
    one = samples_quantile(&b->one, 0.5);
    eight = samples_quantile(&b->eight, 0.5);
    printf("weights %.1f MB: read %.2f GB/s, decode %.2f GB/s\n", (double)bytes / 1e6, (double)bytes / read,
           (double)bytes / one);
    printf("ratio: decode's weight bytes per second / read bandwidth  %.3f (device), %.3f (at the client); wanted >= "
           "%.2f\n",
           read / one, read / samples_quantile(&b->one_wall, 0.5), wanted->read);
    printf("ratio: step at batch 8 / step at batch 1                  %.3f; wanted <= %.1f\n", eight / one,
           wanted->batch);
    if (b->missed)
        printf("%d batches were not of %d rows and do not count\n", b->missed, BATCH);
}

/* Writes the quantised checkpoint to `out`, which is empty. Returns the bytes of its tensors, all of which a step
 * reads. */
static uint64_t quantise_checkpoint(const char *dir, const char *to, const char *out)
{
    struct npugraph_quantize q = {.bits = strcmp(to, "int4") == 0 ? 4 : 8};
    struct npugraph_error err = {0};

    if (q.bits == 8 && strcmp(to, "int8") != 0)
        bench_fail("--to %s: int8 or int4", to);
    q.group = q.bits == 4 ? 128 : 0;
    if (rmdir(out) != 0 || npugraph_checkpoint_quantize(dir, out, &q, NULL, NULL, &err) != 0)
        bench_fail("quantize: %s", err.message);
    return q.bytes_after;
}

static void load_model(struct bed *b, const char *dir, uint32_t context, const char *precision)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "bench";
    params.max_batch = BATCH;
    params.max_context = context;
    params.prefill_chunk = PROMPT;
    params.matmul_precision = precision;
    if (npugraph_model_load(b->client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
}

int main(int argc, char **argv)
{
    struct bench_shape s = BENCH_SHAPE_QWEN3_0_6B;
    int64_t rounds = 10, steps = 4, threads = 2;
    const char *dir = NULL, *to = NULL, *precision = NULL;
    bool quick = false;
    const struct bench_option options[] = {
        {"layers", &s.layers, NULL, NULL},     {"hidden", &s.hidden, NULL, NULL},
        {"ffn", &s.ffn, NULL, NULL},           {"vocab", &s.vocab, NULL, NULL},
        {"rounds", &rounds, NULL, NULL},       {"steps", &steps, NULL, NULL},
        {"threads", &threads, NULL, NULL},     {"dir", NULL, &dir, NULL},
        {"quick", NULL, NULL, &quick},         {"to", NULL, &to, NULL},
        {"precision", NULL, &precision, NULL},
    };
    char n_threads[24], *made = NULL, *quantised = NULL;
    struct wanted wanted = {0.85, 1.6};
    uint64_t bytes;
    const char *extra[] = {"--threads", n_threads, NULL};
    struct bed b = {0};
    struct live live;
    struct reader *r;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 3, steps = 2;
    if (dir == NULL) {
        dir = made = bench_dir_make();
        bench_checkpoint_write(dir, &s);
    }
    bytes = bench_decode_bytes(&s);
    if (to != NULL) {
        quantised = bench_dir_make();
        bytes = quantise_checkpoint(dir, to, quantised);
        dir = quantised;
        wanted = (struct wanted){strcmp(to, "int4") == 0 ? 0.88 : 0.93, 1.4};
    }
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    r = reader_open(bytes, (int)threads);
    live_start(&live, dir, extra);
    b.client = live_connect(&live, "bench_decode");
    load_model(&b, dir, (uint32_t)(PROMPT + 2 * (rounds + 1) * steps + 8), precision);
    open_sequences(&b);
    start_rows(&b);
    b.head_start = 2 * NGD_MSEC;
    for (int64_t i = 0; i <= rounds; i++)
        run_round(&b, r, (int)steps, i > 0); /* the first round warms up */
    report(&b, bytes, &wanted);
    stop_rows(&b);
    npugraph_disconnect(b.client);
    reader_close(r);
    if (made != NULL)
        bench_dir_remove(made);
    if (quantised != NULL)
        bench_dir_remove(quantised);
    return live_stop(&live) != 0;
}
