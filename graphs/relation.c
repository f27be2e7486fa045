/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/relation.h"
#include "graphs/expr_int.h"
#include <string.h>

static const struct {
    const char *text;
    ngd_relation_op_t mirrored;
} ops[] = {
#define NGD_RELATION(ID, text, mirrored) [NGD_RELATION_##ID] = {text, NGD_RELATION_##mirrored},
#include "graphs/relations.def"
#undef NGD_RELATION
};

const char *ngd_relation_text(ngd_relation_op_t op)
{
    return ops[op].text;
}

bool ngd_relation_parse(const char *text, size_t n, ngd_relation_op_t *op_p)
{
    for (int i = 0; i < NGD_RELATION_MAX; i++) {
        if (strlen(ops[i].text) == n && memcmp(ops[i].text, text, n) == 0) {
            *op_p = (ngd_relation_op_t)i;
            return true;
        }
    }
    return false;
}

bool ngd_relation_holds(ngd_relation_op_t op, int64_t left, int64_t right)
{
    switch (op) {
    case NGD_RELATION_EQ:
        return left == right;
    case NGD_RELATION_NE:
        return left != right;
    case NGD_RELATION_LT:
        return left < right;
    case NGD_RELATION_LE:
        return left <= right;
    case NGD_RELATION_GT:
        return left > right;
    case NGD_RELATION_GE:
        return left >= right;
    case NGD_RELATION_MAX:
        break;
    }
    return false;
}

/* ---- the canonical form ------------------------------------------------------------------------------- */

static bool stands_right(const struct ngd_expr_table *table, const struct ngd_relation *r)
{
    if (ngd_dim_is_const(r->left) != ngd_dim_is_const(r->right))
        return ngd_dim_is_const(r->right);
    if (ops[r->op].mirrored == r->op)
        return ngd_expr_compare(table, r->left, r->right) <= 0;
    return r->op == NGD_RELATION_LT || r->op == NGD_RELATION_LE;
}

void ngd_relation_canonicalise(const struct ngd_expr_table *table, struct ngd_relation *r)
{
    if (!stands_right(table, r))
        *r = (struct ngd_relation){.left = r->right, .right = r->left, .op = ops[r->op].mirrored};
}

int ngd_relation_compare(const struct ngd_expr_table *table, const struct ngd_relation *a, const struct ngd_relation *b)
{
    int c = ngd_expr_compare(table, a->left, b->left);

    if (c == 0)
        c = ngd_expr_compare(table, a->right, b->right);
    return c ? c : (int)a->op - (int)b->op;
}

void ngd_relation_print(const struct ngd_expr_table *table, const struct ngd_relation *r, struct ngd_strbuf *sb)
{
    ngd_expr_print(table, r->left, sb);
    ngd_strbuf_printf(sb, " %s ", ops[r->op].text);
    ngd_expr_print(table, r->right, sb);
}

/* ---- decisions by ranges ------------------------------------------------------------------------------ */

static bool always_less(struct ngd_expr_table *table, ngd_dim_t a, ngd_dim_t b)
{
    ngd_dim_t next;

    return ngd_expr_make(table, NGD_EXPR_ADD, a, 1, &next) == NGD_OK && ngd_expr_always_le(table, next, b);
}

static ngd_relation_truth_t relation_truth(bool always, bool never)
{
    return always ? NGD_RELATION_ALWAYS : never ? NGD_RELATION_NEVER : NGD_RELATION_SOMETIMES;
}

ngd_relation_truth_t ngd_relation_decide(struct ngd_expr_table *table, const struct ngd_relation *r)
{
    bool le = ngd_expr_always_le(table, r->left, r->right), ge = ngd_expr_always_le(table, r->right, r->left),
         lt = always_less(table, r->left, r->right), gt = always_less(table, r->right, r->left);

    switch (r->op) {
    case NGD_RELATION_EQ:
        return relation_truth(le && ge, lt || gt);
    case NGD_RELATION_NE:
        return relation_truth(lt || gt, le && ge);
    case NGD_RELATION_LT:
        return relation_truth(lt, ge);
    case NGD_RELATION_LE:
        return relation_truth(le, gt);
    case NGD_RELATION_GT:
        return relation_truth(gt, le);
    case NGD_RELATION_GE:
        return relation_truth(ge, lt);
    case NGD_RELATION_MAX:
        break;
    }
    return NGD_RELATION_SOMETIMES;
}
