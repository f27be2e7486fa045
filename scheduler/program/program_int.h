/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_PROGRAM_INT_H
#define NGD_SCHEDULER_PROGRAM_PROGRAM_INT_H

/* Shared by the files of scheduler/program and the code that runs executables. */
#include "graphs/buckets.h"
#include "graphs/gcache.h"
#include "graphs/sizes.h"
#include "scheduler/program/poolset.h"
#include "scheduler/run/sched_int.h"

enum { NGD_MISS_FIRST, NGD_MISS_EVICTED, NGD_MISS_POISONED, NGD_MISS_FAILED, NGD_MISS_FORCED, NGD_MISS_MAX };
enum { NGD_EAGER_REQUESTED, NGD_EAGER_LIMIT, NGD_EAGER_FORCED, NGD_EAGER_QUARANTINED, NGD_EAGER_MAX };

/* An executable with what its runs have shown: the artefact of the program's cache. */
struct ngd_executable {
    struct ngd_exec *exec;
    struct ngd_program *prog;      /* borrowed: the program owns its cache */
    struct ngd_poolset *pools;     /* pools of its instances; NULL = the slots' own */
    struct ngd_executable **ranks; /* gang only: executables of the other ranks, by rank; else NULL */
    uint64_t key_hash;
    ngd_nsec_t capture_time;
    ngd_nsec_t passes_time, plan_time; /* parts of it; the plan may come from the store */
    bool cached;                       /* false: made for one eager run */
    bool stored;                       /* its plan came from the store */
    _Atomic bool fresh;                /* no caller has been told yet that it was captured */
    _Atomic bool ahead;                /* captured before any request needed it: ready.h */
    _Atomic bool poisoned;
    _Atomic bool unreachable; /* no request has its key any more, since buckets changed */
    _Atomic uint32_t runs;
    _Atomic uint64_t verify_turns; /* replays counted for verify_every_n */
    _Atomic uint32_t noted;        /* runs that the list of hot keys has counted */
    _Atomic uint64_t padded_runs;  /* replays of fewer rows than it was captured for */
    _Atomic int64_t expected;      /* moving average of device time, ns */
    _Atomic int64_t doubt;         /* moving average of the error of `expected`, ns */
    struct ngd_charge charge;
    int64_t rows_limit; /* largest bucket that its requests may share: merge_prog.h */
};

#define NGD_PROGRAM_EAGER_PLANS 8   /* kept plans of eager runs */
#define NGD_PROGRAM_GONE_MAX    128 /* dropped keys that are remembered, to explain misses */

struct ngd_program {
    struct ngd_list link; /* in the table; under its lock */
    struct ngd_sched *sched;
    struct ngd_queue *queue;
    struct ngd_graph *graph;
    struct ngd_group *group;               /* a reference; NULL: none */
    struct ngd_gang *gang;                 /* NULL: not a gang. With a group: a rank's, which does not run alone */
    uint32_t n_inputs, n_hosts, n_outputs; /* of a replay: those of the graph, or of the whole gang */
    struct ngd_graph_options options;
    struct ngd_pattern_set *patterns; /* NULL: none */
    struct ngd_digest digest;         /* of the device and all options, to find programs by */
    struct ngd_digest key_digest;     /* of what plans depend on; part of each key */
    struct ngd_gcache *cache;
    struct ngd_poolset *pools;         /* the set that the options name; NULL = the slots' own */
    uint32_t row_symbol;               /* the first bucketed symbol; n_symbols = none */
    _Atomic uint64_t owner;            /* key of the owner; 0: the scheduler. Owners share executables only */
    _Atomic(struct ngd_share *) share; /* the owner's, charged for captures: a reference; NULL: the scheduler's */
    uint64_t number;                   /* unique in this process; names the program in events */
    _Atomic uint32_t n_quarantined;
    _Atomic bool ahead;      /* some executables were captured before a request needed them */
    _Atomic uint64_t asked;  /* requests counted for bucket_policy learn */
    _Atomic uint64_t dumps;  /* number to try for the next data dump */
    struct ngd_sizes *sizes; /* requested sizes, by symbol */
    /*
     * Applied buckets, one set for each symbol, which replace the graph's; NULL = none. The table is replaced as a
     * whole. Earlier tables stay until the program goes, since lookups read them without a lock.
     */
    _Atomic(struct ngd_bucket_table *) buckets;
    struct ngd_metric_row *captures_row, *replays_row;
    /*
     * The function that runs its executables: chosen by the options at creation, and again when a key enters
     * quarantine.
     */
    _Atomic(ngd_run_fn *) run;
    _Atomic uint32_t refs;
    _Atomic uint64_t captures, replays, eager_runs;
    _Atomic uint64_t merged_replays, merged_requests; /* replays for several requests, and those requests */
    struct ngd_mutex lock;                            /* rank PROGRAM */
    struct ngd_payers payers NGD_GUARDED_BY(lock);    /* references; none while a program made ahead has no owner */
    struct ngd_charge charge NGD_GUARDED_BY(lock);    /* for the program, its graph, and kept plans */
    struct ngd_list bindings NGD_GUARDED_BY(lock);
    struct ngd_list quarantined NGD_GUARDED_BY(lock);                           /* keys: quarantine.c */
    struct ngd_plan *eager_plans[NGD_PROGRAM_EAGER_PLANS] NGD_GUARDED_BY(lock); /* the latest first, then NULL */
    uint32_t n_applied NGD_GUARDED_BY(lock);                                    /* tables of buckets so far */
    bool debug_asked NGD_GUARDED_BY(lock); /* the next capture of debug_key is dumped: capture_dump.h */
    uint64_t debug_key NGD_GUARDED_BY(lock);
    char debug_dir[NGD_OPTION_TEXT_MAX] NGD_GUARDED_BY(lock);
    struct {
        uint64_t hash;
        int reason;
    } gone[NGD_PROGRAM_GONE_MAX] NGD_GUARDED_BY(lock);
    uint32_t n_gone NGD_GUARDED_BY(lock);
};

