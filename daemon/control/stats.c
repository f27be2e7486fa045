/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats.h"
#include "daemon/control/json.h"
#include "daemon/control/stats_telemetry.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mem_stats.h"
#include "base/exemplar.h"
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/front/front.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/session.h"
#include "scheduler/run/sched.h"
#include "scheduler/run/share.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KINDS 4 /* kinds of buffers */

static const char *const kind_names[KINDS] = {[NGD_BUFFER_GENERAL] = "general",
                                              [NGD_BUFFER_WEIGHTS] = "weights",
                                              [NGD_BUFFER_KV] = "kv",
                                              [NGD_BUFFER_POOL] = "pool"};

void ngd_stats_started(struct ngd_daemon *d)
{
    (void)d;
    ngd_metric_row_set(ngd_metric_row(NGD_M_BUILD_INFO, PACKAGE_VERSION), 1);
    ngd_metric_set(NGD_M_START_TIME, (int64_t)time(NULL));
}

const char *ngd_state_name(const struct ngd_daemon *d)
{
    switch (ngd_daemon_state(d)) {
    case NGD_DAEMON_STARTING:
        return "starting";
    case NGD_DAEMON_SERVING:
        return "serving";
    case NGD_DAEMON_DRAINING:
        return "draining";
    case NGD_DAEMON_STOPPED:
        break;
    }
    return "stopped";
}

/* ---- gauges --------------------------------------------------------------------------------------------- */

struct bytes_by_kind {
    uint64_t bytes[KINDS];
};

static void add_buffer(void *ctx, const char *label, ngd_buffer_kind_t kind, uint64_t bytes, uint64_t generation)
{
    struct bytes_by_kind *sum = ctx;

    (void)label;
    (void)generation;
    if ((unsigned)kind < KINDS)
        sum->bytes[kind] += bytes;
}

static void count_program(void *ctx, struct ngd_program *prog)
{
    (void)prog;
    ++*(int64_t *)ctx;
}

void ngd_stats_gauges(struct ngd_daemon *d)
{
    struct bytes_by_kind sum = {{0}};
    int64_t graphs = 0;

    for (size_t i = 0; i < d->n_devices; i++) {
        const struct ngd_device_info *info = ngd_device_info(d->devices[i]);

        ngd_metric_row_set(ngd_metric_row(NGD_M_DEVICE_TOTAL_BYTES, info->name), (int64_t)info->memory_bytes);
        ngd_metric_row_set(ngd_metric_row(NGD_M_DEVICE_USED_BYTES, info->name),
                           (int64_t)ngd_device_used_bytes(d->devices[i]));
        ngd_device_for_each_buffer(d->devices[i], add_buffer, &sum);
    }
    ngd_program_for_each(d->sched, count_program, &graphs);
    ngd_metric_set(NGD_M_GRAPHS, graphs);
    ngd_metric_set(NGD_M_WEIGHT_BYTES, (int64_t)sum.bytes[NGD_BUFFER_WEIGHTS]);
    ngd_metric_set(NGD_M_CONNECTIONS, ngd_front_count(d->front, true));
    ngd_metric_set(NGD_M_HEAP_BYTES, (int64_t)ngd_mem_heap_bytes());
}

void ngd_stats_prometheus(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    const struct ngd_metric_view rows = {view->all, view->who ? view->who->name : NULL};

    ngd_stats_gauges(d);
    ngd_metrics_render(sb, &rows);
    ngd_stats_telemetry_prometheus(d, sb);
}

