/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What GGUF files of DeepSeek's models (architecture deepseek2) say by keys of their own: heads of a latent, and which
 * of the experts beside an MLP for all rows a row has. Files of today have the keys attention.key_length_mla and
 * value_length_mla, and lengths of one head for all; earlier ones have lengths of heads, as the checkpoint has.
 *
 * Some keys were added later than the models. Where llama.cpp takes a value that is not the model's own, a file without
 * the key is refused.
 */
#include "client/hf/gguf.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KEY(name) "deepseek2." name

/* Reads an integer from `least` to 2^31 - 1. `absent`: the value without the key; below `least`: it is required. */
static int latent_int(const struct npugraph__gguf *g, const char *key, int64_t least, int64_t absent, int64_t *v_p)
{
    int64_t v = absent;
    int rc = npugraph__gguf_int(g, key, &v);

    if (rc == 0 && absent < least && ngd_gguf_value(&g->header, key) == NULL)
        return npugraph__corrupt(&g->from, "metadata %s: is missing", key);
    if (rc == 0 && (v < least || v > INT32_MAX))
        return npugraph__corrupt(&g->from, "metadata %s: is %" PRId64 "; it must be %" PRId64 " to 2147483647", key, v,
                                 least);
    *v_p = v;
    return rc;
}

static void set_latent_int(struct npugraph__gguf *g, json_t *config, const char *field, int64_t v)
{
    npugraph__gguf_set(g, config, field, json_integer(v));
}

int npugraph__gguf_latent_heads(struct npugraph__gguf *g, json_t *config)
{
    const bool today = ngd_gguf_value(&g->header, KEY("attention.key_length_mla")) != NULL;
    const int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    int64_t key_length = 0, value_length = 0, turned = 0, kv_heads = 0, queries = 0;
    int rc = latent_int(g, today ? KEY("attention.key_length_mla") : KEY("attention.key_length"), 1, 0, &key_length);

    if (rc == 0)
        rc = latent_int(g, today ? KEY("attention.value_length_mla") : KEY("attention.value_length"), 1, 0,
                        &value_length);
    if (rc == 0)
        rc = latent_int(g, KEY("rope.dimension_count"), 1, 0, &turned);
    if (rc == 0)
        rc = latent_int(g, KEY("attention.head_count_kv"), 1, heads, &kv_heads);
    if (rc == 0)
        rc = latent_int(g, KEY("attention.q_lora_rank"), 0, 0, &queries);
    if (rc != 0)
        return rc;
    if (turned >= key_length)
        return npugraph__corrupt(&g->from, "metadata %s: is %" PRId64 "; a head of keys has %" PRId64 " dimensions",
                                 KEY("rope.dimension_count"), turned, key_length);
    if (kv_heads != (today ? 1 : heads))
        return npugraph__unsupported(&g->from, "metadata %s: is %" PRId64 "; all heads share a latent",
                                     KEY("attention.head_count_kv"), kv_heads);
    set_latent_int(g, config, "qk_rope_head_dim", turned);
    set_latent_int(g, config, "head_dim", turned);
    set_latent_int(g, config, "qk_nope_head_dim", key_length - turned);
    set_latent_int(g, config, "v_head_dim", value_length);
    set_latent_int(g, config, "num_key_value_heads", heads);
    npugraph__gguf_set(g, config, "q_lora_rank", queries > 0 ? json_integer(queries) : json_null());
    return 0;
}

/* Sets the groups of which a row may choose experts. sigmoid: the family is DeepSeek V3's. */
static int take_expert_groups(struct npugraph__gguf *g, bool sigmoid, json_t *config)
{
    const bool said = ngd_gguf_value(&g->header, KEY("expert_group_count")) != NULL;
    const bool lite = json_is_null(json_object_get(config, "q_lora_rank"));
    int64_t groups = 1, chosen = 1;
    int rc;

    if (!said && (sigmoid || !lite))
        return npugraph__unsupported(&g->from,
                                     "metadata %s: is missing, and models of this form differ in it; convert the "
                                     "checkpoint with a converter of today",
                                     KEY("expert_group_count"));
    rc = latent_int(g, KEY("expert_group_count"), 1, 1, &groups);
    if (rc == 0)
        rc = latent_int(g, KEY("expert_group_used_count"), 1, said ? 0 : 1, &chosen);
    if (rc != 0)
        return rc;
    set_latent_int(g, config, "n_group", groups);
    set_latent_int(g, config, "topk_group", chosen);
    npugraph__gguf_set(g, config, "topk_method",
                       json_string(sigmoid      ? "noaux_tc"
                                   : groups > 1 ? "group_limited_greedy"
                                                : "greedy"));
    return 0;
}

int npugraph__gguf_latent_experts(struct npugraph__gguf *g, json_t *config)
{
    enum { SOFTMAX = 1, SIGMOID = 2 }; /* llama.cpp's numbers */
    int64_t gating = SOFTMAX, dense = 0;
    bool normed = false, sigmoid;
    const json_t *scale;
    int rc = latent_int(g, KEY("expert_gating_func"), SOFTMAX, SOFTMAX, &gating);

    if (rc == 0 && gating > SIGMOID)
        rc = npugraph__unsupported(&g->from, "metadata %s: is %" PRId64 "; 1 (softmax) and 2 (sigmoid) are supported",
                                   KEY("expert_gating_func"), gating);
    if (rc == 0)
        rc = npugraph__gguf_bool(g, KEY("expert_weights_norm"), &normed);
    if (rc == 0)
        rc = latent_int(g, KEY("leading_dense_block_count"), 0, 0, &dense);
    if (rc != 0)
        return rc;
    sigmoid = gating == SIGMOID;
    npugraph__gguf_set(g, config, "architectures",
                       json_pack("[s]", sigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"));
    npugraph__gguf_set(g, config, "scoring_func", json_string(sigmoid ? "sigmoid" : "softmax"));
    npugraph__gguf_set(g, config, "norm_topk_prob", json_boolean(normed));
    set_latent_int(g, config, "first_k_dense_replace", dense);
    scale = json_object_get(config, "routed_scaling_factor");
    if (scale == NULL)
        npugraph__gguf_set(g, config, "routed_scaling_factor", json_real(1));
    else if (!(json_number_value(scale) > 0))
        return npugraph__corrupt(&g->from, "metadata %s: must be a positive number", KEY("expert_weights_scale"));
    return take_expert_groups(g, sigmoid, config);
}

int npugraph__gguf_latent_yarn(struct npugraph__gguf *g, json_t *yarn)
{
    static const char key[] = KEY("rope.scaling.yarn_log_multiplier");
    double multiplier = 0;
    int rc = npugraph__gguf_number(g, key, &multiplier);

    if (rc != 0)
        return rc;
    if (!(multiplier > 0 && isfinite(multiplier)))
        return npugraph__corrupt(&g->from, "metadata %s: must be a positive number", key);
    /* The file has a tenth of mscale_all_dim. All models have the same mscale, which the file leaves out. */
    npugraph__gguf_set(g, yarn, "mscale", json_real(multiplier * 10));
    npugraph__gguf_set(g, yarn, "mscale_all_dim", json_real(multiplier * 10));
    npugraph__gguf_set(g, yarn, "truncate", json_true());
    return 0;
}
