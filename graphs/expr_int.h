/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_EXPR_INT_H
#define NGD_GRAPHS_EXPR_INT_H

/*
 * Internals of the expression table: entries (expr.c) and polynomials (expr_poly.c), which expr_make.c simplifies and
 * expr_ask.c, expr_print.c and expr_translate.c read.
 *
 * An entry is an atom (a symbol, or floordiv/mod/min/max of two dimensions) or a polynomial over atoms.
 * The order of factors and terms is structural and never depends on entry numbers. It decides how an expression
 * is printed, and two texts that make the same expressions in another order must print the same.
 */
#include "graphs/expr.h"

#define POLY_MAX_TERMS   32
#define POLY_MAX_DEGREE  12
#define EXPR_MAX_SYMBOLS 32

enum expr_kind { EXPR_SYMBOL, EXPR_FLOORDIV, EXPR_MOD, EXPR_MIN, EXPR_MAX, EXPR_POLY };

struct term {
    int64_t coef;
    uint32_t degree;
    uint32_t atoms[POLY_MAX_DEGREE]; /* entry numbers, in structural order, repeated for powers */
};

/* Terms are in descending graded lexical order; no coefficient is 0. Exact division needs such an admissible order. */
struct poly {
    uint32_t n;
    struct term t[POLY_MAX_TERMS];
};

struct expr_entry {
    uint8_t kind;
    uint8_t depth;
    uint32_t symbols;    /* bit per symbol */
    uint32_t cost;       /* atoms visited by a plain recursive evaluation */
    uint32_t symbol;     /* SYMBOL */
    ngd_dim_t a, b;      /* FLOORDIV, MOD, MIN, MAX */
    uint32_t first_term; /* POLY: terms in the table's pool */
    uint32_t n_terms;
    int64_t min, max;
};

struct expr_term { /* a stored term; its atoms are in the table's pool of atoms */
    int64_t coef;
    uint32_t degree;
    uint32_t first_atom;
};

struct ngd_expr_table {
    struct expr_entry *entries;
    struct expr_term *terms;
    uint32_t *atoms;
    uint32_t n_entries, cap_entries, n_terms, cap_terms, n_atoms, cap_atoms;
    uint32_t *slots; /* open addressing, entry number + 1 */
    uint32_t n_slots;
    uint64_t seed; /* of hashes; random, so that nobody can write a text whose expressions collide */
    uint32_t n_symbols;
    char *names[EXPR_MAX_SYMBOLS];
};

#define DIM_OF(index) (INT64_MIN + (int64_t)(index))
#define INDEX_OF(dim) ((uint32_t)((dim)-INT64_MIN))

uint64_t ngd_expr_seed(const struct ngd_expr_table *table); /* seed for the graph's other hash tables */
int ngd_expr_compare(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b);
/* Gives the dimension of a polynomial: a constant, an atom, or the entry that holds it. Makes the entry if needed. */
ngd_status_t ngd_expr_intern_poly(struct ngd_expr_table *table, const struct poly *p, ngd_dim_t *dim_p);
/* Gives the dimension of floordiv, mod, min or max of two dimensions, without simplifying. */
ngd_status_t ngd_expr_intern_atom(struct ngd_expr_table *table, uint8_t kind, ngd_dim_t a, ngd_dim_t b,
                                  ngd_dim_t *dim_p);

/* Returns true if dim is a constant, or an expression of this table. */
static inline bool ngd_expr_has(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    return ngd_dim_is_const(dim) || INDEX_OF(dim) < table->n_entries;
}

/* Polynomials. Functions with a status return NGD_ERR_OVERFLOW or NGD_ERR_GRAPH_TOO_LARGE if they cannot compute. */
void ngd_poly_of(const struct ngd_expr_table *table, ngd_dim_t dim, struct poly *p);
ngd_status_t ngd_poly_add_term(const struct ngd_expr_table *table, struct poly *p, int64_t coef, const uint32_t *atoms,
                               uint32_t degree);
/* p += scale * q */
ngd_status_t ngd_poly_add(const struct ngd_expr_table *table, struct poly *p, int64_t scale, const struct poly *q);
/* p += scale * atoms * q, the atoms in structural order */
ngd_status_t ngd_poly_add_product(const struct ngd_expr_table *table, struct poly *p, int64_t scale,
                                  const uint32_t *atoms, uint32_t degree, const struct poly *q);
/* Divides exactly; destroys num. Returns false if den does not divide num, or the quotient cannot be represented. */
bool ngd_poly_divide(const struct ngd_expr_table *table, struct poly *num, const struct poly *den, struct poly *quo);
ngd_status_t ngd_poly_bounds(const struct ngd_expr_table *table, const struct poly *p, int64_t *min_p, int64_t *max_p);

static inline bool ngd_poly_is_const(const struct poly *p)
{
    return p->n == 0 || (p->n == 1 && p->t[0].degree == 0);
}
static inline int64_t ngd_poly_const(const struct poly *p)
{
    return p->n ? p->t[p->n - 1].degree ? 0 : p->t[p->n - 1].coef : 0;
}

static inline int64_t ngd_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ngd_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t ngd_floor_div(int64_t a, int64_t b) /* b > 0 */
{
    return a / b - (a % b < 0);
}

/* Returns a - floor_div(a, b)*b, also where that product overflows. */
static inline int64_t ngd_floor_mod(int64_t a, int64_t b) /* b > 0 */
{
    return a % b < 0 ? a % b + b : a % b;
}

#endif
