/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/timeouts.h"

void ngd_timeouts_init(struct ngd_timeouts *all)
{
    ngd_mutex_init(&all->lock, NGD_RANK_TIMEOUTS);
    ngd_mutex_lock(&all->lock);
    ngd_list_init(&all->all);
    ngd_mutex_unlock(&all->lock);
}

void ngd_timeouts_fini(struct ngd_timeouts *all)
{
    ngd_mutex_fini(&all->lock);
}

void ngd_timeouts_add(struct ngd_timeouts *all, struct ngd_timeout *timeout)
{
    ngd_mutex_lock(&all->lock);
    if (!timeout->over)
        ngd_list_push_back(&all->all, &timeout->link);
    ngd_mutex_unlock(&all->lock);
}

void ngd_timeouts_remove(struct ngd_timeouts *all, struct ngd_timeout *timeout)
{
    ngd_mutex_lock(&all->lock);
    ngd_list_remove(&timeout->link);
    timeout->over = true;
    ngd_mutex_unlock(&all->lock);
}

/* Takes one whose time has come, with a reference on its object; NULL: there is none. */
static struct ngd_timeout *take_due(struct ngd_timeouts *all, ngd_nsec_t now)
{
    struct ngd_timeout *due = NULL;

    ngd_mutex_lock(&all->lock);
    ngd_list_for_each (pos, &all->all) {
        struct ngd_timeout *t = ngd_container_of(pos, struct ngd_timeout, link);

        if (t->at <= now) {
            due = t;
            break;
        }
    }
    if (due) {
        ngd_list_remove(&due->link);
        due->over = true;
        due->hold(due);
    }
    ngd_mutex_unlock(&all->lock);
    return due;
}

void ngd_timeouts_run(struct ngd_timeouts *all, ngd_nsec_t now)
{
    struct ngd_timeout *due;

    while ((due = take_due(all, now)))
        due->fire(due);
}
