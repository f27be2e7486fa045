/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"
#include "base/mem.h"
#include "graphs/gcache.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* An artefact of these tests; it detects use after its release. */
struct artefact {
    int64_t symbol;
    _Atomic uint32_t users;
    _Atomic bool released;
};

struct owner {
    struct ngd_gcache *cache;
    _Atomic uint32_t compiles, made, releases, inside;
    _Atomic int64_t block_symbol; /* compiling this symbol waits while the gate is closed; -1: none waits */
    _Atomic bool gate_open;
    _Atomic bool fail;
    _Atomic int64_t compile_time; /* added to the fake clock when it is on */
    _Atomic int64_t fake_now;     /* -1: real clock */
};

static struct ngd_key key_of(int64_t symbol)
{
    struct ngd_key key = {.n_symbols = 1, .symbols = {symbol}};

    key.hash = ngd_hash64(&symbol, sizeof(symbol), 0);
    return key;
}

static ngd_status_t compile(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                            struct ngd_diag *diag)
{
    struct owner *o = ctx;
    struct artefact *a;

    atomic_fetch_add(&o->compiles, 1);
    atomic_fetch_add(&o->inside, 1);
    while (key->symbols[0] == atomic_load(&o->block_symbol) && !atomic_load(&o->gate_open))
        sched_yield();
    atomic_fetch_sub(&o->inside, 1);
    if (atomic_load(&o->fake_now) >= 0)
        ngd_clock_set_fake(atomic_fetch_add(&o->fake_now, atomic_load(&o->compile_time)) +
                           atomic_load(&o->compile_time));
    if (atomic_load(&o->fail))
        return ngd_diag_set(diag, NGD_ERR_CAPTURE_FAILED, "compiler number %u is on strike", atomic_load(&o->compiles));
    a = NGD_NEW(struct artefact);
    if (!a)
        return NGD_ERR_NO_MEMORY;
    atomic_fetch_add(&o->made, 1);
    a->symbol = key->symbols[0];
    *art_p = a;
    *bytes_p = 1000;
    return NGD_OK;
}

static void release(void *ctx, void *art)
{
    struct owner *o = ctx;
    struct artefact *a = art;

    if (atomic_load(&a->users) != 0 || atomic_exchange(&a->released, true))
        ck_abort_msg("artefact %ld is released in use or twice", (long)a->symbol);
    atomic_fetch_add(&o->releases, 1);
    ngd_free(a);
}

static const struct ngd_gcache_ops ops = {.compile = compile, .release = release};

static void owner_init(struct owner *o, uint32_t limit, ngd_gcache_policy_t policy, int64_t fake_now)
{
    struct ngd_gcache_params params;

    memset(o, 0, sizeof(*o));
    atomic_store(&o->block_symbol, -1);
    atomic_store(&o->fake_now, fake_now);
    ngd_clock_set_fake(fake_now);
    ngd_gcache_params_init(&params);
    params.ops = &ops;
    params.ctx = o;
    params.limit = limit;
    params.policy = policy;
    ck_assert_int_eq(ngd_gcache_create(&params, &o->cache), NGD_OK);
}

/* made: number of artefacts that must have been made and released; UINT32_MAX: any number. */
static void owner_fini(struct owner *o, uint32_t made)
{
    uint32_t releases, compiled = atomic_load(&o->made);

    ngd_gcache_destroy(o->cache);
    releases = atomic_load(&o->releases);
    ck_assert_uint_eq(releases, compiled);
    if (made != UINT32_MAX)
        ck_assert_uint_eq(releases, made);
    ngd_clock_set_fake(-1);
}

static void advance(struct owner *o, ngd_nsec_t t)
{
    ngd_clock_set_fake(atomic_fetch_add(&o->fake_now, t) + t);
}

static ngd_status_t get_and_put(struct owner *o, int64_t symbol, struct ngd_diag *diag)
{
    struct ngd_key key = key_of(symbol);
    struct ngd_gcache_entry *e = NULL;
    ngd_status_t status = ngd_gcache_get(o->cache, &key, &e, diag);

    if (!status) {
        ck_assert_int_eq(((struct artefact *)ngd_gcache_artefact(e))->symbol, symbol);
        ck_assert(ngd_key_equal(ngd_gcache_entry_key(e), &key));
        ngd_gcache_put(e);
    }
    return status;
}

