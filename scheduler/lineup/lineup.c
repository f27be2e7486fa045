/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lineup/lineup.h"
#include "scheduler/lineup/merge.h"

ngd_status_t ngd_lineup_init(struct ngd_lineup *lineup, const struct ngd_sched_policy *policy)
{
    void *state;
    ngd_status_t status = policy->create(&state);

    if (status)
        return status;
    *lineup = (struct ngd_lineup){.policy = policy, .state = state};
    ngd_caps_init(&lineup->caps, policy, state);
    return NGD_OK;
}

void ngd_lineup_fini(struct ngd_lineup *lineup)
{
    if (lineup->policy)
        lineup->policy->destroy(lineup->state);
    lineup->policy = NULL;
}

void ngd_lineup_push(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now)
{
    item->queued = true;
    ngd_caps_push(&lineup->caps, item, now);
    lineup->depth++;
    if (item->merge) {
        ngd_merge_enter(item, now);
        lineup->merging = item->merge;
    }
}

void ngd_lineup_remove(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now)
{
    ngd_caps_remove(&lineup->caps, item, now);
    item->queued = false;
    lineup->depth--;
    if (item->merge)
        ngd_merge_leave(item);
}

struct ngd_sched_item *ngd_lineup_take(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p)
{
    const bool stopping = lineup->caps.stopping; /* then each item is taken alone, to be aborted */
    struct ngd_sched_item *item;

    *until_p = NGD_NSEC_NEVER;
    if (lineup->depth == 0)
        return NULL;
    if (lineup->merging && !stopping && ngd_merge_waits(lineup, now, until_p)) {
        lineup->lingers_until = *until_p;
        return NULL;
    }
    item = ngd_caps_pop(&lineup->caps, now);
    if (!item) {
        *until_p = ngd_caps_next(&lineup->caps);
        return NULL;
    }
    item->queued = false;
    lineup->depth--;
    *until_p = now + item->cost;
    if (item->merge) {
        ngd_merge_leave(item);
        if (!stopping)
            *until_p = now + ngd_merge_take(lineup, item, now);
    }
    return item;
}

ngd_nsec_t ngd_lineup_late(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now,
                           const ngd_nsec_t *left, uint32_t n)
{
    return ngd_caps_late(&lineup->caps, item, now, left, n);
}

bool ngd_lineup_goes_on_lingering(struct ngd_lineup *lineup, ngd_nsec_t now)
{
    ngd_nsec_t until;

    return lineup->lingers_until && ngd_merge_waits(lineup, now, &until) && until >= lineup->lingers_until;
}
