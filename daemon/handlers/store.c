/* SPDX-License-Identifier: Apache-2.0 */
/* The store of plans, for its operator. Each call may read or write many files, so it runs on a thread that has only
 * such calls, one at a time: a slow disk delays no other calls. Entries of any size are sent in chunks. */
#include "base/fault.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_job.h"
#include "graphs/store.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/program/stored.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define LIST_MAX   10000 /* entries in one answer */
#define PREFIX_MIN 6
#define CHUNK_MAX  (256u << 10) /* most bytes of an entry in one message, if max-message allows it */
#define AHEAD      4            /* chunks that wait to be sent */

/* Checks that there is a store. False: the call was refused and answered. */
static bool has_store(struct ngd_call *call)
{
    struct ngd_diag diag = {0};

    if (!call->daemon->store)
        ngd_diag_set(&diag, NGD_ERR_NOT_FOUND, "this daemon keeps no plans on disk; set its option store-dir");
    if (diag.status)
        ngd_call_fail(call, diag.status, &diag);
    return diag.status == NGD_OK;
}

/* Allocates a zeroed state with the lifetime of the call. NULL: the call was refused and answered. */
static void *make_state(struct ngd_call *call, size_t size)
{
    void *state;

    if (!has_store(call))
        return NULL;
    state = ngd_arena_calloc(&call->life, 1, size);
    if (!state)
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
    return state;
}

static void begin_store_job(struct ngd_call *call, const void *msg, ngd_call_job_fn *run)
{
    if (has_store(call))
        ngd_call_job_add(call->daemon->store_jobs, call, msg, run, 0);
}

/* ---- entries ------------------------------------------------------------------------------------------- */

static char *line(struct ngd_arena *arena, const char *lines, size_t n, const char *name)
{
    char value[1024];

    return ngd_arena_strdup(arena, ngd_store_line(lines, n, name, value, sizeof(value)) ? value : "");
}

static Npugraph__V1__StoreEntry *describe_entry(struct ngd_call *call, const struct ngd_store_item *item)
{
    Npugraph__V1__StoreEntry *e = ngd_arena_calloc(&call->life, 1, sizeof(*e));
    const char *dot = strchr(item->name, '.');

    if (!e)
        return NULL;
    npugraph__v1__store_entry__init(e);
    e->name = ngd_arena_strdup(&call->life, item->name);
    e->kind = ngd_word_value(&npugraph__v1__store_entry_kind__descriptor, dot ? dot + 1 : "");
    e->bytes = item->bytes;
    e->used = item->used;
    return e->name ? e : NULL;
}

/* Removes the quotes that notes have around a simple name. */
static char *unquote(char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (n < 2 || name[0] != '"' || name[n - 1] != '"' || strchr(name, '\\'))
        return name;
    name[n - 1] = '\0';
    return name + 1;
}

