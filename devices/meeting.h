/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_MEETING_H
#define NGD_DEVICES_MEETING_H

/*
 * Where the ranks of a group meet: memory of one process. Host devices do their collectives here; NPUs compare what
 * they are about to do.
 *
 * A rank puts what the others shall read into its stage, says what it is about to do, and waits until all have come;
 * then each reads the others' stages. There are two stages of each rank, used in turn: who has come to a round has
 * left the one before it, so a stage that all may still read is never written, and one wait per round is enough. What
 * is larger than a stage takes several rounds.
 *
 * Stages belong to the meeting, not to a launch: a rank that gives up leaves nothing behind that another one reads.
 *
 * Threads: one of each rank at a time, its launch's; abort and status from any. Who waits spins for some
 * microseconds, then sleeps. There is no lock, and nothing is allocated after creation.
 */
#include "base/clock.h"
#include "devices/device.h"

#define NGD_MEETING_STAGE ((uint64_t)256 << 10)

struct ngd_meeting;

/* What a rank is about to do: all must say the same, but for the parts of an all_to_all, which must fit. */
struct ngd_collective {
    const char *op, *reduce; /* names; reduce is "" without one */
    ngd_dtype_t dtype;
    uint8_t rank; /* of the tensor */
    bool split;   /* dims[0], sends and receives are each rank's own */
    bool open;    /* ranks may say different things: the caller compares them (ngd_meeting_said) */
    uint32_t src;
    int64_t dims[NGD_MAX_RANK];
    uint64_t sends[NGD_GROUP_MAX_RANKS], receives[NGD_GROUP_MAX_RANKS]; /* split: bytes, by rank */
};

/* What a call of a plan says with its planned rows; bytes of a row in *row_bytes_p. */
void ngd_collective_say(const struct ngd_plan_call *call, const struct ngd_plan_tensor *x, uint32_t ranks,
                        struct ngd_collective *what, uint64_t *row_bytes_p);

ngd_status_t ngd_meeting_create(uint32_t n, const char *name, ngd_nsec_t time_limit, struct ngd_meeting **m_p);
void ngd_meeting_destroy(struct ngd_meeting *m);

/* A launch of this rank begins. GROUP_BROKEN: another one has not ended, and the group is broken. */
ngd_status_t ngd_meeting_begin(struct ngd_meeting *m, uint32_t rank, struct ngd_diag *diag);
/* It has ended. When it has not come to all collectives that the others expect, the group is broken, because of why. */
void ngd_meeting_end(struct ngd_meeting *m, uint32_t rank, uint32_t expected, const char *why);
/* The next collective of this rank; `what` stays as it is until its last round. False: broken. */
bool ngd_meeting_enter(struct ngd_meeting *m, uint32_t rank, const struct ngd_collective *what);
/* This rank's stage for the round that comes. */
char *ngd_meeting_stage(struct ngd_meeting *m, uint32_t rank);
/* The round: waits for all; false: broken. own_error: when it is not 0 any more, this rank gives up. */
bool ngd_meeting_round(struct ngd_meeting *m, uint32_t rank, const _Atomic int *own_error);
/* Another rank's stage of that round, and, of a collective's first one, what it said; until this rank's next round. */
const char *ngd_meeting_staged(const struct ngd_meeting *m, uint32_t rank, uint32_t other);
const struct ngd_collective *ngd_meeting_said(const struct ngd_meeting *m, uint32_t rank, uint32_t other);

/* As in struct ngd_backend_comm. */
void ngd_meeting_abort(struct ngd_meeting *m, ngd_status_t status, const char *why);
ngd_status_t ngd_meeting_status(const struct ngd_meeting *m, struct ngd_diag *diag);
/* mend (optional) is called while no rank can begin a launch, before the group is whole again; its error is the answer.
 */
ngd_status_t ngd_meeting_reset(struct ngd_meeting *m, ngd_status_t (*mend)(void *arg, struct ngd_diag *diag), void *arg,
                               struct ngd_diag *diag);

#endif
