/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_WAKEUP_H
#define NGD_BASE_WAKEUP_H

/*
 * How soon a thread runs after it is woken, where all CPUs compute.
 *
 * Why: an ordinary thread that wakes up waits for the slice of whoever runs on its CPU: milliseconds. For threads that
 * do little and should do it at once. Threads: a thread asks for itself, any time.
 */
#include <stddef.h>

/* From the least to the most; a kernel that refuses one may give the one before. */
typedef enum ngd_wakeup {
    NGD_WAKEUP_ORDINARY,
    NGD_WAKEUP_NICE,     /* a larger share of the CPU; needs CAP_SYS_NICE or RLIMIT_NICE */
    NGD_WAKEUP_SLICE,    /* short slices (Linux 6.12): it goes first, and gets no more than its share; needs nothing */
    NGD_WAKEUP_REALTIME, /* SCHED_RR, the lowest priority; needs CAP_SYS_NICE or RLIMIT_RTPRIO, and a cgroup with a
                            share */
    NGD_WAKEUP_N,
} ngd_wakeup_t;

/*
 * Gives the calling thread the most of what it asks for that the kernel grants, and returns what that was. Threads that
 * it starts have none of it. NICE is only tried where REALTIME is asked for: it would cost others who only should go
 * second. What was refused, and why, is logged at debug.
 */
ngd_wakeup_t ngd_wakeup_ask(ngd_wakeup_t most);
/* For people: "realtime", ... */
const char *ngd_wakeup_name(ngd_wakeup_t wakeup);

#endif
