/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: reads and writes entries by identity, and sets bad ones aside. store_room.c bounds their bytes.
 */
#include "graphs/store_int.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_EVERY 64 /* writes after which the directory is scanned */

ngd_status_t ngd_store_open(const struct ngd_store_params *params, struct ngd_store **store_p, struct ngd_diag *diag)
{
    struct ngd_store *store = NGD_NEW(struct ngd_store);
    struct ngd_store_item *items = NULL;
    ngd_status_t status;
    uint32_t n;

    if (!store)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the store");
    store->root = store->entries = store->notes = store->aside = store->tmp = store->lock_file = -1;
    store->owner = geteuid();
    atomic_init(&store->budget, params->budget);
    store->dir = ngd_strdup(params->dir);
    ngd_mutex_init(&store->lock, NGD_RANK_STORE);
    ngd_mutex_init(&store->owners_lock, NGD_RANK_STORE_OWNERS);
    status = store->dir ? ngd_store_dir_open(store, diag)
                        : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the store");
    if (status == NGD_OK) {
        ngd_store_dir_sweep(store);
        status = ngd_store_list(store, &items, &n, diag);
        ngd_free(items);
    }
    if (status) {
        ngd_store_close(store);
        return status;
    }
    *store_p = store;
    return NGD_OK;
}

/* No other thread uses the store any more. */
void ngd_store_close(struct ngd_store *store) NGD_NO_THREAD_SAFETY
{
    if (!store)
        return;
    ngd_store_dir_close(store);
    ngd_store_owners_fini(&store->owners);
    ngd_mutex_fini(&store->owners_lock);
    ngd_mutex_fini(&store->lock);
    ngd_free(store->dir);
    ngd_free(store);
}

const char *ngd_store_dir(const struct ngd_store *store)
{
    return store->dir;
}

void ngd_store_blob_fini(struct ngd_store_blob *blob)
{
    ngd_free(blob->data);
    *blob = (struct ngd_store_blob){.data = NULL};
}

/* ---- names --------------------------------------------------------------------------------------------- */

static bool is_kind(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz");

    return n > 0 && n < 16 && s[n] == '\0';
}

bool ngd_store_name(const char *identity, size_t n, char name[NGD_STORE_NAME_MAX])
{
    struct ngd_digest digest;
    char kind[24];

    if (!ngd_store_line(identity, n, "kind", kind, sizeof(kind)) || !is_kind(kind))
        return false;
    ngd_digest_of(identity, n, &digest);
    ngd_digest_hex(&digest, name);
    name[NGD_DIGEST_HEX - 1] = '.';
    memcpy(name + NGD_DIGEST_HEX, kind, strlen(kind) + 1);
    return true;
}

bool ngd_store_is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == NGD_DIGEST_HEX - 1 && name[NGD_DIGEST_HEX - 1] == '.' &&
           is_kind(name + NGD_DIGEST_HEX);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static ngd_store_reason_t read_store_entry(struct ngd_store *store, const char *name, bool mark,
                                           struct ngd_store_blob *blob)
{
    char said[NGD_STORE_NAME_MAX];
    ngd_store_reason_t reason;

    *blob = (struct ngd_store_blob){.data = NULL};
    reason = ngd_store_file_read(store, store->entries, name, mark, &blob->data, &blob->n);
    if (reason == NGD_STORE_FOUND)
        reason = ngd_store_entry_parse(blob->data, blob->n, &blob->entry);
    if (reason == NGD_STORE_FOUND &&
        (!ngd_store_name(blob->entry.identity, blob->entry.n_identity, said) || strcmp(said, name) != 0))
        reason = NGD_STORE_FOREIGN;
    if (reason != NGD_STORE_FOUND)
        ngd_store_blob_fini(blob);
    return reason;
}

static void put_aside(struct ngd_store *store, const char *name, ngd_store_reason_t reason)
{
    ngd_store_uncount(store, name);
    ngd_store_file_aside(store, store->entries, name, reason);
}

