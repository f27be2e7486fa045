/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks. There is a stack of free block numbers, so that the block that was freed last, and is warm in the cache,
 * is used first; a hash table of named blocks; and a list of named blocks without references.
 */
#include "scheduler/model/kv.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

struct block {
    uint32_t refs;   /* 0 = free, or cached under its name */
    uint32_t leaves; /* references that are assumed to be released */
    bool named;
    int32_t next;         /* next in its chain of the hash table; -1: none */
    struct ngd_list link; /* in `kept`, if named and without references */
    struct ngd_digest name;
};

struct ngd_kv {
    uint32_t total, block_size;
    struct ngd_mutex lock;         /* rank KV */
    _Atomic uint32_t used, cached; /* changed under lock */
    uint32_t n_chains;             /* a power of two */
    uint32_t n_free NGD_GUARDED_BY(lock);
    int32_t *free NGD_GUARDED_BY(lock);
    struct block *blocks NGD_GUARDED_BY(lock);
    struct ngd_list kept NGD_GUARDED_BY(lock); /* least recently released first */
    int32_t *chains NGD_GUARDED_BY(lock);
    int32_t *tokens NGD_GUARDED_BY(lock); /* block_size of each block; set for named ones */
};

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;

    while (p < n && p < 1u << 30)
        p *= 2;
    return p;
}

/* Requires that no other thread uses the object. */
static ngd_status_t kv_allocate(struct ngd_kv *kv) NGD_NO_THREAD_SAFETY
{
    kv->n_chains = power_of_two(kv->total);
    kv->free = NGD_NEW_N(int32_t, kv->total);
    kv->blocks = NGD_NEW_N(struct block, kv->total);
    kv->chains = NGD_NEW_N(int32_t, kv->n_chains);
    kv->tokens = ngd_calloc(kv->total, (size_t)kv->block_size * sizeof(int32_t));
    return kv->free && kv->blocks && kv->chains && kv->tokens ? NGD_OK : NGD_ERR_NO_MEMORY;
}

uint64_t ngd_kv_host_bytes(uint32_t num_blocks, uint32_t block_size)
{
    return sizeof(struct ngd_kv) + power_of_two(num_blocks) * sizeof(int32_t) +
           num_blocks * (sizeof(int32_t) + sizeof(struct block) + (uint64_t)block_size * sizeof(int32_t));
}

static void kv_free(struct ngd_kv *kv) NGD_NO_THREAD_SAFETY
{
    ngd_free(kv->free);
    ngd_free(kv->blocks);
    ngd_free(kv->chains);
    ngd_free(kv->tokens);
    ngd_free(kv);
}

ngd_status_t ngd_kv_create(uint32_t num_blocks, uint32_t block_size, struct ngd_kv **kv_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_kv *kv;

    if (num_blocks < 1 || num_blocks > INT32_MAX || block_size < 1)
        return NGD_ERR_INVALID_ARGUMENT;
    kv = NGD_NEW(struct ngd_kv);
    if (!kv)
        return NGD_ERR_NO_MEMORY;
    kv->total = kv->n_free = num_blocks;
    kv->block_size = block_size;
    if (kv_allocate(kv)) {
        kv_free(kv);
        return NGD_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < num_blocks; i++) {
        kv->free[i] = (int32_t)(num_blocks - 1 - i); /* block 0 first */
        ngd_list_init(&kv->blocks[i].link);
    }
    for (uint32_t i = 0; i < kv->n_chains; i++)
        kv->chains[i] = -1;
    ngd_list_init(&kv->kept);
    ngd_mutex_init(&kv->lock, NGD_RANK_KV);
    *kv_p = kv;
    return NGD_OK;
}

void ngd_kv_destroy(struct ngd_kv *kv) NGD_NO_THREAD_SAFETY
{
    if (!kv)
        return;
    assert(kv->n_free + kv->cached == kv->total);
    ngd_mutex_fini(&kv->lock);
    kv_free(kv);
}

