/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: how they come to be, and the calls that name one. What runs on streams is in sim_hccl_run.c. */
#include "devices/ascend/sim/sim_hccl.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t joined = PTHREAD_COND_INITIALIZER;
static struct hccl_comm *comms;
static struct hccl_group *forming[16]; /* groups whose ranks have not all come */
static int next_key = 1;

/* ---- groups -------------------------------------------------------------------------------------- */

static struct hccl_group *rank_group_new(uint32_t n, int key)
{
    struct hccl_group *g = calloc(1, sizeof(*g));

    if (!g)
        abort();
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->n = n;
    g->key = key;
    snprintf(g->name, sizeof(g->name), "sim_group_%d", key);
    return g;
}

static void group_unref(struct hccl_group *g)
{
    if (atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void hccl_comm_unref(struct hccl_comm *comm)
{
    if (atomic_fetch_sub(&comm->refs, 1) != 1)
        return;
    group_unref(comm->group);
    if (comm->fd >= 0)
        close(comm->fd);
    free(comm);
}

/* With the lock held. Its buffers are the device's. */
static int rank_comm_new(struct hccl_group *g, uint32_t rank, int device, struct hccl_comm **comm_p)
{
    struct hccl_comm *comm;

    if (!ngd_aclsim_take_bytes(device, ngd_aclsim_setting("hccl_buffer")))
        return ngd_aclsim_fail(NGD_HCCL_E_MEMORY, "the same", "device %d has no memory for a communicator's buffers",
                               device);
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        abort();
    comm->group = g;
    comm->rank = rank;
    comm->device = device;
    comm->fd = -1;
    atomic_init(&comm->refs, 1);
    atomic_fetch_add(&g->refs, 1);
    g->joined++;
    comm->next = comms;
    comms = comm;
    *comm_p = comm;
    return 0;
}

static void unlink_comm(struct hccl_comm *comm)
{
    struct hccl_comm **at = &comms;

    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    atomic_store(&comm->gone, true);
    if (comm->fd >= 0)
        shutdown(comm->fd, SHUT_RDWR);
    ngd_aclsim_give_bytes(comm->device, ngd_aclsim_setting("hccl_buffer"));
    hccl_comm_unref(comm);
}

/* A reference, or NULL and an error. */
static struct hccl_comm *get_comm(void *handle, int *code_p)
{
    struct hccl_comm *comm;

    pthread_mutex_lock(&lock);
    for (comm = comms; comm && comm != handle; comm = comm->next)
        ;
    if (comm)
        atomic_fetch_add(&comm->refs, 1);
    pthread_mutex_unlock(&lock);
    *code_p = comm     ? 0
              : handle ? ngd_aclsim_fail(NGD_HCCL_E_PARA, "crashes or the same", "%p is no living communicator", handle)
                       : ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "the communicator is NULL");
    return comm;
}

/* ---- all ranks of one thread --------------------------------------------------------------------- */

static int check_rank_devices(uint32_t n, const int32_t *devices)
{
    uint32_t count = 0;

    if (n == 0 || n > HCCL_MAX_RANKS || aclrtGetDeviceCount(&count))
        return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "a group of %u devices", n);
    for (uint32_t i = 0; i < n; i++) {
        if (devices[i] < 0 || (uint32_t)devices[i] >= count)
            return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "there is no device %d", devices[i]);
        for (uint32_t k = 0; k < i; k++)
            if (devices[i] == devices[k])
                return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "device %d is twice in a group", devices[i]);
    }
    return 0;
}

ngd_acl_error_t HcclCommInitAll(uint32_t n, int32_t *devices, void **comms_p)
{
    struct hccl_group *g;
    uint32_t i = 0;
    int code;

    SIM_CALL("HcclCommInitAll");
    if (!devices || !comms_p)
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "no devices, or no room for communicators");
    code = check_rank_devices(n, devices);
    if (code)
        return code;
    pthread_mutex_lock(&lock);
    g = rank_group_new(n, next_key++);
    atomic_init(&g->refs, 1);
    for (; i < n && !code; i++)
        code = rank_comm_new(g, i, devices[i], (struct hccl_comm **)&comms_p[i]);
    if (code) {
        for (uint32_t k = 0; k + 1 < i; k++) {
            unlink_comm(comms_p[k]);
            comms_p[k] = NULL;
        }
    }
    group_unref(g);
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- one rank for each thread, which meet -------------------------------------------------------- */

