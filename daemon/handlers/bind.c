/* SPDX-License-Identifier: Apache-2.0 */
/* Binds clients' buffers to params and states: at registration, and later with Graphs.Bind. */
#include "daemon/handlers/graphs.h"
#include "daemon/handlers/methods.h"
#include "daemon/session.h"

static ngd_status_t find_slot(const struct ngd_graph *g, const char *name, uint32_t *slot_p, struct ngd_diag *diag)
{
    int i = ngd_graph_find_input(g, NGD_VALUE_PARAM, name);

    if (i >= 0) {
        *slot_p = (uint32_t)i;
        return NGD_OK;
    }
    i = ngd_graph_find_input(g, NGD_VALUE_STATE, name);
    *slot_p = g->n_params + (uint32_t)i;
    return i >= 0 ? NGD_OK
                  : ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                                 "graph \"%.100s\" has no param or state \"%.200s\" to bind", g->name, name);
}

ngd_status_t ngd_rpc_collect_buffers(struct ngd_call *call, const struct ngd_graph *g,
                                     Npugraph__V1__Binding *const *bindings, size_t n, struct ngd_buffer **buffers,
                                     struct ngd_object **objects, struct ngd_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        const struct ngd_buffer_object *buffer;
        uint32_t slot;
        ngd_status_t status = find_slot(g, bindings[i]->name, &slot, diag);

        if (status == NGD_OK && buffers[slot])
            status = ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH, "\"%.200s\" is bound twice", bindings[i]->name);
        if (status == NGD_OK)
            status = ngd_session_get(call->session, bindings[i]->buffer, NGD_OBJECT_BUFFER, &objects[i], diag);
        if (status != NGD_OK)
            return status;
        buffer = ngd_container_of(objects[i], struct ngd_buffer_object, base);
        if (slot >= g->n_params && buffer->read_only)
            return ngd_diag_set(
                diag, NGD_ERR_BINDING_MISMATCH,
                "state \"%.200s\" would change a tensor of a file, which is shared; bind a buffer of Memory.Allocate",
                bindings[i]->name);
        buffers[slot] = buffer->buffer;
    }
    return NGD_OK;
}

char **ngd_rpc_list_unbound(struct ngd_call *call, const struct ngd_binding *binding, size_t *n_p)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(binding));
    uint32_t n = g->n_params + g->n_states;
    char **list = ngd_arena_calloc(&call->life, n + 1u, sizeof(*list));

    *n_p = 0;
    for (uint32_t i = 0; list && i < n; i++) {
        const struct ngd_value *v = &g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]];

        if (!ngd_binding_buffer(binding, i) &&
            (list[*n_p] = ngd_arena_strdup(&call->life, v->label ? v->label : v->name)))
            ++*n_p;
    }
    return list;
}

/* ---- Bind --------------------------------------------------------------------------------------------- */

static ngd_status_t change(struct ngd_call *call, const Npugraph__V1__BindRequest *q, struct ngd_graph_object *o,
                           struct ngd_binding **binding_p, struct ngd_diag *diag)
{
    struct ngd_binding *old = ngd_graph_object_binding(o);
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(old));
    struct ngd_buffer **buffers =
        ngd_arena_calloc(&call->life, g->n_params + g->n_states + 1u, sizeof(struct ngd_buffer *));
    struct ngd_object **objects = ngd_arena_calloc(&call->life, q->n_bindings + 1, sizeof(struct ngd_object *));
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (buffers && objects)
        status = ngd_rpc_collect_buffers(call, g, q->bindings, q->n_bindings, buffers, objects, diag);
    if (status == NGD_OK)
        status = ngd_binding_change(old, buffers, binding_p, diag);
    for (size_t i = 0; objects && i < q->n_bindings; i++)
        ngd_object_unref(objects[i]);
    ngd_binding_unref(old);
    return status;
}

static void bind_graph(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__BindRequest *q = msg;
    Npugraph__V1__BindResponse reply = NPUGRAPH__V1__BIND_RESPONSE__INIT;
    struct ngd_binding *binding = NULL;
    struct ngd_graph_object *o;
    struct ngd_object *object;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_session_get(call->session, q->graph, NGD_OBJECT_GRAPH, &object, &diag);

    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    o = ngd_container_of(object, struct ngd_graph_object, base);
    status = change(call, q, o, &binding, &diag);
    if (status == NGD_OK && !(reply.unbound = ngd_rpc_list_unbound(call, binding, &reply.n_unbound)))
        status = NGD_ERR_NO_MEMORY;
    if (status == NGD_OK) {
        reply.generation = ngd_binding_generation(binding);
        ngd_graph_object_rebind(o, binding);
        ngd_call_reply(call, &reply.base);
    } else {
        ngd_binding_unref(binding);
        ngd_call_fail(call, status, &diag);
    }
    ngd_object_unref(object);
}

const struct ngd_rpc_ops ngd_rpc_graphs_bind = {.once = true, .request = bind_graph};
