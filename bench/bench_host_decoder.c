/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fused operators are worth where launches count: a decode step of 28 layers of hidden size 64, one row, on the
 * host device itself. The graph as a model gives it, eager and replayed, and the same step of fused operators (ngd.),
 * in turns within one run; and the latter once more with static kernels, whose results must be the same bits.
 *
 *     bench_host_decoder [--layers N] [--threads T] [--rounds R] [--each N] [--compiler PATH]
 */
#include "base/mem.h"
#include "base/strbuf.h"
#include "bench/bench_device.h"
#include "devices/device.h"
#include <inttypes.h>

enum { HIDDEN = 64, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, FFN = 128, VOCAB = 512, BLOCK = 16, BLOCKS = 4 };

struct step {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer **bound;
};

static void check(ngd_status_t status, const struct ngd_diag *diag)
{
    if (status)
        bench_fail("%s: %s", ngd_status_name(status), diag->text);
}

/* ---- the graph ---- */

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
    ngd_strbuf_printf(sb, "param %%g1.%d : bf16[%d]\nparam %%g2.%d : bf16[%d]\n", i, HIDDEN, i, HIDDEN);
    ngd_strbuf_printf(sb, "param %%gq.%d : bf16[%d]\nparam %%gk.%d : bf16[%d]\n", i, HEAD_DIM, i, HEAD_DIM);
    ngd_strbuf_printf(sb, "state %%keys.%d : bf16[%d,%d,%d,%d]\n", i, BLOCKS, BLOCK, KV_HEADS, HEAD_DIM);
    ngd_strbuf_printf(sb, "state %%values.%d : bf16[%d,%d,%d,%d]\n", i, BLOCKS, BLOCK, KV_HEADS, HEAD_DIM);
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

static void put_plain_layer(struct ngd_strbuf *sb, int i)
{
    static const char names[] = "qkv";

    for (int c = 0; c < 3; c++)
        ngd_strbuf_printf(sb, "%%%c.%d = aten.linear(%%n.%d, %%w.%c.%d)\n", names[c], i, i, names[c], i);
    put_heads(sb, i);
    for (int c = 0; c < 2; c++) {
        ngd_strbuf_printf(sb, "%%%cn.%d, %%%cs.%d = npu.rms_norm(%%%ch.%d, %%g%c.%d)\n", names[c], i, names[c], i,
                          names[c], i, names[c], i);
        ngd_strbuf_printf(sb, "%%%cr.%d = npu.rotary_mul(%%%cn.%d, %%cos, %%sin)\n", names[c], i, names[c], i);
    }
    ngd_strbuf_printf(sb, "npu.scatter_pa_kv_cache(%%kr.%d, %%vh.%d, %%slots, %%keys.%d, %%values.%d)\n", i, i, i, i);
    put_attention(sb, i);
    ngd_strbuf_printf(sb, "%%o.%d = aten.linear(%%flat.%d, %%w.o.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%m.%d, %%ms.%d, %%mid.%d = npu.add_rms_norm(%%x.%d, %%o.%d, %%g2.%d)\n", i, i, i, i, i, i);
    ngd_strbuf_printf(sb, "%%gate.%d = aten.linear(%%m.%d, %%w.gate.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%up.%d = aten.linear(%%m.%d, %%w.up.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%act.%d = aten.silu(%%gate.%d)\n%%p.%d = aten.mul.Tensor(%%act.%d, %%up.%d)\n", i, i, i, i,
                      i);
    ngd_strbuf_printf(sb, "%%down.%d = aten.linear(%%p.%d, %%w.down.%d)\n", i, i, i);
    ngd_strbuf_printf(sb, "%%n.%d, %%ns.%d, %%x.%d = npu.add_rms_norm(%%mid.%d, %%down.%d, %%g1.%d)\n", i + 1, i + 1,
                      i + 1, i, i, i);
}

