/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_SAMPLE_H
#define NGD_DEVICES_SAMPLE_H

/*
 * Chooses a token from a row of logits on the CPU, by the rule of npu.top_k_top_p_sample (host/kernels/k_sample.c) and
 * with the same bits, whatever device made the logits. It has min_p and typical_p too, which the operator has not.
 *
 * Threads: any. Memory: the caller's; nothing is allocated.
 */
#include <stdint.h>

struct ngd_sample_choice {
    float temperature, top_p;
    float min_p, typical_p; /* 0 = off */
    int32_t top_k;
    int64_t seed, offset;
};

/* Returns the bytes of scratch, 64-byte aligned, that a choice among so many tokens needs. */
uint64_t ngd_sample_scratch(uint32_t vocab);
/* Returns the token, or -1 if all logits are -inf. Overwrites the logits. */
int32_t ngd_sample_choose(float *logits, uint32_t vocab, const struct ngd_sample_choice *choice, char *scratch);

#endif
