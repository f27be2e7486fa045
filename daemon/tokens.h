/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TOKENS_H
#define NGD_DAEMON_TOKENS_H

/*
 * Bearer tokens: who a call says it is, in metadata `authorization: Bearer TOKEN`. The daemon knows the tokens by their
 * SHA-256 hashes, from the option token-file (base/token_file.h). A token gives the identity token:NAME.
 *
 * A token outlives its line while sessions hold it. After a reload without that line, or after its expiry, it is over:
 * its sessions end.
 *
 * Threads: any; prepare and commit on the loop's. Memory: tokens are reference counted. Bounds: NGD_TOKEN_FILE_BYTES.
 */
#include "base/role.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct ngd_token;
struct ngd_token_set; /* what a file says */
struct ngd_tokens;    /* the set in use */

#define NGD_TOKEN_IDENTITY "token:" /* begins the names of identities */

/* Reads a file; "": no tokens. CONFIG. */
ngd_status_t ngd_token_set_read(const char *path, struct ngd_token_set **set_p, struct ngd_diag *diag);
void ngd_token_set_free(struct ngd_token_set *set); /* NULL is fine */
size_t ngd_token_set_size(const struct ngd_token_set *set);

ngd_status_t ngd_tokens_create(struct ngd_token_set *set, struct ngd_tokens **tokens_p); /* takes the set */
void ngd_tokens_destroy(struct ngd_tokens *tokens);                                      /* NULL is fine */
/* Takes a new set. Tokens that it has too live on, with their new expiry; the others are over. */
void ngd_tokens_set(struct ngd_tokens *tokens, struct ngd_token_set *set);

/* Returns the role that the lines of an identity's name give it; UNSET: none, or the identity is no token's. */
ngd_role_t ngd_tokens_role(struct ngd_tokens *tokens, const char *identity);

/*
 * Finds the token of an `authorization` header; *token_p is a reference. TOKEN_MALFORMED, TOKEN_UNKNOWN, TOKEN_EXPIRED.
 * The diagnosis does not repeat the header.
 */
ngd_status_t ngd_tokens_find(struct ngd_tokens *tokens, const char *header, size_t n, struct ngd_token **token_p,
                             struct ngd_diag *diag);
/* TOKEN_EXPIRED: it has expired, or its line is gone. Costs a look at the clock. */
ngd_status_t ngd_token_check(const struct ngd_token *token, struct ngd_diag *diag);
const char *ngd_token_identity(const struct ngd_token *token); /* "token:NAME" */
struct ngd_token *ngd_token_ref(struct ngd_token *token);      /* NULL is fine */
struct ngd_token *ngd_token_unref(struct ngd_token *token);    /* returns NULL; NULL is fine */

#endif
