/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_RUN_CHAIN_H
#define NGD_SCHEDULER_DIAG_RUN_CHAIN_H

/*
 * The function that runs a program's executables. Most programs run plainly or as a gang. Else the options ask for, in
 * this order: quarantine, data dumps, verification. Threads: the slot's owner.
 */
#include "scheduler/replay/replay.h"

/* Chooses the function by the options, and by whether a key is in quarantine. It is struct ngd_sched's choose_run. */
ngd_run_fn *ngd_run_chain_choose(const struct ngd_program *prog);

/* Compares every verify_every_n-th replay with its shadow. If they differ, the shadow's results are the answer. */
ngd_run_fn ngd_verify_run;
/* Writes every node's results to files. */
ngd_run_fn ngd_dump_run;

#endif
