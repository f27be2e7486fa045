/* SPDX-License-Identifier: Apache-2.0 */
/* Prints expressions: "T*8 + 1". */
#include "graphs/expr_int.h"

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

/* Prints a term without its sign: "B*T*8". */
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
    if (!ngd_expr_has(table, dim)) {
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
