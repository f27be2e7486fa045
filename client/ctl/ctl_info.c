/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that show the daemon's state (status, devices, sessions, groups, shares, memory, stats), and drain. */
#include "base/clock.h"
#include "base/config.h"
#include "base/strbuf.h"
#include "client/ctl/ctl.h"
#include "client/ctl/ctl_context.h"
#include "client/ctl/ctl_readings.h"
#include "proto/npugraph.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Says why it is too early; false: it is not. */
static bool is_too_early(const Npugraph__V1__StatusResponse *r, bool models, char *why, size_t room)
{
    if (r->state != NGD_PB(DAEMON_STATE, SERVING)) {
        snprintf(why, room, "the daemon is %s", ngd_word_of(&npugraph__v1__daemon_state__descriptor, r->state).text);
        return true;
    }
    if (!models || r->missing_models == 0)
        return false;
    snprintf(why, room, "%u of the models of the daemon's option load %s missing", r->missing_models,
             r->missing_models == 1 ? "is" : "are");
    for (size_t i = 0; i < r->n_wanted_models; i++)
        if (r->wanted_models[i]->state == NGD_PB(WANTED_STATE, FAILED)) {
            snprintf(why, room, "the daemon cannot load the model %s: %s", r->wanted_models[i]->name,
                     r->wanted_models[i]->error);
            break;
        }
    return true;
}

/* Asks for the status until the daemon serves, and has its models, for as long as --timeout. Returns NULL after
 * printing the error. */
static Npugraph__V1__StatusResponse *wait_until_serving(struct ctl *ctl, bool models)
{
    Npugraph__V1__StatusRequest req = NPUGRAPH__V1__STATUS_REQUEST__INIT;
    const ngd_nsec_t end = ngd_now() + (ngd_nsec_t)ctl->connect.timeout_ms * NGD_MSEC;
    struct npugraph_error err = {0};
    ProtobufCMessage *reply = NULL;

    if (!ctl_context_use(ctl))
        return NULL;
    for (;;) {
        if ((ctl->client != NULL || npugraph_connect(&ctl->connect, &ctl->client, &err) == 0) &&
            npugraph__unary(ctl->client, "/npugraph.v1.Admin/Status", &req.base,
                            &npugraph__v1__status_response__descriptor, &reply, &err) == 0) {
            Npugraph__V1__StatusResponse *r = (void *)reply;

            if (!is_too_early(r, models, err.message, sizeof(err.message)))
                return r;
            err.reason[0] = '\0'; /* of an earlier failure */
            npugraph__free_message(r);
        } else { /* A channel waits longer after each failure; a new one tries at once. */
            npugraph_disconnect(ctl->client);
            ctl->client = NULL;
        }
        if (ngd_now() >= end) {
            ctl_fail(&err);
            return NULL;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * NGD_MSEC}, NULL);
    }
}

/* Models that the daemon shall load by itself: one that is there is among all others. */
static void put_wanted_models(struct ctl_fields *f, const Npugraph__V1__StatusResponse *r)
{
    char text[640], key[80];

    if (r->missing_models != 0)
        ctl_field_int(f, "Missing models", "missing_models", r->missing_models);
    for (size_t i = 0; i < r->n_wanted_models; i++) {
        const Npugraph__V1__WantedModel *m = r->wanted_models[i];

        if (m->state == NGD_PB(WANTED_STATE, LOADED))
            continue;
        snprintf(text, sizeof(text), "%s: %s%s%s", m->name,
                 ngd_word_of(&npugraph__v1__wanted_state__descriptor, m->state).text, m->error[0] != '\0' ? ": " : "",
                 m->error);
        if (m->state == NGD_PB(WANTED_STATE, FAILED))
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "; next attempt in %" PRIu64 " s",
                     (m->next_ms + 999) / 1000);
        snprintf(key, sizeof(key), "load_%s", m->name);
        ctl_field_str(f, "Load", key, text);
    }
}

