/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_who.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/peers.h"
#include "daemon/session.h"
#include "daemon/tokens.h"
#include <arpa/inet.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- metadata ------------------------------------------------------------------------------------------------ */

/* NULL if there is none; the slice stays the call's. */
static const grpc_slice *metadata_value(const struct rpc_call *call, const char *key)
{
    for (size_t i = 0; i < call->metadata.count; i++)
        if (grpc_slice_str_cmp(call->metadata.metadata[i].key, key) == 0)
            return &call->metadata.metadata[i].value;
    return NULL;
}

static size_t count_values(const struct rpc_call *call, const char *key)
{
    size_t n = 0;

    for (size_t i = 0; i < call->metadata.count; i++)
        n += grpc_slice_str_cmp(call->metadata.metadata[i].key, key) == 0;
    return n;
}

static bool metadata_text(const struct rpc_call *call, const char *key, char *to, size_t room)
{
    const grpc_slice *value = metadata_value(call, key);
    const size_t n = value ? GRPC_SLICE_LENGTH(*value) : 0;

    if (n >= room)
        return false;
    if (n)
        memcpy(to, GRPC_SLICE_START_PTR(*value), n);
    to[n] = '\0';
    return true;
}

bool ngd_call_metadata_is(struct ngd_call *pub, const char *key, const char *value)
{
    const grpc_slice *found = pub->transport ? NULL : metadata_value(rpc_call_of(pub), key);

    return found && grpc_slice_str_cmp(*found, value) == 0;
}

/* ---- identity ------------------------------------------------------------------------------------------------ */

ngd_status_t rpc_who_connected(struct rpc_call *call, struct ngd_diag *diag)
{
    struct ngd_daemon *d = call->pub.daemon;
    char *text = grpc_call_get_peer(call->core);
    struct ngd_peer peer = {0};
    int fd = -1;

    call->unknown_fd = -1;
    snprintf(call->pub.peer, sizeof(call->pub.peer), "%s", text);
    gpr_free(text);
    if (strncmp(call->pub.peer, "fd:", 3) == 0)
        fd = (int)strtol(call->pub.peer + 3, NULL, 10);
    if (fd >= 0 && ngd_peers_get(d->peers, fd, &peer) == NGD_OK) {
        snprintf(call->pub.peer, sizeof(call->pub.peer), "%s", peer.address);
        call->pub.identity = peer.identity;
        if (peer.identity->nobody && !peer.known)
            call->unknown_fd = fd;
    }
    return call->pub.identity ? NGD_OK : ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the connection has no identity");
}

/* Makes the token's identity the call's. Takes both references. */
static void take_identity(struct rpc_call *call, struct ngd_identity *identity, struct ngd_token *bearer)
{
    call->connection = call->pub.identity;
    call->pub.identity = identity;
    call->pub.bearer = bearer;
}

/* True for the identities of plaintext TCP from a loopback address. */
static bool is_loopback(const char *identity)
{
    char host[NGD_IDENTITY_MAX];
    struct in6_addr v6;
    struct in_addr v4;

    if (strncmp(identity, "tcp:", 4) != 0)
        return false;
    snprintf(host, sizeof(host), "%s", identity + 4);
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static ngd_status_t check_transport(const struct rpc_call *call, struct ngd_diag *diag)
{
    const struct ngd_identity *connection = call->pub.identity;

    if (connection->proven || is_loopback(connection->name) ||
        ngd_config_get(call->pub.daemon->options.allow_plaintext_tokens))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_PLAINTEXT,
                        "tokens are not accepted over plaintext TCP from %s, since others can read them: use TLS, or "
                        "set the daemon's option allow-plaintext-tokens. Replace this token",
                        call->pub.peer);
}

static ngd_status_t check_somebody(const struct rpc_call *call, struct ngd_diag *diag)
{
    if (!call->pub.identity->nobody)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_TOKEN_REQUIRED,
        "the connection shows no client certificate, and the call has no bearer token: send one of them "
        "(npugraphctl --token-file, or --tls-cert and --tls-key)");
}

static ngd_status_t identify_by_header(struct rpc_call *call, struct ngd_diag *diag)
{
    struct ngd_daemon *d = call->pub.daemon;
    struct ngd_identity *identity;
    struct ngd_token *bearer;
    const grpc_slice *value = metadata_value(call, "authorization");
    ngd_status_t status;

    if (!value)
        return check_somebody(call, diag);
    if (count_values(call, "authorization") > 1)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_MALFORMED,
                            "there are several values of metadata authorization; send one token");
    status = check_transport(call, diag);
    if (status == NGD_OK)
        status = ngd_tokens_find(d->tokens, call->pub.identity->key, (const char *)GRPC_SLICE_START_PTR(*value),
                                 GRPC_SLICE_LENGTH(*value), &bearer, diag);
    if (status != NGD_OK)
        return status;
    identity = ngd_identity_get(d->identities, ngd_token_identity(bearer));
    if (!identity) {
        ngd_token_unref(bearer);
        return rpc_no_memory(diag);
    }
    if (ngd_token_groups(bearer))
        ngd_identity_set_groups(identity, ngd_token_groups(bearer));
    take_identity(call, identity, bearer);
    return NGD_OK;
}

