/* SPDX-License-Identifier: Apache-2.0 */
/* The store of plans for its operator. Each call reads or writes files, so it runs on a job thread. */
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/rpc_methods.h"
#include "graphs/store.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/stored.h"
#include <string.h>

#define LIST_MAX   10000 /* entries in one answer */
#define PREFIX_MIN 6
#define TEXT_MAX   (8u << 20) /* of one entry for people; gRPC's own limit is larger */

struct store_call {
    struct ngd_job job;
    struct ngd_call *call;
    const void *msg;
    ngd_status_t (*run)(struct store_call *s, struct ngd_diag *diag); /* answers, unless it fails */
};

static char *borrow(const char *text) /* protobuf-c has no const strings; what is packed is not written to */
{
    return (char *)(uintptr_t)text;
}

static void run_job(struct ngd_job *job)
{
    struct store_call *s = ngd_container_of(job, struct store_call, job);
    struct ngd_call *call = s->call;
    struct ngd_diag diag = {0};
    ngd_status_t status = s->run(s, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
}

static void begin(struct ngd_call *call, const void *msg, bool admin,
                  ngd_status_t (*run)(struct store_call *s, struct ngd_diag *diag))
{
    struct store_call *s;
    struct ngd_diag diag = {0};

    if (!call->daemon->store)
        ngd_diag_set(&diag, NGD_ERR_NOT_FOUND, "this daemon keeps no plans on disk; set its option store-dir");
    else if (admin && !call->identity->admin)
        ngd_diag_set(&diag, NGD_ERR_PERMISSION_DENIED,
                     "%s may not do this with the store; the daemon's own user, root and admin-identities may",
                     call->identity->name);
    if (diag.status) {
        ngd_call_fail(call, diag.status, &diag);
        return;
    }
    s = ngd_arena_calloc(&call->life, 1, sizeof(*s));
    if (!s) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    s->call = call;
    s->msg = msg;
    s->run = run;
    s->job.fn = run_job;
    ngd_jobs_add(call->daemon->jobs, &s->job);
}

/* ---- entries ------------------------------------------------------------------------------------------- */

static char *line(struct ngd_arena *arena, const char *lines, size_t n, const char *name)
{
    char value[1024];

    return ngd_arena_strdup(arena, ngd_store_line(lines, n, name, value, sizeof(value)) ? value : "");
}

static Npugraph__V1__StoreEntry *describe(struct ngd_call *call, const struct ngd_store_item *item)
{
    Npugraph__V1__StoreEntry *e = ngd_arena_calloc(&call->life, 1, sizeof(*e));
    const char *dot = strchr(item->name, '.');

    if (!e)
        return NULL;
    npugraph__v1__store_entry__init(e);
    e->name = ngd_arena_strdup(&call->life, item->name);
    e->kind = e->name && dot ? e->name + (dot + 1 - item->name) : borrow("");
    e->bytes = item->bytes;
    e->used = item->used;
    return e->name ? e : NULL;
}

/* Names are quoted in the notes; simple ones are shown as they are. */
static char *unquote(char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (n < 2 || name[0] != '"' || name[n - 1] != '"' || strchr(name, '\\'))
        return name;
    name[n - 1] = '\0';
    return name + 1;
}

/* What the entry says of itself; one that cannot be read says why. */
static bool read_details(struct ngd_call *call, Npugraph__V1__StoreEntry *e)
{
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = ngd_store_get_named(call->daemon->store, e->name, &blob);

    if (reason != NGD_STORE_FOUND) {
        e->reason = borrow(ngd_store_reason_name(reason));
        return true;
    }
    e->graph = unquote(line(&call->life, blob.entry.notes, blob.entry.n_notes, "name"));
    e->digest = line(&call->life, blob.entry.identity, blob.entry.n_identity, "graph");
    e->symbols = line(&call->life, blob.entry.identity, blob.entry.n_identity, "symbols");
    e->device = line(&call->life, blob.entry.identity, blob.entry.n_identity, "device");
    e->daemon = line(&call->life, blob.entry.identity, blob.entry.n_identity, "daemon");
    ngd_store_blob_fini(&blob);
    return e->graph && e->digest && e->symbols && e->device && e->daemon;
}

static ngd_status_t run_list(struct store_call *s, struct ngd_diag *diag)
{
    struct ngd_store *store = s->call->daemon->store;
    Npugraph__V1__ListStoreResponse r = NPUGRAPH__V1__LIST_STORE_RESPONSE__INIT;
    struct ngd_store_item *items = NULL;
    struct ngd_store_stats stats;
    uint32_t n = 0;
    ngd_status_t status = ngd_store_list(store, &items, &n, diag);

    if (status != NGD_OK)
        return status;
    r.entries = ngd_arena_calloc(&s->call->life, n + 1u, sizeof(Npugraph__V1__StoreEntry *));
    status = r.entries ? NGD_OK : NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n && i < LIST_MAX && status == NGD_OK; i++) {
        Npugraph__V1__StoreEntry *e = describe(s->call, &items[i]);

        if (!e || !read_details(s->call, e))
            status = NGD_ERR_NO_MEMORY;
        else
            r.entries[r.n_entries++] = e;
    }
    ngd_free(items);
    if (status != NGD_OK)
        return status;
    ngd_store_stats(store, &stats);
    r.directory = borrow(ngd_store_dir(store));
    r.bytes = stats.bytes;
    r.budget = stats.budget;
    r.hits = stats.hits;
    r.misses = stats.misses;
    r.set_aside = stats.set_aside;
    r.writes = stats.writes;
    r.write_failures = stats.write_failures;
    r.evictions = stats.evictions;
    ngd_call_reply(s->call, &r.base);
    return NGD_OK;
}

