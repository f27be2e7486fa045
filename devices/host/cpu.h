/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_CPU_H
#define NGD_DEVICES_HOST_CPU_H

/* The CPU: the vector kernels that it can run, and the CPUs and the memory that this process may use. Any thread. */
#include "devices/host/kernels/kernel.h"

ngd_isa_t ngd_cpu_isa(void);                            /* the best that the CPU has and that is compiled in */
const char *ngd_isa_name(ngd_isa_t isa);                /* "avx512" */
bool ngd_isa_parse(const char *name, ngd_isa_t *isa_p); /* "auto" is ngd_cpu_isa() */
uint32_t ngd_cpu_count(void);                           /* CPUs that this process may run on */
uint64_t ngd_cpu_memory_bytes(void);                    /* of the machine, or of the process's control group */
void ngd_cpu_model(char *buf, size_t n);                /* for people */

#endif
