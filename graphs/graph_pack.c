/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format. All numbers are little endian; a string is a u16 with its number of bytes, the bytes, and a zero.
 *
 *     "npggraf4", 32 bytes of the operator table's digest, 32 bytes of the graph's digest
 *     the name, a string
 *     u32 values
 *     u8 symbols, each: string name, i64 min, i64 max, u8 whether it is the batch symbol, u8 buckets, an i64 each
 *     u8 side streams, each: string name
 *     u32 expressions, each: u8 kind (enum expr_kind) and
 *         a symbol: u8 its number
 *         floordiv, mod, min, max: two dimensions
 *         a polynomial: u8 terms, each: i64 coefficient, u8 degree, for each factor a u32, an earlier expression
 *     u8 guards, each: u8 relation (ngd_relation_op_t), two dimensions
 *     u32 inputs, each: u8 class, string name, u8 whether a label follows, string label, u8 dtype, u8 rank, dimensions
 *     u32 nodes, each: u16 operator, u32 line, u8 stream, u16 AI cores, u16 vector cores, u16 operands, a u32 each,
 *         u16 attributes given (a bit each), their values, u16 results, a string each
 *     u16 outputs, each: string name, u32 value
 *
 * A dimension is an i64: a constant, or DIM_OF(number of an expression). Values are numbered in the order in which they
 * occur here. ngd_expr_make makes the expressions again, and so finds their canonical form.
 */
#include "graphs/graph_pack.h"
#include "base/le.h"
#include "graphs/expr_int.h"
#include "graphs/graph_int.h"
#include <math.h>
#include <string.h>

#define MAGIC_BYTES 8

static const char magic[MAGIC_BYTES] = "npggraf4";

/* ---- pack ---------------------------------------------------------------------------------------------- */

struct packer {
    const struct ngd_graph *graph;
    struct ngd_strbuf *out;
    struct ngd_strbuf exprs; /* bytes of the expressions needed so far */
    uint32_t *expr_number;   /* indexed by entry of the table: its number + 1; 0 = not needed yet */
    uint32_t n_exprs;
    uint32_t *value_number; /* indexed by value */
    uint32_t n_values;
};

static void put_string(struct packer *p, const char *s)
{
    size_t n = strlen(s);

    ngd_le_put(p->out, n, 2);
    ngd_strbuf_append_n(p->out, s, n + 1);
}

static ngd_dim_t need_dim(struct packer *p, ngd_dim_t dim);

static void put_poly(struct packer *p, const struct expr_entry *e)
{
    const struct ngd_expr_table *table = p->graph->exprs;

    ngd_le_put(&p->exprs, e->n_terms, 1);
    for (uint32_t i = 0; i < e->n_terms; i++) {
        const struct expr_term *t = &table->terms[e->first_term + i];

        ngd_le_put(&p->exprs, (uint64_t)t->coef, 8);
        ngd_le_put(&p->exprs, t->degree, 1);
        for (uint32_t k = 0; k < t->degree; k++)
            ngd_le_put(&p->exprs, INDEX_OF(need_dim(p, DIM_OF(table->atoms[t->first_atom + k]))), 4);
    }
}

/* Packs the parts of an expression before it. Recurses; NGD_EXPR_MAX_DEPTH bounds the depth. */
static void need_parts(struct packer *p, const struct expr_entry *e)
{
    const struct ngd_expr_table *table = p->graph->exprs;

    if (e->kind == EXPR_POLY) {
        for (uint32_t i = 0; i < e->n_terms; i++)
            for (uint32_t k = 0; k < table->terms[e->first_term + i].degree; k++)
                (void)need_dim(p, DIM_OF(table->atoms[table->terms[e->first_term + i].first_atom + k]));
    } else if (e->kind != EXPR_SYMBOL) {
        (void)need_dim(p, e->a);
        (void)need_dim(p, e->b);
    }
}

