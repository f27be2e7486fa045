/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the templates of all families except matrices (k_gemm_impl.h) for one instruction set; see simd.h. */
#define NGD_SIMD 8
#include "devices/host/kernels/k_attention_impl.h"
#include "devices/host/kernels/k_cast_impl.h"
#include "devices/host/kernels/k_elementwise_impl.h"
#include "devices/host/kernels/k_kv_quant_impl.h"
#include "devices/host/kernels/k_norm_impl.h"
#include "devices/host/kernels/k_quant_impl.h"
#include "devices/host/kernels/k_reduce_impl.h"
#include "devices/host/kernels/k_rotary_impl.h"
#include "devices/host/kernels/k_sample_impl.h"
#include "devices/host/kernels/k_softmax_impl.h"
