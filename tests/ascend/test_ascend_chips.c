/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models through a live daemon whose device is the simulated NPU as a 910B of versions 8.1, 8.3 and 8.5, with all that
 * its tiling refuses, next to one whose device is the CPU: sequences with a common beginning at the same time,
 * prompts that do not fill their graph, and drafts.
 */
#include "client/hf/npugraph_hf.h"
#include "devices/ascend/sim/sim_op.h"
#include "tests/models/live.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SEQUENCES 6
#define STEPS     8
#define VOCAB     128
#define HIDDEN    64
#define HEADS     2
#define INNER     96
#define EXPERTS   6
#define CHOSEN    2   /* experts of a row */
#define COMMON    130 /* rows of all prompts: more than a block */
#define PROMPT    150

/* ---- a checkpoint ---------------------------------------------------------------------------------------- */

enum kind { PLAIN, INT8, INT4, MIXTURE, W8A8 };

struct checkpoint {
    const char *dtype;
    int64_t d; /* head dimension */
    int64_t kv_heads;
    enum kind kind;
    char dir[64];
    FILE *header, *data;
    uint64_t at;
    uint32_t seed;
};

static float any_value(struct checkpoint *k)
{
    k->seed = k->seed * 1664525u + 1013904223u;
    return (float)((int32_t)(k->seed >> 8) - (1 << 23)) / (float)(1 << 23);
}

static void begin_tensor(struct checkpoint *k, const char *name, const char *dtype, int64_t rows, int64_t columns,
                         uint64_t bytes)
{
    fprintf(k->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", k->at ? "," : "{", name, dtype, (long long)rows);
    if (columns)
        fprintf(k->header, ",%lld", (long long)columns);
    fprintf(k->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)k->at,
            (unsigned long long)(k->at + bytes));
    k->at += bytes;
}

static void put_half(struct checkpoint *k, float v)
{
    const uint16_t h = strcmp(k->dtype, "float16") == 0 ? sim_to_f16(v) : sim_to_bf16(v);

    fwrite(&h, sizeof(h), 1, k->data);
}

/* columns 0: a norm of ones. */
static void put_weight(struct checkpoint *k, const char *name, int64_t rows, int64_t columns)
{
    const int64_t n = rows * (columns ? columns : 1);

    begin_tensor(k, name, strcmp(k->dtype, "float16") == 0 ? "F16" : "BF16", rows, columns, (uint64_t)n * 2);
    for (int64_t i = 0; i < n; i++)
        put_half(k, columns ? any_value(k) * sqrtf(3.0f / (float)columns) : 1);
}

/* int8 with a scale for each row, or int4 with one for each 32 columns. */
static void put_quantised(struct checkpoint *k, const char *name, int64_t rows, int64_t columns)
{
    const int64_t bits = k->kind == INT4 ? 4 : 8, groups = k->kind == INT4 ? columns / 32 : 1;
    char tensor[128];

    snprintf(tensor, sizeof(tensor), "%s.%s", name, bits == 8 ? "weight" : "weight_packed");
    begin_tensor(k, tensor, bits == 8 ? "I8" : "I32", rows, bits == 8 ? columns : columns / 8,
                 (uint64_t)(rows * columns * bits / 8));
    for (int64_t i = 0; i < rows * columns * bits / 8; i++) {
        const int byte = (int)(any_value(k) * 127.0f);

        fputc(bits == 8 ? byte : (byte & 0xff), k->data);
    }
    snprintf(tensor, sizeof(tensor), "%s.weight_scale", name);
    begin_tensor(k, tensor, strcmp(k->dtype, "float16") == 0 ? "F16" : "BF16", rows, groups,
                 (uint64_t)(rows * groups) * 2);
    for (int64_t i = 0; i < rows * groups; i++)
        put_half(k, (1.5f + any_value(k)) * sqrtf(1.0f / (float)columns) / (bits == 8 ? 64 : 4));
}

static void put_linear(struct checkpoint *k, const char *name, int64_t rows, int64_t columns)
{
    char tensor[128];

    if (k->kind == INT8 || k->kind == INT4 || k->kind == W8A8) {
        put_quantised(k, name, rows, columns);
        return;
    }
    snprintf(tensor, sizeof(tensor), "%s.weight", name);
    put_weight(k, tensor, rows, columns);
}

static void put_experts(struct checkpoint *k, int layer)
{
    static const char *const names[] = {"w1", "w3", "w2"};
    char name[96];

    snprintf(name, sizeof(name), "model.layers.%d.block_sparse_moe.gate", layer);
    put_linear(k, name, EXPERTS, HIDDEN);
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof(name), "model.layers.%d.block_sparse_moe.experts.%d.%s", layer, e, names[i]);
            put_linear(k, name, i < 2 ? INNER : HIDDEN, i < 2 ? HIDDEN : INNER);
        }
    }
}

