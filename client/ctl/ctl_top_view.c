/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what happened between two looks. Objects are matched by name or id; counters of a new object start from 0. The
 * counters of a device grow when a replay ends, so a replay that is longer than the interval shows in a single update.
 */
#include "client/ctl/ctl_metrics.h"
#include "client/ctl/ctl_readings.h"
#include "client/ctl/ctl_top.h"

#include <stdlib.h>
#include <string.h>

struct view {
    struct ctl *ctl;
    const struct top_look *before;
    const struct top_look *now;
    double seconds;
};

#define N_COLUMNS(columns) (sizeof(columns) / sizeof((columns)[0]))

static double rate(const struct view *v, uint64_t before, uint64_t now)
{
    return (double)ctl_grown(before, now) / v->seconds;
}

static double metric_rate(const struct view *v, const char *name)
{
    return rate(v, ctl_metric_sum(v->before->stats->text, name), ctl_metric_sum(v->now->stats->text, name));
}

static double part(uint64_t of, uint64_t all)
{
    return all != 0 ? (double)of / (double)all : 0;
}

/* ---- the first line -------------------------------------------------------------------------------------- */

static const struct {
    const char *title, *key, *metric;
} totals[] = {
    {"calls/s", "calls_per_s", "rpc_requests_total"},         {"replays/s", "replays_per_s", "graph_replays_total"},
    {"steps/s", "batches_per_s", "decode_batches_total"},     {"tokens/s", "tokens_per_s", "tokens_decode_total"},
    {"captures/s", "captures_per_s", "graph_captures_total"}, {"merged/s", "merged_per_s", "merged_requests_total"},
};

static void print_totals(const struct view *v)
{
    const Npugraph__V1__StatusResponse *s = v->now->status;
    char uptime[32];

    ctl_format_ms(s->uptime_ms, uptime, sizeof(uptime));
    fprintf(v->ctl->out, "npugraphd %s, %s, up %s, %u sessions, %u sequences\n", s->version,
            ngd_word_of(&npugraph__v1__daemon_state__descriptor, s->state).text, uptime, s->sessions, s->sequences);
    for (size_t i = 0; i < N_COLUMNS(totals); i++)
        fprintf(v->ctl->out, "%s%s %.1f", i != 0 ? "  " : "", totals[i].title, metric_rate(v, totals[i].metric));
    fputc('\n', v->ctl->out);
}

static void put_totals(const struct view *v)
{
    json_t *root = v->ctl->root;

    json_object_set_new(root, "interval_s", json_real(v->seconds));
    json_object_set_new(root, "state",
                        json_string(ngd_word_of(&npugraph__v1__daemon_state__descriptor, v->now->status->state).text));
    json_object_set_new(root, "uptime_ms", json_integer((json_int_t)v->now->status->uptime_ms));
    for (size_t i = 0; i < N_COLUMNS(totals); i++)
        json_object_set_new(root, totals[i].key, json_real(metric_rate(v, totals[i].metric)));
}

/* Prints a blank line before a table, for people. */
static struct ctl_table *section(const struct view *v, const char *key, const struct ctl_column *columns, size_t n)
{
    if (!v->ctl->json)
        fputc('\n', v->ctl->out);
    return ctl_table_new(v->ctl, key, columns, n);
}

/* ---- devices --------------------------------------------------------------------------------------------- */

static const Npugraph__V1__DeviceInfo *device_before(const struct view *v, const char *name)
{
    static const Npugraph__V1__DeviceInfo none = NPUGRAPH__V1__DEVICE_INFO__INIT;

    for (size_t i = 0; i < v->before->devices->n_devices; i++)
        if (strcmp(v->before->devices->devices[i]->name, name) == 0)
            return v->before->devices->devices[i];
    return &none;
}

/* Returns the busy part of the time of all stream slots of a device. */
static double busy(const struct view *v, const Npugraph__V1__DeviceInfo *d)
{
    const double slots = d->streams != 0 ? d->streams : 1;
    const double r = rate(v, device_before(v, d->name)->busy_us, d->busy_us) / 1e6 / slots;

    return r < 1 ? r : 1; /* can be above 1, since a replay that began before the interval counts in full */
}

/* Returns the part of the interval in which a stream slot was idle though something was queued. */
static double bubble(const struct view *v, const Npugraph__V1__DeviceInfo *d)
{
    const double r = rate(v, device_before(v, d->name)->bubble_us, d->bubble_us) / 1e6;

    return r < 1 ? r : 1;
}

