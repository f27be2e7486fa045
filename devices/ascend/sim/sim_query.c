/* SPDX-License-Identifier: Apache-2.0 */
/* What a program asks about the installation and its devices, and the limits it sets to itself. */
#include "devices/ascend/sim/sim_op.h"
#include <stdio.h>
#include <stdlib.h>

#define CUBE_CORES      24
#define VECTOR_CORES    48
#define LEAST_PRIORITY  7
#define NOT_AVAILABLE   (-1)
#define VERSION_ROOM    128 /* the least that a program's buffer has: ACL_PKG_VERSION_MAX_SIZE */
#define ERROR_INFO_HEAD 4   /* tryRepair, hasDetail, two reserved; then a 32-bit kind of error */
#define KIND_NONE       0
#define KIND_OTHERS     0xFFFF

/* ---- packages and types -------------------------------------------------------------------------- */

static int check_package(const char *package, const void *out)
{
    if (!package || !out)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "no package, or nowhere to put its version");
    if (strcmp(package, "runtime") != 0)
        return ngd_aclsim_fail(NGD_ACL_INVALID_FILE, NULL, "package \"%.64s\" is not installed", package);
    return 0;
}

SIM_OPTIONAL(aclsysGetVersionStr);
static ngd_acl_error_t aclsysGetVersionStr_impl(char *package, char *version)
{
    int code;

    SIM_CALL("aclsysGetVersionStr");
    code = check_package(package, version);
    if (code == 0)
        snprintf(version, VERSION_ROOM, "9.1.0");
    return code;
}

SIM_OPTIONAL(aclsysGetVersionNum);
static ngd_acl_error_t aclsysGetVersionNum_impl(char *package, int32_t *version_p)
{
    int code;

    SIM_CALL("aclsysGetVersionNum");
    code = check_package(package, version_p);
    if (code == 0)
        *version_p = 90100000;
    return code;
}

size_t aclDataTypeSize(int dtype)
{
    return sim_size(dtype);
}

float aclFloat16ToFloat(uint16_t value)
{
    return sim_from_f16(value);
}

uint16_t aclFloatToFloat16(float value)
{
    return sim_to_f16(value);
}

struct buffer {
    void *data;
    size_t bytes;
};

void *aclCreateDataBuffer(void *data, size_t bytes)
{
    struct buffer *buffer = malloc(sizeof(*buffer));

    if (buffer)
        *buffer = (struct buffer){data, bytes};
    return buffer;
}

ngd_acl_error_t aclDestroyDataBuffer(const void *buffer)
{
    SIM_RELEASE("aclDestroyDataBuffer");
    if (!buffer)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "no buffer");
    free((void *)(uintptr_t)buffer);
    return SIM_RELEASED;
}

void *aclGetDataBufferAddr(const void *buffer)
{
    return buffer ? ((const struct buffer *)buffer)->data : NULL;
}

/* ---- devices ------------------------------------------------------------------------------------- */

static int enter_device(int32_t device, const void *out)
{
    if (!out)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "nowhere to put the answer");
    if (device < 0 || device >= sim.config.devices)
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_DEVICEID, "the same", "device %d of %d does not exist", device,
                               sim.config.devices);
    return 0;
}

SIM_OPTIONAL(aclrtGetErrorVerbose);
static ngd_acl_error_t aclrtGetErrorVerbose_impl(int32_t device, void *info)
{
    uint32_t kind;
    int code;

    SIM_CALL("aclrtGetErrorVerbose");
    code = enter_device(device, info);
    if (code)
        return code;
    memset(info, 0, ERROR_INFO_HEAD);
    pthread_mutex_lock(&sim.lock);
    kind = sim.device[device].lost ? KIND_OTHERS : KIND_NONE;
    pthread_mutex_unlock(&sim.lock);
    memcpy((char *)info + ERROR_INFO_HEAD, &kind, sizeof(kind));
    return 0;
}

ngd_acl_error_t aclrtQueryDeviceStatus(int32_t device, int *status_p)
{
    int code;

    SIM_CALL("aclrtQueryDeviceStatus");
    code = enter_device(device, status_p);
    if (code)
        return code;
    pthread_mutex_lock(&sim.lock);
    *status_p = sim.device[device].lost;
    pthread_mutex_unlock(&sim.lock);
    return 0;
}

ngd_acl_error_t aclrtGetDeviceUtilizationRate(int32_t device, struct ngd_acl_utilization *rates)
{
    int code;

    SIM_CALL("aclrtGetDeviceUtilizationRate");
    code = enter_device(device, rates);
    if (code)
        return code;
    if (rates->extend)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "utilizationExtend is not NULL");
    rates->cube = rates->vector = rates->aicpu = 0;
    rates->memory = NOT_AVAILABLE;
    return 0;
}

SIM_OPTIONAL(aclrtDeviceGetStreamPriorityRange);
static ngd_acl_error_t aclrtDeviceGetStreamPriorityRange_impl(int32_t *least_p, int32_t *greatest_p)
{
    SIM_CALL("aclrtDeviceGetStreamPriorityRange");
    if (least_p)
        *least_p = LEAST_PRIORITY;
    if (greatest_p)
        *greatest_p = 0;
    return 0;
}

/* ---- limits of cores ----------------------------------------------------------------------------- */

/* Whose limits this thread's first phases have; with the lock held it may be looked at. */
static _Thread_local struct sim_stream *limits_of;

