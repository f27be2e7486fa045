/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixtures of experts: npu.moe_init_routing_v2 brings rows into the order of their experts, npu.grouped_matmul
 * multiplies each expert's rows with its weight, npu.moe_finalize_routing adds them up again.
 *
 * Only the weights of experts that have rows are read. An expert's rows are multiplied in small blocks, by the
 * functions of k_gemm.h: so a row's bits depend on neither its neighbours nor its block.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_gemm.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"
#include "graphs/experts.h"
#include <string.h>

/* ---- npu.moe_init_routing_v2 ------------------------------------------------------------------------- */

struct routing {
    int64_t experts, places; /* places: experts of a row */
    uint64_t row_bytes;
    bool wide; /* expert numbers are i64, else i32 */
};

static int64_t expert_at(const struct routing *r, const char *index, int64_t i)
{
    return r->wide ? ((const volatile int64_t *)(const void *)index)[i]
                   : ((const volatile int32_t *)(const void *)index)[i];
}

/*
 * Sorts by counting: ends[e] is first the rows of expert e, then where its next row goes, and so at last its end.
 * Numbers are read once, into to[]: a client may write its buffer meanwhile.
 */
static void run_moe_init_routing(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,
                                 uint32_t parts)
{
    const struct routing *r = call->params;
    const int64_t pairs = ngd_host_rows(call, run);
    int32_t *to = (int32_t *)(void *)call->ptrs[3];
    int64_t *ends = (int64_t *)(void *)call->ptrs[4], begin = 0;

    (void)part;
    (void)parts;
    memset(ends, 0, (size_t)r->experts * sizeof(*ends));
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t e = expert_at(r, call->ptrs[1], i);

        if (e < 0 || e >= r->experts) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, e);
            return;
        }
        to[i] = (int32_t)e;
        ends[e]++;
    }
    for (int64_t e = 0; e < r->experts; e++) {
        const int64_t n = ends[e];

        ends[e] = begin;
        begin += n;
    }
    for (int64_t i = 0; i < pairs; i++) {
        to[i] = (int32_t)ends[to[i]]++;
        memcpy(call->ptrs[2] + (uint64_t)to[i] * r->row_bytes, call->ptrs[0] + (uint64_t)(i / r->places) * r->row_bytes,
               r->row_bytes);
    }
    for (int64_t e = r->experts - 1; e > 0; e--)
        ends[e] -= ends[e - 1];
}

static ngd_status_t select_moe_init_routing(const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                            uint32_t threads, uint32_t *strided_p, uint64_t *workspace_p,
                                            struct ngd_diag *diag)
{
    const int64_t pairs = ngd_call_out(plan, call, 1)->dims[0];

    if (pairs > INT32_MAX)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "%lld expanded rows do not fit their i32 numbers",
                            (long long)pairs);
    return ngd_select_contiguous(plan, call, threads, strided_p, workspace_p, diag);
}

static ngd_status_t prepare_moe_init_routing(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1);
    struct routing *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));

    if (!r)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    r->experts = ngd_call_int(p->call, "expert_num");
    r->places = index->dims[1];
    r->row_bytes = (uint64_t)x->dims[1] * ngd_dtype_bytes(x->dtype);
    r->wide = index->dtype == NGD_I64;
    p->fn = run_moe_init_routing;
    p->params = r;
    p->serial = true;
    p->cost_ns = 20 + (double)r->experts + (double)index->dims[0] * (double)r->places * (4 + (double)r->row_bytes / 8);
    return NGD_OK;
}

/* ---- npu.grouped_matmul ------------------------------------------------------------------------------ */

#define BLOCK_ROWS \
    16 /* so few that the product is not `wide`: how many rows are planned must not change a row's bits */

/* A list of tensors: of expert e it is that of operand `first` + e, or part e of the first. */
struct expert_list {
    uint32_t first; /* 0: there is none */
    bool stacked;   /* one tensor has all */
    int64_t part;   /* bytes of an expert in it, perhaps 0 */
};

struct grouped {
    struct ngd_gemm g; /* m: rows of a block */
    int64_t experts;
    bool counts; /* group_list has the rows of each group, else the ends */
    struct expert_list weights, biases, antiquant[NGD_ANTIQUANTS];
};

static const char *of_expert(const struct ngd_host_call *call, const struct expert_list *l, int64_t e)
{
    if (!l->first)
        return NULL;
    return l->stacked ? call->ptrs[l->first] + e * l->part : call->ptrs[l->first + e];
}