/* Borrowed from the program. */
static inline struct ngd_share *ngd_program_share(struct ngd_program *prog)
{
    struct ngd_share *share = atomic_load(&prog->share);

    return share ? share : prog->sched->own_share;
}
/* Explains in diag why a capture ended at a safe point; leaves other errors as they are. Returns status. */
ngd_status_t ngd_program_say_stopped(const struct ngd_program *prog, ngd_status_t status, struct ngd_diag *diag);
/* Operations of a program's cache of executables; ctx is the program. */
extern const struct ngd_gcache_ops ngd_executable_cache_ops;
/* Pins the executable of key. NULL: a miss; *reason_p, if given, is one of NGD_MISS_*. */
struct ngd_gcache_entry *ngd_program_lookup(struct ngd_program *prog, const struct ngd_key *key, int *reason_p);
static inline struct ngd_executable *ngd_entry_executable(const struct ngd_gcache_entry *entry)
{
    return ngd_gcache_artefact(entry);
}
/*
 * Pins the executable of key, and captures it if it is missing. Blocks. *captured_p is true for one caller of each
 * capture.
 */
ngd_status_t ngd_program_capture(struct ngd_program *prog, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                                 bool *captured_p, struct ngd_diag *diag);
/* Drops the executable of key, if there is one, and captures it again. Runs of the old one continue. */
ngd_status_t ngd_program_recapture(struct ngd_program *prog, const struct ngd_key *key,
                                   struct ngd_gcache_entry **entry_p, bool *captured_p, struct ngd_diag *diag);
/* Makes an executable outside the cache, for one eager run. Blocks. Its plan is kept for later runs: eager_plans.h. */
ngd_status_t ngd_program_make_eager(struct ngd_program *prog, const struct ngd_key *key, struct ngd_executable **x_p,
                                    struct ngd_diag *diag);
void ngd_executable_destroy(struct ngd_executable *x);
/*
 * Checks the launch's sizes against the plan, or the plans of all ranks. Its lists have the program's lengths
 * (request.c).
 */
ngd_status_t ngd_executable_check(struct ngd_executable *x, const struct ngd_launch *launch, struct ngd_diag *diag);
struct ngd_input_type;
ngd_status_t ngd_program_check_types(const struct ngd_program *prog, const int64_t *symbols,
                                     const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag);
/* Drops an executable that a device fault has made unusable: the next lookup misses. */
void ngd_program_poison(struct ngd_program *prog, struct ngd_executable *x);

/* Returns the owner, to make another program like this one. The payers live as long as prog. */
struct ngd_owner ngd_program_owner_of(struct ngd_program *prog);

/* ---- gangs: group.h ---- */

/* Makes a program like the leader's, which no lookup finds. Takes the gang over, also on an error. */
ngd_status_t ngd_program_open_gang(struct ngd_program *leader, struct ngd_gang *gang, struct ngd_program **prog_p,
                                   struct ngd_diag *diag);
/* Makes a rank's part of a gang's executable, outside the program's cache. */
ngd_status_t ngd_program_make_rank(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                   struct ngd_executable **x_p, struct ngd_diag *diag);

/* ---- keys, buckets ---- */

struct ngd_bucket_table {
    struct ngd_bucket_table *before;
    struct ngd_bucket_set sets[]; /* by symbol */
};
#define NGD_PROGRAM_TABLES_MAX 256

/* Checks the guards and makes the key, with the program's present buckets. */
ngd_status_t ngd_program_key(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                             struct ngd_key *key_p, struct ngd_diag *diag);
/* Makes a key of sizes that no single request asked for, such as the rows of several (ngd_key_make_sizes). */
ngd_status_t ngd_program_key_sizes(struct ngd_program *prog, const int64_t *sizes, uint32_t n_sizes,
                                   struct ngd_key *key_p, struct ngd_diag *diag);
