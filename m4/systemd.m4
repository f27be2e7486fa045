# SPDX-License-Identifier: Apache-2.0

# Readiness, watchdog, socket activation. Sets SYSTEMD_CFLAGS, SYSTEMD_LIBS, directories of the unit
# files, and defines NGD_HAVE_SYSTEMD.
AC_DEFUN([NGD_SYSTEMD], [
  AC_ARG_WITH([systemd], [AS_HELP_STRING([--with-systemd], [use libsystemd (default: if found)])],
    [], [with_systemd=auto])
  have_systemd=no
  AS_IF([test "x$with_systemd" != xno], [
    PKG_CHECK_MODULES([SYSTEMD], [libsystemd >= 240], [have_systemd=yes], [
      AS_IF([test "x$with_systemd" = xyes],
        [AC_MSG_ERROR([--with-systemd was given, but libsystemd is missing (Debian: libsystemd-dev)])])
    ])
  ])
  AS_IF([test "x$have_systemd" = xyes], [AC_DEFINE([NGD_HAVE_SYSTEMD], [1], [libsystemd is there])])
  AM_CONDITIONAL([NGD_SYSTEMD], [test "x$have_systemd" = xyes])

  # Below the prefix unless told otherwise, so that an unprivileged `make install` works.
  AC_ARG_WITH([systemdsystemunitdir],
    [AS_HELP_STRING([--with-systemdsystemunitdir=DIR], [directory of unit files (default: PREFIX/lib/systemd/system)])],
    [], [with_systemdsystemunitdir='${prefix}/lib/systemd/system'])
  AC_SUBST([systemdsystemunitdir], [$with_systemdsystemunitdir])
])
