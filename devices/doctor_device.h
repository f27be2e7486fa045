/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DOCTOR_DEVICE_H
#define NGD_DEVICES_DOCTOR_DEVICE_H

/*
 * A checkup of a device: has the machine what it needs (nodes, permissions, the driver's files; the backend says), does
 * it give back what was written, compute a decoder's operators as the host's plain C kernels do, replay what it
 * captured with the same bits, answer mistakes and go on; and how long does a replay take? For the first user of a
 * device that nobody had, and for a device that is suspected.
 *
 * Threads: any; it uses a stream and a pool of its own, and the device beside its other users. Time: seconds; it ends
 * at the first error of the device, which the backend's own time limit brings about when the device hangs.
 */
#include "devices/device.h"

#define NGD_DOCTOR_DEVICE_STEPS 64

struct ngd_doctor_device_step {
    char name[48];
    const char *verdict; /* passed | differs | missing | failed | skipped */
    char text[480];
    ngd_nsec_t took;
};

struct ngd_doctor_device_report {
    struct ngd_doctor_device_step steps[NGD_DOCTOR_DEVICE_STEPS];
    uint32_t n_steps;
    bool healthy;      /* no step differs or failed; missing operators are no illness */
    char verdict[480]; /* a sentence */
};

/* Large: on the heap. */
void ngd_doctor_device(struct ngd_device *dev, struct ngd_doctor_device_report *report);
/*
 * Of a device that was refused when it was to be opened (why: its diagnosis): what it needs from the machine, and
 * whether it opens now. If it does all steps follow, and it is closed again. The device's own description and
 * capabilities are appended to what is not NULL, as long as it is open.
 */
void ngd_doctor_device_refused(const struct ngd_device_params *params, const char *why,
                               struct ngd_doctor_device_report *report, struct ngd_strbuf *description,
                               struct ngd_strbuf *capabilities);
/* For backends' steps. What differs or failed makes the report one of a device that is not healthy. */
void ngd_doctor_device_add(struct ngd_doctor_device_report *report, const char *name, const char *verdict,
                           ngd_nsec_t took, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
