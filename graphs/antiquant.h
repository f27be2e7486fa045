/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_ANTIQUANT_H
#define NGD_GRAPHS_ANTIQUANT_H

/*
 * Tensors that turn the numbers of a quantised weight into its values, for npu.weight_quant_batchmatmul and, in lists,
 * for npu.grouped_matmul:
 *
 *      (number + zero + offset) * scale * block_scale + minimum * block_minimum
 *
 * CANN's operators have scales and offsets alone. The rest is what GGUF files have.
 */
#include <stdint.h>

typedef enum ngd_antiquant {
    NGD_ANTIQUANT_SCALE,
    NGD_ANTIQUANT_OFFSET,
    NGD_ANTIQUANT_BLOCK_SCALE, /* the scale is i8 then */
    NGD_ANTIQUANT_MINIMUM,
    NGD_ANTIQUANT_BLOCK_MINIMUM, /* the minimum is i8 then */
    NGD_ANTIQUANTS
} ngd_antiquant_t;

/* Their operands of npu.weight_quant_batchmatmul, and attributes of npu.grouped_matmul. */
static const struct ngd_antiquant_name {
    uint8_t operand;
    const char *name;
} ngd_antiquant_names[NGD_ANTIQUANTS] = {
    [NGD_ANTIQUANT_SCALE] = {2, "antiquant_scale"},
    [NGD_ANTIQUANT_OFFSET] = {3, "antiquant_offset"},
    [NGD_ANTIQUANT_BLOCK_SCALE] = {7, "antiquant_block_scale"},
    [NGD_ANTIQUANT_MINIMUM] = {8, "antiquant_minimum"},
    [NGD_ANTIQUANT_BLOCK_MINIMUM] = {9, "antiquant_block_minimum"},
};

#define NGD_ANTIQUANT_BIT(what) (1u << (what))

#endif