static struct expert_list list_from(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t first,
                                    bool stacked)
{
    const struct ngd_plan_tensor *t = first ? ngd_call_in(plan, call, first) : NULL;
    int64_t part = (int64_t)(t ? ngd_dtype_bytes(t->dtype) : 0);

    for (uint32_t i = 1; t && i < t->rank; i++)
        part *= t->dims[i];
    return (struct expert_list){.first = first, .stacked = stacked, .part = part};
}

static struct ngd_expert_lists lists_of(const struct ngd_plan_call *call)
{
    uint32_t has = 0;

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        has |= ngd_call_int(call, ngd_antiquant_names[i].name) ? NGD_ANTIQUANT_BIT(i) : 0;
    return ngd_expert_lists(call->n_in, ngd_call_int(call, "bias") != 0, has);
}

/* Describes the product of a block. */
static struct grouped grouped_of(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const struct ngd_expert_lists lists = lists_of(call);
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0), *w = ngd_call_in(plan, call, NGD_EXPERTS_FIRST);
    const uint32_t lead = w->rank - 2u;
    const int64_t m = x->dims[0];
    const bool nk = ngd_call_int(call, "transpose_weight") != 0;
    struct grouped p = {
        .g = {.m = m < BLOCK_ROWS ? m : BLOCK_ROWS,
              .n = w->dims[lead + (nk ? 0 : 1)],
              .k = x->dims[1],
              .batch = 1,
              .ldx = x->dims[1],
              .ldw = w->dims[lead + 1],
              .ldy = w->dims[lead + (nk ? 0 : 1)],
              .bias_col = 1,
              .rows_mult = 1,
              .alpha = 1,
              .beta = 1,
              .xt = x->dtype,
              .wt = w->dtype,
              .nk = nk,
              .i_bias = lists.bias ? 0 : 0xff,
              .precision = plan->matmul_precision},
        .experts = lead ? w->dims[0] : lists.n,
        .counts = ngd_call_int(call, "group_list_type") == 1,
        .weights = list_from(plan, call, NGD_EXPERTS_FIRST, lead),
        .biases = list_from(plan, call, lists.bias, lead),
    };

    if (lists.bias)
        p.g.bias_type = ngd_call_in(plan, call, lists.bias)->dtype;
    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        p.antiquant[i] = list_from(plan, call, lists.antiquant[i], lead);
    if (lists.antiquant[NGD_ANTIQUANT_SCALE])
        ngd_gemm_of_quant_rows(plan, call, NGD_EXPERTS_FIRST, lists.antiquant, &p.g);
    return p;
}

/* Returns the end of group e, which begins at `begin`; -1 after ngd_host_fail. It is read once: a client may write its
 * buffer meanwhile. */
static int64_t group_end(const struct grouped *p, const struct ngd_host_call *call, struct ngd_host_run *run, int64_t e,
                         int64_t begin, int64_t rows)
{
    const int64_t given = ((const volatile int64_t *)(const void *)call->ptrs[1])[e];
    const int64_t least = p->counts ? 0 : begin, most = p->counts ? rows - begin : rows;

    if (given >= least && given <= most)
        return p->counts ? begin + given : given;
    ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, given);
    return -1;
}

static void run_grouped_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct grouped *p = call->params;
    const int64_t rows = ngd_host_rows(call, run), size = p->g.xt == NGD_F32 ? 4 : 2;
    int64_t begin = 0;

    for (int64_t e = 0; e < p->experts; e++) {
        const int64_t end = group_end(p, call, run, e, begin, rows);

        if (end < 0 || (end > begin && ngd_host_ends(call, run, false)))
            return;
        while (begin < end) {
            const int64_t n = end - begin < p->g.m ? end - begin : p->g.m;
            struct ngd_gemm_data d = {
                .x = call->ptrs[0] + begin * p->g.ldx * size,
                .w = of_expert(call, &p->weights, e),
                .bias = of_expert(call, &p->biases, e),
                .y = call->ptrs[call->n_in] + begin * p->g.ldy * size,
                .workspace = call->workspace + ngd_host_thread * p->g.thread_workspace,
            };

            for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
                d.antiquant[i] = of_expert(call, &p->antiquant[i], e);
            ngd_gemm_run(&p->g, &d, n, 1, part, parts);
            begin += n;
        }
    }
    if (part == 0 && begin < rows)
        memset(call->ptrs[call->n_in] + begin * p->g.ldy * size, 0, (size_t)((rows - begin) * p->g.ldy * size));
}

