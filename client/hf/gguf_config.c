/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes of a GGUF file's metadata the config.json that the model's family reads. A key below the architecture's name
 * that is not in the table is refused: it may change what the model computes.
 */
#include "base/le.h"
#include "base/strbuf.h"
#include "client/hf/gguf.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROPE_FACTORS_MAX 4096 /* pairs of dimensions of a head */

struct gguf_architecture {
    const char *name;
    const char *family;  /* of models without experts; NULL: all models have experts */
    const char *mixture; /* of models with experts; NULL: no model has experts */
    const char *experts; /* the field of config.json with their number */
    bool normed;         /* the shares of a row's experts have the sum 1 */
    /* The rows of q and k are ordered so that a pair of dimensions that turn together is side by side. */
    bool rotary_pairs;
    bool norms_behind; /* there are norms behind attention and behind the MLP; ffn_norm is the one before the MLP */
    bool whole_norms;  /* norm weights are 1 + gamma, where a checkpoint has gamma */
    bool yarn;         /* rope.scaling.type may be yarn, whose ramp may begin between two pairs of dimensions */
    bool part_turns;   /* rope.dimension_count may be a part of a head */
    bool latent;       /* attention over a latent, and DeepSeek's experts: gguf_latent.c */
    int64_t largest;   /* layers of the largest model, whose scores have a scale of their own; 0: none has */
};
static const struct gguf_architecture gguf_architectures[] = {
    {.name = "llama",
     .family = "LlamaForCausalLM",
     .mixture = "MixtralForCausalLM",
     .experts = "num_local_experts",
     .normed = true,
     .rotary_pairs = true},
    {.name = "qwen2", .family = "Qwen2ForCausalLM"},
    {.name = "qwen3", .family = "Qwen3ForCausalLM"},
    {.name = "qwen2moe", .mixture = "Qwen2MoeForCausalLM", .experts = "num_experts"},
    {.name = "qwen3moe", .mixture = "Qwen3MoeForCausalLM", .experts = "num_experts", .normed = true},
    {.name = "olmoe", .mixture = "OlmoeForCausalLM", .experts = "num_experts"},
    {.name = "olmo2", .family = "Olmo2ForCausalLM", .norms_behind = true},
    {.name = "granite", .family = "GraniteForCausalLM", .rotary_pairs = true},
    {.name = "gemma2", .family = "Gemma2ForCausalLM", .norms_behind = true, .whole_norms = true, .largest = 46},
    {.name = "gemma3", .family = "Gemma3ForCausalLM", .norms_behind = true, .whole_norms = true, .largest = 62},
    {.name = "phi3", .family = "Phi3ForCausalLM"},
    {.name = "smollm3", .family = "SmolLM3ForCausalLM", .rotary_pairs = true},
    {.name = "glm4", .family = "Glm4ForCausalLM", .part_turns = true},
    {.name = "command-r", .family = "CohereForCausalLM"},
    {.name = "cohere2", .family = "Cohere2ForCausalLM"},
    {.name = "deepseek2",
     .mixture = "DeepseekV2ForCausalLM", /* or V3, by the function of the gate */
     .experts = "n_routed_experts",
     .yarn = true,
     .latent = true},
    /* There is no norm behind attention: the one before the MLP has the name of such a norm. */
    {.name = "gpt-oss",
     .mixture = "GptOssForCausalLM",
     .experts = "num_local_experts",
     .normed = true,
     .norms_behind = true,
     .yarn = true},
};

/* ---- keys ---- */

