/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/step_graph.h"
#include <stddef.h>
#include <stdio.h>

enum { HIDDEN = 64, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, FFN = 128, BLOCK = 16 };

static void put_weights(struct ngd_strbuf *sb, int i)
{
    static const struct {
        const char *name;
        int n, k;
    } matrices[] = {{"q", HEADS * HEAD_DIM, HIDDEN},
                    {"k", KV_HEADS * HEAD_DIM, HIDDEN},
                    {"v", KV_HEADS * HEAD_DIM, HIDDEN},
                    {"o", HIDDEN, HEADS * HEAD_DIM},
                    {"gate", FFN, HIDDEN},
                    {"up", FFN, HIDDEN},
                    {"down", HIDDEN, FFN}};

    for (size_t m = 0; m < sizeof(matrices) / sizeof(matrices[0]); m++)
        ngd_strbuf_printf(sb, "param %%w.%s.%d : bf16[%d,%d]\n", matrices[m].name, i, matrices[m].n, matrices[m].k);
    ngd_strbuf_printf(sb, "param %%g1.%d : f32[%d]\nparam %%g2.%d : f32[%d]\n", i, HIDDEN, i, HIDDEN);
    ngd_strbuf_printf(sb, "param %%gq.%d : f32[%d]\nparam %%gk.%d : f32[%d]\n", i, HEAD_DIM, i, HEAD_DIM);
    ngd_strbuf_printf(sb, "state %%keys.%d : bf16[%d,%d,%d,%d]\n", i, BENCH_STEP_BLOCKS, BLOCK, KV_HEADS, HEAD_DIM);
    ngd_strbuf_printf(sb, "state %%values.%d : bf16[%d,%d,%d,%d]\n", i, BENCH_STEP_BLOCKS, BLOCK, KV_HEADS, HEAD_DIM);
}

static void put_attention(struct ngd_strbuf *sb, int i)
{
    ngd_strbuf_printf(
        sb,
        "%%att.%d = npu.fused_infer_attention_score(%%qr.%d, %%keys.%d, %%values.%d, %%table, %%ql, %%kl) "
        "{num_heads=%d, num_key_value_heads=%d, scale=0.25, block_size=%d}\n",
        i, i, i, i, HEADS, KV_HEADS, BLOCK);
    ngd_strbuf_printf(sb, "%%flat.%d = aten.view(%%att.%d) {size=[1,%d]}\n", i, i, HEADS * HEAD_DIM);
}

static void put_heads(struct ngd_strbuf *sb, int i)
{
    static const char names[] = "qkv";

    for (int c = 0; c < 3; c++)
        ngd_strbuf_printf(sb, "%%%ch.%d = aten.view(%%%c.%d) {size=[1,%d,%d]}\n", names[c], i, names[c], i,
                          c ? KV_HEADS : HEADS, HEAD_DIM);
}

/* %to = the norm of %x with %gamma. */
static void put_norm(struct ngd_strbuf *sb, bench_form_t form, const char *to, const char *x, const char *gamma)
{
    if (form == BENCH_OPERATORS) {
        ngd_strbuf_printf(sb, "%%%s, %%%s.rstd = npu.rms_norm(%%%s, %%%s)\n", to, to, x, gamma);
        return;
    }
    ngd_strbuf_printf(sb, "%%%s.square = aten.pow.Tensor_Scalar(%%%s) {exponent=2}\n", to, x);
    ngd_strbuf_printf(sb, "%%%s.mean = aten.mean.dim(%%%s.square) {dim=[-1], keepdim=true}\n", to, to);
    ngd_strbuf_printf(sb, "%%%s.sum = aten.add.Scalar(%%%s.mean) {other=1e-06}\n", to, to);
    ngd_strbuf_printf(sb, "%%%s.rstd = aten.rsqrt(%%%s.sum)\n", to, to);
    ngd_strbuf_printf(sb, "%%%s.n = aten.mul.Tensor(%%%s, %%%s.rstd)\n", to, x, to);
    ngd_strbuf_printf(sb, "%%%s = aten.mul.Tensor(%%%s, %%%s.n)\n", to, gamma, to);
}

/* %to = %x rotated: x*cos + cat(-x2, x1)*sin. */
static void put_rotary(struct ngd_strbuf *sb, bench_form_t form, const char *to, const char *x)
{
    if (form == BENCH_OPERATORS) {
        ngd_strbuf_printf(sb, "%%%s = npu.rotary_mul(%%%s, %%cos, %%sin)\n", to, x);
        return;
    }
    ngd_strbuf_printf(sb, "%%%s.a = aten.mul.Tensor(%%%s, %%cos.heads)\n", to, x);
    ngd_strbuf_printf(sb, "%%%s.x1 = aten.slice.Tensor(%%%s) {dim=2, end=%d}\n", to, x, HEAD_DIM / 2);
    ngd_strbuf_printf(sb, "%%%s.x2 = aten.slice.Tensor(%%%s) {dim=2, start=%d}\n", to, x, HEAD_DIM / 2);
    ngd_strbuf_printf(sb, "%%%s.minus = aten.neg(%%%s.x2)\n", to, to);
    ngd_strbuf_printf(sb, "%%%s.turned = aten.cat(%%%s.minus, %%%s.x1) {dim=-1}\n", to, to, to);
    ngd_strbuf_printf(sb, "%%%s.b = aten.mul.Tensor(%%%s.turned, %%sin.heads)\n", to, to);
    ngd_strbuf_printf(sb, "%%%s = aten.add.Tensor(%%%s.a, %%%s.b)\n", to, to, to);
}

