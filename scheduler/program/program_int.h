/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_PROGRAM_INT_H
#define NGD_SCHEDULER_PROGRAM_PROGRAM_INT_H

/* What program.c, binding.c and those who run executables share. */
#include "graphs/buckets.h"
#include "graphs/gcache.h"
#include "graphs/sizes.h"
#include "scheduler/program/poolset.h"
#include "scheduler/run/sched_int.h"

enum { NGD_MISS_FIRST, NGD_MISS_EVICTED, NGD_MISS_POISONED, NGD_MISS_FAILED, NGD_MISS_FORCED, NGD_MISS_MAX };
enum { NGD_EAGER_REQUESTED, NGD_EAGER_LIMIT, NGD_EAGER_FORCED, NGD_EAGER_QUARANTINED, NGD_EAGER_MAX };

/* The cache's artefact: an executable with what is known of its runs. */
struct ngd_executable {
    struct ngd_exec *exec;
    struct ngd_program *prog;      /* borrowed: the program owns its cache */
    struct ngd_poolset *pools;     /* where its instances lie; NULL = the slots' own */
    struct ngd_executable **ranks; /* of a gang's: those of the other ranks, by rank; else NULL */
    uint64_t key_hash;
    ngd_nsec_t capture_time;
    bool cached;        /* false: made for one eager run */
    bool stored;        /* its plan came from the store */
    _Atomic bool fresh; /* nobody has been told yet that it was captured */
    _Atomic bool ahead; /* it was captured before anyone asked: ready.h */
    _Atomic bool poisoned;
    _Atomic bool unreachable; /* no request has its key any more: other buckets */
    _Atomic uint32_t runs;
    _Atomic uint64_t verify_turns; /* replays, for verify_every_n */
    _Atomic uint32_t noted;        /* runs that the list of hot keys has been told of */
    _Atomic uint64_t padded_runs;  /* replays of fewer rows than it was captured for */
    _Atomic int64_t expected;      /* moving average of device time */
    _Atomic int64_t doubt;         /* and of how far it was off */
    struct ngd_charge charge;
    int64_t rows_limit; /* buckets up to which replays may run together with its own: merge_prog.h */
};

#define NGD_PROGRAM_EAGER_PLANS 8   /* of eager runs, that are kept */
#define NGD_PROGRAM_GONE_MAX    128 /* keys that are remembered to say why a lookup misses */

