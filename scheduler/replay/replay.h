/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_REPLAY_REPLAY_H
#define NGD_SCHEDULER_REPLAY_REPLAY_H

/* Running executables on slots, and accounting for it. Threads: the slot's owner. */
#include "scheduler/program/program_int.h"

/* Runs it on one device, and no more. An ngd_run_fn. */
ngd_status_t ngd_executable_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                struct ngd_launch *launch, bool *quarantined_p);
/* The launch, which begins now, ends early at the deadline, or after max-replay-time. */
void ngd_launch_bound(const struct ngd_slot *slot, struct ngd_launch *launch, ngd_nsec_t now, ngd_nsec_t deadline);
/*
 * Runs x with the binding's buffers on a slot that the caller owns, and accounts for it. The answer and its diagnosis
 * are in launch too. A device fault resets the stream and drops the executable; other errors leave everything as it is.
 */
ngd_status_t ngd_replay_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                            struct ngd_launch *launch);
/* The same for several requests (merge_prog.h), of which those that did not fail it can be run again: a failure that is
 * not the device's is only returned. */
ngd_status_t ngd_replay_run_joint(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                  struct ngd_launch *launch);
/* For the timeline, after it: of each of them; together: how many they are, for the first, 0 for the others. */
void ngd_replay_note_joint(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch,
                           const struct ngd_request *req, uint32_t together);
/* What a rank's slot runs, has run well, and a stream whose error has to go. */
void ngd_slot_say_running(struct ngd_slot *slot, const struct ngd_executable *x);
static inline void ngd_slot_say_idle(struct ngd_slot *slot)
{
    atomic_store_explicit(&slot->running, 0, memory_order_relaxed);
}
void ngd_slot_account(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch);
void ngd_slot_recover(struct ngd_slot *slot, struct ngd_executable *x, ngd_status_t status);
/* True if replays run the executable on one device and nothing else: no eager run, shadow, files, key in quarantine. */
bool ngd_program_is_plain(const struct ngd_program *prog);
/* The graph's options, and what is known of its keys, let a replay be made in slices on this device. */
bool ngd_executable_may_pause(const struct ngd_executable *x);
/*
 * The same up to launch->pause_at, with the caller's own instance, whose pool nobody else uses until launch->paused is
 * false. Adds the device time to *time; the replay is accounted for when it is complete.
 */
ngd_status_t ngd_replay_slice(struct ngd_slot *slot, struct ngd_instance *inst, struct ngd_executable *x,
                              struct ngd_launch *launch, ngd_nsec_t *time);
/* For the timeline: a request that never ran; outcome is a literal. */
void ngd_request_note_unrun(const struct ngd_request *req, const char *outcome);
/* Adds where the device time of a launch, or of a slice, went; what padding took is reckoned by rows. */
void ngd_split_add(struct ngd_split *split, const struct ngd_executable *x, const struct ngd_launch *launch);

/* ---- gangs: gang_run.c ---- */

/* Runs x on all devices of its group; slot is of the first one. An ngd_run_fn. */
ngd_status_t ngd_gang_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                          struct ngd_launch *launch, bool *quarantined_p);
/* Device time of the program's replay, on the other devices of its group, if it is a gang's. */
void ngd_program_charge_ranks(const struct ngd_program *prog, struct ngd_share *share, ngd_nsec_t time);

#endif
