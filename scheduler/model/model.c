/* SPDX-License-Identifier: Apache-2.0 */
/* Models, made from two bindings and a contract. Everything that decode steps need is allocated here. */
#include "base/mem.h"
#include "scheduler/model/model_int.h"
#include <inttypes.h>
#include <string.h>

/* ---- staging ------------------------------------------------------------------------------------------ */

static uint64_t role_count(const struct ngd_model_graph *mg, const struct ngd_role_info *info, uint32_t vocab)
{
    const struct ngd_staging *st = &mg->staging;

    switch (info->shape) {
    case NGD_PER_ROW:
        return st->rows;
    case NGD_PER_SEQ:
        return st->seqs;
    case NGD_PER_SEQ_TABLE:
        return (uint64_t)st->seqs * mg->roles.table_width;
    case NGD_PER_RESULT:
        return st->results;
    case NGD_PER_RESULT_VOCAB:
        return (uint64_t)st->results * vocab;
    case NGD_PER_POOLED:
        return (uint64_t)(mg->roles.hidden_per_row ? st->rows : st->seqs) * mg->roles.hidden_size;
    }
    return 0;
}

static ngd_status_t staging_init(struct ngd_model_graph *mg, uint32_t vocab)
{
    const uint32_t seqs = mg->roles.max_seqs;
    struct ngd_staging *st = &mg->staging;

    st->rows = mg->roles.max_rows;
    st->seqs = seqs;
    st->results = mg->roles.result_per_row ? st->rows : seqs;
    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++) {
        const struct ngd_role_info *info = &ngd_role_infos[role];

        if (mg->roles.index[role] < 0)
            continue;
        st->data[role] = ngd_calloc(role_count(mg, info, vocab), ngd_dtype_bytes(info->dtype));
        if (!st->data[role])
            return NGD_ERR_NO_MEMORY;
    }
    return NGD_OK;
}

/* Allocates the lists of a launch and sets the inputs' addresses. Their sizes are known only at a replay. */
static ngd_status_t graph_lists_init(struct ngd_model_graph *mg)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(mg->binding));

    mg->inputs = NGD_NEW_N(struct ngd_span, g->n_inputs + 1);
    mg->hosts = NGD_NEW_N(struct ngd_host_value, g->n_hosts + 1);
    mg->outputs = NGD_NEW_N(struct ngd_out, g->n_outputs + 1);
    if (!mg->inputs || !mg->hosts || !mg->outputs)
        return NGD_ERR_NO_MEMORY;
    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++) {
        int i = mg->roles.index[role];

        if (i >= 0 && ngd_role_infos[role].kind == NGD_ROLE_INPUT)
            mg->inputs[i].data = mg->staging.data[role];
        else if (i >= 0 && ngd_role_infos[role].kind == NGD_ROLE_HOST)
            mg->hosts[i].values = mg->staging.data[role];
    }
    return NGD_OK;
}

/* ---- creation ----------------------------------------------------------------------------------------- */

/* Checks that all ranks of one group take the same rows, which are staged once. */
static ngd_status_t check_ranks(const struct ngd_model_params *p, struct ngd_diag *diag)
{
    if (ngd_binding_group(p->prefill) != ngd_binding_group(p->decode) ||
        ngd_binding_ranks(p->prefill) != ngd_binding_ranks(p->decode))
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "the prefill graph and the decode graph belong to different groups of devices");
    if (ngd_binding_group(p->prefill) &&
        ngd_group_ranks(ngd_binding_group(p->prefill)) != ngd_group_size(ngd_binding_group(p->prefill)))
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "the graphs' group has ranks in other daemons, which would batch other sequences: replay "
                            "its joint graphs step by step in all daemons");
    if (!ngd_binding_is_replicated(p->prefill) || !ngd_binding_is_replicated(p->decode))
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "all ranks of a model's graphs must take the same inputs: join them with `replicated`");
    return NGD_OK;
}

static bool has_padding_block(const struct ngd_queue *queue)
{
    return ngd_device_info(queue->dev)->padding_block;
}

