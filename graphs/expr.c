/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dimension expressions: the table of entries, hash-consing, simplification, evaluation and printing.
 *
 * Every expression is a polynomial over atoms in canonical form (expr_poly.c); an atom is a symbol, or
 * floordiv, mod, min or max of two canonical dimensions. Equal expressions get the same entry because the
 * parts of an entry are themselves canonical, so comparing entries is comparing their words.
 *
 * Evaluation is plain recursion: depth is bounded by NGD_EXPR_MAX_DEPTH, and because atoms may share
 * operands (a chain of them would be walked exponentially often), the number of visits is part of an entry
 * (cost) and bounded too.
 */
#include "graphs/expr_int.h"
#include "base/digest.h"
#include "base/mem.h"
#include <string.h>
#include <unistd.h>

#define MAX_COST  4096
#define MAX_TERMS (1u << 20) /* stored terms of all polynomials together */

ngd_status_t ngd_expr_table_create(struct ngd_expr_table **table_p)
{
    struct ngd_expr_table *table = NGD_NEW(struct ngd_expr_table);

    if (!table)
        return NGD_ERR_NO_MEMORY;
    if (getentropy(&table->seed, sizeof(table->seed)))
        table->seed = (uintptr_t)table; /* ASLR's randomness */
    *table_p = table;
    return NGD_OK;
}

uint64_t ngd_expr_seed(const struct ngd_expr_table *table)
{
    return table->seed;
}

void ngd_expr_table_destroy(struct ngd_expr_table *table)
{
    if (!table)
        return;
    for (uint32_t i = 0; i < table->n_symbols; i++)
        ngd_free(table->names[i]);
    ngd_free(table->entries);
    ngd_free(table->terms);
    ngd_free(table->atoms);
    ngd_free(table->slots);
    ngd_free(table);
}

/* ---- structural order ---- */

static int compare_int(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_stored_terms(const struct ngd_expr_table *table, const struct expr_term *a,
                                const struct expr_term *b)
{
    int c = compare_int(b->degree, a->degree);

    for (uint32_t i = 0; c == 0 && i < a->degree; i++)
        c = ngd_expr_compare(table, DIM_OF(table->atoms[a->first_atom + i]), DIM_OF(table->atoms[b->first_atom + i]));
    return c ? c : compare_int(a->coef, b->coef);
}

/* Recurses into the first difference only, so it is linear in the depth. */
int ngd_expr_compare(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b)
{
    const struct expr_entry *x, *y;
    int c;

    if (a == b)
        return 0;
    if (ngd_dim_is_const(a) || ngd_dim_is_const(b)) /* constants last */
        return ngd_dim_is_const(a) && ngd_dim_is_const(b) ? compare_int(a, b) : ngd_dim_is_const(a) ? 1 : -1;
    x = &table->entries[INDEX_OF(a)];
    y = &table->entries[INDEX_OF(b)];
    if (x->kind != y->kind)
        return compare_int(x->kind, y->kind);
    if (x->kind == EXPR_SYMBOL)
        return compare_int(x->symbol, y->symbol);
    if (x->kind != EXPR_POLY) {
        c = ngd_expr_compare(table, x->a, y->a);
        return c ? c : ngd_expr_compare(table, x->b, y->b);
    }
    for (uint32_t i = 0; i < x->n_terms && i < y->n_terms; i++) {
        c = compare_stored_terms(table, &table->terms[x->first_term + i], &table->terms[y->first_term + i]);
        if (c)
            return c;
    }
    return compare_int(x->n_terms, y->n_terms);
}

/* ---- storage ---- */

static uint64_t hash_poly(const struct ngd_expr_table *table, const struct poly *p)
{
    uint64_t h = table->seed + EXPR_POLY;

    for (uint32_t i = 0; i < p->n; i++) {
        h = ngd_hash64(&p->t[i].coef, sizeof(p->t[i].coef), h);
        h = ngd_hash64(p->t[i].atoms, p->t[i].degree * sizeof(uint32_t), h);
    }
    return h;
}

static uint64_t hash_atom(const struct ngd_expr_table *table, uint8_t kind, ngd_dim_t a, ngd_dim_t b)
{
    ngd_dim_t words[2] = {a, b};

    return ngd_hash64(words, sizeof(words), table->seed + kind);
}

static bool same_poly(const struct ngd_expr_table *table, const struct expr_entry *e, const struct poly *p)
{
    if (e->kind != EXPR_POLY || e->n_terms != p->n)
        return false;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct expr_term *t = &table->terms[e->first_term + i];

        if (t->coef != p->t[i].coef || t->degree != p->t[i].degree ||
            (t->degree && memcmp(&table->atoms[t->first_atom], p->t[i].atoms, t->degree * sizeof(uint32_t)) != 0))
            return false;
    }
    return true;
}

