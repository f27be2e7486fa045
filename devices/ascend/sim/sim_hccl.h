/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_SIM_SIM_HCCL_H
#define NGD_DEVICES_ASCEND_SIM_SIM_HCCL_H

/*
 * The simulator's libhccl. Ranks of one process meet in its memory, others over sockets (sim_hccl_net.c).
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
    HCCL_LINK, /* the first collective's connecting */
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
    bool torn;   /* somebody left a collective before its end */
    bool remote; /* ranks are in other processes: it has only n and the name */
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
    int fd;           /* to the hub, if the group is remote; -1: none */
    bool cut;         /* the hub has gone, or the order of rounds is lost */
    _Atomic int refs; /* the handle, and kernels */
    _Atomic bool warm, gone;
    _Atomic int async_error;
    _Atomic(void *) context; /* of the threads that issue its collectives: that of the first one */
};

/* sim_hccl_net.c. What root information says. */
struct hccl_root {
    int key;
    uint64_t nonce; /* of the process that gave it */
    char ip[16];
    unsigned short port;
};
int hccl_root_open(int key, char *info, size_t room); /* begins to listen, and writes the information */
void hccl_root_close(int key);                        /* all ranks are of this process */
int hccl_root_parse(const void *info, struct hccl_root *root);
/* The information is of this process, and no rank of another one has come so far. */
bool hccl_root_is_here(const struct hccl_root *root);
void hccl_group_goes_out(int key); /* sim_hccl.c: a rank of another process has come */
int hccl_net_join(struct hccl_comm *comm, const struct hccl_root *root);
bool hccl_net_send(struct hccl_comm *comm, const struct hccl_op *op, const void *data, uint64_t bytes);
/*
 * 1: all ranks' operations and data are there; 0: not within the slice; -1: never. What it has written to ops[i].sends
 * and data[i] is the caller's to free, whatever it returns.
 */
int hccl_net_receive(struct hccl_comm *comm, uint64_t slice_ms, struct hccl_op *ops, char **data);
uint64_t hccl_now_ms(void);

void hccl_comm_unref(struct hccl_comm *comm);
size_t hccl_size(int dtype); /* 0: not a type that collectives take */
/* Takes the op's lists. */
int hccl_launch(const char *name, struct hccl_comm *comm, struct hccl_op *op, void *stream);

#endif
