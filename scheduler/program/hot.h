/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_HOT_H
#define NGD_SCHEDULER_PROGRAM_HOT_H

/*
 * Hot keys: how often executables were replayed, kept in the store's note "hot". A restarted daemon captures the most
 * used keys in the background before any client asks.
 *
 * Executables count their runs anyway. New runs are added up here when an executable is released, and each time the
 * list is written. Old counts fade as new ones come in, so the list follows the use. Programs of keys that were
 * captured ahead are held until a client registers the graph, or for NGD_HOT_HOLD at most.
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

/* Adds the runs of x since the last call. hot NULL: does nothing. */
void ngd_hot_note(struct ngd_hot *hot, struct ngd_executable *x);
/* Captures the keys of the note in the background. */
void ngd_hot_warm(struct ngd_hot *hot);
/* Writes what was added since the last call, and releases programs that were held long enough. Does I/O. */
void ngd_hot_save(struct ngd_hot *hot);
/* Releases all held programs. */
void ngd_hot_release(struct ngd_hot *hot);

#endif
