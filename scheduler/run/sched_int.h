/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SCHED_INT_H
#define NGD_SCHEDULER_RUN_SCHED_INT_H

/*
 * Shared by the files of the scheduler.
 *
 * A request waits in one of four places: its order's list, an event's list, a capture's waiting list, a run queue. Each
 * place has a lock, and no two of them are held together. The thread that takes a request out of a place owns it until
 * it has put it into the next one.
 *
 * A withdrawal (cancel, expiry) looks into all four places. A cancel sets req->cancelled first. A thread that puts a
 * request into a place reads that flag under the place's lock; for an order, when it moves the request on. So a
 * cancelled request is either found where it waits, or stopped by the thread that moves it.
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

/* Memory that a slot keeps for its owners and frees at its end. */
struct ngd_slot_area {
    void (*destroy)(struct ngd_slot_area *area);
};

/*
 * A stream slot. The thread that has set `busy` (its worker, or a thread that runs inline) owns it: only that thread
 * uses its stream and its pool.
 */
struct ngd_slot {
    struct ngd_queue *queue;
    uint32_t index;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_metric_row *pool_need, *pool_reserved;
    pthread_t thread;
    bool started;
    /* Under the queue's lock: */
    struct ngd_cond wake;
    bool busy;
    bool sleeping;    /* its worker waits for `wake` and nobody has signalled it */
    ngd_nsec_t until; /* expected end of what its worker runs */
    /* The owner's: */
    uint64_t need; /* largest pool_bytes of what ran here */
    /* What the owner runs now, for finding what hangs. 0: nothing. */
    _Atomic uint64_t running; /* the first 8 bytes of its graph's digest */
    _Atomic int64_t running_since;
    const struct ngd_request *asker; /* the request that runs, for the timeline; NULL: a model's batch */
    ngd_nsec_t busy_unreported;      /* ns, below 1 us, that the metric does not have yet */
    struct ngd_slot_area *area;      /* NULL until a joint replay has run here: replay/merge_run.c */
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
    _Atomic uint32_t waiting; /* requests that are submitted and do not run yet, in any place */
    _Atomic int64_t busy;     /* nanoseconds of device time */
    _Atomic bool healthy;
    struct ngd_mutex poolsets_lock; /* rank POOLSETS */
    struct ngd_list poolsets;       /* under poolsets_lock; the slots' own pools are not among them */
    struct ngd_mutex lock;
    struct ngd_cond freed;                  /* signalled when a slot becomes free while a thread waits for one */
    uint32_t n_takers NGD_GUARDED_BY(lock); /* threads that wait for a slot; they go before queued items */
    struct ngd_lineup lineup NGD_GUARDED_BY(lock);
    uint32_t n_busy NGD_GUARDED_BY(lock);         /* slots */
    ngd_nsec_t bubble_since NGD_GUARDED_BY(lock); /* begin of the present bubble; 0: there is none */
    ngd_nsec_t bubble NGD_GUARDED_BY(lock);       /* sum of earlier bubbles */
    bool stopping NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_queue_init(struct ngd_queue *queue, struct ngd_sched *sched, struct ngd_device *dev, uint32_t index,
                            const struct ngd_sched_policy *policy, uint32_t n_slots, struct ngd_diag *diag);
void ngd_queue_fini(struct ngd_queue *queue);
ngd_status_t ngd_queue_start(struct ngd_queue *queue);
/* Aborts queued items, waits for running ones, and joins the workers. */
void ngd_queue_stop(struct ngd_queue *queue);

/*
 * Queues an item and wakes a worker if one sleeps. OK: the item may have run already. On an error the item is still the
 * caller's. UNAVAILABLE: the queue is stopping; CANCELLED: `cancelled` was given and set.
 */
ngd_status_t ngd_queue_push(struct ngd_queue *queue, struct ngd_sched_item *item, const _Atomic bool *cancelled);
bool ngd_queue_remove(struct ngd_queue *queue, struct ngd_sched_item *item); /* false: it was not queued */
/*
 * Returns by how many ns the item, if it were pushed now, would miss its deadline or make others miss theirs; 0 or
 * less: it fits.
 */
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
 * Claims one of these slots (bits) for an inline run of the item. NULL: none is idle, something waits for the device,
 * the queue stops, the cap of the item's account does not allow it, or the item had better wait for others to join it.
 * The slot's worker takes nothing until release.
 */
struct ngd_slot *ngd_queue_claim(struct ngd_queue *queue, struct ngd_sched_item *item, uint64_t slots);
void ngd_queue_release(struct ngd_queue *queue, struct ngd_slot *slot);
/* Waits for a slot, ahead of queued items. For gangs: the caller is a worker of a device before this one. */
struct ngd_slot *ngd_queue_take_slot(struct ngd_queue *queue, ngd_nsec_t expected);
/* Call after a slot has become free. */
static inline void ngd_queue_tell_takers(struct ngd_queue *queue) NGD_REQUIRES(queue->lock)
{
    if (queue->n_takers)
        ngd_cond_signal(&queue->freed);
}
/* Wakes one sleeping worker, if there is one. */
void ngd_queue_wake(struct ngd_queue *queue) NGD_REQUIRES(queue->lock);
/* Keeps account of bubbles. Call after each change of queued items and of busy slots. */
void ngd_queue_note_bubble(struct ngd_queue *queue, ngd_nsec_t now) NGD_REQUIRES(queue->lock);

/* Adds t ns to the device's busy time. The caller owns the slot. */
void ngd_slot_note_busy(struct ngd_slot *slot, ngd_nsec_t t);
void *ngd_worker_main(void *slot);

/* ---- events ------------------------------------------------------------------------------------------- */

/*
 * At submission, finds the record that a request waits for, and makes its own record known. Whatever this returns,
 * ngd_session_event_leave must follow.
 */
ngd_status_t ngd_session_event_enter(struct ngd_request *req, struct ngd_diag *diag);
/*
 * Checks the event that req waits for. OK: req may go on; or, with *parked_p, it waits and belongs to the event now.
 * CANCELLED; EVENT_FAILED.
 */
ngd_status_t ngd_session_event_await(struct ngd_request *req, bool *parked_p, struct ngd_diag *diag);
bool ngd_session_event_unpark(struct ngd_request *req); /* false: it did not wait for an event */
/*
 * Ends the request's part: its record completes, or fails if status is an error. Requests that waited for the record
 * are added to `ready` by their ready_link.
 */
void ngd_session_event_leave(struct ngd_request *req, ngd_status_t status, struct ngd_list *ready);

/* ---- shares ------------------------------------------------------------------------------------------- */

/* Capture queues, in which shares take turns as in devices' queues. */
typedef enum ngd_capture_queue { NGD_CAPTURE_PLANS, NGD_CAPTURE_KERNELS, NGD_CAPTURE_QUEUES } ngd_capture_queue_t;

struct ngd_share {
    struct ngd_list link; /* in the table; under its lock, as is refs */
    uint32_t refs;
    struct ngd_sched *sched;
    char *name;
    struct ngd_metric_row *seconds, *split_rows[NGD_SPLIT_PARTS], *replays_row, *kv_row, *held_row;
    _Atomic int64_t split[NGD_SPLIT_PARTS]; /* nanoseconds */
    _Atomic uint64_t replays;
    _Atomic uint32_t queue_limit, waiting;
    _Atomic uint64_t kv_blocks, kv_limit;
    _Atomic uint64_t captures, capture_limit, store_limit;
    _Atomic uint32_t saves;                                       /* plans of its captures that wait to be stored */
    _Atomic uint64_t kv_refused, queue_refused, captures_refused; /* how often */
    _Atomic uint32_t device_percent;
    _Atomic int64_t held;                         /* ns in which its cap held something back, all devices */
    _Atomic uint64_t key;                         /* of the identity */
    struct ngd_account turns[NGD_CAPTURE_QUEUES]; /* under the lock of that capture queue */
    struct ngd_account accounts[];                /* by device */
};

/* Counts device time, ns, as used by the account, and against its cap; its virtual time stays (ngd_queue_charge). */
void ngd_share_use(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time);
/* As ngd_share_use, and corrects the virtual time: `expected` ns were charged when the item was taken. */
void ngd_share_charge(struct ngd_queue *queue, struct ngd_account *account, ngd_nsec_t time, ngd_nsec_t expected);

/* Adds `time` ns in which the account's cap held something back. */
void ngd_share_note_held(struct ngd_account *account, ngd_nsec_t time);

/* ---- captures ----------------------------------------------------------------------------------------- */

/*
 * A piece of work for the capture threads, embedded in its owner's struct. The share whose jobs took the least time per
 * weight is next, and within a share the oldest job.
 */
struct ngd_capture_job {
    void (*run)(struct ngd_capture_job *job);   /* takes the job over; on a capture thread, no lock held */
    void (*abort)(struct ngd_capture_job *job); /* takes the job over when the scheduler stops */
    /* The queue's: */
    struct ngd_list link; /* of an idle job */
    struct ngd_sched_item item;
    struct ngd_share *share;  /* a reference while the job is queued */
    struct ngd_stop *running; /* stop flag of the thread that runs it; valid until run() has given the job away */
};

struct ngd_captures {
    ngd_capture_queue_t which;
    uint32_t n_threads, n_started;
    size_t heap; /* bytes of heap that each thread pre-faults at its start (ngd_mem_warm) */
    /* Time limit of a job, ns; it then ends at its next safe point (base/stop.h). 0: none. */
    _Atomic ngd_nsec_t max_time;
    pthread_t *threads;
    const struct ngd_sched_policy *policy;
    struct ngd_mutex lock; /* rank CAPTURE_QUEUE */
    struct ngd_cond wake;
    void *jobs NGD_GUARDED_BY(lock);             /* the policy's state */
    struct ngd_list idle NGD_GUARDED_BY(lock);   /* jobs that run when no other one waits */
    struct ngd_list parked NGD_GUARDED_BY(lock); /* captures that requests wait for: request_park.c */
    uint32_t n_running NGD_GUARDED_BY(lock);     /* jobs */
    bool stopping NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_captures_init(struct ngd_captures *captures, ngd_capture_queue_t which, uint32_t n_threads,
                               size_t heap);
void ngd_captures_fini(struct ngd_captures *captures);
ngd_status_t ngd_captures_start(struct ngd_captures *captures);
void ngd_captures_stop(struct ngd_captures *captures);
/* Queues a job. False: the threads stop, and the job is still the caller's. */
bool ngd_captures_push(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share);
bool ngd_captures_push_locked(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share)
    NGD_REQUIRES(captures->lock);
/* Queues a job that nobody waits for: it runs when no other job waits. */
bool ngd_captures_push_idle(struct ngd_captures *captures, struct ngd_capture_job *job);
/*
 * Withdraws a job that nobody wants any more. True: it was queued, and is the caller's now. False: it runs, and ends at
 * its next safe point.
 */
bool ngd_captures_withdraw_locked(struct ngd_captures *captures, struct ngd_capture_job *job)
    NGD_REQUIRES(captures->lock);

/* ---- expiry: expiry.c ---------------------------------------------------------------------------------- */

/*
 * Withdraws a request whose deadline has passed and answers it. False: the deadline has not passed, or the request
 * runs.
 */
typedef bool ngd_expire_fn(struct ngd_request *req);

struct ngd_expiry {
    ngd_expire_fn *expire;
    pthread_t thread;
    bool started;
    _Atomic int wakeup;    /* the thread's ngd_wakeup_t */
    struct ngd_mutex lock; /* rank EXPIRY */
    struct ngd_cond wake, idle;
    struct ngd_heap requests NGD_GUARDED_BY(lock);           /* by look_at */
    const struct ngd_request *expiring NGD_GUARDED_BY(lock); /* the request that the thread is answering */
    ngd_nsec_t asleep_until NGD_GUARDED_BY(lock);
    bool stopping NGD_GUARDED_BY(lock);
    struct ngd_beat beat;
};

void ngd_expiry_init(struct ngd_expiry *expiry, ngd_expire_fn *expire);
void ngd_expiry_fini(struct ngd_expiry *expiry);
ngd_status_t ngd_expiry_start(struct ngd_expiry *expiry);
void ngd_expiry_stop(struct ngd_expiry *expiry);
void ngd_expiry_ask(struct ngd_expiry *expiry); /* asks for the thread's beat; takes no lock */
/* Watches a request that begins to wait, if it has a deadline. Call before other threads can find the request. */
void ngd_expiry_watch(struct ngd_expiry *expiry, struct ngd_request *req);
/* Ends the watch. Call before the request is the submitter's again, on the thread that owns it. */
void ngd_expiry_forget(struct ngd_expiry *expiry, struct ngd_request *req);

/* ---- the scheduler ------------------------------------------------------------------------------------ */

enum { NGD_SCHED_CREATED, NGD_SCHED_RUNNING, NGD_SCHED_DRAINING };

struct ngd_binding;
struct ngd_executable;
/*
 * Runs an executable on a slot that the caller owns: plainly, as a gang, or with quarantine, dumps or verification.
 * *quarantined_p: the key is in quarantine, and its graph ran without passes.
 */
typedef ngd_status_t ngd_run_fn(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                struct ngd_launch *launch, bool *quarantined_p);

/* Reads a parameter that ngd_sched_set may change. */
#define NGD_SCHED_PARAM(sched, field) __atomic_load_n(&(sched)->params.field, __ATOMIC_RELAXED)

struct ngd_sched {
    struct ngd_sched_params params;
    ngd_run_fn *(*choose_run)(const struct ngd_program *prog); /* diag/run_chain.c */
    uint32_t n_queues;
    struct ngd_queue *queues;
    struct ngd_captures captures;
    struct ngd_captures compiles; /* one thread: static kernels, compile.c */
    _Atomic bool stop_compiles;
    _Atomic uint32_t n_compiles; /* executables that wait for the compile thread */
    _Atomic int phase;
    _Atomic int64_t in_flight; /* unanswered requests, capture calls and operations of sequences */
    struct ngd_metric_row *miss_rows[5], *eager_rows[4];
    struct ngd_recorder recorder;
    struct ngd_expiry expiry;
    struct ngd_timeline timeline;
    _Atomic uint64_t next_program;  /* number of the last program */
    _Atomic uint64_t next_binding;  /* generation of the last binding */
    _Atomic uint32_t saves;         /* plans that wait to be stored */
    struct ngd_hot *hot;            /* hot keys; NULL: there is no store */
    struct ngd_mutex programs_lock; /* rank PROGRAMS */
    struct ngd_list programs NGD_GUARDED_BY(programs_lock);
    struct ngd_mutex shares_lock; /* rank SHARES */
    struct ngd_list shares NGD_GUARDED_BY(shares_lock);
    struct ngd_share *own_share; /* for requests without a share */
};

/* Counts a call as under way, or refuses it: DRAINING; UNAVAILABLE before the start. */
ngd_status_t ngd_sched_enter(struct ngd_sched *sched, struct ngd_diag *diag);
static inline void ngd_sched_leave(struct ngd_sched *sched)
{
    atomic_fetch_sub_explicit(&sched->in_flight, 1, memory_order_release);
}
struct ngd_queue *ngd_sched_queue_of(struct ngd_sched *sched,
                                     const struct ngd_device *dev); /* NULL: the device is not the scheduler's */

/* ---- orders ------------------------------------------------------------------------------------------- */

/*
 * Enters the order. True: req holds it and may go on. False: req waits in it, and expiry watches its deadline. This
 * does not test req->cancelled: the thread that moves req on does.
 */
bool ngd_order_enter(struct ngd_order *order, struct ngd_request *req);
bool ngd_order_remove(struct ngd_order *order, struct ngd_request *req);
/*
 * Gives the order up after the done() of its holder. Returns the next request, which the caller must move on, or NULL.
 * May free the order.
 */
struct ngd_request *ngd_order_leave(struct ngd_order *order);

/* ---- requests ----------------------------------------------------------------------------------------- */

extern const struct ngd_sched_item_ops ngd_request_item_ops;
/* Answers a request that is in no place and holds its order, then moves on the next requests of the order. */
void ngd_request_finish(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag);
/* Begins a request that a slot has taken. False: its deadline had passed, and it was answered. */
bool ngd_request_begin(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now);
/* Runs a request that has begun, alone, and answers it. */
void ngd_request_run_begun(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now);
/* Puts a request into its next place. If an error is returned, the request is still the caller's. */
ngd_status_t ngd_request_place(struct ngd_request *req, struct ngd_diag *diag);
/* Lets req wait for the capture of key, which begins unless it is under way. */
ngd_status_t ngd_request_park(struct ngd_request *req, const struct ngd_key *key, struct ngd_diag *diag);
bool ngd_request_unpark(struct ngd_request *req); /* false: it did not wait for a capture */

#endif
