/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_RELAX_H
#define NGD_BASE_RELAX_H

/* Pauses for one turn of a loop that waits for another CPU. spin: the number of turns so far. After NGD_RELAX_SPINS
 * turns, some of them yield the CPU. Any thread. */
#include <sched.h>
#include <stdint.h>

#define NGD_RELAX_SPINS 256 /* after so many turns, every NGD_RELAX_EACH-th turn yields the CPU */
#define NGD_RELAX_EACH  32

static inline void ngd_relax(uint32_t spin)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
    if (spin > NGD_RELAX_SPINS && spin % NGD_RELAX_EACH == 0)
        sched_yield();
}

#endif
