/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jwt.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/token_file.h"
#include "base/trusted_file.h"
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ISSUER_NAME_MAX 32

/* State of a file by stat: a difference means that it was changed. */
struct key_file_look {
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

struct jwt_issuer {
    char name[ISSUER_NAME_MAX + 1];
    char *url, *path;
    struct ngd_jwk_set keys;
    struct key_file_look loaded, last; /* used by the loop */
};

struct ngd_jwt_issuers {
    _Atomic uint32_t refs;
    struct jwt_issuer issuers[NGD_JWT_ISSUERS];
    size_t n;
    struct ngd_config_list audiences;
    char *claim, *groups_claim;
};

/* ---- options ------------------------------------------------------------------------------------------------ */

/* Splits NAME=VALUE. False: it has another form. */
static bool split_named(const char *entry, size_t *n_p, const char **value_p)
{
    const size_t n = strcspn(entry, "=");

    if (n > ISSUER_NAME_MAX || !ngd_token_name_ok(entry, n) || entry[n] == '\0' || entry[n + 1] == '\0')
        return false;
    *n_p = n;
    *value_p = entry + n + 1;
    return true;
}

/* Returns what the list has for a name; NULL: nothing. */
static const char *value_named(const struct ngd_config_list *list, const char *name, size_t n)
{
    for (size_t i = 0; i < list->n; i++)
        if (strncmp(list->items[i], name, n) == 0 && list->items[i][n] == '=')
            return list->items[i] + n + 1;
    return NULL;
}

/* Checks that each entry of a list is NAME=VALUE, with a name of its own that the other list has too. */
static ngd_status_t check_named(const char *option, const char *what, const struct ngd_config_list *list,
                                const char *other_option, const struct ngd_config_list *other, struct ngd_diag *diag)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *entry = list->items[i], *value;
        size_t n;

        if (!split_named(entry, &n, &value))
            return ngd_diag_set(
                diag, NGD_ERR_CONFIG,
                "%s: \"%.160s\" is not NAME=%s, with a name of at most %d letters, digits, dots, dashes "
                "and underscores",
                option, entry, what, ISSUER_NAME_MAX);
        if (value_named(list, entry, n) != value)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %.*s has two entries", option, (int)n, entry);
        if (!value_named(other, entry, n))
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %.*s has no entry in %s", option, (int)n, entry,
                                other_option);
    }
    return NGD_OK;
}

ngd_status_t ngd_jwt_params_check(const struct ngd_jwt_params *p, struct ngd_diag *diag)
{
    ngd_status_t status = check_named("jwt-issuer", "URL", p->issuers, "jwt-keys", p->keys, diag);

    if (status == NGD_OK)
        status = check_named("jwt-keys", "FILE", p->keys, "jwt-issuer", p->issuers, diag);
    if (status != NGD_OK)
        return status;
    if (p->issuers->n > NGD_JWT_ISSUERS)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "jwt-issuer: there are %zu issuers; at most %d can be given",
                            p->issuers->n, NGD_JWT_ISSUERS);
    if (p->issuers->n && !p->audiences->n)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "jwt-issuer needs jwt-audience: without it, a token that was made for another service would "
            "be taken here");
    if (p->issuers->n && !*p->claim)
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "jwt-claim: it is empty; name the claim that is the identity, as sub");
    if (*p->groups_claim && !ngd_jwt_path_ok(p->groups_claim))
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "jwt-groups-claim: \"%.160s\" is not a path of 1 to %d names of 1 to %d bytes with dots between "
            "them, such as realm_access.roles; a dot inside a name is written \\.",
            p->groups_claim, NGD_JWT_DEPTH, NGD_JWT_NAME_MAX);
    return NGD_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void look_at_key_file(const char *path, struct key_file_look *look_p)
{
    struct stat st;

    memset(look_p, 0, sizeof(*look_p));
    if (stat(path, &st) != 0)
        return;
    look_p->inode = st.st_ino;
    look_p->size = st.st_size;
    look_p->modified = st.st_mtim;
    look_p->changed = st.st_ctim;
}

