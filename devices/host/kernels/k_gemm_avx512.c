/* SPDX-License-Identifier: Apache-2.0 */
#define NGD_SIMD 16
#include "devices/host/kernels/k_gemm_impl.h"
#include "devices/host/kernels/k_quant_matmul_impl.h"
