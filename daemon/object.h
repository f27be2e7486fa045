/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_OBJECT_H
#define NGD_DAEMON_OBJECT_H

/*
 * Objects that clients name by id: buffers, graphs (bindings), sequences, groups and shared buffers. An object is a
 * small header in front of the thing, and reference counted: a session's table holds one reference, and so does each
 * request that uses it.
 *
 * Threads: any. close() and release() run on the thread that caused them, with no lock held.
 */
#include "base/lock.h"
#include "daemon/graph_names.h"
#include "devices/device.h"
#include "scheduler/program/group.h"
#include "scheduler/model/model.h"
#include <stdatomic.h>

typedef enum ngd_object_kind {
    NGD_OBJECT_BUFFER,
    NGD_OBJECT_GRAPH,
    NGD_OBJECT_SEQUENCE,
    NGD_OBJECT_GROUP,
    NGD_OBJECT_SHARED,
    NGD_OBJECT_KINDS
} ngd_object_kind_t;

struct ngd_object {
    ngd_object_kind_t kind;
    _Atomic uint32_t refs;                      /* starts at one, the maker's */
    uint64_t bytes;                             /* a buffer's size */
    struct ngd_charge host;                     /* for the record itself */
    struct ngd_charge charge;                   /* ends when the object is freed; a buffer's memory has its own */
    const char *name;                           /* unique among the session's objects of this kind; NULL: none */
    void (*close)(struct ngd_object *object);   /* optional: the session drops the object; called once */
    void (*release)(struct ngd_object *object); /* called with the last reference; frees the object */
};

const char *ngd_object_kind_name(ngd_object_kind_t kind); /* "buffer", "graph", ... */
static inline struct ngd_object *ngd_object_ref(struct ngd_object *object)
{
    atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
    return object;
}
void ngd_object_unref(struct ngd_object *object); /* NULL is fine */

struct ngd_buffer_object {
    struct ngd_object base;
    struct ngd_buffer *buffer;
    bool read_only; /* a tensor of a file, shared with others */
};
/* Takes the caller's reference on buffer, also if it fails. NULL: out of memory. */
struct ngd_buffer_object *ngd_buffer_object_create(struct ngd_buffer *buffer);

struct ngd_graph_object {
    struct ngd_object base;
    struct ngd_mutex lock;       /* rank GRAPH_OBJECT */
    struct ngd_binding *binding; /* guarded by lock; Graphs.Bind replaces it */
    struct ngd_graph_name name;
};
/* Takes the caller's reference on binding, also if it fails. */
struct ngd_graph_object *ngd_graph_object_create(struct ngd_binding *binding);
/* Returns a reference on the present binding. */
struct ngd_binding *ngd_graph_object_binding(struct ngd_graph_object *o);
/* Replaces the binding, and takes the caller's reference. Requests under way keep the binding that they have. */
void ngd_graph_object_rebind(struct ngd_graph_object *o, struct ngd_binding *binding);

struct ngd_group_object {
    struct ngd_object base;
    struct ngd_group *group;
};
/* Takes the caller's reference on group, also if it fails. */
struct ngd_group_object *ngd_group_object_create(struct ngd_group *group);

#endif
