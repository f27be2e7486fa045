/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_DEADLOCK_H
#define NGD_GRAPHS_PLAN_DEADLOCK_H

/*
 * The option deadlock_check: checks that all streams of a plan come to their ends, independently of how the plan was
 * made.
 *
 *   - It simulates the streams. Each goes on until a call waits for another that has not run. If all streams wait
 *     before they have ended, these calls would wait for ever; the diagnosis names them.
 *   - Calls with limits of cores that may run at the same time must fit on the device together. Some kernels wait
 *     for another kernel while they hold their cores (communication kernels of several NPUs do). The other kernel
 *     would then never start. Pairs that exceed the device are refused by name.
 */
#include "graphs/plan.h"

ngd_status_t ngd_plan_check_deadlock(const struct ngd_plan *plan, const struct ngd_plan_target *target,
                                     struct ngd_diag *diag);

#endif
