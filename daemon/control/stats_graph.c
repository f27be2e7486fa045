/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_graph.h"
#include "base/mem.h"
#include "daemon/control/json.h"
#include "daemon/daemon.h"
#include "graphs/plan_map.h"
#include "graphs/relation.h"
#include "scheduler/record/recorder.h"
#include "scheduler/run/sched.h"
#include <inttypes.h>
#include <stdio.h>

/* Prints a name that another printer makes. */
static void put_printed(struct ngd_strbuf *sb, const char *name, struct ngd_strbuf *text)
{
    ngd_json_text(sb, name, ngd_strbuf_str(text));
    sb->failed |= text->failed;
    ngd_strbuf_fini(text);
}

/* Returns whether entry i of a list is printed. */
static bool prints_entry(const struct ngd_strbuf *sb, uint32_t i)
{
    return i < NGD_STATS_CALLS && sb->len < NGD_STATS_BYTES;
}

static void put_key_hash(struct ngd_strbuf *sb, uint64_t hash)
{
    char text[17] = "";

    if (hash)
        snprintf(text, sizeof(text), "%016" PRIx64, hash);
    ngd_json_text(sb, "key", text);
}

/* ---- the graph ------------------------------------------------------------------------------------------ */

static void put_symbols(const struct ngd_graph *g, struct ngd_strbuf *sb)
{
    ngd_json_open_list(sb, "symbols");
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const struct ngd_symbol *s = &g->symbols[i];

        ngd_json_open_object(sb, NULL);
        ngd_json_text(sb, "name", s->name);
        ngd_json_u64(sb, "min", (uint64_t)s->min);
        ngd_json_u64(sb, "max", (uint64_t)s->max);
        ngd_json_bool(sb, "batch", s->batch);
        ngd_json_open_list(sb, "buckets");
        for (uint32_t k = 0; s->policy == NGD_SYMBOL_BUCKETS && k < s->n_buckets; k++)
            ngd_json_u64(sb, NULL, (uint64_t)s->buckets[k]);
        ngd_json_close_list(sb);
        ngd_json_close_object(sb);
    }
    ngd_json_close_list(sb);
    ngd_json_open_list(sb, "guards");
    for (uint32_t i = 0; i < g->n_relations; i++) {
        struct ngd_strbuf text;

        ngd_strbuf_init(&text);
        ngd_relation_print(g->exprs, &g->relations[i], &text);
        put_printed(sb, NULL, &text);
    }
    ngd_json_close_list(sb);
}

struct key_list {
    struct ngd_strbuf *sb;
    uint32_t n;
    uint64_t most, key; /* uses and hash of the key that was used most */
};

static void put_listed_key(void *ctx, const struct ngd_key_info *info)
{
    struct key_list *list = ctx;
    struct ngd_strbuf *sb = list->sb;

    if (list->n == 0 || info->runs > list->most) {
        list->most = info->runs;
        list->key = info->hash;
    }
    if (list->n++ >= NGD_STATS_KEYS)
        return;
    ngd_json_open_object(sb, NULL);
    put_key_hash(sb, info->hash);
    ngd_json_text(sb, "symbols", info->symbols);
    ngd_json_u64(sb, "uses", info->uses);
    ngd_json_u64(sb, "replays", info->runs);
    ngd_json_u64(sb, "padded_replays", info->padded_runs);
    ngd_json_u64(sb, "expected_ns", (uint64_t)info->expected);
    ngd_json_u64(sb, "capture_ns", (uint64_t)info->capture_time);
    ngd_json_u64(sb, "pool_bytes", info->pool_bytes);
    ngd_json_u64(sb, "kernels", info->kernels);
    ngd_json_text(sb, "static", info->static_kernels);
    ngd_json_close_object(sb);
}

/* Prints the keys. Returns the hash of the one that was used most; 0: there is none. */
static uint64_t put_keys(struct ngd_program *prog, struct ngd_strbuf *sb)
{
    struct key_list list = {.sb = sb};

    ngd_json_open_list(sb, "keys");
    ngd_program_for_each_key(prog, put_listed_key, &list);
    ngd_json_close_list(sb);
    ngd_json_u64(sb, "keys_total", list.n);
    return list.key;
}

