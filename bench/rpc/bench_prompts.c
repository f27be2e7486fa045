/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many short prompts at once: N clients open sequences of P tokens at the same time, and the clock stops with the last
 * first token. The result is its ratio to one prompt of N * P tokens, in turns. With --embed, one call embeds as many
 * prompts too: by the same model, and by the same checkpoint without its head. No prompt is asked twice, since its
 * blocks would be found.
 */
#include "base/mem.h"
#include "bench/rpc/bench_rpc.h"
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"

#include <pthread.h>
#include <stdio.h>

#define PROMPTS_MAX 64

static const char model_name[] = "bench", headless_name[] = "headless";

struct asker {
    struct npugraph_client *client;
    pthread_barrier_t *barrier;
    int32_t *prompt;
    size_t n;
};

static void make_prompt(int32_t *prompt, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        prompt[i] = (int32_t)(*seed >> 8) % 5000;
    }
}

static void open_and_close(struct asker *a)
{
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};

    if (npugraph_sequence_open(a->client, "bench", a->prompt, a->n, NULL, &seq, NULL, &err) != 0)
        bench_fail("open: %s", err.message);
    npugraph_sequence_close(seq);
}

static void *ask(void *user)
{
    struct asker *a = user;

    pthread_barrier_wait(a->barrier);
    open_and_close(a);
    return NULL;
}

/* Returns the time until the last of n askers has its first token. */
static ngd_nsec_t ask_together(struct asker *askers, size_t n)
{
    pthread_barrier_t barrier;
    pthread_t threads[PROMPTS_MAX];
    ngd_nsec_t begin;

    pthread_barrier_init(&barrier, NULL, (unsigned)n + 1);
    for (size_t i = 0; i < n; i++) {
        askers[i].barrier = &barrier;
        if (pthread_create(&threads[i], NULL, ask, &askers[i]))
            bench_fail("no thread");
    }
    pthread_barrier_wait(&barrier);
    begin = ngd_now();
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    return ngd_now() - begin;
}

/* Returns the time of one call for the embeddings of new prompts. */
static ngd_nsec_t embed_together(const struct asker *askers, size_t n, const char *model, uint32_t *seed)
{
    struct npugraph_prompt prompts[PROMPTS_MAX];
    struct npugraph_embeddings *got = NULL;
    struct npugraph_error err = {0};
    ngd_nsec_t begin;

    for (size_t i = 0; i < n; i++) {
        make_prompt(askers[i].prompt, askers[i].n, seed);
        prompts[i] = (struct npugraph_prompt){askers[i].prompt, askers[i].n};
    }
    begin = ngd_now();
    if (npugraph_embed(askers[0].client, model, prompts, n, NULL, &got, &err) != 0)
        bench_fail("embed: %s", err.message);
    npugraph_embeddings_free(got);
    return ngd_now() - begin;
}

