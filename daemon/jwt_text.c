/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jwt_text.h"
#include "base/base64url.h"
#include "base/mem.h"
#include "daemon/json_text.h"
#include <jansson.h>
#include <string.h>
#include <strings.h>

#define BRACE    'e'                   /* how "{" begins in base64url */
#define TIME_MAX INT64_C(253402300799) /* the end of the year 9999 */

static ngd_status_t jwt_malformed(struct ngd_diag *diag, const char *why)
{
    return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED, "the JSON Web Token %s", why);
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

bool ngd_jwt_has_form(const char *text, size_t n)
{
    size_t dots = 0;

    for (size_t i = 0; i < n; i++)
        dots += text[i] == '.';
    return dots == 2 && text[0] == BRACE;
}

ngd_status_t ngd_jwt_split(const char *text, size_t n, struct ngd_jwt_parts *parts_p, struct ngd_diag *diag)
{
    struct ngd_jwt_parts parts = {0};
    size_t n_one, n_two, room = 0;
    const char *two, *three;

    if (n > NGD_JWT_MAX)
        return ngd_diag_set(
            diag, NGD_ERR_TOKEN_MALFORMED,
            "the JSON Web Token has %zu characters; at most %d are taken: ask its issuer for fewer claims", n,
            NGD_JWT_MAX);
    if (!ngd_jwt_has_form(text, n))
        return jwt_malformed(diag, "has not three parts");
    two = (const char *)memchr(text, '.', n) + 1;
    n_one = (size_t)(two - text) - 1;
    three = (const char *)memchr(two, '.', n - n_one - 1) + 1;
    n_two = (size_t)(three - two) - 1;
    parts.n_signed = n_one + 1 + n_two;
    parts.room = ngd_malloc(NGD_BASE64URL_ROOM(n_one) + NGD_BASE64URL_ROOM(n_two) + NGD_BASE64URL_ROOM(n));
    if (!parts.room)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a token");
    parts.header = (char *)parts.room;
    room += NGD_BASE64URL_ROOM(n_one);
    parts.claims = (char *)parts.room + room;
    room += NGD_BASE64URL_ROOM(n_two);
    parts.signature = parts.room + room;
    if (!ngd_base64url_decode(text, n_one, parts.room, &parts.n_header) ||
        !ngd_base64url_decode(two, n_two, parts.room + (parts.claims - parts.header), &parts.n_claims) ||
        !ngd_base64url_decode(three, n - parts.n_signed - 1, parts.room + room, &parts.n_signature) ||
        parts.n_signature == 0) {
        ngd_free(parts.room);
        return jwt_malformed(diag, "has a part that is not base64url without padding, or no signature");
    }
    *parts_p = parts;
    return NGD_OK;
}

void ngd_jwt_parts_fini(struct ngd_jwt_parts *parts)
{
    ngd_free(parts->room);
    *parts = (struct ngd_jwt_parts){0};
}

/* name: "header" or "claims" */
static ngd_status_t read_jwt_object(const char *name, const char *text, size_t n, json_t **root_p,
                                    struct ngd_diag *diag)
{
    size_t values, depth;
    ngd_status_t status;

    ngd_json_measure(text, n, &values, &depth);
    if (values > NGD_JWT_VALUES || depth > NGD_JWT_DEPTH)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                            "the %s of the JSON Web Token has more than %d values, or is nested deeper than %d", name,
                            NGD_JWT_VALUES, NGD_JWT_DEPTH);
    status = ngd_json_object(text, n, root_p, NULL); /* its words may repeat a piece of the token */
    if (status == NGD_ERR_NO_MEMORY)
        return ngd_diag_set(diag, status, "no host memory for a token");
    if (status != NGD_OK)
        return ngd_diag_set(
            diag, NGD_ERR_TOKEN_MALFORMED,
            "the %s of the JSON Web Token is not an object in JSON, or has a name twice or a number too "
            "large",
            name);
    return NGD_OK;
}

/* ---- header ------------------------------------------------------------------------------------------------- */

/* Tokens for other ends, such as logout+jwt, are signed by the same keys. */
static bool is_access_type(const json_t *typ)
{
    static const char *const known[] = {"JWT", "at+jwt", "application/at+jwt"};

    for (size_t i = 0; json_is_string(typ) && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcasecmp(json_string_value(typ), known[i]) == 0)
            return true;
    return typ == NULL;
}