static uint64_t hash_entry(const struct ngd_expr_table *table, const struct expr_entry *e)
{
    struct poly p;

    if (e->kind == EXPR_SYMBOL)
        return hash_atom(table, e->kind, e->symbol, 0);
    if (e->kind != EXPR_POLY)
        return hash_atom(table, e->kind, e->a, e->b);
    ngd_poly_of(table, DIM_OF(e - table->entries), &p);
    return hash_poly(table, &p);
}

static ngd_status_t grow_slots(struct ngd_expr_table *table)
{
    uint32_t n = table->n_slots ? table->n_slots * 2 : 64;
    uint32_t *slots;

    if (table->n_slots && table->n_entries * 2 < table->n_slots)
        return NGD_OK;
    slots = NGD_NEW_N(uint32_t, n);
    if (!slots)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        uint32_t at = (uint32_t)hash_entry(table, &table->entries[i]) & (n - 1);

        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = i + 1;
    }
    ngd_free(table->slots);
    table->slots = slots;
    table->n_slots = n;
    return NGD_OK;
}

/* Makes room for extra more elements of an array that doubles. */
static ngd_status_t grow_array(void **array, uint32_t n, uint32_t *cap, uint32_t extra, size_t size)
{
    uint32_t want = *cap ? *cap : 16;
    void *p;

    if (n + extra <= *cap)
        return NGD_OK;
    while (want < n + extra)
        want *= 2;
    p = ngd_reallocarray(*array, want, size);
    if (!p)
        return NGD_ERR_NO_MEMORY;
    *array = p;
    *cap = want;
    return NGD_OK;
}

static ngd_status_t reserve_entry(struct ngd_expr_table *table)
{
    ngd_status_t status;

    if (table->n_entries >= NGD_EXPR_MAX_COUNT)
        return NGD_ERR_GRAPH_TOO_LARGE;
    status = grow_array((void **)&table->entries, table->n_entries, &table->cap_entries, 1, sizeof(table->entries[0]));
    return status ? status : grow_slots(table);
}

/* Appends a complete entry at a free slot. */
static ngd_dim_t put_entry(struct ngd_expr_table *table, const struct expr_entry *e, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & (table->n_slots - 1);

    while (table->slots[at])
        at = (at + 1) & (table->n_slots - 1);
    table->entries[table->n_entries] = *e;
    table->slots[at] = ++table->n_entries;
    return DIM_OF(table->n_entries - 1);
}

/* Adds what using dim means to e: its symbols, depth and cost. */
static void note_use(const struct ngd_expr_table *table, struct expr_entry *e, ngd_dim_t dim)
{
    const struct expr_entry *used;

    if (ngd_dim_is_const(dim))
        return;
    used = &table->entries[INDEX_OF(dim)];
    e->symbols |= used->symbols;
    e->cost += used->cost;
    if (e->depth < used->depth)
        e->depth = used->depth;
}

static ngd_status_t check_limits(const struct expr_entry *e)
{
    return e->cost > MAX_COST || e->depth > NGD_EXPR_MAX_DEPTH ? NGD_ERR_GRAPH_TOO_LARGE : NGD_OK;
}

static ngd_status_t store_poly(struct ngd_expr_table *table, const struct poly *p, struct expr_entry *e)
{
    uint32_t n_atoms = 0;
    ngd_status_t status;

    for (uint32_t i = 0; i < p->n; i++)
        n_atoms += p->t[i].degree;
    if (table->n_terms + p->n > MAX_TERMS)
        return NGD_ERR_GRAPH_TOO_LARGE;
    status = grow_array((void **)&table->terms, table->n_terms, &table->cap_terms, p->n, sizeof(table->terms[0]));
    if (!status)
        status =
            grow_array((void **)&table->atoms, table->n_atoms, &table->cap_atoms, n_atoms, sizeof(table->atoms[0]));
    if (status)
        return status;
    e->first_term = table->n_terms;
    e->n_terms = p->n;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct term *t = &p->t[i];

        table->terms[table->n_terms++] = (struct expr_term){t->coef, t->degree, table->n_atoms};
        if (t->degree) /* the constant has no atoms, and the pool may be empty */
            memcpy(&table->atoms[table->n_atoms], t->atoms, t->degree * sizeof(uint32_t));
        table->n_atoms += t->degree;
    }
    return NGD_OK;
}

