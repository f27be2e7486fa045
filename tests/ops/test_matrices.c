/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares matrix products of every operator, dtype, instruction set and way of computing with sums in double, on odd
 * sizes, and transposed, sliced and broadcast operands. A few roundings of f32 for the sum's length, and the last
 * rounding to the result's dtype, are allowed.
 */
#include "tests/ops/direct.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

enum layout { PLAIN, TURNED, SLICED }; /* contiguous; a view of its transpose; columns of a wider matrix */
enum bias { NO_BIAS, BIAS_COLUMNS, BIAS_FULL, BIAS_ROWS, BIAS_ONE };

struct product {
    const char *op; /* aten.linear has w[N,K], the others w[K,N] */
    ngd_dtype_t xt, wt;
    int64_t batch, m, n, k; /* batch 0: no such dimension */
    enum layout x_layout, w_layout;
    enum bias bias;
    double alpha, beta;
    int precision; /* NGD_PRECISION_* */
};

#define MARGIN 3 /* columns before a slice; 2 more behind it */

static bool is_linear(const struct product *p)
{
    return strcmp(p->op, "aten.linear") == 0;
}

/* ---- the graph ---- */

static void print_operand(struct ngd_strbuf *sb, const struct product *p, const char *cls, const char *name,
                          ngd_dtype_t t, enum layout layout, int64_t rows, int64_t cols)
{
    int64_t stored_rows = layout == TURNED ? cols : rows;
    int64_t stored_cols = layout == TURNED ? rows : layout == SLICED ? cols + MARGIN + 2 : cols;

    ngd_strbuf_printf(sb, "%s %%%s0 : %s[", cls, name, ngd_dtype_name(t));
    if (p->batch)
        ngd_strbuf_printf(sb, "%lld,", (long long)p->batch);
    ngd_strbuf_printf(sb, "%lld,%lld]\n", (long long)stored_rows, (long long)stored_cols);
}

static void print_view(struct ngd_strbuf *sb, const struct product *p, const char *name, enum layout layout,
                       int64_t cols)
{
    int dim = p->batch ? 1 : 0;

    if (layout == PLAIN)
        ngd_strbuf_printf(sb, "%%%s = aten.slice.Tensor(%%%s0)\n", name, name);
    else if (layout == TURNED)
        ngd_strbuf_printf(sb, "%%%s = aten.transpose.int(%%%s0) {dim0=%d, dim1=%d}\n", name, name, dim, dim + 1);
    else
        ngd_strbuf_printf(sb, "%%%s = aten.slice.Tensor(%%%s0) {dim=%d, start=%d, end=%lld}\n", name, name, dim + 1,
                          MARGIN, (long long)(MARGIN + cols));
}

static void print_product(struct ngd_strbuf *sb, const struct product *p)
{
    static const char *const biases[] = {"", "%lld", "%lld,%lld", "%lld,1", "1"};
    bool linear = is_linear(p), addmm = strcmp(p->op, "aten.addmm") == 0;
    int64_t w_rows = linear ? p->n : p->k, w_cols = linear ? p->k : p->n;

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"product\" {\n");
    print_operand(sb, p, "param", "w", p->wt, p->w_layout, w_rows, w_cols);
    if (p->bias != NO_BIAS) {
        ngd_strbuf_printf(sb, "param %%b : %s[", ngd_dtype_name(p->xt));
        if (p->bias == BIAS_FULL)
            ngd_strbuf_printf(sb, biases[p->bias], (long long)p->m, (long long)p->n);
        else
            ngd_strbuf_printf(sb, biases[p->bias], (long long)(p->bias == BIAS_ROWS ? p->m : p->n));
        ngd_strbuf_append(sb, "]\n");
    }
    print_operand(sb, p, "input", "x", p->xt, p->x_layout, p->m, p->k);
    print_view(sb, p, "w", p->w_layout, w_cols);
    print_view(sb, p, "x", p->x_layout, p->k);
    ngd_strbuf_printf(sb, "%%y = %s(%s%%x, %%w%s)", p->op, addmm ? "%b, " : "",
                      linear && p->bias != NO_BIAS ? ", %b" : "");
    if (addmm)
        ngd_strbuf_printf(sb, " {alpha=%g, beta=%g}", p->alpha, p->beta);
    ngd_strbuf_append(sb, "\nreturn \"y\" = %y\n}\n");
}

/* ---- the reference ---- */

static int64_t stored_size(const struct product *p, enum layout layout, int64_t rows, int64_t cols)
{
    return (p->batch ? p->batch : 1) * rows * (layout == SLICED ? cols + MARGIN + 2 : cols);
}

