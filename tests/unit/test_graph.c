/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the text form, the digest and the builder. Refusals: test_graph_errors.c, test_graph_rows.c. */
#include "tests/unit/graph_util.h"
#include <math.h>

#define SMALL                       \
    "sym B 1..16\n"                 \
    "param %w : f32[8,4] = \"w\"\n" \
    "input %x : f32[B,4]\n"         \
    "%y = aten.linear(%x, %w)\n"    \
    "return \"y\" = %y\n"

/* Digests name executables on disk, also for later versions. This table finds digests that change by accident. */
static const struct {
    const char *path, *digest;
} goldens[] = {
    {"tests/golden/graphs/mlp.txt", "74926ec42e2a826a87464004abefd241e41ad63efc2b408f0d7f6d950d9d5d31"},
    {"tests/golden/graphs/qwen3_decode.txt", "66a658155e599cd27a180c9ebf76268b2d2c735feadb3ac8b63ea528a330ed1a"},
};

START_TEST(golden_texts_print_as_they_are_written_and_keep_their_digest)
{
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        char *text = read_source_file(goldens[i].path), *printed, hex[NGD_DIGEST_HEX];
        struct ngd_graph *g = parse_text(text);

        printed = print_graph(g);
        ck_assert_str_eq(printed, text);
        ngd_digest_hex(&g->digest, hex);
        ck_assert_str_eq(hex, goldens[i].digest);
        ngd_graph_unref(g);
        ngd_free(printed);
        ngd_free(text);
    }
}
END_TEST

START_TEST(a_decode_step_has_the_inputs_that_its_text_declares)
{
    char *text = read_source_file("tests/golden/graphs/qwen3_decode.txt");
    struct ngd_graph *g = parse_text(text);

    ck_assert_uint_eq(g->n_params, 26);
    ck_assert_uint_eq(g->n_states, 4);
    ck_assert_uint_eq(g->n_hosts, 2);
    ck_assert_uint_eq(g->n_outputs, 2);
    ck_assert_int_eq(ngd_graph_find_input(g, NGD_VALUE_PARAM, "model.norm.weight"), 25);
    ck_assert_int_eq(ngd_graph_find_input(g, NGD_VALUE_PARAM, "norm"), 25); /* by name */
    ck_assert_int_eq(ngd_graph_find_input(g, NGD_VALUE_STATE, "model.norm.weight"), -1);
    ck_assert_int_eq(ngd_graph_find_input(g, NGD_VALUE_INPUT, "tokens"), 0);
    ck_assert_int_eq(ngd_graph_find_input(g, NGD_VALUE_NODE, "logits"), -1);
    ck_assert_int_eq(ngd_graph_find_output(g, "logits"), 1);
    ck_assert_int_eq(ngd_graph_find_output(g, "nothing"), -1);
    ck_assert_str_eq(type_of(g, "l0.att"), "f32[B,4,16]");
    ck_assert_str_eq(type_of(g, "token"), "i32[B]");
    ngd_graph_unref(g);
    ngd_free(text);
}
END_TEST

START_TEST(the_digest_ignores_what_a_client_names_freely)
{
    const char *d = digest_of(SMALL);

    ck_assert_str_eq(digest_of("sym B 1..16  # comment\n"
                               "input %in : f32[B,4] = \"x\"\n" /* another order of classes, other names */
                               "param %weight : f32[8,4] = \"w\"\n"
                               "%out = aten.linear(%in, %weight, none) : f32[B,8]\n"
                               "return \"y\" = %out\n"),
                     d);
}
END_TEST

START_TEST(the_digest_counts_what_is_computed_and_how_it_is_called)
{
    char d[NGD_DIGEST_HEX];

    snprintf(d, sizeof(d), "%s", digest_of(SMALL));
    ck_assert_str_ne(digest_of("sym B 1..17\nparam %w : f32[8,4]\ninput %x : f32[B,4]\n%y = aten.linear(%x, %w)\n"
                               "return \"y\" = %y"),
                     d);
    ck_assert_str_ne(digest_of("sym B 1..16 buckets 16\nparam %w : f32[8,4]\ninput %x : f32[B,4]\n"
                               "%y = aten.linear(%x, %w)\nreturn \"y\" = %y"),
                     d);
    ck_assert_str_ne(digest_of("sym B 1..16\nparam %w : f32[8,4] = \"v\"\ninput %x : f32[B,4]\n"
                               "%y = aten.linear(%x, %w)\nreturn \"y\" = %y"),
                     d);
    ck_assert_str_ne(digest_of("sym B 1..16\nparam %w : f32[8,4]\ninput %x : f32[B,4]\n%y = aten.linear(%x, %w)\n"
                               "return \"z\" = %y"),
                     d);
    ck_assert_str_ne(digest_of("sym B 1..16\nparam %w : bf16[8,4]\ninput %x : f32[B,4]\n%y = aten.linear(%x, %w)\n"
                               "return \"y\" = %y"),
                     d);
}
END_TEST

