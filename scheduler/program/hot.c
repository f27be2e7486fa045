/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/program/hot.h"
#include "scheduler/program/hot_note.h"
#include "base/log.h"
#include "base/mem.h"
#include "graphs/store.h"
#include "scheduler/program/ready.h"
#include "scheduler/program/stored.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX  64 /* programs that are held for future clients */
#define NOTE_NAME "hot"

struct ngd_hot {
    struct ngd_sched *sched;
    struct ngd_mutex lock;                          /* rank HOT */
    struct ngd_hot_list fresh NGD_GUARDED_BY(lock); /* runs since the last write */
    struct {
        struct ngd_program *prog;
        ngd_nsec_t until;
    } held[HELD_MAX] NGD_GUARDED_BY(lock);
    uint32_t n_held NGD_GUARDED_BY(lock);
};

/* ---- counting ------------------------------------------------------------------------------------------ */

ngd_status_t ngd_hot_create(struct ngd_sched *sched, struct ngd_hot **hot_p)
{
    struct ngd_hot *hot = NGD_NEW(struct ngd_hot);

    if (!hot)
        return NGD_ERR_NO_MEMORY;
    hot->sched = sched;
    ngd_mutex_init(&hot->lock, NGD_RANK_HOT);
    *hot_p = hot;
    return NGD_OK;
}

void ngd_hot_destroy(struct ngd_hot *hot)
{
    if (!hot)
        return;
    ngd_mutex_lock(&hot->lock);
    ngd_hot_list_fini(&hot->fresh);
    ngd_mutex_unlock(&hot->lock);
    ngd_mutex_fini(&hot->lock);
    ngd_free(hot);
}

static void put_key_options(const struct ngd_graph_options *options, struct ngd_strbuf *sb)
{
    bool any = false;

    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        const struct ngd_option_info *info = ngd_option_info((ngd_option_id_t)i);
        struct ngd_strbuf value;

        ngd_strbuf_init(&value);
        ngd_option_print_value(options, (ngd_option_id_t)i, &value);
        sb->failed = sb->failed || value.failed;
        if (strcmp(ngd_strbuf_str(&value), info->def) != 0) {
            if (any)
                ngd_strbuf_putc(sb, NGD_HOT_SEPARATOR);
            ngd_strbuf_printf(sb, "%s=%s", info->name, ngd_strbuf_str(&value));
            any = true;
        }
        ngd_strbuf_fini(&value);
    }
}

static void put_hot_key(const struct ngd_program *prog, const struct ngd_key *key, struct ngd_strbuf *sb)
{
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(&key->graph, hex);
    ngd_strbuf_printf(sb, "%s\t%s\t%s", hex, prog->queue->dev_name, key->n_symbols ? "" : "-");
    for (uint32_t i = 0; i < key->n_symbols; i++)
        ngd_strbuf_printf(sb, "%s%" PRId64, i ? "," : "", key->symbols[i]);
    ngd_strbuf_putc(sb, '\t');
    put_key_options(&prog->options, sb);
    if (ngd_stored_registered(prog->patterns)) {
        ngd_digest_hex(&prog->patterns->digest, hex);
        ngd_strbuf_printf(sb, "\t%s\t", hex);
    } else {
        ngd_strbuf_append(sb, "\t-\t");
    }
    ngd_strbuf_json_string(sb, prog->graph->name);
}

void ngd_hot_note(struct ngd_hot *hot, struct ngd_executable *x)
{
    uint32_t runs, noted;
    struct ngd_strbuf sb;

    /*
     * Skips graphs that are being debugged; graphs of groups, which the next daemon's clients have to make again; and
     * graphs with pools of their own, which would belong to nobody until a client registers the graph.
     */
    if (!hot || x->prog->options.debug_dump || x->prog->group || ngd_program_has_own_pools(x->prog))
        return;
    runs = atomic_load_explicit(&x->runs, memory_order_relaxed);
    noted = atomic_exchange(&x->noted, runs);
    if (runs == noted)
        return;
    ngd_strbuf_init(&sb);
    put_hot_key(x->prog, &ngd_exec_plan(x->exec)->key, &sb);
    /* A line break in an option's text would end the line, so such a key is not kept. */
    if (!sb.failed && !strpbrk(sb.data, "\n")) {
        ngd_mutex_lock(&hot->lock);
        ngd_hot_list_add(&hot->fresh, sb.data, sb.len, runs - noted, 4 * NGD_HOT_KEYS);
        ngd_mutex_unlock(&hot->lock);
    }
    ngd_strbuf_fini(&sb);
}

