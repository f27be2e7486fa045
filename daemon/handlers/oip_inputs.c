/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of an infer request: which tensor is which input of the graph, where its bytes are, and what the sizes of
 * the graph's symbols are.
 *
 * Inputs with raw contents are not copied: the launch reads them from the message. Elements that came one by one, host
 * parameters, and tensors in shared memory are copied once.
 */
#include "base/le.h"
#include "daemon/daemon.h"
#include "daemon/handlers/oip_infer.h"
#include "daemon/identity.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/shm_regions.h"
#include "graphs/guard.h"
#include "scheduler/program/program.h"
#include <inttypes.h>
#include <string.h>

#define ALIGNED(n)   (((n) + 63) & ~(uint64_t)63)
#define UNKNOWN_SIZE (-1)
#define SOLVE_WORK   (1u << 18) /* parts of expressions that may be evaluated to find sizes: about a millisecond */

/* One tensor of the request. */
struct tensor {
    const ngd_oip_tensor_t *m;
    uint32_t value; /* of the graph */
    uint64_t elements, bytes;
    struct ngd_oip_place place;
    struct ngd_span data; /* not set for one in shared memory until it is read */
};

/* ---- which input it is ------------------------------------------------------------------------------------------- */

static const struct ngd_graph *infer_graph(const struct ngd_oip_infer *x)
{
    return ngd_program_graph(ngd_binding_program(x->model.graph.binding));
}

/* Number of the graph's inputs that a request must give: user inputs, then host parameters. */
static uint32_t n_wanted(const struct ngd_graph *g)
{
    return g->n_inputs + g->n_hosts;
}

static uint32_t wanted_value(const struct ngd_graph *g, uint32_t i)
{
    return i < g->n_inputs ? g->inputs[i] : g->hosts[i - g->n_inputs];
}

/* Finds the place of a tensor among the graph's inputs. Clients mostly send them in order, so that place is tried
 * first. */
static int find_wanted(const struct ngd_graph *g, const char *name, size_t hint)
{
    const uint32_t n = n_wanted(g);

    if (hint < n && strcmp(ngd_oip_label(g, wanted_value(g, (uint32_t)hint)), name) == 0)
        return (int)hint;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(ngd_oip_label(g, wanted_value(g, i)), name) == 0)
            return (int)i;
    return -1;
}

static ngd_status_t check_oip_tensor(const struct ngd_graph *g, struct tensor *t, struct ngd_diag *diag)
{
    const struct ngd_type *type = &g->values[t->value].type;
    const bool scalar = type->rank == 0 && t->m->n_shape == 1 && t->m->shape[0] == 1;

    if (strcmp(t->m->datatype, ngd_oip_datatype(type->dtype)) != 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\" has datatype \"%.20s\"; it must be %s",
                            t->m->name, t->m->datatype, ngd_oip_datatype(type->dtype));
    if (t->m->n_shape != type->rank && !scalar)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\" has %zu dimensions; it must have %u",
                            t->m->name, t->m->n_shape, type->rank);
    t->elements = 1;
    for (size_t d = 0; d < t->m->n_shape; d++)
        if (t->m->shape[d] < 0 || __builtin_mul_overflow(t->elements, (uint64_t)t->m->shape[d], &t->elements))
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\": dimension %zu, %" PRId64 ", is %s",
                                t->m->name, d, t->m->shape[d], t->m->shape[d] < 0 ? "negative" : "too large");
    if (__builtin_mul_overflow(t->elements, ngd_dtype_bytes(type->dtype), &t->bytes))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\": its size overflows", t->m->name);
    return ngd_oip_place_of_input(t->m, &t->place, diag);
}

/* Finds the tensors of the graph's inputs, in the graph's order. */
static ngd_status_t match_tensors(struct ngd_oip_infer *x, struct tensor *tensors, struct ngd_diag *diag)
{
    const Inference__ModelInferRequest *m = x->q.m;
    const struct ngd_graph *g = infer_graph(x);

    for (size_t i = 0; i < m->n_inputs; i++) {
        const int at = find_wanted(g, m->inputs[i]->name, i);

        if (at < 0)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "the model has no input \"%.100s\"; ModelMetadata lists its inputs",
                                m->inputs[i]->name);
        if (tensors[at].m)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\" is given twice", m->inputs[i]->name);
        tensors[at] = (struct tensor){.m = m->inputs[i], .value = wanted_value(g, (uint32_t)at)};
    }
    for (uint32_t i = 0; i < n_wanted(g); i++) {
        ngd_status_t status;

        if (!tensors[i].m)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\" is missing",
                                ngd_oip_label(g, wanted_value(g, i)));
        status = check_oip_tensor(g, &tensors[i], diag);
        if (status != NGD_OK)
            return status;
    }
    return NGD_OK;
}