START_TEST(attributes_at_their_default_count_as_left_out)
{
    const char *in = "input %x : f32[4,4]\n";
    char a[256], b[256];

    snprintf(b, sizeof(b), "%s%%y, %%i = aten.topk(%%x) {sorted=true, k=2, dim=-1}\nreturn %%y", in);
    snprintf(a, sizeof(a), "%s%%y, %%i = aten.topk(%%x) {k=2}\nreturn %%y", in);
    ck_assert_str_eq(digest_of(a), digest_of(b));
    snprintf(b, sizeof(b), "%s%%y, %%i = aten.topk(%%x) {k=2, dim=1}\nreturn %%y", in);
    ck_assert_str_ne(digest_of(a), digest_of(b));
}
END_TEST

START_TEST(an_underscore_stands_for_each_result_that_nothing_uses)
{
    const char *named = "input %x : f32[4,4]\n%a, %i = aten.topk(%x) {k=2}\n%b, %j = aten.topk(%a) {k=1}\nreturn %b";
    const char *unnamed = "input %x : f32[4,4]\n%a, _ = aten.topk(%x) {k=2}\n%b, _ = aten.topk(%a) {k=1}\nreturn %b";

    ck_assert_str_eq(digest_of(named), digest_of(unnamed));
    ck_assert_str_eq(digest_of("input %x : f32[4,4]\n_, %i = aten.topk(%x) {k=2}\nreturn %i"),
                     digest_of("input %x : f32[4,4]\n%v, %i = aten.topk(%x) {k=2}\nreturn %i"));
}
END_TEST

/* Checks that printing and parsing gives the same text and digest. */
static void check_fixpoint(struct ngd_graph *g)
{
    char *once = print_graph(g), *twice;
    struct ngd_graph *again = parse_text(once);

    twice = print_graph(again);
    ck_assert_str_eq(once, twice);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ngd_graph_unref(again);
    ngd_free(once);
    ngd_free(twice);
}

START_TEST(float_attributes_keep_every_bit)
{
    const double values[] = {
        0.0,       -0.0, 0.1,        1.0 / 3, 1e308, -1e-308,       5e-324, INFINITY,
        -INFINITY, NAN,  16777217.0, 0x1p53,  1e22,  123456789.125, -2.5,   0x1.fffffffffffffp1023};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct ngd_graph *g = NULL, *again;
        struct ngd_attr_value attr = {.f = values[i]};
        struct ngd_type type = {.dtype = NGD_F32, .rank = 1, .dims = {4}};
        uint32_t x, y;
        char *text;

        ck_assert_int_eq(ngd_graph_create("f", &g), NGD_OK);
        ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, "x", NULL, &type, &x, NULL), NGD_OK);
        ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_MUL_SCALAR), &x, 1, &attr, NULL, &y, 1, NULL),
                         NGD_OK);
        ck_assert_int_eq(ngd_graph_add_output(g, "y", y, NULL), NGD_OK);
        ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK);
        text = print_graph(g);
        again = parse_text(text);
        if (isnan(values[i]))
            ck_assert(isnan(again->nodes[0].attrs[0].f));
        else
            ck_assert_msg(memcmp(&again->nodes[0].attrs[0].f, &values[i], sizeof(double)) == 0, "%s", text);
        check_fixpoint(g);
        ngd_free(text);
        ngd_graph_unref(again);
        ngd_graph_unref(g);
    }
}
END_TEST

