/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences.RegisterModel, UnloadModel, ShareModel, ListModels. */
#include "base/fault.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/handlers/graph_info.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/models.h"
#include "daemon/handlers/sequences.h"
#include "daemon/identity.h"
#include "daemon/model_id.h"
#include "daemon/models.h"
#include "daemon/rpc/call_job.h"
#include "daemon/session.h"
#include "proto/word.h"

#include <string.h>
#include <time.h>

typedef Npugraph__V1__RegisterModelRequest model_request;

struct registration {
    struct ngd_job job;
    struct ngd_call *call;
    const model_request *q;
    struct ngd_graph_object *prefill, *decode;
    struct ngd_audience audience;
};

/* Reads the decode contract. Labels that are not given are "": protobuf-c's defaults are NULL only for messages. */
static void read_contract(const Npugraph__V1__DecodeContract *c, struct ngd_decode_contract *out)
{
    *out = (struct ngd_decode_contract){
        .tokens = c->tokens,
        .positions = c->positions,
        .slot_mapping = c->slot_mapping,
        .block_table = c->block_table,
        .query_lens = c->query_lens,
        .context_lens = c->context_lens,
        .logits_rows = c->logits_rows,
        .temperature = c->temperature,
        .top_k = c->top_k,
        .top_p = c->top_p,
        .seed = c->seed,
        .offset = c->offset,
        .token_output = c->token_output,
        .logits_output = c->logits_output,
        .hidden_output = c->hidden_output,
        .pooling = c->pooling == NGD_PB(POOLING, MEAN) ? NGD_POOLING_MEAN : NGD_POOLING_LAST,
        .kv_states = (const char *const *)c->kv_states,
        .n_kv_states = (uint32_t)c->n_kv_states,
    };
}

/* Reads the groups of layers behind the first one. The check of the contract refuses more than there is room for. */
static void read_groups(const Npugraph__V1__DecodeContract *c, struct ngd_kv_group_labels groups[NGD_KV_GROUPS_MAX],
                        struct ngd_decode_contract *out)
{
    for (size_t i = 0; i < c->n_more_groups && i < NGD_KV_GROUPS_MAX; i++)
        groups[i] = (struct ngd_kv_group_labels){c->more_groups[i]->slot_mapping, c->more_groups[i]->block_table};
    out->more_groups = groups;
    out->n_more_groups = (uint32_t)c->n_more_groups;
}

static void add_bound_bytes(const struct ngd_graph *g, uint64_t *weights_p, uint64_t *states_p)
{
    uint64_t n;

    for (uint32_t i = 0; i < g->n_params; i++)
        *weights_p += ngd_value_bytes(g, g->params[i], NULL, &n) == NGD_OK ? n : 0;
    for (uint32_t i = 0; i < g->n_states; i++)
        *states_p += ngd_value_bytes(g, g->states[i], NULL, &n) == NGD_OK ? n : 0;
}

/* Sums a model's memory on all of its devices, for people; types were checked at registration. */
static void sum_bytes(const struct ngd_binding *binding, uint64_t *weights_p, uint64_t *states_p)
{
    *weights_p = *states_p = 0;
    for (uint32_t r = 0; r < ngd_binding_ranks(binding); r++)
        add_bound_bytes(ngd_program_graph(ngd_binding_program(ngd_binding_rank(binding, r))), weights_p, states_p);
}

