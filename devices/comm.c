/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: checks arguments and keeps references above a backend, and checks a plan's collectives against their
 * groups. */
#include "devices/comm.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct ngd_comm {
    const struct ngd_backend *backend;
    void *handle;
    _Atomic uint32_t refs;
    uint32_t n;           /* devices: ranks that are here */
    uint32_t size, first; /* ranks of all daemons, and the first of those that are here */
    struct ngd_device *devices[NGD_GROUP_MAX_RANKS];
    struct ngd_holder holders[NGD_GROUP_MAX_RANKS]; /* by rank: what it takes of its device's budget */
    char name[NGD_GROUP_NAME_MAX + 1];
    char label[NGD_GROUP_NAME_MAX + 8]; /* "group tp" */
};

void ngd_comm_params_init(struct ngd_comm_params *params)
{
    *params = (struct ngd_comm_params){.time_limit = NGD_COMM_TIME_LIMIT};
}

/* ---- creation ------------------------------------------------------------------------------------------ */

static ngd_status_t check_comm_devices(const struct ngd_comm_params *p, struct ngd_diag *diag)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->devices[i]->backend != p->devices[0]->backend)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "group \"%s\" has %s and %s: its devices must be of one backend", p->name,
                                p->devices[0]->info.name, p->devices[i]->info.name);
        for (uint32_t k = 0; k < i; k++)
            if (p->devices[i] == p->devices[k])
                return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%s\" has %s twice, as ranks %u and %u",
                                    p->name, p->devices[i]->info.name, k, i);
    }
    if (!p->devices[0]->backend->comm.create)
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "device backend \"%s\" has no collectives",
                            p->devices[0]->backend->name);
    return NGD_OK;
}

static ngd_status_t check_span(const struct ngd_comm_params *p, struct ngd_diag *diag)
{
    const struct ngd_comm_span *span = p->span;

    if (!p->devices[0]->backend->comm.join)
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                            "device backend \"%s\" has no groups that span daemons: its ranks meet in the memory of "
                            "one. Give all devices of the group to one daemon",
                            p->devices[0]->backend->name);
    if (span->size < 2 || span->size > NGD_GROUP_MAX_RANKS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%s\" has %u ranks in all; allowed: 2 to %d",
                            p->name, span->size, NGD_GROUP_MAX_RANKS);
    if (span->first >= span->size || p->n > span->size - span->first)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "group \"%s\" has the ranks 0 to %u, and %u devices cannot be those from %u on", p->name,
                            span->size - 1, p->n, span->first);
    if (!span->root || span->root_bytes == 0 || span->root_bytes > NGD_COMM_ROOT_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the root of group \"%s\" has %zu bytes; allowed: 1 to %d",
                            p->name, span->root_bytes, NGD_COMM_ROOT_MAX);
    return NGD_OK;
}

static ngd_status_t check_comm_params(const struct ngd_comm_params *p, struct ngd_diag *diag)
{
    size_t n = p->name ? strlen(p->name) : 0;
    ngd_status_t status;

    if (n == 0 || n > NGD_GROUP_NAME_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a group's name has 1 to %d bytes, not %zu",
                            NGD_GROUP_NAME_MAX, n);
    if (p->n == 0 || p->n > NGD_GROUP_MAX_RANKS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%s\" has %u devices; allowed: 1 to %d", p->name,
                            p->n, NGD_GROUP_MAX_RANKS);
    if (p->time_limit <= 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the time limit of group \"%s\" must be above 0", p->name);
    status = check_comm_devices(p, diag);
    return status || !p->span ? status : check_span(p, diag);
}

static void handles_of(const struct ngd_comm *comm, void *handles[static NGD_GROUP_MAX_RANKS])
{
    for (uint32_t i = 0; i < comm->n; i++)
        handles[i] = comm->devices[i]->handle;
}

static void release_budgets(struct ngd_comm *comm)
{
    for (uint32_t i = 0; i < comm->n; i++)
        if (comm->holders[i].bytes)
            ngd_device_release(comm->devices[i], &comm->holders[i], comm->holders[i].bytes);
}

