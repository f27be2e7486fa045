/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of dense attention, of paged attention and the writes to its cache, and of sampling. */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include <math.h>
#include <string.h>

/* ---- dense ---- */

/* Checks that key or value (operand i) has query's shape, except for rows, the last dimension and perhaps heads. */
static ngd_status_t check_like_query(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, const char *role,
                                     struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0), *t = ngd_node_in(graph, node, i);
    const bool gqa = ngd_op_bool(node, "enable_gqa");
    char tq[NGD_OP_TEXT], tt[NGD_OP_TEXT];
    ngd_status_t status = ngd_op_dtype_is(graph, node, i, role, q->dtype, diag);

    if (status)
        return status;
    for (uint32_t d = 0; t->rank == q->rank && d + 2 < q->rank; d++)
        if (t->dims[d] != q->dims[d] && !(gqa && d + 3 == q->rank))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                               "%s %%%s is %s beside query, %s: dimension %u must be equal%s", role,
                               ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, tt),
                               ngd_op_type_text(graph, q, tq), d, d + 3 == q->rank ? ", or enable_gqa true" : "");
    if (t->rank != q->rank)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%s %%%s is %s beside query, %s: both must have the same number of dimensions", role,
                           ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, tt),
                           ngd_op_type_text(graph, q, tq));
    return NGD_OK;
}

static ngd_status_t check_heads(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0), *k = ngd_node_in(graph, node, 1),
                          *v = ngd_node_in(graph, node, 2);
    const uint32_t h = q->rank - 3u;
    char tk[NGD_OP_TEXT], tv[NGD_OP_TEXT];

    if (k->dims[q->rank - 1] != q->dims[q->rank - 1] || k->dims[q->rank - 2] != v->dims[q->rank - 2])
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE,
            "key %%%s is %s and value %%%s is %s: key must have query's last dimension, and as many rows as value",
            ngd_op_in_name(graph, node, 1), ngd_op_type_text(graph, k, tk), ngd_op_in_name(graph, node, 2),
            ngd_op_type_text(graph, v, tv));
    if (!ngd_expr_always_le(graph->exprs, 1, q->dims[q->rank - 1]))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "the last dimension of query %%%s may be 0",
                           ngd_op_in_name(graph, node, 0));
    if (!ngd_op_bool(node, "enable_gqa"))
        return NGD_OK;
    if (q->rank < 3)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute enable_gqa is true, but query %%%s has no dimension of heads",
                           ngd_op_in_name(graph, node, 0));
    if (k->dims[h] != v->dims[h] || !ngd_dim_is_const(q->dims[h]) || !ngd_dim_is_const(k->dims[h]) || k->dims[h] < 1 ||
        q->dims[h] % k->dims[h])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute enable_gqa is true, so key %%%s and value %%%s must have the same number of "
                           "heads, and query %%%s a multiple of it",
                           ngd_op_in_name(graph, node, 1), ngd_op_in_name(graph, node, 2),
                           ngd_op_in_name(graph, node, 0));
    return NGD_OK;
}

/* Checks that attn_mask lies within [..., L, S]; a dimension of 1 is repeated. */
static ngd_status_t check_attention_mask(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0), *k = ngd_node_in(graph, node, 1), *mask;
    struct ngd_type scores = *q, both = {.rank = 0};
    char tm[NGD_OP_TEXT], ts[NGD_OP_TEXT];
    uint32_t rank;
    ngd_status_t status;

    if (!ngd_node_has(node, 3))
        return NGD_OK;
    mask = ngd_node_in(graph, node, 3);
    if (ngd_op_bool(node, "is_causal"))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute is_causal is true, but attn_mask %%%s is given: give one of them",
                           ngd_op_in_name(graph, node, 3));
    if (mask->dtype != NGD_BOOL && mask->dtype != NGD_F32 && mask->dtype != q->dtype)
        return ngd_op_dtype_is(graph, node, 3, "attn_mask", q->dtype, diag);
    scores.dtype = mask->dtype;
    scores.dims[q->rank - 1] = k->dims[q->rank - 2];
    status = ngd_op_broadcast(graph, node, mask, &scores, &rank, both.dims, diag);
    if (status)
        return status;
    both.dtype = mask->dtype;
    both.rank = (uint8_t)rank;
    if (!ngd_type_equal(&both, &scores))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "attn_mask %%%s is %s, but must broadcast to %s",
                           ngd_op_in_name(graph, node, 3), ngd_op_type_text(graph, mask, tm),
                           ngd_op_type_text(graph, &scores, ts));
    return NGD_OK;
}

