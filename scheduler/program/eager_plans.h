/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_EAGER_PLANS_H
#define NGD_SCHEDULER_PROGRAM_EAGER_PLANS_H

/*
 * Plans of eager runs: those of the keys that a program ran last without a capture.
 *
 * Why:     past the capture limit with policy `eager`, and with force_eager, each replay makes an executable of its
 *          own. What takes long of that is the plan, which is the same for each replay of a key.
 * Threads: any; a lookup holds the program's lock, no planning does. Threads that miss one key together all plan it.
 * Memory:  a plan is counted; find gives a reference, keep takes one of its own.
 * Bounds:  NGD_PROGRAM_EAGER_PLANS for each program; the one that was not used for longest goes.
 */
struct ngd_key;
struct ngd_plan;
struct ngd_program;

/* A reference; NULL = there is none. */
struct ngd_plan *ngd_eager_plans_find(struct ngd_program *prog, const struct ngd_key *key);
void ngd_eager_plans_keep(struct ngd_program *prog, struct ngd_plan *plan);
/* The plan of key is not believed any more. */
void ngd_eager_plans_drop(struct ngd_program *prog, const struct ngd_key *key);
/* All of them, of a program that goes. */
void ngd_eager_plans_free(struct ngd_program *prog);

#endif
