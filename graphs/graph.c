/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph's structures: creation, the builder, lookups, references.
 *
 * Values and nodes are arrays that only grow. Names, operand lists and attributes are in an arena, so freeing
 * a graph frees only a few blocks. A node's operands must be defined before it, so the order of the arrays is
 * an order of execution. Checks that need the whole graph (unused symbols, mutation, rows) are done by
 * ngd_graph_seal.
 */
#include "graphs/graph_int.h"
#include "base/utf8.h"
#include "graphs/expr_int.h"
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

bool ngd_name_ok(struct ngd_slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.'))
            return false;
    }
    return name.n > 0;
}

bool ngd_symbol_name_ok(struct ngd_slice name)
{
    static const char *const words[] = {"floordiv", "mod",   "min",   "max",     "inf",   "nan",
                                        "none",     "true",  "false", "buckets", "exact", "sym",
                                        "guard",    "param", "state", "input",   "host",  "return"};

    if (!ngd_name_ok(name) || (name.p[0] >= '0' && name.p[0] <= '9') || memchr(name.p, '.', name.n))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == name.n && memcmp(words[i], name.p, name.n) == 0)
            return false;
    return true;
}

bool ngd_text_ok(const char *s, size_t n)
{
    while (n > 0) {
        size_t step = ngd_utf8_step(s, n);

        if (step == 0 || *s == '\0')
            return false;
        s += step;
        n -= step;
    }
    return true;
}

static struct ngd_slice slice_of(const char *s)
{
    return (struct ngd_slice){s, strlen(s)};
}

static bool slice_is(struct ngd_slice a, const char *s)
{
    return strlen(s) == a.n && memcmp(a.p, s, a.n) == 0;
}

static char *copy_name(struct ngd_graph *graph, struct ngd_slice s)
{
    char *copy = ngd_arena_alloc(&graph->priv->arena, s.n + 1);

    if (copy) {
        memcpy(copy, s.p, s.n);
        copy[s.n] = '\0';
    }
    return copy;
}

#define OUTPUTS 64 /* the name space of outputs */

/* Hashes a name. space: the name space; 0 for values' names, one per class of inputs for labels,
 * OUTPUTS for outputs. */
static uint64_t hash_of(const struct ngd_graph *graph, struct ngd_slice key, uint64_t space)
{
    return ngd_hash64(key.p, key.n, ngd_expr_seed(graph->exprs) + space);
}

static uint32_t *name_chain(const struct ngd_value_index *index, uint64_t hash)
{
    return &index->heads[hash & (index->n_heads - 1)];
}

static void index_put(struct ngd_value_index *index, uint32_t value, uint64_t hash)
{
    uint32_t *head = name_chain(index, hash);

    index->next[value] = *head;
    index->hashes[value] = hash;
    *head = value + 1;
}

static void index_free(struct ngd_value_index *index)
{
    ngd_free(index->heads);
    ngd_free(index->next);
    ngd_free(index->hashes);
}

/* Grows the index to values below cap, and moves the n values that it has. */
static ngd_status_t index_grow(struct ngd_graph *graph, struct ngd_value_index *index, uint32_t cap, uint32_t n)
{
    struct ngd_value_index grown = {.n_heads = cap, .cap_next = cap};

    if (cap <= index->cap_next)
        return NGD_OK;
    grown.heads = NGD_NEW_N(uint32_t, cap);
    grown.next = NGD_NEW_N(uint32_t, cap);
    grown.hashes = NGD_NEW_N(uint64_t, cap);
    if (!grown.heads || !grown.next || !grown.hashes) {
        index_free(&grown);
        return NGD_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++)
        if (index != &graph->priv->labels || graph->values[i].cls != NGD_VALUE_NODE)
            index_put(&grown, i, index->hashes[i]);
    index_free(index);
    *index = grown;
    return NGD_OK;
}

static void index_remove_last(struct ngd_value_index *index, uint32_t value)
{
    *name_chain(index, index->hashes[value]) = index->next[value];
}

static uint32_t find_named_value(const struct ngd_graph *graph, struct ngd_slice name, uint64_t hash)
{
    const struct ngd_value_index *index = &graph->priv->names;

    if (index->n_heads == 0)
        return NGD_VALUE_NONE;
    for (uint32_t at = *name_chain(index, hash); at; at = index->next[at - 1])
        if (index->hashes[at - 1] == hash && slice_is(name, graph->values[at - 1].name))
            return at - 1;
    return NGD_VALUE_NONE;
}

uint32_t ngd_graph_find_value(const struct ngd_graph *graph, struct ngd_slice name)
{
    return find_named_value(graph, name, hash_of(graph, name, 0));
}

