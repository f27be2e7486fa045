/* SPDX-License-Identifier: Apache-2.0 */
/* Followed calls: they share a completion queue, which a thread of ours polls, and each has a few batches under way. */
#include "client/lib/channel_int.h"
#include "client/lib/error.h"
#include "client/lib/message.h"

#include <grpc/byte_buffer.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct followed_tag {
    struct npugraph__followed *call;
    int event;
};

struct npugraph__followed {
    struct npugraph__stream st;
    struct npugraph__follower *follower;
    struct npugraph__followed *next;
    const ProtobufCMessageDescriptor *type;
    const struct npugraph__follow_ops *ops;
    void *user;
    struct followed_tag tags[EV_MAX];
    gpr_timespec until;        /* when the next message must have come */
    bool more;                 /* its caller sends a message for each answer */
    bool over;                 /* nothing is outstanding, and nothing may start */
    bool sending;              /* a message is on its way */
    grpc_byte_buffer *to_send; /* the next one, which waits for that; NULL: none */
    int outstanding;           /* batches */
    int rc;                    /* an error of ours, which counts more than the call's status */
    struct npugraph_error err;
};

/* The lock is held while a batch starts, so that none starts behind the queue's shutdown. */
struct npugraph__follower {
    grpc_completion_queue *cq;
    pthread_t thread;
    pthread_mutex_t lock;
    struct npugraph__followed *calls;
    bool stopping;
};

#define FOLLOW_TICK_MS 1000 /* how exactly timeouts are kept */

static int start_followed(struct npugraph__followed *f, const grpc_op *ops, size_t n, int event)
{
    grpc_call_error e;

    f->tags[event] = (struct followed_tag){f, event};
    e = grpc_call_start_batch(f->st.call, ops, n, &f->tags[event], NULL);
    if (e != GRPC_CALL_OK)
        return npugraph__error(&f->err, GRPC_STATUS_INTERNAL, "", "gRPC refused a batch: %s",
                               grpc_call_error_to_string(e));
    f->outstanding++;
    return 0;
}

static int start_followed_recv(struct npugraph__followed *f)
{
    grpc_op recv;

    memset(&recv, 0, sizeof(recv));
    recv.op = GRPC_OP_RECV_MESSAGE;
    recv.data.recv_message.recv_message = &f->st.received;
    f->st.received = NULL;
    return start_followed(f, &recv, 1, EV_RECV);
}

/* Starts to send what is to be sent. The lock is held. */
static int start_followed_send(struct npugraph__followed *f)
{
    grpc_op send;
    int rc;

    memset(&send, 0, sizeof(send));
    send.op = GRPC_OP_SEND_MESSAGE;
    send.data.send_message.send_message = f->to_send;
    rc = start_followed(f, &send, 1, EV_SEND);
    f->sending = rc == 0;
    grpc_byte_buffer_destroy(f->to_send);
    f->to_send = NULL;
    return rc;
}