void ngd_kv_set_first_aside(struct ngd_kv *kv)
{
    ngd_mutex_lock(&kv->lock);
    assert(kv->n_free > 0 && kv->free[kv->n_free - 1] == 0);
    kv->n_free--;
    kv->total--;
    ngd_mutex_unlock(&kv->lock);
}

/* ---- names -------------------------------------------------------------------------------------------- */

static int32_t *chain_of_name(struct ngd_kv *kv, const struct ngd_digest *name) NGD_REQUIRES(kv->lock)
{
    uint32_t h;

    memcpy(&h, name->b, sizeof(h));
    return &kv->chains[h & (kv->n_chains - 1)];
}

static int32_t find_block_locked(struct ngd_kv *kv, const struct ngd_digest *name) NGD_REQUIRES(kv->lock)
{
    int32_t i = *chain_of_name(kv, name);

    while (i >= 0 && !ngd_digest_equal(&kv->blocks[i].name, name))
        i = kv->blocks[i].next;
    return i;
}

static void unname_locked(struct ngd_kv *kv, int32_t i) NGD_REQUIRES(kv->lock)
{
    int32_t *at = chain_of_name(kv, &kv->blocks[i].name);

    while (*at != i)
        at = &kv->blocks[*at].next;
    *at = kv->blocks[i].next;
    kv->blocks[i].named = false;
}

void ngd_kv_name(const struct ngd_kv *kv, const struct ngd_digest *before, const int32_t *tokens, uint32_t way,
                 struct ngd_digest *name_p)
{
    struct {
        struct ngd_digest before, tokens;
        uint32_t way;
    } text = {.way = way};

    if (before)
        text.before = *before;
    ngd_digest_of(tokens, kv->block_size * sizeof(*tokens), &text.tokens);
    ngd_digest_of(&text, sizeof(text), name_p);
}

void ngd_kv_publish(struct ngd_kv *kv, int32_t block, const struct ngd_digest *name, const int32_t *tokens)
{
    struct block *b;
    int32_t *chain;

    ngd_mutex_lock(&kv->lock);
    b = &kv->blocks[block];
    assert(b->refs > 0);
    if (!b->named && find_block_locked(kv, name) < 0) {
        b->name = *name;
        b->named = true;
        chain = chain_of_name(kv, name);
        b->next = *chain;
        *chain = block;
        memcpy(kv->tokens + (size_t)block * kv->block_size, tokens, kv->block_size * sizeof(*tokens));
    }
    ngd_mutex_unlock(&kv->lock);
}

int32_t ngd_kv_find(struct ngd_kv *kv, const struct ngd_digest *name, const int32_t *tokens)
{
    int32_t i;

    ngd_mutex_lock(&kv->lock);
    i = find_block_locked(kv, name);
    if (i >= 0 && memcmp(kv->tokens + (size_t)i * kv->block_size, tokens, kv->block_size * sizeof(*tokens)) != 0)
        i = -1;
    ngd_mutex_unlock(&kv->lock);
    return i;
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

static int32_t take_block_locked(struct ngd_kv *kv) NGD_REQUIRES(kv->lock)
{
    int32_t i;

    if (kv->n_free > 0) {
        i = kv->free[--kv->n_free];
    } else {
        i = (int32_t)(ngd_container_of(ngd_list_pop_front(&kv->kept), struct block, link) - kv->blocks);
        unname_locked(kv, i);
        atomic_fetch_sub_explicit(&kv->cached, 1, memory_order_relaxed);
    }
    kv->blocks[i].refs = 1;
    atomic_fetch_add_explicit(&kv->used, 1, memory_order_relaxed);
    return i;
}

static ngd_status_t check_free(const struct ngd_kv *kv, uint32_t n, uint32_t n_free, struct ngd_diag *diag)
{
    if (n <= n_free)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_KV_EXHAUSTED,
                        "%" PRIu32 " KV blocks of %" PRIu32 " tokens are needed, but %" PRIu32 " of %" PRIu32
                        " are free; close a sequence, or give the model more blocks",
                        n, kv->block_size, n_free, kv->total);
}