/* Keys below the architecture's name, and the field of config.json that each becomes; NULL: read by itself, below. */
static const struct gguf_key {
    const char *key, *field;
    const char *only;   /* of these architectures; NULL: of all */
    const char *except; /* not of these; NULL: of all */
    bool number;        /* a float, not an integer from 1 on */
    bool required;
    bool or_0; /* an integer may be 0, which means that the model has no such thing */
} gguf_keys[] = {
    {.key = "context_length", .field = "max_position_embeddings", .required = true},
    {.key = "embedding_length", .field = "hidden_size", .required = true},
    {.key = "block_count", .field = "num_hidden_layers", .required = true},
    {.key = "feed_forward_length", .field = "intermediate_size", .except = "gpt-oss", .required = true},
    {.key = "feed_forward_length", .only = "gpt-oss"}, /* all of its layers have experts */
    {.key = "attention.head_count", .field = "num_attention_heads", .required = true},
    {.key = "attention.head_count_kv", .field = "num_key_value_heads", .except = "deepseek2"},
    {.key = "attention.key_length", .field = "head_dim", .except = "deepseek2"},
    {.key = "attention.layer_norm_rms_epsilon",
     .field = "rms_norm_eps",
     .except = "command-r cohere2",
     .number = true,
     .required = true},
    {.key = "attention.layer_norm_epsilon",
     .field = "layer_norm_eps",
     .only = "command-r cohere2",
     .number = true,
     .required = true},
    {.key = "rope.freq_base", .field = "rope_theta", .number = true},
    {.key = "attention.value_length"},
    {.key = "rope.dimension_count"},
    {.key = "rope.scaling.type"},
    {.key = "rope.scaling.factor"},
    {.key = "rope.scaling.original_context_length"},
    {.key = "rope.scaling.yarn_beta_fast", .only = "gpt-oss deepseek2"},
    {.key = "rope.scaling.yarn_beta_slow", .only = "gpt-oss deepseek2"},
    {.key = "rope.scaling.yarn_log_multiplier", .only = "deepseek2"},
    {.key = "rope.scaling.finetuned"}, /* says how the model was made, not what it computes */
    {.key = "vocab_size"},
    {.key = "pooling_type"},
    {.key = "expert_count"},
    {.key = "expert_used_count"},
    {.key = "expert_feed_forward_length", .field = "moe_intermediate_size", .only = "qwen2moe qwen3moe"},
    {.key = "expert_feed_forward_length", .field = "moe_intermediate_size", .only = "deepseek2", .required = true},
    {.key = "expert_shared_count", .field = "n_shared_experts", .only = "deepseek2", .required = true},
    {.key = "expert_weights_scale", .field = "routed_scaling_factor", .only = "deepseek2", .number = true},
    {.key = "expert_weights_norm", .only = "deepseek2"},
    {.key = "expert_gating_func", .only = "deepseek2"},
    {.key = "expert_group_count", .only = "deepseek2"},
    {.key = "expert_group_used_count", .only = "deepseek2"},
    {.key = "leading_dense_block_count", .only = "deepseek2"},
    {.key = "attention.kv_lora_rank", .field = "kv_lora_rank", .only = "deepseek2", .required = true},
    {.key = "attention.head_count_kv", .only = "deepseek2"},
    {.key = "attention.key_length", .only = "deepseek2"},
    {.key = "attention.q_lora_rank", .only = "deepseek2"},
    {.key = "attention.key_length_mla", .only = "deepseek2"},
    {.key = "attention.value_length_mla", .only = "deepseek2"},
    {.key = "expert_feed_forward_length", .field = "intermediate_size", .only = "gpt-oss", .required = true},
    {.key = "expert_shared_feed_forward_length", .field = "shared_expert_intermediate_size", .only = "qwen2moe"},
    {.key = "attention.scale", .field = "attention_multiplier", .only = "granite", .number = true, .required = true},
    {.key = "embedding_scale", .field = "embedding_multiplier", .only = "granite", .number = true, .required = true},
    {.key = "residual_scale", .field = "residual_multiplier", .only = "granite", .number = true, .required = true},
    {.key = "logit_scale", .field = "logits_scaling", .only = "granite", .number = true, .required = true},
    {.key = "logit_scale", .field = "logit_scale", .only = "command-r cohere2", .number = true, .required = true},
    {.key = "attn_logit_softcapping", .field = "attn_logit_softcapping", .only = "gemma2", .number = true},
    {.key = "final_logit_softcapping", .field = "final_logit_softcapping", .only = "gemma2", .number = true},
    {.key = "attention.sliding_window",
     .field = "sliding_window",
     .only = "gemma2 gemma3 cohere2 gpt-oss",
     .required = true},
    {.key = "attention.sliding_window", .field = "sliding_window", .only = "phi3", .or_0 = true},
};

