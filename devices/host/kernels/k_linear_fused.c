/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears fused with what a decoder has around them: an rms_norm before, several weights for one x, a residual sum or a
 * gate after. Results are those of the separate operators, rounding by rounding.
 *
 * Every thread normalises the rows of x for itself, into its part of the workspace, once per call: that takes less time
 * than a hand-over between threads. The gate works tile by tile of columns, on the sums of both weights while they are
 * in the L1 cache.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_gemm.h"
#include "devices/host/kernels/k_norm.h"
#include "devices/host/kernels/k_rotary.h"
#include "devices/host/static.h"
#include "devices/host/kernels/unroll.h"
#include <string.h>

#define MAX_LINEARS 8
#define GATE_COLS   64 /* columns of a tile; a multiple of any unit's width */

struct fused {
    struct ngd_gemm g[MAX_LINEARS];
    uint32_t n;
    bool one_layout; /* all products need the same layout of the rows of x, so the first one lays them out */
    /* the norm before; NULL: none */
    ngd_rms_fn norm;
    ngd_dtype_t gamma_type;
    float eps;
    int64_t ldx; /* elements from row to row of x */
    /* the gate after; NULL: none. g[0] is the gate, g[1] is multiplied with it. */
    ngd_swiglu_fn gate;
    int64_t ldy;
    uint8_t i_residual; /* 0xff: none */
    uint64_t norm_bytes, tile_bytes, thread_workspace;
};

static int64_t element_size(ngd_dtype_t t)
{
    return t == NGD_F32 ? 4 : 2;
}

