/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/run/share.h"
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    ngd_metric_t metric;
} parts[NGD_SPLIT_PARTS] = {
#define NGD_SPLIT(ID, name_, metric_, help) [NGD_SPLIT_##ID] = {.name = name_, .metric = metric_},
#include "scheduler/record/splits.def"
#undef NGD_SPLIT
};

const char *ngd_split_name(ngd_split_part_t part)
{
    return parts[part].name;
}

void ngd_share_params_init(struct ngd_share_params *params)
{
    *params = (struct ngd_share_params){.weight = NGD_WEIGHT_DEFAULT};
}

static struct ngd_share *find_share_locked(struct ngd_sched *sched, const char *name) NGD_REQUIRES(sched->shares_lock)
{
    ngd_list_for_each (l, &sched->shares) {
        struct ngd_share *share = ngd_container_of(l, struct ngd_share, link);

        if (strcmp(share->name, name) == 0)
            return share;
    }
    return NULL;
}

static void share_free(struct ngd_share *share)
{
    if (!share)
        return;
    ngd_free(share->name);
    ngd_free(share);
}

static struct ngd_share *share_new(struct ngd_sched *sched, const char *name, uint32_t weight)
{
    const size_t n = sched->params.n_devices;
    struct ngd_share *share = ngd_calloc(1, sizeof(*share) + n * sizeof(share->accounts[0]));

    if (!share)
        return NULL;
    share->sched = sched;
    share->name = ngd_strdup(name);
    if (!share->name) {
        share_free(share);
        return NULL;
    }
    share->refs = 1;
    share->seconds = ngd_metric_row(NGD_M_IDENTITY_DEVICE_SECONDS, name);
    share->replays_row = ngd_metric_row(NGD_M_IDENTITY_REPLAYS, name);
    share->held_row = ngd_metric_row(NGD_M_IDENTITY_HELD_SECONDS, name);
    share->kv_row = ngd_metric_row(NGD_M_IDENTITY_KV_BLOCKS, name);
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        share->split_rows[i] = ngd_metric_row(parts[i].metric, name);
    for (int i = 0; i < NGD_CAPTURE_QUEUES; i++)
        ngd_account_init(&share->turns[i], weight);
    for (size_t i = 0; i < n; i++) {
        ngd_account_init(&share->accounts[i], weight);
        share->accounts[i].share = share;
    }
    return share;
}

/* Sets the parameters; weights under the queues' locks, since policies read them there. */
static void set_params(struct ngd_share *share, const struct ngd_share_params *params)
{
    struct ngd_sched *sched = share->sched;

    atomic_store_explicit(&share->queue_limit, params->queue_limit, memory_order_relaxed);
    atomic_store_explicit(&share->kv_limit, params->kv_limit, memory_order_relaxed);
    atomic_store_explicit(&share->capture_limit, params->capture_limit, memory_order_relaxed);
    atomic_store_explicit(&share->store_limit, params->store_limit, memory_order_relaxed);
    atomic_store_explicit(&share->key, params->key, memory_order_relaxed);
    for (int i = 0; i < NGD_CAPTURE_QUEUES; i++)
        share->turns[i].weight = params->weight;
    atomic_store_explicit(&share->device_percent, params->device_percent, memory_order_relaxed);
    for (uint32_t i = 0; i < sched->n_queues; i++) {
        ngd_mutex_lock(&sched->queues[i].lock);
        share->accounts[i].weight = params->weight;
        ngd_caps_set(&sched->queues[i].lineup.caps, &share->accounts[i],
                     params->device_percent * sched->queues[i].n_slots, ngd_now());
        ngd_queue_wake(&sched->queues[i]); /* an earlier cap may have held items that can run now */
        ngd_mutex_unlock(&sched->queues[i].lock);
    }
}

ngd_status_t ngd_share_open(struct ngd_sched *sched, const char *name, const struct ngd_share_params *params,
                            struct ngd_share **share_p, struct ngd_diag *diag)
{
    struct ngd_share *share, *fresh;

