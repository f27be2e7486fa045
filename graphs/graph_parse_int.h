/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_PARSE_INT_H
#define NGD_GRAPHS_GRAPH_PARSE_INT_H

/* Shared by the files of the parser of graph text; graph_parse.c has the parser's contract. */
#include "graphs/graph_lex.h"

struct ngd_graph_parser {
    struct ngd_graph_lexer lex;
    struct ngd_graph *graph;
    uint32_t expr_depth;
    struct ngd_node_scope scope; /* of the next statement */
    uint32_t scope_depth;
    bool rewritten;
};

/* One node as the text has it. */
struct ngd_graph_node_text {
    struct ngd_node_spec spec;
    struct ngd_slice names[NGD_GRAPH_MAX_OPERANDS];
    uint32_t in[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    bool set[NGD_OP_MAX_ATTRS];
};

/* ---- graph_parse_expr.c ---- */

/* Makes a terminated copy in the graph's memory. */
ngd_status_t ngd_graph_parse_copy(struct ngd_graph_parser *p, struct ngd_slice s, char **copy_p);
ngd_status_t ngd_graph_parse_expr(struct ngd_graph_parser *p, ngd_dim_t *dim_p);
ngd_status_t ngd_graph_parse_dtype(struct ngd_graph_parser *p, ngd_dtype_t *dtype_p);
ngd_status_t ngd_graph_parse_type(struct ngd_graph_parser *p, struct ngd_type *type_p); /* f32[B, 64] */

/* ---- graph_parse_node.c ---- */

/* Reads a node and appends it. node is scratch memory of the caller; it keeps nothing from one node to the next. */
ngd_status_t ngd_graph_parse_node(struct ngd_graph_parser *p, struct ngd_graph_node_text *node);
/* Takes the token %name and finds its value. node: the node being read; NULL: none. */
ngd_status_t ngd_graph_parse_value(struct ngd_graph_parser *p, const struct ngd_graph_node_text *node,
                                   uint32_t *value_p);

#endif
