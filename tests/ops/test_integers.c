/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests integers with scalar attributes: all 64 bits count, and arithmetic wraps, as in PyTorch on a CPU. The expected
 * results were computed by the rules of modular arithmetic, without f64; so was PyTorch's single rounding of an integer
 * to f32.
 */
#include "graphs/graph_pack.h"
#include "tests/ops/run_plan.h"
#include <inttypes.h>

/* The result of an operator on a tensor of that dtype filled with x. */
static const struct {
    const char *dtype, *x, *op, *attrs;
    int64_t result;
} cases[] = {
    {"i64", "9223372036854775807", "eq.Scalar", "other=9223372036854775807", 1},
    {"i64", "9223372036854775806", "eq.Scalar", "other=9223372036854775807", 0},
    {"i64", "9223372036854775806", "ne.Scalar", "other=9223372036854775807", 1},
    {"i64", "9223372036854775806", "lt.Scalar", "other=9223372036854775807", 1},
    {"i64", "9223372036854775807", "lt.Scalar", "other=9223372036854775807", 0},
    {"i64", "9223372036854775807", "ge.Scalar", "other=9223372036854775807", 1},
    {"i64", "-9223372036854775807", "le.Scalar", "other=-9223372036854775807", 1},
    {"i64", "-9223372036854775808", "eq.Scalar", "other=-9223372036854775808", 1},
    {"i64", "9007199254740993", "eq.Scalar", "other=9007199254740993", 1},
    {"i64", "9007199254740993", "eq.Scalar", "other=9007199254740992", 0},
    {"i64", "9007199254740993", "gt.Scalar", "other=9007199254740992", 1},
    {"i64", "9007199254740993", "eq.Scalar", "other=9007199254740993.0", 0}, /* a float, which is ...992 */
    {"i64", "9007199254740992", "eq.Scalar", "other=9007199254740993.0", 1},
    {"i64", "1", "add.Scalar", "other=9223372036854775807", INT64_MIN},
    {"i64", "0", "add.Scalar", "other=9007199254740993", 9007199254740993},
    {"i64", "1", "add.Scalar", "other=3, alpha=3002399751580331", 9007199254740994},
    {"i64", "0", "add.Scalar", "other=4294967296, alpha=4294967297", 4294967296},
    {"i64", "0", "sub.Scalar", "other=9007199254740993", -9007199254740993},
    {"i64", "0", "sub.Scalar", "other=3, alpha=3002399751580331", -9007199254740993},
    {"i64", "1", "rsub.Scalar", "other=9007199254740993, alpha=2", 9007199254740991},
    {"i64", "5", "rsub.Scalar", "other=0, alpha=9007199254740993", -45035996273704965},
    {"i64", "3", "mul.Scalar", "other=9007199254740993", 27021597764222979},
    {"i64", "9007199254740994", "remainder.Scalar", "other=9007199254740993", 1},
    {"i64", "-9007199254740994", "floor_divide.Scalar", "other=9007199254740993", -2},
    {"i64", "9223372036854775807", "clamp", "max=9007199254740993", 9007199254740993},
    {"i64", "0", "clamp", "min=9007199254740995", 9007199254740995},
    {"i64", "9223372036854775807", "mul.Scalar", "other=1", INT64_MAX},
    {"i32", "1", "add.Scalar", "other=2147483647", INT32_MIN},
    {"i32", "1", "add.Scalar", "other=65536, alpha=65536", 1},
    {"i32", "2147483647", "rsub.Scalar", "other=-2", 2147483647}, /* -2147483649 */
    {"u8", "200", "add.Scalar", "other=100", 44},
    {"f32", "0", "add.Scalar", "other=16777217", 16777216},
    /* 2^53 + 2^29 + 1: through f64 it would be rounded twice, to 2^53. */
    {"f32", "0", "add.Scalar", "other=9007199791611905", INT64_C(9007200328482816)},
    {"f32", "0", "sub.Scalar", "other=9007199791611905", INT64_C(-9007200328482816)},
    {"f32", "1", "mul.Scalar", "other=9007199791611905", INT64_C(9007200328482816)},
    {"f32", "9007200328482816", "eq.Scalar", "other=9007199791611905", 1},
};

