/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_SCHED_H
#define NGD_SCHEDULER_RUN_SCHED_H

/*
 * The scheduler: requests wait in a run queue for each device. One worker thread for each stream slot takes them in the
 * order that a policy decides (policies.def), and runs them on the slot's stream and in its pool.
 *
 * Orders: a request belongs to an order, which is one logical stream of a session, or to none. The requests of an order
 * run one after another in the order of submission. Requests of different orders are not ordered.
 *
 * Completion: every submitted request completes exactly once, through req->done, with ok, an error, or CANCELLED. Its
 * memory is the submitter's again when done() is called. done() runs on a worker, a capture thread, the expiry thread,
 * or the calling thread: for an inline run, a cancel, or a submit that fails and so fails requests that wait for its
 * event. It must be short and must not block.
 *
 * Inline runs: a replay with a short expected time runs on the submitting thread if the queue is empty and an idle slot
 * has its instance. That saves two changes of thread. params.inline_limit bounds the expected time; 0 = never. A replay
 * that must first make, bind or capture something is queued.
 *
 * Deadlines: a request is refused at submission with DEADLINE_EXCEEDED if it is predicted to end after its deadline, by
 * the expected times of itself and of what is queued before it. It is accepted if its expected time is not known yet.
 *
 * Lifetime: create -> start -> (submit ...) -> drain -> stop -> destroy.
 */
#include "base/wakeup.h"
#include "graphs/guard.h"
#include "graphs/store.h"
#include "scheduler/run/session_events.h"
#include "scheduler/model/prompt_pace.h"
#include "scheduler/lineup/policy.h"
#include "scheduler/program/program.h"
#include "scheduler/run/share.h"

struct ngd_beat;
struct ngd_sched;
struct ngd_order;
struct ngd_executable;
struct ngd_queue;
struct ngd_dumps;
struct ngd_recorder;

struct ngd_sched_params {
    struct ngd_device **devices;
    uint32_t n_devices;
    uint32_t slots;           /* stream slots per device; default 1 */
    uint32_t capture_threads; /* default 1 */
    uint32_t queue_limit; /* waiting requests for each device; more are refused with RESOURCE_EXHAUSTED; default 4096 */
    ngd_nsec_t inline_limit; /* default 50 µs */
    ngd_nsec_t
        max_replay_time; /* a replay, or slice of a prompt, that runs longer is stopped; 0: never; default 60 s */
    ngd_nsec_t max_capture_time; /* a capture that takes longer is stopped; 0: never; default 120 s */
    bool merge;                  /* replays of graphs with a batch symbol may run together; default true */
    ngd_nsec_t merge_wait;       /* longest time that one waits for others to join it; linger.h; default 2 ms */
    uint32_t prompt_share;       /* percent that prompts may delay a decode step; prompt_pace.h; default 40 */
    struct ngd_dumps *dumps;     /* borrowed; directories that diagnostics may write to; NULL = none */
    const char *policy;          /* of policies.def; default "fair" */
    struct ngd_store *store;     /* borrowed; NULL: plans are not kept */
    const char *static_compiler; /* borrowed, an absolute path; NULL: static_kernel_compile compiles nothing */
    const char *static_dir;      /* borrowed; where compilations get their directories */
    ngd_nsec_t static_timeout;   /* for one compilation */
};

/*
 *   IDLE -> MOVING -+-> ORDERED: behind an earlier one of its order --+
 *             |     +-> WAITING_EVENT: another one will record it ----+
 *             ^     +-> WAITING_CAPTURE ------------------------------+-> MOVING ... -> DONE
 *             |     +-> QUEUED ---------------------------------------+
 *             |     +-> RUNNING -> DONE
 *
 * MOVING: on its way from one place to the next, in no list. The state is for people; no decision depends on it.
 */
typedef enum ngd_request_state {
    NGD_REQUEST_IDLE,
    NGD_REQUEST_MOVING,
    NGD_REQUEST_ORDERED,
    NGD_REQUEST_WAITING_EVENT,
    NGD_REQUEST_WAITING_CAPTURE,
    NGD_REQUEST_QUEUED,
    NGD_REQUEST_RUNNING,
    NGD_REQUEST_DONE,
} ngd_request_state_t;

/* The name of an event; need not be terminated. n = 0: none. */
struct ngd_session_event_name {
    const char *p;
    size_t n;
};

