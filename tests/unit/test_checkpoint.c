/* SPDX-License-Identifier: Apache-2.0 */
/* Tests config.json and the shard index: what is accepted, and what is refused with which reason. */
#include "client/hf/checkpoint.h"
#include "client/hf/column_order.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void put_file(const char *name, const char *text)
{
    char path[128];
    FILE *f;

    if (dir[0] == '\0') {
        snprintf(dir, sizeof(dir), "/tmp/npugraph-ckpt-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(dir));
    }
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void clean(void)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json",
                                        "OwnModel.lua", "npugraph.lua"};
    char path[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    dir[0] = '\0';
}

#define SIZES \
    "\"vocab_size\":100,\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":96"

static struct npugraph__checkpoint *read_config(const char *text, struct npugraph_error *err)
{
    struct npugraph__checkpoint *ck = NULL;

    put_file("config.json", text);
    (void)npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, &ck, err);
    clean();
    return ck;
}

static void expect_refused(const char *text, const char *reason, const char *mentions)
{
    struct npugraph_error err = {0};

    ck_assert_ptr_null(read_config(text, &err));
    ck_assert_msg(strcmp(err.reason, reason) == 0, "%s: %s, and not %s", err.reason, err.message, reason);
    ck_assert_msg(strstr(err.message, mentions) != NULL, "\"%s\" does not mention %s", err.message, mentions);
}

START_TEST(defaults_are_those_of_transformers)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck = read_config("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES "}", &err);

    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_uint_eq(ck->n_caches, 2);
    ck_assert_int_eq(ck->caches[0].heads, 4);
    ck_assert_int_eq(ck->caches[0].dim[0], 16);
    ck_assert_uint_eq(ck->weights.n, 2 * 9 + 3);
    ck_assert_ptr_nonnull(npugraph__weights_find(&ck->weights, "lm_head.weight"));
    ck_assert_uint_eq(ck->n_ropes, 1);
    ck_assert_int_eq(ck->ropes[0].kind, ROPE_DEFAULT);
    ck_assert_double_eq(ck->ropes[0].theta, 10000);
    ck_assert_int_eq(ck->positions, 2048);
    ck_assert_uint_eq(ck->n_stop, 0);
    npugraph__checkpoint_free(ck);
}
END_TEST

START_TEST(qwen3_has_heads_of_128_unless_its_config_says_so)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck = read_config("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES "}", &err);

    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_int_eq(ck->caches[0].dim[0], 128);
    npugraph__checkpoint_free(ck);
}
END_TEST

/* transformers 4.57 ties them whatever the file of weights has. */
START_TEST(tied_embeddings_are_the_head_and_an_epsilon_of_0_is_one)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck = read_config(
        "{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"tie_word_embeddings\":true,\"rms_norm_eps\":0}", &err);

    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_ptr_null(npugraph__weights_find(&ck->weights, "lm_head.weight"));
    npugraph__checkpoint_free(ck);
}
END_TEST

START_TEST(stop_tokens_come_from_the_generation_config_first)
{
    static const char config[] = "{\"architectures\":[\"Qwen3ForCausalLM\"],\"eos_token_id\":3," SIZES "}";
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck;

    put_file("generation_config.json", "{\"eos_token_id\":[7,8]}");
    ck = read_config(config, &err);
    ck_assert_ptr_nonnull(ck);
    ck_assert_uint_eq(ck->n_stop, 2);
    ck_assert_int_eq(ck->stop[0], 7);
    npugraph__checkpoint_free(ck);
    ck = read_config(config, &err);
    ck_assert_ptr_nonnull(ck);
    ck_assert_uint_eq(ck->n_stop, 1);
    ck_assert_int_eq(ck->stop[0], 3);
    npugraph__checkpoint_free(ck);
}
END_TEST

START_TEST(rope_settings_are_read_in_the_old_and_in_the_new_place)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *a = read_config(
        "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":"
        "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":32}}",
        &err);
    struct npugraph__checkpoint *b =
        read_config("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                    ",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":"
                    "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                    "\"original_max_position_embeddings\":32}}",
                    &err);

    ck_assert_msg(a != NULL && b != NULL, "%s", err.message);
    ck_assert_int_eq(a->ropes[0].kind, ROPE_LLAMA3);
    ck_assert_double_eq(a->ropes[0].theta, 500000);
    ck_assert_double_eq(a->ropes[0].original, 32);
    ck_assert_mem_eq(&a->ropes[0], &b->ropes[0], sizeof(a->ropes[0]));
    npugraph__checkpoint_free(a);
    npugraph__checkpoint_free(b);
}
END_TEST

/* transformers 5 has in rope_parameters what transformers 4 has at the top, and the factor decides there. */
START_TEST(longrope_has_the_same_tables_in_the_old_and_in_the_new_form)
{
    static const char *const configs[] = {
        ",\"max_position_embeddings\":131072,\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":"
        "\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,2],\"long_factor\":[4,4,4,4,4,4,4,4]}}",
        ",\"max_position_embeddings\":131072,\"rope_parameters\":{\"rope_type\":\"longrope\",\"factor\":32.0,"
        "\"original_max_position_embeddings\":4096,\"short_factor\":[1,1,1,1,1,1,1,2],"
        "\"long_factor\":[4,4,4,4,4,4,4,4]}}"};
    static const char *const families[] = {"LlamaForCausalLM", "Phi3ForCausalLM"};
    struct npugraph_error err = {0};
    char text[1000];

    for (int f = 0; f < 2; f++)
        for (int i = 0; i < 2; i++) {
            struct npugraph__checkpoint *ck;

            snprintf(text, sizeof(text), "{\"architectures\":[\"%s\"]," SIZES "%s", families[f], configs[i]);
            ck = read_config(text, &err);
            ck_assert_msg(ck != NULL, "%s", err.message);
            ck_assert_int_eq(ck->ropes[0].kind, ROPE_LONG);
            ck_assert_double_eq_tol(ck->ropes[0].scale, sqrt(1 + log(32) / log(4096)), 1e-12);
            ck_assert_double_eq(ck->ropes[0].factors[7], 2);
            ck_assert_int_eq(ck->positions, 4096);
            npugraph__checkpoint_free(ck);
        }
}
END_TEST