/* The dimension of a polynomial: a constant, an atom, or the entry that holds it. */
static ngd_status_t intern_poly(struct ngd_expr_table *table, const struct poly *p, ngd_dim_t *dim_p)
{
    struct expr_entry e = {.kind = EXPR_POLY, .cost = 1};
    uint64_t hash = hash_poly(table, p);
    ngd_status_t status;

    for (uint32_t i = 0; i < p->n; i++) /* a coefficient is a dimension wherever an expression is made again */
        if (!ngd_dim_is_const(p->t[i].coef))
            return NGD_ERR_OVERFLOW;
    if (ngd_poly_is_const(p)) {
        *dim_p = p->n ? p->t[0].coef : 0;
        return NGD_OK;
    }
    if (p->n == 1 && p->t[0].degree == 1 && p->t[0].coef == 1) {
        *dim_p = DIM_OF(p->t[0].atoms[0]);
        return NGD_OK;
    }
    for (uint32_t at = (uint32_t)hash & (table->n_slots - 1); table->slots[at]; at = (at + 1) & (table->n_slots - 1)) {
        if (same_poly(table, &table->entries[table->slots[at] - 1], p)) {
            *dim_p = DIM_OF(table->slots[at] - 1);
            return NGD_OK;
        }
    }
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->t[i].degree; k++)
            note_use(table, &e, DIM_OF(p->t[i].atoms[k]));
    status = check_limits(&e);
    if (!status)
        status = ngd_poly_bounds(table, p, &e.min, &e.max);
    if (!status)
        status = reserve_entry(table);
    if (!status)
        status = store_poly(table, p, &e);
    if (status)
        return status;
    *dim_p = put_entry(table, &e, hash);
    return NGD_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bounds of an atom from those of its operands; a divisor is at least 1. */
static void atom_bounds(const struct ngd_expr_table *table, struct expr_entry *e)
{
    int64_t alo = 0, ahi = 0, blo = 1, bhi = 1;

    (void)ngd_expr_bounds(table, e->a, &alo, &ahi);
    (void)ngd_expr_bounds(table, e->b, &blo, &bhi);
    switch (e->kind) {
    case EXPR_FLOORDIV:
        e->min = smaller(ngd_floor_div(alo, blo), ngd_floor_div(alo, bhi));
        e->max = larger(ngd_floor_div(ahi, blo), ngd_floor_div(ahi, bhi));
        break;
    case EXPR_MOD:
        e->min = 0;
        e->max = alo >= 0 ? smaller(ahi, bhi - 1) : bhi - 1;
        break;
    case EXPR_MIN:
        e->min = smaller(alo, blo);
        e->max = smaller(ahi, bhi);
        break;
    default:
        e->min = larger(alo, blo);
        e->max = larger(ahi, bhi);
        break;
    }
}

static ngd_status_t intern_atom(struct ngd_expr_table *table, uint8_t kind, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    struct expr_entry e = {.kind = kind, .cost = 1, .a = a, .b = b};
    uint64_t hash = hash_atom(table, kind, a, b);
    ngd_status_t status;

    for (uint32_t at = (uint32_t)hash & (table->n_slots - 1); table->slots[at]; at = (at + 1) & (table->n_slots - 1)) {
        const struct expr_entry *old = &table->entries[table->slots[at] - 1];

        if (old->kind == kind && old->a == a && old->b == b) {
            *dim_p = DIM_OF(table->slots[at] - 1);
            return NGD_OK;
        }
    }
    note_use(table, &e, a);
    note_use(table, &e, b);
    e.depth++;
    status = check_limits(&e);
    if (!status)
        status = reserve_entry(table);
    if (status)
        return status;
    atom_bounds(table, &e);
    *dim_p = put_entry(table, &e, hash);
    return NGD_OK;
}

ngd_status_t ngd_expr_declare(struct ngd_expr_table *table, const char *name, int64_t min, int64_t max,
                              ngd_dim_t *dim_p)
{
    struct expr_entry e = {.kind = EXPR_SYMBOL, .cost = 1, .depth = 1, .min = min, .max = max};
    ngd_status_t status;
    char *copy;

    if (min < 0 || max < min)
        return NGD_ERR_GRAPH_SYMBOL;
    if (table->n_symbols >= EXPR_MAX_SYMBOLS)
        return NGD_ERR_GRAPH_TOO_LARGE;
    status = reserve_entry(table);
    if (status)
        return status;
    copy = ngd_strdup(name);
    if (!copy)
        return NGD_ERR_NO_MEMORY;
    e.symbol = table->n_symbols;
    e.symbols = 1u << e.symbol;
    table->names[table->n_symbols++] = copy;
    *dim_p = put_entry(table, &e, hash_atom(table, e.kind, e.symbol, 0));
    return NGD_OK;
}

