/* SPDX-License-Identifier: Apache-2.0 */
/* Translates an expression into another table, with a dimension in the place of each symbol. */
#include "graphs/expr_int.h"

static ngd_status_t translate(const struct ngd_expr_table *from, ngd_dim_t dim, struct ngd_expr_table *to,
                              const ngd_dim_t *map, ngd_dim_t *dim_p);

static ngd_status_t translate_pair(const struct ngd_expr_table *from, const struct expr_entry *e, ngd_expr_op_t op,
                                   struct ngd_expr_table *to, const ngd_dim_t *map, ngd_dim_t *dim_p)
{
    ngd_dim_t a, b;
    ngd_status_t status = translate(from, e->a, to, map, &a);

    if (!status)
        status = translate(from, e->b, to, map, &b);
    return status ? status : ngd_expr_make(to, op, a, b, dim_p);
}

static ngd_status_t translate_poly(const struct ngd_expr_table *from, const struct expr_entry *e,
                                   struct ngd_expr_table *to, const ngd_dim_t *map, ngd_dim_t *dim_p)
{
    ngd_dim_t sum = 0;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < e->n_terms && !status; i++) {
        const struct expr_term *t = &from->terms[e->first_term + i];
        ngd_dim_t product = t->coef, atom;

        for (uint32_t k = 0; k < t->degree && !status; k++) {
            status = translate(from, DIM_OF(from->atoms[t->first_atom + k]), to, map, &atom);
            if (!status)
                status = ngd_expr_make(to, NGD_EXPR_MUL, product, atom, &product);
        }
        if (!status)
            status = ngd_expr_make(to, NGD_EXPR_ADD, sum, product, &sum);
    }
    *dim_p = sum;
    return status;
}

/* Recurses; NGD_EXPR_MAX_DEPTH bounds the depth. */
static ngd_status_t translate(const struct ngd_expr_table *from, ngd_dim_t dim, struct ngd_expr_table *to,
                              const ngd_dim_t *map, ngd_dim_t *dim_p)
{
    const struct expr_entry *e;

    if (ngd_dim_is_const(dim)) {
        *dim_p = dim;
        return NGD_OK;
    }
    e = &from->entries[INDEX_OF(dim)];
    switch ((enum expr_kind)e->kind) {
    case EXPR_SYMBOL:
        *dim_p = map[e->symbol];
        return NGD_OK;
    case EXPR_FLOORDIV:
        return translate_pair(from, e, NGD_EXPR_FLOORDIV, to, map, dim_p);
    case EXPR_MOD:
        return translate_pair(from, e, NGD_EXPR_MOD, to, map, dim_p);
    case EXPR_MIN:
        return translate_pair(from, e, NGD_EXPR_MIN, to, map, dim_p);
    case EXPR_MAX:
        return translate_pair(from, e, NGD_EXPR_MAX, to, map, dim_p);
    case EXPR_POLY:
        return translate_poly(from, e, to, map, dim_p);
    }
    return NGD_ERR_INTERNAL;
}

ngd_status_t ngd_expr_translate(const struct ngd_expr_table *from, ngd_dim_t dim, struct ngd_expr_table *to,
                                const ngd_dim_t *map, ngd_dim_t *dim_p)
{
    return translate(from, dim, to, map, dim_p);
}