START_TEST(rotary_tables_hold_cosine_and_sine_of_position_times_frequency)
{
    struct npugraph__rope r = {.dim = 4, .theta = 10000, .scale = 1};
    float co[3 * 4], si[3 * 4];

    npugraph__rope_table(&r, 3, co, si);
    for (int pos = 0; pos < 3; pos++)
        for (int j = 0; j < 4; j++) {
            double angle = pos * pow(10000, -(double)(2 * (j % 2)) / 4);

            ck_assert_double_eq_tol((double)co[pos * 4 + j], cos(angle), 1e-6);
            ck_assert_double_eq_tol((double)si[pos * 4 + j], sin(angle), 1e-6);
        }
}
END_TEST

START_TEST(what_is_not_supported_is_refused_by_name)
{
    expect_refused("{\"architectures\":[\"GPT2LMHeadModel\"]," SIZES "}", "FILE_UNSUPPORTED", "GPT2LMHeadModel");
    expect_refused("{" SIZES "}", "FILE_UNSUPPORTED", "architectures");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"hidden_act\":\"relu\"}", "FILE_UNSUPPORTED",
                   "hidden_act");
    expect_refused("{\"architectures\":[\"SmolLM3ForCausalLM\"]," SIZES ",\"use_sliding_window\":true}",
                   "FILE_UNSUPPORTED", "use_sliding_window");
    expect_refused("{\"architectures\":[\"Gemma2ForCausalLM\"]," SIZES ",\"attn_logit_softcapping\":-2}",
                   "FILE_CORRUPT", "attn_logit_softcapping");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"rope_scaling\":{\"type\":\"spiral\"}}",
                   "FILE_UNSUPPORTED", "rope_scaling");
    expect_refused("{\"architectures\":[\"Gemma3ForCausalLM\"]," SIZES
                   ",\"layer_types\":[\"chunked_attention\",\"full_attention\"]}",
                   "FILE_UNSUPPORTED", "layer_types");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"quantization_config\":{}}",
                   "FILE_UNSUPPORTED", "quantization_config");
}
END_TEST

#define DEEPSEEK(version, fields)                                                                                    \
    "{\"architectures\":[\"DeepseekV" version "ForCausalLM\"]," SIZES ",\"kv_lora_rank\":24,\"qk_rope_head_dim\":8," \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":16" fields "}"

/* The cache of a layer is that of one head, whose values are as long as the turned part of a key. */
START_TEST(deepseek_has_a_latent_cache)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck = read_config(DEEPSEEK("2", ",\"q_lora_rank\":null"), &err);

    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_uint_eq(ck->n_caches, 2);
    ck_assert_int_eq(ck->caches[1].heads, 1);
    ck_assert_int_eq(ck->caches[1].dim[0], 24);
    ck_assert_int_eq(ck->caches[1].dim[1], 8);
    ck_assert_int_eq(ck->ropes[0].dim, 8);
    ck_assert_ptr_nonnull(npugraph__weights_find(&ck->weights, "model.layers.0.self_attn.q_proj.weight"));
    npugraph__checkpoint_free(ck);
    ck = read_config(DEEPSEEK("2", ""), &err); /* an absent rank is not null */
    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_int_eq(npugraph__weights_find(&ck->weights, "model.layers.0.self_attn.q_a_layernorm.weight")->shape[0],
                     1536);
    npugraph__checkpoint_free(ck);
    ck = read_config(DEEPSEEK("3", ",\"n_group\":2,\"topk_group\":1,\"first_k_dense_replace\":1"), &err);
    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_ptr_nonnull(npugraph__weights_find(&ck->weights, "model.layers.0.mlp.gate_proj.weight"));
    ck_assert_ptr_nonnull(npugraph__weights_find(&ck->weights, "model.layers.1.mlp.gate.e_score_correction_bias"));
    npugraph__checkpoint_free(ck);
}
END_TEST

/* The weight that latents are expanded with is not multiplied by rows of K, so it becomes floats. */
START_TEST(a_quantised_weight_of_a_latent_is_made_floats_once)
{
    struct npugraph_error err = {0};
    struct npugraph__checkpoint *ck =
        read_config(DEEPSEEK("2", ",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                                  "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}"),
                    &err);
    const char *const apart[] = {"weight", "weight_scale_inv"};
    struct ngd_strbuf text;

    ck_assert_msg(ck != NULL, "%s", err.message);
    ck_assert_uint_eq(ck->n_made, 2);
    ck_assert_str_eq(ck->made[1].label, "model.layers.1.self_attn.kv_b_proj.floats");
    for (int i = 0; i < 2; i++) {
        char name[96];
        const struct npugraph__weight *w;

        snprintf(name, sizeof(name), "model.layers.0.self_attn.kv_b_proj.%s", apart[i]);
        w = npugraph__weights_find(&ck->weights, name);
        ck_assert(w != NULL && w->apart);
        snprintf(name, sizeof(name), "model.layers.0.self_attn.o_proj.%s", apart[i]);
        w = npugraph__weights_find(&ck->weights, name);
        ck_assert(w != NULL && !w->apart);
    }
    snprintf(npugraph__weights_find(&ck->weights, "model.layers.1.self_attn.kv_a_layernorm.weight")->dtype, 16, "bf16");
    ngd_strbuf_init(&text);
    ck_assert_int_eq(npugraph__checkpoint_made_graph(ck, "m", &text, &err), 0);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&text), "state %model.layers.0.self_attn.kv_b_proj.floats : f32["));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&text), "state %model.layers.1.self_attn.kv_b_proj.floats : bf16["));
    ck_assert_ptr_null(strstr(ngd_strbuf_str(&text), "o_proj"));
    ngd_strbuf_fini(&text);
    npugraph__checkpoint_free(ck);
}
END_TEST

