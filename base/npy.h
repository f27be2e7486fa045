/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_NPY_H
#define NGD_BASE_NPY_H

/*
 * NumPy's .npy files, version 1.0: a header and the elements, little endian, in row-major order. numpy has no dtype for
 * bf16, so it is widened to f32, which is exact. Pure functions.
 */
#include "base/dtype.h"
#include "base/status.h"
#include <stddef.h>

#define NGD_NPY_MAX_RANK 8

/* Makes the whole file in one allocation, which the caller frees with ngd_free. dims: rank sizes, none negative. */
ngd_status_t ngd_npy_make(ngd_dtype_t dtype, const int64_t *dims, uint32_t rank, const void *data, void **file_p,
                          size_t *n_p);

#endif