static ngd_status_t check_model_params(struct ngd_sched *sched, const struct ngd_model_params *p, struct ngd_diag *diag)
{
    const struct ngd_program *prefill = ngd_binding_program(p->prefill), *decode = ngd_binding_program(p->decode);
    ngd_status_t status = ngd_binding_check(p->prefill, diag);

    if (!status)
        status = ngd_binding_check(p->decode, diag);
    if (status)
        return status;
    if (prefill->sched != sched || decode->sched != sched || prefill->queue != decode->queue)
        return ngd_diag_set(
            diag, NGD_ERR_MODEL_CONTRACT,
            "the prefill graph is on device %s and the decode graph on %s; both must be on the same device",
            prefill->queue->dev_name, decode->queue->dev_name);
    status = check_ranks(p, diag);
    if (status)
        return status;
    if (!p->block_size || !p->num_blocks || !p->max_context || !p->vocab)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "block_size, num_blocks, max_context and vocab must be at least 1");
    if ((uint64_t)p->num_blocks * p->block_size > INT32_MAX || p->max_context > INT32_MAX || p->vocab > INT32_MAX)
        return ngd_diag_set(
            diag, NGD_ERR_MODEL_CONTRACT,
            "KV slots, positions and tokens are i32: num_blocks * block_size, max_context and vocab must be "
            "below 2^31");
    if (has_padding_block(decode->queue) && p->num_blocks < 2)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "num_blocks is 1; it must be at least 2 on device %s, whose attention reads block 0 for "
                            "rows of padding, so that it is no sequence's",
                            decode->queue->dev_name);
    return NGD_OK;
}

/* Blocks that n positions in a row touch at most. */
static uint32_t blocks_touched(uint64_t n, uint32_t size)
{
    const uint64_t touched = n < 2 ? n : (n - 2) / size + 2;

    return touched < UINT32_MAX ? (uint32_t)touched : UINT32_MAX;
}

/* Finds what the groups of layers have, once the roles and max_batch are known. */
static ngd_status_t resolve_groups(struct ngd_model *model, const struct ngd_model_params *p, struct ngd_diag *diag)
{
    const uint32_t prefill = model->graphs[NGD_PREFILL].roles.max_rows;

    model->n_groups = p->contract.n_more_groups + 1;
    model->most_rows = prefill > model->max_batch ? prefill : model->max_batch; /* a draft has up to max_batch */
    model->passed = has_padding_block(model->queue) ? 0 : -1;
    if ((uint64_t)model->n_groups * p->max_context > UINT32_MAX)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "max_context is %" PRIu32 "; with %" PRIu32
                            " groups of layers it must be below 2^32 / %" PRIu32,
                            p->max_context, model->n_groups, model->n_groups);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const uint32_t window = ngd_contract_window(p, g);

        model->windows[g] = window;
        model->spans[g] = window ? blocks_touched((uint64_t)window + model->most_rows, p->block_size) : UINT32_MAX;
        model->slides |= window != 0;
    }
    return NGD_OK;
}

static ngd_status_t model_resolve(struct ngd_model *model, const struct ngd_model_params *p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_contract_resolve(p, false, &model->graphs[NGD_PREFILL].roles, diag);

    if (p->no_generation)
        ngd_contract_no_roles(&model->graphs[NGD_DECODE].roles);
    else if (!status)
        status = ngd_contract_resolve(p, true, &model->graphs[NGD_DECODE].roles, diag);
    if (!status)
        status = ngd_contract_check_states(p, diag);
    if (status)
        return status;
    model->drafts = !p->no_generation && ngd_contract_writes_first(p);
    model->max_batch = model->graphs[NGD_DECODE].roles.max_rows;
    status = resolve_groups(model, p, diag);
    ngd_pace_init(&model->pace, NGD_SCHED_PARAM(model->sched, prompt_share), model->graphs[NGD_PREFILL].roles.max_rows);
    return status;
}

/* Captures on the thread that registers the model, with the time limit that captures on capture threads have. */
static ngd_status_t capture_in_time(struct ngd_binding *binding, const int64_t *sizes, uint32_t n,
                                    struct ngd_diag *diag)
{
    const ngd_nsec_t most = NGD_SCHED_PARAM(ngd_binding_program(binding)->sched, max_capture_time);
    const struct ngd_stop stop = {.at = most ? ngd_now() + most : 0, .late = NGD_ERR_CAPTURE_STOPPED};
    ngd_status_t status;

    ngd_stop_set(&stop);
    status = ngd_binding_capture(binding, sizes, n, NULL, false, NULL, diag);
    ngd_stop_set(NULL);
    return status;
}