/* Reads the entry's details, or why it cannot be read. */
static bool read_details(struct ngd_call *call, Npugraph__V1__StoreEntry *e)
{
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = ngd_store_get_named(call->daemon->store, e->name, &blob);

    if (reason != NGD_STORE_FOUND) {
        e->reason = ngd_borrow(ngd_store_reason_name(reason));
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

static ngd_status_t run_list(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    struct ngd_store *store = call->daemon->store;
    Npugraph__V1__ListStoreResponse r = NPUGRAPH__V1__LIST_STORE_RESPONSE__INIT;
    struct ngd_store_item *items = NULL;
    struct ngd_store_stats stats;
    uint32_t n = 0;
    ngd_status_t status;

    (void)msg;
    while (NGD_FAULT(STORE_SLOW) && ngd_daemon_state(call->daemon) != NGD_DAEMON_STOPPED)
        nanosleep(&(struct timespec){.tv_nsec = 10 * NGD_MSEC}, NULL);
    status = ngd_store_list(store, &items, &n, diag);
    if (status != NGD_OK)
        return status;
    r.entries = ngd_arena_calloc(&call->life, n + 1u, sizeof(Npugraph__V1__StoreEntry *));
    status = r.entries ? NGD_OK : NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; call->identity->role >= NGD_ROLE_OPERATOR && i < n && i < LIST_MAX && status == NGD_OK; i++) {
        Npugraph__V1__StoreEntry *e = describe_entry(call, &items[i]);

        if (!e || !read_details(call, e))
            status = NGD_ERR_NO_MEMORY;
        else
            r.entries[r.n_entries++] = e;
    }
    ngd_free(items);
    if (status != NGD_OK)
        return status;
    ngd_store_stats(store, &stats);
    r.directory = ngd_borrow(call->identity->role >= NGD_ROLE_OPERATOR ? ngd_store_dir(store) : "");
    r.bytes = stats.bytes;
    r.budget = stats.budget;
    r.hits = stats.hits;
    r.misses = stats.misses;
    r.set_aside = stats.set_aside;
    r.writes = stats.writes;
    r.write_failures = stats.write_failures;
    r.evictions = stats.evictions;
    ngd_call_reply(call, &r.base);
    return NGD_OK;
}

/* Finds the only entry whose name begins with the prefix. */
static ngd_status_t find_entry(struct ngd_call *call, const char *prefix, char name[NGD_STORE_NAME_MAX],
                               struct ngd_diag *diag)
{
    size_t len = strlen(prefix);
    struct ngd_store_item *items = NULL;
    uint32_t n = 0, found = 0;
    ngd_status_t status;

    if (len < PREFIX_MIN || len >= NGD_STORE_NAME_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "\"%.80s\" is not the name of an entry; give a name, or at least its first %d digits",
                            prefix, PREFIX_MIN);
    status = ngd_store_list(call->daemon->store, &items, &n, diag);
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
    const ngd_status_t status = reason == NGD_STORE_ABSENT      ? NGD_ERR_NOT_FOUND
                                : reason == NGD_STORE_NO_MEMORY ? NGD_ERR_NO_MEMORY
                                : reason == NGD_STORE_IO        ? NGD_ERR_IO
                                                                : NGD_ERR_FILE_CORRUPT;

    return ngd_diag_set(diag, status, "entry %s: %s", name, ngd_store_reason_text(reason));
}

/*
 * A read has a job that reads and checks the whole entry, and then sends a stream of chunks. As its last act, the job
 * sends the first chunk. When that is sent, the receiving thread sends the next, and it alone sends the rest. If the
 * client cancels, the job answers while it runs, and the receiving thread afterwards.
 */
enum { READING, SENDING, OVER };

struct reading {
    struct ngd_job job;
    struct ngd_call *call;
    const Npugraph__V1__ReadStoreRequest *request;
    char name[NGD_STORE_NAME_MAX];
    struct ngd_store_blob blob;
    struct ngd_strbuf text;
    const char *data; /* points into one of the two */
    uint64_t at, n;
    _Atomic int state;
};

static ngd_status_t read_whole_entry(struct reading *r, struct ngd_diag *diag)
{
    ngd_store_reason_t reason;
    ngd_status_t status = find_entry(r->call, r->request->name, r->name, diag);

    if (status != NGD_OK)
        return status;
    reason = r->request->text ? ngd_stored_show(r->call->daemon->sched, r->name, &r->text)
                              : ngd_store_get_named(r->call->daemon->store, r->name, &r->blob);
    if (reason != NGD_STORE_FOUND)
        return bad_entry(r->name, reason, diag);
    if (r->text.failed)
        return NGD_ERR_NO_MEMORY;
    r->data = r->request->text ? ngd_strbuf_str(&r->text) : (const char *)r->blob.data;
    r->n = r->request->text ? r->text.len : r->blob.n;
    return NGD_OK;
}

/* Sends a chunk. Each has the entry's name, so that a client can follow several reads. */
static ngd_status_t send_entry_chunk(struct reading *r)
{
    Npugraph__V1__ReadStoreResponse m = NPUGRAPH__V1__READ_STORE_RESPONSE__INIT;
    uint64_t most = r->call->daemon->options.max_message / 2;
    uint64_t n = r->n - r->at;

    if (n > CHUNK_MAX)
        n = CHUNK_MAX;
    if (n > most)
        n = most;
    m.name = r->name;
    m.total = r->n;
    m.data.data = (uint8_t *)(uintptr_t)(r->data + r->at);
    m.data.len = (size_t)n;
    r->at += n;
    return ngd_call_send(r->call, &m.base);
}

static void run_reading(struct ngd_job *job)
{
    struct reading *r = ngd_container_of(job, struct reading, job);
    struct ngd_call *call = ngd_call_ref(r->call);
    struct ngd_diag diag = {0};
    ngd_status_t status = read_whole_entry(r, &diag);
    int expected = READING;
    bool owed = true;

    if (status == NGD_OK && !atomic_compare_exchange_strong(&r->state, &expected, SENDING)) {
        status = NGD_ERR_CANCELLED;
    } else if (status == NGD_OK) {
        status = send_entry_chunk(r);
        /* A chunk that is not sent has no `sent` callback. A call that was cancelled meanwhile has been answered. */
        owed = status != NGD_OK && atomic_exchange(&r->state, OVER) == SENDING;
    }
    if (status != NGD_OK && owed)
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
    ngd_call_unref(call);
}

static void read_pump(struct ngd_call *call)
{
    struct reading *r = call->state;
    ngd_status_t status = NGD_OK;

    if (!r || atomic_load(&r->state) != SENDING)
        return;
    while (status == NGD_OK && r->at < r->n && ngd_call_unsent(call) < AHEAD)
        status = send_entry_chunk(r);
    if (status == NGD_OK && r->at < r->n)
        return;
    atomic_store(&r->state, OVER);
    if (status == NGD_OK)
        ngd_call_finish(call);
    else
        ngd_call_fail(call, status, NULL);
}

static void cancel_entry_read(struct ngd_call *call)
{
    struct reading *r = call->state;
    int expected = READING;

    if (!r || atomic_compare_exchange_strong(&r->state, &expected, OVER))
        return; /* the job answers */
    if (expected == SENDING && atomic_exchange(&r->state, OVER) == SENDING)
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
}

static void release_entry_read(struct ngd_call *call)
{
    struct reading *r = call->state;

    call->state = NULL;
    if (!r)
        return;
    ngd_store_blob_fini(&r->blob);
    ngd_strbuf_fini(&r->text);
}

static void begin_entry_read(struct ngd_call *call, const void *msg)
{
    struct reading *r = make_state(call, sizeof(*r));

    if (!r)
        return;
    r->call = call;
    r->request = msg;
    ngd_strbuf_init(&r->text);
    atomic_init(&r->state, READING);
    r->job.fn = run_reading;
    call->state = r;
    ngd_jobs_add_for(call->daemon->store_jobs, &r->job, call->identity->key);
}

const struct ngd_rpc_ops ngd_rpc_store_read = {
    .request = begin_entry_read, .sent = read_pump, .cancelled = cancel_entry_read, .release = release_entry_read};

/* ---- import -------------------------------------------------------------------------------------------- */

/* An entry that arrives in chunks; the first one has its size. */
struct importing {
    struct ngd_job job;
    struct ngd_call *call;
    uint64_t total;
    struct ngd_strbuf data;
};

static ngd_status_t begin_import(struct ngd_call *call, const Npugraph__V1__ImportStoreRequest *q,
                                 struct ngd_diag *diag)
{
    struct importing *im;

    if (q->total == 0 || q->total > NGD_STORE_ENTRY_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the first message of an import must say the entry's size, 1 to %u bytes, not %" PRIu64,
                            NGD_STORE_ENTRY_MAX, q->total);
    im = ngd_arena_calloc(&call->life, 1, sizeof(*im));
    if (!im)
        return NGD_ERR_NO_MEMORY;
    im->call = call;
    im->total = q->total;
    ngd_strbuf_init(&im->data);
    call->state = im;
    return NGD_OK;
}

static void import_chunk(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ImportStoreRequest *q = msg;
    struct importing *im = call->state;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;

    if (!im) {
        if (!has_store(call))
            return;
        status = begin_import(call, q, &diag);
        im = call->state;
    }
    if (status == NGD_OK && q->data.len > im->total - im->data.len)
        status =
            ngd_diag_set(&diag, NGD_ERR_INVALID_ARGUMENT,
                         "the entry has more than the %" PRIu64 " bytes that the first message announced", im->total);
    if (status == NGD_OK) {
        ngd_strbuf_append_n(&im->data, q->data.data, q->data.len);
        if (im->data.failed)
            status = NGD_ERR_NO_MEMORY;
    }
    if (status != NGD_OK)
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
}

static void run_import(struct ngd_job *job)
{
    struct importing *im = ngd_container_of(job, struct importing, job);
    Npugraph__V1__ImportStoreResponse r = NPUGRAPH__V1__IMPORT_STORE_RESPONSE__INIT;
    struct ngd_call *call = im->call;
    char name[NGD_STORE_NAME_MAX];
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_store_import(call->daemon->store, im->data.data, im->data.len, name, &diag);

    if (status == NGD_OK) {
        r.name = name;
        ngd_call_reply(call, &r.base);
    } else {
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
    }
    ngd_call_unref(call);
}

static void import_done(struct ngd_call *call, bool broken)
{
    struct importing *im = call->state;
    struct ngd_diag diag = {0};

    if (broken) {
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
        return;
    }
    if (!im || im->data.len != im->total) {
        ngd_diag_set(&diag, NGD_ERR_FILE_TRUNCATED, "the import ended after %zu of %" PRIu64 " bytes of the entry",
                     im ? im->data.len : 0, im ? im->total : 0);
        ngd_call_fail(call, diag.status, &diag);
        return;
    }
    im->job.fn = run_import;
    ngd_call_ref(call); /* the job's */
    ngd_jobs_add_for(call->daemon->store_jobs, &im->job, call->identity->key);
}

static void import_release(struct ngd_call *call)
{
    struct importing *im = call->state;

    call->state = NULL;
    if (im)
        ngd_strbuf_fini(&im->data);
}

const struct ngd_rpc_ops ngd_rpc_store_import = {
    .request = import_chunk, .half_closed = import_done, .release = import_release};

/* ---- changes ------------------------------------------------------------------------------------------- */

struct bad_list {
    struct ngd_call *call;
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
    e = describe_entry(bad->call, item);
    bad->failed |= !e;
    if (!e)
        return;
    e->reason = ngd_borrow(ngd_store_reason_name(reason));
    bad->items[bad->n++] = e;
}

static ngd_status_t run_verify(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__VerifyStoreResponse r = NPUGRAPH__V1__VERIFY_STORE_RESPONSE__INIT;
    struct bad_list bad = {.call = call};
    uint32_t n_bad = 0;
    ngd_status_t status;

    (void)msg;
    bad.items = ngd_arena_calloc(&call->life, LIST_MAX, sizeof(Npugraph__V1__StoreEntry *));
    if (!bad.items)
        return NGD_ERR_NO_MEMORY;
    status = ngd_store_verify(call->daemon->store, take_bad, &bad, &r.good, &n_bad, diag);
    if (status == NGD_OK && bad.failed)
        status = NGD_ERR_NO_MEMORY;
    if (status != NGD_OK)
        return status;
    r.n_bad = bad.n;
    r.bad = bad.items;
    ngd_call_reply(call, &r.base);
    return NGD_OK;
}

static ngd_status_t run_clear(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    const Npugraph__V1__ClearStoreRequest *q = msg;
    Npugraph__V1__ClearStoreResponse r = NPUGRAPH__V1__CLEAR_STORE_RESPONSE__INIT;
    char name[NGD_STORE_NAME_MAX];
    ngd_status_t status;

    if (*q->name) {
        status = find_entry(call, q->name, name, diag);
        if (status == NGD_OK)
            status = ngd_store_remove(call->daemon->store, name, diag);
        r.removed = 1;
    } else {
        status = ngd_store_clear(call->daemon->store, &r.removed, diag);
    }
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    return status;
}

static void list_store(struct ngd_call *call, const void *msg)
{
    begin_store_job(call, msg, run_list);
}

static void verify_store(struct ngd_call *call, const void *msg)
{
    begin_store_job(call, msg, run_verify);
}

static void clear_store(struct ngd_call *call, const void *msg)
{
    begin_store_job(call, msg, run_clear);
}

const struct ngd_rpc_ops ngd_rpc_store_list = {.request = list_store};
const struct ngd_rpc_ops ngd_rpc_store_verify = {.request = verify_store};
const struct ngd_rpc_ops ngd_rpc_store_clear = {.request = clear_store};
