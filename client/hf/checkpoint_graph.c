/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the graphs of a decoder model as text: one for a chunk of a prompt (T rows of one sequence), one for a decode
 * step (B sequences, one row each). Activations are f32. Weights keep their dtype; kernels widen them.
 */
#include "client/hf/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rotary tables ---------------------------------------------------------------------------------------- */

/* Applies llama3 scaling: the frequencies of long wavelengths are divided by the factor, those of short ones are kept,
 * with a smooth ramp between. */
static float llama3_scale(const struct npugraph__config *c, float inv_freq)
{
    float wavelen = 2.0f * (float)M_PI / inv_freq;
    float low = (float)(c->rope_original / c->rope_low_freq), high = (float)(c->rope_original / c->rope_high_freq);
    float smooth;

    if (wavelen > low)
        return inv_freq / (float)c->rope_factor;
    if (wavelen < high)
        return inv_freq;
    smooth =
        ((float)c->rope_original / wavelen - (float)c->rope_low_freq) / (float)(c->rope_high_freq - c->rope_low_freq);
    return (1.0f - smooth) * inv_freq / (float)c->rope_factor + smooth * inv_freq;
}

static float inverse_frequency(const struct npugraph__config *c, int64_t pair)
{
    float inv = 1.0f / powf((float)c->rope_theta, (float)(2 * pair) / (float)c->head_dim);

    if (c->rope == ROPE_LLAMA3)
        return llama3_scale(c, inv);
    return c->rope == ROPE_LINEAR ? inv / (float)c->rope_factor : inv;
}

void npugraph__rope_tables(const struct npugraph__config *c, uint32_t max_context, float *cos_out, float *sin_out)
{
    int64_t half = c->head_dim / 2;

    for (int64_t j = 0; j < half; j++) {
        float inv = inverse_frequency(c, j);

        for (uint32_t pos = 0; pos < max_context; pos++) {
            float angle = (float)pos * inv;
            float *co = cos_out + (size_t)pos * (size_t)c->head_dim, *si = sin_out + (size_t)pos * (size_t)c->head_dim;

            co[j] = co[j + half] = cosf(angle);
            si[j] = si[j + half] = sinf(angle);
        }
    }
}

/* ---- the text --------------------------------------------------------------------------------------------- */

void npugraph__kv_label(char *to, size_t room, int64_t layer, bool value)
{
    snprintf(to, room, "kv.%" PRId64 ".%s", layer, value ? "value" : "key");
}

struct writer {
    const struct npugraph__config *c;
    const struct npugraph__weights *w;
    const struct npugraph__shape *s;
    struct ngd_strbuf *sb;
    bool prefill;
    const char *rows; /* symbol for the number of rows: T or B */
    const char *seqs; /* number of sequences: 1 or B */
};

#define put(...) ngd_strbuf_printf(g->sb, __VA_ARGS__)

static void put_graph_head(struct writer *g, const char *name)
{
    uint32_t most = g->prefill ? g->s->prefill_chunk : g->s->max_batch;

    put("npugraph 1\ngraph ");
    ngd_strbuf_json_string(g->sb, name);
    put(" {\n  sym %s 1..%u buckets %u\n", g->rows, most, most);
}

/* Values have the names of their tensors: "model.norm.weight" is a valid name. */
static void put_params(struct writer *g)
{
    for (size_t i = 0; i < g->w->n; i++) {
        const struct npugraph__weight *x = &g->w->items[i];

        if (x->absent)
            continue;
        if (x->rank == 2)
            put("  param %%%s : %s[%" PRId64 ",%" PRId64 "]\n", x->name, x->dtype, x->shape[0], x->shape[1]);
        else
            put("  param %%%s : %s[%" PRId64 "]\n", x->name, x->dtype, x->shape[0]);
    }
    put("  param %%rope.cos : f32[%u,%" PRId64 "]\n", g->s->max_context, g->c->head_dim);
    put("  param %%rope.sin : f32[%u,%" PRId64 "]\n", g->s->max_context, g->c->head_dim);
}

