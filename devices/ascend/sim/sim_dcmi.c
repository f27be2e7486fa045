/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated libdcmi.so. NGD_DCMISIM has its state as pairs "key=value", or names a file of such pairs (it begins with
 * "/"), which each call reads again.
 *
 * Values: temperature, power (tenths of a watt), health, hbm_total, hbm_used (MB), hbm_temperature, bandwidth, aicore,
 * vector (percent), ecc, single_now, double_now, single_all, double_all, single_pages, double_pages, chips (how many
 * there are). A chip's temperature is raised by its logical number.
 *
 * "fail.FUNCTION=CODE": the function answers the code. "hang.FUNCTION=1": it does not return while this is there.
 * "absent.FUNCTION=1": the library has no such function.
 *
 * Codes and units: the header dcmi_interface_api and dcmi.go of Ascend/mind-cluster (ascend-common, devmanager). Cards
 * have two chips, as those of A3 have.
 */
#include "devices/ascend/dcmi.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DCMI_INVALID_PARAMETER (-8001)
#define DCMI_DEVICE_NOT_EXIST  (-8008)
#define DCMI_NOT_SUPPORT       (-8255)
#define CHIPS_OF_A_CARD        2
#define MOST_LOGICAL           64
#define TEXT_ROOM              4096

#define DCMI_EXPORT          __attribute__((visibility("default")))
#define NGD_DCMI(name, args) DCMI_EXPORT int name args;
#include "devices/ascend/dcmi_symbols.def"
#undef NGD_DCMI

static void read_state(char text[TEXT_ROOM])
{
    const char *state = getenv("NGD_DCMISIM");
    FILE *f = state && *state == '/' ? fopen(state, "re") : NULL;
    size_t n = 0;

    if (f) {
        n = fread(text, 1, TEXT_ROOM - 1, f);
        fclose(f);
        text[n] = '\0';
    } else {
        snprintf(text, TEXT_ROOM, "%s", state && *state != '/' ? state : "");
    }
}

/* Returns whether the state has "group.name" (or "name", if group is NULL), and its value. */
static bool find_value(const char *group, const char *name, long *value_p)
{
    char text[TEXT_ROOM], key[128];
    size_t n;

    snprintf(key, sizeof(key), "%s%s%s=", group ? group : "", group ? "." : "", name);
    n = strlen(key);
    read_state(text);
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) {
        if (at != text && !isspace((unsigned char)at[-1]) && at[-1] != ',')
            continue;
        *value_p = strtol(at + n, NULL, 10);
        return true;
    }
    return false;
}

static long value_of(const char *name, long otherwise)
{
    long value = otherwise;

    find_value(NULL, name, &value);
    return value;
}

/* What each function does first: hangs, fails, or returns 0. */
static int begin(const char *function, const void *out)
{
    const struct timespec while_hanging = {.tv_nsec = 5000000};
    long code = 0;

    while (find_value("hang", function, &code))
        nanosleep(&while_hanging, NULL);
    if (find_value("fail", function, &code))
        return (int)code;
    return out ? 0 : DCMI_INVALID_PARAMETER;
}

static int begin_chip(const char *function, int card, int device, const void *out)
{
    int code = begin(function, out);

    if (code == 0 && (card < 0 || device < 0 || device >= CHIPS_OF_A_CARD ||
                      card * CHIPS_OF_A_CARD + device >= value_of("chips", MOST_LOGICAL)))
        return DCMI_DEVICE_NOT_EXIST;
    return code;
}