static ngd_status_t read_keys(struct jwt_issuer *issuer, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    char *text;
    size_t n;
    ngd_status_t status;

    look_at_key_file(issuer->path, &issuer->loaded);
    issuer->last = issuer->loaded;
    status = ngd_trusted_file_read(issuer->path, NGD_TRUSTED_PUBLIC, NGD_JWK_FILE_BYTES, &text, &n, &why);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "jwt-keys: %s", why.text);
    status = ngd_jwk_set_parse(text, n, &issuer->keys, &why);
    ngd_free(text);
    if (status == NGD_OK)
        return NGD_OK;
    return ngd_diag_set(diag, status == NGD_ERR_NO_MEMORY ? status : NGD_ERR_CONFIG, "jwt-keys: %.300s: %s",
                        issuer->path, why.text);
}

/* Gives an issuer the keys that it had in `old`. */
static bool keep_keys(struct jwt_issuer *issuer, const struct ngd_jwt_issuers *old)
{
    for (size_t i = 0; old && i < old->n; i++) {
        const struct jwt_issuer *was = &old->issuers[i];

        if (strcmp(was->name, issuer->name) != 0 || strcmp(was->url, issuer->url) != 0)
            continue;
        for (size_t j = 0; j < was->keys.n; j++)
            issuer->keys.keys[issuer->keys.n++] = ngd_jwk_ref(was->keys.keys[j]);
        return true;
    }
    return false;
}

/* A key file that is not valid must not hold up those of other issuers. */
static ngd_status_t read_or_keep_keys(struct jwt_issuer *issuer, const struct ngd_jwt_issuers *old,
                                      struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    const ngd_status_t status = read_keys(issuer, &why);

    if (status == NGD_OK)
        return NGD_OK;
    if (!keep_keys(issuer, old))
        return ngd_diag_set(diag, status, "%s", why.text);
    ngd_warning("daemon", "the keys of the issuer %s were not read again, its old ones stay in use: %s", issuer->name,
                why.text);
    return NGD_OK;
}

static ngd_status_t read_issuers(struct ngd_jwt_issuers *issuers, const struct ngd_jwt_params *p,
                                 const struct ngd_jwt_issuers *old, struct ngd_diag *diag)
{
    issuers->claim = ngd_strdup(p->claim);
    issuers->groups_claim = ngd_strdup(p->groups_claim);
    if (!issuers->claim || !issuers->groups_claim || ngd_config_list_copy(p->audiences, &issuers->audiences) != NGD_OK)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for issuers of tokens");
    for (size_t i = 0; i < p->issuers->n; i++) {
        struct jwt_issuer *issuer = &issuers->issuers[issuers->n++];
        const char *entry = p->issuers->items[i], *url;
        size_t n;
        ngd_status_t status;

        split_named(entry, &n, &url);
        memcpy(issuer->name, entry, n);
        issuer->url = ngd_strdup(url);
        issuer->path = ngd_strdup(value_named(p->keys, entry, n));
        status = issuer->url && issuer->path ? read_or_keep_keys(issuer, old, diag)
                                             : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an issuer");
        if (status != NGD_OK)
            return status;
    }
    return NGD_OK;
}

ngd_status_t ngd_jwt_issuers_read(const struct ngd_jwt_params *params, const struct ngd_jwt_issuers *old,
                                  struct ngd_jwt_issuers **issuers_p, struct ngd_diag *diag)
{
    struct ngd_jwt_issuers *issuers;
    ngd_status_t status = ngd_jwt_params_check(params, diag);

    if (status != NGD_OK)
        return status;
    issuers = NGD_NEW(struct ngd_jwt_issuers);
    if (!issuers)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for issuers of tokens");
    atomic_init(&issuers->refs, 1);
    status = read_issuers(issuers, params, old, diag);
    if (status == NGD_OK)
        *issuers_p = issuers;
    else
        ngd_jwt_issuers_unref(issuers);
    return status;
}

struct ngd_jwt_issuers *ngd_jwt_issuers_ref(struct ngd_jwt_issuers *issuers)
{
    atomic_fetch_add_explicit(&issuers->refs, 1, memory_order_relaxed);
    return issuers;
}

