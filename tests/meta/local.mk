# SPDX-License-Identifier: Apache-2.0
#
# Checks of the sources themselves.
NGD_META_TESTS = \
	tests/meta/ascend_rules.py \
	tests/meta/ci.py \
	tests/meta/commands.py \
	tests/meta/commits.py \
	tests/meta/def_files.py \
	tests/meta/floors.py \
	tests/meta/forbidden.py \
	tests/meta/headers.py \
	tests/meta/layers.py \
	tests/meta/makefiles.py \
	tests/meta/manual.sh \
	tests/meta/monitoring.py \
	tests/meta/names.py \
	tests/meta/packaging.py \
	tests/meta/prose.py \
	tests/meta/python.py \
	tests/meta/shell_scripts.sh \
	tests/meta/thread_safety.py \
	tests/meta/troubleshooting.py \
	tests/meta/unit_files.sh
TESTS += $(NGD_META_TESTS)
EXTRA_DIST += $(NGD_META_TESTS) tests/meta/meta.py tests/meta/thread_safety.c tests/meta/local.mk
