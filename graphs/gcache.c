/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled-graph cache: one lock, a hash table of records, and pins.
 *
 * A record has the state of a key: being compiled, ready, dropped, failed. Records count against the limit, and waiters
 * wait on them. The lock is held for a few hundred nanoseconds, never while something is compiled or released.
 *
 * An entry's `pins` is a count with the bit DEAD. It grows only under the lock, or by a caller that has a pin already.
 * So an entry that is unpinned under the lock can be taken. An eviction or a drop sets DEAD when it takes the entry out
 * of its record. The thread that brings the word to exactly DEAD releases the artefact and frees the entry, once.
 *
 * The limit is also a bound on memory, so an eviction comes before the compile that needs the place, not after.
 *
 * A table that readers use without a lock (epochs, entries that outlive their place) was no faster: its two counters
 * cost as much as a lock. docs/benchmarks.md has the figures.
 */
#include "graphs/gcache.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#define DEAD          (UINT32_C(1) << 31)
#define DEFAULT_LIMIT 64
#define FAILURES_MAX  64  /* failures that are kept; a client can ask for any number of keys that fail */
#define GONE_MAX      256 /* evicted keys that are recognised if they come back; for statistics only */
#define BUCKETS       16  /* initial number; doubled when there are more records than buckets */

struct ngd_gcache_entry {
    struct ngd_gcache *cache;
    struct ngd_key key;
    void *art;
    uint64_t bytes;
    ngd_nsec_t compile_time;
    _Atomic uint32_t pins; /* count | DEAD */
    /* Guarded by the cache's lock. */
    uint64_t handed_out; /* pins given to the compiling caller and its waiters */
    ngd_nsec_t last_use;
    uint64_t hits;
};

/* One compile and its waiters. */
struct flight {
    uint32_t refs, waiters;
    bool done, dropped; /* dropped: the key was dropped during the compile, so only the waiters get the result */
    ngd_status_t status;
    struct ngd_gcache_entry *entry; /* pinned once for each waiter */
    struct ngd_diag diag;
};

typedef enum record_state {
    COMPILING, /* flight is set */
    READY,     /* entry is set */
    DROPPED,   /* no entry, but the key still counts against the limit */
    FAILED,    /* flight has the diagnosis; does not count against the limit */
} record_state_t;

struct record {
    struct ngd_list link;
    struct record *next; /* in the same bucket */
    struct ngd_key key;
    record_state_t state;
    struct ngd_gcache_entry *entry;
    struct flight *flight;
    ngd_nsec_t retry_at;
    bool compiled_before;
};

struct ngd_gcache {
    struct ngd_gcache_params params;
    _Atomic uint64_t bytes; /* bytes of artefacts that are not yet released */
    struct ngd_mutex lock;
    struct ngd_cond done; /* a flight has ended */

    struct record **buckets NGD_GUARDED_BY(lock);
    uint64_t mask NGD_GUARDED_BY(lock);
    struct ngd_list records NGD_GUARDED_BY(lock);
    uint32_t n_known NGD_GUARDED_BY(lock);              /* records in a state other than FAILED */
    uint32_t n_failures NGD_GUARDED_BY(lock);           /* records in state FAILED */
    uint32_t n_entries NGD_GUARDED_BY(lock);            /* records in state READY */
    struct ngd_gcache_stats stats NGD_GUARDED_BY(lock); /* its hits count only entries that have left their records */
    uint64_t gone[GONE_MAX] NGD_GUARDED_BY(lock);
    uint32_t n_gone NGD_GUARDED_BY(lock);
};

/* ---- pins ---- */

/* Pins an entry that is in a record. */
static void pin_locked(struct ngd_gcache *cache, struct ngd_gcache_entry *e) NGD_REQUIRES(&cache->lock)
{
    (void)cache;
    atomic_fetch_add_explicit(&e->pins, 1, memory_order_relaxed);
}

