/* SPDX-License-Identifier: Apache-2.0 */
/* Models as the daemon knows them: two graphs and a contract. The caller brings the graphs. */
#include "client/lib/client_int.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <stdlib.h>

_Static_assert((int)NPUGRAPH_KV_POLICY_PREEMPT == (int)NGD_PB(KV_POLICY, PREEMPT) &&
                   (int)NPUGRAPH_KV_POLICY_REFUSE == (int)NGD_PB(KV_POLICY, REFUSE),
               "values of the protocol");

_Static_assert((int)NPUGRAPH_POOLING_LAST == (int)NGD_PB(POOLING, LAST) &&
                   (int)NPUGRAPH_POOLING_MEAN == (int)NGD_PB(POOLING, MEAN),
               "values of the protocol");

/* A model that returns embeddings alone chooses no tokens. Of a mean it needs no rows by their numbers. */
static void fill_decode_contract(Npugraph__V1__DecodeContract *c, const struct npugraph_model_spec *spec)
{
    npugraph__v1__decode_contract__init(c);
    c->tokens = (char *)"tokens";
    c->positions = (char *)"positions";
    c->slot_mapping = (char *)"slots";
    c->block_table = (char *)"block_table";
    c->query_lens = (char *)"query_lens";
    c->context_lens = (char *)"context_lens";
    c->logits_rows = (char *)(spec->decode_graph != 0 || spec->pooling == NPUGRAPH_POOLING_LAST ? "logits_rows" : "");
    c->hidden_output = (char *)(spec->pooling != NPUGRAPH_POOLING_NONE ? "hidden" : "");
    c->pooling = (Npugraph__V1__Pooling)spec->pooling;
    if (spec->decode_graph == 0)
        return;
    c->temperature = (char *)"temperature";
    c->top_k = (char *)"top_k";
    c->top_p = (char *)"top_p";
    c->seed = (char *)"seed";
    c->offset = (char *)"offset";
    c->token_output = (char *)"token";
    c->logits_output = (char *)"logits";
}

#define GROUPS_MAX 8

/* Further groups of layers, and what the contract points to. */
struct groups {
    Npugraph__V1__KvGroup groups[GROUPS_MAX], *list[GROUPS_MAX];
};

static void fill_groups(Npugraph__V1__DecodeContract *c, struct groups *g, uint32_t n)
{
    static const char *const labels[GROUPS_MAX][2] = {
        {"slots.1", "block_table.1"}, {"slots.2", "block_table.2"}, {"slots.3", "block_table.3"},
        {"slots.4", "block_table.4"}, {"slots.5", "block_table.5"}, {"slots.6", "block_table.6"},
        {"slots.7", "block_table.7"}, {"slots.8", "block_table.8"},
    };

    c->n_more_groups = n < GROUPS_MAX ? n : GROUPS_MAX; /* the daemon refuses as many */
    c->more_groups = g->list;
    for (size_t i = 0; i < c->n_more_groups; i++) {
        npugraph__v1__kv_group__init(&g->groups[i]);
        g->groups[i].slot_mapping = (char *)(uintptr_t)labels[i][0];
        g->groups[i].block_table = (char *)(uintptr_t)labels[i][1];
        g->list[i] = &g->groups[i];
    }
}

static void fill_request(Npugraph__V1__RegisterModelRequest *req, const struct npugraph_model_spec *spec)
{
    npugraph__v1__register_model_request__init(req);
    req->name = (char *)spec->name;
    req->prefill_graph = spec->prefill_graph;
    req->decode_graph = spec->decode_graph;
    req->block_size = spec->block_size;
    req->num_blocks = spec->num_blocks;
    req->max_context = spec->max_context;
    req->vocab = spec->vocab;
    req->n_stop_tokens = spec->n_stop_tokens;
    req->stop_tokens = (int32_t *)(uintptr_t)spec->stop_tokens;
    req->keep = spec->keep;
    req->kv_policy = (Npugraph__V1__KvPolicy)spec->kv_policy;
    req->no_prefix_sharing = spec->no_prefix_sharing;
    req->n_share_with = spec->n_share_with;
    req->share_with = (char **)(uintptr_t)spec->share_with;
    req->public_ = spec->make_public;
    req->private_ = spec->make_private;
    req->share_prefixes = spec->share_prefixes;
    req->description = (char *)(spec->description != NULL ? spec->description : "");
    req->source = (char *)(spec->source != NULL ? spec->source : "");
    req->parameters = spec->parameters;
    req->unit_embeddings = spec->unit_embeddings;
}

