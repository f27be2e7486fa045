/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replay costs over its transport: a graph of one node over Graphs.ReplayStream, against a C-core server in a
 * process of its own that does nothing but send back what it receives: the same payload, one stream, one batch of
 * {SEND_MESSAGE, RECV_MESSAGE} for each exchange on both sides, a Unix socket.
 */
#include "bench/rpc/bench_rpc.h"
#include "proto/npugraph.pb-c.h"
#include "tests/models/live.h"

#include <fcntl.h>
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define METHOD   "/bench.Echo/Stream"
#define ELEMENTS 16

/* ---- the echo server, in a child ---- */

static int listen_at(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4) != 0)
        bench_fail("%s: no socket can be made there", path);
    return fd;
}

struct echo {
    grpc_server *server;
    grpc_completion_queue *cq;
    grpc_call *call;
    grpc_byte_buffer *received, *sent;
};

/* One batch, and the wait for it. False: the stream is over. */
static bool batch(grpc_call *call, grpc_completion_queue *cq, const grpc_op *ops, size_t n)
{
    grpc_event ev;

    if (grpc_call_start_batch(call, ops, n, call, NULL) != GRPC_CALL_OK)
        bench_fail("gRPC refuses a batch");
    ev = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return ev.success != 0;
}

static void accept_stream(struct echo *e, void *method, int listener)
{
    static grpc_metadata_array metadata;
    static gpr_timespec deadline;
    int fd;

    grpc_metadata_array_init(&metadata);
    grpc_server_request_registered_call(e->server, method, &e->call, &deadline, &metadata, NULL, e->cq, e->cq, NULL);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        bench_fail("accept fails");
    grpc_server_add_channel_from_fd(e->server, fd, grpc_insecure_server_credentials_create());
    if (!grpc_completion_queue_next(e->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).success)
        bench_fail("no call arrives");
}

static void echo_all(struct echo *e)
{
    grpc_op ops[2];
    bool ok;

    memset(ops, 0, sizeof(ops));
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_RECV_MESSAGE;
    ops[1].data.recv_message.recv_message = &e->received;
    ok = batch(e->call, e->cq, ops, 2);
    while (ok && e->received != NULL) {
        e->sent = e->received;
        e->received = NULL;
        ops[0].op = GRPC_OP_SEND_MESSAGE;
        ops[0].data.send_message.send_message = e->sent;
        ok = batch(e->call, e->cq, ops, 2);
        grpc_byte_buffer_destroy(e->sent);
    }
}

/* Until the client is gone; the process ends with it. */
static void serve(const char *path)
{
    int listener = listen_at(path);
    struct echo e = {0};
    void *method;

    grpc_init();
    e.server = grpc_server_create(NULL, NULL);
    e.cq = grpc_completion_queue_create_for_next(NULL);
    method = grpc_server_register_method(e.server, METHOD, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    grpc_server_register_completion_queue(e.server, e.cq, NULL);
    grpc_server_start(e.server);
    accept_stream(&e, method, listener);
    echo_all(&e);
    _exit(0);
}

static pid_t start_server(const char *path)
{
    pid_t pid = fork();

    if (pid < 0)
        bench_fail("fork fails");
    if (pid == 0)
        serve(path);
    for (int i = 0; i < 500 && access(path, F_OK) != 0; i++) {
        struct timespec t = {0, 10 * 1000 * 1000};

        nanosleep(&t, NULL);
    }
    return pid;
}

/* ---- its client ---- */

struct echo_client {
    grpc_channel *channel;
    grpc_completion_queue *cq;
    grpc_call *call;
    uint8_t *payload;
    size_t n;
};

static void echo_open(struct echo_client *c, const char *path)
{
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();
    static grpc_metadata_array metadata;
    char address[128];
    grpc_op ops[2];

    snprintf(address, sizeof(address), "unix:%s", path);
    grpc_init();
    c->channel = grpc_channel_create(address, creds, NULL);
    grpc_channel_credentials_release(creds);
    c->cq = grpc_completion_queue_create_for_next(NULL);
    c->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq,
                                       grpc_slice_from_static_string(METHOD), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                       NULL);
    memset(ops, 0, sizeof(ops));
    grpc_metadata_array_init(&metadata);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_RECV_INITIAL_METADATA; /* without it no message is delivered */
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &metadata;
    if (!batch(c->call, c->cq, ops, 2))
        bench_fail("the echo server is not reached");
}

