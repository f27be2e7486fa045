/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embeddings of checkpoints in a live daemon, compared with hidden states of Hugging Face transformers
 * (tests/golden/make_embeddings.py): the last row's and the mean of all, with and without a head, in whole prompts and
 * in chunks, alone and among others.
 */
#include "client/hf/npugraph_hf.h"
#include "tests/models/live.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_OTHERS 6

enum form { WITH_HEAD, HEADLESS, MEAN };
static const char *const form_names[] = {"with head", "headless", "mean"};

/* ---- checkpoints with modules.json ---- */

static void spawn_tool(char *const *argv)
{
    int status;

    ck_assert_int_eq(posix_spawnp(&(pid_t){0}, argv[0], NULL, NULL, argv, NULL), 0);
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
}

static void write_text(const char *dir, const char *file, const char *text)
{
    char path[4400];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* Copies a checkpoint, and adds what sentence-transformers writes beside one. */
static void copy_with_mean(const char *from, const char *to)
{
    char path[4400], *const cp[] = {"cp", "-r", (char *)(uintptr_t)from, (char *)(uintptr_t)to, NULL};

    spawn_tool(cp);
    snprintf(path, sizeof(path), "%s/1_Pooling", to);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    write_text(
        to, "modules.json",
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
        " {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]");
    write_text(path, "config.json", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_lasttoken\": false}");
}

/* ---- numbers ---- */

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

/* The largest difference over the largest element. */
static double difference(const float *got, const float *want, size_t n)
{
    double most = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)got[i] - (double)want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    return most / largest;
}

/* ---- one model ---- */

static struct npugraph_embeddings *embed(struct npugraph_client *client, const char *model,
                                         const struct npugraph_prompt *prompts, size_t n)
{
    struct npugraph_embeddings *e = NULL;
    struct npugraph_error err = {0};

    ck_assert_msg(npugraph_embed(client, model, prompts, n, NULL, &e, &err) == 0, "%s: %s: %s", model, err.reason,
                  err.message);
    ck_assert_uint_eq(e->n, n);
    return e;
}

/* The prompt and others: its beginnings, backwards so that they share none, of several lengths. */
static struct npugraph_embeddings *embed_among_others(struct npugraph_client *client, const char *model,
                                                      const struct npugraph_prompt *prompt, size_t at)
{
    struct npugraph_prompt prompts[N_OTHERS];
    int32_t tokens[N_OTHERS][64];

    for (size_t i = 0; i < N_OTHERS; i++) {
        const size_t n = 1 + i * 7;

        ck_assert_uint_lt(n, prompt->n);
        for (size_t k = 0; k < n; k++)
            tokens[i][k] = prompt->tokens[prompt->n - 1 - k - i % 2];
        prompts[i] = (struct npugraph_prompt){tokens[i], n};
    }
    prompts[at] = *prompt;
    return embed(client, model, prompts, N_OTHERS);
}

static void load_form(struct npugraph_client *client, const char *checkpoint, const char *name, enum form form,
                      uint32_t chunk)
{
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = name;
    params.prefill_chunk = chunk;
    params.max_context = 128;
    params.max_batch = 4;
    params.embedding = form == HEADLESS;
    ck_assert_msg(npugraph_model_load(client, checkpoint, &params, NULL, NULL, &err) == 0, "%s: %s", checkpoint,
                  err.message);
}

static void check_listed(struct npugraph_client *client, const char *name, enum form form, size_t size)
{
    struct npugraph_models *models = NULL;
    struct npugraph_error err = {0};
    struct npugraph_sequence *seq = NULL;
    int rc;

    ck_assert_int_eq(npugraph_models_find(client, name, &models, &err), 0);
    ck_assert_uint_eq(models->items[0].embedding_size, size);
    ck_assert_int_eq(models->items[0].pooling, form == MEAN ? NPUGRAPH_POOLING_MEAN : NPUGRAPH_POOLING_LAST);
    ck_assert(!models->items[0].unit_embeddings);
    ck_assert_int_eq(models->items[0].no_generation, form != WITH_HEAD);
    npugraph_models_free(models);
    rc = npugraph_sequence_open(client, name, &(int32_t){1}, 1, NULL, &seq, NULL, &err);
    if (form == WITH_HEAD)
        ck_assert_msg(rc == 0, "%s", err.message);
    else
        ck_assert_str_eq(err.reason, "NO_GENERATION");
    npugraph_sequence_close(seq);
}

