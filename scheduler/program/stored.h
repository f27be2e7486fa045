/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_STORED_H
#define NGD_SCHEDULER_PROGRAM_STORED_H

/*
 * Plans by way of the store on disk (graphs/store.h): a capture asks it first, and what it had to make goes there when
 * the capture threads have nothing else to do. The identity of an entry states everything that a plan depends on.
 *
 * Threads: those that capture; never the replay path. Without a store everything works, and nothing is written. Bounds:
 * past so many plans that wait for their way to the store, of all and of one share, more are not stored (metric
 * store_write_failures, BUSY): a burst of captures must not hold memory without bound, nor keep out another's plans.
 */
#include "graphs/pattern.h"
#include "graphs/store.h"
#include "scheduler/program/program.h"

#define NGD_STORED_SAVES_MAX       1024u
#define NGD_STORED_SHARE_SAVES_MAX (NGD_STORED_SAVES_MAX / 4)

/*
 * The plan of a key. anew: don't look into the store, but replace what it has; report: for the passes, may be NULL.
 * *stored_p: it came from there, and no pass has run. A stored plan that does not load is set aside, and made again.
 */
struct ngd_pass_report;
ngd_status_t ngd_stored_plan(struct ngd_program *prog, const struct ngd_key *key, bool anew,
                             struct ngd_pass_report *report, struct ngd_plan **plan_p, bool *stored_p,
                             struct ngd_diag *diag);

/* A replay of the key's plan was found out to be wrong (verify.c): the store's entry is set aside, soon and on a
 * capture thread. For any thread; without a store, or without memory, nothing. */
void ngd_stored_distrust(struct ngd_program *prog, const struct ngd_key *key);

/* The graph of a digest, if the store has it. */
struct ngd_graph *ngd_stored_graph(struct ngd_sched *sched, const struct ngd_digest *digest);

/* The set of patterns of a digest, which is not the built-in one, if the store has it and it is the same with the
 * built-in patterns of this build. A reference. */
struct ngd_pattern_set *ngd_stored_patterns(struct ngd_sched *sched, const struct ngd_digest *digest);

/* The set has others than the built-in ones, or not all of these. */
bool ngd_stored_registered(const struct ngd_pattern_set *set);

/* 64 hexadecimal digits. */
bool ngd_stored_digest(const char *hex, struct ngd_digest *digest_p);
/* An entry as text for people: what it depends on, notes, the graph, and the plan when one of the devices is of its
 * kind. OUTDATED and other reasons not to read it are returned. */
ngd_store_reason_t ngd_stored_show(struct ngd_sched *sched, const char *name, struct ngd_strbuf *sb);

#endif