struct ngd_jwt_issuers *ngd_jwt_issuers_unref(struct ngd_jwt_issuers *issuers)
{
    if (!issuers || atomic_fetch_sub_explicit(&issuers->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    for (size_t i = 0; i < issuers->n; i++) {
        ngd_free(issuers->issuers[i].url);
        ngd_free(issuers->issuers[i].path);
        ngd_jwk_set_fini(&issuers->issuers[i].keys);
    }
    ngd_config_list_fini(&issuers->audiences);
    ngd_free(issuers->claim);
    ngd_free(issuers->groups_claim);
    ngd_free(issuers);
    return NULL;
}

size_t ngd_jwt_issuers_count(const struct ngd_jwt_issuers *issuers)
{
    return issuers->n;
}

void ngd_jwt_issuers_log(const struct ngd_jwt_issuers *issuers)
{
    for (size_t i = 0; i < issuers->n; i++)
        ngd_notice("daemon", "%s: %zu keys of the issuer %s", issuers->issuers[i].path, issuers->issuers[i].keys.n,
                   issuers->issuers[i].name);
}

/* ---- another set comes into use ------------------------------------------------------------------------------- */

static bool same_audiences(const struct ngd_config_list *a, const struct ngd_config_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return a->n == b->n;
}

static void carry_keys_over(struct jwt_issuer *old, struct jwt_issuer *fresh)
{
    for (size_t i = 0; i < old->keys.n; i++)
        for (size_t j = 0; j < fresh->keys.n; j++)
            if (ngd_jwk_same(old->keys.keys[i], fresh->keys.keys[j])) {
                ngd_jwk_unref(fresh->keys.keys[j]);
                fresh->keys.keys[j] = ngd_jwk_ref(old->keys.keys[i]);
                break;
            }
}

static bool has_key(const struct ngd_jwt_issuers *issuers, const struct ngd_jwk *key)
{
    for (size_t i = 0; i < issuers->n; i++)
        for (size_t j = 0; j < issuers->issuers[i].keys.n; j++)
            if (issuers->issuers[i].keys.keys[j] == key)
                return true;
    return false;
}

void ngd_jwt_issuers_carry_over(struct ngd_jwt_issuers *old, struct ngd_jwt_issuers *fresh)
{
    const bool same = same_audiences(&old->audiences, &fresh->audiences) && strcmp(old->claim, fresh->claim) == 0 &&
                      strcmp(old->groups_claim, fresh->groups_claim) == 0;

    for (size_t i = 0; same && i < old->n; i++)
        for (size_t j = 0; j < fresh->n; j++)
            if (strcmp(old->issuers[i].name, fresh->issuers[j].name) == 0 &&
                strcmp(old->issuers[i].url, fresh->issuers[j].url) == 0)
                carry_keys_over(&old->issuers[i], &fresh->issuers[j]);
    for (size_t i = 0; i < old->n; i++)
        for (size_t j = 0; j < old->issuers[i].keys.n; j++)
            if (!has_key(fresh, old->issuers[i].keys.keys[j]))
                ngd_jwk_withdraw(old->issuers[i].keys.keys[j]);
}

bool ngd_jwt_issuers_look(struct ngd_jwt_issuers *issuers)
{
    bool changed = false, settled = true;

    for (size_t i = 0; i < issuers->n; i++) {
        struct jwt_issuer *issuer = &issuers->issuers[i];
        struct key_file_look now;

        look_at_key_file(issuer->path, &now);
        settled &= memcmp(&now, &issuer->last, sizeof(now)) == 0;
        changed |= memcmp(&now, &issuer->loaded, sizeof(now)) != 0;
        issuer->last = now;
    }
    if (!changed || !settled)
        return false;
    for (size_t i = 0; i < issuers->n; i++) /* a file that is not valid is told once */
        issuers->issuers[i].loaded = issuers->issuers[i].last;
    return true;
}

/* ---- a token's key ------------------------------------------------------------------------------------------ */

/* A key that may have signed a token, and whose it is. */
struct jwt_candidate {
    const struct jwt_issuer *issuer;
    struct ngd_jwk *key;
};

/* Returns the number of keys that fit; of an issuer with a key id at most one, so that only the issuers bound what a
 * token costs. */
static size_t find_candidates(const struct ngd_jwt_issuers *issuers, const struct ngd_jwt_header *header,
                              struct jwt_candidate found[NGD_JWT_ISSUERS])
{
    size_t n = 0;

    for (size_t i = 0; i < issuers->n; i++)
        for (size_t j = 0; j < issuers->issuers[i].keys.n; j++) {
            struct ngd_jwk *key = issuers->issuers[i].keys.keys[j];

            if (!ngd_jwk_fits(key, header->alg, header->has_kid ? header->kid : NULL))
                continue;
            if (n < NGD_JWT_ISSUERS)
                found[n] = (struct jwt_candidate){&issuers->issuers[i], key};
            n++;
        }
    return n;
}

static bool has_signed(const struct jwt_candidate *candidate, const struct ngd_jws_alg *alg, const char *text,
                       const struct ngd_jwt_parts *parts)
{
    const bool right = ngd_jwk_verify(candidate->key, alg, text, parts->n_signed, parts->signature, parts->n_signature);

    ngd_metric_row_add(ngd_metric_row(NGD_M_TOKEN_SIGNATURES, right ? "right" : "wrong"), 1);
    return right;
}

static bool is_issued_by(const json_t *claims, const struct jwt_issuer *issuer)
{
    const char *iss = json_string_value(json_object_get(claims, "iss"));

    return iss && strcmp(iss, issuer->url) == 0;
}

/*
 * Finds whose key signed a token, and reads the claims, which are not looked at before. Issuers may have the same key,
 * as the tenants of one provider do: then it is the one that the token names.
 */
static ngd_status_t find_signer(const struct ngd_jwt_issuers *issuers, const char *text,
                                const struct ngd_jwt_parts *parts, const struct ngd_jwt_header *header,
                                struct jwt_candidate *signer_p, json_t **claims_p, uint32_t *signatures_p,
                                struct ngd_diag *diag)
{
    struct jwt_candidate found[NGD_JWT_ISSUERS];
    const size_t n = find_candidates(issuers, header, found);
    ngd_status_t status;
    json_t *claims = NULL;

    if (n == 0)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN,
                            "no key of the daemon's jwt-keys has the JSON Web Token's key id and algorithm; is it the "
                            "right daemon, and has it the issuer's newest keys?");
    if (!header->has_kid && n > 1)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN,
                            "the JSON Web Token names no key (kid), and %zu keys of the daemon's jwt-keys have its "
                            "algorithm",
                            n);
    for (size_t i = 0; i < n && !(claims && is_issued_by(claims, signer_p->issuer)); i++) {
        ++*signatures_p;
        if (!has_signed(&found[i], header->alg, text, parts))
            continue;
        status = claims ? NGD_OK : ngd_jwt_read_claims(parts, &claims, diag);
        if (status != NGD_OK)
            return status;
        *signer_p = found[i];
    }
    *claims_p = claims;
    if (claims)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN, "the JSON Web Token's signature is not that of the key it names");
}

