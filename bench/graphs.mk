# SPDX-License-Identifier: Apache-2.0
NGD_BENCHES += bench/bench_gcache
EXTRA_PROGRAMS += bench/bench_gcache
bench_bench_gcache_LDADD = $(NGD_GRAPHS_LIBS)
