/* SPDX-License-Identifier: Apache-2.0 */
/* Tests streams, events and core limits: text, digest, builder and refusals. */
#include "tests/unit/graph_util.h"

#define RECORD(tag) "npugraph_ex.tagged_event_record() {tag=\"" tag "\"}\n"
#define WAIT(tag)   "npugraph_ex.tagged_event_wait() {tag=\"" tag "\"}\n"

#define FORKED                                                                                           \
    "input %x : f32[4]\n"                                                                                \
    "%a = aten.neg(%x)\n" RECORD("fork") "stream \"side\" {\n" WAIT(                                     \
        "fork") "%b = aten.exp(%a)\n"                                                                    \
                "limit_core_num 8, 16 {\n"                                                               \
                "%c = aten.sin(%b)\n"                                                                    \
                "}\n" RECORD("join") "}\n"                                                               \
                                     "%d = aten.cos(%a)\n" WAIT("join") "%e = aten.add.Tensor(%c, %d)\n" \
                                                                        "return %e\n"

static const struct ngd_node *maker(const struct ngd_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0 && g->values[i].cls == NGD_VALUE_NODE)
            return &g->nodes[g->values[i].node];
    ck_abort_msg("no node makes %%%s", name);
}

static const char *stream_of(const struct ngd_graph *g, const char *name)
{
    return g->streams[maker(g, name)->scope.stream];
}