static uint32_t cores_of(int device, int type)
{
    uint32_t all = type ? VECTOR_CORES : CUBE_CORES, limit = sim.device[device].core_limit[type];

    if (limits_of && sim_handle_is(limits_of, SIM_STREAM) && limits_of->core_limit[type])
        return limits_of->core_limit[type];
    return limit ? limit : all;
}

static int check_limit_type(int type)
{
    if (type == 0 || type == 1)
        return 0;
    return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "kind %d of cores", type);
}

SIM_OPTIONAL(aclrtGetDeviceResLimit);
static ngd_acl_error_t aclrtGetDeviceResLimit_impl(int32_t device, int type, uint32_t *value_p)
{
    int code;

    SIM_CALL("aclrtGetDeviceResLimit");
    code = enter_device(device, value_p);
    if (code == 0)
        code = check_limit_type(type);
    if (code)
        return code;
    pthread_mutex_lock(&sim.lock);
    *value_p = cores_of(device, type);
    pthread_mutex_unlock(&sim.lock);
    return 0;
}

SIM_OPTIONAL(aclrtSetDeviceResLimit);
static ngd_acl_error_t aclrtSetDeviceResLimit_impl(int32_t device, int type, uint32_t value)
{
    int code;

    SIM_CALL("aclrtSetDeviceResLimit");
    code = enter_device(device, &value);
    if (code == 0)
        code = check_limit_type(type);
    if (code == 0 && (value == 0 || value > (type ? VECTOR_CORES : CUBE_CORES)))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%u cores of kind %d", value, type);
    if (code)
        return code;
    pthread_mutex_lock(&sim.lock);
    sim.device[device].core_limit[type] = value;
    pthread_mutex_unlock(&sim.lock);
    return 0;
}

SIM_OPTIONAL(aclrtResetDeviceResLimit);
static ngd_acl_error_t aclrtResetDeviceResLimit_impl(int32_t device)
{
    int code;

    SIM_CALL("aclrtResetDeviceResLimit");
    code = enter_device(device, &code);
    if (code)
        return code;
    pthread_mutex_lock(&sim.lock);
    memset(sim.device[device].core_limit, 0, sizeof(sim.device[device].core_limit));
    pthread_mutex_unlock(&sim.lock);
    return 0;
}

/* Of a stream: what operators get is that of the thread, which has to use it. */
SIM_OPTIONAL(aclrtSetStreamResLimit);
static ngd_acl_error_t aclrtSetStreamResLimit_impl(void *stream, int type, uint32_t value)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtSetStreamResLimit");
    code = check_limit_type(type);
    if (code == 0 && (value == 0 || value > (type ? VECTOR_CORES : CUBE_CORES)))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a limit of %u cores", value);
    if (code)
        return code;
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        s->core_limit[type] = value;
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtResetStreamResLimit);
static ngd_acl_error_t aclrtResetStreamResLimit_impl(void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtResetStreamResLimit");
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        memset(s->core_limit, 0, sizeof(s->core_limit));
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtUseStreamResInCurrentThread);
static ngd_acl_error_t aclrtUseStreamResInCurrentThread_impl(void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtUseStreamResInCurrentThread");
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        limits_of = s;
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtUnuseStreamResInCurrentThread);
static ngd_acl_error_t aclrtUnuseStreamResInCurrentThread_impl(void *stream)
{
    SIM_RELEASE("aclrtUnuseStreamResInCurrentThread");
    if (limits_of != stream)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the thread uses another stream's limits");
    limits_of = NULL;
    return SIM_RELEASED;
}

void ngd_aclsim_note_limits(void)
{
    pthread_mutex_lock(&sim.lock);
    if (limits_of && sim_handle_is(limits_of, SIM_STREAM) && (limits_of->core_limit[0] || limits_of->core_limit[1]))
        atomic_fetch_add(&sim_limited, 1);
    pthread_mutex_unlock(&sim.lock);
}

SIM_OPTIONAL(aclrtGetResInCurrentThread);
static ngd_acl_error_t aclrtGetResInCurrentThread_impl(int type, uint32_t *value_p)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtGetResInCurrentThread");
    code = check_limit_type(type);
    if (code)
        return code;
    ctx = sim_lock_context(&code);
    if (ctx)
        *value_p = cores_of(ctx->device, type);
    return sim_unlock(code);
}

/* ---- memory of other devices --------------------------------------------------------------------- */

ngd_acl_error_t aclrtDeviceCanAccessPeer(int32_t *can_p, int32_t device, int32_t peer)
{
    int code;

    SIM_CALL("aclrtDeviceCanAccessPeer");
    code = enter_device(device, can_p);
    if (code == 0)
        code = enter_device(peer, can_p);
    if (code == 0 && device == peer)
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "device %d is its own peer", device);
    if (code == 0)
        *can_p = 1;
    return code;
}

static int set_peer(int32_t peer, bool on)
{
    struct sim_context *ctx;
    int code = enter_device(peer, &sim);

    if (code)
        return code;
    ctx = sim_lock_context(&code);
    if (ctx && ctx->device == peer)
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "device %d is its own peer", peer);
    else if (ctx && on)
        sim.device[ctx->device].peers |= 1u << peer;
    else if (ctx)
        sim.device[ctx->device].peers &= ~(1u << peer);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags)
{
    SIM_CALL("aclrtDeviceEnablePeerAccess");
    if (flags)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "flags 0x%x of a peer", flags);
    return set_peer(peer, true);
}

ngd_acl_error_t aclrtDeviceDisablePeerAccess(int32_t peer)
{
    SIM_RELEASE("aclrtDeviceDisablePeerAccess");
    return SIM_RELEASED ? SIM_RELEASED : set_peer(peer, false);
}
