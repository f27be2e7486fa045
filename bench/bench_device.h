/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_BENCH_DEVICE_H
#define NGD_BENCH_BENCH_DEVICE_H

/* Helpers that the benches of the host device share: filled memory, a plain read of it by a team, and medians. */
#include "base/clock.h"
#include "base/dtype.h"
#include "devices/host/team.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static inline void bench_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

/* Memory in huge pages where the system has them. Every element is set to a small number other than 0. */
static inline void *bench_memory(uint64_t bytes, ngd_dtype_t t)
{
    void *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        bench_fail("no memory for %llu bytes", (unsigned long long)bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes / ngd_dtype_bytes(t); i++) {
        float v = (float)((i * 2654435761u >> 16) % 255 + 1) / 4096.0f;

        if (t == NGD_F32)
            ((float *)p)[i] = v;
        else
            ((uint16_t *)p)[i] = t == NGD_F16 ? ngd_f32_to_f16(v) : ngd_f32_to_bf16(v);
    }
    return p;
}

struct bench_reader {
    const char *data;
    uint64_t bytes;
};

/*
 * There are four sums, so that the loads and not the xor operations are the limit. The compiler vectorises the inner
 * loop.
 */
static void bench_read_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct bench_reader *r = call->params;
    const uint64_t lines = r->bytes / 256, begin = lines * part / parts, end = lines * (part + 1) / parts;
    typedef uint64_t vec __attribute__((vector_size(32)));
    vec a = {0}, b = {0}, c = {0}, d = {0};
    static volatile uint64_t sink;

    (void)run;
    for (uint64_t i = begin; i < end; i++) {
        const char *p = r->data + i * 256;

        for (int l = 0; l < 256; l += 64)
            __builtin_prefetch(p + 4096 + l);
        a ^= ((const vec *)(const void *)p)[0] ^ ((const vec *)(const void *)p)[1];
        b ^= ((const vec *)(const void *)p)[2] ^ ((const vec *)(const void *)p)[3];
        c ^= ((const vec *)(const void *)p)[4] ^ ((const vec *)(const void *)p)[5];
        d ^= ((const vec *)(const void *)p)[6] ^ ((const vec *)(const void *)p)[7];
    }
    a ^= b ^ c ^ d;
    sink = a[0] ^ a[1] ^ a[2] ^ a[3];
    (void)sink;
}

/* Returns the nanoseconds that the whole team takes to read the bytes once. Each thread reads its own part. */
static inline double bench_read(struct ngd_team *team, const void *data, uint64_t bytes)
{
    const struct bench_reader r = {.data = data, .bytes = bytes};
    struct ngd_host_call call = {.fn = bench_read_part, .params = &r};
    struct ngd_host_run run = {0};
    ngd_nsec_t start = ngd_now();

    ngd_team_begin(team);
    ngd_team_share(team, &call, &run, ngd_team_threads(team) * 16);
    ngd_team_end(team);
    return (double)(ngd_now() - start);
}

static int bench_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Returns the median of the n values. Sorts v. */
static inline double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), bench_compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#endif