/* Returns element [b][i][j] of a matrix of rows x cols in its layout. */
static double element(const struct numbers *t, enum layout layout, int64_t rows, int64_t cols, int64_t b, int64_t i,
                      int64_t j)
{
    if (layout == TURNED)
        return t->value[(b * cols + j) * rows + i];
    if (layout == SLICED)
        return t->value[(b * rows + i) * (cols + MARGIN + 2) + MARGIN + j];
    return t->value[(b * rows + i) * cols + j];
}

static double bias_at(const struct product *p, const struct numbers *bias, int64_t i, int64_t j)
{
    switch (p->bias) {
    case BIAS_COLUMNS:
        return bias->value[j];
    case BIAS_FULL:
        return bias->value[i * p->n + j];
    case BIAS_ROWS:
        return bias->value[i];
    case BIAS_ONE:
        return bias->value[0];
    default:
        return 0;
    }
}

struct operands {
    struct numbers x, w, bias;
    double *want, *allowed;
    int64_t n_results;
};

static void operands_open(struct operands *o, const struct product *p, struct random *r)
{
    bool linear = is_linear(p);
    int64_t w_rows = linear ? p->n : p->k, w_cols = linear ? p->k : p->n, batch = p->batch ? p->batch : 1;
    int64_t n_bias = p->bias == BIAS_FULL ? p->m * p->n : p->bias == BIAS_ROWS ? p->m : p->bias == BIAS_ONE ? 1 : p->n;

    numbers_random(&o->x, p->xt, stored_size(p, p->x_layout, p->m, p->k), 1, r);
    numbers_random(&o->w, p->wt, stored_size(p, p->w_layout, w_rows, w_cols), 1, r);
    numbers_random(&o->bias, p->xt, n_bias, 2, r);
    o->n_results = batch * p->m * p->n;
    o->want = calloc((size_t)o->n_results + 1, sizeof(double));
    o->allowed = calloc((size_t)o->n_results + 1, sizeof(double));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                double sum = 0, size = 0, v;
                int64_t at = (b * p->m + i) * p->n + j;

                for (int64_t k = 0; k < p->k; k++) {
                    double w = linear ? element(&o->w, p->w_layout, w_rows, w_cols, b, j, k)
                                      : element(&o->w, p->w_layout, w_rows, w_cols, b, k, j);

                    v = element(&o->x, p->x_layout, p->m, p->k, b, i, k) * w;
                    sum += v;
                    size += fabs(v);
                }
                v = p->beta * bias_at(p, &o->bias, i, j);
                o->want[at] = p->alpha * sum + v;
                size = fabs(p->alpha) * size + fabs(v);
                o->allowed[at] = ((4 + 4 * sqrt((double)p->k)) * 0x1p-24 + precision_error[p->precision]) * size +
                                 1.01 * rounding_of(p->xt, o->want[at]);
            }
}

static void operands_close(struct operands *o)
{
    numbers_close(&o->x);
    numbers_close(&o->w);
    numbers_close(&o->bias);
    free(o->want);
    free(o->allowed);
}

/* ---- running ---- */

static struct bench benches[NGD_ISA_MAX];

static void run_product(struct bench *b, const struct product *p, const struct operands *o, const char *text)
{
    char *y = malloc((size_t)o->n_results * ngd_dtype_bytes(p->xt) + 1);
    struct ngd_span in = {o->x.data, numbers_bytes(&o->x)};
    struct ngd_out out = {y, (uint64_t)o->n_results * ngd_dtype_bytes(p->xt)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r;

    run_check(ready_open(&r, b, text, NULL, &diag), &diag, text);
    run_check(ngd_buffer_write(r.bound[0], 0, o->w.data, numbers_bytes(&o->w), &diag), &diag, "w");
    if (p->bias != NO_BIAS)
        run_check(ngd_buffer_write(r.bound[1], 0, o->bias.data, numbers_bytes(&o->bias), &diag), &diag, "bias");
    run_check(ngd_launch_check(r.plan, &launch, 1, 0, 1, &diag), &diag, text);
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, text);
    for (int64_t i = 0; i < o->n_results; i++) {
        double got = numbers_got(p->xt, y, i);

        if (!(fabs(got - o->want[i]) <= o->allowed[i]))
            ck_abort_msg("%s: element %lld is %.9g, should be %.9g, and may be %.3g off\n%s", b->name, (long long)i,
                         got, o->want[i], o->allowed[i], text);
    }
    ready_close(&r);
    free(y);
}

