/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DEVICE_H
#define NGD_DEVICES_DEVICE_H

/*
 * Devices, for their callers (scheduler, daemon). The other side, which a backend implements, is backend.h.
 *
 * The contract is asynchronous, in the terms of ACL and CUDA:
 *   - A launch returns at once. An event or a sync reports its completion.
 *   - A device error is sticky: it stays with its stream until the stream is reset.
 *   - What a launch points to stays valid until the launch is complete.
 *   - The addresses of a captured executable stay valid until it is destroyed.
 *   - Host parameters are given with *every* launch.
 *   - The backend's own time limit ends work that hangs, with DEVICE_FAULT.
 * tests/backend/ tests these rules for every backend.
 *
 * Threads: a stream has one user at a time (its worker). Everything else may be called from any thread.
 * Memory: the owner destroys an object after everything that uses it: instances before their executable and pool,
 * streams before their device.
 */
#include "base/charge.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "graphs/plan.h"

struct ascend_probe_hold;
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
    uint64_t memory_bytes;        /* budget for buffers and pools; 0 = the backend's default */
    uint32_t threads;             /* host: CPUs of a stream's team; 0 = all online */
    uint32_t sharers;             /* host: devices that share this machine's memory by default; 0 = this one alone */
    const char *ascend_libs;      /* ascend: folder of CANN's libraries; NULL or "" = where CANN installs itself */
    const char *ascend_lib_names; /* ascend: "libopapi.so=FILE, ..." for files of other names; NULL or "" = none */
    bool nz_weights;              /* ascend: weights of matrix products get a copy in the layout of the matrix unit */
    const char *device_facts;     /* ascend: file of what a probe found out about the chip; NULL or "" = none */
    struct ascend_probe_hold *probe; /* ascend: of the probe that opens the device; NULL = it is no probe */
    const char *isa;                 /* host: "auto", "scalar", "avx2", "avx512", "avx512bf16", "amx" */
};

struct ngd_device_info {
    const char *name; /* "host:0" */
    const char *backend;
    const char *arch;        /* everything that a plan's choice of kernels depends on: part of the cache key */
    const char *description; /* for people: CPU model, instruction set */
    uint64_t memory_bytes;   /* budget */
    uint64_t pool_page;      /* pools of at least this size grow in place, by multiples of it; 0: pools move */
    uint32_t threads;
    uint32_t streams_max;
    uint32_t aicores, vectorcores; /* what graphs' core limits count; on a CPU both are its threads; 0: not known */
    uint32_t wide_rows;     /* plans of at least this many rows may use other kernels, whose last bits differ from those
                             * of fewer rows; 0: bits do not depend on the planned rows */
    uint32_t kv_block;      /* rows of a KV block that suit its attention best; 0: it has no preference */
    bool padding_block;     /* its attention reads block 0 of a paged cache for rows of padding: it is nobody's */
    const char *no_decoder; /* why it serves no paged decoder; NULL or "": it does */
    bool host_memory;       /* the CPU can address buffers (ngd_buffer_host_ptr) */
    bool pauses;            /* launches stop at their pause_at */
    bool stops;             /* launches end early for their stop and stop_at */
    bool same_bits;         /* a graph has the same bits under all options but allow_excess_precision: docs/passes.md */
};

void ngd_device_params_init(struct ngd_device_params *params);
ngd_status_t ngd_device_open(const struct ngd_device_params *params, struct ngd_device **dev_p, struct ngd_diag *diag);
/*
 * Asks a device of this kind what its documents leave open, in child processes, and writes the answers to a file as
 * they come: minutes. The device need not be open. UNIMPLEMENTED: its backend has no such questions. The caller has no
 * threads, since it forks.
 */
ngd_status_t ngd_device_probe(const struct ngd_device_params *params, const char *path, struct ngd_diag *diag);
void ngd_device_close(struct ngd_device *dev); /* buffers, pools and streams are gone; NULL is fine */
const struct ngd_device_info *ngd_device_info(const struct ngd_device *dev);
/* Appends, for people, what the backend can do and what it found. Appends nothing if it has nothing to say. */
void ngd_device_describe(struct ngd_device *dev, struct ngd_strbuf *sb);
uint64_t ngd_device_used_bytes(const struct ngd_device *dev);
/* Returns the device's part in planning; valid while the device is open. */
const struct ngd_plan_target *ngd_device_target(struct ngd_device *dev);
/* Returns the names of the backends that are compiled in, NULL terminated. */
const char *const *ngd_device_backends(void);

/* ---- buffers: device memory with an owner and a reference count --------------------------------------- */

