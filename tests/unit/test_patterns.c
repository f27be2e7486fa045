/* SPDX-License-Identifier: Apache-2.0 */
/* Tests patterns: parsing, refusals, matching, and what the built-in ones make of a decoder. */
#include "graphs/pass.h"
#include "graphs/pattern.h"
#include "graphs/pattern_match.h"
#include "tests/unit/graph_util.h"
#include "tests/unit/plan_util.h"

#define PATTERN_MAX 64

static struct ngd_pattern *parse_pattern(const char *text)
{
    struct ngd_pattern *p[2];
    struct ngd_diag diag = {0};
    uint32_t n;

    if (ngd_patterns_parse(text, strlen(text), p, 2, &n, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
    ck_assert_uint_eq(n, 1);
    return p[0];
}

/* ---- refusals ---- */

struct bad_pattern {
    ngd_status_t status;
    const char *says; /* words, '|' between */
    const char *text; /* inside of the braces */
};

#define TWO_SIDES(source, replacement) "source { " source " } replacement { " replacement " }"
#define X                              "input %x : f32[4]\n"

static const struct bad_pattern bad_patterns[] = {
    {NGD_ERR_GRAPH_UNDEFINED, "%b|no cycle",
     X TWO_SIDES("%a = aten.neg(%b) %b = aten.neg(%a) return %a", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_UNDEFINED, "%a|no cycle", X TWO_SIDES("%a = aten.neg(%a) return %a", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "N|not declared",
     "input %x : f32[N]\n" TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.exp(%x) return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "M|nothing binds",
     "dim M\n" X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.exp(%x) return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "eps|float",
     X TWO_SIDES("%y = aten.mul.Scalar(%x) {other=2} return %y", "%y = aten.mul.Scalar(%x) {other=eps} return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "f|binds",
     "float f\n" X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.mul.Scalar(%x) {other=f} return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "T|dtype",
     "dtype T = f32\n" X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten._to_copy(%x) {dtype=T} return %y")},
    {NGD_ERR_GRAPH_UNDEFINED, "z|does not use",
     X "input %z : f32[4]\n" TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.neg(%z) return %y")},
    {NGD_ERR_GRAPH_TYPE_MISMATCH, "another type|f32[4]|bf16[4]",
     X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten._to_copy(%x) {dtype=bf16} return %y")},
    {NGD_ERR_GRAPH_TYPE_MISMATCH, "another type",
     X TWO_SIDES("%y = aten.neg(%x) return %y", "%a = aten.neg(%x) %y = aten.view(%a) {size=[2,2]} return %y")},
    {NGD_ERR_GRAPH_MUTATION, "alias", X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.neg(%x) return %x")},
    {NGD_ERR_GRAPH_MUTATION, "view of an input|alias",
     X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.view(%x) {size=[4]} return %y")},
    {NGD_ERR_GRAPH_MUTATION, "s|one side",
     "state %s : f32[4]\n" X TWO_SIDES("aten.copy_(%s, %x) %y = aten.neg(%s) return %y",
                                       "%y = aten.add.Tensor(%s, %x) return %y")},
    {NGD_ERR_GRAPH_ARITY, "the same number of values", X TWO_SIDES("%y = aten.neg(%x) return %y", "%y = aten.neg(%x)")},
    {NGD_ERR_GRAPH_ARITY, "operands", X TWO_SIDES("%y = aten.neg(%x, %x) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_ARITY, "results|_",
     "input %g : f32[4]\n" X TWO_SIDES("%y = npu.rms_norm(%x, %g) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_UNKNOWN_OP, "aten.negg", X TWO_SIDES("%y = aten.negg(%x) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_ATTRIBUTE, "no attribute speed",
     X TWO_SIDES("%y = aten.neg(%x) {speed=1} return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_ATTRIBUTE, "other is required",
     X TWO_SIDES("%y = aten.mul.Scalar(%x) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_INVALID_ARGUMENT, "_c10d_functional.all_reduce cannot be in a pattern|other devices",
     X TWO_SIDES("%y = _c10d_functional.all_reduce(%x) {reduce_op=\"sum\", group_name=\"tp\"} return %y",
                 "%y = aten.neg(%x) return %y")},
    {NGD_ERR_INVALID_ARGUMENT, "has parts that no value connects",
     X "input %z : f32[4]\n" TWO_SIDES("%a = aten.neg(%x) %b = aten.neg(%z) return %a, %b",
                                       "%a = aten.exp(%x) %b = aten.exp(%z) return %a, %b")},
    {NGD_ERR_INVALID_ARGUMENT, "a|neither used nor returned",
     X TWO_SIDES("%a = aten.neg(%x) %b = aten.neg(%x) return %b", "%a = aten.exp(%x) return %a")},
    {NGD_ERR_GRAPH_REDEFINED, "%y|twice",
     X TWO_SIDES("%y = aten.neg(%x) %y = aten.neg(%x) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_REDEFINED, "returned twice",
     X TWO_SIDES("%y = aten.neg(%x) return %y, %y", "%y = aten.neg(%x) return %y, %y")},
    {NGD_ERR_GRAPH_SHAPE, "accepts none",
     "input %x : i64[4]\n" TWO_SIDES("%y = aten.silu(%x) return %y", "%y = aten.neg(%x) return %y")},
    {NGD_ERR_GRAPH_SYMBOL, "no small dimensions",
     "dim N\n input %x : f32[N]\n where N < 1\n" TWO_SIDES("%y = aten.neg(%x) return %y",
                                                           "%y = aten.exp(%x) return %y")},
    {NGD_ERR_GRAPH_PARSE, "source and a replacement", X "source { %y = aten.neg(%x) return %y }"},
    {NGD_ERR_GRAPH_PARSE, "before source", "source { %y = aten.full() {size=[2], fill_value=1} return %y }\n" X},
    {NGD_ERR_GRAPH_PARSE, "first, early, late or custom", "phase never"},
    {NGD_ERR_GRAPH_PARSE, "comment is not valid UTF-8", "phase early # \xc3\x28\n"},
    {NGD_ERR_OUT_OF_RANGE, "version", "version 0"},
    {NGD_ERR_OVERFLOW, "overflow", "dim A, B, C, D\n input %x : f32[A*B*C*D]\n"},
    {NGD_ERR_GRAPH_SYMBOL, "divisor", "dim A, B\n input %x : f32[mod(A,B)]\n"},
    {NGD_ERR_GRAPH_PARSE, "dtype variable that is declared", "excess_precision T = bf16\n dtype T = f32 | bf16\n"},
    {NGD_ERR_GRAPH_PARSE, "dtype variable that is declared", "dtype T = f32 | bf16\n excess_precision\n"},
    {NGD_ERR_GRAPH_PARSE, "a dtype (f32", "dtype T = f32 | bf16\n excess_precision T = narrow\n"},
    {NGD_ERR_GRAPH_SYMBOL, "T cannot be", "dtype T = f32 | bf16\n excess_precision T = bf16 | f16\n"},
    {NGD_ERR_GRAPH_REDEFINED, "T has its", "dtype T = f32 | bf16\n excess_precision T = bf16, T = f32\n"},
};

START_TEST(bad_patterns_are_refused_in_words)
{
    for (size_t i = 0; i < sizeof(bad_patterns) / sizeof(bad_patterns[0]); i++) {
        struct ngd_pattern *p[2];
        struct ngd_diag diag = {0};
        struct ngd_strbuf sb;
        uint32_t n;
        ngd_status_t status;

        ngd_strbuf_init(&sb);
        ngd_strbuf_printf(&sb, "pattern \"bad\" {\n%s\n}\n", bad_patterns[i].text);
        status = ngd_patterns_parse(ngd_strbuf_str(&sb), sb.len, p, 2, &n, &diag);
        ck_assert_msg(status == bad_patterns[i].status, "%s, not %s: %s\n%s", ngd_status_name(status),
                      ngd_status_name(bad_patterns[i].status), diag.text, ngd_strbuf_str(&sb));
        check_says(ngd_strbuf_str(&sb), bad_patterns[i].says, diag.text);
        ngd_strbuf_fini(&sb);
    }
}
END_TEST

START_TEST(every_truncation_of_the_built_in_text_is_refused_or_parses)
{
    const char *text = ngd_patterns_builtin_text();
    struct ngd_pattern *p[PATTERN_MAX];
    size_t n_text = strlen(text) < 6000 ? strlen(text) : 6000;
    size_t step = effort_step(n_text, "truncations of the built-in patterns");

    for (size_t n = 0; n < n_text; n += step) {
        struct ngd_diag diag = {0};
        char *part = ngd_strndup(text, n);
        uint32_t count = 0;

        if (ngd_patterns_parse(part, n, p, PATTERN_MAX, &count, &diag) == NGD_OK)
            for (uint32_t i = 0; i < count; i++)
                ngd_pattern_unref(p[i]);
        else
            ck_assert(diag.text[0]);
        ngd_free(part);
    }
}
END_TEST

START_TEST(built_in_patterns_parse_and_have_names_versions_and_sentences)
{
    const char *text = ngd_patterns_builtin_text();
    struct ngd_pattern *p[PATTERN_MAX];
    struct ngd_diag diag = {0};
    struct ngd_pattern_set *set;
    uint32_t n = 0;

    if (ngd_patterns_parse(text, strlen(text), p, PATTERN_MAX, &n, &diag))
        ck_abort_msg("%s", diag.text);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert(p[i]->doc && p[i]->doc[0] && p[i]->version >= 1);
        ck_assert_msg(strncmp(p[i]->text, "pattern \"", 9) == 0 && p[i]->text[strlen(p[i]->text) - 1] == '}', "%s",
                      p[i]->text);
        ngd_pattern_unref(p[i]);
    }
    set = ngd_pattern_set_builtin();
    ck_assert_ptr_nonnull(set);
    ck_assert_uint_eq(set->n, n);
    ngd_pattern_set_unref(set);
}
END_TEST

/* ---- matching ---- */

/* Applies one pattern wherever it matches and prints the body; the caller frees it. */
static char *apply_everywhere(const char *pattern, const char *body, const struct ngd_graph_options *options,
                              uint32_t *n_p, uint32_t *excess_p)
{
    struct ngd_pattern *p = parse_pattern(pattern);
    struct ngd_graph *g = parse_body(body), *after;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {0};
    struct ngd_diag diag = {0};
    struct ngd_pass_context ctx = {.target = &stub_target, .options = options, .symbols = symbols, .diag = &diag};
    char *text;

    for (uint32_t i = 0; i < g->n_symbols; i++)
        symbols[i] = g->symbols[i].max;
    ck_assert_int_eq(ngd_rewrite_create(g, symbols, &ctx.rw, &diag), NGD_OK);
    *n_p = 0;
    for (uint32_t n = ctx.rw->first; n != NGD_NODE_NONE;) {
        bool replaced = false;
        uint32_t next = ctx.rw->nodes[n].next;

        if (p->source.nodes[p->order[0]].op == ngd_rewrite_node(ctx.rw, n)->op)
            ck_assert_int_eq(ngd_pattern_apply(&ctx, p, n, &replaced), NGD_OK);
        *n_p += replaced;
        n = next;
    }
    if (ngd_rewrite_seal(ctx.rw, &after, &diag))
        ck_abort_msg("%s", diag.text);
    *excess_p = ctx.excess;
    text = print_graph(after);
    ngd_rewrite_destroy(ctx.rw);
    ngd_graph_unref(after);
    ngd_graph_unref(g);
    ngd_pattern_unref(p);
    return text;
}

/* allow: excess precision; excess: how many of the replacements have it. */
static void expect(const char *pattern, const char *body, bool allow, uint32_t times, uint32_t excess, const char *says)
{
    struct ngd_graph_options options;
    uint32_t n, counted;
    char *text;

    ngd_graph_options_init(&options);
    options.allow_excess_precision = allow;
    text = apply_everywhere(pattern, body, &options, &n, &counted);
    ck_assert_msg(n == times && counted == excess, "%u replacements, %u of excess precision, not %u and %u\n%s", n,
                  counted, times, excess, text);
    check_says(body, says, text);
    ngd_free(text);
}

static void expect_apply(const char *pattern, const char *body, uint32_t times, const char *says)
{
    expect(pattern, body, false, times, 0, says);
}

static const char square[] = "pattern \"p\" { dim N input %x : f32[*,N] input %z : f32[*,N]\n"
                             "source { %e = aten.exp(%x) %y = aten.mul.Tensor(%e, %z) return %y }\n"
                             "replacement { %e = aten.exp(%z) %y = aten.add.Tensor(%x, %e) return %y } }";

START_TEST(commuting_operands_match_either_way_and_names_are_taken_over)
{
    expect_apply(square,
                 "  input %a : f32[3,4]\n  input %b : f32[3,4]\n  %s = aten.exp(%a)\n  %t = aten.mul.Tensor(%b, %s)\n"
                 "  return \"t\" = %t",
                 1, "%t = aten.add.Tensor(%a, |aten.exp(%b)");
}
END_TEST

START_TEST(what_others_use_is_not_replaced)
{
    expect_apply(square,
                 "  input %a : f32[4]\n  input %b : f32[4]\n  %s = aten.exp(%a)\n  %t = aten.mul.Tensor(%s, %b)\n"
                 "  return \"t\" = %t, \"s\" = %s",
                 0, "aten.mul.Tensor(%s, %b)");
    expect_apply(square,
                 "  input %a : f32[4]\n  input %b : f32[4]\n  %s = aten.exp(%a)\n  %t = aten.mul.Tensor(%s, %b)\n"
                 "  %u = aten.neg(%s)\n  return \"t\" = %t, \"u\" = %u",
                 0, "aten.mul.Tensor(%s, %b)");
}
END_TEST

START_TEST(what_stands_on_several_streams_or_under_several_core_limits_is_not_replaced)
{
#define SQUARE_INPUTS "  input %a : f32[4]\n  input %b : f32[4]\n"
    expect_apply(square,
                 SQUARE_INPUTS "  stream \"one\" {\n    %s = aten.exp(%a)\n    %t = aten.mul.Tensor(%s, %b)\n  }\n"
                               "  return \"t\" = %t",
                 1, "stream \"one\" {");
    expect_apply(square,
                 SQUARE_INPUTS "  stream \"one\" {\n    %s = aten.exp(%a)\n  }\n  %t = aten.mul.Tensor(%s, %b)\n"
                               "  return \"t\" = %t",
                 0, "aten.mul.Tensor(%s, %b)");
    expect_apply(square,
                 SQUARE_INPUTS "  stream \"one\" {\n    %s = aten.exp(%a)\n  }\n  stream \"two\" {\n"
                               "    %t = aten.mul.Tensor(%s, %b)\n  }\n  return \"t\" = %t",
                 0, "aten.mul.Tensor(%s, %b)");
    expect_apply(square,
                 SQUARE_INPUTS "  limit_core_num 1, 2 {\n    %s = aten.exp(%a)\n  }\n  %t = aten.mul.Tensor(%s, %b)\n"
                               "  return \"t\" = %t",
                 0, "aten.mul.Tensor(%s, %b)");
}
END_TEST

START_TEST(types_attributes_and_constraints_must_hold)
{
    static const char scaled[] = "pattern \"p\" { dim N 1..64 multiple 4 float f where f == 2 ~ 1e-3 where N <= 16\n"
                                 "input %x : f32[N]\n"
                                 "source { %y = aten.mul.Scalar(%x) {other=f} return %y }\n"
                                 "replacement { %y = aten.add.Tensor(%x, %x) return %y } }";

    expect_apply(scaled, "  input %a : f32[8]\n  %y = aten.mul.Scalar(%a) {other=2.0001}\n  return \"y\" = %y", 1,
                 "aten.add.Tensor");
    expect_apply(scaled, "  input %a : f32[8]\n  %y = aten.mul.Scalar(%a) {other=2.1}\n  return \"y\" = %y", 0, "mul");
    expect_apply(scaled, "  input %a : f32[6]\n  %y = aten.mul.Scalar(%a) {other=2}\n  return \"y\" = %y", 0, "mul");
    expect_apply(scaled, "  input %a : f32[32]\n  %y = aten.mul.Scalar(%a) {other=2}\n  return \"y\" = %y", 0, "mul");
    expect_apply(scaled, "  input %a : bf16[8]\n  %y = aten.mul.Scalar(%a) {other=2}\n  return \"y\" = %y", 0, "mul");
    expect_apply(scaled, "  input %a : f32[1,8]\n  %y = aten.mul.Scalar(%a) {other=2}\n  return \"y\" = %y", 0, "mul");
}
END_TEST

START_TEST(an_axis_from_the_end_is_that_of_the_result_where_there_is_one_more)
{
    static const char stacked[] = "pattern \"p\" { dim N input %x : f32[N] input %z : f32[N]\n"
                                  "source { %y = aten.stack(%x, %z) {dim=-1} return %y }\n"
                                  "replacement { %u = aten.unsqueeze(%x) {dim=-1} %v = aten.unsqueeze(%z) {dim=-1}\n"
                                  "%y = aten.cat(%u, %v) {dim=-1} return %y } }";
    static const char unsqueezed[] = "pattern \"p\" { dim N input %x : f32[N]\n"
                                     "source { %u = aten.unsqueeze(%x) {dim=-1} %y = aten.neg(%u) return %y }\n"
                                     "replacement { %n = aten.neg(%x) %y = aten.view(%n) {size=[N, 1]} return %y } }";

#define STACK(dim) \
    "  input %a : f32[4]\n  input %b : f32[4]\n  %y = aten.stack(%a, %b) {dim=" dim "}\n  return \"y\" = %y"
    expect_apply(stacked, STACK("1"), 1, "aten.cat");
    expect_apply(stacked, STACK("-1"), 1, "aten.cat");
    expect_apply(stacked, STACK("0"), 0, "aten.stack");
#define UNSQUEEZE(dim) \
    "  input %a : f32[4]\n  %u = aten.unsqueeze(%a) {dim=" dim "}\n  %y = aten.neg(%u)\n  return \"y\" = %y"
    expect_apply(unsqueezed, UNSQUEEZE("1"), 1, "aten.view");
    expect_apply(unsqueezed, UNSQUEEZE("0"), 0, "aten.unsqueeze");
}
END_TEST

/* npugraph_ex limits its products: last dimensions come in blocks, and rows are counted in 16 bits. Tests sizes at the
 * limits and next to them. */
START_TEST(sizes_have_limits_and_come_in_blocks)
{
    static const char product[] =
        "pattern \"p\" { dim B 1.. dim M dim K 128..65535 multiple 128 dim N 0..256 multiple 64\n"
        "where B*K < 65536 where mod(B*M, 4) == 0\n"
        "input %x : f32[B,M,K] input %w : f32[B,K,N]\n"
        "source { %y = aten.bmm(%x, %w) return %y }\n"
        "replacement { %n = aten.neg(%x) %y = aten.bmm(%n, %w) return %y } }";
    static const struct {
        int64_t b, m, k, n;
        bool matches;
    } cases[] = {
        {1, 4, 128, 64, true},  {2, 2, 128, 64, true},   {1, 4, 65408, 64, true},  {1, 4, 128, 256, true},
        {1, 4, 127, 64, false}, {1, 4, 192, 64, false},  {1, 4, 65536, 64, false}, {1, 4, 128, 320, false},
        {1, 4, 128, 96, false}, {511, 4, 128, 64, true}, {512, 4, 128, 64, false}, {1, 6, 128, 64, false},
        {0, 4, 128, 64, false}, {1, 4, 64, 64, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[300];

        snprintf(body, sizeof(body),
                 "  input %%x : f32[%lld,%lld,%lld]\n  input %%w : f32[%lld,%lld,%lld]\n"
                 "  %%y = aten.bmm(%%x, %%w)\n  return \"y\" = %%y",
                 (long long)cases[i].b, (long long)cases[i].m, (long long)cases[i].k, (long long)cases[i].b,
                 (long long)cases[i].k, (long long)cases[i].n);
        expect_apply(product, body, cases[i].matches, cases[i].matches ? "aten.neg(%x)" : "aten.bmm(%x, %w)");
    }
    /* Every value of a bucketed dimension must fit. */
    expect_apply(product,
                 "  sym S 1..4 buckets 4\n  input %x : f32[S,4,128]\n  input %w : f32[S,128,64]\n"
                 "  %y = aten.bmm(%x, %w)\n  return \"y\" = %y",
                 1, "aten.neg(%x)");
    expect_apply(product,
                 "  sym S 0..4 buckets 4\n  input %x : f32[S,4,128]\n  input %w : f32[S,128,64]\n"
                 "  %y = aten.bmm(%x, %w)\n  return \"y\" = %y",
                 0, "aten.bmm(%x, %w)");
}
END_TEST

START_TEST(excess_precision_is_for_graphs_that_allow_it)
{
    static const char sums[] = "pattern \"p\" { dim N dtype T = f32 | f16 | bf16 excess_precision T = f16 | bf16\n"
                               "input %x : T[N] input %z : T[N]\n"
                               "source { %a = aten.mul.Tensor(%x, %z) %y = aten.add.Tensor(%a, %z) return %y }\n"
                               "replacement { %a = aten.sub.Tensor(%x, %z) %y = aten.mul.Tensor(%a, %z) return %y } }";
    static const char form[] = "  input %%a : %s[8]\n  input %%b : %s[8]\n  %%m = aten.mul.Tensor(%%a, %%b)\n"
                               "  %%y = aten.add.Tensor(%%m, %%b)\n  return \"y\" = %%y";
    static const char *const dtypes[] = {"f32", "bf16", "f16", "i32"};

    for (int i = 0; i < 4; i++) {
        const bool excess = i == 1 || i == 2, never = i == 3;
        char body[300];

        snprintf(body, sizeof(body), form, dtypes[i], dtypes[i]);
        expect_apply(sums, body, i == 0, i == 0 ? "aten.sub.Tensor" : "aten.add.Tensor");
        expect(sums, body, true, !never, excess, never ? "aten.add.Tensor" : "aten.sub.Tensor");
    }
}
END_TEST

START_TEST(bucketed_dimensions_match_as_expressions)
{
    static const char view[] =
        "pattern \"p\" { dim T, H 1..4096, D 1..4096 input %x : f32[T,H*D]\n"
        "source { %v = aten.view(%x) {size=[T,H,D]} %y = aten.neg(%v) return %y }\n"
        "replacement { %v = aten.neg(%x) %w = aten.view(%v) {size=[T,H,D]} %y = aten.abs(%w) return %y } }";

    expect_apply(view,
                 "  sym B 1..8 buckets 8\n  input %x : f32[B*2,12]\n  %v = aten.view(%x) {size=[B*2,3,4]}\n"
                 "  %y = aten.neg(%v)\n  return \"y\" = %y",
                 1, "size=[B*2, 3, 4]|aten.abs");
    expect_apply(view,
                 "  sym B 1..8 buckets 8\n  input %x : f32[B*2,12]\n  %v = aten.view(%x) {size=[B,6,4]}\n"
                 "  %y = aten.neg(%v)\n  return \"y\" = %y",
                 0, "size=[B, 6, 4]");
}
END_TEST

static const char writes[] =
    "pattern \"p\" { dim N state %s : f32[N] input %x : f32[N]\n"
    "source { %e = aten.exp(%s) aten.copy_(%s, %x) %y = aten.mul.Tensor(%e, %x) return %y }\n"
    "replacement { %e = aten.neg(%s) aten.copy_(%s, %x) %y = aten.mul.Tensor(%e, %x) return %y } }";

START_TEST(nothing_moves_across_a_write_of_its_state)
{
    expect_apply(writes,
                 "  state %s : f32[4]\n  input %x : f32[4]\n  %e = aten.exp(%s)\n  aten.copy_(%s, %x)\n"
                 "  %y = aten.mul.Tensor(%e, %x)\n  return \"y\" = %y",
                 1, "aten.neg(%s)");
    expect_apply(writes, /* the read behind the write is another thing */
                 "  state %s : f32[4]\n  input %x : f32[4]\n  aten.copy_(%s, %x)\n  %e = aten.exp(%s)\n"
                 "  %y = aten.mul.Tensor(%e, %x)\n  return \"y\" = %y",
                 0, "aten.exp(%s)");
    expect_apply(writes, /* another node reads between the write and the place */
                 "  state %s : f32[4]\n  input %x : f32[4]\n  %e = aten.exp(%s)\n  aten.copy_(%s, %x)\n"
                 "  %r = aten.neg(%s)\n  %y = aten.mul.Tensor(%e, %x)\n  return \"y\" = %y, \"r\" = %r",
                 0, "aten.exp(%s)");
}
END_TEST

START_TEST(a_result_that_is_used_before_the_last_node_is_made_before_its_user)
{
    static const char two[] = "pattern \"p\" { dim N input %x : f32[N]\n"
                              "source { %a = aten.exp(%x) %b = aten.neg(%a) return %a, %b }\n"
                              "replacement { %a = aten.exp(%x) %b = aten.abs(%a) return %a, %b } }";

    expect_apply(two,
                 "  input %x : f32[4]\n  %a = aten.exp(%x)\n  %u = aten.sin(%a)\n  %b = aten.neg(%a)\n"
                 "  return \"u\" = %u, \"b\" = %b",
                 1, "aten.abs");
    expect_apply("pattern \"p\" { dim N input %x : f32[N] input %z : f32[N]\n" /* the user makes an operand */
                 "source { %a = aten.exp(%x) %b = aten.mul.Tensor(%a, %z) return %a, %b }\n"
                 "replacement { %a = aten.abs(%x) %b = aten.mul.Tensor(%a, %z) return %a, %b } }",
                 "  input %x : f32[4]\n  %a = aten.exp(%x)\n  %u = aten.sin(%a)\n  %b = aten.mul.Tensor(%a, %u)\n"
                 "  return \"b\" = %b",
                 0, "aten.exp");
}
END_TEST

static ngd_status_t refuse_abs(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                               uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    if (call->op->id == NGD_OP_ATEN_ABS)
        return NGD_ERR_OP_UNSUPPORTED;
    return stub_select(ctx, plan, call, strided_p, workspace_p, diag);
}

START_TEST(a_replacement_that_the_target_lacks_is_not_used)
{
    const struct ngd_plan_target target = {.arch = "no abs", .select = refuse_abs};
    struct ngd_pattern *p =
        parse_pattern("pattern \"p\" { dim N input %x : f32[N] source { %y = aten.neg(%x) return %y }"
                      " replacement { %y = aten.abs(%x) return %y } }");
    struct ngd_graph *g = parse_body("  input %x : f32[4]\n  %y = aten.neg(%x)\n  return \"y\" = %y"), *after;
    struct ngd_diag diag = {0};
    struct ngd_graph_options options;
    struct ngd_pass_context ctx = {.target = &target, .options = &options, .symbols = NULL, .diag = &diag};
    int64_t none[1] = {0};
    bool replaced;
    char *text;

    ngd_graph_options_init(&options);
    ctx.symbols = none;
    ck_assert_int_eq(ngd_rewrite_create(g, none, &ctx.rw, &diag), NGD_OK);
    ck_assert_int_eq(ngd_pattern_apply(&ctx, p, ctx.rw->first, &replaced), NGD_OK);
    ck_assert(!replaced);
    ck_assert_int_eq(ngd_rewrite_seal(ctx.rw, &after, &diag), NGD_OK);
    text = print_graph(after);
    check_says(text, "aten.neg", text);
    ngd_free(text);
    ngd_graph_unref(after);
    ngd_rewrite_destroy(ctx.rw);
    ngd_graph_unref(g);
    ngd_pattern_unref(p);
}
END_TEST

/* ---- a decoder ---- */

static uint32_t count_kernels(struct ngd_graph *g, const struct ngd_graph_options *options)
{
    struct ngd_digest digest = {{0}};
    struct ngd_key key;
    struct ngd_plan *plan;
    struct ngd_diag diag = {0};
    int64_t batch = 8;
    uint32_t n;

    ck_assert_int_eq(ngd_key_make(g, &digest, &batch, g->n_symbols, &key, &diag), NGD_OK);
    if (ngd_plan_create(g, &key, options, &stub_target, &plan, &diag))
        ck_abort_msg("%s", diag.text);
    check_plan(plan);
    n = plan->n_calls;
    ngd_plan_unref(plan);
    return n;
}

START_TEST(a_decoders_layer_becomes_six_kernels)
{
    const struct decoder_shape shape = {28, 64, 4, 2, 16, 128, 1000};
    char *text = decoder_text(&shape);
    struct ngd_graph *g = parse_text(text);
    struct ngd_graph_options options;
    uint32_t before = count_kernels(g, NULL), after;

    ngd_graph_options_init(&options);
    after = count_kernels(g, &options);
    printf("28-layer decoder: %u kernels, %u after passes\n", before, after);
    ck_assert_uint_ge(before, 28 * 19);
    ck_assert_uint_le(after, 28 * 6 + 4);
    ngd_graph_unref(g);
    ngd_free(text);
}
END_TEST

/* npugraph_ex's default fusions, in the form in which torch hands graphs over. */
START_TEST(npugraph_exs_fusions_are_found_as_torch_writes_them)
{
#define NORM_INPUTS(type) "  input %a : " type "\n  input %b : " type "\n  param %g : bf16[64]\n"
    static const struct {
        const char *body, *says;
        uint32_t kernels;
    } forms[] = {
        {NORM_INPUTS(
             "bf16[8,64]") "  param %m : bf16[64]\n  %y, %r, %x = npu.add_rms_norm(%a, %b, %g) {epsilon=2e-06}\n"
                           "  %q, %s = npu.dynamic_quant(%y, %m)\n  return \"q\" = %q, \"s\" = %s, \"x\" = %x",
         "npu.add_rms_norm_dynamic_quant(%a, %b, %g, %m)|epsilon=2e-06", 1},
        {NORM_INPUTS("bf16[2,4,64]") "  %y, %r, %x = npu.add_rms_norm(%a, %b, %g)\n"
                                     "  %v = aten.reshape(%y) {shape=[-1,64]}\n  %q, %s = npu.dynamic_quant(%v)\n"
                                     "  %c = aten.view(%s) {size=[-1,1]}\n  return \"q\" = %q, \"s\" = %c",
         "npu.add_rms_norm_dynamic_quant(%a, %b, %g)|i8[8,64]|f32[8,1]", 1},
        {NORM_INPUTS(
             "bf16[2,4,64]") "  %y, %r, %x = npu.add_rms_norm(%a, %b, %g)\n  %v = aten.view(%y) {size=[-1,64]}\n"
                             "  %w = aten._to_copy(%v) {dtype=f32}\n"
                             "  return \"w\" = %w, \"y\" = %y, \"x\" = %x",
         "npu.add_rms_norm_cast(%a, %b, %g)|f32[8,64]", 1},
        {NORM_INPUTS("bf16[8,64]") "  %y, %r, %x = npu.add_rms_norm(%a, %b, %g)\n  %v = aten.view(%y) {size=[-1,64]}\n"
                                   "  %w = aten._to_copy(%v) {dtype=f32}\n  return \"w\" = %w, \"y\" = %y, \"x\" = %x",
         "npu.add_rms_norm_cast(%a, %b, %g)", 1},
        {NORM_INPUTS("bf16[8,64]") "  param %s : f32[64]\n  param %z : f32[64]\n"
                                   "  %y, %r, %x = npu.add_rms_norm(%a, %b, %g)\n"
                                   "  %q = npu.quantize(%y, %s, %z) {axis=-1}\n  return \"q\" = %q, \"x\" = %x",
         "npu.add_rms_norm_quant(%a, %b, %g, %s, %z)", 1},
        {"  input %x : f32[4,2,8]\n  param %w : f32[2,8,16]\n  %t = aten.transpose.int(%x) {dim0=0, dim1=1}\n"
         "  %e = aten.expand(%t) {size=[2,4,8]}\n  %e1 = aten.view(%e) {size=[2,4,8]}\n  %p = aten.bmm(%e1, %w)\n"
         "  %p1 = aten.view(%p) {size=[2,4,16]}\n  %y = aten.transpose.int(%p1) {dim0=0, dim1=1}\n  return \"y\" = %y",
         "npu.transpose_batchmatmul(%x, %w)|perm_x1=[1, 0, 2]", 1},
        {"  input %x : f32[2,4,8]\n  param %w : f32[2,8,16]\n  %p = aten.bmm(%x, %w)\n"
         "  %p1 = aten.view(%p) {size=[2,4,16]}\n  %y = aten.transpose.int(%p1) {dim0=0, dim1=1}\n  return \"y\" = %y",
         "npu.transpose_batchmatmul(%x, %w)|perm_x1=[0, 1, 2]", 1},
    };
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct ngd_graph *g = parse_body(forms[i].body), *after;
        struct ngd_diag diag = {0};
        char *text;

        if (ngd_passes_run(g, NULL, &options, &stub_target, NULL, NULL, &after, &diag))
            ck_abort_msg("%s", diag.text);
        text = print_graph(after);
        check_says(forms[i].body, forms[i].says, text);
        ck_assert_msg(count_kernels(g, &options) == forms[i].kernels, "%u kernels\n%s", count_kernels(g, &options),
                      text);
        ngd_free(text);
        ngd_graph_unref(after);
        ngd_graph_unref(g);
    }
}
END_TEST

UNIT_MAIN("graphs/patterns", bad_patterns_are_refused_in_words,
          every_truncation_of_the_built_in_text_is_refused_or_parses,
          built_in_patterns_parse_and_have_names_versions_and_sentences,
          commuting_operands_match_either_way_and_names_are_taken_over, what_others_use_is_not_replaced,
          what_stands_on_several_streams_or_under_several_core_limits_is_not_replaced,
          npugraph_exs_fusions_are_found_as_torch_writes_them, types_attributes_and_constraints_must_hold,
          an_axis_from_the_end_is_that_of_the_result_where_there_is_one_more, sizes_have_limits_and_come_in_blocks,
          excess_precision_is_for_graphs_that_allow_it, bucketed_dimensions_match_as_expressions,
          nothing_moves_across_a_write_of_its_state, a_result_that_is_used_before_the_last_node_is_made_before_its_user,
          a_replacement_that_the_target_lacks_is_not_used, a_decoders_layer_becomes_six_kernels)
