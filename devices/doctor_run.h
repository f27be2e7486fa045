/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DOCTOR_RUN_H
#define NGD_DEVICES_DOCTOR_RUN_H

/*
 * One small graph on one device, from its text to compared results, for the doctor and for probes of devices.
 *
 * Values are made from names and numbers of elements, so that two devices get the same. A name that begins with "zero"
 * or "one" has zeros or ones; "pos": values above 0; "last": n-1, n-2, ... 0; "minus": every second one is -1. Other
 * floats are within -1.1..1.1 and differ from their 66 neighbours; other integers are 0..3, valid rows, slots and
 * blocks.
 * Threads: the caller's. Memory: the owner closes runs before their bench.
 */
#include "devices/device.h"

#define NGD_DOCTOR_RUN_SLOTS 8 /* inputs, outputs, params and states of a graph, each */

/* A device with a stream and a pool. A zeroed one may be closed. */
struct ngd_doctor_bench {
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
};

struct ngd_doctor_run {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer *bound[NGD_DOCTOR_RUN_SLOTS]; /* params, then states */
    uint32_t n_bound;
    struct ngd_span inputs[NGD_DOCTOR_RUN_SLOTS];
    struct ngd_out outputs[NGD_DOCTOR_RUN_SLOTS];
    struct ngd_host_value hosts[NGD_DOCTOR_RUN_SLOTS];
    struct ngd_launch launch;
};

/* Adds a stream and a pool to b->dev. */
ngd_status_t ngd_doctor_bench_open(struct ngd_doctor_bench *b, struct ngd_diag *diag);
/* Opens a host device with plain C kernels, which the tests compare everything else with too. */
ngd_status_t ngd_doctor_bench_reference(struct ngd_doctor_bench *b, struct ngd_diag *diag);
void ngd_doctor_bench_close(struct ngd_doctor_bench *b); /* not b->dev */

/*
 * Makes an executable and an instance of the graph with this body, and fills its buffers and inputs. Host parameters
 * are `hosts`, which the caller keeps; NULL: each is one 4. After an error nothing is left.
 */
ngd_status_t ngd_doctor_run_open(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, const char *body,
                                 const struct ngd_host_value *hosts, struct ngd_diag *diag);
void ngd_doctor_run_close(struct ngd_doctor_run *r);
/* Replays it; the diagnosis is r->launch.diag. */
ngd_status_t ngd_doctor_run_replay(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, bool eager,
                                   ngd_nsec_t *took_p);
void ngd_doctor_run_sort(ngd_nsec_t *took, size_t n); /* the shortest first */
/* Compares outputs, then states. Returns true if all are the same; otherwise text says which one differs and how. An
 * error means that they could not be compared; its diagnosis is got->launch.diag. */
bool ngd_doctor_run_same(struct ngd_doctor_run *got, struct ngd_doctor_run *want, struct ngd_strbuf *text,
                         ngd_status_t *status_p);
/* Checks that a second replay, and an eager run operator by operator, give the bits of the first replay. Returns which
 * of the two does not, NULL if both do. */
const char *ngd_doctor_run_repeat(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, ngd_status_t *status_p);

#endif
