# SPDX-License-Identifier: Apache-2.0
# The shared libraries export what their headers declare; `npugraph__` and `ngd_` stay inside.
NGD_EXPORT_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols-regex '^npugraph_[a-z]'

include $(top_srcdir)/client/lib/local.mk
include $(top_srcdir)/client/hf/local.mk
include $(top_srcdir)/client/ctl/local.mk
