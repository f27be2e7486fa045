# SPDX-License-Identifier: Apache-2.0

# Vector kernels of the host device. The files *_avx2.c, *_avx512.c and *_amx.c are compiled
# with flags of their own and chosen at run time. Where the compiler cannot (or the machine is not an
# x86-64), NGD_HAVE_AVX2 and so on stay undefined and the plain C kernels remain. --without-avx512 leaves out what the
# machine that builds and tests cannot run: a third of the kernels.
AC_DEFUN([NGD_KERNELS], [
  AC_ARG_WITH([avx512],
    [AS_HELP_STRING([--without-avx512], [compile no kernels for AVX-512 and AMX])], [], [with_avx512=yes])
  AC_ARG_ENABLE([emulation],
    [AS_HELP_STRING([--enable-emulation],
      [compile the kernels for AVX-512 and AMX as C where this machine cannot run them, for tests])],
    [], [enable_emulation=no])
  AS_IF([test "x$enable_emulation" = xyes], [CPPFLAGS="$CPPFLAGS -DNGD_EMULATE"])
  NGD_KERNEL_ISA([AVX2], [avx2], [-mavx2 -mfma -mf16c])
  NGD_KERNEL_ISA([AVX512], [avx512dq], [-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c], [$with_avx512])
  NGD_KERNEL_ISA([AVX512BF16], [avx512_bf16],
    [-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mf16c], [$with_avx512])
  NGD_KERNEL_ISA([AVX512VNNI], [avx512_vnni],
    [-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c], [$with_avx512])
  NGD_KERNEL_ISA([AMX], [amx_bf16],
    [-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mf16c -mamx-tile -mamx-bf16 -mamx-int8], [$with_avx512])
])

# NGD_KERNEL_ISA(NAME, word of /proc/cpuinfo, flags, [yes or no]): sets the conditional NGD_NAME and NGD_NAME_CFLAGS,
# defines NGD_HAVE_NAME.
AC_DEFUN([NGD_KERNEL_ISA], [
  ngd_have_$1=no
  NGD_$1_CFLAGS=
  AS_CASE([$host_cpu:m4_default([$4], [yes])], [x86_64:yes|amd64:yes], [NGD_CHECK_CFLAGS([$3], [ngd_have_$1=yes])])
  AS_IF([test "x$ngd_have_$1" = xyes], [
    NGD_$1_CFLAGS="$3"
    AS_IF([test "x$enable_emulation" = xyes && ! grep -qw $2 /proc/cpuinfo],
      [NGD_$1_CFLAGS="-mavx2 -mfma -mf16c -I\$(top_srcdir)/tests/emulate"])
    AC_DEFINE([NGD_HAVE_$1], [1], [kernels for $1 are compiled])
  ])
  AC_SUBST([NGD_$1_CFLAGS])
  AM_CONDITIONAL([NGD_$1], [test "x$ngd_have_$1" = xyes])
])