typedef enum ngd_buffer_kind {
    NGD_BUFFER_GENERAL,
    NGD_BUFFER_WEIGHTS,
    NGD_BUFFER_KV,
    NGD_BUFFER_POOL
} ngd_buffer_kind_t;

/*
 * Allocates zeroed memory, 64-byte aligned. NGD_ERR_NO_DEVICE_MEMORY is decided before anything is allocated. Its
 * diagnosis names the need, the budget, the bytes in use, and the kinds and bytes of the largest holders. It does not
 * name their labels, which belong to their owners.
 */
ngd_status_t ngd_buffer_create(struct ngd_device *dev, uint64_t bytes, ngd_buffer_kind_t kind, const char *label,
                               struct ngd_buffer **buf_p, struct ngd_diag *diag);
/* Checks whether buffers of `bytes` in all would fit, before a load begins. Same diagnosis. */
ngd_status_t ngd_device_check_room(struct ngd_device *dev, uint64_t bytes, const char *what, struct ngd_diag *diag);
/*
 * A thread of the device frees buffers of NGD_FREE_LATER bytes and more after their last unref; they count in the
 * budget until then. An allocation for which there is no room waits for them. So a thread that must not wait calls
 * ngd_device_is_freeing() first. ngd_device_settle() waits until everything whose last reference ended before the call
 * is free.
 */
#define NGD_FREE_LATER ((uint64_t)32 << 20)
bool ngd_device_is_freeing(struct ngd_device *dev);
void ngd_device_settle(struct ngd_device *dev);
/*
 * Creates a second buffer for the memory of `of`, with its own references and its own charge, for memory that several
 * owners hold. The memory lives until both are gone. Everything else, the generation included, is that of `of`.
 */
ngd_status_t ngd_buffer_view(struct ngd_buffer *of, struct ngd_buffer **buf_p, struct ngd_diag *diag);
bool ngd_buffer_same(const struct ngd_buffer *a, const struct ngd_buffer *b); /* both have the same memory */
/* Takes over the charge, which ends when the memory is free. Call it before others know the buffer. */
void ngd_buffer_set_charge(struct ngd_buffer *buf, struct ngd_charge *charge);
struct ngd_payer *ngd_buffer_payer(const struct ngd_buffer *buf); /* NULL: nobody pays */
/* Notes where the contents came from, for whoever must get them again. Takes the memory, of ngd_malloc, which goes with
 * the buffer. Call it once, before others know the buffer. */
void ngd_buffer_set_origin(struct ngd_buffer *buf, void *origin);
const void *ngd_buffer_origin(const struct ngd_buffer *buf); /* borrowed from the buffer; NULL: none was noted */
struct ngd_buffer *ngd_buffer_ref(struct ngd_buffer *buf);
struct ngd_buffer *ngd_buffer_unref(struct ngd_buffer *buf); /* returns NULL */
bool ngd_buffer_is_last(const struct ngd_buffer *buf);       /* the caller's reference is the only one */
uint64_t ngd_buffer_bytes(const struct ngd_buffer *buf);
uint64_t ngd_buffer_generation(const struct ngd_buffer *buf); /* unique per allocation, never reused */
const char *ngd_buffer_label(const struct ngd_buffer *buf);
ngd_buffer_kind_t ngd_buffer_kind(const struct ngd_buffer *buf);
struct ngd_device *ngd_buffer_device(const struct ngd_buffer *buf);
void *ngd_buffer_host_ptr(struct ngd_buffer *buf); /* NULL unless info.host_memory */
/* Copy synchronously. NGD_ERR_BUFFER_RANGE names the range. The caller orders copies with launches. */
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
void ngd_pool_set_payer(struct ngd_pool *pool, struct ngd_payer *payer); /* the pool is empty; NULL: nobody pays */
void ngd_pool_destroy(struct ngd_pool *pool);
uint64_t ngd_pool_bytes(const struct ngd_pool *pool); /* held */

/* ---- executables -------------------------------------------------------------------------------------- */

/* Captures a plan: chooses kernels and prepares their arguments. Takes a reference on the plan. Refuses a plan with
 * collectives with GROUP_UNBOUND. */
ngd_status_t ngd_exec_create(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_exec **exec_p,
                             struct ngd_diag *diag);
/* Captures a plan with collectives. GROUP_UNBOUND if a group that they name is not among comms, or if the device is no
 * rank of it. Takes references on the communicators that it uses. */
struct ngd_comm;
ngd_status_t ngd_exec_create_in(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_comm *const *comms,
                                uint32_t n_comms, struct ngd_exec **exec_p, struct ngd_diag *diag);
