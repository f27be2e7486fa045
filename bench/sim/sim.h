/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_SIM_H
#define NGD_BENCH_SIM_H

/*
 * The scheduler on virtual time: its own policies, caps, merging and foretelling of deadlines
 * (scheduler/lineup/lineup.h), with devices that only take time. For sizes that no machine here has, and for what must
 * not depend on how busy a machine is.
 *
 * A client is an identity with a weight. It sends requests at random times (exponential gaps), each with a length
 * (log-normal around its client's own mean), some with a deadline. Every client's graph is on one device, as a binding
 * is. The scheduler knows a request's length as well as the daemon does: as the mean of its client's replays.
 * Everything is drawn from the seed: two runs with the same parameters are the same.
 * Threads: one. Memory: the caller keeps the arrays.
 */
#include "scheduler/lineup/merge.h"
#include <stdio.h>

/* What a daemon recorded (npugraphctl trace stop --form arrivals), instead of what is drawn. */
struct sim_arrival {
    ngd_nsec_t at, length, cost; /* cost: as the daemon expected it; 0 = unknown */
    ngd_nsec_t deadline;         /* NGD_NSEC_NEVER */
    uint32_t client;
    ngd_priority_t priority;
};
struct sim_arrivals {
    struct sim_arrival *items; /* by time */
    size_t n;
    struct {
        uint32_t weight, device;
    } * clients; /* an identity on a device */
    uint32_t n_clients, n_devices;
};
/* False: error has a sentence about the line. */
bool sim_arrivals_read(FILE *f, struct sim_arrivals *arrivals_p, char *error, size_t room);
void sim_arrivals_free(struct sim_arrivals *arrivals);

struct sim_params {
    const char *policy;
    uint32_t devices, slots, clients;
    double seconds;                    /* virtual */
    double load;                       /* what is asked for, of what the devices can do */
    ngd_nsec_t mean_length;            /* of a replay; clients' own means lie within a factor of four */
    double spread;                     /* of a client's replays around its mean: sigma of the logarithm */
    double deadline_share;             /* of requests that have a deadline, 0..1 */
    double deadline_min, deadline_max; /* in lengths of the request, from its arrival */
    bool backlogged;                   /* each client keeps two requests waiting instead of sending at random times */
    uint32_t n_weights;                /* clients have them in turn */
    uint32_t weights[8];
    uint32_t caps[8]; /* of clients with these weights: percent of a device's time that one may have; 0: no bound */
    /*
     * Clients' requests of one row, of so many graphs on each device, run together in the bucket that holds them; n 0:
     * alone. A replay in the first bucket takes a client's mean, each row that another one has besides adds this part.
     * Then `load` is of what devices can do with full replays in the last bucket.
     */
    uint32_t n_buckets, graphs;
    int64_t buckets[8]; /* ascending */
    double row_part;
    uint64_t seed;
    const struct sim_arrivals *arrivals; /* NULL: drawn; else they give clients, devices, weights and requests */
};

struct sim_class { /* of clients with one weight */
    uint32_t weight, clients;
    double used;        /* device seconds */
    double least, most; /* device time of a client over its part by weight, the worst and the best client */
    double most_share;  /* of its device's time that a client had */
    uint64_t requests;
    ngd_nsec_t p50, p99; /* from arrival to end, of what was taken */
};

struct sim_result {
    uint64_t requests, with_deadline, taken, refused, missed;
    uint64_t replays; /* that began */
    double
        wrongly_refused; /* of the refused device time, at most so much could have been done in time by who knew all */
    double busy;         /* share of the slots' time */
    struct sim_class classes[8];
    uint32_t n_classes;
    double wall; /* seconds that the simulation took */
    uint64_t events;
};

void sim_params_init(struct sim_params *params);
/* Requests of two graphs that run together in buckets of 1, 4 and 16 rows. */
void sim_params_together(struct sim_params *params);
void sim_run(const struct sim_params *params, struct sim_result *result_p);

#endif