static void put_expr(struct packer *p, const struct expr_entry *e)
{
    ngd_le_put(&p->exprs, e->kind, 1);
    if (e->kind == EXPR_POLY) {
        put_poly(p, e);
    } else if (e->kind == EXPR_SYMBOL) {
        ngd_le_put(&p->exprs, e->symbol, 1);
    } else {
        ngd_le_put(&p->exprs, (uint64_t)need_dim(p, e->a), 8);
        ngd_le_put(&p->exprs, (uint64_t)need_dim(p, e->b), 8);
    }
}

static ngd_dim_t need_dim(struct packer *p, ngd_dim_t dim)
{
    if (ngd_dim_is_const(dim))
        return dim;
    if (!p->expr_number[INDEX_OF(dim)]) {
        need_parts(p, &p->graph->exprs->entries[INDEX_OF(dim)]);
        put_expr(p, &p->graph->exprs->entries[INDEX_OF(dim)]);
        p->expr_number[INDEX_OF(dim)] = ++p->n_exprs;
    }
    return DIM_OF(p->expr_number[INDEX_OF(dim)] - 1);
}

static void put_dim(struct packer *p, ngd_dim_t dim)
{
    ngd_le_put(p->out, (uint64_t)need_dim(p, dim), 8);
}

static void put_symbol(struct packer *p, const struct ngd_symbol *s)
{
    put_string(p, s->name);
    ngd_le_put(p->out, (uint64_t)s->min, 8);
    ngd_le_put(p->out, (uint64_t)s->max, 8);
    ngd_le_put(p->out, s->batch, 1);
    ngd_le_put(p->out, s->n_buckets, 1);
    for (uint32_t i = 0; i < s->n_buckets; i++)
        ngd_le_put(p->out, (uint64_t)s->buckets[i], 8);
}

static void put_guards(struct packer *p)
{
    ngd_le_put(p->out, p->graph->n_relations, 1);
    for (uint32_t i = 0; i < p->graph->n_relations; i++) {
        ngd_le_put(p->out, p->graph->relations[i].op, 1);
        put_dim(p, p->graph->relations[i].left);
        put_dim(p, p->graph->relations[i].right);
    }
}

static void put_input(struct packer *p, uint32_t value)
{
    const struct ngd_value *v = &p->graph->values[value];
    bool labelled = strcmp(v->label, v->name) != 0;

    ngd_le_put(p->out, v->cls, 1);
    put_string(p, v->name);
    ngd_le_put(p->out, labelled, 1);
    if (labelled)
        put_string(p, v->label);
    ngd_le_put(p->out, v->type.dtype, 1);
    ngd_le_put(p->out, v->type.rank, 1);
    for (uint32_t i = 0; i < v->type.rank; i++)
        put_dim(p, v->type.dims[i]);
    p->value_number[value] = p->n_values++;
}

static void pack_inputs(struct packer *p)
{
    const struct ngd_graph *g = p->graph;
    const uint32_t *const lists[] = {g->params, g->states, g->inputs, g->hosts};
    const uint32_t counts[] = {g->n_params, g->n_states, g->n_inputs, g->n_hosts};

    ngd_le_put(p->out, (uint64_t)g->n_params + g->n_states + g->n_inputs + g->n_hosts, 4);
    for (uint32_t c = 0; c < 4; c++)
        for (uint32_t i = 0; i < counts[c]; i++)
            put_input(p, lists[c][i]);
}

/* Returns true if f may stand for a 64-bit integer that f64 does not have. Then that integer follows, or 0 for none. */
static bool may_be_wide(double f)
{
    return fabs(f) >= 0x1p53 && fabs(f) <= 0x1p63;
}

