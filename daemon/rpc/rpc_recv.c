/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a call that arrive: they are checked, unpacked into the call's arena and given to the handler. Also
 * decides when the next one is read. */
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/rpc_int.h"
#include "daemon/rpc/wire_check.h"
#include <string.h>

#define OBJECT_MAX 512 /* bytes of a name in the audit log */

/* Stands in the place of a request's descriptor for methods whose handlers read the bytes themselves. */
const ProtobufCMessageDescriptor ngd_rpc_raw__descriptor;

ngd_status_t rpc_no_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a message");
}

/* Lists the pieces of the message, in the arena. */
static ngd_status_t list_pieces(struct rpc_call *call, struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    size_t cap = call->message->data.raw.slice_buffer.count;
    struct ngd_piece *pieces = ngd_arena_alloc(&call->pub.arena, (cap + 1) * sizeof(*pieces));
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;

    if (!pieces)
        return rpc_no_memory(diag);
    if (call->message->data.raw.compression != GRPC_COMPRESS_NONE ||
        !grpc_byte_buffer_reader_init(&reader, call->message))
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "the message is compressed; send it as it is");
    while (raw->n_pieces < cap && grpc_byte_buffer_reader_peek(&reader, &slice)) {
        pieces[raw->n_pieces].data = GRPC_SLICE_START_PTR(*slice);
        pieces[raw->n_pieces++].n = GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    raw->pieces = pieces;
    return NGD_OK;
}

static ngd_status_t flatten(struct rpc_call *call, struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    uint8_t *p;

    if (raw->n_pieces <= 1) {
        raw->data = raw->n_pieces ? raw->pieces[0].data : (const uint8_t *)"";
        return NGD_OK;
    }
    if (raw->n > RPC_FLAT_ARENA)
        p = call->flat = ngd_malloc(raw->n);
    else
        p = ngd_arena_alloc(&call->pub.arena, raw->n);
    if (!p)
        return rpc_no_memory(diag);
    raw->data = p;
    for (size_t i = 0; i < raw->n_pieces; i++) {
        memcpy(p, raw->pieces[i].data, raw->pieces[i].n);
        p += raw->pieces[i].n;
    }
    return NGD_OK;
}

/* Charges a large message. It may be in memory twice: as it arrived, and in one piece. */
static ngd_status_t charge_message(struct rpc_call *call, size_t n, struct ngd_diag *diag)
{
    const bool twice = call->message->data.raw.slice_buffer.count > 1;

    if (n <= RPC_CHARGE_FROM)
        return NGD_OK;
    return ngd_charge_begin(&call->charge, ngd_identity_payer(call->pub.identity, NGD_QUOTA_HOST_BYTES),
                            twice ? 2 * (uint64_t)n : n, diag);
}

static ngd_status_t prepare_request(struct rpc_call *call, struct ngd_raw_message *raw, const void **msg_p,
                                    struct ngd_diag *diag)
{
    const struct ngd_method *method = call->pub.method;
    ngd_status_t status;

    raw->n = grpc_byte_buffer_length(call->message);
    if (method->limit && raw->n > method->limit)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "the request has %zu bytes; %s.%s takes at most %u",
                            raw->n, method->service, method->name, method->limit);
    status = charge_message(call, raw->n, diag);
    if (status == NGD_OK)
        status = list_pieces(call, raw, diag);
    *msg_p = raw;
    if (status == NGD_OK && (method->kind != NGD_RPC_CLIENT_STREAM || !ngd_method_is_raw(method)))
        status = flatten(call, raw, diag);
    if (status == NGD_OK && !ngd_method_is_raw(method))
        status = ngd_wire_unpack(method->request, raw->data, raw->n, &call->pub.arena, msg_p, diag);
    return status;
}

/* Copies a client's name, cut between two characters: lines of the audit log wait in memory. */
static const char *copy_object(struct ngd_arena *arena, const char *name)
{
    size_t n = strnlen(name, OBJECT_MAX + 1);
    char *copy;

    if (n > OBJECT_MAX)
        for (n = OBJECT_MAX; n > 0 && ((uint8_t)name[n] & 0xc0) == 0x80;)
            n--;
    copy = ngd_arena_alloc(arena, n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, n);
    copy[n] = '\0';
    return copy;
}

