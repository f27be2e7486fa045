/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the shape rules: diagnoses, attributes, operand checks, broadcasting, rows. */
#include "graphs/graph_int.h"
#include "graphs/op_traits.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- diagnoses ---- */

static const char *take_text(struct ngd_strbuf *sb, char buf[NGD_OP_TEXT])
{
    snprintf(buf, NGD_OP_TEXT, "%s", sb->failed ? "?" : ngd_strbuf_str(sb));
    if (sb->len >= NGD_OP_TEXT)
        memcpy(buf + NGD_OP_TEXT - 4, "...", 4);
    ngd_strbuf_fini(sb);
    return buf;
}

const char *ngd_op_type_text(const struct ngd_graph *graph, const struct ngd_type *type, char buf[NGD_OP_TEXT])
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_type_print(graph, type, &sb);
    return take_text(&sb, buf);
}

const char *ngd_op_dim_text(const struct ngd_graph *graph, ngd_dim_t dim, char buf[NGD_OP_TEXT])
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_expr_print(graph->exprs, dim, &sb);
    return take_text(&sb, buf);
}

const char *ngd_op_in_name(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i)
{
    return graph->values[node->in[i]].name;
}

ngd_status_t ngd_op_fail(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag,
                         ngd_status_t status, const char *fmt, ...)
{
    char text[NGD_DIAG_MAX], line[24] = "", name[80];
    va_list ap;

    if (!diag)
        return status;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (node->line)
        snprintf(line, sizeof(line), ", line %u", node->line);
    if (node->n_out)
        snprintf(name, sizeof(name), "%%%.64s", graph->values[node->out[0]].name);
    else
        snprintf(name, sizeof(name), "%u", (unsigned)(node - graph->nodes));
    return ngd_diag_set(diag, status, "node %s (%s%s): %s", name, node->op->name, line, text);
}

ngd_status_t ngd_op_expr_fail(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag,
                              ngd_status_t status, const char *what)
{
    if (status == NGD_ERR_OVERFLOW)
        return ngd_op_fail(graph, node, diag, status, "%s overflows 64 bits within the symbols' ranges", what);
    if (status == NGD_ERR_GRAPH_TOO_LARGE)
        return ngd_op_fail(graph, node, diag, status, "%s is too large an expression", what);
    return ngd_op_fail(graph, node, diag, status, "%s: %s", what, ngd_status_text(status));
}

/* ---- types ---- */

bool ngd_type_equal(const struct ngd_type *a, const struct ngd_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

ngd_status_t ngd_type_check(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_diag *diag)
{
    char text[NGD_OP_TEXT], dim[NGD_OP_TEXT];
    bool overflow = false;
    uint64_t bytes;

    if (type->rank > NGD_MAX_RANK)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_RANK, "it has rank %u, but a tensor has at most %d dimensions",
                            type->rank, NGD_MAX_RANK);
    if ((unsigned)type->dtype >= NGD_DTYPE_MAX)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_DTYPE, "it has no dtype");
    bytes = ngd_dtype_bytes(type->dtype);
    for (uint32_t i = 0; i < type->rank; i++) {
        int64_t lo, hi;
        ngd_status_t status = ngd_expr_bounds(graph->exprs, type->dims[i], &lo, &hi);

        if (status)
            return ngd_diag_set(diag, status, "dimension %u is no dimension of this graph", i);
        if (lo < 0)
            return ngd_diag_set(
                diag, NGD_ERR_GRAPH_SHAPE,
                "dimension %u, %s, can be as low as %lld: raise the minimum of its symbols so that it is never "
                "negative",
                i, ngd_op_dim_text(graph, type->dims[i], dim), (long long)lo);
        /* A dimension of 0 counts as 1, because it does not make the strides of huge other dimensions small. */
        overflow = overflow || __builtin_mul_overflow(bytes, hi ? (uint64_t)hi : 1, &bytes) ||
                   bytes > NGD_GRAPH_MAX_TENSOR_BYTES;
    }
    if (overflow)
        return ngd_diag_set(
            diag, NGD_ERR_OVERFLOW,
            "%s can have more than 2^46 bytes at the symbols' maxima: make it smaller or lower the maxima",
            ngd_op_type_text(graph, type, text));
    return NGD_OK;
}

