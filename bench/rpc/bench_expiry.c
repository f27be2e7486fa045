/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How exactly a queued request expires while the device is busy. The calls are made with gRPC's C-core, on a channel
 * that does not watch deadlines itself, so it is the daemon that ends them.
 *
 * Long replays keep the device busy. The requests that expire have a lower priority, so they wait. Their graph has
 * never run, so the daemon knows nothing of their length and cannot refuse them at once.
 */
#include "base/wakeup.h"
#include "bench/rpc/crowd.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METHOD    "/npugraph.v1.Graphs/Replay"
#define SIZE      1024 /* of the matrix products that keep the device busy */
#define CHAIN     16
#define FLOODS    2
#define LEAST_MS  5 /* the shortest deadline, in milliseconds */
#define MOST_MS   60
#define LATE_MAX  NGD_MSEC
#define MANY_CALL 8 /* calls that wait at the same time */

static void run_flood(struct member *m)
{
    member_replay(m, "flood", crowd_products_text("long", CHAIN, SIZE), 0);
}

static const struct crowd_role roles[] = {{"flood", run_flood}, {NULL, NULL}};

/* ---- the calls ---- */

struct expiring {
    grpc_call *call;
    grpc_byte_buffer *message, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    grpc_metadata session;
    ngd_nsec_t due;
};

struct caller {
    grpc_channel *channel;
    grpc_completion_queue *cq;
    char session[24];
    grpc_slice payload;
};

static void caller_open(struct caller *c, const char *address, struct npugraph_client *client, uint64_t graph)
{
    static const float x[16] = {1};
    Npugraph__V1__ReplayRequest req = NPUGRAPH__V1__REPLAY_REQUEST__INIT;
    ProtobufCBinaryData input = {sizeof(x), (uint8_t *)(uintptr_t)x};
    grpc_arg no_checks = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_DEADLINE_CHECKS};
    grpc_channel_args args = {1, &no_checks};
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();

    grpc_init();
    no_checks.value.integer = 0;
    c->channel = grpc_channel_create(address, creds, &args);
    grpc_channel_credentials_release(creds);
    c->cq = grpc_completion_queue_create_for_next(NULL);
    snprintf(c->session, sizeof(c->session), "%" PRIu64, npugraph_session_id(client));
    req.graph = graph;
    req.n_inputs = 1;
    req.inputs = &input;
    req.priority = NGD_PB(PRIORITY, LOW);
    c->payload = grpc_slice_malloc(npugraph__v1__replay_request__get_packed_size(&req));
    npugraph__v1__replay_request__pack(&req, GRPC_SLICE_START_PTR(c->payload));
}

static void caller_close(struct caller *c)
{
    grpc_slice_unref(c->payload);
    grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->cq);
    while (grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(c->cq);
    grpc_shutdown();
}

static void start_call(struct caller *c, struct expiring *e, int64_t ms)
{
    const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    grpc_op ops[6];

    memset(e, 0, sizeof(*e));
    memset(ops, 0, sizeof(ops));
    e->due = ngd_now() + ms * NGD_MSEC;
    e->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq,
                                       grpc_slice_from_static_string(METHOD), NULL,
                                       gpr_time_add(now, gpr_time_from_millis(ms, GPR_TIMESPAN)), NULL);
    e->session.key = grpc_slice_from_static_string("npugraph-session");
    e->session.value = grpc_slice_from_static_string(c->session);
    e->message = grpc_raw_byte_buffer_create(&c->payload, 1);
    grpc_metadata_array_init(&e->initial);
    grpc_metadata_array_init(&e->trailing);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].data.send_initial_metadata.count = 1;
    ops[0].data.send_initial_metadata.metadata = &e->session;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = e->message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &e->initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &e->reply;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &e->trailing;
    ops[5].data.recv_status_on_client.status = &e->status;
    ops[5].data.recv_status_on_client.status_details = &e->details;
    if (grpc_call_start_batch(e->call, ops, 6, e, NULL) != GRPC_CALL_OK)
        bench_fail("gRPC refuses a batch");
}

static void end_call(struct expiring *e)
{
    grpc_byte_buffer_destroy(e->message);
    grpc_byte_buffer_destroy(e->reply);
    grpc_metadata_array_destroy(&e->initial);
    grpc_metadata_array_destroy(&e->trailing);
    grpc_slice_unref(e->details);
    grpc_call_unref(e->call);
}

struct tally {
    struct samples late; /* how long after the deadline the answer came, nanoseconds */
    uint64_t expired, other;
};

