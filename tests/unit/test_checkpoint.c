/* SPDX-License-Identifier: Apache-2.0 */
/* Tests config.json and the shard index: what is accepted, and what is refused with which reason. */
#include "client/hf/checkpoint.h"
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
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json"};
    char path[128];

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    dir[0] = '\0';
}

#define SIZES \
    "\"vocab_size\":100,\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":96"

static int read_config(const char *text, struct npugraph__config *c, struct npugraph_error *err)
{
    int rc;

    put_file("config.json", text);
    rc = npugraph__config_read(dir, c, err);
    clean();
    return rc;
}

static void expect_refused(const char *text, const char *reason, const char *mentions)
{
    struct npugraph__config c;
    struct npugraph_error err = {0};

    ck_assert_int_ne(read_config(text, &c, &err), 0);
    ck_assert_str_eq(err.reason, reason);
    ck_assert_msg(strstr(err.message, mentions) != NULL, "\"%s\" does not mention %s", err.message, mentions);
}

START_TEST(defaults_are_those_of_transformers)
{
    struct npugraph__config c;
    struct npugraph_error err = {0};

    ck_assert_msg(read_config("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES "}", &c, &err) == 0, "%s",
                  err.message);
    ck_assert_int_eq(c.kv_heads, 4);
    ck_assert_int_eq(c.head_dim, 16);
    ck_assert(!c.tied && !c.qk_norm && !c.attention_bias && !c.mlp_bias);
    ck_assert_double_eq(c.rms_eps, 1e-6);
    ck_assert_double_eq(c.rope_theta, 10000);
    ck_assert_int_eq(c.rope, ROPE_DEFAULT);
    ck_assert_uint_eq(c.n_stop, 0);
}
END_TEST

START_TEST(stop_tokens_come_from_the_generation_config_first)
{
    struct npugraph__config c;
    struct npugraph_error err = {0};

    put_file("generation_config.json", "{\"eos_token_id\":[7,8]}");
    ck_assert_int_eq(read_config("{\"architectures\":[\"Qwen3ForCausalLM\"],\"eos_token_id\":3," SIZES "}", &c, &err),
                     0);
    ck_assert_uint_eq(c.n_stop, 2);
    ck_assert_int_eq(c.stop[0], 7);
    ck_assert_int_eq(read_config("{\"architectures\":[\"Qwen3ForCausalLM\"],\"eos_token_id\":3," SIZES "}", &c, &err),
                     0);
    ck_assert_uint_eq(c.n_stop, 1);
    ck_assert_int_eq(c.stop[0], 3);
}
END_TEST

START_TEST(rope_settings_are_read_in_the_old_and_in_the_new_place)
{
    struct npugraph__config a, b;
    struct npugraph_error err = {0};

    ck_assert_int_eq(read_config("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                                 ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":"
                                 "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                                 "\"original_max_position_embeddings\":32}}",
                                 &a, &err),
                     0);
    ck_assert_int_eq(read_config("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                                 ",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":"
                                 "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                                 "\"original_max_position_embeddings\":32}}",
                                 &b, &err),
                     0);
    ck_assert_int_eq(a.rope, ROPE_LLAMA3);
    ck_assert_mem_eq(&a, &b, sizeof(a));
}
END_TEST

START_TEST(rotary_tables_hold_cosine_and_sine_of_position_times_frequency)
{
    struct npugraph__config c = {.head_dim = 4, .rope_theta = 10000};
    float co[3 * 4], si[3 * 4];

    npugraph__rope_tables(&c, 3, co, si);
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
    expect_refused("{\"architectures\":[\"GPT2LMHeadModel\"]," SIZES "}", "FILE_UNSUPPORTED",
                   "Qwen3ForCausalLM or LlamaForCausalLM");
    expect_refused("{" SIZES "}", "FILE_UNSUPPORTED", "architectures");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"hidden_act\":\"gelu\"}", "FILE_UNSUPPORTED",
                   "hidden_act");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"use_sliding_window\":true}",
                   "FILE_UNSUPPORTED", "sliding");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"rope_scaling\":{\"type\":\"yarn\"}}",
                   "FILE_UNSUPPORTED", "rope_scaling");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"quantization_config\":{}}",
                   "FILE_UNSUPPORTED", "quantization_config");
}
END_TEST

START_TEST(values_that_contradict_each_other_are_refused)
{
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]}", "FILE_CORRUPT", "vocab_size is missing");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"num_key_value_heads\":3}", "FILE_CORRUPT",
                   "multiple");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"head_dim\":-2}", "FILE_CORRUPT", "head_dim");
    expect_refused("{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES ",\"rms_norm_eps\":0}", "FILE_CORRUPT",
                   "rms_norm_eps");
    expect_refused("[]", "FILE_CORRUPT", "object");
    expect_refused("{", "FILE_CORRUPT", "config.json");
}
END_TEST

START_TEST(a_directory_without_a_config_says_which_file_is_missing)
{
    struct npugraph__config c;
    struct npugraph_error err = {0};

    ck_assert_int_ne(npugraph__config_read("/nonexistent", &c, &err), 0);
    ck_assert_str_eq(err.reason, "FILE_NOT_FOUND");
    ck_assert_ptr_nonnull(strstr(err.message, "/nonexistent/config.json"));
}
END_TEST

START_TEST(shards_come_from_the_index_and_a_gap_in_it_names_the_tensor)
{
    struct npugraph__config c = {.vocab = 10, .hidden = 4, .layers = 0, .tied = true};
    struct npugraph__weights w;
    struct npugraph_error err = {0};

    put_file(
        "model.safetensors.index.json",
        "{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\",\"model.norm.weight\":\"b.safetensors\"}}");
    ck_assert_int_eq(npugraph__weights_list(dir, &c, &w, &err), 0);
    ck_assert_uint_eq(w.n, 2);
    ck_assert_uint_eq(w.n_files, 2);
    ck_assert_str_eq(npugraph__weights_find(&w, "model.norm.weight")->file, "b.safetensors");
    npugraph__weights_fini(&w);
    put_file("model.safetensors.index.json", "{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\"}}");
    ck_assert_int_ne(npugraph__weights_list(dir, &c, &w, &err), 0);
    ck_assert_str_eq(err.reason, "TENSOR_MISSING");
    put_file("model.safetensors.index.json",
             "{\"weight_map\":{\"model.embed_tokens.weight\":\"../a\",\"model.norm.weight\":\"b\"}}");
    ck_assert_int_ne(npugraph__weights_list(dir, &c, &w, &err), 0);
    ck_assert_str_eq(err.reason, "FILE_CORRUPT");
    clean();
}
END_TEST

UNIT_MAIN("client/checkpoint", defaults_are_those_of_transformers, stop_tokens_come_from_the_generation_config_first,
          rope_settings_are_read_in_the_old_and_in_the_new_place,
          rotary_tables_hold_cosine_and_sine_of_position_times_frequency, what_is_not_supported_is_refused_by_name,
          values_that_contradict_each_other_are_refused, a_directory_without_a_config_says_which_file_is_missing,
          shards_come_from_the_index_and_a_gap_in_it_names_the_tensor)