static uint32_t find_label(const struct ngd_graph *graph, ngd_value_class_t cls, struct ngd_slice label, uint64_t hash)
{
    const struct ngd_value_index *index = &graph->priv->labels;

    if (index->n_heads == 0)
        return NGD_VALUE_NONE;
    for (uint32_t at = *name_chain(index, hash); at; at = index->next[at - 1])
        if (index->hashes[at - 1] == hash && graph->values[at - 1].cls == cls &&
            slice_is(label, graph->values[at - 1].label))
            return at - 1;
    return NGD_VALUE_NONE;
}

int ngd_graph_find_input(const struct ngd_graph *graph, ngd_value_class_t cls, const char *label)
{
    struct ngd_slice slice = slice_of(label);
    uint32_t value = find_label(graph, cls, slice, hash_of(graph, slice, cls + 1u));

    if (value == NGD_VALUE_NONE)
        value = ngd_graph_find_value(graph, slice);
    if (value == NGD_VALUE_NONE || graph->values[value].cls != cls || cls == NGD_VALUE_NODE)
        return -1;
    return (int)graph->values[value].ordinal;
}

int ngd_graph_find_output(const struct ngd_graph *graph, const char *name)
{
    const struct ngd_value_index *index = &graph->priv->outputs;
    uint64_t hash = hash_of(graph, slice_of(name), OUTPUTS);

    if (index->n_heads == 0)
        return -1;
    for (uint32_t at = *name_chain(index, hash); at; at = index->next[at - 1])
        if (index->hashes[at - 1] == hash && strcmp(graph->outputs[at - 1].name, name) == 0)
            return (int)at - 1;
    return -1;
}

/* ---- life ---- */

ngd_status_t ngd_graph_create(const char *name, struct ngd_graph **graph_p)
{
    struct ngd_graph *graph;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    ngd_op_table_init();
    if (!name)
        name = "";
    if (strlen(name) > NGD_GRAPH_MAX_NAME)
        return NGD_ERR_GRAPH_TOO_LARGE;
    if (!ngd_text_ok(name, strlen(name)))
        return NGD_ERR_INVALID_ARGUMENT;
    graph = NGD_NEW(struct ngd_graph);
    if (!graph)
        return status;
    graph->priv = NGD_NEW(struct ngd_graph_priv);
    if (!graph->priv)
        goto free_graph;
    atomic_init(&graph->priv->refs, 1);
    ngd_arena_init(&graph->priv->arena, 16384);
    graph->name = copy_name(graph, slice_of(name));
    graph->streams[0] = copy_name(graph, slice_of(""));
    graph->n_streams = 1;
    if (!graph->name || !graph->streams[0])
        goto free_priv;
    status = ngd_expr_table_create(&graph->exprs);
    if (status)
        goto free_priv;
    *graph_p = graph;
    return NGD_OK;

free_priv:
    ngd_arena_fini(&graph->priv->arena);
    ngd_free(graph->priv);
free_graph:
    ngd_free(graph);
    return status;
}

struct ngd_graph *ngd_graph_ref(struct ngd_graph *graph)
{
    atomic_fetch_add_explicit(&graph->priv->refs, 1, memory_order_relaxed);
    return graph;
}

static void free_graph(struct ngd_graph *graph)
{
    struct ngd_graph_priv *priv = graph->priv;

    ngd_expr_table_destroy(graph->exprs);
    ngd_free(graph->values);
    ngd_free(graph->nodes);
    ngd_free(graph->outputs);
    ngd_free(graph->params);
    ngd_free(graph->states);
    ngd_free(graph->inputs);
    ngd_free(graph->hosts);
    index_free(&priv->names);
    index_free(&priv->labels);
    index_free(&priv->outputs);
    ngd_arena_fini(&priv->arena);
    ngd_free(priv);
    ngd_free(graph);
}

struct ngd_graph *ngd_graph_unref(struct ngd_graph *graph)
{
    if (graph && atomic_fetch_sub_explicit(&graph->priv->refs, 1, memory_order_acq_rel) == 1)
        free_graph(graph);
    return NULL;
}

static uint64_t index_bytes(const struct ngd_value_index *index)
{
    return index->n_heads * sizeof(index->heads[0]) +
           (uint64_t)index->cap_next * (sizeof(index->next[0]) + sizeof(index->hashes[0]));
}

