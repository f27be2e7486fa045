/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_KV_H
#define NGD_SCHEDULER_KV_H

/*
 * Paged KV blocks of one model: a free list of block numbers with reference counts (sharing comes with prefixes).
 * Block numbers index dimension 0 of every kv state. Threads: any (rank KV). Bounds: num_blocks.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_kv;

ngd_status_t ngd_kv_create(uint32_t num_blocks, uint32_t block_size, struct ngd_kv **kv_p);
void ngd_kv_destroy(struct ngd_kv *kv);
/* All n or none: NGD_ERR_KV_EXHAUSTED names need, free and total. */
ngd_status_t ngd_kv_alloc(struct ngd_kv *kv, uint32_t n, int32_t *blocks, struct ngd_diag *diag);
void ngd_kv_ref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
void ngd_kv_unref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n);
uint32_t ngd_kv_used(const struct ngd_kv *kv);
uint32_t ngd_kv_total(const struct ngd_kv *kv);
uint32_t ngd_kv_block_size(const struct ngd_kv *kv);

#endif
