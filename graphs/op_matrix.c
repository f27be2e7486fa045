/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of matrix products and the embedding. Sums are in f32; a result has the first operand's dtype. */
#include "graphs/op_int.h"
#include <string.h>

/* Checks the inner dimensions of a product: dimension k of operand a and dimension j of operand b must be equal. */
static ngd_status_t check_inner(struct ngd_graph *graph, struct ngd_node *node, uint32_t a, uint32_t k, uint32_t b,
                                uint32_t j, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, a), *y = ngd_node_in(graph, node, b);
    char tx[NGD_OP_TEXT], ty[NGD_OP_TEXT], dx[NGD_OP_TEXT], dy[NGD_OP_TEXT];

    if (x->dims[k] == y->dims[j])
        return NGD_OK;
    return ngd_op_fail(
        graph, node, diag, NGD_ERR_GRAPH_SHAPE,
        "%%%s is %s and %%%s is %s: the first has %s columns and the second %s rows, which must be equal",
        ngd_op_in_name(graph, node, a), ngd_op_type_text(graph, x, tx), ngd_op_in_name(graph, node, b),
        ngd_op_type_text(graph, y, ty), ngd_op_dim_text(graph, x->dims[k], dx), ngd_op_dim_text(graph, y->dims[j], dy));
}

/* Checks that operands a and b are float tensors of that rank. */
static ngd_status_t check_matrix_pair(struct ngd_graph *graph, struct ngd_node *node, uint32_t a, uint32_t b,
                                      uint32_t rank, const char *form_a, const char *form_b, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_takes(graph, node, a, "operand", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, a, "operand", rank, form_a, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, b, "operand", rank, form_b, diag);
    return status ? status : check_inner(graph, node, a, rank - 1, b, rank - 2, diag);
}

ngd_status_t ngd_shape_mm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *a = ngd_node_in(graph, node, 0), *b = ngd_node_in(graph, node, 1);
    ngd_status_t status = check_matrix_pair(graph, node, 0, 1, 2, "[M,K]", "[K,N]", diag);

    if (!status)
        status = ngd_op_same_or_narrower(graph, node, 1, "operand", diag);
    return status ? status : ngd_op_result(graph, node, 0, a->dtype, 2, (ngd_dim_t[]){a->dims[0], b->dims[1]}, diag);
}

ngd_status_t ngd_shape_bmm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *a = ngd_node_in(graph, node, 0), *b = ngd_node_in(graph, node, 1);
    char ta[NGD_OP_TEXT], tb[NGD_OP_TEXT];
    ngd_status_t status = check_matrix_pair(graph, node, 0, 1, 3, "[B,M,K]", "[B,K,N]", diag);

    if (!status)
        status = ngd_op_same_or_narrower(graph, node, 1, "operand", diag);
    if (status)
        return status;
    if (a->dims[0] != b->dims[0])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%%%s is %s and %%%s is %s: their batches must be equal", ngd_op_in_name(graph, node, 0),
                           ngd_op_type_text(graph, a, ta), ngd_op_in_name(graph, node, 1),
                           ngd_op_type_text(graph, b, tb));
    return ngd_op_result(graph, node, 0, a->dtype, 3, (ngd_dim_t[]){a->dims[0], a->dims[1], b->dims[2]}, diag);
}

ngd_status_t ngd_shape_addmm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *bias = ngd_node_in(graph, node, 0), *a = ngd_node_in(graph, node, 1),
                          *b = ngd_node_in(graph, node, 2);
    ngd_dtype_t x = a->dtype;
    struct ngd_type product = {.dtype = x, .rank = 2, .dims = {a->dims[0], b->dims[1]}};
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = check_matrix_pair(graph, node, 1, 2, 2, "[M,K]", "[K,N]", diag);

    for (uint32_t i = 0; i <= 2 && !status; i += 2) {
        ngd_dtype_t t = ngd_node_in(graph, node, i)->dtype;

        if (t != x && !(x == NGD_F32 && (t == NGD_F16 || t == NGD_BF16)))
            status =
                ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "%%%s is %s beside %s of %%%s: it must be %s%s",
                            ngd_op_in_name(graph, node, i), ngd_dtype_name(t), ngd_dtype_name(x),
                            ngd_op_in_name(graph, node, 1), ngd_dtype_name(x), x == NGD_F32 ? ", f16 or bf16" : "");
    }
    if (!status)
        status = ngd_op_broadcast(graph, node, bias, &product, &rank, dims, diag);
    if (status)
        return status;
    if (rank != 2 || dims[0] != product.dims[0] || dims[1] != product.dims[1]) {
        char tb[NGD_OP_TEXT], tp[NGD_OP_TEXT];

        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE, "bias %%%s is %s, which does not broadcast to the product %s",
            ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, bias, tb), ngd_op_type_text(graph, &product, tp));
    }
    return ngd_op_result(graph, node, 0, x, 2, product.dims, diag);
}

