/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_PLAN_UTIL_H
#define NGD_TESTS_PLAN_UTIL_H

/* Helpers for tests of plans: a target, a graph of a decoder, and a check of what holds for every plan. */
#include "base/mem.h"
#include "graphs/plan.h"
#include "tests/unit/unit.h"
#include <stdbool.h>
#include <string.h>

/* Elementwise operators and copies take any strides; linear takes a strided weight; linear and attention want
 * workspace. */
static inline uint32_t stub_strided(const struct ngd_op *op)
{
    if ((op->flags & NGD_OPF_ELEMENTWISE) || op->id == NGD_OP_ATEN_COPY_)
        return UINT32_MAX;
    return op->id == NGD_OP_ATEN_LINEAR ? 2 : 0;
}

static inline ngd_status_t stub_select(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                       uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)ctx;
    (void)plan;
    if (call->op->id == NGD_OP_ATEN_CUMSUM)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "no kernel adds up here");
    *strided_p = stub_strided(call->op);
    *workspace_p = call->op->id == NGD_OP_ATEN_LINEAR                       ? 4000
                   : call->op->id == NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE ? 70000
                                                                            : 0;
    return NGD_OK;
}

static const struct ngd_plan_target stub_target = {.arch = "stub", .select = stub_select};
static const struct ngd_plan_target strided_target
    __attribute__((unused)) = {.arch = "stub", .select = stub_select, .strided_results = true};
static const struct ngd_plan_target inplace_target = {.arch = "stub", .select = stub_select, .inplace = true};

static inline struct ngd_graph *parse_graph(const char *text)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};

    if (ngd_graph_parse(text, strlen(text), &g, &diag))
        ck_abort_msg("%s\n%.2000s", diag.text, text);
    return g;
}

static inline ngd_status_t try_plan(struct ngd_graph *g, const int64_t *symbols, uint32_t n_symbols,
                                    const struct ngd_plan_target *target, struct ngd_plan **plan_p,
                                    struct ngd_diag *diag)
{
    struct ngd_digest options = {{0}};
    struct ngd_key key;
    ngd_status_t status = ngd_key_make(g, &options, symbols, n_symbols, &key, diag);

    return status ? status : ngd_plan_create(g, &key, NULL, target, plan_p, diag);
}

static inline struct ngd_plan *make_plan(const char *text, const int64_t *symbols, uint32_t n_symbols,
                                         const struct ngd_plan_target *target)
{
    struct ngd_graph *g = parse_graph(text);
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};

    if (try_plan(g, symbols, n_symbols, target, &plan, &diag))
        ck_abort_msg("%s", diag.text);
    ngd_graph_unref(g);
    return plan;
}

/* ---- what holds for every plan ---- */

struct live_block {
    uint64_t offset, bytes;
    uint32_t first, last;
    bool live;
};

static inline void check_tensors(const struct ngd_plan *p)
{
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ngd_plan_tensor *t = &p->tensors[i], *r = &p->tensors[t->root];

        if (r->root != t->root || r->space != t->space || r->bound != t->bound)
            ck_abort_msg("t%u: its root t%u is no root of its space", i, t->root);
        if (t->bytes && (t->offset < r->offset || t->offset + t->bytes > r->offset + r->bytes))
            ck_abort_msg("t%u leaves its root t%u", i, t->root);
        if (t->root == i && (t->offset % 64 || !ngd_plan_contiguous(t)))
            ck_abort_msg("root t%u is not aligned or not contiguous", i);
        if (t->space == NGD_SPACE_POOL && t->offset + t->bytes > p->pool_bytes)
            ck_abort_msg("t%u leaves the pool", i);
    }
}

static inline void live_at(const struct ngd_plan *p, struct live_block *roots, uint32_t tensor, uint32_t step)
{
    struct live_block *b;

    if (tensor == NGD_PLAN_NONE || p->tensors[tensor].space != NGD_SPACE_POOL)
        return;
    b = &roots[p->tensors[tensor].root];
    b->first = b->live && b->first < step ? b->first : step;
    b->last = b->live && b->last > step ? b->last : step;
    b->live = true;
}

