/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_PRIORITY_H
#define NGD_DAEMON_HANDLERS_PRIORITY_H

/* Converts a request's priority, which wire_check.h has checked, to the scheduler's class. */
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/model/model.h"

/* unspecified: the class of a request without a priority; may be NGD_PRIORITY_OWN. */
static inline ngd_priority_t ngd_priority_of(Npugraph__V1__Priority value, ngd_priority_t unspecified)
{
    return value == NGD_PB(PRIORITY, HIGH)     ? NGD_PRIORITY_HIGH
           : value == NGD_PB(PRIORITY, LOW)    ? NGD_PRIORITY_LOW
           : value == NGD_PB(PRIORITY, NORMAL) ? NGD_PRIORITY_NORMAL
                                               : unspecified;
}

#endif
