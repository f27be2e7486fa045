/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled-graph cache.
 *
 * Two views of the same entries:
 *
 *   records   (under the lock) what is known of each key: being compiled, ready, dropped, failed. This is what
 *             counts against the limit, and where waiters meet.
 *   snapshot  (read without a lock) an immutable open-addressed table of the ready entries, replaced as a whole
 *             when a compile, an eviction or a drop changes it.
 *
 * An entry's `pins` is a count with the bit DEAD. A pin is an increment that fails once DEAD is set; eviction is
 * the change 0 -> DEAD, so it cannot take an entry from under a user; a drop sets DEAD beside any count. Whoever
 * brings the word to exactly DEAD releases the artefact: this happens once, and nobody can pin it any more.
 *
 * Reclaiming. A reader of a snapshot announces itself in one of two counters before it loads the snapshot's pointer,
 * and leaves when it has pinned or missed. What was unlinked may be freed when each counter was seen at zero at
 * some time after the unlinking: who was inside then has left, and who came later loads the new pointer (all of
 * these are sequentially consistent). `phase` sends new readers to the other counter, so that a counter under
 * steady load drains too. Nobody waits for it: writers look whenever they pass, and what is not yet free stays on
 * a list. Keeping everything until destroy would be simpler, but a working set larger than the limit evicts at
 * the rate of its misses, for months. Hazard pointers would save readers the shared counter; at two atomic additions
 * of about 5 ns each there is nothing to gain.
 *
 * The limit is a bound on memory as well, so an eviction comes before the compile that needs the place, not after.
 */
#include "graphs/gcache.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include <assert.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define DEAD          (UINT32_C(1) << 31)
#define DEFAULT_LIMIT 64
#define FAILURES_MAX  64  /* remembered failures; a client can ask for any number of keys that fail */
#define GONE_MAX      256 /* evicted keys that are recognised when they come back, for the statistics only */

struct retired {
    struct ngd_list link; /* in `dead`, `fresh`, `batch` or `zombies` */
    void (*free)(struct retired *r);
};

struct ngd_gcache_entry {
    struct retired retired;
    struct ngd_gcache *cache;
    struct ngd_key key;
    void *art;
    uint64_t bytes;
    ngd_nsec_t compile_time;
    uint64_t handed_out;   /* pins by the compiling caller and its waiters; under the lock */
    _Atomic uint32_t pins; /* count | DEAD */
    _Atomic bool released; /* the artefact is gone, and nobody will touch this entry again */
    _Atomic int64_t last_use;
    _Atomic uint64_t hits;
};

/* One compile and those who wait for it. */
struct flight {
    uint32_t refs, waiters;
    bool done, dropped; /* dropped: asked for while under way, so the result goes to the waiters only */
    ngd_status_t status;
    struct ngd_gcache_entry *entry; /* pinned once for each waiter */
    struct ngd_diag diag;
};

typedef enum record_state {
    COMPILING, /* flight is set */
    READY,     /* entry is set */
    DROPPED,   /* known, keeps its place in the limit */
    FAILED,    /* flight has the diagnosis; no place in the limit */
} record_state_t;

struct record {
    struct ngd_list link;
    struct ngd_key key;
    record_state_t state;
    struct ngd_gcache_entry *entry;
    struct flight *flight;
    ngd_nsec_t retry_at;
    bool compiled_before;
};

struct snapshot {
    struct retired retired;
    uint64_t mask;
    struct ngd_gcache_entry *slots[]; /* NULL ends a probe; less than half are used */
};

struct ngd_gcache {
    /* The readers' side. What readers write and what they only read are on different cache lines. */
    alignas(64) _Atomic uint32_t readers[2];
    alignas(64) _Atomic uint32_t phase;
    _Atomic(struct snapshot *) snapshot;
    _Atomic uint64_t bytes; /* of artefacts that are not yet released */
    struct ngd_gcache_params params;