static void note_one(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    (void)key;
    (void)uses;
    ngd_hot_note(ctx, art);
}

static void note_program(void *ctx, struct ngd_program *prog)
{
    ngd_gcache_for_each(prog->cache, note_one, ctx);
}

/* ---- the note ------------------------------------------------------------------------------------------ */

/* Removes programs that need not be held any more from the list. *n_p of them are the caller's. */
static void take_released(struct ngd_hot *hot, bool all, struct ngd_program **progs, uint32_t *n_p)
{
    ngd_nsec_t now = ngd_now();
    uint32_t keep = 0;

    *n_p = 0;
    ngd_mutex_lock(&hot->lock);
    for (uint32_t i = 0; i < hot->n_held; i++) {
        struct ngd_program *prog = hot->held[i].prog;

        if (all || now >= hot->held[i].until || atomic_load(&prog->refs) > 1)
            progs[(*n_p)++] = prog;
        else
            hot->held[keep++] = hot->held[i];
    }
    hot->n_held = keep;
    ngd_mutex_unlock(&hot->lock);
}

static void release_programs(struct ngd_hot *hot, bool all)
{
    struct ngd_program *progs[HELD_MAX];
    uint32_t n;

    take_released(hot, all, progs, &n);
    while (n > 0)
        ngd_program_unref(progs[--n]);
}

void ngd_hot_release(struct ngd_hot *hot)
{
    if (hot)
        release_programs(hot, true);
}

void ngd_hot_save(struct ngd_hot *hot)
{
    struct ngd_diag diag = {0};
    struct ngd_hot_list fresh;

    if (!hot)
        return;
    ngd_program_for_each(hot->sched, note_program, hot);
    ngd_mutex_lock(&hot->lock);
    fresh = hot->fresh;
    hot->fresh = (struct ngd_hot_list){.items = NULL};
    ngd_mutex_unlock(&hot->lock);
    if (fresh.n && ngd_store_note_change(hot->sched->params.store, NOTE_NAME, ngd_hot_note_merge, &fresh, &diag))
        ngd_warning("scheduler", "the list of hot keys is not kept: %s", diag.text);
    ngd_hot_list_fini(&fresh);
    release_programs(hot, false);
}

/* ---- warming ------------------------------------------------------------------------------------------- */

struct warm {
    struct ngd_capture_job job;
    struct ngd_hot *hot;
    char *key;
};

static void warm_abort(struct ngd_capture_job *job)
{
    struct warm *warm = ngd_container_of(job, struct warm, job);

    ngd_free(warm->key);
    ngd_free(warm);
}

struct find {
    const struct ngd_digest *digest;
    struct ngd_graph *graph;
};

static void find_graph(void *ctx, struct ngd_program *prog)
{
    struct find *find = ctx;

    if (!find->graph && ngd_digest_equal(&prog->graph->digest, find->digest))
        find->graph = ngd_graph_ref(prog->graph);
}

static struct ngd_graph *graph_of(struct ngd_sched *sched, const struct ngd_digest *digest)
{
    struct find find = {.digest = digest};

    ngd_program_for_each(sched, find_graph, &find);
    return find.graph ? find.graph : ngd_stored_graph(sched, digest);
}

/* Holds a program for a while. True: the list has taken the caller's reference. */
static bool hot_hold(struct ngd_hot *hot, struct ngd_program *prog)
{
    bool held = false;

    ngd_mutex_lock(&hot->lock);
    for (uint32_t i = 0; i < hot->n_held; i++)
        if (hot->held[i].prog == prog)
            goto out; /* one reference is enough */
    if (hot->n_held < HELD_MAX) {
        hot->held[hot->n_held].prog = prog;
        hot->held[hot->n_held++].until = ngd_now() + NGD_HOT_HOLD;
        held = true;
    }
out:
    ngd_mutex_unlock(&hot->lock);
    return held;
}

/*
 * Makes the key again from the request that would lead to it: a bucket's own size, which is never more than the
 * symbol's maximum.
 */