/* The one entry whose name begins so. */
static ngd_status_t find(struct store_call *s, const char *prefix, char name[NGD_STORE_NAME_MAX], struct ngd_diag *diag)
{
    size_t len = strlen(prefix);
    struct ngd_store_item *items = NULL;
    uint32_t n = 0, found = 0;
    ngd_status_t status;

    if (len < PREFIX_MIN || len >= NGD_STORE_NAME_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "\"%.80s\" is no entry's name; give it, or its first %d digits or more", prefix,
                            PREFIX_MIN);
    status = ngd_store_list(s->call->daemon->store, &items, &n, diag);
    if (status != NGD_OK)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(items[i].name, prefix, len) == 0) {
            memcpy(name, items[i].name, NGD_STORE_NAME_MAX);
            found++;
        }
    }
    ngd_free(items);
    if (found == 1)
        return NGD_OK;
    return ngd_diag_set(diag, found ? NGD_ERR_INVALID_ARGUMENT : NGD_ERR_NOT_FOUND,
                        "%u entries of the store begin with %s", found, prefix);
}

/* ---- read ---------------------------------------------------------------------------------------------- */

static ngd_status_t bad_entry(const char *name, ngd_store_reason_t reason, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, reason == NGD_STORE_ABSENT ? NGD_ERR_NOT_FOUND : NGD_ERR_FILE_CORRUPT, "entry %s: %s",
                        name, ngd_store_reason_text(reason));
}

static ngd_status_t read_text(struct store_call *s, const char *name, struct ngd_diag *diag)
{
    Npugraph__V1__ReadStoreResponse r = NPUGRAPH__V1__READ_STORE_RESPONSE__INIT;
    struct ngd_strbuf sb;
    ngd_store_reason_t reason;
    ngd_status_t status = NGD_OK;

    ngd_strbuf_init(&sb);
    reason = ngd_stored_show(s->call->daemon->sched, name, &sb);
    if (reason != NGD_STORE_FOUND)
        status = bad_entry(name, reason, diag);
    else if (sb.failed)
        status = NGD_ERR_NO_MEMORY;
    else if (sb.len > TEXT_MAX)
        status =
            ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "entry %s as text has %zu bytes; export it", name, sb.len);
    if (status == NGD_OK) {
        r.name = borrow(name);
        r.text = borrow(ngd_strbuf_str(&sb));
        ngd_call_reply(s->call, &r.base);
    }
    ngd_strbuf_fini(&sb);
    return status;
}

static ngd_status_t read_bytes(struct store_call *s, const char *name, struct ngd_diag *diag)
{
    Npugraph__V1__ReadStoreResponse r = NPUGRAPH__V1__READ_STORE_RESPONSE__INIT;
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = ngd_store_get_named(s->call->daemon->store, name, &blob);
    ngd_status_t status = NGD_OK;

    if (reason != NGD_STORE_FOUND)
        return bad_entry(name, reason, diag);
    if (blob.n > s->call->daemon->options.max_message - 4096) {
        status = ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                              "entry %s has %zu bytes, more than max-message lets through", name, blob.n);
    } else {
        r.name = borrow(name);
        r.entry.data = blob.data;
        r.entry.len = blob.n;
        ngd_call_reply(s->call, &r.base);
    }
    ngd_store_blob_fini(&blob);
    return status;
}