struct ngd_program {
    struct ngd_list link; /* in the table; under its lock */
    struct ngd_sched *sched;
    struct ngd_queue *queue;
    struct ngd_graph *graph;
    struct ngd_group *group;               /* NULL: of no group. A reference */
    struct ngd_gang *gang;                 /* NULL: of one device; with a group, a rank's, which does not run alone */
    uint32_t n_inputs, n_hosts, n_outputs; /* of a replay: the graph's, or a gang's */
    struct ngd_graph_options options;
    struct ngd_pattern_set *patterns; /* NULL: none are used */
    struct ngd_digest digest;         /* of all options and of the device: programs are found by it */
    struct ngd_digest key_digest;     /* of what plans depend on: part of each key */
    struct ngd_gcache *cache;
    struct ngd_poolset *pools; /* that the options name; NULL = the slots' own */
    uint32_t row_symbol;       /* the first bucketed one; n_symbols = none */
    _Atomic uint64_t owner;    /* whose it is; 0: the scheduler's own. Programs of two owners share executables only */
    _Atomic(struct ngd_share *)
        share;       /* the owner's, whose time its captures take: a reference; NULL: the scheduler's */
    uint64_t number; /* unique in this process: what events name it by */
    _Atomic uint32_t n_quarantined;
    _Atomic bool ahead;      /* of its executables some were captured before anyone asked */
    _Atomic uint64_t asked;  /* requests that bucket_policy learn has counted */
    _Atomic uint64_t dumps;  /* the number of the next run whose data are written, if it is free */
    struct ngd_sizes *sizes; /* asked for, by symbol */
    /* Buckets that were applied instead of the graph's, one set for each symbol; NULL = none. Replaced as a whole; the
     * ones before stay until the program goes, since lookups read them without a lock. */
    _Atomic(struct ngd_bucket_table *) buckets;
    struct ngd_metric_row *captures_row, *replays_row;
    /* How its executables run: chosen by its options when it is made, and again when a key goes into quarantine. */
    _Atomic(ngd_run_fn *) run;
    _Atomic uint32_t refs;
    _Atomic uint64_t captures, replays, eager_runs;
    _Atomic uint64_t merged_replays, merged_requests; /* replays for several requests, and those requests */
    struct ngd_mutex lock;                            /* rank PROGRAM */
    struct ngd_payers payers NGD_GUARDED_BY(lock);    /* references; none until a program made ahead has an owner */
    struct ngd_charge charge NGD_GUARDED_BY(lock);    /* of the program, its graph and plans for eager runs */
    struct ngd_list bindings NGD_GUARDED_BY(lock);
    struct ngd_list quarantined NGD_GUARDED_BY(lock);                           /* keys: quarantine.c */
    struct ngd_plan *eager_plans[NGD_PROGRAM_EAGER_PLANS] NGD_GUARDED_BY(lock); /* the latest first; NULL: no more */
    uint32_t n_applied NGD_GUARDED_BY(lock);                                    /* sets of buckets so far */
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
/* Why a capture ended at a safe point; other errors are left as they are. Returns status. */
ngd_status_t ngd_program_say_stopped(const struct ngd_program *prog, ngd_status_t status, struct ngd_diag *diag);
/* Of a program's cache of executables; ctx is the program. */
extern const struct ngd_gcache_ops ngd_executable_cache_ops;
/* Pins the executable of key; NULL = a miss, which *reason_p (when given) explains. */
struct ngd_gcache_entry *ngd_program_lookup(struct ngd_program *prog, const struct ngd_key *key, int *reason_p);
static inline struct ngd_executable *ngd_entry_executable(const struct ngd_gcache_entry *entry)
{
    return ngd_gcache_artefact(entry);
}
/* Pins the executable of key, capturing it if need be: blocks. *captured_p is true for one caller of each capture. */
ngd_status_t ngd_program_capture(struct ngd_program *prog, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                                 bool *captured_p, struct ngd_diag *diag);
/* Drops the executable of key, if there is one, and captures it again. Whoever runs the old one goes on with it. */
ngd_status_t ngd_program_recapture(struct ngd_program *prog, const struct ngd_key *key,
                                   struct ngd_gcache_entry **entry_p, bool *captured_p, struct ngd_diag *diag);
/* An executable outside the cache, for one eager run: blocks. Its plan is kept for the next: eager_plans.h. */
ngd_status_t ngd_program_make_eager(struct ngd_program *prog, const struct ngd_key *key, struct ngd_executable **x_p,
                                    struct ngd_diag *diag);
void ngd_executable_destroy(struct ngd_executable *x);
/* Sizes of the launch against the plan, or the plans of all ranks. Its lists have the program's lengths (request.c). */
ngd_status_t ngd_executable_check(struct ngd_executable *x, const struct ngd_launch *launch, struct ngd_diag *diag);
struct ngd_input_type;
ngd_status_t ngd_program_check_types(const struct ngd_program *prog, const int64_t *symbols,
                                     const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag);
/* The device spoiled it: the next lookup misses. */
void ngd_program_poison(struct ngd_program *prog, struct ngd_executable *x);

/* Whose it is, for another program like it. The payers live as long as prog. */
struct ngd_owner ngd_program_owner_of(struct ngd_program *prog);

/* ---- gangs: group.h ---- */

/* A program like the leader's, which no lookup finds. Takes the gang, also on an error. */
ngd_status_t ngd_program_open_gang(struct ngd_program *leader, struct ngd_gang *gang, struct ngd_program **prog_p,
                                   struct ngd_diag *diag);
/* An executable of a rank, for a gang's: outside the program's cache. */
ngd_status_t ngd_program_make_rank(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                   struct ngd_executable **x_p, struct ngd_diag *diag);

/* ---- keys, buckets ---- */

struct ngd_bucket_table {
    struct ngd_bucket_table *before;
    struct ngd_bucket_set sets[]; /* by symbol */
};
#define NGD_PROGRAM_TABLES_MAX 256

/* Guards and pinned values, with the buckets that the program has at present. */
ngd_status_t ngd_program_key(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                             struct ngd_key *key_p, struct ngd_diag *diag);
/* Of sizes that nobody asked for, such as the rows of several requests (ngd_key_make_sizes). */
ngd_status_t ngd_program_key_sizes(struct ngd_program *prog, const int64_t *sizes, uint32_t n_sizes,
                                   struct ngd_key *key_p, struct ngd_diag *diag);
/* Values for symbols that are NGD_SIZE_ANY, so that the guards hold; the others as they are. */
ngd_status_t ngd_program_choose_sizes(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                                      int64_t *sizes_p, struct ngd_diag *diag);
/* With bucket_policy learn: applies a better set on a capture thread, if there is one. */
void ngd_program_learn(struct ngd_program *prog);
#define NGD_LEARN_FROM 256 /* requests; and again whenever their number has doubled */

/* What was asked for, once its guards hold. */
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
/* key NULL: of no key. The key's symbols are put in front of the text. */
void ngd_program_note(struct ngd_program *prog, ngd_event_reason_t reason, const struct ngd_key *key, uint64_t tag,
                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- bindings ---- */

#define NGD_INSTANCE_CHUNK 6

struct ngd_instance_chunk {
    _Atomic(struct ngd_instance_chunk *) next;
    struct {
        _Atomic(const struct ngd_executable *) x; /* NULL: the place is free. Changed under the program's lock */
        struct ngd_instance *inst;
    } place[NGD_INSTANCE_CHUNK];
};

struct ngd_binding {
    struct ngd_list link; /* in its program; under the program's lock */
    struct ngd_program *prog;
    struct ngd_merge_prog *merge; /* with whose replays its own may run together; NULL: they run alone */
    _Atomic uint32_t refs;
    uint64_t generation;
    uint32_t n;
    struct ngd_buffer **buffers;
    struct ngd_binding **ranks; /* of a gang: references, by rank; else NULL */
    struct ngd_charge charge;
    uint32_t missing;                      /* ordinal of the first unbound buffer; n = all are bound */
    struct ngd_instance_chunk instances[]; /* one list for each slot, read without a lock */
};

/*
 * The binding's instance of x in the slot's pool, made on first use. The caller owns the slot and keeps x pinned. For
 * an executable outside the cache: a new instance, which the caller destroys.
 */
ngd_status_t ngd_binding_instance(struct ngd_binding *binding, struct ngd_slot *slot, struct ngd_executable *x,
                                  struct ngd_instance **inst_p, struct ngd_diag *diag);
/* The slots, as bits, that have the binding's instance of x. Any thread that has x pinned. */
uint64_t ngd_binding_slots(struct ngd_binding *binding, const struct ngd_executable *x);
/* True if a replay of x makes, binds and captures nothing in this slot. The caller owns the slot and keeps x pinned. */
bool ngd_binding_ready(struct ngd_binding *binding, const struct ngd_slot *slot, const struct ngd_executable *x);
/* A reference, by who found it in its program's list under the program's lock; false: it is going. */
bool ngd_binding_try_ref(struct ngd_binding *binding);
/* BINDING_MISSING names what has no buffer. */
ngd_status_t ngd_binding_check(const struct ngd_binding *binding, struct ngd_diag *diag);
/* Destroys the instances of x in all bindings of its program; nothing runs x any more. */
void ngd_program_drop_instances(struct ngd_program *prog, const struct ngd_executable *x);

/* ---- what is known of executables and programs ---- */

/* Predicted device time; NGD_NSEC_NEVER until it is known. */
ngd_nsec_t ngd_executable_expected(const struct ngd_executable *x);

/* All forms of the graph have the same bits but for allow_excess_precision: the device promises it, and no patterns but
 * those that are built in are used. */
bool ngd_program_keeps_bits(const struct ngd_program *prog);
/* A named set of pools, or one for each executable; charged to the program's owner. */
bool ngd_program_has_own_pools(const struct ngd_program *prog);

/* ---- quarantine ---- */

/* A replay of key was wrong: from now on its graph runs without passes. Its plan in the store is distrusted. False:
 * there is no room for it; the next capture is verified again. */
bool ngd_program_quarantine(struct ngd_program *prog, const struct ngd_key *key);
/* What runs instead of a key's executable while the key is in quarantine: a reference; NULL = it is not. */
struct ngd_exec *ngd_program_quarantined(struct ngd_program *prog, const struct ngd_key *key);
void ngd_program_free_quarantine(struct ngd_program *prog);

#endif