/* Says that one of the words of a text is `word`. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static bool has_gguf_key(const struct gguf_architecture *a, const struct gguf_key *k)
{
    return (k->only == NULL || has_word(k->only, a->name)) && (k->except == NULL || !has_word(k->except, a->name));
}

static const struct gguf_key *find_gguf_key(const struct gguf_architecture *a, const char *key, size_t n)
{
    for (size_t i = 0; i < sizeof(gguf_keys) / sizeof(gguf_keys[0]); i++)
        if (strlen(gguf_keys[i].key) == n && memcmp(gguf_keys[i].key, key, n) == 0 && has_gguf_key(a, &gguf_keys[i]))
            return &gguf_keys[i];
    return NULL;
}

static int check_gguf_keys(struct npugraph__gguf *g, const struct gguf_architecture *a)
{
    const size_t prefix = strlen(a->name);

    for (size_t i = 0; i < g->header.n_values; i++) {
        const struct ngd_gguf_value *v = &g->header.values[i];

        if (v->key_bytes > prefix && memcmp(v->key, a->name, prefix) == 0 && v->key[prefix] == '.' &&
            find_gguf_key(a, v->key + prefix + 1, v->key_bytes - prefix - 1) == NULL)
            return npugraph__unsupported(&g->from, "metadata %.*s: is not supported with this architecture",
                                         v->key_bytes < 80 ? (int)v->key_bytes : 80, v->key);
    }
    return 0;
}

static int take_gguf_key(struct npugraph__gguf *g, const struct gguf_architecture *a, const struct gguf_key *k,
                         json_t *config)
{
    char key[96];
    double number = NAN;
    int64_t whole = -1;
    int rc;

    snprintf(key, sizeof(key), "%s.%s", a->name, k->key);
    if (ngd_gguf_value(&g->header, key) == NULL)
        return k->required ? npugraph__corrupt(&g->from, "metadata %s: is missing", key) : 0;
    rc = k->number ? npugraph__gguf_number(g, key, &number) : npugraph__gguf_int(g, key, &whole);
    if (rc == 0 && k->number && !isfinite(number))
        rc = npugraph__corrupt(&g->from, "metadata %s: is not finite", key);
    if (rc == 0 && !k->number && (whole < !k->or_0 || whole > INT32_MAX))
        rc = npugraph__corrupt(&g->from, "metadata %s: is %" PRId64 "; it must be %d to 2147483647", key, whole,
                               !k->or_0);
    if (rc == 0 && (k->number || whole != 0))
        npugraph__gguf_set(g, config, k->field, k->number ? json_real(number) : json_integer(whole));
    return rc;
}

/* Refuses a key unless it is absent or has the wanted value. */
static int expect_gguf_int(struct npugraph__gguf *g, const struct gguf_architecture *a, const char *name,
                           int64_t wanted, const char *what)
{
    char key[96];
    int64_t v = wanted;
    int rc;

    snprintf(key, sizeof(key), "%s.%s", a->name, name);
    rc = npugraph__gguf_int(g, key, &v);
    if (rc == 0 && v != wanted)
        rc = npugraph__unsupported(&g->from, "metadata %s: is %" PRId64 "; %s", key, v, what);
    return rc;
}

static int64_t config_int(const json_t *config, const char *field)
{
    return json_integer_value(json_object_get(config, field));
}

/* ---- what follows from tensors ---- */

static bool has_gguf_tensor(struct npugraph__gguf *g, const char *name)
{
    return ngd_gguf_tensor(&g->header, name) != NULL;
}

