/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_HOT_H
#define NGD_SCHEDULER_PROGRAM_HOT_H

/*
 * Hot keys: which executables were replayed how often, kept in the store's note "hot", so that a restarted daemon
 * captures the most used ones in the background before anyone asks.
 *
 * Executables count their runs anyway; what they have counted since the last time is added up here when an executable
 * goes and every time the list is written. Old counts fade as new ones come in, so the list follows the use.
 * The programs of keys that were captured ahead are held until a client has registered the graph, or for
 * NGD_HOT_HOLD at most.
 *
 * Bounds: NGD_HOT_KEYS keys in the list. Threads: any, but not the replay path.
 */
#include "scheduler/program/program.h"

#define NGD_HOT_KEYS 256
#define NGD_HOT_HOLD (15 * 60 * NGD_SEC)

struct ngd_hot;
struct ngd_executable;

ngd_status_t ngd_hot_create(struct ngd_sched *sched, struct ngd_hot **hot_p);
void ngd_hot_destroy(struct ngd_hot *hot); /* NULL is fine */

/* Adds up the runs of x since the last time; hot NULL: nothing. */
void ngd_hot_note(struct ngd_hot *hot, struct ngd_executable *x);
/* Captures the keys of the note in the background. */
void ngd_hot_warm(struct ngd_hot *hot);
/* Writes what was added since the last time, and lets go of programs that were held long enough. Does I/O. */
void ngd_hot_save(struct ngd_hot *hot);
/* Lets go of all programs. */
void ngd_hot_release(struct ngd_hot *hot);

#endif
