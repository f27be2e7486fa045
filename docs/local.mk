# SPDX-License-Identifier: Apache-2.0
# docs/reasons.md, docs/metrics.md and docs/operators.md are printed from base/*.def and graphs/ops.def by
# scripts/doc-tables.py; tests/meta checks that they agree.
EXTRA_DIST += docs
