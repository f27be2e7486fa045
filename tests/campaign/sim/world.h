/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_SIM_WORLD_H
#define NGD_TESTS_SIM_WORLD_H

/*
 * A world: a scheduler on simulated devices, identities, graphs and clients, all drawn from the seed.
 *
 * A client stands for a session: it has streams (orders), its own binding and events, submits some requests, waits for
 * the answers, thinks, and begins again; after some rounds it ends, and another one comes in its place. What it does
 * is done by a few threads, as the daemon's completion queues do it.
 */
#include "base/heap.h"
#include "scheduler/program/program_int.h"
#include "tests/campaign/sim/device.h"
#include "tests/campaign/sim/fibers.h"

enum { SIM_IDENTITIES = 6, SIM_GRAPHS = 6, SIM_CLIENTS = 400, SIM_STREAMS = 2, SIM_PIPELINE = 4, SIM_ROWS = 32 };

struct sim_identity {
    struct ngd_share *share;
    struct ngd_share_params params;
};

/* What a graph computes. */
enum sim_graph_kind {
    SIM_DOUBLE, /* y = 2x; each size is a key of its own */
    SIM_ROWS_2, /* the same with buckets of a batch symbol: replays run together */
    SIM_PICK,   /* rows of a table: an index that is out of range fails its own request */
    SIM_SUM,    /* a state of each client's: y = the sum of what it sent */
    SIM_KINDS
};

struct sim_graph {
    enum sim_graph_kind kind;
    struct ngd_program *program;
    struct ngd_buffer *table; /* SIM_PICK */
};

/* What a point in time is for. */
struct sim_event {
    struct ngd_heap_node node;
    ngd_nsec_t at;
    uint64_t serial;
    void (*fn)(struct sim_event *event);
};

struct sim_call;

struct sim_client {
    struct sim_event act;
    struct sim_identity *identity;
    struct sim_graph *graph;
    struct ngd_binding *binding;
    struct ngd_buffer *state; /* SIM_SUM */
    struct ngd_order *orders[SIM_STREAMS];
    struct ngd_session_events *events;
    uint32_t n_orders, pipeline;
    ngd_nsec_t think, deadline; /* 0: without */
    uint32_t cancels, bad;      /* of 100 requests */
    ngd_priority_t priority;
    /* Under the world's lock. */
    uint32_t outstanding, pins;
    bool acting, over;
    uint32_t rounds;
    uint64_t submitted[SIM_STREAMS + 1], answered[SIM_STREAMS + 1]; /* by stream; the last: of no order */
    bool recorded;
    float sum[4];
    bool spoiled; /* its state is not known */
};

struct sim_call {
    struct ngd_request req;
    struct sim_client *client;
    struct sim_event cancel;
    struct ngd_list link; /* of those that are not answered */
    struct ngd_span in;
    struct ngd_out out;
    int64_t n;
    uint64_t number; /* in its stream */
    uint32_t stream;
    bool bad, done, cancelled, waits, took;
    uint32_t pins;
    union {
        float f[SIM_ROWS];
        int32_t i[SIM_ROWS];
    } x;
    float y[2 * SIM_ROWS];
};

struct sim_counts {
    uint64_t requests, answers, ok, refused, cancelled, late, stopped, faults, bad_data, together, eager, drained,
        sessions, steps;
    ngd_nsec_t longest_wait;
};

struct sim_world {
    struct ngd_device *devices[3];
    uint64_t used_before[3];
    struct ngd_sched *sched;
    struct ngd_sched_params params;
    struct sim_identity identities[SIM_IDENTITIES];
    uint32_t n_identities, weights;
    struct sim_graph graphs[SIM_GRAPHS];
    uint32_t n_graphs;
    struct sim_client clients[SIM_CLIENTS];
    uint32_t n_clients, n_posts;
    struct sim_fiber *posts[4];
    ngd_nsec_t ends; /* no client begins another round */
    struct ngd_mutex lock;
    struct ngd_cond changed, idle;
    struct ngd_heap agenda;
    uint64_t serial;
    struct ngd_list calls; /* not answered yet, the oldest first */
    uint32_t n_calls;
    bool ending, stopping, draining, closed;
    struct sim_counts counts;
};
extern struct sim_world world;

/* clients.c */
void sim_clients_open(void);  /* draws them, and starts the threads that act for them */
void sim_clients_await(void); /* until each has had its answers */
void sim_clients_close(void); /* the threads end */
/* The longest that a request of the identity may wait, with as many before it as there can be. */
ngd_nsec_t sim_patience(const struct sim_identity *identity);
void sim_check_patience(void); /* of all that wait now */

/* For whoever acts: at that time fn is called, by one of the threads. Under the world's lock. */
void sim_schedule_locked(struct sim_event *event, ngd_nsec_t at);

/* talks.c: in half of the worlds sequences of a model, beside the clients. */
void sim_talks_open(void);
bool sim_talks_over(void);
uint32_t sim_talks_count(void);
void sim_talks_close(void);

/* world.c: from the beginning to the end; what does not hold ends the process. arg: nothing. */
void sim_world_run(void *arg);

#endif
