/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/metrics.h"
#include "daemon/access.h"
#include "daemon/control/drain.h"
#include "daemon/control/listener.h"
#include "daemon/control/preload.h"
#include "daemon/control/stats.h"
#include "daemon/control/stats_http.h"
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/timing.h"
#include "daemon/identity.h"
#include "daemon/load_line.h"
#include "daemon/models.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/session.h"
#include "devices/telemetry.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/run/sched.h"
#include "scheduler/run/share.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ADDRESSES_MAX 32
#define GRACE_MAX_MS  (24u * 3600 * 1000)

static void fail_no_memory(struct ngd_call *call)
{
    ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
}

/* ---- Status ---------------------------------------------------------------------------------------------- */

struct addresses {
    struct ngd_arena *arena;
    char *items[ADDRESSES_MAX];
    size_t n;
};

static void take_address(void *ctx, const char *address)
{
    struct addresses *all = ctx;

    char *copy = all->n < ADDRESSES_MAX ? ngd_arena_strdup(all->arena, address) : NULL;

    if (copy)
        all->items[all->n++] = copy;
}

struct wanted_models {
    struct ngd_arena *arena;
    Npugraph__V1__WantedModel **items;
    size_t n;
    bool failed;
};

_Static_assert(NGD_PB(WANTED_STATE, FAILED) == NGD_PRELOAD_FAILED + 1, "WantedState has the states of preload.h");

static void take_wanted_model(void *ctx, const struct ngd_preload_info *info)
{
    struct wanted_models *all = ctx;
    Npugraph__V1__WantedModel *m = ngd_arena_alloc(all->arena, sizeof(*m));
    const ngd_nsec_t now = ngd_now();

    if (!m || all->n == NGD_LOAD_LINES_MAX) {
        all->failed = true;
        return;
    }
    npugraph__v1__wanted_model__init(m);
    m->name = ngd_arena_strdup(all->arena, info->name);
    m->state = (Npugraph__V1__WantedState)(info->state + 1);
    m->error = ngd_arena_strdup(all->arena, info->error);
    if (info->state == NGD_PRELOAD_FAILED && info->next > now)
        m->next_ms = (uint64_t)((info->next - now) / NGD_MSEC);
    all->failed |= !m->name || !m->error;
    all->items[all->n++] = m;
}

/* Fills in the models of the option load. Paths are in the errors, so they are for those who may see options. */
static bool fill_wanted(struct ngd_call *call, Npugraph__V1__StatusResponse *r)
{
    struct wanted_models all = {.arena = &call->arena};

    r->missing_models = atomic_load(&call->daemon->missing_models);
    if (atomic_load(&call->identity->role) < NGD_ROLE_OPERATOR)
        return true;
    all.items = ngd_arena_calloc(&call->arena, NGD_LOAD_LINES_MAX, sizeof(*all.items));
    if (!all.items)
        return false;
    ngd_preload_for_each(call->daemon->preload, take_wanted_model, &all);
    r->n_wanted_models = all.n;
    r->wanted_models = all.items;
    return !all.failed;
}

static void status(struct ngd_call *call, const void *msg)
{
    struct ngd_daemon *d = call->daemon;
    Npugraph__V1__StatusResponse r = NPUGRAPH__V1__STATUS_RESPONSE__INIT;
    struct addresses all = {.arena = &call->arena};
    const uint32_t next = atomic_load(&d->next_pid);
    char wakeup[64], handover[64] = "", stats_address[NGD_ADDRESS_MAX];

    (void)msg;
    snprintf(wakeup, sizeof(wakeup), "expiry %s, rpc %s", ngd_wakeup_name(ngd_sched_expiry_wakeup(d->sched)),
             ngd_wakeup_name(ngd_rpc_server_wakeup(d->rpc)));
    ngd_stats_gauges(d);
    ngd_listeners_for_each(d->listeners, take_address, &all);
    r.version = ngd_borrow(PACKAGE_VERSION);
    r.state = ngd_word_value(&npugraph__v1__daemon_state__descriptor, ngd_state_name(d));
    r.uptime_ms = (uint64_t)((ngd_now() - d->started) / NGD_MSEC);
    r.pid = (uint32_t)getpid();
    r.sessions = ngd_sessions_count(d->sessions);
    r.graphs = (uint32_t)ngd_metric_get(NGD_M_GRAPHS);
    r.models = ngd_models_count(d->models);
    r.sequences = ngd_models_sequences(d->models);
    r.replays = ngd_metric_get(NGD_M_REPLAYS);
    r.captures = ngd_metric_get(NGD_M_CAPTURES);
    r.n_listen = all.n;
    r.listen = all.items;
    ngd_stats_http_address(d, stats_address);
    r.stats_address = stats_address;
    r.wakeup = wakeup;
    if (next)
        snprintf(handover, sizeof(handover), "%s process %" PRIu32, d->replaced ? "replaced by" : "hands over to",
                 next);
    r.handover = handover;
    if (fill_wanted(call, &r))
        ngd_call_reply(call, &r.base);
    else
        fail_no_memory(call);
}

