/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_OIP_H
#define NGD_DAEMON_HANDLERS_OIP_H

/*
 * The Open Inference Protocol: how the daemon's graphs and language models appear as its models (decision 0053).
 *
 *   oip_model.c      finds a model by name and version; datatypes
 *   oip_request.c    reads a ModelInferRequest and its parameters
 *   oip_inputs.c     an infer request's tensors: inputs and symbols
 *   oip_outputs.c    the layout of a response
 *   oip_infer.c      one request to a graph; ModelInfer
 *   oip_stream.c     ModelStreamInfer
 *   oip_generate.c   one request to a language model
 *   oip_models.c     the methods about one model: ModelReady, ModelMetadata, ModelConfig, ModelStatistics
 *   oip_server.c     the methods about the server and its repository
 *   oip_regions.c    the methods about shared memory
 */
#include "daemon/object.h"
#include "daemon/rpc/rpc_call.h"
#include "graphs/graph.h"
#include "proto/inference.pb-c.h"
#include "scheduler/model/model.h"

struct ngd_session;

/* Zeroed: none. */
struct ngd_oip_model {
    struct ngd_graph_found graph; /* a graph, if graph.object is not NULL */
    struct ngd_model *model;      /* a language model: a reference */
};

/*
 * Finds the model that the name means to the caller: its own graph, else a language model that it may use. version "":
 * the newest. MODEL_NOT_FOUND, INVALID_ARGUMENT.
 */
ngd_status_t ngd_oip_find(struct ngd_call *call, const char *name, const char *version, struct ngd_oip_model *model_p,
                          struct ngd_diag *diag);
void ngd_oip_model_end(struct ngd_oip_model *model);
/* Whose graphs the caller may name. False: none, because nothing proves who it is, and it names no session. */
bool ngd_oip_scope(const struct ngd_call *call, struct ngd_graph_names_scope *scope_p);

#define NGD_OIP_VERSION_MAX 24
/* Prints a model's version. */
void ngd_oip_version(const struct ngd_oip_model *model, char version_p[NGD_OIP_VERSION_MAX]);

/* Their texts in the arena; NULL: out of memory. */
char *ngd_oip_name_of(const struct ngd_oip_model *model, struct ngd_arena *arena);
char *ngd_oip_version_of(const struct ngd_oip_model *model, struct ngd_arena *arena);

/* Models that the caller may use. Memory: the list is in the call's `life`, and has a reference on each model. */
struct ngd_oip_list {
    struct ngd_oip_model *models;
    size_t n, room;
};
/* Lists the graphs of a name ("": all), and all language models if `models`. False: out of memory. */
bool ngd_oip_list_models(struct ngd_call *call, const char *name, bool models, struct ngd_oip_list *list_p);
void ngd_oip_list_end(struct ngd_oip_list *list);

/* Ends a call with its reply, or with an error if the status is one. */
void ngd_oip_answer(struct ngd_call *call, ngd_status_t status, const ProtobufCMessage *reply,
                    const struct ngd_diag *diag);
/* True while requests are served. */
bool ngd_oip_is_ready(const struct ngd_daemon *d);

/* The protocol's names of a type: "FP32", and TYPE_FP32 of its enum. */
const char *ngd_oip_datatype(ngd_dtype_t dtype);
Inference__DataType ngd_oip_config_type(ngd_dtype_t dtype);

/* The tensors of language models. */
#define NGD_OIP_INPUT_IDS  "input_ids"
#define NGD_OIP_OUTPUT_IDS "output_ids"

/* The label of an input, by which clients name it. */
static inline const char *ngd_oip_label(const struct ngd_graph *g, uint32_t value)
{
    return g->values[value].label ? g->values[value].label : g->values[value].name;
}

/* A wrong shape is a mistake in the request, and INVALID_ARGUMENT in this protocol. */
static inline ngd_status_t ngd_oip_status(ngd_status_t status)
{
    return status == NGD_ERR_GUARD_FAILED ? NGD_ERR_INVALID_ARGUMENT : status;
}

#endif