static void put_attr(struct packer *p, const struct ngd_attr_schema *schema, const struct ngd_attr_value *a)
{
    uint64_t bits;

    switch (schema->type) {
    case NGD_ATTR_INT:
        put_dim(p, a->i);
        break;
    case NGD_ATTR_INTS:
        ngd_le_put(p->out, a->n, 2);
        for (uint32_t i = 0; i < a->n; i++)
            put_dim(p, a->list[i]);
        break;
    case NGD_ATTR_FLOAT:
        memcpy(&bits, &a->f, sizeof(bits));
        ngd_le_put(p->out, bits, 8);
        if (may_be_wide(a->f))
            ngd_le_put(p->out, (uint64_t)a->i, 8);
        break;
    case NGD_ATTR_BOOL:
        ngd_le_put(p->out, a->i != 0, 1);
        break;
    case NGD_ATTR_STR:
        put_string(p, a->s);
        break;
    case NGD_ATTR_DTYPE:
        ngd_le_put(p->out, (uint64_t)(a->i + 1), 1);
        break;
    }
}

static void put_node(struct packer *p, const struct ngd_node *node)
{
    uint32_t given = 0;

    ngd_le_put(p->out, node->op->id, 2);
    ngd_le_put(p->out, node->line, 4);
    ngd_le_put(p->out, node->scope.stream, 1);
    ngd_le_put(p->out, node->scope.aicore, 2);
    ngd_le_put(p->out, node->scope.vectorcore, 2);
    ngd_le_put(p->out, node->n_in, 2);
    for (uint32_t i = 0; i < node->n_in; i++)
        ngd_le_put(p->out, node->in[i] == NGD_VALUE_NONE ? NGD_VALUE_NONE : p->value_number[node->in[i]], 4);
    for (uint32_t i = 0; i < node->op->n_attrs; i++)
        given |= (uint32_t)!ngd_attr_is_default(&node->op->attrs[i], &node->attrs[i]) << i;
    ngd_le_put(p->out, given, 2);
    for (uint32_t i = 0; i < node->op->n_attrs; i++)
        if (given >> i & 1)
            put_attr(p, &node->op->attrs[i], &node->attrs[i]);
    ngd_le_put(p->out, node->n_out, 2);
    for (uint32_t i = 0; i < node->n_out; i++) {
        put_string(p, p->graph->values[node->out[i]].name);
        p->value_number[node->out[i]] = p->n_values++;
    }
}

static void put_nodes(struct packer *p)
{
    ngd_le_put(p->out, p->graph->n_nodes, 4);
    for (uint32_t i = 0; i < p->graph->n_nodes; i++)
        put_node(p, &p->graph->nodes[i]);
    ngd_le_put(p->out, p->graph->n_outputs, 2);
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        put_string(p, p->graph->outputs[i].name);
        ngd_le_put(p->out, p->value_number[p->graph->outputs[i].value], 4);
    }
}

static void pack_head(struct packer *p)
{
    struct ngd_digest operators;

    ngd_op_table_digest(&operators);
    ngd_strbuf_append_n(p->out, magic, sizeof(magic));
    ngd_strbuf_append_n(p->out, operators.b, sizeof(operators.b));
    ngd_strbuf_append_n(p->out, p->graph->digest.b, sizeof(p->graph->digest.b));
    put_string(p, p->graph->name);
    ngd_le_put(p->out, p->graph->n_values, 4);
    ngd_le_put(p->out, p->graph->n_symbols, 1);
    for (uint32_t i = 0; i < p->graph->n_symbols; i++)
        put_symbol(p, &p->graph->symbols[i]);
    ngd_le_put(p->out, p->graph->n_streams - 1, 1);
    for (uint32_t i = 1; i < p->graph->n_streams; i++)
        put_string(p, p->graph->streams[i]);
}

/* Packs the rest into a buffer first: the expressions stand before it, but packing it shows which ones are needed. */
static void put_body(struct packer *p)
{
    struct ngd_strbuf *out = p->out, body;

    ngd_strbuf_init(&body);
    p->out = &body;
    put_guards(p);
    pack_inputs(p);
    put_nodes(p);
    p->out = out;
    ngd_le_put(out, p->n_exprs, 4);
    ngd_strbuf_append_n(out, ngd_strbuf_str(&p->exprs), p->exprs.len);
    ngd_strbuf_append_n(out, ngd_strbuf_str(&body), body.len);
    out->failed = out->failed || body.failed || p->exprs.failed;
    ngd_strbuf_fini(&body);
}