/* Computes %x.i+1 from %x.i. The sum in front of each norm is a node of its own. */
static void put_layer(struct ngd_strbuf *sb, bench_form_t form, int i)
{
    static const char names[] = "qkv";
    char to[32], x[32], gamma[32];

    snprintf(to, sizeof(to), "n.%d", i);
    snprintf(x, sizeof(x), "x.%d", i);
    snprintf(gamma, sizeof(gamma), "g1.%d", i);
    put_norm(sb, form, to, x, gamma);
    for (int c = 0; c < 3; c++)
        ngd_strbuf_printf(sb, "%%%c.%d = aten.linear(%%n.%d, %%w.%c.%d)\n", names[c], i, i, names[c], i);
    put_heads(sb, i);
    for (int c = 0; c < 2; c++) {
        snprintf(to, sizeof(to), "%cn.%d", names[c], i);
        snprintf(x, sizeof(x), "%ch.%d", names[c], i);
        snprintf(gamma, sizeof(gamma), "g%c.%d", names[c], i);
        put_norm(sb, form, to, x, gamma);
        snprintf(x, sizeof(x), "%cr.%d", names[c], i);
        put_rotary(sb, form, x, to);
    }
    ngd_strbuf_printf(sb, "npu.scatter_pa_kv_cache(%%kr.%d, %%vh.%d, %%slots, %%keys.%d, %%values.%d)\n", i, i, i, i);
    put_attention(sb, i);
    ngd_strbuf_printf(sb, "%%o.%d = aten.linear(%%flat.%d, %%w.o.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%mid.%d = aten.add.Tensor(%%x.%d, %%o.%d)\n", i, i, i);
    snprintf(to, sizeof(to), "m.%d", i);
    snprintf(x, sizeof(x), "mid.%d", i);
    snprintf(gamma, sizeof(gamma), "g2.%d", i);
    put_norm(sb, form, to, x, gamma);
    ngd_strbuf_printf(sb, "%%gate.%d = aten.linear(%%m.%d, %%w.gate.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%up.%d = aten.linear(%%m.%d, %%w.up.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%act.%d = aten.silu(%%gate.%d)\n%%p.%d = aten.mul.Tensor(%%act.%d, %%up.%d)\n", i, i, i, i,
                      i);
    ngd_strbuf_printf(sb, "%%down.%d = aten.linear(%%p.%d, %%w.down.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%x.%d = aten.add.Tensor(%%mid.%d, %%down.%d)\n", i + 1, i, i);
}

void bench_step_graph(struct ngd_strbuf *sb, int layers, bench_form_t form)
{
    char x[32], gamma[32];

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"step\" {\n");
    for (int i = 0; i < layers; i++)
        put_weights(sb, i);
    ngd_strbuf_printf(sb, "param %%head : bf16[%d,%d]\nparam %%rope : f32[64,%d]\n", BENCH_STEP_VOCAB, HIDDEN,
                      HEAD_DIM);
    ngd_strbuf_printf(sb,
                      "input %%token : i32[1]\ninput %%position : i32[1]\ninput %%slots : i32[1]\n"
                      "input %%table : i32[1,%d]\nhost %%ql : i64[1]\nhost %%kl : i64[1]\n",
                      BENCH_STEP_BLOCKS);
    ngd_strbuf_append(sb, "%cos = aten.embedding(%rope, %position)\n%sin = aten.embedding(%rope, %position)\n"
                          "%e = aten.embedding(%head, %token)\n%x.0 = aten._to_copy(%e) {dtype=f32}\n");
    if (form == BENCH_WRITTEN_OUT)
        ngd_strbuf_append(sb, "%cos.heads = aten.unsqueeze(%cos) {dim=1}\n%sin.heads = aten.unsqueeze(%sin) {dim=1}\n");
    for (int i = 0; i < layers; i++)
        put_layer(sb, form, i);
    snprintf(x, sizeof(x), "x.%d", layers);
    snprintf(gamma, sizeof(gamma), "g1.%d", layers - 1);
    put_norm(sb, form, "last", x, gamma);
    ngd_strbuf_append(sb, "%y = aten.linear(%last, %head)\n");
    ngd_strbuf_append(sb, "%t = aten.argmax(%y) {dim=-1}\nreturn \"token\" = %t, \"logits\" = %y\n}\n");
}
