/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SCHED_INT_H
#define NGD_SCHEDULER_RUN_SCHED_INT_H

/*
 * What the files of the scheduler share.
 *
 * A request waits in one of four places: its order's list, an event's list, a capture's waiting list, a run queue.
 * Between two of them it is in the hands of one thread. Each place has a lock, and no two are held together. The thread
 * that takes a request out of a place owns it until it has put it into the next. A withdrawal (cancel, expiry) looks
 * into all four places. A cancel sets req->cancelled before that, and the thread that puts a request into a place reads
 * the flag under the lock of the place (of an order: when it moves the request on). So a cancelled request is found
 * where it waits, or stopped by the thread that moves it.
 */
#include "base/beat.h"
#include "base/lock.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "scheduler/lineup/lineup.h"
#include "scheduler/record/recorder.h"
#include "scheduler/run/sched.h"
#include "scheduler/record/timeline.h"
#include <stdatomic.h>

/* ---- run queues and slots ----------------------------------------------------------------------------- */

/* Memory that a slot keeps for those who run on it, and frees at its end. */
struct ngd_slot_area {
    void (*destroy)(struct ngd_slot_area *area);
};

/* A stream slot. Who sets `busy` (its worker, or a thread that runs inline) alone uses its stream and its pool. */
struct ngd_slot {
    struct ngd_queue *queue;
    uint32_t index;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_metric_row *pool_need, *pool_reserved;
    pthread_t thread;
    bool started;
    /* Under the queue's lock. */
    struct ngd_cond wake;
    bool busy;
    bool sleeping;    /* its worker waits for `wake` and nobody has signalled it */
    ngd_nsec_t until; /* when what its worker runs is expected to end */
    /* The owner's. */
    uint64_t need; /* largest pool_bytes of what ran here */
    /* What a replay of the owner runs, for who asks what hangs. 0: nothing. */
    _Atomic uint64_t running; /* the first 8 bytes of its graph's digest */
    _Atomic int64_t running_since;
    const struct ngd_request *asker; /* whose request runs, for the timeline; NULL: a model's batch */
    ngd_nsec_t busy_unreported;      /* less than a microsecond of busy time that the metric lacks */
    struct ngd_slot_area *area;      /* NULL until replays have run together here: replay/merge_run.c */
};

