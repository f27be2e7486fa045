/* SPDX-License-Identifier: Apache-2.0 */
#define NGD_SIMD 1
#include "devices/host/k_quant_impl.h"
