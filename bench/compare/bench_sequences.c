/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the comparison that bench/compare/run makes. It starts npugraphd, loads a checkpoint, and prints
 * one line of JSON: tokens per second of a long prompt, and of N sequences that generate side by side.
 *
 * Each sequence belongs to a client process of its own, which has opened it before the clock starts. Each generates the
 * same number of tokens; the clock stops when the last one has its last token. --logits writes the logits of a fixed
 * text, so that the caller can compare them with those of another implementation.
 */
#include "base/mem.h"
#include "bench/rpc/crowd.h"
#include "client/hf/npugraph_hf.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT     16 /* tokens of the fixed text, and of a sequence that generates unless --depth says otherwise */
#define FORCED     8  /* tokens that follow the prompt of the fixed text */
#define POINTS_MAX 8

/* The same formulas are in bench/compare/text.py. */
static void make_prompt(int32_t *prompt, size_t n, int seed)
{
    for (size_t k = 0; k < n; k++)
        prompt[k] = (int32_t)((seed * 131 + (int)k * 17 + 3) % 5000);
}

static int32_t forced_token(int k)
{
    return (k * 29 + 11) % 5000;
}

static void open_sequence(struct npugraph_client *client, size_t tokens, int seed, struct npugraph_sequence **seq_p)
{
    struct npugraph_error err = {0};
    int32_t *prompt = ngd_calloc(tokens, sizeof(*prompt));

    if (!prompt)
        bench_fail("no memory for a prompt");
    make_prompt(prompt, tokens, seed);
    if (npugraph_sequence_open(client, "bench", prompt, tokens, NULL, seq_p, NULL, &err) != 0)
        bench_fail("open: %s", err.message);
    ngd_free(prompt);
}

/* ---- a client process ---- */

/* The samples of a seat are the times of its tokens. */
static bool count_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct member *m = user;
    const uint64_t n = atomic_load(&m->seat->done);

    (void)token;
    (void)logprobs;
    m->seat->samples[n] = (uint64_t)ngd_now();
    atomic_store(&m->seat->done, n + 1);
    return true;
}

/* What a member is told: the steps, and the tokens of the prompt. */
#define ARG(steps, prompt) ((steps) | (prompt) << 32)
#define STEPS_OF(arg)      ((uint32_t)(arg))
#define PROMPT_OF(arg)     ((size_t)(arg) >> 32)

/* The first token is known from the prompt, so a generation of one more takes these steps. */
static void run_sequence(struct member *m)
{
    const struct npugraph_generate_params params = {.max_tokens = STEPS_OF(m->arg) + 1, .ignore_stop = true};
    struct npugraph_client *client = member_connect(m, "sequence");
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};

    open_sequence(client, PROMPT_OF(m->arg), m->number, &seq);
    member_ready(m);
    if (member_may_work(m) && npugraph_sequence_generate(seq, &params, count_token, m, NULL, &err) != 0)
        bench_fail("generate: %s", err.message);
    npugraph_sequence_close(seq);
    npugraph_disconnect(client);
}

static const struct crowd_role roles[] = {{"sequence", run_sequence}, {NULL, NULL}};

/* ---- measurements ---- */

/* When the last of n clients had its last token. Waits with long pauses, because the daemon needs all CPUs. */
static ngd_nsec_t await_last_token(struct crowd *c, int n, int64_t tokens)
{
    ngd_nsec_t last = 0;

    for (int i = 0; i < n; i++) {
        struct seat *seat = &c->board->seats[i];

        while (atomic_load(&seat->done) < (uint64_t)tokens + 1)
            crowd_pause(50 * NGD_MSEC);
        last = (ngd_nsec_t)seat->samples[tokens] > last ? (ngd_nsec_t)seat->samples[tokens] : last;
    }
    return last;
}

/* Tokens per second of n client processes together. depth: tokens of their prompts. */
static double measure_sequences(const char *address, int n, int64_t tokens, int64_t depth)
{
    struct crowd c;
    ngd_nsec_t begin, end;

    crowd_open(&c, address);
    for (int i = 0; i < n; i++)
        crowd_start(&c, i, "sequence", 0, ARG(tokens, depth));
    crowd_wait_ready(&c, n);
    begin = ngd_now();
    atomic_store(&c.board->working, (uint32_t)n);
    end = await_last_token(&c, n, tokens);
    crowd_close(&c);
    return (double)n * (double)tokens * 1e9 / (double)(end - begin);
}

/* Prompt tokens per second, until the first token is known. seed: prompts must differ, or the daemon reuses one. */
static double measure_prompt(struct npugraph_client *client, int64_t tokens, int seed)
{
    struct npugraph_sequence *seq = NULL;
    const ngd_nsec_t begin = ngd_now();
    ngd_nsec_t took;

    open_sequence(client, (size_t)tokens, seed, &seq);
    took = ngd_now() - begin;
    npugraph_sequence_close(seq);
    return (double)tokens * 1e9 / (double)took;
}

