#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A few worlds of the simulation; scripts/campaign sim runs as many as there is time for.
set -u
said=$("$top_builddir/tests/campaign/sim/sim" --seed 1 --worlds 8 --jobs 2 --seconds 60 2>&1)
status=$?
[ $status = 77 ] && { echo "$said"; exit 77; }
if [ $status = 0 ]; then
    echo "ok - eight simulated worlds hold: ${said##*seed 1 }" | head -n 1
else
    echo "not ok - simulated worlds:"
    echo "$said"
    exit 1
fi