static void echo_exchange(struct echo_client *c)
{
    grpc_slice slice = grpc_slice_malloc(c->n);
    grpc_byte_buffer *out, *in = NULL;
    grpc_op ops[2];

    memcpy(GRPC_SLICE_START_PTR(slice), c->payload, c->n);
    out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    memset(ops, 0, sizeof(ops));
    ops[0].op = GRPC_OP_SEND_MESSAGE;
    ops[0].data.send_message.send_message = out;
    ops[1].op = GRPC_OP_RECV_MESSAGE;
    ops[1].data.recv_message.recv_message = &in;
    if (!batch(c->call, c->cq, ops, 2) || in == NULL || grpc_byte_buffer_length(in) != c->n)
        bench_fail("the echo server does not echo");
    grpc_byte_buffer_destroy(in);
    grpc_byte_buffer_destroy(out);
}

static void echo_close(struct echo_client *c)
{
    grpc_call_cancel(c->call, NULL);
    grpc_call_unref(c->call);
    grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->cq);
    while (grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(c->cq);
    grpc_shutdown();
}

/* ---- the replay ---- */

static const char graph_text[] = "npugraph 1\ngraph \"bench.neg\" {\n  input %x : f32[16]\n  %y = aten.neg(%x)\n"
                                 "  return \"y\" = %y\n}\n";

struct replayer {
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_input input;
    struct npugraph_result *result;
    float x[ELEMENTS];
};

static void replay_open(struct replayer *r, struct npugraph_client *client)
{
    struct npugraph_error err = {0};

    for (int i = 0; i < ELEMENTS; i++)
        r->x[i] = (float)i + 1;
    r->input = (struct npugraph_input){r->x, sizeof(r->x)};
    r->replay.inputs = &r->input;
    r->replay.n_inputs = 1;
    if (npugraph_graph_register(client, graph_text, NULL, 0, NULL, 0, &r->replay.graph, &err) != 0 ||
        npugraph_graph_capture(client, r->replay.graph, NULL, 0, false, NULL, &err) != 0 ||
        npugraph_replay_stream_open(client, &r->stream, &err) != 0)
        bench_fail("%s", err.message);
}

static void replay_once(struct replayer *r)
{
    struct npugraph_error err = {0};

    if (npugraph_replay_stream_run(r->stream, &r->replay, &r->result, &err) != 0)
        bench_fail("replay: %s", err.message);
    if (r->result->n != 1 || ((const float *)r->result->outputs[0].data)[3] != -4.0f)
        bench_fail("the replay's result is wrong");
}

/* What the replay's request is on the wire: the echo carries the same number of bytes in both directions. */
static void make_payload(struct echo_client *c, const struct replayer *r)
{
    Npugraph__V1__ReplayRequest req = NPUGRAPH__V1__REPLAY_REQUEST__INIT;
    ProtobufCBinaryData input = {sizeof(r->x), (uint8_t *)(uintptr_t)r->x};

    req.graph = r->replay.graph;
    req.n_inputs = 1;
    req.inputs = &input;
    c->n = npugraph__v1__replay_request__get_packed_size(&req);
    c->payload = malloc(c->n);
    npugraph__v1__replay_request__pack(&req, c->payload);
}

/* ---- both in turn ---- */

/*
 * A wake-up costs several times an exchange, and whether one is needed depends on where the scheduler has put the
 * threads: exchanges come in two modes, each lasting for hundreds of them. So they are taken in short turns, one of
 * each kind back to back, and the ratio is that of turns whose two sides met the same mode.
 */
#define TURN 20

struct turn {
    double median[2]; /* echo, replay */
};

static double turn_of(struct echo_client *c, struct replayer *r, bool replays, struct samples *all)
{
    struct samples one = {0};
    double median;

    for (int k = 0; k < TURN; k++) {
        ngd_nsec_t begin = ngd_now();

        if (replays)
            replay_once(r);
        else
            echo_exchange(c);
        samples_add(&one, (double)(ngd_now() - begin));
        samples_add(all, (double)(ngd_now() - begin));
    }
    median = samples_quantile(&one, 0.5);
    samples_free(&one);
    return median;
}

