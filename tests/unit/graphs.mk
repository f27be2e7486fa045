# SPDX-License-Identifier: Apache-2.0
# Keys, the cache and plans.
EXTRA_DIST += tests/unit/plan_util.h
NGD_PLAN_TESTS = \
	tests/unit/test_gcache \
	tests/unit/test_key \
	tests/unit/test_memplan \
	tests/unit/test_plan \
	tests/unit/test_plan_sim
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_PLAN_TESTS)
TESTS += $(NGD_PLAN_TESTS)
endif
NGD_PLAN_TEST_LIBS = $(NGD_GRAPHS_LIBS) $(CHECK_LIBS)
tests_unit_test_gcache_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_key_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_memplan_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_sim_LDADD = $(NGD_PLAN_TEST_LIBS)
