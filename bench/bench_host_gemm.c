/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of the host device by number of rows: the weight bytes read per second compared with a plain read of
 * the same bytes, and the arithmetic per second. The product and the read take turns, so that a slow moment of the
 * machine affects both. i32: int4 weights, eight in each; u8: MXFP4. Scales are bf16, one for each row or group.
 *
 * x in i8, with i8 weights, is npu.quant_matmul with a bf16 result; its rows are quantised already.
 *
 *      bench_host_gemm [--k K] [--n N] [--mib N] [--dtype bf16|f16|f32|i8|i32|u8|f8_e4m3fn [--group N
 *                      [--block N] [--offsets]]] [--x bf16|f16|f32|i8] [--threads T]
 *                      [--rounds R] [--isa NAME] [--bucket M] [--precision highest|high|medium] [ROWS...]
 *
 * --mib: of weights that are used in turn (256); few of them stay in a cache.
 * --block: scales and minima are i8, with factors for blocks of K, as in Q4_K (--group 32 --block 256).
 * --bucket: products are planned for M rows, and run with fewer.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench_device.h"
#include "graphs/options.h"
#include "devices/host/cpu.h"
#include "devices/host/kernels/k_gemm.h"
#include "devices/host/kernels/k_quant_matmul.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct set {
    struct ngd_gemm g;
    struct ngd_gemm_data d;
    struct ngd_qmm q; /* if x is in i8 */
    int64_t rows;
    uint32_t copies;   /* of the weight, used in turn so that it is read from memory each time */
    uint32_t products; /* of a round */
    uint64_t bytes;    /* of one copy */
};

static void product_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct set *s = call->params;
    struct ngd_gemm_data d = s->d;

    d.w += (uint64_t)call->rows * s->bytes;
    if (s->g.xt == NGD_I8) {
        const struct ngd_qmm_data q = {.x1 = (const int8_t *)d.x,
                                       .x2 = (const int8_t *)d.w,
                                       .scale = d.antiquant[0],
                                       .row_scale = d.antiquant[0],
                                       .y = d.y};

        ngd_qmm_run(&s->q, &q, s->rows, part, parts);
        return;
    }
    d.workspace += ngd_host_thread * s->g.thread_workspace;
    d.laid_out = ngd_gemm_lays_out(&s->g, s->rows);
    if (d.laid_out && ngd_host_first_part(call, run))
        ngd_gemm_lay_out(&s->g, &d, s->rows);
    ngd_gemm_run(&s->g, &d, s->rows, 1, part, parts);
}

static double products(struct ngd_team *team, const struct set *s, uint32_t parts)
{
    struct ngd_host_call call = {.fn = product_part, .params = s};
    static uint64_t serial;
    ngd_nsec_t start = ngd_now();

    ngd_team_begin(team);
    for (uint32_t i = 0; i < s->products; i++) {
        struct ngd_host_run run = {.serial = ++serial};

        call.rows = i % s->copies;
        ngd_team_share(team, &call, &run, parts);
    }
    ngd_team_end(team);
    return (double)(ngd_now() - start);
}

static void measure_rows(struct ngd_team *team, struct set *s, int64_t rows, int64_t planned, ngd_isa_t isa, int rounds)
{
    const double bytes = (double)s->bytes * s->products;
    double product[64], read[64], ratio[64];

    s->rows = rows;
    s->g.m = planned > rows ? planned : rows;
    if (s->g.xt == NGD_I8)
        ngd_qmm_choose(&s->q, isa);
    else
        ngd_gemm_choose(&s->g, isa);
    for (int i = 0; i < rounds; i++) {
        read[i] = bench_read(team, s->d.w, s->bytes * s->copies) * s->products / s->copies;
        product[i] = products(team, s, ngd_host_max_parts(ngd_team_threads(team)));
        ratio[i] = read[i] / product[i];
    }
    printf("%5lld  %-5s %8.1f %8.1f %7.2f %8.1f\n", (long long)rows,
           s->g.xt == NGD_I8 ? "i8" : ngd_gemm_way_name(&s->g), bytes / bench_median(read, rounds),
           bytes / bench_median(product, rounds), bench_median(ratio, rounds),
           2.0 * (double)s->g.n * (double)s->g.k * (double)rows * s->products / bench_median(product, rounds));
}

/* Fills in weights whose sums of 12 are those of a bell curve, with a largest of about 448. */
static void fill_bell(uint8_t *bell, size_t n)
{
    uint32_t r = 1;

    for (size_t i = 0; i < n; i++) {
        float sum = -6;

        for (int j = 0; j < 12; j++, r = r * 1664525u + 1013904223u)
            sum += (float)(r >> 8) * 0x1p-24f;
        bell[i] = ngd_f32_to_f8(sum * 100);
    }
}

