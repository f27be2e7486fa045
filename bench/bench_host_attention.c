/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of decode steps over long contexts on the host device, by the dtype of the KV cache: bf16, i8 and f8_e4m3fn
 * take turns within each round. Layers have caches of their own, which together do not fit the CPU's caches. Also the
 * write of a step's keys and values.
 *
 *      bench_host_attention [--depth N] [--batch N] [--layers N] [--heads N] [--kv-heads N] [--head-dim N]
 *                           [--threads T] [--rounds R] [--isa NAME]
 */
#include "base/mem.h"
#include "base/strbuf.h"
#include "bench/bench_device.h"
#include "devices/device.h"

enum { BLOCK = 16, MAX_ROUNDS = 101, KINDS = 3 };

struct shape {
    int depth, batch, layers, heads, kv_heads, d;
};

struct layers {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer **bound;
    double us[MAX_ROUNDS];
};

static void must(ngd_status_t status, const struct ngd_diag *diag)
{
    if (status)
        bench_fail("%s: %s", ngd_status_name(status), diag->text);
}

static int blocks_each(const struct shape *s)
{
    return (s->depth + BLOCK - 1) / BLOCK;
}

static void put_layers(struct ngd_strbuf *sb, const struct shape *s, ngd_dtype_t kv)
{
    const int blocks = blocks_each(s) * s->batch;
    const bool scaled = kv != NGD_BF16;

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"attention\" {\n");
    for (int i = 0; i < 2 * s->layers; i++)
        ngd_strbuf_printf(sb, "state %%c.%d : %s[%d,%d,%d,%d]\n", i, ngd_dtype_name(kv), blocks, BLOCK, s->kv_heads,
                          s->d);
    for (int i = 0; i < 2 * s->layers && scaled; i++)
        ngd_strbuf_printf(sb, "state %%s.%d : f32[%d,%d,%d]\n", i, blocks, s->kv_heads, BLOCK);
    ngd_strbuf_printf(sb, "input %%q.0 : bf16[%d,%d,%d]\ninput %%k : bf16[%d,%d,%d]\ninput %%slots : i32[%d]\n",
                      s->batch, s->heads, s->d, s->batch, s->kv_heads, s->d, s->batch);
    ngd_strbuf_printf(sb, "input %%table : i32[%d,%d]\nhost %%ql : i64[%d]\nhost %%kl : i64[%d]\n", s->batch,
                      blocks_each(s), s->batch, s->batch);
    for (int i = 0; i < s->layers; i++) {
        char scales[64] = "", modes[64] = "", none[] = ", none, none, none";

        if (scaled) {
            snprintf(scales, sizeof(scales), ", %%s.%d, %%s.%d", 2 * i, 2 * i + 1);
            snprintf(modes, sizeof(modes), ", key_antiquant_mode=5, value_antiquant_mode=5");
        }
        ngd_strbuf_printf(sb, "npu.scatter_pa_kv_cache(%%k, %%k, %%slots, %%c.%d, %%c.%d%s)\n", 2 * i, 2 * i + 1,
                          scales);
        ngd_strbuf_printf(sb,
                          "%%q.%d = npu.fused_infer_attention_score(%%q.%d, %%c.%d, %%c.%d, %%table, %%ql, %%kl%s%s) "
                          "{num_heads=%d, num_key_value_heads=%d, scale=0.08, block_size=%d%s}\n",
                          i + 1, i, 2 * i, 2 * i + 1, scaled ? none : "", scales, s->heads, s->kv_heads, BLOCK, modes);
    }
    ngd_strbuf_printf(sb, "return \"y\" = %%q.%d\n}\n", s->layers);
}

/* Numbers of all sizes, but no NaN; scales of about 2^-7. */
static void fill(struct ngd_buffer *buf, uint64_t bytes, ngd_dtype_t t)
{
    struct ngd_diag diag = {0};
    char *some = malloc(bytes);
    uint64_t x = bytes;

    if (!some)
        bench_fail("no memory");
    for (uint64_t i = 0; i < bytes / ngd_dtype_bytes(t); i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (t == NGD_F32)
            ((float *)(void *)some)[i] = 0x1p-7f + (float)(x >> 40) * 0x1p-40f;
        else if (t == NGD_BF16)
            ((uint16_t *)(void *)some)[i] = ngd_f32_to_bf16((float)(int8_t)(x >> 56) * 0x1p-7f);
        else
            some[i] = (char)((x >> 56) % 0x7f + ((x >> 40 & 1) << 7));
    }
    must(ngd_buffer_write(buf, 0, some, bytes, &diag), &diag);
    free(some);
}

static void open_layers(struct layers *l, struct ngd_device *dev, struct ngd_pool *pool, const struct shape *s,
                        ngd_dtype_t kv)
{
    struct ngd_digest options = {{0}};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_key key;

    ngd_strbuf_init(&sb);
    put_layers(&sb, s, kv);
    must(ngd_graph_parse(sb.data, sb.len, &l->graph, &diag), &diag);
    must(ngd_key_make(l->graph, &options, NULL, 0, &key, &diag), &diag);
    must(ngd_plan_create(l->graph, &key, NULL, ngd_device_target(dev), &l->plan, &diag), &diag);
    must(ngd_exec_create(dev, l->plan, &l->exec, &diag), &diag);
    l->bound = calloc(l->graph->n_states, sizeof(*l->bound));
    for (uint32_t i = 0; i < l->graph->n_states; i++) {
        const uint64_t bytes = l->plan->bound[i].bytes;

        must(ngd_buffer_create(dev, bytes, NGD_BUFFER_GENERAL, "bound", &l->bound[i], &diag), &diag);
        fill(l->bound[i], bytes, i < 2 * (uint32_t)s->layers ? kv : NGD_F32);
    }
    must(ngd_instance_create(l->exec, l->bound, l->graph->n_states, pool, &l->inst, &diag), &diag);
    ngd_strbuf_fini(&sb);
}