/* Between the modes, when the turns of a kind lie in two: the geometric mean of their ends. 0: there is one mode. */
static double border(const struct turn *turns, size_t n, int kind)
{
    struct samples s = {0};
    double low, high;

    for (size_t i = 0; i < n; i++)
        samples_add(&s, turns[i].median[kind]);
    low = samples_quantile(&s, 0.05);
    high = samples_quantile(&s, 0.95);
    samples_free(&s);
    return high > 2 * low ? sqrt(low * high) : 0;
}

static void print_mode(const struct turn *turns, size_t n, const double border[2], bool slow, const char *name)
{
    struct samples s[2] = {{0}, {0}}, ratios = {0};

    for (size_t i = 0; i < n; i++) {
        const struct turn *t = &turns[i];

        if ((t->median[0] > border[0]) != slow || (t->median[1] > border[1]) != slow)
            continue;
        samples_add(&s[0], t->median[0]);
        samples_add(&s[1], t->median[1]);
        samples_add(&ratios, t->median[1] / t->median[0]);
    }
    printf("%s: %zu of %zu turns\n", name, ratios.n, n);
    if (ratios.n > 0) {
        samples_print(&s[0], "  C-core stream echo, same bytes", "us", 1e-3);
        samples_print(&s[1], "  replay of one node over the stream", "us", 1e-3);
        samples_print(&ratios, "  ratio within a turn; wanted <= 1.5", "", 1);
    }
    samples_free(&s[0]);
    samples_free(&s[1]);
    samples_free(&ratios);
}

static void measure(struct echo_client *c, struct replayer *r, int64_t rounds, int64_t each)
{
    const size_t warm = (size_t)(each / TURN), n = (size_t)(rounds * each / TURN);
    struct turn *turns = calloc(n + warm, sizeof(*turns));
    struct samples all[2] = {{0}, {0}};
    double borders[2];

    if (turns == NULL)
        bench_fail("no memory for %zu turns", n);
    for (size_t i = 0; i < n + warm; i++) {
        const int first = (int)(i % 2);

        if (i == warm)
            all[0].n = all[1].n = 0;
        for (int k = 0; k < 2; k++)
            turns[i].median[first ^ k] = turn_of(c, r, (first ^ k) != 0, &all[first ^ k]);
    }
    samples_print(&all[0], "C-core stream echo, all", "us", 1e-3);
    samples_print(&all[1], "replay of one node over the stream, all", "us", 1e-3);
    for (int k = 0; k < 2; k++)
        borders[k] = border(turns + warm, n, k);
    if (borders[0] > 0 && borders[1] > 0) {
        print_mode(turns + warm, n, borders, false, "both awake");
        print_mode(turns + warm, n, borders, true, "both woken up each time");
    } else {
        borders[0] = borders[1] = 0;
        print_mode(turns + warm, n, borders, true, "one mode");
    }
    free(turns);
}

int main(int argc, char **argv)
{
    int64_t rounds = 20, each = 2000;
    bool quick = false;
    const struct bench_option options[] = {
        {"rounds", &rounds, NULL, NULL}, {"each", &each, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    struct npugraph_client *client;
    struct echo_client echo = {0};
    struct replayer r = {0};
    char path[100], *dir;
    struct live live;
    pid_t server;
    int rc;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 4, each = 500;
    dir = bench_dir_make();
    snprintf(path, sizeof(path), "%s/sock", dir);
    server = start_server(path); /* before this process has any thread */
    live_start(&live, dir, NULL);
    client = live_connect(&live, "bench_echo");
    replay_open(&r, client);
    echo_open(&echo, path);
    make_payload(&echo, &r);
    measure(&echo, &r, rounds, each);
    npugraph_result_free(r.result);
    npugraph_replay_stream_close(r.stream);
    npugraph_disconnect(client);
    echo_close(&echo);
    free(echo.payload);
    rc = live_stop(&live);
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    bench_dir_remove(dir);
    return rc != 0;
}
