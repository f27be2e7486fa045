/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JWK_H
#define NGD_DAEMON_JWK_H

/*
 * Public keys in the form of JSON Web Keys (RFC 7517), and the signatures that they check (RFC 7518, RFC 8037).
 *
 * A key checks only algorithms of its own type, so a token cannot choose how its signature is read. There is no HMAC
 * and no "none". libcrypto computes.
 *
 * Threads: any. Memory: keys are reference counted. Bounds: NGD_JWK_FILE_BYTES and NGD_JWK_MAX of a file.
 */
#include "base/digest.h"
#include "base/status.h"
#include <stddef.h>

#define NGD_JWK_FILE_BYTES (256u << 10)
#define NGD_JWK_MAX        64
#define NGD_JWK_KID_MAX    256
#define NGD_JWK_ALGORITHMS "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA"

struct ngd_jws_alg; /* how a token is signed */
struct ngd_jwk;

struct ngd_jwk_set {
    struct ngd_jwk *keys[NGD_JWK_MAX];
    size_t n;
};

const struct ngd_jws_alg *ngd_jws_alg_find(const char *name); /* NULL: none of NGD_JWK_ALGORITHMS */

/*
 * Reads a key set's text. Keys of other types, for other uses or of other algorithms are left out. INVALID_ARGUMENT: it
 * is no key set, a key is not valid or too weak, is secret, or its id comes twice, or no key is left.
 */
ngd_status_t ngd_jwk_set_parse(const char *text, size_t n, struct ngd_jwk_set *set_p, struct ngd_diag *diag);
void ngd_jwk_set_fini(struct ngd_jwk_set *set);

struct ngd_jwk *ngd_jwk_ref(struct ngd_jwk *key);
struct ngd_jwk *ngd_jwk_unref(struct ngd_jwk *key); /* returns NULL; NULL is fine */
/* A key that left its set is withdrawn: what it signed counts no longer. */
void ngd_jwk_withdraw(struct ngd_jwk *key);
bool ngd_jwk_is_withdrawn(const struct ngd_jwk *key);
/* Whether two keys are the same in type, id, algorithm and numbers. */
bool ngd_jwk_same(const struct ngd_jwk *a, const struct ngd_jwk *b);

/* Whether the key may check the algorithm. kid: the id that a token names; NULL: it names none, and any key fits. */
bool ngd_jwk_fits(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const char *kid);
/* Checks a signature. The key must fit the algorithm. */
bool ngd_jwk_verify(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const void *text, size_t n,
                    const uint8_t *signature, size_t n_signature);

#endif
