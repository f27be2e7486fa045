# SPDX-License-Identifier: Apache-2.0
# Keys, the cache and plans.
EXTRA_DIST += tests/unit/plan_util.h tests/unit/passes tests/unit/store_util.h
NGD_PLAN_TESTS = \
	tests/unit/test_buckets \
	tests/unit/test_compare \
	tests/unit/test_gcache \
	tests/unit/test_key \
	tests/unit/test_memplan \
	tests/unit/test_options \
	tests/unit/test_passes \
	tests/unit/test_patterns \
	tests/unit/test_plan \
	tests/unit/test_plan_pack \
	tests/unit/test_plan_place \
	tests/unit/test_plan_sim \
	tests/unit/test_plan_streams \
	tests/unit/test_store
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_PLAN_TESTS)
TESTS += $(NGD_PLAN_TESTS)
endif
NGD_PLAN_TEST_LIBS = $(NGD_GRAPHS_LIBS) $(CHECK_LIBS)
tests_unit_test_buckets_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_compare_LDADD = $(NGD_PLAN_TEST_LIBS) -lm
tests_unit_test_gcache_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_key_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_memplan_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_patterns_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_passes_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_options_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_place_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_pack_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_sim_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_plan_streams_LDADD = $(NGD_PLAN_TEST_LIBS)
tests_unit_test_store_LDADD = $(NGD_PLAN_TEST_LIBS)

# Expressions, operators, graphs and their text.
EXTRA_DIST += tests/unit/graph_util.h tests/unit/random_graph.h tests/golden/graphs
NGD_GRAPH_TESTS = \
	tests/unit/test_expr \
	tests/unit/test_graph \
	tests/unit/test_graph_errors \
	tests/unit/test_graph_pack \
	tests/unit/test_graph_random \
	tests/unit/test_graph_guards \
	tests/unit/test_guard_sizes \
	tests/unit/test_graph_rows \
	tests/unit/test_graph_streams \
	tests/unit/test_op
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_GRAPH_TESTS)
TESTS += $(NGD_GRAPH_TESTS)
endif
NGD_GRAPH_TEST_LIBS = $(NGD_GRAPHS_LIBS) $(CHECK_LIBS)
tests_unit_test_expr_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_streams_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_errors_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_pack_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_random_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_guards_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_guard_sizes_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_graph_rows_LDADD = $(NGD_GRAPH_TEST_LIBS)
tests_unit_test_op_LDADD = $(NGD_GRAPH_TEST_LIBS)