ngd_status_t ngd_model_build(struct ngd_daemon *d, struct ngd_identity *owner, const model_request *q,
                             const struct ngd_model_graphs *graphs, struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct ngd_kv_group_labels groups[NGD_KV_GROUPS_MAX];
    struct ngd_model_params params = {0};
    ngd_status_t status;

    read_contract(q->contract, &params.contract);
    read_groups(q->contract, groups, &params.contract);
    params.name = q->name;
    params.owner = owner->name;
    params.description = q->description;
    params.source = q->source;
    params.prefill = graphs->prefill; /* the model takes its own references */
    params.no_generation = !graphs->decode;
    params.decode = graphs->decode ? graphs->decode : graphs->prefill;
    params.unit_embeddings = q->unit_embeddings;
    params.block_size = q->block_size;
    params.num_blocks = q->num_blocks;
    params.max_context = q->max_context;
    params.vocab = q->vocab;
    params.stop_tokens = q->stop_tokens;
    params.n_stop_tokens = (uint32_t)q->n_stop_tokens;
    params.parameters = q->parameters;
    params.preempt = q->kv_policy == NGD_PB(KV_POLICY, PREEMPT);
    params.no_prefix_sharing = q->no_prefix_sharing;
    params.payers = ngd_identity_payers(owner);
    params.share_all_prefixes = q->share_prefixes && ngd_config_get(d->options.share_prefixes);
    sum_bytes(params.decode, &params.weight_bytes, &params.kv_bytes);
    status = ngd_model_id(q, params.prefill, params.decode, &params.id);
    return status ? status : ngd_model_create(d->sched, &params, model_p, diag);
}

static ngd_status_t make_model(struct registration *r, struct ngd_model **model_p, struct ngd_diag *diag)
{
    struct ngd_model_graphs graphs = {
        .prefill = ngd_graph_object_binding(r->prefill),
        .decode = r->decode ? ngd_graph_object_binding(r->decode) : NULL,
    };
    ngd_status_t status = ngd_model_build(r->call->daemon, r->call->identity, r->q, &graphs, model_p, diag);

    ngd_binding_unref(graphs.prefill);
    ngd_binding_unref(graphs.decode);
    return status;
}

static void finish_registration(struct registration *r, ngd_status_t status, struct ngd_model *model,
                                const struct ngd_diag *diag)
{
    Npugraph__V1__RegisterModelResponse reply = NPUGRAPH__V1__REGISTER_MODEL_RESPONSE__INIT;
    struct ngd_call *call = r->call;

    ngd_object_unref(r->prefill ? &r->prefill->base : NULL);
    ngd_object_unref(r->decode ? &r->decode->base : NULL);
    ngd_audience_fini(&r->audience);
    if (status == NGD_OK && !(reply.model = ngd_model_info(model, &call->life)))
        status = NGD_ERR_NO_MEMORY;
    ngd_model_unref(model);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, diag);
}

/* Adds the model, and takes one of the caller's references. If the session ended while the graphs were captured, its
 * models were removed already: then this one is removed here. */
static ngd_status_t add_model(struct registration *r, struct ngd_model *model, struct ngd_charge *charge,
                              struct ngd_diag *diag)
{
    struct ngd_models *models = r->call->daemon->models;
    struct ngd_session *session = r->call->session;
    struct ngd_model_place place = {.name = r->q->name,
                                    .owner = r->call->identity,
                                    .share = ngd_session_share(session),
                                    .charge = ngd_charge_move(charge),
                                    .session = r->q->keep ? 0 : ngd_session_id(session),
                                    .audience = r->audience,
                                    .n_request = npugraph__v1__register_model_request__get_packed_size(r->q)};
    void *request = ngd_malloc(place.n_request + 1);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (NGD_FAULT(MODEL_LATE))
        nanosleep(&(struct timespec){.tv_nsec = 500 * NGD_MSEC}, NULL);
    place.request = request;
    if (request) {
        npugraph__v1__register_model_request__pack(r->q, request);
        status = ngd_models_add(models, &place, model, diag);
    }
    ngd_free(request);
    r->audience = place.audience;
    *charge = ngd_charge_move(&place.charge);
    if (status != NGD_OK) {
        ngd_model_unref(model);
        return status;
    }
    if (place.session)
        status = ngd_session_check(session, diag);
    if (status != NGD_OK)
        ngd_models_session_ended(models, place.session);
    return status;
}

/* Registers a model on a job thread, because it captures both graphs, which takes long. */
static void register_model_job(struct ngd_job *job)
{
    struct registration *r = ngd_container_of(job, struct registration, job);
    struct ngd_model *model = NULL;
    struct ngd_charge charge;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_charge_begin(&charge, ngd_identity_payer(r->call->identity, NGD_QUOTA_MODELS), 1, &diag);

    if (status == NGD_OK)
        status = make_model(r, &model, &diag);
    if (status == NGD_OK)
        status = add_model(r, ngd_model_ref(model), &charge, &diag);
    ngd_charge_end(&charge);
    finish_registration(r, status, model, &diag);
}

