/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tokens.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/token_file.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define GONE 0 /* expiry of a token whose line is gone */

struct ngd_token {
    _Atomic uint32_t refs;
    _Atomic int64_t expires; /* seconds since 1970, NGD_TOKEN_NEVER or GONE */
    _Atomic int role;        /* ngd_role_t */
    struct ngd_digest hash;
    struct ngd_jwk *key;       /* that signed it; NULL: it is listed */
    struct ngd_groups *groups; /* of signed ones; or NULL */
    uint64_t used;             /* when it was last found, in counts of `kept`; its lock */
    char identity[];
};

/*
 * A hash table by the listed tokens' hashes. Its places depend on a secret, and entries are compared in constant time:
 * how long a search takes says nothing of what the hashes begin with.
 */
struct ngd_token_set {
    uint64_t secret;
    struct ngd_token **slots; /* a power of two of them, at most half full; NULL: empty */
    size_t n_slots, n;
    struct ngd_token **by_name; /* n of them, borrowed from slots */
    struct ngd_jwt_issuers *issuers;
};

/*
 * Signed tokens that were believed, by their hashes. A hash has WAYS places; a new token takes that of the one that was
 * used least recently. The secret keeps clients from choosing whose place that is.
 */
#define WAYS 4
struct kept_tokens {
    uint64_t secret, count;
    struct ngd_token *places[NGD_TOKENS_KEPT / WAYS][WAYS];
};

/* Senders share a counter if their keys, which they cannot choose, meet. */
#define SENDERS 256

struct ngd_tokens {
    _Atomic ngd_nsec_t wrong[SENDERS]; /* up to when the sender's tokens so far would last at NGD_TOKENS_WRONG_RATE */
    struct ngd_mutex lock;
    struct ngd_token_set *set NGD_GUARDED_BY(lock);
    struct kept_tokens kept NGD_GUARDED_BY(lock);
};

/* ---- a token ------------------------------------------------------------------------------------------------ */

struct ngd_token *ngd_token_ref(struct ngd_token *token)
{
    if (token)
        atomic_fetch_add_explicit(&token->refs, 1, memory_order_relaxed);
    return token;
}

struct ngd_token *ngd_token_unref(struct ngd_token *token)
{
    if (token && atomic_fetch_sub_explicit(&token->refs, 1, memory_order_acq_rel) == 1) {
        ngd_jwk_unref(token->key);
        ngd_groups_unref(token->groups);
        ngd_free(token);
    }
    return NULL;
}

/* prefix, name: of the identity. */
static struct ngd_token *make_bearer(const char *prefix, const char *name, const struct ngd_digest *hash,
                                     int64_t expires)
{
    const size_t room = strlen(prefix) + strlen(name) + 1;
    struct ngd_token *token = ngd_calloc(1, sizeof(*token) + room);

    if (!token)
        return NULL;
    atomic_init(&token->refs, 1);
    atomic_init(&token->expires, expires);
    atomic_init(&token->role, NGD_ROLE_UNSET);
    token->hash = *hash;
    snprintf(token->identity, room, "%s%s", prefix, name);
    return token;
}

const char *ngd_token_identity(const struct ngd_token *token)
{
    return token->identity;
}

struct ngd_groups *ngd_token_groups(const struct ngd_token *token)
{
    return token->groups;
}

ngd_status_t ngd_token_check(const struct ngd_token *token, struct ngd_diag *diag)
{
    const int64_t expires = atomic_load_explicit(&token->expires, memory_order_relaxed);

    if (token->key && ngd_jwk_is_withdrawn(token->key))
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED,
                            "the token of %s counts no longer: the daemon's keys, issuers or audiences changed; get a "
                            "new one from its issuer",
                            token->identity);
    if (expires == GONE)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED,
                            "the token of %s was revoked; ask an administrator for a new one", token->identity);
    if (expires <= (int64_t)time(NULL))
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED, "the token of %s has expired; %s", token->identity,
                            token->key ? "get a new one from its issuer" : "ask an administrator for a new one");
    return NGD_OK;
}

/* ---- a set -------------------------------------------------------------------------------------------------- */

static bool same_hash(const struct ngd_digest *a, const struct ngd_digest *b)
{
    uint8_t diff = 0;

    for (size_t i = 0; i < NGD_DIGEST_BYTES; i++)
        diff |= a->b[i] ^ b->b[i];
    return diff == 0;
}