static void put_graph_inputs(struct writer *g)
{
    char label[32];

    for (int64_t i = 0; i < 2 * g->c->layers; i++) {
        npugraph__kv_label(label, sizeof(label), i / 2, i % 2 != 0);
        put("  state %%%s : %s[%u,%u,%" PRId64 ",%" PRId64 "]\n", label, g->s->kv_dtype, g->s->num_blocks,
            g->s->block_size, g->c->kv_heads, g->c->head_dim);
    }
    put("  input %%tokens : i32[%s]\n  input %%positions : i32[%s]\n  input %%slots : i32[%s]\n", g->rows, g->rows,
        g->rows);
    put("  input %%block_table : i32[%s,%u]\n", g->seqs, g->s->table_blocks);
    if (g->prefill)
        put("  input %%logits_rows : i32[1]\n");
    put("  input %%temperature : f32[%s]\n  input %%top_k : i32[%s]\n  input %%top_p : f32[%s]\n", g->seqs, g->seqs,
        g->seqs);
    put("  input %%seed : i64[%s]\n  input %%offset : i64[%s]\n", g->seqs, g->seqs);
    put("  host %%query_lens : i64[%s]\n  host %%context_lens : i64[%s]\n", g->seqs, g->seqs);
}

static void put_linear(struct writer *g, const char *result, const char *x, int64_t layer, const char *part, bool bias)
{
    put("  %%%s.%" PRId64 " = aten.linear(%%%s.%" PRId64 ", %%model.layers.%" PRId64 ".%s.weight", result, layer, x,
        layer, layer, part);
    if (bias)
        put(", %%model.layers.%" PRId64 ".%s.bias", layer, part);
    put(")\n");
}

/* Appends a linear whose columns the ranks divide. An all-reduce sums their parts, so each rank gets the result. */
static void put_summed_linear(struct writer *g, const char *result, const char *x, int64_t layer, const char *part,
                              bool bias)
{
    char name[96];
    const struct npugraph__weight *b;

    if (g->s->ranks < 2) {
        put_linear(g, result, x, layer, part, bias);
        return;
    }
    snprintf(name, sizeof(name), "model.layers.%" PRId64 ".%s.bias", layer, part);
    b = npugraph__weights_find(g->w, name);
    snprintf(name, sizeof(name), "%s_part", result);
    put_linear(g, name, x, layer, part, b != NULL && !b->absent);
    put("  %%%s_sum.%" PRId64 " = _c10d_functional.all_reduce(%%%s_part.%" PRId64
        ") {reduce_op=\"sum\", group_name=\"" NPUGRAPH__GROUP "\"}\n",
        result, layer, result, layer);
    put("  %%%s.%" PRId64 " = _c10d_functional.wait_tensor(%%%s_sum.%" PRId64 ")\n", result, layer, result, layer);
}

/* Appends the heads of q or k, their norm (Qwen3) and their rotation. The result is "<name>r.<layer>". */
static void put_heads(struct writer *g, const char *name, int64_t layer, int64_t heads, const char *norm)
{
    const char *from = "h";

    put("  %%%sh.%" PRId64 " = aten.view(%%%s.%" PRId64 ") {size=[%s, %" PRId64 ", %" PRId64 "]}\n", name, layer, name,
        layer, g->rows, heads, g->c->head_dim);
    if (g->c->qk_norm) {
        put("  %%%sn.%" PRId64 ", %%%sn_rstd.%" PRId64 " = npu.rms_norm(%%%sh.%" PRId64 ", %%model.layers.%" PRId64
            ".self_attn.%s.weight) {epsilon=%.17g}\n",
            name, layer, name, layer, name, layer, layer, norm, g->c->rms_eps);
        from = "n";
    }
    put("  %%%sr.%" PRId64 " = npu.rotary_mul(%%%s%s.%" PRId64 ", %%cos, %%sin)\n", name, layer, name, from, layer);
}

static void put_attention(struct writer *g, int64_t i)
{
    const struct npugraph__config *c = g->c;

    put_linear(g, "q", "n", i, "self_attn.q_proj", c->attention_bias);
    put_linear(g, "k", "n", i, "self_attn.k_proj", c->attention_bias);
    put_linear(g, "v", "n", i, "self_attn.v_proj", c->attention_bias);
    put_heads(g, "q", i, c->heads, "q_norm");
    put_heads(g, "k", i, c->kv_heads, "k_norm");
    put("  %%vh.%" PRId64 " = aten.view(%%v.%" PRId64 ") {size=[%s, %" PRId64 ", %" PRId64 "]}\n", i, i, g->rows,
        c->kv_heads, c->head_dim);
    put("  npu.scatter_pa_kv_cache(%%kr.%" PRId64 ", %%vh.%" PRId64 ", %%slots, %%kv.%" PRId64 ".key, %%kv.%" PRId64
        ".value)\n",
        i, i, i, i);
    put("  %%att.%" PRId64 " = npu.fused_infer_attention_score(%%qr.%" PRId64 ", %%kv.%" PRId64 ".key, %%kv.%" PRId64
        ".value, %%block_table, %%query_lens, %%context_lens) {num_heads=%" PRId64 ", num_key_value_heads=%" PRId64
        ", scale=%.17g, block_size=%u}\n",
        i, i, i, i, c->heads, c->kv_heads, 1.0 / sqrt((double)c->head_dim), g->s->block_size);
    put("  %%flat.%" PRId64 " = aten.view(%%att.%" PRId64 ") {size=[%s, %" PRId64 "]}\n", i, i, g->rows,
        c->heads * c->head_dim);
    put_summed_linear(g, "o", "flat", i, "self_attn.o_proj", c->attention_bias);
}

