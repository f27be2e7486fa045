/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aten.mm, aten.bmm, aten.addmm, aten.linear, npu.transpose_batchmatmul, npu.weight_quant_batchmatmul: chooses between
 * the ways of k_gemm.h, and splits the work between the threads of a team.
 *
 * Work is counted in units: tiles of columns, times passes over rows (for `wide`), times matrices of the batch. A part
 * takes a run of units, so a thread reads weights in the order of memory.
 */
#include "devices/host/kernels/k_gemm_quant.h"
#include "base/mem.h"
#include "devices/host/static.h"
#include <string.h>

/*
 * From this many planned rows on, `wide` is faster: measured with bench_host_gemm, K 1024 and 3072, bf16 weights. The
 * bucket decides, not the rows of a replay, so that a row's result does not depend on the other rows.
 */
#define WIDE_ROWS      NGD_GEMM_WIDE_ROWS
#define COLS_PER_UNIT  16 /* for dot and axpy: 64 bytes of f32 results, so that parts share no line of y */
#define COLS_PER_TILES 32 /* for tiles: two tiles of A */
#define AMX_FLOPS      300
#define STREAM_BYTES   (512 << 10) /* a weight above this does not stay in the L2 cache from step to step */

/* In generated code these functions are inlined, and no copy of them is kept. */
#ifdef NGD_STATIC
#define NGD_GEMM_API extern inline __attribute__((gnu_inline, always_inline))
#else
#define NGD_GEMM_API
#endif

/* ---- results ----------------------------------------------------------------------------------------- */

static void gemm_store(char *p, ngd_dtype_t t, int64_t i, float v)
{
    if (t == NGD_F32)
        ((float *)(void *)p)[i] = v;
    else
        ((uint16_t *)(void *)p)[i] = t == NGD_F16 ? ngd_f32_to_f16(v) : ngd_f32_to_bf16(v);
}

NGD_GEMM_API void ngd_gemm_put(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t row, int64_t col,
                               const float *sums, int64_t n)
{
    const int64_t at = (row - d->row0) * g->ldy + col - d->col0;

    if (g->plain_y) {
        float *y = (float *)(void *)d->y + at;
        const float *residual = (const float *)(const void *)d->residual + at;

        if (!d->residual)
            memcpy(y, sums, (size_t)n * sizeof(float));
        for (int64_t i = 0; d->residual && i < n; i++)
            y[i] = residual[i] + sums[i];
        return;
    }
#ifndef NGD_STATIC
    if (g->alpha == 1 && !d->bias && !d->residual) {
        g->table->narrow[g->xt](sums, n, d->y + at * (g->xt == NGD_F32 ? 4 : 2));
        return;
    }
#endif
    for (int64_t i = 0; i < n; i++) {
        float v = g->alpha * sums[i];

        if (d->bias)
            v += g->beta * ngd_float_at(d->bias, g->bias_type, row * g->bias_row + (col + i) * g->bias_col);
        gemm_store(d->y, g->xt, at + i, v);
        if (d->residual)
            gemm_store(d->y, g->xt, at + i,
                       ngd_float_at(d->residual, g->xt, at + i) + ngd_float_at(d->y, g->xt, at + i));
    }
}

#ifndef NGD_STATIC
#define NGD_GEMM_INTERLEAVE(g) (g)->table->interleave[(g)->xt]
#define NGD_GEMM_DOT_OF(g)     (g)->table->dot[(g)->wt]
#define NGD_GEMM_AXPY_OF(g)    (g)->table->axpy[(g)->wt]

#endif

/* ---- dot and axpy ------------------------------------------------------------------------------------ */

static void lay_out_dot(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
#ifndef NGD_STATIC
    if (g->quant.group) {
        ngd_quant_lay_out(g, x, rows, workspace);
        return;
    }
#endif
    NGD_GEMM_INTERLEAVE(g)(x, g->ldx, rows, g->k, g->wt == NGD_BF16, (float *)(void *)workspace);
}

static void run_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                    int64_t n1)
{
    (void)m0; /* all rows are one pass */
#ifndef NGD_STATIC
    if (g->quant.group) {
        ngd_quant_dot(g, d, m1, n0, n1);
        return;
    }
#endif
    NGD_GEMM_DOT_OF(g)(g, d, (const float *)(const void *)d->workspace, m1, n0, n1);
}

static void run_axpy(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                     int64_t n1)
{
    (void)m0;
    NGD_GEMM_AXPY_OF(g)(g, d, m1, n0, n1);
}