/* Returns the place of a token, or the empty place where it belongs. */
static struct ngd_token **slot_of(const struct ngd_token_set *set, const struct ngd_digest *hash)
{
    size_t at = ngd_hash64(hash->b, sizeof(hash->b), set->secret) & (set->n_slots - 1);

    while (set->slots[at] && !same_hash(&set->slots[at]->hash, hash))
        at = (at + 1) & (set->n_slots - 1);
    return &set->slots[at];
}

static ngd_status_t count_row(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                              struct ngd_diag *diag)
{
    (void)row;
    (void)line;
    (void)n;
    (void)diag;
    ++*(size_t *)ctx;
    return NGD_OK;
}

static ngd_status_t add_row(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                            struct ngd_diag *diag)
{
    struct ngd_token_set *set = ctx;
    struct ngd_token **slot = slot_of(set, &row->hash), *token;

    (void)line;
    (void)n;
    if (*slot)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "an earlier line has this token already, for %s", (*slot)->identity);
    token = make_bearer(NGD_TOKEN_IDENTITY, row->name, &row->hash, row->expires);
    if (!token)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a token");
    atomic_store_explicit(&token->role, (int)row->role, memory_order_relaxed);
    *slot = token;
    set->n++;
    return NGD_OK;
}

static int compare_token_names(const void *a, const void *b)
{
    return strcmp((*(struct ngd_token *const *)a)->identity, (*(struct ngd_token *const *)b)->identity);
}

static void index_names(struct ngd_token_set *set)
{
    size_t n = 0;

    for (size_t i = 0; i < set->n_slots; i++)
        if (set->slots[i])
            set->by_name[n++] = set->slots[i];
    qsort(set->by_name, n, sizeof(set->by_name[0]), compare_token_names);
}

/* Lines of one name are one identity, which has one role. */
static ngd_status_t check_token_roles(const struct ngd_token_set *set, const char *path, struct ngd_diag *diag)
{
    for (size_t i = 1; i < set->n; i++) {
        const struct ngd_token *a = set->by_name[i - 1], *b = set->by_name[i];

        if (strcmp(a->identity, b->identity) == 0 && a->role != b->role)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: the lines of %s differ in their role", path,
                                a->identity + strlen(NGD_TOKEN_IDENTITY));
    }
    return NGD_OK;
}

static ngd_status_t fill_set(struct ngd_token_set *set, const char *path, const char *text, size_t n,
                             struct ngd_diag *diag)
{
    size_t rows = 0;
    ngd_status_t status = ngd_token_file_each(path, text, n, count_row, &rows, diag);

    if (status != NGD_OK)
        return status;
    for (set->n_slots = 8; set->n_slots < 2 * rows;)
        set->n_slots *= 2;
    set->slots = NGD_NEW_N(struct ngd_token *, set->n_slots);
    if (!set->slots || getrandom(&set->secret, sizeof(set->secret), 0) != sizeof(set->secret))
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %zu tokens", rows);
    status = ngd_token_file_each(path, text, n, add_row, set, diag);
    set->by_name = status == NGD_OK ? NGD_NEW_N(struct ngd_token *, set->n + 1) : NULL;
    if (status != NGD_OK)
        return status;
    if (!set->by_name)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %zu tokens", rows);
    index_names(set);
    return check_token_roles(set, path, diag);
}

static ngd_status_t read_listed(struct ngd_token_set *set, const char *path, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    char *text = NULL;
    size_t n = 0;

    if (*path)
        status = ngd_token_file_read(path, &text, &n, diag);
    if (status == NGD_OK)
        status = fill_set(set, path, text, n, diag);
    ngd_free(text);
    if (status != NGD_OK)
        ngd_diag_prefix(diag, "token-file: ");
    return status;
}

ngd_status_t ngd_token_set_read(const struct ngd_tokens_params *params, struct ngd_token_set **set_p,
                                struct ngd_diag *diag)
{
    struct ngd_token_set *set = NGD_NEW(struct ngd_token_set);
    ngd_status_t status;

    if (!set)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for tokens");
    status = read_listed(set, params->path, diag);
    if (status == NGD_OK)
        status = ngd_jwt_issuers_read(&params->jwt, NULL, &set->issuers, diag);
    if (status == NGD_OK)
        *set_p = set;
    else
        ngd_token_set_free(set);
    return status;
}

