/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Polynomials with integer coefficients over the atoms of an expression table, in fixed-size scratch
 * structures (2 KiB, on the stack of the caller).
 *
 * The term order is graded lexical, with the structural order of atoms. In this order a product's leading
 * term is the product of the leading terms. So division by leading terms terminates and is exact.
 */
#include "graphs/expr_int.h"
#include <string.h>

#define MAX_SHIFT_DEGREE 4 /* a term becomes up to 2^degree terms */

static int compare_atoms(const struct ngd_expr_table *table, uint32_t a, uint32_t b)
{
    return a == b ? 0 : ngd_expr_compare(table, DIM_OF(a), DIM_OF(b));
}

/* Compares monomials. < 0: a comes first (a is the greater one). */
static int compare_monomials(const struct ngd_expr_table *table, const uint32_t *a, uint32_t na, const uint32_t *b,
                             uint32_t nb)
{
    if (na != nb)
        return na > nb ? -1 : 1;
    for (uint32_t i = 0; i < na; i++) {
        int c = compare_atoms(table, a[i], b[i]);

        if (c)
            return c;
    }
    return 0;
}

void ngd_poly_of(const struct ngd_expr_table *table, ngd_dim_t dim, struct poly *p)
{
    const struct expr_entry *e;

    p->n = 0;
    if (ngd_dim_is_const(dim)) {
        p->n = dim != 0;
        p->t[0].coef = dim;
        p->t[0].degree = 0;
        return;
    }
    e = &table->entries[INDEX_OF(dim)];
    if (e->kind != EXPR_POLY) {
        p->n = 1;
        p->t[0].coef = 1;
        p->t[0].degree = 1;
        p->t[0].atoms[0] = INDEX_OF(dim);
        return;
    }
    for (; p->n < e->n_terms; p->n++) {
        const struct expr_term *t = &table->terms[e->first_term + p->n];

        p->t[p->n].coef = t->coef;
        p->t[p->n].degree = t->degree;
        if (t->degree)
            memcpy(p->t[p->n].atoms, &table->atoms[t->first_atom], t->degree * sizeof(uint32_t));
    }
}

static void remove_term(struct poly *p, uint32_t at)
{
    p->n--;
    memmove(&p->t[at], &p->t[at + 1], (p->n - at) * sizeof(p->t[0]));
}

ngd_status_t ngd_poly_add_term(const struct ngd_expr_table *table, struct poly *p, int64_t coef, const uint32_t *atoms,
                               uint32_t degree)
{
    uint32_t at = 0;
    int c = 1;

    if (coef == 0)
        return NGD_OK;
    for (; at < p->n; at++) {
        c = compare_monomials(table, p->t[at].atoms, p->t[at].degree, atoms, degree);
        if (c >= 0)
            break;
    }
    if (at < p->n && c == 0) {
        int64_t sum;

        if (__builtin_add_overflow(p->t[at].coef, coef, &sum) || sum == INT64_MIN)
            return NGD_ERR_OVERFLOW;
        p->t[at].coef = sum;
        if (sum == 0)
            remove_term(p, at);
        return NGD_OK;
    }
    if (coef == INT64_MIN) /* its absolute value is no int64_t, so it cannot be printed */
        return NGD_ERR_OVERFLOW;
    if (p->n == POLY_MAX_TERMS)
        return NGD_ERR_GRAPH_TOO_LARGE;
    memmove(&p->t[at + 1], &p->t[at], (p->n - at) * sizeof(p->t[0]));
    p->n++;
    p->t[at].coef = coef;
    p->t[at].degree = degree;
    if (degree)
        memcpy(p->t[at].atoms, atoms, degree * sizeof(uint32_t));
    return NGD_OK;
}

/* Merges two sorted lists of atoms. Returns false past the degree limit. */
static bool merge_atoms(const struct ngd_expr_table *table, const uint32_t *a, uint32_t na, const uint32_t *b,
                        uint32_t nb, uint32_t *out)
{
    uint32_t i = 0, j = 0, n = 0;

    if (na + nb > POLY_MAX_DEGREE)
        return false;
    while (i < na || j < nb) {
        if (j == nb || (i < na && compare_atoms(table, a[i], b[j]) <= 0))
            out[n++] = a[i++];
        else
            out[n++] = b[j++];
    }
    return true;
}

ngd_status_t ngd_poly_add_product(const struct ngd_expr_table *table, struct poly *p, int64_t scale,
                                  const uint32_t *atoms, uint32_t degree, const struct poly *q)
{
    uint32_t merged[POLY_MAX_DEGREE];

    for (uint32_t i = 0; i < q->n; i++) {
        ngd_status_t status;
        int64_t coef;

        if (__builtin_mul_overflow(q->t[i].coef, scale, &coef))
            return NGD_ERR_OVERFLOW;
        if (!merge_atoms(table, atoms, degree, q->t[i].atoms, q->t[i].degree, merged))
            return NGD_ERR_GRAPH_TOO_LARGE;
        status = ngd_poly_add_term(table, p, coef, merged, degree + q->t[i].degree);
        if (status)
            return status;
    }
    return NGD_OK;
}

ngd_status_t ngd_poly_add(const struct ngd_expr_table *table, struct poly *p, int64_t scale, const struct poly *q)
{
    return ngd_poly_add_product(table, p, scale, NULL, 0, q);
}