static void miss(struct ngd_store *store, ngd_store_reason_t reason)
{
    atomic_fetch_add(&store->misses, 1);
    ngd_metric_row_add(ngd_metric_row(NGD_M_STORE_MISSES, ngd_store_reason_name(reason)), 1);
}

ngd_store_reason_t ngd_store_get(struct ngd_store *store, const char *identity, size_t n, struct ngd_store_blob *blob_p)
{
    char name[NGD_STORE_NAME_MAX];
    ngd_store_reason_t reason = NGD_STORE_ABSENT;

    if (ngd_store_name(identity, n, name))
        reason = read_store_entry(store, name, true, blob_p);
    if (reason == NGD_STORE_FOUND) {
        atomic_fetch_add(&store->hits, 1);
        ngd_metric_inc(NGD_M_STORE_HITS);
        return reason;
    }
    if (ngd_store_reason_aside(reason))
        put_aside(store, name, reason);
    miss(store, reason);
    return reason;
}

ngd_store_reason_t ngd_store_get_named(struct ngd_store *store, const char *name, struct ngd_store_blob *blob_p)
{
    return ngd_store_is_name(name) ? read_store_entry(store, name, false, blob_p) : NGD_STORE_ABSENT;
}

bool ngd_store_touch(struct ngd_store *store, const char *identity, size_t n)
{
    char name[NGD_STORE_NAME_MAX];

    return ngd_store_name(identity, n, name) && utimensat(store->entries, name, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * Returns true for a good entry of another owner. An identity that writes the same entry, or distrusts it, must not
 * take it away from its owner. An entry that cannot be read now, for example for lack of memory or descriptors, counts
 * as good: it stays until it can be read.
 */
static bool is_anothers(struct ngd_store *store, const char *name, const char *owner)
{
    char has[NGD_STORE_OWNER_MAX];
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = read_store_entry(store, name, false, &blob);

    if (reason != NGD_STORE_FOUND)
        return reason == NGD_STORE_IO || reason == NGD_STORE_NO_MEMORY;
    ngd_store_owner_of_notes(blob.entry.notes, blob.entry.n_notes, has);
    ngd_store_blob_fini(&blob);
    return *has && strcmp(has, owner) != 0;
}

void ngd_store_set_aside(struct ngd_store *store, const char *identity, size_t n, ngd_store_reason_t reason,
                         const char *owner)
{
    char name[NGD_STORE_NAME_MAX];

    if (!ngd_store_name(identity, n, name) || (owner && is_anothers(store, name, owner)))
        return;
    put_aside(store, name, reason);
    miss(store, reason);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static ngd_status_t fail_write(struct ngd_store *store, ngd_status_t status)
{
    atomic_fetch_add(&store->write_failures, 1);
    ngd_metric_row_add(ngd_metric_row(NGD_M_STORE_WRITE_FAILURES, ngd_status_name(status)), 1);
    return status;
}

void ngd_store_set_budget(struct ngd_store *store, uint64_t budget)
{
    atomic_store(&store->budget, budget);
}

static ngd_status_t check_entry_size(struct ngd_store *store, const struct ngd_store_payer *payer, size_t n,
                                     struct ngd_diag *diag)
{
    const uint64_t budget = atomic_load(&store->budget);

    if (budget && n > budget - budget / 10)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "an entry of %zu bytes does not fit into a store of %" PRIu64 " bytes", n, budget);
    if (!payer->limit || n <= payer->limit)
        return NGD_OK;
    ngd_store_note_refused(store, payer->name);
    return ngd_diag_set(diag, NGD_ERR_QUOTA,
                        "an entry of %zu bytes exceeds the %" PRIu64
                        " bytes that %s may have in the store (max-store-bytes-per-identity)",
                        n, payer->limit, payer->name);
}

static ngd_status_t put_entry_file(struct ngd_store *store, const struct ngd_store_payer *payer, const char *name,
                                   const void *data, size_t n, struct ngd_diag *diag)
{
    ngd_status_t status = check_entry_size(store, payer, n, diag);

    if (status)
        return fail_write(store, status);
    if (ngd_store_is_full(store, payer, n) ||
        (atomic_load(&store->budget) && atomic_load(&store->writes) % LOOK_EVERY == LOOK_EVERY - 1))
        status = ngd_store_make_room(store, payer, n, diag);
    if (status)
        return fail_write(store, status);
    ngd_store_uncount(store, name);
    status = ngd_store_file_write(store, store->entries, name, data, n, diag);
    ngd_store_count(store, name);
    if (status)
        return fail_write(store, status);
    atomic_fetch_add(&store->writes, 1);
    ngd_metric_inc(NGD_M_STORE_WRITES);
    return NGD_OK;
}

/* Packs the entry with the payer's name in front of its notes. */
static void pack_entry(const struct ngd_store_entry *entry, const struct ngd_store_payer *payer, struct ngd_strbuf *out)
{
    struct ngd_store_entry named = *entry;
    struct ngd_strbuf notes;

    ngd_strbuf_init(&notes);
    if (*payer->name)
        ngd_strbuf_printf(&notes, "owner %s\n", payer->name);
    ngd_strbuf_append_n(&notes, entry->notes, entry->n_notes);
    named.notes = ngd_strbuf_str(&notes);
    named.n_notes = notes.len;
    if (notes.failed)
        out->failed = true;
    else
        ngd_store_entry_pack(&named, out);
    ngd_strbuf_fini(&notes);
}

ngd_status_t ngd_store_put_for(struct ngd_store *store, const struct ngd_store_entry *entry,
                               const struct ngd_store_payer *payer, struct ngd_diag *diag)
{
    char name[NGD_STORE_NAME_MAX];
    struct ngd_strbuf bytes;
    ngd_status_t status;

    if (!ngd_store_name(entry->identity, entry->n_identity, name))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the identity of the entry has no kind");
    if (is_anothers(store, name, payer->name) && ngd_store_touch(store, entry->identity, entry->n_identity))
        return NGD_OK;
    ngd_strbuf_init(&bytes);
    pack_entry(entry, payer, &bytes);
    if (bytes.failed)
        status = fail_write(store, ngd_diag_set(diag, NGD_ERR_NO_MEMORY,
                                                "no host memory for an entry of %zu bytes, or it is too large",
                                                entry->n_payload));
    else
        status = put_entry_file(store, payer, name, bytes.data, bytes.len, diag);
    ngd_strbuf_fini(&bytes);
    return status;
}

ngd_status_t ngd_store_put(struct ngd_store *store, const struct ngd_store_entry *entry, struct ngd_diag *diag)
{
    return ngd_store_put_for(store, entry, &(struct ngd_store_payer){.name = ""}, diag);
}

ngd_status_t ngd_store_import(struct ngd_store *store, const void *data, size_t n, char name[NGD_STORE_NAME_MAX],
                              struct ngd_diag *diag)
{
    struct ngd_store_entry entry;
    ngd_store_reason_t reason = ngd_store_entry_parse(data, n, &entry);
    char owner[NGD_STORE_OWNER_MAX];

    if (reason != NGD_STORE_FOUND)
        return ngd_diag_set(diag, reason == NGD_STORE_TRUNCATED ? NGD_ERR_FILE_TRUNCATED : NGD_ERR_FILE_CORRUPT,
                            "not a good entry of a store: %s", ngd_store_reason_text(reason));
    if (!ngd_store_name(entry.identity, entry.n_identity, name))
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "not a good entry of a store: its identity has no kind");
    if (strcmp(strrchr(name, '.'), ".static") == 0)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "an entry of kind static is machine code: it is compiled here, never imported");
    ngd_store_owner_of_notes(entry.notes, entry.n_notes, owner);
    return put_entry_file(store, &(struct ngd_store_payer){.name = owner}, name, data, n, diag);
}

