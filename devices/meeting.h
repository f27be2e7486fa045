/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_MEETING_H
#define NGD_DEVICES_MEETING_H

/*
 * Lets the ranks of a group meet in the memory of one process. Host devices do their collectives here; NPUs compare
 * what they are about to do.
 *
 * In a round, a rank writes what the others shall read into its stage, says what it is about to do, and waits until all
 * ranks have come. Then each rank reads the others' stages. Each rank has two stages and uses them in turn. A rank that
 * has come to a round has left the round before it, so nobody writes a stage that another rank may still read, and one
 * wait per round is enough. Data that is larger than a stage takes several rounds.
 *
 * Stages belong to the meeting, not to a launch. So if a rank gives up, the others never read memory that is gone.
 *
 * Threads: one thread per rank at a time, that of its launch. abort and status may be called from any thread. A waiting
 * rank spins for some microseconds, then sleeps. There is no lock, and nothing is allocated after creation.
 */
#include "base/clock.h"
#include "devices/device.h"

#define NGD_MEETING_STAGE ((uint64_t)256 << 10)

struct ngd_meeting;

/* What a rank is about to do. All ranks must say the same, except for the parts of an all_to_all, which must fit. */
struct ngd_collective {
    const char *op, *reduce; /* names; reduce is "" if the operator does not reduce */
    ngd_dtype_t dtype;
    uint8_t rank; /* of the tensor */
    bool split;   /* dims[0], sends and receives may differ between ranks */
    bool open;    /* ranks may say different things: the caller compares them (ngd_meeting_said) */
    uint32_t src;
    int64_t dims[NGD_MAX_RANK];
    uint64_t sends[NGD_GROUP_MAX_RANKS], receives[NGD_GROUP_MAX_RANKS]; /* if split: bytes, by rank */
};

/* Fills `what` from a call of a plan, with its planned rows. *row_bytes_p gets the bytes of a row. */
void ngd_collective_say(const struct ngd_plan_call *call, const struct ngd_plan_tensor *x, uint32_t ranks,
                        struct ngd_collective *what, uint64_t *row_bytes_p);

ngd_status_t ngd_meeting_create(uint32_t n, const char *name, ngd_nsec_t time_limit, struct ngd_meeting **m_p);
void ngd_meeting_destroy(struct ngd_meeting *m);

/* Begins a launch of this rank. If another launch of the rank has not ended, breaks the group and returns
 * GROUP_BROKEN. */
ngd_status_t ngd_meeting_begin(struct ngd_meeting *m, uint32_t rank, struct ngd_diag *diag);
/* Ends the launch. If it has not entered the `expected` number of collectives, breaks the group with the reason why. */
void ngd_meeting_end(struct ngd_meeting *m, uint32_t rank, uint32_t expected, const char *why);
/* Begins the rank's next collective. `what` must not change until its last round. Returns false if the group is
 * broken. */
bool ngd_meeting_enter(struct ngd_meeting *m, uint32_t rank, const struct ngd_collective *what);
/* Returns this rank's stage for the next round. */
char *ngd_meeting_stage(struct ngd_meeting *m, uint32_t rank);
/* Does a round: waits for all ranks. Returns false if the group is broken. This rank gives up as soon as *own_error is
 * not 0. */
bool ngd_meeting_round(struct ngd_meeting *m, uint32_t rank, const _Atomic int *own_error);
/* Return another rank's stage of that round and, in the first round of a collective, what it said. Both are valid until
 * this rank's next round. */
const char *ngd_meeting_staged(const struct ngd_meeting *m, uint32_t rank, uint32_t other);
const struct ngd_collective *ngd_meeting_said(const struct ngd_meeting *m, uint32_t rank, uint32_t other);

/* The functions of struct ngd_backend_comm. */
void ngd_meeting_abort(struct ngd_meeting *m, ngd_status_t status, const char *why);
ngd_status_t ngd_meeting_status(const struct ngd_meeting *m, struct ngd_diag *diag);
/* mend (optional) is called before the group is whole again, while no rank can begin a launch. If it fails, the group
 * stays broken and its error is returned. */
ngd_status_t ngd_meeting_reset(struct ngd_meeting *m, ngd_status_t (*mend)(void *arg, struct ngd_diag *diag), void *arg,
                               struct ngd_diag *diag);

#endif
