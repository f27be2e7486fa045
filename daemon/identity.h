/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_IDENTITY_H
#define NGD_DAEMON_IDENTITY_H

/*
 * Who a client is, as the transport proves it, and what it holds:
 *
 *   uid:1000        a Unix socket's peer
 *   tls-uri:NAME    the client certificate's first URI, else
 *   tls-dns:NAME    its first DNS name, else
 *   tls-cn:NAME     its common name, where tls-allow-cn is set
 *   tcp:127.0.0.1   plaintext TCP, which proves nothing: everybody at that address, or in that /64 of IPv6, is one
 *                   identity
 *
 * or as a bearer token does (daemon/tokens.h): token:NAME, jwt:ISSUER:SUB.
 *
 * Threads: any. Memory: counted references; an identity leaves the table with the last one.
 */
#include "base/charge.h"
#include "base/lock.h"
#include "base/status.h"
#include "daemon/answer_pool.h"
#include "daemon/groups.h"
#include "daemon/quotas.h"
#include "daemon/roles.h"
#include "scheduler/run/share.h"
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define NGD_IDENTITY_MAX     160
#define NGD_IDENTITY_BUCKETS 9 /* NGD_H2_BUCKETS of the front, which is above */

/* One count of an identity, for what is charged below the daemon. */
struct ngd_identity_payer {
    struct ngd_payer base;
    struct ngd_identity *identity;
    ngd_quota_t kind;
};

#define NGD_IDENTITY_NOBODY "tls" /* "tls:HOST" is charged with such connections; as of tcp: */

struct ngd_identity {
    char name[NGD_IDENTITY_MAX];
    _Atomic int role;   /* ngd_role_t: what its calls may do */
    _Atomic bool admin; /* role is NGD_ROLE_ADMIN */
    bool proven;        /* false: plaintext TCP, where others may be this identity too */
    bool nobody;        /* TLS without a certificate: a call is served only with a token, which gives it an identity */
    uint64_t key;       /* never 0; the same for the same name while the daemon lives, and not to be guessed */
    uint32_t refs;      /* the table's lock */
    struct ngd_groups *groups; /* that its newest token gave it; a reference, or NULL; the table's lock */
    struct ngd_identities *table;
    struct ngd_identity *next;
    _Atomic uint64_t used[NGD_QUOTA_KINDS], refused[NGD_QUOTA_KINDS];
    _Atomic uint64_t withdrawn; /* calls that their client took back, and that the daemon still has */
    struct ngd_identity_payer payers[NGD_QUOTA_KINDS];
    struct ngd_answer_pool answers;
    _Atomic int64_t trace_rate;                     /* of its spans: trace/trace.h */
    ngd_nsec_t frame_buckets[NGD_IDENTITY_BUCKETS]; /* the front's thread */
};

struct ngd_identities;

struct ngd_identities_params {
    struct ngd_role_rules roles;            /* borrowed while the table lives, or until ngd_identities_set */
    uint64_t limits[NGD_QUOTA_KINDS];       /* 0: none */
    uint64_t admin_limits[NGD_QUOTA_KINDS]; /* of administrators */
};

ngd_status_t ngd_identities_create(const struct ngd_identities_params *params, struct ngd_identities **table_p);
/* Changes limits and roles, also of identities that exist. Nothing is taken from an identity that has more. */
void ngd_identities_set(struct ngd_identities *table, const struct ngd_identities_params *params);
void ngd_identities_destroy(struct ngd_identities *table); /* NULL is fine; nobody may hold an identity */
/* Finds or makes; NULL when out of memory. */
struct ngd_identity *ngd_identity_get(struct ngd_identities *table, const char *name);
struct ngd_identity *ngd_identity_ref(struct ngd_identity *identity);
/* Takes over what a token says of the identity's groups, unless a token that was issued later, and still counts, has
 * said it. */
void ngd_identity_set_groups(struct ngd_identity *identity, struct ngd_groups *groups);
struct ngd_groups *ngd_identity_groups(const struct ngd_identity *identity); /* a reference; NULL: it has none */
struct ngd_identity *ngd_identity_unref(struct ngd_identity *identity);      /* returns NULL; NULL is fine */

/*
 * What the identity of a share has of each quota, may have (0: no limit), and how often more was refused. False: there
 * is none of that name.
 */
struct ngd_quota_usage {
    uint64_t used, limit, refused;
};
bool ngd_identities_usage(struct ngd_identities *table, const struct ngd_share_stats *share,
                          struct ngd_quota_usage usage_p[NGD_QUOTA_KINDS]);
/* "sessions", "graphs", ... */
const char *ngd_quota_name(ngd_quota_t kind);
bool ngd_quota_is_bytes(ngd_quota_t kind);
/* Of what all identities have together, `total`, those that are not administrators leave an eighth free. */
uint64_t ngd_identity_room(const struct ngd_identity *identity, uint64_t total);
uint64_t ngd_identity_limit(const struct ngd_identity *identity, ngd_quota_t kind); /* 0: none */

/* QUOTA names what is used up; nothing is taken then. */
ngd_status_t ngd_identity_take(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n, struct ngd_diag *diag);
/*
 * The front counts a call until its client has the answer, or takes the call back; from then on, until the daemon is
 * done with it, it counts as withdrawn. QUOTA: both together are more than the identity may have.
 */
ngd_status_t ngd_identity_check_calls(struct ngd_identity *identity, struct ngd_diag *diag);
/* As take, without a limit. */
void ngd_identity_hold(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n);
void ngd_identity_give(struct ngd_identity *identity, ngd_quota_t kind, uint64_t n);
/* For charges (base/charge.h), which keep the identity. */
struct ngd_payer *ngd_identity_payer(struct ngd_identity *identity, ngd_quota_t kind);
struct ngd_payers ngd_identity_payers(struct ngd_identity *identity); /* for objects of the scheduler */

#endif
