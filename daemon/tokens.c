/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tokens.h"
#include "base/lock.h"
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
    char identity[sizeof(NGD_TOKEN_IDENTITY) + NGD_TOKEN_NAME_MAX];
};

/*
 * A hash table by the tokens' hashes. Its places depend on a secret, and entries are compared in constant time: how
 * long a search takes says nothing of what the hashes begin with.
 */
struct ngd_token_set {
    uint64_t secret;
    struct ngd_token **slots; /* a power of two of them, at most half full; NULL: empty */
    size_t n_slots, n;
    struct ngd_token **by_name; /* n of them, borrowed from slots */
};

struct ngd_tokens {
    struct ngd_mutex lock;
    struct ngd_token_set *set NGD_GUARDED_BY(lock);
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
    if (token && atomic_fetch_sub_explicit(&token->refs, 1, memory_order_acq_rel) == 1)
        ngd_free(token);
    return NULL;
}

const char *ngd_token_identity(const struct ngd_token *token)
{
    return token->identity;
}

ngd_status_t ngd_token_check(const struct ngd_token *token, struct ngd_diag *diag)
{
    const int64_t expires = atomic_load_explicit(&token->expires, memory_order_relaxed);

    if (expires == GONE)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED,
                            "the token of %s was revoked; ask an administrator for a new one", token->identity);
    if (expires <= (int64_t)time(NULL))
        return ngd_diag_set(diag, NGD_ERR_TOKEN_EXPIRED,
                            "the token of %s has expired; ask an administrator for a new one", token->identity);
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
    token = NGD_NEW(struct ngd_token);
    if (!token)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a token");
    atomic_init(&token->refs, 1);
    atomic_init(&token->expires, row->expires);
    atomic_init(&token->role, (int)row->role);
    token->hash = row->hash;
    snprintf(token->identity, sizeof(token->identity), NGD_TOKEN_IDENTITY "%s", row->name);
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

ngd_status_t ngd_token_set_read(const char *path, struct ngd_token_set **set_p, struct ngd_diag *diag)
{
    struct ngd_token_set *set = NGD_NEW(struct ngd_token_set);
    ngd_status_t status = NGD_OK;
    char *text = NULL;
    size_t n = 0;

    if (!set)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for tokens");
    if (*path)
        status = ngd_token_file_read(path, &text, &n, diag);
    if (status == NGD_OK)
        status = fill_set(set, path, text, n, diag);
    ngd_free(text);
    if (status != NGD_OK) {
        ngd_diag_prefix(diag, "token-file: ");
        ngd_token_set_free(set);
        return status;
    }
    *set_p = set;
    return NGD_OK;
}

void ngd_token_set_free(struct ngd_token_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; set->slots && i < set->n_slots; i++)
        ngd_token_unref(set->slots[i]);
    ngd_free(set->slots);
    ngd_free(set->by_name);
    ngd_free(set);
}

size_t ngd_token_set_size(const struct ngd_token_set *set)
{
    return set->n;
}

/* ---- the set in use ----------------------------------------------------------------------------------------- */

ngd_status_t ngd_tokens_create(struct ngd_token_set *set, struct ngd_tokens **tokens_p)
{
    struct ngd_tokens *tokens = NGD_NEW(struct ngd_tokens);

    if (!tokens) {
        ngd_token_set_free(set);
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
    ngd_mutex_lock(&tokens->lock);
    tokens->set = set;
    ngd_mutex_unlock(&tokens->lock);
    ngd_token_set_free(old);
}

ngd_role_t ngd_tokens_role(struct ngd_tokens *tokens, const char *identity)
{
    struct ngd_token key, *wanted = &key, **found;
    int role = NGD_ROLE_UNSET;

    if (strncmp(identity, NGD_TOKEN_IDENTITY, strlen(NGD_TOKEN_IDENTITY)) != 0 ||
        strlen(identity) >= sizeof(key.identity))
        return NGD_ROLE_UNSET;
    snprintf(key.identity, sizeof(key.identity), "%s", identity);
    ngd_mutex_lock(&tokens->lock);
    found = bsearch(&wanted, tokens->set->by_name, tokens->set->n, sizeof(found[0]), compare_token_names);
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

ngd_status_t ngd_tokens_find(struct ngd_tokens *tokens, const char *header, size_t n, struct ngd_token **token_p,
                             struct ngd_diag *diag)
{
    struct ngd_digest hash;
    struct ngd_token *token;
    size_t len = 0;
    const char *text = bearer_of(header, n, &len);
    ngd_status_t status;

    if (!text)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                            "metadata authorization is not \"Bearer TOKEN\", the only form that is known here");
    if (ngd_token_hash(text, len, &hash, diag) != NGD_OK) {
        if (diag)
            diag->status = NGD_ERR_TOKEN_MALFORMED;
        return NGD_ERR_TOKEN_MALFORMED;
    }
    ngd_mutex_lock(&tokens->lock);
    token = ngd_token_ref(*slot_of(tokens->set, &hash));
    ngd_mutex_unlock(&tokens->lock);
    if (!token)
        return ngd_diag_set(
            diag, NGD_ERR_TOKEN_UNKNOWN,
            "the token is not in the daemon's token-file; is it the right daemon, and was it reloaded?");
    status = ngd_token_check(token, diag);
    if (status != NGD_OK) {
        ngd_token_unref(token);
        return status;
    }
    *token_p = token;
    return NGD_OK;
}
