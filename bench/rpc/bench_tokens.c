/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wire adds to a token. A model of 28 small layers is stepped and generates tokens over a Unix stream
 * (npugraph_sequence_step and npugraph_sequence_generate), and the same graph text does the same in this process, on a
 * scheduler and a device of its own (ngd_seq_step and ngd_seq_generate). No thread is pinned.
 *
 * Each round opens a sequence on either side with the same prompt and takes the same number of tokens, in turns of one
 * step, so that the contexts are equally long and a disturbance affects both.
 */
#include "base/lock.h"
#include "bench/rpc/bench_rpc.h"
#include "bench/rpc/local_model.h"
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"
#include "tests/unit/plain_seq.h"

#include <stdio.h>
#include <string.h>

#define PROMPT 8

/* ---- in this process ---- */

struct waiter {
    struct ngd_mutex lock;
    struct ngd_cond cond;
    bool done;
    int32_t token;
};

static void wake(struct waiter *w, ngd_status_t status, const struct ngd_diag *diag)
{
    if (status != NGD_OK)
        bench_fail("in process: %s %s", ngd_status_name(status), diag != NULL ? diag->text : "");
    ngd_mutex_lock(&w->lock);
    w->done = true;
    ngd_cond_signal(&w->cond);
    ngd_mutex_unlock(&w->lock);
}

static void await_answer(struct waiter *w)
{
    ngd_mutex_lock(&w->lock);
    while (!w->done)
        ngd_cond_wait(&w->cond, &w->lock);
    w->done = false;
    ngd_mutex_unlock(&w->lock);
}

static void on_step(void *user, struct ngd_seq *seq, const struct ngd_step_result *result)
{
    struct waiter *w = user;

    (void)seq;
    w->token = result->token;
    wake(w, result->status, result->diag);
}

static void on_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                     const struct ngd_logprobs *logprobs)
{
    (void)user, (void)seq, (void)token, (void)position, (void)logprobs;
}

static void on_end(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                   const struct ngd_diag *diag)
{
    (void)seq, (void)finish;
    wake(user, status, diag);
}

static struct ngd_seq *local_open(struct local_model *m, struct waiter *w, const int32_t *prompt)
{
    const struct ngd_seq_params params = {.prompt = prompt, .n_prompt = PROMPT, .priority = NGD_PRIORITY_NORMAL};
    struct ngd_diag diag = {0};
    struct ngd_seq *seq = NULL;

    if (ngd_seq_open(m->model, &params, on_step, w, &seq, &diag) != NGD_OK)
        bench_fail("in process: %s", diag.text);
    await_answer(w);
    return seq;
}

static int32_t local_step(struct ngd_seq *seq, struct waiter *w)
{
    struct ngd_diag diag = {0};

    if (plain_step(seq, -1, false, on_step, w, &diag) != NGD_OK)
        bench_fail("in process: %s", diag.text);
    await_answer(w);
    return w->token;
}

/* ---- both ---- */

struct bed {
    struct npugraph_client *client;
    struct local_model local;
    struct waiter waiter;
    int32_t prompt[PROMPT];
    struct samples step[2], added, generate[2], generate_added;
};

enum { LOCAL, REMOTE };

static struct npugraph_sequence *remote_open(struct bed *b)
{
    struct npugraph_error err = {0};
    struct npugraph_sequence *seq = NULL;

    if (npugraph_sequence_open(b->client, "bench", b->prompt, PROMPT, NULL, &seq, NULL, &err) != 0)
        bench_fail("open: %s", err.message);
    return seq;
}

static int32_t remote_step(struct npugraph_sequence *seq)
{
    struct npugraph_error err = {0};
    struct npugraph_step s;

    if (npugraph_sequence_step(seq, NULL, &s, &err) != 0)
        bench_fail("step: %s", err.message);
    return s.token;
}

static void run_steps(struct bed *b, int64_t n, bool keep)
{
    struct npugraph_sequence *remote = remote_open(b);
    struct ngd_seq *local = local_open(&b->local, &b->waiter, b->prompt);
    struct samples one[2] = {{0}, {0}};
    int different = 0;

    for (int64_t i = 0; i < n; i++) {
        ngd_nsec_t begin = ngd_now(), middle, end;
        int32_t a, c;

        a = remote_step(remote);
        middle = ngd_now();
        c = local_step(local, &b->waiter);
        end = ngd_now();
        different += a != c;
        samples_add(&one[REMOTE], (double)(middle - begin));
        samples_add(&one[LOCAL], (double)(end - middle));
        if (keep) {
            samples_add(&b->step[REMOTE], (double)(middle - begin));
            samples_add(&b->step[LOCAL], (double)(end - middle));
        }
    }
    if (different)
        bench_fail("%d of %d tokens differ between the two", different, (int)n);
    if (keep)
        samples_add(&b->added, samples_quantile(&one[REMOTE], 0.5) - samples_quantile(&one[LOCAL], 0.5));
    samples_free(&one[0]);
    samples_free(&one[1]);
    ngd_seq_close(local);
    npugraph_sequence_close(remote);
}

