/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory, pinned host memory, copies.
 *
 * A block of device memory is 128-byte aligned, as programs rely on that run on devices (get_alignment of ggml-cann.cpp
 * in llama.cpp; documents promise 64), and has 32 bytes more than asked for, as aclrtMalloc gives on A2 and A3; fresh
 * memory is filled with a pattern, because a device's is not zero either. Blocks are kept sorted by address, so that
 * the operands of every kernel and copy can be checked when it runs: memory that was freed after a capture is found
 * there.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <stdlib.h>
#include <string.h>

#define PATTERN           0xCB
#define PATTERN_BYTES     ((uint64_t)1 << 20) /* of each block: filling more takes long and finds nothing more */
#define PAD               32
#define ALIGNMENT         128
#define LENIENT_ALIGNMENT 512
#define LINGER_BLOCKS     4096
#define LINGER_BYTES      ((uint64_t)256 << 20)

struct block {
    uintptr_t begin; /* as the program sees it */
    uint64_t bytes, counted;
    int device; /* -1: pinned host memory */
    void *mem;
    struct sim_physical *physical; /* that is mapped there (sim_mapping.c); NULL: none, the memory is the block's */
    bool freed;                    /* and still reached, as lenient devices let it be */
};

static struct block *blocks;
static size_t n_blocks, room;
static pthread_rwlock_t blocks_lock = PTHREAD_RWLOCK_INITIALIZER;

