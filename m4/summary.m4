# SPDX-License-Identifier: Apache-2.0

AC_DEFUN([NGD_SUMMARY], [
  AS_ECHO(["
  $PACKAGE_NAME $PACKAGE_VERSION for $host

    prefix            $prefix
    compiler          $CC $CFLAGS
    asserts           $enable_debug
    fault points      $(test "x$enable_debug$enable_fault" = xnono && echo no || echo yes)
    sanitizers        $(test "x$enable_asan" = xyes && echo "address, undefined" || (test "x$enable_tsan" = xyes && echo thread || echo none))
    jemalloc          $have_jemalloc
    libsystemd        $have_systemd
    LIBXSMM           $have_libxsmm
    kernels           plain C$(test $ngd_have_AVX2 = yes && echo ", AVX2")$(test $ngd_have_AVX512 = yes && echo ", AVX-512")$(test $ngd_have_AVX512BF16 = yes && echo ", AVX-512 bf16")$(test $ngd_have_AVX512VNNI = yes && echo ", AVX-512 VNNI")$(test $ngd_have_AMX = yes && echo ", AMX")
    unit tests        $have_check
"])
])
