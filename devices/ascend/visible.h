/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_VISIBLE_H
#define NGD_DEVICES_ASCEND_VISIBLE_H

/*
 * The three numbers of an NPU. The user's is the one that CANN's functions take, and that "ascend:N" names. If
 * ASCEND_RT_VISIBLE_DEVICES is set, CANN numbers the devices that it names from 0; what it names is the logical number,
 * which the driver and DCMI use. In a container the driver numbers again what was passed on; the physical number is the
 * chip's in the machine, and that of its node /dev/davinciN.
 *
 * Source: hicann/runtime 681ef76, 04_device_management of its API reference, aclrtGetPhyDevIdByUserDevId.
 */
#include "devices/ascend/acl.h"
#include <stdbool.h>

#define NGD_VISIBLE_MAX  64 /* RT_MAX_DEV_NUM, src/runtime/core/inc/spec/base_info.hpp:23 */
#define NGD_VISIBLE_NAME "ASCEND_RT_VISIBLE_DEVICES"

typedef enum ngd_visible_state {
    NGD_VISIBLE_ALL,    /* the variable is not set */
    NGD_VISIBLE_SOME,   /* it names `n` devices */
    NGD_VISIBLE_NONE,   /* it begins with nothing that is the number of a device: CANN sees no device */
    NGD_VISIBLE_ORDER,  /* the numbers do not rise: CANN sees no device */
    NGD_VISIBLE_DOUBLE, /* a number is there twice: CANN sees no device */
} ngd_visible_state_t;

struct ngd_visible {
    ngd_visible_state_t state;
    uint32_t n, logical[NGD_VISIBLE_MAX]; /* of SOME */
    bool cut;                             /* of SOME: CANN ignores the rest of the text */
};

/* Reads the variable's value as CANN does. text: NULL if it is not set. devices: how many the driver has. */
void ngd_visible_parse(const char *text, uint32_t devices, struct ngd_visible *v_p);
/* Says in half a sentence what CANN makes of the variable. */
const char *ngd_visible_explain(const struct ngd_visible *v);

struct ngd_ascend_numbers {
    int32_t user, logical, physical; /* NGD_NUMBER_UNKNOWN: not known */
};
/*
 * Asks CANN, if acl is not NULL, and keeps the answer for the process, in which the numbers do not change. Otherwise
 * says what is known by then: at least what the variable says. Any thread.
 */
void ngd_ascend_find_numbers(const struct ngd_acl *acl, uint32_t user, struct ngd_ascend_numbers *numbers_p);
/* Keeps the physical number of a device, which DCMI has told. */
void ngd_ascend_keep_physical(uint32_t user, int32_t physical);

#endif