static void put_layer(struct checkpoint *k, int layer)
{
    const struct {
        const char *name;
        int64_t rows, columns;
    } weights[] = {
        {"input_layernorm", HIDDEN, 0},
        {"post_attention_layernorm", HIDDEN, 0},
        {"self_attn.q_proj", HEADS * k->d, HIDDEN},
        {"self_attn.k_proj", k->kv_heads * k->d, HIDDEN},
        {"self_attn.v_proj", k->kv_heads * k->d, HIDDEN},
        {"self_attn.o_proj", HIDDEN, HEADS * k->d},
        {"mlp.gate_proj", INNER, HIDDEN},
        {"mlp.up_proj", INNER, HIDDEN},
        {"mlp.down_proj", HIDDEN, INNER},
    };
    char name[96];

    for (size_t i = 0; i < (k->kind == MIXTURE ? 6 : sizeof(weights) / sizeof(weights[0])); i++) {
        snprintf(name, sizeof(name), "model.layers.%d.%s%s", layer, weights[i].name,
                 weights[i].columns ? "" : ".weight");
        if (weights[i].columns)
            put_linear(k, name, weights[i].rows, weights[i].columns);
        else
            put_weight(k, name, weights[i].rows, 0);
    }
    if (k->kind == MIXTURE)
        put_experts(k, layer);
}

/* What config.json says of the kind. */
static const char *kind_config(enum kind kind)
{
    switch (kind) {
    case INT8:
        return ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
               "\"ignore\":[\"lm_head\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{"
               "\"num_bits\":8,\"strategy\":\"channel\",\"symmetric\":true,\"type\":\"int\"}}}}";
    case W8A8:
        return ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
               "\"ignore\":[\"lm_head\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{"
               "\"num_bits\":8,\"strategy\":\"channel\",\"symmetric\":true,\"type\":\"int\"},\"input_activations\":{"
               "\"num_bits\":8,\"strategy\":\"token\",\"symmetric\":true,\"dynamic\":true,\"type\":\"int\"}}}}";
    case INT4:
        return ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
               "\"ignore\":[\"lm_head\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{"
               "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":32,\"symmetric\":true,\"type\":\"int\"}}}}";
    case MIXTURE:
        return ",\"num_local_experts\":6,\"num_experts_per_tok\":2";
    case PLAIN:
        break;
    }
    return "";
}

static void write_config(const struct checkpoint *k)
{
    char path[96];
    FILE *f;

    snprintf(path, sizeof(path), "%s/config.json", k->dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "{\"architectures\":[\"%sForCausalLM\"],\"model_type\":\"%s\",\"hidden_act\":\"silu\",\"head_dim\":%lld,"
            "\"hidden_size\":%d,\"intermediate_size\":%d,\"max_position_embeddings\":512,\"num_attention_heads\":%d,"
            "\"num_hidden_layers\":2,\"num_key_value_heads\":%lld,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
            "\"tie_word_embeddings\":true,\"torch_dtype\":\"%s\",\"vocab_size\":%d,\"bos_token_id\":1,"
            "\"eos_token_id\":2%s}\n",
            k->kind == MIXTURE ? "Mixtral" : "Llama", k->kind == MIXTURE ? "mixtral" : "llama", (long long)k->d, HIDDEN,
            INNER, HEADS, (long long)k->kv_heads, k->dtype, VOCAB, kind_config(k->kind));
    ck_assert_int_eq(fclose(f), 0);
}