static ngd_status_t select_grouped(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct grouped p = grouped_of(plan, call);

    (void)strided_p;
    (void)diag;
    *workspace_p = ((ngd_gemm_workspace(&p.g) + 63) & ~(uint64_t)63) * threads;
    return NGD_OK;
}

static ngd_status_t prepare_grouped(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const int64_t rows = ngd_call_in(p->plan, p->call, 0)->dims[0];
    struct grouped *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));
    struct ngd_gemm all;

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    *s = grouped_of(p->plan, p->call);
    ngd_gemm_choose(&s->g, p->isa);
    all = s->g;
    all.batch = rows < s->experts ? rows : s->experts;
    all.m = rows / (all.batch > 0 ? all.batch : 1);
    p->fn = run_grouped_part;
    p->params = s;
    p->cost_ns = ngd_gemm_cost(&all, p->isa);
    return NGD_OK;
}

/* ---- npu.moe_finalize_routing ------------------------------------------------------------------------ */

#define COLUMNS 64 /* summed at a time */

struct finalize {
    int64_t places, width; /* experts of a row; elements of a row */
    void (*add)(const char *row, int64_t at, int64_t n, float scale, float *sums);
    void (*put)(const float *sums, int64_t n, char *row, int64_t at);
};

#define ADD_PUT(T, wide)                                                                           \
    static void finalize_add_##T(const char *row, int64_t at, int64_t n, float scale, float *sums) \
    {                                                                                              \
        const ngd_el_##T *x = (const ngd_el_##T *)(const void *)row + at;                          \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            sums[i] += scale * ngd_get_##T(x[i]);                                                  \
    }                                                                                              \
    static void finalize_put_##T(const float *sums, int64_t n, char *row, int64_t at)              \
    {                                                                                              \
        ngd_el_##T *y = (ngd_el_##T *)(void *)row + at;                                            \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = ngd_put_##T(sums[i]);                                                           \
    }
NGD_EACH_FLOAT(ADD_PUT)

/* Returns false after ngd_host_fail. Numbers of rows are checked as they are read: a client may write its buffer. */
static bool finalize_row(const struct finalize *f, const struct ngd_host_call *call, struct ngd_host_run *run,
                         int64_t t, int64_t rows, int64_t row_bytes)
{
    const float *scales = (const float *)(const void *)call->ptrs[1] + t * f->places;
    const volatile int32_t *from = (const int32_t *)(const void *)call->ptrs[2] + t * f->places;

    for (int64_t at = 0; at < f->width; at += COLUMNS) {
        const int64_t n = f->width - at < COLUMNS ? f->width - at : COLUMNS;
        float sums[COLUMNS] = {0};

        for (int64_t j = 0; j < f->places; j++) {
            const int64_t row = from[j];

            if (row < 0 || row >= rows * f->places) {
                ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, row);
                return false;
            }
            f->add(call->ptrs[0] + row * row_bytes, at, n, scales[j], sums);
        }
        f->put(sums, n, call->ptrs[3] + t * row_bytes, at);
    }
    return true;
}

static void run_moe_finalize(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct finalize *f = call->params;
    const int64_t rows = ngd_host_rows(call, run), row_bytes = f->width * (f->add == finalize_add_f32 ? 4 : 2);
    int64_t begin, end;

    ngd_host_split(rows, 1, part, parts, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        if (!finalize_row(f, call, run, t, rows, row_bytes))
            return;
}

static ngd_status_t prepare_moe_finalize(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    static const struct finalize by_type[] = {[NGD_F32] = {.add = finalize_add_f32, .put = finalize_put_f32},
                                              [NGD_F16] = {.add = finalize_add_f16, .put = finalize_put_f16},
                                              [NGD_BF16] = {.add = finalize_add_bf16, .put = finalize_put_bf16}};
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    struct finalize *f = ngd_arena_calloc(p->arena, 1, sizeof(*f));

    if (!f)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    *f = by_type[x->dtype];
    f->places = ngd_call_in(p->plan, p->call, 1)->dims[1];
    f->width = x->dims[1];
    p->fn = run_moe_finalize;
    p->params = f;
    p->cost_ns = 20 + (double)x->dims[0] * (double)f->width / 2;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_moe_init_routing = {.select = select_moe_init_routing,
                                                          .prepare = prepare_moe_init_routing};
const struct ngd_host_kernel ngd_host_grouped_matmul = {.select = select_grouped, .prepare = prepare_grouped};
const struct ngd_host_kernel ngd_host_moe_finalize_routing = {.select = ngd_select_contiguous,
                                                              .prepare = prepare_moe_finalize};
