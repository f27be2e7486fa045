/* SPDX-License-Identifier: Apache-2.0 */
/* ModelReady, ModelMetadata, ModelConfig, ModelStatistics. */
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/oip.h"
#include "scheduler/program/program.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PLATFORM_GRAPH "npugraph_graph"
#define PLATFORM_MODEL "npugraph_language_model"

/* ---- one model: its tensors -------------------------------------------------------------------------------------- */

/* An input or output, in the terms of both ModelMetadata and ModelConfig. */
struct tensor_info {
    const char *name;
    ngd_dtype_t dtype;
    size_t rank;
    int64_t *shape;
};
struct model_info {
    const char *platform;
    struct tensor_info *inputs, *outputs;
    size_t n_inputs, n_outputs;
    bool decoupled;
};

/* A size that depends on symbols is -1. A host parameter without dimensions counts as one of one element, since some
 * clients do not know tensors without dimensions. */
static bool describe_value(const struct ngd_graph *g, uint32_t value, const char *name, struct ngd_arena *arena,
                           struct tensor_info *t)
{
    const struct ngd_type *type = &g->values[value].type;
    const bool scalar_host = g->values[value].cls == NGD_VALUE_HOST && type->rank == 0;

    *t = (struct tensor_info){.name = name, .dtype = type->dtype, .rank = scalar_host ? 1 : type->rank};
    t->shape = ngd_arena_alloc(arena, (t->rank + 1) * sizeof(*t->shape));
    if (!t->shape)
        return false;
    t->shape[0] = 1;
    for (uint32_t d = 0; d < type->rank; d++)
        t->shape[d] = ngd_dim_is_const(type->dims[d]) ? type->dims[d] : -1;
    return true;
}

static bool describe_oip_graph(const struct ngd_graph *g, struct ngd_arena *arena, struct model_info *info)
{
    bool ok;

    info->platform = PLATFORM_GRAPH;
    info->inputs = ngd_arena_calloc(arena, g->n_inputs + g->n_hosts + 1u, sizeof(*info->inputs));
    info->outputs = ngd_arena_calloc(arena, g->n_outputs + 1u, sizeof(*info->outputs));
    ok = info->inputs && info->outputs;
    for (uint32_t i = 0; ok && i < g->n_inputs + g->n_hosts; i++) {
        const uint32_t value = i < g->n_inputs ? g->inputs[i] : g->hosts[i - g->n_inputs];

        ok = describe_value(g, value, ngd_oip_label(g, value), arena, &info->inputs[info->n_inputs++]);
    }
    for (uint32_t i = 0; ok && i < g->n_outputs; i++)
        ok = describe_value(g, g->outputs[i].value, g->outputs[i].name, arena, &info->outputs[info->n_outputs++]);
    return ok;
}

static bool describe_language_model(struct ngd_arena *arena, struct model_info *info)
{
    static int64_t any_size[] = {-1};
    struct tensor_info *both = ngd_arena_calloc(arena, 2, sizeof(*both));

    if (!both)
        return false;
    both[0] = (struct tensor_info){NGD_OIP_INPUT_IDS, NGD_I64, 1, any_size};
    both[1] = (struct tensor_info){NGD_OIP_OUTPUT_IDS, NGD_I64, 1, any_size};
    *info = (struct model_info){PLATFORM_MODEL, both, both + 1, 1, 1, true};
    return true;
}

static bool describe_model(const struct ngd_oip_model *m, struct ngd_arena *arena, struct model_info *info)
{
    *info = (struct model_info){0};
    return m->graph.binding ? describe_oip_graph(ngd_program_graph(ngd_binding_program(m->graph.binding)), arena, info)
                            : describe_language_model(arena, info);
}

/* ---- ModelReady, ModelMetadata, ModelConfig ---------------------------------------------------------------------- */