static void checkpoint_open_kind(struct checkpoint *k, enum kind kind, const char *dtype, int64_t d, int64_t kv_heads)
{
    char *header = NULL, *data = NULL, path[96];
    size_t n_header, n_data;
    uint64_t n;
    FILE *f;

    *k = (struct checkpoint){
        .dtype = dtype, .d = d, .kv_heads = kv_heads, .kind = kind, .dir = "/tmp/ngd_chips_XXXXXX", .seed = 7};
    ck_assert_ptr_nonnull(mkdtemp(k->dir));
    write_config(k);
    k->header = open_memstream(&header, &n_header);
    k->data = open_memstream(&data, &n_data);
    put_weight(k, "model.embed_tokens.weight", VOCAB, HIDDEN);
    put_layer(k, 0);
    put_layer(k, 1);
    put_weight(k, "model.norm.weight", HIDDEN, 0);
    fprintf(k->header, "}");
    ck_assert_int_eq(fclose(k->header) | fclose(k->data), 0);
    snprintf(path, sizeof(path), "%s/model.safetensors", k->dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    n = n_header;
    fwrite(&n, sizeof(n), 1, f);
    fwrite(header, 1, n_header, f);
    fwrite(data, 1, n_data, f);
    ck_assert_int_eq(fclose(f), 0);
    free(header);
    free(data);
}

static void checkpoint_open(struct checkpoint *k, const char *dtype, int64_t d, int64_t kv_heads)
{
    checkpoint_open_kind(k, PLAIN, dtype, d, kv_heads);
}

static void checkpoint_close(const struct checkpoint *k)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[96];

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", k->dir, names[i]);
        unlink(path);
    }
    rmdir(k->dir);
}

/* ---- sequences -------------------------------------------------------------------------------------------- */

struct run {
    const struct live *live;
    const struct run *reference; /* NULL: this is it */
    int number;
    bool with_drafts;
    float margin; /* of what counts as decided, in ranges of the logits */
    char failure[1024];
    int32_t tokens[STEPS];
    float logits[STEPS][VOCAB];
    int decided, wrong;
};

static void compare(struct run *r, int step, int32_t token)
{
    const float *want = r->reference->logits[step];
    size_t best = 0, second = VOCAB;
    float low = want[0];

    for (size_t i = 0; i < VOCAB; i++) {
        best = want[i] > want[best] ? i : best;
        low = fminf(low, want[i]);
    }
    for (size_t i = 0; i < VOCAB; i++)
        if (i != best && (second == VOCAB || want[i] > want[second]))
            second = i;
    /* Where the CPU hardly prefers one token, another rounding may. */
    if (want[best] - want[second] > r->margin * (want[best] - low)) {
        r->decided++;
        r->wrong += token != (int32_t)best;
    }
}

static int run_steps(struct run *r, struct npugraph_sequence *seq, struct npugraph_step *step,
                     struct npugraph_error *err)
{
    for (int i = 0; i < STEPS; i++) {
        struct npugraph_step_params ask;

        npugraph_step_params_init(&ask);
        ask.want_logits = true;
        if (!r->reference) {
            r->tokens[i] = step->token;
            memcpy(r->logits[i], step->logits, sizeof(r->logits[i]));
        } else {
            compare(r, i, step->token);
        }
        ask.forced = r->reference ? r->reference->tokens[i] : step->token;
        if (r->with_drafts && i % 4 == 1 && i + 3 < STEPS) {
            ask.draft = &r->reference->tokens[i + 1];
            ask.n_draft = 2;
        }
        if (npugraph_sequence_step(seq, &ask, step, err))
            return -1;
        i += (int)step->accepted;
    }
    return 0;
}

static void *run_sequence(void *arg)
{
    struct run *r = arg;
    struct npugraph_client *client = live_connect(r->live, "test_ascend_chips");
    const struct npugraph_open_params open = {.want_logits = true};
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    struct npugraph_step step;
    int32_t prompt[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i < COMMON ? i * 37 % VOCAB : (i * 11 + r->number * 29) % VOCAB;
    if (npugraph_sequence_open(client, "model", prompt, PROMPT - (size_t)r->number % 7, &open, &seq, &step, &err) ||
        run_steps(r, seq, &step, &err))
        snprintf(r->failure, sizeof(r->failure), "%s", err.message);
    npugraph_sequence_close(seq);
    npugraph_disconnect(client);
    return NULL;
}

static void run_all(const struct live *live, const struct checkpoint *k, struct run *runs, const struct run *references)
{
    pthread_t threads[SEQUENCES];

    for (int i = 0; i < SEQUENCES; i++) {
        runs[i] = (struct run){.live = live,
                               .reference = references ? &references[i] : NULL,
                               .number = i,
                               /* Of i8 rows, each rounding elsewhere moves some numbers by a step of 1/127. */
                               .margin = k->kind == W8A8 ? 0.08f : 0.02f,
                               .with_drafts = references && i % 2};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_sequence, &runs[i]), 0);
    }
    for (int i = 0; i < SEQUENCES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SEQUENCES; i++)
        ck_assert_msg(!runs[i].failure[0], "sequence %d: %s", i, runs[i].failure);
}