/* Makes several calls that wait at the same time, each with its own deadline. */
static void run_calls(struct caller *c, struct tally *t, uint64_t *chance)
{
    struct expiring calls[MANY_CALL];

    for (int i = 0; i < MANY_CALL; i++) {
        *chance = *chance * UINT64_C(6364136223846793005) + 1442695040888963407u;
        start_call(c, &calls[i], LEAST_MS + (int64_t)(*chance >> 33) % (MOST_MS - LEAST_MS + 1));
    }
    for (int i = 0; i < MANY_CALL; i++) {
        grpc_event ev = grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        struct expiring *e = ev.tag;

        if (e->status == GRPC_STATUS_DEADLINE_EXCEEDED || e->status == GRPC_STATUS_CANCELLED) {
            samples_add(&t->late, (double)(ngd_now() - e->due));
            t->expired++;
        } else {
            t->other++;
            if (t->other == 1)
                fprintf(stderr, "status %d: %.*s\n", (int)e->status, (int)GRPC_SLICE_LENGTH(e->details),
                        (const char *)GRPC_SLICE_START_PTR(e->details));
        }
        end_call(e);
    }
}

static void report(struct tally *t, struct samples *busy, struct npugraph_client *client)
{
    uint64_t early = 0, in_time = 0;

    for (size_t i = 0; i < t->late.n; i++) {
        early += t->late.v[i] < 0;
        in_time += t->late.v[i] <= (double)LATE_MAX;
    }
    if (busy->n == 0 || t->late.n == 0)
        bench_fail("%zu long replays, %zu calls that expired", busy->n, t->late.n);
    samples_print(busy, "replays that keep the device busy", "ms", 1e-6);
    samples_print(&t->late, "end of a queued call after its deadline", "us", 1e-3);
    printf("  p99 %.0f us, most %.0f us; %" PRIu64 " of %zu within 1 ms (%.2f %%), %" PRIu64
           " early; wanted: all within "
           "1 ms\n",
           samples_quantile(&t->late, 0.99) * 1e-3, samples_quantile(&t->late, 1) * 1e-3, in_time, t->late.n,
           100.0 * (double)in_time / (double)t->late.n, early);
    printf("  by the daemon's own clock: p50 %.0f us, p99 %.0f us, p99.9 %.0f us, of %.0f that it ended itself\n",
           crowd_stat(client, "latency.expiry_late.p50_us"), crowd_stat(client, "latency.expiry_late.p99_us"),
           crowd_stat(client, "latency.expiry_late.p999_us"), crowd_stat(client, "latency.expiry_late.count"));
    if (t->other)
        printf("  %" PRIu64 " calls ended in another way and do not count\n", t->other);
}

int main(int argc, char **argv)
{
    int64_t rounds = 200, threads = 2;
    bool quick = false;
    const struct bench_option options[] = {
        {"rounds", &rounds, NULL, NULL}, {"threads", &threads, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    char n_threads[24];
    const char *extra[] = {"--slots", "1", "--threads", n_threads, NULL};
    struct samples busy = {0};
    struct npugraph_client *client;
    struct npugraph_error err = {0};
    struct tally tally = {{0}, 0, 0};
    struct caller caller;
    struct live live;
    struct crowd c;
    uint64_t chance = 1, graph;
    char *dir, *text;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    (void)ngd_wakeup_ask(NGD_WAKEUP_SLICE); /* this program's own timer must not add to what is measured */
    if (quick)
        rounds = 40;
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    dir = bench_dir_make();
    live_start(&live, dir, extra);
    crowd_open(&c, live.address);
    for (int i = 0; i < FLOODS; i++)
        crowd_start(&c, i, "flood", 0, 0);
    crowd_wait_ready(&c, FLOODS);
    client = live_connect(&live, "bench_expiry");
    text = crowd_chain_text("short", 2);
    if (npugraph_graph_register(client, NULL, text, NULL, 0, NULL, 0, &graph, &err) != 0 ||
        npugraph_graph_capture(client, graph, NULL, 0, false, NULL, &err) != 0)
        bench_fail("%s", err.message);
    free(text);
    caller_open(&caller, live.address, client, graph);
    crowd_work(&c, FLOODS, 500 * NGD_MSEC, 0);
    for (int64_t i = 0; i < rounds; i++)
        run_calls(&caller, &tally, &chance);
    for (int i = 0; i < FLOODS; i++)
        crowd_samples(&c, i, &busy);
    report(&tally, &busy, client);
    crowd_close(&c);
    caller_close(&caller);
    npugraph_disconnect(client);
    samples_free(&tally.late);
    samples_free(&busy);
    bench_dir_remove(dir);
    return live_stop(&live) != 0;
}
