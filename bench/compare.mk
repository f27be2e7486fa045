# SPDX-License-Identifier: Apache-2.0
#
# The comparison with other implementations. bench/compare/run builds bench_sequences; `make bench` does not run it,
# since the others have to be installed first.
EXTRA_PROGRAMS += bench/compare/bench_sequences
bench_compare_bench_sequences_SOURCES = bench/compare/bench_sequences.c $(NGD_CROWD_SOURCES)
bench_compare_bench_sequences_LDADD = $(NGD_CLIENT_HF_LIBS)
NGD_COMPARE_FILES = \
	bench/compare/run \
	bench/compare/engine_llama.py \
	bench/compare/engine_openvino.py \
	bench/compare/engine_torch.py \
	bench/compare/report.py \
	bench/compare/text.py
EXTRA_DIST += $(NGD_COMPARE_FILES)

# The table and the picture, without any measurement.
TESTS += tests/unit/test_compare_report.py
EXTRA_DIST += tests/unit/test_compare_report.py
