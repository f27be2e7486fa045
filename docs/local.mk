# SPDX-License-Identifier: Apache-2.0
# docs/reasons.md, docs/metrics.md, docs/operators.md, docs/options.md and docs/limits.md are printed from base/*.def,
# graphs/*.def and daemon/quotas.def by scripts/doc-tables.py; tests/meta checks that they agree.
EXTRA_DIST += docs