/* ---- where its bytes are ----------------------------------------------------------------------------------------- */

/* Elements that came one by one, as the type that they must have. */
struct elements {
    size_t n;      /* in the field of the type */
    size_t others; /* in other fields */
    const void *values;
    size_t size; /* bytes of an element of the field */
};

static struct elements find_elements(const Inference__InferTensorContents *c, ngd_dtype_t dtype)
{
    const size_t all = c->n_bool_contents + c->n_int_contents + c->n_int64_contents + c->n_uint_contents +
                       c->n_uint64_contents + c->n_fp32_contents + c->n_fp64_contents + c->n_bytes_contents;
    struct elements e = {0};

    if (dtype == NGD_BOOL)
        e = (struct elements){c->n_bool_contents, 0, c->bool_contents, sizeof(*c->bool_contents)};
    else if (dtype == NGD_I8 || dtype == NGD_I32)
        e = (struct elements){c->n_int_contents, 0, c->int_contents, sizeof(*c->int_contents)};
    else if (dtype == NGD_I64)
        e = (struct elements){c->n_int64_contents, 0, c->int64_contents, sizeof(*c->int64_contents)};
    else if (dtype == NGD_U8 || dtype == NGD_F8_E4M3FN)
        e = (struct elements){c->n_uint_contents, 0, c->uint_contents, sizeof(*c->uint_contents)};
    else if (dtype == NGD_F32)
        e = (struct elements){c->n_fp32_contents, 0, c->fp32_contents, sizeof(*c->fp32_contents)};
    e.others = all - e.n;
    return e;
}

/* Puts element i of an 8-bit type, or refuses one that the type does not have. */
static bool put_byte(const struct elements *e, ngd_dtype_t dtype, size_t i, uint8_t *to)
{
    const int64_t v = dtype == NGD_BOOL ? ((const protobuf_c_boolean *)e->values)[i] != 0
                      : dtype == NGD_I8 ? ((const int32_t *)e->values)[i]
                                        : (int64_t)((const uint32_t *)e->values)[i];

    *to = (uint8_t)v;
    return dtype == NGD_I8 ? v >= INT8_MIN && v <= INT8_MAX : v <= UINT8_MAX;
}

static ngd_status_t read_elements(struct ngd_oip_infer *x, struct tensor *t, ngd_dtype_t dtype, struct ngd_diag *diag)
{
    const struct elements e = find_elements(t->m->contents, dtype);
    uint8_t *to;

    if (e.others || !e.size || e.n != t->elements)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%.100s\": its contents have %zu elements of %s, and %zu of other types; its shape "
                            "needs %" PRIu64 "%s",
                            t->m->name, e.n, ngd_oip_datatype(dtype), e.others, t->elements,
                            e.size ? "" : ". FP16 and BF16 come only raw");
    to = ngd_arena_alloc(x->arena, t->bytes + 1);
    if (!to)
        return NGD_ERR_NO_MEMORY;
    t->data = (struct ngd_span){to, t->bytes};
    if (ngd_dtype_bytes(dtype) == e.size && dtype != NGD_BOOL) {
        if (t->bytes)
            memcpy(to, e.values, t->bytes);
        return NGD_OK;
    }
    for (size_t i = 0; i < e.n; i++)
        if (!put_byte(&e, dtype, i, &to[i]))
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\": element %zu does not fit %s",
                                t->m->name, i, ngd_oip_datatype(dtype));
    return NGD_OK;
}

static struct tensor *tensor_of(struct tensor *tensors, uint32_t n, const ngd_oip_tensor_t *m)
{
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i].m == m)
            return &tensors[i];
    return NULL; /* does not happen: each is one of them */
}

