/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_beat.h"

#include "base/mem.h"
#include "base/tsan.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/peers.h"
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define METHOD "/grpc.health.v1.Health/Check"

void rpc_beat_event(struct rpc_tag *tag, bool ok)
{
    struct rpc_beat *beat = ngd_container_of(tag, struct rpc_beat, tag);
    struct rpc_self_call *self;

    (void)ok;
    if (beat->is_call) { /* an answer counts only if its status is OK */
        self = ngd_container_of(beat, struct rpc_self_call, beat);
        if (self->status == GRPC_STATUS_OK)
            ngd_beat_answer(&beat->beat);
        NGD_TSAN_GIVE(self);
        atomic_store_explicit(&self->done, true, memory_order_release);
    } else {
        ngd_beat_answer(&beat->beat);
    }
}

/* ---- the connection ------------------------------------------------------------------------------------------ */

/* Gives the server's end the daemon's own identity, and does not count it among the connections. */
static ngd_status_t introduce(struct ngd_daemon *d, int fd)
{
    struct ngd_identity *identity;
    char name[NGD_IDENTITY_MAX];
    ngd_status_t status;

    snprintf(name, sizeof(name), "uid:%lu", (unsigned long)geteuid());
    identity = ngd_identity_get(d->identities, name);
    if (!identity)
        return NGD_ERR_NO_MEMORY;
    status = ngd_peers_add(d->peers, fd, identity, "itself", true);
    ngd_identity_unref(identity);
    return status;
}

void rpc_beats_connect(struct rpc_beats *beats)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_CHANNELZ};
    grpc_channel_args args = {1, &arg};
    grpc_channel_credentials *creds;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return; /* the next question tries again */
    if (introduce(beats->daemon, pair[0]) != NGD_OK) {
        close(pair[0]);
        close(pair[1]);
        return;
    }
    beats->adopt(beats->ctx, pair[0]);
    creds = grpc_insecure_credentials_create();
    beats->self.channel = grpc_channel_create_from_fd("npugraphd", pair[1], creds, &args);
    grpc_channel_credentials_release(creds);
}

/* ---- the call ------------------------------------------------------------------------------------------------ */

static void clear_self_call(struct rpc_self_call *self)
{
    grpc_byte_buffer_destroy(self->request);
    grpc_byte_buffer_destroy(self->reply);
    self->request = self->reply = NULL;
    grpc_metadata_array_destroy(&self->initial);
    grpc_metadata_array_destroy(&self->trailing);
    grpc_metadata_array_init(&self->initial);
    grpc_metadata_array_init(&self->trailing);
    grpc_slice_unref(self->details);
    self->details = grpc_empty_slice();
    if (self->beat.core)
        grpc_call_unref(self->beat.core);
    self->beat.core = NULL;
}

static void disconnect(struct rpc_self_call *self)
{
    if (self->channel)
        grpc_channel_destroy(self->channel);
    self->channel = NULL;
}

static bool begin_self_call(struct rpc_beats *beats)
{
    struct rpc_self_call *self = &beats->self;
    grpc_slice nothing = grpc_empty_slice();
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

    self->beat.core = grpc_channel_create_call(self->channel, NULL, GRPC_PROPAGATE_DEFAULTS, beats->first,
                                               grpc_slice_from_static_string(METHOD), NULL,
                                               gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    self->request = grpc_raw_byte_buffer_create(&nothing, 1);
    self->status = GRPC_STATUS_UNKNOWN;
    ops[1].data.send_message.send_message = self->request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &self->initial;
    ops[4].data.recv_message.recv_message = &self->reply;
    ops[5].data.recv_status_on_client.trailing_metadata = &self->trailing;
    ops[5].data.recv_status_on_client.status = &self->status;
    ops[5].data.recv_status_on_client.status_details = &self->details;
    atomic_store(&self->done, false);
    NGD_TSAN_GIVE(&self->beat.tag);
    return grpc_call_start_batch(self->beat.core, ops, 6, &self->beat.tag, NULL) == GRPC_CALL_OK;
}

/* Makes the daemon's call to itself. After a call that failed, the next one uses a new connection; the question stays
 * open meanwhile. */
static void call_itself(struct rpc_beats *beats)
{
    struct rpc_self_call *self = &beats->self;

    ngd_beat_ask(&self->beat.beat);
    if (!atomic_load_explicit(&self->done, memory_order_acquire))
        return;
    NGD_TSAN_TAKE(self);
    clear_self_call(self);
    if (self->status != GRPC_STATUS_OK)
        disconnect(self);
    if (!self->channel)
        rpc_beats_connect(beats);
    if (self->channel && !begin_self_call(beats)) {
        self->status = GRPC_STATUS_UNKNOWN;
        atomic_store(&self->done, true);
    }
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

ngd_status_t rpc_beats_start(struct rpc_beats *beats, const struct rpc_beats_params *params)
{
    const size_t n = params->n;

    *beats = (struct rpc_beats){
        .daemon = params->daemon, .adopt = params->adopt, .ctx = params->ctx, .first = params->cqs[0]};
    beats->self.beat.is_call = true;
    beats->self.status = GRPC_STATUS_OK;
    beats->self.details = grpc_empty_slice();
    atomic_init(&beats->self.done, true);
    beats->threads = NGD_NEW_N(struct rpc_beat, n);
    if (!beats->threads)
        return NGD_ERR_NO_MEMORY;
    beats->n = n;
    beats->nowhere = grpc_lame_client_channel_create("nowhere", GRPC_STATUS_UNAVAILABLE, "for events only");
    for (size_t i = 0; i < n; i++)
        beats->threads[i].core = grpc_channel_create_call(beats->nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, params->cqs[i],
                                                          grpc_slice_from_static_string(METHOD), NULL,
                                                          gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return NGD_OK;
}

void rpc_beats_ask(struct rpc_beats *beats)
{
    for (size_t i = 0; i < beats->n; i++) {
        struct rpc_beat *beat = &beats->threads[i];

        if (!ngd_beat_ask(&beat->beat))
            continue;
        NGD_TSAN_GIVE(&beat->tag);
        /* An empty batch completes at once; its event is all that it does. */
        (void)grpc_call_start_batch(beat->core, NULL, 0, &beat->tag, NULL);
    }
    if (beats->n > 0)
        call_itself(beats);
}

void rpc_beats_stop(struct rpc_beats *beats)
{
    for (size_t i = 0; i < beats->n; i++) {
        grpc_call_unref(beats->threads[i].core);
        beats->threads[i].core = NULL;
    }
    if (beats->n == 0)
        return;
    if (beats->self.beat.core)
        grpc_call_cancel(beats->self.beat.core, NULL);
    disconnect(&beats->self);
    grpc_channel_destroy(beats->nowhere);
    beats->n = 0;
}

void rpc_beats_fini(struct rpc_beats *beats)
{
    if (!beats->threads)
        return;
    clear_self_call(&beats->self);
    ngd_free(beats->threads);
    beats->threads = NULL;
}