void ngd_graph_pack(const struct ngd_graph *graph, struct ngd_strbuf *out)
{
    struct packer p = {.graph = graph, .out = out};

    ngd_strbuf_init(&p.exprs);
    p.expr_number = ngd_calloc(graph->exprs->n_entries + 1u, sizeof(*p.expr_number));
    p.value_number = ngd_calloc(graph->n_values + 1u, sizeof(*p.value_number));
    if (p.expr_number && p.value_number) {
        pack_head(&p);
        put_body(&p);
    } else {
        out->failed = true;
    }
    ngd_free(p.expr_number);
    ngd_free(p.value_number);
    ngd_strbuf_fini(&p.exprs);
}

/* ---- unpack -------------------------------------------------------------------------------------------- */

/* Scratch memory for the node that is being read. It is large and not cleared;
 * all of it is written before it is read. */
struct reader_room {
    struct ngd_slice names[NGD_GRAPH_MAX_LIST];
    int64_t lists[NGD_OP_MAX_ATTRS][NGD_GRAPH_MAX_LIST];
};

struct reader {
    const uint8_t *at, *end;
    bool truncated, corrupt;
    struct ngd_graph *graph;
    struct ngd_diag *diag;
    ngd_dim_t *dims; /* dimensions of the expressions read so far */
    uint32_t n_dims;
    struct reader_room *room;
};

/* Reads a number. After a failed read all reads give 0, so that a caller need check only before it acts. */
static uint64_t take_number(struct reader *r, int bytes)
{
    uint64_t v;

    if (r->end - r->at < bytes) {
        r->truncated = true;
        r->at = r->end;
        return 0;
    }
    v = ngd_le_get(r->at, bytes);
    r->at += bytes;
    return v;
}

/* Reads a string, which must be terminated and have no other zero. */
static struct ngd_slice take_string(struct reader *r)
{
    struct ngd_slice s = {"", (size_t)take_number(r, 2)};

    if ((size_t)(r->end - r->at) <= s.n) {
        r->truncated = true;
        return (struct ngd_slice){"", 0};
    }
    if (memchr(r->at, '\0', s.n + 1) != r->at + s.n) {
        r->corrupt = true;
        return (struct ngd_slice){"", 0};
    }
    s.p = (const char *)r->at;
    r->at += s.n + 1;
    return s;
}

static ngd_dim_t take_dim(struct reader *r)
{
    ngd_dim_t dim = (ngd_dim_t)take_number(r, 8);

    if (ngd_dim_is_const(dim))
        return dim;
    if (INDEX_OF(dim) < r->n_dims)
        return r->dims[INDEX_OF(dim)];
    r->corrupt = true;
    return 0;
}

/* Reads the number of items that follow, each of which has at least `bytes` bytes. */
static uint32_t take_count(struct reader *r, int width, size_t bytes)
{
    uint64_t n = take_number(r, width);

    if (n > (size_t)(r->end - r->at) / bytes) {
        r->truncated = true;
        return 0;
    }
    return (uint32_t)n;
}

static ngd_status_t bytes_status(struct reader *r)
{
    if (r->truncated)
        return ngd_diag_set(r->diag, NGD_ERR_FILE_TRUNCATED, "the bytes of a stored graph end too early");
    if (r->corrupt)
        return ngd_diag_set(r->diag, NGD_ERR_FILE_CORRUPT, "the bytes of a stored graph are inconsistent");
    return NGD_OK;
}

static ngd_status_t read_symbol(struct reader *r)
{
    const char *name = take_string(r).p;
    int64_t min = (int64_t)take_number(r, 8), max = (int64_t)take_number(r, 8), buckets[UINT8_MAX];
    uint32_t batch = (uint32_t)take_number(r, 1), n = (uint32_t)take_number(r, 1), symbol = r->graph->n_symbols;
    ngd_dim_t dim;
    ngd_status_t status;

    for (uint32_t i = 0; i < n; i++)
        buckets[i] = (int64_t)take_number(r, 8);
    status = bytes_status(r);
    if (!status)
        status = ngd_graph_add_symbol(r->graph, name, min, max, &dim, r->diag);
    if (!status && n)
        status = ngd_graph_set_buckets(r->graph, symbol, buckets, n, r->diag);
    if (!status && batch)
        status = ngd_graph_set_batch(r->graph, symbol, r->diag);
    return status;
}

