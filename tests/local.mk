# SPDX-License-Identifier: Apache-2.0
#
# Tests of one kind per folder, each with a fragment of its own. A test is a program (libcheck) or a
# script that prints "ok - what", "not ok - what" or "skip - what: why" per check; exit 77 skips it all.
# `make check` writes one .log and .trs each; `make check-summary` adds them up.
TEST_EXTENSIONS = .sh .py
# A test that hangs is ended by SIGABRT, so that Python and sanitizers print where it was.
NGD_TEST_LIMIT = $(BASH_PROG) $(top_srcdir)/tests/timed.sh timeout --foreground --signal=ABRT --kill-after=30 900
LOG_COMPILER = $(NGD_TEST_LIMIT)
SH_LOG_COMPILER = $(NGD_TEST_LIMIT) $(BASH_PROG)
PY_LOG_COMPILER = $(NGD_TEST_LIMIT) $(PYTHON3) -X faulthandler
AM_TESTS_ENVIRONMENT = \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	top_builddir='$(abs_top_builddir)'; export top_builddir; \
	CC='$(CC)'; export CC; \
	PYTHON3='$(PYTHON3)'; export PYTHON3; \
	NGD_CPPFLAGS='$(AM_CPPFLAGS) -I$(abs_top_srcdir) -I$(abs_top_srcdir)/client/lib -I$(abs_top_srcdir)/client/hf -I$(abs_top_builddir)'; export NGD_CPPFLAGS; \
	NGD_AVX2_CFLAGS='$(NGD_AVX2_CFLAGS)'; export NGD_AVX2_CFLAGS; \
	NGD_AVX512BF16_CFLAGS='$(NGD_AVX512BF16_CFLAGS)'; export NGD_AVX512BF16_CFLAGS; \
	$(NGD_SANITIZER_ENVIRONMENT) \
	. $(top_srcdir)/tests/environment.sh;
# Slower by a factor: promises about time are not checked, and long sweeps say what they leave out.
if NGD_SANITIZER
NGD_SANITIZER_ENVIRONMENT = SANITIZER=1; export SANITIZER;
else
NGD_SANITIZER_ENVIRONMENT = unset SANITIZER;
endif
EXTRA_DIST += tests/emulate/immintrin.h tests/emulate/tiles.h
EXTRA_DIST += tests/environment.sh tests/timed.sh tests/lsan.supp tests/tsan.supp

# What is installed, where it is installed; `make distcheck` runs it too.
EXTRA_DIST += tests/install/installed.sh tests/install/service.sh tests/install/namespaces.sh tests/install/debian.sh \
	tests/install/container.sh
TESTS += tests/install/service.sh
installcheck-local:
	bindir='$(bindir)' sbindir='$(sbindir)' libdir='$(libdir)' mandir='$(mandir)' bashcompletiondir='$(bashcompletiondir)' \
		version='$(PACKAGE_VERSION)' top_srcdir='$(abs_top_srcdir)' DESTDIR='$(DESTDIR)' CC='$(CC)' \
		$(BASH_PROG) $(top_srcdir)/tests/install/installed.sh

include $(top_srcdir)/tests/unit/base.mk
include $(top_srcdir)/tests/unit/graphs.mk
include $(top_srcdir)/tests/unit/devices.mk
include $(top_srcdir)/tests/unit/scheduler.mk
include $(top_srcdir)/tests/unit/client.mk
include $(top_srcdir)/tests/unit/daemon.mk
include $(top_srcdir)/tests/ascend/local.mk
include $(top_srcdir)/tests/backend/local.mk
include $(top_srcdir)/tests/ops/local.mk
include $(top_srcdir)/tests/rpc/local.mk
include $(top_srcdir)/tests/tenants/local.mk
include $(top_srcdir)/tests/fuzz/local.mk
include $(top_srcdir)/tests/campaign/local.mk
include $(top_srcdir)/tests/models/local.mk
include $(top_srcdir)/tests/meta/local.mk
