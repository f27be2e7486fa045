/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_UNROLL_H
#define NGD_DEVICES_HOST_KERNELS_UNROLL_H

/* Goes before a loop over registers. The loop has a constant number of turns, and is unrolled completely at any level
 * of optimisation. */
#if defined(__clang__)
#define NGD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NGD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Says that vector v is needed in a register here. Otherwise gcc may add the products of several steps first, for which
 * there are too few registers. */
#ifdef NGD_EMULATE
#define NGD_KEEP(v) ((void)(v))
#else
#define NGD_KEEP(v) __asm__("" : "+x"(v))
#endif

#endif
