/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/identity.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct ngd_identities {
    _Atomic uint64_t limits[NGD_QUOTA_KINDS], admin_limits[NGD_QUOTA_KINDS];
    struct ngd_role_rules roles NGD_GUARDED_BY(lock);
    char own_name[32];  /* the daemon's own user is an admin */
    uint8_t secret[32]; /* of this process: keys of identities are made of it */
    struct ngd_mutex lock;
    struct ngd_identity *first NGD_GUARDED_BY(lock);
};

static const struct {
    const char *name, *option, *noun;
    bool is_bytes;
} quotas[] = {
#define SIZE                                                                true
#define INT                                                                 false
#define NGD_QUOTA(ID, name, option, type, def, min, max, total, noun, help) {name, option, noun, type},
#include "daemon/quotas.def"
#undef NGD_QUOTA
#undef SIZE
#undef INT
};

const char *ngd_quota_name(ngd_quota_t kind)
{
    return quotas[kind].name;
}

bool ngd_quota_is_bytes(ngd_quota_t kind)
{
    return quotas[kind].is_bytes;
}

ngd_status_t ngd_identities_create(const struct ngd_identities_params *params, struct ngd_identities **table_p)
{
    struct ngd_identities *table = NGD_NEW(struct ngd_identities);

    if (!table)
        return NGD_ERR_NO_MEMORY;
    if (getrandom(table->secret, sizeof(table->secret), 0) != sizeof(table->secret)) {
        ngd_free(table);
        return NGD_ERR_INTERNAL;
    }
    snprintf(table->own_name, sizeof(table->own_name), "uid:%lu", (unsigned long)geteuid());
    ngd_mutex_init(&table->lock, NGD_RANK_IDENTITIES);
    ngd_identities_set(table, params);
    *table_p = table;
    return NGD_OK;
}

static void log_held(const struct ngd_identity *identity)
{
    ngd_error("identity", "%s has %u references at the end", identity->name, identity->refs);
    for (int i = 0; i < NGD_QUOTA_KINDS; i++)
        if (atomic_load(&identity->used[i]))
            ngd_error("identity", "%s is charged with %llu %s at the end", identity->name,
                      (unsigned long long)atomic_load(&identity->used[i]), quotas[i].noun);
}

/* No other thread has the table any more. */
void ngd_identities_destroy(struct ngd_identities *table) NGD_NO_THREAD_SAFETY
{
    if (!table)
        return;
    while (table->first) {
        struct ngd_identity *identity = table->first;

        log_held(identity);
        assert(!"an identity is held at the end");
        table->first = identity->next;
        ngd_free(identity);
    }
    ngd_mutex_fini(&table->lock);
    ngd_free(table);
}

static void set_role(const struct ngd_identities *table, struct ngd_identity *identity) NGD_REQUIRES(table->lock)
{
    identity->role = (int)ngd_role_of(&table->roles, table->own_name, identity->name, identity->groups);
    identity->admin = identity->role == NGD_ROLE_ADMIN;
}

void ngd_identities_set(struct ngd_identities *table, const struct ngd_identities_params *params)
{
    ngd_mutex_lock(&table->lock);
    table->roles = params->roles;
    for (int i = 0; i < NGD_QUOTA_KINDS; i++) {
        atomic_store_explicit(&table->limits[i], params->limits[i], memory_order_relaxed);
        atomic_store_explicit(&table->admin_limits[i], params->admin_limits[i], memory_order_relaxed);
    }
    for (struct ngd_identity *identity = table->first; identity; identity = identity->next)
        set_role(table, identity);
    ngd_mutex_unlock(&table->lock);
}

static uint64_t make_key(const struct ngd_identities *table, const char *name)
{
    struct {
        uint8_t secret[32];
        char name[NGD_IDENTITY_MAX];
    } text = {.name = ""};
    struct ngd_digest digest;
    uint64_t key;

    memcpy(text.secret, table->secret, sizeof(text.secret));
    snprintf(text.name, sizeof(text.name), "%s", name);
    ngd_digest_of(&text, sizeof(text), &digest);
    memcpy(&key, digest.b, sizeof(key));
    return key ? key : 1;
}

static void init_payers(struct ngd_identity *identity);

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
        set_role(table, identity);
        identity->proven = strncmp(name, "tcp:", 4) != 0;
        identity->nobody = strncmp(name, NGD_IDENTITY_NOBODY ":", strlen(NGD_IDENTITY_NOBODY ":")) == 0;
        identity->key = make_key(table, name);
        init_payers(identity);
        ngd_answer_pool_init(&identity->answers);
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

void ngd_identity_set_groups(struct ngd_identity *identity, struct ngd_groups *groups)
{
    struct ngd_groups *old = NULL;

    ngd_mutex_lock(&identity->table->lock);
    if (identity->groups != groups && ngd_groups_replace(groups, identity->groups)) {
        old = identity->groups;
        identity->groups = ngd_groups_ref(groups);
        set_role(identity->table, identity);
    }
    ngd_mutex_unlock(&identity->table->lock);
    ngd_groups_unref(old);
}

struct ngd_groups *ngd_identity_groups(const struct ngd_identity *identity)
{
    struct ngd_groups *groups;

    ngd_mutex_lock(&identity->table->lock);
    groups = ngd_groups_ref(identity->groups);
    ngd_mutex_unlock(&identity->table->lock);
    return groups;
}

/*
 * All that an identity holds keeps a reference to it. With the last one gone, each of its counts must be 0: more, and
 * something was given back without its charge; less is caught by ngd_identity_give.
 */