/* Releases an unpinned entry. No lock is held. */
static void release_entry(struct ngd_gcache_entry *e)
{
    struct ngd_gcache *cache = e->cache;

    cache->params.ops->release(cache->params.ctx, e->art);
    atomic_fetch_sub_explicit(&cache->bytes, e->bytes, memory_order_relaxed);
    ngd_free(e);
}

/* Takes the entry out of a READY record. Returns it if the caller must release it; NULL:
 * the last holder of a pin will. */
static struct ngd_gcache_entry *take_entry_locked(struct ngd_gcache *cache, struct record *rec)
    NGD_REQUIRES(&cache->lock)
{
    struct ngd_gcache_entry *e = rec->entry;

    rec->state = DROPPED;
    rec->entry = NULL;
    cache->n_entries--;
    cache->stats.hits += e->hits;
    return atomic_fetch_or_explicit(&e->pins, DEAD, memory_order_acq_rel) == 0 ? e : NULL;
}

/* ---- records ---- */

static struct record *record_find_locked(struct ngd_gcache *cache, const struct ngd_key *key) NGD_REQUIRES(&cache->lock)
{
    struct record *rec = cache->buckets[key->hash & cache->mask];

    while (rec && !ngd_key_equal(&rec->key, key))
        rec = rec->next;
    return rec;
}

static void bucket_add_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    struct record **bucket = &cache->buckets[rec->key.hash & cache->mask];

    rec->next = *bucket;
    *bucket = rec;
}

static void bucket_remove_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    struct record **at = &cache->buckets[rec->key.hash & cache->mask];

    while (*at != rec)
        at = &(*at)->next;
    *at = rec->next;
}

/* Doubles the table. Without memory for it, the chains of the old table get longer. */
static void grow_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    const uint64_t n = 2 * (cache->mask + 1);
    struct record **buckets = ngd_calloc(n, sizeof(*buckets));

    if (!buckets)
        return;
    ngd_free(cache->buckets);
    cache->buckets = buckets;
    cache->mask = n - 1;
    ngd_list_for_each (l, &cache->records)
        bucket_add_locked(cache, ngd_container_of(l, struct record, link));
}

static void record_add_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    if (cache->n_known + cache->n_failures > cache->mask)
        grow_locked(cache);
    ngd_list_push_back(&cache->records, &rec->link);
    bucket_add_locked(cache, rec);
}

static void flight_unref(struct flight *f)
{
    if (f && --f->refs == 0)
        ngd_free(f);
}

/* Removes a record that is neither READY nor COMPILING. */
static void record_forget_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    if (rec->state == FAILED)
        cache->n_failures--;
    else
        cache->n_known--;
    ngd_list_remove(&rec->link);
    bucket_remove_locked(cache, rec);
    flight_unref(rec->flight);
    ngd_free(rec);
}

/* Removes failures whose time is over, and the oldest one if there are too many. */
static void trim_failures_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    ngd_nsec_t now = ngd_now();

    ngd_list_for_each_safe (l, tmp, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (rec->state == FAILED && (rec->retry_at <= now || cache->n_failures > FAILURES_MAX))
            record_forget_locked(cache, rec);
    }
}

static void remember_gone_locked(struct ngd_gcache *cache, const struct ngd_key *key) NGD_REQUIRES(&cache->lock)
{
    cache->gone[cache->n_gone++ % GONE_MAX] = key->hash;
}

static bool was_evicted_locked(const struct ngd_gcache *cache, const struct ngd_key *key) NGD_REQUIRES(&cache->lock)
{
    uint32_t n = cache->n_gone < GONE_MAX ? cache->n_gone : GONE_MAX;

    for (uint32_t i = 0; i < n; i++)
        if (cache->gone[i] == key->hash)
            return true;
    return false;
}

/* ---- eviction ---- */

/* Returns the cost of losing an entry for each unit of time since its last use.
 * The entry with the lowest goes first. */
static double keep_score(const struct ngd_gcache_entry *e, ngd_nsec_t now)
{
    ngd_nsec_t age = now - e->last_use;

    if (age < 0)
        age = 0;
    return ((double)e->compile_time + 1.0) / ((double)age + 1.0);
}

