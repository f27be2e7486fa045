/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses, physical memory, and the mapping of one to the other.
 *
 * A range is addresses of this process that nothing is behind, offset as those of device memory are; physical memory is
 * an anonymous file, so that its contents are its own wherever it is mapped. What is mapped is a block of memory.c:
 * operands may lie in several that follow each other. As on a device, physical memory that is given back while it is
 * mapped is there, and counted, until it is unmapped.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULARITY  ((uint64_t)2 << 20)
#define PATTERN      0xCB
#define LEAST_OPTION 0
#define LAST_OPTION  1

struct range {
    struct range *next;
    uintptr_t begin; /* as the program sees it */
    uint64_t bytes;
    void *mem;  /* what mmap gave, of one granularity more */
    int device; /* of what is mapped; -1: nothing was yet */
};

struct sim_physical {
    struct sim_physical *next;
    int device, file;
    uint64_t bytes;
    uint32_t maps;
    bool freed, used; /* given back; mapped once already */
};

static struct range *ranges; /* under sim.lock, as the next */
static struct sim_physical *physicals;

static bool is_aligned(uint64_t n)
{
    return n % GRANULARITY == 0;
}

/* ---- addresses ----------------------------------------------------------------------------------- */

static ngd_acl_error_t aclrtReserveMemAddress_impl(void **range_p, size_t bytes, size_t alignment, void *expected,
                                                   uint64_t flags)
{
    struct range *r;
    uintptr_t at;

    SIM_CALL("aclrtReserveMemAddress");
    if (!range_p || bytes == 0 || flags > 1)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "%zu bytes, flags %llu", bytes,
                               (unsigned long long)flags);
    if (alignment || expected || !is_aligned(bytes) || bytes > SIZE_MAX - GRANULARITY)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "may take it: only what is documented is sure to work",
                               "%zu bytes at %p aligned to %zu: multiples of %llu, anywhere, alignment 0", bytes,
                               expected, alignment, (unsigned long long)GRANULARITY);
    r = calloc(1, sizeof(*r));
    if (r)
        r->mem = mmap(NULL, bytes + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!r || r->mem == MAP_FAILED) {
        free(r);
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine has no %zu bytes of addresses", bytes);
    }
    at = ((uintptr_t)r->mem + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    r->begin = at + SIM_DEVICE_OFFSET;
    r->bytes = bytes;
    r->device = -1;
    pthread_mutex_lock(&sim.lock);
    r->next = ranges;
    ranges = r;
    pthread_mutex_unlock(&sim.lock);
    ngd_aclsim_live(SIM_LIVE_RANGES, 1);
    *range_p = (void *)r->begin;
    return 0;
}
SIM_OPTIONAL_IF(aclrtReserveMemAddress, !ngd_aclsim_no_mapping());

/* The range that has all of these bytes. */
static struct range *reserved_range_of(uintptr_t begin, uint64_t bytes)
{
    for (struct range *r = ranges; r; r = r->next)
        if (begin >= r->begin && begin - r->begin <= r->bytes && bytes <= r->bytes - (begin - r->begin))
            return r;
    return NULL;
}

static ngd_acl_error_t release_locked(uintptr_t begin)
{
    for (struct range **p = &ranges; *p; p = &(*p)->next) {
        struct range *r = *p;

        if (r->begin != begin)
            continue;
        if (sim_memory_is_mapped(r->begin, r->bytes))
            return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or loses what is mapped",
                                   "memory is mapped to %p", (void *)begin);
        *p = r->next;
        munmap(r->mem, r->bytes + GRANULARITY);
        free(r);
        ngd_aclsim_live(SIM_LIVE_RANGES, -1);
        return 0;
    }
    return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%p is not the begin of a range", (void *)begin);
}

static ngd_acl_error_t aclrtReleaseMemAddress_impl(void *range)
{
    int code;

    SIM_RELEASE("aclrtReleaseMemAddress");
    pthread_mutex_lock(&sim.lock);
    code = release_locked((uintptr_t)range);
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}
SIM_OPTIONAL_IF(aclrtReleaseMemAddress, !ngd_aclsim_no_mapping());

/* ---- physical memory ----------------------------------------------------------------------------- */