static void serve(const char *device, const struct checkpoint *k, uint32_t block, struct run *runs,
                  const struct run *references)
{
    const char *top = getenv("top_builddir");
    struct npugraph_model_params params;
    struct npugraph_error err = {0};
    struct npugraph_client *client;
    char libs[1100], name[64];
    const char *extra[] = {name, libs, NULL};
    struct live live;

    snprintf(name, sizeof(name), "--device=%s", device);
    snprintf(libs, sizeof(libs), "--ascend-libs=%s/devices/ascend/sim/.libs", top && *top ? top : ".");
    live_start(&live, k->dir, extra);
    client = live_connect(&live, "test_ascend_chips");
    npugraph_model_params_init(&params);
    params.name = "model";
    params.max_context = 256;
    params.max_batch = SEQUENCES;
    params.prefill_chunk = 64;
    params.block_size = block;
    ck_assert_msg(npugraph_model_load(client, k->dir, &params, NULL, NULL, &err) == 0, "%s: %s", k->dir, err.message);
    run_all(&live, k, runs, references);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
}

static void serves_on_chips(enum kind kind, const char *dtype, int64_t d)
{
    static const char *const kinds[] = {"floats", "int8", "int4", "mixture", "w8a8"};
    static const struct {
        const char *soc, *api;
        uint32_t block;
    } chips[] = {{"Ascend910B4", "8.5", 128}, {"Ascend910B4", "8.3", 16}, {"Ascend910B4", "8.1", 128}};
    static struct run references[SEQUENCES], runs[SEQUENCES];
    /* Quantised weights and mixtures have the same attention, whose rules are those that differ. */
    const size_t n = kind == PLAIN ? effort(sizeof(chips) / sizeof(chips[0]), "chips and versions") : 1;
    struct checkpoint k;

    checkpoint_open_kind(&k, kind, dtype, d, 1);
    serve("host", &k, 16, references, NULL);
    for (size_t c = 0; c < n; c++) {
        int decided = 0, wrong = 0;

        setenv("NGD_ACLSIM_SOC", chips[c].soc, 1);
        setenv("NGD_ACLSIM_API", chips[c].api, 1);
        serve("ascend", &k, chips[c].block, runs, references);
        for (int i = 0; i < SEQUENCES; i++) {
            decided += runs[i].decided;
            wrong += runs[i].wrong;
        }
        printf("%s, %s, D %lld, %s, CANN %s, blocks of %u: %d of %d decided tokens are wrong\n", kinds[kind], dtype,
               (long long)d, chips[c].soc, chips[c].api, chips[c].block, wrong, decided);
        fflush(stdout);
        ck_assert_int_gt(decided, SEQUENCES * STEPS / (kind == W8A8 ? 5 : 2));
        ck_assert_int_eq(wrong, 0);
    }
    checkpoint_close(&k);
}

START_TEST(bf16_checkpoint_of_128_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(PLAIN, "bfloat16", 128);
}
END_TEST

START_TEST(f16_checkpoint_of_64_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(PLAIN, "float16", 64);
}
END_TEST

START_TEST(int8_checkpoint_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(INT8, "bfloat16", 128);
}
END_TEST

START_TEST(int4_checkpoint_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(INT4, "float16", 64);
}
END_TEST

START_TEST(w8a8_checkpoint_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(W8A8, "bfloat16", 128);
}
END_TEST

START_TEST(mixture_of_experts_says_on_a_910b_what_it_says_on_the_cpu)
{
    serves_on_chips(MIXTURE, "float16", 64);
}
END_TEST

/* ---- which devices are asked ------------------------------------------------------------------------------ */

static struct npugraph_client *start_with(struct live *live, const struct checkpoint *k, const char *a, const char *b)
{
    const char *top = getenv("top_builddir");
    char libs[1100];
    const char *extra[] = {libs, a, b, NULL};

