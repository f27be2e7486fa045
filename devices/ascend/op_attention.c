/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builder of attention over a paged cache: the fused operator in one of its layouts, or a composition of other
 * operators. attention.c chooses which.
 *
 * In ROWS each row of the query is a sequence of its own, with one row: every chip, version and length takes that, and
 * keys and values are read once for each row. PREFILL is one padded sequence, RAGGED are several without padding, both
 * for many rows of a sequence. PARTS is made of gathering, products and a softmax in f32, in chunks of rows.
 */
#include "devices/ascend/attention_rows.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define T(v)        ngd_ascend_tensor(c, &(v))
#define MASK_SIDE   2048                /* of the compressed causal mask of sparse mode 3 */
#define NO_LIMIT    INT64_C(2147483647) /* tokens before and behind a row that it may see */
#define PARTS_ROOM  INT64_C(32)         /* bytes of all temporaries of PARTS for one element of keys or scores */
#define CHUNK_BYTES ((int64_t)64 << 20) /* of keys in f32 that PARTS gathers at a time */

struct attention {
    struct ascend_view q, k, v, table, y; /* of one dtype */
    struct ascend_view q_rope, k_rope;    /* second parts of queries and keys, of rope_d numbers; of ROWS and PARTS */
    int64_t rope_d;                       /* 0: none */
    struct ascend_view sink;              /* a score of no key for each head, if has_sink; only PARTS has it */
    bool has_sink, latent;                /* latent: values are the keys */
    int64_t rows, sequences, width;       /* of the query; of the table */
    int64_t heads, kv_heads, d, block, blocks;
    double scale, cap;           /* cap 0: scores are taken as they are */
    int64_t window;              /* keys that a row sees; 0: all. Only PARTS has these two */
    int64_t *queries, *contexts; /* what CANN gets, NULL and 0: nothing */
    int64_t n_queries, n_contexts;
};

/* ---- lists ------------------------------------------------------------------------------------------- */

/* The longest context that the row of the table and the cache hold. */
static int64_t longest_context(const struct attention *a)
{
    return (a->width < a->blocks ? a->width : a->blocks) * a->block;
}

static void put_row_lengths(const struct ascend_issue *c, struct attention *a)
{
    const struct ascend_rows *rows = ngd_ascend_rows_of(c);

    a->n_contexts = a->rows;
    for (int64_t i = 0; i < a->rows; i++)
        a->contexts[i] = rows ? ngd_ascend_row_context(c->inst, rows, i) : longest_context(a);
}

/* One sequence, whose rows are the first ones. */
static void put_prefill_lengths(const struct ascend_issue *c, struct attention *a)
{
    const struct ngd_host_value *q = c->hosts ? &c->hosts[c->call->host[4]] : NULL;
    const struct ngd_host_value *k = c->hosts ? &c->hosts[c->call->host[5]] : NULL;

    a->n_queries = a->n_contexts = 1;
    a->queries[0] = q ? q->values[0] : a->rows;
    a->contexts[0] = k ? k->values[0] : longest_context(a);
}

/* Rows of no sequence are left out: the query and the result end where the last sequence does. */
static void put_ragged_lengths(const struct ascend_issue *c, struct attention *a)
{
    const struct ngd_host_value *q = c->hosts ? &c->hosts[c->call->host[4]] : NULL;
    const struct ngd_host_value *k = c->hosts ? &c->hosts[c->call->host[5]] : NULL;
    int64_t last = 0;

    a->n_queries = a->n_contexts = a->sequences;
    for (int64_t i = 0; i < a->sequences; i++) {
        const bool given = q && i < (int64_t)q->n;

        a->queries[i] = q ? (given ? q->values[i] : last) : a->rows * (i + 1) / a->sequences;
        a->contexts[i] = q ? (given && a->queries[i] > last ? k->values[i] : 0) : longest_context(a);
        last = a->queries[i];
    }
    a->q.dims[0] = a->y.dims[0] = last;
}

