/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_KV_H
#define NGD_SCHEDULER_MODEL_KV_H

/*
 * Paged KV blocks of one model: reference counts, a free list, and names. Block numbers index dimension 0 of every kv
 * state.
 *
 * A block that is full and computed may get a name: a digest of all tokens from the beginning of its sequence to its
 * own end. A sequence with the same tokens finds the block by that name (its tokens are compared too) and shares it. A
 * named block without references stays in a cache; it is reused only when no other block is free, least recently
 * released first. Named blocks are read only. Threads: any (rank KV). Bounds: num_blocks.
 */
#include "base/digest.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_kv;

ngd_status_t ngd_kv_create(uint32_t num_blocks, uint32_t block_size, struct ngd_kv **kv_p);
uint64_t ngd_kv_host_bytes(uint32_t num_blocks, uint32_t block_size); /* host memory of such an allocator */
void ngd_kv_destroy(struct ngd_kv *kv);
/* Gives block 0 to nobody, for good: it counts neither as free nor in the total. Before any other call. */
void ngd_kv_set_first_aside(struct ngd_kv *kv);
/* Allocates n blocks or none; the message of NGD_ERR_KV_EXHAUSTED has need, free and total. */
ngd_status_t ngd_kv_alloc(struct ngd_kv *kv, uint32_t n, int32_t *blocks, struct ngd_diag *diag);
/* Returns what ngd_kv_alloc of n blocks would, and allocates none. */
ngd_status_t ngd_kv_check(struct ngd_kv *kv, uint32_t n, struct ngd_diag *diag);
/* Adds a reference to each block. Each has one, or is named. */
void ngd_kv_ref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
void ngd_kv_unref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
/*
 * assume_released pretends that one reference to each of these blocks is given up, and returns how many blocks would
 * become free by it, in addition to earlier assumptions. unassume takes that back and returns how many blocks would
 * stay in use after all. Take all assumptions back before any other call.
 */
uint32_t ngd_kv_assume_released(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
uint32_t ngd_kv_unassume(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
uint32_t ngd_kv_used(const struct ngd_kv *kv);   /* blocks with references */
uint32_t ngd_kv_cached(const struct ngd_kv *kv); /* named blocks without references: free, but still found by name */
uint32_t ngd_kv_total(const struct ngd_kv *kv);
uint32_t ngd_kv_block_size(const struct ngd_kv *kv);

/*
 * Makes the name of a block with these block_size tokens that follows the block named *before (NULL: it is the first).
 * `way` tells how it was computed: blocks whose bits may differ get different names.
 */
void ngd_kv_name(const struct ngd_kv *kv, const struct ngd_digest *before, const int32_t *tokens, uint32_t way,
                 struct ngd_digest *name_p);
/* Names a block that the caller references and will not write again. It stays unnamed if another block has the name. */
void ngd_kv_publish(struct ngd_kv *kv, int32_t block, const struct ngd_digest *name, const int32_t *tokens);
/* Returns the block of that name and tokens, or -1. It stays only if ngd_kv_ref follows before the next ngd_kv_alloc.
 */
int32_t ngd_kv_find(struct ngd_kv *kv, const struct ngd_digest *name, const int32_t *tokens);

#endif