struct step_data {
    uint16_t *q, *k, *y;
    int32_t *table, *slots;
    int64_t *ql, *kl;
};

/* Each sequence has blocks of its own, in no order. */
static void make_step(struct step_data *d, const struct shape *s)
{
    const int each = blocks_each(s), all = each * s->batch, n = s->batch * s->heads * s->d;

    d->q = calloc((size_t)n, 2);
    d->k = calloc((size_t)n, 2);
    d->y = calloc((size_t)n, 2);
    d->table = calloc((size_t)all, sizeof(*d->table));
    d->slots = calloc((size_t)s->batch, sizeof(*d->slots));
    d->ql = calloc((size_t)s->batch, sizeof(*d->ql));
    d->kl = calloc((size_t)s->batch, sizeof(*d->kl));
    for (int i = 0; i < n; i++) {
        d->q[i] = ngd_f32_to_bf16((float)(i * 37 % 101 - 50) / 50);
        d->k[i] = ngd_f32_to_bf16((float)(i * 53 % 211 - 105) / 100);
    }
    for (int i = 0; i < all; i++)
        d->table[i] = i;
    for (int i = all - 1; i > 0; i--) {
        const int k = (int)((uint32_t)i * 2654435761u % (uint32_t)(i + 1)), t = d->table[i];

        d->table[i] = d->table[k];
        d->table[k] = t;
    }
    for (int i = 0; i < s->batch; i++) {
        d->ql[i] = i + 1;
        d->kl[i] = s->depth;
        d->slots[i] = d->table[(i + 1) * each - 1] * BLOCK + (s->depth - 1) % BLOCK;
    }
}

static double run_layers(struct layers *l, struct ngd_stream *stream, const struct shape *s, const struct step_data *d)
{
    const uint64_t rows = (uint64_t)s->batch, q = rows * (uint64_t)(s->heads * s->d) * 2;
    const struct ngd_span in[] = {{d->q, q},
                                  {d->k, rows * (uint64_t)(s->kv_heads * s->d) * 2},
                                  {d->slots, rows * 4},
                                  {d->table, rows * (uint64_t)blocks_each(s) * 4}};
    const struct ngd_host_value hosts[] = {{d->ql, (uint32_t)s->batch}, {d->kl, (uint32_t)s->batch}};
    const struct ngd_out out[] = {{d->y, q}};
    struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = out};

    must(ngd_stream_run(stream, l->inst, &launch), &launch.diag);
    return (double)launch.device_time / 1000 / s->layers;
}

static void read_arguments(int argc, char **argv, struct shape *s, struct ngd_device_params *p, int *rounds_p)
{
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"--depth", &s->depth}, {"--batch", &s->batch},       {"--layers", &s->layers},
                   {"--heads", &s->heads}, {"--kv-heads", &s->kv_heads}, {"--head-dim", &s->d},
                   {"--rounds", rounds_p}};

    for (int i = 1; i + 1 < argc; i += 2) {
        bool known = false;

        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
            if (strcmp(argv[i], numbers[k].name) == 0 && atoi(argv[i + 1]) > 0) {
                *numbers[k].value = atoi(argv[i + 1]);
                known = true;
            }
        if (strcmp(argv[i], "--threads") == 0)
            p->threads = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--isa") == 0)
            p->isa = argv[i + 1];
        else if (!known)
            bench_fail("unknown argument %s", argv[i]);
    }
    *rounds_p = *rounds_p < MAX_ROUNDS ? *rounds_p : MAX_ROUNDS;
}

int main(int argc, char **argv)
{
    static const ngd_dtype_t kinds[KINDS] = {NGD_BF16, NGD_I8, NGD_F8_E4M3FN};
    static struct layers layers[KINDS];
    struct shape s = {.depth = 4096, .batch = 1, .layers = 4, .heads = 16, .kv_heads = 8, .d = 128};
    struct ngd_device_params params;
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_diag diag = {0};
    struct step_data d;
    double median[KINDS], best[KINDS];
    int rounds = 21;

    ngd_device_params_init(&params);
    params.backend = "host";
    read_arguments(argc, argv, &s, &params, &rounds);
    must(ngd_device_open(&params, &dev, &diag), &diag);
    must(ngd_stream_create(dev, "bench", &stream, &diag), &diag);
    must(ngd_pool_create(dev, "bench", &pool), &diag);
    make_step(&d, &s);
    for (int i = 0; i < KINDS; i++)
        open_layers(&layers[i], dev, pool, &s, kinds[i]);
    for (int r = -1; r < rounds; r++)
        for (int i = 0; i < KINDS; i++) {
            const double us = run_layers(&layers[i], stream, &s, &d);

            if (r >= 0)
                layers[i].us[r] = us;
        }
    for (int i = 0; i < KINDS; i++) {
        const double row = (double)(s.d * (int)ngd_dtype_bytes(kinds[i]) + (kinds[i] == NGD_BF16 ? 0 : 4));

        median[i] = bench_median(layers[i].us, rounds);
        best[i] = layers[i].us[0]; /* sorted; other programs of the machine disturb it least */
        printf(
            "%-9s depth %d, batch %d: median %8.1f us a layer, %.2f times as fast as bf16; best %8.1f us, %.2f times, "
            "%.1f GB/s\n",
            ngd_dtype_name(kinds[i]), s.depth, s.batch, median[i], median[0] / median[i], best[i], best[0] / best[i],
            2 * row * s.kv_heads * s.depth * s.batch / best[i] / 1000);
    }
    return 0;
}
