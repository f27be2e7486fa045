/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kernels by operator: kernels_core.def (matrices, attention, KV cache, sampling) and kernels_basic.def
 * (everything else).
 */
#include "devices/host/kernels/kernel.h"

#define NGD_HOST_KERNEL(OP, symbol) extern const struct ngd_host_kernel symbol;
#include "devices/host/kernels/kernels_basic.def"
#include "devices/host/kernels/kernels_core.def"
#undef NGD_HOST_KERNEL

static const struct ngd_host_kernel *const kernels[NGD_OP_MAX] = {
#define NGD_HOST_KERNEL(OP, symbol) [NGD_OP_##OP] = &symbol,
#include "devices/host/kernels/kernels_basic.def"
#include "devices/host/kernels/kernels_core.def"
#undef NGD_HOST_KERNEL
};

const struct ngd_host_kernel *ngd_host_kernel_of(ngd_op_id_t op)
{
    return (unsigned)op < NGD_OP_MAX ? kernels[op] : NULL;
}
