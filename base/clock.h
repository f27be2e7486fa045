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
/* The real clock, also in tests: for how long a thread sleeps. */
ngd_nsec_t ngd_clock_real(void);
/* Tests: from now on ngd_now() returns t until the next call; -1 gives the real clock back. */
void ngd_clock_set_fake(ngd_nsec_t t);

#endif
