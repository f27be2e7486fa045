/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DEVICE_H
#define NGD_DEVICES_DEVICE_H

/*
 * Devices as their callers (scheduler, daemon) see them. backend.h is what a backend implements.
 *
 * The contract is asynchronous, in the terms of ACL and CUDA: a launch returns at once, completion is an
 * event or a sync, a device error is sticky to its stream until the stream is reset, what a launch points to must
 * stay valid until it is complete, a captured executable's addresses stay valid until it is destroyed, and
 * host parameters are given with *every* launch.
 *
 * What hangs is ended by the backend's own time limit with DEVICE_FAULT. tests/backend/ has these rules as tests, for
 * every backend.
 *
 * Threads: a stream has one user at a time (its worker); everything else from any thread.
 * Objects are destroyed by their owner after what uses them: instance -> executable, pool; stream -> device.
 */
#include "base/charge.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "graphs/plan.h"

struct ngd_device;
struct ngd_stream;
struct ngd_event;
struct ngd_exec;
struct ngd_instance;
struct ngd_buffer;
struct ngd_pool;

/* ---- device ---------------------------------------------------------------------------------------- */

struct ngd_device_params {
    const char *backend;          /* "host", "ascend" */
    uint32_t index;               /* which device of that backend; the name is "<backend>:<index>" */
    uint64_t memory_bytes;        /* budget for buffers and pools; 0 = what the backend says */
    uint32_t threads;             /* host: CPUs of a stream's team; 0 = all online */
    const char *ascend_libs;      /* ascend: folder of CANN's libraries; NULL or "" = where CANN installs itself */
    const char *ascend_lib_names; /* ascend: "libopapi.so=FILE, ..." for files of other names; NULL or "" = none */
    bool nz_weights;              /* ascend: weights of matrix products get a copy in the layout of the matrix unit */
    const char *isa;              /* host: "auto", "scalar", "avx2", "avx512", "avx512bf16", "amx" */
};

struct ngd_device_info {
    const char *name; /* "host:0" */
    const char *backend;
    const char *arch;        /* what a plan's kernels depend on: part of the cache key */
    const char *description; /* for people: CPU model, instruction set */
    uint64_t memory_bytes;   /* budget */
    uint64_t pool_page;      /* pools of so many bytes and more grow where they are, by multiples of it; 0: they move */
    uint32_t threads;
    uint32_t streams_max;
    uint32_t aicores, vectorcores; /* that graphs' core limits are about; on a CPU both are its threads; 0: not known */
    uint32_t wide_rows; /* plans of so many rows and more may compute with other kernels, whose last bits differ from
                         * those of fewer rows; 0: bits do not depend on the planned rows */
    bool host_memory;   /* buffers are addressable by the CPU (ngd_buffer_host_ptr) */
    bool pauses;        /* launches stop at their pause_at */
    bool stops;         /* launches end early for their stop and stop_at */
    bool same_bits;     /* a graph has the same bits under all options but allow_excess_precision: docs/passes.md */
};

void ngd_device_params_init(struct ngd_device_params *params);
ngd_status_t ngd_device_open(const struct ngd_device_params *params, struct ngd_device **dev_p, struct ngd_diag *diag);
void ngd_device_close(struct ngd_device *dev); /* everything of it must be gone */
const struct ngd_device_info *ngd_device_info(const struct ngd_device *dev);
/* What the backend can and has found, for people; nothing when it has nothing to say. */
void ngd_device_describe(struct ngd_device *dev, struct ngd_strbuf *sb);
uint64_t ngd_device_used_bytes(const struct ngd_device *dev);
/* The device's part in planning; valid while the device is open. */
const struct ngd_plan_target *ngd_device_target(struct ngd_device *dev);
/* For "N kernels": names of backends compiled in, NULL terminated. */
const char *const *ngd_device_backends(void);

/* ---- buffers: device memory with an owner, refcounted ------------------------------------------------ */

typedef enum ngd_buffer_kind {
    NGD_BUFFER_GENERAL,
    NGD_BUFFER_WEIGHTS,
    NGD_BUFFER_KV,
    NGD_BUFFER_POOL
} ngd_buffer_kind_t;

/*
 * Allocates zeroed memory, 64-byte aligned. NGD_ERR_NO_DEVICE_MEMORY is decided before anything is allocated, and the
 * diagnosis names the need, the budget, what is free and the largest holders: their kinds and
 * bytes, since labels are their owners'.
 */
