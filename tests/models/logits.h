/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_LOGITS_H
#define NGD_TESTS_LOGITS_H

/* Distributions of the next token, as logits. */
#include <stddef.h>

/* Returns the logarithm of the sum of the exponentials. */
double logits_log_sum(const float *x, size_t n);
/* Returns the Kullback-Leibler divergence of `got` from `want`. */
double logits_divergence(const float *want, const float *got, size_t n);

#endif
