/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"
#include "daemon/handlers/oip.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/session.h"
#include "scheduler/program/program.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MODEL_VERSION "1" /* of each language model */

static const struct {
    const char *name;
    Inference__DataType config;
} datatypes[NGD_DTYPE_MAX] = {
    [NGD_F32] = {"FP32", INFERENCE__DATA_TYPE__TYPE_FP32},
    [NGD_F16] = {"FP16", INFERENCE__DATA_TYPE__TYPE_FP16},
    [NGD_BF16] = {"BF16", INFERENCE__DATA_TYPE__TYPE_BF16},
    [NGD_I8] = {"INT8", INFERENCE__DATA_TYPE__TYPE_INT8},
    [NGD_U8] = {"UINT8", INFERENCE__DATA_TYPE__TYPE_UINT8},
    [NGD_I32] = {"INT32", INFERENCE__DATA_TYPE__TYPE_INT32},
    [NGD_I64] = {"INT64", INFERENCE__DATA_TYPE__TYPE_INT64},
    [NGD_BOOL] = {"BOOL", INFERENCE__DATA_TYPE__TYPE_BOOL},
    [NGD_F8_E4M3FN] = {"UINT8", INFERENCE__DATA_TYPE__TYPE_UINT8}, /* the protocol has no such type: its bits */
};

const char *ngd_oip_datatype(ngd_dtype_t dtype)
{
    return datatypes[dtype].name;
}

Inference__DataType ngd_oip_config_type(ngd_dtype_t dtype)
{
    return datatypes[dtype].config;
}

bool ngd_oip_scope(const struct ngd_call *call, struct ngd_graph_names_scope *scope_p)
{
    *scope_p = (struct ngd_graph_names_scope){call->identity, call->session};
    return call->identity->proven || call->session;
}

void ngd_oip_version(const struct ngd_oip_model *m, char version_p[NGD_OIP_VERSION_MAX])
{
    if (m->graph.binding)
        snprintf(version_p, NGD_OIP_VERSION_MAX, "%" PRIu64, ngd_binding_generation(m->graph.binding));
    else
        snprintf(version_p, NGD_OIP_VERSION_MAX, MODEL_VERSION);
}

/* Reads a version; "" is 0, the newest. False: no model has such a version. */
static bool read_version(const char *text, uint64_t *version_p)
{
    uint64_t v = 0;

    if (strlen(text) >= NGD_OIP_VERSION_MAX || text[0] == '0')
        return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    *version_p = v;
    return *text == '\0';
}

static ngd_status_t no_version(const char *name, const char *version, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND,
                        "model \"%.100s\" has no version \"%.24s\"; ModelMetadata lists its versions, and \"\" is the "
                        "newest",
                        name, version);
}

static ngd_status_t find_language_model(struct ngd_call *call, const char *name, const char *version,
                                        struct ngd_oip_model *m, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_models_get(call->daemon->models, call->identity, name, &m->model, diag);

    if (status == NGD_OK && *version && strcmp(version, MODEL_VERSION) != 0) {
        m->model = ngd_model_unref(m->model);
        return no_version(name, version, diag);
    }
    if (status != NGD_ERR_MODEL_NOT_FOUND)
        return status;
    if (!call->identity->proven && !call->session)
        return ngd_diag_set(diag, status,
                            "there is no model \"%.100s\" that everybody may use. Over plaintext TCP a graph is named "
                            "only with the metadata npugraph-session and npugraph-session-token-bin of its session",
                            name);
    return ngd_diag_set(diag, status,
                        "there is no graph or model \"%.100s\" that %.100s may use; RepositoryIndex lists "
                        "them",
                        name, call->identity->name);
}

ngd_status_t ngd_oip_find(struct ngd_call *call, const char *name, const char *version, struct ngd_oip_model *m_p,
                          struct ngd_diag *diag)
{
    struct ngd_oip_model m = {.model = NULL};
    struct ngd_graph_names_scope scope;
    const bool may = ngd_oip_scope(call, &scope);
    uint64_t generation = 0;
    ngd_status_t status = NGD_OK;

    if (!*name)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the request names no model; RepositoryIndex lists them");
    if (!read_version(version, &generation))
        return no_version(name, version, diag);
    if (may && ngd_graph_names_find(call->daemon->graph_names, &scope, name, generation, &m.graph))
        status = NGD_OK;
    else if (may && generation && ngd_graph_names_find(call->daemon->graph_names, &scope, name, 0, &m.graph))
        status = no_version(name, version, diag);
    else
        status = find_language_model(call, name, version, &m, diag);
    if (status != NGD_OK)
        ngd_oip_model_end(&m);
    else
        *m_p = m;
    return status;
}

void ngd_oip_model_end(struct ngd_oip_model *m)
{
    ngd_graph_found_end(&m->graph);
    m->model = ngd_model_unref(m->model);
}

/* ---- several models ---------------------------------------------------------------------------------------------- */

static void hold_graph(void *ctx, const struct ngd_graph_found *borrowed)
{
    struct ngd_oip_list *l = ctx;

    if (l->models && l->n < l->room)
        l->models[l->n++].graph = ngd_graph_found_ref(borrowed);
    else if (!l->models)
        l->room++;
}

static void hold_language_model(void *ctx, const struct ngd_model_listed *listed)
{
    struct ngd_oip_list *l = ctx;

    if (l->n < l->room)
        l->models[l->n++].model = ngd_model_ref(listed->model);
}

bool ngd_oip_list_models(struct ngd_call *call, const char *name, bool models, struct ngd_oip_list *l)
{
    struct ngd_graph_names_scope scope;
    const bool may = ngd_oip_scope(call, &scope);

    *l = (struct ngd_oip_list){0};
    if (may)
        ngd_graph_names_for_each(call->daemon->graph_names, &scope, name, hold_graph, l); /* counts */
    l->room += 16 + (models ? ngd_models_count(call->daemon->models) : 0); /* some may be added meanwhile */
    l->models = ngd_arena_calloc(&call->life, l->room, sizeof(*l->models));
    if (!l->models)
        return false;
    if (may)
        ngd_graph_names_for_each(call->daemon->graph_names, &scope, name, hold_graph, l);
    if (models)
        ngd_models_for_each(call->daemon->models, call->identity, hold_language_model, l);
    return true;
}

void ngd_oip_list_end(struct ngd_oip_list *l)
{
    while (l->n > 0)
        ngd_oip_model_end(&l->models[--l->n]);
}

char *ngd_oip_name_of(const struct ngd_oip_model *m, struct ngd_arena *arena)
{
    struct ngd_model_stats stats;

    if (m->graph.binding)
        return ngd_arena_strdup(arena, ngd_program_graph(ngd_binding_program(m->graph.binding))->name);
    ngd_model_stats(m->model, &stats);
    return ngd_arena_strdup(arena, stats.name);
}

char *ngd_oip_version_of(const struct ngd_oip_model *m, struct ngd_arena *arena)
{
    char version[NGD_OIP_VERSION_MAX];

    ngd_oip_version(m, version);
    return ngd_arena_strdup(arena, version);
}