/* Finds the record that is cheapest to lose. A dropped key has no executable, so it goes first. */
static struct record *cheapest_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    struct record *best = NULL;
    double best_score = 0;
    ngd_nsec_t now = ngd_now();

    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);
        double score;

        if (rec->state == DROPPED)
            return rec;
        if (rec->state != READY || atomic_load_explicit(&rec->entry->pins, memory_order_relaxed) != 0)
            continue;
        score = keep_score(rec->entry, now);
        if (!best || score < best_score) {
            best = rec;
            best_score = score;
        }
    }
    return best;
}

/* Frees one place of the limit. *dead_p is an entry that the caller must release, or NULL. */
static bool evict_locked(struct ngd_gcache *cache, struct ngd_gcache_entry **dead_p) NGD_REQUIRES(&cache->lock)
{
    struct record *rec = cheapest_locked(cache);

    if (!rec)
        return false;
    if (rec->state == READY) {
        *dead_p = take_entry_locked(cache, rec);
        cache->stats.evictions++;
        remember_gone_locked(cache, &rec->key);
    }
    record_forget_locked(cache, rec);
    return true;
}

static ngd_status_t refuse_locked(const struct ngd_gcache *cache, struct ngd_diag *diag) NGD_REQUIRES(&cache->lock)
{
    if (cache->params.policy == NGD_GCACHE_EVICT)
        return ngd_diag_set(diag, NGD_ERR_CAPTURE_LIMIT,
                            "the graph holds %" PRIu32 " keys, its capture_limit is %" PRIu32
                            ", and all of them are in use; raise capture_limit or use fewer shapes at a time",
                            cache->n_known, cache->params.limit);
    return ngd_diag_set(diag, NGD_ERR_CAPTURE_LIMIT,
                        "the graph holds %" PRIu32 " keys, its capture_limit is %" PRIu32
                        ", and its policy past the limit is %s; raise capture_limit, use buckets, or choose evict",
                        cache->n_known, cache->params.limit,
                        cache->params.policy == NGD_GCACHE_EAGER ? "eager" : "reject");
}

/* Makes sure that the limit has a place for one more key. */
static ngd_status_t admit_locked(struct ngd_gcache *cache, struct ngd_gcache_entry **dead_p, struct ngd_diag *diag)
    NGD_REQUIRES(&cache->lock)
{
    if (cache->n_known < cache->params.limit)
        return NGD_OK;
    if (cache->params.policy == NGD_GCACHE_EVICT && evict_locked(cache, dead_p))
        return NGD_OK;
    return refuse_locked(cache, diag);
}

/* ---- single flight ---- */

/* Makes rec (NULL: a new record) the one that the caller compiles. */
static ngd_status_t begin_locked(struct ngd_gcache *cache, const struct ngd_key *key, struct record *rec,
                                 struct record **rec_p, struct ngd_gcache_entry **dead_p, struct ngd_diag *diag)
    NGD_REQUIRES(&cache->lock)
{
    bool counts = !rec || rec->state == FAILED; /* a dropped key has its place already */
    struct flight *flight = NGD_NEW(struct flight);
    struct record *fresh = rec ? NULL : NGD_NEW(struct record);
    ngd_status_t status;

    if (!flight || (!rec && !fresh)) {
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a cache entry");
        goto free_both;
    }
    status = counts ? admit_locked(cache, dead_p, diag) : NGD_OK;
    if (status)
        goto free_both;
    if (fresh) {
        fresh->key = *key;
        fresh->compiled_before = was_evicted_locked(cache, key);
        record_add_locked(cache, fresh);
        rec = fresh;
    } else if (rec->state == FAILED) {
        cache->n_failures--;
    }
    cache->n_known += counts;
    flight_unref(rec->flight);
    flight->refs = 1;
    rec->flight = flight;
    rec->state = COMPILING;
    *rec_p = rec;
    return NGD_OK;
free_both:
    ngd_free(fresh);
    ngd_free(flight);
    return status;
}

