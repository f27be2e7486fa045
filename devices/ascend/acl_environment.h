/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ACL_ENVIRONMENT_H
#define NGD_DEVICES_ASCEND_ACL_ENVIRONMENT_H

/* What CANN reads from the environment (acl_environment.def). */
#include <stdbool.h>

struct ngd_doctor_device_report;

/*
 * Sets variables that are not set, from the folder of the libraries; "" is that of `library`, which the linker has
 * found. Under the lock of acl_load.c, before CANN is initialised.
 */
void ngd_acl_derive_environment(const char *dir, void *library);
/* One step for each variable: its value, and who has set it, or what is missing without it. Any thread. */
void ngd_acl_doctor_environment(bool open, struct ngd_doctor_device_report *report);

#endif