static ngd_status_t read_stream(struct reader *r)
{
    const char *name = take_string(r).p;
    uint16_t stream;
    ngd_status_t status = bytes_status(r);

    return status ? status : ngd_graph_add_stream(r->graph, name, &stream, r->diag);
}

static ngd_status_t read_poly(struct reader *r, ngd_dim_t *dim_p)
{
    uint32_t n_terms = take_count(r, 1, 9);
    ngd_dim_t sum = 0;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n_terms && !status; i++) {
        ngd_dim_t product = (ngd_dim_t)take_number(r, 8);
        uint32_t degree = (uint32_t)take_number(r, 1);

        if (!ngd_dim_is_const(product))
            r->corrupt = true;
        for (uint32_t k = 0; k < degree && !status; k++) {
            uint64_t factor = take_number(r, 4);

            r->corrupt = r->corrupt || factor >= r->n_dims;
            status = bytes_status(r);
            if (!status)
                status = ngd_expr_make(r->graph->exprs, NGD_EXPR_MUL, product, r->dims[factor], &product);
        }
        if (!status)
            status = bytes_status(r);
        if (!status)
            status = ngd_expr_make(r->graph->exprs, NGD_EXPR_ADD, sum, product, &sum);
    }
    *dim_p = sum;
    return status ? status : bytes_status(r);
}

static ngd_status_t read_expr(struct reader *r, ngd_dim_t *dim_p)
{
    static const ngd_expr_op_t ops[] = {[EXPR_FLOORDIV] = NGD_EXPR_FLOORDIV,
                                        [EXPR_MOD] = NGD_EXPR_MOD,
                                        [EXPR_MIN] = NGD_EXPR_MIN,
                                        [EXPR_MAX] = NGD_EXPR_MAX};
    uint64_t kind = take_number(r, 1), symbol;
    ngd_dim_t a, b;
    ngd_status_t status;

    if (kind == EXPR_POLY)
        return read_poly(r, dim_p);
    if (kind == EXPR_SYMBOL) {
        symbol = take_number(r, 1);
        r->corrupt = r->corrupt || symbol >= r->graph->n_symbols;
        status = bytes_status(r);
        if (!status)
            *dim_p = r->graph->symbols[symbol].dim;
        return status;
    }
    a = take_dim(r);
    b = take_dim(r);
    r->corrupt = r->corrupt || kind >= sizeof(ops) / sizeof(ops[0]);
    status = bytes_status(r);
    return status ? status : ngd_expr_make(r->graph->exprs, ops[kind], a, b, dim_p);
}

static ngd_status_t read_exprs(struct reader *r)
{
    uint32_t n = take_count(r, 4, 2);
    ngd_status_t status = bytes_status(r);

    r->dims = status ? NULL : NGD_NEW_N(ngd_dim_t, n + 1u);
    if (!status && !r->dims)
        status = ngd_diag_set(r->diag, NGD_ERR_NO_MEMORY, "no host memory for a stored graph");
    for (; !status && r->n_dims < n; r->n_dims++) {
        status = read_expr(r, &r->dims[r->n_dims]);
        if (status && r->diag && r->diag->status != status)
            ngd_diag_set(r->diag, status, "a dimension of a stored graph: %s", ngd_status_text(status));
    }
    return status;
}

static ngd_status_t read_guard(struct reader *r)
{
    uint64_t op = take_number(r, 1);
    ngd_dim_t left = take_dim(r), right = take_dim(r);
    ngd_status_t status;

    r->corrupt = r->corrupt || op >= NGD_RELATION_MAX;
    status = bytes_status(r);
    return status ? status : ngd_graph_add_relation(r->graph, left, (ngd_relation_op_t)op, right, r->diag);
}