static ngd_status_t read_names(const json_t *root, struct ngd_jwt_header *header, struct ngd_diag *diag)
{
    const json_t *alg = json_object_get(root, "alg"), *kid = json_object_get(root, "kid");

    header->alg = json_is_string(alg) ? ngd_jws_alg_find(json_string_value(alg)) : NULL;
    if (!header->alg)
        return jwt_malformed(diag, "is not signed by one of " NGD_JWK_ALGORITHMS);
    if (json_object_get(root, "crit"))
        return jwt_malformed(diag, "has extensions that must be understood (crit); none are");
    if (!is_access_type(json_object_get(root, "typ")))
        return jwt_malformed(diag, "is of another type than JWT and at+jwt");
    if (kid && (!json_is_string(kid) || json_string_length(kid) > NGD_JWK_KID_MAX))
        return jwt_malformed(diag, "has a key id (kid) that is not a text, or too long");
    header->has_kid = kid != NULL;
    if (kid)
        memcpy(header->kid, json_string_value(kid), json_string_length(kid) + 1);
    return NGD_OK;
}

ngd_status_t ngd_jwt_read_header(const struct ngd_jwt_parts *parts, struct ngd_jwt_header *header_p,
                                 struct ngd_diag *diag)
{
    struct ngd_jwt_header header = {0};
    json_t *root;
    ngd_status_t status = read_jwt_object("header", parts->header, parts->n_header, &root, diag);

    if (status != NGD_OK)
        return status;
    status = read_names(root, &header, diag);
    json_decref(root);
    if (status == NGD_OK)
        *header_p = header;
    return status;
}

/* ---- claims ------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_jwt_read_claims(const struct ngd_jwt_parts *parts, json_t **claims_p, struct ngd_diag *diag)
{
    return read_jwt_object("claims", parts->claims, parts->n_claims, claims_p, diag);
}

/* True for the text of a URL as it is, https://example.org/groups, whose dots part no names: those of its host do not.
 */
static bool is_plain_url(const char *path)
{
    const char *at = path + strcspn(path, ".:");

    return strncmp(at, "://", 3) == 0 && !strchr(path, '\\') && at[3 + strcspn(at + 3, "./")] == '.';
}

/* Reads the next name of a path. Returns what follows it; NULL: the path is not right. */
static const char *next_name(const char *path, char name[NGD_JWT_NAME_MAX + 1])
{
    const bool url = is_plain_url(path);
    size_t n = 0;

    for (; *path && (url || *path != '.'); path++) {
        path += *path == '\\';
        if (*path == '\0' || n == NGD_JWT_NAME_MAX)
            return NULL;
        name[n++] = *path;
    }
    name[n] = '\0';
    if (n == 0 || (path[0] == '.' && path[1] == '\0'))
        return NULL;
    return path + (*path == '.');
}

bool ngd_jwt_path_ok(const char *path)
{
    char name[NGD_JWT_NAME_MAX + 1];
    size_t n = 0;

    do
        path = next_name(path, name);
    while (path && *path && ++n < NGD_JWT_DEPTH);
    return path && *path == '\0';
}

const json_t *ngd_jwt_find_claim(const json_t *claims, const char *path)
{
    char name[NGD_JWT_NAME_MAX + 1];

    while (claims && path && *path) {
        path = next_name(path, name);
        claims = path ? json_object_get(claims, name) : NULL;
    }
    return claims;
}

/* Reads seconds since 1970, which may have a fraction. False: the claim is there, and is no such number. */
static bool read_time_claim(const json_t *claims, const char *name, int64_t *time_p)
{
    const json_t *claim = json_object_get(claims, name);
    const double value = json_number_value(claim);

    if (!claim)
        return true;
    if (!json_is_number(claim) || !(value >= 0 && value <= (double)TIME_MAX))
        return false;
    *time_p = json_is_integer(claim) ? (int64_t)json_integer_value(claim) : (int64_t)value;
    return true;
}

ngd_status_t ngd_jwt_read_times(const json_t *claims, struct ngd_jwt_times *times_p, struct ngd_diag *diag)
{
    struct ngd_jwt_times times = {0};

    if (!json_object_get(claims, "exp"))
        return jwt_malformed(diag, "does not expire (it has no exp); only tokens that do are taken");
    if (!read_time_claim(claims, "exp", &times.expires) || !read_time_claim(claims, "nbf", &times.not_before) ||
        !read_time_claim(claims, "iat", &times.issued))
        return jwt_malformed(diag, "has a time (exp, nbf or iat) that is not a number of seconds since 1970");
    *times_p = times;
    return NGD_OK;
}

const char *ngd_jwt_nth_text(const json_t *claim, size_t n)
{
    return json_string_value(json_is_array(claim) ? json_array_get(claim, n) : n == 0 ? claim : NULL);
}

ngd_status_t ngd_jwt_check_texts(const json_t *claim, const char *name, struct ngd_diag *diag)
{
    const json_t *item;
    bool right = !claim || json_is_string(claim) || json_is_array(claim);
    size_t i;

    json_array_foreach(claim, i, item) right &= json_is_string(item);
    return right ? NGD_OK
                 : ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                                "the JSON Web Token's claim %.64s is not a text or an array of texts", name);
}
