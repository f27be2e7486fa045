# SPDX-License-Identifier: Apache-2.0
#
# Lists of the kernels by the instruction set that they are compiled for. devices/local.mk makes libraries of the lists,
# with their flags, and adds the plain C files of matrices, attention, KV cache and sampling. A family is k_x.c, which
# chooses and walks, and k_x_impl.h, its vector functions, written once. One isa_<isa>.c for each instruction set includes
# these templates. Matrices are compiled separately, in k_gemm_<isa>.c: gcc needs two thirds as long for them as for all
# others together, and so compiles both at the same time.
NGD_HOST_KERNEL_SOURCES = \
	devices/host/kernels/axis.h \
	devices/host/kernels/by_isa.h \
	devices/host/kernels/indices.h \
	devices/host/kernels/isa_scalar.c \
	devices/host/kernels/k_argmax.c \
	devices/host/kernels/k_binary.c \
	devices/host/kernels/k_cast.c \
	devices/host/kernels/k_cast.h \
	devices/host/kernels/k_cast_impl.h \
	devices/host/kernels/k_copy.c \
	devices/host/kernels/k_copy.h \
	devices/host/kernels/k_cumsum.c \
	devices/host/kernels/k_elementwise.c \
	devices/host/kernels/k_elementwise.def \
	devices/host/kernels/k_elementwise.h \
	devices/host/kernels/k_elementwise_impl.h \
	devices/host/kernels/k_elementwise_int.c \
	devices/host/kernels/k_elementwise_int.def \
	devices/host/kernels/k_index.c \
	devices/host/kernels/k_kv_quant.h \
	devices/host/kernels/k_kv_quant_impl.h \
	devices/host/kernels/k_make.c \
	devices/host/kernels/k_make.h \
	devices/host/kernels/k_norm.c \
	devices/host/kernels/k_norm.h \
	devices/host/kernels/k_norm_impl.h \
	devices/host/kernels/k_quant.c \
	devices/host/kernels/k_quant.h \
	devices/host/kernels/k_quant_impl.h \
	devices/host/kernels/k_reduce.c \
	devices/host/kernels/k_reduce.h \
	devices/host/kernels/k_reduce_impl.h \
	devices/host/kernels/k_rotary.c \
	devices/host/kernels/k_rotary.h \
	devices/host/kernels/k_rotary_impl.h \
	devices/host/kernels/k_scatter.c \
	devices/host/kernels/k_sdpa.c \
	devices/host/kernels/k_softmax.c \
	devices/host/kernels/k_softmax.h \
	devices/host/kernels/k_softmax_impl.h \
	devices/host/kernels/k_swiglu.c \
	devices/host/kernels/k_topk.c \
	devices/host/kernels/k_var.c \
	devices/host/kernels/kernels_basic.def \
	devices/host/kernels/nd.c \
	devices/host/kernels/nd.h \
	devices/host/kernels/simd.h \
	devices/host/kernels/simd_avx2_impl.h \
	devices/host/kernels/simd_avx512_impl.h \
	devices/host/kernels/simd_math.h \
	devices/host/kernels/simd_scalar_impl.h \
	devices/host/kernels/typed.h

NGD_HOST_KERNEL_SOURCES_AVX2 = devices/host/kernels/isa_avx2.c devices/host/kernels/k_gemm_avx2.c
NGD_HOST_KERNEL_SOURCES_AVX512 = devices/host/kernels/isa_avx512.c devices/host/kernels/k_gemm_avx512.c