/* First block that begins above addr. */
static size_t above(uintptr_t addr)
{
    size_t lo = 0, hi = n_blocks;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (blocks[mid].begin <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool insert_block(struct block b)
{
    size_t at;

    if (n_blocks == room) {
        size_t n = room ? room * 2 : 64;
        struct block *p = realloc(blocks, n * sizeof(*p));

        if (!p)
            return false;
        blocks = p;
        room = n;
    }
    at = above(b.begin);
    memmove(&blocks[at + 1], &blocks[at], (n_blocks - at) * sizeof(*blocks));
    blocks[at] = b;
    n_blocks++;
    return true;
}

/* Takes out the block that begins at addr. */
static bool take_block(uintptr_t addr, bool pinned, bool freed, struct block *b_p)
{
    size_t at;
    bool found;

    pthread_rwlock_wrlock(&blocks_lock);
    at = above(addr);
    found = at > 0 && blocks[at - 1].begin == addr && (blocks[at - 1].device < 0) == pinned &&
            blocks[at - 1].freed == freed && !blocks[at - 1].physical;
    if (found) {
        *b_p = blocks[at - 1];
        memmove(&blocks[at - 1], &blocks[at], (n_blocks - at) * sizeof(*blocks));
        n_blocks--;
    }
    pthread_rwlock_unlock(&blocks_lock);
    return found;
}

/* What is mapped goes on in what is mapped behind it. */
static bool goes_on(const struct block *b)
{
    const struct block *next = b + 1;

    return b->physical && next < blocks + n_blocks && next->physical && next->begin == b->begin + b->bytes &&
           next->device == b->device;
}

static sim_space_t space_of(uintptr_t a, uint64_t bytes)
{
    size_t at = above(a);
    const struct block *b = at > 0 ? &blocks[at - 1] : NULL;

    if (!b || a - b->begin > b->bytes)
        return SIM_SPACE_NONE;
    while (bytes > b->begin + b->bytes - a) {
        if (!goes_on(b))
            return SIM_SPACE_NONE;
        bytes -= b->begin + b->bytes - a;
        a = (++b)->begin;
    }
    return b->device < 0 ? SIM_SPACE_PINNED : SIM_SPACE_DEVICE;
}

sim_space_t ngd_aclsim_space(const void *addr, uint64_t bytes)
{
    sim_space_t space;

    pthread_rwlock_rdlock(&blocks_lock);
    space = space_of((uintptr_t)addr, bytes);
    pthread_rwlock_unlock(&blocks_lock);
    return space;
}

void *ngd_aclsim_host(const void *device_addr)
{
    return (void *)((uintptr_t)device_addr - SIM_DEVICE_OFFSET);
}

/* ---- allocation ---------------------------------------------------------------------------------- */

bool sim_memory_take_bytes(int device, uint64_t bytes)
{
    struct sim_device *d = &sim.device[device];

    uint64_t all = sim.config.hbm > sim.config.taken ? sim.config.hbm - sim.config.taken : 0;

    if (bytes > all || d->bytes > all - bytes)
        return false;
    d->bytes += bytes;
    return true;
}

static void give_device_bytes(int device, uint64_t bytes)
{
    pthread_mutex_lock(&sim.lock);
    sim.device[device].bytes -= bytes;
    pthread_mutex_unlock(&sim.lock);
    ngd_aclsim_live(SIM_LIVE_BYTES, -(int64_t)bytes);
}

bool ngd_aclsim_take_bytes(int device, uint64_t bytes)
{
    bool ok;

    pthread_mutex_lock(&sim.lock);
    ok = sim_memory_take_bytes(device, bytes);
    pthread_mutex_unlock(&sim.lock);
    if (ok)
        ngd_aclsim_live(SIM_LIVE_BYTES, (int64_t)bytes);
    return ok;
}

void ngd_aclsim_give_bytes(int device, uint64_t bytes)
{
    give_device_bytes(device, bytes);
}

static int reserve_bytes(uint64_t bytes, int *device_p)
{
    struct sim_context *ctx;
    int code;

    ctx = sim_lock_context(&code);
    if (ctx && !sim_memory_take_bytes(ctx->device, bytes))
        code = ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, "the same",
                               "%llu bytes do not fit in device %d, which has %llu and gave %llu",
                               (unsigned long long)bytes, ctx->device, (unsigned long long)sim.config.hbm,
                               (unsigned long long)sim.device[ctx->device].bytes);
    if (ctx)
        *device_p = ctx->device;
    return sim_unlock(code);
}

ngd_acl_error_t aclrtMalloc(void **mem_p, size_t bytes, int policy)
{
    const size_t alignment = ngd_aclsim_lenient() ? LENIENT_ALIGNMENT : ALIGNMENT;
    struct block b = {0};
    bool ok;
    int code;

    SIM_CALL("aclrtMalloc");
    if (bytes == 0 || policy < 0 || bytes > SIZE_MAX - 2 * LENIENT_ALIGNMENT)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%zu bytes with policy %d", bytes, policy);
    b.bytes = ((bytes + 31) & ~(uint64_t)31) + PAD;
    b.counted = b.bytes;
    code = reserve_bytes(b.counted, &b.device);
    if (code)
        return code;
    b.mem = aligned_alloc(alignment, (b.bytes + alignment - 1) / alignment * alignment);
    if (b.mem) {
        memset(b.mem, PATTERN, b.bytes < PATTERN_BYTES ? b.bytes : PATTERN_BYTES);
        b.begin = (uintptr_t)b.mem + SIM_DEVICE_OFFSET;
    }
    pthread_rwlock_wrlock(&blocks_lock);
    ok = b.mem && insert_block(b);
    pthread_rwlock_unlock(&blocks_lock);
    ngd_aclsim_live(SIM_LIVE_BYTES, (int64_t)b.counted);
    if (!ok) {
        free(b.mem);
        give_device_bytes(b.device, b.counted);
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine has no %zu bytes", bytes);
    }
    *mem_p = (void *)b.begin;
    return 0;
}

/*
 * A device would go on with memory that was given to somebody else. Here that is the heap of the program, so what is
 * in use is kept until its user ends.
 */
struct sim_grave {
    struct sim_grave *next;
    struct block block;
};

static bool overlaps(const struct block *b, const void *addr, uint64_t bytes)
{
    return (uintptr_t)addr < b->begin + b->bytes && b->begin < (uintptr_t)addr + bytes;
}

static bool stream_uses(const struct sim_stream *s, const struct block *b)
{
    for (uint32_t i = 0; s->kernel && i < s->kernel->n_spans; i++)
        if (overlaps(b, s->kernel->spans[i].addr, s->kernel->spans[i].bytes))
            return true;
    return s->copy && (overlaps(b, s->copy->dst, s->copy->bytes) || overlaps(b, s->copy->src, s->copy->bytes));
}

static struct sim_stream *user_of(const struct block *b)
{
    for (struct sim_context *c = sim.contexts; c; c = c->next)
        for (struct sim_stream *s = c->streams; s; s = s->next)
            if (stream_uses(s, b))
                return s;
    return NULL;
}

static void bury_block(const struct block *b)
{
    struct sim_stream *s = user_of(b);
    struct sim_grave *grave;

    if (!s) {
        free(b->mem);
        return;
    }
    grave = malloc(sizeof(*grave));
    if (!grave)
        abort();
    *grave = (struct sim_grave){s->graves, *b};
    s->graves = grave;
}

/*
 * What was freed newly, when the simulator is lenient. aclrtFree does not wait for tasks that use the memory
 * (hicann/runtime 681ef76, page 11-01 of docs/zh/api_ref, line 612), and a device's tasks are over before somebody else
 * gets it: ggml-cann frees under its own queue. With sim.lock held.
 */
static struct {
    uintptr_t begin[LINGER_BLOCKS]; /* from oldest on, around the end */
    size_t oldest, n;
    uint64_t bytes;
} lingering;

static void drop_oldest(void)
{
    struct block b;

    if (take_block(lingering.begin[lingering.oldest], false, true, &b)) { /* else a reset took it */
        lingering.bytes -= b.bytes;
        bury_block(&b);
    }
    lingering.oldest = (lingering.oldest + 1) % LINGER_BLOCKS;
    lingering.n--;
}

static void linger_block(struct block b)
{
    bool ok;

    while (lingering.n == LINGER_BLOCKS || (lingering.n > 0 && lingering.bytes + b.bytes > LINGER_BYTES))
        drop_oldest();
    b.freed = true;
    b.counted = 0;
    pthread_rwlock_wrlock(&blocks_lock);
    ok = insert_block(b);
    pthread_rwlock_unlock(&blocks_lock);
    if (!ok) {
        bury_block(&b);
        return;
    }
    lingering.begin[(lingering.oldest + lingering.n++) % LINGER_BLOCKS] = b.begin;
    lingering.bytes += b.bytes;
}

void sim_memory_unbury(struct sim_stream *s)
{
    struct sim_grave *graves = s->graves;

    s->graves = NULL;
    while (graves) {
        struct sim_grave *next = graves->next;

        bury_block(&graves->block); /* another stream may use it too */
        free(graves);
        graves = next;
    }
}

ngd_acl_error_t aclrtFree(void *mem)
{
    struct block b;

    SIM_RELEASE("aclrtFree");
    if (!take_block((uintptr_t)mem, false, false, &b))
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or spoils its allocator",
                               "%p is not the begin of a block of device memory", mem);
    give_device_bytes(b.device, b.counted);
    pthread_mutex_lock(&sim.lock);
    if (ngd_aclsim_lenient())
        linger_block(b);
    else
        bury_block(&b);
    pthread_mutex_unlock(&sim.lock);
    return SIM_RELEASED;
}