void ngd_stats_open_metrics(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    const struct ngd_metric_view rows = {view->all, view->who ? view->who->name : NULL};

    ngd_stats_gauges(d);
    ngd_metrics_render_open(sb, &rows);
    ngd_stats_telemetry_prometheus(d, sb); /* gauges alone, which look the same */
    ngd_strbuf_append(sb, "# EOF\n");
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

/* Writes a labelled family as {"value": n}. The rows are read from the Prometheus text, the only list of them. */
static void put_exposed_rows(struct ngd_strbuf *sb, const char *name, ngd_metric_t m, const char *exposition)
{
    char prefix[128];
    size_t n;

    ngd_json_open_object(sb, name);
    n = (size_t)snprintf(prefix, sizeof(prefix), "\nnpugraphd_%s{", ngd_metric_name(m));
    for (const char *p = strstr(exposition, prefix); p; p = strstr(p, prefix)) {
        const char *label = strchr(p + n, '"'), *end = label ? strstr(label + 1, "\"} ") : NULL;

        if (!end)
            break;
        ngd_json_key(sb, NULL);
        /* The Prometheus text escapes labels as JSON strings are escaped. */
        ngd_strbuf_append_n(sb, label, (size_t)(end - label) + 1);
        ngd_strbuf_append(sb, ": ");
        ngd_strbuf_append_n(sb, end + 3, strcspn(end + 3, "\n"));
        p = end;
    }
    ngd_json_close_object(sb);
}

static void put_latency(struct ngd_strbuf *sb, const char *name, ngd_metric_t m)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p999_us", 0.999}};

    ngd_json_open_object(sb, name);
    ngd_json_u64(sb, "count", ngd_metric_get(m));
    for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
        ngd_json_double(sb, quantiles[i].name, ngd_metric_quantile(m, quantiles[i].q) * 1e6);
    ngd_json_close_object(sb);
}

static void put_daemon(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    ngd_json_text(sb, "version", PACKAGE_VERSION);
    ngd_json_text(sb, "state", ngd_state_name(d));
    ngd_json_double(sb, "uptime_s", (double)(ngd_now() - d->started) / (double)NGD_SEC);
    ngd_json_u64(sb, "pid", (uint64_t)getpid());
    ngd_json_u64(sb, "heap_bytes", ngd_metric_get(NGD_M_HEAP_BYTES));
    ngd_json_open_object(sb, "shown"); /* what the reader may see besides sums */
    ngd_json_bool(sb, "names", view->all);
    ngd_json_bool(sb, "graphs", view->graphs);
    ngd_json_close_object(sb);
}

static void put_rpc(struct ngd_daemon *d, struct ngd_strbuf *sb, const char *exposition)
{
    ngd_json_open_object(sb, "requests");
    ngd_json_u64(sb, "total", ngd_metric_get(NGD_M_RPCS));
    ngd_json_u64(sb, "errors_total", ngd_metric_get(NGD_M_RPC_ERRORS));
    ngd_json_u64(sb, "in_flight", ngd_rpc_server_inflight(d->rpc));
    ngd_json_u64(sb, "connections", ngd_metric_get(NGD_M_CONNECTIONS));
    put_exposed_rows(sb, "by_method", NGD_M_RPCS, exposition);
    put_exposed_rows(sb, "errors_by_reason", NGD_M_RPC_ERRORS, exposition);
    put_exposed_rows(sb, "rejected_by_reason", NGD_M_REQUESTS_REJECTED, exposition);
    ngd_json_close_object(sb);
}

static void put_work(struct ngd_strbuf *sb, const char *exposition)
{
    ngd_json_u64(sb, "replays_total", ngd_metric_get(NGD_M_REPLAYS));
    ngd_json_u64(sb, "captures_total", ngd_metric_get(NGD_M_CAPTURES));
    ngd_json_u64(sb, "capture_failures_total", ngd_metric_get(NGD_M_CAPTURE_FAILURES));
    ngd_json_u64(sb, "eager_runs_total", ngd_metric_get(NGD_M_EAGER_RUNS));
    ngd_json_u64(sb, "inline_runs_total", ngd_metric_get(NGD_M_INLINE_RUNS));
    ngd_json_u64(sb, "queue_depth", ngd_metric_get(NGD_M_QUEUE_DEPTH));
    ngd_json_open_object(sb, "cache");
    ngd_json_u64(sb, "hits_total", ngd_metric_get(NGD_M_CACHE_HITS));
    ngd_json_u64(sb, "misses_total", ngd_metric_get(NGD_M_CACHE_MISSES));
    ngd_json_u64(sb, "evictions_total", ngd_metric_get(NGD_M_CACHE_EVICTIONS));
    ngd_json_u64(sb, "entries", ngd_metric_get(NGD_M_CACHE_ENTRIES));
    put_exposed_rows(sb, "misses_by_reason", NGD_M_CACHE_MISSES, exposition);
    put_exposed_rows(sb, "evictions_by_reason", NGD_M_CACHE_EVICTIONS, exposition);
    ngd_json_close_object(sb);
    ngd_json_open_object(sb, "latency");
    put_latency(sb, "replay", NGD_M_REPLAY_SECONDS);
    put_latency(sb, "queue", NGD_M_QUEUE_SECONDS);
    put_latency(sb, "expiry_late", NGD_M_EXPIRY_SECONDS);
    put_latency(sb, "rpc", NGD_M_RPC_SECONDS);
    put_latency(sb, "capture", NGD_M_CAPTURE_SECONDS);
    put_latency(sb, "step", NGD_M_STEP_SECONDS);
    put_latency(sb, "first_token", NGD_M_TTFT_SECONDS);
    ngd_json_close_object(sb);
}