    struct ngd_mutex lock;
    struct ngd_cond done; /* a flight has ended */

    struct ngd_list records NGD_GUARDED_BY(lock);
    uint32_t n_known NGD_GUARDED_BY(lock);    /* records in a state other than FAILED */
    uint32_t n_failures NGD_GUARDED_BY(lock); /* records in state FAILED */
    uint32_t n_entries NGD_GUARDED_BY(lock);  /* READY */
    struct ngd_gcache_stats stats NGD_GUARDED_BY(lock);
    uint64_t freed_hits NGD_GUARDED_BY(lock); /* of entries that are freed */
    uint64_t gone[GONE_MAX] NGD_GUARDED_BY(lock);
    uint32_t n_gone NGD_GUARDED_BY(lock);

    struct ngd_list dead NGD_GUARDED_BY(lock);    /* entries that the current snapshot still has */
    struct ngd_list fresh NGD_GUARDED_BY(lock);   /* unlinked since the batch began */
    struct ngd_list batch NGD_GUARDED_BY(lock);   /* unlinked before `seen` was cleared */
    struct ngd_list zombies NGD_GUARDED_BY(lock); /* entries that no reader can see, still pinned */
    unsigned seen NGD_GUARDED_BY(lock);           /* bit i: readers[i] was zero since */
};

/* ---- pins ---- */

static bool pin(struct ngd_gcache_entry *e)
{
    uint32_t v = atomic_load_explicit(&e->pins, memory_order_relaxed);

    do {
        if (v & DEAD)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&e->pins, &v, v + 1, memory_order_acquire, memory_order_relaxed));
    return true;
}

/* The last one out. No lock is held; after `released` is set the cache may free the entry. */
static void release(struct ngd_gcache_entry *e)
{
    struct ngd_gcache *cache = e->cache;

    cache->params.ops->release(cache->params.ctx, e->art);
    atomic_fetch_sub_explicit(&cache->bytes, e->bytes, memory_order_relaxed);
    atomic_store_explicit(&e->released, true, memory_order_release);
}

/* ---- the snapshot ---- */

static struct ngd_gcache_entry *snapshot_find(const struct snapshot *s, const struct ngd_key *key)
{
    for (uint64_t i = key->hash & s->mask;; i = (i + 1) & s->mask) {
        struct ngd_gcache_entry *e = s->slots[i];

        if (!e || ngd_key_equal(&e->key, key))
            return e;
    }
}

static void snapshot_add(struct snapshot *s, struct ngd_gcache_entry *e)
{
    uint64_t i = e->key.hash & s->mask;

    while (s->slots[i])
        i = (i + 1) & s->mask;
    s->slots[i] = e;
}

static void snapshot_free(struct retired *r)
{
    ngd_free(ngd_container_of(r, struct snapshot, retired));
}

static struct snapshot *snapshot_new(uint32_t n)
{
    uint64_t size = 4;
    struct snapshot *s;

    while (size < 2 * ((uint64_t)n + 1))
        size *= 2;
    s = ngd_calloc(1, sizeof(*s) + size * sizeof(s->slots[0]));
    if (!s)
        return NULL;
    s->mask = size - 1;
    s->retired.free = snapshot_free;
    ngd_list_init(&s->retired.link);
    return s;
}

/* ---- reclaiming ---- */

static void entry_free(struct retired *r)
{
    ngd_free(ngd_container_of(r, struct ngd_gcache_entry, retired));
}

static void move_all(struct ngd_list *from, struct ngd_list *to)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(from)))
        ngd_list_push_back(to, l);
}

static void free_zombies_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    ngd_list_for_each_safe (l, tmp, &cache->zombies) {
        struct ngd_gcache_entry *e = ngd_container_of(l, struct ngd_gcache_entry, retired.link);

        if (!atomic_load_explicit(&e->released, memory_order_acquire))
            continue;
        cache->freed_hits += atomic_load_explicit(&e->hits, memory_order_relaxed);
        ngd_list_remove(l);
        entry_free(&e->retired);
    }
}

