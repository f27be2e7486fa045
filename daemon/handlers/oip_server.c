/* SPDX-License-Identifier: Apache-2.0 */
/* ServerLive, ServerReady, ServerMetadata, the repository, and the refused methods about traces and logs. */
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/oip.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/call_job.h"
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif

void ngd_oip_answer(struct ngd_call *call, ngd_status_t status, const ProtobufCMessage *reply,
                    const struct ngd_diag *diag)
{
    if (status == NGD_OK)
        ngd_call_reply(call, reply);
    else
        ngd_call_fail(call, status, diag);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static void server_live(struct ngd_call *call, const void *msg)
{
    Inference__ServerLiveResponse reply = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)msg;
    reply.live = true;
    ngd_call_reply(call, &reply.base);
}

bool ngd_oip_is_ready(const struct ngd_daemon *d)
{
    return ngd_daemon_ready(d);
}

static void server_ready(struct ngd_call *call, const void *msg)
{
    Inference__ServerReadyResponse reply = INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)msg;
    reply.ready = ngd_oip_is_ready(call->daemon);
    ngd_call_reply(call, &reply.base);
}

static void server_metadata(struct ngd_call *call, const void *msg)
{
    static const char *const extensions[] = {"binary_tensor_data",  "model_configuration", "model_repository",
                                             "parameters",          "schedule_policy",     "statistics",
                                             "system_shared_memory"};
    Inference__ServerMetadataResponse reply = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    const size_t n = sizeof(extensions) / sizeof(extensions[0]);

    (void)msg;
    reply.name = (char *)(uintptr_t) "npugraphd";
    reply.version = (char *)(uintptr_t)PACKAGE_VERSION;
    reply.extensions = (char **)(uintptr_t)extensions;
    reply.n_extensions = ngd_config_get(call->daemon->options.oip_shared_memory) ? n : n - 1;
    ngd_call_reply(call, &reply.base);
}

const struct ngd_rpc_ops ngd_rpc_oip_server_live = {.request = server_live};
const struct ngd_rpc_ops ngd_rpc_oip_server_ready = {.request = server_ready};
const struct ngd_rpc_ops ngd_rpc_oip_server_metadata = {.request = server_metadata};

/* ---- the repository ---------------------------------------------------------------------------------------------- */

typedef Inference__RepositoryIndexResponse__ModelIndex model_index_t;

static ngd_status_t check_repository(const char *name, struct ngd_diag *diag)
{
    return *name ? ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "there is no repository \"%.100s\"; leave repository_name empty", name)
                 : NGD_OK;
}

static ngd_status_t fill_index(struct ngd_call *call, const struct ngd_oip_list *l,
                               Inference__RepositoryIndexResponse *reply)
{
    model_index_t *all = ngd_arena_calloc(&call->life, l->n + 1, sizeof(*all));

    reply->models = ngd_arena_calloc(&call->life, l->n + 1, sizeof(*reply->models));
    if (!all || !reply->models)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < l->n; i++) {
        inference__repository_index_response__model_index__init(&all[i]);
        all[i].name = ngd_oip_name_of(&l->models[i], &call->life);
        all[i].version = ngd_oip_version_of(&l->models[i], &call->life);
        all[i].state = (char *)(uintptr_t) "READY";
        if (!all[i].name || !all[i].version)
            return NGD_ERR_NO_MEMORY;
        reply->models[reply->n_models++] = &all[i];
    }
    return NGD_OK;
}

