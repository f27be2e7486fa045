/* SPDX-License-Identifier: Apache-2.0 */
/* KV blocks: a stack of free block numbers, so that what was freed last, and is warm, is used first. */
#include "base/lock.h"
#include "base/mem.h"
#include "scheduler/kv.h"
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

struct ngd_kv {
    uint32_t total, block_size;
    struct ngd_mutex lock; /* rank KV */
    _Atomic uint32_t used; /* changed under lock */
    uint32_t n_free NGD_GUARDED_BY(lock);
    int32_t *free NGD_GUARDED_BY(lock);
    uint32_t *refs NGD_GUARDED_BY(lock); /* by block; 0 = free */
};

/* No other thread has the object yet, or any more. */
ngd_status_t ngd_kv_create(uint32_t num_blocks, uint32_t block_size, struct ngd_kv **kv_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_kv *kv;

    if (num_blocks < 1 || num_blocks > INT32_MAX || block_size < 1)
        return NGD_ERR_INVALID_ARGUMENT;
    kv = NGD_NEW(struct ngd_kv);
    if (!kv)
        return NGD_ERR_NO_MEMORY;
    kv->free = NGD_NEW_N(int32_t, num_blocks);
    kv->refs = NGD_NEW_N(uint32_t, num_blocks);
    if (!kv->free || !kv->refs) {
        ngd_free(kv->free);
        ngd_free(kv->refs);
        ngd_free(kv);
        return NGD_ERR_NO_MEMORY;
    }
    kv->total = kv->n_free = num_blocks;
    kv->block_size = block_size;
    for (uint32_t i = 0; i < num_blocks; i++)
        kv->free[i] = (int32_t)(num_blocks - 1 - i); /* block 0 first */
    ngd_mutex_init(&kv->lock, NGD_RANK_KV);
    *kv_p = kv;
    return NGD_OK;
}

void ngd_kv_destroy(struct ngd_kv *kv) NGD_NO_THREAD_SAFETY
{
    if (!kv)
        return;
    assert(kv->n_free == kv->total);
    ngd_mutex_fini(&kv->lock);
    ngd_free(kv->free);
    ngd_free(kv->refs);
    ngd_free(kv);
}

static void publish_used_locked(struct ngd_kv *kv) NGD_REQUIRES(kv->lock)
{
    atomic_store_explicit(&kv->used, kv->total - kv->n_free, memory_order_relaxed);
}

ngd_status_t ngd_kv_alloc(struct ngd_kv *kv, uint32_t n, int32_t *blocks, struct ngd_diag *diag)
{
    uint32_t n_free;

    ngd_mutex_lock(&kv->lock);
    n_free = kv->n_free;
    for (uint32_t i = 0; i < n && n <= n_free; i++) {
        blocks[i] = kv->free[--kv->n_free];
        kv->refs[blocks[i]] = 1;
    }
    publish_used_locked(kv);
    ngd_mutex_unlock(&kv->lock);
    if (n <= n_free)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_KV_EXHAUSTED,
                        "%" PRIu32 " KV blocks of %" PRIu32 " tokens are needed, %" PRIu32 " of %" PRIu32
                        " are free; close a sequence, or give the model more blocks",
                        n, kv->block_size, n_free, kv->total);
}

void ngd_kv_ref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    ngd_mutex_lock(&kv->lock);
    for (uint32_t i = 0; i < n; i++) {
        assert(kv->refs[blocks[i]] > 0);
        kv->refs[blocks[i]]++;
    }
    ngd_mutex_unlock(&kv->lock);
}

void ngd_kv_unref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    ngd_mutex_lock(&kv->lock);
    /* Backwards, so that the same number of blocks taken again are the same blocks in the same order. */
    for (uint32_t i = n; i-- > 0;) {
        assert(kv->refs[blocks[i]] > 0);
        if (--kv->refs[blocks[i]] == 0)
            kv->free[kv->n_free++] = blocks[i];
    }
    publish_used_locked(kv);
    ngd_mutex_unlock(&kv->lock);
}

uint32_t ngd_kv_used(const struct ngd_kv *kv)
{
    return atomic_load_explicit(&kv->used, memory_order_relaxed);
}

uint32_t ngd_kv_total(const struct ngd_kv *kv)
{
    return kv->total;
}

uint32_t ngd_kv_block_size(const struct ngd_kv *kv)
{
    return kv->block_size;
}