struct ngd_exec *ngd_exec_ref(struct ngd_exec *exec);
struct ngd_exec *ngd_exec_unref(struct ngd_exec *exec);
const struct ngd_plan *ngd_exec_plan(const struct ngd_exec *exec);
uint64_t ngd_exec_bytes(const struct ngd_exec *exec); /* host memory of the executable itself */
/* Which operator the device takes only as several smaller ones, and why; NULL: none. Lives as long as the executable.
 */
const char *ngd_exec_note(const struct ngd_exec *exec);

/* ---- static kernels: code for the shapes of one plan ---- */

/* State of an executable's static kernels; the texts are in devices/static_results.def. */
typedef enum ngd_static_result {
#define NGD_STATIC_RESULT(ID, name, text) NGD_STATIC_##ID,
#include "devices/static_results.def"
#undef NGD_STATIC_RESULT
    NGD_STATIC_RESULT_MAX
} ngd_static_result_t;
const char *ngd_static_result_name(ngd_static_result_t result);
const char *ngd_static_result_text(ngd_static_result_t result);

struct ngd_static_work {
    const char *source;   /* from ngd_exec_static_source */
    const char *compiler; /* an absolute path */
    const char *dir;      /* where to create a temporary directory for the compilation */
    ngd_nsec_t timeout;
    const _Atomic bool *stop; /* polled; true ends the compilation */
};
/* Appends the source to compile. Appends nothing if the backend has no static kernels, or none that would make this
 * plan faster. */
ngd_status_t ngd_exec_static_source(struct ngd_exec *exec, struct ngd_strbuf *source, struct ngd_diag *diag);
void ngd_exec_static_toolchain(struct ngd_exec *exec, const char *compiler, struct ngd_strbuf *lines);
/* Runs the compiler in a separate process; blocks for seconds. Appends the object if the result is COMPILED. */
ngd_static_result_t ngd_exec_static_compile(struct ngd_exec *exec, const struct ngd_static_work *work,
                                            struct ngd_strbuf *object, struct ngd_diag *diag);
/* Installs the object: replays that begin later run its kernels. Refuses an object that was not compiled from this
 * executable's source. Any thread. */
ngd_status_t ngd_exec_static_adopt(struct ngd_exec *exec, const void *object, size_t n, struct ngd_diag *diag);
/* Sets the state to PENDING, until ngd_exec_static_set. Returns true for the first caller only. */
bool ngd_exec_static_begin(struct ngd_exec *exec);
void ngd_exec_static_set(struct ngd_exec *exec, ngd_static_result_t result);
ngd_static_result_t ngd_exec_static_get(const struct ngd_exec *exec);
/* Returns false if the caller holds the only reference, so that nobody will run the executable again. */
bool ngd_exec_wanted(const struct ngd_exec *exec);

/*
 * Creates an instance: an executable bound to buffers and to one pool, which can be replayed. `buffers` are the params,
 * then the states, in the graph's order; their sizes are checked (NGD_ERR_BINDING_MISMATCH). Takes references on exec
 * and buffers. Grows the pool to the plan's need, so nothing may run in the pool meanwhile.
 */
ngd_status_t ngd_instance_create(struct ngd_exec *exec, struct ngd_buffer *const *buffers, uint32_t n,
                                 struct ngd_pool *pool, struct ngd_instance **inst_p, struct ngd_diag *diag);
void ngd_instance_destroy(struct ngd_instance *inst);
/* Charges the instance's host memory to the payer until the instance is destroyed. Call it at most once. */
ngd_status_t ngd_instance_charge(struct ngd_instance *inst, struct ngd_payer *payer, struct ngd_diag *diag);
struct ngd_exec *ngd_instance_exec(const struct ngd_instance *inst);
/*
 * Returns true if a launch on the stream would begin at once, with nothing to bind again and nothing to capture. Only
 * the stream's user calls it. One thing can still change the answer before the launch: on a device that has no stream
 * left, a capture on another stream evicts the least recently used graph, which may be this instance's.
 */
bool ngd_instance_ready(const struct ngd_instance *inst, struct ngd_stream *stream);

/* ---- streams, events, launches ------------------------------------------------------------------------ */

struct ngd_span {
    const void *data;
    uint64_t bytes;
};
struct ngd_out {
    void *data;     /* NULL: the result is not copied out */
    uint64_t bytes; /* room; must be at least the result's bytes at the actual symbols */
};
struct ngd_host_value {
    const int64_t *values;
    uint32_t n; /* 1 for a scalar */
};

