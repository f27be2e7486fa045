/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a checkpoint, and the graphs that are made of what it says. What is refused has a sentence; what is
 * accepted gives graph text that the daemon's parser takes, or refuses with a diagnosis, and never anything else.
 */
#include "client/hf/checkpoint.h"
#include "graphs/graph.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

const uint32_t fuzz_runs = 2000;

#define LAYERS_MAX 4 /* of graphs that are written: more are the same again, and cost time */

static void check_graph(struct npugraph__checkpoint *ck, bool prefill)
{
    const struct npugraph__shape shape = {.max_context = 64,
                                          .block_size = 16,
                                          .num_blocks = 8,
                                          .table_blocks = 4,
                                          .max_batch = 2,
                                          .prefill_chunk = 16,
                                          .kv_dtype = "f32"};
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;

    struct npugraph_error err = {0};

    for (size_t i = 0; i < ck->weights.n; i++)
        snprintf(ck->weights.items[i].dtype, sizeof(ck->weights.items[i].dtype), "f32");
    ngd_strbuf_init(&text);
    fuzz_demand(npugraph__checkpoint_graph(ck, &shape, "fuzz", prefill, &text, &err) == 0,
                "a family describes a checkpoint and then fails to write its graph");
    if (ngd_graph_parse(ngd_strbuf_str(&text), text.len, &graph, &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a graph is refused without a diagnosis");
    ngd_graph_unref(graph);
    ngd_strbuf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    if (npugraph__checkpoint_parse((const char *)data, n, 1, &ck, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a config is refused without a sentence");
        return 0;
    }
    for (int prefill = 0; prefill < 2 && ck->layers <= LAYERS_MAX; prefill++)
        check_graph(ck, prefill);
    npugraph__checkpoint_free(ck);
    return 0;
}