/* Divides two monomials. Returns false if b has an atom that a lacks. */
static bool divide_monomial(const struct term *a, const struct term *b, uint32_t *atoms, uint32_t *degree_p)
{
    uint32_t j = 0, n = 0;

    for (uint32_t i = 0; i < a->degree; i++) {
        if (j < b->degree && a->atoms[i] == b->atoms[j])
            j++;
        else
            atoms[n++] = a->atoms[i];
    }
    *degree_p = n;
    return j == b->degree;
}

bool ngd_poly_divide(const struct ngd_expr_table *table, struct poly *num, const struct poly *den, struct poly *quo)
{
    uint32_t atoms[POLY_MAX_DEGREE], degree;

    quo->n = 0;
    if (den->n == 0)
        return false;
    while (num->n > 0) {
        int64_t coef;

        if (num->t[0].coef % den->t[0].coef != 0 || !divide_monomial(&num->t[0], &den->t[0], atoms, &degree))
            return false;
        coef = num->t[0].coef / den->t[0].coef;
        if (ngd_poly_add_term(table, quo, coef, atoms, degree) ||
            ngd_poly_add_product(table, num, -coef, atoms, degree, den))
            return false;
    }
    return true;
}

/* Computes [*lo, *hi] *= [min, max]. */
static bool multiply_interval(int64_t *lo, int64_t *hi, int64_t min, int64_t max)
{
    int64_t v[4];

    if (__builtin_mul_overflow(*lo, min, &v[0]) || __builtin_mul_overflow(*lo, max, &v[1]) ||
        __builtin_mul_overflow(*hi, min, &v[2]) || __builtin_mul_overflow(*hi, max, &v[3]))
        return false;
    *lo = *hi = v[0];
    for (int i = 1; i < 4; i++) {
        if (v[i] < *lo)
            *lo = v[i];
        if (v[i] > *hi)
            *hi = v[i];
    }
    return true;
}

static ngd_status_t interval_bounds(const struct ngd_expr_table *table, const struct poly *p, int64_t *min_p,
                                    int64_t *max_p)
{
    int64_t min = 0, max = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        int64_t lo = p->t[i].coef, hi = lo;

        for (uint32_t k = 0; k < p->t[i].degree; k++) {
            const struct expr_entry *e = &table->entries[p->t[i].atoms[k]];

            if (!multiply_interval(&lo, &hi, e->min, e->max))
                return NGD_ERR_OVERFLOW;
        }
        if (__builtin_add_overflow(min, lo, &min) || __builtin_add_overflow(max, hi, &max))
            return NGD_ERR_OVERFLOW;
    }
    *min_p = min;
    *max_p = max;
    return NGD_OK;
}

/* Adds the term to out, with each atom a replaced by min(a) + a'; out is a polynomial in the a'. */
static bool add_shifted(const struct ngd_expr_table *table, const struct term *t, struct poly *out)
{
    for (uint32_t subset = 0; subset < 1u << t->degree; subset++) {
        uint32_t atoms[POLY_MAX_DEGREE], n = 0;
        int64_t coef = t->coef;

        for (uint32_t k = 0; k < t->degree; k++) {
            if (subset >> k & 1)
                atoms[n++] = t->atoms[k];
            else if (__builtin_mul_overflow(coef, table->entries[t->atoms[k]].min, &coef))
                return false;
        }
        if (ngd_poly_add_term(table, out, coef, atoms, n))
            return false;
    }
    return true;
}

/*
 * Bounds the same polynomial in variables that start at 0. These bounds are tighter if terms of both signs share
 * factors: T*B - B is at least 0 if T is at least 1, which intervals of its terms do not show.
 */
static bool shifted_bounds(const struct ngd_expr_table *table, const struct poly *p, int64_t *min_p, int64_t *max_p)
{
    struct poly shifted = {.n = 0};
    int64_t min = 0, max = 0;

    for (uint32_t i = 0; i < p->n; i++)
        if (p->t[i].degree > MAX_SHIFT_DEGREE || !add_shifted(table, &p->t[i], &shifted))
            return false;
    for (uint32_t i = 0; i < shifted.n; i++) {
        const struct term *t = &shifted.t[i];
        int64_t end = t->coef;

        for (uint32_t k = 0; k < t->degree; k++) {
            const struct expr_entry *e = &table->entries[t->atoms[k]];
            int64_t range;

            if (__builtin_sub_overflow(e->max, e->min, &range) || __builtin_mul_overflow(end, range, &end))
                return false;
        }
        if (__builtin_add_overflow(min, t->degree && end > 0 ? 0 : end, &min) ||
            __builtin_add_overflow(max, t->degree && end < 0 ? 0 : end, &max))
            return false;
    }
    *min_p = min;
    *max_p = max;
    return true;
}

ngd_status_t ngd_poly_bounds(const struct ngd_expr_table *table, const struct poly *p, int64_t *min_p, int64_t *max_p)
{
    int64_t min, max;
    ngd_status_t status = interval_bounds(table, p, min_p, max_p);

    if (status || p->n < 2 || !shifted_bounds(table, p, &min, &max))
        return status;
    *min_p = min > *min_p ? min : *min_p;
    *max_p = max < *max_p ? max : *max_p;
    return NGD_OK;
}