uint64_t ngd_graph_host_bytes(const struct ngd_graph *graph)
{
    const struct ngd_graph_priv *p = graph->priv;

    return sizeof(*graph) + sizeof(*p) + ngd_arena_bytes(&p->arena) + p->cap_values * sizeof(graph->values[0]) +
           p->cap_nodes * sizeof(graph->nodes[0]) + p->cap_outputs * sizeof(graph->outputs[0]) +
           ((uint64_t)p->cap_params + p->cap_states + p->cap_inputs + p->cap_hosts) * sizeof(uint32_t) +
           index_bytes(&p->names) + index_bytes(&p->labels) + index_bytes(&p->outputs);
}

/* ---- growing ---- */

static ngd_status_t grow_graph_array(void **array, uint32_t n, uint32_t *cap, size_t size)
{
    uint32_t want = *cap ? *cap * 2 : 16;
    void *p;

    if (n < *cap) {
        ngd_move_array(array, *cap * size);
        return NGD_OK;
    }
    p = ngd_reallocarray(*array, want, size);
    if (!p)
        return NGD_ERR_NO_MEMORY;
    *array = p;
    *cap = want;
    return NGD_OK;
}

static ngd_status_t graph_no_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory while building the graph");
}

static ngd_status_t check_open(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    if (graph->sealed)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the graph is sealed: build a new one instead of changing it");
    return NGD_OK;
}

/* Makes room for one more value in the array and in the indexes. */
static ngd_status_t reserve_value(struct ngd_graph *graph, struct ngd_diag *diag)
{
    struct ngd_graph_priv *priv = graph->priv;

    if (graph->n_values >= NGD_GRAPH_MAX_VALUES * (graph->priv->rewritten ? 2u : 1u))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than %d values", NGD_GRAPH_MAX_VALUES);
    if (grow_graph_array((void **)&graph->values, graph->n_values, &priv->cap_values, sizeof(graph->values[0])) ||
        index_grow(graph, &priv->names, priv->cap_values, graph->n_values) ||
        index_grow(graph, &priv->labels, priv->cap_values, graph->n_values))
        return graph_no_memory(diag);
    return NGD_OK;
}

ngd_status_t ngd_graph_reserve(struct ngd_graph *graph, uint32_t n_values)
{
    struct ngd_graph_priv *priv = graph->priv;
    uint32_t cap = 16;
    void *values;

    while (cap < n_values && cap < NGD_GRAPH_MAX_VALUES)
        cap *= 2;
    if (cap <= priv->cap_values)
        return NGD_OK;
    values = ngd_reallocarray(graph->values, cap, sizeof(graph->values[0]));
    if (!values)
        return NGD_ERR_NO_MEMORY;
    graph->values = values;
    priv->cap_values = cap;
    return NGD_OK;
}

/* Makes a name that no value has: the value's number, with as many underscores as needed. */
static char *make_name(struct ngd_graph *graph)
{
    char text[NGD_GRAPH_MAX_NAME + 1];
    int n = snprintf(text, sizeof(text), "%u", graph->n_values);

    while (ngd_graph_find_value(graph, (struct ngd_slice){text, (size_t)n}) != NGD_VALUE_NONE &&
           n + 1 < (int)sizeof(text))
        text[n++] = '_';
    return copy_name(graph, (struct ngd_slice){text, (size_t)n});
}

static ngd_status_t check_new_name(const struct ngd_graph *graph, struct ngd_slice name, uint64_t hash,
                                   struct ngd_diag *diag)
{
    if (name.n > NGD_GRAPH_MAX_NAME)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "value %%%.32s...: a name has at most %d bytes", name.p,
                            NGD_GRAPH_MAX_NAME);
    if (!ngd_name_ok(name))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_PARSE, "a value's name is made of letters, digits, '_' and '.'");
    if (find_named_value(graph, name, hash) != NGD_VALUE_NONE)
        return ngd_diag_set(
            diag, NGD_ERR_GRAPH_REDEFINED,
            "value %%%.*s is defined twice: every value is assigned once, give the second one another name",
            (int)name.n, name.p);
    return NGD_OK;
}

/* Appends a value without a type. name.p NULL: makes up a name. */
static ngd_status_t append_value(struct ngd_graph *graph, struct ngd_slice name, ngd_value_class_t cls,
                                 uint32_t *value_p, struct ngd_diag *diag)
{
    ngd_status_t status = reserve_value(graph, diag);
    uint64_t hash = name.p ? hash_of(graph, name, 0) : 0;
    struct ngd_value *v;

    if (!status && name.p)
        status = check_new_name(graph, name, hash, diag);
    if (status)
        return status;
    v = &graph->values[graph->n_values];
    *v = (struct ngd_value){.cls = cls};
    v->name = name.p ? copy_name(graph, name) : make_name(graph);
    if (!v->name)
        return graph_no_memory(diag);
    index_put(&graph->priv->names, graph->n_values, name.p ? hash : hash_of(graph, slice_of(v->name), 0));
    *value_p = graph->n_values++;
    return NGD_OK;
}

