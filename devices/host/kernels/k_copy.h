/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_COPY_H
#define NGD_DEVICES_HOST_KERNELS_K_COPY_H

/* aten.clone: what the plan inserts where a kernel wants contiguous operands, and a cast between equal types. */
#include "devices/host/kernels/kernel.h"

extern const struct ngd_host_kernel ngd_host_clone;

#endif