/* ---- maintenance --------------------------------------------------------------------------------------- */

static ngd_store_reason_t check_entry(struct ngd_store *store, const char *name)
{
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = read_store_entry(store, name, false, &blob);

    if (reason == NGD_STORE_FOUND)
        ngd_store_blob_fini(&blob);
    return reason;
}

ngd_status_t ngd_store_verify(struct ngd_store *store,
                              void (*fn)(void *ctx, const struct ngd_store_item *item, ngd_store_reason_t reason),
                              void *ctx, uint32_t *good_p, uint32_t *bad_p, struct ngd_diag *diag)
{
    struct ngd_store_item *items = NULL;
    uint32_t n = 0, good = 0, bad = 0;
    ngd_status_t status = ngd_store_list(store, &items, &n, diag);

    if (status)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        ngd_store_reason_t reason = check_entry(store, items[i].name);

        if (reason == NGD_STORE_ABSENT) /* evicted meanwhile */
            continue;
        if (reason == NGD_STORE_NO_MEMORY) { /* says nothing about the entry */
            ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to read entry %s", items[i].name);
            ngd_free(items);
            return NGD_ERR_NO_MEMORY;
        }
        good += reason == NGD_STORE_FOUND;
        bad += reason != NGD_STORE_FOUND;
        if (fn)
            fn(ctx, &items[i], reason);
        if (ngd_store_reason_aside(reason))
            put_aside(store, items[i].name, reason);
    }
    ngd_free(items);
    *good_p = good;
    *bad_p = bad;
    status = ngd_store_list(store, &items, &n, diag); /* updates the gauges */
    if (status == NGD_OK)
        ngd_free(items);
    return status;
}

