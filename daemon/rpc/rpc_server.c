/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC server.
 *
 * One completion queue has one thread, which decodes, checks and hands over; more queues are an option. Requests are
 * always posted: a call that arrives is replaced before it is looked at, and a generic request answers methods that do
 * not exist, since gRPC would let both wait without bound. What may be served at once is counted here.
 * Connections are accepted by listener.c and handed over as descriptors, so that all of them are counted.
 */
#include "daemon/rpc/rpc_server.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/tsan.h"
#include "base/wakeup.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/repeat.h"
#include "daemon/rpc/rpc_beat.h"
#include "daemon/rpc/rpc_int.h"
#include "daemon/rpc/rpc_who.h"
#include "daemon/session.h"
#include <grpc/compression.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define POSTED         4 /* requests kept posted per method and queue */
#define HANDSHAKE_MS   10000
#define PING_MS        10000 /* clients may ping this often without data */
#define METADATA_BYTES 16384
#define CQS_MAX        16
#define QUOTA_PART     4

struct rpc_cq {
    struct ngd_rpc_server *server;
    grpc_completion_queue *cq;
    pthread_t thread;
    bool started;
    _Atomic int wakeup; /* ngd_wakeup_t */
    /* Requests that could not be posted, in all and by method. */
    _Atomic uint32_t n_owed;
    _Atomic uint8_t *owed;
};

struct ngd_rpc_server {
    struct ngd_daemon *daemon;
    const struct ngd_method *methods;
    size_t n_methods;
    grpc_server *core;
    void **registered; /* by method index */
    struct rpc_cq cqs[CQS_MAX];
    size_t n_cqs;
    struct rpc_beats beats;
    struct rpc_calls calls;
    _Atomic bool stopping;
};

static void on_new(struct rpc_call *call, bool ok);

/* ---- arrival ------------------------------------------------------------------------------------------------ */

/* Posts a request for the method (server->n_methods: any other). False: out of memory. */
static bool try_post(struct rpc_cq *cq, size_t method_index)
{
    struct ngd_rpc_server *server = cq->server;
    struct rpc_call *call = NGD_FAULT(POST_LOST) ? NULL : rpc_call_take(&server->calls);
    grpc_call_error error;

    if (!call)
        return false;
    call->cq = cq;
    call->method_index = method_index;
    call->pub.method = NULL;
    call->on_new = (struct rpc_tag){on_new, call};
    call->metadata.count = 0;
    NGD_TSAN_GIVE(&call->on_new);
    if (method_index == server->n_methods)
        error = grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata, cq->cq, cq->cq,
                                         &call->on_new);
    else
        error = grpc_server_request_registered_call(server->core, server->registered[method_index], &call->core,
                                                    &call->deadline, &call->metadata,
                                                    server->methods[method_index].kind == NGD_RPC_UNARY ||
                                                            server->methods[method_index].kind == NGD_RPC_SERVER_STREAM
                                                        ? &call->payload
                                                        : NULL,
                                                    cq->cq, cq->cq, &call->on_new);
    if (error != GRPC_CALL_OK) { /* the server is shutting down */
        call->core = NULL;
        rpc_call_release(call);
    }
    return true;
}

/* What fails for lack of memory is owed: the queue's next events try again. */
static void post(struct rpc_cq *cq, size_t method_index)
{
    static struct ngd_log_limit limit;

    if (try_post(cq, method_index))
        return;
    atomic_fetch_add(&cq->owed[method_index], 1);
    atomic_fetch_add(&cq->n_owed, 1);
    ngd_log_limited(&limit, NGD_LOG_ERROR, "rpc", "out of memory: %s takes one call less at a time until there is some",
                    method_index < cq->server->n_methods ? cq->server->methods[method_index].path : "*");
}

static void post_owed(struct rpc_cq *cq)
{
    for (size_t m = 0; m <= cq->server->n_methods && atomic_load(&cq->n_owed) > 0; m++) {
        while (atomic_load(&cq->owed[m]) > 0) {
            if (!try_post(cq, m))
                return;
            atomic_fetch_sub(&cq->owed[m], 1);
            atomic_fetch_sub(&cq->n_owed, 1);
        }
    }
}

