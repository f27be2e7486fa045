/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of an expression: its value, its bounds, the symbols that it uses. */
#include "graphs/expr_int.h"

static ngd_status_t eval_atom(const struct ngd_expr_table *table, const struct expr_entry *e, const int64_t *symbols,
                              int64_t *value_p)
{
    ngd_status_t status;
    int64_t a, b;

    if (e->kind == EXPR_SYMBOL) {
        *value_p = symbols[e->symbol];
        return NGD_OK;
    }
    status = ngd_expr_eval(table, e->a, symbols, &a);
    if (!status)
        status = ngd_expr_eval(table, e->b, symbols, &b);
    if (status)
        return status;
    if (e->kind == EXPR_MIN)
        *value_p = ngd_smaller(a, b);
    else if (e->kind == EXPR_MAX)
        *value_p = ngd_larger(a, b);
    else if (b < 1) /* possible only for symbol values outside their ranges */
        return NGD_ERR_OUT_OF_RANGE;
    else
        *value_p = e->kind == EXPR_FLOORDIV ? ngd_floor_div(a, b) : ngd_floor_mod(a, b);
    return NGD_OK;
}

ngd_status_t ngd_expr_eval(const struct ngd_expr_table *table, ngd_dim_t dim, const int64_t *symbols, int64_t *value_p)
{
    const struct expr_entry *e;
    int64_t sum = 0;

    if (ngd_dim_is_const(dim)) {
        *value_p = dim;
        return NGD_OK;
    }
    if (!ngd_expr_has(table, dim))
        return NGD_ERR_INVALID_ARGUMENT;
    e = &table->entries[INDEX_OF(dim)];
    if (e->kind != EXPR_POLY)
        return eval_atom(table, e, symbols, value_p);
    for (uint32_t i = 0; i < e->n_terms; i++) {
        const struct expr_term *t = &table->terms[e->first_term + i];
        int64_t product = t->coef, v;

        for (uint32_t k = 0; k < t->degree; k++) {
            ngd_status_t status = eval_atom(table, &table->entries[table->atoms[t->first_atom + k]], symbols, &v);

            if (status)
                return status;
            if (__builtin_mul_overflow(product, v, &product))
                return NGD_ERR_OVERFLOW;
        }
        if (__builtin_add_overflow(sum, product, &sum))
            return NGD_ERR_OVERFLOW;
    }
    *value_p = sum;
    return NGD_OK;
}

ngd_status_t ngd_expr_bounds(const struct ngd_expr_table *table, ngd_dim_t dim, int64_t *min_p, int64_t *max_p)
{
    if (!ngd_dim_is_const(dim) && !ngd_expr_has(table, dim))
        return NGD_ERR_INVALID_ARGUMENT;
    *min_p = ngd_dim_is_const(dim) ? dim : table->entries[INDEX_OF(dim)].min;
    *max_p = ngd_dim_is_const(dim) ? dim : table->entries[INDEX_OF(dim)].max;
    return NGD_OK;
}

/* Returns the atom if dim is one of the kind min, max, floordiv or mod; otherwise NULL. */
static const struct expr_entry *find_function(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    const struct expr_entry *e = ngd_dim_is_const(dim) ? NULL : &table->entries[INDEX_OF(dim)];

    return e && e->kind != EXPR_SYMBOL && e->kind != EXPR_POLY ? e : NULL;
}

/* Tries to prove a <= b. depth bounds the search through nested atoms, which branches at min and max. */
static bool always_le(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b, int depth)
{
    const struct expr_entry *x, *y;
    struct poly p, q;
    int64_t lo, hi, least;

    if (a == b)
        return true;
    if (ngd_expr_bounds(table, a, &lo, &hi) || ngd_expr_bounds(table, b, &least, &lo))
        return false;
    if (hi <= least)
        return true;
    ngd_poly_of(table, b, &p);
    ngd_poly_of(table, a, &q);
    if (!ngd_poly_add(table, &p, -1, &q) && !ngd_poly_bounds(table, &p, &lo, &hi) && lo >= 0)
        return true;
    if (depth == 0)
        return false;
    x = find_function(table, a);
    y = find_function(table, b);
    if (x && x->kind == EXPR_MIN && (always_le(table, x->a, b, depth - 1) || always_le(table, x->b, b, depth - 1)))
        return true;
    if (y && y->kind == EXPR_MAX && (always_le(table, a, y->a, depth - 1) || always_le(table, a, y->b, depth - 1)))
        return true;
    if (!x || (x->kind != EXPR_FLOORDIV && x->kind != EXPR_MOD))
        return false;
    /* x floordiv d and x mod d are at most x if x is not negative */
    return !ngd_expr_bounds(table, x->a, &lo, &hi) && lo >= 0 && always_le(table, x->a, b, depth - 1);
}

bool ngd_expr_always_le(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b)
{
    return ngd_expr_has(table, a) && ngd_expr_has(table, b) && always_le(table, a, b, 3);
}

bool ngd_expr_is_multiple(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t *symbol_p, int64_t *mult_p)
{
    const struct expr_entry *e, *atom;
    int64_t coef = 1;

    if (ngd_dim_is_const(dim) || !ngd_expr_has(table, dim))
        return false;
    e = atom = &table->entries[INDEX_OF(dim)];
    if (e->kind == EXPR_POLY) {
        const struct expr_term *t = &table->terms[e->first_term];

        if (e->n_terms != 1 || t->degree != 1 || t->coef < 0)
            return false;
        atom = &table->entries[table->atoms[t->first_atom]];
        coef = t->coef;
    }
    if (atom->kind != EXPR_SYMBOL)
        return false;
    *symbol_p = atom->symbol;
    *mult_p = coef;
    return true;
}

uint32_t ngd_expr_symbols(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    return ngd_dim_is_const(dim) || !ngd_expr_has(table, dim) ? 0 : table->entries[INDEX_OF(dim)].symbols;
}

uint32_t ngd_expr_cost(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    return ngd_dim_is_const(dim) || !ngd_expr_has(table, dim) ? 1 : table->entries[INDEX_OF(dim)].cost;
}

bool ngd_expr_uses(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t symbol)
{
    return symbol < EXPR_MAX_SYMBOLS && (ngd_expr_symbols(table, dim) >> symbol & 1);
}