/* ---- the fused operator ------------------------------------------------------------------------------ */

static void run_fused(struct ascend_issue *c, struct attention *a, char *layout, bool causal)
{
    struct ascend_view mask = {.dtype = NGD_BOOL,
                               .rank = 2,
                               .dims = {MASK_SIDE, MASK_SIDE},
                               .strides = {MASK_SIDE, 1},
                               .storage = (int64_t)MASK_SIDE * MASK_SIDE,
                               .base = c->dev->mask};

#define OPERANDS                                                                                            \
    T(a->q), ngd_ascend_list(c, &a->k, 1), ngd_ascend_list(c, &a->v, 1), NULL, causal ? T(mask) : NULL,     \
        a->n_queries ? ngd_ascend_ints(c, a->queries, (uint64_t)a->n_queries) : NULL,                       \
        ngd_ascend_ints(c, a->contexts, (uint64_t)a->n_contexts), NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        T(a->table), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, a->rope_d ? T(a->q_rope) : NULL, \
        a->rope_d ? T(a->k_rope) : NULL, NULL, a->heads, a->scale, NO_LIMIT, NO_LIMIT, layout, a->kv_heads, \
        causal ? 3 : 0, 0, a->block, 0, false, 0, 0, T(a->y), NULL
    ngd_ascend_task_group_begin(c);
    ASCEND_RUN(c, FusedInferAttentionScoreV3, OPERANDS);
    ngd_ascend_task_group_end(c);
    /* What updates may need, if the library says it; else it is the workspace of the longest contexts. */
    if (c->mode == ASCEND_MEASURE && c->acl->aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize &&
        ngd_ascend_wants(c, "aclnnFusedInferAttentionScoreV3", true))
        ngd_ascend_phase2(c, "aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize",
                          c->acl->aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize(OPERANDS, &c->ws, &c->executor),
                          c->acl->aclnnFusedInferAttentionScoreV3);
#undef OPERANDS
}

/* [T,N,D] as [B,S,N*D] */
static struct ascend_view as_bsh(const struct ascend_view *v, int64_t batches)
{
    return ngd_ascend_reshape(v, 3, (const int64_t[]){batches, v->dims[0] / batches, v->dims[1] * v->dims[2]});
}

/* ---- the composition --------------------------------------------------------------------------------- */

static struct ascend_view filled(struct ascend_issue *c, double value)
{
    struct ascend_view v = ngd_ascend_temp(c, NGD_F32, 1, (const int64_t[]){1});

    ASCEND_RUN(c, InplaceFillScalar, T(v), ngd_ascend_scalar(c, value, NGD_F32));
    return v;
}

/* Rows [begin, begin + n) of what is contiguous. */
static struct ascend_view rows_of_view(const struct ascend_view *v, int64_t begin, int64_t n)
{
    struct ascend_view r = *v;

    r.offset += begin * v->strides[0];
    r.dims[0] = n;
    return r;
}

/* What PARTS works with, for `chunk` rows at a time. */
struct parts {
    int64_t chunk, keys;
    struct ascend_view seen, found, k, v, kept, scores, shares, out; /* temporaries */
    struct ascend_view rope, q_rope; /* the second parts: of keys, a temporary; of queries, scaled */
    struct ascend_view sink, with_sink, shares_with_sink; /* behind the scores of all keys */
    struct ascend_view positions, contexts, none, zero;
    struct ascend_view firsts, in_window; /* of a window: contexts without it; the keys behind these */
};

