/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_UNROLL_H
#define NGD_DEVICES_HOST_KERNELS_UNROLL_H

/* Before a loop over registers: a constant number of turns that must all be written out, at any level of optimisation.
 */
#if defined(__clang__)
#define NGD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NGD_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
