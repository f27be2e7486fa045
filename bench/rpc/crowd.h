/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_CROWD_H
#define NGD_BENCH_RPC_CROWD_H

/*
 * Client processes of a benchmark: this program again, started by exec, since gRPC does not survive a fork. They share
 * a board with the parent, on which the parent says who works and reads what each has done. A client ends with its
 * parent.
 */
#include "base/clock.h"
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"
#include <stdatomic.h>
#include <sys/types.h>

#define CROWD_SEATS   64
#define CROWD_SAMPLES (1u << 16) /* kept for each seat; later ones are dropped */

/*
 * One client's part of the board. The client writes it. The parent clears the counts when it begins to count, and the
 * seat of a client that it has killed.
 */
struct seat {
    _Atomic uint32_t ready;
    _Atomic uint64_t done;   /* requests or tokens */
    _Atomic uint64_t wrong;  /* wrong answers */
    _Atomic uint64_t device; /* nanoseconds of device time */
    _Atomic uint64_t rows;   /* rows of the batches that it was in */
    _Atomic uint64_t n_samples;
    _Atomic uint32_t epoch; /* the count that the samples belong to; they start over when the board's has changed */
    uint64_t samples[CROWD_SAMPLES];
};

struct board {
    _Atomic uint32_t working; /* so many seats work, from the first on; the others wait */
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

/* The arguments of a client process. */
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

/* Call this at the beginning of main. It does not return in a client process. The last of roles has a NULL name. */
void crowd_member_main(int argc, char **argv, const struct crowd_role *roles);

void crowd_open(struct crowd *c, const char *address);
/* uid is the user of the process; 0 means the caller's own. Another user needs root. */
void crowd_start(struct crowd *c, int seat, const char *role, uid_t uid, int64_t arg);
void crowd_wait_ready(struct crowd *c, int n);
/* Sends SIGKILL and waits for the client's end. Clears the seat. */
void crowd_kill(struct crowd *c, int seat);
/* Lets the first n seats work, waits for `settle`, clears their counts, and lets them count for `count`. */
void crowd_work(struct crowd *c, uint32_t n, ngd_nsec_t settle, ngd_nsec_t count);
void crowd_pause(ngd_nsec_t t);
/* Ends all clients that are left. */
void crowd_close(struct crowd *c);
/* Adds the samples of the seat since the last count began. */
void crowd_samples(struct crowd *c, int seat, struct samples *to);

/* The functions below are for client processes. */
struct npugraph_client *member_connect(const struct member *m, const char *name);
void member_ready(struct member *m);
/* Waits until this seat may work. Returns false when the benchmark is over. */
bool member_may_work(struct member *m);
void member_sample(struct member *m, ngd_nsec_t t);

/* ---- graphs that are launched often ---- */

/* Makes a chain of n small operators on f32[16], whose launches cost more than their arithmetic. free() the text. */
char *crowd_chain_text(const char *name, int n);
/* Makes n products of [size,size] by [size,size] with a few bytes in and out. free() the text. */
char *crowd_products_text(const char *name, int n, int size);

struct replayer {
    struct npugraph_client *client;
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_input input;
    struct npugraph_result *result;
    float x[16];
    float *expected; /* the first answer; the same input must give the same bits again */
    size_t n_expected;
};

void replayer_open(struct replayer *r, struct npugraph_client *client, const char *text);
/* Returns the latency of one replay. Sets *wrong_p if its answer differs from the first one. */
ngd_nsec_t replayer_run(struct replayer *r, bool *wrong_p);
void replayer_close(struct replayer *r);
/*
 * The body of a client that replays one graph until the benchmark is over: one replay each `every`, or as fast as it
 * can if that is 0. It counts the replays and the wrong answers, and samples the latency. Frees text.
 */
void member_replay(struct member *m, const char *name, char *text, ngd_nsec_t every);

/* Returns a number of the daemon's statistics by its path, such as "sessions.open". */
double crowd_stat(struct npugraph_client *client, const char *path);

#endif
