/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DEVICE_INT_H
#define NGD_DEVICES_DEVICE_INT_H

/*
 * The structs behind device.h, shared by device.c, buffer.c, pool.c and launch.c.
 *
 * Lock order: a pool's lock before the device's. Neither is held across a call into a backend. So memory is reserved in
 * the budget first, then allocated by the backend, and released from the budget if that fails.
 */
#include "base/charge.h"
#include "base/list.h"
#include "base/lock.h"
#include "devices/backend.h"
#include <stdatomic.h>

/* One named user of the budget: a buffer or a pool. */
struct ngd_holder {
    struct ngd_list link; /* in dev->holders while bytes > 0 is reserved or a buffer exists */
    const char *label;
    ngd_buffer_kind_t kind;
    uint64_t bytes;
    uint64_t generation; /* of a buffer; 0 = a pool */
};

struct ngd_device {
    const struct ngd_backend *backend;
    void *handle;
    uint32_t index;
    struct ngd_device_info info;
    struct ngd_sampler *sampler; /* telemetry.c; NULL: nobody reads the hardware */
    struct ngd_plan_target target;
    struct ngd_mutex lock;
    struct ngd_list holders NGD_GUARDED_BY(lock);
    struct ngd_holder layouts; /* memory that the backend takes beside buffers and pools */
    uint64_t used NGD_GUARDED_BY(lock);
    uint32_t streams NGD_GUARDED_BY(lock);
    _Atomic uint64_t next_generation;
    /* freeing.c */
    struct ngd_cond leave, gone;
    struct ngd_list leaving NGD_GUARDED_BY(lock); /* buffers without a reference, to be freed */
    uint64_t n_left NGD_GUARDED_BY(lock), n_gone NGD_GUARDED_BY(lock);
    bool frees NGD_GUARDED_BY(lock), stop_freeing NGD_GUARDED_BY(lock); /* frees: the thread runs */
    pthread_t freer;
};

struct ngd_buffer {
    struct ngd_device *dev;
    struct ngd_holder holder;
    void *mem;
    uint64_t bytes;
    uint64_t generation;
    _Atomic uint32_t refs;
    struct ngd_buffer *base; /* of a view: the buffer that has the memory, a reference; else NULL */
    struct ngd_charge charge;
    void *origin;               /* of a buffer that is no view: owned; NULL: none */
    struct ngd_list leave_link; /* in dev->leaving after the last unref */
    char label[];
};

struct ngd_pool {
    struct ngd_device *dev;
    struct ngd_mutex lock;
    struct ngd_cond grown;
    bool growing NGD_GUARDED_BY(lock); /* one thread is replacing mem, without the lock */
    struct ngd_holder holder;
    struct ngd_charge charge; /* its payer pays for what the pool holds; without a payer the daemon does */
    void *mem;
    bool in_place; /* mem grows where it is */
    _Atomic uint64_t bytes;
    _Atomic uint64_t generation; /* raised when mem moves, so that instances rebind */
    char name[];
};

struct ngd_exec {
    struct ngd_device *dev;
    struct ngd_plan *plan;
    void *handle;
    uint64_t bytes;
    uint32_t n_comms;
    struct ngd_comm *comms[NGD_GRAPH_MAX_GROUPS];
    _Atomic uint32_t refs;
    _Atomic int static_result; /* an ngd_static_result_t */
};

struct ngd_instance {
    struct ngd_exec *exec;
    struct ngd_pool *pool;
    void *handle;
    uint64_t pool_generation; /* for which the handle's addresses are right */
    uint32_t n;
    struct ngd_buffer **buffers;
    void **mems;
    struct ngd_charge charge; /* of host memory */
};

struct ngd_stream {
    struct ngd_device *dev;
    void *handle;
};

struct ngd_event {
    struct ngd_device *dev;
    void *handle;
};

const struct ngd_backend *ngd_backend_find(const char *name);

/* Reserves `bytes` more in the budget for a holder, which is listed from its first bytes on. NO_DEVICE_MEMORY with the
 * largest holders in the diagnosis. */
ngd_status_t ngd_device_reserve(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes,
                                struct ngd_diag *diag) NGD_EXCLUDES(dev->lock);
void ngd_device_release(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes) NGD_EXCLUDES(dev->lock);
/* Free the memory and the record of a buffer that nobody refers to: at once, or later on the device's thread. The
 * second returns false if there is no such thread. */
void ngd_buffer_free(struct ngd_buffer *buf);
bool ngd_device_free_later(struct ngd_device *dev, struct ngd_buffer *buf) NGD_EXCLUDES(dev->lock);
bool ngd_device_has_room(const struct ngd_device *dev, uint64_t bytes) NGD_REQUIRES(dev->lock);
/* Waits for memory that is being freed if that may make room. Returns whether there is room. */
bool ngd_device_wait_for_room(struct ngd_device *dev, uint64_t bytes) NGD_REQUIRES(dev->lock);
void ngd_device_stop_freeing(struct ngd_device *dev) NGD_EXCLUDES(dev->lock); /* after all is free */
/* Returns what an allocation counts in the budget; UINT64_MAX if the rounded size overflows. */
uint64_t ngd_device_rounded(uint64_t bytes);

/*
 * Finds the communicators of a plan's collectives on this device, and checks each collective against its communicator.
 * `used` and `groups` get one entry for each group that the plan names, *n_p their number.
 */
ngd_status_t ngd_comm_match(struct ngd_device *dev, const struct ngd_plan *plan, struct ngd_comm *const *comms,
                            uint32_t n_comms, struct ngd_comm **used, struct ngd_backend_group *groups, uint32_t *n_p,
                            struct ngd_diag *diag);
struct ngd_comm *ngd_comm_ref(struct ngd_comm *comm);
void ngd_comm_unref(struct ngd_comm *comm);

/* Makes the pool hold at least `bytes`. Nothing may run in it meanwhile. */
ngd_status_t ngd_pool_ensure(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag);

#endif
