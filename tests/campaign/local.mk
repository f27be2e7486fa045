# SPDX-License-Identifier: Apache-2.0
# Long searches for defects, run by scripts/campaign and not by make check.
EXTRA_DIST += scripts/campaign scripts/coverage tests/campaign/local.mk tests/campaign/part.py tests/campaign/parts tests/campaign/alloc.py \
	tests/campaign/failing.c tests/campaign/failing.py tests/campaign/fuzz.py tests/campaign/guided.sh tests/campaign/http2.py tests/campaign/kills.py \
	tests/campaign/metamorphic.py tests/campaign/models.py tests/campaign/mutants.py tests/campaign/reference.py tests/campaign/local_socket.py tests/campaign/replace.py tests/campaign/soak.py \
	tests/campaign/syscalls.py tests/campaign/tenants.py tests/browser/chromium.py tests/browser/page.py

# The simulation: the scheduler on fibers and virtual time instead of threads and the clock. The linker takes what
# locks.c and device.c define before the members of the libraries that define the same.
check_PROGRAMS += tests/campaign/sim/sim
tests_campaign_sim_sim_SOURCES = \
	tests/campaign/sim/clients.c \
	tests/campaign/sim/device.c tests/campaign/sim/device.h \
	tests/campaign/sim/fibers.c tests/campaign/sim/fibers.h \
	tests/campaign/sim/locks.c \
	tests/campaign/sim/sim.c \
	tests/campaign/sim/talks.c \
	tests/campaign/sim/world.c tests/campaign/sim/world.h
tests_campaign_sim_sim_LDFLAGS = -Wl,--wrap=pthread_join -Wl,--wrap=pthread_self -Wl,--wrap=setpriority -Wl,--wrap=ngd_mem_warm
tests_campaign_sim_sim_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_campaign_sim_sim_LDADD = $(NGD_SCHEDULER_LIBS) -lm
TESTS += tests/campaign/test_sim.sh
tests/campaign/test_sim.log: tests/campaign/sim/sim$(EXEEXT)
EXTRA_DIST += tests/campaign/test_sim.sh