/* ---- Stats ----------------------------------------------------------------------------------------------- */

static void stats(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__StatsRequest *q = msg;
    Npugraph__V1__StatsResponse r = NPUGRAPH__V1__STATS_RESPONSE__INIT;
    const struct ngd_stats_view view = {.all = call->identity->admin, .who = call->identity};
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    if (q->form == NGD_PB(STATS_FORM, PROMETHEUS))
        ngd_stats_prometheus(call->daemon, &view, &sb);
    else
        ngd_stats_json(call->daemon, &view, &sb);
    r.text = ngd_borrow(ngd_strbuf_str(&sb));
    if (sb.failed)
        fail_no_memory(call);
    else
        ngd_call_reply(call, &r.base);
    ngd_strbuf_fini(&sb);
}

/* ---- Devices --------------------------------------------------------------------------------------------- */

static void fill_device(struct ngd_daemon *d, uint32_t i, Npugraph__V1__DeviceInfo *item)
{
    const struct ngd_device_info *info = ngd_device_info(d->devices[i]);
    struct ngd_sched_device_stats s = {0};

    ngd_sched_device_stats(d->sched, i, &s);
    npugraph__v1__device_info__init(item);
    item->name = ngd_borrow(info->name);
    item->backend = ngd_borrow(info->backend);
    item->arch = ngd_borrow(info->arch);
    item->description = ngd_borrow(info->description);
    item->state = s.healthy ? NGD_PB(DEVICE_STATE, HEALTHY) : NGD_PB(DEVICE_STATE, QUARANTINED);
    item->memory_bytes = info->memory_bytes;
    item->used_bytes = ngd_device_used_bytes(d->devices[i]);
    item->pool_bytes = s.pool_bytes;
    item->threads = info->threads;
    item->streams = s.slots;
    item->kv_block = info->kv_block;
    item->padding_block = info->padding_block;
    item->no_decoder = ngd_borrow(info->no_decoder ? info->no_decoder : "");
    item->queue_depth = s.queue_depth;
    item->busy_us = (uint64_t)(s.busy / NGD_USEC);
    item->bubble_us = (uint64_t)(s.bubble / NGD_USEC);
}

/* Enums of the protocol and of the table, in the same order. */
_Static_assert(NGD_PB(READING_UNIT, BYTES) == NGD_UNIT_BYTES + 1 && NGD_PB(READING_UNIT, COUNT) == NGD_UNIT_COUNT + 1,
               "ReadingUnit has the units of devices/telemetry.h");

static const char *number_text(struct ngd_call *call, int32_t number)
{
    char text[16];

    snprintf(text, sizeof(text), "%" PRId32, number);
    return number == NGD_NUMBER_UNKNOWN ? "" : ngd_arena_strdup(&call->arena, text);
}

/* Fills in the readings of the hardware that there are. False: no memory. */
static bool fill_readings(struct ngd_call *call, struct ngd_device *dev, Npugraph__V1__DeviceInfo *item)
{
    Npugraph__V1__DeviceReading *all = ngd_arena_calloc(&call->arena, NGD_TELEMETRY_MAX, sizeof(*all));
    struct ngd_telemetry t;
    double value;

    item->readings = ngd_arena_calloc(&call->arena, NGD_TELEMETRY_MAX, sizeof(*item->readings));
    if (!all || !item->readings)
        return false;
    ngd_telemetry_read(dev, &t);
    for (int id = 0; id < NGD_TELEMETRY_MAX; id++) {
        const struct ngd_telemetry_row *row = ngd_telemetry_row((ngd_telemetry_id_t)id);
        Npugraph__V1__DeviceReading *reading = &all[item->n_readings];

        if (!ngd_telemetry_get(&t, (ngd_telemetry_id_t)id, &value))
            continue;
        npugraph__v1__device_reading__init(reading);
        reading->name = ngd_borrow(row->name);
        reading->value = value;
        reading->unit = (Npugraph__V1__ReadingUnit)(row->unit + 1);
        reading->title = ngd_borrow(row->column);
        item->readings[item->n_readings++] = reading;
    }
    item->chip = ngd_borrow(number_text(call, t.physical));
    item->logical = ngd_borrow(number_text(call, t.logical));
    return item->chip && item->logical;
}

