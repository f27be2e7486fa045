# SPDX-License-Identifier: Apache-2.0
# docs/reasons.md, docs/metrics.md, docs/operators.md and docs/options.md are printed from base/*.def and graphs/*.def by
# scripts/doc-tables.py; tests/meta checks that they agree.
EXTRA_DIST += docs