ngd_status_t ngd_expr_widen(struct ngd_expr_table *table, uint32_t symbol, int64_t max)
{
    if (symbol >= table->n_symbols)
        return NGD_ERR_GRAPH_SYMBOL;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        struct expr_entry *e = &table->entries[i];

        if (e->kind == EXPR_SYMBOL && e->symbol == symbol)
            e->max = larger(e->max, max);
        else if (e->symbols >> symbol & 1) /* bounds of expressions are computed once */
            return NGD_ERR_BUSY;
    }
    return NGD_OK;
}

/* ---- simplification ---- */

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
 * p = q*c + r; p becomes r. q may be NULL (for mod): then all coefficients of r are in 0..c-1. With q (for floordiv)
 * only the constant is; the others are divided towards 0, because A - B floordiv 2 has better bounds as it is than as
 * (A + B) floordiv 2 - B.
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
 * Divides r's coefficients and *c by what all non-constant coefficients and *c share (g), the constant rounding
 * down: floor((g*x + k)/(g*c)) = floor((x + floor(k/g))/c), and likewise for mod. Returns g and the rest k mod g.
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

/* The lone atom that r is, when it is one of that kind with a constant second operand; else NULL. */
static const struct expr_entry *lone_atom(const struct ngd_expr_table *table, const struct poly *r, uint8_t kind)
{
    const struct expr_entry *e;

    if (r->n != 1 || r->t[0].degree != 1 || r->t[0].coef != 1)
        return NULL;
    e = &table->entries[r->t[0].atoms[0]];
    return e->kind == kind && ngd_dim_is_const(e->b) ? e : NULL;
}

static ngd_status_t floordiv_const(struct ngd_expr_table *table, struct poly *p, int64_t c, ngd_dim_t *dim_p);

/* The atom of a reduced p over c that no bounds decide. */
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
    status = intern_poly(table, p, &dim);
    return status ? status : intern_atom(table, EXPR_FLOORDIV, dim, c, dim_p);
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
    return intern_poly(table, &q, dim_p);
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
    status = intern_poly(table, p, &dim);
    return status ? status : intern_atom(table, EXPR_MOD, dim, c, dim_p);
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
        return intern_poly(table, p, dim_p);
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
    return status ? status : intern_poly(table, &sum, dim_p);
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
    return intern_atom(table, mod ? EXPR_MOD : EXPR_FLOORDIV, a, b, dim_p);
}

/* True if dim is an atom of that kind with x as an operand: min(min(x, y), x) = min(x, y). */
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
    return intern_atom(table, kind, a, b, dim_p);
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
    return status ? status : intern_poly(table, &p, dim_p);
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
    return status ? status : intern_poly(table, &product, dim_p);
}

static bool is_dim(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    return ngd_dim_is_const(dim) || INDEX_OF(dim) < table->n_entries;
}

ngd_status_t ngd_expr_make(struct ngd_expr_table *table, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (!is_dim(table, a) || !is_dim(table, b))
        return NGD_ERR_INVALID_ARGUMENT;
    status = grow_slots(table); /* the searches need one */
    if (status)
        return status;
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

    status = grow_slots(table);
    if (status)
        return status;
    ngd_poly_of(table, a, &num);
    ngd_poly_of(table, b, &den);
    *exact_p = false;
    if (!ngd_poly_divide(table, &num, &den, &quo))
        return NGD_OK;
    status = intern_poly(table, &quo, dim_p);
    *exact_p = !status;
    return status;
}

/* ---- questions ---- */

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
        *value_p = smaller(a, b);
    else if (e->kind == EXPR_MAX)
        *value_p = larger(a, b);
    else if (b < 1) /* only for symbol values outside their ranges */
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
    if (!is_dim(table, dim))
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
    if (!ngd_dim_is_const(dim) && !is_dim(table, dim))
        return NGD_ERR_INVALID_ARGUMENT;
    *min_p = ngd_dim_is_const(dim) ? dim : table->entries[INDEX_OF(dim)].min;
    *max_p = ngd_dim_is_const(dim) ? dim : table->entries[INDEX_OF(dim)].max;
    return NGD_OK;
}

