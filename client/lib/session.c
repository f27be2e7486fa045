/* SPDX-License-Identifier: Apache-2.0 */
/* The session: a stream that stays open as long as the client lives. */
#include "client/lib/session.h"
#include "client/lib/error.h"
#include "proto/npugraph.pb-c.h"

#include <stdio.h>
#include <string.h>

#define GOODBYE_MS    2000
#define RENEW_MS      2000 /* for a resume: the call that found the token old waits for it */
#define RENEW_SECONDS 2    /* between two tries to resume a session with another bearer token */

static int take_opened(struct npugraph__session *s, struct npugraph__channel *channel,
                       const Npugraph__V1__SessionEvent *ev, struct npugraph_error *err)
{
    if (ev->kind_case != NPUGRAPH__V1__SESSION_EVENT__KIND_OPENED)
        return npugraph__error(err, 13, "", "the daemon answered the opening of a session with another message");
    if (ev->opened->token.len != NPUGRAPH__TOKEN_BYTES)
        return npugraph__error(err, 13, "", "the daemon opened a session with a token of %zu bytes; expected %d",
                               ev->opened->token.len, NPUGRAPH__TOKEN_BYTES);
    snprintf(s->version, sizeof(s->version), "%s", ev->opened->server_version);
    snprintf(s->local, sizeof(s->local), "%s", ev->opened->local_socket);
    s->id = ev->opened->session;
    memcpy(s->token, ev->opened->token.data, sizeof(s->token));
    npugraph__channel_set_session(channel, s->id, ev->opened->token.data);
    return 0;
}

static int exchange_open(struct npugraph__session *s, struct npugraph__channel *channel,
                         Npugraph__V1__SessionOpen *open, struct npugraph_error *err)
{
    Npugraph__V1__SessionRequest req = NPUGRAPH__V1__SESSION_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    s->bearer = npugraph__channel_token(channel);
    req.kind_case = NPUGRAPH__V1__SESSION_REQUEST__KIND_OPEN;
    req.open = open;
    rc = npugraph__channel_call(channel, "/npugraph.v1.Sessions/Open", &s->stream, err);
    if (rc == 0)
        rc = npugraph__stream_exchange(s->stream, &req.base, &npugraph__v1__session_event__descriptor, &reply, err);
    if (rc == 0)
        rc = take_opened(s, channel, (const Npugraph__V1__SessionEvent *)reply, err);
    npugraph__free_message(reply);
    return rc;
}

int npugraph__session_open(struct npugraph__session *s, struct npugraph__channel *channel, const char *client_name,
                           uint32_t grace_ms, struct npugraph_error *err)
{
    Npugraph__V1__SessionOpen open = NPUGRAPH__V1__SESSION_OPEN__INIT;

    open.client_name = (char *)(client_name != NULL ? client_name : "");
    open.grace_ms = grace_ms;
    open.moves = true; /* the calls of this library follow it: client.c */
    return exchange_open(s, channel, &open, err);
}

static Npugraph__V1__SessionResume resume_of(const struct npugraph__session *s)
{
    Npugraph__V1__SessionResume resume = NPUGRAPH__V1__SESSION_RESUME__INIT;

    resume.session = s->id;
    resume.token = (ProtobufCBinaryData){sizeof(s->token), (uint8_t *)(uintptr_t)s->token};
    return resume;
}

int npugraph__session_resume(struct npugraph__session *s, struct npugraph__channel *channel,
                             const struct npugraph__session *from, struct npugraph_error *err)
{
    Npugraph__V1__SessionOpen open = NPUGRAPH__V1__SESSION_OPEN__INIT;
    Npugraph__V1__SessionResume resume = resume_of(from);

    open.resume = &resume;
    return exchange_open(s, channel, &open, err);
}

void npugraph__session_abandon(struct npugraph__session *s)
{
    npugraph__stream_close(s->stream);
    s->stream = NULL;
}

struct npugraph__stream *npugraph__session_ask(const struct npugraph__session *s, struct npugraph__channel *channel)
{
    Npugraph__V1__SessionRequest req = NPUGRAPH__V1__SESSION_REQUEST__INIT;
    Npugraph__V1__SessionOpen open = NPUGRAPH__V1__SESSION_OPEN__INIT;
    Npugraph__V1__SessionResume resume = resume_of(s);
    struct npugraph__stream *stream = NULL;
    ProtobufCMessage *reply = NULL;
    int rc;

    open.resume = &resume;
    req.kind_case = NPUGRAPH__V1__SESSION_REQUEST__KIND_OPEN;
    req.open = &open;
    if (npugraph__channel_call_alone(channel, "/npugraph.v1.Sessions/Open", &stream, NULL) != 0)
        return NULL;
    npugraph__stream_set_timeout(stream, RENEW_MS);
    rc = npugraph__stream_exchange(stream, &req.base, &npugraph__v1__session_event__descriptor, &reply, NULL);
    npugraph__free_message(reply);
    if (rc == 0)
        return stream;
    npugraph__stream_close(stream);
    return NULL;
}

uint64_t npugraph__session_is_old(const struct npugraph__session *s, struct npugraph__channel *channel)
{
    struct timespec now;
    uint64_t bearer;

    if (s->stream == NULL || s->bearer == 0)
        return 0;
    bearer = npugraph__channel_token(channel);
    if (bearer == s->bearer)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return s->tried.tv_sec != 0 && now.tv_sec - s->tried.tv_sec < RENEW_SECONDS ? 0 : bearer;
}

void npugraph__session_renewed(struct npugraph__session *s, struct npugraph__stream *fresh, uint64_t bearer)
{
    if (fresh == NULL) {
        clock_gettime(CLOCK_MONOTONIC, &s->tried);
        return;
    }
    npugraph__stream_close(s->stream);
    s->stream = fresh;
    s->bearer = bearer;
    s->tried = (struct timespec){0};
}

void npugraph__session_close(struct npugraph__session *s)
{
    ProtobufCMessage *event = NULL;

    if (s->stream == NULL)
        return;
    npugraph__stream_set_timeout(s->stream, GOODBYE_MS);
    if (s->id != 0 && npugraph__stream_half_close(s->stream, NULL) == 0) {
        /* Reads to the end of the call, so that the daemon has freed all our objects when disconnect returns. */
        while (npugraph__stream_recv(s->stream, &npugraph__v1__session_event__descriptor, &event, NULL) == 0 &&
               event != NULL) {
            npugraph__free_message(event);
            event = NULL;
        }
    }
    npugraph__stream_close(s->stream);
    s->stream = NULL;
}
