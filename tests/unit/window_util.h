/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_WINDOW_UTIL_H
#define NGD_TESTS_WINDOW_UTIL_H

/*
 * The toy model with contexts of many windows. Blocks are filled with NaN when they are given to a sequence (fault
 * point kv-poison), so a row that reads what was not written, or what is another sequence's by now, has no number for a
 * result. A row that reads a block which was given back finds no block in its table, and fails.
 */
#define TOY_SIZES                                                                                              \
    TOY_BLOCK = 16, TOY_BLOCKS = 96, TOY_FEW = 12, TOY_CONTEXT = 400, TOY_CHUNK = 24, TOY_CHUNK_TOGETHER = 72, \
    TOY_BATCH = 4
#include "tests/unit/toy_model.h"
#include "base/fault.h"

static inline void window_bed(struct toy *t, uint32_t window, bool two, uint32_t blocks)
{
    toy_bed(t, 1);
    t->window = window;
    t->two = two;
    t->blocks = blocks;
    ngd_fault_arm(NGD_FAULT_KV_POISON, 0, UINT32_MAX);
}

static inline void window_open(struct toy *t, uint32_t window, bool two, uint32_t blocks)
{
    window_bed(t, window, two, blocks);
    toy_create(t);
}

static inline void window_close(struct toy *t)
{
    toy_close(t);
    ngd_fault_disarm_all();
}

static inline void window_text(int32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 8) % (TOY_VOCAB - 1);
}

/* Checks a token behind a context: no other one is better by more than the sums of f32 may differ. */
static inline void window_expect(const struct toy *t, const int32_t *context, uint32_t n, int32_t token)
{
    double logits[TOY_VOCAB];

    toy_logits(t, context, n, logits);
    ck_assert_int_ge(token, 0);
    for (int v = 0; v < TOY_VOCAB; v++)
        ck_assert_msg(logits[token] > logits[v] - 1e-4, "behind %u tokens: %d, but %d is better", n, token, v);
}

#endif