static bool has(struct owner *o, int64_t symbol)
{
    struct ngd_key key = key_of(symbol);
    struct ngd_gcache_entry *e = ngd_gcache_lookup(o->cache, &key);

    ngd_gcache_put(e);
    return e != NULL;
}

static struct ngd_gcache_stats stats_of(struct owner *o)
{
    struct ngd_gcache_stats s;

    ngd_gcache_stats(o->cache, &s);
    return s;
}

/* ---- one thread ---- */

START_TEST(get_compiles_once_and_lookup_finds_it)
{
    struct ngd_key known = key_of(1), unknown = key_of(2);
    struct ngd_gcache_entry *e;
    struct ngd_gcache_stats s;
    struct owner o;

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    ck_assert(!has(&o, 1));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    ck_assert(has(&o, 1));
    ck_assert(!has(&o, 2));
    e = ngd_gcache_peek(o.cache, &known); /* which is no hit */
    ck_assert_ptr_nonnull(e);
    ngd_gcache_put(e);
    ck_assert_ptr_null(ngd_gcache_peek(o.cache, &unknown));
    s = stats_of(&o);
    ck_assert_uint_eq(s.compiles, 1);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert_uint_eq(s.hits, 5);
    ck_assert_uint_eq(s.entries, 1);
    ck_assert_uint_eq(s.bytes, 1000);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(create_with_a_limit_of_zero_or_without_ops_is_refused)
{
    struct ngd_gcache_params params;
    struct ngd_gcache *cache = NULL;

    ngd_gcache_params_init(&params);
    ck_assert_uint_eq(params.limit, 64);
    ck_assert_int_eq(params.retry_after, NGD_SEC);
    ck_assert_int_eq(ngd_gcache_create(&params, &cache), NGD_ERR_INVALID_ARGUMENT);
    params.ops = &ops;
    params.limit = 0;
    ck_assert_int_eq(ngd_gcache_create(&params, &cache), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(cache);
    ngd_gcache_destroy(NULL);
}
END_TEST

START_TEST(pinned_entries_survive_eviction)
{
    struct owner o;
    struct ngd_key k1 = key_of(1);
    struct ngd_gcache_entry *e = NULL;

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    ck_assert_int_eq(ngd_gcache_get(o.cache, &k1, &e, NULL), NGD_OK);
    for (int64_t i = 2; i < 50; i++) {
        advance(&o, NGD_SEC);
        ck_assert_int_eq(get_and_put(&o, i, NULL), NGD_OK);
        ck_assert(has(&o, 1));
    }
    ck_assert_uint_eq(stats_of(&o).evictions, 47);
    ck_assert_uint_eq(stats_of(&o).entries, 2);
    ck_assert(!atomic_load(&((struct artefact *)ngd_gcache_artefact(e))->released));
    ngd_gcache_put(e);
    owner_fini(&o, 49);
}
END_TEST

START_TEST(get_when_all_are_pinned_names_the_count_and_the_limit)
{
    struct owner o;
    struct ngd_gcache_entry *e[2];
    struct ngd_diag diag = {0};

    owner_init(&o, 2, NGD_GCACHE_EVICT, -1);
    for (int i = 0; i < 2; i++) {
        struct ngd_key key = key_of(i);

        ck_assert_int_eq(ngd_gcache_get(o.cache, &key, &e[i], NULL), NGD_OK);
    }
    ck_assert_int_eq(get_and_put(&o, 7, &diag), NGD_ERR_CAPTURE_LIMIT);
    ck_assert_str_eq(diag.text, "the graph holds 2 keys, its capture_limit is 2, and all of them are in use; raise "
                                "capture_limit or use fewer shapes at a time");
    ngd_gcache_put(e[1]);
    ck_assert_int_eq(get_and_put(&o, 7, &diag), NGD_OK);
    ck_assert(has(&o, 0) && !has(&o, 1));
    ngd_gcache_put(e[0]);
    owner_fini(&o, 3);
}
END_TEST

START_TEST(eviction_takes_the_oldest_of_equal_cost)
{
    struct owner o;

    owner_init(&o, 3, NGD_GCACHE_EVICT, 1000);
    for (int64_t i = 1; i <= 3; i++) {
        advance(&o, NGD_SEC);
        ck_assert_int_eq(get_and_put(&o, i, NULL), NGD_OK);
    }
    advance(&o, NGD_SEC);
    ck_assert(has(&o, 1)); /* used again, so 2 is the oldest */
    advance(&o, NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 4, NULL), NGD_OK);
    ck_assert(has(&o, 1) && !has(&o, 2) && has(&o, 3) && has(&o, 4));
    owner_fini(&o, 4);
}
END_TEST

START_TEST(eviction_spares_what_is_expensive_to_compile)
{
    struct owner o;

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    atomic_store(&o.compile_time, 5 * NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    advance(&o, NGD_SEC);
    atomic_store(&o.compile_time, NGD_MSEC);
    ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_OK);
    for (int64_t i = 3; i < 20; i++) { /* cheap entries evict each other, although 1 is older */
        advance(&o, NGD_SEC);
        ck_assert_int_eq(get_and_put(&o, i, NULL), NGD_OK);
    }
    ck_assert(has(&o, 1));
    advance(&o, 100000 * NGD_SEC); /* with time even an expensive entry is evicted */
    ck_assert(has(&o, 19));
    advance(&o, NGD_MSEC);
    owner_fini(&o, 19);
}
END_TEST

START_TEST(expensive_entry_goes_when_it_has_not_been_used_for_long)
{
    struct owner o;

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    atomic_store(&o.compile_time, 5 * NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    atomic_store(&o.compile_time, NGD_MSEC);
    advance(&o, 100000 * NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_OK);
    advance(&o, NGD_MSEC);
    ck_assert_int_eq(get_and_put(&o, 3, NULL), NGD_OK);
    ck_assert(!has(&o, 1) && has(&o, 2) && has(&o, 3));
    owner_fini(&o, 3);
}
END_TEST

START_TEST(reject_and_eager_refuse_new_keys_past_the_limit)
{
    static const ngd_gcache_policy_t policies[] = {NGD_GCACHE_REJECT, NGD_GCACHE_EAGER};
    static const char *const words[] = {"policy past the limit is reject", "policy past the limit is eager"};

    for (int i = 0; i < 2; i++) {
        struct owner o;
        struct ngd_diag diag = {0};

        owner_init(&o, 2, policies[i], -1);
        ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
        ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_OK);
        ck_assert_int_eq(get_and_put(&o, 3, &diag), NGD_ERR_CAPTURE_LIMIT);
        ck_assert_ptr_nonnull(strstr(diag.text, words[i]));
        ck_assert(has(&o, 1) && has(&o, 2));
        ck_assert_uint_eq(stats_of(&o).evictions, 0);
        owner_fini(&o, 2);
    }
}
END_TEST

START_TEST(recapture_of_a_known_key_is_not_counted)
{
    struct owner o;
    struct ngd_key k1 = key_of(1);

    owner_init(&o, 1, NGD_GCACHE_REJECT, -1);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
        ngd_gcache_drop(o.cache, &k1);
        ck_assert(!has(&o, 1));
    }
    ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_ERR_CAPTURE_LIMIT); /* 1 keeps its place */
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    ck_assert_uint_eq(stats_of(&o).compiles, 6);
    ck_assert_uint_eq(stats_of(&o).recompiles, 5);
    owner_fini(&o, 6);
}
END_TEST

