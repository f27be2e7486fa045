/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replay costs on top of its transport. A graph of one node is replayed over Graphs.ReplayStream, and compared
 * with a C-core server in a process of its own that only sends back what it receives. Both exchange the same payload on
 * one stream over a Unix socket, with one batch of {SEND_MESSAGE, RECV_MESSAGE} for each exchange on both sides.
 */
#include "bench/rpc/bench_rpc.h"
#include "proto/npugraph.pb-c.h"
#include "tests/models/live.h"

#include <dirent.h>
#include <fcntl.h>
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
        bench_fail("%s: cannot create a socket there", path);
    return fd;
}

struct echo {
    grpc_server *server;
    grpc_completion_queue *cq;
    grpc_call *call;
    grpc_byte_buffer *received, *sent;
};

/* Starts a batch and waits for it. Returns false when the stream is over. */
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

/* Serves until the client is gone, which ends the process. */
static void serve_echo(const char *path)
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

/* Starts the server in a process of its own by exec, since gRPC does not survive a fork. */
static pid_t start_server(const char *path)
{
    pid_t pid = fork();

    if (pid < 0)
        bench_fail("fork fails");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* however the benchmark ends */
        execl("/proc/self/exe", "bench_echo", "--serve", path, (char *)NULL);
        _exit(127);
    }
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
    ops[1].op = GRPC_OP_RECV_INITIAL_METADATA; /* without this operation no message is delivered */
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &metadata;
    if (!batch(c->call, c->cq, ops, 2))
        bench_fail("the echo server cannot be reached");
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
    if (npugraph_graph_register(client, NULL, graph_text, NULL, 0, NULL, 0, &r->replay.graph, &err) != 0 ||
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

/*
 * Makes a payload as long as the replay's request on the wire. The echo carries the same number of bytes in both
 * directions.
 */
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
 * The time of an exchange depends more on what the kernel's scheduler does with the two sides than on the sides
 * themselves. On one CPU, a side may or may not preempt the other when its socket becomes writable again, and it keeps
 * doing whichever happened first. On two CPUs each side has to be woken up. So each placement is compared on its own,
 * over many starts of both servers, with short turns of echo and replay back to back.
 */
#define TURN 20

enum { ANYWHERE = -1 };

/* Pins all current threads of a process to the CPU, or lets them run anywhere. */
static void pin_process(pid_t pid, int cpu, const cpu_set_t *all)
{
    char path[64];
    struct dirent *task;
    cpu_set_t set = *all;
    DIR *tasks;

    if (cpu != ANYWHERE) {
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
    }
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (tasks == NULL)
        bench_fail("%s: cannot be read", path);
    while ((task = readdir(tasks)) != NULL)
        if (task->d_name[0] != '.')
            (void)sched_setaffinity(atoi(task->d_name), sizeof(set),
                                    &set); /* fails for a thread that has ended meanwhile */
    closedir(tasks);
}

static int nth_cpu(const cpu_set_t *all, int n)
{
    if (n == ANYWHERE)
        return ANYWHERE;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((unsigned)cpu, all) && n-- == 0)
            return cpu;
    bench_fail("there are too few CPUs to place a client beside its server");
}

static double turn_of(struct echo_client *c, struct replayer *r, bool replays, struct samples *all)
{
    struct samples one = {0};
    double median;

    for (int k = 0; k < TURN; k++) {
        ngd_nsec_t begin = ngd_now(), took;

        if (replays)
            replay_once(r);
        else
            echo_exchange(c);
        took = ngd_now() - begin;
        samples_add(&one, (double)took);
        samples_add(all, (double)took);
    }
    median = samples_quantile(&one, 0.5);
    samples_free(&one);
    return median;
}

struct placement {
    const char *name;
    int client, server; /* the n-th of the allowed CPUs, or ANYWHERE */
    struct samples all[2], ratios;
};

static void measure_placement(struct placement *p, struct echo_client *c, struct replayer *r, int64_t each)
{
    double median[2];

    for (int64_t i = 0; i < each / TURN; i++) {
        for (int k = 0; k < 2; k++)
            median[(i ^ k) & 1] = turn_of(c, r, ((i ^ k) & 1) != 0, &p->all[(i ^ k) & 1]);
        samples_add(&p->ratios, median[1] / median[0]);
    }
}

static void print_placement(struct placement *p)
{
    printf("%s\n", p->name);
    samples_print(&p->all[0], "  C-core stream echo, same bytes", "us", 1e-3);
    samples_print(&p->all[1], "  replay of one node over the stream", "us", 1e-3);
    printf("  ratio of medians %.2f\n", samples_quantile(&p->all[1], 0.5) / samples_quantile(&p->all[0], 0.5));
    samples_print(&p->ratios, "  ratio within a turn; wanted <= 1.5", "", 1);
    samples_free(&p->all[0]);
    samples_free(&p->all[1]);
    samples_free(&p->ratios);
}

/* Starts both servers anew and measures each placement once. */
static void round_of(struct placement *placements, size_t n, const char *dir, int64_t each)
{
    struct npugraph_client *client;
    struct echo_client echo = {0};
    struct replayer r = {0};
    struct samples warm = {0};
    struct live live;
    char path[100];
    pid_t servers[2];
    cpu_set_t all;

    snprintf(path, sizeof(path), "%s/sock", dir);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        bench_fail("sched_getaffinity fails");
    servers[0] = start_server(path);
    live_start(&live, dir, NULL);
    servers[1] = live.pid;
    client = live_connect(&live, "bench_echo");
    replay_open(&r, client);
    echo_open(&echo, path);
    make_payload(&echo, &r);
    for (size_t i = 0; i < n; i++) {
        pin_process(getpid(), nth_cpu(&all, placements[i].client), &all);
        for (int k = 0; k < 2; k++)
            pin_process(servers[k], nth_cpu(&all, placements[i].server), &all);
        for (int k = 0; k < 2; k++)
            turn_of(&echo, &r, k != 0, &warm);
        measure_placement(&placements[i], &echo, &r, each);
    }
    pin_process(getpid(), ANYWHERE, &all);
    samples_free(&warm);
    npugraph_result_free(r.result);
    npugraph_replay_stream_close(r.stream);
    npugraph_disconnect(client);
    echo_close(&echo);
    free(echo.payload);
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    kill(servers[0], SIGTERM);
    waitpid(servers[0], NULL, 0);
    unlink(path);
}

int main(int argc, char **argv)
{
    int64_t rounds = 16, each = 1000;
    const char *serves = NULL;
    bool quick = false;
    const struct bench_option options[] = {{"serve", NULL, &serves, NULL},
                                           {"rounds", &rounds, NULL, NULL},
                                           {"each", &each, NULL, NULL},
                                           {"quick", NULL, NULL, &quick}};
    struct placement placements[] = {{"both on one CPU", 0, 0, {{0}, {0}}, {0}},
                                     {"client and servers on a CPU each", 0, 1, {{0}, {0}}, {0}},
                                     {"where the kernel puts them", ANYWHERE, ANYWHERE, {{0}, {0}}, {0}}};
    const size_t n = sizeof(placements) / sizeof(placements[0]);
    char *dir;

    setenv("NPUGRAPH_LOCAL_TRANSPORT", "off", 1); /* it measures gRPC */
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (serves != NULL)
        serve_echo(serves);
    if (quick)
        rounds = 4, each = 400;
    dir = bench_dir_make();
    for (int64_t i = 0; i < rounds; i++)
        round_of(placements, n, dir, each);
    for (size_t i = 0; i < n; i++)
        print_placement(&placements[i]);
    bench_dir_remove(dir);
    return 0;
}