static void model_ready(struct ngd_call *call, const void *msg)
{
    Inference__ModelReadyResponse reply = INFERENCE__MODEL_READY_RESPONSE__INIT;
    const Inference__ModelReadyRequest *q = msg;
    struct ngd_oip_model m = {.model = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_oip_find(call, q->name, q->version, &m, &diag);

    reply.ready = status == NGD_OK && ngd_oip_is_ready(call->daemon);
    ngd_oip_model_end(&m);
    ngd_oip_answer(call, status == NGD_ERR_MODEL_NOT_FOUND ? NGD_OK : status, &reply.base, &diag);
}

const struct ngd_rpc_ops ngd_rpc_oip_model_ready = {.request = model_ready};

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata_t;
typedef Inference__ModelMetadataResponse__PropertiesEntry property_t;

static tensor_metadata_t **put_tensors(const struct tensor_info *infos, size_t n, struct ngd_arena *arena)
{
    tensor_metadata_t **list = ngd_arena_calloc(arena, n + 1, sizeof(*list));
    tensor_metadata_t *all = ngd_arena_calloc(arena, n + 1, sizeof(*all));

    if (!list || !all)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        list[i] = &all[i];
        inference__model_metadata_response__tensor_metadata__init(&all[i]);
        all[i].name = (char *)(uintptr_t)infos[i].name;
        all[i].datatype = (char *)(uintptr_t)ngd_oip_datatype(infos[i].dtype);
        all[i].n_shape = infos[i].rank;
        all[i].shape = infos[i].shape;
    }
    return list;
}

/* Sorts versions: the oldest first. */
static int by_age(const void *a, const void *b)
{
    const struct ngd_oip_model *x = a, *y = b;
    const uint64_t m = ngd_binding_generation(x->graph.binding), n = ngd_binding_generation(y->graph.binding);

    return m < n ? -1 : m > n;
}

static bool put_versions(struct ngd_call *call, const struct ngd_oip_model *m, const char *name,
                         Inference__ModelMetadataResponse *reply)
{
    struct ngd_oip_model one = {.model = NULL};
    struct ngd_oip_list l = {.models = &one};
    bool ok = true;

    if (m->graph.binding)
        ok = ngd_oip_list_models(call, name, false, &l);
    else
        l.models[l.n++].model = ngd_model_ref(m->model);
    if (m->graph.binding && ok)
        qsort(l.models, l.n, sizeof(*l.models), by_age);
    reply->versions = ngd_arena_calloc(&call->life, l.n + 1, sizeof(*reply->versions));
    for (size_t i = 0; ok && i < l.n; i++) {
        ok = reply->versions && (reply->versions[i] = ngd_oip_version_of(&l.models[i], &call->life));
        reply->n_versions += ok;
    }
    ngd_oip_list_end(&l);
    return ok;
}

static bool put_property(Inference__ModelMetadataResponse *reply, struct ngd_arena *arena, const char *key,
                         const char *value)
{
    property_t *p = ngd_arena_alloc(arena, sizeof(*p));

    if (!p)
        return false;
    inference__model_metadata_response__properties_entry__init(p);
    p->key = ngd_arena_strdup(arena, key);
    p->value = ngd_arena_strdup(arena, value);
    reply->properties[reply->n_properties++] = p;
    return p->key && p->value;
}

static bool put_properties(const struct ngd_program *prog, struct ngd_arena *arena,
                           Inference__ModelMetadataResponse *reply)
{
    const struct ngd_graph *g = ngd_program_graph(prog);
    char hex[NGD_DIGEST_HEX], key[160], range[64];
    bool ok;

    reply->properties = ngd_arena_calloc(arena, g->n_symbols + 3u, sizeof(*reply->properties));
    ngd_digest_hex(&g->digest, hex);
    ok = reply->properties && put_property(reply, arena, "digest", hex) &&
         put_property(reply, arena, "device", ngd_device_info(ngd_program_device(prog))->name);
    for (uint32_t s = 0; ok && s < g->n_symbols; s++) {
        snprintf(key, sizeof(key), "symbol.%.120s", g->symbols[s].name);
        snprintf(range, sizeof(range), "%" PRId64 "..%" PRId64, g->symbols[s].min, g->symbols[s].max);
        ok = put_property(reply, arena, key, range);
    }
    return ok;
}

static ngd_status_t fill_metadata(struct ngd_call *call, const Inference__ModelMetadataRequest *q,
                                  const struct ngd_oip_model *m, Inference__ModelMetadataResponse *reply)
{
    struct model_info info;

    if (!describe_model(m, &call->life, &info) || !put_versions(call, m, q->name, reply) ||
        !(reply->inputs = put_tensors(info.inputs, info.n_inputs, &call->life)) ||
        !(reply->outputs = put_tensors(info.outputs, info.n_outputs, &call->life)) ||
        (m->graph.binding && !put_properties(ngd_binding_program(m->graph.binding), &call->life, reply)))
        return NGD_ERR_NO_MEMORY;
    reply->name = q->name;
    reply->platform = (char *)(uintptr_t)info.platform;
    reply->n_inputs = info.n_inputs;
    reply->n_outputs = info.n_outputs;
    return NGD_OK;
}