static void put_mlp(struct writer *g, int64_t i)
{
    put("  %%m.%" PRId64 ", %%m_rstd.%" PRId64 ", %%mid.%" PRId64 " = npu.add_rms_norm(%%x.%" PRId64 ", %%o.%" PRId64
        ", %%model.layers.%" PRId64 ".post_attention_layernorm.weight) {epsilon=%.17g}\n",
        i, i, i, i, i, i, g->c->rms_eps);
    put_linear(g, "gate", "m", i, "mlp.gate_proj", g->c->mlp_bias);
    put_linear(g, "up", "m", i, "mlp.up_proj", g->c->mlp_bias);
    put("  %%act.%" PRId64 " = aten.silu(%%gate.%" PRId64 ")\n", i, i);
    put("  %%prod.%" PRId64 " = aten.mul.Tensor(%%act.%" PRId64 ", %%up.%" PRId64 ")\n", i, i, i);
    put_summed_linear(g, "down", "prod", i, "mlp.down_proj", g->c->mlp_bias);
}

/* Appends the residual sum and the norm before layer i + 1, or before the head, for which a prompt's last row is
 * enough. */
static void put_next(struct writer *g, int64_t i)
{
    char norm[96];
    const char *pick = "";

    if (i + 1 < g->c->layers)
        snprintf(norm, sizeof(norm), "model.layers.%" PRId64 ".input_layernorm.weight", i + 1);
    else
        snprintf(norm, sizeof(norm), "model.norm.weight");
    if (i + 1 == g->c->layers && g->prefill) {
        pick = "_row";
        put("  %%mid_row.%" PRId64 " = aten.index.Tensor(%%mid.%" PRId64 ", %%logits_rows)\n", i, i);
        put("  %%down_row.%" PRId64 " = aten.index.Tensor(%%down.%" PRId64 ", %%logits_rows)\n", i, i);
    }
    put("  %%n.%" PRId64 ", %%n_rstd.%" PRId64 ", %%x.%" PRId64 " = npu.add_rms_norm(%%mid%s.%" PRId64
        ", %%down%s.%" PRId64 ", %%%s) {epsilon=%.17g}\n",
        i + 1, i + 1, i + 1, pick, i, pick, i, norm, g->c->rms_eps);
}

static void put_first(struct writer *g)
{
    const struct npugraph__weight *emb = npugraph__weights_find(g->w, "model.embed_tokens.weight");
    bool wide = strcmp(emb->dtype, "f32") == 0;

    put("  %%cos = aten.embedding(%%rope.cos, %%positions)\n  %%sin = aten.embedding(%%rope.sin, %%positions)\n");
    put("  %%%s = aten.embedding(%%model.embed_tokens.weight, %%tokens)\n", wide ? "x.0" : "emb");
    if (!wide)
        put("  %%x.0 = aten._to_copy(%%emb) {dtype=f32}\n");
    put("  %%n.0, %%n_rstd.0 = npu.rms_norm(%%x.0, %%model.layers.0.input_layernorm.weight) {epsilon=%.17g}\n",
        g->c->rms_eps);
}

void npugraph__graph_text(const struct npugraph__config *config, const struct npugraph__weights *weights,
                          const struct npugraph__shape *shape, const char *name, bool prefill, struct ngd_strbuf *sb)
{
    struct writer writer = {config, weights, shape, sb, prefill, prefill ? "T" : "B", prefill ? "1" : "B"},
                  *g = &writer;

    put_graph_head(g, name);
    put_params(g);
    put_graph_inputs(g);
    put_first(g);
    for (int64_t i = 0; i < config->layers; i++) {
        put_attention(g, i);
        put_mlp(g, i);
        put_next(g, i);
    }
    put("  %%logits = aten.linear(%%n.%" PRId64 ", %%%s)\n", config->layers,
        config->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    put("  %%token = npu.top_k_top_p_sample(%%logits, %%temperature, %%top_k, %%top_p, %%seed, %%offset)\n");
    put("  return \"token\" = %%token, \"logits\" = %%logits\n}\n");
}
