# SPDX-License-Identifier: Apache-2.0

# The daemon's heap. Sets JEMALLOC_LIBS (empty without it) and NGD_HAVE_JEMALLOC, for base/pages.c.
AC_DEFUN([NGD_JEMALLOC], [
  AC_ARG_WITH([jemalloc], [AS_HELP_STRING([--with-jemalloc], [use jemalloc for the daemon's heap (default: if found)])],
    [], [with_jemalloc=auto])
  AS_IF([test "x$enable_asan$enable_tsan" != xnono], [
    AS_IF([test "x$with_jemalloc" = xyes],
      [AC_MSG_ERROR([--with-jemalloc does not go with a sanitizer, which brings its own malloc])])
    with_jemalloc=no
  ])
  have_jemalloc=no
  AS_IF([test "x$with_jemalloc" != xno], [
    PKG_CHECK_MODULES([JEMALLOC], [jemalloc >= 5], [have_jemalloc=yes], [
      AS_IF([test "x$with_jemalloc" = xyes],
        [AC_MSG_ERROR([--with-jemalloc was given, but jemalloc is missing (Debian: libjemalloc-dev)])])
    ])
  ])
  AS_IF([test "x$have_jemalloc" = xyes],
    [AC_DEFINE([NGD_HAVE_JEMALLOC], [1], [jemalloc's header is there])])
  AM_CONDITIONAL([NGD_JEMALLOC], [test "x$have_jemalloc" = xyes])
])
