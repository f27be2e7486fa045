/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of programs, with the buckets that were applied to them.
 *
 * The graph's own buckets are part of its text and digest; applied ones replace them here. Buckets do not change
 * results (padding is masked, decision 0002), so a set may be replaced while replays are under way. A request that was
 * keyed before finds its executable or captures it, and the next one has the new key.
 */
#include "base/mem.h"
#include "graphs/guard.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <string.h>

ngd_status_t ngd_program_key(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                             struct ngd_key *key_p, struct ngd_diag *diag)
{
    const struct ngd_bucket_table *table = atomic_load_explicit(&prog->buckets, memory_order_acquire);

    return ngd_key_make_buckets(prog->graph, &prog->key_digest, table ? table->sets : NULL, symbols, n_symbols, key_p,
                                diag);
}

ngd_status_t ngd_program_key_sizes(struct ngd_program *prog, const int64_t *sizes, uint32_t n_sizes,
                                   struct ngd_key *key_p, struct ngd_diag *diag)
{
    const struct ngd_bucket_table *table = atomic_load_explicit(&prog->buckets, memory_order_acquire);

    return ngd_key_make_sizes(prog->graph, &prog->key_digest, table ? table->sets : NULL, sizes, n_sizes, key_p, diag);
}

ngd_status_t ngd_program_choose_sizes(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                                      int64_t *sizes_p, struct ngd_diag *diag)
{
    bool any = false;
    struct ngd_key key;

    if (n_symbols != prog->graph->n_symbols)
        return ngd_program_key(prog, symbols, n_symbols, &key, diag); /* which reports the wrong number */
    for (uint32_t i = 0; i < n_symbols; i++)
        any = any || symbols[i] == NGD_SIZE_ANY;
    if (any)
        return ngd_guard_choose_sizes(prog->graph, symbols, sizes_p, diag);
    memcpy(sizes_p, symbols, n_symbols * sizeof(*symbols));
    return NGD_OK;
}

void ngd_program_free_buckets(struct ngd_program *prog)
{
    struct ngd_bucket_table *table = atomic_load(&prog->buckets), *before;

    for (; table; table = before) {
        before = table->before;
        ngd_free(table);
    }
}

uint32_t ngd_program_sizes(struct ngd_program *prog, uint32_t symbol, struct ngd_size_count *list)
{
    return ngd_sizes_read(&prog->sizes[symbol], list);
}

void ngd_program_buckets(struct ngd_program *prog, uint32_t symbol, struct ngd_bucket_set *set_p)
{
    const struct ngd_bucket_table *table = atomic_load_explicit(&prog->buckets, memory_order_acquire);

    if (table && table->sets[symbol].n)
        *set_p = table->sets[symbol];
    else
        ngd_buckets_of_symbol(&prog->graph->symbols[symbol], set_p);
}

/* ---- applying ----------------------------------------------------------------------------------------- */

static struct ngd_bucket_table *table_new(const struct ngd_program *prog, uint32_t symbol,
                                          const struct ngd_bucket_set *set, struct ngd_bucket_table *before)
{
    uint32_t n = prog->graph->n_symbols;
    struct ngd_bucket_table *table = ngd_calloc(1, sizeof(*table) + n * sizeof(table->sets[0]));

    if (!table)
        return NULL;
    if (before)
        memcpy(table->sets, before->sets, n * sizeof(table->sets[0]));
    table->sets[symbol] = *set;
    table->before = before;
    return table;
}

static ngd_status_t replace_table(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set,
                                  struct ngd_diag *diag)
{
    struct ngd_bucket_table *table = NULL;
    bool full;

    ngd_mutex_lock(&prog->lock);
    full = prog->n_applied >= NGD_PROGRAM_TABLES_MAX;
    if (!full)
        table = table_new(prog, symbol, set, atomic_load(&prog->buckets));
    if (table) {
        prog->n_applied++;
        atomic_store_explicit(&prog->buckets, table, memory_order_release);
    }
    ngd_mutex_unlock(&prog->lock);
    if (full)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "graph \"%.100s\" has got new buckets %d times, which is the limit; register it again",
                            prog->graph->name, NGD_PROGRAM_TABLES_MAX);
    return table ? NGD_OK
                 : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the buckets of graph \"%.100s\"",
                                prog->graph->name);
}

/* Collects the keys of executables whose value of `symbol` is no bucket any more. */
struct unreachable {
    uint32_t symbol, n, max;
    const struct ngd_bucket_set *set;
    struct ngd_key *keys;
};

