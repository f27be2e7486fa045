/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_INT_H
#define NGD_GRAPHS_STORE_INT_H

/* Inside of the store: its directories and what is done with single files in them (store_dir.c). */
#include "base/lock.h"
#include "base/metrics.h"
#include "graphs/store.h"
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
    struct ngd_mutex lock; /* rank STORE: one of our threads evicts, or changes a note */
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

/* Between processes and threads. */
void ngd_store_lock(struct ngd_store *store) NGD_ACQUIRE(store->lock);
void ngd_store_unlock(struct ngd_store *store) NGD_RELEASE(store->lock);

#endif