ngd_status_t ngd_store_remove(struct ngd_store *store, const char *name, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    struct stat st;

    if (!ngd_store_is_name(name) || fstatat(store->entries, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "the store has no entry %.80s", name);
    ngd_store_uncount(store, name);
    if (unlinkat(store->entries, name, 0) != 0) {
        status =
            ngd_diag_set(diag, ngd_status_from_errno(errno), "entry %s cannot be removed: %s", name, strerror(errno));
        ngd_store_count(store, name);
    }
    return status;
}

static void remove_entry(void *ctx, int dir, const char *name)
{
    uint32_t *removed = ctx;

    if (unlinkat(dir, name, 0) == 0)
        ++*removed;
}

ngd_status_t ngd_store_clear(struct ngd_store *store, uint32_t *removed_p, struct ngd_diag *diag)
{
    struct ngd_store_item *items = NULL;
    uint32_t removed = 0, others = 0, n;
    ngd_status_t status;

    ngd_store_lock(store);
    status = ngd_store_dir_each(store->entries, remove_entry, &removed);
    if (status == NGD_OK)
        status = ngd_store_dir_each(store->aside, remove_entry, &others);
    if (status == NGD_OK)
        status = ngd_store_dir_each(store->notes, remove_entry, &others);
    ngd_store_unlock(store);
    if (status)
        return ngd_diag_set(diag, status, "%s cannot be read: %s", store->dir, ngd_status_text(status));
    *removed_p = removed;
    status = ngd_store_list(store, &items, &n, diag);
    if (status == NGD_OK)
        ngd_free(items);
    return status;
}

void ngd_store_stats(const struct ngd_store *store, struct ngd_store_stats *stats_p)
{
    *stats_p = (struct ngd_store_stats){
        .hits = atomic_load(&store->hits),
        .misses = atomic_load(&store->misses),
        .set_aside = atomic_load(&store->set_aside),
        .writes = atomic_load(&store->writes),
        .write_failures = atomic_load(&store->write_failures),
        .evictions = atomic_load(&store->evictions),
        .bytes = atomic_load(&store->bytes),
        .entries = atomic_load(&store->n_entries),
        .budget = atomic_load(&store->budget),
    };
}