int ctl_cmd_status(struct ctl *ctl, int argc, char **argv)
{
    Npugraph__V1__StatusRequest req = NPUGRAPH__V1__STATUS_REQUEST__INIT;
    Npugraph__V1__StatusResponse *r;
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;
    struct ctl_fields *f;
    bool wait = false, models = false;

    while ((name = ctl_next_option(&o, "wait models", "", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        models |= strcmp(name, "models") == 0;
        wait |= strcmp(name, "wait") == 0;
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "status takes no arguments");
    if (models && !wait)
        return ctl_usage(o.command, "--models says what --wait waits for; give both");
    r = wait
            ? wait_until_serving(ctl, models)
            : (void *)ctl_call(ctl, "/npugraph.v1.Admin/Status", &req.base, &npugraph__v1__status_response__descriptor);
    if (r == NULL)
        return 1;
    f = ctl_fields_new(ctl, NULL);
    ctl_field_str(f, "State", "state", ngd_word_of(&npugraph__v1__daemon_state__descriptor, r->state).text);
    if (r->handover[0] != '\0')
        ctl_field_str(f, "Handover", "handover", r->handover);
    ctl_field_str(f, "Version", "version", r->version);
    ctl_field_int(f, "Process", "pid", r->pid);
    ctl_field_ms(f, "Uptime", "uptime_ms", r->uptime_ms);
    for (size_t i = 0; i < r->n_listen; i++)
        ctl_field_str(f, i == 0 ? "Listens on" : "", i == 0 ? "listen" : "listen_more", r->listen[i]);
    ctl_field_str(f, "Statistics", "stats_address", r->stats_address[0] != '\0' ? r->stats_address : "off");
    ctl_field_str(f, "Wake-up", "wakeup", r->wakeup);
    ctl_field_int(f, "Sessions", "sessions", r->sessions);
    ctl_field_int(f, "Graphs", "graphs", r->graphs);
    ctl_field_int(f, "Models", "models", r->models);
    put_wanted_models(f, r);
    ctl_field_int(f, "Sequences", "sequences", r->sequences);
    ctl_field_int(f, "Captures", "captures", r->captures);
    ctl_field_int(f, "Replays", "replays", r->replays);
    ctl_fields_end(f);
    npugraph__free_message(r);
    return 0;
}

void ctl_device_state(struct ctl_table *t, Npugraph__V1__DeviceState state)
{
    ctl_state(t, ngd_word_of(&npugraph__v1__device_state__descriptor, state).text,
              state == NGD_PB(DEVICE_STATE, HEALTHY));
}

static void print_capabilities(struct ctl *ctl, const Npugraph__V1__DevicesResponse *r)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        const Npugraph__V1__DeviceInfo *d = r->devices[i];
        const char *text = d->capabilities[0] != '\0' ? d->capabilities : "all operators of docs/operators.md\n";

        if (ctl->json) {
            struct ctl_fields *f = ctl_fields_new(ctl, d->name);

            ctl_field_str(f, "", "capabilities", text);
            ctl_fields_end(f);
        } else {
            fprintf(ctl->out, "%s: %s\n%s", d->name, d->description, text);
        }
    }
}

int ctl_cmd_devices(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column fixed[] = {
        {"DEVICE", "name", false},     {"STATE", "state", false},      {"USED", "used_bytes", true},
        {"POOLS", "pool_bytes", true}, {"OF", "memory_bytes", true},   {"THREADS", "threads", true},
        {"STREAMS", "streams", true},  {"QUEUE", "queue_depth", true}, {"BUSY", "busy_ms", true},
    };
    const size_t n_fixed = sizeof(fixed) / sizeof(fixed[0]);
    struct ctl_column columns[sizeof(fixed) / sizeof(fixed[0]) + CTL_READINGS_MAX + 1];
    Npugraph__V1__DevicesRequest req = NPUGRAPH__V1__DEVICES_REQUEST__INIT;
    Npugraph__V1__DevicesResponse *r;
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;
    struct ctl_table *t;
    size_t n_readings;

    while ((name = ctl_next_option(&o, "capabilities", "", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        req.capabilities = true;
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "%s takes no arguments", argv[0]);
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/Devices", &req.base, &npugraph__v1__devices_response__descriptor);
    if (r == NULL)
        return 1;
    if (req.capabilities) {
        print_capabilities(ctl, r);
        npugraph__free_message(r);
        return 0;
    }
    memcpy(columns, fixed, sizeof(fixed));
    n_readings = ctl_reading_columns(r, &columns[n_fixed]);
    columns[n_fixed + n_readings] = (struct ctl_column){"DESCRIPTION", "description", false};
    t = ctl_table_new(ctl, "devices", columns, n_fixed + n_readings + 1);
    ctl_table_prose(t, n_fixed + n_readings);
    ctl_table_details(t);
    for (size_t i = 0; i < r->n_devices; i++) {
        const Npugraph__V1__DeviceInfo *d = r->devices[i];

        ctl_row(t);
        ctl_str(t, d->name);
        ctl_device_state(t, d->state);
        ctl_bytes(t, d->used_bytes);
        ctl_bytes(t, d->pool_bytes);
        ctl_bytes(t, d->memory_bytes);
        ctl_int(t, d->threads);
        ctl_int(t, d->streams);
        ctl_int(t, d->queue_depth);
        ctl_ms(t, d->busy_us / 1000);
        ctl_reading_cells(t, d, &columns[n_fixed], n_readings);
        ctl_str(t, d->description);
    }
    ctl_table_end(t, "No devices.");
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_sessions(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"SESSION", "session", true},    {"CLIENT", "client_name", false}, {"IDENTITY", "identity", false},
        {"AGE", "age_ms", true},         {"GRAPHS", "graphs", true},       {"BUFFERS", "buffers", true},
        {"BYTES", "buffer_bytes", true}, {"SEQUENCES", "sequences", true}, {"CALLS", "requests", true},
        {"STATE", "state", false},
    };
    Npugraph__V1__ListSessionsRequest req = NPUGRAPH__V1__LIST_SESSIONS_REQUEST__INIT;
    Npugraph__V1__ListSessionsResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/ListSessions", &req.base,
                         &npugraph__v1__list_sessions_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "sessions", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_sessions; i++) {
        const Npugraph__V1__SessionInfo *s = r->sessions[i];

        ctl_row(t);
        ctl_int(t, s->session);
        ctl_str(t, s->client_name);
        ctl_str(t, s->identity);
        ctl_ms(t, s->age_ms);
        ctl_int(t, s->graphs);
        ctl_int(t, s->buffers);
        ctl_bytes(t, s->buffer_bytes);
        ctl_int(t, s->sequences);
        ctl_int(t, s->requests);
        ctl_state(t, s->broken ? "broken" : "open", !s->broken);
    }
    ctl_table_end(t, "No sessions.");
    npugraph__free_message(r);
    return 0;
}

