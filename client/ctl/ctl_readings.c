/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of readings of the devices' hardware. The daemon sends each reading's title and unit, so a newer daemon's
 * readings have columns too. A reading that no device has gets no column; one that a device lacks is "-", and is not in
 * JSON.
 */
#include "client/ctl/ctl_readings.h"

#include <string.h>

#define CHIP    "chip"
#define LOGICAL "logical"

/* Adds the column unless it is there. Returns the new number of columns. */
static size_t add_reading_column(struct ctl_column columns[CTL_READINGS_MAX], size_t n, const char *title,
                                 const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(columns[i].key, key) == 0)
            return n;
    if (n == CTL_READINGS_MAX)
        return n;
    columns[n] = (struct ctl_column){title, key, true};
    return n + 1;
}

/* The logical number is shown where it differs: in a container. */
size_t ctl_reading_columns(const Npugraph__V1__DevicesResponse *r, struct ctl_column columns[CTL_READINGS_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_devices; i++) {
        if (strcmp(r->devices[i]->logical, r->devices[i]->chip) != 0)
            n = add_reading_column(columns, n, "LOGICAL", LOGICAL);
        if (r->devices[i]->chip[0] != '\0')
            n = add_reading_column(columns, n, "CHIP", CHIP);
    }
    for (size_t i = 0; i < r->n_devices; i++)
        for (size_t k = 0; k < r->devices[i]->n_readings; k++)
            if (r->devices[i]->readings[k]->title[0] != '\0')
                n = add_reading_column(columns, n, r->devices[i]->readings[k]->title, r->devices[i]->readings[k]->name);
    return n;
}

static void put_reading_cell(struct ctl_table *t, const Npugraph__V1__DeviceReading *reading)
{
    const uint64_t whole = reading->value > 0 && reading->value < 1e18 ? (uint64_t)reading->value : 0;

    switch (reading->unit) {
    case NGD_PB(READING_UNIT, BYTES):
        ctl_bytes(t, whole);
        break;
    case NGD_PB(READING_UNIT, COUNT):
        ctl_int(t, whole);
        break;
    case NGD_PB(READING_UNIT, CELSIUS):
        ctl_amount(t, reading->value, 0, "°C");
        break;
    case NGD_PB(READING_UNIT, WATTS):
        ctl_amount(t, reading->value, 1, "W");
        break;
    case NGD_PB(READING_UNIT, RATIO):
        ctl_ratio(t, reading->value);
        break;
    default:
        ctl_rate(t, reading->value); /* the unit of a newer daemon */
    }
}

void ctl_reading_cells(struct ctl_table *t, const Npugraph__V1__DeviceInfo *d, const struct ctl_column *columns,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Npugraph__V1__DeviceReading *found = NULL;

        for (size_t k = 0; k < d->n_readings; k++)
            if (strcmp(d->readings[k]->name, columns[i].key) == 0)
                found = d->readings[k];
        if (strcmp(columns[i].key, CHIP) == 0 && d->chip[0] != '\0')
            ctl_str(t, d->chip);
        else if (strcmp(columns[i].key, LOGICAL) == 0 && d->logical[0] != '\0')
            ctl_str(t, d->logical);
        else if (found != NULL)
            put_reading_cell(t, found);
        else
            ctl_absent(t);
    }
}
