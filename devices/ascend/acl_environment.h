/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ACL_ENVIRONMENT_H
#define NGD_DEVICES_ASCEND_ACL_ENVIRONMENT_H

/* What CANN reads from the environment (acl_environment.def). */
#include <limits.h>
#include <stdbool.h>

struct ngd_doctor_device_report;

/* The folder that the linker has loaded a library from, absolute; false: it does not say. */
bool ngd_acl_find_folder(void *library, char path[PATH_MAX]);
/* The process has no other thread: nobody reads the environment while it is changed. */
bool ngd_acl_is_alone(void);
/*
 * Sets variables that are not set, from the folder that the linker has loaded `library` from, else from `dir`, the
 * folder that was named or found ("": none). `alone` is asked before CANN's libraries are loaded, which may start
 * threads of their own then; without it, only notes for the doctor that it is too late. Under the lock of acl_load.c,
 * before CANN is initialised.
 */
void ngd_acl_derive_environment(const char *dir, void *library, bool alone);
/* One step for each variable: its value, and who has set it, or what is missing without it. Any thread. */
void ngd_acl_doctor_environment(bool open, struct ngd_doctor_device_report *report);

#endif
