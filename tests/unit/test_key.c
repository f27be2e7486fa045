/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/key.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <string.h>

static const char two_symbols[] = "npugraph 1\n"
                                  "graph \"g\" {\n"
                                  "  sym B 1..16 buckets 4, 8, 16\n"
                                  "  sym T 2..100\n"
                                  "  input %x : f32[B,3]\n"
                                  "  input %y : f32[T,3]\n"
                                  "  %a = aten.neg(%x)\n"
                                  "  %b = aten.neg(%y)\n"
                                  "  return \"a\" = %a, \"b\" = %b\n"
                                  "}\n";

static struct ngd_graph *parse(const char *text)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_graph_parse(text, strlen(text), &g, &diag) == NGD_OK, "%s", diag.text);
    return g;
}

static struct ngd_digest options(uint8_t fill)
{
    struct ngd_digest d;

    memset(d.b, fill, sizeof(d.b));
    return d;
}

static ngd_status_t make(const struct ngd_graph *g, int64_t b, int64_t t, struct ngd_key *key, struct ngd_diag *diag)
{
    struct ngd_digest o = options(1);

    return ngd_key_make(g, &o, (int64_t[]){b, t}, 2, key, diag);
}

START_TEST(bucketed_symbols_are_pinned_at_the_next_bucket_and_exact_ones_at_their_value)
{
    static const int64_t cases[][2] = {{1, 4}, {4, 4}, {5, 8}, {8, 8}, {9, 16}, {16, 16}};
    struct ngd_graph *g = parse(two_symbols);
    struct ngd_key key;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(make(g, cases[i][0], 50, &key, NULL), NGD_OK);
        ck_assert_int_eq(key.symbols[0], cases[i][1]);
        ck_assert_int_eq(key.symbols[1], 50);
        ck_assert(ngd_digest_equal(&key.graph, &g->digest));
    }
    ngd_graph_unref(g);
}
END_TEST