static uint64_t round_to_lines(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

static void normalise(const struct fused *f, const struct ngd_host_call *call, int64_t rows, char *to)
{
    const int64_t size = element_size(f->g[0].xt), k = f->g[0].k;
    float rstd;

    for (int64_t m = 0; m < rows; m++)
        f->norm(call->ptrs[0] + m * f->ldx * size, NULL, call->ptrs[1], to + m * k * size, &rstd, NULL, k, f->eps);
}

/* Returns what the products have in common. The rows of x are normalised then. */
static struct ngd_gemm_data fused_data(const struct fused *f, const struct ngd_host_call *call,
                                       const struct ngd_host_run *run, int64_t rows)
{
    char *room = call->workspace + ngd_host_thread * f->thread_workspace;
    const struct ngd_gemm_data d = {
        .x = f->norm ? room : call->ptrs[0],
        .residual = f->i_residual == 0xff ? NULL : call->ptrs[f->i_residual],
        .workspace = room + f->norm_bytes + 2 * f->tile_bytes,
        .laid_out = f->one_layout && ngd_gemm_lays_out(&f->g[0], rows),
    };

    if (!ngd_host_first_part(call, run))
        return d;
    if (f->norm)
        normalise(f, call, rows, room);
    if (d.laid_out)
        ngd_gemm_lay_out(&f->g[0], &d, rows);
    return d;
}

static void set_weight(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_gemm_data *d)
{
    d->w = call->ptrs[g->i_w];
    d->bias = g->i_bias == 0xff ? NULL : call->ptrs[g->i_bias];
}

/* Runs one of the linears on x. */
static void one_linear(const struct fused *f, const struct ngd_host_call *call, struct ngd_gemm_data *d, int64_t rows,
                       uint32_t i, uint32_t part, uint32_t parts)
{
    set_weight(&f->g[i], call, d);
    d->y = call->ptrs[call->n_in + i];
    ngd_gemm_run(&f->g[i], d, rows, 1, part, parts);
}

/* Computes columns [n0, n1) of a pass: both sums into tiles, then the gate. */
static void gate_tile(const struct fused *f, const struct ngd_host_call *call, struct ngd_gemm_data *d, int64_t rows,
                      int64_t pass, int64_t n0, int64_t n1)
{
    const int64_t size = element_size(f->g[0].xt);
    char *tiles[2];
    int64_t m0, m1;

    ngd_gemm_pass(&f->g[0], rows, pass, &m0, &m1);
    d->row0 = m0;
    d->col0 = n0;
    NGD_UNROLL for (int i = 0; i < 2; i++)
    {
        set_weight(&f->g[i], call, d);
        d->y = tiles[i] = d->workspace - (2 - i) * (int64_t)f->tile_bytes;
        ngd_gemm_columns(&f->g[i], d, rows, pass, n0, n1);
        d->laid_out = f->one_layout ? pass + 1 : 0;
    }
    for (int64_t m = m0; m < m1; m++)
        f->gate(tiles[0] + (m - m0) * GATE_COLS * size, tiles[1] + (m - m0) * GATE_COLS * size,
                call->ptrs[call->n_in] + (m * f->ldy + n0) * size, n1 - n0);
}

static void gated(const struct fused *f, const struct ngd_host_call *call, struct ngd_host_run *run, int64_t rows,
                  uint32_t part, uint32_t parts)
{
    const int64_t n = f->g[0].n;
    const struct ngd_gemm_units units = ngd_gemm_units(&f->g[0], rows);
    const int64_t grain = GATE_COLS / units.width, cols = units.tiles * units.width;
    struct ngd_gemm_data d;
    int64_t u, end;

    if (rows <= 0 || n == 0)
        return;
    d = fused_data(f, call, run, rows);
    /* A part is a run of units; a tile never goes beyond its pass. */
    ngd_host_split(units.passes * units.tiles, 1, part, parts, &u, &end);
    while (u < end) {
        const int64_t tile = u % units.tiles, left = units.tiles - tile < end - u ? units.tiles - tile : end - u;
        const int64_t take = left < grain ? left : grain, n1 = (tile + take) * units.width;

        gate_tile(f, call, &d, rows, u / units.tiles, tile * units.width, n1 < cols && n1 < n ? n1 : n);
        u += take;
    }
}

#ifndef NGD_STATIC
static void run_linears(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct fused *f = call->params;
    const int64_t rows = ngd_gemm_rows(&f->g[0], call, run);
    struct ngd_gemm_data d = fused_data(f, call, run, rows);

    for (uint32_t i = 0; i < f->n; i++)
        one_linear(f, call, &d, rows, i, part, parts);
}

static void run_gate(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct fused *f = call->params;

    gated(f, call, run, ngd_gemm_rows(&f->g[0], call, run), part, parts);
}

/* ---- choosing ------------------------------------------------------------------------------------------ */

/* What an operator does around its linears. */
struct form {
    bool norm;        /* there is a norm before; its gamma is operand 1 */
    bool gate;        /* there is a gate after two linears */
    uint8_t residual; /* the operand that is added after one linear; 0: none */
};
static const struct form forms[NGD_OP_MAX] = {
    [NGD_OP_NGD_MULTI_LINEAR] = {0},
    [NGD_OP_NGD_RMS_NORM_LINEAR] = {.norm = true},
    [NGD_OP_NGD_LINEAR_ADD] = {.residual = 2},
    [NGD_OP_NGD_LINEAR_SWIGLU] = {.gate = true},
    [NGD_OP_NGD_RMS_NORM_LINEAR_SWIGLU] = {.norm = true, .gate = true},
};

/* The indices of an operator's operands. */
struct places {
    uint8_t weights[MAX_LINEARS], biases[MAX_LINEARS], n;
    uint8_t residual; /* 0xff: none */
    bool norm, gate;
};

static struct places places_of(const struct ngd_plan_call *call)
{
    const struct form *form = &forms[call->op->id];
    struct places p = {.residual = form->residual ? form->residual : 0xff, .norm = form->norm, .gate = form->gate};
    const uint8_t first = p.norm ? 2 : 1;

    p.n = p.gate ? 2 : p.residual != 0xff ? 1 : (uint8_t)ngd_call_ints(call, "sizes")->n;
    for (uint8_t i = 0; i < p.n; i++) {
        p.weights[i] = (uint8_t)(first + i);
        p.biases[i] = p.residual != 0xff ? 3 : (uint8_t)(first + p.n + i);
    }
    return p;
}

/* Fills everything that does not depend on the instruction set. */
static void form(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct fused *f, uint32_t *strided_p)
{
    const struct places p = places_of(call);
    uint64_t most = 0, rows;

    memset(f, 0, sizeof(*f));
    f->n = p.n;
    f->i_residual = p.residual;
    *strided_p = ~0u;
    for (uint32_t i = 0; i < p.n; i++) {
        struct ngd_gemm *g = &f->g[i];
        uint32_t strided;
        uint64_t bytes;

        ngd_gemm_of_linear(plan, call, p.weights[i], p.biases[i], g, &strided);
        *strided_p &= strided | ~(1u | 1u << p.weights[i] | 1u << p.biases[i]);
        f->ldx = g->ldx;
        f->ldy = g->n;
        if (p.norm)
            g->ldx = g->k;
        if (p.gate)
            g->ldy = GATE_COLS;
        bytes = ngd_gemm_workspace(g);
        most = bytes > most ? bytes : most;
    }
    if (p.norm)
        *strided_p &= ~2u;
    if (p.residual != 0xff)
        *strided_p &= ~(1u << p.residual);
    rows = (uint64_t)f->g[0].m;
    if (p.norm)
        f->norm_bytes = round_to_lines(rows * (uint64_t)f->g[0].k * (uint64_t)element_size(f->g[0].xt));
    if (p.gate)
        f->tile_bytes =
            (rows < NGD_GEMM_PASS_ROWS ? rows : NGD_GEMM_PASS_ROWS) * GATE_COLS * (uint64_t)element_size(f->g[0].xt);
    f->tile_bytes = round_to_lines(f->tile_bytes);
    f->thread_workspace = f->norm_bytes + 2 * f->tile_bytes + round_to_lines(most);
}

static ngd_status_t select_fused(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                 uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct fused f;

    (void)diag;
    form(plan, call, &f, strided_p);
    *workspace_p = f.thread_workspace * threads;
    return NGD_OK;
}

static bool same_layout(const struct fused *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (!ngd_gemm_lays_out(&f->g[i], 1) || f->g[i].way != f->g[0].way || f->g[i].wt != f->g[0].wt)
            return false;
    return true;
}

static ngd_status_t prepare_fused(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct places at = places_of(p->call);
    struct fused *f = ngd_arena_calloc(p->arena, 1, sizeof(*f));
    uint32_t strided;

    if (!f)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    form(p->plan, p->call, f, &strided);
    p->cost_ns = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        ngd_gemm_choose(&f->g[i], p->isa);
        p->cost_ns += ngd_gemm_cost(&f->g[i], p->isa);
    }
    f->one_layout = same_layout(f);
    if (at.norm) {
        f->gamma_type = ngd_call_in(p->plan, p->call, 1)->dtype;
        f->norm = NGD_BY_ISA(p->isa, ngd_norm)->rms[f->g[0].xt][ngd_call_in(p->plan, p->call, 1)->dtype];
        f->eps = (float)ngd_call_float(p->call, "epsilon");
        p->cost_ns += (double)(f->g[0].m * f->g[0].k) * (p->isa == NGD_ISA_SCALAR ? 2 : 0.12);
    }
    if (at.gate)
        f->gate = NGD_BY_ISA(p->isa, ngd_gate)->gate[f->g[0].xt];
    p->params = f;
    p->fn = at.gate ? run_gate : run_linears;
    return NGD_OK;
}