static bool count_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    (void)token;
    (void)logprobs;
    ++*(int64_t *)user;
    return true;
}

static double remote_generate(struct bed *b, int64_t n)
{
    const struct npugraph_generate_params params = {.max_tokens = (uint32_t)n, .ignore_stop = true};
    struct npugraph_sequence *seq = remote_open(b);
    struct npugraph_error err = {0};
    ngd_nsec_t begin = ngd_now(), end;
    int64_t got = 0;

    if (npugraph_sequence_generate(seq, &params, count_token, &got, NULL, &err) != 0 || got != n)
        bench_fail("generate: %s", err.message);
    end = ngd_now();
    npugraph_sequence_close(seq);
    return (double)(end - begin) / (double)n;
}

static double local_generate(struct bed *b, int64_t n)
{
    struct ngd_seq *seq = local_open(&b->local, &b->waiter, b->prompt);
    struct ngd_diag diag = {0};
    ngd_nsec_t begin = ngd_now(), end;

    if (plain_generate(seq, (uint32_t)n, true, on_token, on_end, &b->waiter, &diag) != NGD_OK)
        bench_fail("in process: %s", diag.text);
    await_answer(&b->waiter);
    end = ngd_now();
    ngd_seq_close(seq);
    return (double)(end - begin) / (double)n;
}

static void run_generations(struct bed *b, int64_t n, bool keep)
{
    double remote = remote_generate(b, n), local = local_generate(b, n);

    if (!keep)
        return;
    samples_add(&b->generate[REMOTE], remote);
    samples_add(&b->generate[LOCAL], local);
    samples_add(&b->generate_added, remote - local);
}

static void report(struct bed *b)
{
    samples_print(&b->step[REMOTE], "token, step over the Unix stream", "us", 1e-3);
    samples_print(&b->step[LOCAL], "token, step in process", "us", 1e-3);
    samples_print(&b->added, "added per token, medians of rounds", "us", 1e-3);
    samples_print(&b->generate[REMOTE], "token, generate over the Unix stream", "us", 1e-3);
    samples_print(&b->generate[LOCAL], "token, generate in process", "us", 1e-3);
    samples_print(&b->generate_added, "added per token, rounds", "us", 1e-3);
    printf("added per token at the median: step %.1f us, generate %.1f us; wanted <= 100 us\n",
           (samples_quantile(&b->step[REMOTE], 0.5) - samples_quantile(&b->step[LOCAL], 0.5)) / 1e3,
           (samples_quantile(&b->generate[REMOTE], 0.5) - samples_quantile(&b->generate[LOCAL], 0.5)) / 1e3);
}

static void open_both(struct bed *b, const struct live *live, const char *dir, uint32_t tokens, uint32_t threads)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "bench";
    params.max_context = tokens + PROMPT + 8;
    params.max_batch = 4;
    params.prefill_chunk = PROMPT;
    for (int i = 0; i < PROMPT; i++)
        b->prompt[i] = 37 * i + 5;
    ngd_mutex_init(&b->waiter.lock, NGD_RANK_NONE);
    ngd_cond_init(&b->waiter.cond);
    b->client = live_connect(live, "bench_tokens");
    if (npugraph_model_load(b->client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
    local_model_open(&b->local, dir, &params, threads);
}

int main(int argc, char **argv)
{
    struct bench_shape shape = BENCH_SHAPE_TINY;
    int64_t rounds = 20, tokens = 250, threads = 2;
    bool quick = false;
    const struct bench_option options[] = {
        {"layers", &shape.layers, NULL, NULL}, {"hidden", &shape.hidden, NULL, NULL}, {"rounds", &rounds, NULL, NULL},
        {"tokens", &tokens, NULL, NULL},       {"threads", &threads, NULL, NULL},     {"quick", NULL, NULL, &quick},
    };
    char n_threads[24], *dir;
    const char *extra[] = {"--threads", n_threads, NULL};
    static struct bed b;
    struct live live;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 4, tokens = 100;
    dir = bench_dir_make();
    bench_checkpoint_write(dir, &shape);
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    live_start(&live, dir, extra);
    open_both(&b, &live, dir, (uint32_t)tokens, (uint32_t)threads);
    for (int64_t i = 0; i <= rounds; i++) { /* the first round warms up */
        run_steps(&b, tokens, i > 0);
        run_generations(&b, tokens, i > 0);
    }
    report(&b);
    local_model_close(&b.local);
    npugraph_disconnect(b.client);
    bench_dir_remove(dir);
    return live_stop(&live) != 0;
}
