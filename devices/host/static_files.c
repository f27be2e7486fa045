/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of the kernels, to compile them again with constants. devices/local.mk lists the files. */
#include "devices/host/static.h"

const struct ngd_static_file ngd_static_files[] = {
#include "devices/host/static_files.inc"
    {NULL, NULL},
};
