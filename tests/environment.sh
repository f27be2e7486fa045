# SPDX-License-Identifier: Apache-2.0
# Sourced before every test. Sanitizers stop at the first finding; each suppression has its reason in
# its file.
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$top_srcdir/tests/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="suppressions=$top_srcdir/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1"
# Tests must not read the user's or the machine's configuration, nor depend on a language.
export LC_ALL=C.UTF-8
unset NPUGRAPHD_FAULT NPUGRAPH_ADDRESS JOURNAL_STREAM NOTIFY_SOCKET http_proxy https_proxy grpc_proxy
# Where all takes ten times as long, tests that only repeat themselves do it less often (tests/unit/effort.h), in percent.
[ -z "${SANITIZER:-}" ] || export NGD_TEST_EFFORT="${NGD_TEST_EFFORT:-10}"
