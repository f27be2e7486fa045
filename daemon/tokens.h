/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TOKENS_H
#define NGD_DAEMON_TOKENS_H

/*
 * Bearer tokens: who a call says it is, in metadata `authorization: Bearer TOKEN`. There are two kinds:
 *
 *   listed   The daemon knows its SHA-256 hash from the option token-file (base/token_file.h). It gives the identity
 *            token:NAME.
 *   signed   A JSON Web Token of an issuer whose keys the daemon has (daemon/jwt.h). It gives jwt:ISSUER:SUB. Its
 *            signature is checked once: the tokens last used are kept by their hashes.
 *
 * To check a signature takes long, so how many JSON Web Tokens that are not right may come from where is bounded. What
 * was believed before is found without a check, and does not count.
 *
 * A token is looked up among the listed ones first. It outlives its line or its issuer's key while sessions hold it.
 * After a reload without that line or key, or after its expiry, it is over: its sessions end.
 *
 * Threads: any; set, look and destroy on the loop's. Memory: tokens are reference counted. Bounds:
 * NGD_TOKEN_FILE_BYTES, NGD_TOKENS_KEPT.
 */
#include "base/role.h"
#include "base/status.h"
#include "daemon/jwt.h"
#include <stdbool.h>
#include <stddef.h>

struct ngd_token;
struct ngd_token_set; /* what the files say */
struct ngd_tokens;    /* the set in use */

#define NGD_TOKEN_IDENTITY "token:" /* begins the names of identities */

#define NGD_TOKENS_KEPT        1024 /* signed tokens whose check is remembered */
/* Signatures that a sender's JSON Web Tokens may have checked for nothing: so many at once, and each second. */
#define NGD_TOKENS_WRONG_BURST 250
#define NGD_TOKENS_WRONG_RATE  50

/* What the options say. Borrowed. */
struct ngd_tokens_params {
    const char *path; /* of the listed tokens; "": none */
    struct ngd_jwt_params jwt;
};

/* Reads the files. CONFIG. */
ngd_status_t ngd_token_set_read(const struct ngd_tokens_params *params, struct ngd_token_set **set_p,
                                struct ngd_diag *diag);
void ngd_token_set_free(struct ngd_token_set *set); /* NULL is fine */
void ngd_token_set_log(const struct ngd_token_set *set, const char *path);

ngd_status_t ngd_tokens_create(struct ngd_token_set *set, struct ngd_tokens **tokens_p); /* takes the set */
void ngd_tokens_destroy(struct ngd_tokens *tokens);                                      /* NULL is fine */
/* Takes a new set. Tokens that it has too live on, with their new expiry; the others are over. */
void ngd_tokens_set(struct ngd_tokens *tokens, struct ngd_token_set *set);
/* For a timer: reads the issuers' keys again if their files have changed, and logs what came of it. True: other keys
 * may be in use. */
bool ngd_tokens_look(struct ngd_tokens *tokens, const struct ngd_jwt_params *params);

/* Returns the role that the lines of an identity's name give it; UNSET: none, or the identity is no token's. */
ngd_role_t ngd_tokens_role(struct ngd_tokens *tokens, const char *identity);

/*
 * Finds the token of an `authorization` header; *token_p is a reference. sender: the key of the connection's identity.
 * TOKEN_MALFORMED, TOKEN_UNKNOWN, TOKEN_EXPIRED. TOKEN_RATE: too many of this sender were not right, and the token was
 * not checked. The diagnosis does not repeat the header.
 */
ngd_status_t ngd_tokens_find(struct ngd_tokens *tokens, uint64_t sender, const char *header, size_t n,
                             struct ngd_token **token_p, struct ngd_diag *diag);
/* TOKEN_EXPIRED: it has expired, or its line is gone. Costs a look at the clock. */
ngd_status_t ngd_token_check(const struct ngd_token *token, struct ngd_diag *diag);
const char *ngd_token_identity(const struct ngd_token *token);      /* "token:NAME" or "jwt:ISSUER:SUB" */
struct ngd_groups *ngd_token_groups(const struct ngd_token *token); /* borrowed; NULL: it says nothing of groups */
struct ngd_token *ngd_token_ref(struct ngd_token *token);           /* NULL is fine */
struct ngd_token *ngd_token_unref(struct ngd_token *token);         /* returns NULL; NULL is fine */

#endif
