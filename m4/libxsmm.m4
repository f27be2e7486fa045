# SPDX-License-Identifier: Apache-2.0

# GEMM with many rows on the host device. Sets XSMM_CFLAGS, XSMM_LIBS and defines NGD_HAVE_LIBXSMM.
AC_DEFUN([NGD_LIBXSMM], [
  AC_ARG_WITH([libxsmm], [AS_HELP_STRING([--with-libxsmm], [use LIBXSMM for matrix products (default: if found)])],
    [], [with_libxsmm=auto])
  have_libxsmm=no
  XSMM_CFLAGS=
  XSMM_LIBS=
  AS_IF([test "x$with_libxsmm" != xno], [
    ngd_saved_LIBS=$LIBS
    # libxsmmnoblas answers the BLAS symbols that LIBXSMM refers to and that are never called here.
    XSMM_LIBS="-lxsmm -lxsmmnoblas -lm -ldl -lrt"
    LIBS="$XSMM_LIBS -lpthread $LIBS"
    AC_MSG_CHECKING([for libxsmm])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <libxsmm.h>]], [[libxsmm_init();]])],
      [have_libxsmm=yes], [have_libxsmm=no])
    AC_MSG_RESULT([$have_libxsmm])
    LIBS=$ngd_saved_LIBS
    AS_IF([test "x$have_libxsmm" = xyes],
      [AC_DEFINE([NGD_HAVE_LIBXSMM], [1], [LIBXSMM is there])],
      [XSMM_LIBS=
       AS_IF([test "x$with_libxsmm" = xyes],
         [AC_MSG_ERROR([--with-libxsmm was given, but it is missing (Debian: libxsmm-dev)])])])
  ])
  AC_SUBST([XSMM_CFLAGS])
  AC_SUBST([XSMM_LIBS])
  AM_CONDITIONAL([NGD_LIBXSMM], [test "x$have_libxsmm" = xyes])
])
