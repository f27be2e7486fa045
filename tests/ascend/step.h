/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_ASCEND_STEP_H
#define NGD_TESTS_ASCEND_STEP_H

/* The graph that tests of the Ascend backend launch where no other one is needed, a launch of it, and its device. */
#include "tests/ascend/simulated.h"
#include <math.h>

/* Attention over a paged cache, so that there are host parameters; a product with workspace; a cast. */
#define BODY(symbol)                                                                                             \
    "npugraph 1\ngraph \"step\" {\n " symbol "\n param %w : bf16[32,32]\n state %k : bf16[4,16,1,16]\n"          \
    " state %v : bf16[4,16,1,16]\n input %x : f32[N,32]\n input %slots : i32[N]\n input %bt : i32[1,4]\n"        \
    " host %ql : i64[1]\n host %kl : i64[1]\n %y = aten.linear(%x, %w)\n %q = aten.view(%y) {size=[N, 2, 16]}\n" \
    " %h = aten.slice.Tensor(%x) {dim=1, start=0, end=16}\n %n = aten.view(%h) {size=[N, 1, 16]}\n"              \
    " npu.scatter_pa_kv_cache(%n, %n, %slots, %k, %v)\n"                                                         \
    " %a = npu.fused_infer_attention_score(%q, %k, %v, %bt, %ql, %kl) {num_heads=2, num_key_value_heads=1, "     \
    "scale=0.25, block_size=16}\n return \"a\" = %a\n}\n"
#define GRAPH  BODY("sym N 1..64")
#define PADDED BODY("sym N 1..64 buckets 4, 16, 64")

#define LIMIT_MS "2000"

static inline void params_of(struct ngd_device_params *params, uint32_t index)
{
    simulated_params(params, index, LIMIT_MS);
}

static inline ngd_status_t open_device(struct bench *b, uint32_t index, struct ngd_diag *diag)
{
    return simulated_open(b, index, LIMIT_MS, diag);
}

/* ---- a launch of GRAPH --------------------------------------------------------------------------- */

struct step {
    float x[64 * 32], y[64 * 32];
    int32_t slots[64], table[4];
    int64_t n, queries, keys;
    struct ngd_span in[3];
    struct ngd_host_value hosts[2];
    struct ngd_out out[1];
    struct ngd_launch launch;
};

static inline void step_init(struct step *s, int64_t n, int64_t keys)
{
    memset(s, 0, sizeof(*s));
    s->n = s->queries = n;
    s->keys = keys;
    for (int64_t i = 0; i < n * 32; i++)
        s->x[i] = sinf((float)i);
    for (int64_t i = 0; i < n; i++)
        s->slots[i] = (int32_t)(keys - n + i);
    for (int i = 0; i < 4; i++)
        s->table[i] = i;
    s->in[0] = (struct ngd_span){s->x, (uint64_t)n * 128};
    s->in[1] = (struct ngd_span){s->slots, (uint64_t)n * 4};
    s->in[2] = (struct ngd_span){s->table, sizeof(s->table)};
    s->hosts[0] = (struct ngd_host_value){&s->queries, 1};
    s->hosts[1] = (struct ngd_host_value){&s->keys, 1};
    s->out[0] = (struct ngd_out){s->y, sizeof(s->y)};
    s->launch = (struct ngd_launch){.symbols = &s->n, .inputs = s->in, .hosts = s->hosts, .outputs = s->out};
}

static inline ngd_status_t write_weight(struct ready *r)
{
    uint16_t w[32 * 32];

    for (int i = 0; i < 32 * 32; i++)
        w[i] = ngd_f32_to_bf16(cosf((float)i) / 8);
    return ngd_buffer_write(r->bound[0], 0, w, sizeof(w), NULL);
}

#endif