START_TEST(place_of_a_dropped_key_is_given_up_first)
{
    struct owner o;
    struct ngd_key k2 = key_of(2);

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    advance(&o, NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_OK);
    ngd_gcache_drop(o.cache, &k2);
    ck_assert_int_eq(get_and_put(&o, 3, NULL), NGD_OK);
    ck_assert(has(&o, 1) && has(&o, 3));
    ck_assert_uint_eq(stats_of(&o).evictions, 0);
    owner_fini(&o, 3);
}
END_TEST

START_TEST(evicted_key_that_comes_back_is_a_recompile)
{
    struct owner o;

    owner_init(&o, 1, NGD_GCACHE_EVICT, -1);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    ck_assert_int_eq(get_and_put(&o, 2, NULL), NGD_OK);
    ck_assert_uint_eq(stats_of(&o).recompiles, 0);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    ck_assert_uint_eq(stats_of(&o).recompiles, 1);
    owner_fini(&o, 3);
}
END_TEST

START_TEST(dropped_entry_is_released_when_it_is_unpinned)
{
    struct owner o;
    struct ngd_key key = key_of(1);
    struct ngd_gcache_entry *old = NULL, *fresh = NULL;

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    ck_assert_int_eq(ngd_gcache_get(o.cache, &key, &old, NULL), NGD_OK);
    ngd_gcache_drop(o.cache, &key);
    ck_assert_ptr_null(ngd_gcache_lookup(o.cache, &key));
    ck_assert_uint_eq(atomic_load(&o.releases), 0);
    ck_assert_int_eq(ngd_gcache_get(o.cache, &key, &fresh, NULL), NGD_OK);
    ck_assert_ptr_ne(ngd_gcache_artefact(old), ngd_gcache_artefact(fresh));
    ck_assert_uint_eq(stats_of(&o).bytes, 2000);
    ngd_gcache_put(old);
    ck_assert_uint_eq(atomic_load(&o.releases), 1);
    ck_assert_uint_eq(stats_of(&o).bytes, 1000);
    ngd_gcache_put(fresh);
    owner_fini(&o, 2);
}
END_TEST

