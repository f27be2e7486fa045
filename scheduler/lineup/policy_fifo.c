/* SPDX-License-Identifier: Apache-2.0 */
/* First come, first served: one list. */
#include "base/mem.h"
#include "scheduler/lineup/policy.h"

struct fifo {
    struct ngd_list items;
    ngd_nsec_t cost; /* of all */
};

static ngd_status_t fifo_create(void **state_p)
{
    struct fifo *f = NGD_NEW(struct fifo);

    if (!f)
        return NGD_ERR_NO_MEMORY;
    ngd_list_init(&f->items);
    *state_p = f;
    return NGD_OK;
}

static void fifo_destroy(void *state)
{
    ngd_free(state);
}

static void fifo_push(void *state, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct fifo *f = state;

    (void)now;
    ngd_list_push_back(&f->items, &item->link);
    f->cost += item->cost;
}

static void fifo_remove(void *state, struct ngd_sched_item *item)
{
    struct fifo *f = state;

    ngd_list_remove(&item->link);
    f->cost -= item->cost;
}

static struct ngd_sched_item *fifo_pop(void *state, ngd_nsec_t now)
{
    struct fifo *f = state;
    struct ngd_sched_item *item;

    (void)now;
    if (ngd_list_empty(&f->items))
        return NULL;
    item = ngd_container_of(f->items.next, struct ngd_sched_item, link);
    fifo_remove(f, item);
    return item;
}

static ngd_nsec_t fifo_ahead(void *state, const struct ngd_sched_item *item)
{
    (void)item;
    return ((const struct fifo *)state)->cost;
}

extern const struct ngd_sched_policy ngd_sched_policy_fifo;
const struct ngd_sched_policy ngd_sched_policy_fifo = {
    .name = "fifo",
    .create = fifo_create,
    .destroy = fifo_destroy,
    .push = fifo_push,
    .pop = fifo_pop,
    .remove = fifo_remove,
    .ahead = fifo_ahead,
};
