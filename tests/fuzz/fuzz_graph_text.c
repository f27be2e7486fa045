/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph text parser. Whatever the bytes are, the answer is a graph or an error with a diagnosis; a graph that was
 * accepted prints, parses back to the same digest, and prints the same again.
 */
#include "base/utf8.h"
#include "graphs/graph.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;
const char *const fuzz_more = "tests/golden/graphs";

static bool is_text(const char *s)
{
    for (size_t n = strlen(s), step; n > 0; s += step, n -= step) {
        step = ngd_utf8_step(s, n);
        if (step == 0)
            return false;
    }
    return true;
}

static void check_accepted(struct ngd_graph *g)
{
    struct ngd_strbuf once, twice, dot;
    struct ngd_graph *again = NULL;
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&once);
    ngd_strbuf_init(&twice);
    ngd_strbuf_init(&dot);
    ngd_graph_print(g, &once);
    ngd_graph_print_dot(g, &dot);
    fuzz_demand(!once.failed && !dot.failed, "printing failed");
    fuzz_demand(ngd_graph_parse(once.data, once.len, &again, &diag) == NGD_OK, diag.text);
    ngd_graph_print(again, &twice);
    fuzz_demand(strcmp(once.data, twice.data) == 0, "the printed text is no fixpoint");
    fuzz_demand(ngd_digest_equal(&g->digest, &again->digest), "the digest changed with print and parse");
    ngd_graph_unref(again);
    ngd_strbuf_fini(&once);
    ngd_strbuf_fini(&twice);
    ngd_strbuf_fini(&dot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};
    char *text = n ? ngd_memdup(data, n) : NULL; /* of exactly n bytes, so that a read past the end is seen */
    ngd_status_t status = ngd_graph_parse(text ? text : "", n, &g, &diag);

    if (status) {
        fuzz_demand(g == NULL, "a refused text gave a graph");
        fuzz_demand(diag.status == status && diag.text[0], "an error has no diagnosis");
        fuzz_demand(is_text(diag.text), "a diagnosis is not UTF-8");
        fuzz_demand(status != NGD_ERR_INTERNAL && status != NGD_ERR_NO_MEMORY, diag.text);
    } else {
        check_accepted(g);
        ngd_graph_unref(g);
    }
    ngd_free(text);
    return 0;
}
