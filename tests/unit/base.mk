# SPDX-License-Identifier: Apache-2.0
EXTRA_DIST += tests/unit/unit.h tests/unit/effort.h tests/unit/purse.h
NGD_BASE_TESTS = \
	tests/unit/test_clock \
	tests/unit/test_config \
	tests/unit/test_digest \
	tests/unit/test_dtype \
	tests/unit/test_dumpdir \
	tests/unit/test_fault \
	tests/unit/test_file_id \
	tests/unit/test_gguf \
	tests/unit/test_handle \
	tests/unit/test_heap \
	tests/unit/test_list \
	tests/unit/test_lock \
	tests/unit/test_log \
	tests/unit/test_mem \
	tests/unit/test_metrics \
	tests/unit/test_passed_fds \
	tests/unit/test_path \
	tests/unit/test_status \
	tests/unit/test_strbuf \
	tests/unit/test_stamp \
	tests/unit/test_token_file \
	tests/unit/test_wakeup
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_BASE_TESTS)
TESTS += $(NGD_BASE_TESTS)
endif
NGD_BASE_TEST_LIBS = $(NGD_BASE_LIBS) $(CHECK_LIBS)
tests_unit_test_clock_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_config_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_digest_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_dtype_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_dumpdir_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_fault_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_file_id_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_gguf_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_handle_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_heap_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_list_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_lock_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_log_LDADD = $(NGD_BASE_TEST_LIBS)
# With the allocator of the daemon, whose figures it checks.
tests_unit_test_mem_LDADD = $(NGD_BASE_TEST_LIBS) $(JEMALLOC_LIBS)
tests_unit_test_metrics_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_passed_fds_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_path_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_status_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_strbuf_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_stamp_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_token_file_LDADD = $(NGD_BASE_TEST_LIBS)
tests_unit_test_wakeup_LDADD = $(NGD_BASE_TEST_LIBS)