START_TEST(fields_of_deepseek_that_are_not_supported_are_refused)
{
    static const struct {
        const char *config, *reason, *field;
    } cases[] = {
        {DEEPSEEK("2", ",\"norm_topk_prob\":true"), "FILE_UNSUPPORTED", "norm_topk_prob"},
        {DEEPSEEK("2", ",\"topk_method\":\"noaux_tc\""), "FILE_UNSUPPORTED", "topk_method"},
        {DEEPSEEK("2", ",\"topk_method\":\"group_limited_greedy\""), "FILE_CORRUPT", "n_group"},
        {DEEPSEEK("2", ",\"topk_method\":\"group_limited_greedy\",\"n_group\":3,\"topk_group\":1"), "FILE_CORRUPT",
         "n_group"},
        {DEEPSEEK("2", ",\"topk_method\":\"group_limited_greedy\",\"n_group\":2,\"topk_group\":3"), "FILE_CORRUPT",
         "topk_group"},
        {DEEPSEEK("2", ",\"topk_method\":\"group_limited_greedy\",\"n_group\":8,\"topk_group\":1"), "FILE_CORRUPT",
         "num_experts_per_tok"},
        {DEEPSEEK("2", ",\"scoring_func\":\"sigmoid\""), "FILE_UNSUPPORTED", "scoring_func"},
        {DEEPSEEK("2", ",\"num_key_value_heads\":2"), "FILE_UNSUPPORTED", "num_key_value_heads"},
        {DEEPSEEK("2", ",\"mlp_bias\":true"), "FILE_UNSUPPORTED", "mlp_bias"},
        {DEEPSEEK("2", ",\"moe_layer_freq\":2"), "FILE_UNSUPPORTED", "moe_layer_freq"},
        {DEEPSEEK("2", ",\"first_k_dense_replace\":-1"), "FILE_CORRUPT", "first_k_dense_replace"},
        {DEEPSEEK("2", ",\"first_k_dense_replace\":0.5"), "FILE_CORRUPT", "first_k_dense_replace"},
        {DEEPSEEK("2", ",\"n_shared_experts\":null"), "FILE_UNSUPPORTED", "n_shared_experts"},
        {DEEPSEEK("2", ",\"n_routed_experts\":null"), "FILE_UNSUPPORTED", "n_routed_experts"},
        {DEEPSEEK("2", ",\"n_routed_experts\":257"), "FILE_UNSUPPORTED", "n_routed_experts"},
        {DEEPSEEK("2", ",\"kv_lora_rank\":0"), "FILE_CORRUPT", "kv_lora_rank"},
        {DEEPSEEK("2", ",\"v_head_dim\":2147483647"), "FILE_UNSUPPORTED", "v_head_dim is too large"},
        {DEEPSEEK("2", ",\"qk_nope_head_dim\":2147483647,\"v_head_dim\":1"), "FILE_UNSUPPORTED", "too large"},
        {DEEPSEEK("2", ",\"n_shared_experts\":2147483647"), "FILE_UNSUPPORTED", "n_shared_experts is too large"},
        {DEEPSEEK("2", ",\"q_lora_rank\":\"x\""), "FILE_CORRUPT", "q_lora_rank"},
        {DEEPSEEK("2", ",\"qk_rope_head_dim\":7"), "FILE_UNSUPPORTED", "qk_rope_head_dim"},
        {DEEPSEEK("2", ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale_all_dim\":\"1\"}"), "FILE_CORRUPT",
         "rope_scaling.mscale_all_dim"},
        {DEEPSEEK("2", ",\"kv_lora_rank\":8193,\"quantization_config\":{\"quant_method\":\"fp8\","
                       "\"weight_block_size\":[128,128]}"),
         "FILE_UNSUPPORTED", "quantization_config has model.layers.0.self_attn.kv_b_proj"},
        {DEEPSEEK("3", ""), "FILE_CORRUPT", "n_group"}, /* eight groups of one expert */
        {DEEPSEEK("3", ",\"n_group\":2,\"topk_group\":1,\"topk_method\":\"greedy\""), "FILE_UNSUPPORTED",
         "topk_method"},
        {DEEPSEEK("3", ",\"n_group\":2,\"topk_group\":1,\"rope_interleave\":1"), "FILE_CORRUPT", "rope_interleave"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(cases[i].config, cases[i].reason, cases[i].field);
}
END_TEST

/* Says how a Qwen3 with this `quantization_config` is refused; weights and more are appended to one that is right. */
static void expect_quantised_refused(const char *format_and_ignore, const char *weights, const char *group,
                                     uint32_t ranks, const char *says)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};
    char config[2048];
    int n = snprintf(config, sizeof(config),
                     "{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES
                     ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",%s,\"config_groups\":"
                     "{\"group_0\":{\"targets\":[\"Linear\"]%s,\"weights\":{\"type\":\"int\",%s}}}}}",
                     format_and_ignore, group, weights);
    int rc = npugraph__checkpoint_parse(config, (size_t)n, ranks, &ck, &err);

    if (says == NULL) {
        ck_assert_msg(rc == 0, "%s", err.message);
        npugraph__checkpoint_free(ck);
        return;
    }
    ck_assert_msg(rc != 0, "%s is taken", config);
    ck_assert_msg(strstr(err.message, "quantization_config") != NULL && strstr(err.message, says) != NULL,
                  "\"%s\" does not say \"%s\"", err.message, says);
}