#define FIELD(field) NGD_STATIC_FIELD(struct fused, field)
static const struct ngd_static_field constants[] = {
    FIELD(n),          FIELD(one_layout), FIELD(eps),
    FIELD(ldx),        FIELD(ldy),        FIELD(i_residual),
    FIELD(norm_bytes), FIELD(tile_bytes), FIELD(thread_workspace),
};

static void emit_params(const struct fused *f, struct ngd_strbuf *sb)
{
    const char *x = ngd_dtype_name(f->g[0].xt);

    ngd_strbuf_append(sb, "    static const struct fused p = {.g = {");
    for (uint32_t i = 0; i < f->n; i++) {
        ngd_gemm_emit(&f->g[i], sb);
        ngd_strbuf_append(sb, ", ");
    }
    ngd_strbuf_append(sb, "}, ");
    if (f->norm)
        ngd_strbuf_printf(sb, ".norm = rms_norm_%s_%s, ", x, ngd_dtype_name(f->gamma_type));
    if (f->gate)
        ngd_strbuf_printf(sb, ".gate = %s_%s, ", f->g[0].xt == NGD_F32 ? "swiglu" : "swiglu_gate", x);
    ngd_static_emit_fields(sb, f, constants, sizeof(constants) / sizeof(constants[0]));
    ngd_strbuf_append(sb, "};\n    const int64_t rows = ");
}

/* Appends the linears one after the other instead of in a loop, so that the compiler sees the constants of each. */
static bool emit_fused(const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    const struct fused *f = call->params;

    for (uint32_t i = 0; i < f->n; i++)
        if (!ngd_gemm_emittable(&f->g[i]))
            return false;
    emit_params(f, sb);
    ngd_gemm_emit_rows(&f->g[0], call, sb);
    ngd_strbuf_append(sb, ";\n");
    if (f->gate) {
        ngd_strbuf_append(sb, "    gated(&p, call, run, rows, 0, 1);\n");
        return true;
    }
    ngd_strbuf_append(sb, "    struct ngd_gemm_data d = fused_data(&p, call, run, rows);\n");
    for (uint32_t i = 0; i < f->n; i++)
        ngd_strbuf_printf(sb, "    one_linear(&p, call, &d, rows, %u, 0, 1);\n", (unsigned)i);
    return true;
}

#define FUSED_KERNEL(name)                               \
    extern const struct ngd_host_kernel ngd_host_##name; \
    const struct ngd_host_kernel ngd_host_##name = {     \
        .select = select_fused, .prepare = prepare_fused, .emit = emit_fused, .family = NGD_STATIC_LINEAR}

FUSED_KERNEL(multi_linear);
FUSED_KERNEL(rms_norm_linear);
FUSED_KERNEL(linear_add);
FUSED_KERNEL(linear_swiglu);
FUSED_KERNEL(rms_norm_linear_swiglu);
#endif