ngd_acl_error_t aclrtMallocHost(void **mem_p, size_t bytes)
{
    struct block b = {.device = -1, .bytes = bytes, .counted = bytes};
    bool ok;

    SIM_CALL("aclrtMallocHost");
    if (bytes == 0)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "0 bytes");
    b.mem = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    b.begin = (uintptr_t)b.mem;
    pthread_rwlock_wrlock(&blocks_lock);
    ok = b.mem && insert_block(b);
    pthread_rwlock_unlock(&blocks_lock);
    if (!ok) {
        free(b.mem);
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine has no %zu bytes", bytes);
    }
    ngd_aclsim_live(SIM_LIVE_PINNED, (int64_t)bytes);
    *mem_p = b.mem;
    return 0;
}

ngd_acl_error_t aclrtFreeHost(void *mem)
{
    struct block b;

    SIM_RELEASE("aclrtFreeHost");
    if (!take_block((uintptr_t)mem, true, false, &b))
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%p is not pinned memory", mem);
    ngd_aclsim_live(SIM_LIVE_PINNED, -(int64_t)b.counted);
    free(b.mem);
    return SIM_RELEASED;
}

/* ---- blocks that are mapped ---------------------------------------------------------------------- */

bool sim_memory_map(uintptr_t begin, uint64_t bytes, int device, struct sim_physical *physical)
{
    bool ok;

    pthread_rwlock_wrlock(&blocks_lock);
    ok = insert_block((struct block){.begin = begin, .bytes = bytes, .device = device, .physical = physical});
    pthread_rwlock_unlock(&blocks_lock);
    return ok;
}

