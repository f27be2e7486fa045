/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: scratch memory that executables share which never run at the same time.
 *
 * A pool grows to the largest need of its instances and keeps nothing between launches, so it is replaced rather
 * than extended: the old memory goes back first and the peak is the new size, not the sum. Its generation tells
 * instances that their addresses moved; they rebind before their next launch. When the new memory cannot
 * be had, the pool is left empty, and a later launch tries again.
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
    ngd_cond_fini(&pool->grown);
    ngd_mutex_fini(&pool->lock);
    ngd_free(pool);
}

uint64_t ngd_pool_bytes(const struct ngd_pool *pool)
{
    return atomic_load(&pool->bytes);
}

/* Called by the one thread that set `growing`. */
static ngd_status_t replace_memory(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag)
{
    struct ngd_device *dev = pool->dev;
    uint64_t old = atomic_load(&pool->bytes);
    ngd_status_t status = ngd_device_reserve(dev, &pool->holder, bytes - old, diag);
    void *mem;

    if (status)
        return status;
    drop_memory(pool, old);
    status = dev->backend->memory.alloc(dev->handle, bytes, &mem, diag);
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
    uint64_t rounded = ngd_device_rounded(bytes);
    ngd_status_t status = NGD_OK;
    bool grow;

    ngd_mutex_lock(&pool->lock);
    while (pool->growing)
        ngd_cond_wait(&pool->grown, &pool->lock);
    grow = pool->growing = atomic_load(&pool->bytes) < rounded;
    ngd_mutex_unlock(&pool->lock);
    if (!grow)
        return NGD_OK;
    status = replace_memory(pool, rounded, diag);
    ngd_mutex_lock(&pool->lock);
    pool->growing = false;
    ngd_cond_broadcast(&pool->grown);
    ngd_mutex_unlock(&pool->lock);
    return status;
}
