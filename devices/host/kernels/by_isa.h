/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_BY_ISA_H
#define NGD_DEVICES_HOST_KERNELS_BY_ISA_H

/*
 * NGD_BY_ISA(isa, name) is the address of name_avx512, name_avx2 or name_scalar: the best table that `isa` allows and
 * that is compiled in. Every kernel family keeps its functions in one constant table per instruction set.
 */
#include "devices/host/kernels/kernel.h"

#if defined(NGD_HAVE_AVX512)
#define NGD_BY_ISA_512(isa, name) (isa) >= NGD_ISA_AVX512 ? &name##_avx512:
#else
#define NGD_BY_ISA_512(isa, name)
#endif
#if defined(NGD_HAVE_AVX2)
#define NGD_BY_ISA_2(isa, name) (isa) >= NGD_ISA_AVX2 ? &name##_avx2:
#else
#define NGD_BY_ISA_2(isa, name)
#endif
#define NGD_BY_ISA(isa, name) ((void)(isa), NGD_BY_ISA_512(isa, name) NGD_BY_ISA_2(isa, name) & name##_scalar)

/* Says whether kernels for AVX-512 VNNI may run: devices/host/cpu.c. Any thread. */
bool ngd_cpu_has_vnni(ngd_isa_t isa);

/* Declares the tables of a family. */
#define NGD_ISA_TABLES(type, name) extern const type name##_scalar, name##_avx2, name##_avx512

#endif