ngd_status_t ngd_shape_sdpa(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0);
    const double scale = ngd_op_float(node, "scale");
    ngd_dim_t dims[NGD_MAX_RANK];
    char text[NGD_OP_TEXT];
    ngd_status_t status = ngd_op_takes(graph, node, 0, "query", NGD_TAKES_FLOAT, diag);

    if (status)
        return status;
    if (q->rank < 2 || q->rank > 4)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "query %%%s is %s, but must be [B,H,L,E], [H,L,E] or [L,E]: view it so",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, q, text));
    if (ngd_op_float(node, "dropout_p") != 0)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
            "attribute dropout_p is %g, but dropout is random and cannot be captured: trace the model with "
            "model.eval()",
            ngd_op_float(node, "dropout_p"));
    if (scale != scale || scale == -INFINITY)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute scale is %g, but must be a number",
                           scale);
    status = check_like_query(graph, node, 1, "key", diag);
    if (!status)
        status = check_like_query(graph, node, 2, "value", diag);
    if (!status)
        status = check_heads(graph, node, diag);
    if (!status)
        status = check_attention_mask(graph, node, diag);
    if (status)
        return status;
    memcpy(dims, q->dims, sizeof(dims));
    dims[q->rank - 1] = ngd_node_in(graph, node, 2)->dims[q->rank - 1];
    return ngd_op_result(graph, node, 0, q->dtype, q->rank, dims, diag);
}

/* Rows of dimension 0 are independent: it is a batch, or heads.
 * If keys have fewer heads, heads of queries share them. */
bool ngd_rows_sdpa(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (ngd_node_in(graph, node, 0)->rank == 2) {
        *why_p = "a row of queries sees all rows of keys, in dimension 0";
        return false;
    }
    if (ngd_node_in(graph, node, 0)->rank == 3 && ngd_op_bool(node, "enable_gqa")) {
        *why_p = "dimension 0 is heads that share those of keys";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

/* ---- paged ---- */

/* A cache whose numbers need scales. */
static bool needs_scales(ngd_dtype_t t)
{
    return t == NGD_I8 || t == NGD_F8_E4M3FN;
}

/* Checks that operand i is a cache [NB,BS,KH,D] of these heads. */
static ngd_status_t check_key_cache(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dim_t kv_heads,
                                    ngd_dim_t d, struct ngd_diag *diag)
{
    const struct ngd_type *cache = ngd_node_in(graph, node, i);
    ngd_status_t status =
        needs_scales(cache->dtype) ? NGD_OK : ngd_op_takes(graph, node, i, "key_cache", NGD_TAKES_FLOAT, diag);
    char text[NGD_OP_TEXT], kh[NGD_OP_TEXT], dd[NGD_OP_TEXT];

    if (!status)
        status = ngd_op_rank_is(graph, node, i, "key_cache", 4, "[NB,BS,KH,D]", diag);
    if (!status && (cache->dims[2] != kv_heads || cache->dims[3] != d))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "key_cache %%%s is %s, but must be [NB,BS,%s,%s]",
                             ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, cache, text),
                             ngd_op_dim_text(graph, kv_heads, kh), ngd_op_dim_text(graph, d, dd));
    return status;
}

/* Checks that operand i is a cache like operand `key`, with d numbers a head. */
static ngd_status_t check_cache_beside(struct ngd_graph *graph, struct ngd_node *node, uint32_t key, uint32_t i,
                                       const char *role, ngd_dim_t d, struct ngd_diag *diag)
{
    const struct ngd_type *cache = ngd_node_in(graph, node, key);
    const ngd_dim_t dims[] = {cache->dims[0], cache->dims[1], cache->dims[2], d};
    ngd_status_t status = ngd_op_dtype_is(graph, node, i, role, cache->dtype, diag);

    if (status)
        return status;
    return ngd_op_shape_is(graph, node, i, role, 4, dims,
                           d == cache->dims[3] ? "of key_cache's shape" : "of key_cache's blocks, rows and heads",
                           diag);
}