#ifndef NGD_STATIC
static bool is_wide(const struct ngd_gemm *g)
{
    return (g->m >= WIDE_ROWS && g->n >= NGD_GEMM_NT / 2) || (g->quant.group && !g->quant.streamed);
}

static bool dot_fits(const struct ngd_gemm *g)
{
    return g->nk && !is_wide(g);
}

static bool axpy_fits(const struct ngd_gemm *g)
{
    return !g->nk && !is_wide(g);
}

static uint64_t dot_bytes(const struct ngd_gemm *g, int64_t rows)
{
    return g->quant.group ? ngd_quant_area(g, NULL, NULL)
                          : (uint64_t)rows * (((uint64_t)g->k + 31) & ~(uint64_t)31) * sizeof(float);
}

static uint64_t axpy_bytes(const struct ngd_gemm *g, int64_t rows)
{
    (void)rows;
    return g->xt == NGD_F32 ? 0 : ((uint64_t)g->k * 4 * sizeof(float) + 63) & ~(uint64_t)63;
}

static bool on_any(ngd_isa_t isa)
{
    (void)isa;
    return true;
}

#if defined(NGD_HAVE_AMX)
static bool on_amx(ngd_isa_t isa)
{
    return isa >= NGD_ISA_AMX;
}
#endif

#if defined(NGD_HAVE_AMX) && defined(NGD_HAVE_AVX512VNNI)
static bool digit_tiles_work(ngd_isa_t isa)
{
    return on_amx(isa) && ngd_cpu_has_vnni(isa) && ngd_digit_tiles_work(isa);
}
#endif
#endif

/* ---- the ways ---------------------------------------------------------------------------------------- */

#ifndef NGD_STATIC
/* Of the ways that fit a product, on a CPU on which they work, the last one is taken. */
static const struct ngd_gemm_way_row {
    const char *name;
    int64_t width;                             /* columns of a unit */
    int64_t (*rows)(const struct ngd_gemm *g); /* of x, that one pass takes; NULL: all */
    /* Lays out rows of x at the beginning of the workspace, where run finds them. NULL: run needs no such thing. */
    void (*lay_out)(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace);
    void (*run)(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                int64_t n1);
    bool (*fits)(const struct ngd_gemm *g);
    bool (*works)(ngd_isa_t isa);
    uint64_t (*bytes)(const struct ngd_gemm *g, int64_t rows); /* of a workspace for rows of a pass */
    double flops;                                              /* in a nanosecond; 0: as the instruction set has it */
} ways[] = {
    [NGD_GEMM_DOT] = {"dot", COLS_PER_UNIT, NULL, lay_out_dot, run_dot, dot_fits, on_any, dot_bytes, 0},
    [NGD_GEMM_AXPY] = {"axpy", COLS_PER_UNIT, NULL, NULL, run_axpy, axpy_fits, on_any, axpy_bytes, 0},
    [NGD_GEMM_WIDE] = {"wide", NGD_GEMM_NT, ngd_gemm_wide_rows, NULL, ngd_gemm_wide_run, is_wide, on_any,
                       ngd_gemm_wide_bytes, 0},
#if defined(NGD_HAVE_AVX512VNNI)
    [NGD_GEMM_DIGITS] = {"digits", COLS_PER_UNIT, ngd_gemm_digits_rows, ngd_gemm_digits_lay_out, ngd_gemm_digits_run,
                         ngd_gemm_digits_fit, ngd_cpu_has_vnni, ngd_gemm_digits_bytes, 0},
#endif
#if defined(NGD_HAVE_AMX)
    [NGD_GEMM_PANELS] = {"panels", NGD_GEMM_NT, ngd_gemm_panel_rows, ngd_gemm_amx_lay_out, ngd_gemm_panel_run,
                         ngd_gemm_panel_fits, on_amx, ngd_gemm_panel_bytes, AMX_FLOPS},
    [NGD_GEMM_TILES] = {"tiles", COLS_PER_TILES, ngd_gemm_amx_rows, ngd_gemm_amx_lay_out, ngd_gemm_amx_run,
                        ngd_gemm_amx_fits, on_amx, ngd_gemm_amx_bytes, AMX_FLOPS},
#endif
#if defined(NGD_HAVE_AMX) && defined(NGD_HAVE_AVX512VNNI)
    [NGD_GEMM_DIGIT_TILES] = {"digit tiles", COLS_PER_TILES, ngd_digit_tiles_rows, ngd_digit_tiles_lay_out,
                              ngd_digit_tiles_run, ngd_digit_tiles_fit, digit_tiles_work, ngd_digit_tiles_bytes,
                              AMX_FLOPS},
#endif
};