/* When a request went on, for traces; 0: it did not. Written before done(), which may read it. */
struct ngd_request_times {
    ngd_nsec_t parked, resumed;             /* it waited for a capture */
    ngd_nsec_t capture_began, capture_time; /* of that capture, if it ran for those who waited */
    ngd_nsec_t passes_time, plan_time;      /* parts of capture_time */
    ngd_nsec_t ended;                       /* the replay, with its copies */
    uint64_t key;                           /* hash of the executable's key */
    uint32_t slot;
};

/* One replay. The submitter fills the first part and keeps it, and all that launch points to, until done(). */
struct ngd_request {
    struct ngd_binding *binding; /* borrowed until done */
    struct ngd_order *order;     /* NULL: none, the request waits for no other one */
    struct ngd_share *share;     /* pays for it; borrowed until done; NULL: the scheduler's own share */
    ngd_priority_t priority;
    struct ngd_launch launch; /* sizes are checked at submission */
    uint32_t n_symbols, n_inputs, n_hosts, n_outputs;
    /* Guards that the submitter may state: */
    const struct ngd_input_type *types; /* n_inputs of them, borrowed until submitted; NULL = not stated */
    uint32_t n_types;
    uint64_t generation; /* of the binding; 0 = not stated */
    /* Events of the session (session_events.h). Both they and the names are borrowed until submitted. */
    struct ngd_session_events *events;
    struct ngd_session_event_name wait_event, record_event;
    ngd_nsec_t deadline; /* NGD_NSEC_NEVER */
    void (*done)(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag);
    void *user;
    struct ngd_request_times *times; /* zeroed, to be filled in; NULL: nobody wants them */
    /* The scheduler's. done() may read submitted and started; started is 0 if the request never ran. */
    struct ngd_sched_item item;
    struct ngd_queue *queue;
    struct ngd_list order_link; /* ORDERED; under the order's lock */
    struct ngd_list event_link; /* WAITING_EVENT; under the events' lock */
    struct ngd_list ready_link; /* of the thread that moves on what an event has released */
    struct ngd_session_event *waits, *records;
    bool in_events;
    struct ngd_list park_link; /* WAITING_CAPTURE; under the capture queue's lock */
    struct ngd_heap_node expiry_node;
    bool watched;       /* the expiry thread knows it; written before other threads can see the request */
    bool in_expiry;     /* in its heap; under its lock */
    ngd_nsec_t look_at; /* when the expiry thread looks at it next; under its lock */
    _Atomic int state;
    _Atomic bool cancelled;
    struct ngd_park *park; /* the capture that it waits for, or NULL; under the capture queue's lock */
    bool inline_run;       /* it ran on the submitting thread */
    ngd_nsec_t submitted, started;
    struct ngd_split split;         /* for done(), if the replay succeeded: where its time went */
    ngd_nsec_t charged;             /* likewise: its part of the replay's device time, ns */
    uint32_t together;              /* likewise: number of requests that the replay served */
    struct ngd_gcache_entry *joint; /* pinned executable of a joint replay; in its first request */
    struct ngd_gcache_entry *entry; /* pinned executable; NULL while a capture is awaited, and if `eager` is set */
    struct ngd_executable *eager;   /* its own executable, beyond the capture limit or with force_eager */
};

void ngd_sched_params_init(struct ngd_sched_params *params);
/*
 * Changes queue_limit, inline_limit, max_replay_time, max_capture_time, merge, merge_wait, prompt_share and
 * static_timeout to those of params, for what begins from now on; merge_wait and merge for graphs and prompt_share for
 * models that are registered from now on. Any thread.
 */
void ngd_sched_set(struct ngd_sched *sched, const struct ngd_sched_params *params);
ngd_status_t ngd_sched_create(const struct ngd_sched_params *params, struct ngd_sched **sched_p, struct ngd_diag *diag);
ngd_status_t ngd_sched_start(struct ngd_sched *sched);
/*
 * For schedulers with a store. warm captures the keys that were used most before the last stop, in the background.
 * save_hot writes what was used since the last call. The scheduler calls it when it stops, and a timer should call it
 * now and then. Does I/O.
 */
void ngd_sched_warm(struct ngd_sched *sched);
void ngd_sched_save_hot(struct ngd_sched *sched);
/* Refuses new requests with DRAINING and returns at once; ngd_sched_idle tells when all work is done. */
void ngd_sched_drain(struct ngd_sched *sched);
bool ngd_sched_idle(struct ngd_sched *sched);
/*
 * For the watchdog: asks the expiry thread whether it still moves. Other threads run clients' work, which has no bound
 * on its time: see ngd_sched_for_each_running.
 */
