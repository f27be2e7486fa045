/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_CROWD_H
#define NGD_BENCH_RPC_CROWD_H

/*
 * Client processes of a benchmark: this program again, by exec, since gRPC does not live through a fork. They share a
 * board with the parent, which says who works and reads what each has done. A client ends with its parent.
 */
#include "base/clock.h"
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"
#include <stdatomic.h>
#include <sys/types.h>

#define CROWD_SEATS   64
#define CROWD_SAMPLES (1u << 16) /* of each seat; later ones are not kept */

/* One client's part of the board. Only its client writes, but for `epoch`. */
struct seat {
    _Atomic uint32_t ready;
    _Atomic uint64_t done;   /* requests, tokens */
    _Atomic uint64_t wrong;  /* answers that are not what they must be */
    _Atomic uint64_t device; /* nanoseconds of device time */
    _Atomic uint64_t rows;   /* of the batches that it was in */
    _Atomic uint64_t n_samples;
    _Atomic uint32_t epoch; /* of the samples; they begin anew with the board's */
    uint64_t samples[CROWD_SAMPLES];
};

struct board {
    _Atomic uint32_t working; /* the first so many seats of each kind work; the others wait */
    _Atomic uint32_t epoch;
    _Atomic bool over;
    struct seat seats[CROWD_SEATS];
};

struct crowd {
    struct board *board;
    int fd;
    pid_t pids[CROWD_SEATS];
    const char *address;
};

/* What a client process is given. */
struct member {
    struct board *board;
    struct seat *seat;
    int number;
    int64_t arg;
    const char *address;
};

struct crowd_role {
    const char *name;
    void (*run)(struct member *m);
};

/* At the beginning of main: does not return in a client process. roles end with a NULL name. */
void crowd_member_main(int argc, char **argv, const struct crowd_role *roles);

void crowd_open(struct crowd *c, const char *address);
/* uid: whose process it is; 0 for the caller's own. Others need root. */
void crowd_start(struct crowd *c, int seat, const char *role, uid_t uid, int64_t arg);
void crowd_wait_ready(struct crowd *c, int n);
/* SIGKILL, and the wait for its end. The seat is cleared. */
void crowd_kill(struct crowd *c, int seat);
/* Lets the first n seats work, drops what they did so far, and counts for so long. */
void crowd_work(struct crowd *c, uint32_t n, ngd_nsec_t settle, ngd_nsec_t count);
void crowd_pause(ngd_nsec_t t);
/* Ends all that are left. */
void crowd_close(struct crowd *c);
/* Adds what the seat has sampled since the last count began. */
void crowd_samples(struct crowd *c, int seat, struct samples *to);

/* Client side. */
struct npugraph_client *member_connect(const struct member *m, const char *name);
void member_ready(struct member *m);
/* Waits for its turn; false: it is over. */
bool member_may_work(struct member *m);
void member_sample(struct member *m, ngd_nsec_t t);

/* ---- graphs that are launched often ---- */

/* A chain of n small operators on f32[16]: launches cost more than their arithmetic. free() it. */
char *crowd_chain_text(const char *name, int n);
/* n products of [size,size] by [size,size], a few bytes in and out. free() it. */
char *crowd_products_text(const char *name, int n, int size);

struct replayer {
    struct npugraph_client *client;
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_input input;
    struct npugraph_result *result;
    float x[16];
    float *expected; /* the first answer: the same input must give the same bits again */
    size_t n_expected;
};

void replayer_open(struct replayer *r, struct npugraph_client *client, const char *text);
/* Latency of one replay; *wrong_p is set when its answer differs from the first one. */
ngd_nsec_t replayer_run(struct replayer *r, bool *wrong_p);
void replayer_close(struct replayer *r);
/*
 * The whole of a client that replays one graph until it is over: one replay each `every`, 0 for as fast as it can.
 * Counts what it has done and what was wrong, and samples the latency. Takes text.
 */
void member_replay(struct member *m, const char *name, char *text, ngd_nsec_t every);

/* Of the daemon's statistics: a number by its path, "sessions.open". */
double crowd_stat(struct npugraph_client *client, const char *path);

#endif
