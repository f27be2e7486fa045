/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs checkpoints in a live daemon and compares them with Hugging Face transformers (tests/golden): logits of the
 * prompt and of 32 decode steps, which are fed the reference's tokens.
 */
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"
#include "tests/models/logits.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *const device_names[] = {"host:0", "host:1", "host:2", "host:3"};

struct report {
    double worst;       /* largest |difference| over largest |logit| */
    double kl, most_kl; /* Kullback-Leibler divergence of the next token's distribution: sum and largest of the rows */
    int rows;
    int decided, wrong;
};

static void compare_row(struct report *r, const float *got, const float *want, size_t n, double scale)
{
    size_t best = 0, second = n, mine = 0;
    float low = want[0];

    r->kl += logits_divergence(want, got, n);
    r->most_kl = fmax(r->most_kl, logits_divergence(want, got, n));
    r->rows++;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]) / scale;

        r->worst = d > r->worst || isnan(d) ? d : r->worst;
        low = want[i] < low ? want[i] : low;
        mine = got[i] > got[mine] ? i : mine;
        if (want[i] > want[best]) {
            second = best;
            best = i;
        } else if (i != best && (second == n || want[i] > want[second])) {
            second = i;
        }
    }
    /* If the reference hardly prefers one token, the rounding of another kernel may prefer another. */
    if ((double)(want[best] - want[second]) > 0.01 * (double)(want[best] - low)) {
        r->decided++;
        r->wrong += mine != best;
    }
}

static double largest(const float *x, size_t n)
{
    double m = 0;

    for (size_t i = 0; i < n; i++)
        m = fabs((double)x[i]) > m ? fabs((double)x[i]) : m;
    return m;
}

/* Compares the log-probabilities of an answer with those of the reference's logits. They may differ by twice as much as
 * logits. */
static void compare_logprobs(const struct npugraph_step *step, const float *want, size_t n, double scale)
{
    const struct npugraph_logprobs *lp = &step->logprobs[0];
    const double sum = logits_log_sum(want, n);

    ck_assert_uint_eq(step->n_logprobs, 1);
    ck_assert_int_eq(lp->token, step->token);
    ck_assert_double_eq_tol(lp->logprob, want[lp->token] - sum, 2e-4 * scale);
    ck_assert_uint_eq(lp->n_top, 5);
    for (size_t i = 0; i < lp->n_top; i++) {
        size_t larger = 0;

        ck_assert_double_eq_tol(lp->top[i].logprob, want[lp->top[i].token] - sum, 2e-4 * scale);
        for (size_t k = 0; k < n; k++)
            larger += (double)want[k] > (double)want[lp->top[i].token] + 2e-4 * scale;
        ck_assert_uint_le(larger, i);
    }
}

static void run_reference(struct npugraph_client *client, const char *model, const struct tensors *t, bool exact,
                          struct report *r)
{
    size_t n_prompt, n_tokens, vocab, n;
    const int32_t *prompt = tensors_get(t, "prompt", 4, &n_prompt), *tokens = tensors_get(t, "tokens", 4, &n_tokens);
    const float *last = tensors_get(t, "last_logits", 4, &vocab), *steps = tensors_get(t, "step_logits", 4, &n);
    double scale = fmax(largest(last, vocab), largest(steps, n));
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    const struct npugraph_open_params open = {.want_logits = true, .want_logprobs = true, .top = 5};
    struct npugraph_step_params ask = {.want_logits = true, .want_logprobs = true, .top = 5};
    struct npugraph_step step;

    ck_assert_uint_eq(n, n_tokens * vocab);
    ck_assert_msg(npugraph_sequence_open(client, model, prompt, n_prompt, &open, &seq, &step, &err) == 0, "%s: %s",
                  model, err.message);
    ck_assert_uint_eq(step.vocab, vocab);
    compare_row(r, step.logits, last, vocab, scale);
    if (exact)
        compare_logprobs(&step, last, vocab, scale);
    for (size_t i = 0; i < n_tokens; i++) {
        ask.forced = tokens[i];
        ck_assert_msg(npugraph_sequence_step(seq, &ask, &step, &err) == 0, "%s: %s", model, err.message);
        ck_assert_uint_eq(step.position, n_prompt + i + 1);
        compare_row(r, step.logits, steps + i * vocab, vocab, scale);
        if (exact)
            compare_logprobs(&step, steps + i * vocab, vocab, scale);
    }
    npugraph_sequence_close(seq);
}

/* Loads a model on `devices` devices of the daemon, which divide it among them; 0: on one. Returns false if they cannot
 * divide it. */
