/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_STORED_H
#define NGD_SCHEDULER_PROGRAM_STORED_H

/*
 * Plans from and to the store on disk (graphs/store.h): a capture looks there first. Plans that it had to make are
 * stored when the capture threads have nothing else to do. The identity of an entry states everything that a plan
 * depends on.
 *
 * Threads: those that capture; never the replay path. Without a store everything works, and nothing is written.
 * Bounds: NGD_STORED_SAVES_MAX plans wait to be stored, of one share NGD_STORED_SHARE_SAVES_MAX. More are not stored
 * (metric store_write_failures, BUSY): a burst of captures must not hold memory without bound, nor keep out the plans
 * of others.
 */
#include "graphs/pattern.h"
#include "graphs/store.h"
#include "scheduler/program/program.h"

#define NGD_STORED_SAVES_MAX       1024u
#define NGD_STORED_SHARE_SAVES_MAX (NGD_STORED_SAVES_MAX / 4)

/*
 * Gets the plan of a key, from the store or by planning. anew: plan, and replace the stored one. report: for the
 * passes, may be NULL. *stored_p: it came from the store, and no pass has run. A stored plan that does not load is set
 * aside and made again.
 */
struct ngd_pass_report;
ngd_status_t ngd_stored_plan(struct ngd_program *prog, const struct ngd_key *key, bool anew,
                             struct ngd_pass_report *report, struct ngd_plan **plan_p, bool *stored_p,
                             struct ngd_diag *diag);

/*
 * Sets the store's entry of the key's plan aside, soon and on a capture thread, since a replay of it was wrong
 * (verify.c). Any thread. Without a store, or without memory, does nothing.
 */
void ngd_stored_distrust(struct ngd_program *prog, const struct ngd_key *key);

/* Returns the graph of a digest, a reference; NULL: the store does not have it. */
struct ngd_graph *ngd_stored_graph(struct ngd_sched *sched, const struct ngd_digest *digest);

/*
 * Returns the set of patterns of a digest that is not the built-in one, a reference. NULL: the store does not have it,
 * or its built-in patterns are not those of this build.
 */
struct ngd_pattern_set *ngd_stored_patterns(struct ngd_sched *sched, const struct ngd_digest *digest);

/* Returns true if the set differs from the built-in one; false for NULL. */
bool ngd_stored_registered(const struct ngd_pattern_set *set);

/* Parses a digest of 64 hexadecimal digits. */
bool ngd_stored_digest(const char *hex, struct ngd_digest *digest_p);
/*
 * Prints an entry for people: what it depends on, its notes, the graph, and the plan if a device is of its kind.
 * Returns why it cannot be read: OUTDATED and others.
 */
ngd_store_reason_t ngd_stored_show(struct ngd_sched *sched, const char *name, struct ngd_strbuf *sb);

#endif
