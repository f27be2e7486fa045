/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_SIM_H
#define NGD_BENCH_SIM_H

/*
 * The scheduler on virtual time: its own policies, caps, merging and prediction of deadlines
 * (scheduler/lineup/lineup.h), with devices that do nothing but take time. It is for sizes that cannot be tested on a
 * real machine, and for results that must not depend on how busy a machine is.
 *
 * A client is an identity with a weight. It sends requests at random times (exponential gaps), each with a length
 * (log-normal around the client's own mean), and some with a deadline. A client's graph is on one device, as a binding
 * is. The scheduler knows the length of a request as well as the daemon does: as the mean of the client's replays so
 * far. Everything is drawn from the seed, so two runs with the same parameters give the same result.
 * Threads: one. Memory: the caller keeps the arrays.
 */
#include "scheduler/lineup/merge.h"
#include <stdio.h>

/* One request that a daemon recorded (npugraphctl trace stop --form arrivals), used in place of a drawn one. */
struct sim_arrival {
    ngd_nsec_t at, length, cost; /* cost: what the daemon expected; 0: unknown */
    ngd_nsec_t deadline;         /* NGD_NSEC_NEVER: none */
    uint32_t client;
    ngd_priority_t priority;
};
struct sim_arrivals {
    struct sim_arrival *items; /* ordered by time */
    size_t n;
    struct {
        uint32_t weight, device;
    } * clients; /* one for each identity on a device */
    uint32_t n_clients, n_devices;
};
/* Returns false if a line is wrong; error then has a sentence about it. */
bool sim_arrivals_read(FILE *f, struct sim_arrivals *arrivals_p, char *error, size_t room);
void sim_arrivals_free(struct sim_arrivals *arrivals);

struct sim_params {
    const char *policy;
    uint32_t devices, slots, clients;
    double seconds;                    /* virtual time */
    double load;                       /* the device time that is asked for, as a part of what the devices have */
    ngd_nsec_t mean_length;            /* of a replay; the means of the clients lie within a factor of four */
    double spread;                     /* how far a client's replays are from its mean: sigma of the logarithm */
    double deadline_share;             /* part of the requests that have a deadline, 0..1 */
    double deadline_min, deadline_max; /* the deadline's distance from the arrival, in lengths of the request */
    bool backlogged;                   /* each client keeps two requests waiting instead of sending at random times */
    uint32_t n_weights;                /* the clients get the weights in turn */
    uint32_t weights[8];
    uint32_t caps[8]; /* for each weight, the percent of a device's time that one client may have; 0: no cap */
    /*
     * With buckets, clients send requests of one row, for one of `graphs` graphs on each device, and these run together
     * in the bucket that holds them. Without (n_buckets 0), each runs alone. A replay in the first bucket takes a
     * client's mean, and each row above that bucket adds row_part of it. `load` is then relative to what the devices
     * can do with full replays in the last bucket.
     */
    uint32_t n_buckets, graphs;
    int64_t buckets[8]; /* ascending */
    double row_part;
    uint64_t seed;
    const struct sim_arrivals *arrivals; /* gives clients, devices, weights and requests; NULL: they are drawn */
};

struct sim_class { /* results of the clients with one weight */
    uint32_t weight, clients;
    double used;        /* device seconds */
    double least, most; /* the worst and the best ratio of a client's device time to its part by weight */
    double most_share;  /* the largest part of its device's time that a client had */
    uint64_t requests;
    ngd_nsec_t p50, p99; /* from arrival to end, of accepted requests */
};

struct sim_result {
    uint64_t requests, with_deadline, taken, refused, missed;
    uint64_t replays;       /* replays that began */
    double wrongly_refused; /* part of the refused device time that could have been used, at most */
    double busy;            /* part of the slots' time */
    struct sim_class classes[8];
    uint32_t n_classes;
    double wall; /* seconds that the simulation took */
    uint64_t events;
};

void sim_params_init(struct sim_params *params);
/* Sets parameters for requests of two graphs that run together in buckets of 1, 4 and 16 rows. */
void sim_params_together(struct sim_params *params);
void sim_run(const struct sim_params *params, struct sim_result *result_p);

#endif
