/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ASCEND_RT_VISIBLE_DEVICES, by the rules of hicann/runtime 681ef76, src/runtime/core/src/runtime.cc: SplitString
 * (4725-4768), Runtime::GetVisibleDevices (4951-5070), and ApiImpl::GetDeviceCount (api_impl.cc:3403) for what follows.
 */
#include "devices/ascend/visible.h"
#include "devices/telemetry.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 128 /* RT_SET_DEVICE_STR_MAX_LEN: CANN reads no more */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads the number at *at and moves behind it. Returns false for one that std::stoi refuses, or that no device has. */
static bool read_visible_number(const char **at, const char *end, uint32_t devices, uint32_t *number_p)
{
    uint64_t value = 0;

    for (; *at < end && is_digit(**at); ++*at)
        if (value <= INT_MAX)
            value = value * 10 + (uint64_t)(**at - '0');
    *number_p = (uint32_t)value;
    return value <= INT_MAX && value < devices;
}

void ngd_visible_parse(const char *text, uint32_t devices, struct ngd_visible *v_p)
{
    const char *at = text, *end = text ? text + strnlen(text, TEXT_MAX) : NULL;

    memset(v_p, 0, sizeof(*v_p));
    if (!text)
        return;
    devices = devices < NGD_VISIBLE_MAX ? devices : NGD_VISIBLE_MAX;
    while (at < end && is_digit(*at) && v_p->n < devices) {
        const uint32_t before = v_p->n ? v_p->logical[v_p->n - 1] : 0;
        const char *begin = at;
        uint32_t number;

        if (!read_visible_number(&at, end, devices, &number)) {
            at = begin;
            break;
        }
        if (v_p->n && number <= before) {
            v_p->state = number < before ? NGD_VISIBLE_ORDER : NGD_VISIBLE_DOUBLE;
            v_p->n = 0;
            return;
        }
        v_p->logical[v_p->n++] = number;
        if (at == end || *at != ',')
            break;
        at++; /* a second comma ends the list, as anything else does that is no digit */
    }
    v_p->state = v_p->n ? NGD_VISIBLE_SOME : NGD_VISIBLE_NONE;
    v_p->cut = v_p->n && *at != '\0';
}

const char *ngd_visible_explain(const struct ngd_visible *v)
{
    static const char *const texts[] = {
        [NGD_VISIBLE_ALL] = "it is not set, so CANN numbers devices as the driver does",
        [NGD_VISIBLE_SOME] = "CANN numbers the devices that it names from 0",
        [NGD_VISIBLE_NONE] = "it does not begin with the number of a device, so CANN sees none",
        [NGD_VISIBLE_ORDER] = "its numbers do not rise, so CANN sees no device",
        [NGD_VISIBLE_DOUBLE] = "it names a device twice, so CANN sees none",
    };

    if (v->state == NGD_VISIBLE_SOME && v->cut)
        return "CANN numbers from 0 the devices before the first part that is no number of a device, and ignores the "
               "rest";
    return texts[v->state];
}

/* What CANN and DCMI have told of each of the user's numbers, plus one; 0: nothing. */
static _Atomic int32_t kept_logical[NGD_VISIBLE_MAX], kept_physical[NGD_VISIBLE_MAX];

/* The driver's number of devices is not known here; CANN has already refused what is too large. */
static int32_t logical_by_variable(uint32_t user)
{
    struct ngd_visible v;

    ngd_visible_parse(getenv(NGD_VISIBLE_NAME), NGD_VISIBLE_MAX, &v);
    if (v.state == NGD_VISIBLE_ALL)
        return (int32_t)user;
    return v.state == NGD_VISIBLE_SOME && user < v.n ? (int32_t)v.logical[user] : NGD_NUMBER_UNKNOWN;
}

void ngd_ascend_keep_physical(uint32_t user, int32_t physical)
{
    if (user < NGD_VISIBLE_MAX)
        atomic_store(&kept_physical[user], physical < 0 ? 0 : physical + 1);
}

static void ask_cann(const struct ngd_acl *acl, uint32_t user)
{
    int32_t found = NGD_NUMBER_UNKNOWN;

    if (!acl->aclrtGetLogicDevIdByUserDevId || acl->aclrtGetLogicDevIdByUserDevId((int32_t)user, &found) ||
        found >= NGD_VISIBLE_MAX)
        found = NGD_NUMBER_UNKNOWN;
    atomic_store(&kept_logical[user], found < 0 ? 0 : found + 1);
    found = NGD_NUMBER_UNKNOWN;
    if (!acl->aclrtGetPhyDevIdByUserDevId || acl->aclrtGetPhyDevIdByUserDevId((int32_t)user, &found) ||
        found == INT32_MAX)
        found = NGD_NUMBER_UNKNOWN;
    ngd_ascend_keep_physical(user, found);
}

void ngd_ascend_find_numbers(const struct ngd_acl *acl, uint32_t user, struct ngd_ascend_numbers *numbers_p)
{
    *numbers_p = (struct ngd_ascend_numbers){(int32_t)user, NGD_NUMBER_UNKNOWN, NGD_NUMBER_UNKNOWN};
    if (user >= NGD_VISIBLE_MAX) /* no device has such a number */
        return;
    if (acl)
        ask_cann(acl, user);
    numbers_p->logical = atomic_load(&kept_logical[user]) - 1;
    numbers_p->physical = atomic_load(&kept_physical[user]) - 1;
    if (numbers_p->logical == NGD_NUMBER_UNKNOWN)
        numbers_p->logical = logical_by_variable(user);
}
