# SPDX-License-Identifier: Apache-2.0
# Built only against the installed headers and libraries, as a reader's own copy would be.
noinst_PROGRAMS += examples/two_daemons examples/worker examples/worker-kit/c/worker
examples_two_daemons_SOURCES = examples/two_daemons.c
examples_two_daemons_LDADD = libnpugraph.la
examples_worker_SOURCES = examples/worker.c
examples_worker_LDADD = libnpugraph-hf.la libnpugraph.la
# The worker kit (examples/worker-kit/README.md); the other languages' own tools build the rest of it.
examples_worker_kit_c_worker_SOURCES = examples/worker-kit/c/worker.c examples/worker-kit/c/metrics.c examples/worker-kit/c/metrics.h
examples_worker_kit_c_worker_LDADD = libnpugraph.la $(JANSSON_LIBS)

EXTRA_DIST += examples/model examples/monitoring examples/train_model.py examples/speculate.py examples/worker.py \
	examples/compile.py examples/compile.ipynb examples/worker-kit/README.md examples/worker-kit/python/worker.py \
	examples/worker-kit/go/generate.sh examples/worker-kit/go/go.mod examples/worker-kit/go/go.sum \
	examples/worker-kit/go/metrics.go examples/worker-kit/go/worker.go \
	examples/worker-kit/rust/Cargo.lock examples/worker-kit/rust/Cargo.toml examples/worker-kit/rust/build.rs \
	examples/worker-kit/rust/src/main.rs examples/worker-kit/rust/src/metrics.rs examples/worker-kit/rust/src/options.rs
