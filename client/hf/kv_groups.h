/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_KV_GROUPS_H
#define NPUGRAPH_KV_GROUPS_H

/*
 * Which layers share a block table. Layers with a window need few blocks, those without one all of them, so they have
 * tables of their own. All groups take blocks of one pool, which therefore have the same size: groups have equal
 * numbers of layers. A group that has fewer leaves a part of its blocks unused.
 */
#include "client/hf/checkpoint.h"

/*
 * Chooses the groups with which a context of max_context tokens holds the least memory. rows: most of a replay. All
 * layers are one group if that is as good, or if a layer's cache differs from the others' or names no table.
 */
void npugraph__groups_choose(const struct npugraph__checkpoint *ck, uint32_t max_context, uint32_t rows,
                             struct npugraph__groups *groups_p);
/* Finds the group of cache i, and which pair of states it uses. */
void npugraph__groups_place(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape, size_t i,
                            uint32_t *group_p, size_t *state_p);
/* Returns how many pairs of states there are. */
size_t npugraph__kv_states(const struct npugraph__checkpoint *ck, const struct npugraph__groups *groups);
/* Returns the blocks that a context of `tokens` holds at most, as the daemon counts them. */
uint64_t npugraph__groups_blocks(const struct npugraph__groups *groups, uint32_t block_size, uint32_t rows,
                                 uint64_t tokens);
/* Returns the longest context, of at most max_context tokens, that holds no more than so many blocks. */
uint32_t npugraph__groups_context(const struct npugraph__groups *groups, uint32_t block_size, uint32_t rows,
                                  uint64_t blocks, uint32_t max_context);

#endif
