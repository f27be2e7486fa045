/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_CHIPS_H
#define NGD_DEVICES_ASCEND_CHIPS_H

/* The table of chips (chips.def). The backend and the simulator share it. */
#include <stddef.h>
#include <string.h>

typedef enum ngd_chip {
#define NGD_CHIP(id, prefix, name, decoder) NGD_CHIP_##id,
#include "devices/ascend/chips.def"
#undef NGD_CHIP
    NGD_CHIP_UNKNOWN /* newer than the table: nothing is refused before CANN refuses it */
} ngd_chip_t;

struct ngd_chip_info {
    const char *prefix, *name;
    const char *decoder; /* why the chip serves no paged decoder; empty: it serves them */
};

static inline const struct ngd_chip_info *ngd_chip_info(ngd_chip_t chip)
{
    static const struct ngd_chip_info infos[] = {
#define NGD_CHIP(id, prefix, name, decoder) {prefix, name, decoder},
#include "devices/ascend/chips.def"
#undef NGD_CHIP
        {"", "not in the table", ""},
    };

    return &infos[chip <= NGD_CHIP_UNKNOWN ? chip : NGD_CHIP_UNKNOWN];
}

static inline ngd_chip_t ngd_chip_by_soc(const char *soc)
{
    ngd_chip_t chip = 0;

    while (chip < NGD_CHIP_UNKNOWN &&
           strncmp(soc ? soc : "", ngd_chip_info(chip)->prefix, strlen(ngd_chip_info(chip)->prefix)) != 0)
        chip++;
    return chip;
}

#endif