ngd_acl_error_t HcclGetRootInfo(void *info)
{
    int key;

    SIM_CALL("HcclGetRootInfo");
    if (!info)
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "no room for the root information");
    memset(info, 0, NGD_HCCL_ROOT_BYTES);
    pthread_mutex_lock(&lock);
    key = next_key++;
    pthread_mutex_unlock(&lock);
    return hccl_root_open(key, info, NGD_HCCL_ROOT_BYTES);
}

static struct hccl_group *find_forming(uint32_t n, int key)
{
    size_t room = sizeof(forming) / sizeof(forming[0]), empty = room;

    for (size_t i = 0; i < room; i++) {
        if (forming[i] && forming[i]->key == key)
            return forming[i];
        if (!forming[i] && empty == room)
            empty = i;
    }
    if (empty == room)
        abort();
    forming[empty] = rank_group_new(n, key);
    atomic_init(&forming[empty]->refs, 1); /* the table's */
    return forming[empty];
}

static void end_forming(struct hccl_group *g)
{
    for (size_t i = 0; i < sizeof(forming) / sizeof(forming[0]); i++)
        if (forming[i] == g)
            forming[i] = NULL;
    group_unref(g);
}

void hccl_group_goes_out(int key)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof(forming) / sizeof(forming[0]); i++) {
        if (!forming[i] || forming[i]->key != key)
            continue;
        forming[i]->remote = true;
        pthread_cond_broadcast(&joined);
        end_forming(forming[i]);
        break;
    }
    pthread_mutex_unlock(&lock);
}

static struct timespec later(uint64_t milliseconds)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)(milliseconds / 1000);
    t.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* With the lock held: until all ranks have come. */
static int await_ranks(struct hccl_group *g, struct hccl_comm *comm)
{
    const uint32_t n = g->n;
    struct timespec until = later(ngd_aclsim_setting("hccl_connect_ms"));
    bool late = false;

    while (g->joined < g->n && !g->torn && !g->remote && !late)
        late = pthread_cond_timedwait(&joined, &lock, &until) == ETIMEDOUT;
    if (g->joined == g->n || g->remote)
        return 0;
    if (!g->torn) {
        g->torn = true; /* of those who wait too */
        end_forming(g);
        pthread_cond_broadcast(&joined);
    }
    unlink_comm(comm);
    return ngd_aclsim_fail(NGD_HCCL_E_TIMEOUT, "the same, after HCCL_CONNECT_TIMEOUT (120 s)",
                           "not all %u ranks came to make their communicators", n);
}

/* A communicator of a group that has ranks in other processes. */
static int join_outside(uint32_t n, int key, uint32_t rank, int device, struct hccl_comm **comm_p)
{
    struct hccl_group *g = rank_group_new(n, key);
    int code;

    g->remote = true;
    atomic_init(&g->refs, 1);
    pthread_mutex_lock(&lock);
    code = rank_comm_new(g, rank, device, comm_p);
    group_unref(g);
    pthread_mutex_unlock(&lock);
    return code;
}

/* A communicator of a group whose ranks are all of this process, or of one that turns out to have others. */
static int join_inside(uint32_t n, int key, uint32_t rank, int device, struct hccl_comm **comm_p)
{
    struct hccl_comm *comm = NULL;
    struct hccl_group *g;
    int code;

    pthread_mutex_lock(&lock);
    g = find_forming(n, key);
    for (struct hccl_comm *c = comms; c; c = c->next)
        if (c->group == g && (c->rank == rank || c->device == device))
            comm = c;
    if (comm || g->n != n) {
        code = ngd_aclsim_fail(NGD_HCCL_E_PARA, "hangs, or the same",
                               "rank %u or device %d has come already, or others "
                               "say %u ranks",
                               rank, device, g->n);
    } else {
        code = rank_comm_new(g, rank, device, &comm);
    }
    if (!code && g->joined == n) {
        end_forming(g);
        pthread_cond_broadcast(&joined);
        hccl_root_close(key);
    } else if (!code) {
        code = await_ranks(g, comm);
    }
    pthread_mutex_unlock(&lock);
    if (!code)
        *comm_p = comm;
    return code;
}

