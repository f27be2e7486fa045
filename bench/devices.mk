# SPDX-License-Identifier: Apache-2.0
NGD_BENCHES += bench/bench_host_gemm
EXTRA_PROGRAMS += bench/bench_host_gemm
bench_bench_host_gemm_SOURCES = bench/bench_host_gemm.c bench/bench_device.h
bench_bench_host_gemm_LDADD = $(NGD_DEVICES_LIBS)
NGD_BENCHES += bench/bench_memplan
EXTRA_PROGRAMS += bench/bench_memplan
bench_bench_memplan_SOURCES = bench/bench_memplan.c $(NGD_MEMPLAN_CASES)
bench_bench_memplan_LDADD = $(NGD_DEVICES_LIBS) $(NGD_CLIENT_HF_LIBS)
NGD_BENCHES += bench/bench_ascend
EXTRA_PROGRAMS += bench/bench_ascend
bench_bench_ascend_SOURCES = bench/bench_ascend.c
bench_bench_ascend_LDADD = $(NGD_DEVICES_LIBS)
NGD_BENCHES += bench/bench_host_decoder
EXTRA_PROGRAMS += bench/bench_host_decoder
bench_bench_host_decoder_SOURCES = bench/bench_host_decoder.c bench/bench_device.h bench/step_graph.c bench/step_graph.h
bench_bench_host_decoder_LDADD = $(NGD_DEVICES_LIBS)
