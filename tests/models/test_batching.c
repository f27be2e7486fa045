/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that run together: a sequence's tokens must not depend on other sequences, nor on how it is stepped. */
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_SEQUENCES 8
#define N_TOKENS    48

static char *model_dir(void)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/examples/model", source_dir());
    return path;
}

static void load_bundled(struct npugraph_client *client)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "bible";
    params.max_batch = N_SEQUENCES;
    params.max_context = 256;
    ck_assert_msg(npugraph_model_load(client, model_dir(), &params, NULL, NULL, &err) == 0, "%s", err.message);
}

struct generation {
    struct npugraph_client *client;
    struct npugraph_sampling how;
    int number, n;
    int32_t tokens[N_TOKENS];
    pthread_barrier_t *start;
    bool failed;
};

static bool take_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct generation *g = user;

    (void)logprobs;
    g->tokens[g->n++] = token;
    return true;
}

static int go_on(struct npugraph_sequence *seq, uint32_t tokens, struct generation *g, struct npugraph_error *err)
{
    const struct npugraph_generate_params params = {.max_tokens = tokens, .ignore_stop = true};

    return npugraph_sequence_generate(seq, &params, take_token, g, NULL, err);
}

/* Prompts of different lengths, so that positions and block counts differ between rows of a batch. */
static void *generation_main(void *arg)
{
    struct generation *g = arg;
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    const struct npugraph_open_params open = {.sampling = &g->how};
    int32_t prompt[64];
    size_t n = (size_t)(3 + 7 * g->number);

    for (size_t i = 0; i < n; i++)
        prompt[i] = (int32_t)((i * 37 + (size_t)g->number * 101) % 1900 + 30);
    g->n = 0;
    if (g->start != NULL)
        pthread_barrier_wait(g->start);
    g->failed = npugraph_sequence_open(g->client, "bible", prompt, n, &open, &seq, NULL, &err) != 0 ||
                go_on(seq, N_TOKENS, g, &err) != 0;
    if (g->failed)
        fprintf(stderr, "generate: %s\n", err.message);
    npugraph_sequence_close(seq);
    return NULL;
}

static void compare_alone_and_together(struct npugraph_sampling how)
{
    struct generation alone[N_SEQUENCES] = {0}, together[N_SEQUENCES] = {0};
    pthread_t threads[N_SEQUENCES];
    struct npugraph_client *client;
    pthread_barrier_t start;
    struct live live;
    json_t *stats;

    live_start(&live, source_dir(), NULL);
    client = live_connect(&live, "test_batching");
    load_bundled(client);
    pthread_barrier_init(&start, NULL, N_SEQUENCES);
    for (int i = 0; i < N_SEQUENCES; i++) {
        alone[i] = (struct generation){.client = client, .how = how, .number = i};
        alone[i].how.seed += (uint64_t)i;
        generation_main(&alone[i]);
        ck_assert(!alone[i].failed);
        ck_assert_int_eq(alone[i].n, N_TOKENS);
    }
    for (int i = 0; i < N_SEQUENCES; i++) {
        together[i] = alone[i];
        together[i].start = &start;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, generation_main, &together[i]), 0);
    }
    for (int i = 0; i < N_SEQUENCES; i++) {
        pthread_join(threads[i], NULL);
        ck_assert(!together[i].failed);
        ck_assert_mem_eq(alone[i].tokens, together[i].tokens, sizeof(alone[i].tokens));
    }
    pthread_barrier_destroy(&start);
    stats = live_stats(client);
    ck_assert_ptr_nonnull(stats);
    json_decref(stats);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
}

START_TEST(greedy_tokens_alone_equal_those_beside_seven_others)
{
    compare_alone_and_together((struct npugraph_sampling){0});
}
END_TEST

START_TEST(seeded_samples_alone_equal_those_beside_seven_others)
{
    compare_alone_and_together(
        (struct npugraph_sampling){.temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .seed = 42});
}
END_TEST

START_TEST(one_generation_equals_two_halves_and_single_steps)
{
    struct npugraph_sampling how = {.temperature = 0.7f, .seed = 7};
    const struct npugraph_open_params open = {.sampling = &how};
    struct generation whole = {.how = how}, halves = {.how = how};
    int32_t prompt[] = {100, 200, 300}, single[16];
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    struct npugraph_client *client;
    struct npugraph_step step;
    struct live live;

    live_start(&live, source_dir(), NULL);
    client = live_connect(&live, "test_batching");
    load_bundled(client);
    ck_assert_int_eq(npugraph_sequence_open(client, "bible", prompt, 3, &open, &seq, NULL, &err), 0);
    ck_assert_int_eq(go_on(seq, 16, &whole, &err), 0);
    npugraph_sequence_close(seq);
    ck_assert_int_eq(npugraph_sequence_open(client, "bible", prompt, 3, &open, &seq, NULL, &err), 0);
    ck_assert_int_eq(go_on(seq, 7, &halves, &err), 0);
    ck_assert_int_eq(go_on(seq, 9, &halves, &err), 0);
    npugraph_sequence_close(seq);
    ck_assert_int_eq(npugraph_sequence_open(client, "bible", prompt, 3, &open, &seq, &step, &err), 0);
    single[0] = step.token;
    for (int i = 1; i < 16; i++) {
        ck_assert_msg(npugraph_sequence_step(seq, NULL, &step, &err) == 0, "%s", err.message);
        single[i] = step.token;
    }
    npugraph_sequence_close(seq);
    ck_assert_int_eq(halves.n, 16);
    ck_assert_mem_eq(whole.tokens, halves.tokens, 16 * sizeof(int32_t));
    ck_assert_mem_eq(whole.tokens, single, sizeof(single));
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
}
END_TEST

static bool count_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    (void)token;
    ck_assert_ptr_null(logprobs);
    ++*(uint32_t *)user;
    return true;
}

START_TEST(calls_without_params_take_the_defaults)
{
    const int32_t prompt[] = {100, 200, 300};
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    struct npugraph_client *client;
    struct npugraph_step first, step;
    enum npugraph_finish finish = NPUGRAPH_FINISH_CANCELLED;
    struct live live;
    uint32_t n = 0;

    live_start(&live, source_dir(), NULL);
    client = live_connect(&live, "test_batching");
    load_bundled(client);
    ck_assert_int_eq(npugraph_sequence_open(client, "bible", prompt, 3, NULL, &seq, &first, &err), 0);
    ck_assert_ptr_null(first.logits);
    ck_assert_msg(npugraph_sequence_step(seq, NULL, &step, &err) == 0, "%s", err.message);
    ck_assert_uint_eq(step.position, first.position + 1);
    ck_assert_msg(npugraph_sequence_generate(seq, NULL, count_token, &n, &finish, &err) == 0, "%s", err.message);
    ck_assert_msg(finish == NPUGRAPH_FINISH_STOP || finish == NPUGRAPH_FINISH_CONTEXT, "%d", (int)finish);
    ck_assert_uint_gt(n, 0);
    npugraph_sequence_close(seq);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
}
END_TEST

UNIT_MAIN("batching", greedy_tokens_alone_equal_those_beside_seven_others,
          seeded_samples_alone_equal_those_beside_seven_others, one_generation_equals_two_halves_and_single_steps,
          calls_without_params_take_the_defaults)
