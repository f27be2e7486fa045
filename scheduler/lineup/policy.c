/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lineup/policy.h"
#include <string.h>

#define NGD_SCHED_POLICY(name) extern const struct ngd_sched_policy ngd_sched_policy_##name;
#include "scheduler/lineup/policies.def"
#undef NGD_SCHED_POLICY

static const struct ngd_sched_policy *const policies[] = {
#define NGD_SCHED_POLICY(name) &ngd_sched_policy_##name,
#include "scheduler/lineup/policies.def"
#undef NGD_SCHED_POLICY
    NULL,
};

const struct ngd_sched_policy *const *ngd_sched_policies(void)
{
    return policies;
}

const struct ngd_sched_policy *ngd_sched_policy_find(const char *name)
{
    for (size_t i = 0; policies[i]; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

int ngd_class_next(const ngd_nsec_t served[NGD_PRIORITIES], unsigned waiting, ngd_nsec_t step, ngd_nsec_t now)
{
    int64_t best_rank = INT64_MAX;
    int best = -1;

    if (waiting && !(waiting & (waiting - 1))) /* the usual case, without divisions */
        return __builtin_ctz(waiting);
    for (int c = 0; c < NGD_PRIORITIES; c++) {
        int64_t rank;

        if (!(waiting >> c & 1))
            continue;
        rank = c - (now - served[c]) / step;
        if (rank < best_rank || (rank == best_rank && served[c] < served[best])) {
            best_rank = rank;
            best = c;
        }
    }
    return best;
}

void ngd_sched_item_init(struct ngd_sched_item *item, const struct ngd_sched_item_ops *ops)
{
    *item = (struct ngd_sched_item){.ops = ops, .deadline = NGD_NSEC_NEVER, .priority = NGD_PRIORITY_NORMAL};
    ngd_list_init(&item->link);
    ngd_list_init(&item->merge_link);
    ngd_list_init(&item->mates);
}

static bool sooner(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    const struct ngd_sched_item *x = ngd_container_of(a, struct ngd_sched_item, node);
    const struct ngd_sched_item *y = ngd_container_of(b, struct ngd_sched_item, node);

    return x->deadline != y->deadline ? x->deadline < y->deadline : x->serial < y->serial;
}

void ngd_account_init(struct ngd_account *account, uint32_t weight)
{
    memset(account, 0, sizeof(*account));
    account->weight = weight;
    for (int c = 0; c < NGD_PRIORITIES; c++) {
        ngd_heap_init(&account->classes[c].items, sooner);
        ngd_list_init(&account->classes[c].link);
    }
}

/* The slots share the queued work, but nothing begins before the first slot is free. */
ngd_nsec_t ngd_sched_predict(ngd_nsec_t ahead, const ngd_nsec_t *left, uint32_t n, ngd_nsec_t cost)
{
    ngd_nsec_t soonest = NGD_NSEC_NEVER;

    for (uint32_t i = 0; i < n; i++) {
        ahead += left[i];
        soonest = left[i] < soonest ? left[i] : soonest;
    }
    ahead /= n;
    return (ahead > soonest ? ahead : soonest) + cost;
}

ngd_nsec_t ngd_sched_late(const struct ngd_sched_policy *policy, void *state, struct ngd_sched_item *item,
                          ngd_nsec_t now, const ngd_nsec_t *left, uint32_t n)
{
    if (policy->late)
        return policy->late(state, item, now, left, n);
    return now + ngd_sched_predict(policy->ahead(state, item), left, n, item->cost) - item->deadline;
}
