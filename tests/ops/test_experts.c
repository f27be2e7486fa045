/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.grouped_matmul with quantised weights and biases, as a tensor for each group and as one for all: each group's
 * rows have the bits that npu.weight_quant_batchmatmul gives them, which test_quant_matmul compares with its
 * definition.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

#define GROUPS 4
#define ROWS   40 /* more than a block has */

enum form { I8, I4, F8, F4 };

struct lists {
    enum form form;
    ngd_dtype_t xt, st;
    int64_t n, k, group, columns; /* group 0: a scale for each row of a weight; -1: one */
    bool offset, bias, stacked;
};

struct tensor {
    const char *dtype;
    char dims[48]; /* of one group */
    char *data;
    uint64_t bytes; /* of one group */
};

static const int64_t rows_of[GROUPS] = {17, 0, 1, 20}; /* two rows are behind the last group */

static void tensor_open(struct tensor *t, const char *dtype, uint64_t size, int64_t rows, int64_t cols)
{
    t->dtype = dtype;
    t->bytes = (uint64_t)rows * (uint64_t)(cols ? cols : 1) * size;
    t->data = calloc(GROUPS, t->bytes + 1);
    if (cols)
        snprintf(t->dims, sizeof(t->dims), "%lld,%lld", (long long)rows, (long long)cols);
    else
        snprintf(t->dims, sizeof(t->dims), "%lld", (long long)rows);
}

static void fill_scales(struct tensor *t, ngd_dtype_t dtype, struct random *r)
{
    struct numbers n = {.dtype = dtype, .data = t->data};

    n.value = calloc((size_t)(GROUPS * t->bytes) + 1, sizeof(double));
    for (int64_t i = 0; i < (int64_t)(GROUPS * t->bytes / ngd_dtype_bytes(dtype)); i++) {
        if (dtype == NGD_U8)
            t->data[i] = (char)(120 + random_below(r, 10));
        else
            numbers_put(&n, i, 0.1 * random_value(r));
    }
    free(n.value);
}

/* What the operands are: weights, scales, offsets, biases. */
static void open_tensors(struct tensor t[4], const struct lists *p, struct random *r)
{
    static const char *const dtypes[] = {"i8", "i32", "f8_e4m3fn", "u8"};
    static const int64_t numbers[] = {1, 8, 1, 2}, sizes[] = {1, 4, 1, 1};
    const int64_t across = (p->n + p->columns - 1) / p->columns,
                  groups = p->group > 0 ? (p->k + p->group - 1) / p->group : 1;

    tensor_open(&t[0], dtypes[p->form], (uint64_t)sizes[p->form], p->n, p->k / numbers[p->form]);
    for (uint64_t i = 0; i < GROUPS * t[0].bytes; i++) {
        t[0].data[i] = (char)random_u32(r);
        if (p->form == F8 && (t[0].data[i] & 0x7f) == 0x7f)
            t[0].data[i] = 0;
    }
    for (int i = 1; i < 3; i++) {
        if (p->group < 0)
            tensor_open(&t[i], ngd_dtype_name(p->st), ngd_dtype_bytes(p->st), 1, 0);
        else
            tensor_open(&t[i], ngd_dtype_name(p->st), ngd_dtype_bytes(p->st), across, groups);
        fill_scales(&t[i], p->st, r);
    }
    tensor_open(&t[3], "f32", 4, p->n, 0);
    fill_scales(&t[3], NGD_F32, r);
}

static bool has_list(const struct lists *p, int i)
{
    return i < 2 || (i == 2 ? p->offset : p->bias);
}

static const char *const tensor_names[] = {"w", "s", "o", "b"};

/* ---- graphs ---- */

static void put_list(struct ngd_strbuf *sb, const struct lists *p, int i)
{
    if (!has_list(p, i))
        return;
    for (int e = 0; e < (p->stacked ? 1 : GROUPS); e++)
        ngd_strbuf_printf(sb, ", %%%s%d", tensor_names[i], e);
}

static void put_grouped(struct ngd_strbuf *sb, const struct lists *p, const struct tensor t[4])
{
    ngd_strbuf_append(sb, "npugraph 1\ngraph \"grouped\" {\n");
    for (int i = 0; i < 4; i++)
        for (int e = 0; has_list(p, i) && e < (p->stacked ? 1 : GROUPS); e++)
            ngd_strbuf_printf(sb, "param %%%s%d : %s[%s%s]\n", tensor_names[i], e, t[i].dtype, p->stacked ? "4," : "",
                              t[i].dims);
    ngd_strbuf_printf(sb, "input %%x : %s[%d,%lld]\ninput %%n : i64[%d]\n%%y = npu.grouped_matmul(%%x, %%n",
                      ngd_dtype_name(p->xt), ROWS, (long long)p->k, GROUPS);
    put_list(sb, p, 0);
    put_list(sb, p, 3);
    put_list(sb, p, 1);
    put_list(sb, p, 2);
    ngd_strbuf_printf(
        sb,
        ") {group_list_type=1, transpose_weight=true, antiquant_scale=true, antiquant_offset=%s, bias=%s, "
        "antiquant_group_size=%lld, antiquant_group_columns=%lld}\nreturn \"y\" = %%y\n}\n",
        p->offset ? "true" : "false", p->bias ? "true" : "false", (long long)(p->group > 0 ? p->group : 0),
        (long long)p->columns);
}

