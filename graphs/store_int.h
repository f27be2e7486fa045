/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_INT_H
#define NGD_GRAPHS_STORE_INT_H

/* Inside of the store: its directories and what is done with single files in them (store_dir.c), and what its entries
 * take (store_room.c). */
#include "base/lock.h"
#include "base/metrics.h"
#include "graphs/store.h"
#include "graphs/store_owners.h"
#include <stdatomic.h>
#include <sys/types.h>

struct ngd_store {
    char *dir;
    uint64_t budget;
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

/* Opens and checks DIR and what is below it. */
ngd_status_t ngd_store_dir_open(struct ngd_store *store, struct ngd_diag *diag);
void ngd_store_dir_close(struct ngd_store *store);
/* Removes temporary files that no process writes. */
void ngd_store_dir_sweep(struct ngd_store *store);

/* Reads a whole file. FOUND gives *data_p (ngd_free). mark: remember the use. */
ngd_store_reason_t ngd_store_file_read(struct ngd_store *store, int dir, const char *name, bool mark, uint8_t **data_p,
                                       size_t *n_p);
/* Temporary name, write, fsync, rename to dir/name, fsync of dir. */
ngd_status_t ngd_store_file_write(struct ngd_store *store, int dir, const char *name, const void *data, size_t n,
                                  struct ngd_diag *diag);
/* Moves dir/name to aside/name.REASON, and forgets the oldest of what is there when it is too much. */
void ngd_store_file_aside(struct ngd_store *store, int dir, const char *name, ngd_store_reason_t reason);
/* Calls fn for each file of a directory but "." and "..". */
ngd_status_t ngd_store_dir_each(int dir, void (*fn)(void *ctx, int dir, const char *name), void *ctx);

/* "<64 digits>.<kind>" */
bool ngd_store_is_name(const char *name);
/* Counts the entry of that name, if there is one: its bytes for the store, and for its owner. */
void ngd_store_count(struct ngd_store *store, const char *name);
/* The same when it is about to go or to be replaced. */
void ngd_store_uncount(struct ngd_store *store, const char *name);
/* By what was counted, so many more bytes are too many for the budget or for the payer's limit. */
bool ngd_store_is_full(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more);
/* Looks through the directory, and evicts if that is so. RESOURCE_EXHAUSTED: only those could go who have less. */
ngd_status_t ngd_store_make_room(struct ngd_store *store, const struct ngd_store_payer *payer, uint64_t more,
                                 struct ngd_diag *diag);
void ngd_store_note_refused(struct ngd_store *store, const char *owner);

/* Between processes and threads. */
void ngd_store_lock(struct ngd_store *store) NGD_ACQUIRE(store->lock);
void ngd_store_unlock(struct ngd_store *store) NGD_RELEASE(store->lock);

#endif
