#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests of a build directory, or those that are named: scripts/test.sh DIR [test...]
# One line per test program while it works, then failures, skips, and the sum alone on the last line.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
shift
only=()
[ $# -eq 0 ] || only=("TESTS=$*")
# Results of an earlier run must not be counted.
find "$dir/tests" -name '*.trs' -delete 2>/dev/null
: >"$dir/check.log"
make -C "$dir" -k -j"$(nproc)" check "${only[@]}" >>"$dir/check.log" 2>&1 &
make_pid=$!
trap 'kill $make_pid 2>/dev/null' INT TERM
# The parallel harness prints PASS, FAIL and so on as tests end.
tail --pid=$make_pid -n +1 -s 0.2 -f "$dir/check.log" | grep --line-buffered -E '^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): |: error: |undefined reference|\*\*\* '
wait $make_pid
status=$?
python3 "$top/scripts/count-results.py" "$dir" || status=1
exit $status