void ngd_token_set_free(struct ngd_token_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; set->slots && i < set->n_slots; i++)
        ngd_token_unref(set->slots[i]);
    ngd_free(set->slots);
    ngd_free(set->by_name);
    ngd_jwt_issuers_unref(set->issuers);
    ngd_free(set);
}

void ngd_token_set_log(const struct ngd_token_set *set, const char *path)
{
    if (*path)
        ngd_notice("daemon", "%s: %zu tokens", path, set->n);
    ngd_jwt_issuers_log(set->issuers);
}

/* ---- signed tokens that were believed ------------------------------------------------------------------------ */

static struct ngd_token **kept_places(struct kept_tokens *kept, const struct ngd_digest *hash)
{
    return kept->places[ngd_hash64(hash->b, sizeof(hash->b), kept->secret) % (NGD_TOKENS_KEPT / WAYS)];
}

/* Returns a reference; NULL: it is not kept. */
static struct ngd_token *find_kept(struct kept_tokens *kept, const struct ngd_digest *hash)
{
    struct ngd_token **places = kept_places(kept, hash);

    for (int i = 0; i < WAYS; i++)
        if (places[i] && same_hash(&places[i]->hash, hash)) {
            places[i]->used = ++kept->count;
            return ngd_token_ref(places[i]);
        }
    return NULL;
}

/* Keeps a token in the place of one with the same hash, of none, or of the one that was used least recently. Returns
 * the token that loses its place, for the caller to unref without the lock; or NULL. */
static struct ngd_token *keep_token(struct kept_tokens *kept, struct ngd_token *token)
{
    struct ngd_token **places = kept_places(kept, &token->hash), **to = &places[0], *old;

    for (int i = 0; i < WAYS; i++) {
        if (places[i] && same_hash(&places[i]->hash, &token->hash)) {
            to = &places[i];
            break;
        }
        if (*to && (!places[i] || places[i]->used < (*to)->used))
            to = &places[i];
    }
    old = *to;
    token->used = ++kept->count;
    *to = ngd_token_ref(token);
    return old;
}

/* ---- the set in use ----------------------------------------------------------------------------------------- */

ngd_status_t ngd_tokens_create(struct ngd_token_set *set, struct ngd_tokens **tokens_p)
{
    struct ngd_tokens *tokens = NGD_NEW(struct ngd_tokens);

    if (!tokens || getrandom(&tokens->kept.secret, sizeof(tokens->kept.secret), 0) != sizeof(tokens->kept.secret)) {
        ngd_token_set_free(set);
        ngd_free(tokens);
        return NGD_ERR_NO_MEMORY;
    }
    ngd_mutex_init(&tokens->lock, NGD_RANK_TOKENS);
    ngd_mutex_lock(&tokens->lock);
    tokens->set = set;
    ngd_mutex_unlock(&tokens->lock);
    *tokens_p = tokens;
    return NGD_OK;
}

void ngd_tokens_destroy(struct ngd_tokens *tokens)
{
    if (!tokens)
        return;
    ngd_mutex_lock(&tokens->lock);
    ngd_token_set_free(tokens->set);
    for (size_t i = 0; i < NGD_TOKENS_KEPT; i++)
        ngd_token_unref(tokens->kept.places[i / WAYS][i % WAYS]);
    ngd_mutex_unlock(&tokens->lock);
    ngd_mutex_fini(&tokens->lock);
    ngd_free(tokens);
}

