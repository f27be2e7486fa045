/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_GROUPS_H
#define NGD_DAEMON_GROUPS_H

/*
 * The groups that a token says its identity is in. Never changed once made. Once the key that signed the token is
 * withdrawn, they count no longer.
 * Threads: any. Memory: reference counted, one allocation of little more than the names take in the token. Bounds:
 * those of a token's text.
 */
#include "daemon/jwk.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_groups {
    _Atomic uint32_t refs;
    int64_t issued;            /* seconds since 1970: of two tokens of an identity, the later one counts */
    struct ngd_jwk *key;       /* that signed the token; a reference */
    size_t prefix, used, room; /* bytes of text: of "ISSUER:", of what is there, and at most */
    char text[];               /* "ISSUER:", then each group with its end */
};

/* Makes groups without a name, with room for so many bytes of names and their ends. NULL: no memory. */
struct ngd_groups *ngd_groups_create(const char *issuer, size_t bytes, int64_t issued, struct ngd_jwk *key);
/* Adds a name, for which there must be room. Only before others see the groups. */
void ngd_groups_add(struct ngd_groups *groups, const char *name);
struct ngd_groups *ngd_groups_ref(struct ngd_groups *groups);   /* NULL is fine */
struct ngd_groups *ngd_groups_unref(struct ngd_groups *groups); /* returns NULL; NULL is fine */
/* Whether `fresh` takes the place of what another token of the identity said, `old`, which may be NULL. */
bool ngd_groups_replace(const struct ngd_groups *fresh, const struct ngd_groups *old);
/* Whether the name of n bytes, "ISSUER:GROUP", is among them. groups: NULL has none. */
bool ngd_groups_have(const struct ngd_groups *groups, const char *name, size_t n);

#endif
