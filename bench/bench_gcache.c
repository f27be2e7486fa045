/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a lookup in the compiled-graph cache, together with the unpin: the part of the cache that every replay
 * pays for. It is measured alone, beside a second reader of the same key, and beside a thread that captures and evicts
 * all the time. A capture takes CAPTURE_TIME there, which is less than that of a graph of one node on the host device
 * (75 us); captures that take no time show what a lock costs that is hardly ever free. The results are medians over
 * batches, so that a preemption does not count. The aim is below 200 ns beside captures.
 */
#include "base/lock.h"
#include "base/mem.h"
#include "graphs/gcache.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH   200
#define BATCHES 5001
#define LIMIT   64
#define MANY    10000 /* keys that stand for a graph with many shapes */

#define CAPTURE_TIME (20 * NGD_USEC)

static struct ngd_gcache *cache;
static ngd_nsec_t capture_time; /* what compile() takes */
static _Atomic bool stop;
static _Atomic uint64_t captures;

static struct ngd_key key_of_symbol(int64_t symbol)
{
    struct ngd_key key = {.n_symbols = 1, .symbols = {symbol}};

    key.hash = ngd_hash64(&symbol, sizeof(symbol), 0);
    return key;
}

static ngd_status_t compile(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                            struct ngd_diag *diag)
{
    const ngd_nsec_t end = capture_time ? ngd_now() + capture_time : 0;

    (void)key;
    (void)diag;
    while (end && ngd_now() < end)
        ;
    *art_p = ctx;
    *bytes_p = 1;
    return NGD_OK;
}

static void release_nothing(void *ctx, void *art)
{
    (void)ctx;
    (void)art;
}

static void get(int64_t symbol)
{
    struct ngd_key key = key_of_symbol(symbol);
    struct ngd_gcache_entry *e = NULL;

    if (!ngd_gcache_get(cache, &key, &e, NULL))
        ngd_gcache_put(e);
}

static void *read_all_the_time(void *arg)
{
    struct ngd_key key = key_of_symbol(1);

    (void)arg;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ngd_gcache_put(ngd_gcache_lookup(cache, &key));
    return NULL;
}

static void *capture_all_the_time(void *arg)
{
    (void)arg;
    for (int64_t s = 1000; !atomic_load_explicit(&stop, memory_order_relaxed); s++) {
        get(s);
        atomic_fetch_add_explicit(&captures, 1, memory_order_relaxed);
    }
    return NULL;
}

static int cmp_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void report(const char *what, double *ns, uint64_t hits)
{
    qsort(ns, BATCHES, sizeof(ns[0]), cmp_double);
    printf("gcache lookup+put, %-28s median %7.1f ns  p99 %7.1f ns  hits %.1f %%  captures beside %llu\n", what,
           ns[BATCHES / 2], ns[BATCHES * 99 / 100], 100.0 * (double)hits / (BATCH * (double)BATCHES),
           (unsigned long long)atomic_load(&captures));
}

static void measure_lookups(const char *what, void *(*beside)(void *))
{
    static double ns[BATCHES];
    struct ngd_key key = key_of_symbol(1);
    /* The entry is pinned, because the other thread evicts the rest of the cache whenever this one is preempted. */
    struct ngd_gcache_entry *pinned = ngd_gcache_lookup(cache, &key);
    pthread_t thread;
    uint64_t hits = 0;

    atomic_store(&stop, false);
    atomic_store(&captures, 0);
    if (beside && ngd_thread_start(&thread, "beside", beside, NULL))
        exit(EXIT_FAILURE);
    for (int b = 0; b < BATCHES; b++) {
        ngd_nsec_t begin = ngd_now();

        for (int i = 0; i < BATCH; i++) {
            struct ngd_gcache_entry *e = ngd_gcache_lookup(cache, &key);

            hits += e != NULL;
            ngd_gcache_put(e);
        }
        ns[b] = (double)(ngd_now() - begin) / BATCH;
    }
    atomic_store(&stop, true);
    if (beside)
        pthread_join(thread, NULL);
    ngd_gcache_put(pinned);
    report(what, ns, hits);
}

/*
 * Draws a new key for each lookup, so that the measured time includes fetching the entry from memory. The keys are made
 * before the clock starts.
 */
static void measure_many(void)
{
    static double ns[BATCHES];
    static struct ngd_key keys[BATCH];
    uint64_t seed = 1, hits = 0;

    atomic_store(&captures, 0);
    for (int b = 0; b < BATCHES; b++) {
        ngd_nsec_t begin;

        for (int i = 0; i < BATCH; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            keys[i] = key_of_symbol((int64_t)((seed >> 33) % MANY));
        }
        begin = ngd_now();
        for (int i = 0; i < BATCH; i++) {
            struct ngd_gcache_entry *e = ngd_gcache_lookup(cache, &keys[i]);

            hits += e != NULL;
            ngd_gcache_put(e);
        }
        ns[b] = (double)(ngd_now() - begin) / BATCH;
    }
    report("10,000 keys, drawn at random", ns, hits);
}

static void fill_cache(uint32_t limit, int64_t keys)
{
    static const struct ngd_gcache_ops ops = {.compile = compile, .release = release_nothing};
    struct ngd_gcache_params params;

    ngd_gcache_params_init(&params);
    params.ops = &ops;
    params.limit = limit;
    if (ngd_gcache_create(&params, &cache))
        exit(EXIT_FAILURE);
    for (int64_t s = 0; s < keys; s++)
        get(s);
}

int main(void)
{
    fill_cache(LIMIT, LIMIT);
    measure_lookups("alone", NULL);
    measure_lookups("beside another reader", read_all_the_time);
    capture_time = CAPTURE_TIME;
    measure_lookups("beside captures and evictions", capture_all_the_time);
    capture_time = 0;
    measure_lookups("beside captures of no time", capture_all_the_time);
    ngd_gcache_destroy(cache);
    fill_cache(MANY, MANY);
    measure_many();
    ngd_gcache_destroy(cache);
    return EXIT_SUCCESS;
}
