# SPDX-License-Identifier: Apache-2.0
# Long searches for defects, run by scripts/campaign and not by make check.
EXTRA_DIST += tests/campaign/local.mk tests/campaign/parts scripts/campaign
EXTRA_DIST += tests/campaign/fuzz.py