static ngd_status_t take_raw(struct ngd_oip_infer *x, struct tensor *t, uint32_t *n_raw, struct ngd_diag *diag)
{
    if (*n_raw == x->q.n_raw)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%.100s\" has no data: neither contents, nor an entry of raw_input_contents, nor "
                            "shared memory",
                            t->m->name);
    t->data = x->q.raw[(*n_raw)++];
    if (t->data.bytes == t->bytes)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "input \"%.100s\" has %" PRIu64 " bytes in raw_input_contents; its shape and datatype need "
                        "%" PRIu64,
                        t->m->name, t->data.bytes, t->bytes);
}

static ngd_status_t place_oip_tensor(struct ngd_oip_infer *x, struct tensor *t, uint32_t *n_raw, struct ngd_diag *diag)
{
    if (t->m->contents && (x->q.n_raw || t->place.region))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%.100s\" has contents, and the request has raw contents or the input is in "
                            "shared memory: send tensors in one way only",
                            t->m->name);
    if (t->m->contents)
        return read_elements(x, t, infer_graph(x)->values[t->value].type.dtype, diag);
    if (!t->place.region)
        return take_raw(x, t, n_raw, diag);
    if (t->place.bytes == t->bytes)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "input \"%.100s\" has %" PRIu64 " bytes in shared memory; its shape and datatype need %" PRIu64,
                        t->m->name, t->place.bytes, t->bytes);
}

/* Raw contents pair with the tensors in the request's order. */
static ngd_status_t place_oip_tensors(struct ngd_oip_infer *x, struct tensor *tensors, struct ngd_diag *diag)
{
    const uint32_t n = n_wanted(infer_graph(x));
    ngd_status_t status = NGD_OK;
    uint32_t n_raw = 0;

    for (size_t i = 0; i < x->q.m->n_inputs && status == NGD_OK; i++)
        status = place_oip_tensor(x, tensor_of(tensors, n, x->q.m->inputs[i]), &n_raw, diag);
    if (status == NGD_OK && n_raw < x->q.n_raw)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "raw_input_contents has %u entries, and %u inputs are raw", x->q.n_raw, n_raw);
    return status;
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

static ngd_status_t read_region(struct ngd_oip_infer *x, struct tensor *t, uint8_t *to, struct ngd_diag *diag)
{
    struct ngd_shm_region *region;
    ngd_status_t status =
        ngd_shm_region_get(x->call->daemon->shm_regions, x->call->identity, t->place.region, &region, diag);

    if (status != NGD_OK)
        return status;
    status = ngd_shm_region_read(region, t->place.offset, to, t->bytes, diag);
    ngd_shm_region_unref(region);
    t->data = (struct ngd_span){to, t->bytes};
    return status;
}

/* Reads the tensors that are in shared memory into memory of ours: a client may change them at any time, and the
 * device reads them more than once. */
static ngd_status_t read_regions(struct ngd_oip_infer *x, struct tensor *tensors, struct ngd_diag *diag)
{
    const uint64_t limit = x->call->daemon->options.max_message;
    const uint32_t n = n_wanted(infer_graph(x));
    ngd_status_t status = NGD_OK;
    uint64_t total = 0;
    uint8_t *at;

    for (uint32_t i = 0; i < n && total <= limit; i++)
        if (tensors[i].place.region)
            total += tensors[i].bytes <= limit ? ALIGNED(tensors[i].bytes) : limit + 1;
    if (total == 0)
        return NGD_OK;
    if (total > limit)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "the inputs in shared memory have more than %" PRIu64 " bytes (max-message)", limit);
    status = ngd_charge_begin(&x->charge, ngd_identity_payer(x->call->identity, NGD_QUOTA_HOST_BYTES), total, diag);
    if (status != NGD_OK)
        return status;
    x->block = ngd_blocks_take(&x->call->daemon->blocks, total);
    if (!x->block)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for %" PRIu64 " bytes", total);
    at = x->block->data;
    for (uint32_t i = 0; i < n && status == NGD_OK; i++) {
        if (!tensors[i].place.region)
            continue;
        status = read_region(x, &tensors[i], at, diag);
        at += ALIGNED(tensors[i].bytes);
    }
    return status;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