static void put_fused_layer(struct ngd_strbuf *sb, int i)
{
    ngd_strbuf_printf(sb,
                      "%%q.%d, %%k.%d, %%v.%d = ngd.rms_norm_linear(%%x.%d, %%g1.%d, %%w.q.%d, %%w.k.%d, %%w.v.%d) "
                      "{sizes=[%d,%d,%d]}\n",
                      i, i, i, i, i ? i - 1 : 0, i, i, i, HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    put_heads(sb, i);
    ngd_strbuf_printf(sb,
                      "%%qr.%d = ngd.qk_norm_rope_scatter(%%qh.%d, %%kh.%d, %%vh.%d, %%cos, %%sin, %%slots, %%keys.%d, "
                      "%%values.%d, %%gq.%d, %%gk.%d)\n",
                      i, i, i, i, i, i, i, i);
    put_attention(sb, i);
    ngd_strbuf_printf(sb, "%%mid.%d = ngd.linear_add(%%flat.%d, %%w.o.%d, %%x.%d)\n", i, i, i, i);
    ngd_strbuf_printf(sb, "%%p.%d = ngd.rms_norm_linear_swiglu(%%mid.%d, %%g2.%d, %%w.gate.%d, %%w.up.%d)\n", i, i, i,
                      i, i);
    ngd_strbuf_printf(sb, "%%x.%d = ngd.linear_add(%%p.%d, %%w.down.%d, %%mid.%d)\n", i + 1, i, i, i);
}

static void put_graph(struct ngd_strbuf *sb, int layers, bool fused)
{
    ngd_strbuf_append(sb, "npugraph 1\ngraph \"step\" {\n");
    for (int i = 0; i < layers; i++)
        put_weights(sb, i);
    ngd_strbuf_printf(sb, "param %%head : bf16[%d,%d]\nparam %%rope : f32[64,%d]\n", VOCAB, HIDDEN, HEAD_DIM);
    ngd_strbuf_printf(sb,
                      "input %%token : i32[1]\ninput %%position : i32[1]\ninput %%slots : i32[1]\n"
                      "input %%table : i32[1,%d]\nhost %%ql : i64[1]\nhost %%kl : i64[1]\n",
                      BLOCKS);
    ngd_strbuf_append(sb, "%cos = aten.embedding(%rope, %position)\n%sin = aten.embedding(%rope, %position)\n"
                          "%e = aten.embedding(%head, %token)\n%x.0 = aten._to_copy(%e) {dtype=f32}\n");
    if (!fused)
        ngd_strbuf_append(sb, "%n.0, %ns.0 = npu.rms_norm(%x.0, %g1.0)\n");
    for (int i = 0; i < layers; i++)
        (fused ? put_fused_layer : put_plain_layer)(sb, i);
    if (fused)
        ngd_strbuf_printf(sb, "%%y = ngd.rms_norm_linear(%%x.%d, %%g1.%d, %%head) {sizes=[%d]}\n", layers, layers - 1,
                          VOCAB);
    else
        ngd_strbuf_printf(sb, "%%y = aten.linear(%%n.%d, %%head)\n", layers);
    ngd_strbuf_append(sb, "%t = aten.argmax(%y) {dim=-1}\nreturn \"token\" = %t, \"logits\" = %y\n}\n");
}

/* ---- running ---- */

static void open_step(struct step *s, struct ngd_device *dev, struct ngd_pool *pool, int layers, bool fused)
{
    struct ngd_digest options = {{0}};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_key key;
    uint32_t n;

    ngd_strbuf_init(&sb);
    put_graph(&sb, layers, fused);
    check(ngd_graph_parse(sb.data, sb.len, &s->graph, &diag), &diag);
    check(ngd_key_make(s->graph, &options, NULL, 0, &key, &diag), &diag);
    check(ngd_plan_create(s->graph, &key, NULL, ngd_device_target(dev), &s->plan, &diag), &diag);
    check(ngd_exec_create(dev, s->plan, &s->exec, &diag), &diag);
    n = s->graph->n_params + s->graph->n_states;
    s->bound = calloc(n, sizeof(*s->bound));
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = s->plan->bound[i].bytes;
        uint16_t *some = malloc(bytes);

        /* Small numbers, different from row to row, the same for both graphs: they name their weights in one order. */
        for (uint64_t k = 0; k < bytes / 2; k++)
            some[k] = (uint16_t)(0x3d00 + (k * 2654435761u >> 20) % 256 + ((k * 40503u >> 7) & 1) * 0x8000);
        check(ngd_buffer_create(dev, bytes, NGD_BUFFER_GENERAL, "bound", &s->bound[i], &diag), &diag);
        check(ngd_buffer_write(s->bound[i], 0, some, bytes, &diag), &diag);
        free(some);
    }
    check(ngd_instance_create(s->exec, s->bound, n, pool, &s->inst, &diag), &diag);
    ngd_strbuf_fini(&sb);
}

