# SPDX-License-Identifier: Apache-2.0

# NGD_ARG_SWITCH(name, help): --enable-name, off by default, as $enable_name.
AC_DEFUN([NGD_ARG_SWITCH], [
  AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1], [$2])], [], [enable_$1=no])
])

# How to build: asserts, sanitizers, fault points. Sets NGD_MODE_CPPFLAGS and NGD_MODE_CFLAGS.
AC_DEFUN([NGD_BUILD_OPTIONS], [
  NGD_ARG_SWITCH([debug], [keep asserts and check the order of locks])
  NGD_ARG_SWITCH([asan], [build with AddressSanitizer and UndefinedBehaviorSanitizer])
  NGD_ARG_SWITCH([tsan], [build with ThreadSanitizer])
  NGD_ARG_SWITCH([fault], [compile fault points into a build without --enable-debug])
  NGD_ARG_SWITCH([fuzzer], [build the fuzz targets with clang's libFuzzer, and everything for its coverage])
  NGD_ARG_SWITCH([werror], [treat warnings as errors])
  NGD_MODE_CPPFLAGS=
  NGD_MODE_CFLAGS=
  # Without asserts, checks of what comes from outside stay: they are if statements, never asserts.
  AS_IF([test "x$enable_debug" = xno], [NGD_MODE_CPPFLAGS="-DNDEBUG"])
  AS_IF([test "x$enable_fault" = xyes], [NGD_MODE_CPPFLAGS="$NGD_MODE_CPPFLAGS -DNGD_ENABLE_FAULT"])
  AS_IF([test "x$enable_asan" = xyes && test "x$enable_tsan" = xyes],
    [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other; build twice])])
  AS_IF([test "x$enable_asan" = xyes],
    [NGD_MODE_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
     # Checks written out for each access of the unrolled matrix kernels cost gcc minutes; as calls, seconds.
     NGD_CHECK_CFLAGS([--param=asan-instrumentation-with-call-threshold=500],
       [NGD_MODE_CFLAGS="$NGD_MODE_CFLAGS --param=asan-instrumentation-with-call-threshold=500"])])
  AS_IF([test "x$enable_tsan" = xyes],
    [NGD_MODE_CFLAGS="-fsanitize=thread -fno-omit-frame-pointer"])
  NGD_FUZZER_LIBS=
  # Kernels work on device memory, in which AddressSanitizer sees no bounds; checking each vector makes them 30 times as slow.
  # tests/ops puts operands in front of pages that cannot be touched.
  NGD_KERNEL_MODE_CFLAGS=
  AS_IF([test "x$enable_asan" = xyes], [NGD_KERNEL_MODE_CFLAGS="-fno-sanitize=address"])
  AS_IF([test "x$enable_fuzzer" = xyes],
    [NGD_MODE_CPPFLAGS="$NGD_MODE_CPPFLAGS -DNGD_LIBFUZZER"
     NGD_MODE_CFLAGS="$NGD_MODE_CFLAGS -fsanitize=fuzzer-no-link"
     NGD_FUZZER_LIBS="-fsanitize=fuzzer"
     # No parser calls a kernel, and clang takes a quarter of an hour to instrument them.
     NGD_KERNEL_MODE_CFLAGS="-fno-sanitize=all"])
  AC_SUBST([NGD_KERNEL_MODE_CFLAGS])
  AC_SUBST([NGD_FUZZER_LIBS])
  AM_CONDITIONAL([NGD_SANITIZER], [test "x$enable_asan$enable_tsan" != xnono])
  AC_SUBST([NGD_MODE_CPPFLAGS])
  AC_SUBST([NGD_MODE_CFLAGS])
])