/* Checks that caches in i8 or f8 have a scale for each row and head (operands i, i+1), and that others have none. */
static ngd_status_t check_cache_scales(struct ngd_graph *graph, struct ngd_node *node, uint32_t cache, uint32_t i,
                                       struct ngd_diag *diag)
{
    const struct ngd_type *t = ngd_node_in(graph, node, cache);
    const ngd_dim_t dims[] = {t->dims[0], t->dims[2], t->dims[1]};
    ngd_status_t status = NGD_OK;

    for (uint32_t k = i; k < i + 2; k++)
        if (ngd_node_has(node, k) != needs_scales(t->dtype))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "key_cache %%%s is %s: %s",
                               ngd_op_in_name(graph, node, cache), ngd_dtype_name(t->dtype),
                               needs_scales(t->dtype) ? "scales of keys and of values must be given"
                                                      : "only caches in i8 or f8_e4m3fn have scales");
    for (uint32_t k = i; k < i + 2 && needs_scales(t->dtype) && !status; k++) {
        const char *role = k == i ? "the scale of keys" : "the scale of values";

        status = ngd_op_dtype_is(graph, node, k, role, NGD_F32, diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, k, role, 3, dims, "[NB,KH,BS]", diag);
    }
    return status;
}

ngd_status_t ngd_op_check_caches(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dim_t kv_heads,
                                 ngd_dim_t d, uint32_t scales, struct ngd_diag *diag)
{
    ngd_status_t status = check_key_cache(graph, node, i, kv_heads, d, diag);

    if (!status)
        status = check_cache_beside(graph, node, i, i + 1, "value_cache", d, diag);
    return status ? status : check_cache_scales(graph, node, i, scales, diag);
}

ngd_status_t ngd_shape_scatter_pa_kv(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *key = ngd_node_in(graph, node, 0), *value = ngd_node_in(graph, node, 1);
    ngd_status_t status = ngd_op_takes(graph, node, 0, "key", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "key", 3, "[T,KH,D]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "value", key->dtype, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "value", 3, "[T,KH,DV]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "value", 3, (ngd_dim_t[]){key->dims[0], key->dims[1], value->dims[2]},
                                 "of key's rows and heads", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "slot_mapping", NGD_I32, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "slot_mapping", 1, key->dims, "[T]", diag);
    if (!status)
        status = check_key_cache(graph, node, 3, key->dims[1], key->dims[2], diag);
    if (!status)
        status = check_cache_beside(graph, node, 3, 4, "value_cache", value->dims[2], diag);
    return status ? status : check_cache_scales(graph, node, 3, 5, diag);
}

/* Checks the mask: sparse_mode 3 is causal, and ignores the other two attributes as CANN does; 4 is a band that ends at
 * the row itself. */
static ngd_status_t check_window(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const double cap = ngd_op_float(node, "soft_cap");
    int64_t mode, before, behind;
    ngd_status_t status = ngd_op_const(graph, node, "sparse_mode", 3, 4, &mode, diag);

    if (!status)
        status = ngd_op_const(graph, node, "pre_tokens", 0, INT32_MAX, &before, diag);
    if (!status)
        status = ngd_op_const(graph, node, "next_tokens", 0, INT32_MAX, &behind, diag);
    if (status)
        return status;
    if (mode == 4 && behind != 0)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
            "attribute next_tokens is %lld, but must be 0 with sparse_mode 4: no row sees keys behind it",
            (long long)behind);
    if (!(cap >= 0) || cap == INFINITY)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute soft_cap is %g, but must be positive, or 0 for none", cap);
    return NGD_OK;
}

