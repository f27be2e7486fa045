/* SPDX-License-Identifier: Apache-2.0 */
/* First come, first served: one list. */
#include "base/mem.h"
#include "scheduler/policy.h"

static ngd_status_t fifo_create(void **state_p)
{
    struct ngd_list *list = NGD_NEW(struct ngd_list);

    if (!list)
        return NGD_ERR_NO_MEMORY;
    ngd_list_init(list);
    *state_p = list;
    return NGD_OK;
}

static void fifo_destroy(void *state)
{
    ngd_free(state);
}

static void fifo_push(void *state, struct ngd_sched_item *item, ngd_nsec_t now)
{
    (void)now;
    ngd_list_push_back(state, &item->link);
}

static struct ngd_sched_item *fifo_pop(void *state, ngd_nsec_t now)
{
    struct ngd_list *l = ngd_list_pop_front(state);

    (void)now;
    return l ? ngd_container_of(l, struct ngd_sched_item, link) : NULL;
}

static void fifo_remove(void *state, struct ngd_sched_item *item)
{
    (void)state;
    ngd_list_remove(&item->link);
}

extern const struct ngd_sched_policy ngd_sched_policy_fifo;
const struct ngd_sched_policy ngd_sched_policy_fifo = {
    .name = "fifo",
    .create = fifo_create,
    .destroy = fifo_destroy,
    .push = fifo_push,
    .pop = fifo_pop,
    .remove = fifo_remove,
};