static inline void check_call(const struct ngd_plan *p, struct live_block *blocks, uint32_t c)
{
    const struct ngd_plan_call *call = &p->calls[c];
    uint32_t strided = stub_strided(call->op);

    for (uint32_t i = 0; i < call->n_in; i++) {
        const struct ngd_plan_tensor *t = call->in[i] == NGD_PLAN_NONE ? NULL : &p->tensors[call->in[i]];

        if (t && t->space == NGD_SPACE_POOL && !blocks[t->root].live)
            ck_abort_msg("call %u reads t%u, which nobody has made", c, call->in[i]);
        if (t && !(strided & (1u << i)) && !ngd_plan_contiguous(t))
            ck_abort_msg("call %u: operand %u has strides", c, i);
        live_at(p, blocks, call->in[i], c);
    }
    for (uint32_t i = 0; i < call->n_out; i++) {
        const struct ngd_plan_tensor *t = &p->tensors[call->out[i]];

        if ((!ngd_plan_contiguous(t) && !(call->op->flags & NGD_OPF_ELEMENTWISE)) ||
            (t->space != NGD_SPACE_POOL && t->bound < p->graph->n_params))
            ck_abort_msg("call %u: result %u is no contiguous tensor of the pool or of a state", c, i);
        live_at(p, blocks, call->out[i], c);
    }
    blocks[p->n_tensors + c] = (struct live_block){.offset = call->workspace_offset,
                                                   .bytes = call->workspace_bytes,
                                                   .first = c,
                                                   .last = c,
                                                   .live = call->workspace_bytes != 0};
}

static inline void check_overlaps(const struct ngd_plan *p, const struct live_block *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (b[i].live && b[i].offset + b[i].bytes > p->pool_bytes)
            ck_abort_msg("block %u leaves the pool", i);
        for (uint32_t k = i + 1; b[i].live && b[i].bytes && k < n; k++)
            if (b[k].live && b[k].bytes && b[i].first <= b[k].last && b[k].first <= b[i].last &&
                b[i].offset < b[k].offset + b[k].bytes && b[k].offset < b[i].offset + b[i].bytes)
                ck_abort_msg("blocks %u and %u (of %u tensors) overlap while both live", i, k, p->n_tensors);
    }
}

static inline void check_outputs(const struct ngd_plan *p)
{
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        const struct ngd_plan_tensor *t = &p->tensors[p->outputs[i].tensor];

        if (t->space != NGD_SPACE_POOL || !ngd_plan_contiguous(t))
            ck_abort_msg("output %u is no contiguous pool tensor", i);
        for (uint32_t k = 0; k < i; k++)
            if (p->outputs[k].tensor == p->outputs[i].tensor)
                ck_abort_msg("outputs %u and %u are one tensor", k, i);
    }
}

static inline void check_plan(const struct ngd_plan *p)
{
    struct live_block *blocks = ngd_calloc((size_t)p->n_tensors + p->n_calls, sizeof(*blocks));

    ck_assert_ptr_nonnull(blocks);
    check_tensors(p);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        blocks[i] = (struct live_block){.offset = p->tensors[i].offset, .bytes = p->tensors[i].bytes};
    for (uint32_t i = 0; i < p->graph->n_inputs; i++)
        live_at(p, blocks, p->inputs[i].tensor, 0);
    for (uint32_t c = 0; c < p->n_calls; c++)
        check_call(p, blocks, c);
    for (uint32_t i = 0; i < p->graph->n_outputs; i++)
        live_at(p, blocks, p->outputs[i].tensor, p->n_calls);
    check_overlaps(p, blocks, p->n_tensors + p->n_calls);
    check_outputs(p);
    ck_assert_uint_ge(p->pool_bytes, p->live_peak_bytes);
    ngd_free(blocks);
}

/* ---- a decoder, as a client writes it ---- */

struct decoder_shape {
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
};

static inline void decoder_inputs(const struct decoder_shape *s, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb,
                      "npugraph 1\ngraph \"decoder\" {\n  sym B 1..512 buckets 1, 2, 4, 8, 16, 64, 512\n"
                      "  param %%emb : bf16[%u,%u]\n  param %%fn : bf16[%u]\n",
                      s->vocab, s->hidden, s->hidden);
    for (uint32_t l = 0; l < s->layers; l++)
        ngd_strbuf_printf(sb,
                          "  param %%ln1.%u : bf16[%u]\n  param %%wq.%u : bf16[%u,%u]\n  param %%wk.%u : bf16[%u,%u]\n"
                          "  param %%wv.%u : bf16[%u,%u]\n  param %%qn.%u : bf16[%u]\n  param %%kn.%u : bf16[%u]\n"
                          "  param %%wo.%u : bf16[%u,%u]\n  param %%ln2.%u : bf16[%u]\n  param %%wg.%u : bf16[%u,%u]\n"
                          "  param %%wu.%u : bf16[%u,%u]\n  param %%wd.%u : bf16[%u,%u]\n"
                          "  state %%kc.%u : bf16[64,16,%u,%u]\n  state %%vc.%u : bf16[64,16,%u,%u]\n",
                          l, s->hidden, l, s->heads * s->head_dim, s->hidden, l, s->kv_heads * s->head_dim, s->hidden,
                          l, s->kv_heads * s->head_dim, s->hidden, l, s->head_dim, l, s->head_dim, l, s->hidden,
                          s->heads * s->head_dim, l, s->hidden, l, s->ffn, s->hidden, l, s->ffn, s->hidden, l,
                          s->hidden, s->ffn, l, s->kv_heads, s->head_dim, l, s->kv_heads, s->head_dim);
    ngd_strbuf_printf(sb,
                      "  input %%tok : i32[B]\n  input %%cos : f32[B,%u]\n  input %%sin : f32[B,%u]\n"
                      "  input %%slots : i32[B]\n  input %%bt : i32[B,32]\n  host %%ql : i64[B]\n  host %%kl : i64[B]\n"
                      "  %%x.0 = aten.embedding(%%emb, %%tok)\n",
                      s->head_dim, s->head_dim);
}

