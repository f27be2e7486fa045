/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"
#include <stddef.h>

static _Thread_local const struct ngd_stop *current;

void ngd_stop_set(const struct ngd_stop *stop)
{
    current = stop;
}

ngd_status_t ngd_stop_check(void)
{
    if (!current)
        return NGD_OK;
    if (atomic_load_explicit(&current->gone, memory_order_relaxed))
        return NGD_ERR_CANCELLED;
    return current->at && ngd_now() >= current->at ? current->late : NGD_OK;
}