void ngd_sched_ask(struct ngd_sched *sched);
const struct ngd_beat *ngd_sched_beat(const struct ngd_sched *sched);
/* Cancels requests that wait, finishes those that run, and joins the threads. */
void ngd_sched_stop(struct ngd_sched *sched);
void ngd_sched_destroy(struct ngd_sched *sched);

/* Returns the flight recorder (recorder.h). */
struct ngd_recorder *ngd_sched_recorder(struct ngd_sched *sched);
/* Returns how promptly the expiry thread is woken up; ORDINARY until it has started. */
ngd_wakeup_t ngd_sched_expiry_wakeup(const struct ngd_sched *sched);
uint32_t ngd_sched_n_devices(const struct ngd_sched *sched);
struct ngd_device *ngd_sched_device(const struct ngd_sched *sched, uint32_t i);
/*
 * Finds a device by name or number: "host:1", "1". "" or NULL = the default device, which is the first one in service.
 * NOT_FOUND lists the names.
 */
ngd_status_t ngd_sched_find_device(const struct ngd_sched *sched, const char *name, struct ngd_device **dev_p,
                                   struct ngd_diag *diag);

void ngd_request_init(struct ngd_request *req);
/*
 * Checks the request against the graph (guards, sizes) and queues it, or runs it inline. If an error is returned,
 * done() has not been and will not be called.
 */
ngd_status_t ngd_sched_submit(struct ngd_sched *sched, struct ngd_request *req, struct ngd_diag *diag);
/*
 * Cancels a request. True: it waited, and has completed with CANCELLED. False: it runs or is between two places, and
 * will complete; or it is done. The caller keeps req and its order valid during the call.
 */
bool ngd_sched_cancel(struct ngd_sched *sched, struct ngd_request *req);
/* Does the same with DEADLINE_EXCEEDED if req->deadline has passed. The expiry thread calls it for waiting requests. */
bool ngd_request_expire(struct ngd_request *req);

/*
 * Orders: one for each logical stream of a session. Destroy one when all of its requests are done, from the last done()
 * on.
 */
ngd_status_t ngd_order_create(struct ngd_order **order_p);
void ngd_order_destroy(struct ngd_order *order);

/*
 * The caller of a capture ahead. Zero it, and keep it until done(), which runs on a capture thread or on the thread
 * that cancels.
 */
struct ngd_capture_asker {
    void (*done)(void *user, ngd_status_t status, const struct ngd_capture_info *info, const struct ngd_diag *diag);
    void *user;
    /* The scheduler's. */
    struct ngd_ahead *ahead;
    bool cancelled;
};
/*
 * Captures ahead, on a capture thread, in the turn of the share that owns the graph. options: as in
 * ngd_binding_capture; copied. If an error is returned, done() has not been and will not be called.
 */
ngd_status_t ngd_sched_capture(struct ngd_sched *sched, struct ngd_binding *binding, const int64_t *symbols,
                               uint32_t n_symbols, const struct ngd_graph_options *options, bool dry_run,
                               struct ngd_capture_asker *asker, struct ngd_diag *diag);
/*
 * Withdraws a capture whose asker has gone, even if ngd_sched_capture has not been called yet. A waiting capture ends
 * with CANCELLED at once, a running one at its next safe point.
 */
void ngd_sched_capture_cancel(struct ngd_sched *sched, struct ngd_capture_asker *asker);

/* What a slot runs at this moment, as read without stopping it. */
struct ngd_sched_running {
    const char *device;
    uint32_t slot;
    uint64_t graph;   /* the first 16 hex digits of its digest */
    ngd_nsec_t since; /* how long it has run, ns */
};
/* Calls fn for each slot that runs something. For finding what hangs: any thread, takes no lock. */
void ngd_sched_for_each_running(const struct ngd_sched *sched,
                                void (*fn)(void *ctx, const struct ngd_sched_running *running), void *ctx);

struct ngd_sched_device_stats {
    uint32_t queue_depth, slots;
    uint64_t pool_bytes;
    ngd_nsec_t busy;
    ngd_nsec_t bubble; /* time in which a slot was idle while something was queued */
    bool healthy;
};
void ngd_sched_device_stats(struct ngd_sched *sched, uint32_t device, struct ngd_sched_device_stats *stats_p);

#endif