static void drop_last_value(struct ngd_graph *graph)
{
    index_remove_last(&graph->priv->names, --graph->n_values);
}

/* ---- symbols and inputs ---- */

ngd_status_t ngd_graph_add_symbol(struct ngd_graph *graph, const char *name, int64_t min, int64_t max, ngd_dim_t *dim_p,
                                  struct ngd_diag *diag)
{
    struct ngd_symbol *s = &graph->symbols[graph->n_symbols];
    ngd_status_t status = check_open(graph, diag);

    if (status)
        return status;
    if (graph->n_symbols >= NGD_GRAPH_MAX_SYMBOLS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than %d symbols", NGD_GRAPH_MAX_SYMBOLS);
    if (!ngd_symbol_name_ok(slice_of(name)) || strlen(name) > NGD_GRAPH_MAX_NAME)
        return ngd_diag_set(
            diag, NGD_ERR_GRAPH_SYMBOL,
            "\"%.64s\" cannot name a symbol: use a letter or '_', then letters, digits and '_', and no word "
            "of the language (min, max, mod, floordiv, ...)",
            name);
    for (uint32_t i = 0; i < graph->n_symbols; i++)
        if (strcmp(graph->symbols[i].name, name) == 0)
            return ngd_diag_set(diag, NGD_ERR_GRAPH_REDEFINED, "symbol %s is declared twice", name);
    if (min < 0 || max < min || max > NGD_SYMBOL_MAX_VALUE)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL,
                            "symbol %s has the range %lld..%lld: it must be min..max with 0 <= min <= max <= %d", name,
                            (long long)min, (long long)max, NGD_SYMBOL_MAX_VALUE);
    *s = (struct ngd_symbol){.min = min, .max = max, .name = copy_name(graph, slice_of(name))};
    if (!s->name)
        return graph_no_memory(diag);
    status = ngd_expr_declare(graph->exprs, name, min, max, &s->dim);
    if (status)
        return ngd_diag_set(diag, status, "symbol %s: %s", name, ngd_status_text(status));
    graph->n_symbols++;
    *dim_p = s->dim;
    return NGD_OK;
}

ngd_status_t ngd_graph_set_buckets(struct ngd_graph *graph, uint32_t symbol, const int64_t *buckets, uint32_t n,
                                   struct ngd_diag *diag)
{
    ngd_status_t status = check_open(graph, diag);
    struct ngd_symbol *s;

    if (status)
        return status;
    if (symbol >= graph->n_symbols)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL, "there is no symbol number %u", symbol);
    s = &graph->symbols[symbol];
    if (n == 0 || n > NGD_MAX_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL, "symbol %s has %u buckets: it needs 1 to %d", s->name, n,
                            NGD_MAX_BUCKETS);
    for (uint32_t i = 0; i < n; i++)
        if (buckets[i] < 1 || buckets[i] > NGD_SYMBOL_MAX_VALUE || (i && buckets[i] <= buckets[i - 1]))
            return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL,
                                "symbol %s: bucket %lld is out of order: buckets are ascending and between 1 and %d",
                                s->name, (long long)buckets[i], NGD_SYMBOL_MAX_VALUE);
    if (buckets[n - 1] < s->max)
        return ngd_diag_set(
            diag, NGD_ERR_GRAPH_SYMBOL,
            "symbol %s: the last bucket, %lld, is below the symbol's maximum %lld: add a bucket that holds it", s->name,
            (long long)buckets[n - 1], (long long)s->max);
    if (buckets[n - 1] > s->max) {
        status = ngd_expr_widen(graph->exprs, symbol, buckets[n - 1]);
        if (status)
            return ngd_diag_set(diag, status, "symbol %s: set its buckets before it is used", s->name);
    }
    memcpy(s->buckets, buckets, n * sizeof(buckets[0]));
    s->n_buckets = n;
    s->policy = NGD_SYMBOL_BUCKETS;
    return NGD_OK;
}

static ngd_status_t check_input_type(const struct ngd_graph *graph, ngd_value_class_t cls, const struct ngd_type *type,
                                     struct ngd_diag *diag)
{
    if (cls == NGD_VALUE_HOST && (type->dtype != NGD_I64 || type->rank > 1))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_DTYPE,
                            "a host parameter is an integer, i64[], or a list of them, i64[n]");
    return ngd_type_check(graph, type, diag);
}