static void put_plain(struct ngd_strbuf *sb, const struct lists *p, const struct tensor t[4], int64_t rows)
{
    const bool one = p->group < 0;

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"plain\" {\n");
    for (int i = 0; i < 4; i++)
        if (has_list(p, i))
            ngd_strbuf_printf(sb, "param %%%s : %s[%s]\n", tensor_names[i], t[i].dtype, t[i].dims);
    ngd_strbuf_printf(sb, "input %%x : %s[%lld,%lld]\n%%wt = aten.t(%%w)\n", ngd_dtype_name(p->xt), (long long)rows,
                      (long long)p->k);
    if (!one)
        ngd_strbuf_append(sb, "%st = aten.t(%s)\n");
    if (!one && p->offset)
        ngd_strbuf_append(sb, "%ot = aten.t(%o)\n");
    ngd_strbuf_printf(
        sb,
        "%%y = npu.weight_quant_batchmatmul(%%x, %%wt, %s, %s, none, none, %s) {antiquant_group_size=%lld, "
        "antiquant_group_columns=%lld}\nreturn \"y\" = %%y\n}\n",
        one ? "%s" : "%st",
        !p->offset ? "none"
        : one      ? "%o"
                   : "%ot",
        p->bias ? "%b" : "none", (long long)(p->group > 0 ? p->group : 0), (long long)p->columns);
}

/* ---- running ---- */

static struct bench benches[NGD_ISA_MAX];

struct spans {
    struct ngd_span items[4 * GROUPS];
    uint32_t n;
};

static void add_span(struct spans *s, const char *data, uint64_t bytes)
{
    s->items[s->n++] = (struct ngd_span){data, bytes};
}

/* Runs a text with these parameters and inputs. */
static void run_experts(struct bench *b, struct ngd_strbuf *text, const struct spans *params, const struct spans *in,
                        struct ngd_out out)
{
    struct ngd_launch launch = {.inputs = in->items, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r;

    run_check(ready_open(&r, b, ngd_strbuf_str(text), NULL, &diag), &diag, ngd_strbuf_str(text));
    for (uint32_t i = 0; i < params->n; i++)
        run_check(ngd_buffer_write(r.bound[i], 0, params->items[i].data, params->items[i].bytes, &diag), &diag,
                  "param");
    run_check(ngd_launch_check(r.plan, &launch, in->n, 0, 1, &diag), &diag, ngd_strbuf_str(text));
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, ngd_strbuf_str(text));
    ready_close(&r);
}

static void run_grouped(struct bench *b, const struct lists *p, const struct tensor t[4], const char *x, char *y)
{
    const uint64_t size = ngd_dtype_bytes(p->xt);
    struct spans params = {.n = 0}, in = {.n = 0};
    struct ngd_strbuf sb;

    for (int i = 0; i < 4; i++)
        for (int e = 0; has_list(p, i) && e < (p->stacked ? 1 : GROUPS); e++)
            add_span(&params, t[i].data + (uint64_t)e * t[i].bytes, (p->stacked ? GROUPS : 1) * t[i].bytes);
    add_span(&in, x, ROWS * (uint64_t)p->k * size);
    add_span(&in, (const char *)rows_of, sizeof(rows_of));
    ngd_strbuf_init(&sb);
    put_grouped(&sb, p, t);
    run_experts(b, &sb, &params, &in, (struct ngd_out){y, ROWS * (uint64_t)p->n * size});
    ngd_strbuf_fini(&sb);
}

