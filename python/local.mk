# SPDX-License-Identifier: Apache-2.0
# The Python package. make neither builds nor tests it: ./check-python does, because PyTorch is large.
EXTRA_DIST += check-python python/README.md python/bench/guided.py python/bench/server.py \
	python/pyproject.toml python/src/npugraph/__init__.py python/src/npugraph/_abi.py \
	python/src/npugraph/_aio_graphs.py python/src/npugraph/_library.py python/src/npugraph/aio.py \
	python/src/npugraph/chat.py python/src/npugraph/client.py python/src/npugraph/errors.py \
	python/src/npugraph/export.py python/src/npugraph/graphs.py python/src/npugraph/memory.py \
	python/src/npugraph/py.typed python/src/npugraph/sequences.py python/src/npugraph/server/__init__.py \
	python/src/npugraph/server/__main__.py python/src/npugraph/server/app.py \
	python/src/npugraph/server/bodies.py python/src/npugraph/server/calls.py python/src/npugraph/server/cli.py \
	python/src/npugraph/server/embed.py python/src/npugraph/server/fields.py \
	python/src/npugraph/server/forms.py python/src/npugraph/server/generate.py \
	python/src/npugraph/server/guided.py python/src/npugraph/server/link.py \
	python/src/npugraph/server/metrics.py python/src/npugraph/server/models.py \
	python/src/npugraph/server/problems.py python/src/npugraph/server/protocol.py \
	python/src/npugraph/server/rules.py python/src/npugraph/server/texts.py python/src/npugraph/server/tools.py \
	python/src/npugraph/tokenizer.py python/src/npugraph/torch/__init__.py python/src/npugraph/torch/answer.py python/src/npugraph/torch/backend.py \
	python/src/npugraph/torch/cache.py python/src/npugraph/torch/connection.py \
	python/src/npugraph/torch/digests.py python/src/npugraph/torch/direct.py python/src/npugraph/torch/entries.py \
	python/src/npugraph/torch/export.py python/src/npugraph/torch/export_complex.py python/src/npugraph/torch/export_experts.py \
	python/src/npugraph/torch/export_trace.py python/src/npugraph/torch/export_write.py \
	python/src/npugraph/torch/extend.py python/src/npugraph/torch/files.py \
	python/src/npugraph/torch/formulas.py python/src/npugraph/torch/images.py \
	python/src/npugraph/torch/match.py python/src/npugraph/torch/operators.py \
	python/src/npugraph/torch/options.py python/src/npugraph/torch/paths.py python/src/npugraph/torch/plain.py \
	python/src/npugraph/torch/readable.py python/src/npugraph/torch/recompiles.py \
	python/src/npugraph/torch/record.py python/src/npugraph/torch/runner.py python/src/npugraph/torch/shapes.py \
	python/src/npugraph/torch/share.py \
	python/src/npugraph/torch/translate.py python/src/npugraph/torch/values.py \
	python/src/npugraph/torch/watch.py python/src/npugraph/tracing.py python/tests/conftest.py \
	python/tests/core_operators.py python/tests/programs.py python/tests/schemas.py python/tests/serving.py python/tests/test_aio.py \
	python/tests/test_cache.py python/tests/test_cache_forged.py python/tests/test_calls.py \
	python/tests/test_client.py python/tests/test_compile.py \
	python/tests/test_core_operators.py python/tests/test_embeddings.py python/tests/test_export.py \
	python/tests/test_extend.py python/tests/test_guided.py python/tests/test_images.py \
	python/tests/test_notebook.py python/tests/test_oip.py python/tests/test_options.py python/tests/test_programs.py \
	python/tests/test_server.py python/tests/test_server_fuzz.py python/tests/test_sharing.py python/tests/test_tools.py \
	python/tests/test_tracing.py python/tests/test_watch.py