static int take_vocab(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    const struct ngd_gguf_tensor *t = ngd_gguf_tensor(&g->header, "token_embd.weight");

    if (t == NULL)
        return npugraph__corrupt(&g->from, "tensor token_embd.weight: is missing: the file has no model, or a part of "
                                           "one; join the parts with llama-gguf-split --merge");
    if (t->rank != 2 || t->shape[0] > INT32_MAX)
        return npugraph__corrupt(&g->from, "tensor token_embd.weight: must have two dimensions, [vocabulary, hidden]");
    npugraph__gguf_set(g, config, "vocab_size", json_integer(t->shape[0]));
    return expect_gguf_int(g, a, "vocab_size", t->shape[0], "token_embd.weight has another number of rows");
}

/* ---- rotary positions ---- */

/* Reads rope_freqs.weight: by what each frequency is divided. */
static int read_rope_factors(struct npugraph__gguf *g, int64_t pairs, json_t *list)
{
    const struct ngd_gguf_tensor *t = ngd_gguf_tensor(&g->header, "rope_freqs.weight");
    uint8_t bytes[4 * ROPE_FACTORS_MAX];
    const struct ngd_gguf_value f32 = {.type = NGD_GGUF_F32};
    const uint8_t *at = bytes;
    double factor;

    if (t->type->id != 0 || t->rank != 1 || t->shape[0] != pairs || pairs > ROPE_FACTORS_MAX)
        return npugraph__corrupt(&g->from, "tensor rope_freqs.weight: must be F32 with %" PRId64 " elements", pairs);
    if (pread(g->fd, bytes, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes)
        return npugraph__corrupt(&g->from, "tensor rope_freqs.weight: cannot be read");
    for (int64_t i = 0; i < pairs; i++) {
        ngd_gguf_take_number(&f32, &at, &factor);
        if (!(factor > 0) || !isfinite(factor))
            return npugraph__corrupt(&g->from, "tensor rope_freqs.weight: element %" PRId64 " is not positive", i);
        npugraph__gguf_add(g, list, json_real(factor));
    }
    return 0;
}

/* Frequencies with factors of their own are what longrope has, without its scale. */
static int take_rope_factors(struct npugraph__gguf *g, json_t *config)
{
    json_t *list = json_array(), *rope;
    int rc = read_rope_factors(g, config_int(config, "head_dim") / 2, list);

    if (rc != 0) {
        json_decref(list);
        return rc;
    }
    rope = json_pack("{s:s, s:o, s:I, s:f, s:f}", "rope_type", "longrope", "short_factor", list,
                     "original_max_position_embeddings", (json_int_t)config_int(config, "max_position_embeddings"),
                     "factor", 1.0, "attention_factor", 1.0);
    npugraph__gguf_set(g, config, "rope_parameters", rope);
    return 0;
}

/* Reads a number below rope.scaling that must be positive. `absent`: the value without the key; 0: it is required. */
static int read_scaling(struct npugraph__gguf *g, const struct gguf_architecture *a, const char *name, double absent,
                        double *v_p)
{
    char key[96];
    double v = absent;
    int rc;

    snprintf(key, sizeof(key), "%s.rope.scaling.%s", a->name, name);
    rc = npugraph__gguf_number(g, key, &v);
    if (rc == 0 && !(v > 0 && isfinite(v)))
        rc = npugraph__corrupt(&g->from, "metadata %s: must be a positive number", key);
    if (rc == 0)
        *v_p = v;
    return rc;
}

static int take_yarn(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    double factor = 0, original = 0, fast = 0, slow = 0;
    json_t *yarn;
    int rc = read_scaling(g, a, "factor", 0, &factor);

    if (rc == 0)
        rc = read_scaling(g, a, "original_context_length", 0, &original);
    if (rc == 0)
        rc = read_scaling(g, a, "yarn_beta_fast", 32, &fast);
    if (rc == 0)
        rc = read_scaling(g, a, "yarn_beta_slow", 1, &slow);
    if (rc != 0)
        return rc;
    yarn = json_pack("{s:s, s:f, s:f, s:f, s:f, s:b}", "rope_type", "yarn", "factor", factor,
                     "original_max_position_embeddings", original, "beta_fast", fast, "beta_slow", slow, "truncate", 0);
    npugraph__gguf_set(g, config, "rope_scaling", yarn);
    return a->latent && !g->no_memory ? npugraph__gguf_latent_yarn(g, yarn) : 0;
}

static int take_rope(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    char type[32] = "", key[96], factor_key[96];
    double factor = 0;
    int rc;

    snprintf(key, sizeof(key), "%s.rope.scaling.type", a->name);
    snprintf(factor_key, sizeof(factor_key), "%s.rope.scaling.factor", a->name);
    rc = npugraph__gguf_text(g, key, type, sizeof(type));
    if (rc == 0)
        rc = npugraph__gguf_number(g, factor_key, &factor);
    if (rc != 0)
        return rc;
    if (type[0] == '\0') /* llama.cpp's default, where 0 is no factor */
        snprintf(type, sizeof(type), "%s", factor != 0 ? "linear" : "none");
    if (a->yarn && strcmp(type, "yarn") == 0)
        return take_yarn(g, a, config);
    if (a->latent && strcmp(type, "none") != 0) /* llama.cpp widens scores with linear too */
        return npugraph__unsupported(&g->from, "metadata %s: is \"%s\"; none and yarn are supported", key, type);
    if (strcmp(type, "none") != 0 && strcmp(type, "linear") != 0)
        return npugraph__unsupported(&g->from, "metadata %s: is \"%s\"; none and linear are supported", key, type);
    if (has_gguf_tensor(g, "rope_freqs.weight"))
        return strcmp(type, "none") == 0
                   ? take_rope_factors(g, config)
                   : npugraph__unsupported(&g->from, "metadata %s: is \"%s\" beside the tensor rope_freqs.weight", key,
                                           type);
    if (strcmp(type, "linear") == 0 && !(factor > 0 && isfinite(factor)))
        return npugraph__corrupt(&g->from, "metadata %s: must be a positive number", factor_key);
    if (strcmp(type, "linear") == 0)
        npugraph__gguf_set(g, config, "rope_scaling", json_pack("{s:s, s:f}", "rope_type", "linear", "factor", factor));
    return 0;
}

/* ---- the whole ---- */

static int find_gguf_architecture(struct npugraph__gguf *g, const struct gguf_architecture **a_p)
{
    const size_t n = sizeof(gguf_architectures) / sizeof(gguf_architectures[0]);
    struct ngd_strbuf names;
    char name[64] = "";
    int rc = npugraph__gguf_text(g, "general.architecture", name, sizeof(name));

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        *a_p = &gguf_architectures[i];
        if (strcmp((*a_p)->name, name) == 0)
            return 0;
    }
    ngd_strbuf_init(&names);
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_printf(&names, "%s%s", i > 0 ? ", " : "", gguf_architectures[i].name);
    rc = npugraph__unsupported(&g->from, "metadata general.architecture: is \"%s\"; supported are %s", name,
                               ngd_strbuf_str(&names));
    ngd_strbuf_fini(&names);
    return rc;
}