/* The run queue of one device. */
struct ngd_queue {
    struct ngd_sched *sched;
    struct ngd_device *dev;
    const char *dev_name;
    uint32_t index;
    uint32_t n_slots;
    struct ngd_slot *slots;
    struct ngd_metric_row *busy_seconds, *bubble_seconds, *healthy_gauge;
    _Atomic uint32_t waiting; /* requests that are submitted and do not run yet, wherever they are */
    _Atomic int64_t busy;     /* nanoseconds of device time */
    _Atomic bool healthy;
    struct ngd_mutex poolsets_lock; /* rank POOLSETS */
    struct ngd_list poolsets;       /* under it; without the slots' own pools */
    struct ngd_mutex lock;
    struct ngd_cond freed;                  /* a slot, while threads wait for one */
    uint32_t n_takers NGD_GUARDED_BY(lock); /* of them: they go before what is queued */
    struct ngd_lineup lineup NGD_GUARDED_BY(lock);
    uint32_t n_busy NGD_GUARDED_BY(lock);         /* slots */
    ngd_nsec_t bubble_since NGD_GUARDED_BY(lock); /* a slot has been idle, and something queued; 0: not now */
    ngd_nsec_t bubble NGD_GUARDED_BY(lock);       /* for how long in all, before that */
    bool stopping NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_queue_init(struct ngd_queue *queue, struct ngd_sched *sched, struct ngd_device *dev, uint32_t index,
                            const struct ngd_sched_policy *policy, uint32_t n_slots, struct ngd_diag *diag);
void ngd_queue_fini(struct ngd_queue *queue);
ngd_status_t ngd_queue_start(struct ngd_queue *queue);
/* Aborts what is queued, waits for what runs, joins the workers. */
void ngd_queue_stop(struct ngd_queue *queue);

/*
 * Queues an item and wakes a worker if one sleeps. OK: the item may have run already. UNAVAILABLE: the queue is
 * stopping; CANCELLED: *cancelled (when given) was set. The item is the caller's then.
 */
ngd_status_t ngd_queue_push(struct ngd_queue *queue, struct ngd_sched_item *item, const _Atomic bool *cancelled);
bool ngd_queue_remove(struct ngd_queue *queue, struct ngd_sched_item *item); /* false: it was not queued */
/* By how much the item, were it pushed now, is expected to miss its deadline or make others miss theirs. */
ngd_nsec_t ngd_queue_late(struct ngd_queue *queue, struct ngd_sched_item *item);
/* Returns which of n accounts would have its turn first, for an item of this class that is pushed now (policy->turn).
 */
uint32_t ngd_queue_first(struct ngd_queue *queue, struct ngd_account *const *accounts, uint32_t n,
                         ngd_priority_t priority);
/* Advances the account's virtual time alone by this device time, ns. */
void ngd_queue_charge(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time);
/* True if the item is queued and would be taken earlier if it were pushed now in the name of this account. */
bool ngd_queue_would_overtake(struct ngd_queue *queue, const struct ngd_account *account,
                              const struct ngd_sched_item *item);
/*
 * For an inline run of the item: an idle one of these slots (bits), when nothing is queued and its account's cap allows
 * it. The worker that owns it does not start meanwhile.
 */
struct ngd_slot *ngd_queue_claim(struct ngd_queue *queue, struct ngd_sched_item *item, uint64_t slots);
void ngd_queue_release(struct ngd_queue *queue, struct ngd_slot *slot);
/* For a gang, by the worker of a device before this one: waits for a slot, ahead of what is queued. */
struct ngd_slot *ngd_queue_take_slot(struct ngd_queue *queue, ngd_nsec_t expected);
/* Under the lock, after a slot has become free. */
static inline void ngd_queue_tell_takers(struct ngd_queue *queue) NGD_REQUIRES(queue->lock)
{
    if (queue->n_takers)
        ngd_cond_signal(&queue->freed);
}
/* One worker that sleeps, if any does, looks at the queue again. */
void ngd_queue_wake(struct ngd_queue *queue) NGD_REQUIRES(queue->lock);
/* After each change of what is queued and of which slots are busy. */
void ngd_queue_note_bubble(struct ngd_queue *queue, ngd_nsec_t now) NGD_REQUIRES(queue->lock);

/* By its owner: the slot's device worked, or something was done for it, so long. */
void ngd_slot_note_busy(struct ngd_slot *slot, ngd_nsec_t t);
void *ngd_worker_main(void *slot);

/* ---- events ------------------------------------------------------------------------------------------- */

/* At submission, for a request that names events: finds what it waits for, and makes its own record known. Whatever is
 * answered, ngd_session_event_leave ends it. */
ngd_status_t ngd_session_event_enter(struct ngd_request *req, struct ngd_diag *diag);
/* OK: it may go on, or, parked, it belongs to the event now. CANCELLED, EVENT_FAILED. */
ngd_status_t ngd_session_event_await(struct ngd_request *req, bool *parked_p, struct ngd_diag *diag);
bool ngd_session_event_unpark(struct ngd_request *req); /* false: it did not wait for an event */
/* The request has ended so: its record comes, or fails. Those that waited for it are added to `ready` (ready_link). */
void ngd_session_event_leave(struct ngd_request *req, ngd_status_t status, struct ngd_list *ready);

/* ---- shares ------------------------------------------------------------------------------------------- */

/* Queues of work that shares take turns in, beside those of devices. */
typedef enum ngd_capture_queue { NGD_CAPTURE_PLANS, NGD_CAPTURE_KERNELS, NGD_CAPTURE_QUEUES } ngd_capture_queue_t;

struct ngd_share {
    struct ngd_list link; /* in the table; under its lock, like refs */
    uint32_t refs;
    struct ngd_sched *sched;
    char *name;
    struct ngd_metric_row *seconds, *split_rows[NGD_SPLIT_PARTS], *replays_row, *kv_row, *held_row;
    _Atomic int64_t split[NGD_SPLIT_PARTS]; /* nanoseconds */
    _Atomic uint64_t replays;
    _Atomic uint32_t queue_limit, waiting;
    _Atomic uint64_t kv_blocks, kv_limit;
    _Atomic uint64_t captures, capture_limit, store_limit;
    _Atomic uint32_t saves;                                       /* plans of its captures on their way to the store */
    _Atomic uint64_t kv_refused, queue_refused, captures_refused; /* how often */
    _Atomic uint32_t device_percent;
    _Atomic int64_t held;                         /* nanoseconds in which its cap held something back, of all devices */
    _Atomic uint64_t key;                         /* of the identity */
    struct ngd_account turns[NGD_CAPTURE_QUEUES]; /* under the lock of that queue of captures */
    struct ngd_account accounts[];                /* by device */
};

/* Device time that an account has had; `expected` of it was charged when the item was taken. */
/* Counts device time, ns, as used by the account, and against its cap; its virtual time stays (ngd_queue_charge). */
void ngd_share_use(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time);
void ngd_share_charge(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time, ngd_nsec_t expected);

/* Something of the account has been held back by its cap for so long. */
void ngd_share_note_held(struct ngd_account *account, ngd_nsec_t time);

/* ---- captures ----------------------------------------------------------------------------------------- */

/*
 * A piece of work for the capture threads, embedded in its owner's struct. Shares take turns, by the time that their
 * jobs took over their weight; of a share the oldest job is next.
 */
struct ngd_capture_job {
    void (*run)(struct ngd_capture_job *job);   /* takes the job; on a capture thread, no lock held */
    void (*abort)(struct ngd_capture_job *job); /* takes the job; the scheduler stops */
    /* The queue's. */
    struct ngd_list link; /* of an idle job */
    struct ngd_sched_item item;
    struct ngd_share *share;  /* a reference, while it is queued */
    struct ngd_stop *running; /* of the thread that runs it; valid until run() has given the job away */
};

struct ngd_captures {
    ngd_capture_queue_t which;
    uint32_t n_threads, n_started;
    size_t heap;         /* that each thread has in memory when it begins: ngd_mem_warm */
    ngd_nsec_t max_time; /* of a job; it ends at its next safe point then (base/stop.h). 0: no bound */
    pthread_t *threads;
    const struct ngd_sched_policy *policy;
    struct ngd_mutex lock; /* rank CAPTURE_QUEUE */
    struct ngd_cond wake;
    void *jobs NGD_GUARDED_BY(lock);             /* the policy's state */
    struct ngd_list idle NGD_GUARDED_BY(lock);   /* jobs that run when there is no other */
    struct ngd_list parked NGD_GUARDED_BY(lock); /* captures that requests wait for: request_park.c */
    uint32_t n_running NGD_GUARDED_BY(lock);     /* jobs */
    bool stopping NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_captures_init(struct ngd_captures *captures, ngd_capture_queue_t which, uint32_t n_threads,
                               size_t heap);
void ngd_captures_fini(struct ngd_captures *captures);
ngd_status_t ngd_captures_start(struct ngd_captures *captures);
void ngd_captures_stop(struct ngd_captures *captures);
/* False when stopping; the job is the caller's then. */
bool ngd_captures_push(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share);
bool ngd_captures_push_locked(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share)
    NGD_REQUIRES(captures->lock);
/* For what nobody waits for: it runs when nothing else is to be done. */
bool ngd_captures_push_idle(struct ngd_captures *captures, struct ngd_capture_job *job);
/* Nobody wants the job. True: it was queued and is the caller's now; false: it runs, and ends at its next safe point.
 */
bool ngd_captures_withdraw_locked(struct ngd_captures *captures, struct ngd_capture_job *job)
    NGD_REQUIRES(captures->lock);

/* ---- expiry: expiry.c ---------------------------------------------------------------------------------- */

/* Withdraws a request whose deadline has passed, and answers it. False: it has not passed, or the request runs. */
typedef bool ngd_expire_fn(struct ngd_request *req);

struct ngd_expiry {
    ngd_expire_fn *expire;
    pthread_t thread;
    bool started;
    _Atomic int wakeup;    /* ngd_wakeup_t that the thread has */
    struct ngd_mutex lock; /* rank EXPIRY */
    struct ngd_cond wake, idle;
    struct ngd_heap requests NGD_GUARDED_BY(lock);           /* by look_at */
    const struct ngd_request *expiring NGD_GUARDED_BY(lock); /* in the hands of the thread */
    ngd_nsec_t asleep_until NGD_GUARDED_BY(lock);
    bool stopping NGD_GUARDED_BY(lock);
    struct ngd_beat beat;
};

void ngd_expiry_init(struct ngd_expiry *expiry, ngd_expire_fn *expire);
void ngd_expiry_fini(struct ngd_expiry *expiry);
ngd_status_t ngd_expiry_start(struct ngd_expiry *expiry);
void ngd_expiry_stop(struct ngd_expiry *expiry);
void ngd_expiry_ask(struct ngd_expiry *expiry); /* its beat */
/* A request with a deadline begins to wait; before others can find it. */
void ngd_expiry_watch(struct ngd_expiry *expiry, struct ngd_request *req);
/* It waits no longer. Before it is the submitter's again; by the thread that has it in its hands. */
void ngd_expiry_forget(struct ngd_expiry *expiry, struct ngd_request *req);

/* ---- the scheduler ------------------------------------------------------------------------------------ */

enum { NGD_SCHED_CREATED, NGD_SCHED_RUNNING, NGD_SCHED_DRAINING };

struct ngd_binding;
struct ngd_executable;
/*
 * Runs an executable on a slot that the caller owns. A program's is plain, a gang's, or one that looks for more:
 * quarantine, dumps, verification. *quarantined_p: the key is in quarantine, and its graph ran without passes.
 */
typedef ngd_status_t ngd_run_fn(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                struct ngd_launch *launch, bool *quarantined_p);

struct ngd_sched {
    struct ngd_sched_params params;
    ngd_run_fn *(*choose_run)(const struct ngd_program *prog); /* diag/run_chain.c */
    uint32_t n_queues;
    struct ngd_queue *queues;
    struct ngd_captures captures;
    struct ngd_captures compiles; /* one thread: static kernels, compile.c */
    _Atomic bool stop_compiles;
    _Atomic uint32_t n_compiles; /* executables that wait for it */
    _Atomic int phase;
    _Atomic int64_t in_flight; /* requests, capture calls, and operations of sequences, that are not answered yet */
    struct ngd_metric_row *miss_rows[5], *eager_rows[4];
    struct ngd_recorder recorder;
    struct ngd_expiry expiry;
    struct ngd_timeline timeline;
    _Atomic uint64_t next_program;  /* numbers of programs */
    _Atomic uint64_t next_binding;  /* generations of bindings */
    _Atomic uint32_t saves;         /* plans on their way to the store */
    struct ngd_hot *hot;            /* NULL: there is no store */
    struct ngd_mutex programs_lock; /* rank PROGRAMS */
    struct ngd_list programs NGD_GUARDED_BY(programs_lock);
    struct ngd_mutex shares_lock; /* rank SHARES */
    struct ngd_list shares NGD_GUARDED_BY(shares_lock);
    struct ngd_share *own_share; /* of requests that name none */
};

/* Counts a call in, or refuses it: DRAINING, UNAVAILABLE before start. */
ngd_status_t ngd_sched_enter(struct ngd_sched *sched, struct ngd_diag *diag);
static inline void ngd_sched_leave(struct ngd_sched *sched)
{
    atomic_fetch_sub_explicit(&sched->in_flight, 1, memory_order_release);
}
struct ngd_queue *ngd_sched_queue_of(struct ngd_sched *sched,
                                     const struct ngd_device *dev); /* NULL: not one of its devices */

/* ---- orders ------------------------------------------------------------------------------------------- */

/* True: req may go on. False: it waits in the order, watched for its deadline. req->cancelled is not looked at: the
 * mover does that next. */
bool ngd_order_enter(struct ngd_order *order, struct ngd_request *req);
bool ngd_order_remove(struct ngd_order *order, struct ngd_request *req);
/* After the done() of the request that held the order: the next one to move, or NULL. May free the order. */
struct ngd_request *ngd_order_leave(struct ngd_order *order);

/* ---- requests ----------------------------------------------------------------------------------------- */

extern const struct ngd_sched_item_ops ngd_request_item_ops;
/* Answers a request that is in no place and holds its order; then the ones of its order that follow are moved. */
void ngd_request_finish(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag);
/* A request that a slot has taken begins; false: its deadline had passed, and it was answered. */
bool ngd_request_begin(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now);
/* It runs by itself, and is answered. */
void ngd_request_run_begun(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now);
/* Puts a request where it has to go next. On an error it is still the caller's. */
ngd_status_t ngd_request_place(struct ngd_request *req, struct ngd_diag *diag);
/* Lets req wait for the capture of key. */
ngd_status_t ngd_request_park(struct ngd_request *req, const struct ngd_key *key, struct ngd_diag *diag);
bool ngd_request_unpark(struct ngd_request *req); /* false: it did not wait */

#endif
