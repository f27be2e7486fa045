/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_MAKE_H
#define NGD_DEVICES_HOST_KERNELS_K_MAKE_H

/* One value everywhere: the number as an element of a dtype, and filling with it. */
#include "graphs/op.h"

void ngd_constant_put(ngd_dtype_t t, struct ngd_scalar v, char *dst); /* as many bytes as the dtype has, 8 at most */
void ngd_constant_fill(char *dst, int64_t bytes, const char *value, int64_t size);

#endif
