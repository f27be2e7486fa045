/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_STOP_H
#define NGD_BASE_STOP_H

/*
 * Ends long work of a thread early. The starter of the work sets when it must end. The work checks this at its safe
 * points, where it can return a status as for any other error.
 *
 * Why per thread: a dozen functions lie between a capture and its safe points, and each would need one more parameter.
 * Threads: each has its own stop; any thread may set `gone` meanwhile.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_stop {
    _Atomic bool gone; /* set when nobody waits for the work any more; it ends with CANCELLED */
    ngd_nsec_t at;     /* time at which the work ends with the status `late`; 0: never */
    ngd_status_t late;
};

/* Makes this thread's work end by `stop`, which is borrowed until ngd_stop_set(NULL). */
void ngd_stop_set(const struct ngd_stop *stop);
/* Marks a safe point. Returns OK, or the status with which the work must end. Reads the clock if `at` is set. */
ngd_status_t ngd_stop_check(void);

#endif
