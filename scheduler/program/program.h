/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_PROGRAM_H
#define NGD_SCHEDULER_PROGRAM_PROGRAM_H

/*
 * Programs and bindings: where graphs meet devices.
 *
 * A program is a graph with its options on one device: it owns the compiled-graph cache, its limits and its
 * counters. Programs are found by (digest, options, device), so clients that register the same graph share one.
 * A binding is a program with a client's own params and states: what is replayed. Bindings are private; the
 * executables behind them are shared.
 *
 * Captures run on capture threads (low priority), never on a stream's worker: a request whose executable is missing
 * waits aside and is queued when the capture is done.
 * Threads: any. Memory: reference counted; a program leaves the table with its last reference.
 */
#include "devices/device.h"
#include "graphs/gcache.h"
#include "graphs/options.h"

struct ngd_sched;
struct ngd_program;
struct ngd_binding;
struct ngd_pattern_set;
struct ngd_share;

/* Whose a program is, and who pays for what it takes. */
struct ngd_owner {
    struct ngd_share *share; /* its name, and its turns; NULL: the scheduler's own */
    struct ngd_payers payers;
};

/* Finds or makes the program of a sealed graph; *shared_p: it was there. Takes references on graph and on
 * patterns (NULL: those that are built in). */
ngd_status_t ngd_program_open(struct ngd_sched *sched, struct ngd_device *dev, struct ngd_graph *graph,
                              const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                              struct ngd_program **prog_p, bool *shared_p, struct ngd_diag *diag);
struct ngd_program *ngd_program_ref(struct ngd_program *prog);
struct ngd_program *ngd_program_unref(struct ngd_program *prog); /* returns NULL */
struct ngd_graph *ngd_program_graph(const struct ngd_program *prog);
struct ngd_device *ngd_program_device(const struct ngd_program *prog);
const struct ngd_graph_options *ngd_program_options(const struct ngd_program *prog);

struct ngd_program_stats {
    struct ngd_gcache_stats cache;
    uint32_t references; /* bindings and holders */
    uint64_t captures, replays, eager_runs;
    uint64_t merged_replays, merged_requests; /* replays for several requests, and those requests */
    uint64_t pool_bytes;                      /* largest need of its executables */
};
void ngd_program_stats(struct ngd_program *prog, struct ngd_program_stats *stats_p);
/* Under the table's lock: fn must be short and not call back. */
void ngd_program_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, struct ngd_program *prog), void *ctx);
/*
 * Its executables, or those whose key's hash begins with key (hex digits; "" = all): calls fn with each plan, without a
 * lock, and returns how many there were.
 */
uint32_t ngd_program_for_each_plan(struct ngd_program *prog, const char *key,
                                   void (*fn)(void *ctx, const struct ngd_plan *plan), void *ctx);
/* Text of the keys and plans of the same executables; returns how many they are. */
uint32_t ngd_program_print_plans(struct ngd_program *prog, const char *key, struct ngd_strbuf *sb);
void ngd_program_print_keys(struct ngd_program *prog, void (*fn)(void *ctx, const char *key), void *ctx);

/* One executable of the cache, for people. Strings are valid during the call. */
struct ngd_key_info {
    const char *symbols; /* "B<=16" */
    uint64_t hash;
    uint64_t uses, runs, padded_runs;
    ngd_nsec_t expected, capture_time;
    uint64_t pool_bytes;
    uint32_t kernels;
    const char *static_kernels; /* ngd_static_result_name */
};
/* Calls fn without a lock for each executable that there was at the start. */
void ngd_program_for_each_key(struct ngd_program *prog, void (*fn)(void *ctx, const struct ngd_key_info *info),
                              void *ctx);

/* For the flight recorder: a replay of this program was refused before or at its submission. */
void ngd_program_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag, uint64_t tag);
/* The same of a capture that was asked for, or of a dry run. */
void ngd_program_capture_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag);
uint64_t ngd_program_owner(const struct ngd_program *prog);  /* the owner's key; 0: the scheduler's own */
uint64_t ngd_program_number(const struct ngd_program *prog); /* what events name it by */

/* ---- buckets ---- */

struct ngd_bucket_set;
struct ngd_size_count;
/* The sizes seen of a symbol, ascending; list has room for NGD_SIZES_MAX. Returns how many. */
uint32_t ngd_program_sizes(struct ngd_program *prog, uint32_t symbol, struct ngd_size_count *list);
/* The buckets that a symbol has at present; empty for an exact one. */
void ngd_program_buckets(struct ngd_program *prog, uint32_t symbol, struct ngd_bucket_set *set_p);
/* Gives a symbol other buckets: new keys from the next lookup on; executables that no request can reach any more are
 * dropped. *dropped_p: how many. */
ngd_status_t ngd_program_apply_buckets(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set,
                                       uint32_t *dropped_p, struct ngd_diag *diag);

/* buffers: graph->n_params + n_states, NULL where unbound; sizes are checked. Takes references. */
ngd_status_t ngd_binding_create(struct ngd_program *prog, struct ngd_buffer *const *buffers,
                                struct ngd_binding **binding_p, struct ngd_diag *diag);
struct ngd_binding *ngd_binding_ref(struct ngd_binding *binding);
struct ngd_binding *ngd_binding_unref(
    struct ngd_binding *binding); /* returns NULL; waits for nothing: requests hold references */
struct ngd_program *ngd_binding_program(const struct ngd_binding *binding);
/*
 * A binding like this one with other buffers: changes has n_params + n_states, NULL = as it was. Its generation is new,
 * so that a replay which says the old one is refused; without a change it is the same binding. Refused for params when
 * the graph has frozen_parameter.
 */
ngd_status_t ngd_binding_change(struct ngd_binding *binding, struct ngd_buffer *const *changes,
                                struct ngd_binding **binding_p, struct ngd_diag *diag);
/* Does its device not serve? One load: for each replay. */
bool ngd_binding_is_stranded(const struct ngd_binding *binding);
/* A binding of the same graph with the same options on a device that serves; NULL: there is none, or the graph has
 * params or states, which are on its device. */
struct ngd_binding *ngd_binding_move(const struct ngd_binding *binding);
uint64_t ngd_binding_generation(const struct ngd_binding *binding); /* above 0, unique in this process */
/* The buffer of a param or state; NULL = unbound. Borrowed from the binding. */
struct ngd_buffer *ngd_binding_buffer(const struct ngd_binding *binding, uint32_t i);

struct ngd_capture_info {
    bool captured; /* false: it was there */
    uint64_t pool_bytes, live_bytes;
    uint32_t kernels, streams;
    uint32_t holders, executables; /* of the program */
    uint32_t pools;                /* one for each slot */
    uint64_t pool_held, pool_more; /* by these pools; by which they would grow */
    ngd_nsec_t duration;
    char pool[80]; /* "slots", "named NAME", "private" */
    char key[512];
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* as asked for, or chosen */
};
/*
 * Blocks the caller: for the capture threads, model registration and tests; the daemon goes through ngd_sched_capture.
 * symbols: NGD_SIZE_ANY for those that may be chosen (guard.h).
 * options: the program's with what ngd_graph_options_set_for_capture changed, or anything for a dry run; NULL = the
 * program's.
 */
ngd_status_t ngd_binding_capture(struct ngd_binding *binding, const int64_t *symbols, uint32_t n_symbols,
                                 const struct ngd_graph_options *options, bool dry_run, struct ngd_capture_info *info_p,
                                 struct ngd_diag *diag);

#endif