    if (params->device_percent > 100)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "%.100s may have %" PRIu32
                            " percent of a device's time; it must be 1 to 100, or 0 for no cap",
                            name, params->device_percent);
    if (params->weight < 1 || params->weight > NGD_WEIGHT_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the weight of %.100s is %" PRIu32 "; it must be 1 to %d",
                            name, params->weight, NGD_WEIGHT_MAX);
    fresh = share_new(sched, name, params->weight);
    if (!fresh)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the account of %.100s", name);
    ngd_mutex_lock(&sched->shares_lock);
    share = find_share_locked(sched, name);
    if (share) {
        share->refs++;
    } else {
        share = fresh;
        fresh = NULL;
        ngd_list_push_back(&sched->shares, &share->link);
    }
    ngd_mutex_unlock(&sched->shares_lock);
    share_free(fresh);
    set_params(share, params);
    *share_p = share;
    return NGD_OK;
}

struct ngd_share *ngd_share_ref(struct ngd_share *share)
{
    ngd_mutex_lock(&share->sched->shares_lock);
    share->refs++;
    ngd_mutex_unlock(&share->sched->shares_lock);
    return share;
}

struct ngd_share *ngd_share_unref(struct ngd_share *share)
{
    struct ngd_sched *sched;
    bool last;

    if (!share)
        return NULL;
    sched = share->sched;
    ngd_mutex_lock(&sched->shares_lock);
    last = --share->refs == 0;
    if (last)
        ngd_list_remove(&share->link);
    ngd_mutex_unlock(&sched->shares_lock);
    if (last)
        share_free(share);
    return NULL;
}

/*
 * Adds n to *used unless that exceeds the limit (0: no limit). Returns false and counts a refusal if it does. *had_p:
 * the value before.
 */
static bool take_within(_Atomic uint64_t *used, uint64_t limit, uint64_t n, _Atomic uint64_t *refused, uint64_t *had_p)
{
    uint64_t had = atomic_load_explicit(used, memory_order_relaxed);
    bool fits;

    do
        fits = !limit || (had <= limit && n <= limit - had);
    while (fits &&
           !atomic_compare_exchange_weak_explicit(used, &had, had + n, memory_order_relaxed, memory_order_relaxed));
    if (!fits)
        atomic_fetch_add_explicit(refused, 1, memory_order_relaxed);
    *had_p = had;
    return fits;
}

ngd_status_t ngd_share_take_blocks(struct ngd_share *share, uint64_t n, struct ngd_diag *diag)
{
    const uint64_t limit = atomic_load_explicit(&share->kv_limit, memory_order_relaxed);
    uint64_t had;

    if (!take_within(&share->kv_blocks, limit, n, &share->kv_refused, &had))
        return ngd_diag_set(diag, NGD_ERR_QUOTA,
                            "the sequences of %.100s take %" PRIu64 " of %" PRIu64
                            " KV blocks (max-kv-blocks-per-identity); %" PRIu64 " more do not fit: close one first",
                            share->name, had, limit, n);
    ngd_metric_row_add(share->kv_row, n);
    return NGD_OK;
}

void ngd_share_give_blocks(struct ngd_share *share, uint64_t n)
{
    atomic_fetch_sub_explicit(&share->kv_blocks, n, memory_order_relaxed);
    ngd_metric_row_add(share->kv_row, -n);
}

ngd_status_t ngd_share_take_capture(struct ngd_share *share, struct ngd_diag *diag)
{
    const uint64_t limit = atomic_load_explicit(&share->capture_limit, memory_order_relaxed);
    uint64_t had;

    if (take_within(&share->captures, limit, 1, &share->captures_refused, &had))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_QUOTA,
                        "%" PRIu64 " captures of %.100s wait or run, which is its limit (max-captures-per-identity); "
                        "wait for one of them",
                        had, share->name);
}

void ngd_share_give_capture(struct ngd_share *share)
{
    atomic_fetch_sub_explicit(&share->captures, 1, memory_order_relaxed);
}

struct ngd_store_payer ngd_share_store_payer(const struct ngd_share *share)
{
    if (!share || share == share->sched->own_share)
        return (struct ngd_store_payer){.name = ""};
    return (struct ngd_store_payer){share->name, atomic_load_explicit(&share->store_limit, memory_order_relaxed)};
}

