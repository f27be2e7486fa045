/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a response. All sizes are known before the launch, so the message is complete but for the results,
 * which the launch writes to their place in it. Results that go into shared memory get a block of their own, and an
 * empty entry in raw_output_contents.
 */
#include "daemon/daemon.h"
#include "daemon/handlers/graph_info.h"
#include "daemon/handlers/oip_infer.h"
#include "daemon/identity.h"
#include "daemon/shm_regions.h"
#include "daemon/wire.h"
#include "scheduler/program/program.h"
#include <inttypes.h>
#include <string.h>

enum { R_MODEL = 1, R_VERSION = 2, R_ID = 3, R_PARAMETERS = 4, R_OUTPUTS = 5, R_RAW = 6 };
enum { O_NAME = 1, O_DATATYPE = 2, O_SHAPE = 3 };
enum { E_KEY = 1, E_VALUE = 2, P_BOOL = 1 };
enum { STREAM_RESPONSE = 2 };

#define FINAL      "triton_final_response"
#define ALIGNED(n) (((n) + 63) & ~(uint64_t)63)
#define HEAD_MAX   (3 * NGD_WIRE_U64_MAX) /* tags and lengths around one name */

/* One output of the response. */
struct result {
    uint32_t output; /* of the graph */
    uint64_t bytes;
    struct ngd_oip_place place;
    int64_t shape[NGD_MAX_RANK];
};

static const struct ngd_graph *graph_of_outputs(const struct ngd_oip_infer *x)
{
    return ngd_program_graph(ngd_binding_program(x->model.graph.binding));
}

static const struct ngd_type *type_of(const struct ngd_graph *g, const struct result *r)
{
    return &g->values[g->outputs[r->output].value].type;
}

/* ---- which outputs ----------------------------------------------------------------------------------------------- */

static ngd_status_t choose_result(const struct ngd_graph *g, const ngd_oip_wanted_t *wanted, struct result *results,
                                  size_t n, struct ngd_diag *diag)
{
    const int at = ngd_graph_find_output(g, wanted->name);

    if (at < 0)
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN,
                            "the model has no output \"%.100s\"; ModelMetadata lists its outputs", wanted->name);
    for (size_t i = 0; i < n; i++)
        if (results[i].output == (uint32_t)at)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "output \"%.100s\" is requested twice", wanted->name);
    results[n].output = (uint32_t)at;
    return ngd_oip_place_of_output(wanted, &results[n].place, diag);
}

/* Computes shape and bytes at the request's sizes. */
static ngd_status_t measure_result(const struct ngd_graph *g, const int64_t *symbols, struct result *r,
                                   struct ngd_diag *diag)
{
    const struct ngd_type *type = type_of(g, r);
    ngd_status_t status = ngd_value_bytes(g, g->outputs[r->output].value, symbols, &r->bytes);

    for (uint32_t d = 0; d < type->rank && status == NGD_OK; d++)
        status = ngd_expr_eval(g->exprs, type->dims[d], symbols, &r->shape[d]);
    if (status != NGD_OK)
        return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the size of output \"%.100s\" overflows",
                            g->outputs[r->output].name);
    return NGD_OK;
}

static ngd_status_t choose_results(struct ngd_oip_infer *x, struct result **results_p, uint32_t *n_p,
                                   struct ngd_diag *diag)
{
    const struct ngd_graph *g = graph_of_outputs(x);
    const size_t asked = x->q.m->n_outputs, n = asked ? asked : g->n_outputs;
    struct result *results = ngd_arena_calloc(x->arena, n + 1, sizeof(*results));
    ngd_status_t status = results ? NGD_OK : NGD_ERR_NO_MEMORY;

    for (size_t i = 0; i < n && status == NGD_OK; i++) {
        results[i].output = (uint32_t)i;
        if (asked)
            status = choose_result(g, x->q.m->outputs[i], results, i, diag);
        if (status == NGD_OK)
            status = measure_result(g, x->request.launch.symbols, &results[i], diag);
    }
    *results_p = results;
    *n_p = (uint32_t)n;
    return status;
}

/* ---- results in shared memory ------------------------------------------------------------------------------------ */

