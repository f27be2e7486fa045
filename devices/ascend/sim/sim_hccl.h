/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_SIM_SIM_HCCL_H
#define NGD_DEVICES_ASCEND_SIM_SIM_HCCL_H

/*
 * The simulator's libhccl, for the devices of one process.
 *
 * A group is what its ranks' communicators share: where their collectives meet. The n-th collective of a communicator
 * is the n-th of all; they meet on the threads of their streams. What does not fit together does what it does on
 * devices: nothing, until the time limit of an execution, or until the stream is aborted. After that the order of the
 * group is lost: it has to be made anew.
 *
 * Lock order: a group's lock before sim.lock; the registry's is never held together with another one.
 */
#include "devices/ascend/sim/sim_abi.h"

#define HCCL_MAX_RANKS 64

enum hccl_kind {
    HCCL_ALL_REDUCE,
    HCCL_ALL_GATHER,
    HCCL_REDUCE_SCATTER,
    HCCL_BROADCAST,
    HCCL_ALL_TO_ALL,
    HCCL_BARRIER,
};

struct hccl_comm;

/* What a rank does; counts are elements. */
struct hccl_op {
    enum hccl_kind kind;
    int dtype, reduce;
    uint32_t root;
    uint64_t count;
    const void *send;
    void *recv;
    uint64_t *sends, *send_at, *receives, *receive_at; /* ALL_TO_ALL: by rank, in one block that `sends` begins */
};

struct hccl_group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int refs; /* of communicators */
    uint32_t n, joined;
    uint32_t linked; /* ranks whose first collective was called */
    uint64_t round;
    bool torn; /* somebody left a collective before its end */
    uint32_t arrived;
    const struct hccl_op *ops[HCCL_MAX_RANKS]; /* of the round that gathers, by rank; NULL: it did not come */
    char name[128];
    int key; /* of its root information, or 0 */
};

struct hccl_comm {
    struct hccl_comm *next; /* in the registry */
    struct hccl_group *group;
    uint32_t rank;
    int device;
    _Atomic int refs; /* the handle, and kernels */
    _Atomic bool warm, gone;
    _Atomic int async_error;
    _Atomic(void *) context; /* of the threads that issue its collectives: that of the first one */
};

void hccl_comm_unref(struct hccl_comm *comm);
size_t hccl_size(int dtype); /* 0: not a type that collectives take */
/* Takes the op's lists. */
int hccl_launch(const char *name, struct hccl_comm *comm, struct hccl_op *op, void *stream);

#endif