static int check_gguf_parts(struct npugraph__gguf *g)
{
    int64_t parts = 1;
    int rc = npugraph__gguf_int(g, "split.count", &parts);

    if (rc == 0 && parts > 1)
        rc = npugraph__unsupported(
            &g->from, "metadata split.count: the file is one of %" PRId64 "; join them with llama-gguf-split --merge",
            parts);
    return rc;
}

static int check_gguf_heads(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    if (config_int(config, "num_attention_heads") < 1 ||
        config_int(config, "hidden_size") < config_int(config, "num_attention_heads"))
        return npugraph__corrupt(&g->from, "metadata %s.attention.head_count: is more than embedding_length", a->name);
    if (json_object_get(config, "head_dim") == NULL)
        npugraph__gguf_set(g, config, "head_dim",
                           json_integer(config_int(config, "hidden_size") / config_int(config, "num_attention_heads")));
    return expect_gguf_int(g, a, "attention.value_length", config_int(config, "head_dim"),
                           "heads of values must be as long as those of keys");
}

static int read_count(struct npugraph__gguf *g, const struct gguf_architecture *a, const char *name, int64_t *v_p)
{
    char key[96];
    int rc;

    snprintf(key, sizeof(key), "%s.%s", a->name, name);
    rc = npugraph__gguf_int(g, key, v_p);
    if (rc == 0 && (*v_p < 0 || *v_p > INT32_MAX))
        rc = npugraph__corrupt(&g->from, "metadata %s: is %" PRId64 "; it must be 0 to 2147483647", key, *v_p);
    return rc;
}

