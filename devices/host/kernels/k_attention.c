/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.fused_infer_attention_score: finds the rows of each sequence and the addresses of its keys, and splits the work.
 *
 * The host lists come with every replay and the block table is data, so both are checked here before an address is
 * computed from them. Lengths that do not fit, or a block outside the cache, end the call with INDEX_RANGE.
 *
 * Work is counted in units: a block of rows of one sequence, with the query heads of one key head, or, if that makes
 * fewer units than threads, with a piece of them. Every part walks the list of sequences, which is short, to find its
 * own units.
 *
 * query_rope and key_rope are a second part of queries and keys (k_attention.h). With the latent cache of MLA,
 * key_cache and value_cache are one tensor with one head.
 *
 * Scales of a cache in i8 or f8 lie by block, head and row, so those of a block's keys are copied at once.
 */
#include "devices/host/kernels/k_attention.h"
#include "base/mem.h"
#include "devices/host/static.h"
#include <math.h>
#include <string.h>

struct attention {
    int64_t heads, kv_heads, group, d, dp;
    int64_t rope_d, rope_at; /* of the second parts: k_attention.h */
    int64_t row_block;       /* rows of a sequence that are computed together */
    int64_t block_size, blocks, table_width, tokens;
    int64_t q_row[2], q_head[2];                 /* bytes; query, query_rope */
    int64_t kv_block[3], kv_slot[3], kv_head[3]; /* bytes; keys, values, key_rope */
    int64_t scale_block[2], scale_head[2];       /* bytes; of keys and values */
    int64_t table_row;                           /* elements */
    int64_t y_row, y_head;                       /* bytes */
    int64_t window;                              /* keys that a row sees, its own among them; 0: all */
    float scale, cap;
    ngd_dtype_t qt, ct;
    bool scaled;    /* the cache has scales */
    float scale_by; /* 1 / SIMD_F8 for f8, else 1 */
    bool sinks;     /* each row has a score without a value, by head */
    ngd_dtype_t sink_type;
    bool latent;                  /* values are the keys: one read gives both */
    uint32_t threads;             /* that may work on a call */
    uint32_t lengths, lengths_kv; /* host parameters */
    uint64_t thread_workspace;
    const struct ngd_attn_table *table;
};

/* ---- one unit ---------------------------------------------------------------------------------------- */

struct unit {
    int64_t row, rows;     /* of the query tensor */
    int64_t keys;          /* up to the first row's own; each later row has one more */
    int64_t head;          /* of the cache */
    int64_t first, group;  /* query heads: the first one, and how many */
    const int32_t *blocks; /* the sequence's row of the table */
};

/* Computes the addresses of n rows of cache i, from a slot of a block on. */
static void find_cached_rows(const struct attention *a, const char *cache, int i, const struct unit *u, int64_t block,
                             int64_t slot, int64_t n, const char **rows)
{
    const char *row = cache + block * a->kv_block[i] + slot * a->kv_slot[i] + u->head * a->kv_head[i];

    for (int64_t k = 0; k < n; k++, row += a->kv_slot[i])
        rows[k] = row;
}

/* Gets n scales of keys and values, from a slot of a block on. */
static void find_scales(const struct attention *a, const struct ngd_host_call *call, const struct unit *u,
                        int64_t block, int64_t slot, int64_t n, int64_t j, const struct ngd_attn_scratch *s)
{
    float *const to[2] = {s->key_scale + j, s->value_scale + j};

    for (int i = 0; i < 2; i++) {
        const char *row = call->ptrs[9 + i] + block * a->scale_block[i] + u->head * a->scale_head[i];
        const float *from = (const float *)(const void *)row + slot;

        for (int64_t k = 0; k < n; k++)
            to[i][k] = from[k] * a->scale_by;
    }
}

/* Fetches the scales of keys [at, end), each of whose lines lies in a block of its own, so that no other access fetches
 * them. */