/* Opens a call of the picture: operator, the name of its first result, its stream. */
static void open_call(struct ngd_strbuf *sb, const struct ngd_graph *g, const struct ngd_op *op, uint32_t node,
                      uint16_t stream)
{
    const struct ngd_node *n = node < g->n_nodes ? &g->nodes[node] : NULL;

    ngd_json_open_object(sb, NULL);
    ngd_json_text(sb, "op", op->name);
    if (n && n->n_out)
        ngd_json_text(sb, "name", g->values[n->out[0]].name);
    if (stream)
        ngd_json_text(sb, "stream", g->streams[stream]);
}

/* ---- a graph without a plan ----------------------------------------------------------------------------- */

static void put_values(struct ngd_strbuf *sb, const char *name, const uint32_t *values, uint32_t n)
{
    ngd_json_open_list(sb, name);
    for (uint32_t i = 0; i < n; i++)
        if (values[i] != NGD_VALUE_NONE)
            ngd_json_u64(sb, NULL, values[i]);
    ngd_json_close_list(sb);
}

static void put_node_calls(const struct ngd_graph *g, struct ngd_strbuf *sb)
{
    ngd_json_u64(sb, "calls_total", g->n_nodes);
    ngd_json_open_list(sb, "calls");
    for (uint32_t i = 0; i < g->n_nodes && prints_entry(sb, i); i++) {
        const struct ngd_node *n = &g->nodes[i];

        open_call(sb, g, n->op, i, n->scope.stream);
        if (n->n_out) {
            struct ngd_strbuf text;

            ngd_strbuf_init(&text);
            ngd_type_print(g, &g->values[n->out[0]].type, &text);
            put_printed(sb, "type", &text);
        }
        put_values(sb, "in", n->in, n->n_in);
        put_values(sb, "out", n->out, n->n_out);
        ngd_json_close_object(sb);
    }
    ngd_json_close_list(sb);
}

static void put_inputs(const struct ngd_graph *g, const char *kind, const uint32_t *values, uint32_t n,
                       struct ngd_strbuf *sb)
{
    for (uint32_t i = 0; i < n && prints_entry(sb, i); i++) {
        struct ngd_strbuf type;

        ngd_strbuf_init(&type);
        ngd_json_open_object(sb, NULL);
        ngd_json_u64(sb, "id", values[i]);
        ngd_json_text(sb, "kind", kind);
        ngd_json_text(sb, "name", g->values[values[i]].label);
        ngd_type_print(g, &g->values[values[i]].type, &type);
        put_printed(sb, "type", &type);
        ngd_json_close_object(sb);
    }
}

static void put_graph_picture(const struct ngd_graph *g, struct ngd_strbuf *sb)
{

    ngd_json_open_object(sb, "picture");
    put_node_calls(g, sb);
    ngd_json_open_list(sb, "sources");
    put_inputs(g, "input", g->inputs, g->n_inputs, sb);
    put_inputs(g, "host", g->hosts, g->n_hosts, sb);
    put_inputs(g, "state", g->states, g->n_states, sb);
    put_inputs(g, "param", g->params, g->n_params, sb);
    ngd_json_close_list(sb);
    ngd_json_close_object(sb);
}

/* ---- a plan --------------------------------------------------------------------------------------------- */

/* Prints the storages that a call reads or writes: tensors that share one have the same number. */
static void put_roots(const struct ngd_plan *plan, const char *name, const uint32_t *tensors, uint32_t n,
                      struct ngd_strbuf *sb)
{
    ngd_json_open_list(sb, name);
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i] != NGD_PLAN_NONE)
            ngd_json_u64(sb, NULL, plan->tensors[tensors[i]].root);
    ngd_json_close_list(sb);
}

static void put_tensor_type(const struct ngd_plan_tensor *t, struct ngd_strbuf *sb)
{
    struct ngd_strbuf text;

    ngd_strbuf_init(&text);
    ngd_strbuf_printf(&text, "%s[", ngd_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++)
        ngd_strbuf_printf(&text, "%s%" PRId64, i ? "," : "", t->dims[i]);
    ngd_strbuf_putc(&text, ']');
    put_printed(sb, "type", &text);
}