static void model_metadata(struct ngd_call *call, const void *msg)
{
    Inference__ModelMetadataResponse reply = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    const Inference__ModelMetadataRequest *q = msg;
    struct ngd_oip_model m = {.model = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_oip_find(call, q->name, q->version, &m, &diag);

    if (status == NGD_OK)
        status = fill_metadata(call, q, &m, &reply);
    ngd_oip_answer(call, status, &reply.base, &diag);
    ngd_oip_model_end(&m); /* the reply points into the graph */
}

const struct ngd_rpc_ops ngd_rpc_oip_model_metadata = {.request = model_metadata};

/* ---- ModelConfig ------------------------------------------------------------------------------------------------- */

static Inference__ModelInput **config_inputs(const struct tensor_info *infos, size_t n, struct ngd_arena *arena)
{
    Inference__ModelInput **list = ngd_arena_calloc(arena, n + 1, sizeof(*list));
    Inference__ModelInput *all = ngd_arena_calloc(arena, n + 1, sizeof(*all));

    if (!list || !all)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        list[i] = &all[i];
        inference__model_input__init(&all[i]);
        all[i].name = (char *)(uintptr_t)infos[i].name;
        all[i].data_type = ngd_oip_config_type(infos[i].dtype);
        all[i].n_dims = infos[i].rank;
        all[i].dims = infos[i].shape;
    }
    return list;
}

static Inference__ModelOutput **config_outputs(const struct tensor_info *infos, size_t n, struct ngd_arena *arena)
{
    Inference__ModelOutput **list = ngd_arena_calloc(arena, n + 1, sizeof(*list));
    Inference__ModelOutput *all = ngd_arena_calloc(arena, n + 1, sizeof(*all));

    if (!list || !all)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        list[i] = &all[i];
        inference__model_output__init(&all[i]);
        all[i].name = (char *)(uintptr_t)infos[i].name;
        all[i].data_type = ngd_oip_config_type(infos[i].dtype);
        all[i].n_dims = infos[i].rank;
        all[i].dims = infos[i].shape;
    }
    return list;
}

static ngd_status_t fill_config(const struct ngd_oip_model *m, struct ngd_arena *arena, Inference__ModelConfig *config,
                                Inference__ModelTransactionPolicy *policy)
{
    struct model_info info;

    if (!describe_model(m, arena, &info) || !(config->input = config_inputs(info.inputs, info.n_inputs, arena)) ||
        !(config->output = config_outputs(info.outputs, info.n_outputs, arena)))
        return NGD_ERR_NO_MEMORY;
    config->n_input = info.n_inputs;
    config->n_output = info.n_outputs;
    config->platform = (char *)(uintptr_t)info.platform;
    config->backend = (char *)(uintptr_t) "npugraph";
    policy->decoupled = info.decoupled;
    config->model_transaction_policy = policy;
    return NGD_OK;
}