static void prefetch_scales(const struct attention *a, const struct ngd_host_call *call, const struct unit *u,
                            int64_t at, int64_t end)
{
    const int64_t line = 64 / (int64_t)sizeof(float);

    while (at < end) {
        const int64_t slot = at % a->block_size, block = u->blocks[at / a->block_size];
        const int64_t rest = a->block_size - slot;

        if (block < 0 || block >= a->blocks) /* find_keys() tells */
            return;
        for (int i = 0; i < 2; i++)
            __builtin_prefetch(call->ptrs[9 + i] + block * a->scale_block[i] + u->head * a->scale_head[i] +
                               slot * (int64_t)sizeof(float));
        at += rest < line ? rest : line;
    }
}

/* Computes the addresses of keys [begin + j, begin + n). */
static bool find_keys(const struct attention *a, const struct ngd_host_call *call, struct ngd_host_run *run,
                      const struct unit *u, int64_t begin, int64_t j, int64_t n, struct ngd_attn_scratch *s)
{
    while (j < n) {
        const int64_t at = begin + j, slot = at % a->block_size, block = u->blocks[at / a->block_size];
        const int64_t run_of = a->block_size - slot < n - j ? a->block_size - slot : n - j;

        if (block < 0 || block >= a->blocks) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, block);
            return false;
        }
        find_cached_rows(a, call->ptrs[1], 0, u, block, slot, run_of, s->k + j);
        find_cached_rows(a, call->ptrs[2], 1, u, block, slot, run_of, s->v + j);
        if (a->rope_d)
            find_cached_rows(a, call->ptrs[7], 2, u, block, slot, run_of, s->rope + j);
        if (a->scaled)
            find_scales(a, call, u, block, slot, run_of, j, s);
        j += run_of;
    }
    return true;
}

/* A sink counts as a key before the first one that has no value. */
static void begin_paged_unit(const struct attention *a, const struct ngd_host_call *call, const struct unit *u,
                             struct ngd_attn_scratch *s)
{
    for (int64_t i = 0; i < u->rows * u->group; i++) {
        const int64_t row = u->row + i / u->group, head = u->first + i % u->group;
        float *q = s->q + i * a->dp;

        a->table->load[a->qt](call->ptrs[0] + row * a->q_row[0] + head * a->q_head[0], a->d, a->rope_at, a->scale, q);
        if (a->rope_d)
            a->table->load[a->qt](call->ptrs[6] + row * a->q_row[1] + head * a->q_head[1], a->rope_d,
                                  a->dp - a->rope_at, a->scale, q + a->rope_at);
        memset(s->o + i * a->dp, 0, (size_t)a->dp * sizeof(float));
        s->max[i] = a->sinks ? ngd_float_at(call->ptrs[8], a->sink_type, head) : -INFINITY;
        s->sum[i] = a->sinks ? 1 : 0;
    }
}

static void end_unit(const struct attention *a, const struct ngd_host_call *call, const struct unit *u,
                     const struct ngd_attn_scratch *s)
{
    for (int64_t i = 0; i < u->rows * u->group; i++) {
        char *y = call->ptrs[call->n_in] + (u->row + i / u->group) * a->y_row + (u->first + i % u->group) * a->y_head;

        a->table->store[a->qt](s->o + i * a->dp, s->sum[i], a->d, y);
    }
}

/* The first key that a row sees which has `keys` keys with its own. */
static int64_t first_key(const struct attention *a, int64_t keys)
{
    return a->window && keys > a->window ? keys - a->window : 0;
}

static int64_t within_chunk(int64_t key, int64_t n)
{
    return key < 0 ? 0 : key < n ? key : n;
}

static void run_paged_unit(const struct attention *a, const struct ngd_host_call *call, struct ngd_host_run *run,
                           const struct unit *u)
{
    const int64_t queries = u->rows * u->group, total = u->keys + u->rows - 1, first = first_key(a, u->keys);
    struct ngd_attn_scratch s;
    char *room = call->workspace + ngd_host_thread * a->thread_workspace;
    int64_t *count =
        ngd_attn_lay_out(&s, room, (uint64_t)(a->row_block * a->group), (uint64_t)a->dp, false, a->window > 0);

    if (a->scaled)
        ngd_attn_lay_out_scales(&s, room + a->thread_workspace);
    s.cap = a->cap;
    s.rope_d = a->rope_d;
    s.rope_at = a->rope_at;
    begin_paged_unit(a, call, u, &s);
    for (int64_t at = first / NGD_ATTN_CHUNK * NGD_ATTN_CHUNK; at < total; at += NGD_ATTN_CHUNK) {
        const int64_t n = total - at < NGD_ATTN_CHUNK ? total - at : NGD_ATTN_CHUNK;

        if (!find_keys(a, call, run, u, at, first > at ? first - at : 0, n, &s))
            return;
        if (a->scaled) /* of the next chunk */
            prefetch_scales(a, call, u, at + n, total - at - n < NGD_ATTN_CHUNK ? total : at + n + NGD_ATTN_CHUNK);
        for (int64_t i = 0; i < queries; i++) {
            count[i] = within_chunk(u->keys + i / u->group - at, n);
            if (s.from)
                s.from[i] = within_chunk(first_key(a, u->keys + i / u->group) - at, n);
        }
        a->table->chunk[a->ct](&s, a->d, a->d, a->dp, queries, count);
    }
    end_unit(a, call, u, &s);
}

