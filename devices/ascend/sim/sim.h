/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_SIM_SIM_H
#define NGD_DEVICES_ASCEND_SIM_SIM_H

/*
 * A simulator of CANN's C interface: what its shared objects share.
 *
 * libascendcl has devices, memory, streams, events, captures; libnnopbase the operands of operators; libopapi operators
 * in plain C. They are built against acl_abi.h and the tables of ../, so that the simulator and the backend cannot
 * disagree about a signature. They stand for a vendor's libraries and keep a heap of their own: none of ours is linked.
 *
 * Device addresses are not addresses of this process: they are offset by SIM_DEVICE_OFFSET, so that host code that
 * reads or writes through one faults, as it would on a machine with a device.
 *
 * One lock, sim.lock, guards all state; kernels and copies run outside of it, on one thread per stream.
 * What a program does wrong is an error with the code that a real runtime gives, and a line in the error text
 * (aclGetRecentErrMsg) that says what a real device would have done.
 */
#include "devices/ascend/acl_abi.h"
#include "devices/ascend/chips.h"
#include <pthread.h>
#include <stdatomic.h>

#define SIM_EXPORT        __attribute__((visibility("default")))
#define SIM_DEVICE_OFFSET ((uintptr_t)1 << 52)
#define SIM_MAX_DEVICES   8
#define SIM_TEXT          1024

struct sim_context;
struct sim_stream;
struct sim_event;
struct sim_model;
struct sim_group;
struct sim_notify;

/* ---- control: what tests and the daemon's trial runs may set ------------------------------------- */

/* Keys as in the environment, NGD_ACLSIM_<KEY>: devices, hbm, streams, events, api, lazy_bind, empty_kernels, log, ...;
 * docs/devices/ascend.md lists them. False: no such key or a bad value. */
SIM_EXPORT bool ngd_aclsim_set(const char *key, const char *value);
/* The n-th call from now on (0 = the next) of this function (NULL: of any) fails with this code, once. */
SIM_EXPORT void ngd_aclsim_fail_call(const char *name, int64_t n, int code);
/* "fault": the next kernel ends with 507015; "hang": it never ends; "lost": every call ends with 507010; "ok". */
SIM_EXPORT bool ngd_aclsim_break(int device, const char *how);
/* What is alive: "streams" (with hidden ones), "events", "bytes", "pinned", "contexts", "models", "operands",
 * "executors", "ranges" (of addresses); or counters: "calls", "violations", "limited" (first phases within a stream's
 * limit of cores), "api_ns" (of the calling thread). */
SIM_EXPORT int64_t ngd_aclsim_count(const char *what);
/* Names of the calls since the last clear, one a line; NULL unless log is set. Free with free(). */
SIM_EXPORT char *ngd_aclsim_log(void);
SIM_EXPORT void ngd_aclsim_log_clear(void);

/* ---- calls: counting, log, injected faults, error text ------------------------------------------- */

/* 0, or a code. */
struct sim_scope {
    const char *name;
    int injected; /* code, 0 = none */
    uint64_t start;
};
SIM_EXPORT struct sim_scope ngd_aclsim_enter(const char *name);
SIM_EXPORT void ngd_aclsim_leave(struct sim_scope *scope);
/* Opens a call; an injected fault ends it before it did anything. */
#define SIM_CALL(name)                                                                                   \
    __attribute__((cleanup(ngd_aclsim_leave), unused)) struct sim_scope scope_ = ngd_aclsim_enter(name); \
    if (scope_.injected)                                                                                 \
    return scope_.injected
/* The same for what releases something: it does so, and then says that it failed. */
#define SIM_RELEASE(name) \
    __attribute__((cleanup(ngd_aclsim_leave), unused)) struct sim_scope scope_ = ngd_aclsim_enter(name)
#define SIM_RELEASED (scope_.injected)

