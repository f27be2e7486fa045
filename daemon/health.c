/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health.h"

#include "base/lock.h"
#include "base/mem.h"

struct ngd_health {
    struct ngd_mutex lock;
    struct ngd_list watchers NGD_GUARDED_BY(lock);
};

/* No other thread has it yet. */
ngd_status_t ngd_health_create(struct ngd_health **health_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_health *health = NGD_NEW(struct ngd_health);

    if (!health)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&health->lock, NGD_RANK_DRAIN);
    ngd_list_init(&health->watchers);
    *health_p = health;
    return NGD_OK;
}

void ngd_health_destroy(struct ngd_health *health)
{
    if (!health)
        return;
    ngd_mutex_fini(&health->lock);
    ngd_free(health);
}

void ngd_health_watch(struct ngd_health *health, struct ngd_health_watcher *watcher)
{
    ngd_mutex_lock(&health->lock);
    ngd_list_push_back(&health->watchers, &watcher->link);
    watcher->tell(watcher);
    ngd_mutex_unlock(&health->lock);
}

void ngd_health_unwatch(struct ngd_health *health, struct ngd_health_watcher *watcher)
{
    ngd_mutex_lock(&health->lock);
    ngd_list_remove(&watcher->link);
    ngd_mutex_unlock(&health->lock);
}

void ngd_health_changed(struct ngd_health *health)
{
    if (!health)
        return;
    ngd_mutex_lock(&health->lock);
    ngd_list_for_each (pos, &health->watchers) {
        struct ngd_health_watcher *watcher = ngd_container_of(pos, struct ngd_health_watcher, link);

        watcher->tell(watcher);
    }
    ngd_mutex_unlock(&health->lock);
}
