/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_TELEMETRY_H
#define NGD_DEVICES_TELEMETRY_H

/*
 * Readings of a device's hardware (telemetry.def): memory, temperature, power, errors, utilization.
 *
 * A vendor's library or a driver may block when it is asked. So each device has a thread that asks, rarely, and keeps
 * the last readings; everyone else gets a copy. Readings that are older than a few intervals are dropped: absent is
 * never zero. A stop waits briefly for the thread, then leaves it to its call: the thread owns what it uses.
 *
 * Threads: any, except that start and stop are the owner's of the device.
 */
#include "base/clock.h"
#include "devices/device.h"

typedef enum ngd_telemetry_id {
#define NGD_TELEMETRY(ID, name, unit, least, most, vendor, column, help) NGD_TELEMETRY_##ID,
#include "devices/telemetry.def"
#undef NGD_TELEMETRY
    NGD_TELEMETRY_MAX
} ngd_telemetry_id_t;

typedef enum ngd_unit { NGD_UNIT_BYTES, NGD_UNIT_CELSIUS, NGD_UNIT_WATTS, NGD_UNIT_RATIO, NGD_UNIT_COUNT } ngd_unit_t;

struct ngd_telemetry_row {
    const char *name; /* "temperature_celsius" */
    ngd_unit_t unit;
    double least, most;
    const char *vendor, *column, *help; /* vendor, column: "" if there is none */
};
const struct ngd_telemetry_row *ngd_telemetry_row(ngd_telemetry_id_t id);

#define NGD_NUMBER_UNKNOWN (-1)

struct ngd_telemetry {
    uint32_t known; /* bit i: value[i] is a reading */
    double value[NGD_TELEMETRY_MAX];
    /* The driver's number of the device in this system or container, and the number of its chip in the machine. */
    int32_t logical, physical;
};

/* Records a reading, unless it lies outside the row's range or is not a number. */
void ngd_telemetry_set(struct ngd_telemetry *t, ngd_telemetry_id_t id, double value);
/* Returns false, and writes nothing, if there is no such reading. */
bool ngd_telemetry_get(const struct ngd_telemetry *t, ngd_telemetry_id_t id, double *value_p);
/* Converts a reading to the unit of the vendor's exporter. */
double ngd_telemetry_vendor_value(ngd_telemetry_id_t id, double value);

/* Begins to sample. Does nothing if the interval is 0 or if the backend reads nothing. */
ngd_status_t ngd_telemetry_start(struct ngd_device *dev, ngd_nsec_t interval, struct ngd_diag *diag);
/* Ends sampling; ngd_device_close() calls it. Takes no longer than half a second. */
void ngd_telemetry_stop(struct ngd_device *dev);
/* Copies the last readings, without those that are too old. Never waits for the hardware. */
void ngd_telemetry_read(struct ngd_device *dev, struct ngd_telemetry *t_p);

#endif