static void repository_index(struct ngd_call *call, const void *msg)
{
    Inference__RepositoryIndexResponse reply = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    const Inference__RepositoryIndexRequest *q = msg;
    struct ngd_oip_list l = {.models = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = check_repository(q->repository_name, &diag);

    if (status == NGD_OK)
        status = ngd_oip_list_models(call, "", true, &l) ? fill_index(call, &l, &reply) : NGD_ERR_NO_MEMORY;
    ngd_oip_list_end(&l); /* before the answer, which frees the list; names were copied */
    ngd_oip_answer(call, status, &reply.base, &diag);
}

static void model_load(struct ngd_call *call, const void *msg)
{
    Inference__RepositoryModelLoadResponse reply = INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    const Inference__RepositoryModelLoadRequest *q = msg;
    struct ngd_oip_model m = {.model = NULL};
    struct ngd_diag diag = {0};
    ngd_status_t status = check_repository(q->repository_name, &diag);

    if (status == NGD_OK && q->n_parameters)
        status = ngd_diag_set(&diag, NGD_ERR_UNIMPLEMENTED,
                              "parameter \"%.100s\": a model's configuration and files cannot be given here",
                              q->parameters[0]->key);
    if (status == NGD_OK)
        status = ngd_oip_find(call, q->model_name, "", &m, &diag);
    if (status == NGD_ERR_MODEL_NOT_FOUND)
        status = ngd_diag_set(&diag, NGD_ERR_UNIMPLEMENTED,
                              "\"%.100s\" is not loaded, and this call cannot load it: use npugraphctl load, or "
                              "register a graph",
                              q->model_name);
    ngd_oip_answer(call, status, &reply.base, &diag);
    ngd_oip_model_end(&m);
}

static bool asks_for_dependents(const Inference__RepositoryModelUnloadRequest *q, size_t i)
{
    const Inference__ModelRepositoryParameter *value = q->parameters[i]->value;

    return strcmp(q->parameters[i]->key, "unload_dependents") != 0 || !value ||
           value->parameter_choice_case != INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM ||
           value->bool_param;
}

static ngd_status_t check_unload(struct ngd_call *call, const Inference__RepositoryModelUnloadRequest *q,
                                 struct ngd_diag *diag)
{
    struct ngd_oip_model m = {.model = NULL};
    ngd_status_t status = check_repository(q->repository_name, diag);

    for (size_t i = 0; i < q->n_parameters && status == NGD_OK; i++)
        if (asks_for_dependents(q, i))
            status = ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                                  "parameter \"%.100s\": no model depends on another one; only unload_dependents = "
                                  "false is allowed",
                                  q->parameters[i]->key);
    if (status == NGD_OK)
        status = ngd_oip_find(call, q->model_name, "", &m, diag);
    if (status == NGD_OK && m.graph.object)
        status = ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                              "\"%.100s\" is a graph, which belongs to its session: release it there with "
                              "Graphs.Release",
                              q->model_name);
    ngd_oip_model_end(&m);
    return status;
}

static ngd_status_t run_oip_unload(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Inference__RepositoryModelUnloadResponse reply = INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
    const Inference__RepositoryModelUnloadRequest *q = msg;
    struct ngd_model *model = NULL;
    ngd_status_t status = check_unload(call, q, diag);

    if (status == NGD_OK)
        status = ngd_models_remove(call->daemon->models, call->identity, q->model_name, false, &model, diag);
    ngd_model_unref(model);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    return status;
}

/* Runs on the reaper's thread, because it frees weights. */
static void model_unload(struct ngd_call *call, const void *msg)
{
    ngd_call_job_add(call->daemon->reaper, call, msg, run_oip_unload, 0);
}

const struct ngd_rpc_ops ngd_rpc_oip_repository_index = {.request = repository_index};
const struct ngd_rpc_ops ngd_rpc_oip_model_load = {.request = model_load};
const struct ngd_rpc_ops ngd_rpc_oip_model_unload = {.once = true, .request = model_unload};

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void refuse_settings(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag;

    (void)msg;
    ngd_diag_set(&diag, NGD_ERR_UNIMPLEMENTED,
                 "traces and logs are not set over this protocol: use npugraphctl trace, or the daemon's options");
    ngd_call_fail(call, NGD_ERR_UNIMPLEMENTED, &diag);
}

const struct ngd_rpc_ops ngd_rpc_oip_settings = {.request = refuse_settings};