/* Sends the request and starts to receive. The status batch is started first: it completes in any case. */
static int start_followed_call(struct npugraph__followed *f, const ProtobufCMessage *request)
{
    grpc_byte_buffer *out = NULL;
    grpc_metadata md[NPUGRAPH__METADATA_MAX];
    grpc_op first[4], status = npugraph__status_op(&f->st);
    int rc = npugraph__pack(request, &out, &f->err);

    if (rc != 0)
        return rc;
    memset(first, 0, sizeof(first));
    first[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    first[0].data.send_initial_metadata.count =
        npugraph__put_metadata(f->st.channel, (struct npugraph__call_head){0}, md);
    first[0].data.send_initial_metadata.metadata = md;
    first[1].op = GRPC_OP_SEND_MESSAGE;
    first[1].data.send_message.send_message = out;
    first[2].op = GRPC_OP_RECV_INITIAL_METADATA;
    first[2].data.recv_initial_metadata.recv_initial_metadata = &f->st.initial_md;
    first[3].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    rc = start_followed(f, &status, 1, EV_STATUS);
    if (rc == 0)
        rc = start_followed(f, first, f->more ? 3 : 4, EV_INITIAL);
    f->sending = rc == 0;
    f->until = npugraph__deadline_in(f->st.timeout_ms);
    if (rc == 0)
        rc = start_followed_recv(f);
    npugraph__drop_metadata(md, first[0].data.send_initial_metadata.count);
    grpc_byte_buffer_destroy(out);
    return rc;
}

static void cancel_followed(struct npugraph__followed *f, int rc)
{
    if (f->rc == 0)
        f->rc = rc;
    grpc_call_cancel(f->st.call, NULL);
}

/* Takes a message, and asks for the next one. */
static void take_followed(struct npugraph__followed *f)
{
    ProtobufCMessage *message = NULL;
    int rc;

    if (f->st.received == NULL) /* the end; its status follows */
        return;
    rc = npugraph__unpack(f->st.received, f->type, &message, &f->err);
    grpc_byte_buffer_destroy(f->st.received);
    f->st.received = NULL;
    pthread_mutex_lock(&f->follower->lock); /* before the caller sends its next message */
    f->until = npugraph__deadline_in(f->more ? 0 : f->st.timeout_ms);
    pthread_mutex_unlock(&f->follower->lock);
    if (rc == 0)
        rc = f->ops->message(f->user, message, &f->err);
    pthread_mutex_lock(&f->follower->lock);
    if (rc == 0 && !f->follower->stopping)
        rc = start_followed_recv(f);
    if (rc != 0)
        cancel_followed(f, rc);
    pthread_mutex_unlock(&f->follower->lock);
}

/* Notes that a message was sent, and sends the one that waited for that. */
static void note_followed_sent(struct npugraph__followed *f)
{
    int rc = 0;

    pthread_mutex_lock(&f->follower->lock);
    f->sending = false;
    if (f->to_send != NULL && !f->follower->stopping)
        rc = start_followed_send(f);
    if (rc != 0)
        cancel_followed(f, rc);
    pthread_mutex_unlock(&f->follower->lock);
}

/* Counts a batch as complete. The lock makes it wait for a start that is still starting batches. */
static bool is_followed_over(struct npugraph__followed *f)
{
    bool over;

    pthread_mutex_lock(&f->follower->lock);
    over = f->over = --f->outstanding == 0;
    pthread_mutex_unlock(&f->follower->lock);
    return over;
}

static void forget_followed(struct npugraph__followed *f)
{
    struct npugraph__followed **at = &f->follower->calls;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

static void end_followed(struct npugraph__followed *f)
{
    const int rc = f->rc != 0 ? f->rc : npugraph__final_status(&f->st, &f->err);

    f->ops->end(f->user, rc, &f->err); /* from here on nobody cancels it */
    pthread_mutex_lock(&f->follower->lock);
    forget_followed(f);
    if (f->follower->stopping && f->follower->calls == NULL)
        grpc_completion_queue_shutdown(f->follower->cq);
    pthread_mutex_unlock(&f->follower->lock);
    if (f->to_send != NULL)
        grpc_byte_buffer_destroy(f->to_send);
    npugraph__stream_release(&f->st);
    free(f);
}

static void expire_followed(struct npugraph__follower *follower)
{
    const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);

    pthread_mutex_lock(&follower->lock);
    for (struct npugraph__followed *f = follower->calls; f != NULL; f = f->next)
        if (f->rc == 0 && gpr_time_cmp(f->until, now) < 0)
            cancel_followed(f, npugraph__error(&f->err, GRPC_STATUS_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED",
                                               "no answer from the daemon within the client's timeout"));
    pthread_mutex_unlock(&follower->lock);
}

static void *follow_calls(void *user)
{
    struct npugraph__follower *follower = user;
    gpr_timespec tick = npugraph__deadline_in(FOLLOW_TICK_MS);

    for (;;) {
        const grpc_event ev = grpc_completion_queue_next(follower->cq, tick, NULL);

        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (ev.type == GRPC_OP_COMPLETE) {
            struct followed_tag *tag = ev.tag;
            struct npugraph__followed *f = tag->call;

            if (tag->event == EV_RECV)
                take_followed(f);
            else if (tag->event == EV_INITIAL || tag->event == EV_SEND)
                note_followed_sent(f);
            if (is_followed_over(f))
                end_followed(f);
        }
        if (gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), tick) >= 0) {
            expire_followed(follower);
            tick = npugraph__deadline_in(FOLLOW_TICK_MS);
        }
    }
}