ngd_status_t ngd_shape_linear(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *w = ngd_node_in(graph, node, 1);
    char text[NGD_OP_TEXT], dim[NGD_OP_TEXT];
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_same_or_narrower(graph, node, 1, "weight", diag);
    if (status)
        return status;
    if (x->rank == 0)
        return ngd_op_rank_is(graph, node, 0, "x", 1, "[...,K]", diag);
    if (w->rank != 2 || w->dims[1] != x->dims[x->rank - 1])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "weight %%%s is %s, but %%%s has %s columns: it must be [N,%s]",
                           ngd_op_in_name(graph, node, 1), ngd_op_type_text(graph, w, text),
                           ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, x->dims[x->rank - 1], dim), dim);
    if (ngd_node_has(node, 2)) {
        status = ngd_op_same_or_narrower(graph, node, 2, "bias", diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, 2, "bias", 1, &w->dims[0], "[N]", diag);
        if (status)
            return status;
    }
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = w->dims[0];
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

/* A weight with rows of the symbol is refused, although its rows are independent: for devices, a linear's rows are
 * those of x. */
bool ngd_rows_linear(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 1, symbol)) {
        *why_p = "the weight has rows of it";
        return false;
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}

/* Gives an attribute as a permutation of three dimensions; empty means the default. */
static ngd_status_t permutation(struct ngd_graph *graph, struct ngd_node *node, const char *name,
                                const uint32_t otherwise[3], uint32_t perm[3], struct ngd_diag *diag)
{
    const struct ngd_attr_value *a = ngd_op_attr(node, name);
    uint32_t seen = 0;

    memcpy(perm, otherwise, 3 * sizeof(perm[0]));
    for (uint32_t i = 0; i < 3 && a->n == 3; i++) {
        if (a->list[i] < 0 || a->list[i] > 2)
            break;
        perm[i] = (uint32_t)a->list[i];
        seen |= 1u << perm[i];
    }
    if (a->n == 0 || seen == 7)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                       "attribute %s must be empty or an order of the dimensions 0, 1 and 2", name);
}

ngd_status_t ngd_shape_transpose_bmm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const uint32_t as_is[] = {0, 1, 2}, swapped[] = {1, 0, 2};
    const struct ngd_type *a = ngd_node_in(graph, node, 0), *b = ngd_node_in(graph, node, 1);
    uint32_t pa[3], pb[3], py[3];
    ngd_dim_t product[3], dims[3];
    char ta[NGD_OP_TEXT], tb[NGD_OP_TEXT];
    ngd_status_t status = ngd_op_takes(graph, node, 0, "input", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "input", 3, "[B,M,K] permuted", diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "weight", 3, "[B,K,N] permuted", diag);
    if (!status)
        status = ngd_op_same_or_narrower(graph, node, 1, "weight", diag);
    if (!status)
        status = permutation(graph, node, "perm_x1", as_is, pa, diag);
    if (!status)
        status = permutation(graph, node, "perm_x2", as_is, pb, diag);
    if (!status)
        status = permutation(graph, node, "perm_y", swapped, py, diag);
    if (!status && (pa[2] != 2 || py[2] != 2 || pb[0] == 2))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                             "perm_x1 and perm_y must leave the last dimension where it is, and perm_x2 must not make "
                             "it the batch");
    if (status)
        return status;
    if (a->dims[pa[0]] != b->dims[pb[0]] || a->dims[pa[2]] != b->dims[pb[1]])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%%%s is %s and %%%s is %s, which perm_x1 and perm_x2 must make [B,M,K] and [B,K,N]",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, a, ta),
                           ngd_op_in_name(graph, node, 1), ngd_op_type_text(graph, b, tb));
    product[0] = a->dims[pa[0]];
    product[1] = a->dims[pa[1]];
    product[2] = b->dims[pb[2]];
    for (uint32_t i = 0; i < 3; i++)
        dims[i] = product[py[i]];
    return ngd_op_result(graph, node, 0, a->dtype, 3, dims, diag);
}

/*
 * Rows are dimension 0 of the operands with the symbol. They stay rows if they become dimension 0 of the result: as the
 * product's batch (in both operands) or as its M. Dimension 0 of a weight is its K or its batch.
 */
bool ngd_rows_transpose_bmm(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                            const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 1, symbol)) {
        *why_p = "the weight has rows of it";
        return false;
    }
    if (ngd_op_in_carries(graph, node, 0, symbol) && !ngd_op_carries(graph, node->out[0], symbol)) {
        *why_p = "the product sums over it";
        return false;
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_embedding(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *w = ngd_node_in(graph, node, 0), *indices = ngd_node_in(graph, node, 1);
    ngd_dim_t dims[NGD_MAX_RANK + 1];
    ngd_status_t status = ngd_op_rank_is(graph, node, 0, "weight", 2, "[V,D]", diag);

    if (!status)
        status = ngd_op_takes(graph, node, 1, "indices", NGD_TAKES_INDEX, diag);
    if (status)
        return status;
    memcpy(dims, indices->dims, sizeof(indices->dims));
    dims[indices->rank] = w->dims[1];
    return ngd_op_result(graph, node, 0, w->dtype, indices->rank + 1u, dims, diag);
}

/* The table may not have rows of the symbol: any index may read any row of it, padded ones included. */
bool ngd_rows_embedding(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 0, symbol)) {
        *why_p = "indices may reach any row of the table, padded ones included";
        return false;
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}
