/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GCACHE_H
#define NGD_GRAPHS_GCACHE_H

/*
 * Compiled-graph cache: maps a key to an artefact that the cache's owner makes. There is one cache for each program
 * (graph + options), so capture_limit and the counters are per graph.
 *
 * Why: a capture costs milliseconds to seconds, and many clients replay the same shapes.
 * Threads: any. get() compiles at most once per key: one caller compiles, the others wait.
 *          The cache's lock (rank GCACHE) is never held while something is compiled or released.
 * Memory:  lookup() and get() pin, put() unpins; pinned entries are never evicted.
 * Bounds:  params.limit distinct keys. Past it the policy decides. EVICT drops the unpinned entry that is cheapest to
 *          lose (oldest use, weighted by compile time). REJECT answers NGD_ERR_CAPTURE_LIMIT. EAGER answers the same,
 *          and the caller runs the graph eagerly. A recapture of a known key does not count as a new key.
 * Failures: a failure is kept for params.retry_after, then the next get() tries again; waiters get the same diagnosis.
 *          A compile that ends with CANCELLED is not kept: one of its waiters compiles.
 */
#include "base/clock.h"
#include "graphs/key.h"

struct ngd_gcache;
struct ngd_gcache_entry;

typedef enum ngd_gcache_policy { NGD_GCACHE_EVICT, NGD_GCACHE_EAGER, NGD_GCACHE_REJECT } ngd_gcache_policy_t;

struct ngd_gcache_ops {
    /* Required. Called on any thread, without a cache lock. On success the cache owns *art_p. */
    ngd_status_t (*compile)(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                            struct ngd_diag *diag);
    /* Required. Releases art. Called without a lock, exactly once per artefact, after the last unpin. */
    void (*release)(void *ctx, void *art);
};

struct ngd_gcache_params {
    const struct ngd_gcache_ops *ops;
    void *ctx;
    uint32_t limit; /* default 64 */
    ngd_gcache_policy_t policy;
    ngd_nsec_t retry_after; /* default 1 s */
};

struct ngd_gcache_stats {
    uint64_t hits, misses, compiles, failures, evictions, waits, recompiles;
    uint32_t entries;
    uint64_t bytes;
};

void ngd_gcache_params_init(struct ngd_gcache_params *params);
ngd_status_t ngd_gcache_create(const struct ngd_gcache_params *params, struct ngd_gcache **cache_p);
void ngd_gcache_destroy(struct ngd_gcache *cache); /* NULL is fine; nothing may be pinned */

/* Returns the pinned entry, or NULL. This is the fast path: it allocates nothing, waits for no compile, and takes less
 * than 200 ns. */
struct ngd_gcache_entry *ngd_gcache_lookup(struct ngd_gcache *cache, const struct ngd_key *key);
/* Looks up an entry without counting a use. */
struct ngd_gcache_entry *ngd_gcache_peek(struct ngd_gcache *cache, const struct ngd_key *key);
ngd_status_t ngd_gcache_get(struct ngd_gcache *cache, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                            struct ngd_diag *diag);
void *ngd_gcache_artefact(const struct ngd_gcache_entry *entry);
const struct ngd_key *ngd_gcache_entry_key(const struct ngd_gcache_entry *entry);
void ngd_gcache_put(struct ngd_gcache_entry *entry);
/* Adds a pin; the caller already holds one. Returns the entry. */
struct ngd_gcache_entry *ngd_gcache_pin(struct ngd_gcache_entry *entry);
/* Drops an entry (poisoned, force_recapture). Later lookups miss; the entry is released when its last pin goes. */
void ngd_gcache_drop(struct ngd_gcache *cache, const struct ngd_key *key);
/* Drops an entry and stops counting its key against the limit. For a key that no request can have any more. */
void ngd_gcache_forget(struct ngd_gcache *cache, const struct ngd_key *key);
void ngd_gcache_stats(struct ngd_gcache *cache, struct ngd_gcache_stats *stats_p);
/* Calls fn for each entry under the cache lock; fn must be short and not call back. */
void ngd_gcache_for_each(struct ngd_gcache *cache,
                         void (*fn)(void *ctx, const struct ngd_key *key, void *art, uint64_t uses), void *ctx);

#endif