static bool check_model(struct npugraph_client *client, const char *checkpoint, const char *expect, const char *name,
                        const char *rule, uint32_t chunk, size_t devices)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};
    struct report r = {0};
    struct tensors t;
    int rc;

    npugraph_model_params_init(&params);
    params.name = name;
    params.prefill_chunk = chunk;
    params.max_context = 128;
    params.max_batch = 4;
    params.devices = device_names;
    params.n_devices = devices;
    rc = npugraph_model_load(client, checkpoint, &params, NULL, NULL, &err);
    if (rc != 0 && devices > 1 && strstr(err.message, "cannot divide") != NULL) {
        printf("%-28s %zu devices: %s\n", name, devices, err.message);
        return false;
    }
    ck_assert_msg(rc == 0, "%s: %s", checkpoint, err.message);
    tensors_open(&t, expect);
    run_reference(client, name, &t, strcmp(rule, "f32") == 0, &r);
    tensors_close(&t);
    ck_assert_int_eq(npugraph_model_unload(client, name, false, &err), 0);
    printf("%-28s chunk %-3u devices %zu max |difference| / max |logit| = %.2e, KL %.1e (largest "
           "%.1e), argmax wrong in %d of %d decided "
           "rows\n",
           name, chunk, devices > 1 ? devices : 1, r.worst, r.kl / r.rows, r.most_kl, r.wrong, r.decided);
    fflush(stdout);
    ck_assert_msg(!isnan(r.worst), "%s: logits are not numbers", name);
    if (strcmp(rule, "f32") == 0)
        ck_assert_msg(r.worst <= 1e-4, "%s: logits differ by %.2e of the largest", name, r.worst);
    if (strcmp(rule, "w8a8") == 0) /* each device has scales of its own for its part of a row */
        ck_assert_msg(r.kl / r.rows <= (devices > 1 ? 5e-3 : 1e-3),
                      "%s: the next token's distribution diverges by %.2e", name, r.kl / r.rows);
    ck_assert_int_gt(r.decided, 0);
    ck_assert_msg(r.wrong == 0, "%s: %d of %d decided tokens are wrong", name, r.wrong, r.decided);
    return true;
}

/* Returns how many models ran. Not all models can be divided among several devices. */
static int check_all(uint32_t chunk, size_t devices)
{
    static const char *const several[] = {"--device=host:0", "--device=host:1", "--device=host:2",
                                          "--device=host:3", "--threads=1",     NULL};

    char path[4096], checkpoint[4200], expect[4200];
    struct npugraph_client *client;
    json_t *manifest, *m;
    struct live live;
    int ran = 0;
    size_t i;

    live_start(&live, source_dir(), devices > 1 ? several : NULL);
    client = live_connect(&live, "test_models");
    snprintf(path, sizeof(path), "%s/tests/golden/manifest.json", source_dir());
    manifest = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(manifest);
    ck_assert_uint_ge(json_array_size(json_object_get(manifest, "models")), 6);
    json_array_foreach(json_object_get(manifest, "models"), i, m)
    {
        snprintf(checkpoint, sizeof(checkpoint), "%s/tests/golden/%s", source_dir(),
                 json_string_value(json_object_get(m, "checkpoint")));
        snprintf(expect, sizeof(expect), "%s/tests/golden/%s", source_dir(),
                 json_string_value(json_object_get(m, "expect")));
        ran += check_model(client, checkpoint, expect, json_string_value(json_object_get(m, "name")),
                           json_string_value(json_object_get(m, "rule")), chunk, devices);
    }
    json_decref(manifest);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
    return ran;
}

START_TEST(logits_of_prompt_and_decode_steps_equal_those_of_transformers)
{
    ck_assert_int_ge(check_all(64, 0), 6);
}
END_TEST

START_TEST(a_prompt_in_chunks_of_16_gives_the_same_logits)
{
    ck_assert_int_ge(check_all(16, 0), 6);
}
END_TEST

/* The chunk is not a power of two and smaller than a KV block, so that their boundaries differ. */
START_TEST(a_prompt_in_chunks_of_7_gives_the_same_logits)
{
    ck_assert_int_ge(check_all(7, 0), 6);
}
END_TEST

/* Several devices add in another order than one device; the same tolerance holds. */
START_TEST(models_divided_among_devices_give_the_same_logits)
{
    ck_assert_int_ge(check_all(16, 2), 4);
    ck_assert_int_ge(check_all(64, 4), 1);
}
END_TEST

/* Compares with the bf16 model's logits. */
START_TEST(the_bundled_model_in_w8a8_diverges_little)
{
    struct npugraph_quantize q = {.bits = 8, .rows = true};
    struct npugraph_error err = {0};
    char dir[] = "/tmp/ngd-w8a8-XXXXXX", from[4200], to[64], expect[4200], *const rm[] = {"rm", "-r", dir, NULL};
    struct npugraph_client *client;
    struct live live;
    int status;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(from, sizeof(from), "%s/examples/model", source_dir());
    snprintf(to, sizeof(to), "%s/model", dir);
    snprintf(expect, sizeof(expect), "%s/tests/golden/bundled/expect.safetensors", source_dir());
    ck_assert_msg(npugraph_checkpoint_quantize(from, to, &q, NULL, NULL, &err) == 0, "%s", err.message);
    live_start(&live, dir, NULL);
    client = live_connect(&live, "test_models");
    check_model(client, to, expect, "bundled_w8a8", "w8a8", 64, 0);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
    ck_assert_int_eq(posix_spawnp(&(pid_t){0}, rm[0], NULL, NULL, rm, NULL), 0);
    wait(&status);
}
END_TEST

UNIT_MAIN("models", the_bundled_model_in_w8a8_diverges_little,
          logits_of_prompt_and_decode_steps_equal_those_of_transformers, a_prompt_in_chunks_of_16_gives_the_same_logits,
          a_prompt_in_chunks_of_7_gives_the_same_logits, models_divided_among_devices_give_the_same_logits)