/* Of keys of one row, in f32. Refuses what cannot be counted, all temporaries together: each is of keys or scores. */
static int64_t row_bytes(struct ascend_issue *c, const struct attention *a)
{
    const int64_t hidden = a->kv_heads * (a->d > a->rope_d ? a->d : a->rope_d);
    int64_t keys, bytes, all;

    if (__builtin_mul_overflow(a->width, a->block, &keys) ||
        __builtin_mul_overflow(keys, hidden > a->heads ? hidden : a->heads, &bytes) ||
        __builtin_mul_overflow(bytes, PARTS_ROOM, &all)) {
        ngd_ascend_refuse(c, "a context of %" PRId64 " blocks of %" PRId64 " keys is too large", a->width, a->block);
        return 0;
    }
    return keys * hidden * 4;
}

/* Room for scores and their shares with a sink behind them, and the sinks of all rows. */
static void open_sink(struct ascend_issue *c, const struct attention *a, struct parts *p)
{
    const int64_t group = a->heads / a->kv_heads, dims[] = {p->chunk, a->kv_heads, group, p->keys + 1};
    struct ascend_view sink = ngd_ascend_cast(c, &a->sink, NGD_F32);

    sink = ngd_ascend_reshape(&sink, 4, (const int64_t[]){1, a->kv_heads, group, 1});
    sink.dims[0] = p->chunk;
    sink.strides[0] = 0;
    p->sink = ngd_ascend_temp(c, NGD_F32, 4, sink.dims);
    ngd_ascend_store(c, &sink, &p->sink);
    p->with_sink = ngd_ascend_temp(c, NGD_F32, 4, dims);
    p->shares_with_sink = ngd_ascend_temp(c, NGD_F32, 4, dims);
}

static void open_parts(struct ascend_issue *c, const struct attention *a, int64_t row, struct parts *p)
{
    const int64_t keys = a->width * a->block;
    int64_t chunk = CHUNK_BYTES / row, room;

    chunk = chunk < 1 ? 1 : chunk > a->rows ? a->rows : chunk;
    p->chunk = chunk;
    p->keys = keys;
    p->positions = ngd_ascend_temp(c, NGD_I32, 1, &keys);
    p->none = filled(c, -INFINITY);
    p->zero = filled(c, 0);
    p->seen = ngd_ascend_temp(c, NGD_BOOL, 2, (const int64_t[]){chunk, keys});
    if (a->window) {
        p->in_window = ngd_ascend_temp(c, NGD_BOOL, 2, p->seen.dims);
        p->firsts = ngd_ascend_temp(c, NGD_I32, 1, p->contexts.dims);
        ASCEND_RUN(c, Subs, T(p->contexts), ngd_ascend_scalar(c, (double)a->window, NGD_I32),
                   ngd_ascend_scalar(c, 1, NGD_I32), T(p->firsts));
    }
    room = chunk * (row / 4);
    p->found = ngd_ascend_temp(c, a->k.dtype, 1, &room);
    p->k = ngd_ascend_temp(c, NGD_F32, 4, (const int64_t[]){chunk, a->kv_heads, keys, a->d});
    p->v = a->latent ? p->k : ngd_ascend_temp(c, NGD_F32, 4, p->k.dims);
    if (a->rope_d)
        p->rope = ngd_ascend_temp(c, NGD_F32, 4, (const int64_t[]){chunk, a->kv_heads, keys, a->rope_d});
    p->kept = ngd_ascend_temp(c, NGD_F32, 4, p->k.dims);
    p->scores = ngd_ascend_temp(c, NGD_F32, 4, (const int64_t[]){chunk, a->kv_heads, a->heads / a->kv_heads, keys});
    p->shares = ngd_ascend_temp(c, NGD_F32, 4, p->scores.dims);
    if (a->has_sink)
        open_sink(c, a, p);
    p->out = ngd_ascend_temp(c, NGD_F32, 3, (const int64_t[]){chunk, a->heads, a->d});
    ASCEND_RUN(c, Arange, ngd_ascend_scalar(c, 0, NGD_I64), ngd_ascend_scalar(c, (double)keys, NGD_I64),
               ngd_ascend_scalar(c, 1, NGD_I64), T(p->positions));
}

