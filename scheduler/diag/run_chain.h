/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_RUN_CHAIN_H
#define NGD_SCHEDULER_DIAG_RUN_CHAIN_H

/*
 * What a program's executables run through: nothing for most, who run plainly or as a gang; and what the options ask
 * for, in this order: quarantine, data dumps, verification. Threads: the slot's owner.
 */
#include "scheduler/replay/replay.h"

/* By the options, and by whether a key is in quarantine. For struct ngd_sched's choose_run. */
ngd_run_fn *ngd_run_chain_choose(const struct ngd_program *prog);

/* Every verify_every_n-th replay runs beside a shadow, which is believed when they differ. */
ngd_run_fn ngd_verify_run;
/* Every node's results are written to files. */
ngd_run_fn ngd_dump_run;

#endif