static struct ngd_graph *parse(const char *dtype, const char *x, const char *line)
{
    struct ngd_graph *g = NULL, *again = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb,
                      "npugraph 1\ngraph \"g\" {\n %%x = aten.full() {size=[37], fill_value=%s, dtype=%s}\n"
                      " %%y = %s\n %%z = aten._to_copy(%%y) {dtype=i64}\n return \"z\" = %%z\n}\n",
                      x, dtype, line);
    if (ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &g, &diag))
        ck_abort_msg("%s\n%s", diag.text, ngd_strbuf_str(&sb));
    /* The text loses no bit. */
    ngd_strbuf_clear(&sb);
    ngd_graph_print(g, &sb);
    ck_assert_int_eq(ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &again, NULL), NGD_OK);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    again = ngd_graph_unref(again);
    /* The packed form loses no bit. */
    ngd_strbuf_clear(&sb);
    ngd_graph_pack(g, &sb);
    ck_assert_int_eq(ngd_graph_unpack(sb.data, sb.len, &again, NULL), NGD_OK);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ngd_graph_unref(again);
    ngd_strbuf_fini(&sb);
    return g;
}

static void check(struct bench *b, struct ngd_graph *g, const struct ngd_graph_options *options, const char *what,
                  int64_t result)
{
    struct ngd_digest digest = {{0}};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct ngd_key key;
    struct made made;

    run_check(ngd_key_make(g, &digest, NULL, 0, &key, &diag), &diag, "key");
    run_check(ngd_plan_create(g, &key, options, ngd_device_target(b->dev), &plan, &diag), &diag, "plan");
    made = run_plan(b, plan, NULL, NULL, false);
    ck_assert_int_eq(made.status, NGD_OK);
    ck_assert_uint_eq(made.bytes, 37 * sizeof(int64_t));
    for (int i = 0; i < 37; i++) {
        int64_t v;

        memcpy(&v, made.data + (size_t)i * sizeof(v), sizeof(v));
        if (v != result)
            ck_abort_msg("%s%s: %" PRId64 ", not %" PRId64, what, options ? ", with passes" : "", v, result);
    }
    free(made.data);
    ngd_plan_unref(plan);
}

/* Checks the result of the kernels, and that of folding. */
static void check_both(struct bench *b, struct ngd_graph *g, const char *what, int64_t result)
{
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    check(b, g, NULL, what, result);
    check(b, g, &options, what, result);
    ngd_graph_unref(g);
}

START_TEST(scalars_beside_integers_have_all_their_bits)
{
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[160], what[220];

        snprintf(line, sizeof(line), "aten.%s(%%x) {%s}", cases[i].op, cases[i].attrs);
        snprintf(what, sizeof(what), "%s of %s %s", line, cases[i].dtype, cases[i].x);
        check_both(&b, parse(cases[i].dtype, cases[i].x, line), what, cases[i].result);
    }
    bench_close(&b);
}
END_TEST

START_TEST(makers_and_fills_have_all_their_bits)
{
    static const struct {
        const char *line;
        int64_t result;
    } fills[] = {
        {"aten.clone(%x)", INT64_MAX},
        {"aten.full_like(%x) {fill_value=9007199254740993}", 9007199254740993},
        {"aten.masked_fill.Scalar(%x, %t) {value=-9007199254740993}", -9007199254740993},
        {"aten.constant_pad_nd(%s) {pad=[0,37], value=9007199254740993}", 9007199254740993},
    };
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 1);
    for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
        struct ngd_strbuf sb;
        struct ngd_graph *g = NULL;
        struct ngd_diag diag = {0};

        ngd_strbuf_init(&sb);
        ngd_strbuf_printf(&sb,
                          "npugraph 1\ngraph \"g\" {\n"
                          " %%x = aten.full() {size=[37], fill_value=9223372036854775807, dtype=i64}\n"
                          " %%s = aten.full() {size=[0], fill_value=0, dtype=i64}\n"
                          " %%t = aten.eq.Tensor(%%x, %%x)\n %%y = %s\n return \"y\" = %%y\n}\n",
                          fills[i].line);
        if (ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &g, &diag))
            ck_abort_msg("%s\n%s", diag.text, ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
        check_both(&b, g, fills[i].line, fills[i].result);
    }
    bench_close(&b);
}
END_TEST

UNIT_MAIN("ops/integers", scalars_beside_integers_have_all_their_bits, makers_and_fills_have_all_their_bits)