static void put_device_stats(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    ngd_json_open_list(sb, "devices");
    for (uint32_t i = 0; i < d->n_devices; i++) {
        const struct ngd_device_info *info = ngd_device_info(d->devices[i]);
        struct ngd_sched_device_stats stats = {0};
        struct bytes_by_kind sum = {{0}};

        ngd_sched_device_stats(d->sched, i, &stats);
        ngd_device_for_each_buffer(d->devices[i], add_buffer, &sum);
        ngd_json_open_object(sb, NULL);
        ngd_json_text(sb, "name", info->name);
        ngd_json_text(sb, "arch", info->arch);
        ngd_json_text(sb, "description", info->description);
        ngd_json_text(sb, "state", stats.healthy ? "healthy" : "quarantined");
        ngd_json_u64(sb, "memory_bytes", info->memory_bytes);
        ngd_json_u64(sb, "used_bytes", ngd_device_used_bytes(d->devices[i]));
        for (int k = 0; k < KINDS; k++) {
            char name[32];

            snprintf(name, sizeof(name), "%s_bytes", kind_names[k]);
            ngd_json_u64(sb, name, sum.bytes[k]);
        }
        ngd_json_u64(sb, "pool_held_bytes", stats.pool_bytes);
        ngd_json_u64(sb, "queue_depth", stats.queue_depth);
        ngd_json_u64(sb, "slots", stats.slots);
        ngd_json_double(sb, "busy_s", (double)stats.busy / (double)NGD_SEC);
        ngd_json_double(sb, "bubble_s", (double)stats.bubble / (double)NGD_SEC);
        ngd_json_double(sb, "bubble_ratio", (double)stats.bubble / (double)(ngd_now() - d->started));
        ngd_json_key(sb, NULL);
        ngd_stats_telemetry_json(d->devices[i], sb);
        ngd_json_close_object(sb);
    }
    ngd_json_close_list(sb);
}

struct shares {
    struct ngd_strbuf *sb;
    const struct ngd_stats_view *view;
    struct ngd_identities *identities;
};

static void put_quotas(const struct shares *shares, const struct ngd_share_stats *share)
{
    struct ngd_quota_usage usage[NGD_QUOTA_KINDS];

    if (!ngd_identities_usage(shares->identities, share, usage))
        return;
    ngd_json_open_object(shares->sb, "quotas");
    for (int i = 0; i < NGD_QUOTA_KINDS; i++) {
        ngd_json_open_object(shares->sb, ngd_quota_name((ngd_quota_t)i));
        ngd_json_u64(shares->sb, "used", usage[i].used);
        ngd_json_u64(shares->sb, "limit", usage[i].limit);
        ngd_json_u64(shares->sb, "refused_total", usage[i].refused);
        ngd_json_bool(shares->sb, "bytes", ngd_quota_is_bytes((ngd_quota_t)i));
        ngd_json_close_object(shares->sb);
    }
    ngd_json_close_object(shares->sb);
}

static void put_share(void *ctx, const struct ngd_share_stats *stats)
{
    const struct shares *shares = ctx;
    struct ngd_strbuf *sb = shares->sb;

    if (!shares->view->all && !(shares->view->who && strcmp(shares->view->who->name, stats->name) == 0))
        return;
    ngd_json_open_object(sb, NULL);
    ngd_json_text(sb, "identity", stats->name);
    ngd_json_u64(sb, "weight", stats->weight);
    ngd_json_u64(sb, "queue_limit", stats->queue_limit);
    ngd_json_u64(sb, "waiting", stats->waiting);
    ngd_json_double(sb, "device_s", (double)stats->used / (double)NGD_SEC);
    ngd_json_u64(sb, "device_percent", stats->device_percent);
    ngd_json_double(sb, "held_s", (double)stats->held / (double)NGD_SEC);
    ngd_json_u64(sb, "replays_total", stats->replays);
    ngd_json_open_object(sb, "replay_s"); /* the parts of their time */
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        ngd_json_double(sb, ngd_split_name((ngd_split_part_t)i), (double)stats->split.part[i] / (double)NGD_SEC);
    ngd_json_close_object(sb);
    put_quotas(shares, stats);
    ngd_json_close_object(sb);
}