static inline void decoder_attention(const struct decoder_shape *s, uint32_t l, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb,
                      "  %%n1.%u, %%r1.%u = npu.rms_norm(%%x.%u, %%ln1.%u)\n"
                      "  %%q.%u = aten.linear(%%n1.%u, %%wq.%u)\n  %%k.%u = aten.linear(%%n1.%u, %%wk.%u)\n"
                      "  %%v.%u = aten.linear(%%n1.%u, %%wv.%u)\n",
                      l, l, l, l, l, l, l, l, l, l, l, l, l);
    ngd_strbuf_printf(sb,
                      "  %%q3.%u = aten.view(%%q.%u) {size=[B,%u,%u]}\n  %%k3.%u = aten.view(%%k.%u) {size=[B,%u,%u]}\n"
                      "  %%v3.%u = aten.view(%%v.%u) {size=[B,%u,%u]}\n",
                      l, l, s->heads, s->head_dim, l, l, s->kv_heads, s->head_dim, l, l, s->kv_heads, s->head_dim);
    ngd_strbuf_printf(
        sb,
        "  %%qn1.%u, %%rq.%u = npu.rms_norm(%%q3.%u, %%qn.%u)\n  %%kn1.%u, %%rk.%u = npu.rms_norm(%%k3.%u, %%kn.%u)\n"
        "  %%qr.%u = npu.rotary_mul(%%qn1.%u, %%cos, %%sin)\n  %%kr.%u = npu.rotary_mul(%%kn1.%u, %%cos, %%sin)\n"
        "  npu.scatter_pa_kv_cache(%%kr.%u, %%v3.%u, %%slots, %%kc.%u, %%vc.%u)\n",
        l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l);
    ngd_strbuf_printf(
        sb,
        "  %%a.%u = npu.fused_infer_attention_score(%%qr.%u, %%kc.%u, %%vc.%u, %%bt, %%ql, %%kl) {num_heads=%u, "
        "num_key_value_heads=%u, scale=0.1, block_size=16}\n",
        l, l, l, l, s->heads, s->kv_heads);
    ngd_strbuf_printf(sb, "  %%a2.%u = aten.view(%%a.%u) {size=[B,%u]}\n  %%o.%u = aten.linear(%%a2.%u, %%wo.%u)\n", l,
                      l, s->heads * s->head_dim, l, l, l);
    ngd_strbuf_printf(sb, "  %%h.%u = aten.add.Tensor(%%x.%u, %%o.%u)\n", l, l, l);
}

static inline void decoder_mlp(uint32_t l, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb,
                      "  %%n2.%u, %%r2.%u = npu.rms_norm(%%h.%u, %%ln2.%u)\n  %%g.%u = aten.linear(%%n2.%u, %%wg.%u)\n"
                      "  %%u.%u = aten.linear(%%n2.%u, %%wu.%u)\n",
                      l, l, l, l, l, l, l, l, l, l);
    ngd_strbuf_printf(sb,
                      "  %%s.%u = aten.silu(%%g.%u)\n  %%m.%u = aten.mul.Tensor(%%s.%u, %%u.%u)\n"
                      "  %%d.%u = aten.linear(%%m.%u, %%wd.%u)\n  %%x.%u = aten.add.Tensor(%%h.%u, %%d.%u)\n",
                      l, l, l, l, l, l, l, l, l + 1, l, l);
}

/* Returns the text of a decoder's graph; free it with ngd_free. */
static inline char *decoder_text(const struct decoder_shape *s)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    decoder_inputs(s, &sb);
    for (uint32_t l = 0; l < s->layers; l++) {
        decoder_attention(s, l, &sb);
        decoder_mlp(l, &sb);
    }
    ngd_strbuf_printf(
        &sb,
        "  %%nf, %%rf = npu.rms_norm(%%x.%u, %%fn)\n  %%logits = aten.linear(%%nf, %%emb)\n"
        "  %%token = aten.argmax(%%logits) {dim=-1}\n  return \"logits\" = %%logits, \"token\" = %%token\n}\n",
        s->layers);
    return ngd_strbuf_steal(&sb);
}

#endif
