/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/logits.h"

#include <math.h>

double logits_log_sum(const float *x, size_t n)
{
    double most = -INFINITY, sum = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, (double)x[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

double logits_divergence(const float *want, const float *got, size_t n)
{
    const double a = logits_log_sum(want, n), b = logits_log_sum(got, n);
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += exp((double)want[i] - a) * ((double)want[i] - a - ((double)got[i] - b));
    return sum;
}
