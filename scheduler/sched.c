/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler as a whole: its queues, its capture threads, and its phases.
 *
 *   CREATED --start--> RUNNING --drain--> DRAINING --stop--> (threads joined) --destroy-->
 *
 * stop() ends the captures first, since they feed the run queues, and then each queue. Whatever waits in a queue is
 * answered by the thread that would have moved it on, because a stopping queue refuses new items.
 */
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/diag/run_chain.h"
#include "scheduler/lineup/linger.h"
#include "scheduler/program/hot.h"
#include "scheduler/program/poolset.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CAPTURE_HEAP ((size_t)2 << 20) /* twice what planning a decoder's step allocates */

void ngd_sched_params_init(struct ngd_sched_params *params)
{
    *params = (struct ngd_sched_params){
        .slots = 1,
        .capture_threads = 1,
        .queue_limit = 4096,
        .inline_limit = 50 * NGD_USEC,
        .max_replay_time = 60 * NGD_SEC,
        .max_capture_time = 120 * NGD_SEC,
        .merge = true,
        .merge_wait = NGD_LINGER_LIMIT_DEFAULT,
        .prompt_share = NGD_PACE_PERCENT_DEFAULT,
        .policy = "fair",
    };
}

static const struct ngd_sched_policy *find_policy(const char *name, struct ngd_diag *diag)
{
    const struct ngd_sched_policy *policy = ngd_sched_policy_find(name);
    struct ngd_strbuf names;

    if (policy)
        return policy;
    ngd_strbuf_init(&names);
    for (const struct ngd_sched_policy *const *p = ngd_sched_policies(); *p; p++)
        ngd_strbuf_printf(&names, "%s%s", names.len ? ", " : "", (*p)->name);
    ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no scheduling policy \"%.100s\"; there is: %s", name,
                 ngd_strbuf_str(&names));
    ngd_strbuf_fini(&names);
    return NULL;
}

static void find_rows(struct ngd_sched *sched)
{
    static const char *const misses[NGD_MISS_MAX] = {
        [NGD_MISS_FIRST] = "first",   [NGD_MISS_EVICTED] = "evicted", [NGD_MISS_POISONED] = "poisoned",
        [NGD_MISS_FAILED] = "failed", [NGD_MISS_FORCED] = "forced",
    };
    static const char *const eager[NGD_EAGER_MAX] = {
        [NGD_EAGER_REQUESTED] = "requested",
        [NGD_EAGER_LIMIT] = "capture_limit",
        [NGD_EAGER_FORCED] = "force_eager",
        [NGD_EAGER_QUARANTINED] = "quarantined",
    };

    for (int i = 0; i < NGD_MISS_MAX; i++)
        sched->miss_rows[i] = ngd_metric_row(NGD_M_CACHE_MISSES, misses[i]);
    for (int i = 0; i < NGD_EAGER_MAX; i++)
        sched->eager_rows[i] = ngd_metric_row(NGD_M_EAGER_RUNS, eager[i]);
}

static ngd_status_t init_queues(struct ngd_sched *sched, const struct ngd_sched_policy *policy, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    sched->queues = NGD_NEW_N(struct ngd_queue, sched->params.n_devices);
    if (!sched->queues)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the run queues");
    sched->n_queues = sched->params.n_devices;
    for (uint32_t i = 0; i < sched->n_queues && status == NGD_OK; i++)
        status =
            ngd_queue_init(&sched->queues[i], sched, sched->params.devices[i], i, policy, sched->params.slots, diag);
    return status;
}

static ngd_status_t open_own_share(struct ngd_sched *sched, struct ngd_diag *diag)
{
    struct ngd_share_params params;

    ngd_share_params_init(&params);
    return ngd_share_open(sched, "npugraphd", &params, &sched->own_share, diag);
}

void ngd_sched_set(struct ngd_sched *sched, const struct ngd_sched_params *params)
{
#define SET(field) __atomic_store_n(&sched->params.field, params->field, __ATOMIC_RELAXED)
    SET(queue_limit);
    SET(inline_limit);
    SET(max_replay_time);
    SET(max_capture_time);
    SET(merge);
    SET(merge_wait);
    SET(prompt_share);
    SET(static_timeout);
#undef SET
    atomic_store_explicit(&sched->captures.max_time, params->max_capture_time, memory_order_relaxed);
}

