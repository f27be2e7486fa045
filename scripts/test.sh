#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests of a build directory, or some: scripts/test.sh DIR [test | folder/ | !folder/]...
# "tests/rpc/" means all in that folder, "!tests/meta/" leaves out those whose names begin so.
# One line per test program while it works, then skips, failures, the slowest tests, and the sum alone on the last line.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
shift
chosen() {
    local t f out
    # shellcheck disable=SC2016 # of make
    for t in $(make -s --no-print-directory -C "$dir" --eval 'listed: ; @echo $(TESTS)' listed); do
        out=
        for f in "$@"; do
            case $f in
            !*) [[ $t != "${f#!}"* ]] || out=yes ;;
            esac
        done
        for f in "${with[@]}"; do
            [ -z "$out" ] && [[ $t == "$f" || ($f == */ && $t == "$f"*) ]] && echo "$t" && break
        done
    done
}
only=()
if [ $# -gt 0 ]; then
    with=()
    for f in "$@"; do [[ $f == !* ]] || with+=("$f"); done
    [ ${#with[@]} -gt 0 ] || with=(tests/)
    tests=$(chosen "$@" | tr '\n' ' ')
    # Of the programs only those that are asked for are built: scripts have a suffix.
    # shellcheck disable=SC2086  # a list
    only=("TESTS=$tests" "check_PROGRAMS=$(printf '%s\n' $tests | grep -v '\.[a-z]*$' | tr '\n' ' ')")
fi
# Results of an earlier run must not be counted.
find "$dir/tests" -name '*.trs' -delete 2>/dev/null
: >"$dir/check.log"
# One more than CPUs: many tests wait.
make -C "$dir" -k -j"$(($(nproc) + 1))" check "${only[@]}" >>"$dir/check.log" 2>&1 &
make_pid=$!
trap 'kill $make_pid 2>/dev/null' INT TERM
# The parallel harness prints PASS, FAIL and so on as tests end.
tail --pid=$make_pid -n +1 -s 0.2 -f "$dir/check.log" | grep --line-buffered -E '^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): |: error: |undefined reference|\*\*\* '
wait $make_pid
status=$?
python3 "$top/scripts/count-results.py" "$dir" || status=1
exit $status
