/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode beside a long prompt. A client process generates tokens, first alone, then while another process opens a
 * sequence with a prompt of 8,000 tokens. The result is the ratio of the 99th percentiles of the times between its
 * tokens. In a third phase it is alone again, which shows whether the machine itself has become slower.
 *
 * Both processes are started before this one has threads. They share memory with it, in which it sets the phase and
 * they record times.
 */
#include "base/mem.h"
#include "bench/rpc/bench_rpc.h"
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT      16 /* length of the decoding client's prompt, in tokens */
#define TOKENS_MAX 65536

enum phase { NOT_YET = -1, ALONE, BESIDE, ALONE_AGAIN, PHASES };

/* What the processes share. */
struct board {
    struct live live;
    _Atomic int phase;
    _Atomic bool stop;
    _Atomic uint32_t n[PHASES];
    ngd_nsec_t gaps[PHASES][TOKENS_MAX];
    _Atomic int64_t prompt_ns; /* how long the prompt took; 0: not done */
};

struct params {
    struct board *board;
    int64_t prompt;
};

static void await_phase(const struct board *b, enum phase phase)
{
    while (atomic_load(&b->phase) < (int)phase)
        usleep(1000);
}

/* ---- the decoding process ---- */

struct decoder {
    struct board *board;
    ngd_nsec_t last;
    int phase;
};

static bool on_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct decoder *d = user;
    const ngd_nsec_t now = ngd_now();
    const int phase = atomic_load(&d->board->phase);
    const uint32_t n = atomic_load(&d->board->n[phase]);

    (void)token;
    (void)logprobs;
    /* A gap during which the phase changed belongs to neither phase. */
    if (d->last && phase == d->phase && n < TOKENS_MAX) {
        d->board->gaps[phase][n] = now - d->last;
        atomic_store(&d->board->n[phase], n + 1);
    }
    d->last = now;
    d->phase = phase;
    return !atomic_load(&d->board->stop);
}

static void make_prompt(int32_t *prompt, int64_t n, int32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        prompt[i] = (int32_t)((i * 131 + seed) % 500);
}

/* Generates until it is told to stop. When the context is full, it begins again with another prompt. */
static int decode(const struct params *p)
{
    const struct npugraph_generate_params params = {.max_tokens = 512, .ignore_stop = true};
    struct decoder d = {.board = p->board};
    struct npugraph_client *client;

    await_phase(p->board, ALONE);
    client = live_connect(&p->board->live, "decoder");
    for (int32_t seed = 0; !atomic_load(&p->board->stop); seed++) {
        struct npugraph_sequence *seq = NULL;
        struct npugraph_error err = {0};
        int32_t prompt[SHORT];

        make_prompt(prompt, SHORT, seed);
        if (npugraph_sequence_open(client, "bench", prompt, SHORT, NULL, &seq, NULL, &err) != 0)
            bench_fail("open: %s", err.message);
        d.last = 0;
        if (npugraph_sequence_generate(seq, &params, on_token, &d, NULL, &err) != 0)
            bench_fail("generate: %s", err.message);
        npugraph_sequence_close(seq);
    }
    npugraph_disconnect(client);
    return 0;
}

/* ---- the process with the long prompt ---- */

static int open_long(const struct params *p)
{
    struct npugraph_client *client;
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    int32_t *prompt = ngd_calloc((size_t)p->prompt, sizeof(*prompt));
    ngd_nsec_t begin;

    if (!prompt)
        bench_fail("no memory for the prompt");
    make_prompt(prompt, p->prompt, 7);
    await_phase(p->board, ALONE);
    client = live_connect(&p->board->live, "prompt");
    await_phase(p->board, BESIDE);
    begin = ngd_now();
    if (npugraph_sequence_open(client, "bench", prompt, (size_t)p->prompt, NULL, &seq, NULL, &err) != 0)
        bench_fail("open: %s", err.message);
    atomic_store(&p->board->prompt_ns, ngd_now() - begin);
    npugraph_sequence_close(seq);
    npugraph_disconnect(client);
    ngd_free(prompt);
    return 0;
}

/* ---- the run ---- */

static pid_t start_process(int (*fn)(const struct params *), const struct params *p)
{
    pid_t pid = fork();

    if (pid < 0)
        bench_fail("fork failed");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(fn(p));
    }
    return pid;
}

static void await_tokens(const struct board *b, enum phase phase, uint32_t n)
{
    while (atomic_load(&b->n[phase]) < n)
        usleep(5000);
}