int npugraph_model_register(struct npugraph_client *client, const struct npugraph_model_spec *spec,
                            struct npugraph_error *err)
{
    Npugraph__V1__RegisterModelRequest req;
    Npugraph__V1__DecodeContract contract;
    struct groups groups;
    ProtobufCMessage *reply = NULL;
    int rc;

    fill_request(&req, spec);
    fill_decode_contract(&contract, spec);
    fill_groups(&contract, &groups, spec->n_kv_groups > 1 ? spec->n_kv_groups - 1 : 0);
    contract.n_kv_states = spec->n_kv_states;
    contract.kv_states = (char **)(uintptr_t)spec->kv_states;
    req.contract = &contract;
    npugraph__client_hold(client, !spec->keep);
    rc = npugraph__unary_again(client, "/npugraph.v1.Sequences/RegisterModel", &req.base,
                               &npugraph__v1__register_model_response__descriptor, &reply, err);
    npugraph__free_message(reply);
    return rc;
}

int npugraph_model_share(struct npugraph_client *client, const char *name, const char *const *with, size_t n_with,
                         bool make_public, struct npugraph_error *err)
{
    Npugraph__V1__ShareModelRequest req = NPUGRAPH__V1__SHARE_MODEL_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.name = (char *)name;
    req.n_share_with = n_with;
    req.share_with = (char **)(uintptr_t)with;
    req.public_ = make_public;
    rc = npugraph__unary_again(client, "/npugraph.v1.Sequences/ShareModel", &req.base,
                               &npugraph__v1__share_model_response__descriptor, &reply, err);
    npugraph__free_message(reply);
    return rc;
}

int npugraph_model_unload(struct npugraph_client *client, const char *name, bool force, struct npugraph_error *err)
{
    Npugraph__V1__UnloadModelRequest req = NPUGRAPH__V1__UNLOAD_MODEL_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.name = (char *)name;
    req.force = force;
    rc = npugraph__unary_again(client, "/npugraph.v1.Sequences/UnloadModel", &req.base,
                               &npugraph__v1__unload_model_response__descriptor, &reply, err);
    npugraph__free_message(reply);
    return rc;
}

/* A list with the message that its strings are in. */
struct model_list {
    struct npugraph_models models; /* the first member: what the caller has */
    ProtobufCMessage *reply;
    struct npugraph_model items[];
};

static struct npugraph_models *make_model_list(ProtobufCMessage *reply)
{
    const Npugraph__V1__ListModelsResponse *r = (const Npugraph__V1__ListModelsResponse *)reply;
    struct model_list *list = calloc(1, sizeof(*list) + r->n_models * sizeof(list->items[0]));

    if (list == NULL)
        return NULL;
    list->reply = reply;
    list->models = (struct npugraph_models){list->items, r->n_models};
    for (size_t i = 0; i < r->n_models; i++) {
        const Npugraph__V1__ModelInfo *m = r->models[i];

        list->items[i] = (struct npugraph_model){
            .name = m->name,
            .description = m->description,
            .source = m->source,
            .owner = m->owner,
            .parameters = m->parameters,
            .max_context = m->max_context,
            .vocab = m->vocab,
            .sequences = m->sequences,
            .stop_tokens = m->stop_tokens,
            .n_stop_tokens = m->n_stop_tokens,
            .embedding_size = m->embedding_size,
            .pooling = m->pooling <= NGD_PB(POOLING, MEAN) ? (enum npugraph_pooling)m->pooling : NPUGRAPH_POOLING_NONE,
            .unit_embeddings = m->unit_embeddings,
            .no_generation = m->no_generation};
    }
    return &list->models;
}

int npugraph_models_list(struct npugraph_client *client, struct npugraph_models **models_p, struct npugraph_error *err)
{
    return npugraph_models_find(client, "", models_p, err);
}

int npugraph_models_find(struct npugraph_client *client, const char *name, struct npugraph_models **models_p,
                         struct npugraph_error *err)
{
    Npugraph__V1__ListModelsRequest req = NPUGRAPH__V1__LIST_MODELS_REQUEST__INIT;
    struct npugraph_models *models;
    struct npugraph__link *link;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.name = (char *)name;
    link = npugraph__client_enter(client);
    rc = npugraph__entered_unary(client, &link, true, "/npugraph.v1.Sequences/ListModels", &req.base,
                                 &npugraph__v1__list_models_response__descriptor, &reply, err);
    npugraph__client_leave(client, link);
    if (rc != 0)
        return rc;
    models = make_model_list(reply);
    if (models == NULL) {
        npugraph__free_message(reply);
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    *models_p = models;
    return 0;
}

void npugraph_models_free(struct npugraph_models *models)
{
    struct model_list *list = (struct model_list *)models;

    if (list == NULL)
        return;
    npugraph__free_message(list->reply);
    free(list);
}