ngd_status_t ngd_op_result(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dtype_t dtype, uint32_t rank,
                           const ngd_dim_t *dims, struct ngd_diag *diag)
{
    struct ngd_type *type = &graph->values[node->out[i]].type;
    struct ngd_diag why; /* a kilobyte, so it is filled only if needed */
    ngd_status_t status;

    if (rank > NGD_MAX_RANK)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "its result would have rank %u, but a tensor has at most %d dimensions", rank, NGD_MAX_RANK);
    *type = (struct ngd_type){.dtype = dtype, .rank = (uint8_t)rank};
    if (rank)
        memcpy(type->dims, dims, rank * sizeof(dims[0]));
    status = ngd_type_check(graph, type, &why);
    if (status)
        return ngd_op_fail(graph, node, diag, status, "its result: %s", why.text);
    return NGD_OK;
}

/* ---- attributes ---- */

const struct ngd_attr_value *ngd_op_attr(const struct ngd_node *node, const char *name)
{
    static const struct ngd_attr_value none;
    int i = ngd_op_attr_index(node->op, name, strlen(name));

    return i < 0 ? &none : &node->attrs[i];
}

ngd_status_t ngd_op_const(const struct ngd_graph *graph, const struct ngd_node *node, const char *name, int64_t lo,
                          int64_t hi, int64_t *value_p, struct ngd_diag *diag)
{
    ngd_dim_t v = ngd_op_int(node, name);
    char text[NGD_OP_TEXT];

    if (!ngd_dim_is_const(v))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s is %s, but must be a constant",
                           name, ngd_op_dim_text(graph, v, text));
    if (v < lo || v > hi)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute %s is %lld, but must be within %lld..%lld", name, (long long)v, (long long)lo,
                           (long long)hi);
    *value_p = v;
    return NGD_OK;
}

ngd_status_t ngd_op_axis_value(const struct ngd_graph *graph, const struct ngd_node *node, const char *name,
                               ngd_dim_t value, uint32_t rank, uint32_t *axis_p, struct ngd_diag *diag)
{
    int64_t r = rank;
    char text[NGD_OP_TEXT];

    if (!ngd_dim_is_const(value))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s is %s, but must be a constant",
                           name, ngd_op_dim_text(graph, value, text));
    if (rank == 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute %s names a dimension, but the tensor has none", name);
    if (value < -r || value >= r)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute %s is %lld, but for rank %u it must be within %lld..%lld", name, (long long)value,
                           rank, (long long)-r, (long long)(r - 1));
    *axis_p = (uint32_t)(value < 0 ? value + r : value);
    return NGD_OK;
}

ngd_status_t ngd_op_axis(const struct ngd_graph *graph, const struct ngd_node *node, const char *name, uint32_t rank,
                         uint32_t *axis_p, struct ngd_diag *diag)
{
    return ngd_op_axis_value(graph, node, name, ngd_op_int(node, name), rank, axis_p, diag);
}

uint32_t ngd_op_known_axis(const struct ngd_node *node, const char *name, uint32_t rank)
{
    int64_t v = ngd_op_int(node, name);

    return (uint32_t)(v < 0 ? v + rank : v);
}

/* ---- operands ---- */

ngd_status_t ngd_op_takes(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                          unsigned takes, struct ngd_diag *diag)
{
    static const char *const what[] = {
        [NGD_TAKES_FLOAT] = "f32, f16 or bf16",
        [NGD_TAKES_FLOAT | NGD_TAKES_INT] = "a float or integer dtype",
        [NGD_TAKES_INT | NGD_TAKES_BOOL] = "an integer dtype or bool",
        [NGD_TAKES_INDEX] = "i32 or i64",
    };
    ngd_dtype_t t = ngd_node_in(graph, node, i)->dtype;
    bool ok = ((takes & NGD_TAKES_FLOAT) && ngd_dtype_is_float(t)) ||
              ((takes & NGD_TAKES_INT) && ngd_dtype_is_int(t)) || ((takes & NGD_TAKES_BOOL) && t == NGD_BOOL) ||
              ((takes & NGD_TAKES_INDEX) && (t == NGD_I32 || t == NGD_I64));

    if (ok)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                       "%s %%%s is %s, but must be %s: cast it with aten._to_copy", role,
                       ngd_op_in_name(graph, node, i), ngd_dtype_name(t), what[takes]);
}

