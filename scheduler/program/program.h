/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_PROGRAM_H
#define NGD_SCHEDULER_PROGRAM_PROGRAM_H

/*
 * Programs and bindings: where graphs meet devices.
 *
 * A program is a graph with its options on one device. It owns the compiled-graph cache, its limits and its counters. A
 * client finds its program by graph digest, options and device, so registering the same graph again gives the same one.
 * A binding is a program with a client's own params and states: what is replayed. Bindings are private; the executables
 * behind them are shared.
 *
 * Captures run on capture threads (low priority), never on a stream's worker. A request whose executable is missing
 * waits aside and is queued when the capture is done.
 *
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

/* The owner of a program, and the payers of what it takes. */
struct ngd_owner {
    struct ngd_share *share; /* the owner's share: name and turns; NULL: the scheduler's own */
    struct ngd_payers payers;
};

/*
 * Finds or makes the program of a sealed graph. *shared_p: it existed. Takes references on graph and on patterns (NULL:
 * the built-in ones).
 */
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
    uint32_t references; /* held by bindings and others */
    uint64_t captures, replays, eager_runs;
    uint64_t merged_replays, merged_requests; /* joint replays, and the requests that they served */
    uint64_t pool_bytes;                      /* largest need of its executables */
};
void ngd_program_stats(struct ngd_program *prog, struct ngd_program_stats *stats_p);
/* Calls fn under the table's lock: fn must be short and must not call into the scheduler. */
void ngd_program_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, struct ngd_program *prog), void *ctx);
/*
 * Calls fn with the plan of each executable whose key's hash begins with `key` (hex digits; "" = all), without a lock.
 * Returns how many there were.
 */
uint32_t ngd_program_for_each_plan(struct ngd_program *prog, const char *key,
                                   void (*fn)(void *ctx, const struct ngd_plan *plan), void *ctx);
/* Prints the keys and plans of the same executables. Returns how many there were. */
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

/* Notes in the flight recorder that a replay was refused, before or at its submission. */
void ngd_program_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag, uint64_t tag);
/* Notes that a requested capture or dry run was refused. */
void ngd_program_capture_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag);
uint64_t ngd_program_owner(const struct ngd_program *prog);  /* the owner's key; 0: the scheduler's own */
uint64_t ngd_program_number(const struct ngd_program *prog); /* names the program in events */

/* ---- buckets ---- */

struct ngd_bucket_set;
struct ngd_size_count;
/*
 * Lists the sizes that requests asked for of a symbol, ascending, in `list`, which has room for NGD_SIZES_MAX. Returns
 * how many.
 */
uint32_t ngd_program_sizes(struct ngd_program *prog, uint32_t symbol, struct ngd_size_count *list);
/* Gets the present buckets of a symbol; none for an exact symbol. */
void ngd_program_buckets(struct ngd_program *prog, uint32_t symbol, struct ngd_bucket_set *set_p);
/*
 * Gives a symbol other buckets. Lookups from now on make keys with them. Executables that no request can reach any more
 * are dropped; *dropped_p: how many.
 */
ngd_status_t ngd_program_apply_buckets(struct ngd_program *prog, uint32_t symbol, const struct ngd_bucket_set *set,
                                       uint32_t *dropped_p, struct ngd_diag *diag);

/* buffers: graph->n_params + n_states of them, NULL where unbound. Checks their sizes and takes references. */
ngd_status_t ngd_binding_create(struct ngd_program *prog, struct ngd_buffer *const *buffers,
                                struct ngd_binding **binding_p, struct ngd_diag *diag);
struct ngd_binding *ngd_binding_ref(struct ngd_binding *binding);
struct ngd_binding *ngd_binding_unref(
    struct ngd_binding *binding); /* returns NULL; waits for no request, since requests hold references */
struct ngd_program *ngd_binding_program(const struct ngd_binding *binding);
/*
 * Makes a binding like this one with other buffers. changes has n_params + n_states entries; NULL: unchanged. The new
 * binding has a new generation, so that replays that state the old one are refused. Without any change it is the same
 * binding. Params cannot be changed if the graph has frozen_parameter.
 */
ngd_status_t ngd_binding_change(struct ngd_binding *binding, struct ngd_buffer *const *changes,
                                struct ngd_binding **binding_p, struct ngd_diag *diag);
/* Returns true if its device is out of service. One atomic load, for the replay path. */
bool ngd_binding_is_stranded(const struct ngd_binding *binding);
/*
 * Makes a binding of the same graph and options on a device that is in service. NULL: there is no such device, or the
 * graph has params or states, which are on the failed one.
 */
struct ngd_binding *ngd_binding_move(const struct ngd_binding *binding);
uint64_t ngd_binding_generation(const struct ngd_binding *binding); /* above 0 and unique in this process */
/* Returns the buffer of param or state i, borrowed from the binding; NULL = unbound. */
struct ngd_buffer *ngd_binding_buffer(const struct ngd_binding *binding, uint32_t i);

struct ngd_capture_info {
    bool captured; /* false: it had been captured before */
    uint64_t pool_bytes, live_bytes;
    uint32_t kernels, streams;
    uint32_t holders, executables; /* references of the program, and executables in its cache */
    uint32_t pools;                /* number of pools, one for each slot */
    uint64_t pool_held, pool_more; /* bytes that these pools hold, and bytes by which they would grow */
    ngd_nsec_t duration;
    ngd_nsec_t passes_time, plan_time; /* parts of it */
    char pool[80];                     /* "slots", "named NAME", "private" */
    char key[512];
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* as requested, or as chosen */
};
/*
 * Captures, or with dry_run only plans. Blocks: call it on capture threads, in model registration and in tests. The
 * daemon calls ngd_sched_capture. symbols: NGD_SIZE_ANY for those that are to be chosen (guard.h). options: the
 * program's with changes by ngd_graph_options_set_for_capture; for a dry run, any; NULL = the program's.
 */
ngd_status_t ngd_binding_capture(struct ngd_binding *binding, const int64_t *symbols, uint32_t n_symbols,
                                 const struct ngd_graph_options *options, bool dry_run, struct ngd_capture_info *info_p,
                                 struct ngd_diag *diag);

#endif