/* No reader can see the batch any more. */
static void free_batch_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(&cache->batch))) {
        struct retired *r = ngd_container_of(l, struct retired, link);

        if (r->free == entry_free)
            ngd_list_push_back(&cache->zombies, l);
        else
            r->free(r);
    }
}

static void reclaim_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    for (int rounds = 0; rounds < 2; rounds++) {
        if (ngd_list_empty(&cache->batch)) {
            move_all(&cache->fresh, &cache->batch);
            cache->seen = 0;
        }
        if (ngd_list_empty(&cache->batch))
            break;
        for (unsigned i = 0; i < 2; i++)
            if (atomic_load(&cache->readers[i]) == 0)
                cache->seen |= 1u << i;
        if (cache->seen != 3) {
            /* Let the counter drain that was busy: new readers go to the other one. */
            atomic_store(&cache->phase, cache->seen & 1u ? 0 : 1);
            break;
        }
        free_batch_locked(cache);
    }
    free_zombies_locked(cache);
}

/* Makes the ready entries what readers see. */
static ngd_status_t publish_locked(struct ngd_gcache *cache) NGD_REQUIRES(&cache->lock)
{
    struct snapshot *s = snapshot_new(cache->n_entries), *old;

    if (!s)
        return NGD_ERR_NO_MEMORY;
    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (rec->state == READY)
            snapshot_add(s, rec->entry);
    }
    old = atomic_exchange(&cache->snapshot, s);
    ngd_list_push_back(&cache->fresh, &old->retired.link);
    move_all(&cache->dead, &cache->fresh);
    reclaim_locked(cache);
    return NGD_OK;
}

/* ---- records ---- */

static struct record *record_find_locked(struct ngd_gcache *cache, const struct ngd_key *key) NGD_REQUIRES(&cache->lock)
{
    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (ngd_key_equal(&rec->key, key))
            return rec;
    }
    return NULL;
}

static void flight_unref(struct flight *f)
{
    if (f && --f->refs == 0)
        ngd_free(f);
}

/* A record that is not READY and not COMPILING goes. */
static void record_forget_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    if (rec->state == FAILED)
        cache->n_failures--;
    else
        cache->n_known--;
    ngd_list_remove(&rec->link);
    flight_unref(rec->flight);
    ngd_free(rec);
}

/* Drops failures that are over, and the oldest one when there are too many. */
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

/* What losing an entry costs per unit of time that it was not needed: the smallest goes first. */
static double keep_score(const struct ngd_gcache_entry *e, ngd_nsec_t now)
{
    ngd_nsec_t age = now - atomic_load_explicit(&e->last_use, memory_order_relaxed);

    if (age < 0)
        age = 0;
    return ((double)e->compile_time + 1.0) / ((double)age + 1.0);
}

/* A dropped key has no executable to lose, so it goes before all others. */
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

/* Gives up one place of the limit. *dead_p is an entry whose artefact the caller must release, or NULL. */
static bool evict_locked(struct ngd_gcache *cache, struct ngd_gcache_entry **dead_p) NGD_REQUIRES(&cache->lock)
{
    struct record *rec;

    while ((rec = cheapest_locked(cache))) {
        struct ngd_gcache_entry *e = rec->entry;
        uint32_t unpinned = 0;

        if (rec->state == READY) {
            /* A reader may have pinned it since it was looked at; then another one is the cheapest. */
            if (!atomic_compare_exchange_strong(&e->pins, &unpinned, DEAD))
                continue;
            ngd_list_push_back(&cache->dead, &e->retired.link);
            cache->n_entries--;
            cache->stats.evictions++;
            remember_gone_locked(cache, &rec->key);
            *dead_p = e;
            rec->state = DROPPED;
        }
        record_forget_locked(cache, rec);
        return true;
    }
    return false;
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

/* Makes sure that one more key has a place. */
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

/* Makes rec, or a new record when it is NULL, the one that the caller compiles. */
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
        ngd_list_push_back(&cache->records, &fresh->link);
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
    struct ngd_gcache_entry *e = ngd_aligned_alloc(64, sizeof(*e));

    if (!e)
        return NULL;
    memset(e, 0, sizeof(*e));
    e->cache = cache;
    e->key = *key;
    e->retired.free = entry_free;
    ngd_list_init(&e->retired.link);
    return e;
}

