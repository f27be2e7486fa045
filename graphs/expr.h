/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_EXPR_H
#define NGD_GRAPHS_EXPR_H

/*
 * Dimension expressions over a graph's symbols.
 *
 * A dimension is an ngd_dim_t: >= 0 is a constant, <= NGD_DIM_EXPR_LAST names an expression of the graph's
 * table. Values between are negative constants, which attributes may have (dim=-1) but dimensions may not.
 * Expressions are kept in a canonical form and hash-consed, so that two dimensions are equal for all
 * symbol values if (polynomials: and only if) their ngd_dim_t are equal. floordiv, mod, min and max are atoms
 * over canonical operands, simplified where exact (T*8 floordiv 8 = T, T*8 mod 8 = 0, min/max by bounds).
 * All arithmetic is overflow-checked: NGD_ERR_OVERFLOW. A divisor that may be 0: NGD_ERR_GRAPH_SYMBOL.
 * Threads: a table belongs to its graph: one writer while it is built, immutable after seal.
 * Bounds: depth and number of expressions are limited (NGD_EXPR_MAX_*), NGD_ERR_GRAPH_TOO_LARGE.
 */
#include "base/status.h"
#include "base/strbuf.h"
#include <stdint.h>

typedef int64_t ngd_dim_t;

#define NGD_EXPR_MAX_DEPTH 32
#define NGD_EXPR_MAX_COUNT 65536
#define NGD_DIM_EXPR_LAST  (INT64_MIN + NGD_EXPR_MAX_COUNT - 1)

typedef enum ngd_expr_op {
    NGD_EXPR_ADD,
    NGD_EXPR_SUB,
    NGD_EXPR_MUL,
    NGD_EXPR_FLOORDIV, /* towards minus infinity */
    NGD_EXPR_MOD,      /* a - floordiv(a, b)*b: never negative */
    NGD_EXPR_MIN,
    NGD_EXPR_MAX,
} ngd_expr_op_t;

struct ngd_expr_table;

ngd_status_t ngd_expr_table_create(struct ngd_expr_table **table_p);
void ngd_expr_table_destroy(struct ngd_expr_table *table);
/* Declares the next symbol (numbered from 0) with its inclusive range. */
ngd_status_t ngd_expr_declare(struct ngd_expr_table *table, const char *name, int64_t min, int64_t max,
                              ngd_dim_t *dim_p);
/* Raises a symbol's upper bound. NGD_ERR_BUSY: an expression already uses the symbol. */
ngd_status_t ngd_expr_widen(struct ngd_expr_table *table, uint32_t symbol, int64_t max);
ngd_status_t ngd_expr_make(struct ngd_expr_table *table, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p);
/* Divides polynomials. If b does not divide a for all symbol values, *exact_p is false and *dim_p untouched. */
ngd_status_t ngd_expr_divide(struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b, bool *exact_p, ngd_dim_t *dim_p);
/* Evaluates dim. symbols: a value for each declared symbol. A constant needs no table. */
ngd_status_t ngd_expr_eval(const struct ngd_expr_table *table, ngd_dim_t dim, const int64_t *symbols, int64_t *value_p);
/* Gives inclusive bounds from the symbols' ranges (conservative). */
ngd_status_t ngd_expr_bounds(const struct ngd_expr_table *table, ngd_dim_t dim, int64_t *min_p, int64_t *max_p);
/* Returns the bounds over a part of the ranges. symbols: a range for each declared symbol. If 64 bits cannot hold a
 * bound, the result is the full range of int64_t. */
struct ngd_range {
    int64_t min, max; /* inclusive */
};
struct ngd_range ngd_expr_range(const struct ngd_expr_table *table, ngd_dim_t dim, const struct ngd_range *symbols);
/* Returns true if a <= b was proved for all symbol values; false means "not proved". */
bool ngd_expr_always_le(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b);
/* Returns true if dim == symbol * mult exactly, with a constant mult > 0. */
bool ngd_expr_is_multiple(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t *symbol_p, int64_t *mult_p);
uint32_t ngd_expr_cost(const struct ngd_expr_table *table, ngd_dim_t dim); /* entries that an evaluation visits */
bool ngd_expr_uses(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t symbol);
uint32_t ngd_expr_symbols(const struct ngd_expr_table *table, ngd_dim_t dim); /* a bit for each symbol that dim uses */
/* Makes the same expression in another table, with map[i] (of that table) in the place of symbol i. */
ngd_status_t ngd_expr_translate(const struct ngd_expr_table *from, ngd_dim_t dim, struct ngd_expr_table *to,
                                const ngd_dim_t *map, ngd_dim_t *dim_p);
void ngd_expr_print(const struct ngd_expr_table *table, ngd_dim_t dim, struct ngd_strbuf *sb); /* "T*8 + 1" */

/* Returns true for constants, negative ones included. */
static inline bool ngd_dim_is_const(ngd_dim_t d)
{
    return d > NGD_DIM_EXPR_LAST;
}

#endif
