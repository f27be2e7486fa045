/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_BACKEND_H
#define NGD_DEVICES_BACKEND_H

/*
 * The contract of a device backend: one `const struct ngd_backend` and one row in backends.def per backend.
 * devices/device.c keeps budgets, holders, references and argument checks; a backend keeps memory, streams and code.
 * Every function is required unless its comment says "optional". The caller holds no lock of ours.
 * Handles (void *) point to structs of the backend.
 */
#include "devices/device.h"

#define NGD_BACKEND_API 2

struct ngd_doctor_device_report;
struct ngd_telemetry;

/*
 * Counts device memory that a backend takes beside buffers and pools in the device's budget, which lists it as
 * weights. The backend calls take() before it allocates and give() after it has freed. Any thread.
 */
struct ngd_backend_counter {
    void *ctx;
    uint64_t budget;
    /* Counts `bytes` more. NO_DEVICE_MEMORY if less than `spare` bytes of the budget would be left. */
    ngd_status_t (*take)(void *ctx, uint64_t bytes, uint64_t spare, struct ngd_diag *diag);
    void (*give)(void *ctx, uint64_t bytes);
};

struct ngd_backend_lifecycle {
    /* Returns 0 if the backend is not usable on this machine; a larger number is better. Any thread. */
    int (*probe)(void);
    /* Opens a device and fills info. The backend's handle owns the strings of info. */
    ngd_status_t (*open)(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                         struct ngd_diag *diag);
    /* Optional. Hands over the counter, once and before any other call for the device. By close() the backend has given
     * back all that it took. */
    void (*count)(void *dev, const struct ngd_backend_counter *counter);
    void (*close)(void *dev);
    void (*describe)(void *dev, struct ngd_strbuf *sb); /* optional; any thread */
    /*
     * Optional; any thread. Adds steps of the doctor that report what the device needs from the machine: nodes,
     * permissions, files of its driver. If the device is `open`, a need that is not met is "missing". If it was
     * refused, when there may be no such device, it is "failed".
     */
    void (*doctor)(uint32_t index, bool open, struct ngd_doctor_device_report *report);
    /* Optional. As ngd_device_probe. */
    ngd_status_t (*ask)(const struct ngd_device_params *params, const char *path, struct ngd_diag *diag);
};

struct ngd_backend_memory {
    ngd_status_t (*alloc)(void *dev, uint64_t bytes, void **mem_p, struct ngd_diag *diag); /* zeroed, 64-byte aligned */
    void (*free)(void *dev, void *mem, uint64_t bytes);
    /*
     * Required if info.pool_page is set. Grows *mem_p from `held` to `bytes` bytes, a multiple of pool_page. The new
     * bytes are zero and the memory does not move. If `held` is 0, the call creates the memory and sets *mem_p; it may
     * then return UNAVAILABLE, and the pool uses alloc instead. An error changes nothing. free() frees the memory.
     */
    ngd_status_t (*grow)(void *dev, void **mem_p, uint64_t held, uint64_t bytes, struct ngd_diag *diag);
    ngd_status_t (*write)(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n);
    ngd_status_t (*read)(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n);
    void *(*host_ptr)(void *dev, void *mem); /* optional; returns NULL if the CPU cannot address the memory */
};

struct ngd_comm_span;

/* A group that collectives of an executable use. */
struct ngd_backend_group {
    const char *name; /* group_name of the calls; lives as long as the executable */
    void *comm;       /* handle from ngd_backend_comm.create */
    uint32_t rank, size;
};

