/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_COPY_H
#define NGD_DEVICES_HOST_KERNELS_K_COPY_H

/* aten.clone. The plan inserts it where a kernel needs contiguous operands. A cast between equal types uses it too. */
#include "devices/host/kernels/kernel.h"

extern const struct ngd_host_kernel ngd_host_clone;

#endif
