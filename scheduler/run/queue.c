/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run queue of a device, and which thread may use its slots.
 *
 * A slot belongs to the thread that has set its `busy` under the queue's lock: its worker, when it takes an item, or a
 * thread that runs a request inline. A thread claims a slot for an inline run only if nothing is queued, so it
 * overtakes nobody. When it gives the slot back, it wakes the worker if something arrived meanwhile. A push wakes one
 * sleeping worker, or none if all are busy: workers look at the queue before they sleep.
 */
#include "base/mem.h"
#include "scheduler/program/merge_prog.h"
#include "scheduler/run/sched_int.h"
#include <stdio.h>
#include <string.h>

static ngd_status_t slot_init(struct ngd_slot *slot, struct ngd_queue *queue, uint32_t index, struct ngd_diag *diag)
{
    char name[96];
    ngd_status_t status;

    slot->queue = queue;
    slot->index = index;
    ngd_cond_init(&slot->wake);
    snprintf(name, sizeof(name), "%.64s/%u", queue->dev_name, (unsigned)index);
    slot->pool_need = ngd_metric_row(NGD_M_POOL_NEED_BYTES, name);
    slot->pool_reserved = ngd_metric_row(NGD_M_POOL_RESERVED_BYTES, name);
    status = ngd_pool_create(queue->dev, name, &slot->pool);
    if (status)
        return ngd_diag_set(diag, status, "the pool of stream slot %s cannot be created", name);
    return ngd_stream_create(queue->dev, name, &slot->stream, diag);
}

static void slot_fini(struct ngd_slot *slot)
{
    if (!slot->queue)
        return;
    if (slot->area)
        slot->area->destroy(slot->area);
    ngd_stream_destroy(slot->stream);
    ngd_pool_destroy(slot->pool);
    ngd_metric_row_hide(slot->pool_need);
    ngd_metric_row_hide(slot->pool_reserved);
    ngd_cond_fini(&slot->wake);
}

ngd_status_t ngd_queue_init(struct ngd_queue *queue, struct ngd_sched *sched, struct ngd_device *dev, uint32_t index,
                            const struct ngd_sched_policy *policy, uint32_t n_slots,
                            struct ngd_diag *diag) NGD_NO_THREAD_SAFETY
{
    ngd_status_t status = ngd_lineup_init(&queue->lineup, policy);

    if (status)
        return ngd_diag_set(diag, status, "no host memory for the queue of device %s", ngd_device_info(dev)->name);
    queue->lineup.caps.note_held = ngd_share_note_held;
    queue->sched = sched;
    queue->dev = dev;
    queue->dev_name = ngd_device_info(dev)->name;
    queue->index = index;
    atomic_init(&queue->healthy, true);
    ngd_mutex_init(&queue->lock, NGD_RANK_QUEUE);
    ngd_cond_init(&queue->freed);
    ngd_mutex_init(&queue->poolsets_lock, NGD_RANK_POOLSETS);
    ngd_list_init(&queue->poolsets);
    queue->busy_seconds = ngd_metric_row(NGD_M_DEVICE_BUSY_SECONDS, queue->dev_name);
    queue->bubble_seconds = ngd_metric_row(NGD_M_DEVICE_BUBBLE_SECONDS, queue->dev_name);
    queue->healthy_gauge = ngd_metric_row(NGD_M_DEVICE_HEALTHY, queue->dev_name);
    ngd_metric_row_set(queue->healthy_gauge, 1);
    queue->slots = NGD_NEW_N(struct ngd_slot, n_slots);
    if (!queue->slots)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the slots of device %s", queue->dev_name);
    queue->n_slots = n_slots;
    for (uint32_t i = 0; i < n_slots; i++) {
        status = slot_init(&queue->slots[i], queue, i, diag);
        if (status)
            return status;
    }
    return NGD_OK;
}

/* Takes a queue in any state that ngd_queue_init left. Its workers have ended. */
void ngd_queue_fini(struct ngd_queue *queue) NGD_NO_THREAD_SAFETY
{
    if (!queue->sched)
        return;
    for (uint32_t i = 0; i < queue->n_slots; i++)
        slot_fini(&queue->slots[i]);
    ngd_free(queue->slots);
    ngd_lineup_fini(&queue->lineup);
    ngd_mutex_fini(&queue->poolsets_lock);
    ngd_cond_fini(&queue->freed);
    ngd_mutex_fini(&queue->lock);
    queue->sched = NULL;
}

