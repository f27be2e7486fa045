/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_EAGER_PLANS_H
#define NGD_SCHEDULER_PROGRAM_EAGER_PLANS_H

/*
 * Kept plans of eager runs: those of the keys that a program ran last without a capture.
 *
 * Why: beyond the capture limit with policy `eager`, and with force_eager, each replay makes an executable of its own.
 * Most of that time is planning, and the plan is the same for each replay of a key.
 * Threads: any. A lookup holds the program's lock, planning does not. Threads that miss one key at once all plan it.
 * Memory: plans are reference counted; find returns a reference, keep takes one of its own.
 * Bounds: NGD_PROGRAM_EAGER_PLANS for each program; the least recently used plan is dropped.
 */
struct ngd_key;
struct ngd_plan;
struct ngd_program;

/* Returns a reference; NULL = there is none. */
struct ngd_plan *ngd_eager_plans_find(struct ngd_program *prog, const struct ngd_key *key);
void ngd_eager_plans_keep(struct ngd_program *prog, struct ngd_plan *plan);
/* Drops the plan of key, which may be wrong. */
void ngd_eager_plans_drop(struct ngd_program *prog, const struct ngd_key *key);
/* Drops all plans of a program that is being freed. */
void ngd_eager_plans_free(struct ngd_program *prog);

#endif