/* f32 logits after the prompt of the fixed text and after each forced token. */
static void write_logits(struct npugraph_client *client, const char *path)
{
    struct npugraph_sequence *seq = NULL;
    struct npugraph_open_params open;
    struct npugraph_step_params params;
    struct npugraph_error err = {0};
    struct npugraph_step step = {0};
    int32_t prompt[PROMPT];
    FILE *f = fopen(path, "wb");

    if (f == NULL)
        bench_fail("%s cannot be written", path);
    make_prompt(prompt, PROMPT, 0);
    npugraph_open_params_init(&open);
    open.want_logits = true;
    if (npugraph_sequence_open(client, "bench", prompt, PROMPT, &open, &seq, &step, &err) != 0)
        bench_fail("open: %s", err.message);
    fwrite(step.logits, sizeof(float), step.vocab, f);
    npugraph_step_params_init(&params);
    params.want_logits = true;
    for (int k = 0; k < FORCED; k++) {
        params.forced = forced_token(k);
        if (npugraph_sequence_step(seq, &params, &step, &err) != 0)
            bench_fail("step: %s", err.message);
        fwrite(step.logits, sizeof(float), step.vocab, f);
    }
    npugraph_sequence_close(seq);
    if (fclose(f) != 0)
        bench_fail("%s cannot be written", path);
}

/* ---- the run ---- */

static size_t parse_counts(const char *text, int64_t counts[POINTS_MAX])
{
    size_t n = 0;

    while (*text != '\0' && n < POINTS_MAX) {
        char *end;

        counts[n] = strtoll(text, &end, 10);
        if (end == text || counts[n] < 1 || counts[n] > CROWD_SEATS)
            bench_fail("--sequences takes numbers from 1 to %d, with commas between them", CROWD_SEATS);
        n++;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static void load(struct npugraph_client *client, const char *dir, int64_t max_batch, int64_t max_context,
                 const char *kv_dtype, const char *precision)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "bench";
    params.max_batch = (uint32_t)max_batch;
    params.max_context = (uint32_t)max_context;
    params.kv_dtype = kv_dtype;
    params.matmul_precision = precision;
    if (npugraph_model_load(client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
}

static void run(const struct live *live, struct npugraph_client *client, const int64_t *counts, size_t n,
                int64_t tokens, int64_t prompt, int64_t depth)
{
    int seed = 1000;

    measure_prompt(client, prompt, seed++); /* captures what the rest replays */
    for (size_t i = 0; i < n; i++)
        measure_sequences(live->address, (int)counts[i], 2, depth);
    printf("{\"prompt\": %.3f", measure_prompt(client, prompt, seed++));
    for (size_t i = 0; i < n; i++)
        printf(", \"%" PRId64 "\": %.3f", counts[i], measure_sequences(live->address, (int)counts[i], tokens, depth));
    printf("}\n");
}

int main(int argc, char **argv)
{
    int64_t tokens = 32, prompt = 512, depth = PROMPT, threads = 2, counts[POINTS_MAX], most = 1;
    const char *dir = NULL, *sequences = "1,4,8,32", *logits = NULL, *kv_dtype = NULL, *precision = NULL;
    const struct bench_option options[] = {
        {"dir", NULL, &dir, NULL},
        {"sequences", NULL, &sequences, NULL},
        {"tokens", &tokens, NULL, NULL},
        {"prompt", &prompt, NULL, NULL},
        {"threads", &threads, NULL, NULL},
        {"logits", NULL, &logits, NULL},
        {"kv-dtype", NULL, &kv_dtype, NULL},
        {"depth", &depth, NULL, NULL},
        {"precision", NULL, &precision, NULL},
    };
    char n_threads[24];
    const char *extra[] = {"--threads", n_threads, NULL};
    struct npugraph_client *client;
    struct live live;
    char *directory;
    size_t n;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (dir == NULL)
        bench_fail("--dir says where the checkpoint is: a directory, or a GGUF file");
    if (tokens + 1 > CROWD_SAMPLES)
        bench_fail("--tokens is at most %u", CROWD_SAMPLES - 1);
    n = parse_counts(sequences, counts);
    for (size_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    directory = ngd_strdup(dir);
    if (directory == NULL)
        bench_fail("no memory for a path");
    live_start(&live, dirname(directory), extra);
    client = live_connect(&live, "bench_sequences");
    load(client, dir, most, (depth > prompt ? depth : prompt) + tokens + 512, kv_dtype, precision);
    if (logits != NULL)
        write_logits(client, logits);
    else
        run(&live, client, counts, n, tokens, prompt, depth);
    npugraph_disconnect(client);
    ngd_free(directory);
    return live_stop(&live) != 0;
}