static ngd_status_t unpack_input(struct reader *r)
{
    uint64_t cls = take_number(r, 1), dtype;
    const char *name = take_string(r).p, *label = take_number(r, 1) ? take_string(r).p : NULL;
    struct ngd_type type = {.dtype = NGD_F32};
    uint32_t value;
    ngd_status_t status;

    dtype = take_number(r, 1);
    type.rank = (uint8_t)take_number(r, 1);
    r->corrupt = r->corrupt || cls >= NGD_VALUE_NODE || dtype >= NGD_DTYPE_MAX || type.rank > NGD_MAX_RANK;
    if (!r->corrupt) {
        type.dtype = (ngd_dtype_t)dtype;
        for (uint32_t i = 0; i < type.rank; i++)
            type.dims[i] = take_dim(r);
    }
    status = bytes_status(r);
    if (status)
        return status;
    return ngd_graph_add_input(r->graph, (ngd_value_class_t)cls, name, label, &type, &value, r->diag);
}

static void read_attr(struct reader *r, ngd_attr_type_t type, int64_t *list, struct ngd_attr_value *a)
{
    uint64_t bits;

    switch (type) {
    case NGD_ATTR_INT:
        a->i = take_dim(r);
        break;
    case NGD_ATTR_INTS:
        a->n = (uint32_t)take_number(r, 2);
        if (a->n > NGD_GRAPH_MAX_LIST) {
            r->corrupt = true;
            break;
        }
        for (uint32_t i = 0; i < a->n; i++)
            list[i] = take_dim(r);
        a->list = list;
        break;
    case NGD_ATTR_FLOAT:
        bits = take_number(r, 8);
        memcpy(&a->f, &bits, sizeof(bits));
        a->i = may_be_wide(a->f) ? (int64_t)take_number(r, 8) : 0;
        break;
    case NGD_ATTR_BOOL:
        a->i = take_number(r, 1) != 0;
        break;
    case NGD_ATTR_STR:
        a->s = take_string(r).p;
        break;
    case NGD_ATTR_DTYPE:
        a->i = (int64_t)take_number(r, 1) - 1;
        break;
    }
}

/* Reads a node. The builder checks that its operands are numbers of earlier values. */
static ngd_status_t read_node(struct reader *r)
{
    uint32_t id = (uint32_t)take_number(r, 2), line = (uint32_t)take_number(r, 4), in[NGD_GRAPH_MAX_OPERANDS], n_in,
             given, node;
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    bool set[NGD_OP_MAX_ATTRS];
    struct ngd_node_spec spec = {.in = in, .attrs = attrs, .set = set, .names = r->room->names, .line = line};
    ngd_status_t status;

    spec.scope.stream = (uint16_t)take_number(r, 1);
    spec.scope.aicore = (uint16_t)take_number(r, 2);
    spec.scope.vectorcore = (uint16_t)take_number(r, 2);
    n_in = (uint32_t)take_number(r, 2);
    r->corrupt = r->corrupt || id >= NGD_OP_MAX || n_in > NGD_GRAPH_MAX_OPERANDS;
    status = bytes_status(r);
    if (!status)
        status = ngd_node_scope_check(r->graph, &spec.scope, r->diag);
    if (status)
        return status;
    spec.op = ngd_op_by_id((ngd_op_id_t)id);
    spec.n_in = n_in;
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = (uint32_t)take_number(r, 4);
    given = (uint32_t)take_number(r, 2);
    for (uint32_t i = 0; i < spec.op->n_attrs; i++) {
        set[i] = given >> i & 1;
        attrs[i] = (struct ngd_attr_value){0};
        if (set[i])
            read_attr(r, spec.op->attrs[i].type, r->room->lists[i], &attrs[i]);
    }
    spec.n_names = (uint32_t)take_number(r, 2);
    r->corrupt = r->corrupt || given >> spec.op->n_attrs || spec.n_names > NGD_GRAPH_MAX_LIST;
    for (uint32_t i = 0; !r->corrupt && i < spec.n_names; i++)
        r->room->names[i] = take_string(r);
    status = bytes_status(r);
    return status ? status : ngd_graph_append(r->graph, &spec, &node, r->diag);
}