/* Compiles into a new entry, with no lock held. */
static ngd_status_t compile(struct ngd_gcache *cache, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                            struct ngd_diag *diag)
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
    atomic_store_explicit(&e->last_use, begin + e->compile_time, memory_order_relaxed);
    atomic_fetch_add_explicit(&cache->bytes, e->bytes, memory_order_relaxed);
    *entry_p = e;
    return NGD_OK;
}

static void land_failure_locked(struct ngd_gcache *cache, struct record *rec) NGD_REQUIRES(&cache->lock)
{
    rec->state = FAILED;
    rec->retry_at = ngd_now() + (rec->flight->status == NGD_ERR_CANCELLED ? 0 : cache->params.retry_after);
    /* The newest failure stands last, so that trimming drops the oldest. */
    ngd_list_remove(&rec->link);
    ngd_list_push_back(&cache->records, &rec->link);
    cache->n_known--;
    cache->n_failures++;
    cache->stats.failures++;
    trim_failures_locked(cache);
}

/* Without memory for a snapshot the entry serves its waiters and is not kept: the next get() tries again. */
static void land_success_locked(struct ngd_gcache *cache, struct record *rec, struct ngd_gcache_entry *e)
    NGD_REQUIRES(&cache->lock)
{
    uint32_t pins = rec->flight->waiters + 1;
    bool keep = !rec->flight->dropped;

    cache->stats.compiles++;
    cache->stats.recompiles += rec->compiled_before;
    rec->compiled_before = true;
    e->handed_out = pins;
    atomic_store(&e->pins, pins);
    if (keep) {
        rec->state = READY;
        rec->entry = e;
        cache->n_entries++;
        if (publish_locked(cache)) {
            cache->n_entries--;
            keep = false;
        }
    }
    if (!keep) {
        rec->state = DROPPED;
        rec->entry = NULL;
        atomic_store(&e->pins, pins | DEAD);
        ngd_list_push_back(&cache->zombies, &e->retired.link);
    }
    flight_unref(rec->flight);
    rec->flight = NULL;
}

/* Ends a flight: e is NULL when it failed, with the reason in the flight. */
static void land(struct ngd_gcache *cache, struct record *rec, struct flight *flight, struct ngd_gcache_entry *e)
    NGD_EXCLUDES(&cache->lock)
{
    ngd_mutex_lock(&cache->lock);
    flight->done = true;
    flight->entry = e;
    flight->refs++; /* the caller's, while the record may be trimmed away */
    if (e)
        land_success_locked(cache, rec, e);
    else
        land_failure_locked(cache, rec);
    reclaim_locked(cache);
    flight_unref(flight);
    ngd_cond_broadcast(&cache->done);
    ngd_mutex_unlock(&cache->lock);
}

static ngd_status_t answer(struct flight *flight, struct ngd_gcache_entry **entry_p, struct ngd_diag *diag)
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
    status = answer(flight, entry_p, diag);
    flight_unref(flight);
    return status;
}

