/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's use of gRPC C-core. Messages, chunks and credentials have files of their own.
 *
 * A call owns a completion queue, which its caller's thread polls. So calls of several threads share only the channel.
 * A call keeps its status batch outstanding from the start. Events may come in any order; their tags sort them into
 * flags. Followed calls are in follower.c.
 */
#include "client/lib/channel.h"
#include "client/lib/address.h"
#include "client/lib/channel_int.h"
#include "client/lib/credentials.h"
#include "client/lib/error.h"
#include "client/lib/message.h"
#include "client/lib/token.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------------------------------------- */

static void copy_slice_text(grpc_slice slice, char *to, size_t room)
{
    size_t n = GRPC_SLICE_LENGTH(slice) < room - 1 ? GRPC_SLICE_LENGTH(slice) : room - 1;

    memcpy(to, GRPC_SLICE_START_PTR(slice), n);
    to[n] = '\0';
}

/* Returns the call's final status. The daemon puts the reason into the trailing metadata. */
int npugraph__final_status(struct npugraph__stream *st, struct npugraph_error *err)
{
    if (st->code == GRPC_STATUS_OK)
        return 0;
    if (err == NULL)
        return (int)st->code;
    err->code = (int)st->code;
    err->reason[0] = '\0';
    copy_slice_text(st->details, err->message, sizeof(err->message));
    for (size_t i = 0; i < st->trailing_md.count; i++)
        if (grpc_slice_str_cmp(st->trailing_md.metadata[i].key, "npugraph-reason") == 0)
            copy_slice_text(st->trailing_md.metadata[i].value, err->reason, sizeof(err->reason));
    if (st->code == GRPC_STATUS_UNAVAILABLE && err->reason[0] == '\0') /* the status is gRPC's, not the daemon's */
        npugraph__address_explain(st->channel->address, st->channel->tls, err);
    return err->code;
}

/* ---- one call ------------------------------------------------------------------------------------------ */

gpr_timespec npugraph__deadline_in(uint32_t timeout_ms)
{
    if (timeout_ms == 0)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
}

static int start_ops(struct npugraph__stream *st, const grpc_op *ops, size_t n, int tag, struct npugraph_error *err)
{
    grpc_call_error e = grpc_call_start_batch(st->call, ops, n, (void *)(intptr_t)tag, NULL);

    if (e != GRPC_CALL_OK)
        return npugraph__error(err, GRPC_STATUS_INTERNAL, "", "gRPC refused a batch: %s", grpc_call_error_to_string(e));
    st->pending[tag] = true;
    return 0;
}

/* Polls the call's queue until the event with this tag has come. At a timeout it cancels the call, so that its status
 * arrives. */
static void wait_for_event(struct npugraph__stream *st, int tag)
{
    gpr_timespec until = npugraph__deadline_in(st->timeout_ms);

    while (st->pending[tag]) {
        grpc_event ev = grpc_completion_queue_next(st->cq, until, NULL);

        if (ev.type == GRPC_QUEUE_TIMEOUT) {
            grpc_call_cancel_with_status(st->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                                         "no answer from the daemon within the client's timeout", NULL);
            until = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        } else if (ev.type == GRPC_OP_COMPLETE) {
            st->pending[(intptr_t)ev.tag] = false;
            st->ok[(intptr_t)ev.tag] = ev.success != 0;
        } else {
            return;
        }
    }
}

static size_t put_bearer(struct npugraph__channel *channel, grpc_metadata *md)
{
    size_t n = 0;

    pthread_mutex_lock(&channel->bearer_lock);
    npugraph__token_refresh(&channel->bearer, false);
    if (channel->bearer.header != NULL) {
        md[n].key = grpc_slice_from_static_string("authorization");
        md[n++].value = grpc_slice_from_copied_string(channel->bearer.header);
    }
    pthread_mutex_unlock(&channel->bearer_lock);
    return n;
}

