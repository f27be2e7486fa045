/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_DCMI_H
#define NGD_DEVICES_ASCEND_DCMI_H

/*
 * DCMI, the driver's library that tells a chip's state: libdcmi.so, which need not be there. It knows nothing of
 * ASCEND_RT_VISIBLE_DEVICES: its numbers are the driver's, the logical ones (devices/ascend/visible.h).
 *
 * Declarations by the header dcmi_interface_api of Ascend/mind-cluster (ascend-common, devmanager).
 */

/* Memory in MB, utilization in percent, temperature in degrees Celsius. */
struct ngd_dcmi_hbm {
    unsigned long long total;
    unsigned int frequency;
    unsigned long long used;
    int temperature;
    unsigned int bandwidth;
};

/* Newer drivers write two members more than older ones; the room is for those that follow. */
struct ngd_dcmi_ecc {
    int enabled;
    unsigned int single_now, double_now, single_all, double_all, single_pages, double_pages;
    unsigned int room[57];
};

#define NGD_DCMI_MEMORY_HBM         2  /* enum dcmi_device_type */
#define NGD_DCMI_UTILIZATION_AICORE 2  /* DCMI_UTILIZATION_RATE_AICORE, percent */
#define NGD_DCMI_UTILIZATION_VECTOR 12 /* DCMI_UTILIZATION_RATE_VECTORCORE, percent */

struct ngd_dcmi {
#define NGD_DCMI(name, args) int(*name) args;
#include "devices/ascend/dcmi_symbols.def"
#undef NGD_DCMI
};

/*
 * Returns the library, loaded and initialised; NULL if it is not there, or while another thread initialises it. dir is
 * looked in first, then the places of the driver. May hang: call it on a thread that nobody waits for.
 * NGD_ASCEND_DCMI in the environment names another file. A function that the library lacks is NULL.
 */
const struct ngd_dcmi *ngd_dcmi_load(const char *dir);

#endif