/* The sizes of symbols that a request parameter gives: "symbol.B". */
static ngd_status_t read_symbol_params(struct ngd_oip_infer *x, int64_t *symbols, struct ngd_diag *diag)
{
    const struct ngd_graph *g = infer_graph(x);

    for (size_t k = 0; k < x->q.m->n_parameters; k++) {
        const char *key = x->q.m->parameters[k]->key;
        uint32_t s = 0;

        if (strncmp(key, NGD_OIP_SYMBOL, strlen(NGD_OIP_SYMBOL)) != 0)
            continue;
        while (s < g->n_symbols && strcmp(g->symbols[s].name, key + strlen(NGD_OIP_SYMBOL)) != 0)
            s++;
        if (s == g->n_symbols || symbols[s] != UNKNOWN_SIZE ||
            !ngd_oip_integer(x->q.m->parameters[k]->value, &symbols[s]) || symbols[s] < 0)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "parameter \"%.100s\" must name a symbol of the graph, once, and be an integer of 0 or "
                                "more",
                                key);
    }
    return NGD_OK;
}

/* Evaluates dim. False: it has no value at these sizes, or the work is used up. */
static bool try_sizes(const struct ngd_graph *g, ngd_dim_t dim, const int64_t *symbols, uint32_t *work,
                      int64_t *value_p)
{
    const uint32_t cost = ngd_expr_cost(g->exprs, dim);

    *work = *work > cost ? *work - cost : 0;
    return *work > 0 && ngd_expr_eval(g->exprs, dim, symbols, value_p) == NGD_OK;
}

/* Finds the size of the one unknown symbol s at which dim has this value. Expressions that a search by halves does not
 * solve stay unsolved, and so do all others once the work is used up: this is the thread that receives calls. The check
 * of the types finds a wrong solution. */
static void solve_symbol(const struct ngd_graph *g, ngd_dim_t dim, int64_t value, uint32_t s, int64_t *symbols,
                         uint32_t *work)
{
    int64_t low = g->symbols[s].min, high = g->symbols[s].max, at;

    while (low<high && * work> 0) {
        symbols[s] = low + (high - low) / 2;
        if (try_sizes(g, dim, symbols, work, &at) && at < value)
            low = symbols[s] + 1;
        else
            high = symbols[s];
    }
    symbols[s] = low;
    if (!try_sizes(g, dim, symbols, work, &at) || at != value)
        symbols[s] = UNKNOWN_SIZE;
}

/* Solves dim = value if exactly one of its symbols is unknown. */
static void solve_dim(const struct ngd_graph *g, ngd_dim_t dim, int64_t value, int64_t *symbols, uint32_t *work)
{
    const uint32_t uses = ngd_dim_is_const(dim) ? 0 : ngd_expr_symbols(g->exprs, dim);
    uint32_t unknown = 0, n = 0;

    for (uint32_t s = 0; s < g->n_symbols; s++) {
        if (!(uses >> s & 1) || symbols[s] != UNKNOWN_SIZE)
            continue;
        unknown = s;
        n++;
    }
    if (n != 1)
        return;
    if (dim == g->symbols[unknown].dim)
        symbols[unknown] = value;
    else
        solve_symbol(g, dim, value, unknown, symbols, work);
}

/* Finds the sizes of the symbols from the shapes. A symbol may become known only through another one, so the shapes are
 * looked at once for each symbol. */
static ngd_status_t find_symbols(struct ngd_oip_infer *x, const struct tensor *tensors, int64_t *symbols,
                                 struct ngd_diag *diag)
{
    const struct ngd_graph *g = infer_graph(x);
    uint32_t work = SOLVE_WORK;
    ngd_status_t status;

    for (uint32_t s = 0; s < g->n_symbols; s++)
        symbols[s] = UNKNOWN_SIZE;
    status = read_symbol_params(x, symbols, diag);
    if (status != NGD_OK)
        return status;
    for (uint32_t round = 0; round < g->n_symbols; round++)
        for (uint32_t i = 0; i < n_wanted(g); i++)
            for (uint32_t d = 0; d < g->values[tensors[i].value].type.rank; d++)
                solve_dim(g, g->values[tensors[i].value].type.dims[d], tensors[i].m->shape[d], symbols, &work);
    for (uint32_t s = 0; s < g->n_symbols; s++)
        if (symbols[s] == UNKNOWN_SIZE && work == 0)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "it takes too long to find the size of the graph's symbol %.60s from the shapes of the "
                                "inputs; give it by the parameter " NGD_OIP_SYMBOL "%.60s",
                                g->symbols[s].name, g->symbols[s].name);
        else if (symbols[s] == UNKNOWN_SIZE)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "the shapes of the inputs do not tell the size of the graph's symbol %.60s, or fit no "
                                "size of it; give it by the parameter " NGD_OIP_SYMBOL "%.60s",
                                g->symbols[s].name, g->symbols[s].name);
    return NGD_OK;
}

