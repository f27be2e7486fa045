/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JWT_TEXT_H
#define NGD_DAEMON_JWT_TEXT_H

/*
 * The text of a signed JSON Web Token (RFC 7519, compact form of RFC 7515): HEADER.CLAIMS.SIGNATURE, each in base64url.
 * Here it is read, and nothing of it is believed.
 *
 * Diagnoses never repeat a piece of a token. All failures but NO_MEMORY are TOKEN_MALFORMED.
 * Threads: any. Bounds: NGD_JWT_MAX characters, JSON of NGD_JWT_DEPTH and NGD_JWT_VALUES.
 */
#include "base/status.h"
#include "daemon/jwk.h"

#define NGD_JWT_MAX      8192
#define NGD_JWT_DEPTH    8
#define NGD_JWT_VALUES   1024
#define NGD_JWT_NAME_MAX 255 /* bytes of a name in the path of a claim */

struct json_t;

/* The parts of a token. They lie in one allocation, which ngd_jwt_parts_fini frees. */
struct ngd_jwt_parts {
    uint8_t *room;
    const char *header, *claims; /* JSON */
    size_t n_header, n_claims;
    const uint8_t *signature;
    size_t n_signature;
    size_t n_signed; /* characters of the token that are signed */
};

struct ngd_jwt_header {
    const struct ngd_jws_alg *alg;
    bool has_kid;
    char kid[NGD_JWK_KID_MAX + 1];
};

struct ngd_jwt_times {
    int64_t expires, not_before, issued; /* seconds since 1970; the last two are 0 if the token has none */
};

/* Whether a bearer token may be a JSON Web Token: two dots part it into three, and the first begins an object. */
bool ngd_jwt_has_form(const char *text, size_t n);
ngd_status_t ngd_jwt_split(const char *text, size_t n, struct ngd_jwt_parts *parts_p, struct ngd_diag *diag);
void ngd_jwt_parts_fini(struct ngd_jwt_parts *parts);
ngd_status_t ngd_jwt_read_header(const struct ngd_jwt_parts *parts, struct ngd_jwt_header *header_p,
                                 struct ngd_diag *diag);
/* The caller frees *claims_p with json_decref. */
ngd_status_t ngd_jwt_read_claims(const struct ngd_jwt_parts *parts, struct json_t **claims_p, struct ngd_diag *diag);
ngd_status_t ngd_jwt_read_times(const struct json_t *claims, struct ngd_jwt_times *times_p, struct ngd_diag *diag);
/*
 * Returns the claim that a path leads to: names of objects inside one another, with dots between them, as
 * realm_access.roles. A backslash takes the next character for a part of the name. A URL whose host has a dot,
 * without a backslash, is one name, to the end of the path. NULL: there is none.
 */
const struct json_t *ngd_jwt_find_claim(const struct json_t *claims, const char *path);
/* False: a name in the path is empty or too long, there are more than NGD_JWT_DEPTH, or it ends in a backslash. */
bool ngd_jwt_path_ok(const char *path);
/* Returns the n-th text of a claim that is a text or an array of texts; NULL: there are no more. */
const char *ngd_jwt_nth_text(const struct json_t *claim, size_t n);
/* Checks that a claim is absent (NULL), a text, or an array of texts. */
ngd_status_t ngd_jwt_check_texts(const struct json_t *claim, const char *name, struct ngd_diag *diag);

#endif