static ngd_status_t admit(struct rpc_call *call, struct ngd_diag *diag)
{
    const struct ngd_method *method = call->pub.method;
    struct ngd_daemon *d = call->pub.daemon;
    ngd_daemon_state_t state = ngd_daemon_state(d);
    ngd_status_t status;
    uint64_t max;

    if (state != NGD_DAEMON_SERVING && !method->while_draining)
        return ngd_diag_set(diag, state == NGD_DAEMON_STARTING ? NGD_ERR_UNAVAILABLE : NGD_ERR_DRAINING,
                            state == NGD_DAEMON_STARTING ? "the daemon is starting; try again"
                                                         : "the daemon is draining; use another one");
    status = rpc_who_count(call, diag);
    if (status != NGD_OK || method->class == NGD_RPC_CONTROL)
        return status;
    max = ngd_identity_room(call->pub.identity, (uint64_t)ngd_config_get(d->options.max_inflight));
    if (!rpc_calls_enter(call->calls, max)) {
        ngd_metric_row_add(ngd_metric_row(NGD_M_REQUESTS_REJECTED, "inflight"), 1);
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "%" PRIu64 " calls are being served, which is max-inflight%s; try again later", max,
                            call->pub.identity->admin ? "" : " minus those reserved for administrators");
    }
    call->admitted = true;
    return NGD_OK;
}

static ngd_nsec_t deadline_of(gpr_timespec t)
{
    gpr_timespec m = gpr_convert_clock_type(t, GPR_CLOCK_MONOTONIC);
    ngd_nsec_t now = ngd_now();
    double micros;

    if (gpr_time_cmp(m, gpr_inf_future(GPR_CLOCK_MONOTONIC)) >= 0)
        return NGD_NSEC_NEVER;
    micros = gpr_timespec_to_micros(gpr_time_sub(m, gpr_now(GPR_CLOCK_MONOTONIC)));
    if (micros >= (double)((INT64_MAX - now) / NGD_USEC)) /* a client may say what nanoseconds cannot */
        return NGD_NSEC_NEVER;
    return now + (ngd_nsec_t)micros * NGD_USEC;
}

static ngd_status_t prepare_call(struct rpc_call *call, struct ngd_diag *diag)
{
    ngd_status_t status = rpc_who_connected(call, diag);
    char path[200];

    if (status != NGD_OK)
        return status;
    if (call->method_index == call->cq->server->n_methods) {
        snprintf(path, sizeof(path), "%.*s", (int)GRPC_SLICE_LENGTH(call->details.method),
                 (const char *)GRPC_SLICE_START_PTR(call->details.method));
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "there is no method %s; the reflection service lists them",
                            path);
    }
    status = rpc_who_calls(call, diag);
    /* A drain ends sessions: a client that has not heard of it yet is told of the drain, which is why its session is
     * gone. */
    if (status == NGD_ERR_SESSION_GONE && ngd_daemon_state(call->pub.daemon) != NGD_DAEMON_SERVING &&
        !call->pub.method->while_draining)
        return ngd_diag_set(diag, NGD_ERR_DRAINING, "the daemon is draining; use another one");
    return status == NGD_OK ? admit(call, diag) : status;
}

static void on_new(struct rpc_call *call, bool ok)
{
    struct ngd_rpc_server *server = call->cq->server;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (!ok) { /* shutting down: the request was never matched */
        call->core = NULL;
        rpc_call_release(call);
        return;
    }
    post(call->cq, call->method_index); /* first the next one */
    call->pub.arrived = ngd_now();
    if (call->method_index < server->n_methods) {
        call->pub.method = &server->methods[call->method_index];
        call->pub.deadline = deadline_of(call->deadline);
    } else {
        call->pub.deadline = deadline_of(call->details.deadline);
    }
    status = prepare_call(call, &diag);
    if (call->method_index == call->cq->server->n_methods) {
        grpc_slice_unref(call->details.method);
        grpc_slice_unref(call->details.host);
        call->details.method = call->details.host = grpc_empty_slice();
    }
    if (status == NGD_OK && call->pub.session)
        ngd_session_count_call(call->pub.session);
    if (atomic_load(&server->stopping) && status == NGD_OK)
        status = NGD_ERR_DRAINING;
    rpc_call_open(call, status, &diag);
}

