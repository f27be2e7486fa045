/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/policy.h"
#include <string.h>

#define NGD_SCHED_POLICY(name) extern const struct ngd_sched_policy ngd_sched_policy_##name;
#include "scheduler/policies.def"
#undef NGD_SCHED_POLICY

static const struct ngd_sched_policy *const policies[] = {
#define NGD_SCHED_POLICY(name) &ngd_sched_policy_##name,
#include "scheduler/policies.def"
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

void ngd_sched_item_init(struct ngd_sched_item *item, const struct ngd_sched_item_ops *ops)
{
    *item = (struct ngd_sched_item){.ops = ops, .deadline = NGD_NSEC_NEVER};
    ngd_list_init(&item->link);
}