static void load_prompts_model(struct npugraph_client *client, const char *dir, const char *name, int64_t batch,
                               int64_t context, int64_t chunk)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = name;
    params.embedding = name != model_name;
    params.max_batch = (uint32_t)batch;
    params.kv_bytes = (uint64_t)1 << 30;
    params.max_context = (uint32_t)context;
    params.prefill_chunk = (uint32_t)chunk;
    if (npugraph_model_load(client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
}

static void run_rounds(struct asker *askers, size_t n, int64_t rounds, bool embed)
{
    struct samples many = {0}, one = {0}, ratio = {0}, embedded = {0}, headless = {0};
    struct asker whole = {.client = askers[0].client, .n = n * askers[0].n};
    uint32_t seed = 1;

    whole.prompt = ngd_calloc(whole.n, sizeof(int32_t));
    if (!whole.prompt)
        bench_fail("no memory for a prompt");
    for (int64_t r = -1; r < rounds; r++) { /* the first one warms up */
        ngd_nsec_t together, begin, by_head = 0, without = 0;

        for (size_t i = 0; i < n; i++)
            make_prompt(askers[i].prompt, askers[i].n, &seed);
        make_prompt(whole.prompt, whole.n, &seed);
        together = ask_together(askers, n);
        begin = ngd_now();
        open_and_close(&whole);
        begin = ngd_now() - begin;
        if (embed) {
            by_head = embed_together(askers, n, model_name, &seed);
            without = embed_together(askers, n, headless_name, &seed);
        }
        if (r < 0)
            continue;
        samples_add(&one, (double)begin);
        samples_add(&embedded, (double)by_head / (double)together);
        samples_add(&headless, (double)without / (double)together);
        samples_add(&many, (double)together);
        samples_add(&ratio, (double)together / one.v[one.n - 1]);
    }
    samples_print(&many, "the last first token of all prompts", "ms", 1e-6);
    samples_print(&one, "one prompt of as many tokens", "ms", 1e-6);
    samples_print(&ratio, "ratio", "", 1);
    if (embed) {
        samples_print(&embedded, "embeddings in one call / first tokens", "", 1);
        samples_print(&headless, "the same without a head", "", 1);
    }
    printf("ratio: all / one   %.3f; wanted <= 1.3\n", samples_quantile(&ratio, 0.5));
    samples_free(&many);
    samples_free(&one);
    samples_free(&ratio);
    samples_free(&embedded);
    samples_free(&headless);
    ngd_free(whole.prompt);
}

int main(int argc, char **argv)
{
    struct bench_shape s = BENCH_SHAPE_QWEN3_0_6B;
    int64_t prompts = 32, tokens = 16, rounds = 5, threads = 2, batch = 0, chunk = 0;
    const char *dir = NULL;
    bool quick = false, embed = false;
    const struct bench_option options[] = {
        {"layers", &s.layers, NULL, NULL}, {"hidden", &s.hidden, NULL, NULL}, {"prompts", &prompts, NULL, NULL},
        {"tokens", &tokens, NULL, NULL},   {"rounds", &rounds, NULL, NULL},   {"threads", &threads, NULL, NULL},
        {"batch", &batch, NULL, NULL},     {"chunk", &chunk, NULL, NULL},     {"dir", NULL, &dir, NULL},
        {"quick", NULL, NULL, &quick},     {"embed", NULL, NULL, &embed},
    };
    char n_threads[24], *made = NULL;
    const char *extra[] = {"--threads", n_threads, NULL};
    struct asker askers[PROMPTS_MAX] = {{0}};
    struct live live;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        s.layers = 2, s.vocab = 8192, rounds = 3;
    if (prompts < 1 || prompts > PROMPTS_MAX || tokens < 1)
        bench_fail("--prompts must be 1 to %d, --tokens 1 and more", PROMPTS_MAX);
    if (dir == NULL) {
        dir = made = bench_dir_make();
        bench_checkpoint_write(dir, &s);
    }
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    live_start(&live, dir, extra);
    for (int64_t i = 0; i < prompts; i++) {
        askers[i] = (struct asker){.client = live_connect(&live, "bench_prompts"), .n = (size_t)tokens};
        askers[i].prompt = ngd_calloc(askers[i].n, sizeof(int32_t));
        if (!askers[i].prompt)
            bench_fail("no memory for a prompt");
    }
    batch = batch ? batch : prompts;
    chunk = chunk ? chunk : prompts * tokens;
    load_prompts_model(askers[0].client, dir, model_name, batch, prompts * tokens, chunk);
    if (embed)
        load_prompts_model(askers[0].client, dir, headless_name, batch, prompts * tokens, chunk);
    run_rounds(askers, (size_t)prompts, rounds, embed);
    for (int64_t i = 0; i < prompts; i++) {
        npugraph_disconnect(askers[i].client);
        ngd_free(askers[i].prompt);
    }
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    if (made)
        bench_dir_remove(made);
    return 0;
}