/* Fills the metadata that calls carry. Returns their number. The caller drops them when their batch has started. */
size_t npugraph__put_metadata(struct npugraph__channel *channel, struct npugraph__call_head head,
                              grpc_metadata md[NPUGRAPH__METADATA_MAX])
{
    size_t n = 0;

    memset(md, 0, NPUGRAPH__METADATA_MAX * sizeof(md[0]));
    if (head.request_id != NULL) {
        md[n].key = grpc_slice_from_static_string("npugraph-request-id");
        md[n++].value = grpc_slice_from_copied_string(head.request_id);
    }
    if (!head.alone && channel->session_text[0] != '\0') {
        md[n].key = grpc_slice_from_static_string("npugraph-session");
        md[n++].value = grpc_slice_from_static_string(channel->session_text);
        md[n].key = grpc_slice_from_static_string("npugraph-session-token-bin");
        md[n++].value = grpc_slice_from_static_buffer(channel->token, sizeof(channel->token));
    }
    n += put_bearer(channel, md + n);
    return n + npugraph__put_trace(md + n);
}

grpc_op npugraph__status_op(struct npugraph__stream *st)
{
    grpc_op status;

    memset(&status, 0, sizeof(status));
    status.op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    status.data.recv_status_on_client.trailing_metadata = &st->trailing_md;
    status.data.recv_status_on_client.status = &st->code;
    status.data.recv_status_on_client.status_details = &st->details;
    return status;
}

static int stream_start(struct npugraph__channel *channel, struct npugraph__stream *st, struct npugraph__call_head head,
                        struct npugraph_error *err)
{
    grpc_metadata md[NPUGRAPH__METADATA_MAX];
    grpc_op first[2], status = npugraph__status_op(st);
    int rc;

    memset(first, 0, sizeof(first));
    first[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    first[0].data.send_initial_metadata.count = npugraph__put_metadata(channel, head, md);
    first[0].data.send_initial_metadata.metadata = md;
    first[1].op = GRPC_OP_RECV_INITIAL_METADATA;
    first[1].data.recv_initial_metadata.recv_initial_metadata = &st->initial_md;
    rc = start_ops(st, &status, 1, EV_STATUS, err);
    if (rc == 0)
        rc = start_ops(st, first, 2, EV_INITIAL, err);
    npugraph__drop_metadata(md, first[0].data.send_initial_metadata.count);
    return rc;
}

void npugraph__stream_init(struct npugraph__stream *st, struct npugraph__channel *channel, const char *method,
                           grpc_completion_queue *cq)
{
    atomic_fetch_add(&channel->refs, 1);
    st->timeout_ms = channel->timeout_ms;
    st->channel = channel;
    st->details = grpc_empty_slice();
    grpc_metadata_array_init(&st->initial_md);
    grpc_metadata_array_init(&st->trailing_md);
    st->cq = cq;
    st->call = grpc_channel_create_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                                        grpc_slice_from_static_string(method), NULL,
                                        gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

static int create_call(struct npugraph__channel *channel, const char *method, struct npugraph__stream **stream_p,
                       struct npugraph_error *err)
{
    struct npugraph__stream *st = calloc(1, sizeof(*st));

    if (st == NULL)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "out of memory");
    npugraph__stream_init(st, channel, method, grpc_completion_queue_create_for_next(NULL));
    *stream_p = st;
    return 0;
}

static int start_call(struct npugraph__channel *channel, const char *method, struct npugraph__call_head head,
                      struct npugraph__stream **stream_p, struct npugraph_error *err)
{
    struct npugraph__stream *st = NULL;
    int rc = create_call(channel, method, &st, err);

    if (rc != 0)
        return rc;
    rc = stream_start(channel, st, head, err);
    if (rc != 0) {
        npugraph__stream_close(st);
        return rc;
    }
    *stream_p = st;
    return 0;
}

int npugraph__channel_call(struct npugraph__channel *channel, const char *method, struct npugraph__stream **stream_p,
                           struct npugraph_error *err)
{
    return start_call(channel, method, (struct npugraph__call_head){0}, stream_p, err);
}

int npugraph__channel_call_alone(struct npugraph__channel *channel, const char *method,
                                 struct npugraph__stream **stream_p, struct npugraph_error *err)
{
    return start_call(channel, method, (struct npugraph__call_head){.alone = true}, stream_p, err);
}

void npugraph__stream_set_timeout(struct npugraph__stream *st, uint32_t timeout_ms)
{
    st->timeout_ms = timeout_ms;
}

/* Starts one batch with a send, a receive, or both, under one tag, and waits for it. */
static int transfer(struct npugraph__stream *st, const ProtobufCMessage *message, bool receive,
                    struct npugraph_error *err)
{
    grpc_byte_buffer *out = NULL;
    grpc_op ops[2];
    size_t n = 0;
    int tag = receive ? EV_RECV : EV_SEND, rc;