static ngd_status_t read_output(struct reader *r)
{
    const char *name = take_string(r).p;
    uint32_t value = (uint32_t)take_number(r, 4);
    ngd_status_t status = bytes_status(r);

    return status ? status : ngd_graph_add_output(r->graph, name, value, r->diag);
}

/* Reads a list of items, each of which has at least `bytes` bytes. */
static ngd_status_t read_each(struct reader *r, int width, size_t bytes, ngd_status_t (*read)(struct reader *r))
{
    uint32_t n = take_count(r, width, bytes);
    ngd_status_t status = bytes_status(r);

    for (uint32_t i = 0; i < n && !status; i++)
        status = read(r);
    return status;
}

static ngd_status_t check_packed_head(struct reader *r)
{
    struct ngd_digest operators;

    if ((size_t)(r->end - r->at) < MAGIC_BYTES + 2 * sizeof(operators.b)) {
        r->truncated = true;
        return bytes_status(r);
    }
    if (memcmp(r->at, magic, MAGIC_BYTES) != 0)
        return ngd_diag_set(r->diag, NGD_ERR_FILE_UNSUPPORTED, "the bytes are not a stored graph of this version");
    ngd_op_table_digest(&operators);
    if (memcmp(r->at + MAGIC_BYTES, operators.b, sizeof(operators.b)) != 0)
        return ngd_diag_set(r->diag, NGD_ERR_FILE_UNSUPPORTED,
                            "the stored graph was made with another table of operators");
    return NGD_OK;
}

static ngd_status_t read_graph(struct reader *r)
{
    const uint8_t *digest = r->at + MAGIC_BYTES + NGD_DIGEST_BYTES;
    struct ngd_digest claimed;
    struct ngd_slice name;
    uint32_t n_values;
    ngd_status_t status;

    memcpy(claimed.b, digest, sizeof(claimed.b));
    r->at = digest + NGD_DIGEST_BYTES;
    name = take_string(r);
    n_values = take_count(r, 4, 3);
    status = bytes_status(r);
    if (status)
        return status;
    status = ngd_graph_create(name.p, &r->graph);
    if (!status)
        status = ngd_graph_reserve(r->graph, n_values);
    if (status)
        return ngd_diag_set(r->diag, status, "a stored graph: %s", ngd_status_text(status));
    status = read_each(r, 1, 20, read_symbol);
    if (!status)
        status = read_each(r, 1, 3, read_stream);
    if (!status)
        status = read_exprs(r);
    if (!status)
        status = read_each(r, 1, 17, read_guard);
    if (!status)
        status = read_each(r, 4, 7, unpack_input);
    if (!status)
        status = read_each(r, 4, 17, read_node);
    if (!status)
        status = read_each(r, 2, 7, read_output);
    if (!status && r->at != r->end)
        status =
            ngd_diag_set(r->diag, NGD_ERR_FILE_CORRUPT, "%zu bytes follow a stored graph", (size_t)(r->end - r->at));
    return status ? status : ngd_graph_seal_claimed(r->graph, &claimed, r->diag);
}

ngd_status_t ngd_graph_unpack(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct reader r = {.at = data, .end = (const uint8_t *)data + n, .diag = diag};
    ngd_status_t status;

    r.room = ngd_malloc(sizeof(*r.room));
    if (!r.room)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a stored graph");
    status = check_packed_head(&r);
    if (!status)
        status = read_graph(&r);
    if (status)
        ngd_graph_unref(r.graph);
    else
        *graph_p = r.graph;
    ngd_free(r.dims);
    ngd_free(r.room);
    return status;
}

bool ngd_graph_digest_holds(const struct ngd_graph *graph)
{
    struct ngd_digest is;

    return ngd_graph_compute_digest(graph, &is) == NGD_OK && ngd_digest_equal(&is, &graph->digest);
}