static void *run_cq(void *arg)
{
    struct rpc_cq *cq = arg;

    /* Calls must get in, and answers out, while the device has all CPUs. Not in real time: it also runs short replays.
     */
    atomic_store_explicit(&cq->wakeup, (int)ngd_wakeup_ask(NGD_WAKEUP_SLICE), memory_order_relaxed);
    for (;;) {
        grpc_event ev = grpc_completion_queue_next(cq->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        struct rpc_tag *tag = ev.tag;

        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (ev.type != GRPC_OP_COMPLETE || !tag)
            continue;
        NGD_TSAN_TAKE(tag);
        while (NGD_FAULT(RPC_HANG))
            nanosleep(&(struct timespec){.tv_nsec = 10 * NGD_MSEC}, NULL);
        if (tag->call)
            tag->fn(tag->call, ev.success != 0);
        else
            rpc_beat_event(tag, ev.success != 0);
        if (atomic_load_explicit(&cq->n_owed, memory_order_relaxed) > 0)
            post_owed(cq);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

/* What is left of a limit on the process's address space; 0: there is no limit, or nobody knows. */
static uint64_t address_room(void)
{
    char text[64] = "";
    struct rlimit limit;
    uint64_t used;
    int fd;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    close(fd);
    used = strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    return used && used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

/*
 * Where the process has a limit, gRPC gets a quota of what is left: without memory it aborts, and connections that the
 * front does not guard have no other bound. Above it gRPC reads no more, then ends calls. A quarter: it counts late, in
 * pieces, and not all that it takes. NULL: none is needed.
 */
static grpc_resource_quota *make_quota(void)
{
    const uint64_t room = address_room();
    grpc_resource_quota *quota = room ? grpc_resource_quota_create("npugraphd") : NULL;

    if (quota)
        grpc_resource_quota_resize(quota, (size_t)(room / QUOTA_PART));
    return quota;
}

static grpc_server *make_core(struct ngd_rpc_server *server)
{
    grpc_arg args[16];
    grpc_channel_args all = {0, args};
    grpc_resource_quota *quota = make_quota();
    grpc_server *core;
    const struct ngd_options *options = &server->daemon->options;

#define INT_ARG(name, v)   \
    args[all.num_args++] = \
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)(name), .value.integer = (int)(v)}
    INT_ARG(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, options->max_message);
    INT_ARG(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1); /* checked by rpc_call.c, with a sentence */
    INT_ARG(GRPC_ARG_MAX_CONCURRENT_STREAMS, options->max_streams);
    INT_ARG(GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES);
    INT_ARG(GRPC_ARG_ENABLE_CHANNELZ, 0);
    /* gRPC inflates a message before it looks at its size: 16 MiB on the wire could become 16 GiB. Tensors do not
     * compress anyway. */
    INT_ARG(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
    INT_ARG(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    INT_ARG(GRPC_ARG_ALLOW_REUSEPORT, 0); /* a second daemon on the port must fail */
    INT_ARG(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS);
    INT_ARG(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_MS);
    INT_ARG(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    INT_ARG(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
#undef INT_ARG
    if (quota)
        args[all.num_args++] = (grpc_arg){.type = GRPC_ARG_POINTER,
                                          .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                                          .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}};
    core = grpc_server_create(&all, NULL);
    if (quota)
        grpc_resource_quota_unref(quota);
    return core;
}

static ngd_status_t register_methods(struct ngd_rpc_server *server)
{
    server->registered = NGD_NEW_N(void *, server->n_methods);
    server->calls.rows = NGD_NEW_N(struct ngd_metric_row *, server->n_methods + 1);
    if (!server->registered || !server->calls.rows)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < server->n_methods; i++) {
        bool with_message =
            server->methods[i].kind == NGD_RPC_UNARY || server->methods[i].kind == NGD_RPC_SERVER_STREAM;
        char label[128];

        server->registered[i] = grpc_server_register_method(
            server->core, server->methods[i].path, NULL,
            with_message ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
        if (!server->registered[i])
            return NGD_ERR_INTERNAL;
        snprintf(label, sizeof(label), "%s", server->methods[i].path + 1);
        server->calls.rows[i] = ngd_metric_row(NGD_M_RPCS, label);
    }
    server->calls.rows[server->n_methods] = ngd_metric_row(NGD_M_RPCS, "unknown");
    return NGD_OK;
}

/* Of the daemon's connection to itself. */
static void adopt(void *ctx, int fd)
{
    ngd_rpc_server_add_connection(ctx, fd);
}

ngd_status_t ngd_rpc_server_create(struct ngd_daemon *d, const struct ngd_method *methods, size_t n_methods,
                                   struct ngd_rpc_server **server_p, struct ngd_diag *diag)
{
    struct ngd_rpc_server *server = NGD_NEW(struct ngd_rpc_server);
    grpc_completion_queue *cqs[CQS_MAX];
    struct rpc_beats_params params = {.daemon = d, .adopt = adopt, .ctx = server, .cqs = cqs};
    ngd_status_t status;

    if (!server)
        return NGD_ERR_NO_MEMORY;
    server->daemon = d;
    server->methods = methods;
    server->n_methods = n_methods;
    rpc_calls_init(&server->calls, d);
    server->calls.begin = ngd_repeat_begin;
    grpc_init();
    server->core = make_core(server);
    status = register_methods(server);
    server->n_cqs = (size_t)(d->options.cqs < CQS_MAX ? d->options.cqs : CQS_MAX);
    for (size_t i = 0; i < server->n_cqs; i++) {
        server->cqs[i].server = server;
        server->cqs[i].cq = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(server->core, server->cqs[i].cq, NULL);
        cqs[i] = server->cqs[i].cq;
        server->cqs[i].owed = NGD_NEW_N(_Atomic uint8_t, server->n_methods + 1);
        if (!server->cqs[i].owed)
            status = NGD_ERR_NO_MEMORY;
    }
    params.n = server->n_cqs;
    if (status == NGD_OK)
        status = rpc_beats_start(&server->beats, &params);
    if (status != NGD_OK) {
        ngd_rpc_server_destroy(server);
        return ngd_diag_set(diag, status, "the gRPC server could not be made");
    }
    *server_p = server;
    return NGD_OK;
}

ngd_status_t ngd_rpc_server_start(struct ngd_rpc_server *server, struct ngd_diag *diag)
{
    grpc_server_start(server->core);
    for (size_t i = 0; i < server->n_cqs; i++) {
        struct rpc_cq *cq = &server->cqs[i];

        /* The thread first: what is posted where no thread takes it back keeps the server from stopping. */
        if (ngd_thread_start(&cq->thread, "rpc", run_cq, cq) != 0)
            return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED, "a thread of the gRPC server could not be started");
        cq->started = true;
        for (size_t m = 0; m <= server->n_methods; m++)
            for (int k = 0; k < POSTED; k++)
                post(cq, m);
    }
    rpc_beats_connect(&server->beats);
    return NGD_OK;
}

void ngd_rpc_server_add_connection(struct ngd_rpc_server *server, int fd)
{
    grpc_server_credentials *creds = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server->core, fd, creds);
    grpc_server_credentials_release(creds);
}

void ngd_rpc_server_end_streams(struct ngd_rpc_server *server, ngd_status_t status, const char *text)
{
    struct rpc_member *member;

    while ((member = rpc_calls_next_stream(&server->calls))) {
        struct ngd_call *call = &ngd_container_of(member, struct rpc_call, member)->pub;

        ngd_call_end(call, status, text);
        ngd_call_unref(call);
    }
}

const struct ngd_method *ngd_rpc_server_method(const struct ngd_rpc_server *server, const char *path)
{
    for (size_t i = 0; i < server->n_methods; i++)
        if (strcmp(server->methods[i].path, path) == 0)
            return &server->methods[i];
    return NULL;
}

void ngd_rpc_server_count_busy(struct ngd_rpc_server *server, int delta)
{
    rpc_calls_count_busy(&server->calls, delta);
}

uint32_t ngd_rpc_server_busy(const struct ngd_rpc_server *server)
{
    return atomic_load(&server->calls.busy);
}
uint32_t ngd_rpc_server_inflight(const struct ngd_rpc_server *server)
{
    return atomic_load(&server->calls.inflight);
}

ngd_wakeup_t ngd_rpc_server_wakeup(const struct ngd_rpc_server *server)
{
    return (ngd_wakeup_t)atomic_load_explicit(&server->cqs[0].wakeup, memory_order_relaxed);
}

void ngd_rpc_server_ask(struct ngd_rpc_server *server)
{
    rpc_beats_ask(&server->beats);
}

size_t ngd_rpc_server_threads(const struct ngd_rpc_server *server)
{
    return server->n_cqs;
}

const struct ngd_beat *ngd_rpc_server_beat(const struct ngd_rpc_server *server, size_t i)
{
    return i < server->n_cqs ? &server->beats.threads[i].beat : &server->beats.self.beat.beat;
}

static void shut_down_core(struct ngd_rpc_server *server)
{
    /* The notification needs a queue that somebody reads; ours are read by their threads, which would not know its tag.
     */
    grpc_completion_queue *cq = grpc_completion_queue_create_for_pluck(NULL);

    grpc_server_shutdown_and_notify(server->core, cq, server);
    grpc_server_cancel_all_calls(server->core);
    grpc_completion_queue_pluck(cq, server, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_completion_queue_shutdown(cq);
    grpc_completion_queue_destroy(cq);
}

void ngd_rpc_server_stop(struct ngd_rpc_server *server)
{
    atomic_store(&server->stopping, true);
    rpc_beats_stop(&server->beats);
    shut_down_core(server);
    /* The core is done when every call's batches are; handlers that owe an answer may hold theirs a little longer. */
    while (atomic_load_explicit(&server->calls.live, memory_order_acquire) != 0) {
        struct timespec pause = {0, NGD_MSEC};

        nanosleep(&pause, NULL);
    }
    for (size_t i = 0; i < server->n_cqs; i++)
        grpc_completion_queue_shutdown(server->cqs[i].cq);
    for (size_t i = 0; i < server->n_cqs; i++)
        if (server->cqs[i].started)
            pthread_join(server->cqs[i].thread, NULL);
}

void ngd_rpc_server_destroy(struct ngd_rpc_server *server)
{
    if (!server)
        return;
    rpc_beats_stop(&server->beats);
    if (!atomic_load(&server->stopping)) /* the core insists when it has listeners, also when it never started */
        shut_down_core(server);
    for (size_t i = 0; i < server->n_cqs; i++)
        if (!server->cqs[i].started) { /* never started: nobody has drained it */
            grpc_completion_queue_shutdown(server->cqs[i].cq);
            grpc_completion_queue_next(server->cqs[i].cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        }
    rpc_beats_fini(&server->beats);
    grpc_server_destroy(server->core);
    for (size_t i = 0; i < server->n_cqs; i++) {
        grpc_completion_queue_destroy(server->cqs[i].cq);
        ngd_free(server->cqs[i].owed);
    }
    rpc_call_empty_pool(&server->calls);
    rpc_calls_fini(&server->calls);
    ngd_free(server->registered);
    ngd_free(server->calls.rows);
    ngd_free(server);
    grpc_shutdown();
}
