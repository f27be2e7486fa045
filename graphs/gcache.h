/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GCACHE_H
#define NGD_GRAPHS_GCACHE_H

/*
 * Compiled-graph cache: maps a key to an artefact made by its owner. One cache per program (graph + options),
 * so that capture_limit and the counters are per graph.
 *
 * Why: a capture costs milliseconds to seconds and many clients replay the same shapes.
 * Threads: every function from any thread. get() compiles at most once per key: one caller compiles, the others wait.
 *          The cache's lock (rank GCACHE) is never held while something is compiled or released.
 * Memory:  lookup() and get() pin, put() unpins; pinned entries are never evicted.
 * Bounds:  params.limit distinct keys. Past it, by policy: EVICT drops the entry that is cheapest to lose
 *          (unpinned, oldest use weighted by compile time), REJECT answers NGD_ERR_CAPTURE_LIMIT, EAGER likewise,
 *          and the caller runs eagerly. A recapture of a known key never counts as a new one.
 * Failures are remembered for params.retry_after, then tried again; waiters get the same diagnosis. A compile that ends
 *          with CANCELLED is forgotten: who waits for it compiles.
 */
#include "base/clock.h"
#include "graphs/key.h"

struct ngd_gcache;
struct ngd_gcache_entry;

typedef enum ngd_gcache_policy { NGD_GCACHE_EVICT, NGD_GCACHE_EAGER, NGD_GCACHE_REJECT } ngd_gcache_policy_t;

struct ngd_gcache_ops {
    /* Required. Any thread, no cache lock held. On success gives *art_p to the cache. */
    ngd_status_t (*compile)(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                            struct ngd_diag *diag);
    /* Required. Takes art. No lock held, exactly once per artefact, after the last unpin. */
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

/* The fast path: the pinned entry, or NULL. Allocates nothing, waits for no compile, below 200 ns. */
struct ngd_gcache_entry *ngd_gcache_lookup(struct ngd_gcache *cache, const struct ngd_key *key);
/* As lookup, but does not count as a use. */
struct ngd_gcache_entry *ngd_gcache_peek(struct ngd_gcache *cache, const struct ngd_key *key);
ngd_status_t ngd_gcache_get(struct ngd_gcache *cache, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                            struct ngd_diag *diag);
void *ngd_gcache_artefact(const struct ngd_gcache_entry *entry);
const struct ngd_key *ngd_gcache_entry_key(const struct ngd_gcache_entry *entry);
void ngd_gcache_put(struct ngd_gcache_entry *entry);
/* Adds a pin; the caller already holds one. Returns the entry. */
struct ngd_gcache_entry *ngd_gcache_pin(struct ngd_gcache_entry *entry);
/* Drops an entry (poisoned, force_recapture): later lookups miss; it is released when unpinned. */
void ngd_gcache_drop(struct ngd_gcache *cache, const struct ngd_key *key);
/* The same, and the key gives its place in the limit back: for one that cannot be asked for any more. */
void ngd_gcache_forget(struct ngd_gcache *cache, const struct ngd_key *key);
void ngd_gcache_stats(struct ngd_gcache *cache, struct ngd_gcache_stats *stats_p);
/* Calls fn for each entry under the cache lock; fn must be short and not call back. */
void ngd_gcache_for_each(struct ngd_gcache *cache,
                         void (*fn)(void *ctx, const struct ngd_key *key, void *art, uint64_t uses), void *ctx);

#endif