START_TEST(quantised_weights_that_are_not_supported_are_refused_with_their_field)
{
#define INT8           "\"format\":\"int-quantized\",\"ignore\":[\"lm_head\"]"
#define TEN            "\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\",\"re:a\","
#define INT8_BUT       "\"format\":\"int-quantized\",\"ignore\":[\"lm_head\","
#define INPUTS(fields) ",\"input_activations\":{" fields "}"
#define INT4           "\"format\":\"pack-quantized\",\"ignore\":[\"lm_head\"]"
    static const struct {
        const char *format, *weights, *group;
        uint32_t ranks;
        const char *says; /* NULL: it is taken */
    } cases[] = {
        {INT8, "\"num_bits\":8,\"strategy\":\"channel\"", "", 1, NULL},
        {INT8, "\"num_bits\":8,\"strategy\":\"tensor\",\"actorder\":\"static\"", "", 1, NULL},
        {INT4, "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":32", "", 1, NULL},
        {INT4, "\"num_bits\":8,\"symmetric\":false", "", 1, NULL},
        {INT8, "\"num_bits\":8,\"symmetric\":false", "", 1, NULL},
        {INT4, "\"num_bits\":2", "", 1, "num_bits must be 4 or 8"},
        {INT8, "\"num_bits\":4", "", 1, "num_bits must be 8"},
        {INT8, "\"num_bits\":8,\"symmetric\":false,\"strategy\":\"tensor\"", "", 1, "symmetric is false"},
        {INT8, "\"num_bits\":8,\"dynamic\":true", "", 1, "dynamic is true"},
        {INT4, "\"num_bits\":4,\"actorder\":\"group\"", "", 1, "actorder is group: that needs the strategy group"},
        {INT4, "\"num_bits\":4,\"actorder\":\"random\"", "", 1, "actorder must be"},
        {INT4, "\"num_bits\":4,\"actorder\":\"group\",\"strategy\":\"group\",\"group_size\":32", "", 1, NULL},
        {INT8, "\"num_bits\":8,\"actorder\":\"dynamic\",\"strategy\":\"group\",\"group_size\":32", "", 1,
         "actorder is dynamic: that needs"},
        {INT4, "\"num_bits\":4,\"strategy\":\"block\"", "", 1, "strategy must be"},
        {INT4, "\"num_bits\":4,\"strategy\":\"group\"", "", 1, "group_size is missing"},
        {INT4, "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":48", "", 1, "multiple of 32"},
        {INT4, "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":1048576", "", 1, "which must divide the"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"dynamic\":true,\"strategy\":\"token\""), 1, NULL},
        {INT8, "\"num_bits\":8,\"strategy\":\"tensor\"",
         INPUTS("\"num_bits\":8,\"dynamic\":true,\"strategy\":\"token\""), 1, NULL},
        {INT8, "\"num_bits\":8", ",\"input_activations\":null", 1, NULL},
        {INT8, "\"num_bits\":8", ",\"input_activations\":8", 1, "input_activations must be an object"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":4,\"dynamic\":true"), 1, "input_activations.num_bits must be 8"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"strategy\":\"tensor\""), 2, NULL},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"strategy\":\"channel\""), 1,
         "input_activations.strategy must be tensor"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"dynamic\":true,\"symmetric\":false"), 1,
         "input_activations.symmetric is false"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"dynamic\":true,\"strategy\":\"tensor\""), 1,
         "input_activations.strategy must be token"},
        {INT8, "\"num_bits\":8", INPUTS("\"num_bits\":8,\"dynamic\":true,\"type\":\"float\""), 1,
         "input_activations.type must be int"},
        {INT4, "\"num_bits\":4", INPUTS("\"num_bits\":8,\"dynamic\":true,\"strategy\":\"token\""), 1,
         "it needs symmetric i8 weights"},
        {INT8, "\"num_bits\":8,\"strategy\":\"group\",\"group_size\":32", INPUTS("\"num_bits\":8,\"dynamic\":true"), 1,
         "it needs symmetric i8 weights"},
        {INT8, "\"num_bits\":8", ",\"weights\":{\"num_bits\":8}},\"group_1\":{\"targets\":[]", 1, "group_1 is set"},
        {"\"format\":\"marlin-24\"", "\"num_bits\":8", "", 1,
         "must be int-quantized, pack-quantized or float-quantized"},
        {"\"format\":\"float-quantized\"", "\"num_bits\":8", "", 1, "weights.type must be float"},
        {"\"format\":\"int-quantized\"", "\"num_bits\":8", "", 1, "must have lm_head"},
        {"\"format\":\"int-quantized\",\"ignore\":[\"re:.*gate\"]", "\"num_bits\":8", "", 1, "must have lm_head"},
        {"\"format\":\"int-quantized\",\"ignore\":[\"re:^lm_h.*d$\"]", "\"num_bits\":8", "", 1, NULL},
        {"\"format\":\"int-quantized\",\"ignore\":[\"re:lm_h$\"]", "\"num_bits\":8", "", 1, "must have lm_head"},
        {INT8_BUT "\"re:.*(gate|up)\"]", "\"num_bits\":8", "", 1, "has the pattern .*(gate|up)"},
        {INT8_BUT "\"re:a+\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8_BUT TEN TEN "\"x\"]", "\"num_bits\":8", "", 1, "has more than 16 patterns"},
        {INT8_BUT "\"re:a*\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8_BUT "\"re:.*?\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8_BUT "\"re:\\\\d\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8_BUT "\"re:a$b\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8_BUT "\"re:\\\\\"]", "\"num_bits\":8", "", 1, "has the pattern"},
        {INT8 ",\"transform_config\":{}", "\"num_bits\":8", "", 1, NULL},
        {INT8 ",\"transform_config\":{\"config_groups\":{}}", "\"num_bits\":8", "", 1, "transform_config is set"},
        {INT8 ",\"kv_cache_scheme\":{}", "\"num_bits\":8", "", 1, "kv_cache_scheme is set"},
        {INT8 ",\"sparsity_config\":{\"format\":\"marlin\"}", "\"num_bits\":8", "", 1, "sparsity_config.format"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_quantised_refused(cases[i].format, cases[i].weights, cases[i].group, cases[i].ranks, cases[i].says);
}
END_TEST