static ngd_status_t find_oip_target(struct ngd_oip_infer *x, const struct result *r, const struct ngd_out *out,
                                    struct ngd_diag *diag)
{
    struct ngd_oip_target *t = &x->targets[x->n_targets];
    ngd_status_t status =
        ngd_shm_region_get(x->call->daemon->shm_regions, x->call->identity, r->place.region, &t->region, diag);

    if (status != NGD_OK)
        return status;
    x->n_targets++;
    t->offset = r->place.offset;
    t->out = out;
    if (r->bytes > r->place.bytes)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "output \"%.100s\" has %" PRIu64 " bytes, and its place in shared memory %" PRIu64,
                            graph_of_outputs(x)->outputs[r->output].name, r->bytes, r->place.bytes);
    return ngd_shm_region_check(t->region, r->place.offset, r->place.bytes, diag);
}

/* Points the launch's outputs that go into shared memory to memory of ours. */
static ngd_status_t place_in_block(struct ngd_oip_infer *x, const struct result *results, uint32_t n,
                                   struct ngd_out *outs, struct ngd_diag *diag)
{
    const uint64_t limit = x->call->daemon->options.max_message;
    ngd_status_t status = NGD_OK;
    uint64_t total = 0;
    uint8_t *at;

    for (uint32_t i = 0; i < n && total <= limit; i++)
        if (results[i].place.region)
            total += results[i].bytes <= limit ? ALIGNED(results[i].bytes) : limit + 1;
    if (total > limit)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "the outputs in shared memory have more than %" PRIu64 " bytes (max-message)", limit);
    status = ngd_charge_begin(&x->out_charge, ngd_identity_payer(x->call->identity, NGD_QUOTA_HOST_BYTES), total, diag);
    if (status != NGD_OK)
        return status;
    x->out_block = ngd_blocks_take(&x->call->daemon->blocks, total + 1);
    x->targets = ngd_arena_calloc(x->arena, n, sizeof(*x->targets));
    if (!x->out_block || !x->targets)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for %" PRIu64 " bytes", total);
    at = x->out_block->data;
    for (uint32_t i = 0; i < n && status == NGD_OK; i++) {
        if (!results[i].place.region)
            continue;
        status = find_oip_target(x, &results[i], &outs[results[i].output], diag);
        outs[results[i].output].data = at;
        at += ALIGNED(results[i].bytes);
    }
    return status;
}

/* ---- the message ------------------------------------------------------------------------------------------------- */

static size_t text_room(const char *text)
{
    return strlen(text) + HEAD_MAX;
}

/* The most bytes of everything but the raw contents. */
static size_t head_room(const struct ngd_oip_infer *x, const struct result *results, uint32_t n)
{
    const struct ngd_graph *g = graph_of_outputs(x);
    size_t room = text_room(x->q.m->model_name) + NGD_OIP_VERSION_MAX + HEAD_MAX + text_room(x->q.m->id) +
                  text_room(FINAL) + HEAD_MAX;

    for (uint32_t i = 0; i < n; i++)
        room += text_room(g->outputs[results[i].output].name) + 2 * HEAD_MAX + NGD_MAX_RANK * NGD_WIRE_U64_MAX;
    return room;
}

static uint8_t *put_oip_text(uint8_t *p, uint32_t number, const char *text)
{
    return *text ? ngd_wire_put_bytes(p, number, text, strlen(text)) : p;
}

static uint8_t *put_result_head(uint8_t *p, const struct ngd_graph *g, const struct result *r)
{
    const char *name = g->outputs[r->output].name, *datatype = ngd_oip_datatype(type_of(g, r)->dtype);
    const uint32_t rank = type_of(g, r)->rank;
    size_t shape = 0, inner;

    for (uint32_t d = 0; d < rank; d++)
        shape += ngd_wire_varint_size((uint64_t)r->shape[d]);
    inner = (*name ? 1 + ngd_wire_varint_size(strlen(name)) + strlen(name) : 0) + 2 + strlen(datatype) +
            (rank ? 1 + ngd_wire_varint_size(shape) + shape : 0);
    p = ngd_wire_put_bytes_head(p, R_OUTPUTS, inner);
    p = put_oip_text(p, O_NAME, name);
    p = put_oip_text(p, O_DATATYPE, datatype);
    if (rank)
        p = ngd_wire_put_bytes_head(p, O_SHAPE, shape);
    for (uint32_t d = 0; d < rank; d++)
        p = ngd_wire_put_varint(p, (uint64_t)r->shape[d]);
    return p;
}

