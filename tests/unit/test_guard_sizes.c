/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the sizes that are chosen so that a graph's guards hold with those that a search of all sizes finds. */
#include "graphs/guard.h"
#include "tests/unit/effort.h"
#include "tests/unit/graph_util.h"
#include <inttypes.h>

#define ANY NGD_SIZE_ANY

/* Makes a graph with an input of each symbol's size, so that each symbol is used. */
static struct ngd_graph *graph_of(const char *symbols, const char *guards)
{
    char body[1000], inputs[100] = "", name[8];

    for (const char *p = symbols; (p = strstr(p, "sym ")) != NULL; p += 4)
        snprintf(inputs + strlen(inputs), sizeof(inputs) - strlen(inputs), "input %%%c : u8[%c]\n", p[4], p[4]);
    snprintf(name, sizeof(name), "%%%c", symbols[4]);
    snprintf(body, sizeof(body), "%s\n%s\n%sreturn %s", symbols, guards, inputs, name);
    return parse_body(body);
}

START_TEST(the_largest_sizes_at_which_all_guards_hold_are_chosen)
{
    static const struct {
        const char *symbols, *guards;
        int64_t given[3], want[3];
    } cases[] = {
        {"sym A 1..9 sym T 1..64", "guard A + T != 0", {ANY, ANY}, {9, 64}},
        {"sym T 1..100", "guard mod(T, 8) == 0", {ANY}, {96}},
        {"sym T 1..2147483647", "guard mod(T, 1048576) == 5", {ANY}, {2146435077}},
        {"sym T 1..2147483647", "guard T < 3", {ANY}, {2}},
        {"sym T 0..64", "guard T != 64 guard T != 63", {ANY}, {62}},
        {"sym A 1..100 sym T 1..10", "guard floordiv(A, 4) == T", {ANY, ANY}, {43, 10}},
        {"sym A 1..100 sym T 1..100", "guard A + T <= 100", {ANY, ANY}, {99, 1}},
        {"sym A 1..100 sym T 1..100", "guard A + T <= 100", {ANY, 40}, {60, 40}},
        {"sym A 1..100 sym T 1..100", "guard A <= 2*T guard mod(T, 7) == 3", {ANY, ANY}, {100, 94}},
        {"sym B 1..60 buckets 8, 64 sym T 1..9", "guard B == 3*T + 2", {ANY, ANY}, {29, 9}},
        {"sym A 1..9 sym B 1..9 sym T 1..9", "guard max(A, B) == min(B, T)", {ANY, ANY, 4}, {4, 4, 4}},
        /* symbols without guards get their maximum; ngd_key_make refuses given sizes that are out of range */
        {"sym A 1..9 sym T 1..64", "guard mod(T, 5) == 1", {ANY, ANY}, {9, 61}},
        {"sym A 1..9 sym T 1..64", "guard mod(T, 5) == 1", {10, ANY}, {10, 64}},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_graph *g = graph_of(cases[i].symbols, cases[i].guards);
        struct ngd_diag diag = {0};
        int64_t sizes[3] = {0};

        ck_assert_msg(ngd_guard_choose_sizes(g, cases[i].given, sizes, &diag) == NGD_OK, "%zu: %s", i, diag.text);
        for (uint32_t k = 0; k < g->n_symbols; k++)
            ck_assert_msg(sizes[k] == cases[i].want[k], "%zu: %" PRId64 ", %" PRId64 ", %" PRId64, i, sizes[0],
                          sizes[1], sizes[2]);
        ngd_graph_unref(g);
    }
}
END_TEST