ngd_status_t ngd_op_check_stored(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag)
{
    const uint32_t first = node->op->flags & NGD_OPF_VIEW ? 0 : ngd_op_traits[node->op->id].first_weight;

    for (uint32_t i = 0; i < node->n_in; i++) {
        const ngd_dtype_t t = ngd_node_has(node, i) ? ngd_node_in(graph, node, i)->dtype : NGD_F32;

        if (ngd_dtype_is_stored(t) && (i < first || (first == 0 && !(node->op->flags & NGD_OPF_VIEW))))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                               "operand %%%s is %s: only views, KV caches, and weights of npu.weight_quant_batchmatmul "
                               "and npu.grouped_matmul may be",
                               ngd_op_in_name(graph, node, i), ngd_dtype_name(t));
    }
    return NGD_OK;
}

ngd_status_t ngd_op_dtype_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                             ngd_dtype_t dtype, struct ngd_diag *diag)
{
    ngd_dtype_t t = ngd_node_in(graph, node, i)->dtype;

    if (t == dtype)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                       "%s %%%s is %s, but must be %s: cast it with aten._to_copy", role,
                       ngd_op_in_name(graph, node, i), ngd_dtype_name(t), ngd_dtype_name(dtype));
}

ngd_status_t ngd_op_same_or_narrower(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i,
                                     const char *role, struct ngd_diag *diag)
{
    ngd_dtype_t x = ngd_node_in(graph, node, 0)->dtype, t = ngd_node_in(graph, node, i)->dtype;

    if (t == x || (x == NGD_F32 && (t == NGD_F16 || t == NGD_BF16)))
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                       "%s %%%s is %s beside %s of %%%s: it must be %s%s: cast one of them with aten._to_copy", role,
                       ngd_op_in_name(graph, node, i), ngd_dtype_name(t), ngd_dtype_name(x),
                       ngd_op_in_name(graph, node, 0), ngd_dtype_name(x), x == NGD_F32 ? ", f16 or bf16" : "");
}

ngd_status_t ngd_op_rank_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                            uint32_t rank, const char *form, struct ngd_diag *diag)
{
    const struct ngd_type *t = ngd_node_in(graph, node, i);
    char text[NGD_OP_TEXT];

    if (t->rank == rank)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "%s %%%s is %s, but must be %s", role,
                       ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, text), form);
}

ngd_status_t ngd_op_shape_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                             uint32_t rank, const ngd_dim_t *dims, const char *form, struct ngd_diag *diag)
{
    const struct ngd_type *t = ngd_node_in(graph, node, i);
    struct ngd_type want = {.dtype = t->dtype, .rank = (uint8_t)rank};
    char text[NGD_OP_TEXT], right[NGD_OP_TEXT];

    if (rank > NGD_MAX_RANK)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%s %%%s is %s, but must be %s, which would have %u dimensions; a tensor has %d at most",
                           role, ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, text), form, rank,
                           NGD_MAX_RANK);
    if (rank)
        memcpy(want.dims, dims, rank * sizeof(dims[0]));
    if (ngd_type_equal(t, &want))
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "%s %%%s is %s, but must be %s, here %s", role,
                       ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, text), form,
                       ngd_op_type_text(graph, &want, right));
}

ngd_status_t ngd_op_broadcast(const struct ngd_graph *graph, const struct ngd_node *node, const struct ngd_type *a,
                              const struct ngd_type *b, uint32_t *rank_p, ngd_dim_t dims[NGD_MAX_RANK],
                              struct ngd_diag *diag)
{
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    char ta[NGD_OP_TEXT], tb[NGD_OP_TEXT], da[NGD_OP_TEXT], db[NGD_OP_TEXT];

    for (uint32_t k = 1; k <= rank; k++) { /* from the last dimension to the first */
        ngd_dim_t x = k <= a->rank ? a->dims[a->rank - k] : 1, y = k <= b->rank ? b->dims[b->rank - k] : 1;

        if (x != y && x != 1 && y != 1)
            return ngd_op_fail(
                graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                "%s and %s do not broadcast: dimension -%u is %s in one and %s in the other; they must be equal "
                "or 1",
                ngd_op_type_text(graph, a, ta), ngd_op_type_text(graph, b, tb), k, ngd_op_dim_text(graph, x, da),
                ngd_op_dim_text(graph, y, db));
        dims[rank - k] = x == 1 ? y : x;
    }
    *rank_p = rank;
    return NGD_OK;
}

