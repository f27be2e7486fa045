/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_OWNERS_H
#define NGD_GRAPHS_STORE_OWNERS_H

/*
 * Whose the entries of the store are, and how many bytes each owner has.
 *
 * The owner is the first line of an entry's notes, "owner NAME". It decides what is evicted and nothing else, so it is
 * read without a look at the checksum. Threads: the caller's; nothing here has a lock.
 */
#include "graphs/store_entry.h"

#define NGD_STORE_OWNER_MAX 160 /* bytes of a name, with the terminator; longer ones are cut */
#define NGD_STORE_NOBODY    0   /* the index of what has no owner */

struct ngd_store_owner {
    char name[NGD_STORE_OWNER_MAX];
    uint64_t bytes;
    uint64_t refused; /* entries that were larger than the owner's limit */
    uint32_t before;  /* eviction goes on with the items before this index */
};

struct ngd_store_owners {
    struct ngd_store_owner *items; /* the first is nobody */
    uint32_t n, cap;
};
void ngd_store_owners_fini(struct ngd_store_owners *owners);
/* Finds or adds a name, "" for nobody. False: no memory. */
bool ngd_store_owners_add(struct ngd_store_owners *owners, const char *name, uint32_t *index_p);
/* NULL: it has nothing. */
struct ngd_store_owner *ngd_store_owners_find(const struct ngd_store_owners *owners, const char *name);

/* "" if the notes do not begin with an owner. */
void ngd_store_owner_of_notes(const char *notes, size_t n, char owner[NGD_STORE_OWNER_MAX]);
/* The same from the file of an entry; "" also if it cannot be read. */
void ngd_store_owner_of_file(int dir, const char *name, char owner[NGD_STORE_OWNER_MAX]);

#endif