/* The blocks of n rows of the table, as [n, heads, keys, D] in f32, with the D of the cache. */
static void gather_blocks(struct ascend_issue *c, const struct attention *a, const struct parts *p,
                          const struct ascend_view *cache, const struct ascend_view *index,
                          const struct ascend_view *to)
{
    const int64_t n = to->dims[0], d = to->dims[3], hidden = a->kv_heads * d;
    struct ascend_view flat = ngd_ascend_reshape(cache, 2, (const int64_t[]){a->blocks, a->block * hidden});
    struct ascend_view found = rows_of_view(&p->found, 0, n * a->width * a->block * hidden), turned;

    found = ngd_ascend_reshape(&found, 2, (const int64_t[]){n * a->width, a->block * hidden});
    turned = found;

    ASCEND_RUN(c, IndexSelect, T(flat), 0, ngd_ascend_tensor(c, index), T(found));
    turned.rank = 4;
    memcpy(turned.dims, to->dims, sizeof(turned.dims));
    memcpy(turned.strides, ((const int64_t[]){p->keys * hidden, d, hidden, 1}), 4 * sizeof(int64_t));
    ngd_ascend_store(c, &turned, to);
}

/* Which keys the n rows from row `begin` on see: those before their contexts' ends, and within the window. */
static struct ascend_view find_seen(struct ascend_issue *c, const struct attention *a, const struct parts *p,
                                    int64_t begin, int64_t n)
{
    struct ascend_view position = ngd_ascend_reshape(&p->positions, 2, (const int64_t[]){1, p->keys});
    struct ascend_view context = rows_of_view(&p->contexts, begin, n), seen = rows_of_view(&p->seen, 0, n);
    struct ascend_view first, near;

    context = ngd_ascend_reshape(&context, 2, (const int64_t[]){n, 1});
    ASCEND_RUN(c, LtTensor, T(position), T(context), T(seen));
    if (!a->window)
        return seen;
    near = rows_of_view(&p->in_window, 0, n);
    first = rows_of_view(&p->firsts, begin, n);
    first = ngd_ascend_reshape(&first, 2, (const int64_t[]){n, 1});
    ASCEND_RUN(c, GeTensor, T(position), T(first), T(near));
    ASCEND_RUN(c, LogicalAnd, T(seen), T(near), T(seen));
    return seen;
}

/* scores = cap * tanh(scores / cap); other: a temporary of their shape. */
static void cap_scores(struct ascend_issue *c, double cap, const struct ascend_view *scores,
                       const struct ascend_view *other)
{
    ASCEND_RUN(c, Muls, ngd_ascend_tensor(c, scores), ngd_ascend_scalar(c, 1 / cap, NGD_F32),
               ngd_ascend_tensor(c, other));
    ASCEND_RUN(c, Tanh, ngd_ascend_tensor(c, other), ngd_ascend_tensor(c, scores));
    ASCEND_RUN(c, Muls, ngd_ascend_tensor(c, scores), ngd_ascend_scalar(c, cap, NGD_F32), ngd_ascend_tensor(c, other));
    ngd_ascend_store(c, other, scores);
}

/* scores = the products of n rows of queries, [n, heads, D], with their keys. */
static void score_keys(struct ascend_issue *c, const struct attention *a, const struct ascend_view *q,
                       const struct ascend_view *k, const struct ascend_view *scores)
{
    const int64_t matrices = k->dims[0] * a->kv_heads, keys = k->dims[2], d = k->dims[3];
    const int64_t group = a->heads / a->kv_heads;
    struct ascend_view x = ngd_ascend_reshape(q, 3, (const int64_t[]){matrices, group, d});
    struct ascend_view m = ngd_ascend_reshape(k, 3, (const int64_t[]){matrices, keys, d});
    struct ascend_view s = ngd_ascend_reshape(scores, 3, (const int64_t[]){matrices, group, keys});

    m = ngd_ascend_transpose(&m);
    ASCEND_RUN(c, BatchMatMul, T(x), T(m), T(s), NGD_ACL_CUBE_KEEP_DTYPE);
}

