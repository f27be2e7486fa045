#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print docs/reasons.md or docs/metrics.md from base/*.def: doc-tables.py reasons|metrics."""
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
GRPC = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
        "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]


def rows(name, pattern):
    with open(os.path.join(TOP, "base", name), encoding="utf-8") as f:
        return re.findall(pattern, f.read(), re.M)


def reasons():
    print("""# Reasons

Every failed call carries a gRPC status code, a *reason* (stable, for programs) and a sentence (for
people; it names the object at fault). Scope says what else is spoiled: nothing beyond the call
(request), the session, the compiled graph, the device, or the daemon.

| reason | gRPC code | scope | meaning |
| --- | --- | --- | --- |""")
    for name, _, scope, code, text in rows("status.def",
                                           r'^NGD_STATUS\((\w+), (-?\d+), (\w+), (\d+), "([^"]*)"\)'):
        if name != "OK":
            print(f"| `{name.removeprefix('ERR_')}` | {GRPC[int(code)]} | {scope.lower()} | {text} |")


def metrics():
    print("""# Metrics

Shown at `/metrics` of the stats endpoint in Prometheus text form, each with the prefix `npugraphd_`.
A family with a label has one series per value; after 256 values the rest is summed as `other`.
Histograms have buckets in steps of 1, 2, 5 from 1 µs to 10 s.

| name | type | label | meaning |
| --- | --- | --- | --- |""")
    for _, kind, name, label, text in rows("metrics.def",
                                           r'^NGD_METRIC\((\w+), (\w+), "([^"]*)", "([^"]*)", "([^"]*)"\)'):
        kind = kind.removeprefix("TIME_").lower()
        print(f"| `npugraphd_{name}` | {kind} | {f'`{label}`' if label else ''} | {text} |")


pages = {"reasons": reasons, "metrics": metrics}
if len(sys.argv) != 2 or sys.argv[1] not in pages:
    sys.exit(__doc__)
pages[sys.argv[1]]()
