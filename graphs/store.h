/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_H
#define NGD_GRAPHS_STORE_H

/*
 * The store: what was expensive to make, below a directory, for the next start and for other daemons.
 *
 * Entries are content-addressed: an entry states everything that its payload depends on (its identity), and its name is
 * the digest of that. Nothing that is read is trusted: names, owners, sizes, checksums and identities are checked, what
 * is bad is moved to aside/ and counted by reason, and the caller makes it again. Nothing here is fatal.
 *
 * Files: DIR/entries/<digest>.<kind>, DIR/notes/<name>, DIR/aside/ (the newest NGD_STORE_ASIDE_MAX bad ones), DIR/tmp/,
 * DIR/lock (held while entries are evicted, or a note is changed). A file is written under a temporary name, fsynced,
 * renamed, and its directory fsynced, so a reader never sees a part of one, whoever is killed when. Several processes
 * may share a directory.
 * Bounds: past `budget` bytes, entries of nobody go first, and then those of the owner that has most, until nine tenths
 * are left. Past an owner's own limit, entries of that owner go and no others. Of each, those go first that were not
 * used for the longest time.
 * Threads: any; calls do I/O, so never on the replay path. Metrics: store_*.
 * docs/store.md is for people.
 */
#include "graphs/store_entry.h"
#include "base/status.h"

struct ngd_store;

#define NGD_STORE_NAME_MAX  96 /* of an entry's file: 64 digits, a dot, the kind; with the terminator */
#define NGD_STORE_ASIDE_MAX 32

struct ngd_store_params {
    const char *dir;
    uint64_t budget; /* bytes of entries; 0 = no limit */
};

/* Makes the directory if its parent exists. Refused with a sentence: a link, another owner, group or others may write,
 * a file that cannot be written. Temporary files that their writers left behind are removed. */
ngd_status_t ngd_store_open(const struct ngd_store_params *params, struct ngd_store **store_p, struct ngd_diag *diag);
void ngd_store_close(struct ngd_store *store); /* NULL is fine */
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

/* FOUND fills *blob_p and counts as a use; any other reason is a miss, which is counted, and a bad entry is set aside.
 */
ngd_store_reason_t ngd_store_get(struct ngd_store *store, const char *identity, size_t n,
                                 struct ngd_store_blob *blob_p);
/* The same by name; neither a use nor a miss. */
ngd_store_reason_t ngd_store_get_named(struct ngd_store *store, const char *name, struct ngd_store_blob *blob_p);
/* Counts as a use of an entry, if there is one; what it holds is not looked at. */
bool ngd_store_touch(struct ngd_store *store, const char *identity, size_t n);
/* The payload turned out to be of no use: OUTDATED, or DISTRUSTED. owner: an entry of somebody else stays; NULL: the
 * entry is set aside, whoever owns it. */
void ngd_store_set_aside(struct ngd_store *store, const char *identity, size_t n, ngd_store_reason_t reason,
                         const char *owner);
/* Writes an entry, replacing what has its name. */
ngd_status_t ngd_store_put(struct ngd_store *store, const struct ngd_store_entry *entry, struct ngd_diag *diag);
/*
 * The same for somebody, whose name stands in the entry's notes: what is on disk counts for the owner, also for the
 * next process. A good entry of another owner stays as it is, and counts as used. QUOTA: the entry alone is larger than
 * the limit. RESOURCE_EXHAUSTED: others would have to go who have less.
 */
struct ngd_store_payer {
    const char *name; /* printable, without spaces; "": nobody */
    uint64_t limit;   /* bytes of all entries of that name; 0: none but the budget */
};
ngd_status_t ngd_store_put_for(struct ngd_store *store, const struct ngd_store_entry *entry,
                               const struct ngd_store_payer *payer, struct ngd_diag *diag);
/* From an entry's bytes, which need not be good: refused then. It counts for the owner whom it names. */
ngd_status_t ngd_store_import(struct ngd_store *store, const void *data, size_t n, char name[NGD_STORE_NAME_MAX],
                              struct ngd_diag *diag);

struct ngd_store_item {
    char name[NGD_STORE_NAME_MAX];
    uint64_t bytes;
    int64_t used;   /* Unix time of the last use */
    uint32_t owner; /* the store's own, while it looks through the directory */
};
/* Files of entries/ that have an entry's name, last used first; free the array with ngd_free. */
ngd_status_t ngd_store_list(struct ngd_store *store, struct ngd_store_item **items_p, uint32_t *n_p,
                            struct ngd_diag *diag);
/* Reads and checks every entry; bad ones are set aside, after fn (which may be NULL) was told. */
ngd_status_t ngd_store_verify(struct ngd_store *store,
                              void (*fn)(void *ctx, const struct ngd_store_item *item, ngd_store_reason_t reason),
                              void *ctx, uint32_t *good_p, uint32_t *bad_p, struct ngd_diag *diag);
/* Removes one entry (NOT_FOUND when there is none), or all with what was set aside. */
ngd_status_t ngd_store_remove(struct ngd_store *store, const char *name, struct ngd_diag *diag);
ngd_status_t ngd_store_clear(struct ngd_store *store, uint32_t *removed_p, struct ngd_diag *diag);

/* Notes: small texts under fixed names ("hot"), checked like entries. change() gets the old text ("" when there is
 * none, or none that is good) and appends the new one; the directory's lock is held, so that daemons do not lose each
 * other's changes. */
bool ngd_store_note_read(struct ngd_store *store, const char *name, struct ngd_strbuf *text);
ngd_status_t ngd_store_note_change(struct ngd_store *store, const char *name,
                                   void (*change)(void *ctx, const char *text, struct ngd_strbuf *changed), void *ctx,
                                   struct ngd_diag *diag);

struct ngd_store_stats {
    uint64_t hits, misses, set_aside, writes, write_failures, evictions;
    uint64_t bytes, budget; /* bytes: as of the last look */
    uint32_t entries;
};
void ngd_store_stats(const struct ngd_store *store, struct ngd_store_stats *stats_p);
/* What an owner has, as of the last look, and how many entries were refused. Takes no lock that is held during I/O. */
struct ngd_store_held {
    uint64_t bytes, refused;
};
void ngd_store_held(struct ngd_store *store, const char *owner, struct ngd_store_held *held_p);

#endif