static void free_follower(struct npugraph__follower *follower)
{
    grpc_completion_queue_destroy(follower->cq);
    grpc_shutdown();
    pthread_mutex_destroy(&follower->lock);
    free(follower);
}

int npugraph__follower_start(struct npugraph__follower **follower_p, struct npugraph_error *err)
{
    struct npugraph__follower *follower = calloc(1, sizeof(*follower));
    sigset_t all, old;
    int failed;

    if (follower == NULL)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "out of memory");
    grpc_init(); /* channels come and go */
    follower->cq = grpc_completion_queue_create_for_next(NULL);
    pthread_mutex_init(&follower->lock, NULL);
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&follower->thread, NULL, follow_calls, follower);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed == 0) {
        *follower_p = follower;
        return 0;
    }
    grpc_completion_queue_shutdown(follower->cq);
    free_follower(follower);
    return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "no thread: %s", strerror(failed));
}

void npugraph__follower_stop(struct npugraph__follower *follower)
{
    pthread_mutex_lock(&follower->lock);
    follower->stopping = true;
    for (struct npugraph__followed *f = follower->calls; f != NULL; f = f->next)
        grpc_call_cancel(f->st.call, NULL);
    if (follower->calls == NULL)
        grpc_completion_queue_shutdown(follower->cq);
    pthread_mutex_unlock(&follower->lock);
    pthread_join(follower->thread, NULL);
    free_follower(follower);
}

int npugraph__follow(struct npugraph__follower *follower, struct npugraph__channel *channel,
                     const struct npugraph__followed_call *what, const ProtobufCMessage *request, void *user,
                     struct npugraph__followed **call_p, struct npugraph_error *err)
{
    struct npugraph__followed *f = calloc(1, sizeof(*f));
    int rc;

    if (f == NULL)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "NO_MEMORY", "out of memory");
    npugraph__stream_init(&f->st, channel, what->method, follower->cq);
    f->follower = follower;
    f->type = what->type;
    f->ops = what->ops;
    f->more = what->more;
    f->user = user;
    pthread_mutex_lock(&follower->lock);
    *call_p = f; /* before its first message */
    rc = start_followed_call(f, request);
    if (rc != 0 && f->outstanding != 0) { /* it ends by the batches that started, and says so */
        cancel_followed(f, rc);
        rc = 0;
    }
    if (rc == 0) {
        f->next = follower->calls;
        follower->calls = f;
    }
    pthread_mutex_unlock(&follower->lock);
    if (rc == 0)
        return 0;
    if (err != NULL)
        *err = f->err;
    npugraph__stream_release(&f->st);
    free(f);
    return rc;
}

void npugraph__followed_fail(struct npugraph__followed *call, int rc, const struct npugraph_error *err)
{
    pthread_mutex_lock(&call->follower->lock);
    if (call->rc == 0 && !call->over) {
        call->err = *err;
        cancel_followed(call, rc);
    }
    pthread_mutex_unlock(&call->follower->lock);
}

void npugraph__followed_send(struct npugraph__followed *call, const ProtobufCMessage *message)
{
    struct npugraph_error err = {0};
    grpc_byte_buffer *out;
    int rc = npugraph__pack(message, &out, &err);

    if (rc != 0) {
        npugraph__followed_fail(call, rc, &err);
        return;
    }
    pthread_mutex_lock(&call->follower->lock);
    call->to_send = out; /* freed with the call, if that is over */
    call->until = npugraph__deadline_in(call->st.timeout_ms);
    if (!call->sending && !call->over && !call->follower->stopping)
        rc = start_followed_send(call);
    if (rc != 0)
        cancel_followed(call, rc);
    pthread_mutex_unlock(&call->follower->lock);
}

void npugraph__followed_cancel(struct npugraph__followed *call)
{
    grpc_call_cancel(call->st.call, NULL);
}
