# SPDX-License-Identifier: Apache-2.0
# Built only against the installed headers and libraries, as a reader's own copy would be.
noinst_PROGRAMS += examples/two_daemons examples/worker
examples_two_daemons_SOURCES = examples/two_daemons.c
examples_two_daemons_LDADD = libnpugraph.la
examples_worker_SOURCES = examples/worker.c
examples_worker_LDADD = libnpugraph-hf.la libnpugraph.la

EXTRA_DIST += examples/model examples/container examples/monitoring examples/train_model.py examples/speculate.py examples/worker.py \
	examples/compile.py