/* Appends a value to the list of its class. */
static ngd_status_t push_ordinal(struct ngd_graph *graph, ngd_value_class_t cls, uint32_t value)
{
    struct ngd_graph_priv *priv = graph->priv;
    struct {
        uint32_t **list, *n, *cap;
    } of[] = {
        [NGD_VALUE_PARAM] = {&graph->params, &graph->n_params, &priv->cap_params},
        [NGD_VALUE_STATE] = {&graph->states, &graph->n_states, &priv->cap_states},
        [NGD_VALUE_INPUT] = {&graph->inputs, &graph->n_inputs, &priv->cap_inputs},
        [NGD_VALUE_HOST] = {&graph->hosts, &graph->n_hosts, &priv->cap_hosts},
    };
    ngd_status_t status = grow_graph_array((void **)of[cls].list, *of[cls].n, of[cls].cap, sizeof(uint32_t));

    if (status)
        return status;
    graph->values[value].ordinal = *of[cls].n;
    (*of[cls].list)[(*of[cls].n)++] = value;
    return NGD_OK;
}

static ngd_status_t check_label(const struct ngd_graph *graph, ngd_value_class_t cls, struct ngd_slice label,
                                uint64_t hash, struct ngd_diag *diag)
{
    if (label.n > NGD_GRAPH_MAX_STRING)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "a label has at most %d bytes", NGD_GRAPH_MAX_STRING);
    if (!ngd_text_ok(label.p, label.n))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_PARSE, "a label is not valid UTF-8");
    if (find_label(graph, cls, label, hash) != NGD_VALUE_NONE)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_REDEFINED, "two inputs of class %s have the label \"%.64s\"",
                            ngd_value_class_name(cls), label.p);
    return NGD_OK;
}

ngd_status_t ngd_graph_add_input(struct ngd_graph *graph, ngd_value_class_t cls, const char *name, const char *label,
                                 const struct ngd_type *type, uint32_t *value_p, struct ngd_diag *diag)
{
    struct ngd_slice slice = {name, name ? strlen(name) : 0}, said = {label, label ? strlen(label) : 0};
    uint64_t hash = label ? hash_of(graph, said, cls + 1u) : 0;
    ngd_status_t status = check_open(graph, diag);
    struct ngd_value *v;
    uint32_t value;

    if (!status && (unsigned)cls >= NGD_VALUE_NODE)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "this class is not a class of inputs");
    if (status)
        return status;
    status = check_input_type(graph, cls, type, diag);
    if (status) {
        ngd_diag_prefix(diag, "%s %%%.64s: ", ngd_value_class_name(cls), name ? name : "?");
        return status;
    }
    if (label)
        status = check_label(graph, cls, said, hash, diag);
    if (!status)
        status = append_value(graph, slice, cls, &value, diag);
    if (status)
        return status;
    v = &graph->values[value];
    v->type = *type;
    v->label = label ? copy_name(graph, said) : v->name;
    if (!label) {
        said = slice_of(v->name);
        hash = hash_of(graph, said, cls + 1u);
        status = check_label(graph, cls, said, hash, diag);
    }
    if (!status && (!v->label || push_ordinal(graph, cls, value)))
        status = graph_no_memory(diag);
    if (status) {
        drop_last_value(graph);
        return status;
    }
    index_put(&graph->priv->labels, value, hash);
    *value_p = value;
    return NGD_OK;
}

ngd_status_t ngd_graph_add_output(struct ngd_graph *graph, const char *name, uint32_t value, struct ngd_diag *diag)
{
    ngd_status_t status = check_open(graph, diag);
    char *copy;

    if (status)
        return status;
    if (value >= graph->n_values)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_UNDEFINED, "output \"%.64s\" names a value that is not defined",
                            name ? name : "?");
    if (!name)
        name = graph->values[value].name;
    if (strlen(name) > NGD_GRAPH_MAX_STRING ||
        graph->n_outputs >= NGD_GRAPH_MAX_OUTPUTS + (graph->priv->rewritten ? NGD_GRAPH_MAX_VALUES : 0u))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE,
                            "a graph has at most %d outputs with names of at most %d bytes", NGD_GRAPH_MAX_OUTPUTS,
                            NGD_GRAPH_MAX_STRING);
    if (!ngd_text_ok(name, strlen(name)))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_PARSE, "an output's name is not valid UTF-8");
    if (ngd_graph_find_output(graph, name) >= 0)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_REDEFINED, "two outputs have the name \"%.64s\"", name);
    if (graph->values[value].cls == NGD_VALUE_HOST)
        return ngd_diag_set(
            diag, NGD_ERR_INVALID_ARGUMENT,
            "output \"%.64s\" is host parameter %%%s: the client has it already, only tensors are outputs", name,
            graph->values[value].name);
    copy = copy_name(graph, slice_of(name));
    if (!copy ||
        grow_graph_array((void **)&graph->outputs, graph->n_outputs, &graph->priv->cap_outputs,
                         sizeof(graph->outputs[0])) ||
        index_grow(graph, &graph->priv->outputs, graph->priv->cap_outputs, graph->n_outputs))
        return graph_no_memory(diag);
    index_put(&graph->priv->outputs, graph->n_outputs, hash_of(graph, slice_of(name), OUTPUTS));
    graph->outputs[graph->n_outputs++] = (struct ngd_graph_output){copy, value};
    graph->values[value].n_uses++;
    return NGD_OK;
}

