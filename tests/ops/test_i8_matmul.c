/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares npu.quant_matmul with its definition, bit by bit, on every instruction set: each dtype of scale, bias and
 * result, with and without scales of rows, weights in both layouts, in sizes around those of vectors and blocks.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

enum bias { NO_BIAS, I32_BIAS, F32_BIAS, F16_BIAS, BF16_BIAS };

struct product {
    int64_t m, n, k, gap; /* gap: columns of x1's rows that are not part of it */
    bool by_n;            /* x2 is stored as [K,N]; otherwise as rows of K */
    bool one_scale, row_scales;
    ngd_dtype_t scale, y;
    enum bias bias;
};

struct operands {
    int8_t *x, *w; /* x [M][K + gap], w as it is stored */
    struct numbers scale, row_scale, bias;
    int32_t *whole_bias;
    char *want, *got;
};

static uint64_t result_bytes(const struct product *p)
{
    return (uint64_t)(p->m * p->n) * ngd_dtype_bytes(p->y);
}

static void put_graph(struct ngd_strbuf *sb, const struct product *p)
{
    static const char *const types[] = {"", "i32", "f32", "f16", "bf16"};

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"product\" {\nparam %%q : i8[%lld,%lld]\nparam %%s : %s[%lld]\n",
                      (long long)(p->by_n ? p->k : p->n), (long long)(p->by_n ? p->n : p->k), ngd_dtype_name(p->scale),
                      p->one_scale ? 1 : (long long)p->n);
    if (p->row_scales)
        ngd_strbuf_printf(sb, "param %%r : f32[%lld]\n", (long long)p->m);
    if (p->bias)
        ngd_strbuf_printf(sb, "param %%b : %s[%lld]\n", types[p->bias], (long long)p->n);
    ngd_strbuf_printf(sb, "input %%x : i8[%lld,%lld]\n", (long long)p->m, (long long)(p->k + p->gap));
    if (p->gap)
        ngd_strbuf_printf(sb, "%%v = aten.slice.Tensor(%%x) {dim=1, start=0, end=%lld}\n", (long long)p->k);
    if (!p->by_n)
        ngd_strbuf_append(sb, "%w = aten.t(%q)\n");
    ngd_strbuf_printf(sb,
                      "%%y = npu.quant_matmul(%s, %s, %%s, none, %s, %s) {output_dtype=%s}\nreturn \"y\" = %%y\n}\n",
                      p->gap ? "%v" : "%x", p->by_n ? "%q" : "%w", p->row_scales ? "%r" : "none",
                      p->bias ? "%b" : "none", ngd_dtype_name(p->y));
}

/* ---- the definition ---- */

static void define_element(const struct product *p, struct operands *o, int64_t m, int64_t n)
{
    const int64_t at = m * p->n + n;
    uint32_t sum = p->bias == I32_BIAS ? (uint32_t)o->whole_bias[n] : 0;
    volatile float v; /* so that no step is fused with the next one */
    uint16_t half;

    for (int64_t k = 0; k < p->k; k++)
        sum += (uint32_t)(o->x[m * (p->k + p->gap) + k] * o->w[p->by_n ? k * p->n + n : n * p->k + k]);
    if (p->y == NGD_I32) {
        memcpy(o->want + 4 * at, &sum, 4);
        return;
    }
    v = (float)(int32_t)sum;
    v *= (float)o->scale.value[p->one_scale ? 0 : n];
    if (p->row_scales)
        v *= (float)o->row_scale.value[m];
    if (p->bias > I32_BIAS)
        v += (float)o->bias.value[n];
    half = p->y == NGD_F16 ? ngd_f32_to_f16(v) : ngd_f32_to_bf16(v);
    if (p->y == NGD_F32)
        memcpy(o->want + 4 * at, (const float *)&v, 4);
    else
        memcpy(o->want + 2 * at, &half, 2);
}

