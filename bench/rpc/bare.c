/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rpc/bare.h"
#include "bench/rpc/bench_rpc.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define METHOD "/bench.Bare/Stream"

/* Starts a batch and waits for it. Returns false when the stream is over. */
static bool batch(grpc_call *call, grpc_completion_queue *cq, const grpc_op *ops, size_t n)
{
    grpc_event ev;

    if (grpc_call_start_batch(call, ops, n, call, NULL) != GRPC_CALL_OK)
        bench_fail("gRPC refuses a batch");
    ev = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return ev.success != 0;
}

static bool send_message(grpc_call *call, grpc_completion_queue *cq, grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};

    return batch(call, cq, &op, 1);
}

/* Returns NULL when the stream is over. */
static grpc_byte_buffer *receive_message(grpc_call *call, grpc_completion_queue *cq)
{
    grpc_byte_buffer *message = NULL;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &message};

    return batch(call, cq, &op, 1) ? message : NULL;
}

static grpc_byte_buffer *message_of(const void *data, size_t n)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(data, n);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);

    grpc_slice_unref(slice);
    return message;
}

/* A message that is where it lies, which must stay so until the message is destroyed. */
static grpc_byte_buffer *message_in(const void *data, size_t n)
{
    grpc_slice slice = grpc_slice_from_static_buffer(data, n);

    return grpc_raw_byte_buffer_create(&slice, 1);
}

/* ---- the server ---- */

struct server {
    grpc_server *server;
    grpc_completion_queue *cq;
    grpc_call *call;
};

static void accept_stream(struct server *s, void *method, int listener)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    static grpc_metadata_array metadata;
    static gpr_timespec deadline;
    int fd;

    grpc_metadata_array_init(&metadata);
    grpc_server_request_registered_call(s->server, method, &s->call, &deadline, &metadata, NULL, s->cq, s->cq, NULL);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        bench_fail("accept fails");
    grpc_server_add_channel_from_fd(s->server, fd, grpc_insecure_server_credentials_create());
    if (!grpc_completion_queue_next(s->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).success ||
        !batch(s->call, s->cq, &op, 1))
        bench_fail("no call arrives");
}

static void echo_all(struct server *s)
{
    grpc_byte_buffer *message = receive_message(s->call, s->cq);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_MESSAGE}, {.op = GRPC_OP_RECV_MESSAGE}};
    bool ok = true;

    while (ok && message != NULL) {
        grpc_byte_buffer *sent = message;

        ops[0].data.send_message.send_message = sent;
        ops[1].data.recv_message.recv_message = &message;
        message = NULL;
        ok = batch(s->call, s->cq, ops, 2);
        grpc_byte_buffer_destroy(sent);
    }
}

static void drop_all(struct server *s)
{
    grpc_byte_buffer *message;

    while ((message = receive_message(s->call, s->cq)) != NULL)
        grpc_byte_buffer_destroy(message);
    (void)send_message(s->call, s->cq, message_of("", 1));
}

static void send_all(struct server *s)
{
    grpc_byte_buffer *first = receive_message(s->call, s->cq), *message;
    grpc_byte_buffer_reader reader;
    struct bare_order order;
    grpc_slice slice;
    void *data;

    if (first == NULL || !grpc_byte_buffer_reader_init(&reader, first))
        return;
    slice = grpc_byte_buffer_reader_readall(&reader);
    memcpy(&order, GRPC_SLICE_START_PTR(slice), sizeof(order));
    data = calloc(1, order.bytes);
    if (data == NULL)
        bench_fail("no memory");
    for (bool ok = true; ok && order.messages > 0; order.messages--) {
        message = message_in(data, order.bytes); /* gRPC takes what is in it */
        ok = send_message(s->call, s->cq, message);
        grpc_byte_buffer_destroy(message);
    }
}

