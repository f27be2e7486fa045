/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_REPLAY_REPLAY_H
#define NGD_SCHEDULER_REPLAY_REPLAY_H

/* Runs executables on slots and keeps account of it. Threads: the slot's owner. */
#include "scheduler/program/program_int.h"

/* Runs x on one device, and does nothing else. An ngd_run_fn. */
ngd_status_t ngd_executable_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                struct ngd_launch *launch, bool *quarantined_p);
/* Sets the time at which a launch that begins now is stopped: at the deadline, or after max-replay-time. */
void ngd_launch_bound(const struct ngd_slot *slot, struct ngd_launch *launch, ngd_nsec_t now, ngd_nsec_t deadline);
/*
 * Runs x with the binding's buffers on a slot that the caller owns, and keeps account of it. Status and diagnosis are
 * in launch too. A device fault resets the stream and drops the executable; other errors change nothing.
 */
ngd_status_t ngd_replay_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                            struct ngd_launch *launch);
/*
 * Does the same for a joint replay (merge_prog.h). A failure that is not the device's is only returned, since the
 * members can run again alone.
 */
ngd_status_t ngd_replay_run_joint(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                  struct ngd_launch *launch);
/*
 * Adds a member of a joint replay to the timeline, after the replay. together: number of members for the first one, 0
 * for the others.
 */
void ngd_replay_note_joint(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch,
                           const struct ngd_request *req, uint32_t together);
/*
 * say_running and say_idle tell what a slot runs. account counts a rank's successful launch. recover resets a stream
 * with an error and drops the executable.
 */
void ngd_slot_say_running(struct ngd_slot *slot, const struct ngd_executable *x);
static inline void ngd_slot_say_idle(struct ngd_slot *slot)
{
    atomic_store_explicit(&slot->running, 0, memory_order_relaxed);
}
void ngd_slot_account(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch);
void ngd_slot_recover(struct ngd_slot *slot, struct ngd_executable *x, ngd_status_t status);
/* Returns true if replays only run the executable on one device: no eager run, shadow, dump, or key in quarantine. */
bool ngd_program_is_plain(const struct ngd_program *prog);
/* Returns true if a replay may run in slices: the device can pause, and the program is plain. */
bool ngd_executable_may_pause(const struct ngd_executable *x);
/*
 * Runs a slice, up to launch->pause_at. inst is the caller's, and nobody else uses its pool until launch->paused is
 * false. Adds the slice's device time to *time. The replay is counted when it is complete.
 */
ngd_status_t ngd_replay_slice(struct ngd_slot *slot, struct ngd_instance *inst, struct ngd_executable *x,
                              struct ngd_launch *launch, ngd_nsec_t *time);
/* Notes the end of the request's replay, for its traces. */
static inline void ngd_request_note_end(struct ngd_request *req, const struct ngd_slot *slot,
                                        const struct ngd_executable *x)
{
    if (!req->times)
        return;
    req->times->ended = ngd_now();
    req->times->key = x->key_hash;
    req->times->slot = slot->index;
}
/* Adds a request that never ran to the timeline. outcome: a string literal. */
void ngd_request_note_unrun(const struct ngd_request *req, const char *outcome);
/* Adds the parts of a launch's or slice's device time. The part of padding is estimated by rows. */
void ngd_split_add(struct ngd_split *split, const struct ngd_executable *x, const struct ngd_launch *launch);

/* ---- gangs: gang_run.c ---- */

/* Runs x on all devices of its group; slot belongs to the first one. An ngd_run_fn. */
ngd_status_t ngd_gang_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                          struct ngd_launch *launch, bool *quarantined_p);
/* Charges a gang's device time to the share on the other devices of its group. Does nothing for other programs. */
void ngd_program_charge_ranks(const struct ngd_program *prog, struct ngd_share *share, ngd_nsec_t time);

#endif
