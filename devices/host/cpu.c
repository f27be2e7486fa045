/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CPU's instruction sets, and the limits of this process. Only instruction sets for which kernels are
 * compiled in count: configure defines NGD_HAVE_*, and a build without them (another architecture, an old compiler)
 * uses the scalar kernels.
 */
#include "devices/host/cpu.h"
#include "devices/host/kernels/by_isa.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

/* asm/prctl.h has them since Linux 5.16. */
#ifndef ARCH_REQ_XCOMP_PERM
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif
#define XFEATURE_XTILEDATA 18
#endif

static const char *const isa_names[NGD_ISA_MAX] = {
    [NGD_ISA_SCALAR] = "scalar",         [NGD_ISA_AVX2] = "avx2", [NGD_ISA_AVX512] = "avx512",
    [NGD_ISA_AVX512BF16] = "avx512bf16", [NGD_ISA_AMX] = "amx",
};

const char *ngd_isa_name(ngd_isa_t isa)
{
    return isa_names[isa];
}

#if defined(__x86_64__)
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_bf16(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5));
}

/* Checks for tiles and their products of bf16 and i8, and that the operating system saves tiles and permits this
 * process to use them. */
static bool has_amx(void)
{
    const unsigned all = 1u << 22 | 1u << 24 | 1u << 25, saved = 3u << 17; /* bf16, tiles, i8 */
    unsigned a, b, c, d, low, high;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all)
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* a CPU with AVX-512 has xgetbv */
    return (low & saved) == saved && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* __builtin_cpu_supports also checks that the operating system saves the wide registers. */
static ngd_isa_t detect_isa(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return NGD_ISA_SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return NGD_ISA_AVX2;
    if (!has_bf16())
        return NGD_ISA_AVX512;
    return has_amx() ? NGD_ISA_AMX : NGD_ISA_AVX512BF16;
}
#else
static ngd_isa_t detect_isa(void)
{
    return NGD_ISA_SCALAR;
}
#endif

ngd_isa_t ngd_cpu_isa(void)
{
    ngd_isa_t isa = detect_isa();

#if defined(NGD_EMULATE)
    isa = NGD_ISA_AMX; /* the kernels are C */
#endif
#if !defined(NGD_HAVE_AMX)
    isa = isa > NGD_ISA_AVX512BF16 ? NGD_ISA_AVX512BF16 : isa;
#endif
#if !defined(NGD_HAVE_AVX512BF16)
    isa = isa > NGD_ISA_AVX512 ? NGD_ISA_AVX512 : isa;
#endif
#if !defined(NGD_HAVE_AVX512)
    isa = isa > NGD_ISA_AVX2 ? NGD_ISA_AVX2 : isa;
#endif
#if !defined(NGD_HAVE_AVX2)
    isa = NGD_ISA_SCALAR;
#endif
    return isa;
}

bool ngd_cpu_has_vnni(ngd_isa_t isa)
{
#if !defined(NGD_HAVE_AVX512VNNI)
    return (void)isa, false;
#elif defined(NGD_EMULATE)
    return isa >= NGD_ISA_AVX512;
#else
    return isa >= NGD_ISA_AVX512 && __builtin_cpu_supports("avx512vnni");
#endif
}

bool ngd_isa_parse(const char *name, ngd_isa_t *isa_p)
{
    if (!name || strcmp(name, "auto") == 0) {
        *isa_p = ngd_cpu_isa();
        return true;
    }
    for (int i = 0; i < NGD_ISA_MAX; i++) {
        if (strcmp(name, isa_names[i]) == 0) {
            *isa_p = (ngd_isa_t)i;
            return true;
        }
    }
    return false;
}

uint32_t ngd_cpu_count(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* Reads the first line of a file, without its newline. Returns false if there is none. */
static bool read_first_line(const char *path, char *buf, size_t n)
{
    FILE *f = fopen(path, "re");
    bool ok;

    if (!f)
        return false;
    ok = fgets(buf, (int)n, f) != NULL;
    fclose(f);
    if (ok)
        buf[strcspn(buf, "\n")] = '\0';
    return ok;
}

/* Returns memory.max of our control group (version 2), UINT64_MAX if there is no limit or no such file. */
static uint64_t group_limit(void)
{
    char line[512], path[600], *end;
    unsigned long long v;

    if (!read_first_line("/proc/self/cgroup", line, sizeof(line)) || strncmp(line, "0::", 3) != 0)
        return UINT64_MAX;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
    if (!read_first_line(path, line, sizeof(line)))
        return UINT64_MAX;
    v = strtoull(line, &end, 10);
    return end == line || *end ? UINT64_MAX : v;
}

uint64_t ngd_cpu_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)1 << 30;
    uint64_t group = group_limit();

    return group < machine ? group : machine;
}

void ngd_cpu_model(char *buf, size_t n)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    snprintf(buf, n, "CPU");
    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, n, "%s", colon + (colon[1] == ' ' ? 2 : 1));
        break;
    }
    if (f)
        fclose(f);
}
