/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SHARE_H
#define NGD_SCHEDULER_RUN_SHARE_H

/*
 * Shares: identities as the scheduler sees them. A share has a weight, which decides its part of a device's time when
 * more is asked for than there is; limits on what it may have waiting; and an account for each device.
 *
 * Threads: any. Memory: reference counted; found by name in the scheduler's table until the last reference goes.
 */
#include "graphs/store.h"
#include "scheduler/lineup/policy.h"

struct ngd_sched;
struct ngd_share;

struct ngd_share_params {
    uint32_t weight;      /* 1..NGD_WEIGHT_MAX */
    uint32_t queue_limit; /* requests that may wait, all devices; 0: only the device's limit */
    /* Percent of the time of each device's stream slots that it may have, even if they are idle: cap.h. 0: no limit. */
    uint32_t device_percent;
    uint64_t kv_limit;      /* KV blocks that the contexts of its sequences may take, all models; 0: no limit */
    uint64_t capture_limit; /* captures that may wait or run; 0: no limit */
    uint64_t store_limit;   /* bytes of store entries that its captures made; 0: only the store's limit */
    uint64_t key;           /* of the identity; programs that it registers belong to this key; 0: the scheduler */
};
void ngd_share_params_init(struct ngd_share_params *params);

/* Finds or makes the share of that name, and sets its parameters. */
ngd_status_t ngd_share_open(struct ngd_sched *sched, const char *name, const struct ngd_share_params *params,
                            struct ngd_share **share_p, struct ngd_diag *diag);
struct ngd_share *ngd_share_ref(struct ngd_share *share);
struct ngd_share *ngd_share_unref(struct ngd_share *share); /* returns NULL; NULL is fine */

/*
 * Counts n KV blocks for the context of one of its sequences. QUOTA: n more exceed the limit, and none are counted.
 *
 * Each sequence counts fully: blocks that it shares with others too, and while it has given up its blocks to recompute
 * them later (preempt.c). So what an identity may have does not depend on others.
 */
ngd_status_t ngd_share_take_blocks(struct ngd_share *share, uint64_t n, struct ngd_diag *diag);
void ngd_share_give_blocks(struct ngd_share *share, uint64_t n);

/*
 * Counts one capture that waits or runs, whether requested ahead or missed by a replay. QUOTA: it exceeds the limit,
 * and is not counted.
 */
ngd_status_t ngd_share_take_capture(struct ngd_share *share, struct ngd_diag *diag);
void ngd_share_give_capture(struct ngd_share *share);

/*
 * Returns the payer of store entries that the share's captures make. Its name is the share's; "" for NULL and for the
 * scheduler's own share.
 */
struct ngd_store_payer ngd_share_store_payer(const struct ngd_share *share);

/* The parts of a replay's time (splits.def). */
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
/* Adds a replay's split to the share's sums. */
void ngd_share_note_split(struct ngd_share *share, const struct ngd_split *split);

struct ngd_share_stats {
    const char *name;
    uint32_t weight, queue_limit;
    uint32_t waiting;
    uint64_t kv_blocks, kv_limit;
    uint64_t captures, capture_limit;
    uint64_t store_bytes, store_limit, store_refused;     /* all entries of that name, also from earlier runs */
    uint64_t kv_refused, queue_refused, captures_refused; /* number of refusals */
    uint32_t device_percent;
    ngd_nsec_t held; /* ns in which the cap held requests back */
    ngd_nsec_t used; /* device time, ns, all devices */
    uint64_t replays;
    struct ngd_split split; /* of replays; steps of sequences are not included */
};
void ngd_share_stats(const struct ngd_share *share, struct ngd_share_stats *stats_p);
/* Calls fn under the table's lock: fn must be short and must not call into the scheduler. */
void ngd_share_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, const struct ngd_share_stats *stats), void *ctx);

/* Sets the parameters of each share to what fn makes of its name; where fn returns false, the old ones stay. fn runs
 * under the table's lock, as above. */
void ngd_share_set_all(struct ngd_sched *sched,
                       bool (*fn)(void *ctx, const char *name, struct ngd_share_params *params_p), void *ctx);

#endif