ngd_status_t ngd_buffer_create(struct ngd_device *dev, uint64_t bytes, ngd_buffer_kind_t kind, const char *label,
                               struct ngd_buffer **buf_p, struct ngd_diag *diag);
/* Would a set of buffers of `bytes` in all fit? Same diagnosis; for checks before a load begins. */
ngd_status_t ngd_device_check_room(struct ngd_device *dev, uint64_t bytes, const char *what, struct ngd_diag *diag);
/*
 * Buffers of NGD_FREE_LATER bytes and more are freed by a thread of the device after their last reference, and count
 * until then. An allocation for which there is no room waits for those, so a thread that must not wait asks first
 * whether there are any. settle: waits until what had lost its last reference before is free.
 */
#define NGD_FREE_LATER ((uint64_t)32 << 20)
bool ngd_device_is_freeing(struct ngd_device *dev);
void ngd_device_settle(struct ngd_device *dev);
/*
 * A buffer of its own for the memory of `of`, which stays as long as one of them does: with its own references and its
 * own charge, for memory that several owners hold. In all else it is `of`, its generation included.
 */
ngd_status_t ngd_buffer_view(struct ngd_buffer *of, struct ngd_buffer **buf_p, struct ngd_diag *diag);
bool ngd_buffer_same(const struct ngd_buffer *a, const struct ngd_buffer *b); /* one memory */
/* Before others know the buffer: takes over the charge, which ends when the memory is free. */
void ngd_buffer_set_charge(struct ngd_buffer *buf, struct ngd_charge *charge);
struct ngd_payer *ngd_buffer_payer(const struct ngd_buffer *buf); /* NULL: none */
struct ngd_buffer *ngd_buffer_ref(struct ngd_buffer *buf);
struct ngd_buffer *ngd_buffer_unref(struct ngd_buffer *buf); /* returns NULL */
bool ngd_buffer_is_last(const struct ngd_buffer *buf);       /* the caller's reference is the only one */
uint64_t ngd_buffer_bytes(const struct ngd_buffer *buf);
uint64_t ngd_buffer_generation(const struct ngd_buffer *buf); /* unique per allocation, never reused */
const char *ngd_buffer_label(const struct ngd_buffer *buf);
ngd_buffer_kind_t ngd_buffer_kind(const struct ngd_buffer *buf);
struct ngd_device *ngd_buffer_device(const struct ngd_buffer *buf);
void *ngd_buffer_host_ptr(struct ngd_buffer *buf); /* NULL unless info.host_memory */
/* Synchronous copies; NGD_ERR_BUFFER_RANGE names the range. Not ordered with launches: the caller is. */
ngd_status_t ngd_buffer_write(struct ngd_buffer *buf, uint64_t offset, const void *src, uint64_t n,
                              struct ngd_diag *diag);
ngd_status_t ngd_buffer_read(struct ngd_buffer *buf, uint64_t offset, void *dst, uint64_t n, struct ngd_diag *diag);
/* Calls fn for every live buffer and pool (generation 0), newest last; bytes are what the budget counts; fn must be
 * short. */
void ngd_device_for_each_buffer(struct ngd_device *dev,
                                void (*fn)(void *ctx, const char *label, ngd_buffer_kind_t kind, uint64_t bytes,
                                           uint64_t generation),
                                void *ctx);

/* ---- pools: memory that executables which never run at the same time share ---------------------------- */

ngd_status_t ngd_pool_create(struct ngd_device *dev, const char *name, struct ngd_pool **pool_p);
void ngd_pool_set_payer(struct ngd_pool *pool, struct ngd_payer *payer); /* of an empty pool; NULL: nobody pays */
void ngd_pool_destroy(struct ngd_pool *pool);
uint64_t ngd_pool_bytes(const struct ngd_pool *pool); /* held */

/* ---- executables -------------------------------------------------------------------------------------- */

/* Captures a plan: chooses kernels, prepares their arguments. Takes a reference on the plan. One with collectives is
 * refused with GROUP_UNBOUND. */
ngd_status_t ngd_exec_create(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_exec **exec_p,
                             struct ngd_diag *diag);
/* The same of a plan with collectives: each group that they name is among comms, and the device is a rank of it
 * (GROUP_UNBOUND). Takes references on those that it uses. */
struct ngd_comm;
ngd_status_t ngd_exec_create_in(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_comm *const *comms,
                                uint32_t n_comms, struct ngd_exec **exec_p, struct ngd_diag *diag);