/* Puts the old token into the place of the new one with the same name and hash, or ends it. */
static void carry_over(struct ngd_token *old, struct ngd_token_set *fresh)
{
    struct ngd_token **slot = slot_of(fresh, &old->hash);

    if (!*slot || strcmp((*slot)->identity, old->identity) != 0) {
        atomic_store_explicit(&old->expires, GONE, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&old->expires, atomic_load(&(*slot)->expires), memory_order_relaxed);
    atomic_store_explicit(&old->role, atomic_load(&(*slot)->role), memory_order_relaxed);
    ngd_token_unref(*slot);
    *slot = ngd_token_ref(old);
}

void ngd_tokens_set(struct ngd_tokens *tokens, struct ngd_token_set *set)
{
    struct ngd_token_set *old;

    ngd_mutex_lock(&tokens->lock);
    old = tokens->set;
    ngd_mutex_unlock(&tokens->lock);
    /* Without the lock, since large files take a while; others only read the old set. */
    for (size_t i = 0; i < old->n_slots; i++)
        if (old->slots[i])
            carry_over(old->slots[i], set);
    index_names(set);
    ngd_jwt_issuers_carry_over(old->issuers, set->issuers);
    ngd_mutex_lock(&tokens->lock);
    tokens->set = set;
    ngd_mutex_unlock(&tokens->lock);
    ngd_token_set_free(old);
}

/* Puts new issuers into the place of the old ones. */
static void set_issuers(struct ngd_tokens *tokens, struct ngd_jwt_issuers *fresh)
{
    struct ngd_jwt_issuers *old;

    ngd_mutex_lock(&tokens->lock);
    old = tokens->set->issuers;
    ngd_mutex_unlock(&tokens->lock);
    ngd_jwt_issuers_carry_over(old, fresh); /* without the lock: others only read the old ones */
    ngd_mutex_lock(&tokens->lock);
    tokens->set->issuers = fresh;
    ngd_mutex_unlock(&tokens->lock);
    ngd_jwt_issuers_log(fresh);
    ngd_jwt_issuers_unref(old);
}

bool ngd_tokens_look(struct ngd_tokens *tokens, const struct ngd_jwt_params *params)
{
    struct ngd_jwt_issuers *issuers, *fresh;
    struct ngd_diag diag = {0};

    ngd_mutex_lock(&tokens->lock);
    issuers = tokens->set->issuers; /* only the loop, which this is, puts others into their place */
    ngd_mutex_unlock(&tokens->lock);
    if (!ngd_jwt_issuers_look(issuers))
        return false;
    if (ngd_jwt_issuers_read(params, issuers, &fresh, &diag) != NGD_OK) {
        ngd_warning("daemon", "keys of issuers were not read again, the old ones stay in use: %s", diag.text);
        return false;
    }
    set_issuers(tokens, fresh);
    return true;
}

static int compare_with_name(const void *name, const void *token)
{
    return strcmp(name, (*(struct ngd_token *const *)token)->identity);
}

ngd_role_t ngd_tokens_role(struct ngd_tokens *tokens, const char *identity)
{
    struct ngd_token **found;
    int role = NGD_ROLE_UNSET;

    ngd_mutex_lock(&tokens->lock);
    found = bsearch(identity, tokens->set->by_name, tokens->set->n, sizeof(found[0]), compare_with_name);
    if (found)
        role = atomic_load_explicit(&(*found)->role, memory_order_relaxed);
    ngd_mutex_unlock(&tokens->lock);
    return (ngd_role_t)role;
}

/* Returns what follows "Bearer ", or NULL. The scheme's case does not matter (RFC 9110). */
static const char *bearer_of(const char *header, size_t n, size_t *token_len_p)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof(scheme) - 1;

    if (n <= skip || strncasecmp(header, scheme, skip) != 0)
        return NULL;
    while (skip < n && header[skip] == ' ')
        skip++;
    *token_len_p = n - skip;
    return header + skip;
}

#define WRONG_INTERVAL (NGD_SEC / NGD_TOKENS_WRONG_RATE)

static ngd_status_t check_sender(struct ngd_tokens *tokens, uint64_t sender, struct ngd_diag *diag)
{
    const ngd_nsec_t had = atomic_load_explicit(&tokens->wrong[sender % SENDERS], memory_order_relaxed),
                     wait = had - ngd_now() - (NGD_TOKENS_WRONG_BURST - 1) * WRONG_INTERVAL;

    if (wait <= 0)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_TOKEN_RATE,
        "more than %d JSON Web Tokens a second that were not right came from this client, so this one was "
        "not looked at: get a token that is right, and try again in %" PRId64 " ms",
        NGD_TOKENS_WRONG_RATE, wait / NGD_MSEC + 1);
}

/* Counts signatures that were checked for nothing. A token that needed no such check costs little. */
static void count_wrong(struct ngd_tokens *tokens, uint64_t sender, uint32_t signatures)
{
    _Atomic ngd_nsec_t *at = &tokens->wrong[sender % SENDERS];
    const ngd_nsec_t now = ngd_now();
    ngd_nsec_t had = atomic_load_explicit(at, memory_order_relaxed), from;

    do
        from = had > now ? had : now;
    while (!atomic_compare_exchange_weak_explicit(at, &had, from + signatures * WRONG_INTERVAL, memory_order_relaxed,
                                                  memory_order_relaxed));
}

