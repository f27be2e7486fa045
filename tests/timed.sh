#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a test, and ends its log with the time that it took: timed.sh COMMAND... scripts/count-results.py shows the slowest ones.
TIMEFORMAT='took - %3R s, %3U s user, %3S s system'
time "$@"
