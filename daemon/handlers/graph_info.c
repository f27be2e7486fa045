/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/graph_info.h"

#include "base/strbuf.h"
#include "proto/word.h"
#include <stdio.h>

ngd_status_t ngd_value_bytes(const struct ngd_graph *g, uint32_t value, const int64_t *symbols, uint64_t *bytes_p)
{
    const struct ngd_type *type = &g->values[value].type;
    uint64_t bytes = ngd_dtype_bytes(type->dtype);

    for (uint32_t i = 0; i < type->rank; i++) {
        int64_t n, min;
        ngd_status_t status = symbols ? ngd_expr_eval(g->exprs, type->dims[i], symbols, &n)
                                      : ngd_expr_bounds(g->exprs, type->dims[i], &min, &n);

        if (status != NGD_OK || n < 0 || __builtin_mul_overflow(bytes, (uint64_t)n, &bytes))
            return NGD_ERR_OVERFLOW;
    }
    *bytes_p = bytes;
    return NGD_OK;
}

/* ---- details ---------------------------------------------------------------------------------------------------- */

static char *print_dim(const struct ngd_graph *g, ngd_dim_t dim, struct ngd_arena *arena)
{
    struct ngd_strbuf sb;
    char *text;

    ngd_strbuf_init(&sb);
    ngd_expr_print(g->exprs, dim, &sb);
    text = ngd_arena_strdup(arena, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return text;
}

static Npugraph__V1__ValueInfo *value_info(const struct ngd_graph *g, uint32_t value, const char *label,
                                           struct ngd_arena *arena)
{
    const struct ngd_type *type = &g->values[value].type;
    Npugraph__V1__ValueInfo *v = ngd_arena_calloc(arena, 1, sizeof(*v));
    char **dims = ngd_arena_calloc(arena, type->rank + 1u, sizeof(*dims));

    if (!v || !dims)
        return NULL;
    npugraph__v1__value_info__init(v);
    v->label = (char *)(uintptr_t)label;
    v->dtype = (char *)(uintptr_t)ngd_dtype_name(type->dtype);
    v->dims = dims;
    for (; v->n_dims < type->rank; v->n_dims++)
        if (!(dims[v->n_dims] = print_dim(g, type->dims[v->n_dims], arena)))
            return NULL;
    return v;
}

static Npugraph__V1__ValueInfo **value_list(const struct ngd_graph *g, const uint32_t *values, uint32_t n,
                                            struct ngd_arena *arena, size_t *n_p)
{
    Npugraph__V1__ValueInfo **list = ngd_arena_calloc(arena, n + 1u, sizeof(*list));

    for (uint32_t i = 0; list && i < n; i++)
        if (!(list[i] = value_info(g, values[i],
                                   g->values[values[i]].label ? g->values[values[i]].label : g->values[values[i]].name,
                                   arena)))
            return NULL;
    *n_p = list ? n : 0;
    return list;
}

static Npugraph__V1__ValueInfo **output_list(const struct ngd_graph *g, struct ngd_arena *arena, size_t *n_p)
{
    Npugraph__V1__ValueInfo **list = ngd_arena_calloc(arena, g->n_outputs + 1u, sizeof(*list));

    for (uint32_t i = 0; list && i < g->n_outputs; i++)
        if (!(list[i] = value_info(g, g->outputs[i].value, g->outputs[i].name, arena)))
            return NULL;
    *n_p = list ? g->n_outputs : 0;
    return list;
}

static Npugraph__V1__SymbolInfo **symbol_list(struct ngd_graph *g, struct ngd_arena *arena, size_t *n_p)
{
    Npugraph__V1__SymbolInfo **list = ngd_arena_calloc(arena, g->n_symbols + 1u, sizeof(*list));

    for (uint32_t i = 0; list && i < g->n_symbols; i++) {
        list[i] = ngd_arena_calloc(arena, 1, sizeof(**list));
        if (!list[i])
            return NULL;
        npugraph__v1__symbol_info__init(list[i]);
        list[i]->name = g->symbols[i].name;
        list[i]->min = g->symbols[i].min;
        list[i]->max = g->symbols[i].max;
        list[i]->n_buckets = g->symbols[i].policy == NGD_SYMBOL_BUCKETS ? g->symbols[i].n_buckets : 0;
        list[i]->buckets = g->symbols[i].buckets;
        list[i]->batch = g->symbols[i].batch;
    }
    *n_p = list ? g->n_symbols : 0;
    return list;
}

char **ngd_guard_list(const struct ngd_graph *g, struct ngd_arena *arena, size_t *n_p)
{
    char **list = ngd_arena_calloc(arena, g->n_relations + 1u, sizeof(*list));

    for (uint32_t i = 0; list && i < g->n_relations; i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_relation_print(g->exprs, &g->relations[i], &sb);
        list[i] = sb.failed ? NULL : ngd_arena_strdup(arena, ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
        if (!list[i])
            return NULL;
    }
    *n_p = list ? g->n_relations : 0;
    return list;
}

struct keys {
    Npugraph__V1__GraphInfo *info;
    struct ngd_arena *arena;
    size_t room;
};

static void add_printed_key(void *ctx, const char *key)
{
    struct keys *k = ctx;

    if (k->info->n_keys < k->room && (k->info->keys[k->info->n_keys] = ngd_arena_strdup(k->arena, key)))
        k->info->n_keys++;
}

static bool add_details(Npugraph__V1__GraphInfo *info, struct ngd_program *prog, struct ngd_graph *g,
                        struct ngd_arena *arena)
{
    struct keys keys = {info, arena, info->executables + 8u};

    info->keys = ngd_arena_calloc(arena, keys.room, sizeof(*info->keys));
    info->params = value_list(g, g->params, g->n_params, arena, &info->n_params);
    info->states = value_list(g, g->states, g->n_states, arena, &info->n_states);
    info->inputs = value_list(g, g->inputs, g->n_inputs, arena, &info->n_inputs);
    info->hosts = value_list(g, g->hosts, g->n_hosts, arena, &info->n_hosts);
    info->outputs = output_list(g, arena, &info->n_outputs);
    info->symbols = symbol_list(g, arena, &info->n_symbols);
    info->guards = ngd_guard_list(g, arena, &info->n_guards);
    if (!info->keys || !info->params || !info->states || !info->inputs || !info->hosts || !info->outputs ||
        !info->symbols || !info->guards)
        return false;
    ngd_program_print_keys(prog, add_printed_key, &keys);
    return true;
}

static char *print_options(const struct ngd_program *prog, struct ngd_arena *arena)
{
    struct ngd_strbuf sb;
    char *text;

    ngd_strbuf_init(&sb);
    ngd_graph_options_print_changed(ngd_program_options(prog), &sb);
    text = ngd_arena_strdup(arena, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return text;
}

Npugraph__V1__GraphInfo *ngd_graph_info(struct ngd_program *prog, bool details, struct ngd_arena *arena)
{
    Npugraph__V1__GraphInfo *info = ngd_arena_calloc(arena, 1, sizeof(*info));
    char *hex = ngd_arena_alloc(arena, NGD_DIGEST_HEX);
    struct ngd_graph *g = ngd_program_graph(prog);
    struct ngd_program_stats stats;

    if (!info || !hex)
        return NULL;
    npugraph__v1__graph_info__init(info);
    ngd_program_stats(prog, &stats);
    ngd_digest_hex(&g->digest, hex);
    info->name = ngd_arena_strdup(arena, g->name);
    info->digest = hex;
    info->nodes = g->n_nodes;
    info->registrations = stats.references - 1; /* without the caller's own reference */
    info->number = ngd_program_number(prog);
    info->device = ngd_arena_strdup(arena, ngd_device_info(ngd_program_device(prog))->name);
    info->options = print_options(prog, arena);
    info->captures = stats.captures;
    info->replays = stats.replays;
    info->merged_replays = stats.merged_replays;
    info->merged_requests = stats.merged_requests;
    info->cache_hits = stats.cache.hits;
    info->cache_misses = stats.cache.misses;
    info->evictions = stats.cache.evictions;
    info->executables = stats.cache.entries;
    info->pool_bytes = stats.pool_bytes;
    return info->name && info->device && info->options && (!details || add_details(info, prog, g, arena)) ? info : NULL;
}

Npugraph__V1__ModelInfo *ngd_model_info(struct ngd_model *model, struct ngd_arena *arena)
{
    Npugraph__V1__ModelInfo *m = ngd_arena_calloc(arena, 1, sizeof(*m));
    struct ngd_model_stats s;

    if (!m)
        return NULL;
    npugraph__v1__model_info__init(m);
    ngd_model_stats(model, &s);
    m->name = ngd_arena_strdup(arena, s.name);
    m->description = ngd_arena_strdup(arena, s.description ? s.description : "");
    m->source = ngd_arena_strdup(arena, s.source);
    m->parameters = s.parameters;
    m->weight_bytes = s.weight_bytes;
    m->kv_bytes = s.kv_bytes;
    m->block_size = s.block_size;
    m->num_blocks = s.num_blocks;
    m->blocks_used = s.blocks_used;
    m->max_context = s.max_context;
    m->vocab = s.vocab;
    m->max_batch = s.max_batch;
    m->sequences = s.sequences;
    m->tokens_prefill = s.tokens_prefill;
    m->tokens_decode = s.tokens_decode;
    m->tokens_shared = s.tokens_shared;
    m->preemptions = s.preemptions;
    m->blocks_cached = s.blocks_cached;
    m->batches = s.batches;
    m->blocks_per_sequence = s.blocks_per_sequence;
    m->windows = ngd_arena_calloc(arena, s.n_groups, sizeof(*m->windows));
    m->n_windows = m->windows ? s.n_groups : 0;
    for (uint32_t g = 0; g < m->n_windows; g++)
        m->windows[g] = s.windows[g];
    m->n_stop_tokens = s.n_stop_tokens;
    m->stop_tokens = ngd_arena_calloc(arena, s.n_stop_tokens + 1, sizeof(*m->stop_tokens));
    if (m->stop_tokens && s.n_stop_tokens)
        memcpy(m->stop_tokens, s.stop_tokens, s.n_stop_tokens * sizeof(*m->stop_tokens));
    m->prefill = ngd_graph_info(s.prefill, false, arena);
    m->no_generation = s.decode == NULL;
    m->decode = s.decode ? ngd_graph_info(s.decode, false, arena) : NULL;
    m->embedding_size = s.hidden_size;
    if (s.hidden_size)
        m->pooling = s.pooling == NGD_POOLING_MEAN ? NGD_PB(POOLING, MEAN) : NGD_PB(POOLING, LAST);
    m->unit_embeddings = s.unit_embeddings;
    return m->name && m->description && m->source && m->windows && m->stop_tokens && m->prefill &&
                   (m->decode || m->no_generation)
               ? m
               : NULL;
}
