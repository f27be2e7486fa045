# SPDX-License-Identifier: Apache-2.0
#
# The device contract and its backends. Files for one instruction set are in separate libraries, because they have
# their own flags: the linker must not keep one of their functions for code that runs on every CPU.
noinst_LTLIBRARIES += libngddevices.la
include $(top_srcdir)/devices/host/kernels/kernels.mk

libngddevices_la_SOURCES = \
	devices/backend.h \
	devices/backends.c \
	devices/backends.def \
	devices/buffer.c \
	devices/comm.c \
	devices/comm.h \
	devices/cpu_op.h \
	devices/sample.h \
	devices/device.c \
	devices/device.h \
	devices/device_int.h \
	devices/doctor_device.c \
	devices/doctor_device.def \
	devices/doctor_device.h \
	devices/doctor_run.c \
	devices/doctor_run.h \
	devices/freeing.c \
	devices/launch.c \
	devices/meeting.c \
	devices/meeting.h \
	devices/pool.c \
	devices/serial.c \
	devices/serial.h \
	devices/serial_event.c \
	devices/static_results.def \
	devices/telemetry.c \
	devices/telemetry.def \
	devices/telemetry.h \
	devices/host/compiler.c \
	devices/host/copies.c \
	devices/host/copies.h \
	devices/host/cpu.c \
	devices/host/cpu.h \
	devices/host/cpu_op.c \
	devices/host/exec.c \
	devices/host/host.c \
	devices/host/host.h \
	devices/host/host_telemetry.c \
	devices/host/lanes.c \
	devices/host/lanes.h \
	devices/host/kernels/kernel.h \
	devices/host/kernels/kernels.c \
	devices/host/kernels/kernels_core.def \
	devices/host/static.h \
	devices/host/static_emit.c \
	devices/host/static_files.c \
	devices/host/static_load.c \
	devices/host/stream.c \
	devices/host/team.c \
	devices/host/team.h
libngddevices_la_LIBADD = libngddevices_kernels.la

# Kernels only multiply and add in one step where they ask for it. Results must not depend on what a compiler contracts,
# since any compiler of the system may compile static kernels again (devices/host/static.h).
NGD_KERNEL_CFLAGS = $(AM_CFLAGS) $(NGD_KERNEL_MODE_CFLAGS) -ffp-contract=off
noinst_LTLIBRARIES += libngddevices_kernels.la
libngddevices_kernels_la_CFLAGS = $(NGD_KERNEL_CFLAGS)
libngddevices_kernels_la_SOURCES = \
	devices/host/kernels/k_attention.c \
	devices/host/kernels/k_attention.h \
	devices/host/kernels/k_attention_impl.h \
	devices/host/kernels/k_collective.c \
	devices/host/kernels/k_experts.c \
	devices/host/kernels/k_gemm.c \
	devices/host/kernels/k_gemm.h \
	devices/host/kernels/k_gemm_form.c \
	devices/host/kernels/k_gemm_impl.h \
	devices/host/kernels/k_gemm_quant.c \
	devices/host/kernels/k_gemm_quant.h \
	devices/host/kernels/k_gemm_quant_impl.h \
	devices/host/kernels/k_gemm_rooms.c \
	devices/host/kernels/k_gemm_tile.h \
	devices/host/kernels/k_gemm_tile_impl.h \
	devices/host/kernels/k_gemm_f8_impl.h \
	devices/host/kernels/k_gemm_scalar.c \
	devices/host/kernels/k_gemm_wide.c \
	devices/host/kernels/k_gemm_xsmm.c \
	devices/host/kernels/k_kvcache.c \
	devices/host/kernels/k_linear_fused.c \
	devices/host/kernels/k_qk_scatter.c \
	devices/host/kernels/k_quant_matmul.c \
	devices/host/kernels/k_quant_matmul.h \
	devices/host/kernels/k_quant_matmul_impl.h \
	devices/host/kernels/k_sample.c \
	devices/host/kernels/k_sample.h \
	devices/host/kernels/k_sample_impl.h \
	devices/host/kernels/unroll.h \
	$(NGD_HOST_KERNEL_SOURCES)

