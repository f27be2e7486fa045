/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_READINGS_H
#define NPUGRAPH_CTL_READINGS_H

/* Columns of readings of the devices' hardware, for tables with a row for each device. */
#include "client/ctl/ctl.h"

#define CTL_READINGS_MAX 16

/* Fills in the columns of the readings that at least one device has, and returns their number. They borrow from r. */
size_t ctl_reading_columns(const Npugraph__V1__DevicesResponse *r, struct ctl_column columns[CTL_READINGS_MAX]);
/* Appends the device's cells for these columns. */
void ctl_reading_cells(struct ctl_table *t, const Npugraph__V1__DeviceInfo *d, const struct ctl_column *columns,
                       size_t n);

#endif
