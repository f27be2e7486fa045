/* SPDX-License-Identifier: Apache-2.0 */
/* Makes expressions, and simplifies them to the canonical form. */
#include "graphs/expr_int.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/*
 * Splits p = q*c + r; p becomes r. If q is NULL (for mod), all coefficients of r are in 0..c-1. With q (for floordiv)
 * only the constant is in 0..c-1. The other coefficients are divided towards 0, because A - B floordiv 2 has tighter
 * bounds than (A + B) floordiv 2 - B.
 */
static ngd_status_t split_by(const struct ngd_expr_table *table, struct poly *p, int64_t c, struct poly *q)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        bool down = !q || p->t[i].degree == 0;
        int64_t k = down ? ngd_floor_div(p->t[i].coef, c) : p->t[i].coef / c,
                r = down ? ngd_floor_mod(p->t[i].coef, c) : p->t[i].coef % c;

        if (q) {
            ngd_status_t status = ngd_poly_add_term(table, q, k, p->t[i].atoms, p->t[i].degree);

            if (status)
                return status;
        }
        if (r == 0)
            continue;
        p->t[kept] = p->t[i];
        p->t[kept++].coef = r;
    }
    p->n = kept;
    return NGD_OK;
}

/*
 * Divides r's coefficients and *c by g, the common divisor of *c and all non-constant coefficients. The constant rounds
 * down: floor((g*x + k)/(g*c)) = floor((x + floor(k/g))/c), and similarly for mod. Returns g; *rest_p is k mod g.
 */
static int64_t reduce_by_gcd(struct poly *r, int64_t *c, int64_t *rest_p)
{
    int64_t g = *c, k = ngd_poly_const(r);
    uint32_t n = r->n;

    for (uint32_t i = 0; i < n; i++)
        if (r->t[i].degree)
            g = gcd(g, r->t[i].coef < 0 ? -r->t[i].coef : r->t[i].coef);
    *rest_p = k % g;
    *c /= g;
    for (uint32_t i = 0; i < n; i++)
        r->t[i].coef /= g;
    if (n && r->t[n - 1].coef == 0)
        r->n--;
    return g;
}

/* Returns the atom if r consists of a single atom of that kind with a constant second operand; otherwise NULL. */
static const struct expr_entry *lone_atom(const struct ngd_expr_table *table, const struct poly *r, uint8_t kind)
{
    const struct expr_entry *e;

    if (r->n != 1 || r->t[0].degree != 1 || r->t[0].coef != 1)
        return NULL;
    e = &table->entries[r->t[0].atoms[0]];
    return e->kind == kind && ngd_dim_is_const(e->b) ? e : NULL;
}

static ngd_status_t floordiv_const(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p);

/* Makes the atom p floordiv c. p is reduced, and its bounds do not decide the result. */
static ngd_status_t floordiv_atom(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p)
{
    const struct expr_entry *inner = lone_atom(table, p, EXPR_FLOORDIV);
    ngd_status_t status;
    ngd_dim_t dim = 0;
    int64_t both;

    if (inner && !__builtin_mul_overflow(inner->b, c, &both)) { /* (x floordiv d) floordiv c = x floordiv d*c */
        ngd_poly_of(table, inner->a, p);
        return floordiv_const(table, p, both, dim_p);
    }
    status = ngd_expr_intern_poly(table, p, &dim);
    return status ? status : ngd_expr_intern_atom(table, EXPR_FLOORDIV, dim, c, dim_p);
}

static ngd_status_t floordiv_const(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p)
{
    struct poly q = {0};
    int64_t rest, lo, hi;
    ngd_status_t status = split_by(table, p, c, &q);
    ngd_dim_t dim = 0;

    if (status)
        return status;
    if (!ngd_poly_is_const(p)) {
        reduce_by_gcd(p, &c, &rest);
        status = ngd_poly_bounds(table, p, &lo, &hi);
        if (!status && ngd_floor_div(lo, c) == ngd_floor_div(hi, c))
            dim = ngd_floor_div(lo, c);
        else if (!status)
            status = floordiv_atom(table, p, c, &dim);
        if (status)
            return status;
        ngd_poly_of(table, dim, p);
        status = ngd_poly_add(table, &q, 1, p);
        if (status)
            return status;
    }
    return ngd_expr_intern_poly(table, &q, dim_p);
}