static void check_product(const struct product *p, struct random *r)
{
    struct operands o;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    print_product(&sb, p);
    operands_open(&o, p, r);
    EACH_ISA (isa)
        run_product(&benches[isa], p, &o, ngd_strbuf_str(&sb));
    operands_close(&o);
    ngd_strbuf_fini(&sb);
}

static const struct {
    ngd_dtype_t x, w;
} types[] = {{NGD_F32, NGD_F32}, {NGD_F32, NGD_F16}, {NGD_F32, NGD_BF16}, {NGD_F16, NGD_F16}, {NGD_BF16, NGD_BF16}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* Sizes around those of vectors and tiles, and around those at which another way of computing begins. */
static const int64_t sizes[][3] = {
    {1, 1, 1},     {1, 1, 300},   {1, 67, 1},  {1, 64, 64},   {1, 130, 257},  {2, 33, 31},    {3, 5, 129},
    {4, 65, 70},   {5, 16, 515},  {7, 63, 32}, {8, 129, 33},  {9, 7, 64},     {16, 31, 100},  {17, 66, 255},
    {24, 64, 256}, {25, 65, 257}, {33, 3, 40}, {65, 70, 130}, {100, 129, 70}, {193, 66, 260}, {200, 1, 17},
};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

START_TEST(products_of_any_size_and_type_are_right)
{
    struct random r = {1};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < N_SIZES; s++) {
            struct product p = {.op = "aten.linear",
                                .xt = types[t].x,
                                .wt = types[t].w,
                                .m = sizes[s][0],
                                .n = sizes[s][1],
                                .k = sizes[s][2],
                                .alpha = 1,
                                .beta = 1};

            check_product(&p, &r);
            p.bias = BIAS_COLUMNS;
            check_product(&p, &r);
            p.bias = NO_BIAS;
            p.op = "aten.mm";
            check_product(&p, &r);
        }
    benches_close(benches);
}
END_TEST

START_TEST(products_of_turned_and_sliced_operands_are_right)
{
    static const int64_t some[][3] = {{1, 37, 50}, {3, 64, 33}, {6, 5, 97}, {40, 70, 66}};
    struct random r = {2};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 4; s++)
            for (int x = PLAIN; x <= SLICED; x++)
                for (int w = PLAIN; w <= SLICED; w++) {
                    struct product p = {.op = "aten.linear",
                                        .xt = types[t].x,
                                        .wt = types[t].w,
                                        .m = some[s][0],
                                        .n = some[s][1],
                                        .k = some[s][2],
                                        .x_layout = (enum layout)x,
                                        .w_layout = (enum layout)w,
                                        .alpha = 1};

                    check_product(&p, &r);
                    p.op = "aten.mm";
                    check_product(&p, &r);
                }
    benches_close(benches);
}
END_TEST

START_TEST(products_of_batches_are_right)
{
    static const int64_t some[][4] = {{1, 1, 9, 20}, {3, 2, 65, 40}, {2, 5, 16, 130}, {5, 30, 33, 64}};
    struct random r = {3};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 4; s++)
            for (int w = PLAIN; w <= SLICED; w++) {
                struct product p = {.op = "aten.bmm",
                                    .xt = types[t].x,
                                    .wt = types[t].w,
                                    .batch = some[s][0],
                                    .m = some[s][1],
                                    .n = some[s][2],
                                    .k = some[s][3],
                                    .x_layout = (enum layout)((w + (int)s) % 3),
                                    .w_layout = (enum layout)w,
                                    .alpha = 1};

                check_product(&p, &r);
            }
    benches_close(benches);
}
END_TEST

START_TEST(products_with_factors_and_any_bias_are_right)
{
    static const int64_t some[][3] = {{1, 40, 33}, {4, 17, 64}, {31, 66, 20}, {70, 65, 129}};
    static const double factors[][2] = {{1, 1}, {0.5, -2}, {-1, 0}, {0, 1}};
    struct random r = {4};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 4; s++)
            for (int bias = BIAS_COLUMNS; bias <= BIAS_ONE; bias++)
                for (size_t f = 0; f < 4; f++) {
                    struct product p = {.op = "aten.addmm",
                                        .xt = types[t].x,
                                        .wt = types[t].w,
                                        .m = some[s][0],
                                        .n = some[s][1],
                                        .k = some[s][2],
                                        .w_layout = (enum layout)(f % 3),
                                        .bias = (enum bias)bias,
                                        .alpha = factors[f][0],
                                        .beta = factors[f][1]};

                    check_product(&p, &r);
                }
    benches_close(benches);
}
END_TEST

