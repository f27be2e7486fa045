#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Add up the results that `make check` left in a build directory: count-results.py BUILD-DIR.

A program of libcheck counts as its checks; a script counts as its lines "ok - ...", "not ok - ..." and
"skip - ..."; anything else counts as one. Skips and what was done less often under a sanitizer are named,
then failures with what their tests printed, since the logs of a machine far away are gone with it. Then come
the slowest tests, and the sum on the last line.
"""
import os
import re
import sys

SUMMARY = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", re.M)
REDUCED = re.compile(r"^reduced - (.*)$", re.M)  # tests/unit/effort.h
CASE = re.compile(r"^(ok|not ok|skip) - (.*)$", re.M)
TOOK = re.compile(r"^took - ([\d.]+) s, ([\d.]+) s user, ([\d.]+) s system$", re.M)  # tests/timed.sh
SLOWEST = 10  # tests that are named, of those that took a second or more
TROUBLE = re.compile(r"^not ok - |:[FE]:|Sanitizer|[Aa]ssert|terminated")
AROUND = 60  # lines of a log shown from each place of interest on


def count(trs, log):
    """(passed, names of failures, names of skips) of one test."""
    result = re.search(r"^:global-test-result: (\S+)", trs, re.M)
    result = result.group(1) if result else "ERROR"
    name_of_case = re.compile(r"^.*:[FE]:[^:]*:([^:]*):\d+: (.*)$", re.M)
    passed, failures, skips = 0, [], []
    summaries = SUMMARY.findall(log)
    for checks, failed, errors in summaries:
        passed += int(checks) - int(failed) - int(errors)
    failures += [f"{name}: {text}" for name, text in name_of_case.findall(log)] if summaries else []
    cases = CASE.findall(log)
    for kind, text in cases:
        if kind == "skip":
            skips.append(text)
            # A check that a libcheck program skipped was counted as passed by the library.
            passed -= 1 if summaries else 0
        elif not summaries:
            passed += kind == "ok"
            failures += [text] if kind == "not ok" else []
    if result == "SKIP" and not skips:
        skips.append(log.strip().split("\n")[-1] or "no reason given")
    elif result in ("FAIL", "ERROR", "XPASS") and not failures:
        failures.append("ended with a failure outside its checks (crash, time limit or setup)")
    elif result == "PASS" and not passed and not skips:
        passed = 1
    return passed, failures, skips


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def excerpt(log):
    """The places of a failed test's log that say why, each once."""
    lines = log.rstrip("\n").split("\n")
    starts = [i for i, line in enumerate(lines) if TROUBLE.search(line)]
    shown = set(range(max(len(lines) - AROUND // 2, 0), len(lines)))
    for i in starts[:6]:
        shown.update(range(max(i - 2, 0), min(i + AROUND, len(lines))))
    before = -1
    for i in sorted(shown):
        if i != before + 1:
            yield "..."
        yield lines[i]
        before = i


def slowest(times):
    """Lines for the tests that took longest; times has (wall, CPU, title) of each, in seconds."""
    for wall, cpu, title in sorted(times, reverse=True)[:SLOWEST]:
        if wall >= 1:
            yield f"slow: {wall:7.1f} s, CPU {cpu:7.1f} s: {title}"


def main(build):
    passed = failed = 0
    troubles, times = [], []
    for where, dirs, names in os.walk(os.path.join(build, "tests")):
        dirs.sort()
        for name in sorted(names):
            if not name.endswith(".trs"):
                continue
            stem = os.path.join(where, name[:-4])
            log = read(stem + ".log")
            ok, failures, skips = count(read(stem + ".trs"), log)
            passed += ok
            failed += len(failures)
            title = os.path.relpath(stem, build)
            if took := TOOK.findall(log):
                wall, user, system = map(float, took[-1])
                times.append((wall, user + system, title))
            for text in skips:
                print(f"skipped: {title}: {text}")
            for text in sorted(set(REDUCED.findall(log))):
                print(f"reduced: {title}: {text}")
            if failures:
                troubles.append((title, failures, stem + ".log", log))
    for title, failures, path, log in troubles:
        for text in failures:
            print(f"FAILED: {title}: {text}")
        print(f"    {path}:")
        for line in excerpt(log):
            print(f"    | {line[:400]}")
    for line in slowest(times):
        print(line)
    if passed + failed == 0:
        print("FAILED: no test has run")
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
