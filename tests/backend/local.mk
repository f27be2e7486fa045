# SPDX-License-Identifier: Apache-2.0
# What every backend must do: one suite over all of devices/backends.def.
NGD_BACKEND_TESTS = tests/backend/test_conformance
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_BACKEND_TESTS)
TESTS += $(NGD_BACKEND_TESTS)
endif
tests_backend_test_conformance_SOURCES = \
	tests/backend/backends.c \
	tests/backend/collectives.c \
	tests/backend/conform.c \
	tests/backend/conform.h \
	tests/backend/decoder.c \
	tests/backend/errors.c \
	tests/backend/groups.c \
	tests/backend/indices.c \
	tests/backend/lifecycle.c \
	tests/backend/memory.c \
	tests/backend/operators.c \
	tests/backend/pools.c \
	tests/backend/ranks.c \
	tests/backend/ranks.h \
	tests/backend/replay.c \
	tests/backend/side_streams.c \
	tests/backend/simulator.h \
	tests/backend/streams.c \
	tests/backend/test_conformance.c
tests_backend_test_conformance_LDADD = $(NGD_DEVICES_LIBS) $(JANSSON_LIBS) $(CHECK_LIBS) -lm