ngd_status_t ngd_queue_start(struct ngd_queue *queue)
{
    for (uint32_t i = 0; i < queue->n_slots; i++) {
        struct ngd_slot *slot = &queue->slots[i];
        char name[32];
        int err;

        snprintf(name, sizeof(name), "worker %u.%u", (unsigned)queue->index, (unsigned)i);
        err = ngd_thread_start(&slot->thread, name, ngd_worker_main, slot);
        if (err)
            return ngd_status_from_errno(err);
        slot->started = true;
    }
    return NGD_OK;
}

void ngd_queue_stop(struct ngd_queue *queue)
{
    ngd_mutex_lock(&queue->lock);
    queue->stopping = queue->lineup.caps.stopping = true;
    for (uint32_t i = 0; i < queue->n_slots; i++)
        ngd_cond_signal(&queue->slots[i].wake);
    ngd_mutex_unlock(&queue->lock);
    for (uint32_t i = 0; i < queue->n_slots; i++) {
        struct ngd_slot *slot = &queue->slots[i];

        if (slot->started)
            pthread_join(slot->thread, NULL);
        slot->started = false;
    }
}

static struct ngd_slot *sleeper_locked(struct ngd_queue *queue) NGD_REQUIRES(queue->lock)
{
    for (uint32_t i = 0; i < queue->n_slots; i++) {
        struct ngd_slot *slot = &queue->slots[i];

        if (slot->sleeping && !slot->busy)
            return slot;
    }
    return NULL;
}

void ngd_queue_wake(struct ngd_queue *queue)
{
    struct ngd_slot *slot = sleeper_locked(queue);

    if (slot) {
        slot->sleeping = false;
        ngd_cond_signal(&slot->wake);
    }
}

void ngd_queue_note_bubble(struct ngd_queue *queue, ngd_nsec_t now)
{
    const bool open = queue->lineup.depth > queue->lineup.caps.n_held && queue->n_busy < queue->n_slots;
    ngd_nsec_t before = queue->bubble;

    if (open == (queue->bubble_since != 0))
        return;
    if (open) {
        queue->bubble_since = now;
        return;
    }
    queue->bubble += now - queue->bubble_since;
    queue->bubble_since = 0;
    ngd_metric_row_add(queue->bubble_seconds, (uint64_t)(queue->bubble / NGD_USEC - before / NGD_USEC));
}

ngd_status_t ngd_queue_push(struct ngd_queue *queue, struct ngd_sched_item *item, const _Atomic bool *cancelled)
{
    ngd_nsec_t now = ngd_now();
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&queue->lock);
    if (queue->stopping) {
        status = NGD_ERR_UNAVAILABLE;
    } else if (cancelled && atomic_load(cancelled)) {
        status = NGD_ERR_CANCELLED;
    } else {
        ngd_lineup_push(&queue->lineup, item, now);
        ngd_queue_note_bubble(queue, now);
        if (!ngd_lineup_goes_on_lingering(&queue->lineup, now))
            ngd_queue_wake(queue);
    }
    ngd_mutex_unlock(&queue->lock);
    return status;
}

bool ngd_queue_remove(struct ngd_queue *queue, struct ngd_sched_item *item)
{
    bool queued;

    ngd_mutex_lock(&queue->lock);
    queued = item->queued;
    if (queued) {
        const ngd_nsec_t now = ngd_now();

        ngd_lineup_remove(&queue->lineup, item, now);
        ngd_queue_note_bubble(queue, now);
    }
    ngd_mutex_unlock(&queue->lock);
    return queued;
}

ngd_nsec_t ngd_queue_late(struct ngd_queue *queue, struct ngd_sched_item *item)
{
    ngd_nsec_t now = ngd_now(), late, left[NGD_SLOTS_MAX];

    ngd_mutex_lock(&queue->lock);
    for (uint32_t i = 0; i < queue->n_slots; i++)
        left[i] = queue->slots[i].busy && queue->slots[i].until > now ? queue->slots[i].until - now : 0;
    late = ngd_lineup_late(&queue->lineup, item, now, left, queue->n_slots);
    ngd_mutex_unlock(&queue->lock);
    return late;
}