ngd_status_t ngd_sched_create(const struct ngd_sched_params *params, struct ngd_sched **sched_p, struct ngd_diag *diag)
{
    const struct ngd_sched_policy *policy = find_policy(params->policy, diag);
    struct ngd_sched *sched;
    ngd_status_t status;

    if (!policy)
        return NGD_ERR_NOT_FOUND;
    if (!params->n_devices || !params->slots || params->slots > NGD_SLOTS_MAX || !params->capture_threads ||
        !params->queue_limit)
        return ngd_diag_set(
            diag, NGD_ERR_INVALID_ARGUMENT,
            "a scheduler needs at least one device, one stream slot, one capture thread and one place in its queue");
    sched = NGD_NEW(struct ngd_sched);
    if (!sched)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the scheduler");
    sched->params = *params;
    ngd_mutex_init(&sched->programs_lock, NGD_RANK_PROGRAMS);
    ngd_list_init(&sched->programs);
    ngd_mutex_init(&sched->shares_lock, NGD_RANK_SHARES);
    ngd_list_init(&sched->shares);
    ngd_expiry_init(&sched->expiry, ngd_request_expire);
    sched->choose_run = ngd_run_chain_choose;
    ngd_timeline_init(&sched->timeline);
    atomic_init(&sched->phase, NGD_SCHED_CREATED);
    find_rows(sched);
    status = ngd_captures_init(&sched->captures, NGD_CAPTURE_PLANS, params->capture_threads, CAPTURE_HEAP);
    atomic_init(&sched->captures.max_time, params->max_capture_time);
    if (status == NGD_OK)
        status = ngd_captures_init(&sched->compiles, NGD_CAPTURE_KERNELS, 1, 0);
    if (status == NGD_OK)
        status = ngd_recorder_init(&sched->recorder);
    if (status == NGD_OK && params->store)
        status = ngd_hot_create(sched, &sched->hot);
    if (status)
        ngd_diag_set(diag, status, "no host memory for the capture threads and the flight recorder");
    else
        status = init_queues(sched, policy, diag);
    if (status == NGD_OK)
        status = open_own_share(sched, diag);
    if (status) {
        ngd_sched_destroy(sched);
        return status;
    }
    *sched_p = sched;
    return NGD_OK;
}

ngd_status_t ngd_sched_start(struct ngd_sched *sched)
{
    ngd_status_t status = ngd_captures_start(&sched->captures);

    if (status == NGD_OK)
        status = ngd_captures_start(&sched->compiles);
    if (status == NGD_OK)
        status = ngd_expiry_start(&sched->expiry);
    for (uint32_t i = 0; i < sched->n_queues && status == NGD_OK; i++)
        status = ngd_queue_start(&sched->queues[i]);
    if (status) {
        ngd_error("scheduler", "a thread cannot be started: %s", ngd_status_text(status));
        ngd_sched_stop(sched);
        return status;
    }
    atomic_store(&sched->phase, NGD_SCHED_RUNNING);
    return NGD_OK;
}

void ngd_sched_warm(struct ngd_sched *sched)
{
    ngd_hot_warm(sched->hot);
}

void ngd_sched_save_hot(struct ngd_sched *sched)
{
    ngd_hot_save(sched->hot);
}

void ngd_sched_stop(struct ngd_sched *sched)
{
    ngd_sched_drain(sched);
    atomic_store(&sched->stop_compiles, true);
    ngd_captures_stop(&sched->captures);
    ngd_captures_stop(&sched->compiles);
    for (uint32_t i = 0; i < sched->n_queues; i++)
        ngd_queue_stop(&sched->queues[i]);
    ngd_expiry_stop(&sched->expiry);
    ngd_hot_save(sched->hot);
    ngd_hot_release(sched->hot);
}

void ngd_sched_destroy(struct ngd_sched *sched)
{
    if (!sched)
        return;
    ngd_share_unref(sched->own_share);
    for (uint32_t i = 0; i < sched->n_queues; i++)
        ngd_queue_fini(&sched->queues[i]);
    ngd_free(sched->queues);
    ngd_captures_fini(&sched->captures);
    ngd_captures_fini(&sched->compiles);
    ngd_recorder_fini(&sched->recorder);
    ngd_hot_destroy(sched->hot);
    ngd_expiry_fini(&sched->expiry);
    ngd_timeline_fini(&sched->timeline);
    ngd_mutex_fini(&sched->shares_lock);
    ngd_mutex_fini(&sched->programs_lock);
    ngd_free(sched);
}

void ngd_sched_device_stats(struct ngd_sched *sched, uint32_t device, struct ngd_sched_device_stats *stats_p)
{
    struct ngd_queue *queue = &sched->queues[device];
    struct ngd_sched_device_stats stats = {
        .queue_depth = atomic_load_explicit(&queue->waiting, memory_order_relaxed),
        .slots = queue->n_slots,
        .busy = atomic_load_explicit(&queue->busy, memory_order_relaxed),
        .healthy = atomic_load_explicit(&queue->healthy, memory_order_relaxed),
    };

    ngd_mutex_lock(&queue->lock);
    stats.bubble = queue->bubble + (queue->bubble_since ? ngd_now() - queue->bubble_since : 0);
    ngd_mutex_unlock(&queue->lock);
    for (uint32_t i = 0; i < queue->n_slots; i++)
        stats.pool_bytes += ngd_pool_bytes(queue->slots[i].pool);
    stats.pool_bytes += ngd_poolset_bytes_of(queue);
    *stats_p = stats;
}
