/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives: every operator, dtype and reduction with 2 and 3 ranks, compared bit by bit with plain loops. Floats are
 * small multiples of 1/8, so a sum or a product of three of them is rounded only once, at the end.
 */
#include "tests/backend/ranks.h"
#include "tests/ops/reference.h"
#include <math.h>

static const ngd_dtype_t dtypes[] = {NGD_F32, NGD_F16, NGD_BF16, NGD_I32, NGD_I64};
static const char *const reductions[] = {"sum", "avg", "product", "min", "max"};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- elements ---- */

static float float_at(ngd_dtype_t t, const char *p, uint64_t i)
{
    uint16_t h;
    float f;

    if (t == NGD_F32) {
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    memcpy(&h, p + 2 * i, 2);
    return t == NGD_F16 ? ngd_f16_to_f32(h) : ngd_bf16_to_f32(h);
}

static void put_float(ngd_dtype_t t, char *p, uint64_t i, float f)
{
    uint16_t h = t == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);

    if (t == NGD_F32)
        memcpy(p + 4 * i, &f, 4);
    else
        memcpy(p + 2 * i, &h, 2);
}

static int64_t int_at(ngd_dtype_t t, const char *p, uint64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (t == NGD_I64) {
        memcpy(&wide, p + 8 * i, 8);
        return wide;
    }
    memcpy(&narrow, p + 4 * i, 4);
    return narrow;
}

static void put_int(ngd_dtype_t t, char *p, uint64_t i, int64_t v)
{
    memcpy(p + i * ngd_dtype_bytes(t), &v, ngd_dtype_bytes(t)); /* little endian: the low bytes */
}

static void fill_elements(ngd_dtype_t t, char *p, uint64_t bytes, struct random *r)
{
    for (uint64_t i = 0; i < bytes / ngd_dtype_bytes(t); i++) {
        if (!ngd_dtype_is_float(t))
            put_int(t, p, i, (int64_t)((uint64_t)random_below(r, 1 << 30) * 0x9e3779b97f4a7c15u)); /* sums wrap */
        else if (i % 97 == 13)
            put_float(t, p, i, i % 2 ? NAN : INFINITY);
        else
            put_float(t, p, i, (float)(random_below(r, 128) - 64) / 8);
    }
}

/* ---- what is right ---- */

static double combine_floats(const char *how, double a, double b)
{
    if (how[0] == 'm')
        return isnan(a) || isnan(b) ? NAN : how[1] == 'i' ? fmin(a, b) : fmax(a, b);
    return how[0] == 'p' ? a * b : a + b;
}

static uint64_t combine_ints(const char *how, uint64_t a, uint64_t b)
{
    if (how[0] == 'm')
        return ((int64_t)a < (int64_t)b) == (how[1] == 'i') ? a : b;
    return how[0] == 'p' ? a * b : a + b;
}

/* Reduces element i of all ranks' operands. */
static void reduce_element(const struct ranks *s, const char *how, ngd_dtype_t t, uint64_t i, char *want, uint64_t at)
{
    double f = 0;
    uint64_t v = 0;

    for (uint32_t r = 0; r < s->n; r++) {
        if (ngd_dtype_is_float(t))
            f = r ? combine_floats(how, f, (double)float_at(t, s->x[r], i)) : (double)float_at(t, s->x[r], i);
        else
            v = r ? combine_ints(how, v, (uint64_t)int_at(t, s->x[r], i)) : (uint64_t)int_at(t, s->x[r], i);
    }
    if (ngd_dtype_is_float(t))
        put_float(t, want, at, strcmp(how, "avg") ? (float)f : (float)f / (float)s->n);
    else
        put_int(t, want, at, (int64_t)v);
}

/* Checks that the bits are the same. All NaNs count as equal. */
static void check_bits(ngd_dtype_t t, const char *got, const char *want, uint64_t bytes, const char *what,
                       uint32_t rank)
{
    const uint64_t size = ngd_dtype_bytes(t);

    for (uint64_t i = 0; i < bytes / size; i++) {
        if (memcmp(got + i * size, want + i * size, size) == 0 ||
            (ngd_dtype_is_float(t) && isnan(float_at(t, got, i)) && isnan(float_at(t, want, i))))
            continue;
        if (ngd_dtype_is_float(t))
            ck_abort_msg("%s, %s, rank %u: element %llu is %g, not %g", what, ngd_dtype_name(t), rank,
                         (unsigned long long)i, (double)float_at(t, got, i), (double)float_at(t, want, i));
        ck_abort_msg("%s, %s, rank %u: element %llu differs", what, ngd_dtype_name(t), rank, (unsigned long long)i);
    }
}

/* ---- one case ---- */

struct sizes {
    int rows, columns;
};
/*
 * The rows can be divided by 2 and 3. The sizes are small, large enough for several stages on any backend, and rows
 * without elements.
 */