/* The atom that dim is, of one of the kinds min, max, floordiv, mod; else NULL. */
static const struct expr_entry *function_of(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    const struct expr_entry *e = ngd_dim_is_const(dim) ? NULL : &table->entries[INDEX_OF(dim)];

    return e && e->kind != EXPR_SYMBOL && e->kind != EXPR_POLY ? e : NULL;
}

/* depth bounds the search through nested atoms, which forks at min and max. */
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
    x = function_of(table, a);
    y = function_of(table, b);
    if (x && x->kind == EXPR_MIN && (always_le(table, x->a, b, depth - 1) || always_le(table, x->b, b, depth - 1)))
        return true;
    if (y && y->kind == EXPR_MAX && (always_le(table, a, y->a, depth - 1) || always_le(table, a, y->b, depth - 1)))
        return true;
    if (!x || (x->kind != EXPR_FLOORDIV && x->kind != EXPR_MOD))
        return false;
    /* x floordiv d and x mod d are at most x when that is not negative */
    return !ngd_expr_bounds(table, x->a, &lo, &hi) && lo >= 0 && always_le(table, x->a, b, depth - 1);
}

bool ngd_expr_always_le(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b)
{
    return is_dim(table, a) && is_dim(table, b) && always_le(table, a, b, 3);
}

bool ngd_expr_is_multiple(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t *symbol_p, int64_t *mult_p)
{
    const struct expr_entry *e, *atom;
    int64_t coef = 1;

    if (ngd_dim_is_const(dim) || !is_dim(table, dim))
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
    return ngd_dim_is_const(dim) || !is_dim(table, dim) ? 0 : table->entries[INDEX_OF(dim)].symbols;
}

uint32_t ngd_expr_cost(const struct ngd_expr_table *table, ngd_dim_t dim)
{
    return ngd_dim_is_const(dim) || !is_dim(table, dim) ? 1 : table->entries[INDEX_OF(dim)].cost;
}

bool ngd_expr_uses(const struct ngd_expr_table *table, ngd_dim_t dim, uint32_t symbol)
{
    return symbol < EXPR_MAX_SYMBOLS && (ngd_expr_symbols(table, dim) >> symbol & 1);
}

/* ---- text ---- */

static void print_atom(const struct ngd_expr_table *table, const struct expr_entry *e, struct ngd_strbuf *sb)
{
    static const char *const functions[] = {
        [EXPR_FLOORDIV] = "floordiv", [EXPR_MOD] = "mod", [EXPR_MIN] = "min", [EXPR_MAX] = "max"};

    if (e->kind == EXPR_SYMBOL) {
        ngd_strbuf_append(sb, table->names[e->symbol]);
        return;
    }
    ngd_strbuf_append(sb, functions[e->kind]);
    ngd_strbuf_putc(sb, '(');
    ngd_expr_print(table, e->a, sb);
    ngd_strbuf_append(sb, ", ");
    ngd_expr_print(table, e->b, sb);
    ngd_strbuf_putc(sb, ')');
}

/* "B*T*8", without the sign. */
static void print_term(const struct ngd_expr_table *table, const struct expr_term *t, struct ngd_strbuf *sb)
{
    int64_t size = t->coef < 0 ? -t->coef : t->coef;

    for (uint32_t k = 0; k < t->degree; k++) {
        if (k)
            ngd_strbuf_putc(sb, '*');
        print_atom(table, &table->entries[table->atoms[t->first_atom + k]], sb);
    }
    if (t->degree == 0)
        ngd_strbuf_printf(sb, "%lld", (long long)size);
    else if (size != 1)
        ngd_strbuf_printf(sb, "*%lld", (long long)size);
}

void ngd_expr_print(const struct ngd_expr_table *table, ngd_dim_t dim, struct ngd_strbuf *sb)
{
    const struct expr_entry *e;

    if (ngd_dim_is_const(dim)) {
        ngd_strbuf_printf(sb, "%lld", (long long)dim);
        return;
    }
    if (!is_dim(table, dim)) {
        ngd_strbuf_append(sb, "?");
        return;
    }
    e = &table->entries[INDEX_OF(dim)];
    if (e->kind != EXPR_POLY) {
        print_atom(table, e, sb);
        return;
    }
    for (uint32_t i = 0; i < e->n_terms; i++) {
        const struct expr_term *t = &table->terms[e->first_term + i];

        if (i)
            ngd_strbuf_append(sb, t->coef < 0 ? " - " : " + ");
        else if (t->coef < 0)
            ngd_strbuf_putc(sb, '-');
        print_term(table, t, sb);
    }
}
