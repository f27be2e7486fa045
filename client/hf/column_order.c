/* SPDX-License-Identifier: Apache-2.0 */
#include "client/hf/column_order.h"

#include <stdbool.h>
#include <string.h>

/* Says that the file names no groups: all elements are -1 (compressed-tensors) or 0 (some programs for GPTQ). */
static bool has_no_groups(const int32_t *index, size_t n)
{
    size_t i = 0;

    while (i < n && index[i] == index[0] && (index[0] == -1 || index[0] == 0))
        i++;
    return i == n;
}

enum npugraph__order npugraph__column_order(const int32_t *index, size_t n, size_t group, int32_t *order, size_t *at_p)
{
    int32_t *counts = order + n;
    bool same = true;

    if (has_no_groups(index, n))
        return NPUGRAPH__ORDER_SAME;
    memset(counts, 0, n / group * sizeof(*counts));
    for (size_t i = 0; i < n; i++) {
        const size_t g = (size_t)index[i]; /* a negative one is too large */

        if (g >= n / group || (size_t)counts[g] == group) {
            *at_p = i;
            return NPUGRAPH__ORDER_WRONG;
        }
        same = same && g * group + (size_t)counts[g] == i;
        order[g * group + (size_t)counts[g]++] = (int32_t)i;
    }
    return same ? NPUGRAPH__ORDER_SAME : NPUGRAPH__ORDER_OTHER;
}
