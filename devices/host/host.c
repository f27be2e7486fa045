/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `host` backend: the CPU as a device. Device memory is memory of the process (base/pages.h), and a memory handle
 * is its address.
 */
#include "devices/host/host.h"
#include "devices/host/kernels/k_gemm.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pages.h"
#include "devices/host/cpu.h"
#include "devices/meeting.h"
#include "devices/serial.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STREAMS_MAX  64
#define THREADS_MAX  256
/* Raise it when a kernel's results or a plan's layout change. It is part of the cache key. */
#define HOST_VERSION 4

/* ---- lifecycle --------------------------------------------------------------------------------------- */

static int host_probe(void)
{
    return 1;
}

static const char *machine(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "other";
#endif
}

static ngd_status_t choose_isa(const char *name, ngd_isa_t *isa_p, struct ngd_diag *diag)
{
    ngd_isa_t isa;

    if (!ngd_isa_parse(name, &isa))
        return ngd_diag_set(
            diag, NGD_ERR_INVALID_ARGUMENT,
            "instruction set \"%.50s\" is unknown; auto, scalar, avx2, avx512, avx512bf16 and amx are known", name);
    if (isa > ngd_cpu_isa())
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "instruction set \"%.50s\" is not available on this machine; the best is %s", name,
                            ngd_isa_name(ngd_cpu_isa()));
    *isa_p = isa;
    return NGD_OK;
}

static ngd_status_t host_open(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                              struct ngd_diag *diag)
{
    struct host_device *dev;
    char model[96];
    ngd_isa_t isa = NGD_ISA_SCALAR;
    ngd_status_t status = choose_isa(params->isa, &isa, diag);

    if (status)
        return status;
    if (params->threads > THREADS_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%u threads are more than the %u that a stream may have",
                            params->threads, THREADS_MAX);
    dev = NGD_NEW(struct host_device);
    if (!dev)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a device");
    dev->isa = isa;
    dev->threads = params->threads ? params->threads : ngd_cpu_count();
    if (dev->threads > THREADS_MAX)
        dev->threads = THREADS_MAX;
    ngd_cpu_model(model, sizeof(model));
    snprintf(dev->name, sizeof(dev->name), "host:%u", params->index);
    snprintf(dev->arch, sizeof(dev->arch), "host-%d-%s-%s", HOST_VERSION, machine(), ngd_isa_name(isa));
    snprintf(dev->description, sizeof(dev->description), "%s, %s, %u threads", model, ngd_isa_name(isa), dev->threads);
    *info_p = (struct ngd_device_info){
        .name = dev->name,
        .backend = "host",
        .arch = dev->arch,
        .description = dev->description,
        /* A quarter is for the process, its clients and the system. */
        .memory_bytes = ngd_cpu_memory_bytes() / 4 * 3 / (params->sharers ? params->sharers : 1),
        .threads = dev->threads,
        .aicores = dev->threads,
        .vectorcores = dev->threads,
        .streams_max = STREAMS_MAX,
        .wide_rows = NGD_GEMM_WIDE_ROWS,
        .host_memory = true,
        .pauses = true,
        .stops = true,
        .same_bits = true,
    };
    *dev_p = dev;
    return NGD_OK;
}

static void host_close(void *dev)
{
    ngd_free(dev);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static ngd_status_t host_alloc(void *dev, uint64_t bytes, void **mem_p, struct ngd_diag *diag)
{
    void *p;

    (void)dev;
    errno = ENOMEM;
    p = NGD_FAULT(HOST_ALLOC) ? NULL : ngd_pages_alloc(bytes);
    if (!p)
        return ngd_diag_set(diag, NGD_ERR_NO_DEVICE_MEMORY,
                            "the system cannot allocate %" PRIu64 " bytes (%s), although the budget has room", bytes,
                            strerror(errno));
    *mem_p = p;
    return NGD_OK;
}

static void host_free(void *dev, void *mem, uint64_t bytes)
{
    (void)dev;
    ngd_pages_free(mem, bytes);
}

static ngd_status_t host_write(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n)
{
    (void)dev;
    memcpy((char *)mem + offset, src, n);
    return NGD_OK;
}

static ngd_status_t host_read(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n)
{
    (void)dev;
    memcpy(dst, (const char *)mem + offset, n);
    return NGD_OK;
}

static void *host_ptr(void *dev, void *mem)
{
    (void)dev;
    return mem;
}

/* ---- code -------------------------------------------------------------------------------------------- */

static ngd_status_t host_select(void *dev_v, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct host_device *dev = dev_v;
    const struct ngd_host_kernel *kernel = ngd_host_kernel_of(call->op->id);

    *strided_p = 0;
    *workspace_p = 0;
    if (!kernel)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no kernel for %s", call->op->name);
    return kernel->select(plan, call, dev->threads, strided_p, workspace_p, diag);
}

/* ---- groups ------------------------------------------------------------------------------------------ */

static ngd_status_t comm_create(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit, void **comm_p,
                                struct ngd_diag *diag)
{
    struct ngd_meeting *m;
    ngd_status_t status = ngd_meeting_create(n, name, time_limit, &m);

    (void)devs; /* all devices share one memory */
    if (status)
        return ngd_diag_set(diag, status, "no host memory for the %u ranks of group \"%s\"", n, name);
    *comm_p = m;
    return NGD_OK;
}

static void comm_destroy(void *comm)
{
    ngd_meeting_destroy(comm);
}

static void comm_abort(void *comm, ngd_status_t status, const char *why)
{
    ngd_meeting_abort(comm, status, why);
}

static ngd_status_t comm_status(void *comm, struct ngd_diag *diag)
{
    return ngd_meeting_status(comm, diag);
}

static ngd_status_t comm_reset(void *comm, struct ngd_diag *diag)
{
    return ngd_meeting_reset(comm, NULL, NULL, diag);
}

extern const struct ngd_backend ngd_backend_host;
const struct ngd_backend ngd_backend_host = {
    .api = NGD_BACKEND_API,
    .name = "host",
    .lifecycle = {.probe = host_probe, .open = host_open, .close = host_close},
    .memory = {.alloc = host_alloc, .free = host_free, .write = host_write, .read = host_read, .host_ptr = host_ptr},
    .code =
        {
            .inplace = true,         /* element i is read before it is written: tests/ops/test_inplace.c */
            .strided_results = true, /* nd.h walks results as it walks operands */
            .select = host_select,
            .instantiate = ngd_host_instantiate,
            .destroy = ngd_host_destroy,
            .bind = ngd_host_bind,
            .unbind = ngd_host_unbind,
            .static_source = ngd_host_static_source,
            .static_toolchain = ngd_host_static_toolchain,
            .static_compile = ngd_host_static_compile,
            .static_adopt = ngd_host_static_adopt,
        },
    .stream = NGD_SERIAL_STREAM(ngd_host_stream_create),
    .comm = {.rank_bytes = 2 * NGD_MEETING_STAGE,
             .create = comm_create,
             .destroy = comm_destroy,
             .abort = comm_abort,
             .status = comm_status,
             .reset = comm_reset},
    .telemetry = {.open = ngd_host_telemetry_open,
                  .sample = ngd_host_telemetry_sample,
                  .close = ngd_host_telemetry_close},
};
