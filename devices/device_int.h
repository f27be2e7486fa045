/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DEVICE_INT_H
#define NGD_DEVICES_DEVICE_INT_H

/*
 * What device.c, buffer.c, pool.c and launch.c share: the structs behind device.h.
 *
 * Lock order: a pool's lock before the device's. Neither is held across a call into a backend: memory is
 * first reserved in the budget, then asked of the backend, and given back to the budget when that fails.
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
    struct ngd_plan_target target;
    struct ngd_mutex lock;
    struct ngd_list holders NGD_GUARDED_BY(lock);
    struct ngd_holder layouts; /* what the backend takes beside buffers and pools */
    uint64_t used NGD_GUARDED_BY(lock);
    uint32_t streams NGD_GUARDED_BY(lock);
    _Atomic uint64_t next_generation;
    /* freeing.c */
    struct ngd_cond leave, gone;
    struct ngd_list leaving NGD_GUARDED_BY(lock); /* buffers without a reference */
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
    struct ngd_buffer *base; /* of a view: whose memory it is, a reference */
    struct ngd_charge charge;
    struct ngd_list leave_link; /* after the last reference */
    char label[];
};

struct ngd_pool {
    struct ngd_device *dev;
    struct ngd_mutex lock;
    struct ngd_cond grown;
    bool growing NGD_GUARDED_BY(lock); /* one thread is replacing mem, without the lock */
    struct ngd_holder holder;
    struct ngd_charge charge; /* its payer pays for what the pool holds; none: the daemon's */
    void *mem;
    bool in_place; /* mem grows where it is */
    _Atomic uint64_t bytes;
    _Atomic uint64_t generation; /* of mem: instances rebind when it moved */
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

/* Takes `bytes` more for a holder, or says why not; the holder is listed from its first bytes on. */
ngd_status_t ngd_device_reserve(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes,
                                struct ngd_diag *diag) NGD_EXCLUDES(dev->lock);
void ngd_device_release(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes) NGD_EXCLUDES(dev->lock);
/* Frees the memory and the record of a buffer that nobody refers to, at once; and on the device's thread. False: there
 * is no such thread. */
void ngd_buffer_free(struct ngd_buffer *buf);
bool ngd_device_free_later(struct ngd_device *dev, struct ngd_buffer *buf) NGD_EXCLUDES(dev->lock);
bool ngd_device_has_room(const struct ngd_device *dev, uint64_t bytes) NGD_REQUIRES(dev->lock);
/* Waits for what is being freed if that may make room. */
bool ngd_device_wait_for_room(struct ngd_device *dev, uint64_t bytes) NGD_REQUIRES(dev->lock);
void ngd_device_stop_freeing(struct ngd_device *dev) NGD_EXCLUDES(dev->lock); /* after all is free */
/* What an allocation counts in the budget; UINT64_MAX when it cannot be. */
uint64_t ngd_device_rounded(uint64_t bytes);

/*
 * The communicators of a plan's collectives on this device, each of which is checked against its own: used_p and
 * groups get one per group that the plan names.
 */
ngd_status_t ngd_comm_match(struct ngd_device *dev, const struct ngd_plan *plan, struct ngd_comm *const *comms,
                            uint32_t n_comms, struct ngd_comm **used, struct ngd_backend_group *groups, uint32_t *n_p,
                            struct ngd_diag *diag);
struct ngd_comm *ngd_comm_ref(struct ngd_comm *comm);
void ngd_comm_unref(struct ngd_comm *comm);

/* Makes the pool hold at least `bytes`; the caller knows that nothing runs in it. */
ngd_status_t ngd_pool_ensure(struct ngd_pool *pool, uint64_t bytes, struct ngd_diag *diag);

#endif