/* Prints two columns: the use and its limit; a limit of 0 is no limit. */
static void put_quota(struct ctl_table *t, const Npugraph__V1__ShareInfo *s, const char *name)
{
    uint64_t used = 0, limit = 0;

    for (size_t i = 0; i < s->n_quotas; i++) {
        if (strcmp(s->quotas[i]->name, name) == 0) {
            used = s->quotas[i]->used;
            limit = s->quotas[i]->limit;
        }
    }
    if (strcmp(name, "bytes") == 0) {
        ctl_bytes(t, used);
        ctl_bytes(t, limit);
        return;
    }
    ctl_int(t, used);
    ctl_int(t, limit);
}

static void put_group_devices(struct ctl_table *t, const Npugraph__V1__GroupInfo *g)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < g->n_devices; i++)
        ngd_strbuf_printf(&sb, "%s%s", i != 0 ? " " : "", g->devices[i]);
    ctl_str(t, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

/* Those of this daemon, and how many there are in all. */
static void put_group_ranks(struct ctl_table *t, const Npugraph__V1__GroupInfo *g)
{
    char text[64];

    snprintf(text, sizeof(text), "%u-%u of %u", g->first_rank, g->first_rank + (uint32_t)g->n_devices - 1, g->ranks);
    ctl_str(t, text);
}

int ctl_cmd_groups(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"GROUP", "name", false},     {"DEVICES", "devices", false}, {"RANKS", "ranks", false},
        {"MODEL", "model", false},    {"SESSION", "session", true},  {"STATE", "state", false},
        {"REPLAYS", "replays", true}, {"RESETS", "resets", true},    {"REASON", "reason", false},
    };
    Npugraph__V1__ListGroupsRequest req = NPUGRAPH__V1__LIST_GROUPS_REQUEST__INIT;
    Npugraph__V1__ListGroupsResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/ListGroups", &req.base,
                         &npugraph__v1__list_groups_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "groups", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_groups; i++) {
        const Npugraph__V1__GroupInfo *g = r->groups[i];

        ctl_row(t);
        ctl_str(t, g->name);
        put_group_devices(t, g);
        put_group_ranks(t, g);
        ctl_str(t, g->model);
        ctl_int(t, g->session);
        ctl_word(t, &npugraph__v1__group_state__descriptor, g->state);
        ctl_int(t, g->replays);
        ctl_int(t, g->resets);
        ctl_str(t, g->reason);
    }
    ctl_table_end(t, "No groups of devices.");
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_shares(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"IDENTITY", "identity", false},
        {"WEIGHT", "weight", true},
        {"WAITING", "waiting", true},
        {"MAX WAITING", "queue_limit", true},
        {"DEVICE TIME", "device_ms", true},
        {"CAP %", "device_percent", true},
        {"HELD BY CAP", "held_ms", true},
        {"REPLAYS", "replays", true},
        {"QUEUED EACH", "queue_us", true},
        {"SESSIONS", "sessions", true},
        {"MAX SESSIONS", "sessions_limit", true},
        {"GRAPHS", "graphs", true},
        {"MAX GRAPHS", "graphs_limit", true},
        {"SEQUENCES", "sequences", true},
        {"MAX SEQUENCES", "sequences_limit", true},
        {"BYTES", "bytes", true},
        {"MAX BYTES", "bytes_limit", true},
        {"KV BLOCKS", "kv_blocks", true},
        {"MAX KV BLOCKS", "kv_blocks_limit", true},
    };
    Npugraph__V1__ListSharesRequest req = NPUGRAPH__V1__LIST_SHARES_REQUEST__INIT;
    Npugraph__V1__ListSharesResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/ListShares", &req.base,
                         &npugraph__v1__list_shares_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "shares", columns, sizeof(columns) / sizeof(columns[0]));
    ctl_table_details(t);
    for (size_t i = 0; i < r->n_shares; i++) {
        const Npugraph__V1__ShareInfo *s = r->shares[i];

        ctl_row(t);
        ctl_str(t, s->identity);
        ctl_int(t, s->weight);
        ctl_int(t, s->waiting);
        ctl_int(t, s->queue_limit);
        ctl_ms(t, s->device_us / 1000);
        ctl_int(t, s->device_percent);
        ctl_ms(t, s->held_us / 1000);
        ctl_int(t, s->replays);
        ctl_us(t, s->replays != 0 && s->timing != NULL ? (double)s->timing->queue_ns / 1000 / (double)s->replays : 0);
        for (int q = 0; q < 5; q++)
            put_quota(t, s, (const char *const[]){"sessions", "graphs", "sequences", "bytes", "kv_blocks"}[q]);
    }
    ctl_table_end(t, "No identities.");
    npugraph__free_message(r);
    return 0;
}

