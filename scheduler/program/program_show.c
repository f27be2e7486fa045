/* SPDX-License-Identifier: Apache-2.0 */
/* Programs for people: counters, keys and plans. */
#include "base/mem.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void largest_need(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    uint64_t *need = ctx, bytes = ngd_exec_plan(((const struct ngd_executable *)art)->exec)->pool_bytes;

    (void)key;
    (void)uses;
    if (bytes > *need)
        *need = bytes;
}

void ngd_program_stats(struct ngd_program *prog, struct ngd_program_stats *stats_p)
{
    struct ngd_program_stats stats = {
        .references = atomic_load_explicit(&prog->refs, memory_order_relaxed),
        .captures = atomic_load_explicit(&prog->captures, memory_order_relaxed),
        .replays = atomic_load_explicit(&prog->replays, memory_order_relaxed),
        .eager_runs = atomic_load_explicit(&prog->eager_runs, memory_order_relaxed),
        .merged_replays = atomic_load_explicit(&prog->merged_replays, memory_order_relaxed),
        .merged_requests = atomic_load_explicit(&prog->merged_requests, memory_order_relaxed),
    };

    ngd_gcache_stats(prog->cache, &stats.cache);
    ngd_gcache_for_each(prog->cache, largest_need, &stats.pool_bytes);
    *stats_p = stats;
}

void ngd_program_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, struct ngd_program *prog), void *ctx)
{
    ngd_mutex_lock(&sched->programs_lock);
    ngd_list_for_each (l, &sched->programs)
        fn(ctx, ngd_container_of(l, struct ngd_program, link));
    ngd_mutex_unlock(&sched->programs_lock);
}

struct key_list {
    uint32_t n, max;
    struct ngd_key_info *infos;
    struct ngd_key *keys;
};

static void add_key_info(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    const struct ngd_executable *x = art;
    const struct ngd_plan *plan = ngd_exec_plan(x->exec);
    struct key_list *l = ctx;

    if (l->n == l->max)
        return;
    l->keys[l->n] = *key;
    l->infos[l->n++] = (struct ngd_key_info){
        .hash = key->hash,
        .uses = uses,
        .runs = atomic_load_explicit(&x->runs, memory_order_relaxed),
        .padded_runs = atomic_load_explicit(&x->padded_runs, memory_order_relaxed),
        .expected = atomic_load_explicit(&x->expected, memory_order_relaxed),
        .capture_time = x->capture_time,
        .pool_bytes = plan->pool_bytes,
        .kernels = plan->n_calls,
        .static_kernels = ngd_static_result_name(ngd_exec_static_get(x->exec)),
    };
}

void ngd_program_for_each_key(struct ngd_program *prog, void (*fn)(void *ctx, const struct ngd_key_info *info),
                              void *ctx)
{
    struct ngd_gcache_stats stats;
    struct key_list l = {0};

    ngd_gcache_stats(prog->cache, &stats);
    l.max = stats.entries;
    l.infos = NGD_NEW_N(struct ngd_key_info, l.max);
    l.keys = NGD_NEW_N(struct ngd_key, l.max);
    if (l.infos && l.keys)
        ngd_gcache_for_each(prog->cache, add_key_info, &l);
    for (uint32_t i = 0; i < l.n; i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_key_print_symbols(prog->graph, &l.keys[i], &sb);
        l.infos[i].symbols = ngd_strbuf_str(&sb);
        fn(ctx, &l.infos[i]);
        ngd_strbuf_fini(&sb);
    }
    ngd_free(l.infos);
    ngd_free(l.keys);
}

/* Executables are collected under the cache's lock and printed without it. */
struct collected {
    uint32_t n, max;
    struct ngd_exec **execs;
};

static void collect_exec(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    struct collected *c = ctx;

    (void)key;
    (void)uses;
    if (c->n < c->max)
        c->execs[c->n++] = ngd_exec_ref(((const struct ngd_executable *)art)->exec);
}

static void collect_executables(struct ngd_program *prog, struct collected *c)
{
    struct ngd_gcache_stats stats;

    ngd_gcache_stats(prog->cache, &stats);
    *c = (struct collected){.max = stats.entries};
    c->execs = NGD_NEW_N(struct ngd_exec *, stats.entries);
    if (c->execs)
        ngd_gcache_for_each(prog->cache, collect_exec, c);
}

static void collected_fini(struct collected *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        ngd_exec_unref(c->execs[i]);
    ngd_free(c->execs);
}

static bool key_begins(const struct ngd_plan *plan, const char *digits)
{
    char hash[17];

    snprintf(hash, sizeof(hash), "%016" PRIx64, plan->key.hash);
    return strncmp(hash, digits, strlen(digits)) == 0;
}

uint32_t ngd_program_for_each_plan(struct ngd_program *prog, const char *key,
                                   void (*fn)(void *ctx, const struct ngd_plan *plan), void *ctx)
{
    struct collected c;
    uint32_t n = 0;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct ngd_plan *plan = ngd_exec_plan(c.execs[i]);

        if (!key_begins(plan, key))
            continue;
        fn(ctx, plan);
        n++;
    }
    collected_fini(&c);
    return n;
}

uint32_t ngd_program_print_plans(struct ngd_program *prog, const char *key, struct ngd_strbuf *sb)
{
    struct collected c;
    uint32_t n = 0;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct ngd_plan *plan = ngd_exec_plan(c.execs[i]);

        if (!key_begins(plan, key))
            continue;
        ngd_strbuf_append(sb, n++ ? "\n# key: " : "# key: ");
        ngd_key_print(prog->graph, &plan->key, sb);
        ngd_strbuf_printf(sb, "\n# static kernels: %s\n", ngd_static_result_name(ngd_exec_static_get(c.execs[i])));
        ngd_plan_print(plan, sb);
    }
    collected_fini(&c);
    return n;
}

void ngd_program_print_keys(struct ngd_program *prog, void (*fn)(void *ctx, const char *key), void *ctx)
{
    struct collected c;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_key_print(prog->graph, &ngd_exec_plan(c.execs[i])->key, &sb);
        fn(ctx, ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
    }
    collected_fini(&c);
}