static ngd_status_t capture_one(const struct ngd_model_graph *mg, int64_t size, const char *which,
                                struct ngd_diag *diag)
{
    int64_t sizes[2] = {size, mg->roles.max_seqs};
    ngd_status_t status;

    if (ngd_binding_program(mg->binding)->options.force_recapture)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the %s graph has the option force_recapture, but the steps of a model never wait for a "
                            "capture; register the graph without the option",
                            which);
    if (size > mg->roles.max_rows)
        sizes[0] = mg->roles.max_rows;
    status = capture_in_time(mg->binding, sizes, mg->roles.n_symbols, diag);
    if (status)
        ngd_diag_prefix(diag, "%s graph, %" PRId64 " rows: ", which, size);
    return status;
}

/* Captures all numbers of rows that a replay can ask for, so that no step waits for a capture. Each for the largest
 * number of sequences. */
static ngd_status_t capture_all(const struct ngd_model_graph *mg, const char *which, struct ngd_diag *diag)
{
    const struct ngd_symbol *s = &ngd_program_graph(ngd_binding_program(mg->binding))->symbols[0];
    ngd_status_t status = NGD_OK;

    if (s->policy != NGD_SYMBOL_BUCKETS)
        return capture_one(mg, s->max, which, diag);
    for (uint32_t i = 0; i < s->n_buckets && !status; i++) {
        status = capture_one(mg, s->buckets[i], which, diag);
        if (s->buckets[i] >= s->max)
            break;
    }
    return status;
}

static ngd_status_t copy_params(struct ngd_model *model, const struct ngd_model_params *p)
{
    size_t stop_bytes = p->n_stop_tokens * sizeof(p->stop_tokens[0]);

    model->params = *p;
    ngd_payers_ref(&p->payers);
    model->params.contract = (struct ngd_decode_contract){.pooling = p->contract.pooling};
    if (!model->params.max_sequences)
        model->params.max_sequences = 1024;
    model->name = ngd_strdup(p->name ? p->name : "");
    model->description = ngd_strdup(p->description ? p->description : "");
    model->source = ngd_strdup(p->source ? p->source : "");
    model->stop_tokens = p->n_stop_tokens ? ngd_memdup(p->stop_tokens, stop_bytes) : NULL;
    if (!model->name || !model->description || !model->source || (p->n_stop_tokens && !model->stop_tokens))
        return NGD_ERR_NO_MEMORY;
    model->params.name = model->name;
    model->params.owner = NULL; /* borrowed */
    model->params.description = model->description;
    model->params.source = model->source;
    model->params.stop_tokens = model->stop_tokens;
    return NGD_OK;
}

static uint64_t staging_bytes(const struct ngd_model_graph *mg, uint32_t vocab)
{
    const uint32_t seqs = mg->roles.max_seqs;
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(mg->binding));
    const struct ngd_model_graph sized = {.roles = mg->roles,
                                          .staging = {.rows = mg->roles.max_rows,
                                                      .seqs = seqs,
                                                      .results = mg->roles.result_per_row ? mg->roles.max_rows : seqs}};
    uint64_t n = (g->n_inputs + 1) * sizeof(mg->inputs[0]) + (g->n_hosts + 1) * sizeof(mg->hosts[0]) +
                 (g->n_outputs + 1) * sizeof(mg->outputs[0]);

    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++)
        if (mg->roles.index[role] >= 0)
            n += role_count(&sized, &ngd_role_infos[role], vocab) * ngd_dtype_bytes(ngd_role_infos[role].dtype);
    return n;
}

/* Charges the model's host memory. Call before it is allocated: its tables may exceed the identity's limit. */
static ngd_status_t model_charge(struct ngd_model *model, const struct ngd_model_params *p, struct ngd_diag *diag)
{
    uint64_t n = sizeof(*model) + ngd_kv_host_bytes(p->num_blocks, p->block_size) +
                 model->max_batch * (sizeof(model->batch[0]) + sizeof(model->logprobs[0])) +
                 model->graphs[NGD_PREFILL].roles.max_seqs * sizeof(model->prompt.seqs[0]) +
                 ngd_sampler_bytes(p->vocab) + p->n_stop_tokens * sizeof(p->stop_tokens[0]) +
                 (p->description ? strlen(p->description) : 0) + (p->source ? strlen(p->source) : 0);
    ngd_status_t status;

    for (int kind = 0; kind < 2; kind++)
        n += staging_bytes(&model->graphs[kind], p->vocab);
    status = ngd_charge_begin(&model->charge, p->payers.host, n, diag);
    if (status)
        ngd_diag_prefix(diag, "the tables of model \"%.64s\": ", p->name ? p->name : "");
    return status;
}