/* Checks a signed token, and keeps it. */
static ngd_status_t believe_token(struct ngd_tokens *tokens, uint64_t sender, const struct ngd_jwt_issuers *issuers,
                                  const char *text, size_t n, const struct ngd_digest *hash, struct ngd_token **token_p,
                                  struct ngd_diag *diag)
{
    struct ngd_jwt_belief belief;
    struct ngd_token *token, *old;
    ngd_status_t status = check_sender(tokens, sender, diag);

    if (status != NGD_OK)
        return status;
    status = ngd_jwt_check(issuers, text, n, (int64_t)time(NULL), &belief, diag);
    if (status != NGD_OK) {
        if (belief.signatures > 0)
            count_wrong(tokens, sender, belief.signatures);
        return status;
    }
    token = make_bearer("", belief.identity, hash, belief.expires);
    if (!token) {
        ngd_jwt_belief_fini(&belief);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a token");
    }
    token->key = belief.key;
    token->groups = belief.groups;
    ngd_mutex_lock(&tokens->lock);
    old = keep_token(&tokens->kept, token);
    ngd_mutex_unlock(&tokens->lock);
    ngd_token_unref(old);
    *token_p = token;
    return NGD_OK;
}

/*
 * Finds a token of this text, a reference, among the listed and the kept ones; otherwise NULL, and *issuers_p are the
 * issuers to ask, a reference.
 */
static struct ngd_token *look_up(struct ngd_tokens *tokens, const struct ngd_digest *hash,
                                 struct ngd_jwt_issuers **issuers_p)
{
    struct ngd_token *token;

    ngd_mutex_lock(&tokens->lock);
    token = ngd_token_ref(*slot_of(tokens->set, hash));
    if (!token)
        token = find_kept(&tokens->kept, hash);
    if (token && token->key && ngd_jwk_is_withdrawn(token->key)) /* its key may be there again */
        token = ngd_token_unref(token);
    *issuers_p = token ? NULL : ngd_jwt_issuers_ref(tokens->set->issuers);
    ngd_mutex_unlock(&tokens->lock);
    return token;
}

static ngd_status_t hash_of_bearer(const char *text, size_t n, struct ngd_digest *hash_p, struct ngd_diag *diag)
{
    if (n > NGD_TOKEN_MAX && ngd_jwt_has_form(text, n)) {
        if (n > NGD_JWT_MAX)
            return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                                "the JSON Web Token has %zu characters; at most %d are taken: ask its issuer for fewer "
                                "claims",
                                n, NGD_JWT_MAX);
        ngd_digest_of(text, n, hash_p);
        return NGD_OK;
    }
    if (ngd_token_hash(text, n, hash_p, diag) == NGD_OK)
        return NGD_OK;
    if (diag)
        diag->status = NGD_ERR_TOKEN_MALFORMED;
    return NGD_ERR_TOKEN_MALFORMED;
}

ngd_status_t ngd_tokens_find(struct ngd_tokens *tokens, uint64_t sender, const char *header, size_t n,
                             struct ngd_token **token_p, struct ngd_diag *diag)
{
    struct ngd_jwt_issuers *issuers;
    struct ngd_digest hash;
    struct ngd_token *token;
    size_t len = 0;
    const char *text = bearer_of(header, n, &len);
    ngd_status_t status;

    if (!text)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                            "metadata authorization is not \"Bearer TOKEN\", the only form that is known here");
    status = hash_of_bearer(text, len, &hash, diag);
    if (status != NGD_OK)
        return status;
    token = look_up(tokens, &hash, &issuers);
    if (token)
        status = ngd_token_check(token, diag);
    else if (ngd_jwt_issuers_count(issuers) && ngd_jwt_has_form(text, len))
        status = believe_token(tokens, sender, issuers, text, len, &hash, &token, diag);
    else
        status =
            ngd_diag_set(diag, NGD_ERR_TOKEN_UNKNOWN,
                         "the token is not in the daemon's token-file; is it the right daemon, and was it reloaded?");
    ngd_jwt_issuers_unref(issuers);
    if (status != NGD_OK) {
        ngd_token_unref(token);
        return status;
    }
    *token_p = token;
    return NGD_OK;
}