static ngd_status_t mod_const(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p);

static ngd_status_t mod_atom(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p)
{
    const struct expr_entry *inner = lone_atom(table, p, EXPR_MOD);
    ngd_status_t status;
    ngd_dim_t dim = 0;

    if (inner && inner->b % c == 0) { /* (x mod k*c) mod c = x mod c */
        ngd_poly_of(table, inner->a, p);
        return mod_const(table, p, c, dim_p);
    }
    status = ngd_expr_intern_poly(table, p, &dim);
    return status ? status : ngd_expr_intern_atom(table, EXPR_MOD, dim, c, dim_p);
}

static ngd_status_t mod_const(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p)
{
    struct poly sum = {0};
    int64_t rest = 0, g, lo, hi;
    ngd_status_t status = split_by(table, p, c, NULL);
    ngd_dim_t dim;

    if (status)
        return status;
    if (ngd_poly_is_const(p))
        return ngd_expr_intern_poly(table, p, dim_p);
    g = reduce_by_gcd(p, &c, &rest);
    status = ngd_poly_bounds(table, p, &lo, &hi);
    if (status)
        return status;
    if (lo < 0 || hi >= c) {
        status = mod_atom(table, p, c, &dim);
        if (status)
            return status;
        ngd_poly_of(table, dim, p);
    }
    status = ngd_poly_add(table, &sum, g, p);
    if (!status)
        status = ngd_poly_add_term(table, &sum, rest, NULL, 0);
    return status ? status : ngd_expr_intern_poly(table, &sum, dim_p);
}

static ngd_status_t make_division(struct ngd_expr_table *table, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b,
                                  ngd_dim_t *dim_p)
{
    bool exact = false, mod = op == NGD_EXPR_MOD;
    int64_t lo, hi;
    struct poly p;
    ngd_status_t status = ngd_expr_bounds(table, b, &lo, &hi);
    ngd_dim_t quotient;

    if (status)
        return status;
    if (lo < 1)
        return NGD_ERR_GRAPH_SYMBOL;
    if (ngd_dim_is_const(b)) {
        ngd_poly_of(table, a, &p);
        return mod ? mod_const(table, &p, b, dim_p) : floordiv_const(table, &p, b, dim_p);
    }
    status = ngd_expr_divide(table, a, b, &exact, &quotient);
    if (status)
        return status;
    if (exact) {
        *dim_p = mod ? 0 : quotient;
        return NGD_OK;
    }
    status = ngd_expr_bounds(table, a, &lo, &hi);
    if (status)
        return status;
    if (lo >= 0 && !ngd_expr_always_le(table, b, a)) {
        ngd_dim_t next;

        status = ngd_expr_make(table, NGD_EXPR_ADD, a, 1, &next);
        if (status)
            return status;
        if (ngd_expr_always_le(table, next, b)) { /* 0 <= a < b */
            *dim_p = mod ? a : 0;
            return NGD_OK;
        }
    }
    return ngd_expr_intern_atom(table, mod ? EXPR_MOD : EXPR_FLOORDIV, a, b, dim_p);
}

/* Returns true if dim is an atom of that kind with x as an operand: min(min(x, y), x) = min(x, y). */
static bool contains_operand(const struct ngd_expr_table *table, ngd_dim_t dim, uint8_t kind, ngd_dim_t x)
{
    const struct expr_entry *e;

    if (ngd_dim_is_const(dim))
        return false;
    e = &table->entries[INDEX_OF(dim)];
    return e->kind == kind && (e->a == x || e->b == x);
}

