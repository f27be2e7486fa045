# SPDX-License-Identifier: Apache-2.0
# Built only against the installed headers and libraries, as a reader's own copy would be.
noinst_PROGRAMS += examples/worker
examples_worker_SOURCES = examples/worker.c
examples_worker_LDADD = libnpugraph-hf.la libnpugraph.la

EXTRA_DIST += examples/model examples/train_model.py examples/speculate.py examples/worker.py
