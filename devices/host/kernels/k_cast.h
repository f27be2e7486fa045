/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_CAST_H
#define NGD_DEVICES_HOST_KERNELS_K_CAST_H

/* Casts between all dtypes, as run functions of nd.h that cast operand 0 to operand 1. */
#include "devices/host/kernels/by_isa.h"
#include "devices/host/kernels/nd.h"

/* Casts between floats, vectorised: [from][to]; NULL on the diagonal. */
struct ngd_cast_table {
    ngd_nd_fn fn[3][3];
};
NGD_ISA_TABLES(struct ngd_cast_table, ngd_cast);

/*
 * Returns the function for a pair of types; NULL if they are equal (a copy). Floats round to nearest even. A float
 * becomes an integer by truncation: a value out of range becomes the nearest end of the range, and NaN becomes 0.
 * Integers are cut to the narrower type. A bool is true for every value but 0, so for NaN too.
 */
ngd_nd_fn ngd_cast_fn(ngd_dtype_t from, ngd_dtype_t to, ngd_isa_t isa);

#endif
