/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a KV cache in int8 and fp8 costs in accuracy: how far the next token's distribution of the bundled model is from
 * that of the same model with a cache of floats, in a text that the latter draws.
 */
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"
#include "tests/models/logits.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT 24
#define STEPS  400

static struct npugraph_sequence *open_cached(struct npugraph_client *client, const char *kv_dtype,
                                             const struct npugraph_sampling *how, struct npugraph_step *step_p)
{
    struct npugraph_open_params open = {.want_logits = true, .sampling = how};
    struct npugraph_sequence *seq = NULL;
    struct npugraph_model_params params;
    struct npugraph_error err = {0};
    int32_t prompt[PROMPT];
    char path[4096];

    snprintf(path, sizeof(path), "%s/examples/model", source_dir());
    npugraph_model_params_init(&params);
    params.name = params.kv_dtype = kv_dtype;
    params.max_batch = 1;
    params.max_context = 512;
    ck_assert_msg(npugraph_model_load(client, path, &params, NULL, NULL, &err) == 0, "%s", err.message);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37) % 1900 + 30;
    ck_assert_msg(npugraph_sequence_open(client, kv_dtype, prompt, PROMPT, &open, &seq, step_p, &err) == 0, "%s",
                  err.message);
    return seq;
}

/* The mean of the divergences that a cache has from one of floats. Every row sees a context that was written so. */
static double mean_divergence(struct npugraph_client *client, const char *floats, const char *kv_dtype)
{
    const struct npugraph_sampling draw = {.temperature = 1, .seed = 5};
    struct npugraph_step_params ask, force;
    struct npugraph_sequence *a, *b;
    struct npugraph_error err = {0};
    struct npugraph_step x, y;
    double sum = 0, most = 0;

    npugraph_step_params_init(&ask);
    ask.want_logits = true;
    force = ask;
    a = open_cached(client, floats, &draw, &x);
    b = open_cached(client, kv_dtype, NULL, &y);
    for (int i = 0; i < STEPS; i++) {
        const double d = logits_divergence(x.logits, y.logits, x.vocab);

        ck_assert_uint_eq(x.vocab, y.vocab);
        sum += d;
        most = fmax(most, d);
        force.forced = x.token;
        ck_assert_msg(npugraph_sequence_step(a, &ask, &x, &err) == 0, "%s", err.message);
        ck_assert_msg(npugraph_sequence_step(b, &force, &y, &err) == 0, "%s", err.message);
    }
    npugraph_sequence_close(a);
    npugraph_sequence_close(b);
    ck_assert_int_eq(npugraph_model_unload(client, floats, false, &err), 0);
    ck_assert_int_eq(npugraph_model_unload(client, kv_dtype, false, &err), 0);
    printf("%s against %s: mean divergence %.2e, largest %.2e\n", kv_dtype, floats, sum / STEPS, most);
    return sum / STEPS;
}

START_TEST(caches_in_int8_and_fp8_diverge_little_from_floats)
{
    struct npugraph_client *client;
    struct live live;
    double f8, i8;

    live_start(&live, source_dir(), NULL);
    client = live_connect(&live, "test_kv_dtypes");
    i8 = mean_divergence(client, "f32", "int8");
    f8 = mean_divergence(client, "f32", "fp8");
    ck_assert_double_gt(i8, 0); /* both are not the same cache */
    ck_assert_double_le(i8, 1e-3);
    ck_assert_double_le(f8, 2e-3);
    ck_assert_double_le(mean_divergence(client, "bf16", "int8"), 1e-3);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
}
END_TEST

UNIT_MAIN("kv_dtypes", caches_in_int8_and_fp8_diverge_little_from_floats)
