/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_STEP_GRAPH_H
#define NGD_BENCH_STEP_GRAPH_H

/*
 * The text of a decode step of one row in which launches dominate: small layers (hidden 64, 4 heads of 16 over 2, MLP
 * of 128) with norms of queries and keys, f32 activations, bf16 weights, and a paged KV cache. Both forms compute the
 * same bits.
 *
 * Inputs: token, position and slot, i32[1]; block table, i32[1, BENCH_STEP_BLOCKS]. Host values: rows, context.
 * Outputs: the next token, i64[1]; logits, f32[1, BENCH_STEP_VOCAB].
 */
#include "base/strbuf.h"

enum { BENCH_STEP_VOCAB = 512, BENCH_STEP_BLOCKS = 4 };

typedef enum bench_form {
    BENCH_OPERATORS,   /* with npu.rms_norm and npu.rotary_mul */
    BENCH_WRITTEN_OUT, /* norms and rotations in elementwise operators, as PyTorch traces models that spell them out */
} bench_form_t;

void bench_step_graph(struct ngd_strbuf *sb, int layers, bench_form_t form);

#endif
