/* SPDX-License-Identifier: Apache-2.0 */
/* SystemSharedMemoryStatus, Register and Unregister, and their twins for CUDA, which has no regions. */
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/oip.h"
#include "daemon/identity.h"
#include "daemon/shm_regions.h"
#include <stdlib.h>
#include <string.h>

/*
 * Finds the user whose rights the client has. Only the peer of a Unix socket has one: a remote client must not name
 * objects of this machine, and a bearer token is nobody's user.
 */
static ngd_status_t check_local_user(const struct ngd_call *call, uid_t *uid_p, struct ngd_diag *diag)
{
    static const char prefix[] = "uid:";

    if (!ngd_config_get(call->daemon->options.oip_shared_memory))
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "shared memory is not served; an administrator can set the daemon's option "
                            "oip-shared-memory");
    if (strncmp(call->identity->name, prefix, strlen(prefix)) != 0)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "shared memory is for clients that connect over the Unix socket without a token; %.100s "
                            "is not a user of this machine",
                            call->identity->name);
    *uid_p = (uid_t)strtoul(call->identity->name + strlen(prefix), NULL, 10);
    return NGD_OK;
}

/* ---- register, unregister ---------------------------------------------------------------------------------------- */

static void register_region(struct ngd_call *call, const void *msg)
{
    const Inference__SystemSharedMemoryRegisterRequest *q = msg;
    Inference__SystemSharedMemoryRegisterResponse reply = INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    const struct ngd_shm_params params = {.name = q->name, .key = q->key, .offset = q->offset, .bytes = q->byte_size};
    struct ngd_diag diag = {0};
    uid_t uid = 0;
    ngd_status_t status = check_local_user(call, &uid, &diag);

    if (status == NGD_OK)
        status = ngd_shm_region_register(call->daemon->shm_regions, call->identity, uid, &params, &diag);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

static void unregister_region(struct ngd_call *call, const void *msg)
{
    const Inference__SystemSharedMemoryUnregisterRequest *q = msg;
    Inference__SystemSharedMemoryUnregisterResponse reply = INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_shm_regions_remove(call->daemon->shm_regions, call->identity, q->name, &diag);

    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_oip_shm_register = {.once = true, .request = register_region};
const struct ngd_rpc_ops ngd_rpc_oip_shm_unregister = {.once = true, .request = unregister_region};

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus region_t;

struct region_list {
    Inference__SystemSharedMemoryStatusResponse reply;
    struct ngd_arena *arena;
    const char *only; /* "": all */
    size_t room;
    bool no_memory;
};

static void count_region(void *ctx, struct ngd_shm_region *region)
{
    struct region_list *l = ctx;

    (void)region;
    l->room++;
}

static void list_region(void *ctx, struct ngd_shm_region *region)
{
    const struct ngd_shm_params *params = ngd_shm_region_params(region);
    struct region_list *l = ctx;
    entry_t *entry;
    region_t *value;

    if ((*l->only && strcmp(l->only, params->name) != 0) || l->reply.n_regions == l->room)
        return;
    entry = ngd_arena_alloc(l->arena, sizeof(*entry));
    value = ngd_arena_alloc(l->arena, sizeof(*value));
    if (!entry || !value) {
        l->no_memory = true;
        return;
    }
    inference__system_shared_memory_status_response__regions_entry__init(entry);
    inference__system_shared_memory_status_response__region_status__init(value);
    entry->key = value->name = ngd_arena_strdup(l->arena, params->name);
    value->key = ngd_arena_strdup(l->arena, params->key);
    value->offset = params->offset;
    value->byte_size = params->bytes;
    entry->value = value;
    l->no_memory = l->no_memory || !entry->key || !value->key;
    l->reply.regions[l->reply.n_regions++] = entry;
}

static ngd_status_t list_regions(struct ngd_call *call, struct region_list *l, struct ngd_diag *diag)
{
    struct ngd_shm_regions *regions = call->daemon->shm_regions;

    ngd_shm_regions_for_each(regions, call->identity, count_region, l);
    l->room += 16; /* some may be registered meanwhile */
    l->reply.regions = ngd_arena_calloc(l->arena, l->room, sizeof(*l->reply.regions));
    if (!l->reply.regions)
        return NGD_ERR_NO_MEMORY;
    ngd_shm_regions_for_each(regions, call->identity, list_region, l);
    if (l->no_memory)
        return NGD_ERR_NO_MEMORY;
    if (*l->only && l->reply.n_regions == 0)
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no shared memory region \"%.255s\"", l->only);
    return NGD_OK;
}

static void region_status(struct ngd_call *call, const void *msg)
{
    const Inference__SystemSharedMemoryStatusRequest *q = msg;
    struct region_list l = {
        .reply = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT, .arena = &call->life, .only = q->name};
    struct ngd_diag diag = {0};
    ngd_status_t status = list_regions(call, &l, &diag);

    if (status == NGD_OK)
        ngd_call_reply(call, &l.reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_oip_shm_status = {.request = region_status};

/* ---- CUDA -------------------------------------------------------------------------------------------------------- */

static void refuse_cuda(struct ngd_call *call)
{
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_UNIMPLEMENTED,
                 "CUDA shared memory is not served: the devices are NPUs. Use system shared memory, or buffers of the "
                 "daemon's own protocol, which stay on the device");
    ngd_call_fail(call, NGD_ERR_UNIMPLEMENTED, &diag);
}

static void register_cuda(struct ngd_call *call, const void *msg)
{
    (void)msg;
    refuse_cuda(call);
}

/* There are no regions. Clients that use no CUDA remove all of them, to begin with. */
static void cuda_status(struct ngd_call *call, const void *msg)
{
    const Inference__CudaSharedMemoryStatusRequest *q = msg;
    Inference__CudaSharedMemoryStatusResponse reply = INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;

    if (*q->name)
        refuse_cuda(call);
    else
        ngd_call_reply(call, &reply.base);
}

static void unregister_cuda(struct ngd_call *call, const void *msg)
{
    const Inference__CudaSharedMemoryUnregisterRequest *q = msg;
    Inference__CudaSharedMemoryUnregisterResponse reply = INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    if (*q->name)
        refuse_cuda(call);
    else
        ngd_call_reply(call, &reply.base);
}

const struct ngd_rpc_ops ngd_rpc_oip_cuda_status = {.request = cuda_status};
const struct ngd_rpc_ops ngd_rpc_oip_cuda_register = {.request = register_cuda};
const struct ngd_rpc_ops ngd_rpc_oip_cuda_unregister = {.request = unregister_cuda};
