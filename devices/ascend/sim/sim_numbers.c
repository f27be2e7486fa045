/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of devices. NGD_ACLSIM_DEVICES says how many the driver has; ASCEND_RT_VISIBLE_DEVICES hides some of them
 * and numbers the others again (hicann/runtime 681ef76, src/runtime/core/src/runtime.cc:4725-5070,
 * src/runtime/api/impl/api_impl.cc:3403-3442); NGD_ACLSIM_PHYSICAL="6,7" gives them other numbers in the machine, as
 * the driver does for a container. The text is read here in another way than the backend reads it, as a check of both.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RT_NO_DEVICE 207004 /* ACL_ERROR_RT_NO_DEVICE */
#define TEXT_ROOM    129    /* 128 characters count */

/* Fills numbers with those that count. Returns their number, or -1: all of them are refused. */
static int visible_numbers(const char *text, int devices, int numbers[SIM_MAX_DEVICES])
{
    char copy[TEXT_ROOM], *at = copy;
    int n = 0, used;
    long number;

    snprintf(copy, sizeof(copy), "%s", text);
    while (n < devices && strspn(at, "0123456789") > 0 && sscanf(at, "%ld%n", &number, &used) == 1 &&
           number < devices) {
        if (n > 0 && number <= numbers[n - 1])
            return -1;
        numbers[n++] = (int)number;
        at += used;
        if (*at++ != ',')
            break;
    }
    return n > 0 ? n : -1;
}

static int visible_in(int numbers[SIM_MAX_DEVICES])
{
    const char *text = getenv("ASCEND_RT_VISIBLE_DEVICES");

    if (text)
        return visible_numbers(text, sim.config.devices, numbers);
    for (int i = 0; i < sim.config.devices; i++)
        numbers[i] = i;
    return sim.config.devices;
}

int sim_visible_devices(uint32_t *count_p)
{
    int numbers[SIM_MAX_DEVICES], n = visible_in(numbers);

    if (n < 0)
        return ngd_aclsim_fail(RT_NO_DEVICE, "the same", "EE2002: ASCEND_RT_VISIBLE_DEVICES is not valid");
    *count_p = (uint32_t)n;
    return 0;
}

static int logical_number(int32_t user, int32_t *logical_p)
{
    int numbers[SIM_MAX_DEVICES], n = visible_in(numbers);

    if (!logical_p || user < 0 || user >= n)
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_DEVICEID, "the same", "device %d of %d does not exist", user, n);
    *logical_p = numbers[user];
    return 0;
}

SIM_OPTIONAL(aclrtGetLogicDevIdByUserDevId);
static ngd_acl_error_t aclrtGetLogicDevIdByUserDevId_impl(int32_t user, int32_t *logical_p)
{
    SIM_CALL("aclrtGetLogicDevIdByUserDevId");
    return logical_number(user, logical_p);
}

SIM_OPTIONAL(aclrtGetPhyDevIdByUserDevId);
static ngd_acl_error_t aclrtGetPhyDevIdByUserDevId_impl(int32_t user, int32_t *physical_p)
{
    const char *at = getenv("NGD_ACLSIM_PHYSICAL");
    int code;

    SIM_CALL("aclrtGetPhyDevIdByUserDevId");
    code = logical_number(user, physical_p);
    if (code || !at)
        return code;
    for (int i = *physical_p; i > 0 && at; i--)
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    if (!at)
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_DEVICEID, "the same", "NGD_ACLSIM_PHYSICAL has no number for it");
    *physical_p = (int32_t)strtol(at, NULL, 10);
    return 0;
}
