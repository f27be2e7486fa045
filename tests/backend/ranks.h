/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_BACKEND_RANKS_H
#define NGD_TESTS_BACKEND_RANKS_H

/* A group of devices of one backend with a graph on each, and joint launches of them. */
#include "tests/backend/conform.h"
#include "devices/comm.h"

#define RANKS_MAX 3

struct ranks {
    const struct conform_backend *backend;
    uint32_t n;
    struct bench b[RANKS_MAX];
    struct ngd_comm *comm; /* the group "tp" of all ranks */
    struct ready r[RANKS_MAX];
    struct conform_io io[RANKS_MAX];
    char *x[RANKS_MAX], *y[RANKS_MAX]; /* the data of input 0 and output 0 */
};

/* Returns false if the backend has no collectives, after printing the reason. */
bool ranks_open(struct ranks *s, int backend, uint32_t n, ngd_nsec_t time_limit);
void ranks_close(struct ranks *s);

/* Makes a graph ready to run on a rank, with room for input 0 and output 0. */
void ranks_ready(struct ranks *s, uint32_t rank, const char *text, const int64_t *symbols);
void ranks_unready(struct ranks *s);
/* Queues the launch of a rank. Returns what queueing it returned. */
ngd_status_t ranks_launch(struct ranks *s, uint32_t rank);
/* Waits for the queued launches. */
void ranks_wait(struct ranks *s);
/* Launches all ranks and waits. All must end well. */
void ranks_run(struct ranks *s);
/* Returns the text of a graph with the body, whose last value, %y, is the output. */
const char *ranks_text(const char *body, ...) __attribute__((format(printf, 1, 2)));

#endif