/* Gives what each group's rows are by products of their own, and zeros behind them. */
static void run_plain(struct bench *b, const struct lists *p, const struct tensor t[4], const char *x, char *y)
{
    const uint64_t size = ngd_dtype_bytes(p->xt);
    uint64_t row = 0;

    memset(y, 0, ROWS * (size_t)p->n * size);
    for (uint64_t e = 0; e < GROUPS; e++) {
        const uint64_t rows = (uint64_t)rows_of[e], y_row = (uint64_t)p->n * size, x_row = (uint64_t)p->k * size;
        struct spans params = {.n = 0}, in = {.n = 0};
        struct ngd_strbuf sb;

        for (int i = 0; i < 4; i++)
            if (has_list(p, i))
                add_span(&params, t[i].data + e * t[i].bytes, t[i].bytes);
        add_span(&in, x + row * x_row, rows * x_row);
        ngd_strbuf_init(&sb);
        put_plain(&sb, p, t, (int64_t)rows);
        run_experts(b, &sb, &params, &in, (struct ngd_out){y + row * y_row, rows * y_row});
        ngd_strbuf_fini(&sb);
        row += rows;
    }
}

static void check_lists(const struct lists *p, uint64_t seed)
{
    const size_t size = ngd_dtype_bytes(p->xt);
    char *got = malloc(ROWS * (size_t)p->n * size + 1), *want = malloc(ROWS * (size_t)p->n * size + 1);
    struct random draw = {seed};
    struct numbers x;
    struct tensor t[4];

    numbers_random(&x, p->xt, ROWS * p->k, 1, &draw);
    open_tensors(t, p, &draw);
    EACH_ISA (isa) {
        run_grouped(&benches[isa], p, t, x.data, got);
        run_plain(&benches[isa], p, t, x.data, want);
        ck_assert_msg(memcmp(got, want, ROWS * (size_t)p->n * size) == 0,
                      "%s: form %d, %lld x %lld, group %lld, %s%s%s: differs from products of their own",
                      benches[isa].name, (int)p->form, (long long)p->n, (long long)p->k, (long long)p->group,
                      p->stacked ? "one tensor" : "a tensor each", p->offset ? ", offsets" : "",
                      p->bias ? ", biases" : "");
    }
    for (int i = 0; i < 4; i++)
        free(t[i].data);
    numbers_close(&x);
    free(got);
    free(want);
}

START_TEST(groups_have_the_bits_of_products_of_their_own)
{
    static const struct {
        ngd_dtype_t x, s;
    } types[] = {{NGD_F32, NGD_BF16}, {NGD_BF16, NGD_BF16}, {NGD_F16, NGD_F16}, {NGD_F32, NGD_F32}};
    static const int64_t sizes[][4] = {/* N, K, group, columns that share scales */
                                       {1, 32, 32, 1},    {33, 96, 0, 1},    {16, 136, -1, 1},
                                       {40, 264, 128, 1}, {35, 160, 64, 16}, {7, 72, 32, 1}};
    uint64_t seed = 1;

    benches_open(benches);
    for (int form = I8; form <= F4; form++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (int stacked = 0; stacked < 2; stacked++, seed++) {
                const size_t type = (s + (size_t)form) % 4;
                struct lists p = {.form = (enum form)form,
                                  .xt = types[type].x,
                                  .st = form == F4 ? NGD_U8 : types[type].s,
                                  .n = sizes[s][0],
                                  .k = sizes[s][1],
                                  .group = form == F4 ? 32 : sizes[s][2],
                                  .columns = form == F4 ? 1 : sizes[s][3],
                                  .offset = (form == I8 || form == I4) && s % 2,
                                  .bias = (s + (size_t)stacked) % 2,
                                  .stacked = stacked};

                check_lists(&p, seed);
            }
    benches_close(benches);
}
END_TEST

/* One tensor of many experts without numbers: no row of it is read, and each is found in it. */
START_TEST(experts_without_numbers_give_nothing)
{
    static int64_t counts[100000];
    struct numbers y;

    counts[99999] = 1;
    numbers_open(&y, NGD_F32, 1);
    benches_open(benches);
    EACH_ISA (isa) {
        struct spans params = {.n = 0}, in = {.n = 0};
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_strbuf_append(&sb, "npugraph 1\ngraph \"empty\" {\nparam %w : f32[100000,1,0]\ninput %x : f32[1,0]\n"
                               "input %n : i64[100000]\n%y = npu.grouped_matmul(%x, %n, %w) {group_list_type=1, "
                               "transpose_weight=true}\nreturn \"y\" = %y\n}\n");
        add_span(&in, "", 0);
        add_span(&in, (const char *)counts, sizeof(counts));
        numbers_put(&y, 0, 7);
        run_experts(&benches[isa], &sb, &params, &in, (struct ngd_out){y.data, 4});
        ck_assert(fabs(numbers_got(NGD_F32, y.data, 0)) <= 0);
        ngd_strbuf_fini(&sb);
    }
    benches_close(benches);
    numbers_close(&y);
}
END_TEST

UNIT_MAIN("ops/experts", groups_have_the_bits_of_products_of_their_own, experts_without_numbers_give_nothing)
