/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a checkpoint, and the graphs that are made of what it says. What is refused has a sentence; what is
 * accepted gives graph text that the daemon's parser takes, or refuses with a diagnosis, and never anything else.
 */
#include "client/hf/checkpoint.h"
#include "graphs/graph.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const uint32_t fuzz_runs = 2000;

#define LAYERS_MAX 4 /* more are the same again, and cost time */

static char directory[64];

static void clean(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/config.json", directory);
    unlink(path);
    rmdir(directory);
}

static void put_config(const uint8_t *data, size_t n)
{
    char path[128];
    FILE *f;

    if (!directory[0]) {
        snprintf(directory, sizeof(directory), "/tmp/npugraph-fuzz-XXXXXX");
        fuzz_demand(mkdtemp(directory) != NULL, "no directory for config.json");
        atexit(clean);
    }
    snprintf(path, sizeof(path), "%s/config.json", directory);
    f = fopen(path, "wb");
    fuzz_demand(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "config.json cannot be written");
}

static void check_graph(const struct npugraph__config *config, struct npugraph__weights *weights, bool prefill)
{
    const struct npugraph__shape shape = {.max_context = 64,
                                          .block_size = 16,
                                          .num_blocks = 8,
                                          .table_blocks = 4,
                                          .max_batch = 2,
                                          .prefill_chunk = 16,
                                          .ranks = 1,
                                          .kv_dtype = "f32"};
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;

    for (size_t i = 0; i < weights->n; i++)
        snprintf(weights->items[i].dtype, sizeof(weights->items[i].dtype), "f32");
    ngd_strbuf_init(&text);
    npugraph__graph_text(config, weights, &shape, "fuzz", prefill, &text);
    if (ngd_graph_parse(ngd_strbuf_str(&text), text.len, &graph, &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a graph is refused without a diagnosis");
    ngd_graph_unref(graph);
    ngd_strbuf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct npugraph__config config;
    struct npugraph__weights weights = {0};
    struct npugraph_error err = {0};

    put_config(data, n);
    if (npugraph__config_read(directory, &config, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a config is refused without a sentence");
        return 0;
    }
    if (config.layers > LAYERS_MAX)
        config.layers = LAYERS_MAX;
    if (npugraph__weights_list(directory, &config, &weights, &err) != 0)
        fuzz_demand(err.message[0] != '\0', "weights are refused without a sentence");
    else
        for (int prefill = 0; prefill < 2; prefill++)
            check_graph(&config, &weights, prefill);
    npugraph__weights_fini(&weights);
    return 0;
}
