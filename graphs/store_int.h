/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_INT_H
#define NGD_GRAPHS_STORE_INT_H

/* Internals of the store: its directories and operations on single files (store_dir.c), and the accounting of bytes and
 * eviction (store_room.c). */
#include "base/lock.h"
#include "base/metrics.h"
#include "graphs/store.h"
#include "graphs/store_owners.h"
#include <stdatomic.h>
#include <sys/types.h>

struct ngd_store {
    char *dir;
    _Atomic uint64_t budget;              /* bytes of entries; 0: no limit */
    int root, entries, notes, aside, tmp; /* descriptors of directories; -1 = not open */
    int lock_file;
    uid_t owner;
    _Atomic uint64_t next_tmp;
    _Atomic uint64_t hits, misses, set_aside, writes, write_failures, evictions, bytes;
    _Atomic uint32_t n_entries;
    struct ngd_mutex lock;        /* rank STORE: one of our threads evicts, or changes a note */
    struct ngd_mutex owners_lock; /* rank STORE_OWNERS */
    struct ngd_store_owners owners NGD_GUARDED_BY(owners_lock);
};

/* Opens and checks DIR and its subdirectories. */
ngd_status_t ngd_store_dir_open(struct ngd_store *store, struct ngd_diag *diag);
void ngd_store_dir_close(struct ngd_store *store);
/* Removes temporary files that no process is writing. */
void ngd_store_dir_sweep(struct ngd_store *store);

/* Reads a whole file. FOUND: the caller frees *data_p with ngd_free. mark: record the use. */
ngd_store_reason_t ngd_store_file_read(struct ngd_store *store, int dir, const char *name, bool mark, uint8_t **data_p,
                                       size_t *n_p);
/* Writes a file under a temporary name, fsyncs it, renames it to dir/name, and fsyncs dir. */
ngd_status_t ngd_store_file_write(struct ngd_store *store, int dir, const char *name, const void *data, size_t n,
                                  struct ngd_diag *diag);
/* Moves dir/name to aside/name.REASON, and removes the oldest files of aside/ if there are too many. */
void ngd_store_file_aside(struct ngd_store *store, int dir, const char *name, ngd_store_reason_t reason);
/* Calls fn for each file of a directory except "." and "..". */
ngd_status_t ngd_store_dir_each(int dir, void (*fn)(void *ctx, int dir, const char *name), void *ctx);

/* Returns true for "<64 digits>.<kind>". */
bool ngd_store_is_name(const char *name);
/* Adds the entry of that name, if there is one, to the bytes of the store and of its owner. */
void ngd_store_count(struct ngd_store *store, const char *name);
/* Subtracts the entry of that name, before it is removed or replaced. */
void ngd_store_uncount(struct ngd_store *store, const char *name);
/* Returns true if, by these counts, `more` bytes exceed the budget or the payer's limit. */
bool ngd_store_is_full(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more);
/* Scans the directory, and evicts entries if `more` bytes exceed a limit. RESOURCE_EXHAUSTED: only entries of owners
 * with fewer bytes could be evicted. */
ngd_status_t ngd_store_make_room(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more,
                                 struct ngd_diag *diag);
void ngd_store_note_refused(struct ngd_store *store, const char *owner);

/* Lock the store against other processes and threads. */
void ngd_store_lock(struct ngd_store *store) NGD_ACQUIRE(store->lock);
void ngd_store_unlock(struct ngd_store *store) NGD_RELEASE(store->lock);

#endif