static int check_property(const struct ngd_acl_physical *property)
{
    if (!property || property->handle_type || property->allocation_type ||
        property->location_type != NGD_ACL_LOCATION_DEVICE || property->attribute != NGD_ACL_MEM_HBM_HUGE)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "takes some others",
                               "not pinned memory of a device in large pages of its HBM");
    if (property->location >= (uint32_t)sim.config.devices)
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_DEVICEID, "the same", "there is no device %u", property->location);
    return sim_device_state((int)property->location);
}

static ngd_acl_error_t aclrtMemGetAllocationGranularity_impl(struct ngd_acl_physical *property, int option,
                                                             size_t *bytes_p)
{
    int code;

    SIM_CALL("aclrtMemGetAllocationGranularity");
    if (!bytes_p || option < LEAST_OPTION || option > LAST_OPTION)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "option %d", option);
    pthread_mutex_lock(&sim.lock);
    code = check_property(property);
    pthread_mutex_unlock(&sim.lock);
    if (code == 0)
        *bytes_p = GRANULARITY;
    return code;
}
SIM_OPTIONAL_IF(aclrtMemGetAllocationGranularity, !ngd_aclsim_no_mapping());

static struct sim_physical *new_physical(int device, uint64_t bytes)
{
    struct sim_physical *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->device = device;
    p->bytes = bytes;
    p->file = memfd_create("device memory", MFD_CLOEXEC);
    if (p->file >= 0 && ftruncate(p->file, (off_t)bytes) == 0)
        return p;
    if (p->file >= 0)
        close(p->file);
    free(p);
    return NULL;
}

/* Once nothing is mapped to it and its handle is gone. */
static void put_physical(struct sim_physical *p)
{
    if (p->maps || !p->freed)
        return;
    for (struct sim_physical **at = &physicals; *at; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    sim.device[p->device].bytes -= p->bytes;
    ngd_aclsim_live(SIM_LIVE_BYTES, -(int64_t)p->bytes);
    close(p->file);
    free(p);
}

static int malloc_locked(void **handle_p, uint64_t bytes, const struct ngd_acl_physical *property)
{
    int code = check_property(property), device;
    struct sim_physical *p;

    if (code)
        return code;
    device = (int)property->location;
    if (!sim_memory_take_bytes(device, bytes))
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, "the same", "%llu bytes do not fit in device %d",
                               (unsigned long long)bytes, device);
    p = new_physical(device, bytes);
    if (!p) {
        sim.device[device].bytes -= bytes;
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine has no %llu bytes",
                               (unsigned long long)bytes);
    }
    p->next = physicals;
    physicals = p;
    sim_handle_add(p, SIM_PHYSICAL);
    ngd_aclsim_live(SIM_LIVE_BYTES, (int64_t)bytes);
    *handle_p = p;
    return 0;
}

static ngd_acl_error_t aclrtMallocPhysical_impl(void **handle_p, size_t bytes, const struct ngd_acl_physical *property,
                                                uint64_t flags)
{
    int code;

    SIM_CALL("aclrtMallocPhysical");
    if (!handle_p || bytes == 0 || flags)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "%zu bytes, flags %llu", bytes,
                               (unsigned long long)flags);
    if (!is_aligned(bytes))
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or takes more than it says",
                               "%zu bytes are no multiple of %llu", bytes, (unsigned long long)GRANULARITY);
    pthread_mutex_lock(&sim.lock);
    code = malloc_locked(handle_p, bytes, property);
    pthread_mutex_unlock(&sim.lock);
    return code;
}
SIM_OPTIONAL_IF(aclrtMallocPhysical, !ngd_aclsim_no_mapping());

static ngd_acl_error_t aclrtFreePhysical_impl(void *handle)
{
    struct sim_physical *p = handle;
    int code = 0;

    SIM_RELEASE("aclrtFreePhysical");
    pthread_mutex_lock(&sim.lock);
    if (sim_handle_is(handle, SIM_PHYSICAL)) {
        sim_handle_remove(handle);
        p->freed = true;
        put_physical(p);
    } else {
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or spoils its allocator",
                               "%p is not physical memory, or was given back", handle);
    }
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}
SIM_OPTIONAL_IF(aclrtFreePhysical, !ngd_aclsim_no_mapping());