/* Chooses values for the symbols that are NGD_SIZE_ANY, so that the guards hold, and copies the others. */
ngd_status_t ngd_program_choose_sizes(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                                      int64_t *sizes_p, struct ngd_diag *diag);
/* For bucket_policy learn: applies a better set of buckets, if there is one, on a capture thread. */
void ngd_program_learn(struct ngd_program *prog);
#define NGD_LEARN_FROM 256 /* requests before the first lesson; the next one follows when their number has doubled */

/* Counts requested sizes. Call when the guards hold. */
static inline void ngd_program_note_sizes(struct ngd_program *prog, const int64_t *symbols)
{
    uint64_t n;

    for (uint32_t i = 0; i < prog->graph->n_symbols; i++)
        ngd_sizes_note(&prog->sizes[i], symbols[i]);
    if (prog->options.bucket_policy != NGD_BUCKETS_LEARN)
        return;
    n = atomic_fetch_add_explicit(&prog->asked, 1, memory_order_relaxed) + 1;
    if (n >= NGD_LEARN_FROM && (n & (n - 1)) == 0)
        ngd_program_learn(prog);
}
void ngd_program_free_buckets(struct ngd_program *prog);

/* ---- events ---- */

extern const ngd_event_reason_t ngd_miss_events[NGD_MISS_MAX];
/* Notes an event of the program in the flight recorder, with the key's symbols in front of the text. key NULL: none. */
void ngd_program_note(struct ngd_program *prog, ngd_event_reason_t reason, const struct ngd_key *key, uint64_t tag,
                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- bindings ---- */

#define NGD_INSTANCE_CHUNK 6

struct ngd_instance_chunk {
    _Atomic(struct ngd_instance_chunk *) next;
    struct {
        _Atomic(const struct ngd_executable *) x; /* NULL: the place is free. Written under the program's lock */
        struct ngd_instance *inst;
    } place[NGD_INSTANCE_CHUNK];
};

struct ngd_binding {
    struct ngd_list link; /* in the program's list; under the program's lock */
    struct ngd_program *prog;
    struct ngd_merge_prog *merge; /* shared with the bindings whose replays may join; NULL: its replays run alone */
    _Atomic uint32_t refs;
    uint64_t generation;
    uint32_t n;
    struct ngd_buffer **buffers;
    struct ngd_binding **ranks; /* gang only: references, by rank; else NULL */
    struct ngd_charge charge;
    uint32_t missing;                      /* index of the first unbound buffer; n = none is unbound */
    struct ngd_instance_chunk instances[]; /* a list for each slot, read without a lock */
};

/*
 * Gets the binding's instance of x in the slot's pool, made on first use. The caller owns the slot and keeps x pinned.
 * If x is outside the cache, the instance is new, and the caller destroys it.
 */
ngd_status_t ngd_binding_instance(struct ngd_binding *binding, struct ngd_slot *slot, struct ngd_executable *x,
                                  struct ngd_instance **inst_p, struct ngd_diag *diag);
/* Returns the slots, as bits, that have the binding's instance of x. The caller keeps x pinned. */
uint64_t ngd_binding_slots(struct ngd_binding *binding, const struct ngd_executable *x);
/* True if a replay of x makes, binds and captures nothing in this slot. The caller owns the slot and keeps x pinned. */
bool ngd_binding_ready(struct ngd_binding *binding, const struct ngd_slot *slot, const struct ngd_executable *x);
/*
 * Takes a reference on a binding found in its program's list, under the program's lock. False: it is being destroyed.
 */
bool ngd_binding_try_ref(struct ngd_binding *binding);
/* Checks that all params and states are bound. BINDING_MISSING names one that is not. */
ngd_status_t ngd_binding_check(const struct ngd_binding *binding, struct ngd_diag *diag);
/* Destroys the instances of x in all bindings of its program; nothing runs x any more. */
void ngd_program_drop_instances(struct ngd_program *prog, const struct ngd_executable *x);

/* ---- what is known of executables and programs ---- */

/* Returns the expected device time, ns; NGD_NSEC_NEVER until it is known. */
ngd_nsec_t ngd_executable_expected(const struct ngd_executable *x);

/*
 * Returns true if all forms of the graph have the same bits, apart from allow_excess_precision: the device promises it,
 * and only built-in patterns are used.
 */
bool ngd_program_keeps_bits(const struct ngd_program *prog);
/*
 * Returns true if it does not use the slots' own pools, but a named set, or a set for each executable. Those are
 * charged to its owner.
 */
bool ngd_program_has_own_pools(const struct ngd_program *prog);

/* ---- quarantine ---- */

/*
 * Puts a key whose replay was wrong into quarantine: from now on it runs without passes. Its plan in the store is
 * distrusted. False: there is no room for it, and the next capture is verified again.
 */
bool ngd_program_quarantine(struct ngd_program *prog, const struct ngd_key *key);
/* Returns the executable that runs instead while the key is in quarantine, a reference; NULL = it is not. */
struct ngd_exec *ngd_program_quarantined(struct ngd_program *prog, const struct ngd_key *key);
void ngd_program_free_quarantine(struct ngd_program *prog);

#endif
