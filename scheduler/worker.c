/* SPDX-License-Identifier: Apache-2.0 */
/* The worker thread of a stream slot: takes items while its slot is free, and sleeps otherwise. */
#include "scheduler/sched_int.h"

static struct ngd_sched_item *pop_locked(struct ngd_queue *queue, struct ngd_slot *slot) NGD_REQUIRES(queue->lock)
{
    ngd_nsec_t now = ngd_now();
    struct ngd_sched_item *item;

    if (queue->depth == 0)
        return NULL;
    item = queue->policy->pop(queue->state, now);
    if (item) {
        item->queued = false;
        queue->depth--;
        slot->until = now + item->cost;
        slot->busy = true;
        queue->n_busy++;
        ngd_queue_note_bubble(queue, now);
    }
    return item;
}

void *ngd_worker_main(void *arg)
{
    struct ngd_slot *slot = arg;
    struct ngd_queue *queue = slot->queue;

    ngd_mutex_lock(&queue->lock);
    for (;;) {
        struct ngd_sched_item *item = slot->busy ? NULL : pop_locked(queue, slot);
        bool stopping = queue->stopping;

        if (!item) {
            /* Nothing is pushed any more once it is stopping, but an inline run may still hold the slot. */
            if (stopping && !slot->busy)
                break;
            slot->sleeping = true;
            ngd_cond_wait(&slot->wake, &queue->lock);
            slot->sleeping = false;
            continue;
        }
        ngd_mutex_unlock(&queue->lock);
        if (stopping)
            item->ops->abort(item);
        else
            item->ops->run(item, slot);
        ngd_mutex_lock(&queue->lock);
        slot->busy = false;
        queue->n_busy--;
    }
    ngd_mutex_unlock(&queue->lock);
    return NULL;
}