/* ---- streams ---- */

ngd_status_t ngd_graph_add_stream(struct ngd_graph *graph, const char *name, uint16_t *stream_p, struct ngd_diag *diag)
{
    ngd_status_t status = check_open(graph, diag);

    if (status)
        return status;
    for (uint32_t i = 0; i < graph->n_streams; i++) {
        if (strcmp(graph->streams[i], name) == 0) {
            *stream_p = (uint16_t)i;
            return NGD_OK;
        }
    }
    if (strlen(name) > NGD_GRAPH_MAX_NAME || graph->n_streams == NGD_GRAPH_MAX_STREAMS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE,
                            "a graph has at most %d streams with the main one, with names of at most %d bytes",
                            NGD_GRAPH_MAX_STREAMS, NGD_GRAPH_MAX_NAME);
    if (!ngd_text_ok(name, strlen(name)))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_PARSE, "a stream's name is not valid UTF-8");
    graph->streams[graph->n_streams] = copy_name(graph, slice_of(name));
    if (!graph->streams[graph->n_streams])
        return graph_no_memory(diag);
    *stream_p = (uint16_t)graph->n_streams++;
    return NGD_OK;
}

ngd_status_t ngd_node_scope_check(const struct ngd_graph *graph, const struct ngd_node_scope *scope,
                                  struct ngd_diag *diag)
{
    if (scope->stream >= graph->n_streams)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_UNDEFINED, "there is no stream number %u", scope->stream);
    if (scope->aicore > NGD_GRAPH_MAX_CORES || scope->vectorcore > NGD_GRAPH_MAX_CORES)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_ATTRIBUTE,
                            "a limit of %u AI and %u vector cores: each may be %d at most", scope->aicore,
                            scope->vectorcore, NGD_GRAPH_MAX_CORES);
    if (scope->vectorcore && !scope->aicore)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_ATTRIBUTE,
                            "a limit of %u vector cores comes with no limit of AI cores: give both", scope->vectorcore);
    return NGD_OK;
}

ngd_status_t ngd_graph_set_scope(struct ngd_graph *graph, const struct ngd_node_scope *scope, struct ngd_diag *diag)
{
    static const struct ngd_node_scope none;
    ngd_status_t status = check_open(graph, diag);

    if (!scope)
        scope = &none;
    if (!status)
        status = ngd_node_scope_check(graph, scope, diag);
    if (!status)
        graph->priv->scope = *scope;
    return status;
}

/* ---- nodes ---- */

static ngd_status_t check_operand(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i,
                                  struct ngd_diag *diag)
{
    bool host = i < 32 && (node->op->host >> i & 1), is_host;
    uint32_t value = node->in[i], n_defined = graph->n_values - node->n_out; /* without the node's own results */

    if (value == NGD_VALUE_NONE) {
        if (i >= node->op->min_in && node->op->max_in != NGD_OP_VARIADIC)
            return NGD_OK;
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "operand %u is none, but it is required", i + 1);
    }
    if (value >= n_defined)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_UNDEFINED,
            "operand %u is not defined yet: values are defined before they are used, so a graph has no cycle", i + 1);
    is_host = graph->values[value].cls == NGD_VALUE_HOST;
    if (host && !is_host)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                           "operand %u, %%%s, must be a host parameter: declare it with `host`", i + 1,
                           graph->values[value].name);
    if (!host && is_host)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                           "operand %u must be a tensor, but %%%s is a host parameter: declare it with `input`", i + 1,
                           graph->values[value].name);
    return NGD_OK;
}

static ngd_status_t set_operands(struct ngd_graph *graph, struct ngd_node *node, const struct ngd_node_spec *spec,
                                 struct ngd_diag *diag)
{
    const struct ngd_op *op = spec->op;
    uint32_t n = spec->n_in, max = op->max_in == NGD_OP_VARIADIC ? NGD_GRAPH_MAX_OPERANDS : op->max_in;