START_TEST(values_of_one_bucket_make_one_key_and_other_values_make_others)
{
    struct ngd_graph *g = parse(two_symbols);
    struct ngd_digest o = options(2);
    struct ngd_key a, b;

    ck_assert_int_eq(make(g, 5, 50, &a, NULL), NGD_OK);
    ck_assert_int_eq(make(g, 8, 50, &b, NULL), NGD_OK);
    ck_assert(ngd_key_equal(&a, &b));
    ck_assert_uint_eq(a.hash, b.hash);
    ck_assert_int_eq(make(g, 9, 50, &b, NULL), NGD_OK);
    ck_assert(!ngd_key_equal(&a, &b));
    ck_assert_int_eq(make(g, 5, 51, &b, NULL), NGD_OK);
    ck_assert(!ngd_key_equal(&a, &b));
    ck_assert_int_eq(ngd_key_make(g, &o, (int64_t[]){5, 50}, 2, &b, NULL), NGD_OK);
    ck_assert(!ngd_key_equal(&a, &b));
    ck_assert_uint_ne(a.hash, b.hash);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(failed_guard_is_named_with_its_value)
{
    static const struct {
        int64_t b, t;
        const char *text;
    } cases[] = {
        {40, 50, "symbol B = 40 is outside 1..16 (guard B <= 16)"},
        {0, 50, "symbol B = 0 is outside 1..16 (guard B >= 1)"},
        {3, 1, "symbol T = 1 is outside 2..100 (guard T >= 2)"},
        {3, INT64_MAX, "symbol T = 9223372036854775807 is outside 2..100 (guard T <= 100)"},
        {INT64_MIN, 3, "symbol B = -9223372036854775808 is outside 1..16 (guard B >= 1)"},
    };
    struct ngd_graph *g = parse(two_symbols);
    struct ngd_key key = {.hash = 77};
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(make(g, cases[i].b, cases[i].t, &key, &diag), NGD_ERR_GUARD_FAILED);
        ck_assert_str_eq(diag.text, cases[i].text);
    }
    ck_assert_uint_eq(key.hash, 77);
    ck_assert_int_eq(make(g, 40, 50, &key, NULL), NGD_ERR_GUARD_FAILED);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(relations_are_of_the_values_that_are_asked_for_and_not_of_buckets)
{
    static const char text[] = "npugraph 1\ngraph \"g\" {\n  sym B 1..6 buckets 4, 8\n  sym T 2..100\n"
                               "  guard B != 4\n  guard B < 6\n  guard B <= T\n"
                               "  input %x : f32[B,3]\n  input %y : f32[T,3]\n  return \"x\" = %x, \"y\" = %y\n}\n";
    static const int64_t sizes[] = {6, 2}; /* as rows of several requests may be */
    struct ngd_graph *g = parse(text);
    struct ngd_digest o = options(1);
    struct ngd_key key = {.hash = 77};
    struct ngd_diag diag = {0};

    ck_assert_int_eq(make(g, 4, 50, &key, &diag), NGD_ERR_GUARD_FAILED);
    ck_assert_str_eq(diag.text, "guard B != 4 does not hold: B is 4");
    ck_assert_int_eq(make(g, 5, 4, &key, &diag), NGD_ERR_GUARD_FAILED);
    ck_assert_str_eq(diag.text, "guard B <= T does not hold: B is 5 and T is 4");
    ck_assert_int_eq(make(g, 9, 1, &key, &diag), NGD_ERR_GUARD_FAILED); /* ranges first */
    ck_assert_str_eq(diag.text, "symbol B = 9 is outside 1..6 (guard B <= 6)");
    ck_assert_uint_eq(key.hash, 77);
    ck_assert_int_eq(make(g, 3, 50, &key, NULL), NGD_OK);
    ck_assert_int_eq(key.symbols[0], 4);
    ck_assert_int_eq(make(g, 5, 50, &key, NULL), NGD_OK);
    ck_assert_int_eq(key.symbols[0], 8);
    ck_assert_int_eq(ngd_key_make_sizes(g, &o, NULL, sizes, 2, &key, NULL), NGD_OK);
    ck_assert_int_eq(key.symbols[0], 8);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(wrong_number_of_values_is_refused)
{
    struct ngd_graph *g = parse(two_symbols);
    struct ngd_digest o = options(1);
    struct ngd_key key;
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_key_make(g, &o, (int64_t[]){1, 2, 3}, 3, &key, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(diag.text, "graph g has 2 symbols, and values of 3 were given");
    ck_assert_int_eq(ngd_key_make(g, &o, NULL, 0, &key, &diag), NGD_ERR_INVALID_ARGUMENT);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(graph_without_symbols_has_one_key)
{
    struct ngd_graph *g = parse("npugraph 1\ngraph \"k\" {\n input %x : f32[3]\n return \"x\" = %x\n}\n");
    struct ngd_digest o = options(1);
    struct ngd_key a, b;

    memset(&a, 0xaa, sizeof(a));
    memset(&b, 0xbb, sizeof(b));
    ck_assert_int_eq(ngd_key_make(g, &o, NULL, 0, &a, NULL), NGD_OK);
    ck_assert_int_eq(ngd_key_make(g, &o, NULL, 0, &b, NULL), NGD_OK);
    ck_assert(ngd_key_equal(&a, &b));
    ngd_graph_unref(g);
}
END_TEST

START_TEST(key_prints_its_guards_and_digests)
{
    struct ngd_graph *g = parse(two_symbols);
    struct ngd_strbuf sb;
    struct ngd_key key;

    ngd_strbuf_init(&sb);
    ck_assert_int_eq(make(g, 5, 50, &key, NULL), NGD_OK);
    memset(key.graph.b, 0xab, sizeof(key.graph.b));
    ngd_key_print(g, &key, &sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "B<=8 T==50 graph=abababababab options=010101010101");
    ngd_strbuf_fini(&sb);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(making_a_key_allocates_nothing)
{
    static const char guarded[] = "npugraph 1\ngraph \"g\" {\n  sym B 1..16 buckets 4, 8, 16\n  sym T 2..100\n"
                                  "  guard floordiv(max(B*T, 9), 2) != mod(T, 9)\n  guard min(B, T) < 16\n"
                                  "  input %x : f32[B,3]\n  input %y : f32[T,3]\n  return %x, %y\n}\n";
    const char *const texts[] = {two_symbols, guarded};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ngd_graph *g = parse(texts[i]);
        uint64_t before = ngd_mem_thread_allocs();
        struct ngd_key key;

        ck_assert_uint_eq(g->n_relations, i ? 2 : 0);
        ck_assert_int_eq(make(g, 5, 50, &key, NULL), NGD_OK);
        ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
        ngd_graph_unref(g);
    }
}
END_TEST

UNIT_MAIN("graphs/key", bucketed_symbols_are_pinned_at_the_next_bucket_and_exact_ones_at_their_value,
          values_of_one_bucket_make_one_key_and_other_values_make_others, failed_guard_is_named_with_its_value,
          relations_are_of_the_values_that_are_asked_for_and_not_of_buckets, wrong_number_of_values_is_refused,
          graph_without_symbols_has_one_key, key_prints_its_guards_and_digests, making_a_key_allocates_nothing)
