#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon whose allocations, or system calls, fail one after the other. It runs the part of tests/campaign/alloc.py and syscalls.py
that covers places with former defects."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "campaign"))
import alloc  # noqa: E402
import failing  # noqa: E402
from failing import *  # noqa: E402,F403

if SANITIZER:
    skip_all("a sanitizer has an allocator of its own, which cannot be put behind another one")


class Args:
    seconds, end, only = None, float("inf"), None


class Sum(failing.Sum):
    def done(self):
        assert self.failed == 0, f"{self.failed} failed, see above"
        assert self.passed > 20, f"only {self.passed} calls were looked at"


def sweep(names, kinds=ALLOC, refused=alloc.REFUSED, picks=(0,)):
    total = Sum()
    alloc.Sweep(Args, Failing(), total, kinds, alloc.CALLERS, refused, list(picks), [1]).run({n: SCENARIOS[n] for n in names})
    total.done()


@test("without memory a list is refused, and not empty; an entry of the store is not called bad")
def lists():
    sweep(["admin", "store", "steps"])


@test("without memory the statistics are whole, refused, or the connection ends; the daemon lives")
def stats():
    sweep(["statistics"])


@test("a load whose system calls fail one after the other is refused, or right")
def load_calls():
    codes = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "DATA_LOSS",  # and not that the path is not allowed
             "NOT_FOUND")  # the session, when its connection failed
    sweep(["load"], CALLS, [getattr(grpc.StatusCode, c) for c in codes], picks=(0, 1))


@test("a session over a guarded connection whose system calls fail is refused, cut off or right, and never waits for ever")
def guarded_calls():
    sweep(["session"], CALLS, [getattr(grpc.StatusCode, c) for c in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL")], picks=(0, 1, 2, 3))


@test("a start without memory for its last part serves, or ends with a sentence; it says that it is ready only when it is")
def starts():
    total, failing_page = Sum(), Failing()
    failing_page.arm(ALLOC, alloc.CALLERS, 1 << 40)
    with alloc.start_daemon(failing_page, "start", model=False):
        calls = failing_page.page.counted
    alloc.starts(Args, failing_page, total, ALLOC, alloc.CALLERS, [0], first=calls - 25)
    total.done()


if __name__ == "__main__":
    main(shared=False)