static void put_share_stats(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    struct shares shares = {sb, view, d->identities};

    ngd_json_open_list(sb, "shares");
    ngd_share_for_each(d->sched, put_share, &shares);
    ngd_json_close_list(sb);
}

/* Programs, with references taken under the table's lock, so that they are printed without it. */
struct programs {
    const struct ngd_stats_view *view;
    struct ngd_program **items;
    size_t n, cap;
};

static void take_program(void *ctx, struct ngd_program *prog)
{
    struct programs *all = ctx;

    if (!all->view->all && !(all->view->who && all->view->who->key == ngd_program_owner(prog)))
        return;
    if (all->n < all->cap)
        all->items[all->n++] = ngd_program_ref(prog);
}

static void put_program(struct ngd_strbuf *sb, struct ngd_program *prog)
{
    const struct ngd_graph *graph = ngd_program_graph(prog);
    char hex[NGD_DIGEST_HEX];
    struct ngd_program_stats stats;

    ngd_program_stats(prog, &stats);
    ngd_digest_hex(&graph->digest, hex);
    ngd_json_open_object(sb, NULL);
    ngd_json_text(sb, "name", graph->name);
    ngd_json_text(sb, "digest", hex);
    ngd_json_text(sb, "device", ngd_device_info(ngd_program_device(prog))->name);
    ngd_json_u64(sb, "number", ngd_program_number(prog));
    ngd_json_u64(sb, "nodes", graph->n_nodes);
    ngd_json_u64(sb, "holders", stats.references > 0 ? stats.references - 1 : 0); /* one reference is ours */
    ngd_json_u64(sb, "replays_total", stats.replays);
    ngd_json_u64(sb, "captures_total", stats.captures);
    ngd_json_u64(sb, "eager_runs_total", stats.eager_runs);
    ngd_json_u64(sb, "cache_hits_total", stats.cache.hits);
    ngd_json_u64(sb, "cache_misses_total", stats.cache.misses);
    ngd_json_u64(sb, "evictions_total", stats.cache.evictions);
    ngd_json_u64(sb, "executables", stats.cache.entries);
    ngd_json_u64(sb, "executable_bytes", stats.cache.bytes);
    ngd_json_u64(sb, "pool_bytes", stats.pool_bytes);
    ngd_json_close_object(sb);
}

static void put_graphs(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    struct programs all = {.view = view, .cap = ngd_metric_get(NGD_M_GRAPHS) + 16};

    all.items = NGD_NEW_N(struct ngd_program *, all.cap);
    if (!all.items)
        all.cap = 0;
    ngd_program_for_each(d->sched, take_program, &all);
    ngd_json_open_list(sb, "graphs");
    for (size_t i = 0; i < all.n; i++) {
        put_program(sb, all.items[i]);
        ngd_program_unref(all.items[i]);
    }
    ngd_json_close_list(sb);
    ngd_free(all.items);
}

