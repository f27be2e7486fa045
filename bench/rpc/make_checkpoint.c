/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a random checkpoint in Hugging Face's layout, by default with the shape of Qwen3-0.6B. */
#include "bench/rpc/bench_rpc.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct bench_shape s = BENCH_SHAPE_QWEN3_0_6B;
    const char *out = NULL;
    bool untied = false;
    const struct bench_option options[] = {
        {"layers", &s.layers, NULL, NULL},     {"hidden", &s.hidden, NULL, NULL},
        {"heads", &s.heads, NULL, NULL},       {"kv-heads", &s.kv_heads, NULL, NULL},
        {"head-dim", &s.head_dim, NULL, NULL}, {"ffn", &s.ffn, NULL, NULL},
        {"vocab", &s.vocab, NULL, NULL},       {"tied", NULL, NULL, &s.tied},
        {"untied", NULL, NULL, &untied},       {"out", NULL, &out, NULL},
    };

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (out == NULL)
        bench_fail("--out DIR is required");
    s.tied = s.tied && !untied;
    bench_checkpoint_write(out, &s);
    printf("%s: a decode step reads %.1f MB of weights\n", out, (double)bench_decode_bytes(&s) / 1e6);
    return 0;
}