/* The answer when there is one without compiling; otherwise *compile_p is the record that the caller must compile. */
static ngd_status_t ask_locked(struct ngd_gcache *cache, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                               struct record **compile_p, struct ngd_gcache_entry **dead_p, struct ngd_diag *diag)
    NGD_REQUIRES(&cache->lock)
{
    struct record *rec = record_find_locked(cache, key);

    /* Whoever comes after a drop must not get what was compiled before it. */
    while (rec && rec->state == COMPILING && rec->flight->dropped) {
        ngd_cond_wait(&cache->done, &cache->lock);
        rec = record_find_locked(cache, key);
    }
    if (rec && rec->state == READY && pin(rec->entry)) {
        /* It became ready between the caller's lookup and the lock. */
        atomic_fetch_add_explicit(&rec->entry->hits, 1, memory_order_relaxed);
        *entry_p = rec->entry;
        return NGD_OK;
    }
    cache->stats.misses++;
    if (rec && rec->state == COMPILING)
        return wait_locked(cache, rec->flight, entry_p, diag);
    if (rec && rec->state == FAILED && ngd_now() < rec->retry_at)
        return answer(rec->flight, entry_p, diag);
    return begin_locked(cache, key, rec, compile_p, dead_p, diag);
}

/* ---- public ---- */

void ngd_gcache_params_init(struct ngd_gcache_params *params)
{
    *params = (struct ngd_gcache_params){.limit = DEFAULT_LIMIT, .policy = NGD_GCACHE_EVICT, .retry_after = NGD_SEC};
}

ngd_status_t ngd_gcache_create(const struct ngd_gcache_params *params, struct ngd_gcache **cache_p)
{
    struct ngd_gcache *cache;
    struct snapshot *empty;

    if (!params->ops || !params->ops->compile || !params->ops->release || params->limit == 0 || params->retry_after < 0)
        return NGD_ERR_INVALID_ARGUMENT;
    cache = ngd_aligned_alloc(alignof(struct ngd_gcache), sizeof(*cache));
    empty = snapshot_new(0);
    if (!cache || !empty) {
        ngd_free(empty);
        ngd_free(cache);
        return NGD_ERR_NO_MEMORY;
    }
    memset(cache, 0, sizeof(*cache));
    cache->params = *params;
    ngd_mutex_init(&cache->lock, NGD_RANK_GCACHE);
    ngd_cond_init(&cache->done);
    ngd_list_init(&cache->records);
    ngd_list_init(&cache->dead);
    ngd_list_init(&cache->fresh);
    ngd_list_init(&cache->batch);
    ngd_list_init(&cache->zombies);
    atomic_store(&cache->snapshot, empty);
    *cache_p = cache;
    return NGD_OK;
}

static void free_list(struct ngd_list *list)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(list))) {
        struct retired *r = ngd_container_of(l, struct retired, link);

        r->free(r);
    }
}

void ngd_gcache_destroy(struct ngd_gcache *cache) NGD_NO_THREAD_SAFETY
{
    struct ngd_list *l;

    if (!cache)
        return;
    free_zombies_locked(cache);
    while ((l = ngd_list_pop_front(&cache->records))) {
        struct record *rec = ngd_container_of(l, struct record, link);

        assert(rec->state != COMPILING);
        if (rec->state == READY) {
            assert(atomic_load(&rec->entry->pins) == 0);
            release(rec->entry);
            entry_free(&rec->entry->retired);
        }
        flight_unref(rec->flight);
        ngd_free(rec);
    }
    free_list(&cache->dead);
    free_list(&cache->fresh);
    free_list(&cache->batch);
    free_list(&cache->zombies);
    snapshot_free(&atomic_load(&cache->snapshot)->retired);
    ngd_cond_fini(&cache->done);
    ngd_mutex_fini(&cache->lock);
    ngd_free(cache);
}

static inline struct ngd_gcache_entry *find_pinned(struct ngd_gcache *cache, const struct ngd_key *key)
{
    uint32_t phase = atomic_load_explicit(&cache->phase, memory_order_relaxed) & 1u;
    struct ngd_gcache_entry *e;

    atomic_fetch_add(&cache->readers[phase], 1);
    e = snapshot_find(atomic_load(&cache->snapshot), key);
    if (e && !pin(e))
        e = NULL;
    atomic_fetch_sub(&cache->readers[phase], 1);
    return e;
}

