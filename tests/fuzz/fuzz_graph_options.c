/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of graphs, as lines "name=value". What is refused has a diagnosis and changes nothing; what was accepted
 * prints, and the printed values set to the same options.
 */
#include "graphs/options.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    struct ngd_graph_options defaults;

    ngd_graph_options_init(&defaults);
    ngd_graph_options_print(&defaults, false, out);
    return i == 0;
}

static void set_lines(char *text, struct ngd_graph_options *options, bool must)
{
    for (char *line = text, *rest; line; line = rest) {
        struct ngd_diag diag = {0};
        char *value = strchr(line, '=');

        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        if (!value || (rest && value > rest))
            continue;
        *value++ = '\0';
        if (ngd_graph_options_set(options, line, value, &diag) == NGD_OK)
            continue;
        fuzz_demand(!must, "a printed option is refused");
        fuzz_demand(diag.text[0] != '\0', "an option is refused without a diagnosis");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_graph_options options, again;
    struct ngd_strbuf printed;
    struct ngd_digest a, b;
    struct ngd_diag diag = {0};
    char *text = fuzz_text(data, n), *copy;

    ngd_graph_options_init(&options);
    set_lines(text, &options, false);
    ngd_free(text);
    if (ngd_graph_options_check(&options, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "options are refused without a diagnosis");
        return 0;
    }
    ngd_strbuf_init(&printed);
    ngd_graph_options_print(&options, false, &printed);
    copy = fuzz_text((const uint8_t *)ngd_strbuf_str(&printed), printed.len);
    ngd_graph_options_init(&again);
    set_lines(copy, &again, true);
    ngd_graph_options_digest(&options, false, &a);
    ngd_graph_options_digest(&again, false, &b);
    fuzz_demand(ngd_digest_equal(&a, &b), "printed options are others");
    ngd_free(copy);
    ngd_strbuf_fini(&printed);
    return 0;
}