    snprintf(libs, sizeof(libs), "--ascend-libs=%s/devices/ascend/sim/.libs", top && *top ? top : ".");
    live_start(live, k->dir, extra);
    return live_connect(live, "test_ascend_chips");
}

static struct npugraph_device find(struct npugraph_client *client, const char *name)
{
    struct npugraph_device device;
    struct npugraph_error err = {0};

    ck_assert_msg(npugraph_device_find(client, name, &device, &err) == 0, "%s", err.message);
    return device;
}

START_TEST(model_is_refused_on_a_310p_before_anything_is_allocated)
{
    struct npugraph_model_params params;
    struct npugraph_device device;
    struct npugraph_error err = {0};
    struct npugraph_client *client;
    struct checkpoint k;
    struct live live;

    checkpoint_open(&k, "float16", 64, 1);
    setenv("NGD_ACLSIM_SOC", "Ascend310P3", 1);
    setenv("NGD_ACLSIM_API", "8.5", 1);
    client = start_with(&live, &k, "--device=ascend", NULL);
    npugraph_model_params_init(&params);
    ck_assert_int_ne(npugraph_model_load(client, k.dir, &params, NULL, NULL, &err), 0);
    ck_assert_msg(strstr(err.message, "ascend:0 serves no paged decoder") && strstr(err.message, "A2 and A3"), "%s",
                  err.message);
    ck_assert_msg(npugraph_device_find(client, "ascend:0", &device, &err) == 0, "%s", err.message);
    ck_assert_uint_eq(device.used_bytes, 0);
    ck_assert_uint_eq(device.kv_block, 128);
    ck_assert_int_eq(npugraph_device_find(client, "ascend:7", &device, &err), 5);
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
    checkpoint_close(&k);
}
END_TEST

/* Whichever of them it is; the host's takes its part otherwise. */
START_TEST(all_devices_of_a_model_are_asked_before_anything_is_sent)
{
    static const char *const devices[][2] = {{"host:0", "ascend:0"}, {"ascend:0", "host:0"}};
    struct npugraph_client *client;
    struct checkpoint k;
    struct live live;

    checkpoint_open(&k, "float16", 64, 2);
    setenv("NGD_ACLSIM_SOC", "Ascend310P3", 1);
    setenv("NGD_ACLSIM_API", "8.5", 1);
    client = start_with(&live, &k, "--device=host", "--device=ascend");
    for (int i = 0; i < 2; i++) {
        struct npugraph_model_params params;
        struct npugraph_error err = {0};

        npugraph_model_params_init(&params);
        params.devices = devices[i];
        params.n_devices = 2;
        ck_assert_int_ne(npugraph_model_load(client, k.dir, &params, NULL, NULL, &err), 0);
        ck_assert_msg(strstr(err.message, "ascend:0 serves no paged decoder"), "%s", err.message);
        ck_assert_uint_eq(find(client, "host:0").used_bytes, 0);
        ck_assert_uint_eq(find(client, "ascend:0").used_bytes, 0);
    }
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
    checkpoint_close(&k);
}
END_TEST

static int load_named(struct npugraph_client *client, const struct checkpoint *k, const char *name,
                      struct npugraph_error *err)
{
    struct npugraph_model_params params;

    npugraph_model_params_init(&params);
    params.name = name;
    params.max_context = 256;
    params.max_batch = 1;
    params.prefill_chunk = 16;
    return npugraph_model_load(client, k->dir, &params, NULL, NULL, err);
}

static json_int_t of_model(struct npugraph_client *client, const char *name, const char *key)
{
    json_t *stats = live_stats(client), *model;
    json_int_t value = -1;
    size_t i;

    json_array_foreach(json_object_get(stats, "models"), i,
                       model) if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0) value =
        json_integer_value(json_object_get(model, key));
    json_decref(stats);
    return value;
}

