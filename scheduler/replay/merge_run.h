/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_REPLAY_MERGE_RUN_H
#define NGD_SCHEDULER_REPLAY_MERGE_RUN_H

/* Runs joint replays, on the slot's owner. Why, and with which executable: program/merge_prog.h. */
#include "scheduler/program/merge_prog.h"
#include "scheduler/replay/replay.h"

/* Runs a request with its mates and answers all of them. */
void ngd_merge_run(struct ngd_request *lead, struct ngd_slot *slot);

#endif
