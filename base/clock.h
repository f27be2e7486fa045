/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_CLOCK_H
#define NGD_BASE_CLOCK_H

/* Monotonic time in nanoseconds, settable in tests; wall time for logs only. Any thread. */
#include <stdint.h>

typedef int64_t ngd_nsec_t;
#define NGD_USEC       ((ngd_nsec_t)1000)
#define NGD_MSEC       ((ngd_nsec_t)1000000)
#define NGD_SEC        ((ngd_nsec_t)1000000000)
#define NGD_NSEC_NEVER INT64_MAX

ngd_nsec_t ngd_now(void);
/* Reads the real clock, in tests too. Use it for how long a thread sleeps. */
ngd_nsec_t ngd_clock_real(void);
/* Tests: makes ngd_now() return t until the next call; -1 restores the real clock. */
void ngd_clock_set_fake(ngd_nsec_t t);

#endif