static ngd_dtype_t parse_dtype(const char *name, bool weights)
{
    ngd_dtype_t t;

    if (!ngd_dtype_parse(name, strlen(name), &t) ||
        !(ngd_dtype_is_float(t) || t == NGD_I8 || (weights && (t == NGD_I32 || t == NGD_U8 || t == NGD_F8_E4M3FN))))
        bench_fail("%s is not a dtype of %s", name, weights ? "weights" : "x");
    return t;
}

static uint8_t parse_precision(const char *name)
{
    struct ngd_graph_options options;
    struct ngd_diag diag;

    ngd_graph_options_init(&options);
    if (ngd_graph_options_set(&options, "matmul_precision", name, &diag))
        bench_fail("%s", diag.text);
    return (uint8_t)options.matmul_precision;
}

/* Gives quantised weights an operand more, and memory for it. */
static void add_operand(struct set *s, ngd_antiquant_t what, ngd_dtype_t type, int64_t of_column)
{
    struct ngd_gemm_quant *q = &s->g.quant;

    q->has |= NGD_ANTIQUANT_BIT(what);
    q->antiquant[what] = (struct ngd_antiquant_operand){.type = type, .n = of_column, .g = of_column > 1};
    s->d.antiquant[what] = bench_memory((uint64_t)(s->g.n * of_column) * 2, NGD_F16);
}

/* Gives quantised weights offsets that are integers, as zero points are. */
static void add_offsets(struct set *s)
{
    const int64_t column = s->g.quant.antiquant[NGD_ANTIQUANT_SCALE].n;

    add_operand(s, NGD_ANTIQUANT_OFFSET, NGD_F16, column);
    for (int64_t i = 0; i < s->g.n * column; i++)
        ((uint16_t *)(uintptr_t)s->d.antiquant[NGD_ANTIQUANT_OFFSET])[i] = ngd_f32_to_f16((float)(i % 17 - 8));
}

/* Gives them scales and minima in i8, and their factors for blocks: Q4_K and Q5_K of GGUF files. */
static void add_blocks(struct set *s, int64_t block)
{
    struct ngd_gemm_quant *q = &s->g.quant;
    const int64_t groups = q->antiquant[NGD_ANTIQUANT_SCALE].n, blocks = (s->g.k + block - 1) / block;

    q->block = block / q->group;
    q->zero = 8;
    add_operand(s, NGD_ANTIQUANT_SCALE, NGD_I8, groups);
    add_operand(s, NGD_ANTIQUANT_MINIMUM, NGD_I8, groups);
    add_operand(s, NGD_ANTIQUANT_BLOCK_SCALE, NGD_F16, blocks);
    add_operand(s, NGD_ANTIQUANT_BLOCK_MINIMUM, NGD_F16, blocks);
}

/* Describes rows of K of quantised weights, and gives them scales. Returns the bytes of a weight's copy. */
static uint64_t quantise(struct set *s, int64_t group)
{
    struct ngd_gemm_quant *q = &s->g.quant;
    const uint64_t weights = (uint64_t)s->g.n * (uint64_t)s->g.k;
    const bool f4 = s->g.wt == NGD_U8, nibbles = f4 || s->g.wt == NGD_I32;

    *q = (struct ngd_gemm_quant){.group = f4      ? 32
                                          : group ? group
                                                  : s->g.k,
                                 .columns = 1,
                                 .form = f4                         ? NGD_QUANT_F4
                                         : nibbles                  ? NGD_QUANT_I4
                                         : s->g.wt == NGD_F8_E4M3FN ? NGD_QUANT_F8
                                                                    : NGD_QUANT_I8,
                                 .streamed = true};
    s->g.ldw = s->g.k / (nibbles ? 2 : 1);
    q->w_k = 1;
    q->w_n = s->g.ldw / (s->g.wt == NGD_I32 ? 4 : 1);
    q->has = NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_SCALE);
    q->antiquant[NGD_ANTIQUANT_SCALE] =
        (struct ngd_antiquant_operand){.type = f4 ? NGD_U8 : NGD_BF16, .n = ngd_gemm_groups(&s->g), .g = 1};
    s->d.antiquant[NGD_ANTIQUANT_SCALE] = bench_memory((uint64_t)(s->g.n * ngd_gemm_groups(&s->g)) * 2, NGD_BF16);
    return weights / (nibbles ? 2 : 1);
}

