/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions.Open: the stream as long as which a session lives. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/audit.h"
#include "daemon/control/listener.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif

static ngd_status_t answer_opened(struct ngd_call *call, struct ngd_session *s, bool resumed)
{
    Npugraph__V1__SessionEvent event = NPUGRAPH__V1__SESSION_EVENT__INIT;
    Npugraph__V1__SessionOpened opened = NPUGRAPH__V1__SESSION_OPENED__INIT;
    char local_socket[NGD_ADDRESS_MAX];

    opened.session = ngd_session_id(s);
    opened.token.data = (uint8_t *)(uintptr_t)ngd_session_token(s);
    opened.token.len = NGD_SESSION_TOKEN_BYTES;
    opened.resumed = resumed;
    if (strncmp(call->peer, "unix:", 5) == 0 && ngd_listeners_local_path(call->daemon->listeners, local_socket))
        opened.local_socket = local_socket;
    opened.server_version = (char *)(uintptr_t)PACKAGE_VERSION;
    event.kind_case = NPUGRAPH__V1__SESSION_EVENT__KIND_OPENED;
    event.opened = &opened;
    return ngd_call_send(call, &event.base);
}

static void log_opened(const struct ngd_call *call, const struct ngd_session *s, const char *how)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};

    ngd_log_limited(&limit, NGD_LOG_INFO, "session", "session %" PRIu64 " %s by %s", ngd_session_id(s), how,
                    call->identity->name);
}

static void audit_opened(const struct ngd_call *call, const struct ngd_session *s)
{
    const struct ngd_audit_event event = {.identity = call->identity->name,
                                          .peer = call->peer,
                                          .method = call->method->path + 1,
                                          .session = ngd_session_id(s)};

    ngd_audit_write(call->daemon->audit, &event);
}

static void open_session(struct ngd_call *call, const Npugraph__V1__SessionOpen *open)
{
    const struct ngd_session_client client = {
        .stream = &call->stream, .identity = call->identity, .bearer = call->bearer, .peer = call->peer};
    const struct ngd_session_wish wish = {
        .client_name = open->client_name, .grace_ms = open->grace_ms, .moves = open->moves};
    struct ngd_sessions *all = call->daemon->sessions;
    struct ngd_session *s = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (call->state) {
        ngd_diag_set(&diag, NGD_ERR_ALREADY_EXISTS,
                     "this stream has its session already; open another stream for another one");
        ngd_call_fail(call, NGD_ERR_ALREADY_EXISTS, &diag);
        return;
    }
    if (open->resume)
        status = ngd_session_resume(all, &client, open->resume->session, open->resume->token.data,
                                    open->resume->token.len, &s, &diag);
    else if (ngd_daemon_state(call->daemon) != NGD_DAEMON_SERVING)
        status = ngd_diag_set(&diag, NGD_ERR_DRAINING, "the daemon is draining; use another one");
    else
        status = ngd_session_open(all, &client, &wish, &s, &diag);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    call->state = s;
    log_opened(call, s, open->resume ? "resumed" : "opened");
    audit_opened(call, s);
    if (NGD_FAULT(OPEN_LATE))
        nanosleep(&(struct timespec){.tv_nsec = 500 * NGD_MSEC}, NULL);
    status = answer_opened(call, s, open->resume != NULL);
    if (status == NGD_OK)
        ngd_session_greeted(s);
    else
        ngd_call_fail(call, status, NULL); /* cancelled() follows and leaves the session, as if the client had gone */
}

static void begin_session(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__SessionRequest *q = msg;
    Npugraph__V1__SessionEvent event = NPUGRAPH__V1__SESSION_EVENT__INIT;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (q->kind_case == NPUGRAPH__V1__SESSION_REQUEST__KIND_OPEN) {
        open_session(call, q->open);
    } else if (q->kind_case == NPUGRAPH__V1__SESSION_REQUEST__KIND_PING && call->state) {
        event.kind_case = NPUGRAPH__V1__SESSION_EVENT__KIND_PONG;
        event.pong = q->ping;
        status = ngd_call_send(call, &event.base);
        if (status != NGD_OK)
            ngd_call_fail(call, status, NULL);
    } else {
        ngd_diag_set(&diag, NGD_ERR_INVALID_ARGUMENT,
                     "the first message of a session's stream must be `open`, later ones `ping`");
        ngd_call_fail(call, NGD_ERR_INVALID_ARGUMENT, &diag);
    }
}

/* Leaves the session. True: the session finishes the call. */
static bool leave_session(struct ngd_call *call, bool broken)
{
    struct ngd_session *s = call->state;
    bool finished_later;

    if (!s)
        return false;
    call->state = NULL;
    finished_later = ngd_session_left(s, &call->stream, broken);
    ngd_session_unref(s);
    return finished_later;
}

static void half_closed(struct ngd_call *call, bool broken)
{
    bool finished_later = leave_session(call, broken);

    if (broken)
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
    else if (!finished_later)
        ngd_call_finish(call);
}

static void session_cancelled(struct ngd_call *call)
{
    leave_session(call, true);
}

const struct ngd_rpc_ops ngd_rpc_sessions_open = {
    .request = begin_session, .half_closed = half_closed, .cancelled = session_cancelled};