/*
 * One launch. The scheduler has checked its sizes with ngd_launch_check before it queues it. Completion writes status
 * and diag. An error of request scope (INDEX_RANGE) is reported there and does not touch the stream.
 */
struct ngd_launch {
    const int64_t *symbols;             /* actual values, graph->n_symbols */
    const struct ngd_span *inputs;      /* graph->n_inputs; borrowed until complete */
    const struct ngd_host_value *hosts; /* graph->n_hosts */
    const struct ngd_out *outputs;      /* graph->n_outputs */
    bool eager;                         /* each operator is launched separately, through the backend's own launch */
    uint64_t tag;                       /* the request's, for diagnoses; 0 = none */
    /* out: parts of device_time that the host spends before and after the device's own work; 0: not known */
    ngd_nsec_t copy_in_time, copy_out_time;
    ngd_nsec_t *times; /* optional, out: begin and end of each call of the plan; zeros if the backend cannot tell */
    /*
     * Optional, if the device supports it (info.pauses); not in eager launches. The launch makes at least one call, and
     * stops between two calls of the plan rather than run past this time. If `paused` is set then, the launch is not
     * complete: passed to ngd_stream_run again, on any stream of the device, it continues. Until then nobody else uses
     * its pool, and what it points to stays valid, except the inputs, which have been copied. A caller that gives up
     * simply does not continue. 0: the launch never stops.
     */
    ngd_nsec_t pause_at;
    bool paused;        /* false before the first run */
    uint32_t resume;    /* the backend's, while paused */
    ngd_nsec_t longest; /* out, with pause_at: the longest stretch of this run without a place to stop */
    /*
     * Optional, if the device supports it (info.stops). The launch ends early, between two calls or between two parts
     * of a long one: with CANCELLED when *stop is true, with REPLAY_STOPPED at the time stop_at (0: never). It has no
     * results then, and states may be partly written. Any thread may set *stop while the launch runs.
     */
    const _Atomic bool *stop;
    ngd_nsec_t stop_at;
    bool deadline_bound; /* the caller's: stop_at is a deadline */
    ngd_status_t status;
    struct ngd_diag diag;
    ngd_nsec_t device_time; /* out: time of this run on the device */
};

/* Checks counts, byte lengths and host parameters against the plan at launch->symbols: INPUT_COUNT, INPUT_SIZE, ... */
ngd_status_t ngd_launch_check(const struct ngd_plan *plan, const struct ngd_launch *launch, uint32_t n_inputs,
                              uint32_t n_hosts, uint32_t n_outputs, struct ngd_diag *diag);
/* Returns the bytes of output i at these symbols. */
uint64_t ngd_plan_output_bytes(const struct ngd_plan *plan, uint32_t i, const int64_t *symbols);

ngd_status_t ngd_stream_create(struct ngd_device *dev, const char *name, struct ngd_stream **stream_p,
                               struct ngd_diag *diag);
void ngd_stream_destroy(struct ngd_stream *stream); /* waits for what is queued */
/* Queues the launch and returns at once. NGD_ERR_STREAM_ERROR while a sticky error is set. */
ngd_status_t ngd_stream_launch(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch);
/* Launches and waits. On `host`, if the stream is idle, the kernels run on the calling thread, without a thread switch.
 * Returns launch->status. */
ngd_status_t ngd_stream_run(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch);
/* Calls fn after everything queued before, on a thread of the device. fn must be short. */
ngd_status_t ngd_stream_callback(struct ngd_stream *stream, void (*fn)(void *arg), void *arg);
ngd_status_t ngd_stream_sync(struct ngd_stream *stream); /* waits; returns the sticky error, if any */
ngd_status_t ngd_stream_status(struct ngd_stream *stream);
void ngd_stream_reset(struct ngd_stream *stream); /* waits, then clears the sticky error */
/* Sets a sticky error, as a device fault would; for tests and the fault injector. */
void ngd_stream_poison(struct ngd_stream *stream, ngd_status_t status);

ngd_status_t ngd_event_create(struct ngd_device *dev, struct ngd_event **event_p);
void ngd_event_destroy(struct ngd_event *event);
ngd_status_t ngd_event_record(struct ngd_event *event, struct ngd_stream *stream);
/* Makes the stream, not the caller, wait for the newest record of the event so far. Later records, on any stream,
 * neither prolong nor shorten the wait. */
ngd_status_t ngd_stream_wait_event(struct ngd_stream *stream, struct ngd_event *event);
bool ngd_event_query(const struct ngd_event *event); /* complete (or never recorded) */
ngd_status_t ngd_event_sync(struct ngd_event *event);

#endif