/* ---- a token's claims --------------------------------------------------------------------------------------- */

static ngd_status_t check_parties(const struct ngd_jwt_issuers *issuers, const struct jwt_issuer *issuer,
                                  const json_t *claims, struct ngd_diag *diag)
{
    const json_t *aud = json_object_get(claims, "aud");
    const char *text;
    ngd_status_t status = ngd_jwt_check_texts(aud, "aud", diag);

    if (status != NGD_OK)
        return status;
    if (!is_issued_by(claims, issuer))
        return ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN,
                            "the JSON Web Token's issuer (iss) is not %.200s, whose key signed it", issuer->url);
    for (size_t i = 0; (text = ngd_jwt_nth_text(aud, i)); i++)
        for (size_t j = 0; j < issuers->audiences.n; j++)
            if (strcmp(text, issuers->audiences.items[j]) == 0)
                return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN,
                        "the JSON Web Token is not for this daemon: its audience (aud) has none of jwt-audience, such "
                        "as %.200s",
                        issuers->audiences.items[0]);
}

static ngd_status_t check_times(const struct ngd_jwt_times *times, int64_t now, struct ngd_diag *diag)
{
    if (times->expires + NGD_JWT_LEEWAY <= now)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED,
                            "the JSON Web Token has expired; get a new one from its issuer");
    if (times->not_before > now + NGD_JWT_LEEWAY || times->issued > now + NGD_JWT_LEEWAY)
        return ngd_diag_set(
            diag, NGD_ERR_TOKEN_UNKNOWN,
            "the JSON Web Token's time (nbf or iat) has not come; are the clocks of the issuer and this "
            "machine right?");
    return NGD_OK;
}

