/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_SIM_DEVICE_H
#define NGD_TESTS_SIM_DEVICE_H

/*
 * The simulated device: "host" in name, memory, plans and results, since kernels of tiny graphs are the reference; the
 * time that a launch takes and its faults are drawn from the seed.
 */
#include "devices/backend.h"

#define SIM_OUTLIER 5 /* times as long as usual: one launch in fifty */

struct sim_device_params {
    ngd_nsec_t service;  /* of a launch of one row, at least */
    uint32_t spread;     /* a graph's own time is up to so many times as long */
    uint32_t fault;      /* of 100000 launches: DEVICE_FAULT */
    uint32_t lost;       /* of 100000: the device is lost */
    ngd_nsec_t lost_for; /* and a reset does not help for so long */
    bool faults_end;     /* there are no more: what waits shall end */
};
extern struct sim_device_params sim_device;

struct sim_device_counts {
    uint64_t launches, faults, losses, stopped, paused;
    ngd_nsec_t longest; /* that a launch took */
};
extern struct sim_device_counts sim_device_counts;

/* At most, without faults. */
ngd_nsec_t sim_device_longest(int64_t rows);

#endif
