# SPDX-License-Identifier: Apache-2.0

# Libraries that every build needs. scripts/deps.sh names their Debian packages.
AC_DEFUN([NGD_DEPENDENCIES], [
  # The version in grpc.pc is that of the C-core: 29 is that of gRPC 1.51, the oldest whose behaviour is known here.
  PKG_CHECK_MODULES([GRPC], [grpc >= 29])
  PKG_CHECK_MODULES([PROTOBUF_C], [libprotobuf-c >= 1.4])
  PKG_CHECK_MODULES([LIBEVENT], [libevent >= 2.1 libevent_pthreads >= 2.1])
  PKG_CHECK_MODULES([JANSSON], [jansson >= 2.13])
  dnl Debian names the versions, other distributions do not.
  PKG_CHECK_MODULES([LUA], [lua5.4], [], [PKG_CHECK_MODULES([LUA], [lua >= 5.4])])
  PKG_CHECK_MODULES([CRYPTO], [libcrypto >= 3.0])
  PKG_CHECK_MODULES([SSL], [libssl >= 3.0])
  PKG_CHECK_MODULES([ONIGURUMA], [oniguruma >= 6.9.8])
  PKG_CHECK_MODULES([UTF8PROC], [libutf8proc >= 2.4])
  PKG_CHECK_MODULES([SMARTCOLS], [smartcols >= 2.36])
  PKG_CHECK_MODULES([CHECK], [check >= 0.15], [have_check=yes], [have_check=no])
  AM_CONDITIONAL([NGD_UNIT_TESTS], [test "x$have_check" = xyes])
])

# Programs of the build. Sets PROTOC_C and PROTOC.
AC_DEFUN([NGD_TOOLS], [
  AC_PATH_PROG([PROTOC_C], [protoc-c])
  AS_IF([test -z "$PROTOC_C"], [AC_MSG_ERROR([protoc-c is missing (Debian: protobuf-c-compiler)])])
  AC_PATH_PROG([PROTOC], [protoc])
  AS_IF([test -z "$PROTOC"], [AC_MSG_ERROR([protoc is missing (Debian: protobuf-compiler)])])
  AC_PATH_PROG([BASH_PROG], [bash], [/bin/bash])
  # Debian's own first: its modules (grpcio, for the example) belong to that one.
  AC_PATH_PROG([PYTHON3], [python3], [python3], [/usr/bin:$PATH])
])
