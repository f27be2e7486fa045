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

# The sample is what --print-config prints (tests/meta/manual.sh). A file that is there belongs to its administrator: it is
# not replaced, and not removed unless it is still the sample.
confdir = $(DESTDIR)$(sysconfdir)/npugraphd
install-data-local:
	$(MKDIR_P) '$(confdir)/conf.d'
	test -e '$(confdir)/npugraphd.conf' || $(INSTALL_DATA) $(top_srcdir)/systemd/npugraphd.conf '$(confdir)/npugraphd.conf'
uninstall-local:
	! cmp -s $(top_srcdir)/systemd/npugraphd.conf '$(confdir)/npugraphd.conf' || rm -f '$(confdir)/npugraphd.conf'
	-rmdir '$(confdir)/conf.d' '$(confdir)' 2>/dev/null

EXTRA_DIST += systemd/npugraphd.service.in systemd/npugraphd.socket systemd/npugraphd.conf
CLEANFILES += systemd/npugraphd.service
