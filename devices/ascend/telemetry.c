/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What DCMI tells of a chip, and what CANN tells where DCMI does not. Each function is asked for itself: what one does
 * not answer is absent, and the rest is there.
 */
#include "devices/telemetry.h"
#include "devices/ascend/ascend.h"
#include "devices/ascend/dcmi.h"
#include <stdio.h>

#define MB            1048576.0
#define PERCENT       0.01
#define TENTH         0.1
#define NOT_AVAILABLE (-1)

/* Lives as long as its thread, which may outlive the device. */
struct ascend_source {
    const struct ngd_acl *acl; /* has a reference */
    struct ngd_ascend_numbers numbers;
    char libs[512];
};

/* A chip as DCMI addresses it. */
struct dcmi_chip {
    const struct ngd_dcmi *dcmi;
    int card, device;
};

void ngd_ascend_telemetry_numbers(void *dev_v, struct ngd_telemetry *t)
{
    const struct ascend_device *dev = dev_v;

    t->logical = dev->numbers.logical;
    t->physical = dev->numbers.physical;
}

void *ngd_ascend_telemetry_open(void *dev_v)
{
    const struct ascend_device *dev = dev_v;
    struct ascend_source *s = NGD_NEW(struct ascend_source);

    if (!s)
        return NULL;
    s->acl = dev->acl;
    ngd_acl_ref(s->acl);
    s->numbers = dev->numbers;
    snprintf(s->libs, sizeof(s->libs), "%s", dev->libs);
    return s;
}

void ngd_ascend_telemetry_close(void *source)
{
    const struct ascend_source *s = source;

    ngd_acl_unload(s->acl);
    ngd_free(source);
}

/* Looks up card and device each time: they may change when a card is reset. */
static bool find_dcmi_chip(const struct ascend_source *s, struct dcmi_chip *chip)
{
    const struct ngd_dcmi *dcmi = ngd_dcmi_load(s->libs);

    *chip = (struct dcmi_chip){.dcmi = dcmi, .card = -1, .device = -1};
    return dcmi && s->numbers.logical >= 0 && dcmi->dcmi_get_card_id_device_id_from_logicid &&
           dcmi->dcmi_get_card_id_device_id_from_logicid(&chip->card, &chip->device,
                                                         (unsigned int)s->numbers.logical) == 0 &&
           chip->card >= 0 && chip->device >= 0;
}

static void sample_chip(const struct dcmi_chip *c, struct ngd_telemetry *t)
{
    unsigned int alarm = 0;
    int value = 0;

    if (c->dcmi->dcmi_get_device_temperature && c->dcmi->dcmi_get_device_temperature(c->card, c->device, &value) == 0)
        ngd_telemetry_set(t, NGD_TELEMETRY_TEMPERATURE, value);
    if (c->dcmi->dcmi_get_device_power_info && c->dcmi->dcmi_get_device_power_info(c->card, c->device, &value) == 0)
        ngd_telemetry_set(t, NGD_TELEMETRY_POWER, value * TENTH);
    if (c->dcmi->dcmi_get_device_health && c->dcmi->dcmi_get_device_health(c->card, c->device, &alarm) == 0 &&
        alarm <= INT32_MAX) /* more: there is no such device */
        ngd_telemetry_set(t, NGD_TELEMETRY_HEALTH, alarm == 0);
}

static void sample_hbm(const struct dcmi_chip *c, struct ngd_telemetry *t)
{
    struct ngd_dcmi_hbm hbm = {0};

    if (!c->dcmi->dcmi_get_device_hbm_info || c->dcmi->dcmi_get_device_hbm_info(c->card, c->device, &hbm))
        return;
    ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_TOTAL, (double)hbm.total * MB);
    if (hbm.used <= hbm.total)
        ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_USED, (double)hbm.used * MB);
    ngd_telemetry_set(t, NGD_TELEMETRY_MEMORY_TEMPERATURE, hbm.temperature);
    ngd_telemetry_set(t, NGD_TELEMETRY_BANDWIDTH_UTILIZATION, hbm.bandwidth * PERCENT);
}