START_TEST(failure_is_remembered_then_retried)
{
    struct owner o;
    struct ngd_diag diag = {0};

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    atomic_store(&o.fail, true);
    ck_assert_int_eq(get_and_put(&o, 1, &diag), NGD_ERR_CAPTURE_FAILED);
    ck_assert_str_eq(diag.text, "compiler number 1 is on strike");
    atomic_store(&o.fail, false);
    diag.text[0] = '\0';
    advance(&o, NGD_SEC - 1);
    ck_assert_int_eq(get_and_put(&o, 1, &diag), NGD_ERR_CAPTURE_FAILED);
    ck_assert_str_eq(diag.text, "compiler number 1 is on strike");
    ck_assert_uint_eq(atomic_load(&o.compiles), 1);
    advance(&o, 1);
    ck_assert_int_eq(get_and_put(&o, 1, &diag), NGD_OK);
    ck_assert_uint_eq(stats_of(&o).failures, 1);
    ck_assert_uint_eq(stats_of(&o).compiles, 1);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(failure_without_a_diagnosis_gets_the_default_sentence)
{
    struct owner o;
    struct ngd_diag diag = {0};

    owner_init(&o, 2, NGD_GCACHE_EVICT, -1);
    ngd_mem_fail_after(6); /* the flight, the record and the entry succeed sooner or later */
    for (int64_t i = 0; i < 8; i++)
        if (get_and_put(&o, i, &diag))
            break;
    ngd_mem_fail_after(-1);
    ck_assert_int_eq(diag.status, NGD_ERR_NO_MEMORY);
    ck_assert_uint_gt(strlen(diag.text), 0);
    owner_fini(&o, UINT32_MAX);
}
END_TEST

START_TEST(drop_of_a_failed_key_allows_a_retry_at_once)
{
    struct owner o;
    struct ngd_key key = key_of(1);

    owner_init(&o, 2, NGD_GCACHE_EVICT, 1000);
    atomic_store(&o.fail, true);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_ERR_CAPTURE_FAILED);
    atomic_store(&o.fail, false);
    ngd_gcache_drop(o.cache, &key);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(failed_keys_hold_no_place_and_do_not_pile_up)
{
    struct owner o;

    owner_init(&o, 2, NGD_GCACHE_REJECT, 1000);
    atomic_store(&o.fail, true);
    for (int64_t i = 0; i < 1000; i++)
        ck_assert_int_eq(get_and_put(&o, i, NULL), NGD_ERR_CAPTURE_FAILED);
    ck_assert_uint_eq(atomic_load(&o.compiles), 1000);
    ck_assert_int_eq(get_and_put(&o, 999, NULL), NGD_ERR_CAPTURE_FAILED); /* remembered */
    ck_assert_uint_eq(atomic_load(&o.compiles), 1000);
    ck_assert_int_eq(get_and_put(&o, 0, NULL), NGD_ERR_CAPTURE_FAILED); /* long forgotten */
    ck_assert_uint_eq(atomic_load(&o.compiles), 1001);
    atomic_store(&o.fail, false);
    advance(&o, 2 * NGD_SEC);
    ck_assert_int_eq(get_and_put(&o, 999, NULL), NGD_OK);
    ck_assert_int_eq(get_and_put(&o, 1000, NULL), NGD_OK);
    owner_fini(&o, 2);
}
END_TEST

static void sum_up(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    int64_t *sum = ctx;

    ck_assert_int_eq(((struct artefact *)art)->symbol, key->symbols[0]);
    *sum += key->symbols[0] * 100 + (int64_t)uses;
}

START_TEST(for_each_visits_ready_entries_with_their_uses)
{
    struct owner o;
    struct ngd_key k2 = key_of(2);
    int64_t sum = 0;

    owner_init(&o, 8, NGD_GCACHE_EVICT, -1);
    for (int64_t i = 1; i <= 3; i++)
        ck_assert_int_eq(get_and_put(&o, i, NULL), NGD_OK);
    ck_assert(has(&o, 3) && has(&o, 3));
    ngd_gcache_drop(o.cache, &k2);
    ngd_gcache_for_each(o.cache, sum_up, &sum);
    ck_assert_int_eq(sum, 101 + 303);
    owner_fini(&o, 3);
}
END_TEST

START_TEST(every_failed_allocation_leaves_a_working_cache)
{
    struct owner o;
    ngd_status_t status;

    owner_init(&o, 4, NGD_GCACHE_EVICT, 1000);
    for (int n = 0; n < 12; n++) {
        ngd_mem_fail_after(n);
        status = get_and_put(&o, n, NULL);
        ngd_mem_fail_after(-1);
        ck_assert(status == NGD_OK || status == NGD_ERR_NO_MEMORY);
        advance(&o, 2 * NGD_SEC);
        ck_assert_int_eq(get_and_put(&o, n, NULL), NGD_OK);
    }
    for (int n = 0; n < 3; n++) {
        struct ngd_key key = key_of(11);

        ngd_mem_fail_after(n);
        ngd_gcache_drop(o.cache, &key);
        ngd_mem_fail_after(-1);
        ck_assert(!has(&o, 11));
        ck_assert_int_eq(get_and_put(&o, 11, NULL), NGD_OK);
    }
    owner_fini(&o, UINT32_MAX);
}
END_TEST

/* ---- several threads ---- */

struct caller {
    struct owner *o;
    pthread_t thread;
    int64_t symbol;
    ngd_status_t status;
    void *art;
    struct ngd_diag diag;
};

static void *call_get(void *arg)
{
    struct caller *c = arg;
    struct ngd_key key = key_of(c->symbol);
    struct ngd_gcache_entry *e = NULL;

    c->status = ngd_gcache_get(c->o->cache, &key, &e, &c->diag);
    if (!c->status) {
        c->art = ngd_gcache_artefact(e);
        ngd_gcache_put(e);
    }
    return NULL;
}

static void start_callers(struct caller *c, int n, struct owner *o, int64_t symbol)
{
    memset(c, 0, sizeof(*c) * (size_t)n);
    for (int i = 0; i < n; i++) {
        c[i].o = o;
        c[i].symbol = symbol;
        ck_assert_int_eq(ngd_thread_start(&c[i].thread, "caller", call_get, &c[i]), 0);
    }
}

static void join_callers(struct caller *c, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(c[i].thread, NULL);
}

static void wait_inside(struct owner *o)
{
    while (atomic_load(&o->inside) == 0)
        sched_yield();
}

static void wait_for_waiters(struct owner *o, uint64_t n)
{
    while (stats_of(o).waits < n)
        sched_yield();
}

START_TEST(get_while_compiling_waits_for_first)
{
    struct owner o;
    struct caller first, second;

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    atomic_store(&o.block_symbol, 1);
    start_callers(&first, 1, &o, 1);
    wait_inside(&o);
    start_callers(&second, 1, &o, 1);
    wait_for_waiters(&o, 1);
    ck_assert_uint_eq(atomic_load(&o.compiles), 1);
    atomic_store(&o.gate_open, true);
    join_callers(&first, 1);
    join_callers(&second, 1);
    ck_assert_int_eq(first.status, NGD_OK);
    ck_assert_int_eq(second.status, NGD_OK);
    ck_assert_ptr_eq(first.art, second.art);
    ck_assert_uint_eq(atomic_load(&o.compiles), 1);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(eight_threads_same_key_compile_once)
{
    struct owner o;
    struct caller c[8];

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    atomic_store(&o.block_symbol, 1);
    start_callers(c, 8, &o, 1);
    wait_for_waiters(&o, 7);
    atomic_store(&o.gate_open, true);
    join_callers(c, 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(c[i].status, NGD_OK);
        ck_assert_ptr_eq(c[i].art, c[0].art);
    }
    ck_assert_uint_eq(atomic_load(&o.compiles), 1);
    ck_assert_uint_eq(stats_of(&o).waits, 7);
    ck_assert_uint_eq(stats_of(&o).misses, 8);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(waiters_get_the_diagnosis_of_the_failure)
{
    struct owner o;
    struct caller c[4];

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    atomic_store(&o.block_symbol, 1);
    atomic_store(&o.fail, true);
    start_callers(c, 4, &o, 1);
    wait_for_waiters(&o, 3);
    atomic_store(&o.gate_open, true);
    join_callers(c, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(c[i].status, NGD_ERR_CAPTURE_FAILED);
        ck_assert_str_eq(c[i].diag.text, "compiler number 1 is on strike");
    }
    ck_assert_uint_eq(atomic_load(&o.compiles), 1);
    owner_fini(&o, 0);
}
END_TEST

START_TEST(lookup_proceeds_while_another_thread_is_inside_compile)
{
    struct owner o;
    struct caller slow;

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    atomic_store(&o.block_symbol, 2);
    start_callers(&slow, 1, &o, 2);
    wait_inside(&o);
    for (int i = 0; i < 1000; i++) {
        ck_assert(has(&o, 1));
        ck_assert(!has(&o, 2)); /* a lookup that misses does not wait either */
    }
    ck_assert_int_eq(get_and_put(&o, 3, NULL), NGD_OK); /* compiles of different keys run side by side */
    ck_assert_uint_eq(atomic_load(&o.inside), 1);
    atomic_store(&o.gate_open, true);
    join_callers(&slow, 1);
    owner_fini(&o, 3);
}
END_TEST

START_TEST(lookup_allocates_nothing)
{
    struct owner o;
    uint64_t allocs;

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    allocs = ngd_mem_thread_allocs();
    for (int i = 0; i < 1000; i++)
        ck_assert(has(&o, 1) && !has(&o, 2));
    ck_assert_uint_eq(ngd_mem_thread_allocs(), allocs);
    owner_fini(&o, 1);
}
END_TEST

START_TEST(drop_while_compiling_keeps_the_result_from_later_callers)
{
    struct owner o;
    struct caller first;
    struct ngd_key key = key_of(1);

    owner_init(&o, 4, NGD_GCACHE_EVICT, -1);
    atomic_store(&o.block_symbol, 1);
    start_callers(&first, 1, &o, 1);
    wait_inside(&o);
    ngd_gcache_drop(o.cache, &key);
    atomic_store(&o.gate_open, true);
    ck_assert_int_eq(get_and_put(&o, 1, NULL), NGD_OK);
    join_callers(&first, 1);
    ck_assert_int_eq(first.status, NGD_OK);
    ck_assert_uint_eq(atomic_load(&o.compiles), 2);
    ck_assert(has(&o, 1));
    owner_fini(&o, 2);
}
END_TEST

struct storm {
    struct owner *o;
    pthread_t thread;
    uint64_t seed;
    int64_t keys;
    uint32_t rounds, served;
};

static void use_entry(struct ngd_gcache_entry *e, int64_t symbol)
{
    struct artefact *a = ngd_gcache_artefact(e);

    atomic_fetch_add(&a->users, 1);
    if (a->symbol != symbol || atomic_load(&a->released))
        ck_abort_msg("artefact of %ld is wrong or gone", (long)symbol);
    atomic_fetch_sub(&a->users, 1);
    ngd_gcache_put(e);
}

static void *run_storm(void *arg)
{
    struct storm *s = arg;

    for (uint32_t i = 0; i < s->rounds; i++) {
        uint64_t r = s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
        int64_t symbol = (int64_t)((r >> 33) % (uint64_t)s->keys);
        struct ngd_key key = key_of(symbol);
        struct ngd_gcache_entry *e = ngd_gcache_lookup(s->o->cache, &key);

        if ((r >> 20) % 64 == 0)
            ngd_gcache_drop(s->o->cache, &key);
        if (!e && ngd_gcache_get(s->o->cache, &key, &e, NULL))
            continue;
        use_entry(e, symbol);
        s->served++;
    }
    return NULL;
}

START_TEST(storm_of_lookups_evictions_and_drops_loses_nothing)
{
    enum { THREADS = 4, ROUNDS = 20000 };
    struct owner o;
    struct storm s[THREADS];
    struct ngd_gcache_stats st;
    uint32_t served = 0;

    owner_init(&o, 8, NGD_GCACHE_EVICT, -1);
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct storm){.o = &o, .seed = (uint64_t)i * 77 + 1, .keys = 12, .rounds = ROUNDS};
        ck_assert_int_eq(ngd_thread_start(&s[i].thread, "storm", run_storm, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(s[i].thread, NULL);
        served += s[i].served;
    }
    st = stats_of(&o);
    ck_assert_uint_eq(served, THREADS * ROUNDS);
    ck_assert_uint_le(st.entries, 8);
    ck_assert_uint_gt(st.evictions, 0);
    ck_assert_uint_gt(st.hits, 0);
    ck_assert_uint_eq(st.compiles, atomic_load(&o.compiles));
    ck_assert_uint_eq(st.bytes, 1000 * (uint64_t)st.entries);
    owner_fini(&o, UINT32_MAX);
}
END_TEST

UNIT_MAIN("graphs/gcache", get_compiles_once_and_lookup_finds_it, create_with_a_limit_of_zero_or_without_ops_is_refused,
          pinned_entries_survive_eviction, get_when_all_are_pinned_names_the_count_and_the_limit,
          eviction_takes_the_oldest_of_equal_cost, eviction_spares_what_is_expensive_to_compile,
          expensive_entry_goes_when_it_has_not_been_used_for_long, reject_and_eager_refuse_new_keys_past_the_limit,
          recapture_of_a_known_key_is_not_counted, place_of_a_dropped_key_is_given_up_first,
          evicted_key_that_comes_back_is_a_recompile, dropped_entry_is_released_when_it_is_unpinned,
          failure_is_remembered_then_retried, failure_without_a_diagnosis_gets_the_default_sentence,
          drop_of_a_failed_key_allows_a_retry_at_once, failed_keys_hold_no_place_and_do_not_pile_up,
          for_each_visits_ready_entries_with_their_uses, every_failed_allocation_leaves_a_working_cache,
          get_while_compiling_waits_for_first, eight_threads_same_key_compile_once,
          waiters_get_the_diagnosis_of_the_failure, lookup_proceeds_while_another_thread_is_inside_compile,
          lookup_allocates_nothing, drop_while_compiling_keeps_the_result_from_later_callers,
          storm_of_lookups_evictions_and_drops_loses_nothing)
