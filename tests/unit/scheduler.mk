# SPDX-License-Identifier: Apache-2.0
EXTRA_DIST += tests/unit/merge_util.h tests/unit/model_util.h tests/unit/sched_util.h tests/unit/stored_util.h \
	tests/unit/plain_seq.h tests/unit/toy_model.h tests/unit/window_util.h tests/golden/sampling.json
NGD_SCHEDULER_TESTS = \
	tests/unit/test_append \
	tests/unit/test_cap \
	tests/unit/test_contract \
	tests/unit/test_doctor \
	tests/unit/test_drafts \
	tests/unit/test_eager_plans \
	tests/unit/test_group \
	tests/unit/test_guard_mutations \
	tests/unit/test_hot_keys \
	tests/unit/test_hot_note \
	tests/unit/test_kv \
	tests/unit/test_kv_quota \
	tests/unit/test_linger \
	tests/unit/test_merge \
	tests/unit/test_merge_bits \
	tests/unit/test_merge_waits \
	tests/unit/test_model \
	tests/unit/test_model_embed \
	tests/unit/test_model_ends \
	tests/unit/test_model_sampling \
	tests/unit/test_model_shortage \
	tests/unit/test_model_together \
	tests/unit/test_pace \
	tests/unit/test_policy \
	tests/unit/test_preempt \
	tests/unit/test_prefix \
	tests/unit/test_program \
	tests/unit/test_prompts_together \
	tests/unit/test_turns \
	tests/unit/test_recorder \
	tests/unit/test_sampling \
	tests/unit/test_sched \
	tests/unit/test_sched_captures \
	tests/unit/test_sched_ends \
	tests/unit/test_sched_stops \
	tests/unit/test_sched_failures \
	tests/unit/test_schedsim \
	tests/unit/test_events \
	tests/unit/test_share \
	tests/unit/test_slices \
	tests/unit/test_stored \
	tests/unit/test_timeline \
	tests/unit/test_seq_move \
	tests/unit/test_windows \
	tests/unit/test_windows_stress
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_SCHEDULER_TESTS)
TESTS += $(NGD_SCHEDULER_TESTS)
endif
NGD_SCHEDULER_TEST_LIBS = $(NGD_SCHEDULER_LIBS) $(CHECK_LIBS)
tests_unit_test_seq_move_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_append_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_contract_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_drafts_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_eager_plans_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_turns_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_group_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_guard_mutations_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_hot_keys_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_hot_note_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_kv_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_linger_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_merge_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_merge_bits_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_merge_waits_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_model_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_model_embed_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_model_ends_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_model_sampling_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_model_shortage_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_model_together_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_windows_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_windows_stress_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_pace_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_policy_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_prefix_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_program_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_prompts_together_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_recorder_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_sampling_LDADD = $(NGD_SCHEDULER_TEST_LIBS) $(JANSSON_LIBS) -lm
tests_unit_test_sched_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_sched_captures_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_sched_ends_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_sched_stops_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_sched_failures_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_events_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_share_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_slices_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_schedsim_SOURCES = tests/unit/test_schedsim.c bench/sim/arrivals.c bench/sim/sim.c bench/sim/sim.h
tests_unit_test_schedsim_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_cap_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_kv_quota_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_preempt_LDADD = $(NGD_SCHEDULER_TEST_LIBS) -lm
tests_unit_test_stored_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_timeline_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
tests_unit_test_doctor_LDADD = $(NGD_SCHEDULER_TEST_LIBS)
