# SPDX-License-Identifier: Apache-2.0
# The Python package. make does not build it.
EXTRA_DIST += scripts/python-abi.py python/README.md python/pyproject.toml python/src/npugraph/py.typed \
	python/src/npugraph/__init__.py python/src/npugraph/_abi.py python/src/npugraph/_library.py \
	python/src/npugraph/client.py python/src/npugraph/errors.py python/src/npugraph/graphs.py \
	python/src/npugraph/memory.py python/src/npugraph/sequences.py python/src/npugraph/tokenizer.py \
	python/tests/conftest.py python/tests/test_client.py
