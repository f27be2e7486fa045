/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_COLUMN_ORDER_H
#define NPUGRAPH_COLUMN_ORDER_H

/*
 * Act-order: a quantiser went through the columns of a weight by their importance, and columns that share a scale do
 * not lie side by side. A tensor of the checkpoint says which group each column is in. Pure.
 */
#include <stddef.h>
#include <stdint.h>

enum npugraph__order { NPUGRAPH__ORDER_SAME, NPUGRAPH__ORDER_OTHER, NPUGRAPH__ORDER_WRONG };

/*
 * index: the group of each of n columns; groups have `group` columns each, which divides n. Gives the columns by their
 * groups, those of a group in the order of the weight. SAME: that is the order that they have, or index names no groups
 * (all -1 or all 0). WRONG: *at_p is the first column that is in no group, or in one that is full.
 * order: has n elements, and room for one more for each group.
 */
enum npugraph__order npugraph__column_order(const int32_t *index, size_t n, size_t group, int32_t *order, size_t *at_p);

#endif
