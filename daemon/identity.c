/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/identity.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct ngd_identities {
    struct ngd_identities_params params;
    char own_name[32]; /* the daemon's own user is an admin */
    struct ngd_mutex lock;
    struct ngd_identity *first NGD_GUARDED_BY(lock);
};

static const struct {
    const char *name, *what;
} quotas[] = {
    [NGD_QUOTA_SESSIONS] = {"sessions", "open sessions (max-sessions-per-identity)"},
    [NGD_QUOTA_GRAPHS] = {"graphs", "registered graphs (max-graphs-per-identity)"},
    [NGD_QUOTA_SEQUENCES] = {"sequences", "open sequences (max-sequences-per-identity)"},
    [NGD_QUOTA_BYTES] = {"bytes", "bytes in buffers (max-bytes-per-identity)"},
    [NGD_QUOTA_KV_BLOCKS] = {"kv_blocks", "KV blocks (max-kv-blocks-per-identity)"},
};

const char *ngd_quota_name(ngd_quota_t kind)
{
    return quotas[kind].name;
}

ngd_status_t ngd_identities_create(const struct ngd_identities_params *params, struct ngd_identities **table_p)
{
    struct ngd_identities *table = NGD_NEW(struct ngd_identities);

    if (!table)
        return NGD_ERR_NO_MEMORY;
    table->params = *params;
    snprintf(table->own_name, sizeof(table->own_name), "uid:%lu", (unsigned long)geteuid());
    ngd_mutex_init(&table->lock, NGD_RANK_IDENTITIES);
    *table_p = table;
    return NGD_OK;
}

/* No other thread has the table any more. */
void ngd_identities_destroy(struct ngd_identities *table) NGD_NO_THREAD_SAFETY
{
    if (!table)
        return;
    while (table->first) {
        struct ngd_identity *identity = table->first;

        table->first = identity->next;
        ngd_free(identity);
    }
    ngd_mutex_fini(&table->lock);
    ngd_free(table);
}

static bool is_admin(const struct ngd_identities *table, const char *name)
{
    if (strcmp(name, "uid:0") == 0 || strcmp(name, table->own_name) == 0)
        return true;
    for (size_t i = 0; i < table->params.n_admins; i++)
        if (strcmp(name, table->params.admins[i]) == 0)
            return true;
    return false;
}

struct ngd_identity *ngd_identity_get(struct ngd_identities *table, const char *name)
{
    struct ngd_identity *identity;

    ngd_mutex_lock(&table->lock);
    for (identity = table->first; identity; identity = identity->next)
        if (strcmp(identity->name, name) == 0)
            break;
    if (identity) {
        identity->refs++;
    } else if ((identity = NGD_NEW(struct ngd_identity))) {
        snprintf(identity->name, sizeof(identity->name), "%s", name);
        identity->admin = is_admin(table, name);
        identity->refs = 1;
        identity->table = table;
        identity->next = table->first;
        table->first = identity;
    }
    ngd_mutex_unlock(&table->lock);
    return identity;
}

struct ngd_identity *ngd_identity_ref(struct ngd_identity *identity)
{
    ngd_mutex_lock(&identity->table->lock);
    identity->refs++;
    ngd_mutex_unlock(&identity->table->lock);
    return identity;
}

struct ngd_identity *ngd_identity_unref(struct ngd_identity *identity)
{
    struct ngd_identities *table;
    bool last;

    if (!identity)
        return NULL;
    table = identity->table;
    ngd_mutex_lock(&table->lock);
    last = --identity->refs == 0;
    if (last) {
        struct ngd_identity **at = &table->first;

        while (*at != identity)
            at = &(*at)->next;
        *at = identity->next;
    }
    ngd_mutex_unlock(&table->lock);
    if (last)
        ngd_free(identity);
    return NULL;
}

ngd_status_t ngd_identity_take(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n, struct ngd_diag *diag)
{
    uint64_t limit = identity->table->params.limits[kind];
    uint64_t used = atomic_load(&identity->used[kind]), sum;

    do {
        if (__builtin_add_overflow(used, n, &sum) || (limit && sum > limit))
            return ngd_diag_set(diag, NGD_ERR_QUOTA, "%s has %llu of %llu %s; %llu more do not fit: free some first",
                                identity->name, (unsigned long long)used, (unsigned long long)limit, quotas[kind].what,
                                (unsigned long long)n);
    } while (!atomic_compare_exchange_weak(&identity->used[kind], &used, sum));
    return NGD_OK;
}

void ngd_identity_give(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n)
{
    atomic_fetch_sub(&identity->used[kind], n);
}

bool ngd_identities_usage(struct ngd_identities *table, const struct ngd_share_stats *share,
                          struct ngd_quota_usage usage_p[NGD_QUOTA_KINDS])
{
    const struct ngd_identity *identity;

    ngd_mutex_lock(&table->lock);
    for (identity = table->first; identity; identity = identity->next)
        if (strcmp(identity->name, share->name) == 0)
            break;
    for (int i = 0; identity && i < NGD_QUOTA_KINDS; i++)
        usage_p[i] = (struct ngd_quota_usage){atomic_load(&identity->used[i]), table->params.limits[i]};
    ngd_mutex_unlock(&table->lock);
    usage_p[NGD_QUOTA_KV_BLOCKS] = (struct ngd_quota_usage){share->kv_blocks, share->kv_limit};
    return identity != NULL;
}