static void assert_nothing_is_charged(const struct ngd_identity *identity)
{
    for (int i = 0; i < NGD_QUOTA_KINDS; i++)
        assert(atomic_load(&identity->used[i]) == 0);
    assert(atomic_load(&identity->withdrawn) == 0);
    (void)identity;
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
    if (last) {
        assert_nothing_is_charged(identity);
        ngd_answer_pool_fini(&identity->answers);
        ngd_groups_unref(identity->groups);
        ngd_free(identity);
    }
    return NULL;
}

uint64_t ngd_identity_room(const struct ngd_identity *identity, uint64_t total)
{
    return identity->admin ? total : total - total / 8;
}

uint64_t ngd_identity_limit(const struct ngd_identity *identity, ngd_quota_t kind)
{
    const struct ngd_identities *table = identity->table;

    return atomic_load_explicit(identity->admin ? &table->admin_limits[kind] : &table->limits[kind],
                                memory_order_relaxed);
}

static ngd_status_t refuse(struct ngd_identity *identity, ngd_quota_t kind, uint64_t used, uint64_t n,
                           struct ngd_diag *diag)
{
    atomic_fetch_add_explicit(&identity->refused[kind], 1, memory_order_relaxed);
    ngd_metric_row_add(ngd_metric_row(NGD_M_QUOTA_REFUSED, quotas[kind].name), 1);
    return ngd_diag_set(diag, NGD_ERR_QUOTA, "%s has %llu of %llu %s (%s); %llu more do not fit: free some first",
                        identity->name, (unsigned long long)used,
                        (unsigned long long)ngd_identity_limit(identity, kind), quotas[kind].noun, quotas[kind].option,
                        (unsigned long long)n);
}

ngd_status_t ngd_identity_take(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n, struct ngd_diag *diag)
{
    uint64_t limit = ngd_identity_limit(identity, kind);
    uint64_t used = atomic_load(&identity->used[kind]), sum;

    do {
        if (__builtin_add_overflow(used, n, &sum) || (limit && sum > limit))
            return refuse(identity, kind, used, n, diag);
    } while (!atomic_compare_exchange_weak(&identity->used[kind], &used, sum));
    return NGD_OK;
}

static uint64_t calls_of(const struct ngd_identity *identity)
{
    return atomic_load(&identity->used[NGD_QUOTA_CALLS]) + atomic_load(&identity->withdrawn);
}

ngd_status_t ngd_identity_check_calls(struct ngd_identity *identity, struct ngd_diag *diag)
{
    const uint64_t limit = ngd_identity_limit(identity, NGD_QUOTA_CALLS), calls = calls_of(identity);

    return limit && calls > limit ? refuse(identity, NGD_QUOTA_CALLS, calls, 1, diag) : NGD_OK;
}

void ngd_identity_hold(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n)
{
    atomic_fetch_add(&identity->used[kind], n);
}

void ngd_identity_give(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n)
{
    uint64_t had = atomic_fetch_sub(&identity->used[kind], n);

    assert(had >= n);
    (void)had;
}

/* ---- as a payer ---- */

static struct ngd_identity_payer *of_payer(struct ngd_payer *payer)
{
    return ngd_container_of(payer, struct ngd_identity_payer, base);
}

static ngd_status_t payer_take(struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag)
{
    return ngd_identity_take(of_payer(payer)->identity, of_payer(payer)->kind, n, diag);
}

static void payer_give(struct ngd_payer *payer, uint64_t n)
{
    ngd_identity_give(of_payer(payer)->identity, of_payer(payer)->kind, n);
}

static void payer_ref(struct ngd_payer *payer)
{
    ngd_identity_ref(of_payer(payer)->identity);
}

static void payer_unref(struct ngd_payer *payer)
{
    ngd_identity_unref(of_payer(payer)->identity);
}

static const struct ngd_payer_ops payer_ops = {
    .take = payer_take, .give = payer_give, .ref = payer_ref, .unref = payer_unref};

static void init_payers(struct ngd_identity *identity)
{
    for (int i = 0; i < NGD_QUOTA_KINDS; i++)
        identity->payers[i] =
            (struct ngd_identity_payer){.base.ops = &payer_ops, .identity = identity, .kind = (ngd_quota_t)i};
}

struct ngd_payer *ngd_identity_payer(struct ngd_identity *identity, ngd_quota_t kind)
{
    return &identity->payers[kind].base;
}

struct ngd_payers ngd_identity_payers(struct ngd_identity *identity)
{
    return (struct ngd_payers){.host = ngd_identity_payer(identity, NGD_QUOTA_HOST_BYTES),
                               .device = ngd_identity_payer(identity, NGD_QUOTA_BYTES),
                               .dumps = ngd_identity_payer(identity, NGD_QUOTA_DUMP_BYTES)};
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
        usage_p[i] =
            (struct ngd_quota_usage){atomic_load(&identity->used[i]), ngd_identity_limit(identity, (ngd_quota_t)i),
                                     atomic_load(&identity->refused[i])};
    if (identity)
        usage_p[NGD_QUOTA_CALLS].used = calls_of(identity);
    ngd_mutex_unlock(&table->lock);
    usage_p[NGD_QUOTA_KV_BLOCKS] = (struct ngd_quota_usage){share->kv_blocks, share->kv_limit, share->kv_refused};
    usage_p[NGD_QUOTA_CAPTURES] =
        (struct ngd_quota_usage){share->captures, share->capture_limit, share->captures_refused};
    usage_p[NGD_QUOTA_STORE_BYTES] =
        (struct ngd_quota_usage){share->store_bytes, share->store_limit, share->store_refused};
    usage_p[NGD_QUOTA_QUEUED] = (struct ngd_quota_usage){share->waiting, share->queue_limit, share->queue_refused};
    return identity != NULL;
}