static ngd_status_t model_allocate(struct ngd_model *model, const struct ngd_model_params *p)
{
    ngd_status_t status = copy_params(model, p);

    if (!status)
        status = ngd_kv_create(p->num_blocks, p->block_size, &model->kv);
    if (!status && has_padding_block(model->queue))
        ngd_kv_set_first_aside(model->kv);
    for (int kind = 0; kind < 2 && !status; kind++)
        status = staging_init(&model->graphs[kind], p->vocab);
    for (int kind = 0; kind < 2 && !status; kind++)
        status = graph_lists_init(&model->graphs[kind]);
    if (!status) {
        model->batch = NGD_NEW_N(struct ngd_seq *, model->max_batch);
        model->logprobs = NGD_NEW_N(struct ngd_logprobs, model->max_batch);
        model->prompt.seqs = NGD_NEW_N(struct ngd_seq *, model->graphs[NGD_PREFILL].roles.max_seqs);
        status = model->batch && model->logprobs && model->prompt.seqs && ngd_sampler_init(&model->sampler, p->vocab)
                     ? NGD_OK
                     : NGD_ERR_NO_MEMORY;
    }
    return status;
}

static void model_free(struct ngd_model *model)
{
    struct ngd_charge charge = ngd_charge_move(&model->charge);
    struct ngd_payers payers = model->params.payers;

    ngd_prompt_fini(&model->prompt);
    for (int kind = 0; kind < 2; kind++) {
        struct ngd_model_graph *mg = &model->graphs[kind];

        ngd_binding_unref(mg->binding);
        ngd_free(mg->inputs);
        ngd_free(mg->hosts);
        ngd_free(mg->outputs);
        for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++)
            ngd_free(mg->staging.data[role]);
    }
    ngd_free(model->batch);
    ngd_free(model->logprobs);
    ngd_sampler_fini(&model->sampler);
    ngd_kv_destroy(model->kv);
    ngd_share_unref(model->item_share);
    ngd_free(model->stop_tokens);
    ngd_free(model->name);
    ngd_free(model->description);
    ngd_free(model->source);
    ngd_mutex_fini(&model->lock);
    ngd_free(model);
    ngd_charge_end(&charge);
    ngd_payers_unref(&payers);
}

static struct ngd_model *new_model(struct ngd_sched *sched, const struct ngd_model_params *p)
{
    struct ngd_model *model = NGD_NEW(struct ngd_model);

    if (!model)
        return NULL;
    model->sched = sched;
    model->queue = ngd_binding_program(p->decode)->queue;
    model->graphs[NGD_PREFILL].binding = ngd_binding_ref(p->prefill);
    model->graphs[NGD_DECODE].binding = ngd_binding_ref(p->decode);
    ngd_sched_item_init(&model->item, &ngd_model_item_ops);
    model->capture.run = ngd_model_capture_run;
    model->capture.abort = ngd_model_capture_abort;
    model->last_kind = NGD_DECODE;
    atomic_init(&model->refs, 1);
    ngd_mutex_init(&model->lock, NGD_RANK_MODEL);
    for (int kind = 0; kind < NGD_READY_KINDS; kind++)
        ngd_list_init(&model->ready[kind]);
    ngd_list_init(&model->starved);
    ngd_list_init(&model->seqs);
    return model;
}

ngd_status_t ngd_model_create(struct ngd_sched *sched, const struct ngd_model_params *params,
                              struct ngd_model **model_p, struct ngd_diag *diag)
{
    ngd_status_t status = check_model_params(sched, params, diag);
    struct ngd_model *model;