/* Called before the backend creates anything, so that a refusal can name the largest holders of the memory. */
static ngd_status_t reserve_budgets(struct ngd_comm *comm, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < comm->n; i++) {
        ngd_list_init(&comm->holders[i].link);
        comm->holders[i].label = comm->label;
        comm->holders[i].kind = NGD_BUFFER_GENERAL;
    }
    for (uint32_t i = 0; i < comm->n && comm->backend->comm.rank_bytes && !status; i++)
        status = ngd_device_reserve(comm->devices[i], &comm->holders[i], comm->backend->comm.rank_bytes, diag);
    if (status)
        release_budgets(comm);
    return status;
}

static struct ngd_comm *alloc_comm(const struct ngd_comm_params *params)
{
    struct ngd_comm *comm = NGD_NEW(struct ngd_comm);

    if (!comm)
        return NULL;
    comm->backend = params->devices[0]->backend;
    comm->n = comm->size = params->n;
    if (params->span) {
        comm->size = params->span->size;
        comm->first = params->span->first;
    }
    memcpy(comm->devices, params->devices, params->n * sizeof(comm->devices[0]));
    snprintf(comm->name, sizeof(comm->name), "%s", params->name);
    snprintf(comm->label, sizeof(comm->label), "group %s", params->name);
    atomic_init(&comm->refs, 1);
    return comm;
}

static ngd_status_t make_handle(struct ngd_comm *comm, const struct ngd_comm_params *p, struct ngd_diag *diag)
{
    const struct ngd_backend_comm *ops = &comm->backend->comm;
    void *handles[NGD_GROUP_MAX_RANKS];

    handles_of(comm, handles);
    return p->span ? ops->join(handles, comm->n, comm->name, p->time_limit, p->span, &comm->handle, diag)
                   : ops->create(handles, comm->n, comm->name, p->time_limit, &comm->handle, diag);
}

ngd_status_t ngd_comm_create(const struct ngd_comm_params *params, struct ngd_comm **comm_p, struct ngd_diag *diag)
{
    struct ngd_comm *comm;
    ngd_status_t status = check_comm_params(params, diag);

    if (status)
        return status;
    comm = alloc_comm(params);
    if (!comm)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for group \"%s\"", params->name);
    status = reserve_budgets(comm, diag);
    if (status) {
        ngd_free(comm);
        return status;
    }
    status = make_handle(comm, params, diag);
    if (status) {
        release_budgets(comm);
        ngd_free(comm);
        return status;
    }
    *comm_p = comm;
    return NGD_OK;
}

ngd_status_t ngd_comm_root(struct ngd_device *dev, void *root, size_t *bytes_p, struct ngd_diag *diag)
{
    if (dev->backend->comm.root)
        return dev->backend->comm.root(dev->handle, root, bytes_p, diag);
    return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                        "device backend \"%s\" has no groups that span daemons: its ranks meet in the memory of one. "
                        "Give all devices of the group to one daemon",
                        dev->backend->name);
}

struct ngd_comm *ngd_comm_ref(struct ngd_comm *comm)
{
    atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
    return comm;
}

void ngd_comm_unref(struct ngd_comm *comm)
{
    if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) != 1)
        return;
    comm->backend->comm.destroy(comm->handle);
    release_budgets(comm);
    ngd_free(comm);
}

void ngd_comm_destroy(struct ngd_comm *comm)
{
    if (!comm)
        return;
    ngd_comm_abort(comm, NGD_ERR_GROUP_BROKEN, "it was destroyed");
    ngd_comm_unref(comm);
}

/* ---- queries ------------------------------------------------------------------------------------------- */

const char *ngd_comm_name(const struct ngd_comm *comm)
{
    return comm->name;
}

uint32_t ngd_comm_size(const struct ngd_comm *comm)
{
    return comm->size;
}

uint32_t ngd_comm_first(const struct ngd_comm *comm)
{
    return comm->first;
}

int ngd_comm_rank(const struct ngd_comm *comm, const struct ngd_device *dev)
{
    for (uint32_t i = 0; i < comm->n; i++)
        if (comm->devices[i] == dev)
            return (int)(comm->first + i);
    return -1;
}