/* Returns how many tensors with this ending a Qwen3 with this quantization_config has; err says why it is refused. */
static size_t count_packed(const char *quantisation, uint32_t ranks, const char *ending, struct npugraph_error *err)
{
    struct npugraph__checkpoint *ck = NULL;
    char config[2048];
    size_t found = 0,
           n = (size_t)snprintf(config, sizeof(config),
                                "{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"quantization_config\":{%s}}",
                                quantisation);

    *err = (struct npugraph_error){0};
    if (npugraph__checkpoint_parse(config, n, ranks, &ck, err) != 0)
        return 0;
    for (size_t i = 0; i < ck->weights.n; i++) {
        const char *name = ck->weights.items[i].name;

        found += strlen(name) > strlen(ending) && strcmp(name + strlen(name) - strlen(ending), ending) == 0;
    }
    npugraph__checkpoint_free(ck);
    return found;
}

START_TEST(gptq_and_awq_are_taken_or_refused_with_their_field)
{
#define GPTQ "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32"
#define AWQ  "\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32"
    static const struct {
        const char *config;
        uint32_t ranks;
        size_t weights, zeros; /* of two layers of seven linears */
        const char *says;      /* NULL: it is taken */
    } cases[] = {
        {GPTQ, 1, 14, 0, NULL},
        {GPTQ, 2, 0, 0, "group_size is 32, which must divide the 48 columns of model.layers.0.mlp.down_proj"},
        {GPTQ ",\"sym\":false,\"checkpoint_format\":\"gptq_v2\"", 1, 14, 14, NULL},
        {GPTQ ",\"sym\":false,\"dynamic\":{\"-:.*mlp\":{}}", 1, 8, 8, NULL},
        {GPTQ ",\"modules_in_block_to_quantize\":[[\"mlp.up_proj\"],[]]", 1, 2, 0, NULL},
        {GPTQ ",\"modules_in_block_to_quantize\":[\"mlp.up_proj\"]", 1, 2, 0, NULL},
        {"\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":true", 1, 14, 0, NULL},
        {"\"quant_method\":\"gptq\"", 1, 0, 0, "bits is missing"},
        {"\"quant_method\":\"gptq\",\"bits\":3", 1, 0, 0, "bits must be 4 or 8"},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":16", 1, 0, 0, "group_size must be -1 or a multiple"},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0", 1, 0, 0, "group_size must be -1 or a multiple"},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":1e300", 1, 0, 0, "group_size must be -1 or a multiple"},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32.5", 1, 0, 0, "group_size must be -1 or a multiple"},
        {"\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":\"32\"", 1, 0, 0, "group_size must be a number"},
        {"\"quant_method\":\"gptq\",\"bits\":4", 1, 0, 0, "group_size is 128, which must divide the 64 columns"},
        {GPTQ ",\"desc_act\":true", 1, 14, 0, NULL},
        {GPTQ ",\"checkpoint_format\":\"marlin\"", 1, 0, 0, "checkpoint_format must be gptq or gptq_v2"},
        {GPTQ ",\"is_marlin_format\":true", 1, 0, 0, "is_marlin_format is true"},
        {GPTQ ",\"pack_dtype\":\"int16\"", 1, 0, 0, "pack_dtype must be int32"},
        {GPTQ ",\"lm_head\":true", 1, 0, 0, "lm_head is true"},
        {GPTQ ",\"block_name_to_quantize\":\"transformer.h\"", 1, 0, 0, "block_name_to_quantize must be"},
        {GPTQ ",\"dynamic\":{\"+:.*mlp\":{\"bits\":8}}", 1, 0, 0, "dynamic has +:.*mlp"},
        {GPTQ ",\"dynamic\":{\"-:.*(up|down)\":{}}", 1, 0, 0, "dynamic has the pattern"},
        {GPTQ ",\"dynamic\":[]", 1, 0, 0, "dynamic must be an object"},
        {GPTQ ",\"modules_in_block_to_quantize\":[[[]]]", 1, 0, 0, "must be a list of"},
        {GPTQ ",\"modules_in_block_to_quantize\":[[1]]", 1, 0, 0, "must have lists of names"},
        {AWQ, 1, 14, 14, NULL},
        {"\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\"", 1, 0, 0,
         "group_size is 64, which must divide the 96 columns"},
        {AWQ ",\"modules_to_not_convert\":[\"self_attn\",\"0.mlp\"]", 1, 3, 3, NULL},
        {AWQ ",\"modules_to_not_convert\":[\"\"]", 1, 0, 0, "modules_to_not_convert must be a list of names"},
        {AWQ ",\"modules_to_not_convert\":[3]", 1, 0, 0, "modules_to_not_convert must be a list of names"},
        {AWQ ",\"version\":\"gemv\"", 1, 0, 0, "version must be gemm"},
        {AWQ ",\"backend\":\"llm-awq\"", 1, 0, 0, "backend must be autoawq"},
        {AWQ ",\"zero_point\":false", 1, 0, 0, "zero_point is false"},
        {"\"quant_method\":\"awq\",\"bits\":8", 1, 0, 0, "bits must be 4"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct npugraph_error err;

        ck_assert_msg(count_packed(cases[i].config, cases[i].ranks, ".qweight", &err) == cases[i].weights, "%s: %s",
                      cases[i].config, err.message);
        ck_assert_uint_eq(count_packed(cases[i].config, cases[i].ranks, ".qzeros", &err), cases[i].zeros);
        ck_assert_msg(cases[i].says ? strstr(err.message, cases[i].says) && strstr(err.message, "quantization_config.")
                                    : err.code == 0,
                      "%s: \"%s\" does not say \"%s\"", cases[i].config, err.message, cases[i].says);
    }
}
END_TEST

