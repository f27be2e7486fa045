/* SPDX-License-Identifier: Apache-2.0 */
/* Functions on the whole scheduler that every floor needs: its phase, its devices, and what runs on them. */
#include "base/log.h"
#include "scheduler/run/sched_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ngd_sched_drain(struct ngd_sched *sched)
{
    atomic_store(&sched->phase, NGD_SCHED_DRAINING);
}

bool ngd_sched_idle(struct ngd_sched *sched)
{
    return atomic_load(&sched->in_flight) == 0;
}

/* Counts the call before it checks the phase, so that a drained scheduler that is idle stays idle. */
ngd_status_t ngd_sched_enter(struct ngd_sched *sched, struct ngd_diag *diag)
{
    int phase;

    atomic_fetch_add(&sched->in_flight, 1);
    phase = atomic_load(&sched->phase);
    if (phase == NGD_SCHED_RUNNING)
        return NGD_OK;
    ngd_sched_leave(sched);
    if (phase == NGD_SCHED_CREATED)
        return ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "the scheduler has not started yet; try again");
    return ngd_diag_set(diag, NGD_ERR_DRAINING, "%s", ngd_status_text(NGD_ERR_DRAINING));
}

struct ngd_recorder *ngd_sched_recorder(struct ngd_sched *sched)
{
    return &sched->recorder;
}

ngd_wakeup_t ngd_sched_expiry_wakeup(const struct ngd_sched *sched)
{
    return (ngd_wakeup_t)atomic_load_explicit(&sched->expiry.wakeup, memory_order_relaxed);
}

uint32_t ngd_sched_n_devices(const struct ngd_sched *sched)
{
    return sched->n_queues;
}

struct ngd_device *ngd_sched_device(const struct ngd_sched *sched, uint32_t i)
{
    return sched->queues[i].dev;
}

struct ngd_queue *ngd_sched_queue_of(struct ngd_sched *sched, const struct ngd_device *dev)
{
    for (uint32_t i = 0; i < sched->n_queues; i++)
        if (sched->queues[i].dev == dev)
            return &sched->queues[i];
    return NULL;
}

ngd_status_t ngd_sched_find_device(const struct ngd_sched *sched, const char *name, struct ngd_device **dev_p,
                                   struct ngd_diag *diag)
{
    struct ngd_strbuf names;

    /* The default device is the first one that is in service, else the first one. */
    for (uint32_t i = 0; i < sched->n_queues && (!name || !*name); i++) {
        if (atomic_load_explicit(&sched->queues[i].healthy, memory_order_relaxed)) {
            *dev_p = sched->queues[i].dev;
            return NGD_OK;
        }
    }
    for (uint32_t i = 0; i < sched->n_queues; i++) {
        char number[12];

        snprintf(number, sizeof(number), "%" PRIu32, i);
        if (!name || !*name || strcmp(sched->queues[i].dev_name, name) == 0 || strcmp(number, name) == 0) {
            *dev_p = sched->queues[i].dev;
            return NGD_OK;
        }
    }
    ngd_strbuf_init(&names);
    for (uint32_t i = 0; i < sched->n_queues; i++)
        ngd_strbuf_printf(&names, "%s%s", i ? ", " : "", sched->queues[i].dev_name);
    ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no device \"%.100s\"; there is: %s", name, ngd_strbuf_str(&names));
    ngd_strbuf_fini(&names);
    return NGD_ERR_NOT_FOUND;
}

void ngd_sched_ask(struct ngd_sched *sched)
{
    ngd_expiry_ask(&sched->expiry);
}

const struct ngd_beat *ngd_sched_beat(const struct ngd_sched *sched)
{
    return &sched->expiry.beat;
}

static void tell_running(const struct ngd_slot *slot, void (*fn)(void *ctx, const struct ngd_sched_running *running),
                         void *ctx)
{
    struct ngd_sched_running r = {.device = slot->queue->dev_name, .slot = slot->index};

    r.graph = atomic_load_explicit(&slot->running, memory_order_relaxed);
    r.since = ngd_now() - atomic_load_explicit(&slot->running_since, memory_order_relaxed);
    if (r.graph)
        fn(ctx, &r);
}

void ngd_sched_for_each_running(const struct ngd_sched *sched,
                                void (*fn)(void *ctx, const struct ngd_sched_running *running), void *ctx)
{
    for (uint32_t q = 0; q < sched->n_queues; q++)
        for (uint32_t i = 0; i < sched->queues[q].n_slots; i++)
            tell_running(&sched->queues[q].slots[i], fn, ctx);
}
