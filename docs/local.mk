# SPDX-License-Identifier: Apache-2.0
# docs/reasons.md and docs/metrics.md are printed from base/*.def by scripts/doc-tables.py; tests/meta
# checks that they agree.
EXTRA_DIST += docs