static void put_model(void *ctx, const struct ngd_model_listed *listed)
{
    struct ngd_strbuf *sb = ctx;
    struct ngd_model_stats stats;

    ngd_model_stats(listed->model, &stats);
    ngd_json_open_object(sb, NULL);
    ngd_json_text(sb, "name", stats.name);
    ngd_json_text(sb, "owner", listed->owner);
    ngd_json_text(sb, "description", stats.description);
    ngd_json_u64(sb, "parameters", stats.parameters);
    ngd_json_u64(sb, "weight_bytes", stats.weight_bytes);
    ngd_json_u64(sb, "kv_bytes", stats.kv_bytes);
    ngd_json_u64(sb, "kv_block_size", stats.block_size);
    ngd_json_u64(sb, "kv_blocks", stats.num_blocks);
    ngd_json_u64(sb, "kv_blocks_used", stats.blocks_used);
    ngd_json_u64(sb, "kv_blocks_per_sequence", stats.blocks_per_sequence);
    ngd_json_u64(sb, "kv_blocks_cached", stats.blocks_cached);
    ngd_json_u64(sb, "max_context", stats.max_context);
    ngd_json_u64(sb, "max_batch", stats.max_batch);
    ngd_json_u64(sb, "sequences", stats.sequences);
    ngd_json_u64(sb, "tokens_prefill_total", stats.tokens_prefill);
    ngd_json_u64(sb, "tokens_shared_total", stats.tokens_shared);
    ngd_json_u64(sb, "tokens_decode_total", stats.tokens_decode);
    ngd_json_u64(sb, "preemptions_total", stats.preemptions);
    ngd_json_u64(sb, "batches_total", stats.batches);
    ngd_json_close_object(sb);
}

static void put_generation(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    ngd_json_open_object(sb, "sessions");
    ngd_json_u64(sb, "open", ngd_sessions_count(d->sessions));
    ngd_json_u64(sb, "opened_total", ngd_metric_get(NGD_M_SESSIONS_OPENED));
    ngd_json_u64(sb, "lost_total", ngd_metric_get(NGD_M_SESSIONS_LOST));
    ngd_json_close_object(sb);
    ngd_json_open_object(sb, "sequences");
    ngd_json_u64(sb, "open", ngd_metric_get(NGD_M_SEQUENCES));
    ngd_json_u64(sb, "opened_total", ngd_metric_get(NGD_M_SEQUENCES_OPENED));
    ngd_json_u64(sb, "waiting", ngd_metric_get(NGD_M_SEQUENCES_WAITING));
    ngd_json_close_object(sb);
    ngd_json_open_object(sb, "kv");
    ngd_json_u64(sb, "blocks", ngd_metric_get(NGD_M_KV_BLOCKS_TOTAL));
    ngd_json_u64(sb, "blocks_used", ngd_metric_get(NGD_M_KV_BLOCKS_USED));
    ngd_json_close_object(sb);
    ngd_json_open_object(sb, "tokens");
    ngd_json_u64(sb, "prefill_total", ngd_metric_get(NGD_M_TOKENS_PREFILL));
    ngd_json_u64(sb, "decode_total", ngd_metric_get(NGD_M_TOKENS_DECODE));
    ngd_json_u64(sb, "batches_total", ngd_metric_get(NGD_M_BATCHES));
    ngd_json_u64(sb, "batched_rows_total", ngd_metric_get(NGD_M_BATCHED_ROWS));
    ngd_json_close_object(sb);
    ngd_json_u64(sb, "weight_bytes", ngd_metric_get(NGD_M_WEIGHT_BYTES));
    ngd_json_u64(sb, "loaded_bytes_total", ngd_metric_get(NGD_M_LOADED_BYTES));
    ngd_json_open_list(sb, "models");
    if (view->all || view->who)
        ngd_models_for_each(d->models, view->all ? NULL : view->who, put_model, sb);
    ngd_json_close_list(sb);
}

void ngd_stats_json(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb)
{
    struct ngd_strbuf exposition;

    ngd_strbuf_init(&exposition);
    ngd_stats_prometheus(d, view, &exposition);
    ngd_strbuf_putc(sb, '{');
    put_daemon(d, view, sb);
    put_rpc(d, sb, ngd_strbuf_str(&exposition));
    put_work(sb, ngd_strbuf_str(&exposition));
    put_generation(d, view, sb);
    put_device_stats(d, sb);
    ngd_json_open_object(sb, "pools");
    put_exposed_rows(sb, "reserved_bytes", NGD_M_POOL_RESERVED_BYTES, ngd_strbuf_str(&exposition));
    put_exposed_rows(sb, "need_bytes", NGD_M_POOL_NEED_BYTES, ngd_strbuf_str(&exposition));
    ngd_json_close_object(sb);
    put_share_stats(d, view, sb);
    put_graphs(d, view, sb);
    ngd_strbuf_append(sb, "}\n");
    sb->failed |= exposition.failed; /* a part of it would lack families, or not be JSON */
    ngd_strbuf_fini(&exposition);
}