static ngd_status_t make_hot_key(struct ngd_program *prog, const struct ngd_key *said, struct ngd_key *key_p,
                                 struct ngd_diag *diag)
{
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];

    for (uint32_t i = 0; i < prog->graph->n_symbols; i++) {
        int64_t max = prog->graph->symbols[i].max;

        symbols[i] = said->symbols[i] < max ? said->symbols[i] : max;
    }
    return ngd_key_make_sizes(prog->graph, &prog->key_digest, NULL, symbols, prog->graph->n_symbols, key_p, diag);
}

static const char *capture_hot_key(struct ngd_hot *hot, struct ngd_device *dev, struct ngd_graph *graph,
                                   const struct ngd_key *said, const struct ngd_graph_options *options,
                                   struct ngd_pattern_set *patterns, struct ngd_diag *diag)
{
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_program *prog = NULL;
    struct ngd_key key;
    bool captured = false;
    ngd_status_t status = ngd_program_open(hot->sched, dev, graph, options, patterns, &prog, NULL, diag);

    if (status == NGD_OK)
        status = make_hot_key(prog, said, &key, diag);
    if (status == NGD_OK)
        status = ngd_program_capture(prog, &key, &entry, &captured, diag);
    if (status == NGD_OK && captured)
        ngd_ready_executable(entry);
    if (status == NGD_OK)
        ngd_gcache_put(entry);
    if (prog && (status || !hot_hold(hot, prog)))
        ngd_program_unref(prog);
    return status ? "failed" : captured ? "captured" : "present";
}

/*
 * Gets the key's patterns; NULL: the built-in ones. False: the store does not have them, or this build's built-in ones
 * differ.
 */
static bool patterns_of(struct ngd_sched *sched, const struct ngd_digest *digest, bool registered,
                        struct ngd_pattern_set **set_p)
{
    *set_p = registered ? ngd_stored_patterns(sched, digest) : NULL;
    return *set_p || !registered;
}

static const char *warm_key(struct warm *warm, struct ngd_diag *diag)
{
    struct ngd_sched *sched = warm->hot->sched;
    struct ngd_pattern_set *patterns = NULL;
    struct ngd_key said = {.n_symbols = 0};
    struct ngd_hot_key key;
    struct ngd_device *dev;
    struct ngd_graph *graph;
    const char *result = "unreadable";

    if (!ngd_hot_key_parse(warm->key, &key))
        return result;
    if (ngd_sched_find_device(sched, key.device, &dev, diag) != NGD_OK)
        return "no_device";
    graph = graph_of(sched, &key.graph);
    if (!graph)
        return "no_graph";
    said.graph = graph->digest;
    if (!patterns_of(sched, &key.patterns, key.registered, &patterns))
        result = "no_patterns";
    else if (ngd_hot_symbols_parse(key.symbols, graph->n_symbols, said.symbols))
        result = capture_hot_key(warm->hot, dev, graph, &said, &key.options, patterns, diag);
    ngd_pattern_set_unref(patterns);
    ngd_graph_unref(graph);
    return result;
}

static void warm_run(struct ngd_capture_job *job)
{
    struct warm *warm = ngd_container_of(job, struct warm, job);
    struct ngd_diag diag = {0};
    const char *result = warm_key(warm, &diag);

    ngd_metric_row_add(ngd_metric_row(NGD_M_WARM_CAPTURES, result), 1);
    ngd_info("scheduler", "hot key of graph %.12s...: %s%s%s", warm->key, result, diag.text[0] ? ": " : "", diag.text);
    warm_abort(job);
}

void ngd_hot_warm(struct ngd_hot *hot)
{
    struct ngd_hot_list list = {.items = NULL};
    struct ngd_strbuf text;

    if (!hot)
        return;
    ngd_strbuf_init(&text);
    if (ngd_store_note_read(hot->sched->params.store, NOTE_NAME, &text))
        ngd_hot_list_parse(&list, ngd_strbuf_str(&text), NGD_HOT_KEYS);
    ngd_strbuf_fini(&text);
    for (uint32_t i = 0; i < list.n; i++) {
        struct warm *warm = NGD_NEW(struct warm);

        if (!warm)
            break;
        warm->job.run = warm_run;
        warm->job.abort = warm_abort;
        warm->hot = hot;
        warm->key = list.items[i].key;
        list.items[i].key = NULL;
        if (!ngd_captures_push_idle(&hot->sched->captures, &warm->job))
            warm_abort(&warm->job);
    }
    ngd_hot_list_fini(&list);
}
