/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_DEADLOCK_H
#define NGD_GRAPHS_PLAN_DEADLOCK_H

/*
 * deadlock_check: whether the streams of a plan all come to their ends, found out without believing how the plan was
 * made.
 *
 *   - The streams are played through: each goes on until a call waits for one that has not run. If none can go on
 * before all are at their ends, those calls wait for ever; they are named.
 *   - Calls within limits of cores that may run at the same time must find their cores together. A kernel that waits
 * for another one while it holds its cores (the communication kernels of several NPUs do) would otherwise keep the
 * other from ever beginning. Pairs that exceed the device are refused by name.
 */
#include "graphs/plan.h"

ngd_status_t ngd_plan_check_deadlock(const struct ngd_plan *plan, const struct ngd_plan_target *target,
                                     struct ngd_diag *diag);

#endif