int main(int argc, char **argv)
{
    static const int64_t defaults[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256};
    struct set s = {.g = {.batch = 1,
                          .alpha = 1,
                          .beta = 1,
                          .rows_mult = 1,
                          .i_bias = 0xff,
                          .nk = true,
                          .xt = NGD_F32,
                          .wt = NGD_BF16}};
    uint32_t threads = ngd_cpu_count();
    int64_t rows[64], max_rows = 1, group = 0, bucket = 0;
    int n_rows = 0, rounds = 7;
    uint64_t mib = 256;
    int64_t block = 0;
    bool offsets = false;
    ngd_isa_t isa = ngd_cpu_isa();
    static uint8_t bell[65536];
    struct ngd_team *team;

    s.g.k = 1024;
    s.g.n = 3072;
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--k") == 0)
            s.g.k = atoll(v), i++;
        else if (strcmp(argv[i], "--n") == 0)
            s.g.n = atoll(v), i++;
        else if (strcmp(argv[i], "--dtype") == 0)
            s.g.wt = parse_dtype(v, true), i++;
        else if (strcmp(argv[i], "--x") == 0)
            s.g.xt = parse_dtype(v, false), i++;
        else if (strcmp(argv[i], "--mib") == 0)
            mib = (uint64_t)atoll(v), i++;
        else if (strcmp(argv[i], "--group") == 0)
            group = atoll(v), i++;
        else if (strcmp(argv[i], "--offsets") == 0)
            offsets = true;
        else if (strcmp(argv[i], "--block") == 0)
            block = atoll(v), i++;
        else if (strcmp(argv[i], "--threads") == 0)
            threads = (uint32_t)atoi(v), i++;
        else if (strcmp(argv[i], "--bucket") == 0)
            bucket = atoll(v), i++;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(v) < 64 ? atoi(v) : 64, i++;
        else if (strcmp(argv[i], "--precision") == 0)
            s.g.precision = parse_precision(v), i++;
        else if (strcmp(argv[i], "--isa") == 0 && ngd_isa_parse(v, &isa))
            i++;
        else if (n_rows < 64 && atoll(argv[i]) > 0)
            rows[n_rows++] = atoll(argv[i]);
        else
            bench_fail("unknown argument %s", argv[i]);
    }
    if (n_rows == 0)
        for (; n_rows < (int)(sizeof(defaults) / sizeof(defaults[0])); n_rows++)
            rows[n_rows] = defaults[n_rows];
    max_rows = bucket > max_rows ? bucket : max_rows;
    for (int i = 0; i < n_rows; i++)
        max_rows = rows[i] > max_rows ? rows[i] : max_rows;
    s.g.ldx = s.g.ldw = s.g.k;
    s.g.ldy = s.g.n;
    s.bytes = (uint64_t)s.g.n * (uint64_t)s.g.k * ngd_dtype_bytes(s.g.wt);
    if (!ngd_dtype_is_float(s.g.wt))
        s.bytes = quantise(&s, group);
    if (offsets && !ngd_dtype_is_float(s.g.wt))
        add_offsets(&s);
    if (block && !ngd_dtype_is_float(s.g.wt) && group)
        add_blocks(&s, block);
    s.q = (struct ngd_qmm){.n = s.g.n,
                           .k = s.g.k,
                           .ldx = s.g.k,
                           .w_n = s.g.k,
                           .w_k = 1,
                           .scale_n = 1,
                           .scale_type = NGD_BF16,
                           .out_type = NGD_BF16};
    s.copies = (uint32_t)((mib << 20) / s.bytes + 1);
    s.products = (uint32_t)((256u << 20) / s.bytes + 1);
    s.d.w = bench_memory(s.bytes * s.copies, ngd_dtype_is_float(s.g.wt) ? s.g.wt : NGD_BF16);
    fill_bell(bell, sizeof(bell));
    for (uint64_t i = 0; s.g.wt == NGD_F8_E4M3FN && i < s.bytes * s.copies; i++) /* as checkpoints: a bell curve */
        ((uint8_t *)(uintptr_t)s.d.w)[i] = bell[(i * 2654435761u >> 7) % sizeof(bell)];
    s.d.x = bench_memory((uint64_t)(max_rows * s.g.k) * 4, s.g.xt == NGD_I8 ? NGD_BF16 : s.g.xt);
    for (int64_t i = 0; s.g.xt == NGD_I8 && i < max_rows * s.g.k; i++) /* npu.dynamic_quant gives no -128 */
        if (s.d.x[i] == -128)
            ((char *)(uintptr_t)s.d.x)[i] = -127;
    s.d.y = bench_memory((uint64_t)(max_rows * s.g.n) * 4, NGD_F32);
    s.d.workspace = bench_memory((uint64_t)threads << 23, NGD_F32);
    if (ngd_team_create(threads, "bench", &team))
        bench_fail("no team");
    printf("K %lld, N %lld, %s weights, x in %s, %u threads, %s\n rows  way   read GB/s  GB/s   ratio  GFLOP/s\n",
           (long long)s.g.k, (long long)s.g.n, ngd_dtype_name(s.g.wt), ngd_dtype_name(s.g.xt), threads,
           ngd_isa_name(isa));
    for (int i = 0; i < n_rows; i++)
        measure_rows(team, &s, rows[i], bucket, isa, rounds);
    ngd_team_destroy(team);
    return 0;
}
