/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape rules of collectives, which the ranks of a group compute together.
 *
 * Each rank has its own graph, and a rule sees only one of them. What must agree between ranks and with the group (its
 * size, the root's rank) is checked where the group is known: by devices/comm.c at capture, by the backend at a replay.
 * Schemas are those of PyTorch's functional collectives.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include <string.h>

static const char *const reduce_ops[] = {"sum", "avg", "product", "min", "max"};

static ngd_status_t check_collective_group(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const char *name = ngd_op_str(node, "group_name");
    size_t n = strlen(name);

    if (n == 0 || n > NGD_GROUP_NAME_MAX)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "group_name has %zu bytes; a group's name has 1 to %d", n, NGD_GROUP_NAME_MAX);
    return NGD_OK;
}

/* Checks the dtype and the operation of a reduction. */
static ngd_status_t check_reduction(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const char *op = ngd_op_str(node, "reduce_op");
    ngd_dtype_t dtype = ngd_node_in(graph, node, 0)->dtype;
    bool known = false;

    for (size_t i = 0; i < sizeof(reduce_ops) / sizeof(reduce_ops[0]); i++)
        known |= strcmp(op, reduce_ops[i]) == 0;
    if (!known)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "reduce_op \"%.32s\" is unknown; allowed: sum, avg, product, min, max", op);
    if (!ngd_dtype_is_float(dtype) && dtype != NGD_I32 && dtype != NGD_I64)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                           "%%%s is %s; ranks reduce f32, f16, bf16, i32 and i64", ngd_op_in_name(graph, node, 0),
                           ngd_dtype_name(dtype));
    if (strcmp(op, "avg") == 0 && !ngd_dtype_is_float(dtype))
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_DTYPE,
            "reduce_op \"avg\" takes floats, but %%%s is %s: use \"sum\", and divide with the rounding that you need",
            ngd_op_in_name(graph, node, 0), ngd_dtype_name(dtype));
    return NGD_OK;
}

static ngd_status_t check_rank_rows(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    if (ngd_node_in(graph, node, 0)->rank == 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "%%%s has no dimension 0 that ranks could divide or join; view it as [1]",
                           ngd_op_in_name(graph, node, 0));
    return NGD_OK;
}

static ngd_status_t infer_same_type(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);

    return ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
}

static ngd_status_t with_rows(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t rows, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];

    memcpy(dims, x->dims, sizeof(dims));
    dims[0] = rows;
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

ngd_status_t ngd_shape_all_reduce(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_collective_group(graph, node, diag);

    if (!status)
        status = check_reduction(graph, node, diag);
    return status ? status : infer_same_type(graph, node, diag);
}

ngd_status_t ngd_shape_broadcast(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    int64_t src;
    ngd_status_t status = check_collective_group(graph, node, diag);

    if (!status)
        status = ngd_op_const(graph, node, "src", 0, NGD_GROUP_MAX_RANKS - 1, &src, diag);
    return status ? status : infer_same_type(graph, node, diag);
}

ngd_status_t ngd_shape_all_gather(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    int64_t size;
    ngd_dim_t rows;
    ngd_status_t status = check_collective_group(graph, node, diag);

    if (!status)
        status = check_rank_rows(graph, node, diag);
    if (!status)
        status = ngd_op_const(graph, node, "group_size", 1, NGD_GROUP_MAX_RANKS, &size, diag);
    if (status)
        return status;
    status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, ngd_node_in(graph, node, 0)->dims[0], size, &rows);
    return status ? ngd_op_expr_fail(graph, node, diag, status, "dimension 0 of all ranks")
                  : with_rows(graph, node, rows, diag);
}

ngd_status_t ngd_shape_reduce_scatter(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    int64_t size;
    ngd_dim_t rows;
    bool exact;
    char text[NGD_OP_TEXT];
    ngd_status_t status = check_collective_group(graph, node, diag);

    if (!status)
        status = check_reduction(graph, node, diag);
    if (!status)
        status = check_rank_rows(graph, node, diag);
    if (!status)
        status = ngd_op_const(graph, node, "group_size", 1, NGD_GROUP_MAX_RANKS, &size, diag);
    if (status)
        return status;
    status = ngd_expr_divide(graph->exprs, x->dims[0], size, &exact, &rows);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "a rank's part of dimension 0");
    if (!exact)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "dimension 0 of %%%s, %s, does not divide by group_size, %d", ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, x->dims[0], text), (int)size);
    return with_rows(graph, node, rows, diag);
}