/* Fills in the device's capabilities. False: no memory. */
static bool fill_capabilities(struct ngd_call *call, struct ngd_device *dev, Npugraph__V1__DeviceInfo *item)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_device_describe(dev, &sb);
    item->capabilities = ngd_arena_strdup(&call->arena, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return item->capabilities != NULL;
}

static void devices(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__DevicesRequest *req = msg;
    struct ngd_daemon *d = call->daemon;
    Npugraph__V1__DevicesResponse r = NPUGRAPH__V1__DEVICES_RESPONSE__INIT;
    Npugraph__V1__DeviceInfo *items = ngd_arena_calloc(&call->arena, d->n_devices, sizeof(*items));

    r.devices = ngd_arena_calloc(&call->arena, d->n_devices, sizeof(*r.devices));
    if (!items || !r.devices) {
        fail_no_memory(call);
        return;
    }
    for (uint32_t i = 0; i < d->n_devices; i++) {
        fill_device(d, i, &items[i]);
        if (!fill_readings(call, d->devices[i], &items[i]) ||
            (req->capabilities && !fill_capabilities(call, d->devices[i], &items[i]))) {
            fail_no_memory(call);
            return;
        }
        r.devices[r.n_devices++] = &items[i];
    }
    ngd_call_reply(call, &r.base);
}

/* ---- ListSessions ---------------------------------------------------------------------------------------- */

struct session_list {
    const struct ngd_call *call;
    struct ngd_arena *arena;
    Npugraph__V1__SessionInfo **items;
    size_t n, cap;
    bool failed;
};

static void take_session(void *ctx, struct ngd_session *session)
{
    struct session_list *list = ctx;
    const bool own = session == list->call->session, admin = list->call->identity->admin;
    struct ngd_session_info *info = ngd_arena_alloc(list->arena, sizeof(*info));
    Npugraph__V1__SessionInfo *item = ngd_arena_alloc(list->arena, sizeof(*item));

    /* An unproven identity may be many users of one address: only the caller's own session is known to be the
     * caller's. */
    if (!ngd_may_manage(list->call->identity, ngd_session_identity(session)) ||
        (!list->call->identity->proven && !own && !admin))
        return;
    if (!info || !item || list->n == list->cap) {
        list->failed |= list->n < list->cap;
        return;
    }
    ngd_session_info(session, info);
    npugraph__v1__session_info__init(item);
    item->session = own || admin ? info->id : 0;
    item->client_name = info->client_name;
    item->identity = info->identity;
    item->peer = info->peer;
    item->age_ms = (uint64_t)(info->age / NGD_MSEC);
    item->graphs = info->objects[NGD_OBJECT_GRAPH];
    item->buffers = info->objects[NGD_OBJECT_BUFFER];
    item->buffer_bytes = info->bytes;
    item->sequences = info->objects[NGD_OBJECT_SEQUENCE];
    item->requests = info->requests;
    item->device_us = (uint64_t)(info->device_time / NGD_USEC);
    item->broken = info->broken;
    item->runs = info->runs;
    list->items[list->n++] = item;
}

static void list_sessions(struct ngd_call *call, const void *msg)
{
    struct ngd_sessions *sessions = call->daemon->sessions;
    Npugraph__V1__ListSessionsResponse r = NPUGRAPH__V1__LIST_SESSIONS_RESPONSE__INIT;
    struct session_list list = {.call = call, .arena = &call->arena, .cap = ngd_sessions_count(sessions) + 16};

    (void)msg;
    list.items = ngd_arena_calloc(&call->arena, list.cap, sizeof(*list.items));
    if (!list.items) {
        fail_no_memory(call);
        return;
    }
    ngd_sessions_for_each(sessions, take_session, &list);
    if (list.failed) {
        fail_no_memory(call);
        return;
    }
    r.n_sessions = list.n;
    r.sessions = list.items;
    ngd_call_reply(call, &r.base);
}

/* ---- ListShares ------------------------------------------------------------------------------------------ */

/* The list of shares. Their number is known only after a walk, which holds a lock. So a walk fills the list as far as
 * there is room, and the list grows outside. */
struct share_list {
    const struct ngd_identity *who;
    struct ngd_arena *arena;
    struct ngd_identities *identities;
    Npugraph__V1__ShareInfo **items;
    size_t n, cap, seen;
    bool failed;
};

static Npugraph__V1__Timing *make_timing(struct ngd_arena *arena, const struct ngd_split *split)
{
    Npugraph__V1__Timing *t = ngd_arena_alloc(arena, sizeof(*t));

    if (t)
        ngd_timing_fill(t, split);
    return t;
}