START_TEST(columns_are_ordered_by_their_groups_or_the_first_is_named_that_is_in_none)
{
    static const struct {
        int32_t index[6];
        size_t n, group;
        enum npugraph__order is;
        int32_t order[6]; /* of OTHER */
        size_t at;        /* of WRONG */
    } cases[] = {
        {{0, 0, 1, 1, 2, 2}, 6, 2, NPUGRAPH__ORDER_SAME, {0}, 0},
        {{-1, -1, -1}, 3, 3, NPUGRAPH__ORDER_SAME, {0}, 0},
        {{0}, 1, 1, NPUGRAPH__ORDER_SAME, {0}, 0},
        {{1, 0, 2, 2, 0, 1}, 6, 2, NPUGRAPH__ORDER_OTHER, {1, 4, 0, 5, 2, 3}, 0},
        {{2, 0, 1}, 3, 1, NPUGRAPH__ORDER_OTHER, {1, 2, 0}, 0},
        {{0, 0, 0, 1, 1, 1}, 6, 2, NPUGRAPH__ORDER_WRONG, {0}, 2},
        {{0, 1, 1, 0, 0, 1}, 6, 2, NPUGRAPH__ORDER_WRONG, {0}, 4},
        {{0, 1, 3, 0, 2, 2}, 6, 2, NPUGRAPH__ORDER_WRONG, {0}, 2},
        {{0, -1, 1, 1}, 4, 2, NPUGRAPH__ORDER_WRONG, {0}, 1},
        {{-1, -1, 0}, 3, 3, NPUGRAPH__ORDER_WRONG, {0}, 0},
        {{INT32_MAX, 0}, 2, 1, NPUGRAPH__ORDER_WRONG, {0}, 0},
        {{INT32_MIN, 0}, 2, 1, NPUGRAPH__ORDER_WRONG, {0}, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t n = cases[i].n, room = n + n / cases[i].group;
        int32_t *order = calloc(room, sizeof(*order));
        size_t at = SIZE_MAX;

        ck_assert_int_eq(npugraph__column_order(cases[i].index, n, cases[i].group, order, &at), cases[i].is);
        ck_assert_uint_eq(at, cases[i].is == NPUGRAPH__ORDER_WRONG ? cases[i].at : SIZE_MAX);
        if (cases[i].is == NPUGRAPH__ORDER_OTHER)
            ck_assert_mem_eq(order, cases[i].order, n * sizeof(*order));
        free(order);
    }
}
END_TEST

#define MOE                                               \
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"]," SIZES \
    ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
#define GPT_OSS "{\"architectures\":[\"GptOssForCausalLM\"]," SIZES ",\"num_local_experts\":4"
#define MXFP4   ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}"
#define QUANT_EXPERTS(ignore)                                                                                       \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"ignore\":"   \
    "[" ignore "\"lm_head\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4," \
    "\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32}}}}"

START_TEST(experts_may_be_quantised_all_of_a_layer_or_none)
{
    static const struct {
        const char *config;
        size_t weights;
    } taken[] = {
        {MOE "}", 2 * (2 + 6 + 1 + 12) + 3},
        {MOE QUANT_EXPERTS("") "}", 2 * (2 + 4 * 2 + 2 + 1 + 12 * 2) + 3},
        {MOE QUANT_EXPERTS("\"re:.*layers.0.mlp.experts\",") "}", 2 * (2 + 4 * 2 + 2 + 1) + 12 + 12 * 2 + 3},
        {GPT_OSS "}", 2 * (2 + 4 * 2 + 1 + 2 + 4) + 3},
        {GPT_OSS MXFP4 "}", 2 * (2 + 4 * 2 + 1 + 2 + 6) + 3},
    };
    struct npugraph_error err = {0};

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct npugraph__checkpoint *ck = read_config(taken[i].config, &err);

        ck_assert_msg(ck != NULL, "%s: %s", taken[i].config, err.message);
        ck_assert_uint_eq(ck->weights.n, taken[i].weights);
        npugraph__checkpoint_free(ck);
    }
    expect_refused(MOE QUANT_EXPERTS("\"model.layers.1.mlp.experts.2.up_proj\",") "}", "FILE_UNSUPPORTED",
                   "quantization_config must quantise all experts");
    expect_refused(MOE QUANT_EXPERTS("\"model.layers.1.mlp.experts.0.up_proj\",") "}", "FILE_UNSUPPORTED",
                   "quantization_config must quantise all experts");
    expect_refused(MOE ",\"num_experts\":257}", "FILE_UNSUPPORTED", "num_experts is larger than 256");
    expect_refused(MOE MXFP4 "}", "FILE_UNSUPPORTED", "quant_method must be compressed-tensors, fp8, gptq or awq");
    expect_refused(GPT_OSS ",\"hidden_size\":80" MXFP4 "}", "FILE_UNSUPPORTED", "must be multiples of 32");
    expect_refused(GPT_OSS ",\"swiglu_limit\":0}", "FILE_CORRUPT", "swiglu_limit must be positive");
    expect_refused(GPT_OSS ",\"hidden_act\":\"gelu\"}", "FILE_UNSUPPORTED", "hidden_act must be silu");
}
END_TEST

START_TEST(values_that_contradict_each_other_are_refused)
{
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]}", "FILE_CORRUPT", "vocab_size is missing");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"num_key_value_heads\":3}", "FILE_CORRUPT",
                   "multiple");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"head_dim\":-2}", "FILE_CORRUPT", "head_dim");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"rms_norm_eps\":-1}", "FILE_CORRUPT",
                   "rms_norm_eps");
    expect_refused("[]", "FILE_CORRUPT", "object");
    expect_refused("{", "FILE_CORRUPT", "config.json");
}
END_TEST