static struct ngd_gcache_entry *entry_new(struct ngd_gcache *cache, const struct ngd_key *key)
{
    struct ngd_gcache_entry *e = NGD_NEW(struct ngd_gcache_entry);

    if (!e)
        return NULL;
    e->cache = cache;
    e->key = *key;
    return e;
}

/* Compiles into a new entry, with no lock held. */
static ngd_status_t compile_entry(struct ngd_gcache *cache, const struct ngd_key *key,
                                  struct ngd_gcache_entry **entry_p, struct ngd_diag *diag)
{
    struct ngd_gcache_entry *e = entry_new(cache, key);
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    if (!e)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a cache entry");
    diag->status = NGD_OK;
    status = cache->params.ops->compile(cache->params.ctx, key, &e->art, &e->bytes, diag);
    if (status) {
        ngd_free(e);
        if (diag->status == NGD_OK)
            ngd_diag_set(diag, status, "%s", ngd_status_text(status));
        return status;
    }
    e->compile_time = ngd_now() - begin;
    e->last_use = begin + e->compile_time;
    atomic_fetch_add_explicit(&cache->bytes, e->bytes, memory_order_relaxed);
    *entry_p = e;
    return NGD_OK;
}

static void land_failure_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    rec->state = FAILED;
    rec->retry_at = ngd_now() + (rec->flight->status == NGD_ERR_CANCELLED ? 0 : cache->params.retry_after);
    /* The newest failure is last, so that trimming drops the oldest. */
    ngd_list_remove(&rec->link);
    ngd_list_push_back(&cache->records, &rec->link);
    cache->n_known--;
    cache->n_failures++;
    cache->stats.failures++;
    trim_failures_locked(cache);
}

static void land_success_locked(struct ngd_gcache *cache, struct record *rec, struct ngd_gcache_entry *e)
    NGD_REQUIRES(&cache->lock)
{
    cache->stats.compiles++;
    cache->stats.recompiles += rec->compiled_before;
    rec->compiled_before = true;
    e->handed_out = rec->flight->waiters + 1;
    atomic_store(&e->pins, rec->flight->waiters + 1);
    rec->state = READY;
    rec->entry = e;
    cache->n_entries++;
    if (rec->flight->dropped)
        (void)take_entry_locked(cache, rec); /* it is pinned */
    flight_unref(rec->flight);
    rec->flight = NULL;
}

/* Ends a flight. e NULL: it failed, and the flight has the diagnosis. */
static void land(struct ngd_gcache *cache, struct record *rec, struct flight *flight, struct ngd_gcache_entry *e)
    NGD_EXCLUDES(&cache->lock)
{
    ngd_mutex_lock(&cache->lock);
    flight->done = true;
    flight->entry = e;
    flight->refs++; /* the caller's reference, because the record may be trimmed away */
    if (e)
        land_success_locked(cache, rec, e);
    else
        land_failure_locked(cache, rec);
    flight_unref(flight);
    ngd_cond_broadcast(&cache->done);
    ngd_mutex_unlock(&cache->lock);
}

static ngd_status_t answer_waiter(struct flight *flight, struct ngd_gcache_entry **entry_p, struct ngd_diag *diag)
{
    if (flight->status) {
        if (diag)
            *diag = flight->diag;
        return flight->status;
    }
    *entry_p = flight->entry;
    return NGD_OK;
}

static ngd_status_t wait_locked(struct ngd_gcache *cache, struct flight *flight, struct ngd_gcache_entry **entry_p,
                                struct ngd_diag *diag) NGD_REQUIRES(&cache->lock)
{
    ngd_status_t status;

    cache->stats.waits++;
    flight->waiters++;
    flight->refs++;
    while (!flight->done)
        ngd_cond_wait(&cache->done, &cache->lock);
    status = answer_waiter(flight, entry_p, diag);
    flight_unref(flight);
    return status;
}

/* Pins an entry of a record, and counts it. */
static void use_locked(struct ngd_gcache *cache, struct ngd_gcache_entry *e) NGD_REQUIRES(&cache->lock)
{
    pin_locked(cache, e);
    e->last_use = ngd_now();
    e->hits++;
}

