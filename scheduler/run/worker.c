/* SPDX-License-Identifier: Apache-2.0 */
/* The worker thread of a stream slot: takes items while its slot is free, and sleeps otherwise. */
#include "base/mem.h"
#include "scheduler/run/sched_int.h"

#define WORKER_HEAP ((size_t)256 << 10) /* bytes to pre-fault: first replays make their instances there */

/* Takes the next item. NULL: nothing is queued; or, if *time_p is set, queued items must wait that long, ns. */
static struct ngd_sched_item *take_item_locked(struct ngd_queue *queue, struct ngd_slot *slot, ngd_nsec_t *time_p)
    NGD_REQUIRES(queue->lock)
{
    const ngd_nsec_t now = ngd_now();
    struct ngd_sched_item *item;
    ngd_nsec_t until;

    if (queue->n_takers > 0)
        return NULL;
    item = ngd_lineup_take(&queue->lineup, now, &until);
    if (item) {
        slot->until = until;
        slot->busy = true;
        queue->n_busy++;
        if (queue->lineup.caps.n_held)
            ngd_queue_wake(queue); /* the cap of the next held item may be open too */
    } else if (until != NGD_NSEC_NEVER) {
        *time_p = until - now;
    }
    ngd_queue_note_bubble(queue, now);
    return item;
}

void *ngd_worker_main(void *arg)
{
    struct ngd_slot *slot = arg;
    struct ngd_queue *queue = slot->queue;

    ngd_mem_warm(WORKER_HEAP);
    ngd_mutex_lock(&queue->lock);
    for (;;) {
        ngd_nsec_t time = 0;
        struct ngd_sched_item *item = slot->busy ? NULL : take_item_locked(queue, slot, &time);
        bool stopping = queue->stopping;

        if (!item) {
            /* A stopping queue accepts no items, but an inline run may still hold the slot. */
            if (stopping && !slot->busy)
                break;
            slot->sleeping = true;
            if (time)
                (void)ngd_cond_wait_until(&slot->wake, &queue->lock, ngd_clock_real() + time);
            else
                ngd_cond_wait(&slot->wake, &queue->lock);
            slot->sleeping = false;
            queue->lineup.lingers_until = 0; /* a worker that lingers looks again before it sleeps */
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
        ngd_queue_tell_takers(queue);
    }
    ngd_mutex_unlock(&queue->lock);
    return NULL;
}
