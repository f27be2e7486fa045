/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_PATTERNS_H
#define NGD_DAEMON_PATTERNS_H

/*
 * Patterns that clients registered, for themselves or, with the admin right, for all.
 *
 * A graph is rewritten with the patterns that its identity has when the graph is registered: its own first, then those
 * for all, then the built-in ones. Later changes do not affect it: the digest of the pattern set is part of its
 * program's keys. Each owner has at most one pattern of a name. A change needs a higher version; registering the same
 * text again changes nothing. Patterns stay until they are removed or the daemon ends. Their number is bounded per
 * identity and in all. Threads: any.
 */
#include "daemon/identity.h"
#include "graphs/pattern.h"

#define NGD_PATTERNS_PER_OWNER 64
#define NGD_PATTERNS_IN_ALL    512

struct ngd_patterns;
struct ngd_promises;

/* promises: counts the changes; borrowed. */
ngd_status_t ngd_patterns_create(struct ngd_promises *promises, struct ngd_patterns **patterns_p);
void ngd_patterns_destroy(struct ngd_patterns *patterns); /* NULL is fine */
/* Registers all patterns of the text, or none. for_all: PERMISSION_DENIED without the admin right. */
ngd_status_t ngd_patterns_register(struct ngd_patterns *patterns, const struct ngd_identity *who, const char *text,
                                   bool for_all, struct ngd_pattern **added, uint32_t max, uint32_t *n_p,
                                   struct ngd_diag *diag);
ngd_status_t ngd_patterns_remove(struct ngd_patterns *patterns, const struct ngd_identity *who, const char *name,
                                 bool for_all, struct ngd_diag *diag);
/* Calls fn for each registered pattern, its owner's name ("": for all) and text, under the lock. */
void ngd_patterns_for_each(struct ngd_patterns *patterns, void (*fn)(void *ctx, const char *owner, const char *text),
                           void *ctx);
/* Removes all; for a handover that begins again. */
void ngd_patterns_remove_all(struct ngd_patterns *patterns);
/* Returns a reference on the pattern set for an identity's graphs. NULL: no memory. */
struct ngd_pattern_set *ngd_patterns_set_for(struct ngd_patterns *patterns, const struct ngd_identity *who);
/* Lists references on the patterns that an identity sees: its own, those for all (owner ""), and the built-in ones
 * (owner NULL). */
struct ngd_pattern_item {
    struct ngd_pattern *pattern;
    const char *owner;
};
uint32_t ngd_patterns_list(struct ngd_patterns *patterns, const struct ngd_identity *who,
                           struct ngd_pattern_item *items, uint32_t max);

#endif
