/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of paged attention: the cache's scatter, the fused attention, sampling. */
#include "graphs/op_int.h"
#include <string.h>

ngd_status_t ngd_op_check_caches(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dim_t kv_heads,
                                 ngd_dim_t d, struct ngd_diag *diag)
{
    const struct ngd_type *cache = ngd_node_in(graph, node, i);
    ngd_status_t status = ngd_op_takes(graph, node, i, "key_cache", NGD_TAKES_FLOAT, diag);
    char text[NGD_OP_TEXT], kh[NGD_OP_TEXT], dd[NGD_OP_TEXT];

    if (!status)
        status = ngd_op_rank_is(graph, node, i, "key_cache", 4, "[NB,BS,KH,D]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, i + 1, "value_cache", cache->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, i + 1, "value_cache", 4, cache->dims, "of key_cache's shape", diag);
    if (status)
        return status;
    if (cache->dims[2] != kv_heads || cache->dims[3] != d)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "key_cache %%%s is %s, but must be [NB,BS,%s,%s]",
                           ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, cache, text),
                           ngd_op_dim_text(graph, kv_heads, kh), ngd_op_dim_text(graph, d, dd));
    return NGD_OK;
}

ngd_status_t ngd_shape_scatter_pa_kv(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *key = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_takes(graph, node, 0, "key", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "key", 3, "[T,KH,D]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "value", key->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "value", 3, key->dims, "of key's shape", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "slot_mapping", NGD_I32, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "slot_mapping", 1, key->dims, "[T]", diag);
    return status ? status : ngd_op_check_caches(graph, node, 3, key->dims[1], key->dims[2], diag);
}

static ngd_status_t check_attention_attrs(struct ngd_graph *graph, struct ngd_node *node, int64_t *kv_heads_p,
                                          struct ngd_diag *diag)
{
    const struct ngd_type *query = ngd_node_in(graph, node, 0), *cache = ngd_node_in(graph, node, 1);
    const char *layout = ngd_op_str(node, "input_layout");
    char text[NGD_OP_TEXT];
    int64_t heads, block, mode;
    ngd_status_t status = ngd_op_const(graph, node, "num_heads", 1, INT32_MAX, &heads, diag);

    if (!status)
        status = ngd_op_const(graph, node, "num_key_value_heads", 1, INT32_MAX, kv_heads_p, diag);
    if (!status)
        status = ngd_op_const(graph, node, "block_size", 1, INT32_MAX, &block, diag);
    if (!status)
        status = ngd_op_const(graph, node, "sparse_mode", 3, 3, &mode, diag);
    if (status)
        return status;
    if (strcmp(layout, "TND") != 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute input_layout is \"%.32s\", but must be \"TND\"", layout);
    if (heads % *kv_heads_p)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute num_heads, %lld, is no multiple of num_key_value_heads, %lld", (long long)heads,
                           (long long)*kv_heads_p);
    if (query->dims[1] != heads)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE, "query %%%s is %s, but num_heads is %lld: it must be [T,%lld,D]",
            ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, query, text), (long long)heads, (long long)heads);
    if (cache->rank == 4 && cache->dims[1] != block)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "key_cache %%%s is %s, but block_size is %lld: dimension 1 must be %lld",
                           ngd_op_in_name(graph, node, 1), ngd_op_type_text(graph, cache, text), (long long)block,
                           (long long)block);
    return NGD_OK;
}

ngd_status_t ngd_shape_fused_attention(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *query = ngd_node_in(graph, node, 0), *table = ngd_node_in(graph, node, 3);
    int64_t kv_heads = 0;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "query", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "query", 3, "[T,H,D]", diag);
    if (!status)
        status = check_attention_attrs(graph, node, &kv_heads, diag);
    if (!status)
        status = ngd_op_check_caches(graph, node, 1, kv_heads, query->dims[2], diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 3, "block_table", NGD_I32, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 3, "block_table", 2, "[S,MB]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 4, "actual_seq_lengths", 1, table->dims, "[S]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 5, "actual_seq_lengths_kv", 1, table->dims, "[S]", diag);
    return status ? status : ngd_op_result(graph, node, 0, query->dtype, 3, query->dims, diag);
}

/*
 * Rows of queries are T, rows of sequences are S; one symbol may be both. A row of the result depends on its
 * own sequence's cache, table and lengths; padded sequences have no query rows and padded rows no sequence.
 */
bool ngd_rows_fused_attention(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                              const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 1, symbol) || ngd_op_in_carries(graph, node, 2, symbol)) {
        *why_p = "the cache may not have rows of it";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

ngd_status_t ngd_shape_sample(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const struct {
        const char *role;
        ngd_dtype_t dtype;
    } vectors[] = {
        {"temperature", NGD_F32}, {"top_k", NGD_I32}, {"top_p", NGD_F32}, {"seed", NGD_I64}, {"offset", NGD_I64}};
    const struct ngd_type *logits = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_takes(graph, node, 0, "logits", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "logits", 2, "[S,V]", diag);
    for (uint32_t i = 0; i < 5 && !status; i++) {
        status = ngd_op_dtype_is(graph, node, i + 1, vectors[i].role, vectors[i].dtype, diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, i + 1, vectors[i].role, 1, logits->dims, "[S]", diag);
    }
    return status ? status : ngd_op_result(graph, node, 0, NGD_I32, 1, logits->dims, diag);
}
