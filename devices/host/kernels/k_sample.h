/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_SAMPLE_H
#define NGD_DEVICES_HOST_KERNELS_K_SAMPLE_H

/* Vector passes over a row of logits, by dtype, and the random numbers of the sampler. */
#include "devices/host/kernels/by_isa.h"

struct ngd_sample_table {
    /* Returns the largest of n elements, -inf if there are none. *nan_p tells whether one is NaN; the result is
     * undefined then. */
    float (*max[3])(const void *x, int64_t n, bool *nan_p);
    /* Returns the sum of exp((x - max) * scale) over n elements. Stores the terms in p unless it is NULL. */
    float (*exp_sum[3])(const void *x, int64_t n, float max, float scale, float *p);
};
NGD_ISA_TABLES(struct ngd_sample_table, ngd_sample_table);

/* Philox4x32 with 10 rounds (Salmon et al., 2011; Random123). */
void ngd_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Returns a row's random number in [0, 1): word 0 of Philox at key = seed, counter = (offset, 0), low half first, as a
 * fraction. */
double ngd_sample_draw(int64_t seed, int64_t offset);

#endif