/* Sets this thread's error text and returns code. `real`: what a real device would have done. */
SIM_EXPORT int ngd_aclsim_fail(int code, const char *real, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* How many devices ASCEND_RT_VISIBLE_DEVICES leaves, or a code. */
int sim_visible_devices(uint32_t *count_p);

/* ---- state --------------------------------------------------------------------------------------- */

struct sim_config {
    int devices;
    uint64_t hbm;       /* bytes of each device */
    uint64_t taken;     /* of these, by other processes */
    uint32_t streams;   /* of each device, hidden ones included */
    uint32_t events;    /* events with a hardware id, of each device */
    uint32_t cascade;   /* tasks that one hidden stream holds */
    int cann;           /* version: 81 is 8.1; symbols that came after it are hidden */
    char soc[64];       /* what aclrtGetSocName says */
    bool old_driver;    /* no stream left is 207005, not 207008 */
    bool lazy_bind;     /* hidden streams are taken at the first replay */
    bool empty_kernels; /* operators do nothing */
    bool no_mapping;    /* functions of virtual memory are hidden */
    bool need_opp;      /* operators fail without ASCEND_OPP_PATH */
    bool lenient;       /* takes what devices take and our backend never passes; docs/devices/ascend.md lists it */
    bool log;
    uint32_t shuffle; /* 0: a graph runs in the order of its capture; else in one that its events allow, by this seed */
    uint32_t destroy_wait_ms; /* of a running model; 10 s on a device */
    /* Of a collective whose ranks do not all come, of a communicator's making, and hidden streams that a communicator
     * takes of each capture. */
    uint32_t hccl_exec_ms, hccl_connect_ms, hccl_streams;
    uint64_t hccl_buffer; /* device bytes of a communicator */
    int version[3];
};

struct sim_device {
    uint64_t bytes;
    uint32_t streams, events, set_count;
    bool lost;
    bool hang, fault;       /* of the next kernel */
    int64_t lose_after;     /* replays; -1: it stays */
    uint32_t core_limit[2]; /* cube, vector; 0 = all */
    _Atomic uint32_t peers; /* one bit for each device whose memory is reached */
    struct sim_context *primary;
};

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything that somebody may wait for */
    struct sim_config config;
    struct sim_device device[SIM_MAX_DEVICES];
    bool initialised;
    struct sim_context *contexts;
    int32_t next_stream_id;
};
extern struct sim sim;

typedef enum sim_kind {
    SIM_CONTEXT = 0x51a0,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODEL,
    SIM_GROUP,
    SIM_NOTIFY,
    SIM_PHYSICAL
} sim_kind_t;

/* Every handle is in a set of what is alive: a stale one is an error and not a crash. */
void sim_handle_add(void *handle, sim_kind_t kind);
void sim_handle_remove(void *handle);
bool sim_handle_is(const void *handle, sim_kind_t kind);

struct sim_context {
    int device;
    struct sim_stream *default_stream; /* made when first used */
    struct sim_stream *streams;        /* all, also the default one */
    struct sim_model *models;
    struct sim_context *next;
    bool stop; /* on failure, as a stream of it was told: then an error is sticky, and nothing new is taken */
    int error; /* of a failure in that mode, or of a lost device */
};

/* The calling thread's context; NULL and an error when there is none. */
struct sim_context *sim_current(int *code_p);
void sim_context_destroy_locked(struct sim_context *ctx);
int sim_device_state(int device); /* 0, or the code of a lost one */

/* ---- memory -------------------------------------------------------------------------------------- */

typedef enum sim_space { SIM_SPACE_NONE, SIM_SPACE_DEVICE, SIM_SPACE_PINNED } sim_space_t;

SIM_EXPORT sim_space_t ngd_aclsim_space(const void *addr, uint64_t bytes);
SIM_EXPORT void *ngd_aclsim_host(const void *device_addr); /* where the bytes of a device address are */
void sim_memory_release_device(int device);
bool sim_memory_take_bytes(int device, uint64_t bytes); /* with sim.lock held; false: there is no room */
/* With sim.lock held: memory that was freed while a kernel or copy uses it lives until that ends. */
struct sim_grave;
void sim_memory_unbury(struct sim_stream *s);
int sim_copy_now(void *dst, const void *src, uint64_t bytes, int kind); /* 0, or the code of a bad address */
int sim_set_now(void *mem, int value, uint64_t bytes);