/* Writes jwt:NAME:SUB. A name is refused, never cut or changed. */
static ngd_status_t read_identity(const struct ngd_jwt_issuers *issuers, const struct jwt_issuer *issuer,
                                  const json_t *claims, char identity[NGD_IDENTITY_MAX], struct ngd_diag *diag)
{
    const json_t *claim = json_object_get(claims, issuers->claim);
    const char *text = json_string_value(claim);
    const size_t n = text ? json_string_length(claim) : 0,
                 room = NGD_IDENTITY_MAX - 1 - strlen(NGD_JWT_IDENTITY) - strlen(issuer->name) - 1;

    if (n == 0 || n > room)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                            "the JSON Web Token's claim %.64s is not a text of 1 to %zu bytes", issuers->claim, room);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                                "byte %zu of the JSON Web Token's claim %.64s is not printable ASCII, or a space",
                                i + 1, issuers->claim);
    snprintf(identity, NGD_IDENTITY_MAX, NGD_JWT_IDENTITY "%s:%s", issuer->name, text);
    return NGD_OK;
}

static ngd_status_t read_group_claim(const struct ngd_jwt_issuers *issuers, const struct jwt_candidate *signer,
                                     const json_t *claims, int64_t issued, struct ngd_groups **groups_p,
                                     struct ngd_diag *diag)
{
    const json_t *claim = *issuers->groups_claim ? ngd_jwt_find_claim(claims, issuers->groups_claim) : NULL;
    ngd_status_t status = ngd_jwt_check_texts(claim, issuers->groups_claim, diag);
    struct ngd_groups *groups;
    const char *text;
    size_t bytes = 0;

    if (status != NGD_OK)
        return status;
    for (size_t i = 0; (text = ngd_jwt_nth_text(claim, i)); i++)
        bytes += strlen(text) + 1;
    groups = ngd_groups_create(signer->issuer->name, bytes, issued, signer->key);
    for (size_t i = 0; groups && (text = ngd_jwt_nth_text(claim, i)); i++)
        ngd_groups_add(groups, text);
    if (!groups)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a token's groups");
    *groups_p = groups;
    return NGD_OK;
}

static ngd_status_t read_belief(const struct ngd_jwt_issuers *issuers, const struct jwt_candidate *signer,
                                const json_t *claims, int64_t now, struct ngd_jwt_belief *belief, struct ngd_diag *diag)
{
    struct ngd_jwt_times times;
    ngd_status_t status = check_parties(issuers, signer->issuer, claims, diag);

    if (status == NGD_OK)
        status = ngd_jwt_read_times(claims, &times, diag);
    if (status == NGD_OK)
        status = check_times(&times, now, diag);
    if (status == NGD_OK)
        status = read_identity(issuers, signer->issuer, claims, belief->identity, diag);
    if (status == NGD_OK)
        status = read_group_claim(issuers, signer, claims, times.issued, &belief->groups, diag);
    if (status == NGD_OK)
        belief->expires = times.expires + NGD_JWT_LEEWAY;
    return status;
}

static ngd_status_t check_jwt_parts(const struct ngd_jwt_issuers *issuers, const char *text,
                                    const struct ngd_jwt_parts *parts, int64_t now, struct ngd_jwt_belief *belief,
                                    struct ngd_diag *diag)
{
    struct ngd_jwt_header header;
    struct jwt_candidate signer = {NULL, NULL};
    json_t *claims;
    ngd_status_t status = ngd_jwt_read_header(parts, &header, diag);

    if (status == NGD_OK)
        status = find_signer(issuers, text, parts, &header, &signer, &claims, &belief->signatures, diag);
    if (status != NGD_OK)
        return status;
    status = read_belief(issuers, &signer, claims, now, belief, diag);
    json_decref(claims);
    if (status == NGD_OK)
        belief->key = ngd_jwk_ref(signer.key);
    return status;
}

ngd_status_t ngd_jwt_check(const struct ngd_jwt_issuers *issuers, const char *text, size_t n, int64_t now,
                           struct ngd_jwt_belief *belief_p, struct ngd_diag *diag)
{
    struct ngd_jwt_belief belief = {.expires = 0};
    struct ngd_jwt_parts parts;
    ngd_status_t status = ngd_jwt_split(text, n, &parts, diag);

    belief_p->signatures = 0;
    if (status != NGD_OK)
        return status;
    status = check_jwt_parts(issuers, text, &parts, now, &belief, diag);
    ngd_jwt_parts_fini(&parts);
    if (status == NGD_OK)
        *belief_p = belief;
    else
        belief_p->signatures = belief.signatures;
    return status;
}

void ngd_jwt_belief_fini(struct ngd_jwt_belief *belief)
{
    belief->key = ngd_jwk_unref(belief->key);
    belief->groups = ngd_groups_unref(belief->groups);
}
