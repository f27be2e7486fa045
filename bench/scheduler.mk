# SPDX-License-Identifier: Apache-2.0
NGD_BENCHES += bench/schedsim
EXTRA_PROGRAMS += bench/schedsim
bench_schedsim_SOURCES = bench/schedsim.c bench/sim/arrivals.c bench/sim/sim.c bench/sim/sim.h
bench_schedsim_LDADD = $(NGD_SCHEDULER_LIBS) -lm
