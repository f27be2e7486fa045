/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests properties of random graphs that are made from the operator table. A graph that the builder accepts
 * prints, and parses back to the same digest and text. With other names of values it keeps its digest. Seeds
 * are fixed; NGD_TEST_SEEDS sets how many (default 400).
 */
#include "tests/unit/effort.h"
#include "tests/unit/random_graph.h"

/* Returns the printed text with every value renamed, %3 -> %other.3. */
static char *rename_values(const char *text)
{
    struct ngd_strbuf sb;
    bool quoted = false;

    ngd_strbuf_init(&sb);
    for (; *text; text++) {
        if (*text == '\\' && quoted)
            ngd_strbuf_putc(&sb, *text++);
        else if (*text == '"')
            quoted = !quoted;
        ngd_strbuf_putc(&sb, *text);
        if (*text == '%' && !quoted)
            ngd_strbuf_append(&sb, "other.");
    }
    return ngd_strbuf_steal(&sb);
}

static uint32_t check_seed(uint64_t seed)
{
    struct ngd_graph *g = make_graph(seed), *again;
    struct ngd_diag diag = {0};
    ngd_status_t status;
    char *once, *twice;
    uint32_t nodes = g->n_nodes;

    add_guards(g, seed);
    status = ngd_graph_seal(g, &diag);
    ck_assert_msg(status == NGD_OK || status == NGD_ERR_GRAPH_NOT_ROWWISE || status == NGD_ERR_GRAPH_MUTATION ||
                      status == NGD_ERR_GRAPH_SYMBOL || status == NGD_ERR_INVALID_ARGUMENT,
                  "seed %llu: %s: %s", (unsigned long long)seed, ngd_status_name(status), diag.text);
    once = print_graph(g);
    if (status) { /* the text is refused too */
        ck_assert_int_eq(ngd_graph_parse(once, strlen(once), &again, NULL), status);
        ngd_graph_unref(g);
        ngd_free(once);
        return 0;
    }
    again = parse_text(once);
    twice = print_graph(again);
    ck_assert_str_eq(once, twice);
    ck_assert_msg(ngd_digest_equal(&g->digest, &again->digest), "seed %llu\n%s", (unsigned long long)seed, once);
    ngd_graph_unref(again);
    ngd_free(twice);
    twice = rename_values(once);
    again = parse_text(twice);
    ck_assert(
        ngd_digest_equal(&g->digest, &again->digest)); /* labels and output names are given, so names do not count */
    ngd_graph_unref(again);
    ngd_graph_unref(g);
    ngd_free(once);
    ngd_free(twice);
    return nodes;
}

START_TEST(random_graphs_print_and_parse_to_the_same_digest)
{
    const char *env = getenv("NGD_TEST_SEEDS");
    uint64_t n = env ? strtoull(env, NULL, 10) : effort(400, "seeds"), nodes = 0, sealed = 0;

    for (uint64_t seed = 0; seed < n; seed++) {
        uint32_t got = check_seed(seed);

        nodes += got;
        sealed += got > 0;
    }
    if (getenv("NGD_TEST_VERBOSE"))
        printf("%llu of %llu graphs sealed, %llu nodes\n", (unsigned long long)sealed, (unsigned long long)n,
               (unsigned long long)nodes);
    ck_assert_msg(sealed > n / 20 && nodes > sealed * 5, "only %llu of %llu graphs were sealed, with %llu nodes",
                  (unsigned long long)sealed, (unsigned long long)n, (unsigned long long)nodes);
}
END_TEST

UNIT_MAIN("graphs/graph random", random_graphs_print_and_parse_to_the_same_digest)