struct ngd_gcache_entry *ngd_gcache_find(struct ngd_gcache *cache, const struct ngd_key *key)
{
    return find_pinned(cache, key);
}

struct ngd_gcache_entry *ngd_gcache_lookup(struct ngd_gcache *cache, const struct ngd_key *key)
{
    struct ngd_gcache_entry *e = find_pinned(cache, key);

    if (e) {
        atomic_store_explicit(&e->last_use, ngd_now(), memory_order_relaxed);
        atomic_fetch_add_explicit(&e->hits, 1, memory_order_relaxed);
    }
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
    do /* who compiled gave up, and others did not */
        status = ask_locked(cache, key, entry_p, &rec, &dead, diag);
    while (status == NGD_ERR_CANCELLED);
    flight = rec ? rec->flight : NULL;
    ngd_mutex_unlock(&cache->lock);
    if (dead)
        release(dead);
    if (status || !rec)
        return status;

    /* The record stays: only its own flight ends the state COMPILING. */
    status = flight->status = compile(cache, key, &e, &flight->diag);
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
        release(entry);
}

static void drop(struct ngd_gcache *cache, const struct ngd_key *key, bool forget)
{
    struct ngd_gcache_entry *dead = NULL;
    struct record *rec;

    ngd_mutex_lock(&cache->lock);
    rec = record_find_locked(cache, key);
    if (rec && rec->state == COMPILING) {
        rec->flight->dropped = true;
    } else if (rec && rec->state == FAILED) {
        record_forget_locked(cache, rec); /* asked for again: try at once */
        rec = NULL;
    } else if (rec && rec->state == READY) {
        struct ngd_gcache_entry *e = rec->entry;

        rec->state = DROPPED;
        rec->entry = NULL;
        cache->n_entries--;
        ngd_list_push_back(&cache->dead, &e->retired.link);
        if (atomic_fetch_or(&e->pins, DEAD) == 0)
            dead = e;
        /* Without memory the old snapshot stays: it has the entry, which nobody can pin. */
        (void)publish_locked(cache);
    }
    if (rec && rec->state == DROPPED && forget)
        record_forget_locked(cache, rec);
    ngd_mutex_unlock(&cache->lock);
    if (dead)
        release(dead);
}

void ngd_gcache_drop(struct ngd_gcache *cache, const struct ngd_key *key)
{
    drop(cache, key, false);
}

void ngd_gcache_forget(struct ngd_gcache *cache, const struct ngd_key *key)
{
    drop(cache, key, true);
}

static uint64_t list_hits(const struct ngd_list *list)
{
    uint64_t hits = 0;

    ngd_list_for_each (l, (struct ngd_list *)list) {
        struct retired *r = ngd_container_of(l, struct retired, link);

        if (r->free == entry_free)
            hits += atomic_load_explicit(&ngd_container_of(r, struct ngd_gcache_entry, retired)->hits,
                                         memory_order_relaxed);
    }
    return hits;
}

/* Hits are counted in the entries, where lookups write anyway, and summed up here. */
void ngd_gcache_stats(struct ngd_gcache *cache, struct ngd_gcache_stats *stats_p)
{
    ngd_mutex_lock(&cache->lock);
    reclaim_locked(cache);
    *stats_p = cache->stats;
    stats_p->hits = cache->freed_hits + list_hits(&cache->dead) + list_hits(&cache->fresh) + list_hits(&cache->batch) +
                    list_hits(&cache->zombies);
    ngd_list_for_each (l, &cache->records) {
        struct record *rec = ngd_container_of(l, struct record, link);

        if (rec->state == READY)
            stats_p->hits += atomic_load_explicit(&rec->entry->hits, memory_order_relaxed);
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
            fn(ctx, &rec->key, rec->entry->art,
               rec->entry->handed_out + atomic_load_explicit(&rec->entry->hits, memory_order_relaxed));
    }
    ngd_mutex_unlock(&cache->lock);
}