/* Sets which part of a head turns. */
static int take_rotary_part(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    const int64_t dim = config_int(config, "head_dim");
    int64_t turns = dim;
    int rc;

    if (!a->part_turns)
        return expect_gguf_int(g, a, "rope.dimension_count", dim, "all dimensions of a head must turn");
    rc = read_count(g, a, "rope.dimension_count", &turns);
    if (rc == 0 && (turns < 2 || turns > dim || turns % 2 != 0))
        rc = npugraph__corrupt(&g->from,
                               "metadata %s.rope.dimension_count: is %" PRId64 "; it must be even, 2 to %" PRId64,
                               a->name, turns, dim);
    /* The family rounds dim times the factor down. The half keeps a rounded quotient from losing a dimension. */
    if (rc == 0)
        npugraph__gguf_set(g, config, "partial_rotary_factor", json_real(((double)turns + 0.5) / (double)dim));
    return rc;
}

/* Sets the family, which is another one if there are experts. */
static int take_experts(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    int64_t experts = 0, chosen = 0;
    int rc = read_count(g, a, "expert_count", &experts);

    if (rc == 0)
        rc = read_count(g, a, "expert_used_count", &chosen);
    if (rc != 0)
        return rc;
    if (experts > 0 && a->mixture == NULL)
        return npugraph__unsupported(
            &g->from, "metadata %s.expert_count: is %" PRId64 "; this architecture has no experts", a->name, experts);
    if ((experts > 0) != (chosen > 0) || (experts == 0 && a->family == NULL))
        return npugraph__corrupt(&g->from,
                                 "metadata %s.expert_count and expert_used_count: are %" PRId64 " and %" PRId64
                                 "; a mixture of experts has both",
                                 a->name, experts, chosen);
    npugraph__gguf_set(g, config, "architectures", json_pack("[s]", experts > 0 ? a->mixture : a->family));
    if (experts == 0)
        return 0;
    npugraph__gguf_set(g, config, a->experts, json_integer(experts));
    npugraph__gguf_set(g, config, "num_experts_per_tok", json_integer(chosen));
    npugraph__gguf_set(g, config, "norm_topk_prob", json_boolean(a->normed));
    return 0;
}

/* Sets the scale of scores, which files of Gemma leave out. llama.cpp knows the largest models by their layers. */
static void take_score_scale(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    const bool largest = config_int(config, "num_hidden_layers") == a->largest;

    if (a->largest != 0)
        npugraph__gguf_set(
            g, config, "query_pre_attn_scalar",
            json_integer(largest ? config_int(config, "hidden_size") / config_int(config, "num_attention_heads")
                                 : config_int(config, "head_dim")));
}

static int take_stops(struct npugraph__gguf *g, json_t *config)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    json_t *list = json_array();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(keys) / sizeof(keys[0]); i++) {
        int64_t id = -1;

        rc = npugraph__gguf_int(g, keys[i], &id);
        if (rc == 0 && id >= config_int(config, "vocab_size"))
            rc = npugraph__corrupt(&g->from, "metadata %s: is %" PRId64 "; the model has %" PRId64 " tokens", keys[i],
                                   id, config_int(config, "vocab_size"));
        if (rc == 0 && id >= 0)
            npugraph__gguf_add(g, list, json_integer(id));
    }
    npugraph__gguf_set(g, config, "eos_token_id", list);
    return rc;
}