# The sources of static kernels, as C strings: the sources of their kernels, and every header that these include.
NGD_STATIC_FILES = \
	base/charge.h base/clock.h base/digest.h base/dtype.c base/dtype.def base/dtype.h base/mem.h base/status.def base/status.h base/strbuf.h \
	devices/device.h devices/static_results.def \
	devices/host/kernels/by_isa.h devices/host/kernels/k_attention.c devices/host/kernels/k_attention.h devices/host/kernels/k_attention_impl.h \
	devices/host/kernels/k_cast.h devices/host/kernels/k_cast_impl.h devices/host/kernels/k_gemm.c devices/host/kernels/k_gemm.h \
	devices/host/kernels/k_gemm_impl.h devices/host/kernels/k_gemm_f8_impl.h devices/host/kernels/k_gemm_quant.h devices/host/kernels/k_gemm_quant_impl.h devices/host/kernels/k_linear_fused.c devices/host/kernels/k_norm.h devices/host/kernels/k_norm_impl.h \
	devices/host/kernels/k_kv_quant.h devices/host/kernels/k_qk_scatter.c devices/host/kernels/k_rotary.h devices/host/kernels/k_rotary_impl.h devices/host/kernels/kernel.h \
	devices/host/kernels/nd.h devices/host/kernels/simd.h devices/host/kernels/simd_avx2_impl.h devices/host/kernels/simd_avx512_impl.h \
	devices/host/kernels/simd_math.h devices/host/kernels/simd_scalar_impl.h devices/host/static.h devices/host/kernels/typed.h \
	devices/host/kernels/unroll.h \
	graphs/antiquant.h graphs/expr.h graphs/graph.h graphs/key.h graphs/op.h graphs/ops.def graphs/options.def graphs/options.h graphs/plan.h \
	graphs/relation.h graphs/relations.def
NGD_STATIC_PATHS = $(addprefix $(top_srcdir)/,$(NGD_STATIC_FILES))
CLEANFILES += devices/host/static_files.inc devices/host/static_flags.inc
devices/host/static_files.inc: $(NGD_STATIC_PATHS) Makefile
	$(AM_V_GEN)$(MKDIR_P) devices/host && for f in $(NGD_STATIC_FILES); do \
	  echo "{\"$$f\"," && \
	  $(SED) -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(top_srcdir)/$$f && echo "},"; done > $@.tmp && \
	  mv $@.tmp $@
# They are compiled again with the flags of the daemon's own kernels.
devices/host/static_flags.inc: Makefile
	$(AM_V_GEN)$(MKDIR_P) devices/host && { \
	  echo '#define NGD_STATIC_AVX2_CFLAGS "$(NGD_AVX2_CFLAGS)"' && \
	  echo '#define NGD_STATIC_AVX512_CFLAGS "$(NGD_AVX512_CFLAGS)"'; } > $@.tmp && mv $@.tmp $@
devices/host/static_files.lo: devices/host/static_files.inc
devices/host/compiler.lo: devices/host/static_flags.inc

if NGD_AVX2
noinst_LTLIBRARIES += libngddevices_avx2.la
libngddevices_avx2_la_CFLAGS = $(NGD_KERNEL_CFLAGS) $(NGD_AVX2_CFLAGS)
libngddevices_avx2_la_SOURCES = $(NGD_HOST_KERNEL_SOURCES_AVX2)
libngddevices_la_LIBADD += libngddevices_avx2.la
endif

if NGD_AVX512
noinst_LTLIBRARIES += libngddevices_avx512.la
libngddevices_avx512_la_CFLAGS = $(NGD_KERNEL_CFLAGS) $(NGD_AVX512_CFLAGS)
libngddevices_avx512_la_SOURCES = $(NGD_HOST_KERNEL_SOURCES_AVX512)
libngddevices_la_LIBADD += libngddevices_avx512.la
endif
if NGD_AVX512VNNI
noinst_LTLIBRARIES += libngddevices_vnni.la
libngddevices_vnni_la_CFLAGS = $(NGD_KERNEL_CFLAGS) $(NGD_AVX512VNNI_CFLAGS)
libngddevices_vnni_la_SOURCES = devices/host/kernels/k_gemm_digits.c devices/host/kernels/k_gemm_digits.h \
	devices/host/kernels/k_gemm_vnni.c
libngddevices_la_LIBADD += libngddevices_vnni.la
endif
if NGD_AMX
noinst_LTLIBRARIES += libngddevices_amx.la
libngddevices_amx_la_CFLAGS = $(AM_CFLAGS) $(NGD_KERNEL_MODE_CFLAGS) $(NGD_AMX_CFLAGS)
libngddevices_amx_la_SOURCES = devices/host/kernels/k_gemm_amx.c devices/host/kernels/k_gemm_digits_amx.c \
	devices/host/kernels/k_gemm_panel.c
libngddevices_la_LIBADD += libngddevices_amx.la
endif
EXTRA_DIST += devices/host/kernels/k_gemm_amx.c devices/host/kernels/k_gemm_digits.c devices/host/kernels/k_gemm_digits.h \
	devices/host/kernels/k_gemm_digits_amx.c devices/host/kernels/k_gemm_panel.c \
	devices/host/kernels/k_gemm_vnni.c