static int64_t way_width(const struct ngd_gemm *g)
{
    return ways[g->way].width;
}

static int64_t way_rows(const struct ngd_gemm *g, int64_t rows)
{
    return ways[g->way].rows ? ways[g->way].rows(g) : rows;
}

static bool way_lays_out(const struct ngd_gemm *g)
{
    return ways[g->way].lay_out != NULL;
}

static void way_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
    ways[g->way].lay_out(g, x, rows, workspace);
}

static void way_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                    int64_t n1)
{
    ways[g->way].run(g, d, m0, m1, n0, n1);
}
#else /* generated code has dot and axpy, in calls that the compiler inlines: out of a table it inlines nothing */
static int64_t way_width(const struct ngd_gemm *g)
{
    return (void)g, COLS_PER_UNIT;
}

static int64_t way_rows(const struct ngd_gemm *g, int64_t rows)
{
    return (void)g, rows;
}

static bool way_lays_out(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_DOT;
}

static void way_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
    lay_out_dot(g, x, rows, workspace);
}

static void way_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                    int64_t n1)
{
    if (g->way == NGD_GEMM_DOT)
        run_dot(g, d, m0, m1, n0, n1);
    else
        run_axpy(g, d, m0, m1, n0, n1);
}
#endif

/* ---- running ----------------------------------------------------------------------------------------- */

/* Stores the result for a K of 0, where every sum is 0. */
static void put_zeros(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                      int64_t n1)
{
    static const float zeros[COLS_PER_UNIT];

    for (int64_t m = m0; m < m1; m++)
        for (int64_t n = n0; n < n1; n += COLS_PER_UNIT)
            ngd_gemm_put(g, d, m, n, zeros, n1 - n < COLS_PER_UNIT ? n1 - n : COLS_PER_UNIT);
}

/* Returns the rows of x in one pass. */
static int64_t pass_rows(const struct ngd_gemm *g, int64_t rows)
{
    return g->k > 0 ? way_rows(g, rows) : rows;
}

NGD_GEMM_API struct ngd_gemm_units ngd_gemm_units(const struct ngd_gemm *g, int64_t rows)
{
    const int64_t width = way_width(g), each = pass_rows(g, rows);

    return (struct ngd_gemm_units){
        .width = width,
        .tiles = (g->n + width - 1) / width,
        .passes = rows > each ? (rows + each - 1) / each : 1,
    };
}

NGD_GEMM_API void ngd_gemm_pass(const struct ngd_gemm *g, int64_t rows, int64_t pass, int64_t *m0_p, int64_t *m1_p)
{
    const int64_t each = pass_rows(g, rows);

    *m0_p = pass * each;
    *m1_p = rows - *m0_p > each ? *m0_p + each : rows;
}

NGD_GEMM_API bool ngd_gemm_lays_out(const struct ngd_gemm *g, int64_t rows)
{
    return g->k > 0 && way_lays_out(g) && rows <= pass_rows(g, rows);
}

static void lay_out_rows(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1)
{
    way_lay_out(g, d->x + m0 * g->ldx * (g->xt == NGD_F32 ? 4 : 2), m1 - m0, d->workspace);
}

NGD_GEMM_API void ngd_gemm_lay_out(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows)
{
    lay_out_rows(g, d, 0, rows);
}

NGD_GEMM_API void ngd_gemm_columns(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t pass,
                                   int64_t n0, int64_t n1)
{
    int64_t m0, m1;

    if (pass_rows(g, rows) >= rows)
        pass = 0; /* which a compiler of generated code does not know otherwise */
    ngd_gemm_pass(g, rows, pass, &m0, &m1);
    if (g->k == 0) {
        put_zeros(g, d, m0, m1, n0, n1);
        return;
    }
    if (way_lays_out(g) && d->laid_out != pass + 1)
        lay_out_rows(g, d, m0, m1);
    way_run(g, d, m0, m1, n0, n1);
}

