/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_IDENTITY_H
#define NGD_DAEMON_IDENTITY_H

/*
 * Who a client is, as the transport proves it, and what it holds:
 *
 *   uid:1000        a Unix socket's peer
 *   tls:NAME        the client certificate's URI name, else its DNS name, else its common name
 *   tcp:127.0.0.1   plaintext TCP, which proves nothing: everybody at that address is one identity
 *
 * Threads: any. Memory: counted references; an identity leaves the table with the last one.
 */
#include "base/lock.h"
#include "base/status.h"
#include "scheduler/share.h"
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define NGD_IDENTITY_MAX 160

typedef enum ngd_quota {
    NGD_QUOTA_SESSIONS,
    NGD_QUOTA_GRAPHS,
    NGD_QUOTA_SEQUENCES,
    NGD_QUOTA_BYTES,
    NGD_QUOTA_KV_BLOCKS, /* counted by the identity's share: scheduler/share.h */
    NGD_QUOTA_KINDS
} ngd_quota_t;

struct ngd_identity {
    char name[NGD_IDENTITY_MAX];
    bool admin;
    uint32_t refs; /* the table's lock */
    struct ngd_identities *table;
    struct ngd_identity *next;
    _Atomic uint64_t used[NGD_QUOTA_KINDS];
};

struct ngd_identities;

struct ngd_identities_params {
    const char *const *admins; /* names; copied by reference, must outlive the table */
    size_t n_admins;
    uint64_t limits[NGD_QUOTA_KINDS]; /* 0: none */
};

ngd_status_t ngd_identities_create(const struct ngd_identities_params *params, struct ngd_identities **table_p);
void ngd_identities_destroy(struct ngd_identities *table); /* NULL is fine; nobody may hold an identity */
/* Finds or makes; NULL when out of memory. */
struct ngd_identity *ngd_identity_get(struct ngd_identities *table, const char *name);
struct ngd_identity *ngd_identity_ref(struct ngd_identity *identity);
struct ngd_identity *ngd_identity_unref(struct ngd_identity *identity); /* returns NULL; NULL is fine */

/* What the identity of a share has of each quota, and may have (0: no limit). False: there is none of that name. */
struct ngd_quota_usage {
    uint64_t used, limit;
};
bool ngd_identities_usage(struct ngd_identities *table, const struct ngd_share_stats *share,
                          struct ngd_quota_usage usage_p[NGD_QUOTA_KINDS]);
/* "sessions", "graphs", ... */
const char *ngd_quota_name(ngd_quota_t kind);

/* QUOTA names what is used up; nothing is taken then. */
ngd_status_t ngd_identity_take(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n, struct ngd_diag *diag);
void ngd_identity_give(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n);

#endif
