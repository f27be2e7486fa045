/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a checkpoint, and the graphs that are made of what it says. What is refused has a sentence; what is
 * accepted gives graph text that the daemon's parser takes, or refuses with a diagnosis, and never anything else.
 */
#include "tests/fuzz/checkpoint_graphs.h"

#include <stdio.h>

const uint32_t fuzz_runs = 2000;

#define LAYERS_MAX 4 /* of graphs that are written: more are the same again, and cost time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    if (npugraph__checkpoint_parse((const char *)data, n, 1, &ck, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a config is refused without a sentence");
        return 0;
    }
    for (int prefill = 0; prefill < 2 && ck->layers <= LAYERS_MAX; prefill++)
        fuzz_demand(check_checkpoint_graph(ck, prefill),
                    "a family describes a checkpoint and then fails to write its graph");
    npugraph__checkpoint_free(ck);
    return 0;
}
