/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_FAULT_H
#define NGD_BASE_FAULT_H

/*
 * Fault points: a test can make the code fail at `if (NGD_FAULT(CONFIG_READ)) err = EIO;`.
 *
 * Compiled in by debug builds and by --enable-fault; in other builds NGD_FAULT is the constant false.
 * ngd_fault_init reads the points to arm from the environment variable NPUGRAPHD_FAULT:
 * "name[:after[:times]],...": skip `after` passes, then fail `times` times (default 0 and 1).
 * Threads: arming happens before threads start (or in a test); passing a point is thread safe.
 */
#include "base/status.h"
#include <stdint.h>

typedef enum ngd_fault {
#define NGD_FAULT_POINT(ID, name, help) NGD_FAULT_##ID,
#include "base/fault.def"
#undef NGD_FAULT_POINT
    NGD_FAULT_MAX
} ngd_fault_t;

#if defined(NGD_ENABLE_FAULT) || !defined(NDEBUG)
#define NGD_FAULT_COMPILED 1
#define NGD_FAULT(ID)      ngd_fault_hit(NGD_FAULT_##ID)
#else
#define NGD_FAULT_COMPILED 0
#define NGD_FAULT(ID)      false
#endif

/* Arms the points that NPUGRAPHD_FAULT names. CONFIG: a name is unknown, or fault points are not compiled in. */
ngd_status_t ngd_fault_init(struct ngd_diag *diag);
void ngd_fault_arm(ngd_fault_t point, uint32_t after, uint32_t times);
void ngd_fault_disarm_all(void);
/* Counts a pass and returns true if it must fail. */
bool ngd_fault_hit(ngd_fault_t point);

#endif