START_TEST(nodes_have_the_stream_and_the_limits_of_the_scopes_around_them)
{
    struct ngd_graph *g = parse_body(FORKED);

    ck_assert_uint_eq(g->n_streams, 2);
    ck_assert_str_eq(stream_of(g, "a"), "");
    ck_assert_str_eq(stream_of(g, "b"), "side");
    ck_assert_str_eq(stream_of(g, "c"), "side");
    ck_assert_str_eq(stream_of(g, "d"), "");
    ck_assert_uint_eq(maker(g, "b")->scope.aicore, 0);
    ck_assert_uint_eq(maker(g, "c")->scope.aicore, 8);
    ck_assert_uint_eq(maker(g, "c")->scope.vectorcore, 16);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(the_innermost_scope_of_each_kind_holds_and_ends_with_its_brace)
{
    struct ngd_graph *g = parse_body("input %x : f32[4]\n"
                                     "limit_core_num 4, 0 {\n stream \"a\" {\n %p = aten.neg(%x)\n"
                                     "  limit_core_num 2, 3 {\n %q = aten.neg(%p)\n }\n %r = aten.neg(%q)\n"
                                     "  stream \"b\" {\n %s = aten.neg(%r)\n }\n  stream \"\" { %t = aten.neg(%s) }\n"
                                     " }\n %u = aten.neg(%t)\n}\n%v = aten.neg(%u)\nreturn %v\n");
    static const struct {
        const char *name, *stream;
        unsigned aicore, vectorcore;
    } rows[] = {{"p", "a", 4, 0}, {"q", "a", 2, 3}, {"r", "a", 4, 0}, {"s", "b", 4, 0},
                {"t", "", 4, 0},  {"u", "", 4, 0},  {"v", "", 0, 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ngd_node_scope *scope = &maker(g, rows[i].name)->scope;

        ck_assert_str_eq(stream_of(g, rows[i].name), rows[i].stream);
        ck_assert_uint_eq(scope->aicore, rows[i].aicore);
        ck_assert_uint_eq(scope->vectorcore, rows[i].vectorcore);
    }
    ngd_graph_unref(g);
}
END_TEST

START_TEST(text_prints_its_scopes_and_what_was_printed_parses_to_the_same)
{
    struct ngd_graph *g = parse_body(FORKED), *again;
    char *once = print_graph(g), *twice;

    ck_assert_ptr_nonnull(strstr(once, "  stream \"side\" {\n"
                                       "    npugraph_ex.tagged_event_wait() {tag=\"fork\"}\n"
                                       "    %b = aten.exp(%a) : f32[4]\n"
                                       "    limit_core_num 8, 16 {\n"
                                       "      %c = aten.sin(%b) : f32[4]\n"
                                       "    }\n"
                                       "    npugraph_ex.tagged_event_record() {tag=\"join\"}\n"
                                       "  }\n"
                                       "  %d = aten.cos(%a) : f32[4]\n"));
    again = parse_text(once);
    twice = print_graph(again);
    ck_assert_str_eq(once, twice);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ngd_free(once);
    ngd_free(twice);
    ngd_graph_unref(again);
    ngd_graph_unref(g);
}
END_TEST

/* Every change from one scope to another prints matching braces. */
START_TEST(all_changes_of_scope_print_and_parse)
{
    static const struct ngd_node_scope scopes[] = {{0, 0, 0}, {0, 2, 0}, {1, 0, 0}, {1, 2, 0},
                                                   {1, 2, 4}, {2, 0, 0}, {2, 7, 7}};
    const size_t n = sizeof(scopes) / sizeof(scopes[0]);
    struct ngd_type type = {.dtype = NGD_F32, .rank = 1, .dims = {4}};
    struct ngd_graph *g, *again;
    uint32_t x;
    uint16_t a, b;
    char *text;

    ck_assert_int_eq(ngd_graph_create("t", &g), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, "x", NULL, &type, &x, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_stream(g, "a", &a, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_stream(g, "b \"quoted\"", &b, NULL), NGD_OK);
    for (size_t i = 0; i < n * n; i++) {
        for (size_t k = 0; k < 2; k++) {
            ck_assert_int_eq(ngd_graph_set_scope(g, &scopes[k ? i % n : i / n], NULL), NGD_OK);
            ck_assert_int_eq(ngd_graph_add_node(g, ngd_op_by_id(NGD_OP_ATEN_NEG), &x, 1, NULL, NULL, &x, 1, NULL),
                             NGD_OK);
        }
    }
    ck_assert_int_eq(ngd_graph_add_output(g, "y", x, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK);
    text = print_graph(g);
    again = parse_text(text);
    ck_assert_uint_eq(again->n_nodes, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        ck_assert(ngd_node_scope_equal(&g->nodes[i].scope, &again->nodes[i].scope));
        ck_assert_str_eq(g->streams[g->nodes[i].scope.stream], again->streams[again->nodes[i].scope.stream]);
    }
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ngd_free(text);
    ngd_graph_unref(again);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(digest_covers_streams_limits_and_events)
{
    static const char *const bodies[] = {
        "input %x : f32[4]\n%y = aten.neg(%x)\nreturn %y\n",
        "input %x : f32[4]\nstream \"s\" { %y = aten.neg(%x) }\nreturn %y\n",
        "input %x : f32[4]\nstream \"t\" { %y = aten.neg(%x) }\nreturn %y\n",
        "input %x : f32[4]\nlimit_core_num 1, 2 { %y = aten.neg(%x) }\nreturn %y\n",
        "input %x : f32[4]\nlimit_core_num 1, 3 { %y = aten.neg(%x) }\nreturn %y\n",
        "input %x : f32[4]\n%y = aten.neg(%x)\n" RECORD("e") "return %y\n",
        "input %x : f32[4]\n%y = aten.neg(%x)\n" RECORD("e") WAIT("e") "return %y\n",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(digest_of(bodies[i]), digest_of(bodies[k]));
    /* A stream without nodes does not change the digest. */
    ck_assert_str_eq(digest_of("input %x : f32[4]\nstream \"s\" { }\n%y = aten.neg(%x)\nreturn %y\n"),
                     digest_of(bodies[0]));
}
END_TEST

START_TEST(events_are_recorded_once_and_above_their_waits)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[4]\n" WAIT("gone") "%y = aten.neg(%x)\nreturn %y", NGD_ERR_GRAPH_EVENT,
         "line 4|stream \"(main)\"|event \"gone\"|no node records"},
        {"input %x : f32[4]\n" RECORD("e") "%y = aten.neg(%x)\nstream \"s\" {\n" RECORD("e") "}\nreturn %y",
         NGD_ERR_GRAPH_EVENT, "event \"e\"|recorded already|line 4"},
        {"input %x : f32[4]\nstream \"s\" {\n" WAIT("e") "%y = aten.neg(%x)\n}\n" RECORD("e") "return %y",
         NGD_ERR_GRAPH_EVENT, "stream \"s\" waits|recorded below|line 8|move the record up"},
        {"input %x : f32[4]\n" RECORD("") "%y = aten.neg(%x)\nreturn %y", NGD_ERR_GRAPH_ATTRIBUTE, "tag is empty"},
        {"input %x : f32[4]\nnpugraph_ex.tagged_event_record()\n%y = aten.neg(%x)\nreturn %y", NGD_ERR_GRAPH_ATTRIBUTE,
         "tag"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(streams_that_would_wait_for_each_other_are_named)
{
    static const struct refusal refusals[] = {
        /* itself */
        {"input %x : f32[4]\nstream \"s\" {\n" WAIT("e") "%y = aten.neg(%x)\n" RECORD("e") "}\nreturn %y",
         NGD_ERR_GRAPH_DEADLOCK, "line 5|\"s\" waits for event \"e\"|records itself below|never go on"},
        /* each other */
        {"input %x : f32[4]\nstream \"a\" {\n" WAIT("of b") "%y = aten.neg(%x)\n" RECORD(
             "of a") "}\nstream \"b\" {\n" WAIT("of a") RECORD("of b") "}\nreturn %y",
         NGD_ERR_GRAPH_DEADLOCK,
         "line 5|\"a\" waits here|\"of b\"|\"b\", which waits before|line 10|\"of a\"|for ever"},
        /* in a ring of three */
        {"input %x : f32[4]\n%y = aten.neg(%x)\nstream \"a\" {\n" WAIT("c") RECORD("a") "}\nstream \"b\" {\n" WAIT("a")
             RECORD("b") "}\nstream \"c\" {\n" WAIT("b") RECORD("c") "}\nreturn %y",
         NGD_ERR_GRAPH_DEADLOCK, "\"a\" waits here|\"c\", which waits before|for ever"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(scopes_are_well_formed_and_within_limits)
{
    static const struct refusal refusals[] = {
        {"stream s { }", NGD_ERR_GRAPH_PARSE, "stream's name, a string"},
        {"stream \"s\" %x", NGD_ERR_GRAPH_PARSE, "expected '{'"},
        {"input %x : f32[4]\nstream \"s\" {\nreturn %x\n}", NGD_ERR_GRAPH_PARSE, "line 5|outside of streams"},
        {"stream \"s\" {\ninput %x : f32[4]\n}\nreturn %x", NGD_ERR_GRAPH_PARSE, "line 4|outside of streams"},
        {"limit_core_num 0, 1 { }", NGD_ERR_GRAPH_ATTRIBUTE, "1 to 1024 AI cores"},
        {"limit_core_num 1, 1025 { }", NGD_ERR_GRAPH_ATTRIBUTE, "0 to 1024 vector cores"},
        {"limit_core_num 1 { }", NGD_ERR_GRAPH_PARSE, "expected ','"},
        {"limit_core_num -1, 1 { }", NGD_ERR_GRAPH_PARSE, "a number of AI cores"},
    };
    struct ngd_strbuf sb;

    CHECK_REFUSALS(refusals);
    ngd_strbuf_init(&sb);
    for (int i = 0; i < NGD_GRAPH_MAX_STREAMS; i++)
        ngd_strbuf_printf(&sb, "stream \"%d\" { }\n", i);
    CHECK_REFUSALS(((struct refusal[]){{ngd_strbuf_str(&sb), NGD_ERR_GRAPH_TOO_LARGE, "at most 16 streams"}}));
    ngd_strbuf_clear(&sb);
    for (int i = 0; i < 17; i++)
        ngd_strbuf_append(&sb, "stream \"s\" {");
    CHECK_REFUSALS(((struct refusal[]){{ngd_strbuf_str(&sb), NGD_ERR_GRAPH_TOO_LARGE, "nested too deeply"}}));
    ngd_strbuf_clear(&sb);
    for (int i = 0; i <= NGD_GRAPH_MAX_EVENTS; i++)
        ngd_strbuf_printf(&sb, "npugraph_ex.tagged_event_record() {tag=\"%d\"}\n", i);
    ngd_strbuf_append(&sb, "input %x : f32[4]\nreturn %x\n");
    CHECK_REFUSALS(((struct refusal[]){{ngd_strbuf_str(&sb), NGD_ERR_GRAPH_TOO_LARGE, "more than 1000 events"}}));
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(builder_refuses_scopes_that_cannot_be)
{
    struct ngd_diag diag = {0};
    struct ngd_graph *g;
    uint16_t stream = 7;

    ck_assert_int_eq(ngd_graph_create("t", &g), NGD_OK);
    ck_assert_int_eq(ngd_graph_set_scope(g, &(struct ngd_node_scope){.stream = 1}, &diag), NGD_ERR_GRAPH_UNDEFINED);
    ck_assert_int_eq(ngd_graph_set_scope(g, &(struct ngd_node_scope){.vectorcore = 1}, &diag), NGD_ERR_GRAPH_ATTRIBUTE);
    ck_assert_int_eq(ngd_graph_set_scope(g, &(struct ngd_node_scope){.aicore = 1025}, &diag), NGD_ERR_GRAPH_ATTRIBUTE);
    ck_assert_int_eq(ngd_graph_add_stream(g, "\xff", &stream, &diag), NGD_ERR_GRAPH_PARSE);
    ck_assert_int_eq(ngd_graph_add_stream(g, "s", &stream, &diag), NGD_OK);
    ck_assert_uint_eq(stream, 1);
    ck_assert_int_eq(ngd_graph_add_stream(g, "s", &stream, &diag), NGD_OK);
    ck_assert_uint_eq(g->n_streams, 2);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(taps_and_pictures_know_streams)
{
    struct ngd_graph *g = parse_body(FORKED), *tapped;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print_tapped(g, &sb);
    tapped = parse_text(ngd_strbuf_str(&sb));
    ck_assert_uint_eq(tapped->n_outputs, 6);
    ck_assert_str_eq(stream_of(tapped, "__tap.3.0"), "side");
    ngd_graph_unref(tapped);
    ngd_strbuf_clear(&sb);
    ngd_graph_print_dot(g, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "penwidth=3"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "stream side"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "8 AI cores, 16 vector cores"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "n1 -> n2 [style=dashed]"));
    ngd_strbuf_fini(&sb);
    ngd_graph_unref(g);
}
END_TEST

UNIT_MAIN("graphs/streams", nodes_have_the_stream_and_the_limits_of_the_scopes_around_them,
          the_innermost_scope_of_each_kind_holds_and_ends_with_its_brace,
          text_prints_its_scopes_and_what_was_printed_parses_to_the_same, all_changes_of_scope_print_and_parse,
          digest_covers_streams_limits_and_events, events_are_recorded_once_and_above_their_waits,
          streams_that_would_wait_for_each_other_are_named, scopes_are_well_formed_and_within_limits,
          builder_refuses_scopes_that_cannot_be, taps_and_pictures_know_streams)