NGD_GEMM_API void ngd_gemm_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t batch,
                               uint32_t part, uint32_t parts)
{
    const struct ngd_gemm_units units = ngd_gemm_units(g, rows);
    const int64_t xs = g->xt == NGD_F32 ? 4 : 2, ws = g->wt == NGD_F32 ? 4 : 2;
    int64_t u, end, n;

    if (rows <= 0 || g->n == 0)
        return;
    for (ngd_host_split(batch * units.passes * units.tiles, 1, part, parts, &u, &end); u < end; u += n) {
        const int64_t tile = u % units.tiles, pass = u / units.tiles % units.passes, b = u / units.tiles / units.passes,
                      last = (tile + end - u) * units.width;
        struct ngd_gemm_data mine = *d;

        n = units.tiles - tile < end - u ? units.tiles - tile : end - u;
        mine.x += b * g->step_x * xs;
        mine.w += b * g->step_w * ws;
        mine.y += b * g->step_y * xs;
        ngd_gemm_columns(g, &mine, rows, pass, tile * units.width, last < g->n ? last : g->n);
    }
}

static struct ngd_gemm_data product_data(const struct ngd_gemm *g, const struct ngd_host_call *call)
{
    struct ngd_gemm_data d = {
        .x = call->ptrs[g->i_x],
        .w = call->ptrs[g->i_w],
        .bias = g->i_bias == 0xff ? NULL : call->ptrs[g->i_bias],
        .y = call->ptrs[call->n_in],
        .workspace = call->workspace + ngd_host_thread * g->thread_workspace,
    };

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        if (g->quant.has & NGD_ANTIQUANT_BIT(i))
            d.antiquant[i] = call->ptrs[g->quant.antiquant[i].i];
    return d;
}

static void gemm_multiply(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_host_run *run,
                          int64_t rows, uint32_t part, uint32_t parts)
{
    struct ngd_gemm_data d = product_data(g, call);

    d.laid_out = ngd_gemm_lays_out(g, rows);
    if (d.laid_out && ngd_host_first_part(call, run))
        ngd_gemm_lay_out(g, &d, rows);
    ngd_gemm_run(g, &d, rows, 1, part, parts);
}

#ifndef NGD_STATIC
static void run_gemm_rows(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;

    gemm_multiply(g, call, run, ngd_gemm_rows(g, call, run), part, parts);
}

/* Runs a product whose batch is fixed; the rows that vary are those of its matrices. */
static void run_each(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;
    struct ngd_gemm_data d = product_data(g, call);

    ngd_gemm_run(g, &d, ngd_host_rows(call, run), g->batch, part, parts);
}

static void run_batch(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;
    struct ngd_gemm_data d = product_data(g, call);

    ngd_gemm_run(g, &d, g->m, ngd_host_rows(call, run), part, parts);
}

static void run_permuted(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;

    (g->by_batch ? run_batch : run_each)(call, run, part, parts);
}

/* ---- choosing ---------------------------------------------------------------------------------------- */

static double weight_bytes(const struct ngd_gemm *g)
{
    if (g->quant.group)
        return ngd_quant_nibbles(g) ? 0.5 : 1;
    return g->wt == NGD_F32 ? 4 : 2;
}

