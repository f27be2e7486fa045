# SPDX-License-Identifier: Apache-2.0
# The Ascend backend and the simulator of CANN that it is tested on.
NGD_ASCEND_TESTS = \
	tests/ascend/test_aclsim \
	tests/ascend/test_aclsim_attention \
	tests/ascend/test_aclsim_calls \
	tests/ascend/test_aclsim_hccl \
	tests/ascend/test_aclsim_mapping \
	tests/ascend/test_aclsim_others \
	tests/ascend/test_aclsim_rules \
	tests/ascend/test_aclsim_takes \
	tests/ascend/test_aclsim_weight \
	tests/ascend/test_ascend \
	tests/ascend/test_ascend_attention \
	tests/ascend/test_ascend_chips \
	tests/ascend/test_ascend_experts \
	tests/ascend/test_ascend_groups \
	tests/ascend/test_ascend_indices \
	tests/ascend/test_ascend_models \
	tests/ascend/test_ascend_nz \
	tests/ascend/test_ascend_open \
	tests/ascend/test_ascend_pools \
	tests/ascend/test_ascend_probe \
	tests/ascend/test_ascend_rules \
	tests/ascend/test_ascend_span \
	tests/ascend/test_ascend_streams \
	tests/ascend/test_ascend_telemetry
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_ASCEND_TESTS)
TESTS += $(NGD_ASCEND_TESTS)
endif
tests_ascend_test_aclsim_SOURCES = tests/ascend/test_aclsim.c tests/backend/simulator.h
tests_ascend_test_aclsim_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_attention_SOURCES = tests/ascend/test_aclsim_attention.c tests/backend/simulator.h
tests_ascend_test_aclsim_attention_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_calls_SOURCES = tests/ascend/test_aclsim_calls.c tests/backend/simulator.h
tests_ascend_test_aclsim_calls_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_hccl_SOURCES = tests/ascend/test_aclsim_hccl.c tests/backend/simulator.h
tests_ascend_test_aclsim_hccl_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_mapping_SOURCES = tests/ascend/test_aclsim_mapping.c tests/backend/simulator.h
tests_ascend_test_aclsim_mapping_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_others_SOURCES = tests/ascend/test_aclsim_others.c devices/ascend/sim/sim_op.h tests/backend/simulator.h
tests_ascend_test_aclsim_others_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_aclsim_rules_SOURCES = tests/ascend/test_aclsim_rules.c tests/backend/simulator.h
tests_ascend_test_aclsim_rules_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_takes_SOURCES = tests/ascend/test_aclsim_takes.c tests/backend/simulator.h
tests_ascend_test_aclsim_takes_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_ascend_test_aclsim_weight_SOURCES = tests/ascend/test_aclsim_weight.c tests/backend/simulator.h
tests_ascend_test_aclsim_weight_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
NGD_STEP_SOURCES = tests/ascend/simulated.h tests/ascend/step.h tests/backend/simulator.h tests/ops/device_run.h
tests_ascend_test_ascend_SOURCES = tests/ascend/test_ascend.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_attention_SOURCES = tests/ascend/test_ascend_attention.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/attention_case.h tests/ops/device_run.h
tests_ascend_test_ascend_attention_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_chips_SOURCES = tests/ascend/test_ascend_chips.c devices/ascend/sim/sim_op.h $(NGD_LIVE_SOURCES)
tests_ascend_test_ascend_chips_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_experts_SOURCES = tests/ascend/test_ascend_experts.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_experts_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_groups_SOURCES = tests/ascend/test_ascend_groups.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_groups_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_span_SOURCES = tests/ascend/test_ascend_span.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_span_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_indices_SOURCES = tests/ascend/test_ascend_indices.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_indices_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_open_SOURCES = tests/ascend/test_ascend_open.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_open_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_streams_SOURCES = tests/ascend/test_ascend_streams.c $(NGD_STEP_SOURCES)
tests_ascend_test_ascend_streams_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_models_SOURCES = tests/ascend/test_ascend_models.c $(NGD_LIVE_SOURCES)
tests_ascend_test_ascend_models_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_nz_SOURCES = tests/ascend/test_ascend_nz.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/device_run.h
tests_ascend_test_ascend_nz_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_pools_SOURCES = tests/ascend/test_ascend_pools.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/device_run.h
tests_ascend_test_ascend_pools_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_telemetry_SOURCES = tests/ascend/test_ascend_telemetry.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/device_run.h
tests_ascend_test_ascend_telemetry_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
tests_ascend_test_ascend_probe_SOURCES = tests/ascend/test_ascend_probe.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/attention_case.h tests/ops/device_run.h
tests_ascend_test_ascend_probe_LDADD = $(NGD_DEVICES_LIBS) $(CHECK_LIBS) -lm
# Operators that misbehave, for the probe; loaded at run time.
if NGD_UNIT_TESTS
check_LTLIBRARIES += tests/ascend/libodd_opapi.la
endif
tests_ascend_libodd_opapi_la_SOURCES = tests/ascend/odd_opapi.c
tests_ascend_libodd_opapi_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -rpath /nowhere
tests_ascend_libodd_opapi_la_LIBADD = -lm
tests_ascend_test_ascend_rules_SOURCES = tests/ascend/test_ascend_rules.c tests/ascend/simulated.h tests/backend/simulator.h tests/ops/device_run.h tests/ops/golden.h tests/ops/golden_run.h
tests_ascend_test_ascend_rules_LDADD = $(NGD_DEVICES_LIBS) $(JANSSON_LIBS) $(CHECK_LIBS) -lm
EXTRA_DIST += \
	tests/ascend/acl_headers.py \
	tests/ascend/acl_samples.py \
	tests/ascend/acl_samples_kernels.c \
	tests/ascend/acl_samples_kernels.cpp \
	tests/ascend/acl_samples_kernels.h \
	tests/ascend/ggml_cann.py \
	tests/ascend/ggml_cann_acl.h \
	tests/ascend/ggml_cann_greedy.cpp
