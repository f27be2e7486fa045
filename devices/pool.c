/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: scratch memory shared by executables that never run at the same time.
 *
 * A pool grows to the largest need of its instances and keeps no data between launches. If the backend has memory that
 * grows in place (info.pool_page), the pool is extended: addresses and captures stay valid, and if the extension fails,
 * the pool stays as it was. Small pools, and pools of other backends, are replaced: the old memory is freed first, so
 * that the peak is the new size and not the sum. A new generation tells instances that their addresses moved; they
 * rebind before their next launch. If the new memory cannot be allocated, such a pool is left empty, and a later launch
 * tries again.
 */
#include "base/mem.h"
#include "devices/device_int.h"
#include <assert.h>
#include <string.h>

ngd_status_t ngd_pool_create(struct ngd_device *dev, const char *name, struct ngd_pool **pool_p)
{
    size_t n = strlen(name) + 1;
    struct ngd_pool *pool = ngd_calloc(1, sizeof(*pool) + n);

    if (!pool)
        return NGD_ERR_NO_MEMORY;
    memcpy(pool->name, name, n);
    pool->dev = dev;
    pool->holder.label = pool->name;
    pool->holder.kind = NGD_BUFFER_POOL;
    ngd_list_init(&pool->holder.link);
    ngd_mutex_init(&pool->lock, NGD_RANK_POOL);
    ngd_cond_init(&pool->grown);
    atomic_init(&pool->generation, 1);
    *pool_p = pool;
    return NGD_OK;
}

static void drop_memory(struct ngd_pool *pool, uint64_t bytes)
{
    if (pool->mem)
        pool->dev->backend->memory.free(pool->dev->handle, pool->mem, bytes);
    pool->mem = NULL;
    pool->in_place = false;
    atomic_store(&pool->bytes, 0);
    atomic_fetch_add(&pool->generation, 1);
}

void ngd_pool_destroy(struct ngd_pool *pool)
{
    uint64_t bytes;

    if (!pool)
        return;
    bytes = atomic_load(&pool->bytes);
    drop_memory(pool, bytes);
    if (bytes)
        ngd_device_release(pool->dev, &pool->holder, bytes);
    ngd_charge_end(&pool->charge);
    ngd_cond_fini(&pool->grown);
    ngd_mutex_fini(&pool->lock);
    ngd_free(pool);
}

void ngd_pool_set_payer(struct ngd_pool *pool, struct ngd_payer *payer)
{
    ngd_charge_end(&pool->charge);
    (void)ngd_charge_begin(&pool->charge, payer, 0, NULL);
}

uint64_t ngd_pool_bytes(const struct ngd_pool *pool)
{
    return atomic_load(&pool->bytes);
}

static bool may_grow(const struct ngd_device *dev, uint64_t bytes)
{
    return dev->info.pool_page && bytes >= dev->info.pool_page;
}

/* Returns the size of a pool with this need; UINT64_MAX if the rounded size overflows. */
static uint64_t size_for(const struct ngd_device *dev, uint64_t need)
{
    uint64_t bytes = ngd_device_rounded(need), page = dev->info.pool_page;

    if (!may_grow(dev, bytes) || bytes % page == 0)
        return bytes;
    return bytes > UINT64_MAX - page ? UINT64_MAX : bytes + (page - bytes % page);
}

/* Allocates memory for a pool that has none. `bytes` are reserved in the budget already. */
static ngd_status_t first_memory(struct ngd_pool *pool, uint64_t bytes, void **mem_p, struct ngd_diag *diag)
{
    struct ngd_device *dev = pool->dev;
    ngd_status_t status = NGD_ERR_UNAVAILABLE;

    if (may_grow(dev, bytes))
        status = dev->backend->memory.grow(dev->handle, mem_p, 0, bytes, diag);
    pool->in_place = status == NGD_OK;
    return status == NGD_ERR_UNAVAILABLE ? dev->backend->memory.alloc(dev->handle, bytes, mem_p, diag) : status;
}

/* extend_memory and replace_memory are called by the one thread that set `growing`. */
static ngd_status_t extend_memory(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag)
{
    struct ngd_device *dev = pool->dev;
    uint64_t old = atomic_load(&pool->bytes);
    ngd_status_t status = ngd_device_reserve(dev, &pool->holder, bytes - old, diag);

    if (status)
        return status;
    status = dev->backend->memory.grow(dev->handle, &pool->mem, old, bytes, diag);
    if (status) {
        ngd_diag_prefix(diag, "pool \"%.200s\": ", pool->name);
        ngd_device_release(dev, &pool->holder, bytes - old);
        return status;
    }
    atomic_store(&pool->bytes, bytes);
    return NGD_OK;
}

static ngd_status_t replace_memory(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag)
{
    struct ngd_device *dev = pool->dev;
    uint64_t old = atomic_load(&pool->bytes);
    ngd_status_t status = ngd_device_reserve(dev, &pool->holder, bytes - old, diag);
    void *mem = NULL;

    if (status)
        return status;
    drop_memory(pool, old);
    status = first_memory(pool, bytes, &mem, diag);
    if (status) {
        ngd_diag_prefix(diag, "pool \"%.200s\": ", pool->name);
        ngd_device_release(dev, &pool->holder, bytes);
        return status;
    }
    pool->mem = mem;
    atomic_store(&pool->bytes, bytes);
    atomic_fetch_add(&pool->generation, 1);
    return NGD_OK;
}

ngd_status_t ngd_pool_ensure(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag)
{
    uint64_t size = size_for(pool->dev, bytes);
    uint64_t old, had;
    ngd_status_t status = NGD_OK;
    bool grow;

    ngd_mutex_lock(&pool->lock);
    while (pool->growing)
        ngd_cond_wait(&pool->grown, &pool->lock);
    grow = pool->growing = atomic_load(&pool->bytes) < size;
    ngd_mutex_unlock(&pool->lock);
    if (!grow)
        return NGD_OK;
    old = atomic_load(&pool->bytes);
    status = ngd_charge_grow(&pool->charge, size - old, diag);
    if (status == NGD_OK) {
        status = pool->in_place ? extend_memory(pool, size, diag) : replace_memory(pool, size, diag);
        had = atomic_load(&pool->bytes); /* `size`; after a failure the old size, or 0 */
        ngd_charge_shrink(&pool->charge, size - had);
    }
    ngd_mutex_lock(&pool->lock);
    pool->growing = false;
    ngd_cond_broadcast(&pool->grown);
    ngd_mutex_unlock(&pool->lock);
    return status;
}
