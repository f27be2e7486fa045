/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_BACKEND_H
#define NGD_DEVICES_BACKEND_H

/*
 * What a device backend implements; one `const struct ngd_backend` per backend, one row in backends.def.
 * devices/device.c keeps budgets, holders, references and argument checks; a backend keeps memory, streams and code.
 * Every slot is required unless its comment says otherwise. All are called without any lock of ours held.
 * Handles are the backend's own structs behind void *.
 */
#include "devices/device.h"

#define NGD_BACKEND_API 2

struct ngd_checkup;

/*
 * How a backend counts device memory that it takes beside buffers and pools: in the device's budget, where it is listed
 * as weights. Any thread; take comes before the memory, give after it.
 */
struct ngd_backend_counter {
    void *ctx;
    uint64_t budget;
    /* NO_DEVICE_MEMORY: less than `spare` would be left. */
    ngd_status_t (*take)(void *ctx, uint64_t bytes, uint64_t spare, struct ngd_diag *diag);
    void (*give)(void *ctx, uint64_t bytes);
};

struct ngd_backend_lifecycle {
    /* 0 = not usable on this machine, larger is better. Any thread. */
    int (*probe)(void);
    /* Fills info (strings owned by the backend's handle). */
    ngd_status_t (*open)(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                         struct ngd_diag *diag);
    /* Optional: once, before anything else is asked of the device. By close() all has been given back. */
    void (*count)(void *dev, const struct ngd_backend_counter *counter);
    void (*close)(void *dev);
    void (*describe)(void *dev, struct ngd_strbuf *sb); /* optional; any thread */
    /*
     * Optional; any thread. What the device needs from the machine (nodes, permissions, files of its driver), as steps
     * of a checkup. The device is `open`, or was refused, and then there may be no such device: what is not as it
     * should be is "missing" with an open device, and "failed" otherwise.
     */
    void (*examine)(uint32_t index, bool open, struct ngd_checkup *report);
};

struct ngd_backend_memory {
    ngd_status_t (*alloc)(void *dev, uint64_t bytes, void **mem_p, struct ngd_diag *diag); /* zeroed, 64-byte aligned */
    void (*free)(void *dev, void *mem, uint64_t bytes);
    /*
     * Needed with info.pool_page: *mem_p, of `held` bytes that an earlier call gave (0: none did), gets so many that it
     * has `bytes`, a multiple of that; the new ones are zeroed. It does not move; a first call sets *mem_p. After an
     * error all is as it was. UNAVAILABLE, of a first call only: the pool takes memory of alloc. Ends with free.
     */
    ngd_status_t (*grow)(void *dev, void **mem_p, uint64_t held, uint64_t bytes, struct ngd_diag *diag);
    ngd_status_t (*write)(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n);
    ngd_status_t (*read)(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n);
    void *(*host_ptr)(void *dev, void *mem); /* optional: NULL slot or NULL result = not addressable */
};

/* What an executable's collectives of one group use. */
struct ngd_backend_group {
    const char *name; /* group_name of the calls; lives as long as the executable */
    void *comm;       /* of ngd_backend_comm.create */
    uint32_t rank, size;
};

struct ngd_backend_code {
    bool inplace, strided_results; /* as in struct ngd_plan_target */
    /* As ngd_plan_target.select. */
    ngd_status_t (*select)(void *dev, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
    /* groups: those that the plan's collectives name; copied. Communicators outlive the executable. */
    ngd_status_t (*instantiate)(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag);
    void (*destroy)(void *dev, void *exec);
    /* Binds addresses: pool base and one base per bound buffer. Called again with the same *inst_p to move to a new
     * pool base. */
    ngd_status_t (*bind)(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                         struct ngd_diag *diag);
    void (*unbind)(void *dev, void *inst);
    /*
     * Static kernels; all four or none. Any thread, beside replays of exec, never on their way.
     * source: what to compile for exec, generated from its plan alone; nothing appended: there is nothing to gain.
     * toolchain: "name value" lines of everything else that an object depends on; compiler as in struct
     * ngd_static_work. adopt: replays that begin later run the object's kernels, with the same results bit for bit.
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
    ngd_status_t (*run)(void *stream, void *inst, struct ngd_launch *launch); /* optional: launch + sync */
    /* Optional: true if a launch of inst on this stream captures nothing first. The stream's user calls it; it must
     * not block. */
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
 * Communicators, as devices/comm.h has them; a handle is of all ranks. All slots NULL: the backend has none.
 *
 * A rank that fails before it has come to all collectives of a launch (because of its data, a fault, an error of its
 * stream) makes its groups broken, so that no rank waits for it.
 */
struct ngd_backend_comm {
    uint64_t rank_bytes; /* of its device's memory that a rank takes, as long as the communicator exists */
    /* Made and warmed up: the first collective costs no more than the next. name lives as long as the handle. */
    ngd_status_t (*create)(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit, void **comm_p,
                           struct ngd_diag *diag);
    void (*destroy)(void *comm); /* no executable uses it */
    /* Whoever waits, and whoever comes, ends with this status. What was broken before stays as it is. Any thread. */
    void (*abort)(void *comm, ngd_status_t status, const char *why);
    ngd_status_t (*status)(void *comm, struct ngd_diag *diag); /* why it is broken */
    ngd_status_t (*reset)(void *comm, struct ngd_diag *diag);  /* BUSY while a rank is in a collective */
};

struct ngd_backend {
    int api;
    const char *name;
    struct ngd_backend_lifecycle lifecycle;
    struct ngd_backend_memory memory;
    struct ngd_backend_code code;
    struct ngd_backend_stream stream;
    struct ngd_backend_comm comm;
};

#endif
