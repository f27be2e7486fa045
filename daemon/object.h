/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_OBJECT_H
#define NGD_DAEMON_OBJECT_H

/*
 * What clients name by id: buffers, graphs (bindings), sequences and groups. Each is a small header in front of the
 * thing, reference counted: a session's table holds one reference, and so does every request that uses it. Threads:
 * any. close() and release() run on the thread that caused them, with no lock held.
 */
#include "base/lock.h"
#include "devices/device.h"
#include "scheduler/program/group.h"
#include "scheduler/model/model.h"
#include <stdatomic.h>

typedef enum ngd_object_kind {
    NGD_OBJECT_BUFFER,
    NGD_OBJECT_GRAPH,
    NGD_OBJECT_SEQUENCE,
    NGD_OBJECT_GROUP,
    NGD_OBJECT_KINDS
} ngd_object_kind_t;

struct ngd_object {
    ngd_object_kind_t kind;
    _Atomic uint32_t refs;                      /* starts at one: the maker's */
    uint64_t bytes;                             /* of a buffer */
    struct ngd_charge host;                     /* of the record itself */
    struct ngd_charge charge;                   /* ends when the object is freed; a buffer's is the memory's own */
    const char *name;                           /* of which there is one of this kind in a session; NULL: none */
    void (*close)(struct ngd_object *object);   /* optional: the session lets go of it; once */
    void (*release)(struct ngd_object *object); /* the last reference is gone; frees it */
};

const char *ngd_object_kind_name(ngd_object_kind_t kind); /* "buffer", "graph", "sequence", "group" */
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
/* Takes the caller's reference on buffer, also when it fails. NULL: out of memory. */
struct ngd_buffer_object *ngd_buffer_object_create(struct ngd_buffer *buffer);

struct ngd_graph_object {
    struct ngd_object base;
    struct ngd_mutex lock;       /* rank GRAPH_OBJECT */
    struct ngd_binding *binding; /* under lock: Graphs.Bind replaces it */
};
/* Takes the caller's reference on binding, also when it fails. */
struct ngd_graph_object *ngd_graph_object_create(struct ngd_binding *binding);
/* What it is bound to at present; a reference. */
struct ngd_binding *ngd_graph_object_binding(struct ngd_graph_object *o);
/* Takes the caller's reference on binding; requests under way keep the one that they have. */
void ngd_graph_object_rebind(struct ngd_graph_object *o, struct ngd_binding *binding);

struct ngd_group_object {
    struct ngd_object base;
    struct ngd_group *group;
};
/* Takes the caller's reference on group, also when it fails. */
struct ngd_group_object *ngd_group_object_create(struct ngd_group *group);

#endif