/* With K = 0 nothing is summed; with M or N = 0 there is no result. */
START_TEST(products_of_nothing_are_their_bias)
{
    static const int64_t some[][3] = {{3, 5, 0}, {40, 70, 0}, {0, 5, 7}, {3, 0, 7}, {1, 1, 0}};
    struct random r = {5};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 5; s++) {
            struct product p = {.op = "aten.addmm",
                                .xt = types[t].x,
                                .wt = types[t].w,
                                .m = some[s][0],
                                .n = some[s][1],
                                .k = some[s][2],
                                .bias = BIAS_COLUMNS,
                                .alpha = 1,
                                .beta = 1};

            check_product(&p, &r);
        }
    benches_close(benches);
}
END_TEST

/* Weights are large enough for tiles, if there are any; rows and columns are around the sizes of tiles. */
START_TEST(products_with_large_weights_are_right)
{
    static const int64_t some[][3] = {{1, 520, 137},  {2, 257, 512},  {3, 300, 224},  {5, 272, 256},
                                      {6, 259, 260},  {10, 290, 230}, {11, 272, 288}, {16, 263, 301},
                                      {17, 272, 256}, {40, 299, 225}, {200, 258, 262}};
    struct random r = {6};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < sizeof(some) / sizeof(some[0]); s++) {
            struct product p = {.op = "aten.linear",
                                .xt = types[t].x,
                                .wt = types[t].w,
                                .m = some[s][0],
                                .n = some[s][1],
                                .k = some[s][2],
                                .bias = s % 2 ? BIAS_COLUMNS : NO_BIAS,
                                .x_layout = s % 3 == 1 ? SLICED : PLAIN,
                                .w_layout = s % 4 == 3 ? SLICED : PLAIN,
                                .alpha = 1,
                                .beta = 1};

            check_product(&p, &r);
        }
    benches_close(benches);
}
END_TEST

/* Products that are computed as the option matmul_precision says: within its bound, and with fewer terms where that
 * gains speed. */
START_TEST(products_of_each_precision_are_right)
{
    static const int64_t some[][3] = {{1, 272, 256}, {3, 263, 301}, {48, 65, 1060}, {81, 40, 2085}, {530, 33, 2000}};
    struct random r = {8};

    benches_open(benches);
    for (size_t i = 0; i < 3 * N_TYPES * sizeof(some) / sizeof(some[0]); i++) {
        const size_t t = i / 3 % N_TYPES, s = i / 3 / N_TYPES;
        struct product p = {.op = "aten.linear",
                            .xt = types[t].x,
                            .wt = types[t].w,
                            .m = some[s][0],
                            .n = some[s][1],
                            .k = some[s][2],
                            .bias = s % 2 ? BIAS_COLUMNS : NO_BIAS,
                            .w_layout = s % 4 == 3 ? SLICED : PLAIN,
                            .precision = (int)(i % 3),
                            .alpha = 1,
                            .beta = 1};

        benches_precision(benches, p.precision);
        check_product(&p, &r);
    }
    benches_close(benches);
}
END_TEST

/* Gives a row's results in a plan with `m` rows. */
static void run_gear(struct bench *b, const struct product *p, const struct operands *o, int64_t m, char *y)
{
    const uint64_t size = ngd_dtype_bytes(p->xt);
    struct product gear = *p;
    struct ngd_span in = {o->x.data, (uint64_t)(m * p->k) * size};
    struct ngd_out out = {y, (uint64_t)(m * p->n) * size};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ready r;

    gear.m = m;
    ngd_strbuf_init(&sb);
    print_product(&sb, &gear);
    run_check(ready_open(&r, b, ngd_strbuf_str(&sb), NULL, &diag), &diag, ngd_strbuf_str(&sb));
    run_check(ngd_buffer_write(r.bound[0], 0, o->w.data, numbers_bytes(&o->w), &diag), &diag, "w");
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, ngd_strbuf_str(&sb));
    ready_close(&r);
    ngd_strbuf_fini(&sb);
}

/* With AMX, a lower precision gives other bits; without it, the same. */
START_TEST(a_lower_precision_takes_fewer_terms)
{
    struct product p = {.op = "aten.linear", .xt = NGD_F32, .wt = NGD_BF16, .m = 2, .n = 272, .k = 256};
    char y[3][2 * 272 * 4];
    struct random r = {9};
    struct operands o;

    benches_open(benches);
    operands_open(&o, &p, &r);
    EACH_ISA (isa) {
        for (int precision = 0; precision < 3; precision++) {
            benches_precision(benches, precision);
            run_gear(&benches[isa], &p, &o, 2, y[precision]);
        }
        ck_assert_int_eq(memcmp(y[0], y[1], sizeof(y[0])) != 0, isa == NGD_ISA_AMX);
        ck_assert_int_eq(memcmp(y[1], y[2], sizeof(y[0])) != 0, isa == NGD_ISA_AMX);
    }
    operands_close(&o);
    benches_close(benches);
}
END_TEST

