/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_EMIT_CASE_H
#define NGD_TESTS_OPS_EMIT_CASE_H

/*
 * Prints a graph that ran as a line of JSON: its nodes, and each value's bytes in memory as hexadecimal digits.
 * tests/campaign/reference.py computes each node again with numpy.
 */
#include "tests/ops/run_plan.h"
#include <inttypes.h>

REFERENCE void emit_string(struct ngd_strbuf *sb, const char *s)
{
    ngd_strbuf_append(sb, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            ngd_strbuf_printf(sb, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            ngd_strbuf_printf(sb, "\\u%04x", *s);
        else
            ngd_strbuf_printf(sb, "%c", *s);
    }
    ngd_strbuf_append(sb, "\"");
}

REFERENCE int64_t dim_value(const struct ngd_graph *g, ngd_dim_t dim, const int64_t *symbols)
{
    int64_t v = 0;

    run_check(ngd_expr_eval(g->exprs, dim, symbols, &v), &(struct ngd_diag){0}, "a dimension");
    return v;
}

REFERENCE void emit_float(struct ngd_strbuf *sb, double f)
{
    if (isnan(f))
        ngd_strbuf_append(sb, "NaN");
    else if (isinf(f))
        ngd_strbuf_append(sb, f < 0 ? "-Infinity" : "Infinity");
    else
        ngd_strbuf_printf(sb, "%.17g", f);
}

REFERENCE void emit_attr(struct ngd_strbuf *sb, const struct ngd_graph *g, const struct ngd_attr_schema *schema,
                         const struct ngd_attr_value *a, const int64_t *symbols)
{
    ngd_strbuf_printf(sb, "\"%s\":", schema->name);
    switch (schema->type) {
    case NGD_ATTR_BOOL:
        ngd_strbuf_append(sb, a->i ? "true" : "false");
        break;
    case NGD_ATTR_INT:
        ngd_strbuf_printf(sb, "%" PRId64, dim_value(g, a->i, symbols));
        break;
    case NGD_ATTR_FLOAT:
        emit_float(sb, a->f);
        break;
    case NGD_ATTR_DTYPE:
        if (a->i < 0)
            ngd_strbuf_append(sb, "null");
        else
            ngd_strbuf_printf(sb, "\"%s\"", ngd_dtype_name((ngd_dtype_t)a->i));
        break;
    case NGD_ATTR_STR:
        emit_string(sb, a->s ? a->s : "");
        break;
    default:
        ngd_strbuf_append(sb, "[");
        for (uint32_t i = 0; i < a->n; i++)
            ngd_strbuf_printf(sb, "%s%" PRId64, i ? "," : "", dim_value(g, a->list[i], symbols));
        ngd_strbuf_append(sb, "]");
    }
}

REFERENCE void emit_values(struct ngd_strbuf *sb, const uint32_t *values, uint32_t n)
{
    ngd_strbuf_append(sb, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (values[i] == NGD_VALUE_NONE)
            ngd_strbuf_printf(sb, "%snull", i ? "," : "");
        else
            ngd_strbuf_printf(sb, "%s%" PRIu32, i ? "," : "", values[i]);
    }
    ngd_strbuf_append(sb, "]");
}

REFERENCE void emit_node(struct ngd_strbuf *sb, const struct ngd_graph *g, uint32_t i, const int64_t *symbols)
{
    const struct ngd_node *node = &g->nodes[i];

    ngd_strbuf_printf(sb, "%s{\"op\":\"%s\",\"mutates\":%s,\"in\":", i ? "," : "", node->op->name,
                      node->op->mutates ? "true" : "false");
    emit_values(sb, node->in, node->n_in);
    ngd_strbuf_append(sb, ",\"out\":");
    emit_values(sb, node->out, node->n_out);
    ngd_strbuf_append(sb, ",\"attrs\":{");
    for (uint32_t k = 0; k < node->op->n_attrs; k++) {
        ngd_strbuf_append(sb, k ? "," : "");
        emit_attr(sb, g, &node->op->attrs[k], &node->attrs[k], symbols);
    }
    ngd_strbuf_append(sb, "}}");
}

/* Prints the entry of a value, and returns its bytes at these symbols. */
REFERENCE uint64_t emit_value(struct ngd_strbuf *sb, const struct ngd_graph *g, uint32_t value, const int64_t *symbols,
                              const char *data)
{
    const struct ngd_value *v = &g->values[value];
    uint64_t bytes = ngd_dtype_bytes(v->type.dtype);

    ngd_strbuf_printf(sb, "\"%" PRIu32 "\":{\"state\":%s,\"dtype\":\"%s\",\"dims\":[", value,
                      v->cls == NGD_VALUE_STATE ? "true" : "false", ngd_dtype_name(v->type.dtype));
    for (uint32_t d = 0; d < v->type.rank; d++) {
        const int64_t n = dim_value(g, v->type.dims[d], symbols);

        bytes *= (uint64_t)n;
        ngd_strbuf_printf(sb, "%s%" PRId64, d ? "," : "", n);
    }
    ngd_strbuf_append(sb, "],\"data\":\"");
    for (uint64_t i = 0; data && i < bytes; i++)
        ngd_strbuf_printf(sb, "%02x", (unsigned char)data[i]);
    ngd_strbuf_append(sb, "\"}");
    return bytes;
}

/* Prints the bytes that fill_bytes makes for an input, as any_open does. */
REFERENCE void emit_given(struct ngd_strbuf *sb, const struct ngd_graph *g, uint32_t value, const int64_t *symbols,
                          uint32_t seed)
{
    struct ngd_strbuf none;
    uint64_t bytes;
    char *data;

    ngd_strbuf_init(&none);
    bytes = emit_value(&none, g, value, symbols, NULL);
    ngd_strbuf_fini(&none);
    data = calloc(bytes + 1, 1);
    fill_bytes(data, g->values[value].type.dtype, bytes, seed);
    (void)emit_value(sb, g, value, symbols, data);
    ngd_strbuf_append(sb, ",");
    free(data);
}

/* Prints a case. made: the results of a graph whose outputs are all results, in the order of the outputs. */
REFERENCE void emit_case(const struct ngd_graph *g, const int64_t *symbols, uint64_t seed, const char *isa,
                         const struct made *made)
{
    struct ngd_strbuf sb;
    uint64_t at = 0;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "{\"seed\":%" PRIu64 ",\"isa\":\"%s\",\"nodes\":[", seed, isa);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        emit_node(&sb, g, i, symbols);
    ngd_strbuf_append(&sb, "],\"values\":{");
    for (uint32_t i = 0; i < g->n_params; i++)
        emit_given(&sb, g, g->params[i], symbols, 100 + i);
    for (uint32_t i = 0; i < g->n_states; i++)
        emit_given(&sb, g, g->states[i], symbols, 100 + g->n_params + i);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        emit_given(&sb, g, g->inputs[i], symbols, 200 + i);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        at += emit_value(&sb, g, g->outputs[i].value, symbols, made->data + at);
        ngd_strbuf_append(&sb, i + 1 < g->n_outputs ? "," : "");
    }
    printf("%s}}\n", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

#endif