/* Answers if that is possible without compiling, waiting if another caller compiles. Otherwise *compile_p is the record
 * that the caller must compile. */
static ngd_status_t ask_cache_locked(struct ngd_gcache *cache, const struct ngd_key *key,
                                     struct ngd_gcache_entry **entry_p, struct record **compile_p,
                                     struct ngd_gcache_entry **dead_p, struct ngd_diag *diag) NGD_REQUIRES(&cache->lock)
{
    struct record *rec = record_find_locked(cache, key);

    /* A caller that comes after a drop must not get an entry from before it. */
    while (rec && rec->state == COMPILING && rec->flight->dropped) {
        ngd_cond_wait(&cache->done, &cache->lock);
        rec = record_find_locked(cache, key);
    }
    if (rec && rec->state == READY) {
        use_locked(cache, rec->entry);
        *entry_p = rec->entry;
        return NGD_OK;
    }
    cache->stats.misses++;
    if (rec && rec->state == COMPILING)
        return wait_locked(cache, rec->flight, entry_p, diag);
    if (rec && rec->state == FAILED && ngd_now() < rec->retry_at)
        return answer_waiter(rec->flight, entry_p, diag);
    return begin_locked(cache, key, rec, compile_p, dead_p, diag);
}

/* ---- public ---- */

void ngd_gcache_params_init(struct ngd_gcache_params *params)
{
    *params = (struct ngd_gcache_params){.limit = DEFAULT_LIMIT, .policy = NGD_GCACHE_EVICT, .retry_after = NGD_SEC};
}

ngd_status_t ngd_gcache_create(const struct ngd_gcache_params *params, struct ngd_gcache **cache_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_gcache *cache;
    struct record **buckets;

    if (!params->ops || !params->ops->compile || !params->ops->release || params->limit == 0 || params->retry_after < 0)
        return NGD_ERR_INVALID_ARGUMENT;
    cache = NGD_NEW(struct ngd_gcache);
    buckets = ngd_calloc(BUCKETS, sizeof(*buckets));
    if (!cache || !buckets) {
        ngd_free(buckets);
        ngd_free(cache);
        return NGD_ERR_NO_MEMORY;
    }
    cache->params = *params;
    cache->buckets = buckets;
    cache->mask = BUCKETS - 1;
    ngd_mutex_init(&cache->lock, NGD_RANK_GCACHE);
    ngd_cond_init(&cache->done);
    ngd_list_init(&cache->records);
    *cache_p = cache;
    return NGD_OK;
}

void ngd_gcache_destroy(struct ngd_gcache *cache) NGD_NO_THREAD_SAFETY
{
    struct ngd_list *l;

    if (!cache)
        return;
    while ((l = ngd_list_pop_front(&cache->records))) {
        struct record *rec = ngd_container_of(l, struct record, link);

        assert(rec->state != COMPILING);
        if (rec->state == READY) {
            assert(atomic_load(&rec->entry->pins) == 0);
            release_entry(rec->entry);
        }
        flight_unref(rec->flight);
        ngd_free(rec);
    }
    ngd_free(cache->buckets);
    ngd_cond_fini(&cache->done);
    ngd_mutex_fini(&cache->lock);
    ngd_free(cache);
}

struct ngd_gcache_entry *ngd_gcache_peek(struct ngd_gcache *cache, const struct ngd_key *key)
{
    struct ngd_gcache_entry *e = NULL;
    struct record *rec;

    ngd_mutex_lock(&cache->lock);
    rec = record_find_locked(cache, key);
    if (rec && rec->state == READY) {
        e = rec->entry;
        pin_locked(cache, e);
    }
    ngd_mutex_unlock(&cache->lock);
    return e;
}

struct ngd_gcache_entry *ngd_gcache_lookup(struct ngd_gcache *cache, const struct ngd_key *key)
{
    struct ngd_gcache_entry *e = NULL;
    struct record *rec;

