/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups.h"
#include "base/mem.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

struct ngd_groups *ngd_groups_create(const char *issuer, size_t bytes, int64_t issued, struct ngd_jwk *key)
{
    const size_t prefix = strlen(issuer) + 1, room = prefix + bytes;
    struct ngd_groups *groups = ngd_calloc(1, sizeof(*groups) + room);

    if (!groups)
        return NULL;
    atomic_init(&groups->refs, 1);
    groups->issued = issued;
    groups->key = ngd_jwk_ref(key);
    memcpy(groups->text, issuer, prefix - 1);
    groups->text[prefix - 1] = ':';
    groups->prefix = groups->used = prefix;
    groups->room = room;
    return groups;
}

void ngd_groups_add(struct ngd_groups *groups, const char *name)
{
    const size_t n = strlen(name) + 1;

    assert(n <= groups->room - groups->used);
    memcpy(groups->text + groups->used, name, n);
    groups->used += n;
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
    if (!groups || ngd_jwk_is_withdrawn(groups->key) || n < groups->prefix ||
        memcmp(name, groups->text, groups->prefix) != 0)
        return false;
    name += groups->prefix;
    n -= groups->prefix;
    for (size_t at = groups->prefix, len; at < groups->used; at += len + 1) {
        len = strlen(groups->text + at);
        if (len == n && memcmp(groups->text + at, name, n) == 0)
            return true;
    }
    return false;
}