/* ---- sequences --------------------------------------------------------------------------------------- */

struct sequences {
    int64_t n;
    int64_t pieces;            /* of the query heads of a key head */
    const int64_t *end, *keys; /* host parameters */
};

/* Checks the lengths of the sequences. Returns false after ngd_host_fail. */
static bool check_sequences(const struct attention *a, const struct ngd_host_call *call, struct ngd_host_run *run,
                            struct sequences *q)
{
    const struct ngd_host_value *end = &run->hosts[a->lengths], *keys = &run->hosts[a->lengths_kv];
    const int64_t rows = ngd_host_rows(call, run);
    int64_t before = 0;

    *q = (struct sequences){
        .n = end->n < keys->n ? end->n : keys->n, .pieces = 1, .end = end->values, .keys = keys->values};
    for (int64_t i = 0; i < q->n; before = q->end[i++]) {
        if (q->end[i] < before || q->end[i] > rows) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, q->end[i]);
            return false;
        }
        if (q->end[i] > before && (q->keys[i] < q->end[i] - before || q->keys[i] > a->table_width * a->block_size)) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, q->keys[i]);
            return false;
        }
    }
    return true;
}

static int64_t units_of(const struct attention *a, const struct sequences *q, int64_t i)
{
    const int64_t rows = q->end[i] - (i ? q->end[i - 1] : 0);

    return (rows + a->row_block - 1) / a->row_block * a->kv_heads * q->pieces;
}

/*
 * Divides the query heads of each key head until there is a unit for each thread; a piece has four heads or more, which
 * are computed together (GROUP of k_attention_impl.h). Each piece reads the keys, so this is for few units only, as of
 * one sequence with a latent cache. Returns the number of all units.
 */
static int64_t divide_heads(const struct attention *a, struct sequences *q, uint32_t parts)
{
    int64_t total = 0;

    for (int64_t i = 0; i < q->n; i++)
        total += units_of(a, q, i);
    parts = parts < a->threads ? parts : a->threads;
    while (total * q->pieces < parts && a->group >= 8 * q->pieces)
        q->pieces *= 2;
    return total * q->pieces;
}

/* Finds a unit of sequence i by its number. Later rows come first: they take longest, and short units fill the gaps at
 * the end. */
static struct unit unit_of(const struct attention *a, const struct ngd_host_call *call, const struct sequences *q,
                           int64_t i, int64_t number)
{
    const int64_t begin = i ? q->end[i - 1] : 0, rows = q->end[i] - begin;
    const int64_t blocks = (rows + a->row_block - 1) / a->row_block, of_block = a->kv_heads * q->pieces;
    const int64_t row = (blocks - 1 - number / of_block) * a->row_block, head = number % of_block / q->pieces;
    int64_t first, last;

    ngd_host_split(a->group, 1, (uint32_t)(number % q->pieces), (uint32_t)q->pieces, &first, &last);

    return (struct unit){
        .row = begin + row,
        .rows = rows - row < a->row_block ? rows - row : a->row_block,
        .keys = q->keys[i] - rows + row + 1,
        .head = head,
        .first = head * a->group + first,
        .group = last - first,
        .blocks = (const int32_t *)(const void *)call->ptrs[3] + i * a->table_row,
    };
}

