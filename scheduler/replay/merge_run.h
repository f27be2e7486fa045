/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_REPLAY_MERGE_RUN_H
#define NGD_SCHEDULER_REPLAY_MERGE_RUN_H

/* Replays that run together, by the slot's owner. What they run as, and why: program/merge_prog.h. */
#include "scheduler/program/merge_prog.h"
#include "scheduler/replay/replay.h"

/* Runs a request with its mates; all of them are answered. */
void ngd_merge_run(struct ngd_request *lead, struct ngd_slot *slot);

#endif
