/* SPDX-License-Identifier: Apache-2.0 */
/* Process, devices and contexts. */
#include "devices/ascend/sim/sim_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct sim_context *current;
static _Thread_local uint32_t last_task;

/* ---- process ------------------------------------------------------------------------------------- */

ngd_acl_error_t aclInit(const char *config)
{
    int code = 0;

    (void)config;
    SIM_CALL("aclInit");
    pthread_mutex_lock(&sim.lock);
    if (sim.initialised)
        code = NGD_ACL_REPEAT_INITIALIZE;
    sim.initialised = true;
    return sim_unlock(code);
}

ngd_acl_error_t aclFinalize(void)
{
    SIM_RELEASE("aclFinalize");
    pthread_mutex_lock(&sim.lock);
    sim.initialised = false;
    pthread_mutex_unlock(&sim.lock);
    return SIM_RELEASED;
}

ngd_acl_error_t aclrtGetVersion(int32_t *major_p, int32_t *minor_p, int32_t *patch_p)
{
    SIM_CALL("aclrtGetVersion");
    *major_p = sim.config.version[0];
    *minor_p = sim.config.version[1];
    *patch_p = sim.config.version[2];
    return 0;
}

ngd_acl_error_t aclsysGetCANNVersion(int package, struct ngd_acl_version *version_p)
{
    const int cann = sim.config.cann;

    SIM_CALL("aclsysGetCANNVersion");
    if (!version_p || package != NGD_ACL_PACKAGE_CANN)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "the version of package %d", package);
    memset(version_p, 0, sizeof(*version_p));
    snprintf(version_p->version, sizeof(version_p->version), "%d.%d.RC1", cann / 10, cann % 10);
    snprintf(version_p->major, sizeof(version_p->major), "%d", cann / 10);
    snprintf(version_p->minor, sizeof(version_p->minor), "%d", cann % 10);
    return 0;
}

const char *aclrtGetSocName(void)
{
    return sim.config.soc;
}

ngd_acl_error_t aclrtGetRunMode(int *mode_p)
{
    SIM_CALL("aclrtGetRunMode");
    if (!mode_p)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "nowhere to put the mode");
    *mode_p = NGD_ACL_RUN_HOST;
    return 0;
}

/* Tasks are numbered, and a thread can ask for the number of the last one that it queued. */
uint32_t sim_next_task_id(void)
{
    static uint32_t next;

    last_task = ++next;
    return last_task;
}

SIM_OPTIONAL(aclrtGetThreadLastTaskId);
static ngd_acl_error_t aclrtGetThreadLastTaskId_impl(uint32_t *task_p)
{
    SIM_CALL("aclrtGetThreadLastTaskId");
    if (!task_p)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "nowhere to put the number");
    *task_p = last_task;
    return 0;
}

/* ---- devices ------------------------------------------------------------------------------------- */

static int check_device_number(int32_t device)
{
    if (device < 0 || device >= sim.config.devices)
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_DEVICEID, "the same", "device %d of %d does not exist", device,
                               sim.config.devices);
    return sim_device_state(device);
}

int sim_device_state(int device)
{
    if (sim.device[device].lost)
        return ngd_aclsim_fail(NGD_ACL_RT_LOST_HEARTBEAT, "the same, until it is reset", "device %d does not answer",
                               device);
    return 0;
}

bool ngd_aclsim_break(int device, const char *how)
{
    struct sim_device *d = &sim.device[device >= 0 && device < SIM_MAX_DEVICES ? device : 0];

    pthread_mutex_lock(&sim.lock);
    d->lost = strcmp(how, "lost") == 0;
    d->hang = strcmp(how, "hang") == 0;
    d->fault = strcmp(how, "fault") == 0;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
    return d->lost || d->hang || d->fault || strcmp(how, "ok") == 0;
}

ngd_acl_error_t aclrtGetDeviceCount(uint32_t *count_p)
{
    SIM_CALL("aclrtGetDeviceCount");
    return sim_visible_devices(count_p);
}

SIM_OPTIONAL(aclrtGetDeviceInfo);
static ngd_acl_error_t aclrtGetDeviceInfo_impl(uint32_t device, int attribute, int64_t *value_p)
{
    SIM_CALL("aclrtGetDeviceInfo");
    if (check_device_number((int32_t)device))
        return NGD_ACL_RT_INVALID_DEVICEID;
    if (attribute == NGD_ACL_ATTR_CUBE_CORES)
        *value_p = 24;
    else if (attribute == NGD_ACL_ATTR_VECTOR_CORES)
        *value_p = 48;
    else
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "knows more attributes", "attribute %d", attribute);
    return 0;
}

static struct sim_context *context_new(int device)
{
    struct sim_context *ctx = calloc(1, sizeof(*ctx));

    if (!ctx)
        return NULL;
    ctx->device = device;
    ctx->next = sim.contexts;
    sim.contexts = ctx;
    sim_handle_add(ctx, SIM_CONTEXT);
    ngd_aclsim_live(SIM_LIVE_CONTEXTS, 1);
    return ctx;
}