bool sim_memory_is_mapped(uintptr_t begin, uint64_t bytes)
{
    size_t at;
    bool is;

    pthread_rwlock_rdlock(&blocks_lock);
    at = above(begin + bytes - 1);
    is = at > 0 && blocks[at - 1].begin + blocks[at - 1].bytes > begin;
    pthread_rwlock_unlock(&blocks_lock);
    return is;
}

struct sim_physical *sim_memory_unmap(uintptr_t begin, uint64_t *bytes_p, bool *busy_p)
{
    struct sim_physical *physical = NULL;
    size_t at;

    pthread_rwlock_wrlock(&blocks_lock);
    at = above(begin);
    if (at > 0 && blocks[at - 1].begin == begin && blocks[at - 1].physical) {
        *busy_p = user_of(&blocks[at - 1]) != NULL;
        *bytes_p = blocks[at - 1].bytes;
        if (!*busy_p) {
            physical = blocks[at - 1].physical;
            memmove(&blocks[at - 1], &blocks[at], (n_blocks - at) * sizeof(*blocks));
            n_blocks--;
        }
    }
    pthread_rwlock_unlock(&blocks_lock);
    return physical;
}

/* With sim.lock held: what a forced reset takes away. */
void sim_memory_release_device(int device)
{
    size_t kept = 0;

    pthread_rwlock_wrlock(&blocks_lock);
    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].device == device) {
            sim.device[device].bytes -= blocks[i].counted;
            ngd_aclsim_live(SIM_LIVE_BYTES, -(int64_t)blocks[i].counted);
            if (blocks[i].physical)
                sim_mapping_gone(blocks[i].physical, blocks[i].begin, blocks[i].bytes);
            lingering.bytes -= blocks[i].freed ? blocks[i].bytes : 0;
            free(blocks[i].mem);
        } else {
            blocks[kept++] = blocks[i];
        }
    }
    n_blocks = kept;
    pthread_rwlock_unlock(&blocks_lock);
    sim_mapping_release_device(device);
}

ngd_acl_error_t aclrtGetMemInfo(int attribute, size_t *free_p, size_t *total_p)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtGetMemInfo");
    if (attribute < 0 || attribute > 17)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "attribute %d", attribute);
    ctx = sim_lock_context(&code);
    if (ctx) {
        *total_p = sim.config.hbm;
        *free_p = sim.config.hbm - sim.config.taken - sim.device[ctx->device].bytes;
    }
    return sim_unlock(code);
}

/* ---- copies -------------------------------------------------------------------------------------- */

/* The address in this process of a side of a copy, NULL when it is not what the kind says. */
static void *side(const void *addr, uint64_t bytes, bool device)
{
    if (!device)
        return ngd_aclsim_space(addr, bytes) == SIM_SPACE_DEVICE ? NULL : (void *)(uintptr_t)addr;
    return ngd_aclsim_space(addr, bytes) == SIM_SPACE_DEVICE ? ngd_aclsim_host(addr) : NULL;
}

/* Of a block that is there: the device it is of. */
static int device_of_address(const void *addr)
{
    int device = -1;
    size_t at;

    pthread_rwlock_rdlock(&blocks_lock);
    at = above((uintptr_t)addr);
    if (at > 0)
        device = blocks[at - 1].device;
    pthread_rwlock_unlock(&blocks_lock);
    return device;
}

/* A device reaches another's memory when it was told so; either of the two may copy. */
static bool reach(const void *dst, const void *src)
{
    int to = device_of_address(dst), from = device_of_address(src);

    return to == from || sim.device[to].peers & 1u << from || sim.device[from].peers & 1u << to;
}

int sim_copy_now(void *dst, const void *src, uint64_t bytes, int kind)
{
    bool to = kind == NGD_ACL_COPY_H2D || kind == NGD_ACL_COPY_D2D;
    bool from = kind == NGD_ACL_COPY_D2H || kind == NGD_ACL_COPY_D2D;
    void *d = side(dst, bytes, to), *s = side(src, bytes, from);

    if (!d || !s || (kind == NGD_ACL_COPY_D2D && !reach(dst, src)))
        return NGD_ACL_RT_AICORE_EXCEPTION;
    memcpy(d, s, bytes);
    return 0;
}

int sim_set_now(void *mem, int value, uint64_t bytes)
{
    void *d = side(mem, bytes, ngd_aclsim_space(mem, bytes) != SIM_SPACE_PINNED);

    if (!d)
        return NGD_ACL_RT_AICORE_EXCEPTION;
    memset(d, value, bytes);
    return 0;
}