static void check_model(struct npugraph_client *client, const char *checkpoint, const char *name,
                        const struct tensors *expect, const char *rule, const float *want, size_t size, enum form form,
                        uint32_t chunk)
{
    struct npugraph_embeddings *alone, *among;
    struct npugraph_prompt prompt;
    struct npugraph_error err = {0};
    double off, angle;

    load_form(client, checkpoint, name, form, chunk);
    prompt.tokens = tensors_get(expect, "prompt", 4, &prompt.n);
    alone = embed(client, name, &prompt, 1);
    among = embed_among_others(client, name, &prompt, chunk % N_OTHERS);
    ck_assert_uint_eq(alone->size, size);
    ck_assert_mem_eq(alone->values, among->values + (chunk % N_OTHERS) * size, size * sizeof(float));
    off = difference(alone->values, want, size);
    angle = 1 - cosine(alone->values, want, size);
    printf("%-24s %-9s chunk %-2u max |difference| / max = %.1e, 1 - cosine = %.1e, together %u\n", name,
           form_names[form], chunk, off, angle, among->batch);
    fflush(stdout);
    if (strcmp(rule, "f32") == 0)
        ck_assert_msg(off <= 1e-4, "%s: differs by %.2e of the largest", name, off);
    ck_assert_msg(angle <= 1e-3, "%s: 1 - cosine is %.2e", name, angle);
    check_listed(client, name, form, size);
    npugraph_embeddings_free(alone);
    npugraph_embeddings_free(among);
    ck_assert_msg(npugraph_model_unload(client, name, false, &err) == 0, "%s", err.message); /* all blocks are free */
}

/* ---- all models ---- */

struct all {
    struct npugraph_client *client;
    char dir[32]; /* of copies */
    struct tensors golden;
    enum form form;
    uint32_t chunk;
};

/* Returns 1 if the reference has this model. */
static int check_row(struct all *all, const json_t *m)
{
    const char *name = json_string_value(json_object_get(m, "name"));
    char checkpoint[4200], expect[4200], copy[128];
    struct tensors t;
    const float *want;
    size_t n;

    if (json_object_get(all->golden.header, name) == NULL)
        return 0;
    snprintf(checkpoint, sizeof(checkpoint), "%s/tests/golden/%s", source_dir(),
             json_string_value(json_object_get(m, "checkpoint")));
    snprintf(expect, sizeof(expect), "%s/tests/golden/%s", source_dir(),
             json_string_value(json_object_get(m, "expect")));
    snprintf(copy, sizeof(copy), "%s/%s", all->dir, name);
    if (all->form == MEAN)
        copy_with_mean(checkpoint, copy);
    want = tensors_get(&all->golden, name, 4, &n);
    tensors_open(&t, expect);
    check_model(all->client, all->form == MEAN ? copy : checkpoint, name, &t,
                json_string_value(json_object_get(m, "rule")), want + (all->form == MEAN ? n / 2 : 0), n / 2, all->form,
                all->chunk);
    tensors_close(&t);
    return 1;
}

static void check_all(enum form form, uint32_t chunk)
{
    struct all all = {.dir = "/tmp/ngd-embed-XXXXXX", .form = form, .chunk = chunk};
    char path[4200], *const rm[] = {"rm", "-r", all.dir, NULL};
    json_t *manifest, *m;
    struct live live;
    int ran = 0;
    size_t i;

    ck_assert_ptr_nonnull(mkdtemp(all.dir));
    live_start(&live, form == MEAN ? all.dir : source_dir(), NULL);
    all.client = live_connect(&live, "test_embeddings");
    snprintf(path, sizeof(path), "%s/tests/golden/embeddings.safetensors", source_dir());
    tensors_open(&all.golden, path);
    snprintf(path, sizeof(path), "%s/tests/golden/manifest.json", source_dir());
    manifest = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(manifest);
    json_array_foreach(json_object_get(manifest, "models"), i, m) ran += check_row(&all, m);
    ck_assert_int_ge(ran, 30);
    json_decref(manifest);
    tensors_close(&all.golden);
    npugraph_disconnect(all.client);
    ck_assert_int_eq(live_stop(&live), 0);
    spawn_tool(rm);
}

START_TEST(hidden_states_of_last_rows_equal_those_of_transformers)
{
    check_all(WITH_HEAD, 64);
}
END_TEST

START_TEST(prompts_in_chunks_of_16_give_the_same_hidden_states)
{
    check_all(WITH_HEAD, 16);
}
END_TEST

START_TEST(models_without_their_heads_give_the_same_hidden_states)
{
    check_all(HEADLESS, 7);
}
END_TEST

START_TEST(means_of_hidden_states_equal_those_of_transformers)
{
    check_all(MEAN, 64);
}
END_TEST

START_TEST(means_of_prompts_in_chunks_of_7_are_the_same)
{
    check_all(MEAN, 7);
}
END_TEST

UNIT_MAIN("models/embeddings", hidden_states_of_last_rows_equal_those_of_transformers,
          prompts_in_chunks_of_16_give_the_same_hidden_states, models_without_their_heads_give_the_same_hidden_states,
          means_of_hidden_states_equal_those_of_transformers, means_of_prompts_in_chunks_of_7_are_the_same)
