/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of mixtures of experts: experts of a row, rows by expert, products with weights of experts, their sum. */
#include "graphs/experts.h"
#include "graphs/graph_int.h"
#include "graphs/op_int.h"

#define EXPERTS_MAX 65536

static ngd_status_t times(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *p,
                          struct ngd_diag *diag)
{
    const ngd_status_t status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, a, b, p);

    return status ? ngd_op_expr_fail(graph, node, diag, status, "the number of expanded rows") : NGD_OK;
}

ngd_status_t ngd_shape_moe_gating(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    int64_t k;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status && x->rank != 3)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[T,E] or [B,T,E]", diag);
    if (!status)
        status = ngd_op_const(graph, node, "k", 1, EXPERTS_MAX, &k, diag);
    if (status)
        return status;
    if (!ngd_expr_always_le(graph->exprs, k, x->dims[x->rank - 1]))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute k is %lld, but the last dimension of x %%%s may be smaller", (long long)k,
                           ngd_op_in_name(graph, node, 0));
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = k;
    status = ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 1, NGD_I32, x->rank, dims, diag);
}

bool ngd_rows_moe_gating(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_node_in(graph, node, 0)->rank - 1, why_p);
}

ngd_status_t ngd_shape_moe_init_routing(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *experts = ngd_node_in(graph, node, 1);
    ngd_dim_t pairs[2] = {0, 0};
    int64_t n;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[T,H]", diag);
    if (!status)
        status = ngd_op_takes(graph, node, 1, "expert_idx", NGD_TAKES_INDEX, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "expert_idx", 2, "[T,K]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "expert_idx", 2, (const ngd_dim_t[]){x->dims[0], experts->dims[1]},
                                 "[T,K]", diag);
    if (!status)
        status = ngd_op_const(graph, node, "expert_num", 1, EXPERTS_MAX, &n, diag);
    if (!status && (!ngd_dim_is_const(experts->dims[1]) || experts->dims[1] < 1))
        status =
            ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                        "dimension 1 of expert_idx %%%s must be a constant, 1 or more", ngd_op_in_name(graph, node, 1));
    if (!status)
        status = times(graph, node, x->dims[0], experts->dims[1], &pairs[0], diag);
    pairs[1] = x->dims[1];
    if (!status)
        status = ngd_op_result(graph, node, 0, x->dtype, 2, pairs, diag);
    if (!status)
        status = ngd_op_result(graph, node, 1, NGD_I32, 1, pairs, diag);
    return status ? status : ngd_op_result(graph, node, 2, NGD_I64, 1, (const ngd_dim_t[]){n}, diag);
}

/* Padding has no expert: the counts are of the actual rows, which fill the first of the expanded ones. */
bool ngd_rows_moe_init_routing(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                               const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

/* ---- npu.grouped_matmul ---- */

/* What the rule knows of the operands. Shapes have `lead` dimensions in front: 1 if a tensor has all groups. */
struct grouped {
    struct ngd_expert_lists lists;
    uint32_t lead;
    ngd_dim_t groups, n, k;
    struct ngd_antiquant_form form; /* of quantised weights */
};

static ngd_status_t check_lists(struct ngd_graph *graph, struct ngd_node *node, struct grouped *p,
                                struct ngd_diag *diag)
{
    uint32_t has = 0;

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        has |= ngd_op_bool(node, ngd_antiquant_names[i].name) ? NGD_ANTIQUANT_BIT(i) : 0;
    p->lists = ngd_expert_lists(node->n_in, ngd_op_bool(node, "bias"), has);
    p->form.has = has;
    if (p->lists.n == 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY,
                           "%u operands behind group_list do not make %u lists of one length",
                           node->n_in - NGD_EXPERTS_FIRST, p->lists.lists);
    if (has && !(has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_SCALE)))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "quantised weights need antiquant_scale");
    p->lead = p->lists.n == 1 && ngd_node_in(graph, node, NGD_EXPERTS_FIRST)->rank == 3;
    p->groups = p->lead ? ngd_node_in(graph, node, NGD_EXPERTS_FIRST)->dims[0] : (ngd_dim_t)p->lists.n;
    return NGD_OK;
}

/* Checks that all tensors of a list have the dtype of the first one, and this shape. */
static ngd_status_t check_expert_list(struct ngd_graph *graph, struct ngd_node *node, const struct grouped *p,
                                      uint32_t first, const char *role, uint32_t rank, const ngd_dim_t *dims,
                                      const char *form, struct ngd_diag *diag)
{
    ngd_dim_t all[4] = {p->groups};
    ngd_status_t status = NGD_OK;

    memcpy(all + p->lead, dims, rank * sizeof(*dims));
    for (uint32_t i = first; i < first + p->lists.n && !status; i++) {
        status = ngd_op_dtype_is(graph, node, i, role, ngd_node_in(graph, node, first)->dtype, diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, i, role, rank + p->lead, all, form, diag);
    }
    return status;
}