/* root: NULL if a file says who the ranks are. */
static int join_rank_group(uint32_t n, int key, const struct hccl_root *root, uint32_t rank, void **comm_p)
{
    const bool here = !root || hccl_root_is_here(root);
    struct hccl_comm *comm = NULL;
    int32_t device = 0;
    int code;

    if (n == 0 || n > HCCL_MAX_RANKS || rank >= n)
        return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "rank %u of %u", rank, n);
    if (aclrtGetDevice(&device))
        return ngd_aclsim_fail(NGD_HCCL_E_RUNTIME, "the same", "the thread has no device");
    code = here ? join_inside(n, key, rank, device, &comm) : join_outside(n, key, rank, device, &comm);
    if (!code && comm->group->remote) {
        code = hccl_net_join(comm, root);
        pthread_mutex_lock(&lock);
        if (code)
            unlink_comm(comm);
        pthread_mutex_unlock(&lock);
    }
    if (!code)
        *comm_p = comm;
    return code;
}

ngd_acl_error_t HcclCommInitRootInfo(uint32_t n, const void *info, uint32_t rank, void **comm_p)
{
    struct hccl_root root;
    int code;

    SIM_CALL("HcclCommInitRootInfo");
    if (!info || !comm_p)
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "no root information, or no room for the communicator");
    code = hccl_root_parse(info, &root);
    return code ? code : join_rank_group(n, root.key, &root, rank, comm_p);
}

/* Of a rank table: how many ranks it has, and the device of this one; -1: it has none. */
static int read_table(const json_t *table, uint32_t rank, uint32_t *n_p)
{
    json_t *server, *device;
    size_t i, k;
    int found = -1;

    *n_p = 0;
    json_array_foreach(json_object_get(table, "server_list"), i, server)
    {
        json_array_foreach(json_object_get(server, "device"), k, device)
        {
            const char *id = json_string_value(json_object_get(device, "device_id"));
            const char *of = json_string_value(json_object_get(device, "rank_id"));

            if (!id || !of)
                continue;
            ++*n_p;
            if (strtoul(of, NULL, 10) == rank)
                found = (int)strtol(id, NULL, 10);
        }
    }
    return found;
}

/* Ranks that name one file are one group. */
static int key_of_file(const char *path)
{
    uint32_t h = 2166136261u;

    for (const char *p = path; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return -(int)(h >> 1) - 1;
}

ngd_acl_error_t HcclCommInitClusterInfo(const char *path, uint32_t rank, void **comm_p)
{
    json_t *table;
    int32_t device = 0;
    uint32_t n = 0;
    int listed;

    SIM_CALL("HcclCommInitClusterInfo");
    if (!path || !comm_p)
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "no rank table, or no room for the communicator");
    table = json_load_file(path, 0, NULL);
    if (!table)
        return ngd_aclsim_fail(NGD_HCCL_E_OPEN_FILE, "the same", "%.200s is no rank table", path);
    listed = read_table(table, rank, &n);
    json_decref(table);
    if (listed < 0 || aclrtGetDevice(&device) || device != listed)
        return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "rank %u is not in %.200s, or on device %d, not %d", rank,
                               path, listed, (int)device);
    return join_rank_group(n, key_of_file(path), NULL, rank, comm_p);
}

ngd_acl_error_t HcclCommDestroy(void *handle)
{
    struct hccl_comm *comm;
    int code;

    SIM_RELEASE("HcclCommDestroy");
    comm = get_comm(handle, &code);
    if (!comm)
        return code;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&comm->gone))
        unlink_comm(comm);
    pthread_mutex_unlock(&lock);
    hccl_comm_unref(comm);
    return SIM_RELEASED;
}

/* ---- asking -------------------------------------------------------------------------------------- */

#define ASK(name, room, statement)                                                   \
    struct hccl_comm *comm;                                                          \
    int code;                                                                        \
    SIM_CALL(name);                                                                  \
    if (!(room))                                                                     \
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "no room for an answer"); \
    comm = get_comm(handle, &code);                                                  \
    if (!comm)                                                                       \
        return code;                                                                 \
    statement;                                                                       \
    hccl_comm_unref(comm);                                                           \
    return 0

ngd_acl_error_t HcclGetCommName(void *handle, char *name)
{
    ASK("HcclGetCommName", name, memcpy(name, comm->group->name, sizeof(comm->group->name)));
}