void bare_serve(const char *text)
{
    struct server s = {0};
    int kind, listener;
    void *method;

    if (sscanf(text, "%d:%d", &kind, &listener) != 2)
        bench_fail("--serve is for the benchmark itself");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    grpc_init();
    s.server = grpc_server_create(NULL, NULL);
    s.cq = grpc_completion_queue_create_for_next(NULL);
    method = grpc_server_register_method(s.server, METHOD, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    grpc_server_register_completion_queue(s.server, s.cq, NULL);
    grpc_server_start(s.server);
    accept_stream(&s, method, listener);
    if (kind == BARE_ECHO)
        echo_all(&s);
    else if (kind == BARE_SINK)
        drop_all(&s);
    else
        send_all(&s);
    (void)receive_message(s.call, s.cq); /* until the client is gone */
    _exit(0);
}

/* ---- starting it ---- */

static int listen_unix(struct bare_server *server, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    snprintf(server->path, sizeof(server->path), "%s", addr.sun_path);
    snprintf(server->address, sizeof(server->address), "unix:%s", server->path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
        bench_fail("%s: cannot create a socket there", path);
    return fd;
}

static int listen_tcp(struct bare_server *server)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t n = sizeof(addr);

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, n) != 0 || getsockname(fd, (struct sockaddr *)&addr, &n) != 0)
        bench_fail("no port of 127.0.0.1 can be had");
    snprintf(server->address, sizeof(server->address), "ipv4:127.0.0.1:%d", ntohs(addr.sin_port));
    return fd;
}

void bare_start(struct bare_server *server, enum bare_kind kind, const char *path)
{
    char text[32], name[] = "bare", option[] = "--serve", *argv[] = {name, option, text, NULL};
    int listener;

    *server = (struct bare_server){0};
    listener = path != NULL ? listen_unix(server, path) : listen_tcp(server);
    if (listen(listener, 4) != 0)
        bench_fail("cannot listen");
    snprintf(text, sizeof(text), "%d:%d", (int)kind, listener);
    /* By exec, since gRPC does not survive a fork; and no fork before it, which would make the caller's memory fault
     * anew. */
    if (posix_spawn(&server->pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0)
        bench_fail("the bare server cannot be started");
    close(listener);
}

void bare_stop(struct bare_server *server)
{
    kill(server->pid, SIGTERM);
    waitpid(server->pid, NULL, 0);
    if (server->path[0] != '\0')
        unlink(server->path);
}

/* ---- the client ---- */

struct bare_client {
    grpc_channel *channel;
    grpc_completion_queue *cq;
    grpc_call *call;
    grpc_metadata_array metadata;
};

struct bare_client *bare_open(const char *address)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = -1};
    grpc_channel_args args = {1, &arg};
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();
    struct bare_client *c = calloc(1, sizeof(*c));
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    if (c == NULL)
        bench_fail("no memory");
    grpc_init();
    c->channel = grpc_channel_create(address, creds, &args);
    grpc_channel_credentials_release(creds);
    c->cq = grpc_completion_queue_create_for_next(NULL);
    c->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq,
                                       grpc_slice_from_static_string(METHOD), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                       NULL);
    grpc_metadata_array_init(&c->metadata);
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &c->metadata; /* without it no message is delivered */
    if (!batch(c->call, c->cq, ops, 2))
        bench_fail("the bare server cannot be reached");
    return c;
}

void bare_exchange(struct bare_client *c, const void *data, size_t n)
{
    grpc_byte_buffer *out = message_of(data, n), *in = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = out},
                      {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &in}};

    if (!batch(c->call, c->cq, ops, 2) || in == NULL || grpc_byte_buffer_length(in) != n)
        bench_fail("the echo server does not echo");
    grpc_byte_buffer_destroy(in);
    grpc_byte_buffer_destroy(out);
}

void bare_send(struct bare_client *c, const void *data, size_t n)
{
    grpc_byte_buffer *message = message_in(data, n);

    if (!send_message(c->call, c->cq, message))
        bench_fail("the bare server takes no message");
    grpc_byte_buffer_destroy(message);
}

void bare_end(struct bare_client *c)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    if (!batch(c->call, c->cq, &op, 1))
        bench_fail("the stream cannot be ended");
}

size_t bare_receive(struct bare_client *c)
{
    grpc_byte_buffer *message = receive_message(c->call, c->cq);
    size_t n;

    if (message == NULL)
        bench_fail("the bare server sends no message");
    n = grpc_byte_buffer_length(message);
    grpc_byte_buffer_destroy(message);
    return n;
}

void bare_close(struct bare_client *c)
{
    grpc_call_cancel(c->call, NULL);
    grpc_call_unref(c->call);
    grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->cq);
    while (grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(c->cq);
    grpc_metadata_array_destroy(&c->metadata);
    grpc_shutdown();
    free(c);
}