struct ngd_backend_code {
    bool inplace, strided_results; /* as in struct ngd_plan_target */
    /* Same contract as ngd_plan_target.select. */
    ngd_status_t (*select)(void *dev, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
    /* Captures the plan. `groups` are the groups that its collectives name; the backend copies them. Communicators
     * outlive the executable. */
    ngd_status_t (*instantiate)(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag);
    void (*destroy)(void *dev, void *exec);
    /* Optional. Says in a sentence what a person should know that the executable lacks; NULL: nothing. The text lives
     * as long as the executable. */
    const char *(*note)(const void *exec);
    /* Binds addresses: the base of the pool and of each bound buffer. A second call with the same *inst_p moves the
     * instance to a new pool base. */
    ngd_status_t (*bind)(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                         struct ngd_diag *diag);
    void (*unbind)(void *dev, void *inst);
    /*
     * Static kernels: optional, all four or none. Any thread, also while exec is replayed; a replay never waits for
     * them.
     * static_source appends the source to compile for exec, which depends on its plan alone. It appends nothing if
     * compiling would gain nothing.
     * static_toolchain appends "name value" lines of everything else that an object depends on. `compiler` is that of
     * struct ngd_static_work.
     * static_adopt installs an object: replays that begin later run its kernels, with bit-identical results.
     */
    ngd_status_t (*static_source)(void *dev, void *exec, struct ngd_strbuf *source, struct ngd_diag *diag);
    void (*static_toolchain)(void *dev, const char *compiler, struct ngd_strbuf *lines);
    ngd_static_result_t (*static_compile)(void *dev, const struct ngd_static_work *work, struct ngd_strbuf *object,
                                          struct ngd_diag *diag);
    ngd_status_t (*static_adopt)(void *dev, void *exec, const void *object, size_t n, struct ngd_diag *diag);
};

struct ngd_backend_stream {
    ngd_status_t (*create)(void *dev, const char *name, void **stream_p, struct ngd_diag *diag);
    void (*destroy)(void *dev, void *stream);
    ngd_status_t (*launch)(void *stream, void *inst, struct ngd_launch *launch);
    ngd_status_t (*run)(void *stream, void *inst, struct ngd_launch *launch); /* optional: launch, then sync */
    /* Optional. Returns true if a launch of inst on this stream does not have to capture first. The stream's user calls
     * it; it must not block. */
    bool (*ready)(void *stream, void *inst);
    ngd_status_t (*callback)(void *stream, void (*fn)(void *arg), void *arg);
    ngd_status_t (*sync)(void *stream);
    ngd_status_t (*status)(void *stream);
    void (*reset)(void *stream);
    void (*poison)(void *stream, ngd_status_t status);
    ngd_status_t (*event_create)(void *dev, void **event_p);
    void (*event_destroy)(void *dev, void *event);
    ngd_status_t (*event_record)(void *event, void *stream);
    ngd_status_t (*event_wait)(void *stream, void *event);
    bool (*event_query)(const void *event);
    ngd_status_t (*event_sync)(void *event);
};

/*
 * Communicators (devices/comm.h). One handle serves all ranks. A backend without collectives leaves all functions NULL.
 *
 * If a rank fails before it has reached all collectives of a launch (bad data, a fault, an error of its stream), the
 * backend marks its groups broken, so that no rank waits for it.
 */
struct ngd_backend_comm {
    uint64_t rank_bytes; /* device memory that each rank takes while the communicator exists */
    /* Creates a communicator and warms it up, so that the first collective costs no more than the next one. name lives
     * as long as the handle. */
    ngd_status_t (*create)(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit, void **comm_p,
                           struct ngd_diag *diag);
    /* Optional, both or none: groups that have ranks in several daemons (ngd_comm_root, struct ngd_comm_span). */
    ngd_status_t (*root)(void *dev, void *root, size_t *bytes_p, struct ngd_diag *diag);
    ngd_status_t (*join)(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit,
                         const struct ngd_comm_span *span, void **comm_p, struct ngd_diag *diag);
    void (*destroy)(void *comm); /* no executable uses it any more */
    /* Ends all waits in collectives, now and later, with this status. A communicator that is broken already keeps its
     * first reason. Any thread. */
    void (*abort)(void *comm, ngd_status_t status, const char *why);
    ngd_status_t (*status)(void *comm, struct ngd_diag *diag); /* why it is broken; NGD_OK: it is not */
    /* BUSY while a rank is in a collective; GROUP_BROKEN: only a new group would do. */
    ngd_status_t (*reset)(void *comm, struct ngd_diag *diag);
};

/*
 * Readings of the hardware (devices/telemetry.h). Optional. What sample() uses belongs to the source and not to the
 * device, which may be closed while sample() hangs.
 */
struct ngd_backend_telemetry {
    /* Any thread; does not wait. Writes the device's numbers as far as they are known. Optional. */
    void (*numbers)(void *dev, struct ngd_telemetry *t);
    void *(*open)(void *dev); /* does not wait; NULL: no memory */
    /* Both are called by one thread of the source's own, and may take long. */
    void (*sample)(void *source, struct ngd_telemetry *t);
    void (*close)(void *source);
};

struct ngd_backend {
    int api;
    const char *name;
    struct ngd_backend_lifecycle lifecycle;
    struct ngd_backend_memory memory;
    struct ngd_backend_code code;
    struct ngd_backend_stream stream;
    struct ngd_backend_comm comm;
    struct ngd_backend_telemetry telemetry;
};

#endif
