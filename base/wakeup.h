/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_WAKEUP_H
#define NGD_BASE_WAKEUP_H

/*
 * Makes a thread run soon after it is woken, even if all CPUs are busy.
 *
 * Why: an ordinary thread that wakes up waits until the slice of the thread on its CPU ends, which takes milliseconds.
 * This is for threads that have little work and must do it at once. Threads: a thread asks for itself, at any time.
 */
#include <stddef.h>

/* From the least to the most; a kernel that refuses one may grant the one before it. */
typedef enum ngd_wakeup {
    NGD_WAKEUP_ORDINARY,
    NGD_WAKEUP_NICE,     /* a larger share of the CPU; needs CAP_SYS_NICE or RLIMIT_NICE */
    NGD_WAKEUP_SLICE,    /* short slices (Linux 6.12): it runs first, but gets no more than its share; needs no right */
    NGD_WAKEUP_REALTIME, /* SCHED_RR, the lowest priority; needs CAP_SYS_NICE or RLIMIT_RTPRIO, and a cgroup with a
                            share */
    NGD_WAKEUP_N,
} ngd_wakeup_t;

/*
 * Gives the calling thread the highest level up to `most` that the kernel grants, and returns that level. Threads that
 * it starts do not inherit it, except NICE. NICE is tried only if REALTIME is asked for, because it takes CPU time from
 * other threads, where SLICE only lets this one run first. Refusals and their reasons are logged at debug.
 */
ngd_wakeup_t ngd_wakeup_ask(ngd_wakeup_t most);
/* Returns the name for messages: "realtime", ... */
const char *ngd_wakeup_name(ngd_wakeup_t wakeup);

#endif
