/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/memplan_cases.h"
#include "base/mem.h"
#include "client/hf/checkpoint.h"
#include "devices/device.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- models ---- */

const struct memplan_model memplan_models[] = {
    {"launch-bound (hidden 64)", 28, 64, 4, 2, 16, 128, 512, false},
    {"Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, false},
    {"Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, true},
};
const uint32_t memplan_n_models = sizeof(memplan_models) / sizeof(memplan_models[0]);

static bool model_text(const struct memplan_model *m, bool prefill, uint32_t rows, struct ngd_strbuf *sb)
{
    struct npugraph__shape shape = {.max_context = 2048,
                                    .block_size = 16,
                                    .num_blocks = 2048,
                                    .table_blocks = 128,
                                    .max_batch = rows,
                                    .prefill_chunk = rows,
                                    .kv_dtype = "bf16"};
    struct npugraph__checkpoint *ck = NULL;
    char config[512];
    int rc;

    snprintf(config, sizeof(config),
             "{\"architectures\": [\"%s\"], \"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64
             ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
             ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64 ", \"intermediate_size\": %" PRId64
             ", \"max_position_embeddings\": 4096, \"rope_theta\": 1e6, \"tie_word_embeddings\": true}",
             m->llama ? "LlamaForCausalLM" : "Qwen3ForCausalLM", m->vocab, m->hidden, m->layers, m->heads, m->kv_heads,
             m->head_dim, m->ffn);
    if (npugraph__checkpoint_parse(config, strlen(config), 1, &ck, NULL) != 0)
        return false;
    for (size_t i = 0; i < ck->weights.n; i++)
        snprintf(ck->weights.items[i].dtype, sizeof(ck->weights.items[i].dtype), "bf16");
    rc = npugraph__checkpoint_graph(ck, &shape, m->name, prefill, sb, NULL);
    npugraph__checkpoint_free(ck);
    return rc == 0;
}

static struct ngd_plan *plan_text(struct ngd_device *dev, const struct ngd_strbuf *sb, int64_t symbol,
                                  struct ngd_diag *diag)
{
    struct ngd_graph *graph = NULL;
    struct ngd_plan *plan = NULL;
    struct ngd_digest none = {{0}};
    struct ngd_key key;

    if (ngd_graph_parse(sb->data, sb->len, &graph, diag))
        return NULL;
    if (ngd_key_make(graph, &none, &symbol, graph->n_symbols, &key, diag) == NGD_OK)
        (void)ngd_plan_create(graph, &key, NULL, ngd_device_target(dev), &plan, diag);
    ngd_graph_unref(graph);
    return plan;
}

struct ngd_plan *memplan_plan_model(struct ngd_device *dev, const struct memplan_model *model, bool prefill,
                                    uint32_t rows, struct ngd_diag *diag)
{
    struct ngd_plan *plan = NULL;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    if (model_text(model, prefill, rows, &sb))
        plan = plan_text(dev, &sb, rows, diag);
    else
        ngd_diag_set(diag, NGD_ERR_INTERNAL, "the graph of %s cannot be written", model->name);
    ngd_strbuf_fini(&sb);
    return plan;
}

/* ---- generated graphs ---- */

#define WIDTHS     7
#define ROWS       32
#define MAX_VALUES 256

struct value {
    uint32_t width; /* the value has ROWS x width elements */
    bool used;
};

struct generator {
    uint64_t seed;
    struct ngd_strbuf *sb;
    struct value values[MAX_VALUES];
    uint32_t n;
};

static const uint32_t widths[WIDTHS] = {16, 48, 64, 256, 1000, 4096, 16384};

static uint32_t draw(struct generator *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static void add_value(struct generator *g, uint32_t width)
{
    g->values[g->n++] = (struct value){.width = width};
}

/* Chooses an operand: mostly a recent value, sometimes any value, since long-lived values make planning hard. */
static uint32_t choose_operand(struct generator *g)
{
    uint32_t back = draw(g, 4) ? 6 : g->n, i;

    if (back > g->n)
        back = g->n;
    i = g->n - 1 - draw(g, back);
    g->values[i].used = true;
    return i;
}

static void widen(struct generator *g)
{
    uint32_t x = choose_operand(g), w = draw(g, WIDTHS);

    /* An expanded row of a parameter takes no memory of the pool. The product below is the new block. */
    ngd_strbuf_printf(g->sb, "  %%v%u = aten.expand(%%c%u) {size=[%u,%u]}\n", g->n, w, ROWS, widths[w]);
    add_value(g, widths[w]);
    ngd_strbuf_printf(g->sb, "  %%s%u = aten.sum.dim_IntList(%%v%u) {dim=[1], keepdim=true}\n", g->n, x);
    ngd_strbuf_printf(g->sb, "  %%v%u = aten.mul.Tensor(%%v%u, %%s%u)\n", g->n, g->n - 1, g->n);
    g->values[g->n - 1].used = true;
    add_value(g, widths[w]);
}

static void add_unary(struct generator *g)
{
    static const char *const ops[] = {"neg", "exp", "silu", "tanh"};
    uint32_t x = choose_operand(g);

    ngd_strbuf_printf(g->sb, "  %%v%u = aten.%s(%%v%u)\n", g->n, ops[draw(g, 4)], x);
    add_value(g, g->values[x].width);
}

static void join_values(struct generator *g)
{
    uint32_t x = choose_operand(g), y = choose_operand(g);

    if (g->values[x].width == g->values[y].width) {
        ngd_strbuf_printf(g->sb, "  %%v%u = aten.add.Tensor(%%v%u, %%v%u)\n", g->n, x, y);
        add_value(g, g->values[x].width);
    } else if (g->values[x].width + g->values[y].width <= 2 * widths[WIDTHS - 1]) {
        ngd_strbuf_printf(g->sb, "  %%v%u = aten.cat(%%v%u, %%v%u) {dim=1}\n", g->n, x, y);
        add_value(g, g->values[x].width + g->values[y].width);
    }
}

static void halve(struct generator *g)
{
    uint32_t x = choose_operand(g), half = g->values[x].width / 2;

    ngd_strbuf_printf(g->sb, "  %%h%u = aten.slice.Tensor(%%v%u) {dim=1, start=0, end=%u}\n", g->n, x, half);
    ngd_strbuf_printf(g->sb, "  %%v%u = aten.exp(%%h%u)\n", g->n, g->n);
    add_value(g, half);
}

static void generate_values(struct generator *g)
{
    static void (*const makers[])(struct generator *) = {widen, add_unary, add_unary, join_values, join_values, halve};
    uint32_t steps = 20 + draw(g, 150);
    bool first = true;

    ngd_strbuf_append(g->sb, "npugraph 1\ngraph \"branches\" {\n");
    for (uint32_t w = 0; w < WIDTHS; w++)
        ngd_strbuf_printf(g->sb, "  param %%c%u : f32[1,%u]\n", w, widths[w]);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t w = widths[draw(g, WIDTHS)];

        ngd_strbuf_printf(g->sb, "  input %%v%u : f32[%u,%u]\n", g->n, ROWS, w);
        add_value(g, w);
    }
    for (uint32_t i = 0; i < steps && g->n + 2 < MAX_VALUES; i++)
        makers[draw(g, sizeof(makers) / sizeof(makers[0]))](g);
    ngd_strbuf_append(g->sb, "  return ");
    for (uint32_t i = 3; i < g->n; i++) {
        if (g->values[i].used && i + 1 < g->n)
            continue;
        ngd_strbuf_printf(g->sb, "%s\"o%u\" = %%v%u", first ? "" : ", ", i, i);
        first = false;
    }
    ngd_strbuf_append(g->sb, "\n}\n");
}

struct ngd_plan *memplan_plan_generated(struct ngd_device *dev, uint64_t seed, struct ngd_diag *diag)
{
    struct generator g = {.seed = seed * 2654435761u + 1};
    struct ngd_plan *plan = NULL;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    g.sb = &sb;
    generate_values(&g);
    plan = plan_text(dev, &sb, 0, diag);
    ngd_strbuf_fini(&sb);
    return plan;
}

double memplan_ratio(const struct ngd_plan *plan)
{
    return plan->live_peak_bytes ? (double)plan->pool_bytes / (double)plan->live_peak_bytes : 1.0;
}
