/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of an expression over a part of the symbols' ranges, by interval arithmetic. They are exact if each symbol has
 * one value; otherwise they may be too wide. If a bound does not fit 64 bits, the result is the full range.
 */
#include "graphs/expr_int.h"

static struct ngd_range everything(void)
{
    return (struct ngd_range){INT64_MIN, INT64_MAX};
}

static struct ngd_range hull(const int64_t *v, int n)
{
    struct ngd_range r = {v[0], v[0]};

    for (int i = 1; i < n; i++) {
        r.min = v[i] < r.min ? v[i] : r.min;
        r.max = v[i] > r.max ? v[i] : r.max;
    }
    return r;
}

static struct ngd_range range_product(struct ngd_range a, struct ngd_range b)
{
    int64_t v[4];

    if (__builtin_mul_overflow(a.min, b.min, &v[0]) || __builtin_mul_overflow(a.min, b.max, &v[1]) ||
        __builtin_mul_overflow(a.max, b.min, &v[2]) || __builtin_mul_overflow(a.max, b.max, &v[3]))
        return everything();
    return hull(v, 4);
}

static struct ngd_range sum(struct ngd_range a, struct ngd_range b)
{
    struct ngd_range r;

    if (__builtin_add_overflow(a.min, b.min, &r.min) || __builtin_add_overflow(a.max, b.max, &r.max))
        return everything();
    return r;
}

/* floordiv is monotonic in a, and for each a in b, so its extremes are at the corners of the ranges. */
static struct ngd_range quotient(struct ngd_range a, struct ngd_range b)
{
    int64_t v[4] = {ngd_floor_div(a.min, b.min), ngd_floor_div(a.min, b.max), ngd_floor_div(a.max, b.min),
                    ngd_floor_div(a.max, b.max)};

    return hull(v, 4);
}

static struct ngd_range remainder_of(struct ngd_range a, struct ngd_range b)
{
    if (b.min == b.max && ngd_floor_div(a.min, b.min) == ngd_floor_div(a.max, b.min))
        return (struct ngd_range){ngd_floor_mod(a.min, b.min), ngd_floor_mod(a.max, b.min)};
    if (a.min >= 0 && a.max < b.min)
        return a;
    return (struct ngd_range){0, b.max - 1};
}

static struct ngd_range range_of_atom(const struct ngd_expr_table *table, const struct expr_entry *e,
                                      const struct ngd_range *symbols)
{
    struct ngd_range a, b;

    if (e->kind == EXPR_SYMBOL)
        return symbols[e->symbol];
    a = ngd_expr_range(table, e->a, symbols);
    b = ngd_expr_range(table, e->b, symbols);
    if (e->kind == EXPR_MIN)
        return (struct ngd_range){a.min < b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
    if (e->kind == EXPR_MAX)
        return (struct ngd_range){a.min > b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
    if (b.min < 1) /* the divisor's bounds are too wide, or symbols are outside their ranges */
        return everything();
    return e->kind == EXPR_FLOORDIV ? quotient(a, b) : remainder_of(a, b);
}

struct ngd_range ngd_expr_range(const struct ngd_expr_table *table, ngd_dim_t dim, const struct ngd_range *symbols)
{
    struct ngd_range all = {0, 0};
    const struct expr_entry *e;

    if (ngd_dim_is_const(dim))
        return (struct ngd_range){dim, dim};
    e = &table->entries[INDEX_OF(dim)];
    if (e->kind != EXPR_POLY)
        return range_of_atom(table, e, symbols);
    for (uint32_t i = 0; i < e->n_terms; i++) {
        const struct expr_term *t = &table->terms[e->first_term + i];
        struct ngd_range r = {t->coef, t->coef};

        for (uint32_t k = 0; k < t->degree; k++)
            r = range_product(r, range_of_atom(table, &table->entries[table->atoms[t->first_atom + k]], symbols));
        all = sum(all, r);
    }
    return all;
}