static bool valid_name(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= NGD_MODEL_NAME_MAX &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

/* Sets the audience. A model of an administrator is public, and one of others private, unless the request says
 * otherwise. */
static ngd_status_t read_audience(struct registration *r, struct ngd_diag *diag)
{
    const model_request *q = r->q;
    const struct ngd_identity *who = r->call->identity;
    const bool everybody = q->public_ || (who->admin && !q->private_ && q->n_share_with == 0);

    if (q->private_ && (q->public_ || q->n_share_with))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a model is either private, shared with identities, or public: ask for one of the three");
    return ngd_audience_make(&r->call->daemon->options, who, q->share_with, q->n_share_with, everybody, &r->audience,
                             diag);
}

/* The place of its files is printed for people. */
static bool valid_source(const char *source)
{
    size_t n = 0;

    while (source[n] && (unsigned char)source[n] >= 0x20 && source[n] != 0x7f)
        n++;
    return source[n] == '\0' && n <= NGD_MODEL_SOURCE_MAX;
}

static ngd_status_t check_request(struct registration *r, struct ngd_diag *diag)
{
    const model_request *q = r->q;
    struct ngd_object *o;
    ngd_status_t status;

    if (!valid_name(q->name))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a model's name has 1 to %d of A-Z a-z 0-9 . _ -",
                            NGD_MODEL_NAME_MAX);
    if (!valid_source(q->source))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the source of a model has at most %d bytes, and no control characters",
                            NGD_MODEL_SOURCE_MAX);
    if (!q->contract)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT, "the request has no decode contract");
    status = ngd_session_get(r->call->session, q->prefill_graph, NGD_OBJECT_GRAPH, &o, diag);
    if (status != NGD_OK)
        return status;
    r->prefill = ngd_container_of(o, struct ngd_graph_object, base);
    if (q->decode_graph == 0)
        return read_audience(r, diag);
    status = ngd_session_get(r->call->session, q->decode_graph, NGD_OBJECT_GRAPH, &o, diag);
    if (status != NGD_OK)
        return status;
    r->decode = ngd_container_of(o, struct ngd_graph_object, base);
    return read_audience(r, diag);
}

static void begin_registration(struct ngd_call *call, const void *msg)
{
    struct registration *r;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    r = ngd_arena_calloc(&call->life, 1, sizeof(*r));
    if (!r) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    r->call = call;
    r->q = msg;
    status = check_request(r, &diag);
    if (status != NGD_OK) {
        finish_registration(r, status, NULL, &diag);
        return;
    }
    r->job.fn = register_model_job;
    r->job.slow = true;
    ngd_jobs_add_for(call->daemon->jobs, &r->job, call->identity->key);
}

const struct ngd_rpc_ops ngd_rpc_models_register = {.once = true, .request = begin_registration};

/* ---- unload, share, list ----------------------------------------------------------------------------------- */

/* Some sequences of one model and one session, collected under the session's lock and closed without it. */
struct sweep {
    const struct ngd_model *model;
    uint64_t ids[64];
    size_t n;
};

static void find_sequence(void *ctx, uint64_t id, struct ngd_object *object)
{
    struct sweep *w = ctx;

    if (object->kind == NGD_OBJECT_SEQUENCE && w->n < sizeof(w->ids) / sizeof(w->ids[0]) &&
        ngd_seq_model(ngd_container_of(object, struct ngd_sequence_object, base)->seq) == w->model)
        w->ids[w->n++] = id;
}

static void close_sequences(struct ngd_session *session, const struct ngd_model *model)
{
    struct sweep w = {.model = model};

    do {
        w.n = 0;
        ngd_session_for_each(session, find_sequence, &w);
        for (size_t i = 0; i < w.n; i++)
            ngd_session_remove(session, w.ids[i], NGD_OBJECT_SEQUENCE, NULL);
    } while (w.n > 0);
}

struct closing {
    struct ngd_models *models;
    struct ngd_model *model; /* a reference */
};

/* Closes the sequences of a session that may not use the model any more. A sequence that is just being opened checks
 * this itself. */