    ngd_mutex_lock(&cache->lock);
    rec = record_find_locked(cache, key);
    if (rec && rec->state == READY) {
        e = rec->entry;
        use_locked(cache, e);
    }
    ngd_mutex_unlock(&cache->lock);
    return e;
}

ngd_status_t ngd_gcache_get(struct ngd_gcache *cache, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                            struct ngd_diag *diag)
{
    struct ngd_gcache_entry *e = ngd_gcache_lookup(cache, key), *dead = NULL;
    struct record *rec = NULL;
    struct flight *flight;
    ngd_status_t status;

    if (e) {
        *entry_p = e;
        return NGD_OK;
    }
    ngd_mutex_lock(&cache->lock);
    do /* CANCELLED: the compiling caller gave up, but this one has not */
        status = ask_cache_locked(cache, key, entry_p, &rec, &dead, diag);
    while (status == NGD_ERR_CANCELLED);
    flight = rec ? rec->flight : NULL;
    ngd_mutex_unlock(&cache->lock);
    if (dead)
        release_entry(dead);
    if (status || !rec)
        return status;

    /* The record stays, because only its own flight ends the state COMPILING. */
    status = flight->status = compile_entry(cache, key, &e, &flight->diag);
    if (status && diag)
        *diag = flight->diag;
    land(cache, rec, flight, status ? NULL : e);
    if (!status)
        *entry_p = e;
    return status;
}

void *ngd_gcache_artefact(const struct ngd_gcache_entry *entry)
{
    return entry->art;
}

const struct ngd_key *ngd_gcache_entry_key(const struct ngd_gcache_entry *entry)
{
    return &entry->key;
}

struct ngd_gcache_entry *ngd_gcache_pin(struct ngd_gcache_entry *entry)
{
    atomic_fetch_add_explicit(&entry->pins, 1, memory_order_relaxed);
    return entry;
}

void ngd_gcache_put(struct ngd_gcache_entry *entry)
{
    if (entry && atomic_fetch_sub_explicit(&entry->pins, 1, memory_order_acq_rel) == (DEAD | 1))
        release_entry(entry);
}

static void drop_key(struct ngd_gcache *cache, const struct ngd_key *key, bool forget)
{
    struct ngd_gcache_entry *dead = NULL;
    struct record *rec;

    ngd_mutex_lock(&cache->lock);
    rec = record_find_locked(cache, key);
    if (rec && rec->state == COMPILING) {
        rec->flight->dropped = true;
    } else if (rec && rec->state == FAILED) {
        record_forget_locked(cache, rec); /* so that the next request tries at once */
        rec = NULL;
    } else if (rec && rec->state == READY) {
        dead = take_entry_locked(cache, rec);
    }
    if (rec && rec->state == DROPPED && forget)
        record_forget_locked(cache, rec);
    ngd_mutex_unlock(&cache->lock);
    if (dead)
        release_entry(dead);
}

void ngd_gcache_drop(struct ngd_gcache *cache, const struct ngd_key *key)
{
    drop_key(cache, key, false);
}

void ngd_gcache_forget(struct ngd_gcache *cache, const struct ngd_key *key)
{
    drop_key(cache, key, true);
}

void ngd_gcache_stats(struct ngd_gcache *cache, struct ngd_gcache_stats *stats_p)
{
    ngd_mutex_lock(&cache->lock);
    *stats_p = cache->stats;
    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (rec->state == READY)
            stats_p->hits += rec->entry->hits;
    }
    stats_p->entries = cache->n_entries;
    stats_p->bytes = atomic_load_explicit(&cache->bytes, memory_order_relaxed);
    ngd_mutex_unlock(&cache->lock);
}

void ngd_gcache_for_each(struct ngd_gcache *cache,
                         void (*fn)(void *ctx, const struct ngd_key *key, void *art, uint64_t uses), void *ctx)
{
    ngd_mutex_lock(&cache->lock);
    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (rec->state == READY)
            fn(ctx, &rec->key, rec->entry->art, rec->entry->handed_out + rec->entry->hits);
    }
    ngd_mutex_unlock(&cache->lock);
}