/* Sets how embeddings are pooled, which makes the model one for embeddings. The numbers are llama.cpp's. */
static int take_gguf_pooling(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    enum { POOL_NONE, POOL_MEAN, POOL_LAST = 3 };
    int64_t pooling = POOL_NONE;
    int rc = read_count(g, a, "pooling_type", &pooling);

    if (rc == 0 && pooling != POOL_NONE && pooling != POOL_MEAN && pooling != POOL_LAST)
        rc = npugraph__unsupported(
            &g->from, "metadata %s.pooling_type: is %" PRId64 "; 0 (none), 1 (mean) and 3 (last) are supported",
            a->name, pooling);
    if (rc == 0 && pooling != POOL_NONE)
        npugraph__gguf_set(g, json_object_get(config, "gguf"), "pooling",
                           json_string(pooling == POOL_MEAN ? "mean" : "last"));
    return rc;
}

static int fill_gguf_config(struct npugraph__gguf *g, const struct gguf_architecture *a, json_t *config)
{
    int rc = check_gguf_parts(g);

    if (rc == 0)
        rc = check_gguf_keys(g, a);
    for (size_t i = 0; rc == 0 && i < sizeof(gguf_keys) / sizeof(gguf_keys[0]); i++)
        if (gguf_keys[i].field != NULL && has_gguf_key(a, &gguf_keys[i]))
            rc = take_gguf_key(g, a, &gguf_keys[i], config);
    if (rc == 0 && g->no_memory)
        rc = npugraph__no_memory(g->from.err);
    if (rc == 0)
        rc = take_vocab(g, a, config);
    if (rc == 0)
        rc = a->latent ? npugraph__gguf_latent_heads(g, config) : check_gguf_heads(g, a, config);
    if (rc == 0 && !a->latent)
        rc = take_rotary_part(g, a, config);
    if (rc == 0 && json_object_get(config, "rope_theta") == NULL) /* families have defaults of their own */
        npugraph__gguf_set(g, config, "rope_theta", json_real(10000));
    if (rc == 0)
        rc = take_experts(g, a, config);
    if (rc == 0 && a->latent)
        rc = npugraph__gguf_latent_experts(g, config);
    if (rc == 0)
        take_score_scale(g, a, config);
    if (rc == 0)
        rc = take_rope(g, a, config);
    if (rc == 0)
        rc = take_stops(g, config);
    if (rc != 0)
        return rc;
    npugraph__gguf_set(g, config, "tie_word_embeddings", json_boolean(!has_gguf_tensor(g, "output.weight")));
    npugraph__gguf_set(g, config, "attention_bias", json_boolean(has_gguf_tensor(g, "blk.0.attn_q.bias")));
    npugraph__gguf_set(g, config, "mlp_bias", json_boolean(has_gguf_tensor(g, "blk.0.ffn_down.bias")));
    npugraph__gguf_set(g, config, "gguf",
                       json_pack("{s:b, s:b}", "rotary_pairs", a->rotary_pairs, "whole_norms", a->whole_norms));
    g->norms_behind = a->norms_behind;
    return take_gguf_pooling(g, a, config);
}

int npugraph__gguf_config(struct npugraph__gguf *g, json_t **config_p)
{
    const struct gguf_architecture *a = NULL;
    json_t *config = json_object();
    int rc = config != NULL ? find_gguf_architecture(g, &a) : npugraph__no_memory(g->from.err);

    if (rc == 0)
        rc = fill_gguf_config(g, a, config);
    if (rc == 0 && g->no_memory)
        rc = npugraph__no_memory(g->from.err);
    if (rc == 0)
        *config_p = config;
    else
        json_decref(config);
    return rc;
}
