/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_READY_H
#define NGD_SCHEDULER_PROGRAM_READY_H

/*
 * Instances that are made ahead. Normally the first replay of an executable with a binding makes the instance and its
 * pool's memory. For an executable that was captured ahead (scheduler/program/hot.c), the worker of a free slot makes
 * the instance as soon as there is a binding: as an item of the lowest class in the run queue, which overtakes no
 * replay.
 *
 * Without memory nothing is made ahead, and the replay that needs it reports the error. Threads: any, with no lock
 * held.
 */
#include "scheduler/program/program_int.h"

/* Most executables for one binding, and most bindings for one executable. Beyond that, first replays make their own. */
#define NGD_READY_MAX 16

/* Queues the making of a new binding's instances of executables that were captured ahead and have not run yet. */
void ngd_ready_binding(struct ngd_binding *binding);
/*
 * Queues the making of instances of an executable that was just captured ahead, for existing bindings. The caller has
 * it pinned.
 */
void ngd_ready_executable(struct ngd_gcache_entry *entry);

#endif