    if (status)
        return status;
    model = new_model(sched, params);
    if (!model)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a model");
    status = model_resolve(model, params, diag);
    if (!status)
        status = model_charge(model, params, diag);
    if (!status) {
        status = model_allocate(model, params);
        if (status)
            ngd_diag_set(diag, status, "no host memory for the model: %s", ngd_status_text(status));
    }
    if (!status)
        status = capture_all(&model->graphs[NGD_PREFILL], "prefill", diag);
    if (!status)
        status = params->no_generation ? NGD_OK : capture_all(&model->graphs[NGD_DECODE], "decode", diag);
    if (status) {
        model_free(model);
        return status;
    }
    model->blocks_row = ngd_metric_row_of(NGD_M_KV_BLOCKS_TOTAL, model->name, params->owner ? params->owner : "");
    model->blocks_used_row = ngd_metric_row_of(NGD_M_KV_BLOCKS_USED, model->name, params->owner ? params->owner : "");
    ngd_metric_row_set(model->blocks_row, ngd_kv_total(model->kv));
    ngd_model_show_blocks(model);
    *model_p = model;
    return NGD_OK;
}

struct ngd_model *ngd_model_ref(struct ngd_model *model)
{
    atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

struct ngd_model *ngd_model_unref(struct ngd_model *model)
{
    if (!model || atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    ngd_metric_row_hide(model->blocks_row);
    ngd_metric_row_hide(model->blocks_used_row);
    model_free(model);
    return NULL;
}

void ngd_model_bindings(const struct ngd_model *model, struct ngd_binding **prefill_p, struct ngd_binding **decode_p)
{
    *prefill_p = model->graphs[NGD_PREFILL].binding;
    *decode_p = model->params.no_generation ? NULL : model->graphs[NGD_DECODE].binding;
}

/* ---- small questions ---------------------------------------------------------------------------------- */

void ngd_model_show_blocks(struct ngd_model *model)
{
    ngd_metric_row_set(model->blocks_used_row, ngd_kv_used(model->kv));
}

bool ngd_model_is_stop(const struct ngd_model *model, int32_t token)
{
    for (uint32_t i = 0; i < model->params.n_stop_tokens; i++)
        if (model->stop_tokens[i] == token)
            return true;
    return false;
}

void ngd_model_stats(struct ngd_model *model, struct ngd_model_stats *stats_p)
{
    const struct ngd_model_params *p = &model->params;
    uint32_t sequences;

    ngd_mutex_lock(&model->lock);
    sequences = model->n_seqs;
    ngd_mutex_unlock(&model->lock);
    *stats_p = (struct ngd_model_stats){
        .name = model->name,
        .description = model->description,
        .source = model->source,
        .id = p->id,
        .parameters = p->parameters,
        .weight_bytes = p->weight_bytes,
        .kv_bytes = p->kv_bytes,
        .block_size = p->block_size,
        .num_blocks = ngd_kv_total(model->kv),
        .blocks_used = ngd_kv_used(model->kv),
        .blocks_cached = ngd_kv_cached(model->kv),
        .max_context = p->max_context,
        .vocab = p->vocab,
        .max_batch = model->max_batch,
        .stop_tokens = p->stop_tokens,
        .n_stop_tokens = p->n_stop_tokens,
        .sequences = sequences,
        .tokens_prefill = atomic_load_explicit(&model->tokens_prefill, memory_order_relaxed),
        .preemptions = atomic_load_explicit(&model->preemptions, memory_order_relaxed),
        .tokens_shared = atomic_load_explicit(&model->tokens_shared, memory_order_relaxed),
        .tokens_decode = atomic_load_explicit(&model->tokens_decode, memory_order_relaxed),
        .batches = atomic_load_explicit(&model->batches, memory_order_relaxed),
        .prefill = ngd_binding_program(model->graphs[NGD_PREFILL].binding),
        .group = ngd_binding_group(model->graphs[NGD_DECODE].binding),
        .n_groups = model->n_groups,
        .blocks_per_sequence = ngd_model_blocks_for(model, p->max_context),
        .decode = p->no_generation ? NULL : ngd_binding_program(model->graphs[NGD_DECODE].binding),
        .prefill_seqs = model->graphs[NGD_PREFILL].roles.max_seqs,
        .hidden_size = model->graphs[NGD_PREFILL].roles.hidden_size,
        .pooling = p->contract.pooling,
        .unit_embeddings = p->unit_embeddings,
    };
    memcpy(stats_p->windows, model->windows, sizeof(stats_p->windows));
}