/* ---- the launch -------------------------------------------------------------------------------------------------- */

static ngd_status_t put_oip_inputs(struct ngd_oip_infer *x, const struct tensor *tensors)
{
    const struct ngd_graph *g = infer_graph(x);
    struct ngd_span *inputs = ngd_arena_alloc(x->arena, (g->n_inputs + 1u) * sizeof(*inputs));
    struct ngd_input_type *types = ngd_arena_calloc(x->arena, g->n_inputs + 1u, sizeof(*types));

    if (!inputs || !types)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ngd_type *type = &g->values[g->inputs[i]].type;

        inputs[i] = tensors[i].data;
        types[i].dtype = type->dtype;
        types[i].rank = type->rank;
        for (uint32_t d = 0; d < type->rank; d++)
            types[i].dims[d] = tensors[i].m->shape[d];
    }
    x->request.launch.inputs = inputs;
    x->request.n_inputs = g->n_inputs;
    x->request.types = types;
    x->request.n_types = g->n_inputs;
    return NGD_OK;
}

static ngd_status_t put_oip_hosts(struct ngd_oip_infer *x, const struct tensor *tensors, struct ngd_diag *diag)
{
    const struct ngd_graph *g = infer_graph(x);
    struct ngd_host_value *hosts = ngd_arena_alloc(x->arena, (g->n_hosts + 1u) * sizeof(*hosts));

    if (!hosts)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < g->n_hosts; i++) {
        const struct tensor *t = &tensors[g->n_inputs + i];
        int64_t *values;

        if (t->elements > NGD_WIRE_MOST_HOST_VALUE_VALUES)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%.100s\" has more than %u elements",
                                t->m->name, (unsigned)NGD_WIRE_MOST_HOST_VALUE_VALUES);
        values = ngd_arena_alloc(x->arena, (t->elements + 1) * sizeof(*values));
        if (!values)
            return NGD_ERR_NO_MEMORY;
        for (uint64_t k = 0; k < t->elements; k++) /* raw bytes are not aligned */
            values[k] = (int64_t)ngd_le_get((const uint8_t *)t->data.data + 8 * k, 8);
        hosts[i] = (struct ngd_host_value){values, (uint32_t)t->elements};
    }
    x->request.launch.hosts = hosts;
    x->request.n_hosts = g->n_hosts;
    return NGD_OK;
}

/* The number of tensors is compared first, so that what follows is bounded by the request's. */
static ngd_status_t check_input_count(const struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    const uint32_t n = n_wanted(infer_graph(x));

    if (x->q.m->n_inputs == n)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "the request has %zu inputs, and the model has %u; ModelMetadata lists them", x->q.m->n_inputs,
                        n);
}

ngd_status_t ngd_oip_read_inputs(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    const struct ngd_graph *g = infer_graph(x);
    struct tensor *tensors;
    int64_t *symbols;
    ngd_status_t status = check_input_count(x, diag);

    if (status != NGD_OK)
        return status;
    tensors = ngd_arena_calloc(x->arena, n_wanted(g) + 1u, sizeof(*tensors));
    symbols = ngd_arena_alloc(x->arena, (g->n_symbols + 1u) * sizeof(*symbols));
    if (!tensors || !symbols)
        return NGD_ERR_NO_MEMORY;
    status = match_tensors(x, tensors, diag);
    if (status == NGD_OK)
        status = place_oip_tensors(x, tensors, diag);
    if (status == NGD_OK)
        status = find_symbols(x, tensors, symbols, diag);
    if (status == NGD_OK)
        status = read_regions(x, tensors, diag);
    if (status == NGD_OK)
        status = put_oip_inputs(x, tensors);
    if (status == NGD_OK)
        status = put_oip_hosts(x, tensors, diag);
    x->request.launch.symbols = symbols;
    x->request.n_symbols = g->n_symbols;
    return status;
}