ngd_status_t ngd_kv_alloc(struct ngd_kv *kv, uint32_t n, int32_t *blocks, struct ngd_diag *diag)
{
    uint32_t n_free;

    ngd_mutex_lock(&kv->lock);
    n_free = kv->n_free + kv->cached;
    for (uint32_t i = 0; i < n && n <= n_free; i++)
        blocks[i] = take_block_locked(kv);
    ngd_mutex_unlock(&kv->lock);
    return check_free(kv, n, n_free, diag);
}

ngd_status_t ngd_kv_check(struct ngd_kv *kv, uint32_t n, struct ngd_diag *diag)
{
    uint32_t n_free;

    ngd_mutex_lock(&kv->lock);
    n_free = kv->n_free + kv->cached;
    ngd_mutex_unlock(&kv->lock);
    return check_free(kv, n, n_free, diag);
}

void ngd_kv_ref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    ngd_mutex_lock(&kv->lock);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = &kv->blocks[blocks[i]];

        assert(b->refs > 0 || b->named);
        if (b->refs++ > 0)
            continue;
        ngd_list_remove(&b->link);
        atomic_fetch_sub_explicit(&kv->cached, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&kv->used, 1, memory_order_relaxed);
    }
    ngd_mutex_unlock(&kv->lock);
}

static void let_go_locked(struct ngd_kv *kv, int32_t i) NGD_REQUIRES(kv->lock)
{
    struct block *b = &kv->blocks[i];

    atomic_fetch_sub_explicit(&kv->used, 1, memory_order_relaxed);
    if (b->named) {
        ngd_list_push_back(&kv->kept, &b->link);
        atomic_fetch_add_explicit(&kv->cached, 1, memory_order_relaxed);
    } else {
        kv->free[kv->n_free++] = i;
    }
}

void ngd_kv_unref(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    ngd_mutex_lock(&kv->lock);
    /*
     * Backwards, so that the next allocation of as many blocks gets the same blocks in the same order. Of named blocks
     * the end of a sequence is reused before its beginning, without which the end could not be found.
     */
    for (uint32_t i = n; i-- > 0;) {
        assert(kv->blocks[blocks[i]].refs > 0);
        if (--kv->blocks[blocks[i]].refs == 0)
            let_go_locked(kv, blocks[i]);
    }
    ngd_mutex_unlock(&kv->lock);
}

uint32_t ngd_kv_assume_released(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    uint32_t gain = 0;

    ngd_mutex_lock(&kv->lock);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = &kv->blocks[blocks[i]];

        assert(b->leaves < b->refs);
        gain += ++b->leaves == b->refs;
    }
    ngd_mutex_unlock(&kv->lock);
    return gain;
}

uint32_t ngd_kv_unassume(struct ngd_kv *kv, const int32_t *blocks, uint32_t n)
{
    uint32_t loss = 0;

    ngd_mutex_lock(&kv->lock);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = &kv->blocks[blocks[i]];

        assert(b->leaves > 0);
        loss += b->leaves-- == b->refs;
    }
    ngd_mutex_unlock(&kv->lock);
    return loss;
}

uint32_t ngd_kv_used(const struct ngd_kv *kv)
{
    return atomic_load_explicit(&kv->used, memory_order_relaxed);
}

uint32_t ngd_kv_cached(const struct ngd_kv *kv)
{
    return atomic_load_explicit(&kv->cached, memory_order_relaxed);
}

uint32_t ngd_kv_total(const struct ngd_kv *kv)
{
    return kv->total;
}

uint32_t ngd_kv_block_size(const struct ngd_kv *kv)
{
    return kv->block_size;
}
