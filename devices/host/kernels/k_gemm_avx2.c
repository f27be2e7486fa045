/* SPDX-License-Identifier: Apache-2.0 */
#define NGD_SIMD 8
#include "devices/host/kernels/k_gemm_impl.h"
#include "devices/host/kernels/k_quant_matmul_impl.h"
