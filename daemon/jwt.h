/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JWT_H
#define NGD_DAEMON_JWT_H

/*
 * Issuers of JSON Web Tokens (OpenID Connect providers, Kubernetes) and what the daemon believes of their tokens.
 *
 * An issuer has a short name, its URL (the claim iss) and a file with its keys, so that no issuer can make tokens of
 * another one. A token that is believed gives the identity jwt:NAME:SUB, with the issuer's name and the claim of the
 * option jwt-claim. A name has no colon, so two issuers never make one identity, and neither makes that of another
 * kind.
 *
 * Threads: any. Memory: issuers are reference counted and never change. Bounds: NGD_JWT_ISSUERS, those of a key set
 * and those of a token.
 */
#include "base/config.h"
#include "daemon/groups.h"
#include "daemon/identity.h"
#include "daemon/jwk.h"
#include "daemon/jwt_text.h"

#define NGD_JWT_IDENTITY "jwt:" /* begins the names of identities */
#define NGD_JWT_ISSUERS  16
#define NGD_JWT_LEEWAY   30 /* seconds that clocks may differ */

/* What the options say. Borrowed. */
struct ngd_jwt_params {
    const struct ngd_config_list *issuers, *keys, *audiences; /* NAME=URL, NAME=FILE, texts */
    const char *claim, *groups_claim;                         /* groups_claim "": none */
};

/* A token that is believed. */
struct ngd_jwt_belief {
    char identity[NGD_IDENTITY_MAX];
    int64_t expires;           /* with the leeway */
    struct ngd_jwk *key;       /* that signed it; a reference */
    struct ngd_groups *groups; /* a reference */
    uint32_t signatures;       /* that were checked; all that is set if the token is refused */
};

struct ngd_jwt_issuers;

/* CONFIG: the options contradict each other. No file is read. */
ngd_status_t ngd_jwt_params_check(const struct ngd_jwt_params *params, struct ngd_diag *diag);
/*
 * Reads the key files. CONFIG names option, file and key. Without issuers there is nothing to read, and no token is
 * believed. old: an issuer whose file is not valid keeps the keys that it has there, and the log says so; NULL: that is
 * CONFIG.
 */
ngd_status_t ngd_jwt_issuers_read(const struct ngd_jwt_params *params, const struct ngd_jwt_issuers *old,
                                  struct ngd_jwt_issuers **issuers_p, struct ngd_diag *diag);
struct ngd_jwt_issuers *ngd_jwt_issuers_ref(struct ngd_jwt_issuers *issuers);
struct ngd_jwt_issuers *ngd_jwt_issuers_unref(struct ngd_jwt_issuers *issuers); /* returns NULL; NULL is fine */
size_t ngd_jwt_issuers_count(const struct ngd_jwt_issuers *issuers);
/*
 * Before `fresh` comes into use in the place of `old`: keys that are the same, of the same issuer, with the same
 * audiences and claims, stay, and so do the tokens that they signed. Other keys of `old` are withdrawn.
 */
void ngd_jwt_issuers_carry_over(struct ngd_jwt_issuers *old, struct ngd_jwt_issuers *fresh);
/* Whether the key files have changed since they were read, and have not changed since the previous look (timer). */
bool ngd_jwt_issuers_look(struct ngd_jwt_issuers *issuers);
/* Logs what was read. */
void ngd_jwt_issuers_log(const struct ngd_jwt_issuers *issuers);

/*
 * Checks a token of n characters at the time `now`, in seconds since 1970. TOKEN_MALFORMED: it has another form, or
 * lacks what it needs. TOKEN_UNKNOWN: its key, issuer or audience is not known, its signature is wrong, or its time has
 * not come. TOKEN_EXPIRED. The diagnosis repeats nothing of a token.
 */
ngd_status_t ngd_jwt_check(const struct ngd_jwt_issuers *issuers, const char *text, size_t n, int64_t now,
                           struct ngd_jwt_belief *belief_p, struct ngd_diag *diag);
void ngd_jwt_belief_fini(struct ngd_jwt_belief *belief);

#endif