uint32_t ngd_queue_first(struct ngd_queue *queue, struct ngd_account *const *accounts, uint32_t n,
                         ngd_priority_t priority)
{
    const struct ngd_sched_policy *policy;
    int64_t least = INT64_MAX;
    uint32_t first = 0;

    ngd_mutex_lock(&queue->lock);
    policy = queue->lineup.policy;
    for (uint32_t i = 0; i < n && policy->turn; i++) {
        const int64_t turn = policy->turn(queue->lineup.state, accounts[i], priority);

        if (turn < least) {
            least = turn;
            first = i;
        }
    }
    ngd_mutex_unlock(&queue->lock);
    return first;
}

void ngd_queue_charge(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time)
{
    ngd_mutex_lock(&queue->lock);
    if (queue->lineup.policy->charge)
        queue->lineup.policy->charge(queue->lineup.state, account, time);
    ngd_mutex_unlock(&queue->lock);
}

bool ngd_queue_would_overtake(struct ngd_queue *queue, const struct ngd_account *account,
                              const struct ngd_sched_item *item)
{
    const struct ngd_sched_policy *policy;
    bool overtakes;

    if (account == item->account)
        return false;
    ngd_mutex_lock(&queue->lock);
    policy = queue->lineup.policy;
    overtakes = item->queued && policy->overtakes && policy->overtakes(queue->lineup.state, account, item);
    ngd_mutex_unlock(&queue->lock);
    return overtakes;
}

struct ngd_slot *ngd_queue_claim(struct ngd_queue *queue, struct ngd_sched_item *item, uint64_t slots)
{
    struct ngd_slot *claimed = NULL;
    bool may;

    ngd_mutex_lock(&queue->lock);
    may = queue->lineup.depth == 0 && queue->n_takers == 0 && !queue->stopping &&
          !ngd_caps_hold(&queue->lineup.caps, item, item->arrival);
    for (uint32_t i = 0; may && i < queue->n_slots && !claimed; i++)
        if (!queue->slots[i].busy && slots >> i & 1)
            claimed = &queue->slots[i];
    if (claimed && item->merge && ngd_merge_wants_company(item))
        claimed = NULL;
    if (claimed) {
        if (item->merge)
            ngd_merge_take_inline(item);
        claimed->busy = true;
        claimed->until = 0;
        queue->n_busy++;
    }
    ngd_mutex_unlock(&queue->lock);
    return claimed;
}

void ngd_queue_release(struct ngd_queue *queue, struct ngd_slot *slot)
{
    ngd_mutex_lock(&queue->lock);
    slot->busy = false;
    queue->n_busy--;
    ngd_queue_tell_takers(queue);
    if (queue->lineup.depth > 0)
        ngd_queue_note_bubble(queue, ngd_now());
    if (queue->lineup.depth > 0 || queue->stopping) {
        slot->sleeping = false;
        ngd_cond_signal(&slot->wake);
    }
    ngd_mutex_unlock(&queue->lock);
}

static struct ngd_slot *free_locked(struct ngd_queue *queue) NGD_REQUIRES(queue->lock)
{
    for (uint32_t i = 0; i < queue->n_slots; i++)
        if (!queue->slots[i].busy)
            return &queue->slots[i];
    return NULL;
}

/* Wakes workers that went to sleep with items queued because a thread waited for a slot (n_takers). */
static void wake_sleepers_locked(struct ngd_queue *queue) NGD_REQUIRES(queue->lock)
{
    struct ngd_slot *slot;

    while (queue->lineup.depth > 0 && queue->n_takers == 0 && (slot = sleeper_locked(queue))) {
        slot->sleeping = false;
        ngd_cond_signal(&slot->wake);
    }
}

struct ngd_slot *ngd_queue_take_slot(struct ngd_queue *queue, ngd_nsec_t expected)
{
    struct ngd_slot *slot;
    ngd_nsec_t now;

    ngd_mutex_lock(&queue->lock);
    queue->n_takers++;
    while (!(slot = free_locked(queue)))
        ngd_cond_wait(&queue->freed, &queue->lock);
    queue->n_takers--;
    now = ngd_now();
    slot->busy = true;
    slot->until = now + expected;
    queue->n_busy++;
    ngd_queue_note_bubble(queue, now);
    wake_sleepers_locked(queue);
    ngd_mutex_unlock(&queue->lock);
    return slot;
}