/* Adds the products of the second parts to the scores; other: a temporary of their shape. */
static void add_ropes(struct ascend_issue *c, const struct attention *a, const struct parts *p,
                      const struct ascend_view *index, int64_t begin, const struct ascend_view *scores,
                      const struct ascend_view *other)
{
    const int64_t n = scores->dims[0];
    struct ascend_view k = rows_of_view(&p->rope, 0, n), q = rows_of_view(&p->q_rope, begin, n);

    gather_blocks(c, a, p, &a->k_rope, index, &k);
    score_keys(c, a, &q, &k, other);
    ASCEND_RUN(c, InplaceAdd, ngd_ascend_tensor(c, scores), ngd_ascend_tensor(c, other),
               ngd_ascend_scalar(c, 1, NGD_F32));
}

/* shares = the softmax of scores with a sink behind them, but for the sink's own share. */
static void share_with_sink(struct ascend_issue *c, const struct parts *p, const struct ascend_view *scores,
                            const struct ascend_view *shares)
{
    const int64_t n = scores->dims[0];
    struct ascend_view all = rows_of_view(&p->with_sink, 0, n), of_all = rows_of_view(&p->shares_with_sink, 0, n);
    const struct ascend_view parts[] = {*scores, rows_of_view(&p->sink, 0, n)};

    ASCEND_RUN(c, Cat, ngd_ascend_list(c, parts, 2), -1, T(all));
    ASCEND_RUN(c, Softmax, T(all), -1, T(of_all));
    of_all.dims[3] = p->keys;
    ngd_ascend_store(c, &of_all, shares);
}

/* n rows from row `begin` on. q is scaled, in f32. */
__attribute__((noinline)) /* its views are large */
static void
attend_chunk(struct ascend_issue *c, const struct attention *a, const struct parts *p, const struct ascend_view *q,
             int64_t begin, int64_t n)
{
    const int64_t matrices = n * a->kv_heads, group = a->heads / a->kv_heads;
    struct ascend_view index = rows_of_view(&a->table, begin, n), seen = find_seen(c, a, p, begin, n);
    struct ascend_view k = rows_of_view(&p->k, 0, n), v = rows_of_view(&p->v, 0, n),
                       kept = rows_of_view(&p->kept, 0, n);
    struct ascend_view scores = rows_of_view(&p->scores, 0, n), shares = rows_of_view(&p->shares, 0, n);
    struct ascend_view out = rows_of_view(&p->out, 0, n), to = rows_of_view(&a->y, begin, n);
    struct ascend_view by_key, by_row, x, m, s;

    index = ngd_ascend_reshape(&index, 1, (const int64_t[]){n * a->width});
    by_key = ngd_ascend_reshape(&seen, 4, (const int64_t[]){n, 1, p->keys, 1});
    by_row = ngd_ascend_reshape(&seen, 4, (const int64_t[]){n, 1, 1, p->keys});
    gather_blocks(c, a, p, &a->k, &index, &k);
    if (!a->latent)
        gather_blocks(c, a, p, &a->v, &index, &v);
    /* Behind the context lies anything, NaN too, which a share of 0 would not remove. */
    ASCEND_RUN(c, SWhere, T(by_key), T(v), T(p->zero), T(kept));
    x = rows_of_view(q, begin, n);
    score_keys(c, a, &x, &k, &scores);
    if (a->rope_d)
        add_ropes(c, a, p, &index, begin, &scores, &shares);
    if (a->cap > 0)
        cap_scores(c, a->cap, &scores, &shares);
    ASCEND_RUN(c, SWhere, T(by_row), T(scores), T(p->none), T(shares));
    if (a->has_sink)
        share_with_sink(c, p, &shares, &scores);
    else
        ASCEND_RUN(c, Softmax, T(shares), -1, T(scores));
    s = ngd_ascend_reshape(&scores, 3, (const int64_t[]){matrices, group, p->keys});
    m = ngd_ascend_reshape(&kept, 3, (const int64_t[]){matrices, p->keys, a->d});
    x = ngd_ascend_reshape(&out, 3, (const int64_t[]){matrices, group, a->d});
    ASCEND_RUN(c, BatchMatMul, T(s), T(m), T(x), NGD_ACL_CUBE_KEEP_DTYPE);
    ngd_ascend_store(c, &out, &to);
}

