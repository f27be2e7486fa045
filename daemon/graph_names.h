/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_GRAPH_NAMES_H
#define NGD_DAEMON_GRAPH_NAMES_H

/*
 * Table of registered graphs by owner and name, for clients that name a graph rather than hold its id (docs/oip.md).
 *
 * An identity may have several graphs of one name: they are told apart by the generation of their binding, which is
 * unique in the process. A graph is in the table from its registration until its session drops it.
 *
 * Threads: any. Memory: the table borrows graph objects and their sessions, since an object leaves it when its session
 * drops it. Bounds: max-graphs-per-identity.
 */
#include "base/clock.h"
#include "base/list.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdint.h>

struct ngd_binding;
struct ngd_graph_names;
struct ngd_graph_object;
struct ngd_identity;
struct ngd_session;

/* What became of the requests that named a graph. Any thread adds to it. */
struct ngd_infer_stats {
    _Atomic int64_t last; /* wall clock of the last success, ms since 1970; 0: never */
    _Atomic uint64_t success, fail;
    _Atomic int64_t success_time, fail_time; /* ns, from arrival to answer */
    _Atomic int64_t queue_time, input_time, replay_time, output_time;
};

/* The part of a graph object that is the table's. */
struct ngd_graph_name {
    struct ngd_list link;
    struct ngd_graph_names *_Atomic table; /* NULL: not in it */
    struct ngd_session *session;           /* borrowed */
    uint64_t owner;                        /* the identity's key */
    struct ngd_infer_stats stats;
};

ngd_status_t ngd_graph_names_create(struct ngd_graph_names **names_p);
void ngd_graph_names_destroy(struct ngd_graph_names *names); /* it is empty; NULL is fine */
/* Adds a graph of the session under its graph's name. A graph without a name is not added. */
void ngd_graph_names_add(struct ngd_graph_names *names, struct ngd_session *session, struct ngd_graph_object *object);
void ngd_graph_names_remove(struct ngd_graph_object *object);   /* does nothing if it is not in a table */
bool ngd_graph_is_named(const struct ngd_graph_object *object); /* false: it was removed */
/* Calls fn, without a lock, for each graph that is removed, when ngd_graph_is_named says so. NULL: nobody watches.
 * Threads: set while no graph is in the table. */
void ngd_graph_names_watch(struct ngd_graph_names *names, void (*fn)(void *ctx, const struct ngd_graph_object *object),
                           void *ctx);

/* Whose graphs a search may find: those of one identity, or only those of one session. */
struct ngd_graph_names_scope {
    const struct ngd_identity *who;
    const struct ngd_session *session; /* NULL: any of the identity */
};
/* A graph that was found. Memory: a reference on each. */
struct ngd_graph_found {
    struct ngd_graph_object *object;
    struct ngd_binding *binding;
    struct ngd_session *session;
};
/* Finds a graph by its name. generation: of its binding; 0: the newest. False: there is none. */
bool ngd_graph_names_find(struct ngd_graph_names *names, const struct ngd_graph_names_scope *scope, const char *name,
                          uint64_t generation, struct ngd_graph_found *found_p);
/* Calls fn, under the table's lock, for each graph of that name ("": of any). fn takes what it keeps with
 * ngd_graph_found_ref, and does not call the table. */
void ngd_graph_names_for_each(struct ngd_graph_names *names, const struct ngd_graph_names_scope *scope,
                              const char *name, void (*fn)(void *ctx, const struct ngd_graph_found *borrowed),
                              void *ctx);
struct ngd_graph_found ngd_graph_found_ref(const struct ngd_graph_found *found);
void ngd_graph_found_end(struct ngd_graph_found *found); /* may be zeroed, and is zeroed */

#endif
