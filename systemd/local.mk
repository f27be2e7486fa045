# SPDX-License-Identifier: Apache-2.0
systemdsystemunit_DATA = systemd/npugraphd.socket
nodist_systemdsystemunit_DATA = systemd/npugraphd.service
sysusersdir = $(prefix)/lib/sysusers.d
tmpfilesdir = $(prefix)/lib/tmpfiles.d
dist_sysusers_DATA = systemd/sysusers.d/npugraphd.conf
dist_tmpfiles_DATA = systemd/tmpfiles.d/npugraphd.conf
# A drop-in for machines with NPUs, to be copied: a unit should not allow more than its machine needs.
dropindir = $(datadir)/npugraphd/systemd/npugraphd.service.d
dist_dropin_DATA = systemd/npugraphd.service.d/ascend.conf

# Made here and not by configure, which leaves ${prefix} in directories.
systemd/npugraphd.service: $(top_srcdir)/systemd/npugraphd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' -e 's|@sysconfdir[@]|$(sysconfdir)|g' \
		$(top_srcdir)/systemd/npugraphd.service.in > $@.tmp && mv $@.tmp $@

EXTRA_DIST += systemd/npugraphd.service.in systemd/npugraphd.socket
CLEANFILES += systemd/npugraphd.service