START_TEST(a_directory_without_a_config_says_which_file_is_missing)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    ck_assert_int_ne(npugraph__checkpoint_read("/nonexistent", &(struct npugraph__purpose){.ranks = 1}, &ck, &err), 0);
    ck_assert_str_eq(err.reason, "FILE_NOT_FOUND");
    ck_assert_ptr_nonnull(strstr(err.message, "/nonexistent/config.json"));
}
END_TEST

/* A family of two weights, in a directory of the user's own. */
static const char small_family[] = "vocab, hidden, layers, positions = 10, 4, 1, 16\n"
                                   "function build()\n"
                                   "  weight('model.embed_tokens.weight', vocab, hidden)\n"
                                   "  weight('model.norm.weight', hidden)\n"
                                   "  cache(1, 2)\n"
                                   "  return '%logits'\n"
                                   "end\n";

static int read_own(const char *family, const char *config, struct npugraph__checkpoint **ck_p,
                    struct npugraph_error *err)
{
    int rc;

    put_file("OwnModel.lua", family);
    setenv("NPUGRAPH_FAMILIES", dir, 1);
    if (config == NULL)
        rc = npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, ck_p, err);
    else
        rc = npugraph__checkpoint_parse(config, strlen(config), 1, ck_p, err);
    unsetenv("NPUGRAPH_FAMILIES");
    return rc;
}

START_TEST(shards_come_from_the_index_and_a_gap_in_it_names_the_tensor)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    put_file("config.json", "{\"architectures\":[\"OwnModel\"]}");
    put_file(
        "model.safetensors.index.json",
        "{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\",\"model.norm.weight\":\"b.safetensors\"}}");
    ck_assert_msg(read_own(small_family, NULL, &ck, &err) == 0, "%s", err.message);
    ck_assert_uint_eq(ck->weights.n, 2);
    ck_assert_uint_eq(ck->weights.n_files, 2);
    ck_assert_str_eq(npugraph__weights_find(&ck->weights, "model.norm.weight")->file, "b.safetensors");
    npugraph__checkpoint_free(ck);
    put_file("model.safetensors.index.json", "{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\"}}");
    ck_assert_int_ne(read_own(small_family, NULL, &ck, &err), 0);
    ck_assert_str_eq(err.reason, "TENSOR_MISSING");
    put_file("model.safetensors.index.json",
             "{\"weight_map\":{\"model.embed_tokens.weight\":\"../a\",\"model.norm.weight\":\"b\"}}");
    ck_assert_int_ne(read_own(small_family, NULL, &ck, &err), 0);
    ck_assert_str_eq(err.reason, "FILE_CORRUPT");
    clean();
}
END_TEST

/* It counts before the family of the architecture, and graphs are written without its directory. */
START_TEST(a_checkpoint_may_have_a_family_of_its_own)
{
    static const char other[] = "vocab, hidden, layers, positions = 10, 4, 1, 16\n"
                                "function build()\n"
                                "  weight('other.weight', vocab, hidden)\n"
                                "  local keys, values = cache(1, 2)\n"
                                "  local cos, sin = rope('turn', 4, {kind = 'given', factors = {0.5, 0.25}})\n"
                                "  emit('  %logits = aten.linear(%x, %other.weight)\\n')\n"
                                "  return '%logits'\n"
                                "end\n";
    const struct npugraph__shape shape = {.max_context = 16,
                                          .block_size = 4,
                                          .num_blocks = 8,
                                          .table_blocks = 4,
                                          .max_batch = 2,
                                          .prefill_chunk = 8,
                                          .prefill_seqs = 1,
                                          .kv_dtype = "f32"};
    float cosines[4 * 2], sines[4 * 2];
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};
    struct ngd_strbuf text;

    put_file("config.json", "{\"architectures\":[\"OwnModel\"]}");
    put_file("npugraph.lua", other);
    ck_assert_msg(read_own(small_family, NULL, &ck, &err) == 0, "%s", err.message);
    clean();
    ck_assert_uint_eq(ck->weights.n, 1);
    ngd_strbuf_init(&text);
    ck_assert_msg(npugraph__checkpoint_graph(ck, &shape, "m", false, &text, &err) == 0, "%s", err.message);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&text), "aten.linear(%x, %other.weight)"));
    ngd_strbuf_fini(&text);
    npugraph__rope_table(&ck->ropes[0], 2, cosines, sines);
    ck_assert_float_eq(sines[4], sinf(0.5f));
    ck_assert_float_eq(sines[5], sinf(0.25f));
    ck_assert_float_eq(cosines[6], cosf(0.5f));
    npugraph__checkpoint_free(ck);
}
END_TEST

START_TEST(an_own_family_is_a_file_of_bounded_size_that_is_told_by_its_name)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};
    char path[128];

    put_file("config.json", "{\"architectures\":[\"OwnModel\"]}");
    put_file("npugraph.lua", "vocab = 1\nhidden = vocabulary\n");
    ck_assert_int_ne(read_own(small_family, NULL, &ck, &err), 0);
    ck_assert_str_eq(err.reason, "FILE_CORRUPT");
    ck_assert_ptr_nonnull(strstr(err.message, "npugraph.lua:2: unknown variable vocabulary"));
    snprintf(path, sizeof(path), "%s/npugraph.lua", dir);
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_ne(read_own(small_family, NULL, &ck, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "npugraph.lua: is not a regular file"));
    rmdir(path);
    ck_assert_ptr_null(ck);
    clean();
}
END_TEST

static void expect_invalid(const char *family, const char *mentions)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    ck_assert_int_ne(read_own(family, "{\"architectures\":[\"OwnModel\"],\"rope\":{\"theta\":null}}", &ck, &err), 0);
    ck_assert_msg(strstr(err.message, mentions) != NULL, "\"%s\" does not mention %s", err.message, mentions);
    ck_assert_ptr_null(ck);
    clean();
}

