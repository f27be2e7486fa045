/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_KV_H
#define NGD_SCHEDULER_MODEL_KV_H

/*
 * Paged KV blocks of one model: reference counts, a free list, and names. Block numbers index dimension 0 of every kv
 * state.
 *
 * A block that is full and computed may be given a name: a digest of all tokens from the beginning of its sequence to
 * its own end. Who needs the same tokens finds it by that name (and its tokens are compared), and shares it. A named
 * block that nobody uses any more is kept, and taken for new tokens only when no other is free, the one that was let go
 * longest ago first. Nobody writes to a named block.
 * Threads: any (rank KV). Bounds: num_blocks.
 */
#include "base/digest.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_kv;

ngd_status_t ngd_kv_create(uint32_t num_blocks, uint32_t block_size, struct ngd_kv **kv_p);
uint64_t ngd_kv_host_bytes(uint32_t num_blocks, uint32_t block_size); /* of such a one */
void ngd_kv_destroy(struct ngd_kv *kv);
/* All n or none: NGD_ERR_KV_EXHAUSTED names need, free and total. */
ngd_status_t ngd_kv_alloc(struct ngd_kv *kv, uint32_t n, int32_t *blocks, struct ngd_diag *diag);
void ngd_kv_ref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
void ngd_kv_unref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
/*
 * Supposes that one more reference to each of these were given up: how many of them would become free by that, beside
 * those that do by what is supposed already. suppose_not takes that back, before anything else is done: how many of
 * them would not become free after all.
 */
uint32_t ngd_kv_suppose(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
uint32_t ngd_kv_suppose_not(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
uint32_t ngd_kv_used(const struct ngd_kv *kv);   /* that somebody holds */
uint32_t ngd_kv_cached(const struct ngd_kv *kv); /* that have a name and nobody holds: free, but not forgotten */
uint32_t ngd_kv_total(const struct ngd_kv *kv);
uint32_t ngd_kv_block_size(const struct ngd_kv *kv);

/*
 * The name of a block with these block_size tokens, behind the block named *before (NULL: it is the first). Blocks
 * that were computed in ways (`way`) whose bits differ have different names.
 */
void ngd_kv_name(const struct ngd_kv *kv, const struct ngd_digest *before, const int32_t *tokens, uint32_t way,
                 struct ngd_digest *name_p);
/* Names a block that the caller holds and will not write to again. If another block has the name, this one gets none.
 */
void ngd_kv_publish(struct ngd_kv *kv, int32_t block, const struct ngd_digest *name, const int32_t *tokens);
/* The block of that name, with a reference for the caller; -1: there is none. */
int32_t ngd_kv_find(struct ngd_kv *kv, const struct ngd_digest *name, const int32_t *tokens);

#endif