/* s: the session that the call names, or NULL; token: the session's, or NULL. */
static ngd_status_t identify_caller(struct rpc_call *call, struct ngd_session *s, const grpc_slice *token,
                                    struct ngd_diag *diag)
{
    struct ngd_token *bearer = NULL;

    if (s && token)
        bearer = ngd_session_bearer(s, GRPC_SLICE_START_PTR(*token), GRPC_SLICE_LENGTH(*token));
    if (!bearer)
        return identify_by_header(call, diag);
    take_identity(call, ngd_identity_ref(ngd_session_identity(s)), bearer);
    return ngd_token_check(bearer, diag);
}

static ngd_status_t check_role(const struct rpc_call *call, struct ngd_diag *diag)
{
    const ngd_role_t role = (ngd_role_t)atomic_load_explicit(&call->pub.identity->role, memory_order_relaxed);

    if (role >= call->pub.method->role)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_ROLE,
                        "%s has the role %s and may not call %s.%s, which needs the role %s: an administrator can give "
                        "it by the daemon's option role",
                        call->pub.identity->name, ngd_role_name(role), call->pub.method->service,
                        call->pub.method->name, ngd_role_name(call->pub.method->role));
}

/* ---- session ------------------------------------------------------------------------------------------------- */

/* Reads the session's number; 0: the call names none. */
static ngd_status_t read_session_id(const struct rpc_call *call, uint64_t *id_p, struct ngd_diag *diag)
{
    const struct ngd_method *method = call->pub.method;
    char text[32], *end;

    *id_p = 0;
    if (method->session == NGD_RPC_SESSION_NONE)
        return NGD_OK;
    if (!metadata_text(call, "npugraph-session", text, sizeof(text)))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "metadata npugraph-session is not a session's number");
    if (text[0] == '\0')
        return NGD_OK;
    *id_p = strtoull(text, &end, 10);
    if (*end == '\0' && *id_p != 0)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "metadata npugraph-session is \"%s\"; a session's number is decimal", text);
}

ngd_status_t rpc_who_calls(struct rpc_call *call, struct ngd_diag *diag)
{
    const grpc_slice *token = NULL;
    struct ngd_session *s = NULL;
    struct ngd_diag gone = {0};
    ngd_status_t status;
    uint64_t id;

    if (!metadata_text(call, "npugraph-request-id", call->pub.request_id, sizeof(call->pub.request_id)))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "metadata npugraph-request-id is longer than %d characters",
                            NGD_REQUEST_ID_MAX);
    status = read_session_id(call, &id, diag);
    if (status != NGD_OK)
        return status;
    if (id) {
        token = metadata_value(call, "npugraph-session-token-bin");
        (void)ngd_sessions_find(call->pub.daemon->sessions, id, &s, &gone);
    }
    status = identify_caller(call, s, token, diag); /* first: a client whose session ended with its token learns that */
    if (status == NGD_OK && call->unknown_fd >= 0)
        ngd_peers_know(call->pub.daemon->peers, call->unknown_fd);
    if (status == NGD_OK)
        status = check_role(call, diag);
    if (status == NGD_OK && !id && call->pub.method->session == NGD_RPC_SESSION_REQUIRED)
        status =
            ngd_diag_set(diag, NGD_ERR_SESSION_REQUIRED,
                         "%s needs a session: open one with Sessions.Open and send its id as metadata npugraph-session",
                         call->pub.method->path);
    if (status == NGD_OK && id && !s)
        status = ngd_diag_set(diag, gone.status, "%s", gone.text);
    if (status == NGD_OK && s)
        status = ngd_session_check_user(s, call->pub.identity, token ? GRPC_SLICE_START_PTR(*token) : NULL,
                                        token ? GRPC_SLICE_LENGTH(*token) : 0, diag);
    if (status == NGD_OK)
        call->pub.session = s;
    else
        ngd_session_unref(s);
    return status;
}

/* ---- counts -------------------------------------------------------------------------------------------------- */

static struct ngd_identity *connected(const struct rpc_call *call)
{
    return call->connection ? call->connection : call->pub.identity;
}

/* The front has counted the call for its connection's identity. */
ngd_status_t rpc_who_count(struct rpc_call *call, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_identity_check_calls(connected(call), diag);

    if (status != NGD_OK || !call->connection)
        return status;
    status = ngd_identity_take(call->pub.identity, NGD_QUOTA_CALLS, 1, diag);
    call->counted = status == NGD_OK;
    return status;
}

void rpc_who_withdrew(struct rpc_call *call)
{
    call->withdrawn = call->pub.identity != NULL;
    if (call->withdrawn)
        atomic_fetch_add(&connected(call)->withdrawn, 1);
}

void rpc_who_forget(struct rpc_call *call)
{
    if (call->withdrawn)
        atomic_fetch_sub(&connected(call)->withdrawn, 1);
    if (call->counted)
        ngd_identity_give(call->pub.identity, NGD_QUOTA_CALLS, 1);
    call->withdrawn = call->counted = false;
    call->pub.bearer = ngd_token_unref(call->pub.bearer);
    call->pub.identity = ngd_identity_unref(call->pub.identity);
    call->connection = ngd_identity_unref(call->connection);
}
