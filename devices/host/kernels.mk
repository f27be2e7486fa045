# SPDX-License-Identifier: Apache-2.0
#
# Kernels but matrices, attention, KV cache and sampling, by the instruction set that they are compiled for;
# devices/local.mk puts the lists into libraries with their flags. A family is k_x.c (choice and walking), k_x_impl.h
# (its functions, written once) and one k_x_<isa>.c per instruction set.
NGD_HOST_KERNEL_SOURCES = \
	devices/host/axis.h \
	devices/host/by_isa.h \
	devices/host/indices.h \
	devices/host/k_argmax.c \
	devices/host/k_binary.c \
	devices/host/k_cast.c \
	devices/host/k_cast.h \
	devices/host/k_cast_impl.h \
	devices/host/k_cast_scalar.c \
	devices/host/k_copy.c \
	devices/host/k_copy.h \
	devices/host/k_cumsum.c \
	devices/host/k_elementwise.c \
	devices/host/k_elementwise.def \
	devices/host/k_elementwise.h \
	devices/host/k_elementwise_impl.h \
	devices/host/k_elementwise_int.c \
	devices/host/k_elementwise_int.def \
	devices/host/k_elementwise_scalar.c \
	devices/host/k_index.c \
	devices/host/k_make.c \
	devices/host/k_make.h \
	devices/host/k_norm.c \
	devices/host/k_norm.h \
	devices/host/k_norm_impl.h \
	devices/host/k_norm_scalar.c \
	devices/host/k_quant.c \
	devices/host/k_quant.h \
	devices/host/k_quant_impl.h \
	devices/host/k_quant_scalar.c \
	devices/host/k_reduce.c \
	devices/host/k_reduce.h \
	devices/host/k_reduce_impl.h \
	devices/host/k_reduce_scalar.c \
	devices/host/k_rotary.c \
	devices/host/k_rotary.h \
	devices/host/k_rotary_impl.h \
	devices/host/k_rotary_scalar.c \
	devices/host/k_scatter.c \
	devices/host/k_sdpa.c \
	devices/host/k_softmax.c \
	devices/host/k_softmax.h \
	devices/host/k_softmax_impl.h \
	devices/host/k_softmax_scalar.c \
	devices/host/k_swiglu.c \
	devices/host/k_topk.c \
	devices/host/k_var.c \
	devices/host/kernels_basic.def \
	devices/host/nd.c \
	devices/host/nd.h \
	devices/host/simd.h \
	devices/host/simd_avx2_impl.h \
	devices/host/simd_avx512_impl.h \
	devices/host/simd_math.h \
	devices/host/simd_scalar_impl.h \
	devices/host/typed.h

NGD_HOST_KERNEL_SOURCES_AVX2 = \
	devices/host/k_cast_avx2.c \
	devices/host/k_elementwise_avx2.c \
	devices/host/k_norm_avx2.c \
	devices/host/k_quant_avx2.c \
	devices/host/k_reduce_avx2.c \
	devices/host/k_rotary_avx2.c \
	devices/host/k_softmax_avx2.c

NGD_HOST_KERNEL_SOURCES_AVX512 = \
	devices/host/k_cast_avx512.c \
	devices/host/k_elementwise_avx512.c \
	devices/host/k_norm_avx512.c \
	devices/host/k_quant_avx512.c \
	devices/host/k_reduce_avx512.c \
	devices/host/k_rotary_avx512.c \
	devices/host/k_softmax_avx512.c