/* Fills the rows that belong to no sequence with zeros. */
static void clear_rest(const struct attention *a, const struct ngd_host_call *call, const struct ngd_host_run *run,
                       const struct sequences *q)
{
    const int64_t used = q->n ? q->end[q->n - 1] : 0, rows = ngd_host_rows(call, run);

    if (used < rows)
        memset(call->ptrs[call->n_in] + used * a->y_row, 0, (size_t)((rows - used) * a->y_row));
}

static void attend_units(const struct attention *a, const struct ngd_host_call *call, struct ngd_host_run *run,
                         uint32_t part, uint32_t parts)
{
    struct sequences q;
    int64_t begin, end, first = 0;

    if (!check_sequences(a, call, run, &q))
        return;
    if (part == 0)
        clear_rest(a, call, run, &q);
    ngd_host_split(divide_heads(a, &q, parts), 1, part, parts, &begin, &end);
    for (int64_t i = 0; i < q.n && first < end; i++) {
        const int64_t units = units_of(a, &q, i);

        for (int64_t u = begin > first ? begin - first : 0; u < units && first + u < end; u++) {
            const struct unit unit = unit_of(a, call, &q, i, u);

            run_paged_unit(a, call, run, &unit);
        }
        first += units;
    }
}

#ifndef NGD_STATIC
static void run_paged_attention(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,
                                uint32_t parts)
{
    attend_units(call->params, call, run, part, parts);
}

/* ---- capture ----------------------------------------------------------------------------------------- */

static void set_caches(struct attention *a, const struct ngd_plan_tensor *const cache[3])
{
    for (int i = 0; i < 3 && cache[i]; i++) {
        const int64_t size = (int64_t)ngd_dtype_bytes(cache[i]->dtype);

        a->kv_block[i] = cache[i]->strides[0] * size;
        a->kv_slot[i] = cache[i]->strides[1] * size;
        a->kv_head[i] = cache[i]->strides[2] * size;
    }
    a->blocks = cache[0]->dims[0];
    a->ct = cache[0]->dtype;
}

static void set_scales(struct attention *a, const struct ngd_plan_tensor *const scale[2])
{
    a->scaled = scale[0] != NULL;
    a->scale_by = a->ct == NGD_F8_E4M3FN ? 256 : 1;
    for (int i = 0; i < 2 && a->scaled; i++) {
        a->scale_block[i] = scale[i]->strides[0] * (int64_t)sizeof(float);
        a->scale_head[i] = scale[i]->strides[1] * (int64_t)sizeof(float);
    }
}

static struct attention attention_of(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const struct ngd_plan_tensor *q = ngd_call_in(plan, call, 0), *table = ngd_call_in(plan, call, 3);
    const struct ngd_plan_tensor *rope = ngd_call_in(plan, call, 6);
    const struct ngd_plan_tensor *cache[3] = {ngd_call_in(plan, call, 1), ngd_call_in(plan, call, 2),
                                              ngd_call_in(plan, call, 7)};
    const int64_t size = (int64_t)ngd_dtype_bytes(q->dtype);
    struct attention a = {
        .heads = ngd_call_int(call, "num_heads"),
        .kv_heads = ngd_call_int(call, "num_key_value_heads"),
        .d = q->dims[2],
        .rope_at = (q->dims[2] + 15) & ~(int64_t)15,
        .block_size = ngd_call_int(call, "block_size"),
        .table_width = table->dims[1],
        .tokens = q->dims[0],
        .q_row = {q->strides[0] * size, rope ? rope->strides[0] * size : 0},
        .q_head = {q->strides[1] * size, rope ? rope->strides[1] * size : 0},
        .table_row = table->strides[0],
        .y_row = q->dims[1] * q->dims[2] * size,
        .y_head = q->dims[2] * size,
        .scale = (float)ngd_call_float(call, "scale"),
        .cap = (float)ngd_call_float(call, "soft_cap"),
        .qt = q->dtype,
        .lengths = call->host[4],
        .lengths_kv = call->host[5],
    };

    if (ngd_call_int(call, "sparse_mode") == 4)
        a.window = ngd_call_int(call, "pre_tokens") + 1;
    a.rope_d = rope ? rope->dims[2] : 0;
    a.dp = a.rope_at + ((a.rope_d + 15) & ~(int64_t)15);
    a.group = a.heads / a.kv_heads;
    a.row_block = a.group < NGD_ATTN_QUERIES ? NGD_ATTN_QUERIES / a.group : 1;
    set_caches(&a, cache);
    set_scales(&a, (const struct ngd_plan_tensor *const[2]){ngd_call_in(plan, call, 9), ngd_call_in(plan, call, 10)});
    a.sinks = ngd_call_in(plan, call, 8) != NULL;
    a.sink_type = a.sinks ? ngd_call_in(plan, call, 8)->dtype : NGD_F32;
    a.latent = call->in[1] == call->in[2];
    a.thread_workspace = ngd_attn_scratch_bytes((uint64_t)(a.row_block * a.group), (uint64_t)a.dp, false);
    return a;
}

