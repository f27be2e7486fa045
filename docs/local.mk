# SPDX-License-Identifier: Apache-2.0
# docs/reasons.md, docs/metrics.md, docs/operators.md, docs/options.md, docs/limits.md and docs/roles.md are printed from
# base/*.def, graphs/*.def, daemon/quotas.def and daemon/handlers/methods.def by scripts/doc-tables.py; tests/meta checks that they agree.
# docs/core-aten.md is written by python/tests/core_operators.py, and compared by ./check-python.
EXTRA_DIST += docs
