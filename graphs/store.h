/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_H
#define NGD_GRAPHS_STORE_H

/*
 * The store: keeps data that was expensive to make in a directory, for the next start and for other daemons.
 *
 * Entries are content-addressed: an entry's identity states everything that its payload depends on, and its name is the
 * digest of the identity. Nothing that is read is trusted: names, owners, sizes, checksums and identities are checked.
 * A bad file is moved to aside/ and counted by reason, and the caller makes the data again. No failure here is fatal.
 *
 * Files: DIR/entries/<digest>.<kind>, DIR/notes/<name>, DIR/aside/ (the newest NGD_STORE_ASIDE_MAX bad ones), DIR/tmp/,
 * DIR/lock (held while entries are evicted, or a note is changed). A file is written under a temporary name, fsynced,
 * renamed, and its directory fsynced. So a reader never sees a partial file, even if the writer is killed. Several
 * processes may share a directory.
 * Bounds: past `budget` bytes, entries without an owner are evicted first, then those of the owner with the most bytes,
 * until nine tenths of the budget are left. Past an owner's limit, only entries of that owner are evicted. In each case
 * the least recently used entries go first.
 * Threads: any. Calls do I/O, so never call them on the replay path. Metrics: store_*.
 * docs/store.md is the user's page.
 */
#include "graphs/store_entry.h"
#include "base/status.h"

struct ngd_store;

#define NGD_STORE_NAME_MAX  96 /* bytes of an entry's file name: 64 digits, a dot, the kind; with the terminator */
#define NGD_STORE_ASIDE_MAX 32

struct ngd_store_params {
    const char *dir;
    uint64_t budget; /* bytes of entries; 0 = no limit */
};

/* Opens the store, and makes its directory if the parent exists. Refuses a link, a directory of another owner or one
 * that group or others may write, and one where no file can be written; the diagnosis says which. Removes temporary
 * files that dead writers left behind. */
ngd_status_t ngd_store_open(const struct ngd_store_params *params, struct ngd_store **store_p, struct ngd_diag *diag);
void ngd_store_close(struct ngd_store *store); /* NULL is fine */
/* Changes the budget. Entries beyond it are evicted when the next one is written. Any thread. */
void ngd_store_set_budget(struct ngd_store *store, uint64_t budget);
const char *ngd_store_dir(const struct ngd_store *store);

/* An entry in memory. */
struct ngd_store_blob {
    struct ngd_store_entry entry; /* points into data */
    uint8_t *data;
    size_t n;
};
void ngd_store_blob_fini(struct ngd_store_blob *blob);

/* The file name of an identity: "<64 digits>.<kind>". False: the identity has no kind. */
bool ngd_store_name(const char *identity, size_t n, char name[NGD_STORE_NAME_MAX]);

/* Reads an entry. FOUND fills *blob_p and counts as a use. Any other reason counts as a miss;
 * a bad entry is set aside. */
ngd_store_reason_t ngd_store_get(struct ngd_store *store, const char *identity, size_t n,
                                 struct ngd_store_blob *blob_p);
/* Reads an entry by name. Counts neither a use nor a miss. */
ngd_store_reason_t ngd_store_get_named(struct ngd_store *store, const char *name, struct ngd_store_blob *blob_p);
/* Counts a use of an entry without reading it. Returns false if there is none. */
bool ngd_store_touch(struct ngd_store *store, const char *identity, size_t n);
/* Sets an entry aside whose payload is of no use. reason: OUTDATED or DISTRUSTED. owner: an entry of another owner
 * stays; NULL: the owner does not matter. */
void ngd_store_set_aside(struct ngd_store *store, const char *identity, size_t n, ngd_store_reason_t reason,
                         const char *owner);
/* Writes an entry, and replaces the one of that name. */
ngd_status_t ngd_store_put(struct ngd_store *store, const struct ngd_store_entry *entry, struct ngd_diag *diag);
/*
 * Writes an entry for an owner, whose name is put into its notes, so that later processes count its bytes for this
 * owner too. A good entry of another owner stays as it is, and counts as used. QUOTA: the entry alone exceeds the
 * limit. RESOURCE_EXHAUSTED: only entries of owners with fewer bytes could be evicted.
 */
struct ngd_store_payer {
    const char *name; /* printable, without spaces; "": no owner */
    uint64_t limit;   /* bytes of all entries of that owner; 0: only the budget limits them */
};
ngd_status_t ngd_store_put_for(struct ngd_store *store, const struct ngd_store_entry *entry,
                               const struct ngd_store_payer *payer, struct ngd_diag *diag);
/* Adds an entry from its bytes, and refuses bad bytes. The entry counts for the owner that it names. */
ngd_status_t ngd_store_import(struct ngd_store *store, const void *data, size_t n, char name[NGD_STORE_NAME_MAX],
                              struct ngd_diag *diag);

struct ngd_store_item {
    char name[NGD_STORE_NAME_MAX];
    uint64_t bytes;
    int64_t used;   /* Unix time of the last use */
    uint32_t owner; /* internal, for scanning the directory */
};
/* Lists the files of entries/ that have an entry's name, most recently used first. Free the array with ngd_free. */
ngd_status_t ngd_store_list(struct ngd_store *store, struct ngd_store_item **items_p, uint32_t *n_p,
                            struct ngd_diag *diag);
/* Reads and checks every entry. Calls fn (which may be NULL) for each, then sets it aside if it is bad. */
ngd_status_t ngd_store_verify(struct ngd_store *store,
                              void (*fn)(void *ctx, const struct ngd_store_item *item, ngd_store_reason_t reason),
                              void *ctx, uint32_t *good_p, uint32_t *bad_p, struct ngd_diag *diag);
/* Remove one entry (NOT_FOUND: there is none), or all entries, notes and files that were set aside. */
ngd_status_t ngd_store_remove(struct ngd_store *store, const char *name, struct ngd_diag *diag);
ngd_status_t ngd_store_clear(struct ngd_store *store, uint32_t *removed_p, struct ngd_diag *diag);

/* Read and change notes: small texts under fixed names ("hot"), checked like entries. change() gets the old text ("" if
 * there is none or it is bad) and appends the new one. It runs under the directory's lock, so that daemons do not lose
 * each other's changes. */
bool ngd_store_note_read(struct ngd_store *store, const char *name, struct ngd_strbuf *text);
ngd_status_t ngd_store_note_change(struct ngd_store *store, const char *name,
                                   void (*change)(void *ctx, const char *text, struct ngd_strbuf *changed), void *ctx,
                                   struct ngd_diag *diag);

struct ngd_store_stats {
    uint64_t hits, misses, set_aside, writes, write_failures, evictions;
    uint64_t bytes, budget; /* bytes: at the last scan, and changed by this process since */
    uint32_t entries;
};
void ngd_store_stats(const struct ngd_store *store, struct ngd_store_stats *stats_p);
/* Bytes that an owner has, as far as this process knows, and how many of its entries were refused. */
struct ngd_store_held {
    uint64_t bytes, refused;
};
/* Takes no lock that is held during I/O. */
void ngd_store_held(struct ngd_store *store, const char *owner, struct ngd_store_held *held_p);

#endif
