/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_RELATION_H
#define NGD_GRAPHS_RELATION_H

/*
 * Relations: guards of a graph that compare two expressions over its symbols ("guard mod(T, 8) == 0").
 *
 * A relation has a canonical form: a constant is on the right, two expressions are not compared by > or >=, and the
 * sides of == and != are in structural order.
 * Threads: the functions are pure, except that some change the table that they are given.
 */
#include "graphs/expr.h"

typedef enum ngd_relation_op {
#define NGD_RELATION(ID, text, mirrored) NGD_RELATION_##ID,
#include "graphs/relations.def"
#undef NGD_RELATION
    NGD_RELATION_MAX
} ngd_relation_op_t;

struct ngd_relation {
    ngd_dim_t left, right; /* expressions of the graph's table */
    ngd_relation_op_t op;
};

/* For which values within the symbols' ranges a relation holds. */
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
/* Decides a relation by the symbols' ranges. Conservative: SOMETIMES if nothing was proved. Adds expressions to the
 * table. */
ngd_relation_truth_t ngd_relation_decide(struct ngd_expr_table *table, const struct ngd_relation *r);
void ngd_relation_print(const struct ngd_expr_table *table, const struct ngd_relation *r,
                        struct ngd_strbuf *sb); /* "mod(T, 8) == 0" */

#endif
