/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_EXPERTS_H
#define NGD_GRAPHS_EXPERTS_H

/* The operands of npu.grouped_matmul: x, group_list, and lists of n tensors each: weights, biases, and those of
 * graphs/antiquant.h in its order. */
#include "graphs/antiquant.h"
#include <stdbool.h>

#define NGD_EXPERTS_FIRST 2 /* the first weight */

struct ngd_expert_lists {
    uint32_t n, lists;                        /* tensors of a list; lists */
    uint32_t bias, antiquant[NGD_ANTIQUANTS]; /* the first operand of a list; 0: there is none */
};

/* antiquant: bits NGD_ANTIQUANT_BIT. n is 0 if the operands do not make lists of one length. */
static inline struct ngd_expert_lists ngd_expert_lists(uint32_t n_in, bool bias, uint32_t antiquant)
{
    const uint32_t n = n_in < NGD_EXPERTS_FIRST ? 0 : n_in - NGD_EXPERTS_FIRST;
    struct ngd_expert_lists l = {.lists = 1u + bias};

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        l.lists += antiquant >> i & 1;
    l.n = n % l.lists == 0 ? n / l.lists : 0;
    l.bias = bias ? NGD_EXPERTS_FIRST + l.n : 0;
    for (uint32_t i = 0, list = 1u + bias; i < NGD_ANTIQUANTS; i++)
        if (antiquant >> i & 1)
            l.antiquant[i] = NGD_EXPERTS_FIRST + l.n * list++;
    return l;
}

#endif
