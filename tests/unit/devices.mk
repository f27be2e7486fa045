# SPDX-License-Identifier: Apache-2.0
NGD_DEVICE_TESTS = \
	tests/unit/test_host_device \
	tests/unit/test_static_kernels \
	tests/unit/test_team \
	tests/unit/test_telemetry
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_DEVICE_TESTS)
TESTS += $(NGD_DEVICE_TESTS)
endif
NGD_DEVICE_TEST_LIBS = $(NGD_DEVICES_LIBS) $(CHECK_LIBS)
tests_unit_test_host_device_LDADD = $(NGD_DEVICE_TEST_LIBS)
tests_unit_test_static_kernels_LDADD = $(NGD_DEVICE_TEST_LIBS)
tests_unit_test_team_LDADD = $(NGD_DEVICE_TEST_LIBS)
tests_unit_test_telemetry_LDADD = $(NGD_DEVICE_TEST_LIBS) -lm