ngd_acl_error_t HcclGetRankSize(void *handle, uint32_t *n_p)
{
    ASK("HcclGetRankSize", n_p, *n_p = comm->group->n);
}

ngd_acl_error_t HcclGetRankId(void *handle, uint32_t *rank_p)
{
    ASK("HcclGetRankId", rank_p, *rank_p = comm->rank);
}

ngd_acl_error_t HcclGetCommAsyncError(void *handle, int *error_p)
{
    ASK("HcclGetCommAsyncError", error_p, *error_p = atomic_load(&comm->async_error));
}

const char *HcclGetErrorString(int code)
{
    static const char *const texts[] = {
        "no error",
        "parameter error",
        "empty pointer",
        "memory error",
        "internal error",
        "not support",
        "not found",
        "resource unavailable",
        "call system interface error",
        "timeout",
        "open file fail",
        "tcp connect fail",
        "roce connect fail",
        "tcp transfer fail",
        "roce transfer fail",
        "call runtime api fail",
        "call driver api fail",
        "call profiling api fail",
        "call cce api fail",
        "call network api fail",
        "operation to be retried",
        "remote error",
    };

    return code >= 0 && (size_t)code < sizeof(texts) / sizeof(texts[0]) ? texts[code] : "unknown error";
}

/* ---- collectives --------------------------------------------------------------------------------- */

static int check_collective_data(const char *name, int dtype, const void *send, const void *recv, uint64_t count)
{
    if (!hccl_size(dtype))
        return ngd_aclsim_fail(NGD_HCCL_E_NOT_SUPPORT, "the same", "%s of data type %d", name, dtype);
    if (count && (!send || !recv))
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "%s without a buffer", name);
    return 0;
}

/* What an A2 reduces: of its types, products of no bf16 and no i16. */
static int check_reduce(const char *name, int dtype, int reduce)
{
    static const int types[] = {NGD_HCCL_INT8, NGD_HCCL_INT16, NGD_HCCL_INT32, NGD_HCCL_INT64,
                                NGD_HCCL_FP16, NGD_HCCL_FP32,  NGD_HCCL_BFP16};
    bool known = false;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        known |= types[i] == dtype;
    if (reduce < NGD_HCCL_SUM || reduce > NGD_HCCL_MIN)
        return ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "%s with reduction %d", name, reduce);
    if (!known || (reduce == NGD_HCCL_PROD && (dtype == NGD_HCCL_BFP16 || dtype == NGD_HCCL_INT16)))
        return ngd_aclsim_fail(NGD_HCCL_E_NOT_SUPPORT, "the same", "%s with reduction %d of data type %d", name, reduce,
                               dtype);
    return 0;
}

static int queue_collective(const char *name, void *handle, struct hccl_op op, void *stream)
{
    struct hccl_comm *comm;
    int code;

    comm = get_comm(handle, &code);
    if (!comm) {
        free(op.sends);
        return code;
    }
    if (op.root >= comm->group->n) {
        free(op.sends);
        code = ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "%s: there is no rank %u", name, op.root);
    } else {
        code = hccl_launch(name, comm, &op, stream);
    }
    hccl_comm_unref(comm);
    return code;
}

static int run_reduction(const char *name, void *comm, struct hccl_op op, void *stream)
{
    int code = check_collective_data(name, op.dtype, op.send, op.recv, op.count);

    if (!code)
        code = check_reduce(name, op.dtype, op.reduce);
    return code ? code : queue_collective(name, comm, op, stream);
}

ngd_acl_error_t HcclAllReduce(void *send, void *recv, uint64_t count, int dtype, int reduce, void *comm, void *stream)
{
    SIM_CALL("HcclAllReduce");
    return run_reduction(
        "HcclAllReduce", comm,
        (struct hccl_op){
            .kind = HCCL_ALL_REDUCE, .dtype = dtype, .reduce = reduce, .count = count, .send = send, .recv = recv},
        stream);
}

ngd_acl_error_t HcclAllGather(void *send, void *recv, uint64_t count, int dtype, void *comm, void *stream)
{
    int code;

    SIM_CALL("HcclAllGather");
    code = check_collective_data("HcclAllGather", dtype, send, recv, count);
    return code ? code
                : queue_collective(
                      "HcclAllGather", comm,
                      (struct hccl_op){
                          .kind = HCCL_ALL_GATHER, .dtype = dtype, .count = count, .send = send, .recv = recv},
                      stream);
}

