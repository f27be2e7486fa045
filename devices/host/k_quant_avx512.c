/* SPDX-License-Identifier: Apache-2.0 */
#define NGD_SIMD 16
#include "devices/host/k_quant_impl.h"
