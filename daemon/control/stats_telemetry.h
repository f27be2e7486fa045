/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_TELEMETRY_H
#define NGD_DAEMON_STATS_TELEMETRY_H

/* Readings of the devices' hardware (devices/telemetry.h) in the statistics. What is absent is left out. Threads: any.
 */
#include "base/strbuf.h"

struct ngd_daemon;
struct ngd_device;

/* Appends a family for each reading that a device has, and for NPUs one with the name and unit of Ascend's exporter. */
void ngd_stats_telemetry_prometheus(struct ngd_daemon *d, struct ngd_strbuf *sb);
/* Appends `"numbers": {...}, "readings": {...}`, the first of them only for devices that have such numbers. */
void ngd_stats_telemetry_json(struct ngd_device *dev, struct ngd_strbuf *sb);

#endif