static void find_unreachable(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    struct unreachable *u = ctx;

    (void)uses;
    for (uint32_t i = 0; i < u->set->n; i++)
        if (u->set->sizes[i] == key->symbols[u->symbol])
            return;
    if (u->n == u->max)
        return;
    atomic_store(&((struct ngd_executable *)art)->unreachable, true);
    u->keys[u->n++] = *key;
}

/*
 * Drops executables that no request reaches any more. One that is captured meanwhile for a request under way stays
 * until it is evicted: it is right, only unused.
 */
static uint32_t drop_unreachable(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set)
{
    struct unreachable u = {.symbol = symbol, .set = set};
    struct ngd_gcache_stats stats;

    ngd_gcache_stats(prog->cache, &stats);
    u.max = stats.entries;
    u.keys = NGD_NEW_N(struct ngd_key, u.max);
    if (!u.keys)
        return 0;
    ngd_gcache_for_each(prog->cache, find_unreachable, &u);
    for (uint32_t i = 0; i < u.n; i++)
        ngd_gcache_forget(prog->cache, &u.keys[i]);
    ngd_free(u.keys);
    return u.n;
}

static void note_applied(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set, uint32_t dropped)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (uint32_t i = 0; i < set->n; i++)
        ngd_strbuf_printf(&sb, "%s%" PRId64, i ? ", " : "", set->sizes[i]);
    ngd_program_note(prog, NGD_EVENT_BUCKETS_APPLIED, NULL, 0, "%s: %s; %" PRIu32 " executables dropped",
                     prog->graph->symbols[symbol].name, ngd_strbuf_str(&sb), dropped);
    ngd_strbuf_fini(&sb);
}

ngd_status_t ngd_program_apply_buckets(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set,
                                       uint32_t *dropped_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_buckets_check(&prog->graph->symbols[symbol], set, diag);
    uint32_t dropped;

    if (status == NGD_OK)
        status = replace_table(prog, symbol, set, diag);
    if (status)
        return status;
    dropped = drop_unreachable(prog, symbol, set);
    note_applied(prog, symbol, set, dropped);
    if (dropped_p)
        *dropped_p = dropped;
    return NGD_OK;
}

/* ---- learning ----------------------------------------------------------------------------------------- */

/* A new set is applied if it pads less than this part of what the present one pads, since captures cost time too. */
#define WORTH 0.9

struct lesson {
    struct ngd_capture_job job;
    struct ngd_program *prog; /* a reference */
};

/* Applies a better set of buckets to a symbol, if there is one. It has as many buckets as the graph declares. */
static void learn_symbol(struct ngd_program *prog, uint32_t symbol, struct ngd_size_count *list)
{
    const struct ngd_symbol *sym = &prog->graph->symbols[symbol];
    uint32_t n = ngd_program_sizes(prog, symbol, list), captures = sym->n_buckets;
    struct ngd_bucket_set present, better;

    if (sym->policy != NGD_SYMBOL_BUCKETS || n == 0)
        return;
    if (captures >= NGD_MAX_BUCKETS)
        captures = NGD_MAX_BUCKETS - 1;
    ngd_program_buckets(prog, symbol, &present);
    if (ngd_buckets_propose(list, n, captures, sym->max, &better, NULL) == NGD_OK &&
        (double)ngd_buckets_padding(&better, list, n) < WORTH * (double)ngd_buckets_padding(&present, list, n))
        (void)ngd_program_apply_buckets(prog, symbol, &better, NULL, NULL);
}

static void lesson_end(struct lesson *lesson)
{
    ngd_program_unref(lesson->prog);
    ngd_free(lesson);
}

static void lesson_run(struct ngd_capture_job *job)
{
    struct lesson *lesson = ngd_container_of(job, struct lesson, job);
    struct ngd_size_count *list = NGD_NEW_N(struct ngd_size_count, NGD_SIZES_MAX);

    for (uint32_t i = 0; list && i < lesson->prog->graph->n_symbols; i++)
        learn_symbol(lesson->prog, i, list);
    ngd_free(list);
    lesson_end(lesson);
}

static void lesson_abort(struct ngd_capture_job *job)
{
    lesson_end(ngd_container_of(job, struct lesson, job));
}

void ngd_program_learn(struct ngd_program *prog)
{
    struct lesson *lesson = NGD_NEW(struct lesson);

    if (!lesson)
        return;
    lesson->job.run = lesson_run;
    lesson->job.abort = lesson_abort;
    lesson->prog = ngd_program_ref(prog);
    if (!ngd_captures_push(&prog->sched->captures, &lesson->job, ngd_program_share(prog)))
        lesson_end(lesson);
}