static void define(const struct product *p, struct operands *o)
{
    for (int64_t i = 0; i < p->m * p->n; i++)
        define_element(p, o, i / p->n, i % p->n);
}

static void operands_open(struct operands *o, const struct product *p, struct random *r)
{
    static const ngd_dtype_t types[] = {NGD_F32, NGD_F32, NGD_F32, NGD_F16, NGD_BF16};

    o->x = calloc((size_t)(p->m * (p->k + p->gap)) + 1, 1);
    o->w = calloc((size_t)(p->n * p->k) + 1, 1);
    for (int64_t i = 0; i < p->m * (p->k + p->gap); i++)
        o->x[i] = (int8_t)(random_below(r, 255) - 127);
    for (int64_t i = 0; i < p->n * p->k; i++)
        o->w[i] = (int8_t)(random_below(r, 256) - 128);
    numbers_random(&o->scale, p->scale, p->one_scale ? 1 : p->n, 0.01, r);
    numbers_random(&o->row_scale, NGD_F32, p->m, 0.02, r);
    numbers_random(&o->bias, types[p->bias], p->n, 1, r);
    o->whole_bias = calloc((size_t)p->n + 1, 4);
    for (int64_t i = 0; i < p->n; i++)
        o->whole_bias[i] = (int32_t)random_u32(r);
    o->want = calloc(result_bytes(p) + 1, 1);
    o->got = calloc(result_bytes(p) + 1, 1);
    define(p, o);
}

static void operands_close(struct operands *o)
{
    free(o->x);
    free(o->w);
    numbers_close(&o->scale);
    numbers_close(&o->row_scale);
    numbers_close(&o->bias);
    free(o->whole_bias);
    free(o->want);
    free(o->got);
}

/* ---- running ---- */

static struct bench benches[NGD_ISA_MAX];

static void bind(struct ready *r, uint32_t *bound, const void *data, uint64_t bytes)
{
    struct ngd_diag diag = {0};

    run_check(ngd_buffer_write(r->bound[(*bound)++], 0, data, bytes, &diag), &diag, "operand");
}

static void run(struct bench *b, const struct product *p, const struct operands *o)
{
    struct ngd_span in = {(const char *)o->x, (uint64_t)(p->m * (p->k + p->gap))};
    struct ngd_out out = {o->got, result_bytes(p)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ready r;
    uint32_t bound = 0;

    ngd_strbuf_init(&sb);
    put_graph(&sb, p);
    run_check(ready_open(&r, b, ngd_strbuf_str(&sb), NULL, &diag), &diag, ngd_strbuf_str(&sb));
    bind(&r, &bound, o->w, (uint64_t)(p->n * p->k));
    bind(&r, &bound, o->scale.data, numbers_bytes(&o->scale));
    if (p->row_scales)
        bind(&r, &bound, o->row_scale.data, numbers_bytes(&o->row_scale));
    if (p->bias)
        bind(&r, &bound, p->bias == I32_BIAS ? (const void *)o->whole_bias : o->bias.data,
             p->bias == I32_BIAS ? (uint64_t)p->n * 4 : numbers_bytes(&o->bias));
    run_check(ngd_launch_check(r.plan, &launch, 1, 0, 1, &diag), &diag, ngd_strbuf_str(&sb));
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, ngd_strbuf_str(&sb));
    ready_close(&r);
    ngd_strbuf_fini(&sb);
}

static void check_operands(const struct product *p, const struct operands *o)
{
    const uint64_t size = ngd_dtype_bytes(p->y);

    EACH_ISA (isa) {
        memset(o->got, 0xa5, result_bytes(p));
        run(&benches[isa], p, o);
        for (uint64_t i = 0; i < (uint64_t)(p->m * p->n); i++)
            if (memcmp(o->got + i * size, o->want + i * size, size) != 0)
                ck_abort_msg("%s, %lld x %lld x %lld, by_n %d, bias %d, %s: element %llu differs", benches[isa].name,
                             (long long)p->m, (long long)p->n, (long long)p->k, p->by_n, p->bias, ngd_dtype_name(p->y),
                             (unsigned long long)i);
    }
}