struct ngd_exec *ngd_exec_ref(struct ngd_exec *exec);
struct ngd_exec *ngd_exec_unref(struct ngd_exec *exec);
const struct ngd_plan *ngd_exec_plan(const struct ngd_exec *exec);
uint64_t ngd_exec_bytes(const struct ngd_exec *exec); /* host memory of the executable itself */

/* ---- static kernels: code for the shapes of one plan ---- */

/* What became of an executable's static kernels; devices/static_results.def. */
typedef enum ngd_static_result {
#define NGD_STATIC_RESULT(ID, name, text) NGD_STATIC_##ID,
#include "devices/static_results.def"
#undef NGD_STATIC_RESULT
    NGD_STATIC_RESULT_MAX
} ngd_static_result_t;
const char *ngd_static_result_name(ngd_static_result_t result);
const char *ngd_static_result_text(ngd_static_result_t result);

struct ngd_static_work {
    const char *source;   /* of ngd_exec_static_source */
    const char *compiler; /* an absolute path */
    const char *dir;      /* where a directory for the time of the compilation may be made */
    ngd_nsec_t timeout;
    const _Atomic bool *stop; /* looked at all the time: true ends the compilation */
};
/* Appends nothing when the backend has no static kernels, or none that would gain anything for this plan. */
ngd_status_t ngd_exec_static_source(struct ngd_exec *exec, struct ngd_strbuf *source, struct ngd_diag *diag);
void ngd_exec_static_toolchain(struct ngd_exec *exec, const char *compiler, struct ngd_strbuf *lines);
/* Runs the compiler in a process of its own: blocks for seconds. COMPILED appends the object. */
ngd_static_result_t ngd_exec_static_compile(struct ngd_exec *exec, const struct ngd_static_work *work,
                                            struct ngd_strbuf *object, struct ngd_diag *diag);
/* Replays that begin later run the object's kernels. Refused: it is not of this executable's source. Any thread. */
ngd_status_t ngd_exec_static_adopt(struct ngd_exec *exec, const void *object, size_t n, struct ngd_diag *diag);
/* True for the first who asks: the executable is PENDING then, until a result is set. */
bool ngd_exec_static_begin(struct ngd_exec *exec);
void ngd_exec_static_set(struct ngd_exec *exec, ngd_static_result_t result);
ngd_static_result_t ngd_exec_static_get(const struct ngd_exec *exec);
/* False: the caller's is the only reference, and nobody will run it again. */
bool ngd_exec_wanted(const struct ngd_exec *exec);

/*
 * An executable with private bindings in one pool: what is replayed. buffers: params, then states, in ordinal
 * order; sizes are checked (NGD_ERR_BINDING_MISMATCH); references are taken on exec and buffers. The pool grows to the
 * plan's need here (so only while nothing runs in it).
 */
ngd_status_t ngd_instance_create(struct ngd_exec *exec, struct ngd_buffer *const *buffers, uint32_t n,
                                 struct ngd_pool *pool, struct ngd_instance **inst_p, struct ngd_diag *diag);
void ngd_instance_destroy(struct ngd_instance *inst);
/* Charges its host memory, until it is destroyed; once. */
ngd_status_t ngd_instance_charge(struct ngd_instance *inst, struct ngd_payer *payer, struct ngd_diag *diag);
struct ngd_exec *ngd_instance_exec(const struct ngd_instance *inst);
/*
 * True if a launch on the stream begins at once: it has nothing to bind again and nothing to capture. Only the stream's
 * user calls it. Before the launch, one thing can still change the answer: a capture on another stream of a device that
 * has no stream left may take this instance's graph away, the least recently used graph first.
 */
bool ngd_instance_ready(const struct ngd_instance *inst, struct ngd_stream *stream);

/* ---- streams, events, launches ------------------------------------------------------------------------ */

struct ngd_span {
    const void *data;
    uint64_t bytes;
};
struct ngd_out {
    void *data;     /* NULL: this result is not wanted and is not copied out */
    uint64_t bytes; /* room; must be at least the result's bytes at the actual symbols */
};
struct ngd_host_value {
    const int64_t *values;
    uint32_t n; /* 1 for a scalar */
};

/*
 * One launch. Sizes have been checked against the plan by ngd_launch_check (the scheduler calls it before queueing).
 * status and diag are written at completion: request-scope errors (INDEX_RANGE) land here and do not touch the stream.
 */