static void put_calls(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    ngd_json_u64(sb, "calls_total", plan->n_calls);
    ngd_json_open_list(sb, "calls");
    for (uint32_t i = 0; i < plan->n_calls && prints_entry(sb, i); i++) {
        const struct ngd_plan_call *call = &plan->calls[i];

        open_call(sb, plan->graph, call->op, call->node, call->scope.stream);
        if (call->n_out)
            put_tensor_type(&plan->tensors[call->out[0]], sb);
        put_roots(plan, "in", call->in, call->n_in, sb);
        put_roots(plan, "out", call->out, call->n_out, sb);
        ngd_json_close_object(sb);
    }
    ngd_json_close_list(sb);
}

static void put_plan_sources(const struct ngd_plan *plan, const char *kind, const struct ngd_plan_io *ios,
                             const uint32_t *values, uint32_t n, struct ngd_strbuf *sb)
{
    for (uint32_t i = 0; i < n && prints_entry(sb, i); i++) {
        ngd_json_open_object(sb, NULL);
        ngd_json_u64(sb, "id", plan->tensors[ios[i].tensor].root);
        ngd_json_text(sb, "kind", kind);
        ngd_json_text(sb, "name", plan->graph->values[values[i]].label);
        put_tensor_type(&plan->tensors[ios[i].tensor], sb);
        ngd_json_u64(sb, "bytes", ios[i].bytes);
        ngd_json_close_object(sb);
    }
}

static void put_blocks(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    struct ngd_plan_block *list = NULL;
    uint32_t n = 0;

    if (ngd_plan_blocks(plan, &list, &n) != NGD_OK)
        sb->failed = true;
    ngd_json_u64(sb, "blocks_total", n);
    ngd_json_open_list(sb, "blocks");
    for (uint32_t i = 0; i < n && prints_entry(sb, i); i++) {
        struct ngd_strbuf name;

        ngd_strbuf_init(&name);
        ngd_json_open_object(sb, NULL);
        ngd_plan_block_name(plan, &list[i], &name);
        put_printed(sb, "name", &name);
        ngd_json_u64(sb, "offset", list[i].offset);
        ngd_json_u64(sb, "bytes", list[i].bytes);
        ngd_json_u64(sb, "first", list[i].first);
        ngd_json_u64(sb, "last", list[i].last);
        ngd_json_close_object(sb);
    }
    ngd_json_close_list(sb);
    ngd_free(list);
}

struct plan_printer {
    struct ngd_strbuf *sb;
    bool done;
};

static void put_plan(void *ctx, const struct ngd_plan *plan)
{
    struct plan_printer *printer = ctx;
    struct ngd_strbuf *sb = printer->sb;
    const struct ngd_graph *g = plan->graph;

    if (printer->done) /* two executables of one key: the older one is on its way out */
        return;
    printer->done = true;
    ngd_json_open_object(sb, "plan");
    put_key_hash(sb, plan->key.hash);
    ngd_json_u64(sb, "pool_bytes", plan->pool_bytes);
    ngd_json_u64(sb, "live_bytes", plan->live_peak_bytes);
    ngd_json_u64(sb, "weight_bytes", plan->weight_bytes);
    ngd_json_u64(sb, "flops", plan->flops);
    put_blocks(plan, sb);
    ngd_json_close_object(sb);
    ngd_json_open_object(sb, "picture");
    put_calls(plan, sb);
    ngd_json_open_list(sb, "sources");
    put_plan_sources(plan, "input", plan->inputs, g->inputs, g->n_inputs, sb);
    put_plan_sources(plan, "state", plan->bound + g->n_params, g->states, g->n_states, sb);
    put_plan_sources(plan, "param", plan->bound, g->params, g->n_params, sb);
    ngd_json_close_list(sb);
    ngd_json_close_object(sb);
}

/* ---- a page --------------------------------------------------------------------------------------------- */

struct wanted_program {
    uint64_t number;
    struct ngd_program *prog; /* a reference */
};

static void take_wanted(void *ctx, struct ngd_program *prog)
{
    struct wanted_program *wanted = ctx;

    if (!wanted->prog && ngd_program_number(prog) == wanted->number)
        wanted->prog = ngd_program_ref(prog);
}