void ngd_share_stats(const struct ngd_share *share, struct ngd_share_stats *stats_p)
{
    struct ngd_store *store = share->sched->params.store;
    struct ngd_store_held held = {0};

    if (store)
        ngd_store_held(store, share->name, &held);
    *stats_p = (struct ngd_share_stats){
        .name = share->name,
        .weight = share->accounts[0].weight,
        .queue_limit = atomic_load_explicit(&share->queue_limit, memory_order_relaxed),
        .waiting = atomic_load_explicit(&share->waiting, memory_order_relaxed),
        .kv_blocks = atomic_load_explicit(&share->kv_blocks, memory_order_relaxed),
        .kv_limit = atomic_load_explicit(&share->kv_limit, memory_order_relaxed),
        .captures = atomic_load_explicit(&share->captures, memory_order_relaxed),
        .capture_limit = atomic_load_explicit(&share->capture_limit, memory_order_relaxed),
        .captures_refused = atomic_load_explicit(&share->captures_refused, memory_order_relaxed),
        .store_bytes = held.bytes,
        .store_limit = atomic_load_explicit(&share->store_limit, memory_order_relaxed),
        .store_refused = held.refused,
        .kv_refused = atomic_load_explicit(&share->kv_refused, memory_order_relaxed),
        .queue_refused = atomic_load_explicit(&share->queue_refused, memory_order_relaxed),
        .device_percent = atomic_load_explicit(&share->device_percent, memory_order_relaxed),
        .held = atomic_load_explicit(&share->held, memory_order_relaxed),
    };
    stats_p->replays = atomic_load_explicit(&share->replays, memory_order_relaxed);
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        stats_p->split.part[i] = atomic_load_explicit(&share->split[i], memory_order_relaxed);
    for (uint32_t i = 0; i < share->sched->n_queues; i++)
        stats_p->used += atomic_load_explicit(&share->accounts[i].used, memory_order_relaxed);
}

void ngd_share_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, const struct ngd_share_stats *stats), void *ctx)
{
    ngd_mutex_lock(&sched->shares_lock);
    ngd_list_for_each (l, &sched->shares) {
        struct ngd_share_stats stats;

        ngd_share_stats(ngd_container_of(l, struct ngd_share, link), &stats);
        fn(ctx, &stats);
    }
    ngd_mutex_unlock(&sched->shares_lock);
}

/* Adds to a sum of ns, and adds the microseconds that became whole to its metric. */
static void add_time(_Atomic int64_t *sum, struct ngd_metric_row *row, ngd_nsec_t time)
{
    int64_t before = atomic_fetch_add_explicit(sum, time, memory_order_relaxed);
    uint64_t us = (uint64_t)((before + time) / NGD_USEC - before / NGD_USEC);

    if (us)
        ngd_metric_row_add(row, us);
}

void ngd_share_note_split(struct ngd_share *share, const struct ngd_split *split)
{
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        if (split->part[i] > 0)
            add_time(&share->split[i], share->split_rows[i], split->part[i]);
    atomic_fetch_add_explicit(&share->replays, 1, memory_order_relaxed);
    ngd_metric_row_add(share->replays_row, 1);
}

void ngd_share_note_held(struct ngd_account *account, ngd_nsec_t time)
{
    if (account->share)
        add_time(&account->share->held, account->share->held_row, time);
}

static void note_used(struct ngd_account *account, ngd_nsec_t time)
{
    int64_t before = atomic_fetch_add_explicit(&account->used, time, memory_order_relaxed);

    if (account->share)
        ngd_metric_row_add(account->share->seconds, (uint64_t)((before + time) / NGD_USEC - before / NGD_USEC));
}

void ngd_share_use(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time)
{
    note_used(account, time);
    ngd_mutex_lock(&queue->lock);
    ngd_caps_spend(&queue->lineup.caps, account, time, account->cap.rate ? ngd_now() : 0);
    ngd_mutex_unlock(&queue->lock);
}

void ngd_share_charge(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time, ngd_nsec_t expected)
{
    note_used(account, time);
    ngd_mutex_lock(&queue->lock);
    ngd_caps_charge(&queue->lineup.caps, account, time - expected, account->cap.rate ? ngd_now() : 0);
    ngd_mutex_unlock(&queue->lock);
}

void ngd_share_set_all(struct ngd_sched *sched,
                       bool (*fn)(void *ctx, const char *name, struct ngd_share_params *params_p), void *ctx)
{
    ngd_mutex_lock(&sched->shares_lock);
    ngd_list_for_each (l, &sched->shares) {
        struct ngd_share *share = ngd_container_of(l, struct ngd_share, link);
        struct ngd_share_params params;

        if (share == sched->own_share)
            continue;
        ngd_share_params_init(&params);
        params.key = atomic_load_explicit(&share->key, memory_order_relaxed);
        if (fn(ctx, share->name, &params))
            set_params(share, &params);
    }
    ngd_mutex_unlock(&sched->shares_lock);
}
