/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_DOCTOR_DEVICE_H
#define NGD_DEVICES_DOCTOR_DEVICE_H

/*
 * The doctor's steps for a device:
 *   - The machine has what the device needs: nodes, permissions, the driver's files. The backend adds these steps.
 *   - The device returns what was written to it.
 *   - It computes a decoder's operators as the host's plain C kernels do, and replays them with the same bits.
 *   - It reports mistakes and continues.
 *   - It replays in a time that the report states.
 * They serve the first user of a new kind of device, and users who suspect a device.
 *
 * Threads: any. The doctor uses its own stream and pool, beside the device's other users. Time: seconds. It ends at the
 * device's first error; if the device hangs, the backend's own time limit raises that error.
 */
#include "devices/device.h"

#define NGD_DOCTOR_DEVICE_STEPS 64

struct ngd_doctor_device_step {
    char name[48];
    const char *verdict; /* "passed", "differs", "missing", "failed" or "skipped" */
    char text[480];
    ngd_nsec_t took;
};

struct ngd_doctor_device_report {
    struct ngd_doctor_device_step steps[NGD_DOCTOR_DEVICE_STEPS];
    uint32_t n_steps;
    bool healthy;      /* no step differs or failed; missing operators do not count */
    char verdict[480]; /* a sentence */
};

/* Runs all steps on an open device. The report is large: allocate it on the heap. */
void ngd_doctor_device(struct ngd_device *dev, struct ngd_doctor_device_report *report);
/*
 * Examines a device that could not be opened; `why` is the diagnosis of that. Tries to open it again. If it opens, all
 * steps run, its description and capabilities are appended to the strings that are not NULL, and it is closed again.
 * Otherwise the report says what the device needs from the machine.
 */
void ngd_doctor_device_refused(const struct ngd_device_params *params, const char *why,
                               struct ngd_doctor_device_report *report, struct ngd_strbuf *description,
                               struct ngd_strbuf *capabilities);
/* Adds a step to the report; backends call it too. A verdict of "differs" or "failed" sets healthy to false. */
void ngd_doctor_device_add(struct ngd_doctor_device_report *report, const char *name, const char *verdict,
                           ngd_nsec_t took, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
