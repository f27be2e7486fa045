/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/object.h"

#include "base/mem.h"

const char *ngd_object_kind_name(ngd_object_kind_t kind)
{
    static const char *const names[] = {"buffer", "graph", "sequence", "group", "shared buffer"};

    return names[kind];
}

void ngd_object_unref(struct ngd_object *object)
{
    struct ngd_charge charge, host;

    if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
        return;
    charge = ngd_charge_move(&object->charge);
    host = ngd_charge_move(&object->host);
    object->release(object);
    ngd_charge_end(&charge);
    ngd_charge_end(&host);
}

static void release_buffer(struct ngd_object *object)
{
    struct ngd_buffer_object *o = ngd_container_of(object, struct ngd_buffer_object, base);

    ngd_buffer_unref(o->buffer);
    ngd_free(o);
}

struct ngd_buffer_object *ngd_buffer_object_create(struct ngd_buffer *buffer)
{
    struct ngd_buffer_object *o = NGD_NEW(struct ngd_buffer_object);

    if (!o) {
        ngd_buffer_unref(buffer);
        return NULL;
    }
    o->base.kind = NGD_OBJECT_BUFFER;
    o->base.refs = 1;
    o->base.bytes = ngd_buffer_bytes(buffer);
    o->base.release = release_buffer;
    o->buffer = buffer;
    return o;
}

/* The session drops the graph: nobody finds it by its name any more. */
static void close_graph_object(struct ngd_object *object)
{
    ngd_graph_names_remove(ngd_container_of(object, struct ngd_graph_object, base));
}

static void release_graph_object(struct ngd_object *object)
{
    struct ngd_graph_object *o = ngd_container_of(object, struct ngd_graph_object, base);

    ngd_binding_unref(o->binding);
    ngd_mutex_fini(&o->lock);
    ngd_free(o);
}

struct ngd_graph_object *ngd_graph_object_create(struct ngd_binding *binding)
{
    struct ngd_graph_object *o = NGD_NEW(struct ngd_graph_object);

    if (!o) {
        ngd_binding_unref(binding);
        return NULL;
    }
    o->base.kind = NGD_OBJECT_GRAPH;
    o->base.refs = 1;
    o->base.close = close_graph_object;
    o->base.release = release_graph_object;
    ngd_mutex_init(&o->lock, NGD_RANK_GRAPH_OBJECT);
    o->binding = binding;
    return o;
}

struct ngd_binding *ngd_graph_object_binding(struct ngd_graph_object *o)
{
    struct ngd_binding *binding;

    ngd_mutex_lock(&o->lock);
    binding = ngd_binding_ref(o->binding);
    ngd_mutex_unlock(&o->lock);
    return binding;
}

void ngd_graph_object_rebind(struct ngd_graph_object *o, struct ngd_binding *binding)
{
    struct ngd_binding *old;

    ngd_mutex_lock(&o->lock);
    old = o->binding;
    o->binding = binding;
    ngd_mutex_unlock(&o->lock);
    ngd_binding_unref(old);
}

static void release_group(struct ngd_object *object)
{
    struct ngd_group_object *o = ngd_container_of(object, struct ngd_group_object, base);

    ngd_group_unref(o->group);
    ngd_free(o);
}

struct ngd_group_object *ngd_group_object_create(struct ngd_group *group)
{
    struct ngd_group_object *o = NGD_NEW(struct ngd_group_object);

    if (!o) {
        ngd_group_unref(group);
        return NULL;
    }
    o->base.kind = NGD_OBJECT_GROUP;
    o->base.refs = 1;
    o->base.name = ngd_group_name(group);
    o->base.release = release_group;
    o->group = group;
    return o;
}