/* A request to a graph has one response, which is the final one. */
static uint8_t *put_final(uint8_t *p)
{
    const size_t n = strlen(FINAL);

    p = ngd_wire_put_bytes_head(p, R_PARAMETERS, 2 + n + 4);
    p = put_oip_text(p, E_KEY, FINAL);
    p = ngd_wire_put_bytes_head(p, E_VALUE, 2);
    p = ngd_wire_put_tag(p, P_BOOL, NGD_WIRE_VARINT);
    return ngd_wire_put_varint(p, 1);
}

static uint8_t *put_head(uint8_t *p, const struct ngd_oip_infer *x, const struct result *results, uint32_t n)
{
    char version[NGD_OIP_VERSION_MAX];

    ngd_oip_version(&x->model, version);
    p = put_oip_text(p, R_MODEL, x->q.m->model_name);
    p = put_oip_text(p, R_VERSION, version);
    p = put_oip_text(p, R_ID, x->q.m->id);
    if (x->streamed)
        p = put_final(p);
    for (uint32_t i = 0; i < n; i++)
        p = put_result_head(p, graph_of_outputs(x), &results[i]);
    return p;
}

/* Sums the bytes of raw_output_contents. */
static ngd_status_t raw_bytes(const struct result *results, uint32_t n, uint64_t *total_p, struct ngd_diag *diag)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = results[i].place.region ? 0 : results[i].bytes;

        if (__builtin_add_overflow(total, 1 + ngd_wire_varint_size(bytes), &total) ||
            __builtin_add_overflow(total, bytes, &total))
            return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the size of the response overflows");
    }
    *total_p = total;
    return NGD_OK;
}

/* Reserves the response, writes its head, and points the launch's outputs behind it. */
static ngd_status_t put_response(struct ngd_oip_infer *x, const struct result *results, uint32_t n,
                                 struct ngd_out *outs, struct ngd_diag *diag)
{
    uint8_t *head = ngd_arena_alloc(x->arena, head_room(x, results, n)), *p;
    uint64_t raw = 0, inner, total;
    ngd_status_t status = head ? raw_bytes(results, n, &raw, diag) : NGD_ERR_NO_MEMORY;
    size_t n_head;

    if (status != NGD_OK)
        return status;
    n_head = (size_t)(put_head(head, x, results, n) - head);
    if (__builtin_add_overflow(raw, n_head, &inner) || __builtin_add_overflow(inner, NGD_WIRE_U64_MAX, &total))
        return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the size of the response overflows");
    p = x->reserve(x, total, &status, diag);
    if (!p)
        return status;
    x->response = p;
    if (x->streamed)
        p = ngd_wire_put_bytes_head(p, STREAM_RESPONSE, inner);
    memcpy(p, head, n_head);
    p += n_head;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = results[i].place.region ? 0 : results[i].bytes;

        p = ngd_wire_put_bytes_head(p, R_RAW, bytes);
        if (!results[i].place.region)
            outs[results[i].output].data = p;
        p += bytes;
    }
    x->n_response = (size_t)(p - x->response);
    return NGD_OK;
}

ngd_status_t ngd_oip_lay_out(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    const struct ngd_graph *g = graph_of_outputs(x);
    struct ngd_out *outs = ngd_arena_calloc(x->arena, g->n_outputs + 1u, sizeof(*outs));
    struct result *results = NULL;
    bool any_place = false;
    uint32_t n = 0;
    ngd_status_t status = outs ? choose_results(x, &results, &n, diag) : NGD_ERR_NO_MEMORY;

    for (uint32_t i = 0; i < n && status == NGD_OK; i++) {
        outs[results[i].output].bytes = results[i].bytes;
        any_place = any_place || results[i].place.region;
    }
    if (status == NGD_OK && any_place)
        status = place_in_block(x, results, n, outs, diag);
    if (status == NGD_OK)
        status = put_response(x, results, n, outs, diag);
    x->request.launch.outputs = outs;
    x->request.n_outputs = g->n_outputs;
    return status;
}