static void put_quota_rows(struct ctl_table *t, const Npugraph__V1__ShareInfo *s)
{
    for (size_t i = 0; i < s->n_quotas; i++) {
        const Npugraph__V1__QuotaInfo *q = s->quotas[i];

        ctl_row(t);
        ctl_str(t, s->identity);
        ctl_str(t, q->name);
        (q->bytes ? ctl_bytes : ctl_int)(t, q->used);
        (q->bytes ? ctl_bytes : ctl_int)(t, q->limit);
        ctl_int(t, q->refused);
    }
}

int ctl_cmd_quota(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"IDENTITY", "identity", false}, {"QUOTA", "quota", false},    {"HELD", "held", true},
        {"LIMIT", "limit", true},        {"REFUSED", "refused", true},
    };
    Npugraph__V1__ListSharesRequest req = NPUGRAPH__V1__LIST_SHARES_REQUEST__INIT;
    Npugraph__V1__ListSharesResponse *r;
    const char *identity = argc > 1 ? argv[1] : NULL;
    struct ctl_table *t;

    if (argc > 2)
        return ctl_usage(ctl_find_command(argv[0]), "quota takes one identity at most");
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/ListShares", &req.base,
                         &npugraph__v1__list_shares_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "quotas", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_shares; i++)
        if (!identity || strcmp(r->shares[i]->identity, identity) == 0)
            put_quota_rows(t, r->shares[i]);
    ctl_table_end(t, "No identities.");
    npugraph__free_message(r);
    return 0;
}

/* Sorts holders by size, largest first, since people look for what uses memory up. */
static int compare_buffers(const void *a, const void *b)
{
    const Npugraph__V1__BufferInfo *x = *(Npugraph__V1__BufferInfo *const *)a,
                                   *y = *(Npugraph__V1__BufferInfo *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->label, y->label);
}

static void put_buffers(struct ctl *ctl, const Npugraph__V1__ListBuffersResponse *r)
{
    static const struct ctl_column columns[] = {
        {"BYTES", "bytes", true},
        {"KIND", "kind", false},
        {"DEVICE", "device", false},
        {"HOLDER", "label", false},
    };
    struct ctl_table *t = ctl_table_new(ctl, "buffers", columns, sizeof(columns) / sizeof(columns[0]));

    if (r->n_buffers > 1)
        qsort(r->buffers, r->n_buffers, sizeof(*r->buffers), compare_buffers);
    for (size_t i = 0; i < r->n_buffers; i++) {
        ctl_row(t);
        ctl_bytes(t, r->buffers[i]->bytes);
        ctl_word(t, &npugraph__v1__buffer_kind__descriptor, r->buffers[i]->kind);
        ctl_str(t, r->buffers[i]->device);
        ctl_str(t, r->buffers[i]->label);
    }
    ctl_table_end(t, "No device memory is in use.");
}