/* Keeps the name of what an audited call is about, for the time when it is answered. */
static void note_object(struct rpc_call *call, const void *msg)
{
    const struct ngd_method *method = call->pub.method;
    const ProtobufCFieldDescriptor *field;

    if (!call->pub.daemon->audit || !method->audit || !*method->audit)
        return;
    field = protobuf_c_message_descriptor_get_field_by_name(method->request, method->audit);
    if (field && field->type == PROTOBUF_C_TYPE_STRING && field->label != PROTOBUF_C_LABEL_REPEATED)
        call->pub.object = copy_object(&call->pub.life, *(char *const *)((const char *)msg + field->offset));
}

void rpc_deliver(struct rpc_call *call)
{
    struct ngd_raw_message raw = {0};
    const void *msg = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = prepare_request(call, &raw, &msg, &diag);

    if (status != NGD_OK && (status != NGD_ERR_INVALID_ARGUMENT || !call->pub.method->ops->refused)) {
        rpc_call_fail(call, status, &diag);
        return;
    }
    if (call->pub.method->kind != NGD_RPC_CLIENT_STREAM && call->pub.method->kind != NGD_RPC_DUPLEX)
        rpc_call_give_to_handler(call);
    if (status != NGD_OK) {
        call->pub.method->ops->refused(&call->pub, status, &diag);
        return;
    }
    note_object(call, msg);
    if (call->calls->begin(&call->pub, &raw, msg))
        call->pub.method->ops->request(&call->pub, msg);
}

void rpc_start_recv(struct rpc_call *call)
{
    grpc_op op = {0};

    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->received;
    rpc_call_start(call, &op, 1, &call->on_recv);
}

/* Handles the end of the client's messages: a half-close, or a broken connection. */
static void no_more(struct rpc_call *call, bool ok)
{
    bool broken = !ok || atomic_load(&call->pub.cancelled) || grpc_call_failed_before_recv_message(call->core);
    bool over;

    ngd_mutex_lock(&call->lock);
    over = call->state.end != RPC_END_OPEN;
    ngd_mutex_unlock(&call->lock);
    if (over)
        return;
    if (call->pub.method->kind != NGD_RPC_LOCKSTEP)
        call->pub.method->ops->half_closed(&call->pub, broken);
    else if (broken)
        rpc_call_fail(call, NGD_ERR_CANCELLED, NULL);
    else
        rpc_call_end(call, NGD_OK, "", NULL);
}

/* Takes the message, and marks the call busy. False: the stream is not open for it any more. */
static bool take_message(struct rpc_call *call, ngd_status_t *refuse_p)
{
    const struct ngd_method *method = call->pub.method;
    bool open;

    *refuse_p = NGD_OK;
    ngd_mutex_lock(&call->lock);
    open = rpc_state_take(&call->state);
    if (open && method->kind == NGD_RPC_LOCKSTEP) {
        if (!method->while_draining && ngd_daemon_state(call->pub.daemon) != NGD_DAEMON_SERVING) {
            *refuse_p = NGD_ERR_DRAINING;
        } else if (!rpc_call_count_busy(call)) {
            *refuse_p = NGD_ERR_SESSION_MOVED;
        }
    }
    ngd_mutex_unlock(&call->lock);
    return open;
}

/* CLIENT_STREAM and DUPLEX read on when the handler returns; LOCKSTEP when it answers. */
static void read_on(struct rpc_call *call)
{
    bool read, end;

    rpc_call_drop_message(call);
    ngd_mutex_lock(&call->lock);
    end = call->state.end == RPC_END_ENDING && !rpc_state_unsent(&call->state) && rpc_call_claim_end(call);
    read = rpc_state_read_on(&call->state);
    ngd_mutex_unlock(&call->lock);
    if (end)
        rpc_call_send_end_status(call, NULL);
    if (read)
        rpc_start_recv(call);
}

void rpc_on_recv(struct rpc_call *call, bool ok)
{
    ngd_status_t refuse;

    /* Only LOCKSTEP: the other kinds may be sending sent_buffer now. */
    if (call->pub.method->kind == NGD_RPC_LOCKSTEP && call->sent_buffer) {
        grpc_byte_buffer_destroy(call->sent_buffer);
        call->sent_buffer = NULL;
    }
    call->message = call->received;
    call->received = NULL;
    if (!call->message) {
        no_more(call, ok);
    } else if (take_message(call, &refuse)) {
        call->pub.arrived = ngd_now();
        if (refuse != NGD_OK)
            rpc_call_fail(call, refuse, NULL);
        else
            rpc_deliver(call);
        if (call->pub.method->kind != NGD_RPC_LOCKSTEP)
            read_on(call);
    }
    rpc_call_unref(call);
}