static const struct sizes sizes[] = {{6, 5}, {510, 263}, {6, 0}};

static void fill_operands(struct ranks *s, uint32_t seed, ngd_dtype_t t)
{
    struct random r = {seed};

    for (uint32_t i = 0; i < s->n; i++)
        fill_elements(t, s->x[i], s->io[i].in[0].bytes, &r);
}

static uint64_t elements(const struct ranks *s, uint32_t rank)
{
    const struct ngd_plan *plan = s->r[rank].plan;

    return plan->inputs[0].bytes / ngd_dtype_bytes(plan->tensors[plan->inputs[0].tensor].dtype);
}

/* Replays twice and runs once eagerly. want has the expected result of each rank. */
static void run_and_check(struct ranks *s, ngd_dtype_t t, char *want[RANKS_MAX], const char *what)
{
    for (int form = 0; form < 3; form++) {
        for (uint32_t i = 0; i < s->n; i++) {
            memset(s->y[i], 0x55, s->io[i].out[0].bytes);
            s->io[i].launch.eager = form == 2;
        }
        ranks_run(s);
        for (uint32_t i = 0; i < s->n; i++)
            check_bits(t, s->y[i], want[i], s->io[i].out[0].bytes, what, i);
    }
    for (uint32_t i = 0; i < s->n; i++)
        free(want[i]);
    ranks_unready(s);
}

static void all_on(struct ranks *s, const char *text, ngd_dtype_t t, char *want[RANKS_MAX])
{
    for (uint32_t i = 0; i < s->n; i++) {
        ranks_ready(s, i, text, NULL);
        want[i] = calloc(1, s->io[i].out[0].bytes + 1);
    }
    fill_operands(s, 7, t);
}

static void check_reductions(struct ranks *s, ngd_dtype_t t, struct sizes size, const char *how)
{
    char *want[RANKS_MAX];

    all_on(s,
           ranks_text("input %%x : %s[%d,%d]\n%%a = _c10d_functional.all_reduce(%%x) {reduce_op=\"%s\", "
                      "group_name=\"tp\"}\n%%y = _c10d_functional.wait_tensor(%%a)",
                      ngd_dtype_name(t), size.rows, size.columns, how),
           t, want);
    for (uint32_t r = 0; r < s->n; r++)
        for (uint64_t i = 0; i < elements(s, 0); i++)
            reduce_element(s, how, t, i, want[r], i);
    run_and_check(s, t, want, how);

    all_on(s,
           ranks_text("input %%x : %s[%d,%d]\n%%y = _c10d_functional.reduce_scatter_tensor(%%x) {reduce_op=\"%s\", "
                      "group_size=%u, group_name=\"tp\"}",
                      ngd_dtype_name(t), size.rows, size.columns, how, s->n),
           t, want);
    for (uint32_t r = 0; r < s->n; r++)
        for (uint64_t i = 0; i < elements(s, 0) / s->n; i++)
            reduce_element(s, how, t, elements(s, 0) / s->n * r + i, want[r], i);
    run_and_check(s, t, want, how);
}

static void each_group(int backend, void (*fn)(struct ranks *s, ngd_dtype_t t, struct sizes size))
{
    for (uint32_t n = 2; n <= RANKS_MAX; n++) {
        struct ranks s;

        if (!ranks_open(&s, backend, n, 60 * NGD_SEC))
            return;
        for (size_t t = 0; t < COUNT(dtypes); t++)
            for (size_t k = 0; k < COUNT(sizes); k++)
                fn(&s, dtypes[t], sizes[k]);
        ranks_close(&s);
    }
}

static void each_reduction(struct ranks *s, ngd_dtype_t t, struct sizes size)
{
    for (size_t i = 0; i < COUNT(reductions); i++)
        if ((ngd_dtype_is_float(t) || strcmp(reductions[i], "avg") != 0) && (size.rows < 100 || i < 2))
            check_reductions(s, t, size, reductions[i]);
}

START_TEST(ranks_reduce_in_their_order_with_one_rounding)
{
    each_group(_i, each_reduction);
}
END_TEST

static void check_moves(struct ranks *s, ngd_dtype_t t, struct sizes size)
{
    const char *name = ngd_dtype_name(t);
    char *want[RANKS_MAX];
    uint64_t bytes;

    all_on(s,
           ranks_text("input %%x : %s[%d,%d]\n%%y = _c10d_functional.all_gather_into_tensor(%%x) {group_size=%u, "
                      "group_name=\"tp\"}",
                      name, size.rows, size.columns, s->n),
           t, want);
    bytes = s->io[0].in[0].bytes;
    for (uint32_t r = 0; r < s->n; r++)
        for (uint32_t k = 0; k < s->n; k++)
            memcpy(want[r] + k * bytes, s->x[k], bytes);
    run_and_check(s, t, want, "all_gather");

    all_on(s,
           ranks_text("input %%x : %s[%d,%d]\n%%y = _c10d_functional.broadcast(%%x) {src=%u, group_name=\"tp\"}", name,
                      size.rows, size.columns, s->n - 1),
           t, want);
    for (uint32_t r = 0; r < s->n; r++)
        memcpy(want[r], s->x[s->n - 1], bytes);
    run_and_check(s, t, want, "broadcast");
}