/* dlsym finds NULL for a function that the state hides. */
#define DCMI_OPTIONAL(name)                                               \
    static __typeof__(name) name##_impl;                                  \
    __attribute__((used)) static __typeof__(name) *name##_resolve(void)   \
    {                                                                     \
        long hidden;                                                      \
                                                                          \
        return find_value("absent", #name, &hidden) ? NULL : name##_impl; \
    }                                                                     \
    __typeof__(name) name __attribute__((ifunc(#name "_resolve")))

DCMI_OPTIONAL(dcmi_init);
static int dcmi_init_impl(void)
{
    return begin("dcmi_init", "");
}

DCMI_OPTIONAL(dcmi_get_card_id_device_id_from_logicid);
static int dcmi_get_card_id_device_id_from_logicid_impl(int *card_p, int *device_p, unsigned int logical)
{
    int code = begin("dcmi_get_card_id_device_id_from_logicid", card_p && device_p ? card_p : NULL);

    if (code)
        return code;
    if (logical >= (unsigned long)value_of("chips", MOST_LOGICAL))
        return DCMI_DEVICE_NOT_EXIST;
    *card_p = (int)logical / CHIPS_OF_A_CARD;
    *device_p = (int)logical % CHIPS_OF_A_CARD;
    return 0;
}

DCMI_OPTIONAL(dcmi_get_device_phyid_from_logicid);
static int dcmi_get_device_phyid_from_logicid_impl(unsigned int logical, unsigned int *physical_p)
{
    const char *at = getenv("NGD_ACLSIM_PHYSICAL");
    int code = begin("dcmi_get_device_phyid_from_logicid", physical_p);

    if (code)
        return code;
    for (unsigned int i = logical; i > 0 && at; i--)
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    if (getenv("NGD_ACLSIM_PHYSICAL") && !at)
        return DCMI_DEVICE_NOT_EXIST;
    *physical_p = at ? (unsigned int)strtoul(at, NULL, 10) : logical;
    return 0;
}

DCMI_OPTIONAL(dcmi_get_device_temperature);
static int dcmi_get_device_temperature_impl(int card, int device, int *celsius_p)
{
    int code = begin_chip("dcmi_get_device_temperature", card, device, celsius_p);

    if (code == 0)
        *celsius_p = (int)value_of("temperature", 40) + card * CHIPS_OF_A_CARD + device;
    return code;
}

DCMI_OPTIONAL(dcmi_get_device_power_info);
static int dcmi_get_device_power_info_impl(int card, int device, int *tenths_of_watt_p)
{
    int code = begin_chip("dcmi_get_device_power_info", card, device, tenths_of_watt_p);

    if (code == 0)
        *tenths_of_watt_p = (int)value_of("power", 905);
    return code;
}

DCMI_OPTIONAL(dcmi_get_device_health);
static int dcmi_get_device_health_impl(int card, int device, unsigned int *alarm_p)
{
    int code = begin_chip("dcmi_get_device_health", card, device, alarm_p);

    if (code == 0)
        *alarm_p = (unsigned int)value_of("health", 0);
    return code;
}

DCMI_OPTIONAL(dcmi_get_device_hbm_info);
static int dcmi_get_device_hbm_info_impl(int card, int device, struct ngd_dcmi_hbm *hbm_p)
{
    int code = begin_chip("dcmi_get_device_hbm_info", card, device, hbm_p);

    if (code)
        return code;
    *hbm_p = (struct ngd_dcmi_hbm){.total = (unsigned long long)value_of("hbm_total", 65536),
                                   .frequency = 1600,
                                   .used = (unsigned long long)value_of("hbm_used", 3072),
                                   .temperature = (int)value_of("hbm_temperature", 38),
                                   .bandwidth = (unsigned int)value_of("bandwidth", 12)};
    return 0;
}

DCMI_OPTIONAL(dcmi_get_device_ecc_info);
static int dcmi_get_device_ecc_info_impl(int card, int device, int memory, struct ngd_dcmi_ecc *ecc_p)
{
    int code = begin_chip("dcmi_get_device_ecc_info", card, device, ecc_p);

    if (code)
        return code;
    if (memory != NGD_DCMI_MEMORY_HBM)
        return DCMI_NOT_SUPPORT;
    ecc_p->enabled = (int)value_of("ecc", 1);
    ecc_p->single_now = (unsigned int)value_of("single_now", 0);
    ecc_p->double_now = (unsigned int)value_of("double_now", 0);
    ecc_p->single_all = (unsigned int)value_of("single_all", 0);
    ecc_p->double_all = (unsigned int)value_of("double_all", 0);
    ecc_p->single_pages = (unsigned int)value_of("single_pages", 0);
    ecc_p->double_pages = (unsigned int)value_of("double_pages", 0);
    ecc_p->room[0] = ecc_p->room[1] = 0; /* the pages that newer drivers would isolate next */
    return 0;
}

DCMI_OPTIONAL(dcmi_get_device_utilization_rate);
static int dcmi_get_device_utilization_rate_impl(int card, int device, int which, unsigned int *percent_p)
{
    int code = begin_chip("dcmi_get_device_utilization_rate", card, device, percent_p);

    if (code)
        return code;
    if (which != NGD_DCMI_UTILIZATION_AICORE && which != NGD_DCMI_UTILIZATION_VECTOR)
        return DCMI_NOT_SUPPORT;
    *percent_p = (unsigned int)(which == NGD_DCMI_UTILIZATION_AICORE ? value_of("aicore", 37) : value_of("vector", 21));
    return 0;
}