static ngd_status_t check_attention_attrs(struct ngd_graph *graph, struct ngd_node *node, int64_t *kv_heads_p,
                                          struct ngd_diag *diag)
{
    const struct ngd_type *query = ngd_node_in(graph, node, 0), *cache = ngd_node_in(graph, node, 1);
    const char *layout = ngd_op_str(node, "input_layout");
    char text[NGD_OP_TEXT];
    int64_t heads, block;
    ngd_status_t status = ngd_op_const(graph, node, "num_heads", 1, INT32_MAX, &heads, diag);

    if (!status)
        status = ngd_op_const(graph, node, "num_key_value_heads", 1, INT32_MAX, kv_heads_p, diag);
    if (!status)
        status = ngd_op_const(graph, node, "block_size", 1, INT32_MAX, &block, diag);
    if (!status)
        status = check_window(graph, node, diag);
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

/* Checks that the modes are those of a scale for each row and head in pages, if there are scales. */
static ngd_status_t check_cache_modes(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const char *const names[] = {"key_antiquant_mode", "value_antiquant_mode"};
    const int64_t want = ngd_node_has(node, 9) ? 5 : 0;
    int64_t mode;

    for (int i = 0; i < 2; i++) {
        ngd_status_t status = ngd_op_const(graph, node, names[i], 0, 5, &mode, diag);

        if (status)
            return status;
        if (mode != want)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute %s is %lld, but must be %lld: 5 is a scale for each row and head in pages, "
                               "and 0 is without scales here",
                               names[i], (long long)mode, (long long)want);
    }
    if (want && ngd_node_has(node, 6))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                           "query_rope is given, but the cache is %s: a latent cache must have floats",
                           ngd_dtype_name(ngd_node_in(graph, node, 1)->dtype));
    return NGD_OK;
}

/* Checks the second part of queries and keys, which has sizes of its own and no values. */
static ngd_status_t check_rope_parts(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *query = ngd_node_in(graph, node, 0), *rope;
    ngd_status_t status;

    if (!ngd_node_has(node, 6) && !ngd_node_has(node, 7))
        return NGD_OK;
    if (!ngd_node_has(node, 6) || !ngd_node_has(node, 7))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "query_rope and key_rope belong together: give both, or none of them");
    rope = ngd_node_in(graph, node, 6);
    status = ngd_op_dtype_is(graph, node, 6, "query_rope", query->dtype, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 6, "query_rope", 3, "[T,H,R]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 6, "query_rope", 3,
                                 (ngd_dim_t[]){query->dims[0], query->dims[1], rope->dims[2]},
                                 "of query's rows and heads", diag);
    return status ? status : check_cache_beside(graph, node, 1, 7, "key_rope", rope->dims[2], diag);
}

/* Checks the scores that have no values, one for each head. */
static ngd_status_t check_sinks(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (!ngd_node_has(node, 8))
        return NGD_OK;
    if (ngd_node_in(graph, node, 8)->dtype != NGD_F32)
        status = ngd_op_same_or_narrower(graph, node, 8, "learnable_sink", diag);
    return status ? status
                  : ngd_op_shape_is(graph, node, 8, "learnable_sink", 1, &ngd_node_in(graph, node, 0)->dims[1], "[H]",
                                    diag);
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
        status = ngd_op_check_caches(graph, node, 1, kv_heads, query->dims[2], 9, diag);
    if (!status)
        status = check_cache_modes(graph, node, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 3, "block_table", NGD_I32, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 3, "block_table", 2, "[S,MB]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 4, "actual_seq_lengths", 1, table->dims, "[S]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 5, "actual_seq_lengths_kv", 1, table->dims, "[S]", diag);
    if (!status)
        status = check_rope_parts(graph, node, diag);
    if (!status)
        status = check_sinks(graph, node, diag);
    return status ? status : ngd_op_result(graph, node, 0, query->dtype, 3, query->dims, diag);
}

/*
 * T is the number of query rows, S that of sequences; one symbol may size both. A row of the result depends only
 * on the cache, table and lengths of its own sequence. Padded sequences have no query rows, and padded rows no
 * sequence.
 */
bool ngd_rows_fused_attention(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                              const char **why_p)
{
    static const uint32_t caches[] = {1, 2, 7, 9, 10};

    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++)
        if (ngd_node_has(node, caches[i]) && ngd_op_in_carries(graph, node, caches[i], symbol)) {
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
