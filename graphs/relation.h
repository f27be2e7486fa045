/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_RELATION_H
#define NGD_GRAPHS_RELATION_H

/*
 * Relations: guards of a graph that compare two expressions over its symbols ("guard mod(T, 8) == 0").
 *
 * Canonical, so that one relation is written in one way: a constant stands on the right, between two expressions there
 * is no > or >=, and the sides of == and != are in structural order.
 * Threads: pure, but for the tables that they are given.
 */
#include "graphs/expr.h"

typedef enum ngd_relation_op {
#define NGD_RELATION(ID, text, mirrored) NGD_RELATION_##ID,
#include "graphs/relations.def"
#undef NGD_RELATION
    NGD_RELATION_MAX
} ngd_relation_op_t;

struct ngd_relation {
    ngd_dim_t left, right; /* of the graph's table */
    ngd_relation_op_t op;
};

/* What the symbols' ranges say of it. */
typedef enum ngd_relation_truth {
    NGD_RELATION_SOMETIMES,
    NGD_RELATION_ALWAYS,
    NGD_RELATION_NEVER
} ngd_relation_truth_t;

const char *ngd_relation_text(ngd_relation_op_t op); /* "<=" */
bool ngd_relation_parse(const char *text, size_t n, ngd_relation_op_t *op_p);
bool ngd_relation_holds(ngd_relation_op_t op, int64_t left, int64_t right);

void ngd_relation_canonicalise(const struct ngd_expr_table *table, struct ngd_relation *r);
int ngd_relation_compare(const struct ngd_expr_table *table, const struct ngd_relation *a,
                         const struct ngd_relation *b); /* a structural order */
/* Conservative: SOMETIMES when nothing was shown. Makes expressions in the table. */
ngd_relation_truth_t ngd_relation_decide(struct ngd_expr_table *table, const struct ngd_relation *r);
void ngd_relation_print(const struct ngd_expr_table *table, const struct ngd_relation *r,
                        struct ngd_strbuf *sb); /* "mod(T, 8) == 0" */

#endif