START_TEST(strings_keep_every_character)
{
    struct ngd_graph *g =
        parse_body("param %w : f32[2] = \"a\\\"b\\\\c\\/\\n\\t\\u00e9\\ud83d\\ude00\\u0001 \xc3\xa9\"\n"
                   "%y = aten.neg(%w)\nreturn \"\" = %y");

    ck_assert_str_eq(g->values[0].label, "a\"b\\c/\n\t\xc3\xa9\xf0\x9f\x98\x80\x01 \xc3\xa9");
    ck_assert_str_eq(g->outputs[0].name, "");
    check_fixpoint(g);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(blanks_comments_and_line_ends_do_not_matter)
{
    const char *text =
        "# first\r\nnpugraph 1 graph\t\"t\"{input %x:f32[ ]# rank 0 \xc3\xa9\n%y=aten.neg(%x)return%y}#end";
    struct ngd_graph *g = parse_text(text);

    ck_assert_str_eq(type_of(g, "y"), "f32[]");
    ck_assert_str_eq(g->outputs[0].name, "y");
    check_fixpoint(g);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(symbolic_expressions_survive_print_and_parse)
{
    struct ngd_graph *g =
        parse_body("sym T 1..1000\nsym B 2..16\n"
                   "input %x : f32[max(floordiv(T + 7, 8), B), mod(T*3 - T, 5), min(B, T)*2 + -(-1)]\n"
                   "%y = aten.slice.Tensor(%x) {dim=0, start=-1}\n"
                   "%z = aten.slice.Tensor(%x) {dim=2, end=floordiv(B, 2)}\nreturn %y, %z");

    ck_assert_str_eq(type_of(g, "x"), "f32[max(B, floordiv(T + 7, 8)),mod(T*2, 5),min(T, B)*2 + 1]");
    ck_assert_str_eq(type_of(g, "y"), "f32[1,mod(T*2, 5),min(T, B)*2 + 1]");
    check_fixpoint(g);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(the_dot_form_shows_every_vertex_and_escapes_names)
{
    struct ngd_graph *g = parse_body("param %w : f32[8,4] = \"a\\\"b\\\\\"\nstate %s : f32[8,4]\ninput %x : f32[2,4]\n"
                                     "%y = aten.linear(%x, %w)\naten.copy_(%s, %w)\nreturn \"o\" = %y");
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print_dot(g, &sb);
    check_says("dot", "digraph \"t\"|param %w\\na\\\"b\\\\\\n|aten.linear\\n%y f32[2,8]|v2 -> n0|dir=both|n0 -> o0",
               ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    ngd_graph_unref(g);
}
END_TEST

/* Builds SMALL with the builder. */
static struct ngd_graph *build_small(void)
{
    struct ngd_graph *g = NULL;
    struct ngd_type w = {.dtype = NGD_F32, .rank = 2, .dims = {8, 4}}, x = w;
    ngd_dim_t b;
    uint32_t in[2], y;

    ck_assert_int_eq(ngd_graph_create("built", &g), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_symbol(g, "B", 1, 16, &b, NULL), NGD_OK);
    x.dims[0] = b;
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_PARAM, NULL, "w", &w, &in[1], NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, "x", NULL, &x, &in[0], NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_LINEAR), in, 2, NULL, NULL, &y, 1, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_output(g, "y", y, NULL), NGD_OK);
    return g;
}

START_TEST(a_built_graph_equals_the_parsed_one)
{
    struct ngd_graph *g = build_small();
    char hex[NGD_DIGEST_HEX];

    ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK);
    ngd_digest_hex(&g->digest, hex);
    ck_assert_str_eq(hex, digest_of(SMALL));
    check_fixpoint(g);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(a_made_up_name_avoids_those_that_exist)
{
    struct ngd_graph *g = NULL;
    struct ngd_type type = {.dtype = NGD_F32};
    uint32_t a, b, c;

    ck_assert_int_eq(ngd_graph_create(NULL, &g), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, "1", NULL, &type, &a, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, NULL, NULL, &type, &b, NULL), NGD_OK);
    ck_assert_str_eq(g->values[b].name, "1_");
    ck_assert_int_eq(
        ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_ADD_TENSOR), (uint32_t[]){a, b}, 2, NULL, NULL, &c, 1, NULL),
        NGD_OK);
    ck_assert_str_eq(g->values[c].name, "2");
    ngd_graph_unref(g);
}
END_TEST

