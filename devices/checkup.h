/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_CHECKUP_H
#define NGD_DEVICES_CHECKUP_H

/*
 * A checkup of a device that is open: does it give back what was written, compute a decoder's operators as the host's
 * plain C kernels do, replay what it captured with the same bits, answer mistakes and go on; and how long does a replay
 * take? For the first user of a device that nobody had, and for a device that is suspected.
 *
 * Threads: any; it uses a stream and a pool of its own, and the device beside its other users. Time: seconds; it ends
 * at the first error of the device, which the backend's own time limit brings about when the device hangs.
 */
#include "devices/device.h"

#define NGD_CHECKUP_STEPS 64

struct ngd_checkup_step {
    const char *name;
    const char *verdict; /* passed | differs | missing | failed | skipped */
    char text[240];
    ngd_nsec_t took;
};

struct ngd_checkup {
    struct ngd_checkup_step steps[NGD_CHECKUP_STEPS];
    uint32_t n_steps;
    bool healthy;      /* no step differs or failed; missing operators are no illness */
    char verdict[240]; /* a sentence */
};

/* Large: on the heap. */
void ngd_device_checkup(struct ngd_device *dev, struct ngd_checkup *report);

#endif