/* Physical memory that is mapped, with sim.lock held. False: this machine has no memory. */
struct sim_physical;
bool sim_memory_map(uintptr_t begin, uint64_t bytes, int device, struct sim_physical *physical);
bool sim_memory_is_mapped(uintptr_t begin, uint64_t bytes); /* any of it */
/* NULL: nothing begins there, or (busy) something that runs uses it. */
struct sim_physical *sim_memory_unmap(uintptr_t begin, uint64_t *bytes_p, bool *busy_p);
/* sim_mapping.c: what was mapped there is no block any more. */
void sim_mapping_gone(struct sim_physical *physical, uintptr_t begin, uint64_t bytes);
void sim_mapping_release_device(int device);

/* ---- tasks --------------------------------------------------------------------------------------- */

/* What an operator runs as. Operands are checked before each run; run gets them translated by ngd_aclsim_host. */
struct sim_kernel {
    const char *name;
    void (*run)(struct sim_kernel *kernel);
    void (*release)(struct sim_kernel *kernel);
    _Atomic int refs;
    bool collective; /* not allowed in a task group */
    uint32_t n_spans;
    struct {
        const void *addr;
        uint64_t bytes;
    } spans[544]; /* four lists have 128 tensors each */
};
/* Of a kernel that runs: it ends with an exception. */
SIM_EXPORT void ngd_aclsim_raise(void);
/* The same with another code, and what the error text says. */
SIM_EXPORT void ngd_aclsim_raise_code(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Of a kernel that runs and waits: its stream is aborted or destroyed, it ends now. Takes sim.lock. */
SIM_EXPORT bool ngd_aclsim_stopped(void);
/* Takes the kernel. */
SIM_EXPORT int ngd_aclsim_launch(struct sim_kernel *kernel, void *stream);
SIM_EXPORT void ngd_aclsim_kernel_unref(struct sim_kernel *kernel);

/* ---- for libhccl --------------------------------------------------------------------------------- */

/* hccl_exec_ms, hccl_connect_ms, hccl_streams, hccl_buffer. */
SIM_EXPORT uint64_t ngd_aclsim_setting(const char *key);
/* The stream's device, and whether it is captured; 0, or the code. */
SIM_EXPORT int ngd_aclsim_stream_at(void *stream, int *device_p, bool *captured_p);
/* n hidden streams of the capture that the stream is in, once for each owner. */
SIM_EXPORT int ngd_aclsim_capture_takes(void *stream, const void *owner, uint32_t n);
/* A call that a capture does not allow was made inside an operator: the capture is spoiled. */
SIM_EXPORT int ngd_aclsim_capture_spoil(void *stream, const char *what);
SIM_EXPORT bool ngd_aclsim_take_bytes(int device, uint64_t bytes);
SIM_EXPORT void ngd_aclsim_give_bytes(int device, uint64_t bytes);

typedef enum sim_task_kind {
    SIM_TASK_KERNEL,
    SIM_TASK_COPY,
    SIM_TASK_SET,
    SIM_TASK_RECORD,
    SIM_TASK_WAIT,
    SIM_TASK_RESET,
    SIM_TASK_MODEL,
    SIM_TASK_UPDATE,
    SIM_TASK_HOST,     /* calls a function of the program, on the stream's thread */
    SIM_TASK_CALLBACK, /* the same, on the thread that the program lent */
    SIM_TASK_NOTIFY,
    SIM_TASK_NOTIFY_WAIT,
    SIM_TASK_VALUE_WRITE,
    SIM_TASK_VALUE_WAIT,
} sim_task_kind_t;

struct sim_task {
    sim_task_kind_t kind;
    struct sim_task *next;
    struct sim_kernel *kernel;
    struct sim_event *event;
    uint64_t ticket;
    struct sim_model *model;
    void *dst;
    const void *src;
    uint64_t bytes;
    int value, copy_kind;
    struct sim_group *group; /* of a captured kernel, and of an update */
    struct sim_kernel **updates;
    uint32_t n_updates;
    bool external;     /* a captured record or wait of an event that is seen outside of its graph */
    uint64_t *tickets; /* of a replay: for each external task, in their order */
    void (*call)(void *arg);
    void *arg;
    bool block;
    struct sim_notify *notify;
    uint64_t word; /* of a value */
    uint32_t compare;
    uint32_t seconds; /* of a notify's wait; 0 = no limit */
    uint32_t id;
    uint64_t thread; /* that launched it */
    /* Captured: which stream of the capture it is of, its number there, and, of a wait, whose end it is for. */
    uint32_t lane, number;
    const struct sim_task *after;
};

struct sim_stream {
    struct sim_context *ctx;
    struct sim_stream *next; /* of the context */
    int32_t id;
    uint32_t flags, priority;
    bool is_default, stop, running, aborted;
    uint64_t reports_to; /* a thread of the program that runs this stream's callbacks, or 0 */
    bool owns_reports;   /* aclrtLaunchHostFunc did */
    pthread_t thread;
    pthread_cond_t work;
    struct sim_task *head, **tail;
    const struct sim_kernel *kernel; /* that runs, without the lock */
    const struct sim_task *copy;     /* or this */
    struct sim_grave *graves;
    uint32_t core_limit[2]; /* cube, vector; 0 = none */
    int error;              /* of a task, until a sync reports it */
    char error_text[256];
    /* capture */
    struct sim_model *capture;
    uint32_t lane; /* in the capture */
    bool origin;
    struct sim_event *tail_record; /* the last captured task, when it is a record */
    struct sim_stream *joined;     /* who waited for it */
    struct sim_group *group;       /* open group of a capture, or of an update */
    bool updating;
    struct sim_kernel **updates;
    uint32_t n_updates, room_updates;
};

struct sim_event {
    int device;
    uint32_t flags;
    bool hardware; /* has an id of its own, as made without Ex */
    uint64_t taken, done;
    bool level; /* of an external event: recorded and not yet reset */
    struct sim_model *capture;
    struct sim_stream *capture_stream;
    uint32_t refs; /* the handle, and tasks */
    uint64_t when_ns;
    const struct sim_task *recorded; /* in the capture: the newest */
    int record_flag, wait_flag;      /* of the first record and wait; -1: there was none */
};

struct sim_notify {
    int device;
    uint32_t id, refs;
    bool up;
};

struct sim_group {
    struct sim_model *model;
    struct sim_group *next;
    struct sim_task **tasks;
    uint32_t n, room;
    bool open, broken;
    struct sim_stream *user; /* of an update that is under way */
};

struct sim_model {
    struct sim_context *ctx;
    int device;
    struct sim_model *next;
    struct sim_task *head, **tail;
    uint32_t n_tasks, n_streams, hidden;
    bool capturing, invalid, bound, dead;
    int mode;
    pthread_t thread;
    struct sim_stream *origin;
    struct sim_group *groups;
    const void *owners[8]; /* who took hidden streams: communicators */
    uint32_t n_owners;
    uint32_t running; /* queued or under way */
    uint32_t refs;
};

/* stream.c */
int sim_stream_create(struct sim_context *ctx, struct sim_stream **stream_p); /* with the lock held */
void sim_stream_destroy_locked(struct sim_stream *s);
void sim_stream_drop_tasks(struct sim_stream *s); /* those that wait; with the lock held */
/* Resolves a handle (NULL: the default stream) of the calling thread's context. */
int sim_stream_of(void *handle, struct sim_stream **stream_p);
/* The same, and the thread's context, after taking the lock, which sim_unlock gives back whatever the code. */
int sim_lock_stream(void *handle, struct sim_stream **stream_p);
struct sim_context *sim_lock_context(int *code_p);
int sim_unlock(int code);
/* Queues, or records in a capture; takes the task. With the lock held. */
int sim_submit(struct sim_stream *s, struct sim_task *task);
/*
 * Lenient: work is over when the call that queued it returns, as that of a device mostly is before its program gets
 * further, so that programs get by which free or use memory too early. With the lock held, which it gives up meanwhile.
 */
void sim_settle(struct sim_stream *s);
struct sim_task *sim_task_new(sim_task_kind_t kind);
void sim_task_free(struct sim_task *task);
void sim_event_put(struct sim_event *event);
void sim_notify_put(struct sim_notify *notify);
/* Waits on sim.changed with the lock held; false when seconds (0 = no limit) are over. */
bool sim_await(const struct sim_stream *s, uint32_t seconds, bool (*ready)(const struct sim_task *),
               const struct sim_task *task);
void sim_set_error(struct sim_stream *s, int code, const char *text);
bool sim_take_streams(int device, uint32_t n);
int sim_no_stream(const char *what);
uint64_t sim_now_ns(void);

/* capture.c */
int sim_capture_task(struct sim_stream *s, struct sim_task *task);
/* Of synchronous or otherwise unsafe calls in the calling thread's context: 0, or the code. */
int sim_capture_forbids(struct sim_context *ctx, bool async_call);
int sim_capture_sync(struct sim_stream *s, const char *what); /* 0, or 107027 after invalidating the capture */
bool sim_context_captures(const struct sim_context *ctx);
void sim_model_put(struct sim_model *m);
void sim_model_run(struct sim_stream *s, struct sim_model *m, const uint64_t *tickets);
int sim_update_add(struct sim_stream *s, struct sim_kernel *kernel);
void sim_update_apply(struct sim_task *task);
void sim_capture_drop(struct sim_stream *s);
int sim_run_kernel(struct sim_stream *s, struct sim_kernel *kernel, bool in_model); /* without the lock */

/* sim_notify.c: with the lock held, on the stream's thread. */
void sim_notify_wait(struct sim_stream *s, struct sim_task *task);
void sim_value_write(struct sim_stream *s, const struct sim_task *task);
void sim_value_wait(struct sim_stream *s, const struct sim_task *task);

/* sim_callback.c: with the lock held; functions of the program are called without it. */
void sim_call_host(struct sim_stream *s, struct sim_task *task);
void sim_call_back(struct sim_stream *s, struct sim_task *task);
void sim_tell_stream(struct sim_stream *s, int state);
void sim_tell_exception(const struct sim_stream *s, uint32_t task, uint64_t thread, int code);

/* device.c */
uint32_t sim_next_task_id(void);

enum {
    SIM_LIVE_STREAMS,
    SIM_LIVE_EVENTS,
    SIM_LIVE_BYTES,
    SIM_LIVE_PINNED,
    SIM_LIVE_CONTEXTS,
    SIM_LIVE_MODELS,
    SIM_LIVE_OPERANDS,
    SIM_LIVE_EXECUTORS,
    SIM_LIVE_RANGES,
    SIM_LIVE_MAX
};
SIM_EXPORT void ngd_aclsim_live(int what, int64_t delta);
/* A first phase of an operator: counts those that run under a stream's limit of cores ("limited"). */
SIM_EXPORT void ngd_aclsim_note_limits(void);
extern _Atomic int64_t sim_limited;
SIM_EXPORT bool ngd_aclsim_empty_kernels(void);
SIM_EXPORT bool ngd_aclsim_old_api(void); /* 8.1 */
SIM_EXPORT int ngd_aclsim_cann(void);
SIM_EXPORT bool ngd_aclsim_need_opp(void);
SIM_EXPORT bool ngd_aclsim_lenient(void);
SIM_EXPORT ngd_chip_t ngd_aclsim_chip(void);
SIM_EXPORT bool ngd_aclsim_no_mapping(void);

#endif
