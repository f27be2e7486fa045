/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a family of models, run for a small config.json. Whatever it says, the run ends, with a description or a
 * sentence; a graph's text is one that the daemon's parser takes, or refuses with a diagnosis.
 */
#include "tests/fuzz/checkpoint_graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const uint32_t fuzz_runs = 200;

static const char config[] =
    "{\"architectures\": [\"Fuzzed\"], \"vocab_size\": 40, \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 12, \"no_rope_layers\": [1, 0],"
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0}, \"bias\": true, \"name\": \"text\"}";

static char directory[64], path[128];

static void clean(void)
{
    unlink(path);
    rmdir(directory);
}

static void put_family(const uint8_t *data, size_t n)
{
    FILE *f;

    if (!directory[0]) {
        snprintf(directory, sizeof(directory), "/tmp/npugraph-fuzz-XXXXXX");
        fuzz_demand(mkdtemp(directory) != NULL, "no directory for the family");
        snprintf(path, sizeof(path), "%s/Fuzzed.lua", directory);
        setenv("NPUGRAPH_FAMILIES", directory, 1);
        atexit(clean);
    }
    f = fopen(path, "wb");
    fuzz_demand(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "the family cannot be written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};

    put_family(data, n);
    if (npugraph__checkpoint_parse(config, strlen(config), 1 + n % 2, &ck, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a family is refused without a sentence");
        return 0;
    }
    for (int prefill = 0; prefill < 2; prefill++)
        (void)check_checkpoint_graph(ck, prefill);
    npugraph__checkpoint_free(ck);
    return 0;
}
