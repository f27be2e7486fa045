# SPDX-License-Identifier: Apache-2.0
# Every operator on every instruction set, against golden values and the plain C kernels.
NGD_OPS_TESTS = tests/ops/test_attention tests/ops/test_bits tests/ops/test_composed tests/ops/test_excess tests/ops/test_experts tests/ops/test_folding tests/ops/test_fusions tests/ops/test_i8_matmul tests/ops/test_inplace tests/ops/test_integers tests/ops/test_kernel_indices tests/ops/test_kernel_parts tests/ops/test_kv_quant \
	tests/ops/test_kernels tests/ops/test_lanes tests/ops/test_layers tests/ops/test_matrices tests/ops/test_ops tests/ops/test_quant_matmul \
	tests/ops/test_random tests/ops/test_rewrites tests/ops/test_sampling tests/ops/test_simd_math tests/ops/test_sweep tests/ops/test_twins
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_OPS_TESTS) tests/ops/fuzz_run
TESTS += $(NGD_OPS_TESTS)
endif
NGD_OPS_TEST_LIBS = $(NGD_DEVICES_LIBS) $(JANSSON_LIBS) $(CHECK_LIBS) -lm
tests_ops_fuzz_run_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_attention_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_bits_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_composed_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_excess_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_experts_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_folding_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_fusions_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_i8_matmul_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_inplace_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_integers_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_kernel_indices_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_kernel_parts_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_kernels_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_kv_quant_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_lanes_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_layers_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_matrices_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_ops_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_quant_matmul_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_random_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_rewrites_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_sampling_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_simd_math_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_sweep_LDADD = $(NGD_OPS_TEST_LIBS)
tests_ops_test_twins_LDADD = $(NGD_OPS_TEST_LIBS)
EXTRA_DIST += tests/ops/attention_case.h tests/ops/checked.h tests/ops/device_run.h tests/ops/direct.h tests/ops/each_isa.h tests/ops/emit_case.h tests/ops/golden.h tests/ops/golden_run.h \
	tests/ops/random_chain.h tests/ops/random_io.h tests/ops/reference.h tests/ops/rewritten.h tests/ops/run_plan.h