/* The number of sequences in a batch decides the way of computing of a step. */
START_TEST(a_row_has_the_same_bits_in_every_gear)
{
    static const int64_t some[][2] = {{272, 256}, {263, 301}, {70, 65}}, gears[] = {1, 2, 3, 5, 6, 8, 11, 16};
    struct random r = {7};

    benches_open(benches);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < 3; s++) {
            struct product p = {
                .op = "aten.linear", .xt = types[t].x, .wt = types[t].w, .m = 16, .n = some[s][0], .k = some[s][1]};
            const size_t row = (size_t)p.n * ngd_dtype_bytes(p.xt);
            char *all = malloc(16 * row), *y = malloc(16 * row);
            struct operands o;

            operands_open(&o, &p, &r);
            EACH_ISA (isa) {
                run_gear(&benches[isa], &p, &o, 16, all);
                for (size_t g = 0; g < sizeof(gears) / sizeof(gears[0]); g++) {
                    run_gear(&benches[isa], &p, &o, gears[g], y);
                    ck_assert_msg(memcmp(all, y, (size_t)gears[g] * row) == 0, "%s, %s x %s: %lld rows differ from 16",
                                  benches[isa].name, ngd_dtype_name(p.xt), ngd_dtype_name(p.wt), (long long)gears[g]);
                }
            }
            operands_close(&o);
            free(all);
            free(y);
        }
    benches_close(benches);
}
END_TEST

/* Runs an operand in which a dimension other than the first is 0. Any write would be outside. */
static void run_empty(struct bench *b, ngd_isa_t isa, const char *type, const char *dims, const char *node)
{
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct direct d;
    char body[600];

    snprintf(body, sizeof(body),
             "param %%w : %s[40,3]\nparam %%u : %s[40,3]\nparam %%g : %s[3]\ninput %%x : %s[%s,3]\n"
             "input %%r : %s[%s,40]\ninput %%s : f32[S]\ninput %%n : f32[N]\n%s",
             type, type, type, type, dims, type, dims, node);
    ngd_strbuf_init(&text);
    run_text(&text, "sym S 0..4\nsym N 1..8 buckets 4, 8\n", body);
    if (ready_plan(&r, b, ngd_strbuf_str(&text), (const int64_t[]){0, 3}, &diag))
        ck_abort_msg("%s: %s", node, diag.text);
    direct_open(&d, r.plan, isa, 1);
    ck_assert_int_eq(direct_run(&d, (const int64_t[]){0, 3}, NULL, 1), NGD_OK);
    for (uint64_t i = 0; i < r.plan->pool_bytes; i++)
        ck_assert_msg(d.pool[i] == (char)0xff, "%s of %s[%s,3] on %s writes", node, type, dims, ngd_isa_name(isa));
    ck_assert_msg(direct_guards_intact(&d), "%s of %s[%s,3] on %s writes outside the pool", node, type, dims,
                  ngd_isa_name(isa));
    direct_close(&d);
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

START_TEST(linears_without_rows_write_nothing)
{
    static const char *const nodes[] = {"%y = aten.linear(%x, %w)",
                                        "%y = ngd.linear_add(%x, %w, %r)",
                                        "%y, %z = ngd.multi_linear(%x, %w, %u) {sizes=[40,40]}",
                                        "%y = ngd.rms_norm_linear(%x, %g, %w) {sizes=[40]}",
                                        "%y = ngd.linear_swiglu(%x, %w, %u)",
                                        "%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %u)"},
                             *const dims[] = {"1,0", "2,0", "2,S", "N,0", "N,S", "0,2", "S,2", "3,0,2", "3,2,0"},
                             *const floats[] = {"f32", "f16", "bf16"};

    benches_open(benches);
    EACH_ISA (isa)
        for (size_t i = 0; i < 6 * 9 * 3; i++)
            run_empty(&benches[isa], (ngd_isa_t)isa, floats[i % 3], dims[i / 3 % 9], nodes[i / 27]);
    benches_close(benches);
}
END_TEST

UNIT_MAIN("ops/matrices", products_of_any_size_and_type_are_right, products_of_turned_and_sliced_operands_are_right,
          products_of_batches_are_right, products_with_factors_and_any_bias_are_right,
          products_of_nothing_are_their_bias, products_with_large_weights_are_right,
          products_of_each_precision_are_right, a_lower_precision_takes_fewer_terms,
          a_row_has_the_same_bits_in_every_gear, linears_without_rows_write_nothing)