    memset(ops, 0, sizeof(ops));
    if (message != NULL) {
        rc = npugraph__pack(message, &out, err);
        if (rc != 0)
            return rc;
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = out;
    }
    if (receive && message == NULL && st->pending[EV_RECV]) { /* npugraph__stream_try_recv has begun it */
        wait_for_event(st, EV_RECV);
        return 0;
    }
    if (receive) {
        st->received = NULL;
        ops[n].op = GRPC_OP_RECV_MESSAGE;
        ops[n++].data.recv_message.recv_message = &st->received;
    }
    rc = start_ops(st, ops, n, tag, err);
    if (rc == 0)
        wait_for_event(st, tag);
    if (out != NULL)
        grpc_byte_buffer_destroy(out);
    return rc;
}

/* Waits for the status of a call that is over or cannot continue, and returns it. */
static int take_final_status(struct npugraph__stream *st, struct npugraph_error *err)
{
    wait_for_event(st, EV_STATUS);
    return npugraph__final_status(st, err);
}

int npugraph__stream_send(struct npugraph__stream *st, const ProtobufCMessage *message, struct npugraph_error *err)
{
    int rc = transfer(st, message, false, err);

    if (rc != 0 || st->ok[EV_SEND])
        return rc;
    rc = take_final_status(st, err);
    return rc != 0 ? rc : npugraph__error(err, GRPC_STATUS_UNAVAILABLE, "", "the daemon has ended the call");
}

int npugraph__stream_recv_raw(struct npugraph__stream *st, struct grpc_byte_buffer **raw_p, struct npugraph_error *err)
{
    int rc = transfer(st, NULL, true, err);

    *raw_p = st->received;
    st->received = NULL;
    return rc != 0 || *raw_p != NULL ? rc : take_final_status(st, err);
}

static int take_received(struct npugraph__stream *st, const ProtobufCMessageDescriptor *type,
                         ProtobufCMessage **message_p, struct npugraph_error *err)
{
    int rc;

    *message_p = NULL;
    if (st->received == NULL)
        return take_final_status(st, err);
    rc = npugraph__unpack(st->received, type, message_p, err);
    grpc_byte_buffer_destroy(st->received);
    st->received = NULL;
    return rc;
}

int npugraph__stream_recv(struct npugraph__stream *st, const ProtobufCMessageDescriptor *type,
                          ProtobufCMessage **message_p, struct npugraph_error *err)
{
    int rc = transfer(st, NULL, true, err);

    return rc != 0 ? rc : take_received(st, type, message_p, err);
}

/* Takes the events that have come. */
static void take_events(struct npugraph__stream *st)
{
    for (;;) {
        const grpc_event ev = grpc_completion_queue_next(st->cq, gpr_time_0(GPR_CLOCK_MONOTONIC), NULL);

        if (ev.type != GRPC_OP_COMPLETE)
            return;
        st->pending[(intptr_t)ev.tag] = false;
        st->ok[(intptr_t)ev.tag] = ev.success != 0;
    }
}

bool npugraph__stream_try_recv(struct npugraph__stream *st, const ProtobufCMessageDescriptor *type,
                               ProtobufCMessage **message_p, bool *over_p)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &st->received};

    *message_p = NULL;
    *over_p = !st->pending[EV_RECV] && start_ops(st, &op, 1, EV_RECV, NULL) != 0;
    take_events(st);
    if (*over_p || st->pending[EV_RECV])
        return *over_p;
    *over_p = st->received == NULL || npugraph__unpack(st->received, type, message_p, NULL) != 0;
    if (st->received != NULL)
        grpc_byte_buffer_destroy(st->received);
    st->received = NULL;
    return true;
}

int npugraph__stream_exchange(struct npugraph__stream *st, const ProtobufCMessage *message,
                              const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply_p,
                              struct npugraph_error *err)
{
    int rc = transfer(st, message, true, err);

    if (rc == 0)
        rc = take_received(st, type, reply_p, err);
    if (rc == 0 && *reply_p == NULL)
        rc = npugraph__error(err, GRPC_STATUS_UNAVAILABLE, "", "the daemon has ended the call");
    return rc;
}

