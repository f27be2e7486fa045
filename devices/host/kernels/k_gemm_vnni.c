/* SPDX-License-Identifier: Apache-2.0 */
#define NGD_SIMD 16
#define NGD_VNNI
#include "devices/host/kernels/k_quant_matmul_impl.h"