void ngd_comm_abort(struct ngd_comm *comm, ngd_status_t status, const char *why)
{
    comm->backend->comm.abort(comm->handle, status, why);
}

ngd_status_t ngd_comm_status(struct ngd_comm *comm, struct ngd_diag *diag)
{
    return comm->backend->comm.status(comm->handle, diag);
}

ngd_status_t ngd_comm_reset(struct ngd_comm *comm, struct ngd_diag *diag)
{
    return comm->backend->comm.reset(comm->handle, diag);
}

/* ---- a plan's collectives ------------------------------------------------------------------------------ */

static ngd_status_t find_comm(struct ngd_device *dev, const struct ngd_plan_call *call, struct ngd_comm *const *comms,
                              uint32_t n, struct ngd_comm **comm_p, struct ngd_diag *diag)
{
    const char *name = ngd_call_str(call, "group_name");

    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(comms[i]->name, name) != 0)
            continue;
        if (ngd_comm_rank(comms[i], dev) < 0)
            return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND, "node %u (%s): device %s is not in group \"%s\"",
                                call->node, call->op->name, dev->info.name, name);
        *comm_p = comms[i];
        return NGD_OK;
    }
    return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND,
                        "node %u (%s) needs group \"%s\", and the graph is not captured for it: register the graph for "
                        "each rank of the group, and capture and replay the ranks together",
                        call->node, call->op->name, name);
}

static bool call_has_attr(const struct ngd_plan_call *call, const char *name)
{
    return ngd_op_attr_index(call->op, name, strlen(name)) >= 0;
}

/* Checks the attributes of the call that depend on its group's size. */
static ngd_status_t check_comm_size(const struct ngd_plan_call *call, const struct ngd_comm *comm,
                                    struct ngd_diag *diag)
{
    if (call_has_attr(call, "group_size") && ngd_call_int(call, "group_size") != comm->size)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_ATTRIBUTE,
                            "node %u (%s): group_size is %" PRId64 ", group \"%s\" has %u ranks", call->node,
                            call->op->name, ngd_call_int(call, "group_size"), comm->name, comm->size);
    if (call_has_attr(call, "src") && ngd_call_int(call, "src") >= comm->size)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_ATTRIBUTE,
                            "node %u (%s): src is %" PRId64 ", group \"%s\" has ranks 0 to %u", call->node,
                            call->op->name, ngd_call_int(call, "src"), comm->name, comm->size - 1);
    if (call_has_attr(call, "input_split_sizes") && ngd_call_ints(call, "input_split_sizes")->n != comm->size)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_ATTRIBUTE,
                            "node %u (%s): input_split_sizes has %u numbers, group \"%s\" has %u ranks", call->node,
                            call->op->name, ngd_call_ints(call, "input_split_sizes")->n, comm->name, comm->size);
    return NGD_OK;
}

ngd_status_t ngd_comm_match(struct ngd_device *dev, const struct ngd_plan *plan, struct ngd_comm *const *comms,
                            uint32_t n_comms, struct ngd_comm **used, struct ngd_backend_group *groups, uint32_t *n_p,
                            struct ngd_diag *diag)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *call = &plan->calls[i];
        struct ngd_comm *comm = NULL;
        uint32_t g = 0;
        ngd_status_t status;

        if (!(call->op->flags & NGD_OPF_COLLECTIVE))
            continue;
        status = find_comm(dev, call, comms, n_comms, &comm, diag);
        if (!status)
            status = check_comm_size(call, comm, diag);
        if (status)
            return status;
        while (g < n && used[g] != comm)
            g++;
        if (g == NGD_GRAPH_MAX_GROUPS) /* validation counts them too */
            return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph names more than %d groups",
                                NGD_GRAPH_MAX_GROUPS);
        if (g < n)
            continue;
        used[n] = comm;
        groups[n++] =
            (struct ngd_backend_group){comm->name, comm->handle, (uint32_t)ngd_comm_rank(comm, dev), comm->size};
    }
    *n_p = n;
    return NGD_OK;
}