int npugraph__stream_half_close(struct npugraph__stream *st, struct npugraph_error *err)
{
    grpc_op op;
    int rc;

    memset(&op, 0, sizeof(op));
    op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    rc = start_ops(st, &op, 1, EV_HALF_CLOSE, err);
    if (rc == 0)
        wait_for_event(st, EV_HALF_CLOSE);
    return rc;
}

void npugraph__stream_cancel(struct npugraph__stream *st)
{
    grpc_call_cancel(st->call, NULL);
}

void npugraph__stream_release(struct npugraph__stream *st)
{
    if (st->received != NULL)
        grpc_byte_buffer_destroy(st->received);
    grpc_call_unref(st->call);
    grpc_metadata_array_destroy(&st->initial_md);
    grpc_metadata_array_destroy(&st->trailing_md);
    grpc_slice_unref(st->details);
    npugraph__channel_close(st->channel);
}

void npugraph__stream_close(struct npugraph__stream *st)
{
    if (st == NULL)
        return;
    if (st->pending[EV_STATUS])
        grpc_call_cancel(st->call, NULL);
    st->timeout_ms = 0; /* cancelled batches always complete */
    for (int tag = EV_INITIAL; tag < EV_MAX; tag++)
        wait_for_event(st, tag);
    grpc_completion_queue_shutdown(st->cq);
    while (grpc_completion_queue_next(st->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type != GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(st->cq);
    npugraph__stream_release(st);
    free(st);
}

int npugraph__channel_ask(struct npugraph__channel *channel, const char *method, const ProtobufCMessage *request,
                          struct npugraph__stream **stream_p, struct npugraph_error *err)
{
    int rc = npugraph__channel_call(channel, method, stream_p, err);

    if (rc != 0)
        return rc;
    rc = npugraph__stream_send(*stream_p, request, err);
    if (rc == 0)
        rc = npugraph__stream_half_close(*stream_p, err);
    if (rc != 0)
        npugraph__stream_close(*stream_p);
    return rc;
}

/* Starts all of a call as one batch: its thread is woken once. */
static int start_unary(struct npugraph__stream *st, struct npugraph__call_head head, const ProtobufCMessage *request,
                       struct npugraph_error *err)
{
    grpc_metadata md[NPUGRAPH__METADATA_MAX];
    grpc_byte_buffer *out = NULL;
    grpc_op ops[6];
    int rc = npugraph__pack(request, &out, err);

    if (rc != 0)
        return rc;
    memset(ops, 0, sizeof(ops));
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].data.send_initial_metadata.count = npugraph__put_metadata(st->channel, head, md);
    ops[0].data.send_initial_metadata.metadata = md;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = out;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &st->initial_md;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &st->received;
    ops[5] = npugraph__status_op(st);
    rc = start_ops(st, ops, 6, EV_STATUS, err);
    npugraph__drop_metadata(md, ops[0].data.send_initial_metadata.count);
    grpc_byte_buffer_destroy(out);
    return rc;
}

static int unary_once(struct npugraph__channel *channel, const char *method, struct npugraph__call_head head,
                      const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                      ProtobufCMessage **response_p, struct npugraph_error *err)
{
    struct npugraph__stream *st = NULL;
    ProtobufCMessage *reply = NULL;
    int rc = create_call(channel, method, &st, err);

    if (rc != 0)
        return rc;
    rc = start_unary(st, head, request, err);
    if (rc == 0)
        rc = take_final_status(st, err);
    if (rc == 0 && st->received != NULL)
        rc = take_received(st, type, &reply, err);
    if (rc == 0 && reply == NULL)
        rc = npugraph__error(err, GRPC_STATUS_INTERNAL, "", "the daemon answered %s without a message", method);
    npugraph__stream_close(st);
    if (rc != 0)
        npugraph__free_message(reply);
    else
        *response_p = reply;
    return rc;
}

/* True if the token file has another token than the one of that number. */
static bool finds_new_token(struct npugraph__channel *channel, uint64_t number)
{
    bool is_new;

    pthread_mutex_lock(&channel->bearer_lock);
    npugraph__token_refresh(&channel->bearer, true);
    is_new = channel->bearer.number != number;
    pthread_mutex_unlock(&channel->bearer_lock);
    return is_new;
}

int npugraph__channel_unary(struct npugraph__channel *channel, const char *method, const char *request_id,
                            const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **response_p, struct npugraph_error *err)
{
    const struct npugraph__call_head head = {.request_id = request_id};
    const uint64_t number = npugraph__channel_token(channel);
    int rc = unary_once(channel, method, head, request, type, response_p, err);

    if (rc == GRPC_STATUS_UNAUTHENTICATED && number != 0 && finds_new_token(channel, number))
        rc = unary_once(channel, method, head, request, type, response_p, err);
    return rc;
}

void npugraph__free_message(void *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- the channel --------------------------------------------------------------------------------------- */

static grpc_channel *make_channel(const struct npugraph_connect_params *p, const char *address,
                                  grpc_channel_credentials *creds)
{
    grpc_arg args[7];
    grpc_channel_args all = {0, args};

#define INT_ARG(name, v) \
    args[all.num_args++] = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (v)}
    INT_ARG(GRPC_ARG_ENABLE_RETRIES, 0); /* the caller decides whether to repeat a capture or a step */
    INT_ARG(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, NPUGRAPH__MAX_MESSAGE);
    INT_ARG(GRPC_ARG_ENABLE_CHANNELZ, 0);
    INT_ARG(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
            1); /* a connection for each client, so that no client waits for another one's upload */
    if (strncmp(address, "unix", 4) != 0) {
        INT_ARG(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
        INT_ARG(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    }
#undef INT_ARG
    if (p->tls_server_name != NULL)
        args[all.num_args++] = (grpc_arg){.type = GRPC_ARG_STRING,
                                          .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                                          .value.string = (char *)p->tls_server_name};
    return grpc_channel_create(address, creds, &all);
}

static int open_channel(struct npugraph__channel *c, const struct npugraph_connect_params *params,
                        struct npugraph_error *err)
{
    grpc_channel_credentials *creds;
    int rc;

    c->timeout_ms = params->timeout_ms;
    c->tls = params->tls_ca != NULL || params->tls_cert != NULL;
    c->address = strdup(npugraph__address_choose(params->address));
    if (c->address == NULL)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "out of memory");
    rc = npugraph__address_check(c->address, err);
    if (rc == 0)
        rc = npugraph__token_open(&c->bearer, params->token_file, err);
    if (rc == 0)
        rc = npugraph__token_check(c->bearer.header, c->address, c->tls, err);
    if (rc == 0)
        rc = npugraph__credentials_make(params, &creds, err);
    if (rc != 0)
        return rc;
    c->grpc = make_channel(params, c->address, creds);
    grpc_channel_credentials_release(creds);
    return 0;
}

int npugraph__channel_open(const struct npugraph_connect_params *params, struct npugraph__channel **channel_p,
                           struct npugraph_error *err)
{
    struct npugraph__channel *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "out of memory");
    grpc_init();
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->bearer_lock, NULL);
    rc = open_channel(c, params, err);
    if (rc != 0) {
        npugraph__channel_close(c);
        return rc;
    }
    *channel_p = c;
    return 0;
}

void npugraph__channel_close(struct npugraph__channel *channel)
{
    if (channel == NULL || atomic_fetch_sub(&channel->refs, 1) != 1)
        return;
    if (channel->grpc != NULL)
        grpc_channel_destroy(channel->grpc);
    grpc_shutdown();
    npugraph__token_close(&channel->bearer);
    pthread_mutex_destroy(&channel->bearer_lock);
    free(channel->address);
    free(channel);
}

void npugraph__channel_set_session(struct npugraph__channel *channel, uint64_t id, const uint8_t *token)
{
    memcpy(channel->token, token, sizeof(channel->token));
    snprintf(channel->session_text, sizeof(channel->session_text), "%llu", (unsigned long long)id);
}

uint64_t npugraph__channel_token(struct npugraph__channel *channel)
{
    uint64_t number;

    pthread_mutex_lock(&channel->bearer_lock);
    npugraph__token_refresh(&channel->bearer, false);
    number = channel->bearer.number;
    pthread_mutex_unlock(&channel->bearer_lock);
    return number;
}

uint32_t npugraph__channel_timeout(const struct npugraph__channel *channel)
{
    return channel->timeout_ms;
}
