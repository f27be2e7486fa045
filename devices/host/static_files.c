/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' own sources, for compiling them again with constants; devices/local.mk lists them. */
#include "devices/host/static.h"

const struct ngd_static_file ngd_static_files[] = {
#include "devices/host/static_files.inc"
    {NULL, NULL},
};