/* Checks the first weight, and gives N. `columns`: of a row of K, as it is stored. */
static ngd_status_t check_first_weight(struct ngd_graph *graph, struct ngd_node *node, struct grouped *p,
                                       ngd_dim_t columns, const char *form, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *w = ngd_node_in(graph, node, NGD_EXPERTS_FIRST);
    const bool rows = ngd_op_bool(node, "transpose_weight");
    char tx[NGD_OP_TEXT], tw[NGD_OP_TEXT];

    if (w->rank != 2 + p->lead)
        return ngd_op_rank_is(graph, node, NGD_EXPERTS_FIRST, "weight", 2, form, diag);
    p->n = w->dims[p->lead + (rows ? 0 : 1)];
    if (w->dims[p->lead + (rows ? 1 : 0)] == columns)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                       "x %%%s is %s and weight %%%s is %s: it must be %s with K, x's dimension 1",
                       ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, tx),
                       ngd_op_in_name(graph, node, NGD_EXPERTS_FIRST), ngd_op_type_text(graph, w, tw), form);
}

/* Refuses what says how weights are quantised where they are not: it would have no effect. */
static ngd_status_t refuse_antiquant_sizes(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const struct {
        const char *name;
        int64_t none;
    } sizes[] = {{"antiquant_group_size", 0},
                 {"antiquant_group_columns", 1},
                 {"antiquant_block_size", 0},
                 {"antiquant_zero", 0}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int64_t v = sizes[i].none;
        ngd_status_t status = ngd_op_const(graph, node, sizes[i].name, INT32_MIN, INT32_MAX, &v, diag);

        if (!status && v != sizes[i].none)
            status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                                 "attribute %s is for quantised weights, which antiquant_scale=true declares",
                                 sizes[i].name);
        if (status)
            return status;
    }
    return NGD_OK;
}

static ngd_status_t check_float_experts(struct ngd_graph *graph, struct ngd_node *node, struct grouped *p,
                                        struct ngd_diag *diag)
{
    const bool rows = ngd_op_bool(node, "transpose_weight");
    const char *form = rows ? "[N,K]" : "[K,N]";
    ngd_status_t status = ngd_op_same_or_narrower(graph, node, NGD_EXPERTS_FIRST, "weight", diag);

    if (!status)
        status = refuse_antiquant_sizes(graph, node, diag);
    if (!status)
        status = check_first_weight(graph, node, p, p->k, form, diag);
    if (!status)
        status = check_expert_list(graph, node, p, NGD_EXPERTS_FIRST, "weight", 2,
                                   rows ? (ngd_dim_t[]){p->n, p->k} : (ngd_dim_t[]){p->k, p->n}, form, diag);
    return status;
}

/* Gives the columns of a row of K as it is stored. */
static ngd_status_t stored_columns(struct ngd_graph *graph, struct ngd_node *node, struct grouped *p,
                                   ngd_dim_t *columns_p, const char **form_p, struct ngd_diag *diag)
{
    const struct ngd_type *w = ngd_node_in(graph, node, NGD_EXPERTS_FIRST);
    const int each = w->dtype == NGD_I32 ? 8 : w->dtype == NGD_U8 ? 2 : 1;
    char text[NGD_OP_TEXT];
    bool exact = true;
    ngd_status_t status = NGD_OK;

    if (w->dtype != NGD_I8 && w->dtype != NGD_I32 && w->dtype != NGD_U8 && w->dtype != NGD_F8_E4M3FN)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                           "weight %%%s is %s, but with antiquant_scale it must be i8, i32, u8 or f8_e4m3fn",
                           ngd_op_in_name(graph, node, NGD_EXPERTS_FIRST), ngd_dtype_name(w->dtype));
    *form_p = each == 8 ? "[N,K/8]" : each == 2 ? "[N,K/2]" : "[N,K]";
    *columns_p = p->k;
    if (each > 1)
        status = ngd_expr_divide(graph->exprs, p->k, each, &exact, columns_p);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the columns of a weight");
    if (!exact)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "K, %s, does not divide by %d",
                           ngd_op_dim_text(graph, p->k, text), each);
    return NGD_OK;
}

