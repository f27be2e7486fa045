# SPDX-License-Identifier: Apache-2.0

# NGD_CHECK_CFLAGS(flags, if-yes, if-no): does the compiler take all these flags?
AC_DEFUN([NGD_CHECK_CFLAGS], [
  AS_VAR_PUSHDEF([cached], [ngd_cv_cflags_$1])
  AC_CACHE_CHECK([whether $CC accepts $1], [cached], [
    ngd_saved_CFLAGS=$CFLAGS
    # -Werror, because clang only warns about what it does not know
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_VAR_SET([cached], [yes])], [AS_VAR_SET([cached], [no])])
    CFLAGS=$ngd_saved_CFLAGS
  ])
  AS_VAR_IF([cached], [yes], [$2], [$3])
  AS_VAR_POPDEF([cached])
])

# Does the analysis understand, in C, that a field names the lock of its own struct? Defines NGD_TSA_FIELDS.
AC_DEFUN([NGD_CHECK_TSA_FIELDS], [
  AC_CACHE_CHECK([whether $CC resolves guarded_by(field)], [ngd_cv_tsa_fields], [
    ngd_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror -Wthread-safety"
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
      struct __attribute__((capability("mutex"))) mutex { int m; };
      void take(struct mutex *m) __attribute__((acquire_capability(m)));
      void give(struct mutex *m) __attribute__((release_capability(m)));
      struct object { struct mutex lock; int x __attribute__((guarded_by(lock))); };
      void set(struct object *o);
      void set(struct object *o) { take(&o->lock); o->x = 1; give(&o->lock); }]])],
      [ngd_cv_tsa_fields=yes], [ngd_cv_tsa_fields=no])
    CFLAGS=$ngd_saved_CFLAGS
  ])
  AS_IF([test "x$ngd_cv_tsa_fields" = xyes],
    [AC_DEFINE([NGD_TSA_FIELDS], [1], [clang resolves guarded_by(field)])])
])

# The warnings of the house style. Sets NGD_WARN_CFLAGS.
AC_DEFUN([NGD_WARNINGS], [
  NGD_WARN_CFLAGS=
  m4_foreach_w([flag], [-Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wvla
                        -Wframe-larger-than=8192 -Wno-error=frame-larger-than= -Wformat-security -Wundef -Wpointer-arith -fvisibility=hidden
                        -fstack-protector-strong],
    [NGD_CHECK_CFLAGS(flag, [NGD_WARN_CFLAGS="$NGD_WARN_CFLAGS flag"])])
  # Annotated locks are checked at compile time where the compiler can (base/annotations.h).
  NGD_CHECK_CFLAGS([-Wthread-safety], [
    NGD_WARN_CFLAGS="$NGD_WARN_CFLAGS -Wthread-safety"
    NGD_CHECK_TSA_FIELDS
  ])
  # Sanitizers put red zones between locals, which is not what the limit on frames is about.
  AS_IF([test "x$enable_asan$enable_tsan" != xnono],
    [NGD_WARN_CFLAGS="$NGD_WARN_CFLAGS -Wno-frame-larger-than"])
  # Large frames stay warnings: what inlining adds up differs between compilers and options.
  AS_IF([test "x$enable_werror" = xyes], [
    NGD_WARN_CFLAGS="$NGD_WARN_CFLAGS -Werror"
    NGD_CHECK_CFLAGS([-Wno-error=frame-larger-than=], [NGD_WARN_CFLAGS="$NGD_WARN_CFLAGS -Wno-error=frame-larger-than="])
  ])
  AC_SUBST([NGD_WARN_CFLAGS])
])