/* ---- mapping ------------------------------------------------------------------------------------- */

static int check_map(uintptr_t begin, uint64_t bytes, uint64_t offset, const struct sim_physical *p,
                     const struct range *r)
{
    const char *wrong = NULL;

    if (!sim_handle_is(p, SIM_PHYSICAL))
        wrong = "the handle is not physical memory, or was given back";
    else if (offset || bytes != p->bytes)
        wrong = "only all of a physical memory can be mapped, from its begin";
    else if (!is_aligned(begin - SIM_DEVICE_OFFSET))
        wrong = "the address is not aligned to the granularity";
    else if (!r)
        wrong = "the addresses were not reserved, in one range";
    else if (sim_memory_is_mapped(begin, bytes))
        wrong = "memory is mapped there already";
    else if (r->device >= 0 && r->device != p->device)
        wrong = "the range has memory of another device";
    return wrong ? ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%llu bytes to %p: %s",
                                   (unsigned long long)bytes, (void *)begin, wrong)
                 : 0;
}

/* Nothing is behind these addresses any more. */
static void cover(uintptr_t begin, uint64_t bytes)
{
    if (mmap(ngd_aclsim_host((void *)begin), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        abort();
}

static int map_locked(uintptr_t begin, uint64_t bytes, uint64_t offset, struct sim_physical *p)
{
    struct range *r = reserved_range_of(begin, bytes);
    int code = check_map(begin, bytes, offset, p, r);
    void *at = ngd_aclsim_host((void *)begin);

    if (code)
        return code;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->file, 0) == MAP_FAILED)
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine cannot map %llu bytes",
                               (unsigned long long)bytes);
    if (!sim_memory_map(begin, bytes, p->device, p)) {
        cover(begin, bytes);
        return ngd_aclsim_fail(NGD_ACL_RT_MEMORY_ALLOCATION, NULL, "this machine has no memory");
    }
    if (!p->used) /* fresh memory is not zero on a device either */
        memset(at, PATTERN, bytes < GRANULARITY / 2 ? bytes : GRANULARITY / 2);
    p->used = true;
    p->maps++;
    r->device = p->device;
    return 0;
}

static ngd_acl_error_t aclrtMapMem_impl(void *at, size_t bytes, size_t offset, void *handle, uint64_t flags)
{
    int code;

    SIM_CALL("aclrtMapMem");
    if (!at || !handle || bytes == 0 || flags)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "%zu bytes of %p to %p, flags %llu", bytes, handle,
                               at, (unsigned long long)flags);
    pthread_mutex_lock(&sim.lock);
    code = map_locked((uintptr_t)at, bytes, offset, handle);
    pthread_mutex_unlock(&sim.lock);
    return code;
}
SIM_OPTIONAL_IF(aclrtMapMem, !ngd_aclsim_no_mapping());

void sim_mapping_gone(struct sim_physical *p, uintptr_t begin, uint64_t bytes)
{
    cover(begin, bytes);
    p->maps--;
    put_physical(p);
}

static int unmap_locked(uintptr_t begin)
{
    bool busy = false;
    uint64_t bytes = 0;
    struct sim_physical *p = sim_memory_unmap(begin, &bytes, &busy);

    if (p)
        sim_mapping_gone(p, begin, bytes);
    else if (busy)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "ends the kernel with 507015, and spoils its context",
                               "a kernel or copy uses what is mapped to %p", (void *)begin);
    else
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "%p is not where something was mapped to",
                               (void *)begin);
    return 0;
}

static ngd_acl_error_t aclrtUnmapMem_impl(void *at)
{
    int code;

    SIM_RELEASE("aclrtUnmapMem");
    pthread_mutex_lock(&sim.lock);
    code = unmap_locked((uintptr_t)at);
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}
SIM_OPTIONAL_IF(aclrtUnmapMem, !ngd_aclsim_no_mapping());

void sim_mapping_release_device(int device)
{
    for (struct sim_physical *p = physicals, *next; p; p = next) {
        next = p->next;
        if (p->device != device || p->freed)
            continue;
        sim_handle_remove(p);
        p->freed = true;
        put_physical(p);
    }
}
