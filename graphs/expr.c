/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dimension expressions: the table of entries, their order, and hash-consing.
 *
 * Every expression is a polynomial over atoms in canonical form (expr_poly.c); an atom is a symbol, or
 * floordiv, mod, min or max of two canonical dimensions. Equal expressions get the same entry: the parts of
 * an entry are canonical, so two entries are equal if their words are.
 *
 * Evaluation is plain recursion, so NGD_EXPR_MAX_DEPTH bounds the depth. Atoms may share operands, so a
 * chain of them could be walked exponentially often. Therefore an entry also has the number of visits that
 * its evaluation takes (cost), which is bounded too.
 */
#include "graphs/expr_int.h"
#include "base/digest.h"
#include "base/mem.h"
#include <string.h>
#include <unistd.h>

#define MAX_COST  4096
#define MAX_TERMS (1u << 20) /* stored terms of all polynomials together */

/* ---- structural order ---- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_stored_terms(const struct ngd_expr_table *table, const struct expr_term *a,
                                const struct expr_term *b)
{
    int c = compare_numbers(b->degree, a->degree);

    for (uint32_t i = 0; c == 0 && i < a->degree; i++)
        c = ngd_expr_compare(table, DIM_OF(table->atoms[a->first_atom + i]), DIM_OF(table->atoms[b->first_atom + i]));
    return c ? c : compare_numbers(a->coef, b->coef);
}

/* Compares structurally. Recurses only into the first difference, so it takes time linear in the depth. */
int ngd_expr_compare(const struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b)
{
    const struct expr_entry *x, *y;
    int c;

    if (a == b)
        return 0;
    if (ngd_dim_is_const(a) || ngd_dim_is_const(b)) /* constants come last */
        return ngd_dim_is_const(a) && ngd_dim_is_const(b) ? compare_numbers(a, b) : ngd_dim_is_const(a) ? 1 : -1;
    x = &table->entries[INDEX_OF(a)];
    y = &table->entries[INDEX_OF(b)];
    if (x->kind != y->kind)
        return compare_numbers(x->kind, y->kind);
    if (x->kind == EXPR_SYMBOL)
        return compare_numbers(x->symbol, y->symbol);
    if (x->kind != EXPR_POLY) {
        c = ngd_expr_compare(table, x->a, y->a);
        return c ? c : ngd_expr_compare(table, x->b, y->b);
    }
    for (uint32_t i = 0; i < x->n_terms && i < y->n_terms; i++) {
        c = compare_stored_terms(table, &table->terms[x->first_term + i], &table->terms[y->first_term + i]);
        if (c)
            return c;
    }
    return compare_numbers(x->n_terms, y->n_terms);
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

/* Makes room for `extra` more elements by doubling the array. */
static ngd_status_t grow_array(void **array, uint32_t n, uint32_t *cap, uint32_t extra, size_t size)
{
    uint32_t want = *cap ? *cap : 16;
    void *p;

    if (n + extra <= *cap) {
        ngd_move_array(array, *cap * size);
        return NGD_OK;
    }
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
static ngd_dim_t put_expr_entry(struct ngd_expr_table *table, const struct expr_entry *e, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & (table->n_slots - 1);

    while (table->slots[at])
        at = (at + 1) & (table->n_slots - 1);
    table->entries[table->n_entries] = *e;
    table->slots[at] = ++table->n_entries;
    return DIM_OF(table->n_entries - 1);
}

/* Adds the symbols, depth and cost of dim, which e uses, to those of e. */
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

static ngd_status_t check_expr_limits(const struct expr_entry *e)
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

ngd_status_t ngd_expr_intern_poly(struct ngd_expr_table *table, const struct poly *p, ngd_dim_t *dim_p)
{
    struct expr_entry e = {.kind = EXPR_POLY, .cost = 1};
    uint64_t hash = hash_poly(table, p);
    ngd_status_t status;

    for (uint32_t i = 0; i < p->n; i++) /* rebuilding an expression makes a dimension of each coefficient */
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
    status = check_expr_limits(&e);
    if (!status)
        status = ngd_poly_bounds(table, p, &e.min, &e.max);
    if (!status)
        status = reserve_entry(table);
    if (!status)
        status = store_poly(table, p, &e);
    if (status)
        return status;
    *dim_p = put_expr_entry(table, &e, hash);
    return NGD_OK;
}

/* Sets the bounds of an atom from those of its operands. A divisor is at least 1. */
static void atom_bounds(const struct ngd_expr_table *table, struct expr_entry *e)
{
    int64_t alo = 0, ahi = 0, blo = 1, bhi = 1;

    (void)ngd_expr_bounds(table, e->a, &alo, &ahi);
    (void)ngd_expr_bounds(table, e->b, &blo, &bhi);
    switch (e->kind) {
    case EXPR_FLOORDIV:
        e->min = ngd_smaller(ngd_floor_div(alo, blo), ngd_floor_div(alo, bhi));
        e->max = ngd_larger(ngd_floor_div(ahi, blo), ngd_floor_div(ahi, bhi));
        break;
    case EXPR_MOD:
        e->min = 0;
        e->max = alo >= 0 ? ngd_smaller(ahi, bhi - 1) : bhi - 1;
        break;
    case EXPR_MIN:
        e->min = ngd_smaller(alo, blo);
        e->max = ngd_smaller(ahi, bhi);
        break;
    default:
        e->min = ngd_larger(alo, blo);
        e->max = ngd_larger(ahi, bhi);
        break;
    }
}

ngd_status_t ngd_expr_intern_atom(struct ngd_expr_table *table, uint8_t kind, ngd_dim_t a, ngd_dim_t b,
                                  ngd_dim_t *dim_p)
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
    status = check_expr_limits(&e);
    if (!status)
        status = reserve_entry(table);
    if (status)
        return status;
    atom_bounds(table, &e);
    *dim_p = put_expr_entry(table, &e, hash);
    return NGD_OK;
}

/* ---- the table ---- */

ngd_status_t ngd_expr_table_create(struct ngd_expr_table **table_p)
{
    struct ngd_expr_table *table = NGD_NEW(struct ngd_expr_table);

    if (!table || grow_slots(table)) { /* a search needs at least one slot */
        ngd_free(table);
        return NGD_ERR_NO_MEMORY;
    }
    if (getentropy(&table->seed, sizeof(table->seed)))
        table->seed = (uintptr_t)table; /* random because of ASLR */
    *table_p = table;
    return NGD_OK;
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

uint64_t ngd_expr_seed(const struct ngd_expr_table *table)
{
    return table->seed;
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
    *dim_p = put_expr_entry(table, &e, hash_atom(table, e.kind, e.symbol, 0));
    return NGD_OK;
}

ngd_status_t ngd_expr_widen(struct ngd_expr_table *table, uint32_t symbol, int64_t max)
{
    if (symbol >= table->n_symbols)
        return NGD_ERR_GRAPH_SYMBOL;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        struct expr_entry *e = &table->entries[i];

        if (e->kind == EXPR_SYMBOL && e->symbol == symbol)
            e->max = ngd_larger(e->max, max);
        else if (e->symbols >> symbol & 1) /* its expressions' bounds were computed with the old range */
            return NGD_ERR_BUSY;
    }
    return NGD_OK;
}
