#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests of a build directory: scripts/test.sh DIR
# One line per test program while it works, then failures, skips, and the sum alone on the last line.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
# Results of an earlier run must not be counted.
find "$dir/tests" -name '*.trs' -delete 2>/dev/null
: >"$dir/check.log"
make -C "$dir" -k -j"$(nproc)" check >>"$dir/check.log" 2>&1 &
make_pid=$!
trap 'kill $make_pid 2>/dev/null' INT TERM
# The parallel harness prints PASS, FAIL and so on as tests end.
tail --pid=$make_pid -n +1 -s 0.2 -f "$dir/check.log" | grep --line-buffered -E '^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): |: error: |undefined reference|\*\*\* '
wait $make_pid
status=$?
python3 "$top/scripts/count-results.py" "$dir" || status=1
exit $status