ngd_acl_error_t aclrtSetDevice(int32_t device)
{
    int code;

    SIM_CALL("aclrtSetDevice");
    pthread_mutex_lock(&sim.lock);
    code = check_device_number(device);
    if (code == 0) {
        struct sim_device *d = &sim.device[device];

        if (!d->primary)
            d->primary = context_new(device);
        d->set_count++;
        current = d->primary;
    }
    return sim_unlock(code);
}

static void drop_contexts_of(int device)
{
    for (struct sim_context *c = sim.contexts, *next; c; c = next) {
        next = c->next;
        if (c->device == device) {
            sim_context_destroy_locked(c);
            next = sim.contexts; /* the lock was given away meanwhile */
        }
    }
    sim.device[device].primary = NULL;
    sim.device[device].set_count = 0;
}

ngd_acl_error_t aclrtResetDevice(int32_t device)
{
    SIM_RELEASE("aclrtResetDevice");
    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && device < sim.config.devices && sim.device[device].set_count > 0 &&
        --sim.device[device].set_count == 0) {
        if (sim.device[device].primary)
            sim_context_destroy_locked(sim.device[device].primary);
        sim.device[device].primary = NULL;
    }
    pthread_mutex_unlock(&sim.lock);
    return SIM_RELEASED;
}

ngd_acl_error_t aclrtResetDeviceForce(int32_t device)
{
    SIM_RELEASE("aclrtResetDeviceForce");
    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && device < sim.config.devices) {
        drop_contexts_of(device);
        sim.device[device].lost = sim.device[device].hang = sim.device[device].fault = false;
        sim_memory_release_device(device);
    }
    pthread_mutex_unlock(&sim.lock);
    return SIM_RELEASED;
}

ngd_acl_error_t aclrtGetDevice(int32_t *device_p)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtGetDevice");
    ctx = sim_lock_context(&code);
    if (ctx)
        *device_p = ctx->device;
    return sim_unlock(code);
}

/* ---- contexts ------------------------------------------------------------------------------------ */

struct sim_context *sim_current(int *code_p)
{
    if (!current || !sim_handle_is(current, SIM_CONTEXT)) {
        *code_p = ngd_aclsim_fail(NGD_ACL_RT_CONTEXT_NULL, "the same", "this thread has no current context");
        return NULL;
    }
    *code_p = sim_device_state(current->device);
    return *code_p ? NULL : current;
}

ngd_acl_error_t aclrtCreateContext(void **context_p, int32_t device)
{
    struct sim_context *ctx = NULL;
    int code;

    SIM_CALL("aclrtCreateContext");
    pthread_mutex_lock(&sim.lock);
    code = check_device_number(device);
    if (code == 0)
        ctx = context_new(device);
    if (ctx) {
        /* The context's default stream is one of the device's streams. */
        code = sim_stream_create(ctx, &ctx->default_stream);
        if (code)
            sim_context_destroy_locked(ctx);
        else
            ctx->default_stream->is_default = true;
    }
    if (code == 0) {
        current = ctx;
        *context_p = ctx;
    }
    return sim_unlock(code);
}

void sim_context_destroy_locked(struct sim_context *ctx)
{
    struct sim_context **at = &sim.contexts;

    sim_handle_remove(ctx);
    while (*at && *at != ctx)
        at = &(*at)->next;
    if (*at)
        *at = ctx->next;
    while (ctx->streams)
        sim_stream_destroy_locked(ctx->streams);
    while (ctx->models) {
        struct sim_model *m = ctx->models;

        ctx->models = m->next;
        m->ctx = NULL;
        sim_handle_remove(m);
        sim_model_put(m);
    }
    ngd_aclsim_live(SIM_LIVE_CONTEXTS, -1);
    free(ctx);
}

ngd_acl_error_t aclrtDestroyContext(void *context)
{
    int code = 0;

    SIM_RELEASE("aclrtDestroyContext");
    pthread_mutex_lock(&sim.lock);
    if (sim_handle_is(context, SIM_CONTEXT))
        sim_context_destroy_locked(context);
    else
        code = ngd_aclsim_fail(NGD_ACL_RT_CONTEXT_NULL, "crashes or the same", "the context is not alive");
    if (current == context)
        current = NULL;
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}

ngd_acl_error_t aclrtSetCurrentContext(void *context)
{
    int code = 0;

    SIM_CALL("aclrtSetCurrentContext");
    pthread_mutex_lock(&sim.lock);
    if (sim_handle_is(context, SIM_CONTEXT))
        current = context;
    else
        code = ngd_aclsim_fail(NGD_ACL_RT_CONTEXT_NULL, "crashes or the same", "the context is not alive");
    return sim_unlock(code);
}

ngd_acl_error_t aclrtGetCurrentContext(void **context_p)
{
    int code;

    SIM_CALL("aclrtGetCurrentContext");
    pthread_mutex_lock(&sim.lock);
    *context_p = sim_current(&code);
    return sim_unlock(code);
}