static void sample_ecc(const struct dcmi_chip *c, struct ngd_telemetry *t)
{
    struct ngd_dcmi_ecc ecc = {0};

    if (!c->dcmi->dcmi_get_device_ecc_info ||
        c->dcmi->dcmi_get_device_ecc_info(c->card, c->device, NGD_DCMI_MEMORY_HBM, &ecc) || !ecc.enabled)
        return;
    ngd_telemetry_set(t, NGD_TELEMETRY_ECC_SINGLE, ecc.single_now);
    ngd_telemetry_set(t, NGD_TELEMETRY_ECC_DOUBLE, ecc.double_now);
    ngd_telemetry_set(t, NGD_TELEMETRY_ECC_SINGLE_ALL, ecc.single_all);
    ngd_telemetry_set(t, NGD_TELEMETRY_ECC_DOUBLE_ALL, ecc.double_all);
    ngd_telemetry_set(t, NGD_TELEMETRY_PAGES_SINGLE, ecc.single_pages);
    ngd_telemetry_set(t, NGD_TELEMETRY_PAGES_DOUBLE, ecc.double_pages);
}

static void sample_utilization(const struct dcmi_chip *c, int which, ngd_telemetry_id_t id, struct ngd_telemetry *t)
{
    unsigned int percent = 0;

    if (c->dcmi->dcmi_get_device_utilization_rate &&
        c->dcmi->dcmi_get_device_utilization_rate(c->card, c->device, which, &percent) == 0)
        ngd_telemetry_set(t, id, percent * PERCENT);
}

/* CANN tells the utilization alone, without a context; what it calls the cube's is the AI Cores' (hicann/runtime
 * 681ef76, aclrtGetDeviceUtilizationRateImpl in device.cpp). */
static void sample_cann(const struct ascend_source *s, struct ngd_telemetry *t)
{
    struct ngd_acl_utilization rates = {NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, NULL};
    double have;

    if (ngd_telemetry_get(t, NGD_TELEMETRY_UTILIZATION, &have) || !s->acl->aclrtGetDeviceUtilizationRate ||
        s->acl->aclrtGetDeviceUtilizationRate(s->numbers.user, &rates))
        return;
    ngd_telemetry_set(t, NGD_TELEMETRY_UTILIZATION, rates.cube * PERCENT);
    ngd_telemetry_set(t, NGD_TELEMETRY_VECTOR_UTILIZATION, rates.vector * PERCENT);
}

void ngd_ascend_telemetry_sample(void *source, struct ngd_telemetry *t)
{
    const struct ascend_source *s = source;
    struct dcmi_chip chip;
    unsigned int physical = 0;

    t->logical = s->numbers.logical;
    t->physical = s->numbers.physical;
    if (find_dcmi_chip(s, &chip)) {
        sample_chip(&chip, t);
        sample_hbm(&chip, t);
        sample_ecc(&chip, t);
        sample_utilization(&chip, NGD_DCMI_UTILIZATION_AICORE, NGD_TELEMETRY_UTILIZATION, t);
        sample_utilization(&chip, NGD_DCMI_UTILIZATION_VECTOR, NGD_TELEMETRY_VECTOR_UTILIZATION, t);
    }
    if (t->physical == NGD_NUMBER_UNKNOWN && chip.dcmi && t->logical >= 0 &&
        chip.dcmi->dcmi_get_device_phyid_from_logicid &&
        chip.dcmi->dcmi_get_device_phyid_from_logicid((unsigned int)t->logical, &physical) == 0 &&
        physical < INT32_MAX) {
        t->physical = (int32_t)physical;
        ngd_ascend_keep_physical((uint32_t)s->numbers.user, t->physical);
    }
    sample_cann(s, t);
}
