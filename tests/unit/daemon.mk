# SPDX-License-Identifier: Apache-2.0
NGD_DAEMON_TESTS = \
	tests/unit/test_jobs
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_DAEMON_TESTS)
TESTS += $(NGD_DAEMON_TESTS)
tests_unit_test_jobs_LDADD = $(NGD_DAEMON_LIBS) $(CHECK_LIBS)
endif