static double run(struct step *s, struct ngd_stream *stream, bool eager, int64_t each, float *logits)
{
    static const int32_t token = 7, position = 20, slot = 20, table[BLOCKS] = {0, 1, 2, 3};
    static const int64_t ql = 1, kl = 21;
    const struct ngd_span in[] = {{&token, 4}, {&position, 4}, {&slot, 4}, {table, sizeof(table)}};
    const struct ngd_host_value hosts[] = {{&ql, 1}, {&kl, 1}};
    int64_t best;
    const struct ngd_out out[] = {{&best, 8}, {logits, VOCAB * sizeof(float)}};
    double sum = 0;

    for (int64_t i = 0; i < each; i++) {
        struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = out, .eager = eager};

        check(ngd_stream_run(stream, s->inst, &launch), &launch.diag);
        sum += (double)launch.device_time;
    }
    return sum / (double)each / 1000;
}

/* Static kernels for s; how long the compiler took. */
static double compile(struct step *s, const char *compiler)
{
    const ngd_nsec_t start = ngd_now();
    struct ngd_strbuf source, object;
    struct ngd_static_work work = {.compiler = compiler, .dir = "/tmp", .timeout = 600 * NGD_SEC};
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&source);
    ngd_strbuf_init(&object);
    check(ngd_exec_static_source(s->exec, &source, &diag), &diag);
    work.source = ngd_strbuf_str(&source);
    if (ngd_exec_static_compile(s->exec, &work, &object, &diag) != NGD_STATIC_COMPILED)
        bench_fail("%s", diag.text);
    check(ngd_exec_static_adopt(s->exec, object.data, object.len, &diag), &diag);
    ngd_strbuf_fini(&source);
    ngd_strbuf_fini(&object);
    return (double)(ngd_now() - start) / NGD_SEC;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"eager, as given", "replay, as given", "replay, fused", "replay, static"};
    struct ngd_device_params params;
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_diag diag = {0};
    struct step plain, fused, compiled;
    const char *compiler = "/usr/bin/cc";
    static float logits[3][VOCAB];
    static double us[4][64];
    double seconds;
    int layers = 28, rounds = 21, each = 200;

    ngd_device_params_init(&params);
    params.backend = "host";
    for (int i = 1; i + 1 < argc; i += 2) {
        const int v = atoi(argv[i + 1]);

        if (strcmp(argv[i], "--layers") == 0 && v > 0)
            layers = v;
        else if (strcmp(argv[i], "--threads") == 0 && v > 0)
            params.threads = (uint32_t)v;
        else if (strcmp(argv[i], "--rounds") == 0 && v > 0)
            rounds = v < 64 ? v : 64;
        else if (strcmp(argv[i], "--each") == 0 && v > 0)
            each = v;
        else if (strcmp(argv[i], "--compiler") == 0)
            compiler = argv[i + 1];
        else
            bench_fail("unknown argument %s", argv[i]);
    }
    check(ngd_device_open(&params, &dev, &diag), &diag);
    check(ngd_stream_create(dev, "bench", &stream, &diag), &diag);
    check(ngd_pool_create(dev, "bench", &pool), &diag);
    open_step(&plain, dev, pool, layers, false);
    open_step(&fused, dev, pool, layers, true);
    open_step(&compiled, dev, pool, layers, true);
    seconds = compile(&compiled, compiler);
    for (int r = 0; r < rounds; r++) {
        us[0][r] = run(&plain, stream, true, each, logits[0]);
        us[1][r] = run(&plain, stream, false, each, logits[0]);
        us[2][r] = run(&fused, stream, false, each, logits[1]);
        us[3][r] = run(&compiled, stream, false, each, logits[2]);
        if (memcmp(logits[1], logits[2], sizeof(logits[1])) != 0)
            bench_fail("static kernels give other results");
    }
    for (int i = 0; i < 4; i++)
        printf("%-18s %4u calls  %8.1f us\n", names[i], (i >= 2 ? &fused : &plain)->plan->n_calls,
               bench_median(us[i], rounds));
    printf("eager / fused replay %.2f\n", bench_median(us[0], rounds) / bench_median(us[2], rounds));
    printf("generic / static replay %.3f, compiled in %.1f s\n",
           bench_median(us[2], rounds) / bench_median(us[3], rounds), seconds);
    return 0;
}