static void report(struct board *b, int64_t prompt)
{
    static const char *const names[PHASES] = {"between tokens, alone", "between tokens, beside the prompt",
                                              "between tokens, alone again"};
    double p99[PHASES], median[PHASES];

    for (int i = 0; i < PHASES; i++) {
        struct samples s = {0};
        uint32_t n = atomic_load(&b->n[i]);

        for (uint32_t k = 0; k < n; k++)
            samples_add(&s, (double)b->gaps[i][k]);
        samples_print(&s, names[i], "ms", 1e-6);
        p99[i] = samples_quantile(&s, 0.99);
        median[i] = samples_quantile(&s, 0.5);
        printf("%-44s    p99 %10.2f ms, worst %.2f ms\n", "", p99[i] * 1e-6, samples_quantile(&s, 1) * 1e-6);
        samples_free(&s);
    }
    if (atomic_load(&b->prompt_ns))
        printf("the prompt of %lld tokens took %.2f s\n", (long long)prompt, (double)atomic_load(&b->prompt_ns) * 1e-9);
    else
        printf("the prompt of %lld tokens was not done when the time was over\n", (long long)prompt);
    printf("ratio: p99 beside / alone   %.3f (medians %.3f); wanted <= 1.5\n",
           p99[BESIDE] / (p99[ALONE] < p99[ALONE_AGAIN] ? p99[ALONE_AGAIN] : p99[ALONE]),
           median[BESIDE] / median[ALONE]);
}

static void run_phases(struct board *b, pid_t decoder, pid_t opener, uint32_t tokens, int64_t seconds)
{
    ngd_nsec_t end;
    int status;

    atomic_store(&b->phase, ALONE);
    while (atomic_load(&b->n[ALONE]) < 20) /* let it warm up */
        usleep(5000);
    atomic_store(&b->n[ALONE], 0);
    await_tokens(b, ALONE, tokens);
    end = ngd_now() + seconds * NGD_SEC;
    atomic_store(&b->phase, BESIDE);
    while (!atomic_load(&b->prompt_ns) && ngd_now() < end && waitpid(opener, &status, WNOHANG) == 0)
        usleep(1000);
    atomic_store(&b->phase, ALONE_AGAIN);
    if (!atomic_load(&b->prompt_ns))
        kill(opener, SIGKILL);
    await_tokens(b, ALONE_AGAIN, tokens);
    atomic_store(&b->stop, true);
    waitpid(opener, NULL, 0);
    if (waitpid(decoder, &status, 0) != decoder || status != 0)
        bench_fail("the decoding process failed");
}

static void load_model(const struct live *live, const char *dir, uint32_t context, uint32_t chunk)
{
    struct npugraph_client *client = live_connect(live, "bench_prompt");
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "bench";
    params.max_batch = 2;
    params.max_context = context;
    params.prefill_chunk = chunk;
    if (npugraph_model_load(client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
    npugraph_disconnect(client);
}

int main(int argc, char **argv)
{
    struct bench_shape s = {.layers = 4,
                            .hidden = 1024,
                            .heads = 16,
                            .kv_heads = 8,
                            .head_dim = 128,
                            .ffn = 3072,
                            .vocab = 32768,
                            .tied = true};
    int64_t tokens = 400, threads = 2, prompt = 8000, chunk = 256, seconds = 60, share = 40;
    const char *dir = NULL;
    bool quick = false;
    const struct bench_option options[] = {
        {"layers", &s.layers, NULL, NULL}, {"hidden", &s.hidden, NULL, NULL}, {"ffn", &s.ffn, NULL, NULL},
        {"vocab", &s.vocab, NULL, NULL},   {"tokens", &tokens, NULL, NULL},   {"prompt", &prompt, NULL, NULL},
        {"chunk", &chunk, NULL, NULL},     {"share", &share, NULL, NULL},     {"seconds", &seconds, NULL, NULL},
        {"threads", &threads, NULL, NULL}, {"dir", NULL, &dir, NULL},         {"quick", NULL, NULL, &quick},
    };
    char n_threads[24], n_share[24], *made = NULL;
    const char *extra[] = {"--threads", n_threads, "--prompt-share", n_share, NULL};
    struct params p;
    struct live live;
    pid_t decoder, opener;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        tokens = 150, prompt = 2000, s.layers = 2;
    if (dir == NULL) {
        dir = made = bench_dir_make();
        bench_checkpoint_write(dir, &s);
    }
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    snprintf(n_share, sizeof(n_share), "%d", (int)share);
    p.prompt = prompt;
    p.board = mmap(NULL, sizeof(*p.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p.board == MAP_FAILED)
        bench_fail("no memory to share");
    p.board->phase = NOT_YET;
    decoder = start_process(decode, &p); /* before this process has threads */
    opener = start_process(open_long, &p);
    live_start(&live, dir,
               extra); /* not into shared memory: the child of its fork would write the process id there as well */
    p.board->live = live;
    load_model(&live, dir, (uint32_t)prompt + 64, (uint32_t)chunk);
    run_phases(p.board, decoder, opener, (uint32_t)tokens, seconds);
    report(p.board, prompt);
    if (made != NULL)
        bench_dir_remove(made);
    return live_stop(&live) != 0;
}