/* The daemon's first healthy device: blocks have the rows that suit it, whichever it is now. */
START_TEST(load_without_a_device_asks_the_one_that_the_daemon_would_take)
{
    const int32_t prompt[3] = {1, 2, 3};
    struct npugraph_sequence *seq = NULL;
    struct npugraph_client *client;
    struct npugraph_error err = {0};
    struct npugraph_step step;
    struct checkpoint k;
    struct live live;

    checkpoint_open(&k, "float16", 64, 1);
    setenv("NGD_ACLSIM_SOC", "Ascend910B4", 1);
    setenv("NGD_ACLSIM_API", "8.5", 1);
    setenv("NGD_ACLSIM_LOSE", "0:0", 1);
    client = start_with(&live, &k, "--device=ascend", "--device=host");
    ck_assert_str_eq(find(client, NULL).name, "ascend:0");
    ck_assert_str_eq(find(client, "").name, "ascend:0");
    ck_assert_msg(load_named(client, &k, "first", &err) == 0, "%s", err.message);
    ck_assert_int_eq(of_model(client, "first", "kv_block_size"), 128);
    ck_assert_int_eq(of_model(client, "first", "kv_blocks"), 2); /* for a whole context, beside the one of padding */
    ck_assert_uint_eq(find(client, "host:0").used_bytes, 0);
    ck_assert_int_ne(npugraph_sequence_open(client, "first", prompt, 3, NULL, &seq, &step, &err), 0); /* it is lost */
    ck_assert_str_eq(find(client, NULL).name, "host:0");
    ck_assert_msg(load_named(client, &k, "second", &err) == 0, "%s", err.message);
    ck_assert_int_eq(of_model(client, "second", "kv_block_size"), 16);
    ck_assert_int_eq(of_model(client, "second", "kv_blocks"), 16);
    ck_assert_uint_gt(find(client, "host:0").used_bytes, 0);
    npugraph_disconnect(client);
    (void)live_stop(&live);
    unsetenv("NGD_ACLSIM_LOSE");
    checkpoint_close(&k);
}
END_TEST

/* A prompt graph of more rows than the cache has would be refused, though no prompt can be that long. */
START_TEST(slices_of_prompts_are_no_longer_than_the_context_or_the_cache)
{
    static const struct {
        uint32_t max_context, block_size;
        uint64_t kv_bytes;
        const char *refused; /* NULL: it loads */
    } cases[] = {{256, 128, 0, NULL}, {32, 16, 0, NULL}, {256, 16, 20 * 8192, NULL}, {256, 16, 8192, "keeps 1"}};
    struct npugraph_client *client;
    struct checkpoint k;
    struct live live;

    checkpoint_open(&k, "float16", 64, 1);
    setenv("NGD_ACLSIM_SOC", "Ascend910B4", 1);
    setenv("NGD_ACLSIM_API", "8.5", 1);
    client = start_with(&live, &k, "--device=ascend", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct npugraph_model_params params;
        struct npugraph_error err = {0};
        int rc;

        npugraph_model_params_init(&params);
        params.name = "small";
        params.max_batch = 1;
        params.prefill_chunk = 1024;
        params.max_context = cases[i].max_context;
        params.block_size = cases[i].block_size;
        params.kv_bytes = cases[i].kv_bytes;
        rc = npugraph_model_load(client, k.dir, &params, NULL, NULL, &err);
        if (!cases[i].refused) {
            ck_assert_msg(rc == 0, "case %zu: %s", i, err.message);
            ck_assert_int_eq(npugraph_model_unload(client, "small", false, &err), 0);
        } else {
            ck_assert_msg(rc != 0 && strstr(err.message, cases[i].refused) != NULL, "case %zu: %s", i, err.message);
        }
    }
    npugraph_disconnect(client);
    ck_assert_int_eq(live_stop(&live), 0);
    checkpoint_close(&k);
}
END_TEST

UNIT_MAIN("ascend/chips", bf16_checkpoint_of_128_says_on_a_910b_what_it_says_on_the_cpu,
          f16_checkpoint_of_64_says_on_a_910b_what_it_says_on_the_cpu,
          int8_checkpoint_says_on_a_910b_what_it_says_on_the_cpu,
          int4_checkpoint_says_on_a_910b_what_it_says_on_the_cpu,
          w8a8_checkpoint_says_on_a_910b_what_it_says_on_the_cpu,
          mixture_of_experts_says_on_a_910b_what_it_says_on_the_cpu,
          model_is_refused_on_a_310p_before_anything_is_allocated,
          all_devices_of_a_model_are_asked_before_anything_is_sent,
          load_without_a_device_asks_the_one_that_the_daemon_would_take,
          slices_of_prompts_are_no_longer_than_the_context_or_the_cache)