static bool last_contiguous(const struct ngd_plan_tensor *t)
{
    return t->strides[t->rank - 1] == 1 || t->dims[t->rank - 1] == 1;
}

static ngd_status_t attention_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                     uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct attention a = attention_of(plan, call);

    (void)diag;
    for (uint32_t i = 0; i < 11; i++)
        if (i < 4 || (i > 5 && i != 8 && ngd_call_in(plan, call, i)))
            *strided_p |= (uint32_t)last_contiguous(ngd_call_in(plan, call, i)) << i;
    *workspace_p = a.thread_workspace * threads;
    return NGD_OK;
}

/* Estimates the cost for a context half as long as the table allows, at most 2048. The real length is not known before
 * the replay. */
static double attention_cost(const struct attention *a, ngd_isa_t isa)
{
    const double most = a->window && a->window < 2048 ? (double)a->window : 2048;
    const double limit = (double)a->table_width * (double)a->block_size / 2, context = limit < most ? limit : most;
    const double size = (double)ngd_dtype_bytes(a->ct);
    const double read = context * (double)a->kv_heads * (double)((a->latent ? 1 : 2) * a->d + a->rope_d) * size / 8;
    const double math =
        2 * context * (double)(a->tokens * a->heads * (2 * a->d + a->rope_d)) / (isa == NGD_ISA_SCALAR ? 1.5 : 20);

    return 100 + (read > math ? read : math);
}

static ngd_status_t attention_prepare(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct attention *a = ngd_arena_alloc(p->arena, sizeof(*a));

    if (!a)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    *a = attention_of(p->plan, p->call);
    a->threads = p->threads;
    a->table = NGD_BY_ISA(p->isa, ngd_attn_table);
    p->params = a;
    p->fn = run_paged_attention;
    p->cost_ns = attention_cost(a, p->isa);
    return NGD_OK;
}

#define FIELD(field) NGD_STATIC_FIELD(struct attention, field)
static const struct ngd_static_field constants[] = {
    FIELD(heads),      FIELD(kv_heads),  FIELD(group),       FIELD(d),
    FIELD(dp),         FIELD(rope_d),    FIELD(rope_at),     FIELD(row_block),
    FIELD(block_size), FIELD(blocks),    FIELD(table_width), FIELD(tokens),
    FIELD(q_row),      FIELD(q_head),    FIELD(kv_block),    FIELD(kv_slot),
    FIELD(kv_head),    FIELD(table_row), FIELD(y_row),       FIELD(y_head),
    FIELD(scale),      FIELD(qt),        FIELD(window),      FIELD(cap),
    FIELD(ct),         FIELD(lengths),   FIELD(lengths_kv),  FIELD(thread_workspace),
    FIELD(sinks),      FIELD(sink_type), FIELD(scaled),      FIELD(scale_block),
    FIELD(scale_head), FIELD(scale_by),
};

static bool attention_emit(const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    const struct attention *a = call->params;

    ngd_strbuf_append(sb, "    static const struct attention p = {.table = &SIMD_NAME(ngd_attn_table), ");
    ngd_static_emit_fields(sb, a, constants, sizeof(constants) / sizeof(constants[0]));
    ngd_strbuf_append(sb, "};\n    attend_units(&p, call, run, 0, 1);\n");
    return true;
}

extern const struct ngd_host_kernel ngd_host_attention;
const struct ngd_host_kernel ngd_host_attention = {
    .select = attention_select, .prepare = attention_prepare, .emit = attention_emit, .family = NGD_STATIC_ATTENTION};
#endif
