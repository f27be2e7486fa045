/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_REPLAY_SHARED_H
#define NGD_DAEMON_HANDLERS_REPLAY_SHARED_H

/*
 * The inputs and results of one replay that are in shared buffers. Inputs are copied into memory of the daemon before
 * the replay is submitted, so that what is checked cannot change any more; results are copied out of it when the replay
 * has ended.
 *
 * Threads: one at a time, like the replay. Memory: one block, charged to the identity like a message; lists are in the
 * call's arena. Bounds: max-message for inputs and results together, as over gRPC.
 */
#include "daemon/handlers/replay_read.h"
#include "daemon/shared.h"

struct ngd_call;
struct ngd_daemon;

/* A result that goes to a shared buffer. */
struct ngd_shared_target {
    struct ngd_shared_object *object; /* a reference */
    uint64_t offset, room;
    const struct ngd_out *out; /* of the launch */
    bool listed;               /* the caller's: the result has its entry in the answer */
};

/* Zeroed: no shared buffers. */
struct ngd_replay_shared {
    struct ngd_shared_target *targets;
    uint32_t n_targets;
    struct ngd_shared_target **by_output; /* NULL if there are no targets */
    struct ngd_block *block;              /* NULL: none */
    struct ngd_daemon *daemon;            /* has the blocks and the jobs */
    struct ngd_charge charge;
};

/* Finds the buffers of the results and checks their ranges. After an error too, the caller calls ngd_replay_shared_end.
 */
ngd_status_t ngd_replay_shared_find(struct ngd_replay_shared *s, struct ngd_call *call,
                                    const struct ngd_replay_message *m, uint32_t n_outputs, struct ngd_diag *diag);
/* Returns the target of an output of the graph, or NULL. */
static inline struct ngd_shared_target *ngd_replay_shared_target(const struct ngd_replay_shared *s, uint32_t output)
{
    return s->by_output ? s->by_output[output] : NULL;
}
/* Reads the inputs: m->inputs point to them. Makes room for the results: outs, whose bytes are set, point to it. */
ngd_status_t ngd_replay_shared_read(struct ngd_replay_shared *s, struct ngd_call *call, struct ngd_replay_message *m,
                                    struct ngd_out *outs, struct ngd_diag *diag);
/* Writes the results to their buffers. */
ngd_status_t ngd_replay_shared_write(const struct ngd_replay_shared *s, struct ngd_diag *diag);
/* Releases all. The launch must be over. */
void ngd_replay_shared_end(struct ngd_replay_shared *s);

#endif
