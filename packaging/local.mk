# SPDX-License-Identifier: Apache-2.0
# Recipes of packages other than Debian's, whose place is debian/. make builds none of them; docs/operations.md says how.
EXTRA_DIST += packaging/container packaging/helm packaging/kubernetes packaging/rpm
