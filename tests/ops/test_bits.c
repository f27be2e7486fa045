/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what docs/passes.md guarantees about bits: a graph has the same results under every set of options that does
 * not allow excess precision. Random chains of views and no-ops end in an operator whose sums have an order. Every set
 * of options, with one thread and with several, replayed and eager, must give the bits of the graph without passes.
 * NGD_TEST_SEEDS sets how many chains there are, NGD_TEST_SEED the first.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/random_chain.h"

static struct made run_set(struct bench *b, const char *text, size_t set, bool eager)
{
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct made m;
    const bool passes = chain_options(set, &options);

    if (ready_plan_with(&r, b, passes ? &options : NULL, text, NULL, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
    m = run_plan(b, r.plan, NULL, NULL, eager);
    ready_close(&r);
    return m;
}

static void check_chain(struct bench *one, struct bench *three, uint64_t seed)
{
    struct made want, got;
    struct chain c;

    make_text(&c, seed);
    want = run_set(one, ngd_strbuf_str(&c.head), 0, false);
    for (size_t i = 0; i < N_OPTION_SETS; i++) {
        got = run_set(i % 2 ? three : one, ngd_strbuf_str(&c.head), i, i % 3 == 0);
        ck_assert_msg(got.status == want.status && got.bytes == want.bytes &&
                          (got.status || !got.bytes || memcmp(got.data, want.data, got.bytes) == 0),
                      "seed %" PRIu64 " on %s with %s has other bits\n%s", seed, one->name,
                      option_sets[i] ? option_sets[i] : "no passes", ngd_strbuf_str(&c.head));
        free(got.data);
    }
    free(want.data);
    ngd_strbuf_fini(&c.head);
    ngd_strbuf_fini(&c.text);
}

START_TEST(any_set_of_options_gives_the_same_bits)
{
    const char *many = getenv("NGD_TEST_SEEDS"), *from = getenv("NGD_TEST_SEED");
    const uint64_t n = many ? strtoull(many, NULL, 10) : effort(600, "seeds");
    const uint64_t first = from ? strtoull(from, NULL, 10) : 0;

    EACH_ISA (isa) {
        struct bench one, three;

        bench_open(&one, (ngd_isa_t)isa, 1);
        bench_open(&three, (ngd_isa_t)isa, 3);
        for (uint64_t seed = first; seed < first + n; seed++)
            check_chain(&one, &three, seed);
        bench_close(&one);
        bench_close(&three);
    }
}
END_TEST

UNIT_MAIN("ops/bits", any_set_of_options_gives_the_same_bits)