static void put_device_table(const struct view *v)
{
    static const struct ctl_column fixed[] = {
        {"DEVICE", "name", false},     {"STATE", "state", false},    {"BUSY", "busy", true},
        {"BUBBLE", "bubble", true},    {"STREAMS", "streams", true}, {"QUEUE", "queue_depth", true},
        {"POOLS", "pool_bytes", true}, {"USED", "used_bytes", true}, {"OF", "memory_bytes", true},
    };
    struct ctl_column columns[N_COLUMNS(fixed) + CTL_READINGS_MAX];
    struct ctl_column *readings = &columns[N_COLUMNS(fixed)];
    const size_t n = ctl_reading_columns(v->now->devices, readings);
    struct ctl_table *t;

    memcpy(columns, fixed, sizeof(fixed));
    t = section(v, "devices", columns, N_COLUMNS(fixed) + n);

    for (size_t i = 0; i < v->now->devices->n_devices; i++) {
        const Npugraph__V1__DeviceInfo *d = v->now->devices->devices[i];

        ctl_row(t);
        ctl_str(t, d->name);
        ctl_device_state(t, d->state);
        ctl_ratio(t, busy(v, d));
        ctl_ratio(t, bubble(v, d));
        ctl_int(t, d->streams);
        ctl_int(t, d->queue_depth);
        ctl_bytes(t, d->pool_bytes);
        ctl_bytes(t, d->used_bytes);
        ctl_bytes(t, d->memory_bytes);
        ctl_reading_cells(t, d, readings, n);
    }
    ctl_table_end(t, "No devices.");
}

/* ---- models ---------------------------------------------------------------------------------------------- */

static const Npugraph__V1__ModelInfo *model_before(const struct view *v, const char *name)
{
    static const Npugraph__V1__ModelInfo none = NPUGRAPH__V1__MODEL_INFO__INIT;

    for (size_t i = 0; i < v->before->models->n_models; i++)
        if (strcmp(v->before->models->models[i]->name, name) == 0)
            return v->before->models->models[i];
    return &none;
}

static void put_models(const struct view *v)
{
    static const struct ctl_column columns[] = {
        {"MODEL", "name", false},
        {"TOKENS/S", "tokens_per_s", true},
        {"PROMPT/S", "prompt_tokens_per_s", true},
        {"SHARED", "tokens_shared", true},
        {"SEQUENCES", "sequences", true},
        {"KV USED", "kv_used", true},
        {"PREEMPTED", "preemptions", true},
    };
    struct ctl_table *t = section(v, "models", columns, N_COLUMNS(columns));

    for (size_t i = 0; i < v->now->models->n_models; i++) {
        const Npugraph__V1__ModelInfo *m = v->now->models->models[i], *old = model_before(v, m->name);

        ctl_row(t);
        ctl_str(t, m->name);
        ctl_rate(t, rate(v, old->tokens_decode, m->tokens_decode));
        ctl_rate(t, rate(v, old->tokens_prefill, m->tokens_prefill));
        ctl_int(t, ctl_grown(old->tokens_shared, m->tokens_shared));
        ctl_int(t, m->sequences);
        ctl_ratio(t, part(m->blocks_used, m->num_blocks));
        ctl_int(t, ctl_grown(old->preemptions, m->preemptions));
    }
    ctl_table_end(t, "No models.");
}

/* ---- latencies ------------------------------------------------------------------------------------------- */

static void put_latencies(const struct view *v)
{
    static const struct {
        const char *name, *metric;
    } rows[] = {
        {"queue", "queue_seconds"},           {"replay", "replay_seconds"},
        {"step", "decode_step_seconds"},      {"first token", "time_to_first_token_seconds"},
        {"capture", "graph_capture_seconds"}, {"call", "rpc_seconds"},
    };
    static const struct ctl_column columns[] = {
        {"LATENCY", "name", false}, {"COUNT", "count", true}, {"P50", "p50_us", true},
        {"P90", "p90_us", true},    {"P99", "p99_us", true},
    };
    struct ctl_table *t = section(v, "latency", columns, N_COLUMNS(columns));

    for (size_t i = 0; i < N_COLUMNS(rows); i++) {
        struct ctl_histogram now, before;

        ctl_histogram_read(v->now->stats->text, rows[i].metric, &now);
        ctl_histogram_read(v->before->stats->text, rows[i].metric, &before);
        ctl_histogram_since(&now, &before);
        if (ctl_histogram_count(&now) == 0)
            continue;
        ctl_row(t);
        ctl_str(t, rows[i].name);
        ctl_int(t, ctl_histogram_count(&now));
        ctl_us(t, 1e6 * ctl_histogram_quantile(&now, 0.5));
        ctl_us(t, 1e6 * ctl_histogram_quantile(&now, 0.9));
        ctl_us(t, 1e6 * ctl_histogram_quantile(&now, 0.99));
    }
    ctl_table_end(t, "Nothing ran.");
}

/* ---- clients --------------------------------------------------------------------------------------------- */

static uint64_t share_used(const struct view *v, const Npugraph__V1__ShareInfo *s)
{
    for (size_t i = 0; i < v->before->shares->n_shares; i++)
        if (strcmp(v->before->shares->shares[i]->identity, s->identity) == 0)
            return ctl_grown(v->before->shares->shares[i]->device_us, s->device_us);
    return s->device_us;
}

static uint64_t all_shares_used(const struct view *v)
{
    uint64_t all = 0;

    for (size_t i = 0; i < v->now->shares->n_shares; i++)
        all += share_used(v, v->now->shares->shares[i]);
    return all;
}