/* Returns the workspace that a thread needs, whatever the instruction set will be. */
uint64_t ngd_gemm_workspace(const struct ngd_gemm *g)
{
    struct ngd_gemm copy = *g;
    uint64_t most = 0;

    copy.quant.segment = g->quant.group ? ngd_quant_segment(g) : 0;
    for (copy.way = 0; copy.way < sizeof(ways) / sizeof(ways[0]); copy.way++) {
        const struct ngd_gemm_way_row *way = &ways[copy.way];
        uint64_t bytes;
        int64_t rows;

        if (!way->run || !way->fits(&copy))
            continue;
        rows = pass_rows(&copy, g->m);
        bytes = way->bytes(&copy, g->m < rows ? g->m : rows);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void ngd_gemm_choose(struct ngd_gemm *g, ngd_isa_t isa)
{
    g->thread_workspace = (ngd_gemm_workspace(g) + 63) & ~(uint64_t)63;
    g->quant.segment = g->quant.group ? ngd_quant_segment(g) : 0;
    g->table = NGD_BY_ISA(isa, ngd_gemm_table);
    for (uint32_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (ways[i].run && ways[i].fits(g) && ways[i].works(isa))
            g->way = (ngd_gemm_way_t)i;
    g->plain_y = g->xt == NGD_F32 && g->alpha == 1.0f && g->i_bias == 0xff;
    g->stream = (double)g->n * (double)g->k * weight_bytes(g) > STREAM_BYTES;
    g->alike = true;
    if (g->way == NGD_GEMM_WIDE && isa != NGD_ISA_SCALAR)
        ngd_gemm_wide_choose(g, isa);
}

const char *ngd_gemm_way_name(const struct ngd_gemm *g)
{
    return ways[g->way].name;
}

/* Estimates the time of reading w at 10 GB/s and of the arithmetic at half of a core's peak. Returns the longer one. */
double ngd_gemm_cost(const struct ngd_gemm *g, ngd_isa_t isa)
{
    static const double flops_per_ns[NGD_ISA_MAX] = {2, 25, 50, 50, 50};
    const double weights = (double)g->n * (double)g->k * (double)g->batch;
    const double read = weights * weight_bytes(g) / 10,
                 flops = ways[g->way].flops > 0 ? ways[g->way].flops : flops_per_ns[isa],
                 math = 2 * weights * (double)g->m / flops;

    return 50 + (read > math ? read : math);
}

/* ---- the operators -------------------------------------------------------------------------------- */

static ngd_status_t select_gemm(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct ngd_gemm g;

    (void)diag;
    ngd_gemm_of_call(plan, call, &g, strided_p);
    *workspace_p = ((ngd_gemm_workspace(&g) + 63) & ~(uint64_t)63) * threads;
    return NGD_OK;
}

static ngd_status_t prepare_with(ngd_host_fn fn, struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct ngd_gemm *g = ngd_arena_alloc(p->arena, sizeof(*g));
    uint32_t strided;

    if (!g)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    ngd_gemm_of_call(p->plan, p->call, g, &strided);
    ngd_gemm_choose(g, p->isa);
    p->params = g;
    p->fn = fn;
    p->cost_ns = ngd_gemm_cost(g, p->isa);
    return NGD_OK;
}

/* `tiles` has its own code and `wide` runs in a library: neither gains by constants. */
bool ngd_gemm_emittable(const struct ngd_gemm *g)
{
    return g->wt == NGD_BF16 && (g->way == NGD_GEMM_DOT || g->way == NGD_GEMM_AXPY) && g->k > 0;
}

#define FIELD(field) NGD_STATIC_FIELD(struct ngd_gemm, field)
static const struct ngd_static_field constants[] = {
    FIELD(m),         FIELD(n),
    FIELD(k),         FIELD(batch),
    FIELD(ldx),       FIELD(ldw),
    FIELD(ldy),       FIELD(step_x),
    FIELD(step_w),    FIELD(step_y),
    FIELD(bias_row),  FIELD(bias_col),
    FIELD(rows_mult), FIELD(alpha),
    FIELD(beta),      FIELD(xt),
    FIELD(wt),        FIELD(bias_type),
    FIELD(nk),        FIELD(plain_y),
    FIELD(stream),    FIELD(i_x),
    FIELD(i_w),       FIELD(i_bias),
    FIELD(way),       FIELD(thread_workspace),
};

void ngd_gemm_emit(const struct ngd_gemm *g, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "{");
    ngd_static_emit_fields(sb, g, constants, sizeof(constants) / sizeof(constants[0]));
    ngd_strbuf_append(sb, "}");
}

void ngd_gemm_emit_rows(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    if (g->vector)
        ngd_strbuf_append(sb, "1");
    else
        ngd_static_emit_rows(call, g->rows_mult, sb);
}

static bool emit_rows(const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    const struct ngd_gemm *g = call->params;

    if (!ngd_gemm_emittable(g) || call->fn != run_gemm_rows)
        return false;
    ngd_strbuf_append(sb, "    static const struct ngd_gemm p = ");
    ngd_gemm_emit(g, sb);
    ngd_strbuf_append(sb, ";\n    gemm_multiply(&p, call, run, ");
    ngd_gemm_emit_rows(g, call, sb);
    ngd_strbuf_append(sb, ", 0, 1);\n");
    return true;
}

#define GEMM_KERNEL(name, run_fn)                                                         \
    static ngd_status_t prepare_##name(struct ngd_host_prepare *p, struct ngd_diag *diag) \
    {                                                                                     \
        return prepare_with(run_fn, p, diag);                                             \
    }                                                                                     \
    extern const struct ngd_host_kernel ngd_host_##name;                                  \
    const struct ngd_host_kernel ngd_host_##name = {                                      \
        .select = select_gemm, .prepare = prepare_##name, .emit = emit_rows, .family = NGD_STATIC_LINEAR}

GEMM_KERNEL(mm, run_gemm_rows);
GEMM_KERNEL(bmm, run_batch);
GEMM_KERNEL(addmm, run_gemm_rows);
GEMM_KERNEL(linear, run_gemm_rows);
GEMM_KERNEL(transpose_bmm, run_permuted);
GEMM_KERNEL(weight_quant, run_gemm_rows);
#endif
