/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wraps LIBXSMM in one function. LIBXSMM is column-major: its m, which it vectorises, is our columns of a tile, and its
 * n is our rows. It generates machine code for the shape. If it cannot, or may not since memory that is writable and
 * executable is forbidden, it returns NULL and our own kernel does the work.
 */
#include "devices/host/kernels/k_gemm.h"

#if defined(NGD_HAVE_LIBXSMM)
#include <libxsmm.h>

ngd_gemm_mul_fn ngd_xsmm_mul(int64_t rows, int64_t depth, int64_t ldx, bool add)
{
    const libxsmm_blasint lda = NGD_GEMM_NT, ldb = (libxsmm_blasint)ldx, ldc = NGD_GEMM_NT;
    const float alpha = 1.0f, beta = add ? 1.0f : 0.0f;
    const int flags = LIBXSMM_GEMM_FLAG_NONE, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    libxsmm_smmfunction fn = libxsmm_smmdispatch(NGD_GEMM_NT, (libxsmm_blasint)rows, (libxsmm_blasint)depth, &lda, &ldb,
                                                 &ldc, &alpha, &beta, &flags, &prefetch);

    /* LIBXSMM declares a variable argument list for its forms that prefetch; the code itself takes three pointers. */
    return (ngd_gemm_mul_fn)(void (*)(void))fn;
}
#else
ngd_gemm_mul_fn ngd_xsmm_mul(int64_t rows, int64_t depth, int64_t ldx, bool add)
{
    (void)rows;
    (void)depth;
    (void)ldx;
    (void)add;
    return NULL;
}
#endif