static const int64_t sizes[][3] = {
    {1, 1, 1},     {1, 3, 31},  {1, 64, 64}, {2, 33, 100}, {3, 5, 257},    {4, 48, 128},  {5, 49, 65},
    {6, 7, 96},    {7, 16, 15}, {8, 97, 33}, {9, 18, 320}, {16, 50, 48},   {17, 31, 200}, {33, 20, 63},
    {3, 200, 512}, {0, 5, 64},  {3, 0, 64},  {3, 5, 0},    {1, 70, 20000}, {40, 130, 47}, {12, 2, 1030},
};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static const struct {
    ngd_dtype_t scale, y;
    enum bias bias;
    bool row_scales;
} forms[] = {
    {NGD_F32, NGD_F32, NO_BIAS, true},    {NGD_BF16, NGD_BF16, BF16_BIAS, true}, {NGD_F32, NGD_F16, F16_BIAS, true},
    {NGD_F32, NGD_BF16, I32_BIAS, false}, {NGD_F32, NGD_I32, I32_BIAS, false},   {NGD_BF16, NGD_I32, NO_BIAS, false},
    {NGD_BF16, NGD_F32, F32_BIAS, false}, {NGD_F32, NGD_F16, I32_BIAS, true},
};
#define N_FORMS (sizeof(forms) / sizeof(forms[0]))

START_TEST(results_have_the_bits_of_the_definition)
{
    struct random r = {1};

    benches_open(benches);
    for (size_t i = 0; i < 2 * N_SIZES * N_FORMS; i++) {
        const size_t s = i / 2 % N_SIZES, f = i / 2 / N_SIZES;
        struct product p = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2], .by_n = i % 2};
        struct operands o;

        p.scale = forms[f].scale, p.y = forms[f].y, p.bias = forms[f].bias, p.row_scales = forms[f].row_scales;
        p.one_scale = (s + f) % 3 == 0;
        p.gap = (s + f) % 4 == 1 ? 7 : 0;
        operands_open(&o, &p, &r);
        check_operands(&p, &o);
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

/* Instructions that add products as i16 saturate first at these. */
START_TEST(sums_of_the_largest_numbers_are_exact)
{
    static const int8_t ends[] = {-128, -127, 127};
    struct random r = {2};

    benches_open(benches);
    for (size_t i = 0; i < 9; i++) {
        struct product p = {.m = 5, .n = 6, .k = 2100, .one_scale = true, .scale = NGD_F32, .y = NGD_I32};
        struct operands o;

        operands_open(&o, &p, &r);
        memset(o.x, ends[i / 3], (size_t)(p.m * p.k));
        memset(o.w, ends[i % 3], (size_t)(p.n * p.k));
        define(&p, &o);
        check_operands(&p, &o);
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

/* One such element, wherever it is in a row, so that no row is taken for one without. */
START_TEST(a_single_lowest_element_counts)
{
    struct random r = {3};

    benches_open(benches);
    for (int64_t at = 0; at < 70; at++) {
        struct product p = {.m = 4, .n = 3, .k = 70, .one_scale = true, .scale = NGD_F32, .y = NGD_I32};
        struct operands o;

        operands_open(&o, &p, &r);
        memset(o.w, -128, (size_t)(p.n * p.k));
        o.x[at % 4 * p.k + at] = -128;
        o.x[at % 4 * p.k + (at ^ 1)] = -128;
        define(&p, &o);
        check_operands(&p, &o);
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

UNIT_MAIN("ops/i8_matmul", results_have_the_bits_of_the_definition, sums_of_the_largest_numbers_are_exact,
          a_single_lowest_element_counts)