START_TEST(mistakes_of_a_family_are_told_with_their_line)
{
    expect_invalid("vocab = 1\nhidden = vocabulary\n", "OwnModel.lua:2: unknown variable vocabulary");
    expect_invalid("vocab = (1\n", "OwnModel.lua:2:");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 1, 1\n", "unknown variable build");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 0, 1\n", "sets no layers");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 1, 1\nfunction build() end\n", "the logits");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 1, 1\nfunction build() weight('w', 0) end\n",
                   "OwnModel.lua:2: bad argument #2");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 1, 1\nfunction build() return '%x' end\n", "no weights");
    expect_invalid("vocab, hidden, layers, positions = 1, 1, 1, 1\nfunction build() weight('w', 1) return '%x' end\n",
                   "no caches");
    expect_invalid("error()\n", "no text");
    expect_invalid("error({})\n", "no text");
    expect_invalid("error(12.5)\n", "no text");
    expect_invalid("include 'OwnModel'\n", "include");
    expect_invalid("include '../decoder'\n", "there is no family ../decoder");
    expect_invalid("assert(given 'rope.theta' and not has 'rope.theta' and not given 'rope.x', 'dots')\nerror 'good'\n",
                   "good");
}
END_TEST

START_TEST(families_have_bounds_and_nothing_to_reach_the_machine_with)
{
    static const char *const absent[] = {"io",    "os",    "load",         "dofile", "require",
                                         "pcall", "debug", "setmetatable", "string"};
    char text[64];

    expect_invalid("while true do end\n", "runs for too long");
    expect_invalid("vocab = 'x'\nwhile true do vocab = vocab .. vocab end\n", "64 MiB");
    expect_invalid("t = {}\nfor i = 1, 1000000 do insert(t, 1, i) end\n", "runs for too long");
    expect_invalid("function f() return f() + 1 end\nf()\n", "64 MiB");
    expect_invalid("vocab = ('x').rep\n", "index a string value");
    expect_invalid("x = 'a'\nfor i = 1, 13 do x = x .. x end\nlike('b', x)\n", "too long");
    expect_invalid("cache(1073741824, 1073741824)\n", "too large");
    expect_invalid("cache(2, 3, 1073741824)\n", "too large");
    expect_invalid("tensor('a', 3)\n", "table expected");
    expect_invalid("tensor('a', {})\n", "1 to 4 dimensions");
    expect_invalid("tensor('a', {1, 2, 3, 4, 5})\n", "1 to 4 dimensions");
    expect_invalid("tensor('a', {2, 0})\n", "1 or more");
    expect_invalid("tensor('a', {2, 'b'})\n", "number expected");
    expect_invalid("tensor('a', {2147483647, 2147483647, 2147483647})\n", "too large");
    expect_invalid("tensor('a', {2}, 'i3')\n", "no such kind");
    expect_invalid("tensor('a', {2, 3})\ntensor('a', {2, 4})\n", "declared twice");
    expect_invalid("tensor('a', {2, 3})\nweight('a', 2)\n", "declared twice");
    expect_invalid("weight('i', 4, nil, nil, 'group_index')\n", "declared by columns_order()");
    expect_invalid("tensor('i', {4}, 'group_index')\n", "declared by columns_order()");
    expect_invalid("columns_order('i', 'w', 4, 2)\n", "not declared as a matrix");
    expect_invalid("weight('w', 4)\ncolumns_order('i', 'w', 4, 2)\n", "not declared as a matrix");
    expect_invalid("weight('w', 4, 4)\ncolumns_order('i', 'w', 4, 3)\n", "must divide");
    expect_invalid("weight('w', 4, 4)\ncolumns_order('i', 'w', 4, 0)\n", "1 or more");
    expect_invalid("weight('w', 4, 4)\ncolumns_order('w', 'w', 4, 2)\n", "declared twice");
    expect_invalid("made('a', 2, 3, 'f32', 4)\n", "function expected");
    expect_invalid("made('a', 2, 0, 'f32', function() end)\n", "1 or more");
    expect_invalid("made('a', 2, 3, 'i8', function() end)\n", "f32, f16 or bf16");
    expect_invalid("made('a', 2, 3, 'f32', function() return made('b', 2, 3, 'f32', function() end) end)\n",
                   "must not call made()");
    expect_invalid("weight('a', 2)\nmade('b', 2, 3, 'f32', function() return weight('a', 2) end)\n", "beside it");
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        snprintf(text, sizeof(text), "vocab = %s\n", absent[i]);
        expect_invalid(text, "unknown variable");
    }
}
END_TEST

UNIT_MAIN("client/checkpoint", defaults_are_those_of_transformers, qwen3_has_heads_of_128_unless_its_config_says_so,
          tied_embeddings_are_the_head_and_an_epsilon_of_0_is_one, stop_tokens_come_from_the_generation_config_first,
          rope_settings_are_read_in_the_old_and_in_the_new_place,
          longrope_has_the_same_tables_in_the_old_and_in_the_new_form,
          rotary_tables_hold_cosine_and_sine_of_position_times_frequency, what_is_not_supported_is_refused_by_name,
          deepseek_has_a_latent_cache, a_quantised_weight_of_a_latent_is_made_floats_once,
          fields_of_deepseek_that_are_not_supported_are_refused,
          quantised_weights_that_are_not_supported_are_refused_with_their_field,
          gptq_and_awq_are_taken_or_refused_with_their_field,
          columns_are_ordered_by_their_groups_or_the_first_is_named_that_is_in_none,
          experts_may_be_quantised_all_of_a_layer_or_none, values_that_contradict_each_other_are_refused,
          a_directory_without_a_config_says_which_file_is_missing,
          shards_come_from_the_index_and_a_gap_in_it_names_the_tensor, a_checkpoint_may_have_a_family_of_its_own,
          an_own_family_is_a_file_of_bounded_size_that_is_told_by_its_name,
          mistakes_of_a_family_are_told_with_their_line, families_have_bounds_and_nothing_to_reach_the_machine_with)
