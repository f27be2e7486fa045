/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_CHECKPOINT_GRAPHS_H
#define NGD_TESTS_CHECKPOINT_GRAPHS_H

/* What targets of checkpoints demand of a description: its two graphs are text that the daemon's parser takes, or
 * refuses with a diagnosis. */
#include "client/hf/checkpoint.h"
#include "graphs/graph.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

/* Returns whether the family wrote the graph; if it did not, there is a sentence. */
static inline bool check_checkpoint_graph(struct npugraph__checkpoint *ck, bool prefill)
{
    const struct npugraph__shape shape = {.max_context = 64,
                                          .block_size = 16,
                                          .num_blocks = 8,
                                          .table_blocks = 4,
                                          .max_batch = 2,
                                          .prefill_chunk = 16,
                                          .kv_dtype = "f32"};
    struct npugraph_error err = {0};
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    bool written;

    for (size_t i = 0; i < ck->weights.n; i++)
        snprintf(ck->weights.items[i].dtype, sizeof(ck->weights.items[i].dtype), "f32");
    ngd_strbuf_init(&text);
    written = npugraph__checkpoint_graph(ck, &shape, "fuzz", prefill, &text, &err) == 0;
    fuzz_demand(written || err.message[0] != '\0', "a graph is not written, without a sentence");
    if (written && ngd_graph_parse(ngd_strbuf_str(&text), text.len, &graph, &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a graph is refused without a diagnosis");
    ngd_graph_unref(graph);
    ngd_strbuf_fini(&text);
    return written;
}

#endif