/* Checks scales and the like: [1], or [N,1], or with groups [ceil(N/columns),ceil(K/group)]. */
static ngd_status_t check_antiquant_list(struct ngd_graph *graph, struct ngd_node *node, const struct grouped *p,
                                         ngd_antiquant_t what, struct ngd_diag *diag)
{
    const uint32_t first = p->lists.antiquant[what];
    const char *role = ngd_antiquant_names[what].name;
    ngd_dim_t dims[2];
    ngd_status_t status = ngd_op_antiquant_dtype(graph, node, first, what, &p->form, diag);

    if (status)
        return status;
    if (p->form.group == 0 && ngd_node_in(graph, node, first)->rank == 1 + p->lead)
        return check_expert_list(graph, node, p, first, role, 1, (ngd_dim_t[]){1}, "[1] or [N,1]", diag);
    status = ngd_op_antiquant_groups(graph, what, &p->form, p->k, p->n, &dims[1], &dims[0]);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the number of groups");
    return check_expert_list(graph, node, p, first, role, 2, dims,
                             p->form.group ? "[ceil(N/antiquant_group_columns),ceil(K/antiquant_group_size)], or for "
                                             "blocks [N,ceil(K/antiquant_block_size)]"
                                           : "[1] or [N,1]",
                             diag);
}

static ngd_status_t check_quant_experts(struct ngd_graph *graph, struct ngd_node *node, struct grouped *p,
                                        struct ngd_diag *diag)
{
    const char *form = NULL;
    ngd_dim_t columns = 0;
    ngd_status_t status = stored_columns(graph, node, p, &columns, &form, diag);

    if (!status && !ngd_op_bool(node, "transpose_weight"))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                             "attribute transpose_weight must be true for quantised weights");
    p->form.weight = ngd_node_in(graph, node, NGD_EXPERTS_FIRST)->dtype;
    if (!status)
        status = ngd_op_antiquant_form(graph, node, &p->form, diag);
    if (!status)
        status = check_first_weight(graph, node, p, columns, form, diag);
    if (!status)
        status =
            check_expert_list(graph, node, p, NGD_EXPERTS_FIRST, "weight", 2, (ngd_dim_t[]){p->n, columns}, form, diag);
    for (uint32_t i = 0; i < NGD_ANTIQUANTS && !status; i++)
        if (p->lists.antiquant[i])
            status = check_antiquant_list(graph, node, p, (ngd_antiquant_t)i, diag);
    return status;
}

static ngd_status_t check_biases(struct ngd_graph *graph, struct ngd_node *node, const struct grouped *p,
                                 struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (!p->lists.bias)
        return NGD_OK;
    if (ngd_node_in(graph, node, p->lists.bias)->dtype != NGD_F32)
        status = ngd_op_same_or_narrower(graph, node, p->lists.bias, "bias", diag);
    return status ? status : check_expert_list(graph, node, p, p->lists.bias, "bias", 1, &p->n, "[N]", diag);
}

ngd_status_t ngd_shape_grouped_matmul(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    struct grouped p = {.k = 0};
    int64_t type;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[M,K]", diag);
    if (!status)
        status = check_lists(graph, node, &p, diag);
    p.k = x->dims[1];
    if (!status)
        status = (p.form.has ? check_quant_experts : check_float_experts)(graph, node, &p, diag);
    if (!status)
        status = check_biases(graph, node, &p, diag);
    if (!status)
        status = ngd_op_const(graph, node, "group_list_type", 0, 1, &type, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "group_list", NGD_I64, diag);
    if (!status && !ngd_dim_is_const(p.groups))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "the number of weights must be a constant");
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "group_list", 1, &p.groups, "of one number for each weight", diag);
    return status ? status : ngd_op_result(graph, node, 0, x->dtype, 2, (const ngd_dim_t[]){x->dims[0], p.n}, diag);
}

bool ngd_rows_grouped_matmul(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "groups and weights may not have rows of it";
            return false;
        }
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

ngd_status_t ngd_shape_moe_finalize_routing(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *rows = ngd_node_in(graph, node, 0), *scales = ngd_node_in(graph, node, 1);
    ngd_dim_t pairs;
    int64_t mode;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "expanded_permuted_rows", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "expanded_permuted_rows", 2, "[T*K,H]", diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "scales", 2, "[T,K]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "scales", NGD_F32, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "expanded_src_to_dst_row", NGD_I32, diag);
    if (!status)
        status = ngd_op_const(graph, node, "drop_pad_mode", 2, 2, &mode, diag);
    if (!status)
        status = times(graph, node, scales->dims[0], scales->dims[1], &pairs, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "expanded_src_to_dst_row", 1, &pairs, "[T*K]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 0, "expanded_permuted_rows", 2, (const ngd_dim_t[]){pairs, rows->dims[1]},
                                 "[T*K,H]", diag);
    return status ? status
                  : ngd_op_result(graph, node, 0, rows->dtype, 2, (const ngd_dim_t[]){scales->dims[0], rows->dims[1]},
                                  diag);
}

bool ngd_rows_moe_finalize_routing(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                   const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 0, symbol) && !ngd_op_in_carries(graph, node, 1, symbol)) {
        *why_p = "its rows are not dimension 0 of scales";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}