/* Computes the sum of a list of splits, and checks that none is negative. */
static ngd_status_t sum_splits(struct ngd_graph *graph, struct ngd_node *node, const char *name, ngd_dim_t *sum_p,
                               struct ngd_diag *diag)
{
    const struct ngd_attr_value *splits = ngd_op_attr(node, name);
    ngd_dim_t sum = 0;

    if (splits->n == 0 || splits->n > NGD_GROUP_MAX_RANKS)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "%s has %u numbers; it must have one for each rank, and a group has at most %d ranks", name,
                           splits->n, NGD_GROUP_MAX_RANKS);
    for (uint32_t i = 0; i < splits->n; i++) {
        int64_t min, max;
        ngd_status_t status = ngd_expr_bounds(graph->exprs, splits->list[i], &min, &max);

        if (!status)
            status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, sum, splits->list[i], &sum);
        if (status)
            return ngd_op_expr_fail(graph, node, diag, status, name);
        if (min < 0)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "number %u of %s may be negative", i, name);
    }
    *sum_p = sum;
    return NGD_OK;
}

ngd_status_t ngd_shape_all_to_all(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t sent = 0, received = 0;
    char rows[NGD_OP_TEXT], sum[NGD_OP_TEXT];
    ngd_status_t status = check_collective_group(graph, node, diag);

    if (!status)
        status = check_rank_rows(graph, node, diag);
    if (!status)
        status = sum_splits(graph, node, "input_split_sizes", &sent, diag);
    if (!status)
        status = sum_splits(graph, node, "output_split_sizes", &received, diag);
    if (status)
        return status;
    if (ngd_op_attr(node, "input_split_sizes")->n != ngd_op_attr(node, "output_split_sizes")->n)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "input_split_sizes and output_split_sizes have one number for each rank, not %u and %u",
                           ngd_op_attr(node, "input_split_sizes")->n, ngd_op_attr(node, "output_split_sizes")->n);
    if (sent != x->dims[0])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "input_split_sizes add up to %s, but dimension 0 of %%%s is %s",
                           ngd_op_dim_text(graph, sent, sum), ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, x->dims[0], rows));
    return with_rows(graph, node, received, diag);
}

ngd_status_t ngd_shape_wait_tensor(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_same_type(graph, node, diag);
}

/* ---- the whole graph --------------------------------------------------------------------------------- */

/*
 * Checks that all collectives of a group are on one stream. Ranks must call them in the same order. Streams have no
 * order between them, so two ranks could wait for each other in different collectives.
 */
ngd_status_t ngd_graph_check_collectives(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    const struct ngd_node *first[NGD_GRAPH_MAX_GROUPS];
    uint32_t n_groups = 0;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ngd_node *n = &graph->nodes[i];
        const char *name;
        uint32_t g = 0;

        if (!(n->op->flags & NGD_OPF_COLLECTIVE))
            continue;
        name = ngd_op_str(n, "group_name");
        while (g < n_groups && strcmp(ngd_op_str(first[g], "group_name"), name) != 0)
            g++;
        if (g == NGD_GRAPH_MAX_GROUPS)
            return ngd_op_fail(graph, n, diag, NGD_ERR_GRAPH_TOO_LARGE,
                               "group \"%.64s\" is one too many: a graph may name %d groups", name,
                               NGD_GRAPH_MAX_GROUPS);
        if (g == n_groups)
            first[n_groups++] = n;
        if (first[g]->scope.stream != n->scope.stream)
            return ngd_op_fail(graph, n, diag, NGD_ERR_GRAPH_DEADLOCK,
                               "group \"%.64s\" has collectives on stream \"%.32s\" too (line %u): ranks might call "
                               "them in different orders, so put all of a group on one stream",
                               name, first[g]->scope.stream ? graph->streams[first[g]->scope.stream] : "(main)",
                               first[g]->line);
    }
    return NGD_OK;
}