START_TEST(a_refused_node_leaves_the_graph_as_it_was)
{
    struct ngd_graph *g = build_small();
    struct ngd_diag diag = {0};
    uint32_t values = g->n_values, nodes = g->n_nodes, results[3];

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(
            ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_MM), (uint32_t[]){0, 1}, 2, NULL, NULL, results, 3, &diag),
            NGD_ERR_GRAPH_SHAPE);
        ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_MM), (uint32_t[]){0, values}, 2, NULL, NULL,
                                            results, 3, &diag),
                         NGD_ERR_GRAPH_UNDEFINED); /* its own result */
        ck_assert_int_eq(
            ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_TOPK), (uint32_t[]){0}, 1, NULL, NULL, results, 3, &diag),
            NGD_ERR_GRAPH_ATTRIBUTE);
        ck_assert_int_eq(ngd_graph_add_node(g, NULL, NULL, 0, NULL, NULL, results, 3, &diag), NGD_ERR_GRAPH_UNKNOWN_OP);
        ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_RAND), NULL, 0, NULL, NULL, results, 3, &diag),
                         NGD_ERR_GRAPH_RANDOM);
    }
    ck_assert_uint_eq(g->n_values, values);
    ck_assert_uint_eq(g->n_nodes, nodes);
    ck_assert_int_eq(ngd_graph_seal(g, &diag), NGD_OK);
    check_fixpoint(g);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(a_sealed_graph_takes_nothing_more)
{
    struct ngd_graph *g = build_small();
    struct ngd_type type = {.dtype = NGD_F32};
    uint32_t v = 0;
    ngd_dim_t dim;

    ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK); /* sealing twice is allowed */
    ck_assert_int_eq(ngd_graph_add_symbol(g, "Q", 1, 2, &dim, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_set_buckets(g, 0, (int64_t[]){16}, 1, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, NULL, NULL, &type, &v, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_NEG), &v, 1, NULL, NULL, &v, 1, NULL),
                     NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_output(g, "z", 0, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_OK);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(validation_finds_what_a_careless_pass_breaks)
{
    struct ngd_graph *g = parse_body("input %x : f32[4]\n%a = aten.neg(%x)\n%b = aten.abs(%a)\nreturn %b");
    uint32_t a = g->nodes[0].out[0], b = g->nodes[1].out[0];

    g->nodes[0].in[0] = b; /* a cycle */
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_ERR_GRAPH_UNDEFINED);
    g->nodes[0].in[0] = 12345;
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_ERR_GRAPH_UNDEFINED);
    g->nodes[0].in[0] = 0;
    g->nodes[1].out[0] = a; /* two definitions */
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_ERR_GRAPH_REDEFINED);
    g->nodes[1].out[0] = b;
    g->outputs[0].value = 99;
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_ERR_GRAPH_UNDEFINED);
    g->outputs[0].value = b;
    ck_assert_int_eq(ngd_graph_validate(g, NULL), NGD_OK);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(references_keep_a_graph_alive)
{
    struct ngd_graph *g = parse_body(SMALL), *other = ngd_graph_ref(g);

    ck_assert_ptr_null(ngd_graph_unref(g));
    ck_assert_str_eq(other->name, "t");
    ck_assert_ptr_null(ngd_graph_unref(other));
    ck_assert_ptr_null(ngd_graph_unref(NULL));
}
END_TEST

/* Makes a body with a chain of n nodes. */
static char *chain(uint32_t n)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"chain\" {\n  input %v0 : f32[4]\n");
    for (uint32_t i = 1; i <= n; i++)
        ngd_strbuf_printf(&sb, "  %%v%u = aten.neg(%%v%u)\n", i, i - 1);
    ngd_strbuf_printf(&sb, "  return %%v%u\n}\n", n);
    return ngd_strbuf_steal(&sb);
}

START_TEST(a_graph_may_have_as_many_nodes_as_the_limit_and_no_more)
{
    char *text = chain(NGD_GRAPH_MAX_NODES);
    struct ngd_graph *g = parse_text(text);

    ck_assert_uint_eq(g->n_nodes, NGD_GRAPH_MAX_NODES);
    check_fixpoint(g);
    ngd_graph_unref(g);
    ngd_free(text);
    text = chain(NGD_GRAPH_MAX_NODES + 1);
    check_text_refused(text, strlen(text), NGD_ERR_GRAPH_TOO_LARGE, "65536 nodes|line 65540");
    ngd_free(text);
}
END_TEST

START_TEST(a_failed_allocation_at_any_point_is_an_ordinary_error)
{
    char *text = read_source_file("tests/golden/graphs/mlp.txt");
    int64_t n = 0;

    for (;; n++) {
        struct ngd_graph *g = NULL;
        struct ngd_diag diag = {0};
        ngd_status_t status;

        ngd_mem_fail_after(n);
        status = ngd_graph_parse(text, strlen(text), &g, &diag);
        ngd_mem_fail_after(-1);
        if (status == NGD_OK) {
            ngd_graph_unref(g);
            break;
        }
        ck_assert_msg(status == NGD_ERR_NO_MEMORY, "allocation %lld: %s: %s", (long long)n, ngd_status_name(status),
                      diag.text);
    }
    ck_assert_int_gt(n, 20);
    ngd_free(text);
}
END_TEST

UNIT_MAIN("graphs/graph", golden_texts_print_as_they_are_written_and_keep_their_digest,
          a_decode_step_has_the_inputs_that_its_text_declares, the_digest_ignores_what_a_client_names_freely,
          the_digest_counts_what_is_computed_and_how_it_is_called, attributes_at_their_default_count_as_left_out,
          an_underscore_stands_for_each_result_that_nothing_uses,
          an_underscore_stands_for_each_result_that_nothing_uses, float_attributes_keep_every_bit,
          strings_keep_every_character, blanks_comments_and_line_ends_do_not_matter,
          symbolic_expressions_survive_print_and_parse, the_dot_form_shows_every_vertex_and_escapes_names,
          a_built_graph_equals_the_parsed_one, a_made_up_name_avoids_those_that_exist,
          a_refused_node_leaves_the_graph_as_it_was, a_sealed_graph_takes_nothing_more,
          validation_finds_what_a_careless_pass_breaks, references_keep_a_graph_alive,
          a_graph_may_have_as_many_nodes_as_the_limit_and_no_more,
          a_failed_allocation_at_any_point_is_an_ordinary_error)
