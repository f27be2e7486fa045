/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups.h"
#include "base/mem.h"
#include <stdatomic.h>
#include <string.h>

struct ngd_groups *ngd_groups_create(size_t n, int64_t issued, struct ngd_jwk *key)
{
    struct ngd_groups *groups = ngd_calloc(1, sizeof(*groups) + n * sizeof(groups->names[0]));

    if (!groups)
        return NULL;
    atomic_init(&groups->refs, 1);
    groups->issued = issued;
    groups->key = ngd_jwk_ref(key);
    groups->n = n;
    return groups;
}

struct ngd_groups *ngd_groups_ref(struct ngd_groups *groups)
{
    if (groups)
        atomic_fetch_add_explicit(&groups->refs, 1, memory_order_relaxed);
    return groups;
}

struct ngd_groups *ngd_groups_unref(struct ngd_groups *groups)
{
    if (groups && atomic_fetch_sub_explicit(&groups->refs, 1, memory_order_acq_rel) == 1) {
        for (size_t i = 0; i < groups->n; i++)
            ngd_free(groups->names[i]);
        ngd_jwk_unref(groups->key);
        ngd_free(groups);
    }
    return NULL;
}

bool ngd_groups_replace(const struct ngd_groups *fresh, const struct ngd_groups *old)
{
    return !old || old->issued <= fresh->issued || ngd_jwk_is_withdrawn(old->key);
}

bool ngd_groups_have(const struct ngd_groups *groups, const char *name, size_t n)
{
    if (!groups || ngd_jwk_is_withdrawn(groups->key))
        return false;
    for (size_t i = 0; i < groups->n; i++)
        if (strlen(groups->names[i]) == n && memcmp(groups->names[i], name, n) == 0)
            return true;
    return false;
}