static ngd_status_t run_read(struct store_call *s, struct ngd_diag *diag)
{
    const Npugraph__V1__ReadStoreRequest *q = s->msg;
    char name[NGD_STORE_NAME_MAX];
    ngd_status_t status = find(s, q->name, name, diag);

    if (status != NGD_OK)
        return status;
    return q->text ? read_text(s, name, diag) : read_bytes(s, name, diag);
}

/* ---- changes ------------------------------------------------------------------------------------------- */

static ngd_status_t run_import(struct store_call *s, struct ngd_diag *diag)
{
    const Npugraph__V1__ImportStoreRequest *q = s->msg;
    Npugraph__V1__ImportStoreResponse r = NPUGRAPH__V1__IMPORT_STORE_RESPONSE__INIT;
    char name[NGD_STORE_NAME_MAX];
    ngd_status_t status = ngd_store_import(s->call->daemon->store, q->entry.data, q->entry.len, name, diag);

    if (status != NGD_OK)
        return status;
    r.name = name;
    ngd_call_reply(s->call, &r.base);
    return NGD_OK;
}

struct bad_list {
    struct store_call *s;
    Npugraph__V1__StoreEntry **items;
    size_t n;
    bool failed;
};

static void take_bad(void *ctx, const struct ngd_store_item *item, ngd_store_reason_t reason)
{
    struct bad_list *bad = ctx;
    Npugraph__V1__StoreEntry *e;

    if (reason == NGD_STORE_FOUND || bad->n == LIST_MAX)
        return;
    e = describe(bad->s->call, item);
    bad->failed |= !e;
    if (!e)
        return;
    e->reason = borrow(ngd_store_reason_name(reason));
    bad->items[bad->n++] = e;
}

static ngd_status_t run_verify(struct store_call *s, struct ngd_diag *diag)
{
    Npugraph__V1__VerifyStoreResponse r = NPUGRAPH__V1__VERIFY_STORE_RESPONSE__INIT;
    struct bad_list bad = {.s = s};
    uint32_t n_bad = 0;
    ngd_status_t status;

    bad.items = ngd_arena_calloc(&s->call->life, LIST_MAX, sizeof(Npugraph__V1__StoreEntry *));
    if (!bad.items)
        return NGD_ERR_NO_MEMORY;
    status = ngd_store_verify(s->call->daemon->store, take_bad, &bad, &r.good, &n_bad, diag);
    if (status == NGD_OK && bad.failed)
        status = NGD_ERR_NO_MEMORY;
    if (status != NGD_OK)
        return status;
    r.n_bad = bad.n;
    r.bad = bad.items;
    ngd_call_reply(s->call, &r.base);
    return NGD_OK;
}

static ngd_status_t run_clear(struct store_call *s, struct ngd_diag *diag)
{
    const Npugraph__V1__ClearStoreRequest *q = s->msg;
    Npugraph__V1__ClearStoreResponse r = NPUGRAPH__V1__CLEAR_STORE_RESPONSE__INIT;
    char name[NGD_STORE_NAME_MAX];
    ngd_status_t status;

    if (*q->name) {
        status = find(s, q->name, name, diag);
        if (status == NGD_OK)
            status = ngd_store_remove(s->call->daemon->store, name, diag);
        r.removed = 1;
    } else {
        status = ngd_store_clear(s->call->daemon->store, &r.removed, diag);
    }
    if (status == NGD_OK)
        ngd_call_reply(s->call, &r.base);
    return status;
}

static void list(struct ngd_call *call, const void *msg)
{
    begin(call, msg, false, run_list);
}

static void read_entry(struct ngd_call *call, const void *msg)
{
    begin(call, msg, true, run_read);
}

static void import_entry(struct ngd_call *call, const void *msg)
{
    begin(call, msg, true, run_import);
}

static void verify(struct ngd_call *call, const void *msg)
{
    begin(call, msg, true, run_verify);
}

static void clear(struct ngd_call *call, const void *msg)
{
    begin(call, msg, true, run_clear);
}

const struct ngd_rpc_ops ngd_rpc_store_list = {.request = list};
const struct ngd_rpc_ops ngd_rpc_store_read = {.request = read_entry};
const struct ngd_rpc_ops ngd_rpc_store_import = {.request = import_entry};
const struct ngd_rpc_ops ngd_rpc_store_verify = {.request = verify};
const struct ngd_rpc_ops ngd_rpc_store_clear = {.request = clear};
