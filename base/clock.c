/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t fake = -1;

ngd_nsec_t ngd_clock_real(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (ngd_nsec_t)ts.tv_sec * NGD_SEC + ts.tv_nsec;
}

ngd_nsec_t ngd_now(void)
{
    int64_t t = atomic_load_explicit(&fake, memory_order_relaxed);

    if (__builtin_expect(t >= 0, 0))
        return t;
    return ngd_clock_real();
}

void ngd_clock_set_fake(ngd_nsec_t t)
{
    atomic_store_explicit(&fake, t, memory_order_relaxed);
}
