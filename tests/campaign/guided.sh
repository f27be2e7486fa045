#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random JSON schemas, ten constrained answers to each, checked by another library. What check-python needs is needed.
set -u
seconds=900 seed=1
while [ $# -gt 1 ]; do
    case $1 in
    --seconds) seconds=$2 ;;
    --seed) seed=$2 ;;
    esac
    shift 2
done
cd "$top_srcdir" || exit 1
export NGD_TEST_PATIENCE=${NGD_TEST_PATIENCE:-600}  # some answers wait for others
export NPUGRAPH_SCHEMAS=$((seconds * 10 / 9 + 1)) NPUGRAPH_RUNS=10 NPUGRAPH_SEED=$seed
CHECK_BUILD=$top_builddir exec ./check-python tests/test_guided.py -k random