static void fill_with_zeros(struct ascend_issue *c, const struct ascend_view *v)
{
    ASCEND_RUN(c, InplaceFillScalar, ngd_ascend_tensor(c, v), ngd_ascend_scalar(c, 0, v->dtype));
}

/* Queries times the scale, in f32. */
static struct ascend_view scale_query(struct ascend_issue *c, const struct attention *a, const struct ascend_view *q)
{
    struct ascend_view wide = ngd_ascend_cast(c, q, NGD_F32), scaled = ngd_ascend_temp(c, NGD_F32, q->rank, q->dims);

    ASCEND_RUN(c, Muls, T(wide), ngd_ascend_scalar(c, a->scale, NGD_F32), T(scaled));
    return scaled;
}

static void run_parts(struct ascend_issue *c, struct attention *a)
{
    const int64_t row = row_bytes(c, a);
    struct ascend_view scaled;
    struct parts p = {0};

    if (c->status)
        return;
    a->table = ngd_ascend_row_tables(c, &a->table, a->rows);
    p.contexts = ngd_ascend_row_contexts(c, a->rows);
    scaled = scale_query(c, a, &a->q);
    if (a->rope_d)
        p.q_rope = scale_query(c, a, &a->q_rope);
    open_parts(c, a, row, &p);
    for (int64_t begin = 0; begin < a->rows && !c->status; begin += p.chunk) {
        ngd_ascend_release_operands(c);
        attend_chunk(c, a, &p, &scaled, begin, a->rows - begin < p.chunk ? a->rows - begin : p.chunk);
        if (c->mode == ASCEND_MEASURE)
            break; /* the others need no more */
    }
}

/* ---- the builder ------------------------------------------------------------------------------------- */

static bool is_taken(struct ascend_issue *c, const struct attention *a)
{
    if ((a->k.dtype != NGD_F16 && a->k.dtype != NGD_BF16) || a->k.dtype != a->v.dtype) {
        ngd_ascend_refuse(c, "the KV cache is %s, it must be f16 or bf16 (kv_dtype when a model is loaded)",
                          ngd_dtype_name(a->k.dtype));
        return false;
    }
    if (strcmp(ngd_call_str(c->call, "input_layout"), "TND") != 0) {
        ngd_ascend_refuse(c, "input_layout must be TND");
        return false;
    }
    return true;
}

static void run_way(struct ascend_issue *c, struct attention *a)
{
    char bsh[] = "BSH", tnd[] = "TND";

    if (c->way == ASCEND_WAY_PARTS) {
        if (a->width > 0 && a->blocks > 0 && a->block > 0)
            run_parts(c, a);
        else
            fill_with_zeros(c, &a->y); /* a context has no key */
        return;
    }
    if (c->way == ASCEND_WAY_ROWS)
        a->table = ngd_ascend_row_tables(c, &a->table, a->rows);
    a->k = ngd_ascend_reshape(&a->k, 3, (const int64_t[]){a->blocks, a->block, a->kv_heads * a->d});
    a->v = ngd_ascend_reshape(&a->v, 3, (const int64_t[]){a->blocks, a->block, a->kv_heads * a->d});
    switch (c->way) {
    case ASCEND_WAY_ROWS:
        put_row_lengths(c, a);
        a->q = as_bsh(&a->q, a->rows);
        a->y = as_bsh(&a->y, a->rows);
        if (a->rope_d) {
            a->q_rope = as_bsh(&a->q_rope, a->rows);
            a->k_rope = ngd_ascend_reshape(&a->k_rope, 3, (const int64_t[]){a->blocks, a->block, a->rope_d});
        }
        run_fused(c, a, bsh, false);
        break;
    case ASCEND_WAY_PREFILL:
        put_prefill_lengths(c, a);
        a->q = as_bsh(&a->q, 1);
        a->y = as_bsh(&a->y, 1);
        run_fused(c, a, bsh, true);
        break;
    default:
        put_ragged_lengths(c, a);
        run_fused(c, a, tnd, true);
    }
}