    while (n > op->min_in && spec->in[n - 1] == NGD_VALUE_NONE) /* f(x, none) is f(x): one form has one digest */
        n--;
    if (n > NGD_GRAPH_MAX_OPERANDS)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_TOO_LARGE, "it has more than %d operands",
                           NGD_GRAPH_MAX_OPERANDS);
    if (n < op->min_in || n > max) {
        if (op->min_in == max)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "it has %u operands, but takes %u", n, max);
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "it has %u operands, but takes %u to %u", n,
                           op->min_in, max);
    }
    node->in = ngd_arena_calloc(&graph->priv->arena, n + 1, sizeof(uint32_t));
    if (!node->in)
        return graph_no_memory(diag);
    if (n)
        memcpy(node->in, spec->in, n * sizeof(uint32_t));
    node->n_in = n;
    for (uint32_t i = 0; i < n; i++) {
        ngd_status_t status = check_operand(graph, node, i, diag);

        if (status)
            return status;
    }
    return NGD_OK;
}

static void set_default_attr(struct ngd_attr_value *a, const struct ngd_attr_schema *schema)
{
    *a = (struct ngd_attr_value){.i = schema->def_int, .f = schema->def_float};
    if (schema->type == NGD_ATTR_STR)
        a->s = schema->def_str;
}

static ngd_status_t copy_attr(struct ngd_graph *graph, const struct ngd_node *node, struct ngd_attr_value *a,
                              const struct ngd_attr_schema *schema, const struct ngd_attr_value *from,
                              struct ngd_diag *diag)
{
    int64_t lo, hi, *list;

    *a = (struct ngd_attr_value){.i = from->i, .f = from->f};
    switch (schema->type) {
    case NGD_ATTR_STR:
        if (!from->s || strlen(from->s) > NGD_GRAPH_MAX_STRING || !ngd_text_ok(from->s, strlen(from->s)))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute %s is not UTF-8, or is longer than 4096 bytes", schema->name);
        a->s = copy_name(graph, slice_of(from->s));
        return a->s ? NGD_OK : graph_no_memory(diag);
    case NGD_ATTR_INTS:
        if (from->n > NGD_GRAPH_MAX_LIST)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_TOO_LARGE, "attribute %s has more than %d elements",
                               schema->name, NGD_GRAPH_MAX_LIST);
        for (uint32_t i = 0; i < from->n; i++)
            if (ngd_expr_bounds(graph->exprs, from->list[i], &lo, &hi))
                return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                                   "attribute %s: element %u is neither a number nor an expression of the graph",
                                   schema->name, i);
        a->list = list = ngd_arena_calloc(&graph->priv->arena, from->n + 1, sizeof(int64_t));
        if (!list)
            return graph_no_memory(diag);
        if (from->n)
            memcpy(list, from->list, from->n * sizeof(int64_t));
        a->n = from->n;
        return NGD_OK;
    case NGD_ATTR_INT:
        if (ngd_expr_bounds(graph->exprs, from->i, &lo, &hi))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute %s is neither a number nor an expression of the graph", schema->name);
        return NGD_OK;
    case NGD_ATTR_BOOL:
        a->i = from->i != 0;
        return NGD_OK;
    case NGD_ATTR_DTYPE:
        if (from->i < -1 || from->i >= NGD_DTYPE_MAX)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s is no dtype", schema->name);
        if (from->i >= 0 && ngd_dtype_is_stored((ngd_dtype_t)from->i))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute %s is %s, which no operator computes", schema->name,
                               ngd_dtype_name((ngd_dtype_t)from->i));
        return NGD_OK;
    case NGD_ATTR_FLOAT: /* i is set only for an integer that f64 does not have, and f must be the nearest f64 */
        if (from->i && (ngd_scalar_of_int(from->i).i != from->i || ngd_scalar_of_int(from->i).f != from->f))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute %s has an integer and a float that differ", schema->name);
        return NGD_OK;
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t set_attrs(struct ngd_graph *graph, struct ngd_node *node, const struct ngd_node_spec *spec,
                              struct ngd_diag *diag)
{
    const struct ngd_op *op = spec->op;

    node->attrs = ngd_arena_calloc(&graph->priv->arena, op->n_attrs + 1u, sizeof(node->attrs[0]));
    if (!node->attrs)
        return graph_no_memory(diag);
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        bool given = spec->attrs && (!spec->set || spec->set[i]);
        ngd_status_t status;