static void close_if_denied(void *ctx, struct ngd_session *session)
{
    const struct closing *c = ctx;

    if (!ngd_models_may_use(c->models, ngd_session_identity(session), c->model))
        close_sequences(session, c->model);
}

static ngd_status_t unload(struct ngd_call *call, const Npugraph__V1__UnloadModelRequest *q, struct ngd_diag *diag)
{
    struct closing c = {.models = call->daemon->models};
    ngd_status_t status = ngd_models_remove(c.models, call->identity, q->name, q->force, &c.model, diag);

    if (status != NGD_OK)
        return status;
    if (q->force)
        ngd_sessions_for_each(call->daemon->sessions, close_if_denied, &c);
    ngd_model_unref(c.model);
    return NGD_OK;
}

static ngd_status_t run_unload(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__UnloadModelResponse reply = NPUGRAPH__V1__UNLOAD_MODEL_RESPONSE__INIT;
    ngd_status_t status = unload(call, msg, diag);

    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    return status;
}

/* Runs on the reaper's thread, because it frees weights. */
static void unload_model(struct ngd_call *call, const void *msg)
{
    ngd_call_job_add(call->daemon->reaper, call, msg, run_unload, 0);
}

const struct ngd_rpc_ops ngd_rpc_models_unload = {.once = true, .request = unload_model};

static ngd_status_t run_share(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__ShareModelResponse reply = NPUGRAPH__V1__SHARE_MODEL_RESPONSE__INIT;
    const Npugraph__V1__ShareModelRequest *q = msg;
    struct closing c = {.models = call->daemon->models};
    struct ngd_audience audience = {0};
    ngd_status_t status = ngd_audience_make(&call->daemon->options, call->identity, q->share_with, q->n_share_with,
                                            q->public_, &audience, diag);

    if (status == NGD_OK)
        status = ngd_models_share(c.models, call->identity, q->name, &audience, &c.model, diag);
    ngd_audience_fini(&audience);
    if (status != NGD_OK)
        return status;
    ngd_sessions_for_each(call->daemon->sessions, close_if_denied, &c);
    ngd_model_unref(c.model);
    ngd_call_reply(call, &reply.base);
    return NGD_OK;
}

static void share_model(struct ngd_call *call, const void *msg)
{
    ngd_call_job_add(call->daemon->reaper, call, msg, run_share, 0);
}

const struct ngd_rpc_ops ngd_rpc_models_share = {.once = true, .request = share_model};

struct listing {
    Npugraph__V1__ListModelsResponse reply;
    struct ngd_arena *arena;
    const struct ngd_model *only; /* NULL: all */
    size_t room;
};

static void list_one(void *ctx, const struct ngd_model_listed *listed)
{
    struct listing *l = ctx;
    Npugraph__V1__ModelInfo *m;

    if (l->only && listed->model != l->only)
        return;
    if (l->reply.n_models == l->room || !(m = ngd_model_info(listed->model, l->arena)))
        return;
    m->owner = ngd_arena_strdup(l->arena, listed->owner);
    m->audience = ngd_arena_strdup(l->arena, listed->audience);
    if (m->owner && m->audience)
        l->reply.models[l->reply.n_models++] = m;
}

static void list_models(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ListModelsRequest *q = msg;
    struct listing l = {.reply = NPUGRAPH__V1__LIST_MODELS_RESPONSE__INIT, .arena = &call->life};
    struct ngd_diag diag = {0};
    struct ngd_model *only = NULL;
    ngd_status_t status =
        q->name[0] ? ngd_models_get(call->daemon->models, call->identity, q->name, &only, &diag) : NGD_OK;

    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    l.only = only;
    l.room = ngd_models_count(call->daemon->models);
    l.reply.models = ngd_arena_calloc(&call->life, l.room + 1, sizeof(*l.reply.models));
    if (l.reply.models)
        ngd_models_for_each(call->daemon->models, call->identity, list_one, &l);
    ngd_model_unref(only);
    if (l.reply.models)
        ngd_call_reply(call, &l.reply.base);
    else
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
}

const struct ngd_rpc_ops ngd_rpc_models_list = {.request = list_models};