/* Orders holders by device and kind, so that those of a total stand together. */
static int compare_totals(const void *a, const void *b)
{
    const Npugraph__V1__BufferInfo *x = *(Npugraph__V1__BufferInfo *const *)a,
                                   *y = *(Npugraph__V1__BufferInfo *const *)b;
    const int device = strcmp(x->device, y->device);

    return device != 0 ? device : (int)x->kind - (int)y->kind;
}

static void put_memory_totals(struct ctl *ctl, const Npugraph__V1__ListBuffersResponse *r)
{
    static const struct ctl_column columns[] = {
        {"DEVICE", "device", false}, {"KIND", "kind", false}, {"HOLDERS", "holders", true}, {"BYTES", "bytes", true}};
    struct ctl_table *t = ctl_table_new(ctl, "totals", columns, sizeof(columns) / sizeof(columns[0]));
    uint64_t all = 0;

    if (r->n_buffers > 1)
        qsort(r->buffers, r->n_buffers, sizeof(*r->buffers), compare_totals);
    for (size_t i = 0, end; i < r->n_buffers; i = end) {
        uint64_t bytes = 0;

        for (end = i; end < r->n_buffers && compare_totals(&r->buffers[i], &r->buffers[end]) == 0; end++)
            bytes += r->buffers[end]->bytes;
        ctl_row(t);
        ctl_str(t, r->buffers[i]->device);
        ctl_word(t, &npugraph__v1__buffer_kind__descriptor, r->buffers[i]->kind);
        ctl_int(t, end - i);
        ctl_bytes(t, bytes);
        all += bytes;
    }
    if (r->n_buffers > 0) {
        ctl_row(t);
        ctl_str(t, "all");
        ctl_str(t, "all");
        ctl_int(t, r->n_buffers);
        ctl_bytes(t, all);
    }
    ctl_table_end(t, "No device memory is in use.");
}

int ctl_cmd_memory(struct ctl *ctl, int argc, char **argv)
{
    Npugraph__V1__ListBuffersRequest req = NPUGRAPH__V1__LIST_BUFFERS_REQUEST__INIT;
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    Npugraph__V1__ListBuffersResponse *r;
    const char *name, *value;
    bool totals = false;

    while ((name = ctl_next_option(&o, "totals", "", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        totals = true;
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "memory takes no arguments");
    r = (void *)ctl_call(ctl, "/npugraph.v1.Memory/ListBuffers", &req.base,
                         &npugraph__v1__list_buffers_response__descriptor);
    if (r == NULL)
        return 1;
    (totals ? put_memory_totals : put_buffers)(ctl, r);
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_stats(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    Npugraph__V1__StatsRequest req = NPUGRAPH__V1__STATS_REQUEST__INIT;
    Npugraph__V1__StatsResponse *r;
    const char *name, *value;

    req.form = NGD_PB(STATS_FORM, JSON);
    while ((name = ctl_next_option(&o, "prometheus", "", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        req.form = NGD_PB(STATS_FORM, PROMETHEUS);
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "stats takes no arguments");
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/Stats", &req.base, &npugraph__v1__stats_response__descriptor);
    if (r == NULL)
        return 1;
    fputs(r->text, stdout);
    if (r->text[0] != '\0' && r->text[strlen(r->text) - 1] != '\n')
        putchar('\n');
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_drain(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    Npugraph__V1__DrainRequest req = NPUGRAPH__V1__DRAIN_REQUEST__INIT;
    ProtobufCMessage *r;
    const char *name, *value;
    ngd_nsec_t grace;

    while ((name = ctl_next_option(&o, "stay", "grace", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "stay") == 0)
            req.stay = 1;
        else if (ngd_parse_time(value, &grace) != NGD_OK || grace < NGD_MSEC || grace > 3600 * NGD_SEC)
            return ctl_usage(o.command, "--grace takes a time from 1ms to 1h, such as 10s");
        else
            req.grace_ms = (uint32_t)(grace / NGD_MSEC);
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "drain takes no arguments");
    r = ctl_call(ctl, "/npugraph.v1.Admin/Drain", &req.base, &npugraph__v1__drain_response__descriptor);
    if (r == NULL)
        return 1;
    npugraph__free_message(r);
    if (!ctl->json)
        printf("%s\n", req.stay ? "The daemon takes no new work." : "The daemon finishes what runs and stops.");
    return 0;
}
