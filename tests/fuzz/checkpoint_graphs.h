/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_CHECKPOINT_GRAPHS_H
#define NGD_TESTS_CHECKPOINT_GRAPHS_H

/* What targets of checkpoints demand of a description: its graphs are text that the daemon's parser takes, or refuses
 * with a diagnosis. */
#include "client/hf/checkpoint.h"
#include "graphs/graph.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

/* Demands that a graph that is written is parsed, or refused with a diagnosis, and one that is not has a sentence. */
static inline bool check_graph_text(bool written, const struct ngd_strbuf *text, const struct npugraph_error *err)
{
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};

    fuzz_demand(written || err->message[0] != '\0', "a graph is not written, without a sentence");
    if (written && ngd_graph_parse(ngd_strbuf_str(text), text->len, &graph, &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a graph is refused without a diagnosis");
    ngd_graph_unref(graph);
    return written;
}

/* Returns whether the family wrote the graph for prompts or steps, and the one that makes weights, if there is one. */
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
    struct ngd_strbuf text;
    bool written;

    for (size_t i = 0; i < ck->weights.n; i++)
        snprintf(ck->weights.items[i].dtype, sizeof(ck->weights.items[i].dtype), "f32");
    ngd_strbuf_init(&text);
    written = check_graph_text(npugraph__checkpoint_graph(ck, &shape, "fuzz", prefill, &text, &err) == 0, &text, &err);
    if (written && ck->n_made > 0) {
        ngd_strbuf_clear(&text);
        written = check_graph_text(npugraph__checkpoint_made_graph(ck, "fuzz", &text, &err) == 0, &text, &err);
    }
    ngd_strbuf_fini(&text);
    return written;
}

#endif