static void model_config(struct ngd_call *call, const void *msg)
{
    Inference__ModelConfigResponse reply = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    Inference__ModelTransactionPolicy policy = INFERENCE__MODEL_TRANSACTION_POLICY__INIT;
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    const Inference__ModelConfigRequest *q = msg;
    struct ngd_oip_model m = {.model = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_oip_find(call, q->name, q->version, &m, &diag);

    config.name = q->name;
    reply.config = &config;
    if (status == NGD_OK)
        status = fill_config(&m, &call->life, &config, &policy);
    ngd_oip_answer(call, status, &reply.base, &diag);
    ngd_oip_model_end(&m);
}

const struct ngd_rpc_ops ngd_rpc_oip_model_config = {.request = model_config};

/* ---- ModelStatistics --------------------------------------------------------------------------------------------- */

/* The messages of one model's statistics. */
struct stats_message {
    Inference__ModelStatistics base;
    Inference__InferStatistics infer;
    Inference__StatisticDuration durations[8];
};

static Inference__StatisticDuration *put_duration(struct stats_message *s, size_t i, uint64_t n, int64_t ns)
{
    inference__statistic_duration__init(&s->durations[i]);
    s->durations[i].count = n;
    s->durations[i].ns = ns > 0 ? (uint64_t)ns : 0;
    return &s->durations[i];
}

/* The counts of a graph are of the requests that named it. The cache is never asked for a whole answer. */
static void put_graph_stats(struct stats_message *s, const struct ngd_graph_found *graph)
{
    const struct ngd_infer_stats *from = &graph->object->name.stats;
    const uint64_t n = atomic_load(&from->success);

    s->base.last_inference = (uint64_t)atomic_load(&from->last);
    s->base.inference_count = s->base.execution_count = n;
    s->infer.success = put_duration(s, 0, n, atomic_load(&from->success_time));
    s->infer.fail = put_duration(s, 1, atomic_load(&from->fail), atomic_load(&from->fail_time));
    s->infer.queue = put_duration(s, 2, n, atomic_load(&from->queue_time));
    s->infer.compute_input = put_duration(s, 3, n, atomic_load(&from->input_time));
    s->infer.compute_infer = put_duration(s, 4, n, atomic_load(&from->replay_time));
    s->infer.compute_output = put_duration(s, 5, n, atomic_load(&from->output_time));
    s->infer.cache_hit = put_duration(s, 6, 0, 0);
    s->infer.cache_miss = put_duration(s, 7, 0, 0);
    s->base.inference_stats = &s->infer;
}

/* The counts of a language model are of its tokens and of its runs on the device, whoever asked for them. */
static void put_language_model_stats(struct stats_message *s, struct ngd_model *model)
{
    struct ngd_model_stats stats;

    ngd_model_stats(model, &stats);
    s->base.inference_count = stats.tokens_prefill + stats.tokens_decode;
    s->base.execution_count = stats.batches;
}

static Inference__ModelStatistics *make_stats(const struct ngd_oip_model *m, struct ngd_arena *arena)
{
    struct stats_message *s = ngd_arena_calloc(arena, 1, sizeof(*s));

    if (!s)
        return NULL;
    inference__model_statistics__init(&s->base);
    inference__infer_statistics__init(&s->infer);
    s->base.name = ngd_oip_name_of(m, arena);
    s->base.version = ngd_oip_version_of(m, arena);
    if (m->graph.binding)
        put_graph_stats(s, &m->graph);
    else
        put_language_model_stats(s, m->model);
    return s->base.name && s->base.version ? &s->base : NULL;
}

static ngd_status_t put_stats_of(struct ngd_call *call, const struct ngd_oip_list *l,
                                 Inference__ModelStatisticsResponse *reply)
{
    reply->model_stats = ngd_arena_calloc(&call->life, l->n + 1, sizeof(*reply->model_stats));
    for (size_t i = 0; reply->model_stats && i < l->n; i++) {
        reply->model_stats[i] = make_stats(&l->models[i], &call->life);
        if (!reply->model_stats[i])
            return NGD_ERR_NO_MEMORY;
        reply->n_model_stats++;
    }
    return reply->model_stats ? NGD_OK : NGD_ERR_NO_MEMORY;
}

/* Lists what the request names: a version, all versions of a name, or all models. */
static ngd_status_t list_named(struct ngd_call *call, const Inference__ModelStatisticsRequest *q,
                               struct ngd_oip_model *one, struct ngd_oip_list *l, struct ngd_diag *diag)
{
    ngd_status_t status;

    if (!*q->name)
        return ngd_oip_list_models(call, "", true, l) ? NGD_OK : NGD_ERR_NO_MEMORY;
    status = ngd_oip_find(call, q->name, q->version, one, diag);
    if (status != NGD_OK)
        return status;
    if (one->graph.binding && !*q->version) {
        ngd_oip_model_end(one);
        return ngd_oip_list_models(call, q->name, false, l) ? NGD_OK : NGD_ERR_NO_MEMORY;
    }
    *l = (struct ngd_oip_list){.models = one, .n = 1};
    return NGD_OK;
}

static void model_statistics(struct ngd_call *call, const void *msg)
{
    Inference__ModelStatisticsResponse reply = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    struct ngd_oip_model one = {.model = NULL};
    struct ngd_oip_list l = {.models = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = list_named(call, msg, &one, &l, &diag);

    if (status == NGD_OK)
        status = put_stats_of(call, &l, &reply);
    ngd_oip_list_end(&l); /* before the answer, which frees the list; names were copied */
    ngd_oip_answer(call, status, &reply.base, &diag);
}

const struct ngd_rpc_ops ngd_rpc_oip_model_statistics = {.request = model_statistics};