struct ngd_launch {
    const int64_t *symbols;             /* actual values, graph->n_symbols */
    const struct ngd_span *inputs;      /* graph->n_inputs; borrowed until complete */
    const struct ngd_host_value *hosts; /* graph->n_hosts */
    const struct ngd_out *outputs;      /* graph->n_outputs */
    bool eager;                         /* operator by operator, each through the backend's own launch */
    uint64_t tag;                       /* the request's, for diagnoses; 0 = none */
    /* out, parts of device_time: on the host, before and after the device's own work; 0 where it cannot be told */
    ngd_nsec_t copy_in_time, copy_out_time;
    ngd_nsec_t
        *times; /* optional: begin and end of each call of the plan, where the backend can say (zeros: it cannot) */
    /*
     * Optional, where the device can (info.pauses), and not in eager launches: stop between two calls of the plan
     * rather than go past this time; one call at least is made. `paused` says that the launch is not complete: given to
     * ngd_stream_run again, on any stream of the device, it goes on. Until then its pool is used by nobody else, and
     * what it points to stays, but for the inputs, which have been copied. To give up, just do not go on. 0: never
     * stop.
     */
    ngd_nsec_t pause_at;
    bool paused;        /* false before the first run */
    uint32_t resume;    /* the backend's, while paused */
    ngd_nsec_t longest; /* out, with pause_at: the longest stretch of this run without a place to stop */
    /*
     * Optional, where the device can (info.stops): the launch ends early, between two calls or between two parts of a
     * long one, with CANCELLED when *stop is true, with REPLAY_STOPPED when the time is stop_at (0: never). It has no
     * results then, and states may be partly written. Any thread may set *stop while the launch runs.
     */
    const _Atomic bool *stop;
    ngd_nsec_t stop_at;
    bool deadline_bound; /* the caller's: stop_at is a deadline */
    ngd_status_t status;
    struct ngd_diag diag;
    ngd_nsec_t device_time; /* out: time on the device, of this run */
};

/* Checks counts, byte lengths and host parameters against the plan at launch->symbols: INPUT_COUNT, INPUT_SIZE, ... */
ngd_status_t ngd_launch_check(const struct ngd_plan *plan, const struct ngd_launch *launch, uint32_t n_inputs,
                              uint32_t n_hosts, uint32_t n_outputs, struct ngd_diag *diag);
/* Bytes of output i at these symbols. */
uint64_t ngd_plan_output_bytes(const struct ngd_plan *plan, uint32_t i, const int64_t *symbols);

ngd_status_t ngd_stream_create(struct ngd_device *dev, const char *name, struct ngd_stream **stream_p,
                               struct ngd_diag *diag);
void ngd_stream_destroy(struct ngd_stream *stream); /* waits for what is queued */
/* Queues and returns at once. NGD_ERR_STREAM_ERROR while a sticky error is set. */
ngd_status_t ngd_stream_launch(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch);
/* Launch and wait. On `host`, when the stream is idle, the kernels run on the calling thread: no hop. Returns
 * launch->status. */
ngd_status_t ngd_stream_run(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch);
/* fn runs after everything queued before it, on a thread of the device; it must be short. */
ngd_status_t ngd_stream_callback(struct ngd_stream *stream, void (*fn)(void *arg), void *arg);
ngd_status_t ngd_stream_sync(struct ngd_stream *stream); /* the sticky error, if any */
ngd_status_t ngd_stream_status(struct ngd_stream *stream);
void ngd_stream_reset(struct ngd_stream *stream); /* waits, clears the sticky error */
/* Tests and the fault injector: make the stream's error sticky as a device fault would. */
void ngd_stream_poison(struct ngd_stream *stream, ngd_status_t status);

ngd_status_t ngd_event_create(struct ngd_device *dev, struct ngd_event **event_p);
void ngd_event_destroy(struct ngd_event *event);
ngd_status_t ngd_event_record(struct ngd_event *event, struct ngd_stream *stream);
/* The stream, not the caller, waits, for the newest record so far: a later one neither prolongs nor shortens the wait,
 * whatever its stream. */
ngd_status_t ngd_stream_wait_event(struct ngd_stream *stream, struct ngd_event *event);
bool ngd_event_query(const struct ngd_event *event); /* complete (or never recorded) */
ngd_status_t ngd_event_sync(struct ngd_event *event);

#endif