static ngd_status_t make_extreme(struct ngd_expr_table *table, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b,
                                 ngd_dim_t *dim_p)
{
    uint8_t kind = op == NGD_EXPR_MIN ? EXPR_MIN : EXPR_MAX;
    bool a_le_b = ngd_expr_always_le(table, a, b), b_le_a = ngd_expr_always_le(table, b, a);

    if (a_le_b || b_le_a) {
        *dim_p = a_le_b == (op == NGD_EXPR_MIN) ? a : b;
        return NGD_OK;
    }
    if (contains_operand(table, a, kind, b)) {
        *dim_p = a;
        return NGD_OK;
    }
    if (contains_operand(table, b, kind, a)) {
        *dim_p = b;
        return NGD_OK;
    }
    if (ngd_expr_compare(table, a, b) > 0) {
        ngd_dim_t swap = a;

        a = b;
        b = swap;
    }
    return ngd_expr_intern_atom(table, kind, a, b, dim_p);
}

static ngd_status_t make_sum(struct ngd_expr_table *table, int64_t scale, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    struct poly p, q;
    ngd_status_t status;
    int64_t sum;

    if (b == 0 || (a == 0 && scale == 1)) {
        *dim_p = b == 0 ? a : b;
        return NGD_OK;
    }
    if (ngd_dim_is_const(a) && ngd_dim_is_const(b) && !__builtin_mul_overflow(b, scale, &sum) &&
        !__builtin_add_overflow(a, sum, &sum) && ngd_dim_is_const(sum)) {
        *dim_p = sum;
        return NGD_OK;
    }
    ngd_poly_of(table, a, &p);
    ngd_poly_of(table, b, &q);
    status = ngd_poly_add(table, &p, scale, &q);
    return status ? status : ngd_expr_intern_poly(table, &p, dim_p);
}

static ngd_status_t make_product(struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    struct poly p, q, product;
    ngd_status_t status = NGD_OK;
    int64_t number;

    if (a == 1 || b == 1) {
        *dim_p = a == 1 ? b : a;
        return NGD_OK;
    }
    if (ngd_dim_is_const(a) && ngd_dim_is_const(b) && !__builtin_mul_overflow(a, b, &number) &&
        ngd_dim_is_const(number)) {
        *dim_p = number;
        return NGD_OK;
    }
    product.n = 0;
    ngd_poly_of(table, a, &p);
    ngd_poly_of(table, b, &q);
    for (uint32_t i = 0; i < p.n && !status; i++)
        status = ngd_poly_add_product(table, &product, p.t[i].coef, p.t[i].atoms, p.t[i].degree, &q);
    return status ? status : ngd_expr_intern_poly(table, &product, dim_p);
}

ngd_status_t ngd_expr_make(struct ngd_expr_table *table, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    if (!ngd_expr_has(table, a) || !ngd_expr_has(table, b))
        return NGD_ERR_INVALID_ARGUMENT;
    switch (op) {
    case NGD_EXPR_ADD:
        return make_sum(table, 1, a, b, dim_p);
    case NGD_EXPR_SUB:
        return make_sum(table, -1, a, b, dim_p);
    case NGD_EXPR_MUL:
        return make_product(table, a, b, dim_p);
    case NGD_EXPR_FLOORDIV:
    case NGD_EXPR_MOD:
        return make_division(table, op, a, b, dim_p);
    case NGD_EXPR_MIN:
    case NGD_EXPR_MAX:
        return make_extreme(table, op, a, b, dim_p);
    }
    return NGD_ERR_INVALID_ARGUMENT;
}

ngd_status_t ngd_expr_divide(struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b, bool *exact_p, ngd_dim_t *dim_p)
{
    struct poly num, den, quo;
    ngd_status_t status;

    ngd_poly_of(table, a, &num);
    ngd_poly_of(table, b, &den);
    *exact_p = false;
    if (!ngd_poly_divide(table, &num, &den, &quo))
        return NGD_OK;
    status = ngd_expr_intern_poly(table, &quo, dim_p);
    *exact_p = !status;
    return status;
}