static void put_share_table(const struct view *v)
{
    static const struct ctl_column columns[] = {
        {"IDENTITY", "identity", false},    {"WEIGHT", "weight", true}, {"WAITING", "waiting", true},
        {"DEVICE TIME", "device_us", true}, {"SHARE", "share", true},
    };
    struct ctl_table *t = section(v, "shares", columns, N_COLUMNS(columns));
    const uint64_t all = all_shares_used(v);

    for (size_t i = 0; i < v->now->shares->n_shares; i++) {
        const Npugraph__V1__ShareInfo *s = v->now->shares->shares[i];

        ctl_row(t);
        ctl_str(t, s->identity);
        ctl_int(t, s->weight);
        ctl_int(t, s->waiting);
        ctl_us(t, (double)share_used(v, s));
        ctl_ratio(t, part(share_used(v, s), all));
    }
    ctl_table_end(t, "No identities.");
}

/* A session, and what it used in the interval. */
struct client {
    const Npugraph__V1__SessionInfo *info;
    uint64_t used, runs, calls;
};

static int compare_ids(const void *a, const void *b)
{
    const Npugraph__V1__SessionInfo *x = *(Npugraph__V1__SessionInfo *const *)a,
                                    *y = *(Npugraph__V1__SessionInfo *const *)b;

    return (x->session > y->session) - (x->session < y->session);
}

/* Sorts sessions by their use of devices, largest first. Idle sessions keep a stable order. */
static int compare_clients(const void *a, const void *b)
{
    const struct client *x = a, *y = b;

    if (x->used != y->used)
        return x->used > y->used ? -1 : 1;
    if (x->calls != y->calls)
        return x->calls > y->calls ? -1 : 1;
    return (x->info->session > y->info->session) - (x->info->session < y->info->session);
}

/* Computes what a session used. The sessions of the earlier look are sorted by id. */
static struct client measure_client(const struct view *v, Npugraph__V1__SessionInfo *s)
{
    const Npugraph__V1__ListSessionsResponse *before = v->before->sessions;
    Npugraph__V1__SessionInfo *const *old = before->n_sessions != 0 ? bsearch(&s, before->sessions, before->n_sessions,
                                                                              sizeof(*before->sessions), compare_ids)
                                                                    : NULL;

    return (struct client){
        .info = s,
        .used = ctl_grown(old != NULL ? (*old)->device_us : 0, s->device_us),
        .runs = ctl_grown(old != NULL ? (*old)->runs : 0, s->runs),
        .calls = ctl_grown(old != NULL ? (*old)->requests : 0, s->requests),
    };
}

static void client_row(const struct view *v, struct ctl_table *t, const struct client *c, uint64_t all)
{
    ctl_row(t);
    ctl_us(t, (double)c->used);
    ctl_ratio(t, part(c->used, all));
    ctl_rate(t, (double)c->runs / v->seconds);
    ctl_rate(t, (double)c->calls / v->seconds);
    ctl_int(t, c->info->sequences);
    ctl_bytes(t, c->info->buffer_bytes);
    ctl_str(t, c->info->identity);
    ctl_str(t, c->info->client_name);
    ctl_state(t, c->info->broken ? "broken" : "open", !c->info->broken);
    ctl_int(t, c->info->session);
}

static void put_sessions(const struct view *v)
{
    static const struct ctl_column columns[] = {
        {"DEVICE TIME", "device_us", true}, {"SHARE", "share", true},         {"RUNS/S", "runs_per_s", true},
        {"CALLS/S", "calls_per_s", true},   {"SEQUENCES", "sequences", true}, {"BYTES", "buffer_bytes", true},
        {"IDENTITY", "identity", false},    {"CLIENT", "client_name", false}, {"STATE", "state", false},
        {"SESSION", "session", true},
    };
    struct ctl_table *t = section(v, "sessions", columns, N_COLUMNS(columns));
    const size_t n = v->now->sessions->n_sessions;
    struct client *clients = calloc(n != 0 ? n : 1, sizeof(*clients));
    uint64_t listed = 0, all = all_shares_used(v);

    if (clients == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        clients[i] = measure_client(v, v->now->sessions->sessions[i]);
        listed += clients[i].used;
    }
    /* Sessions that have ended since the earlier look are only in the sums of identities. */
    all = all > listed ? all : listed;
    qsort(clients, n, sizeof(*clients), compare_clients);
    for (size_t i = 0; i < n; i++)
        client_row(v, t, &clients[i], all);
    ctl_table_end(t, "No sessions.");
    free(clients);
}

static void sort_sessions(Npugraph__V1__ListSessionsResponse *r)
{
    if (r->n_sessions > 1)
        qsort(r->sessions, r->n_sessions, sizeof(*r->sessions), compare_ids);
}

/* Tables that may have many rows come last, since a screen has an end. */
void ctl_top_print(struct ctl *ctl, const struct top_look *before, const struct top_look *now)
{
    struct view v = {ctl, before, now, (double)(now->at - before->at) / 1e9};

    if (ctl->json)
        put_totals(&v);
    else
        print_totals(&v);
    sort_sessions(before->sessions);
    put_device_table(&v);
    put_models(&v);
    put_latencies(&v);
    put_share_table(&v);
    put_sessions(&v);
}