START_TEST(ranks_get_what_others_have)
{
    each_group(_i, check_moves);
}
END_TEST

/* Rank i sends i + 2k + 1 times `scale` rows to rank k, and nothing to itself. */
static int rows_between(uint32_t i, uint32_t k, int scale)
{
    return i == k ? 0 : (int)(i + 2 * k + 1) * scale;
}

static void splits(char *text, size_t n, const struct ranks *s, uint32_t rank, bool out, int scale)
{
    size_t at = 0;

    for (uint32_t k = 0; k < s->n; k++)
        at += (size_t)snprintf(text + at, n - at, "%s%d", k ? "," : "",
                               out ? rows_between(rank, k, scale) : rows_between(k, rank, scale));
}

static int sum_of_rows(const struct ranks *s, uint32_t rank)
{
    int sum = 0;

    for (uint32_t k = 0; k < s->n; k++)
        sum += rows_between(rank, k, 1);
    return sum;
}

static void check_all_to_all(struct ranks *s, ngd_dtype_t t, struct sizes size)
{
    const int scale = size.rows / 6;
    const uint64_t row = (uint64_t)size.columns * ngd_dtype_bytes(t);
    char *want[RANKS_MAX], sends[100], receives[100];

    for (uint32_t r = 0; r < s->n; r++) {
        splits(sends, sizeof(sends), s, r, true, scale);
        splits(receives, sizeof(receives), s, r, false, scale);
        ranks_ready(s, r,
                    ranks_text("input %%x : %s[%d,%d]\n%%y = _c10d_functional.all_to_all_single(%%x) "
                               "{output_split_sizes=[%s], input_split_sizes=[%s], group_name=\"tp\"}",
                               ngd_dtype_name(t), sum_of_rows(s, r) * scale, size.columns, receives, sends),
                    NULL);
        want[r] = calloc(1, s->io[r].out[0].bytes + 1);
    }
    fill_operands(s, 11, t);
    for (uint32_t r = 0; r < s->n; r++) {
        uint64_t at = 0;

        for (uint32_t k = 0; k < s->n; k++) {
            uint64_t from = 0, bytes = (uint64_t)rows_between(k, r, scale) * row;

            for (uint32_t j = 0; j < r; j++)
                from += (uint64_t)rows_between(k, j, scale) * row;
            memcpy(want[r] + at, s->x[k] + from, bytes);
            at += bytes;
        }
    }
    run_and_check(s, t, want, "all_to_all");
}

START_TEST(ranks_exchange_parts_of_different_sizes)
{
    each_group(_i, check_all_to_all);
}
END_TEST

/* ---- in graphs ---- */

/*
 * Rows of the bucket that the launch does not ask for are not sent, since the other ranks do not ask for them either.
 */
START_TEST(ranks_reduce_the_rows_that_there_are)
{
    const int64_t symbols[] = {3};
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    for (uint32_t r = 0; r < 2; r++) {
        ranks_ready(&s, r,
                    ranks_text("sym B 1..8 buckets 8\ninput %%x : f32[B,4]\n%%a = _c10d_functional.all_reduce(%%x) "
                               "{reduce_op=\"sum\", group_name=\"tp\"}\n%%y = aten.neg(%%a)"),
                    symbols);
        for (uint64_t i = 0; i < 12; i++)
            put_float(NGD_F32, s.x[r], i, (float)(i * (r + 1)));
    }
    ranks_run(&s);
    for (uint32_t r = 0; r < 2; r++)
        for (uint64_t i = 0; i < 12; i++)
            ck_assert_float_eq(float_at(NGD_F32, s.y[r], i), -3.0f * (float)i);
    ranks_close(&s);
}
END_TEST

