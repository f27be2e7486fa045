# SPDX-License-Identifier: Apache-2.0
EXTRA_DIST += tests/unit/h2_util.h tests/unit/jwt_golden.h tests/unit/jwt_golden.py
NGD_DAEMON_TESTS = \
	tests/unit/test_answers \
	tests/unit/test_front_bytes \
	tests/unit/test_front_splice \
	tests/unit/test_h2_floods \
	tests/unit/test_h2_guard \
	tests/unit/test_history \
	tests/unit/test_http_request \
	tests/unit/test_jobs \
	tests/unit/test_jwt \
	tests/unit/test_rpc_state \
	tests/unit/test_safetensors \
	tests/unit/test_shared \
	tests/unit/test_sockets \
	tests/unit/test_trace \
	tests/unit/test_word
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_DAEMON_TESTS)
TESTS += $(NGD_DAEMON_TESTS)
tests_unit_test_answers_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_front_bytes_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_front_splice_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_h2_floods_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_h2_guard_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_history_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_http_request_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_jobs_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_jwt_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_rpc_state_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_safetensors_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_shared_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_sockets_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_trace_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
tests_unit_test_word_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
endif
