/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room in the store: the list of entries, the budget, and the bytes of each owner.
 *
 * bytes, n_entries and owners count this process's entries, and those of others as of the last scan of the directory.
 * They decide when to scan again: if a new entry would exceed the budget or its owner's limit by these counts, and
 * after every LOOK_EVERY writes.
 *
 * If the budget is full, entries without an owner are evicted first, then the oldest of the owner with the most bytes.
 * If that is the writer, and it has no entry left to evict, the new entry is refused. So an owner with less than an
 * equal part of the store keeps its entries, however much others write.
 */
#include "base/mem.h"
#include "graphs/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Subtracts, but not below zero: other processes may remove files that were counted here. */
static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* ---- counting ------------------------------------------------------------------------------------------ */

static void publish(struct ngd_store *store, uint64_t bytes, uint32_t n)
{
    atomic_store(&store->bytes, bytes);
    atomic_store(&store->n_entries, n);
    ngd_metric_set(NGD_M_STORE_BYTES, (int64_t)bytes);
    ngd_metric_set(NGD_M_STORE_ENTRIES, (int64_t)n);
}

/* Gives bytes and owner of an entry. Returns false if there is no entry of that name. */
static bool entry_bytes(struct ngd_store *store, const char *name, uint64_t *bytes_p, char owner[NGD_STORE_OWNER_MAX])
{
    struct stat st;

    if (fstatat(store->entries, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    owner[0] = '\0';
    *bytes_p = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    if (S_ISREG(st.st_mode))
        ngd_store_owner_of_file(store->entries, name, owner);
    return true;
}

void ngd_store_count(struct ngd_store *store, const char *name)
{
    char owner[NGD_STORE_OWNER_MAX];
    uint64_t bytes;
    uint32_t i;

    if (!entry_bytes(store, name, &bytes, owner))
        return;
    publish(store, atomic_load(&store->bytes) + bytes, atomic_load(&store->n_entries) + 1);
    ngd_mutex_lock(&store->owners_lock);
    if (ngd_store_owners_add(&store->owners, owner, &i)) /* without memory the next scan counts it */
        store->owners.items[i].bytes += bytes;
    ngd_mutex_unlock(&store->owners_lock);
}

void ngd_store_uncount(struct ngd_store *store, const char *name)
{
    char owner[NGD_STORE_OWNER_MAX];
    struct ngd_store_owner *o;
    uint64_t bytes;

    if (!entry_bytes(store, name, &bytes, owner))
        return;
    publish(store, less(atomic_load(&store->bytes), bytes), (uint32_t)less(atomic_load(&store->n_entries), 1));
    ngd_mutex_lock(&store->owners_lock);
    o = ngd_store_owners_find(&store->owners, owner);
    if (o)
        o->bytes = less(o->bytes, bytes);
    ngd_mutex_unlock(&store->owners_lock);
}

void ngd_store_held(struct ngd_store *store, const char *owner, struct ngd_store_held *held_p)
{
    const struct ngd_store_owner *o;

    ngd_mutex_lock(&store->owners_lock);
    o = ngd_store_owners_find(&store->owners, owner);
    *held_p = o ? (struct ngd_store_held){o->bytes, o->refused} : (struct ngd_store_held){.bytes = 0};
    ngd_mutex_unlock(&store->owners_lock);
}

void ngd_store_note_refused(struct ngd_store *store, const char *owner)
{
    uint32_t i;

    ngd_metric_row_add(ngd_metric_row(NGD_M_QUOTA_REFUSED, "store_bytes"), 1);
    ngd_mutex_lock(&store->owners_lock);
    if (ngd_store_owners_add(&store->owners, owner, &i))
        store->owners.items[i].refused++;
    ngd_mutex_unlock(&store->owners_lock);
}

bool ngd_store_is_full(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more)
{
    const uint64_t budget = atomic_load(&store->budget);
    struct ngd_store_held held;

    if (budget && atomic_load(&store->bytes) + more > budget)
        return true;
    if (!payer->limit)
        return false;
    ngd_store_held(store, payer->name, &held);
    return held.bytes + more > payer->limit;
}

/* ---- scanning ------------------------------------------------------------------------------------------ */

struct listing {
    struct ngd_store_item *items; /* most recently used first, with times in nanoseconds */
    uint32_t n, cap;
    uint32_t left; /* items that were not evicted */
    uint64_t bytes;
    struct ngd_store_owners owners;
    bool failed;
};

static void listing_fini(struct listing *l)
{
    ngd_free(l->items);
    ngd_store_owners_fini(&l->owners);
}

static bool grow_listing(struct listing *l)
{
    uint32_t cap = l->cap ? l->cap * 2 : 64;
    struct ngd_store_item *items = ngd_reallocarray(l->items, cap, sizeof(*items));

    if (!items)
        return false;
    l->items = items;
    l->cap = cap;
    return true;
}

static void add_item(void *ctx, int dir, const char *name)
{
    char owner[NGD_STORE_OWNER_MAX] = "";
    struct listing *l = ctx;
    struct ngd_store_item *item;
    struct stat st;

    if (l->failed || !ngd_store_is_name(name) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (S_ISREG(st.st_mode))
        ngd_store_owner_of_file(dir, name, owner);
    l->failed = l->n == l->cap && !grow_listing(l);
    if (l->failed)
        return;
    item = &l->items[l->n];
    l->failed = !ngd_store_owners_add(&l->owners, owner, &item->owner);
    if (l->failed)
        return;
    memcpy(item->name, name, strlen(name) + 1);
    item->bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    item->used = (int64_t)st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    l->owners.items[item->owner].bytes += item->bytes;
    l->bytes += item->bytes;
    l->left = ++l->n;
}

static int by_use(const void *pa, const void *pb)
{
    const struct ngd_store_item *a = pa, *b = pb;

    if (a->used != b->used)
        return a->used > b->used ? -1 : 1;
    return strcmp(a->name, b->name);
}

static ngd_status_t list_store_entries(struct ngd_store *store, struct listing *l, struct ngd_diag *diag)
{
    ngd_status_t status;

    *l = (struct listing){.items = NULL};
    status = ngd_store_dir_each(store->entries, add_item, l);
    if (status == NGD_OK && l->failed)
        status = NGD_ERR_NO_MEMORY;
    if (status) {
        listing_fini(l);
        return ngd_diag_set(diag, status, "%s/entries cannot be read: %s", store->dir, ngd_status_text(status));
    }
    if (l->n > 0)
        qsort(l->items, l->n, sizeof(l->items[0]), by_use);
    return NGD_OK;
}

/* Replaces the store's counts by those of the listing, and takes the listing's owners. */
static void count_anew(struct ngd_store *store, struct listing *l)
{
    struct ngd_store_owners before;
    uint32_t k;

    publish(store, l->bytes, l->left);
    ngd_mutex_lock(&store->owners_lock);
    before = store->owners;
    for (uint32_t i = 0; i < before.n; i++)
        if (before.items[i].refused && ngd_store_owners_add(&l->owners, before.items[i].name, &k))
            l->owners.items[k].refused = before.items[i].refused;
    store->owners = l->owners;
    ngd_mutex_unlock(&store->owners_lock);
    l->owners = before;
}

ngd_status_t ngd_store_list(struct ngd_store *store, struct ngd_store_item **items_p, uint32_t *n_p,
                            struct ngd_diag *diag)
{
    struct listing l;
    ngd_status_t status = list_store_entries(store, &l, diag);

    if (status)
        return status;
    count_anew(store, &l);
    ngd_store_owners_fini(&l.owners);
    for (uint32_t i = 0; i < l.n; i++)
        l.items[i].used /= INT64_C(1000000000);
    *items_p = l.items;
    *n_p = l.n;
    return NGD_OK;
}

/* ---- evicting ------------------------------------------------------------------------------------------ */

/* Removes an owner's least recently used entry, and sets the owner's `before` to where to continue. Returns false if
 * there is none left. */
static bool evict_oldest(struct ngd_store *store, struct listing *l, uint32_t owner)
{
    struct ngd_store_owner *o = &l->owners.items[owner];

    while (o->before > 0) {
        const struct ngd_store_item *item = &l->items[--o->before];

        if (item->owner != owner || (unlinkat(store->entries, item->name, 0) != 0 && errno != ENOENT))
            continue;
        l->bytes -= item->bytes;
        o->bytes -= item->bytes;
        l->left--;
        atomic_fetch_add(&store->evictions, 1);
        ngd_metric_inc(NGD_M_STORE_EVICTIONS);
        return true;
    }
    return false;
}

/* Chooses the owner whose entry is evicted next for the budget. The payer counts with `more` bytes in addition. Returns
 * false if the owner with the most bytes has no entry to evict. */
static bool choose_owner(const struct listing *l, uint32_t payer, uint64_t more, uint32_t *owner_p)
{
    uint64_t most = 0;

    *owner_p = NGD_STORE_NOBODY;
    if (l->owners.items[NGD_STORE_NOBODY].before > 0)
        return true;
    for (uint32_t i = 1; i < l->owners.n; i++) {
        const uint64_t bytes = l->owners.items[i].bytes + (i == payer ? more : 0);

        if (bytes <= most || (l->owners.items[i].before == 0 && i != payer))
            continue;
        most = bytes;
        *owner_p = i;
    }
    return most > 0 && l->owners.items[*owner_p].before > 0;
}

/* Evicts until a tenth of the full limit is free in addition, so that not every write has to scan. Returns false if
 * there is still no room. */
static bool evict(struct ngd_store *store, struct listing *l, const struct ngd_store_payer *payer, uint64_t more)
{
    const uint64_t budget = atomic_load(&store->budget), mine = less(payer->limit - payer->limit / 10, more),
                   all = less(budget - budget / 10, more);
    uint32_t own, next;

    if (!ngd_store_owners_add(&l->owners, payer->name, &own))
        return true;
    for (uint32_t i = 0; i < l->owners.n; i++)
        l->owners.items[i].before = l->n;
    if (payer->limit && l->owners.items[own].bytes + more > payer->limit)
        while (l->owners.items[own].bytes > mine && evict_oldest(store, l, own))
            ;
    if (budget && l->bytes + more > budget)
        while (l->bytes > all && choose_owner(l, own, more, &next))
            (void)evict_oldest(store, l, next);
    return budget == 0 || l->bytes + more <= budget;
}

ngd_status_t ngd_store_make_room(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more,
                                 struct ngd_diag *diag)
{
    struct listing l;
    bool room = true;

    ngd_store_lock(store);
    ngd_store_dir_sweep(store);
    if (list_store_entries(store, &l, NULL) == NGD_OK) {
        room = evict(store, &l, payer, more);
        count_anew(store, &l);
        listing_fini(&l);
    }
    ngd_store_unlock(store);
    if (room)
        return NGD_OK;
    ngd_store_note_refused(store, payer->name);
    return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                        "an entry of %" PRIu64
                        " bytes does not fit: the store is full, and its other owners have fewer bytes in it",
                        more);
}