static void put_graph_names(struct ngd_program *prog, struct ngd_strbuf *sb)
{
    const struct ngd_graph *g = ngd_program_graph(prog);
    struct ngd_strbuf options;
    char hex[NGD_DIGEST_HEX];

    ngd_strbuf_init(&options);
    ngd_digest_hex(&g->digest, hex);
    ngd_json_text(sb, "name", g->name);
    ngd_json_text(sb, "digest", hex);
    ngd_json_u64(sb, "number", ngd_program_number(prog));
    ngd_json_text(sb, "device", ngd_device_info(ngd_program_device(prog))->name);
    ngd_graph_options_print_changed(ngd_program_options(prog), &options);
    put_printed(sb, "options", &options);
    ngd_json_u64(sb, "nodes", g->n_nodes);
    ngd_json_u64(sb, "params", g->n_params);
    ngd_json_u64(sb, "states", g->n_states);
    ngd_json_u64(sb, "inputs", g->n_inputs);
    ngd_json_u64(sb, "outputs", g->n_outputs);
}

bool ngd_stats_graph_json(struct ngd_daemon *d, uint64_t number, uint64_t key, struct ngd_strbuf *sb)
{
    struct wanted_program wanted = {.number = number};
    struct plan_printer printer = {.sb = sb};
    char digits[17];
    uint64_t most;

    ngd_program_for_each(d->sched, take_wanted, &wanted);
    if (!wanted.prog)
        return false;
    ngd_json_open_object(sb, NULL);
    put_graph_names(wanted.prog, sb);
    put_symbols(ngd_program_graph(wanted.prog), sb);
    most = put_keys(wanted.prog, sb);
    snprintf(digits, sizeof(digits), "%016" PRIx64, key ? key : most);
    if (key || most)
        ngd_program_for_each_plan(wanted.prog, digits, put_plan, &printer);
    if (!printer.done)
        put_graph_picture(ngd_program_graph(wanted.prog), sb);
    ngd_json_close_object(sb);
    ngd_strbuf_putc(sb, '\n');
    ngd_program_unref(wanted.prog);
    return true;
}

/* ---- events --------------------------------------------------------------------------------------------- */

static void put_event(const struct ngd_flight_event *e, ngd_nsec_t now, struct ngd_strbuf *sb)
{
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(&e->graph, hex);
    ngd_json_open_object(sb, NULL);
    ngd_json_u64(sb, "event", e->number);
    ngd_json_text(sb, "kind", ngd_event_infos[e->reason].kind);
    ngd_json_text(sb, "reason", ngd_event_infos[e->reason].name);
    ngd_json_text(sb, "help", ngd_event_infos[e->reason].help);
    ngd_json_text(sb, "graph", e->name);
    ngd_json_text(sb, "digest", hex);
    ngd_json_u64(sb, "number", e->program);
    put_key_hash(sb, e->key);
    ngd_json_u64(sb, "count", e->count);
    ngd_json_double(sb, "first_s_ago", (double)(now - e->first) / (double)NGD_SEC);
    ngd_json_double(sb, "last_s_ago", (double)(now - e->last) / (double)NGD_SEC);
    ngd_json_text(sb, "text", e->text);
    ngd_json_close_object(sb);
}

void ngd_stats_events_json(struct ngd_daemon *d, uint32_t limit, struct ngd_strbuf *sb)
{
    struct ngd_flight_event *list = NGD_NEW_N(struct ngd_flight_event, limit);
    const ngd_nsec_t now = ngd_now();
    uint32_t n;

    if (!list) {
        sb->failed = true;
        return;
    }
    n = ngd_recorder_read(ngd_sched_recorder(d->sched), 0, NULL, NULL, list, limit);
    ngd_json_open_object(sb, NULL);
    ngd_json_open_list(sb, "events");
    for (uint32_t i = 0; i < n; i++)
        put_event(&list[i], now, sb);
    ngd_json_close_list(sb);
    ngd_json_close_object(sb);
    ngd_strbuf_putc(sb, '\n');
    ngd_free(list);
}