/* The passes are on. The graph has operands that are read again, results that nobody reads, and equal collectives. */
START_TEST(collectives_of_a_graph_stay_as_they_are)
{
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    for (uint32_t r = 0; r < 2; r++) {
        ranks_ready(&s, r,
                    ranks_text("input %%x : f32[4]\n%%a = _c10d_functional.all_reduce(%%x) {reduce_op=\"sum\", "
                               "group_name=\"tp\"}\n%%b = _c10d_functional.all_reduce(%%x) {reduce_op=\"sum\", "
                               "group_name=\"tp\"}\n%%c = _c10d_functional.broadcast(%%a) {src=0, group_name=\"tp\"}\n"
                               "%%d = aten.mul.Tensor(%%a, %%b)\n%%y = aten.add.Tensor(%%d, %%x)"),
                    NULL);
        for (uint64_t i = 0; i < 4; i++)
            put_float(NGD_F32, s.x[r], i, (float)(i + r));
    }
    for (int k = 0; k < 200; k++) {
        ranks_run(&s);
        for (uint32_t r = 0; r < 2; r++)
            for (uint64_t i = 0; i < 4; i++) {
                float sum = (float)(2 * i + 1);

                ck_assert_float_eq(float_at(NGD_F32, s.y[r], i), sum * sum + (float)(i + r));
            }
    }
    ranks_close(&s);
}
END_TEST

/* ---- a tensor-parallel block ---- */

#define HIDDEN 64
#define INNER  96
#define TOKENS 3

static void fill_weights(struct ngd_buffer *buf, const float *all, int rows, int columns, int row, int column,
                         int all_columns)
{
    float part[HIDDEN * INNER];

    for (int i = 0; i < rows; i++)
        memcpy(part + i * columns, all + (row + i) * all_columns + column, (size_t)columns * sizeof(float));
    CONFORM_OK(ngd_buffer_write(buf, 0, part, (uint64_t)rows * (uint64_t)columns * sizeof(float), &diag_));
}

static const char *block_text(int inner, bool parallel)
{
    return ranks_text("param %%g : f32[%d,%d]\nparam %%u : f32[%d,%d]\nparam %%d : f32[%d,%d]\n"
                      "input %%x : f32[%d,%d]\n%%a = aten.linear(%%x, %%g)\n%%b = aten.linear(%%x, %%u)\n"
                      "%%c = aten.silu(%%a)\n%%e = aten.mul.Tensor(%%c, %%b)\n%%f = aten.linear(%%e, %%d)\n%s"
                      "%%y = aten.add.Tensor(%%h, %%x)",
                      inner, HIDDEN, inner, HIDDEN, HIDDEN, inner, TOKENS, HIDDEN,
                      parallel ? "%w = _c10d_functional.all_reduce(%f) {reduce_op=\"sum\", group_name=\"tp\"}\n"
                                 "%h = _c10d_functional.wait_tensor(%w)\n"
                               : "%h = aten.clone(%f)\n");
}

static void bind_block(struct ready *r, float *const w[3], int inner, int first)
{
    fill_weights(r->bound[0], w[0], inner, HIDDEN, first, 0, HIDDEN);
    fill_weights(r->bound[1], w[1], inner, HIDDEN, first, 0, HIDDEN);
    fill_weights(r->bound[2], w[2], HIDDEN, inner, 0, first, INNER);
}

/* The columns of the first two linears and the rows of the last one are divided between two devices. */
START_TEST(tensor_parallel_block_is_that_of_one_device)
{
    struct random random = {3};
    float *w[3], x[TOKENS * HIDDEN], one[TOKENS * HIDDEN];
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    for (int k = 0; k < 3; k++) {
        w[k] = calloc(HIDDEN * INNER, sizeof(float));
        for (int i = 0; i < HIDDEN * INNER; i++)
            w[k][i] = (float)random_value(&random) / 8;
    }
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (float)random_value(&random);
    ranks_ready(&s, 0, block_text(INNER, false), NULL);
    bind_block(&s.r[0], w, INNER, 0);
    memcpy(s.x[0], x, sizeof(x));
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ranks_wait(&s);
    ck_assert_int_eq(s.io[0].launch.status, NGD_OK);
    memcpy(one, s.y[0], sizeof(one));
    ranks_unready(&s);
    for (uint32_t r = 0; r < 2; r++) {
        ranks_ready(&s, r, block_text(INNER / 2, true), NULL);
        bind_block(&s.r[r], w, INNER / 2, (int)r * INNER / 2);
        memcpy(s.x[r], x, sizeof(x));
    }
    ranks_run(&s);
    ck_assert_int_eq(memcmp(s.y[0], s.y[1], sizeof(one)), 0);
    for (uint64_t i = 0; i < TOKENS * HIDDEN; i++)
        ck_assert_float_eq_tol(float_at(NGD_F32, s.y[0], i), one[i], 1e-5f * (1 + fabsf(one[i])));
    for (int k = 0; k < 3; k++)
        free(w[k]);
    ranks_close(&s);
}
END_TEST

TCase *conform_collectives(void)
{
    TCase *tcase = tcase_create("collectives");

    CONFORM_ADD(tcase, ranks_reduce_in_their_order_with_one_rounding, ranks_get_what_others_have,
                ranks_exchange_parts_of_different_sizes, ranks_reduce_the_rows_that_there_are,
                collectives_of_a_graph_stay_as_they_are, tensor_parallel_block_is_that_of_one_device);
    return tcase;
}
