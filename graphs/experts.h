/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_EXPERTS_H
#define NGD_GRAPHS_EXPERTS_H

/* The operands of npu.grouped_matmul: x, group_list, and lists of n tensors each: weights, biases, scales, offsets. */
#include <stdbool.h>
#include <stdint.h>

#define NGD_EXPERTS_FIRST 2 /* the first weight */

struct ngd_expert_lists {
    uint32_t n;                   /* tensors of a list */
    uint32_t bias, scale, offset; /* the first operand of a list; 0: there is none */
};

/* n is 0 if the operands do not make lists of one length. */
static inline struct ngd_expert_lists ngd_expert_lists(uint32_t n_in, bool bias, bool scale, bool offset)
{
    const uint32_t lists = 1u + bias + scale + offset, n = n_in < NGD_EXPERTS_FIRST ? 0 : n_in - NGD_EXPERTS_FIRST;
    struct ngd_expert_lists l = {.n = n % lists == 0 ? n / lists : 0};

    l.bias = bias ? NGD_EXPERTS_FIRST + l.n : 0;
    l.scale = scale ? NGD_EXPERTS_FIRST + l.n * (1u + bias) : 0;
    l.offset = offset ? NGD_EXPERTS_FIRST + l.n * (1u + bias + scale) : 0;
    return l;
}

#endif
