/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_STOP_H
#define NGD_BASE_STOP_H

/*
 * Ends long work of a thread early. Who starts the work says when it shall end; the work asks at its safe points, where
 * it can return a status as for any other error.
 *
 * Why the thread keeps it: between a capture and its safe points lie a dozen functions, which would all have one more
 * parameter. Threads: each has its own; any thread may set *gone meanwhile.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_stop {
    _Atomic bool gone; /* nobody waits for the work any more: it ends with CANCELLED */
    ngd_nsec_t at;     /* time at which it ends with `late`; 0: never */
    ngd_status_t late;
};

/* From here on this thread's work ends by `stop`, which is borrowed until ngd_stop_set(NULL). */
void ngd_stop_set(const struct ngd_stop *stop);
/* A safe point: OK, or the status with which the work ends. Reads the clock if the work has a time. */
ngd_status_t ngd_stop_check(void);

#endif