        if (!given && op->attrs[i].required)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s (%s) is required",
                               op->attrs[i].name, ngd_attr_type_name(op->attrs[i].type));
        set_default_attr(&node->attrs[i], &op->attrs[i]);
        status = given ? copy_attr(graph, node, &node->attrs[i], &op->attrs[i], &spec->attrs[i], diag) : NGD_OK;
        if (status)
            return status;
    }
    return NGD_OK;
}

/* Returns the number of a node's results. If the operator leaves it open, there is one for each element of its list
 * attribute. Without such an attribute it is the number of names given, which the shape rule checks. */
static uint32_t count_results(const struct ngd_node *node, const struct ngd_node_spec *spec)
{
    if (node->op->n_out != NGD_OP_VARIADIC)
        return node->op->n_out;
    for (uint32_t i = 0; i < node->op->n_attrs; i++)
        if (node->op->attrs[i].type == NGD_ATTR_INTS)
            return node->attrs[i].n;
    return spec->n_names;
}

static ngd_status_t add_results(struct ngd_graph *graph, struct ngd_node *node, const struct ngd_node_spec *spec,
                                struct ngd_diag *diag)
{
    uint32_t n = count_results(node, spec);

    if (spec->names && spec->n_names != n)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "it has %u results, but %u names are given", n,
                           spec->n_names);
    node->out = ngd_arena_calloc(&graph->priv->arena, n + 1, sizeof(uint32_t));
    if (!node->out)
        return graph_no_memory(diag);
    for (; node->n_out < n; node->n_out++) {
        struct ngd_slice name = spec->names ? spec->names[node->n_out] : (struct ngd_slice){0};
        ngd_status_t status = append_value(graph, name, NGD_VALUE_NODE, &node->out[node->n_out], diag);
        struct ngd_value *v;

        if (status) {
            if (spec->line)
                ngd_diag_prefix(diag, "line %u: ", spec->line);
            return status;
        }
        v = &graph->values[node->out[node->n_out]];
        v->node = graph->n_nodes;
        v->result = node->n_out;
    }
    return NGD_OK;
}

ngd_status_t ngd_graph_append(struct ngd_graph *graph, const struct ngd_node_spec *spec, uint32_t *node_p,
                              struct ngd_diag *diag)
{
    struct ngd_node *node;
    ngd_status_t status = check_open(graph, diag);

    if (status)
        return status;
    if (graph->n_nodes >= ngd_graph_max_nodes(graph))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than %u nodes",
                            ngd_graph_max_nodes(graph));
    if (grow_graph_array((void **)&graph->nodes, graph->n_nodes, &graph->priv->cap_nodes, sizeof(graph->nodes[0])))
        return graph_no_memory(diag);
    node = &graph->nodes[graph->n_nodes];
    *node = (struct ngd_node){.op = spec->op, .line = spec->line, .scope = spec->scope};
    if (spec->op->flags & NGD_OPF_REFUSED)
        return ngd_op_refuse(spec->op, NULL, spec->line, diag);
    status = set_attrs(graph, node, spec, diag);
    if (!status)
        status = add_results(graph, node, spec, diag);
    if (!status)
        status = set_operands(graph, node, spec, diag);
    if (!status)
        status = ngd_op_check_stored(graph, node, diag);
    if (!status)
        status = spec->op->shape(graph, node, diag);
    if (status) {
        while (node->n_out > 0) {
            drop_last_value(graph);
            node->n_out--;
        }
        return status;
    }
    for (uint32_t i = 0; i < node->n_in; i++)
        if (node->in[i] != NGD_VALUE_NONE)
            graph->values[node->in[i]].n_uses++;
    *node_p = graph->n_nodes++;
    return NGD_OK;
}

ngd_status_t ngd_graph_add_node(struct ngd_graph *graph, const struct ngd_op *op, const uint32_t *in, uint32_t n_in,
                                const struct ngd_attr_value *attrs, const bool *set, uint32_t *results,
                                uint32_t max_results, struct ngd_diag *diag)
{
    struct ngd_node_spec spec = {.op = op,
                                 .in = in,
                                 .n_in = n_in,
                                 .attrs = attrs,
                                 .set = set,
                                 .n_names = max_results,
                                 .scope = graph->priv->scope};
    uint32_t index;
    ngd_status_t status;

    if (!op)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_UNKNOWN_OP, "there is no such operator");
    status = ngd_graph_append(graph, &spec, &index, diag);
    if (status)
        return status;
    for (uint32_t i = 0; i < graph->nodes[index].n_out && i < max_results; i++)
        results[i] = graph->nodes[index].out[i];
    return NGD_OK;
}
