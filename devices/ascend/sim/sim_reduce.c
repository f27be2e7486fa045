/* SPDX-License-Identifier: Apache-2.0 */
/* Memory combined with memory, element by element: dst = dst op src. */
#include "devices/ascend/sim/sim_op.h"
#include <stdlib.h>

/* aclrtReduceKind */
#define REDUCE_SUM 10
#define REDUCE_MAX 11
#define REDUCE_MIN 12

struct reduce {
    struct sim_kernel kernel;
    int kind, dtype;
};

static double combine(double a, double b, int kind)
{
    if (kind == REDUCE_SUM)
        return a + b;
    return (kind == REDUCE_MAX) == (a > b) ? a : b;
}

static void run_reduce_copy(struct sim_kernel *kernel)
{
    const struct reduce *r = (const struct reduce *)kernel;
    char *dst = ngd_aclsim_host(kernel->spans[0].addr);
    const char *src = ngd_aclsim_host(kernel->spans[1].addr);
    size_t size = sim_size(r->dtype);

    for (uint64_t at = 0; at + size <= kernel->spans[0].bytes; at += size)
        sim_store(dst + at, r->dtype, combine(sim_load(dst + at, r->dtype), sim_load(src + at, r->dtype), r->kind));
}

static void release_reduce_copy(struct sim_kernel *kernel)
{
    free(kernel);
}

SIM_OPTIONAL(aclrtReduceAsync);
static ngd_acl_error_t aclrtReduceAsync_impl(void *dst, const void *src, uint64_t bytes, int kind, int dtype,
                                             void *stream, void *reserved)
{
    struct reduce *r;

    SIM_CALL("aclrtReduceAsync");
    if (!dst || !src || reserved || kind < REDUCE_SUM || kind > REDUCE_MIN || !sim_size(dtype) ||
        bytes % sim_size(dtype))
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "%llu bytes of dtype %d, kind %d",
                               (unsigned long long)bytes, dtype, kind);
    if (((uintptr_t)dst | (uintptr_t)src) % sim_size(dtype))
        return ngd_aclsim_fail(NGD_ACL_RT_ADDR_UNALIGNED, "the same", "%p and %p are not aligned for dtype %d", dst,
                               src, dtype);
    r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    r->kernel = (struct sim_kernel){
        .name = "reduce", .run = run_reduce_copy, .release = release_reduce_copy, .refs = 1, .n_spans = 2};
    r->kernel.spans[0].addr = dst;
    r->kernel.spans[1].addr = src;
    r->kernel.spans[0].bytes = r->kernel.spans[1].bytes = bytes;
    r->kind = kind;
    r->dtype = dtype;
    return ngd_aclsim_launch(&r->kernel, stream);
}
