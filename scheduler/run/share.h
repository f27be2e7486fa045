/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SHARE_H
#define NGD_SCHEDULER_RUN_SHARE_H

/*
 * Shares: identities as the scheduler sees them. A share has a weight, which decides its part of a device's time when
 * more is asked for than there is; a bound on what it may have waiting; and an account with each device.
 *
 * Threads: any. Memory: reference counted; found by name in the scheduler's table until the last reference goes.
 */
#include "graphs/store.h"
#include "scheduler/lineup/policy.h"

struct ngd_sched;
struct ngd_share;

struct ngd_share_params {
    uint32_t weight;      /* 1..NGD_WEIGHT_MAX */
    uint32_t queue_limit; /* requests that may wait, on all devices; 0: no bound but the device's */
    /* Percent of the time of each device's stream slots that it gets at most, though they be idle: cap.h. 0: no bound.
     */
    uint32_t device_percent;
    uint64_t kv_limit;      /* KV blocks that the contexts of its sequences may take, in all models; 0: no bound */
    uint64_t capture_limit; /* captures that it may have waiting or running; 0: no bound */
    uint64_t store_limit;   /* bytes of the store's entries that its captures made; 0: no bound but the store's */
    uint64_t key;           /* of the identity: what it registers is its own; 0: the scheduler's */
};
void ngd_share_params_init(struct ngd_share_params *params);

/* Finds the share of that name, or makes it with these parameters; an existing one gets them. */
ngd_status_t ngd_share_open(struct ngd_sched *sched, const char *name, const struct ngd_share_params *params,
                            struct ngd_share **share_p, struct ngd_diag *diag);
struct ngd_share *ngd_share_ref(struct ngd_share *share);
struct ngd_share *ngd_share_unref(struct ngd_share *share); /* returns NULL; NULL is fine */

/*
 * KV blocks for the context of one of its sequences. Each sequence counts for itself: for blocks that it shares with
 * others too, and while it has given its blocks up to compute them again (preempt.c). So what an identity may have does
 * not depend on what others do. QUOTA: so many more do not fit, and none are counted.
 */
ngd_status_t ngd_share_take_blocks(struct ngd_share *share, uint64_t n, struct ngd_diag *diag);
void ngd_share_give_blocks(struct ngd_share *share, uint64_t n);

/* One capture that waits or runs: asked for ahead, or by a replay that misses. QUOTA: no more fit, and none is counted.
 */
ngd_status_t ngd_share_take_capture(struct ngd_share *share, struct ngd_diag *diag);
void ngd_share_give_capture(struct ngd_share *share);

/* For whom what its captures make is stored. The name is the share's; nobody for NULL and the scheduler's own share. */
struct ngd_store_payer ngd_share_store_payer(const struct ngd_share *share);

/* Where the time of replays went. */
typedef enum ngd_split_part {
#define NGD_SPLIT(ID, name, metric, help) NGD_SPLIT_##ID,
#include "scheduler/record/splits.def"
#undef NGD_SPLIT
    NGD_SPLIT_PARTS
} ngd_split_part_t;

struct ngd_split {
    ngd_nsec_t part[NGD_SPLIT_PARTS];
};
const char *ngd_split_name(ngd_split_part_t part);
/* A replay of the share's has taken that. */
void ngd_share_note_split(struct ngd_share *share, const struct ngd_split *split);

struct ngd_share_stats {
    const char *name;
    uint32_t weight, queue_limit;
    uint32_t waiting;
    uint64_t kv_blocks, kv_limit;
    uint64_t captures, capture_limit;
    uint64_t store_bytes, store_limit, store_refused;     /* all entries of that name, also of earlier processes */
    uint64_t kv_refused, queue_refused, captures_refused; /* how often more was refused */
    uint32_t device_percent;
    ngd_nsec_t held; /* time in which requests waited because of that */
    ngd_nsec_t used; /* device time, all devices */
    uint64_t replays;
    struct ngd_split split; /* of the replays; steps of sequences are not among them */
};
void ngd_share_stats(const struct ngd_share *share, struct ngd_share_stats *stats_p);
/* Under the table's lock: fn must be short and not call back. */
void ngd_share_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, const struct ngd_share_stats *stats), void *ctx);

#endif