START_TEST(when_there_are_none_or_none_is_found_soon_it_is_said)
{
    static const struct {
        const char *symbols, *guards;
        int64_t given[2];
        const char *text;
    } cases[] = {
        {"sym A 1..9",
         "guard mod(A, 2) == 0 guard mod(A, 4) == 1",
         {ANY},
         "there are no sizes within the ranges of graph \"t\" at which all of its guards hold"},
        {"sym A 1..9 sym T 1..9", "guard A < T", {9, ANY}, "hold with A = 9"},
        /* no square is twice another square, but bounds do not show it */
        {"sym A 1..2147483647 sym B 1..1073741824", "guard A*A == 2*B*B", {ANY, ANY}, "found in a short search"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_graph *g = graph_of(cases[i].symbols, cases[i].guards);
        int64_t sizes[2] = {-7, -7};
        struct ngd_diag diag = {0};

        ck_assert_int_eq(ngd_guard_choose_sizes(g, cases[i].given, sizes, &diag), NGD_ERR_GUARD_FAILED);
        ck_assert_msg(strstr(diag.text, cases[i].text), "%s", diag.text);
        ck_assert_int_eq(sizes[0], -7);
        ck_assert_int_eq(ngd_guard_choose_sizes(g, cases[i].given, sizes, NULL), NGD_ERR_GUARD_FAILED);
        ngd_graph_unref(g);
    }
}
END_TEST

/* ---- random guards -------------------------------------------------------------------------------------- */

enum { A_MAX = 9, T_MAX = 24, B_MAX = 6 };

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static void add_guard(uint64_t *seed, struct ngd_strbuf *sb)
{
    static const char *const relations[] = {"==", "!=", "<", "<=", ">", ">="};
    static const char *const forms[] = {
        "mod(%s, %u) %s %u",       "%s*%u - 20 %s %u",          "floordiv(%s - 12, %u) %s %u - 4",
        "max(%s - 5, 3*%u) %s %u", "mod(7 - %s, %u) %s %u",     "floordiv(%s*5, B + %u) %s %u",
        "mod(%s*T, B + %u) %s %u", "min(%s*A, T + %u) %s 2*%u", "A*B - %s*%u %s %u",
        "%s + T - %u*B %s %u",     "floordiv(%s, A*%u) %s %u",  "mod(A*T - %s, %u) %s %u",
    };
    static const char *const symbols[] = {"A", "T", "B"};
    char text[100];

    snprintf(text, sizeof(text), forms[draw(seed, sizeof(forms) / sizeof(forms[0]))], symbols[draw(seed, 3)],
             1 + draw(seed, 7), relations[draw(seed, 6)], draw(seed, 9));
    ngd_strbuf_printf(sb, "guard %s\n", text);
}

/* Returns the last sizes, in their order, at which the guards hold. */
static bool try_all(const struct ngd_graph *g, const int64_t *given, int64_t *best)
{
    bool found = false;

    for (int64_t a = 1; a <= A_MAX; a++)
        for (int64_t t = 1; t <= T_MAX; t++)
            for (int64_t b = 1; b <= B_MAX; b++) {
                const int64_t sizes[3] = {a, t, b};
                bool fits = ngd_guard_check_relations(g, sizes, NULL) == NGD_OK;

                for (int i = 0; i < 3; i++)
                    fits = fits && (given[i] == ANY || given[i] == sizes[i]);
                if (fits)
                    memcpy(best, sizes, sizeof(sizes));
                found = found || fits;
            }
    return found;
}

START_TEST(random_guards_have_the_sizes_that_a_search_of_all_finds)
{
    uint64_t n = effort(1500, "random sets of guards"), seed = 4711, found = 0, graphs = 0;

    for (uint64_t i = 0; i < n; i++) {
        const int64_t maxima[3] = {A_MAX, T_MAX, B_MAX};
        int64_t given[3], want[3], got[3];
        struct ngd_graph *g = NULL;
        struct ngd_strbuf text;
        bool some;

        ngd_strbuf_init(&text);
        ngd_strbuf_append(&text, "npugraph 1\ngraph \"t\" {\nsym A 1..9\nsym T 1..24\nsym B 1..6 buckets 2, 8\n");
        for (uint32_t k = 1 + draw(&seed, 3); k > 0; k--)
            add_guard(&seed, &text);
        ngd_strbuf_append(&text, "input %a : u8[A]\ninput %t : u8[T]\ninput %b : u8[B]\nreturn %a\n}\n");
        for (int k = 0; k < 3; k++)
            given[k] = draw(&seed, 5) ? ANY : 1 + (int64_t)draw(&seed, (uint32_t)maxima[k]);
        /* Some guards never hold and are refused. */
        if (ngd_graph_parse(text.data, text.len, &g, NULL) == NGD_OK) {
            some = try_all(g, given, want);
            ck_assert_msg((ngd_guard_choose_sizes(g, given, got, NULL) == NGD_OK) == some, "%s", text.data);
            ck_assert_msg(!some || memcmp(got, want, sizeof(got)) == 0, "%s: %" PRId64 ", %" PRId64 ", %" PRId64,
                          text.data, got[0], got[1], got[2]);
            found += some;
            graphs++;
        }
        ngd_strbuf_fini(&text);
        ngd_graph_unref(g);
    }
    ck_assert_msg(n < 400 || (found > n / 4 && graphs - found > n / 20), "%" PRIu64 " of %" PRIu64, found, graphs);
}
END_TEST

UNIT_MAIN("graphs/guard sizes", the_largest_sizes_at_which_all_guards_hold_are_chosen,
          when_there_are_none_or_none_is_found_soon_it_is_said, random_guards_have_the_sizes_that_a_search_of_all_finds)