/* For this launch only: in a captured graph the lengths are those of any launch, all of whose rows are of sequences. */
static bool is_issued_once(const struct ascend_issue *c)
{
    return c->mode == ASCEND_ISSUE && !c->capturing;
}

void ngd_ascend_build_attention(struct ascend_issue *c)
{
    struct ascend_view q = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), result = y;
    struct attention a = {.k = ngd_ascend_in(c, 1),
                          .v = ngd_ascend_in(c, 2),
                          .table = ngd_ascend_in(c, 3),
                          .rows = q.dims[0],
                          .heads = ngd_call_int(c->call, "num_heads"),
                          .kv_heads = ngd_call_int(c->call, "num_key_value_heads"),
                          .d = q.dims[2],
                          .block = ngd_call_int(c->call, "block_size"),
                          .scale = ngd_call_float(c->call, "scale"),
                          .cap = ngd_call_float(c->call, "soft_cap")};
    const int64_t last = c->hosts ? ngd_ascend_last_row(&c->hosts[c->call->host[4]]) : a.rows;
    int64_t most;

    if (c->status || !is_taken(c, &a))
        return;
    a.latent = c->call->in[1] == c->call->in[2];
    if (ngd_ascend_has(c, 6)) {
        a.q_rope = ngd_ascend_in(c, 6);
        a.k_rope = ngd_ascend_in(c, 7);
        a.rope_d = a.k_rope.dims[3];
    }
    a.has_sink = ngd_ascend_has(c, 8);
    if (a.has_sink)
        a.sink = ngd_ascend_in(c, 8);
    if (ngd_call_int(c->call, "sparse_mode") == 4)
        a.window = ngd_call_int(c->call, "pre_tokens") + 1;
    if (last == 0 && is_issued_once(c)) { /* the operator takes no empty query */
        fill_with_zeros(c, &y);
        return;
    }
    a.sequences = a.table.dims[0];
    a.width = a.table.dims[1];
    a.blocks = a.k.dims[0];
    most = a.rows > a.sequences ? a.rows : a.sequences;
    a.queries = NGD_NEW_N(int64_t, (size_t)(2 * most + 2));
    if (!a.queries) {
        c->status =
            ngd_diag_set(c->diag, NGD_ERR_NO_MEMORY, "no host memory for the lengths of %" PRId64 " rows", most);
        return;
    }
    a.contexts = a.queries + most + 1;
    if (q.dtype != a.k.dtype)
        result = ngd_ascend_temp(c, a.k.dtype, y.rank, y.dims);
    a.q = ngd_ascend_cast(c, &q, a.k.dtype);
    if (a.rope_d)
        a.q_rope = ngd_ascend_cast(c, &a.q_rope, a.k.dtype);
    a.y = result;
    run_way(c, &a);
    ngd_free(a.queries);
    if (result.dtype != y.dtype)
        ngd_ascend_store(c, &result, &y);
    if (c->mode == ASCEND_MEASURE || (last < q.dims[0] && is_issued_once(c))) {
        y = rows_of_view(&y, last < q.dims[0] ? last : 0, last < q.dims[0] ? q.dims[0] - last : last);
        fill_with_zeros(c, &y);
    }
}
