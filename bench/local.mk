# SPDX-License-Identifier: Apache-2.0
#
# Programs that measure. They are built and run by `make bench`, never by `make check`: a figure that
# decides over pass or fail on a shared machine is a test that fails at random. A program appends its
# name to NGD_BENCHES and EXTRA_PROGRAMS and links with the NGD_<FOLDER>_LIBS that it needs.
NGD_BENCHES =
EXTRA_DIST += bench/instructions.py

.PHONY: bench bench-programs
bench-programs: all
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(NGD_BENCHES)
bench: bench-programs
	@for b in $(NGD_BENCHES); do echo "== $$b"; ./$$b || exit 1; done

include $(top_srcdir)/bench/graphs.mk
include $(top_srcdir)/bench/devices.mk
include $(top_srcdir)/bench/scheduler.mk
include $(top_srcdir)/bench/daemon.mk
include $(top_srcdir)/bench/rpc.mk
include $(top_srcdir)/bench/compare.mk