ngd_acl_error_t HcclReduceScatter(void *send, void *recv, uint64_t count, int dtype, int reduce, void *comm,
                                  void *stream)
{
    SIM_CALL("HcclReduceScatter");
    return run_reduction(
        "HcclReduceScatter", comm,
        (struct hccl_op){
            .kind = HCCL_REDUCE_SCATTER, .dtype = dtype, .reduce = reduce, .count = count, .send = send, .recv = recv},
        stream);
}

ngd_acl_error_t HcclBroadcast(void *buffer, uint64_t count, int dtype, uint32_t root, void *comm, void *stream)
{
    int code;

    SIM_CALL("HcclBroadcast");
    code = check_collective_data("HcclBroadcast", dtype, buffer, buffer, count);
    return code ? code
                : queue_collective("HcclBroadcast", comm,
                                   (struct hccl_op){.kind = HCCL_BROADCAST,
                                                    .dtype = dtype,
                                                    .count = count,
                                                    .root = root,
                                                    .send = buffer,
                                                    .recv = buffer},
                                   stream);
}

/* Room for four numbers of each rank, in one block. */
static void make_lists(struct hccl_op *op, uint32_t n)
{
    op->sends = calloc(4 * (size_t)n, sizeof(uint64_t));
    if (!op->sends)
        abort();
    op->send_at = op->sends + n;
    op->receives = op->send_at + n;
    op->receive_at = op->receives + n;
}

ngd_acl_error_t HcclAlltoAllV(const void *send, const void *sends, const void *send_at, int send_dtype,
                              const void *recv, const void *receives, const void *receive_at, int recv_dtype,
                              void *comm, void *stream)
{
    struct hccl_op op = {.kind = HCCL_ALL_TO_ALL, .dtype = send_dtype, .send = send, .recv = (void *)(uintptr_t)recv};
    uint32_t n = 0;
    size_t bytes;
    int code;

    SIM_CALL("HcclAlltoAllV");
    if (!sends || !send_at || !receives || !receive_at)
        return ngd_aclsim_fail(NGD_HCCL_E_PTR, "the same", "HcclAlltoAllV without its lists");
    code = check_collective_data("HcclAlltoAllV", send_dtype, send, recv, 0);
    if (!code && send_dtype != recv_dtype)
        code = ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "HcclAlltoAllV of data types %d and %d", send_dtype,
                               recv_dtype);
    if (!code)
        code = HcclGetRankSize(comm, &n);
    if (code)
        return code;
    make_lists(&op, n);
    bytes = n * sizeof(uint64_t);
    memcpy(op.sends, sends, bytes);
    memcpy(op.send_at, send_at, bytes);
    memcpy(op.receives, receives, bytes);
    memcpy(op.receive_at, receive_at, bytes);
    return queue_collective("HcclAlltoAllV", comm, op, stream);
}

ngd_acl_error_t HcclAlltoAll(const void *send, uint64_t send_count, int send_dtype, const void *recv,
                             uint64_t recv_count, int recv_dtype, void *comm, void *stream)
{
    struct hccl_op op = {.kind = HCCL_ALL_TO_ALL, .dtype = send_dtype, .send = send, .recv = (void *)(uintptr_t)recv};
    uint32_t n = 0;
    int code;

    SIM_CALL("HcclAlltoAll");
    code = check_collective_data("HcclAlltoAll", send_dtype, send, recv, send_count);
    if (!code && (send_dtype != recv_dtype || send_count != recv_count))
        code = ngd_aclsim_fail(NGD_HCCL_E_PARA, "the same", "HcclAlltoAll sends and receives different amounts");
    if (!code)
        code = HcclGetRankSize(comm, &n);
    if (code)
        return code;
    make_lists(&op, n);
    for (uint32_t i = 0; i < n; i++) {
        op.sends[i] = op.receives[i] = send_count;
        op.send_at[i] = op.receive_at[i] = i * send_count;
    }
    return queue_collective("HcclAlltoAll", comm, op, stream);
}

ngd_acl_error_t HcclBarrier(void *comm, void *stream)
{
    SIM_CALL("HcclBarrier");
    return queue_collective("HcclBarrier", comm, (struct hccl_op){.kind = HCCL_BARRIER, .dtype = NGD_HCCL_INT8},
                            stream);
}