/* ---- rows ---- */

bool ngd_op_carries(const struct ngd_graph *graph, uint32_t value, uint32_t symbol)
{
    const struct ngd_type *t = &graph->values[value].type;

    for (uint32_t i = 0; i < t->rank; i++)
        if (ngd_expr_uses(graph->exprs, t->dims[i], symbol))
            return true;
    return false;
}

bool ngd_op_in_carries(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, uint32_t symbol)
{
    return ngd_node_has(node, i) && ngd_op_carries(graph, node->in[i], symbol);
}

bool ngd_op_attrs_free(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char *except,
                       const char **why_p)
{
    for (uint32_t i = 0; i < node->op->n_attrs; i++) {
        const struct ngd_attr_schema *schema = &node->op->attrs[i];
        const struct ngd_attr_value *a = &node->attrs[i];
        bool uses = schema->type == NGD_ATTR_INT && ngd_expr_uses(graph->exprs, a->i, symbol);

        if (except && strcmp(schema->name, except) == 0)
            continue;
        for (uint32_t k = 0; schema->type == NGD_ATTR_INTS && k < a->n; k++)
            uses = uses || ngd_expr_uses(graph->exprs, a->list[k], symbol);
        if (uses) {
            *why_p = "an attribute depends on it, and would see the padded value";
            return false;
        }
    }
    return true;
}

bool ngd_op_rows_axis(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, uint32_t axis,
                      const char **why_p)
{
    if (!ngd_op_attrs_free(graph, node, symbol, NULL, why_p))
        return false;
    if (axis == 0 && ngd_op_in_carries(graph, node, 0, symbol)) {
        *why_p = "it works along dimension 0, which the symbol sizes";
        return false;
    }
    return true;
}

bool ngd_rows_leading(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    bool carried = false;

    if (!ngd_op_attrs_free(graph, node, symbol, NULL, why_p))
        return false;
    for (uint32_t i = 0; i < node->n_in; i++)
        carried = carried || ngd_op_in_carries(graph, node, i, symbol);
    for (uint32_t i = 0; carried && i < node->n_out; i++) {
        if (!ngd_op_carries(graph, node->out[i], symbol)) {
            *why_p = "an operand has rows of it, but a result has not";
            return false;
        }
    }
    return true;
}

bool ngd_rows_none(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (!ngd_op_attrs_free(graph, node, symbol, NULL, why_p))
        return false;
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "this operator mixes rows";
            return false;
        }
    }
    return true;
}

/* ---- refusals ---- */

ngd_status_t ngd_op_refuse(const struct ngd_op *op, const char *name, uint32_t line, struct ngd_diag *diag)
{
    char where[128] = "";
    ngd_status_t status = NGD_ERR_GRAPH_RANDOM;
    const char
        *why = "draws random numbers from a hidden state, which a replay would repeat",
        *instead =
            "draw them outside and pass them as an input, or sample with npu.top_k_top_p_sample, which takes seed and "
            "offset as operands";

    if (op->flags & NGD_OPF_SYNC) {
        status = NGD_ERR_GRAPH_SYNC;
        why = "makes the host wait for a value of the device, which a replay cannot";
        instead =
            "return the tensor as an output and let the client read it, or pass the number in as a host parameter";
    } else if (op->flags & NGD_OPF_DATA_SHAPE) {
        status = NGD_ERR_GRAPH_DATA_DEPENDENT;
        why = "has a result whose shape, or a path whose choice, depends on data";
        instead = "keep a fixed shape and mask it (aten.where.self), or end the graph here and begin another one";
    }
    if (name)
        snprintf(where, sizeof(where), "%%%.64s ", name);
    if (line)
        return ngd_diag_set(diag, status, "node %s(%s, line %u): %s (%s) %s; %s", where, op->name, line, op->name,
                            op->doc, why, instead);
    return ngd_diag_set(diag, status, "node %s(%s): %s (%s) %s; %s", where, op->name, op->name, op->doc, why, instead);
}
