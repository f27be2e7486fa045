/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_OWNERS_H
#define NGD_GRAPHS_STORE_OWNERS_H

/*
 * The owners of the store's entries, and how many bytes each owner has.
 *
 * The owner is the first line of an entry's notes, "owner NAME". It only decides what is evicted, so it is read without
 * checking the entry's checksum. Threads: the caller synchronises.
 */
#include "graphs/store_entry.h"

#define NGD_STORE_OWNER_MAX 160 /* bytes of a name, with the terminator; longer ones are cut */
#define NGD_STORE_NOBODY    0   /* the index of entries without an owner */

struct ngd_store_owner {
    char name[NGD_STORE_OWNER_MAX];
    uint64_t bytes;
    uint64_t refused; /* entries that were larger than the owner's limit */
    uint32_t before;  /* eviction continues with the store's items below this index */
};

struct ngd_store_owners {
    struct ngd_store_owner *items; /* the first stands for entries without an owner */
    uint32_t n, cap;
};
void ngd_store_owners_fini(struct ngd_store_owners *owners);
/* Finds or adds a name; "": no owner. Returns false if there is no memory. */
bool ngd_store_owners_add(struct ngd_store_owners *owners, const char *name, uint32_t *index_p);
/* Finds an owner; NULL: it has no entries. */
struct ngd_store_owner *ngd_store_owners_find(const struct ngd_store_owners *owners, const char *name);

/* Reads the owner from an entry's notes; "": they do not begin with one. */
void ngd_store_owner_of_notes(const char *notes, size_t n, char owner[NGD_STORE_OWNER_MAX]);
/* Reads the owner from an entry's file; "": it has none, or the file cannot be read. */
void ngd_store_owner_of_file(int dir, const char *name, char owner[NGD_STORE_OWNER_MAX]);

#endif