static int check_copy(const void *dst, size_t dst_room, const void *src, size_t bytes, int kind)
{
    if (!dst || !src || bytes > dst_room || kind < NGD_ACL_COPY_H2H || kind > NGD_ACL_COPY_D2D)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%zu bytes to %p (room for %zu) from %p, kind %d",
                               bytes, dst, dst_room, src, kind);
    return 0;
}

/* Of this thread's context: may a synchronous call run now? */
static int enter_sync(void)
{
    struct sim_context *ctx;
    int code;

    ctx = sim_lock_context(&code);
    if (ctx)
        code = sim_capture_forbids(ctx, false);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtMemcpy(void *dst, size_t dst_room, const void *src, size_t bytes, int kind)
{
    int code;

    SIM_CALL("aclrtMemcpy");
    code = check_copy(dst, dst_room, src, bytes, kind);
    if (code == 0)
        code = enter_sync();
    if (code == 0 && sim_copy_now(dst, src, bytes, kind))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or reads what lies there",
                               "%zu bytes from %p to %p are not of kind %d", bytes, src, dst, kind);
    return code;
}

ngd_acl_error_t aclrtMemset(void *mem, size_t mem_room, int32_t value, size_t bytes)
{
    int code;

    SIM_CALL("aclrtMemset");
    if (!mem || bytes > mem_room)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%zu bytes in room for %zu", bytes, mem_room);
    code = enter_sync();
    if (code == 0 && sim_set_now(mem, value, bytes))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%p is not %zu bytes of device or pinned memory",
                               mem, bytes);
    return code;
}

/* A copy with pageable memory is a synchronisation and a blocking copy; in a capture it is an error. */
static int copy_pageable(struct sim_stream *s, void *dst, const void *src, size_t bytes, int kind, void *stream)
{
    int code;

    if (s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a captured copy uses pageable host memory");
    else
        code = sim_capture_forbids(s->ctx, true);
    pthread_mutex_unlock(&sim.lock);
    if (code == 0)
        code = aclrtSynchronizeStream(stream);
    if (code == 0 && sim_copy_now(dst, src, bytes, kind))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "not memory of kind %d", kind);
    return code;
}

ngd_acl_error_t aclrtMemcpyAsync(void *dst, size_t dst_room, const void *src, size_t bytes, int kind, void *stream)
{
    const void *host = kind == NGD_ACL_COPY_H2D ? src : dst;
    struct sim_stream *s = NULL;
    struct sim_task *task;
    bool pageable;
    int code;

    SIM_CALL("aclrtMemcpyAsync");
    code = check_copy(dst, dst_room, src, bytes, kind);
    if (code)
        return code;
    if (kind == NGD_ACL_COPY_H2H)
        return ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "the same", "an asynchronous copy from host to host");
    pageable = kind != NGD_ACL_COPY_D2D && ngd_aclsim_space(host, bytes) != SIM_SPACE_PINNED;
    if (!pageable && ((uintptr_t)dst | (uintptr_t)src) % 32 && !ngd_aclsim_lenient())
        return ngd_aclsim_fail(NGD_ACL_RT_ADDR_UNALIGNED, "the same, or copies slowly",
                               "%p to %p: both sides of an asynchronous copy must be aligned", src, dst);
    code = sim_lock_stream(stream, &s);
    if (code) {
        return sim_unlock(code);
    }
    if (pageable)
        return copy_pageable(s, dst, src, bytes, kind, stream);
    task = sim_task_new(SIM_TASK_COPY);
    task->dst = dst;
    task->src = src;
    task->bytes = bytes;
    task->copy_kind = kind;
    code = sim_submit(s, task);
    sim_settle(s);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtMemsetAsync(void *mem, size_t mem_room, int32_t value, size_t bytes, void *stream)
{
    struct sim_stream *s = NULL;
    struct sim_task *task;
    int code;

    SIM_CALL("aclrtMemsetAsync");
    if (!mem || bytes > mem_room)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%zu bytes in room for %zu", bytes, mem_room);
    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        task = sim_task_new(SIM_TASK_SET);
        task->dst = mem;
        task->bytes = bytes;
        task->value = value;
        code = sim_submit(s, task);
        sim_settle(s);
    }
    return sim_unlock(code);
}
