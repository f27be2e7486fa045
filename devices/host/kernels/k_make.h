/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_MAKE_H
#define NGD_DEVICES_HOST_KERNELS_K_MAKE_H

/* Constants: store a number as an element of a dtype, and fill memory with it. */
#include "graphs/op.h"

void ngd_constant_put(ngd_dtype_t t, struct ngd_scalar v, char *dst); /* writes the dtype's bytes, at most 8 */
void ngd_constant_fill(char *dst, int64_t bytes, const char *value, int64_t size);

#endif