/* False: no memory. */
static bool fill_quotas(struct share_list *list, const struct ngd_share_stats *stats, Npugraph__V1__ShareInfo *item)
{
    struct ngd_quota_usage usage[NGD_QUOTA_KINDS];
    Npugraph__V1__QuotaInfo *infos;

    if (!item->identity || !ngd_identities_usage(list->identities, stats, usage))
        return item->identity != NULL;
    infos = ngd_arena_calloc(list->arena, NGD_QUOTA_KINDS, sizeof(*infos));
    item->quotas = ngd_arena_calloc(list->arena, NGD_QUOTA_KINDS, sizeof(*item->quotas));
    if (!infos || !item->quotas)
        return false;
    for (int i = 0; i < NGD_QUOTA_KINDS; i++) {
        npugraph__v1__quota_info__init(&infos[i]);
        infos[i].name = ngd_borrow(ngd_quota_name((ngd_quota_t)i));
        infos[i].used = usage[i].used;
        infos[i].limit = usage[i].limit;
        infos[i].refused = usage[i].refused;
        infos[i].bytes = ngd_quota_is_bytes((ngd_quota_t)i);
        item->quotas[item->n_quotas++] = &infos[i];
    }
    return true;
}

static void take_share(void *ctx, const struct ngd_share_stats *stats)
{
    struct share_list *list = ctx;
    Npugraph__V1__ShareInfo *item;

    if (!list->who->admin && strcmp(list->who->name, stats->name) != 0)
        return;
    if (list->seen++ >= list->cap)
        return;
    item = ngd_arena_alloc(list->arena, sizeof(*item));
    if (!item) {
        list->failed = true;
        return;
    }
    npugraph__v1__share_info__init(item);
    item->identity =
        ngd_arena_strdup(list->arena, stats->name); /* the share may be freed before the answer is packed */
    item->weight = stats->weight;
    item->queue_limit = stats->queue_limit;
    item->waiting = stats->waiting;
    item->device_us = (uint64_t)(stats->used / NGD_USEC);
    item->device_percent = stats->device_percent;
    item->held_us = (uint64_t)(stats->held / NGD_USEC);
    item->replays = stats->replays;
    item->timing = make_timing(list->arena, &stats->split);
    list->failed |= item->timing == NULL || !fill_quotas(list, stats, item);
    list->items[list->n++] = item;
}

#define SHARES_SPARE 16 /* room for shares that are added between two walks */

static bool take_shares(struct ngd_sched *sched, struct share_list *list)
{
    do {
        list->cap = list->seen + SHARES_SPARE;
        list->n = list->seen = 0;
        list->items = ngd_arena_calloc(list->arena, list->cap, sizeof(*list->items));
        if (!list->items)
            return false;
        ngd_share_for_each(sched, take_share, list);
    } while (list->seen > list->cap && !list->failed);
    return !list->failed;
}

static void list_shares(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__ListSharesResponse r = NPUGRAPH__V1__LIST_SHARES_RESPONSE__INIT;
    struct share_list list = {.who = call->identity, .arena = &call->arena, .identities = call->daemon->identities};

    (void)msg;
    if (!take_shares(call->daemon->sched, &list)) {
        fail_no_memory(call);
        return;
    }
    r.n_shares = list.n;
    r.shares = list.items;
    ngd_call_reply(call, &r.base);
}

/* ---- Drain ----------------------------------------------------------------------------------------------- */

static void drain_daemon(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__DrainRequest *q = msg;
    Npugraph__V1__DrainResponse r = NPUGRAPH__V1__DRAIN_RESPONSE__INIT;
    char identity[NGD_LOG_VALUE_MAX];
    struct ngd_diag diag;

    if (q->grace_ms > GRACE_MAX_MS) {
        ngd_diag_set(&diag, NGD_ERR_INVALID_ARGUMENT, "grace_ms is %u; at most %u", q->grace_ms, GRACE_MAX_MS);
        ngd_call_fail(call, NGD_ERR_INVALID_ARGUMENT, &diag);
        return;
    }
    ngd_notice("daemon", "drain requested by identity=%s", ngd_log_value(call->identity->name, identity));
    ngd_drain_begin(call->daemon->drain, (ngd_nsec_t)q->grace_ms * NGD_MSEC, q->stay);
    ngd_call_reply(call, &r.base);
}

const struct ngd_rpc_ops ngd_rpc_admin_status = {.request = status};
const struct ngd_rpc_ops ngd_rpc_admin_stats = {.request = stats};
const struct ngd_rpc_ops ngd_rpc_admin_devices = {.request = devices};
const struct ngd_rpc_ops ngd_rpc_admin_list_sessions = {.request = list_sessions};
const struct ngd_rpc_ops ngd_rpc_admin_list_shares = {.request = list_shares};
const struct ngd_rpc_ops ngd_rpc_admin_drain = {.request = drain_daemon};
