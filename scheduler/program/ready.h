/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_READY_H
#define NGD_SCHEDULER_PROGRAM_READY_H

/*
 * Instances that are made ahead. Who replays an executable for the first time with its buffers makes the instance, and
 * its pool's memory. For an executable that was captured ahead itself (scheduler/program/hot.c), the worker of a free
 * slot does that as soon as there is a binding: as an item of the run queue of the lowest class, which overtakes
 * nobody's replay.
 *
 * Without memory nothing is made ahead; the replay that needs it says so. Threads: any, with no lock held.
 */
#include "scheduler/program/program_int.h"

/* Executables for one binding, and bindings for one executable; past that, first replays make their own. */
#define NGD_READY_MAX 16

/* The binding is new: its instances of what was captured ahead and has not run yet. */
void ngd_ready_binding(struct ngd_binding *binding);
/* It was captured ahead just now, and the caller has it pinned: the instances of the bindings that are there. */
void ngd_ready_executable(struct ngd_gcache_entry *entry);

#endif
