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

/* ---- ranks ---- */

#define LONGEST_LIST 12

/* Six tensors of all ranks and of the dtypes that operators ask for. */
static void make_ranked_inputs(struct maker *m)
{
    static const ngd_dtype_t dtypes[] = {NGD_F32, NGD_F32, NGD_BF16, NGD_I64, NGD_I32, NGD_I8, NGD_BOOL};

    for (uint32_t i = 0; i < 6; i++) {
        struct ngd_type type = {.dtype = dtypes[draw(m, 7)], .rank = (uint8_t)draw(m, NGD_MAX_RANK + 1)};
        uint32_t value;
        char label[8];

        for (uint32_t k = 0; k < type.rank; k++)
            type.dims[k] = draw(m, 4) ? 1 : draw(m, 3);
        snprintf(label, sizeof(label), "x%u", i);
        ck_assert_int_eq(ngd_graph_add_input(m->g, NGD_VALUE_INPUT, NULL, label, &type, &value, NULL), NGD_OK);
        pool_add(m, value);
    }
}

static bool try_ranks(const struct ngd_op *op, uint64_t seed)
{
    struct maker m = {.seed = seed * 2654435761u + 1};
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS] = {0};
    int64_t lists[NGD_OP_MAX_ATTRS][LONGEST_LIST];
    bool set[NGD_OP_MAX_ATTRS];
    uint32_t in[MAX_OPERANDS], results[16] = {0};
    const uint32_t most = op->max_in == NGD_OP_VARIADIC ? op->min_in + 4u : op->max_in;
    ngd_status_t status;
    uint32_t n_in;

    ck_assert_int_eq(ngd_graph_create("ranks", &m.g), NGD_OK);
    m.dims[m.n_dims++] = 1;
    make_ranked_inputs(&m);
    n_in = op->min_in + draw(&m, most - op->min_in + 1);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = i >= op->min_in && draw(&m, 2) ? NGD_VALUE_NONE : m.pool[draw(&m, draw(&m, 2) ? 2 : m.n_pool)];
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        make_attr(&m, &op->attrs[i], &attrs[i], lists[i]);
        attrs[i].n = draw(&m, LONGEST_LIST + 1);
        for (uint32_t k = 0; k < attrs[i].n; k++)
            lists[i][k] = (int64_t)draw(&m, 4) - 1;
        set[i] = op->attrs[i].required || draw(&m, 2);
    }
    status = ngd_graph_add_node(m.g, op, in, n_in, attrs, set, results, 16, NULL);
    ngd_graph_unref(m.g);
    return status == NGD_OK;
}

/* Shapes are computed in arrays of so many dimensions as a tensor may have; the address sanitizer sees who writes more.
 */
START_TEST(every_operator_takes_or_refuses_operands_of_all_ranks_and_lists_of_all_lengths)
{
    const uint64_t tries = effort(2000, "operands of each operator");
    uint32_t taken = 0;

    for (uint32_t id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);
        bool some = false;

        for (uint64_t i = 0; i < tries && !(op->flags & NGD_OPF_EVENT); i++)
            some |= try_ranks(op, id * tries + i);
        taken += some;
    }
    ck_assert_uint_gt(taken, NGD_OP_MAX / 2);
}
END_TEST

UNIT_MAIN("graphs/graph random", every_operator_takes_or_refuses_operands_of_all_ranks_and_lists_of_all_lengths,
          random_graphs_print_and_parse_to_the_same_digest)
