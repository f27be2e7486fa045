#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The n-th allocation fails, in each scenario: the call is refused with RESOURCE_EXHAUSTED or right, and nothing is lost."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from failing import *  # noqa: E402,F403

CALLERS = OWN | HELPERS | LIBC
STARTS = 600  # calls of a start, about
# UNAVAILABLE: the guard ends a connection that it has no memory for; the client connects again.
REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


class Sweep:
    def __init__(self, args, failing, total, kinds, callers, refused, picks, bursts):
        self.args, self.failing, self.sum = args, failing, total
        self.kinds, self.callers, self.refused, self.picks, self.bursts = kinds, callers, refused, picks, bursts
        self.points, self.daemon, self.references = set(), None, {}

    def start(self):
        self.failing.disarm()
        self.daemon = start_daemon(self.failing)
        for name, run in self.scenarios.items():
            self.references[name] = run(self.daemon)
            if run(self.daemon) != self.references[name]:
                raise AssertionError(f"{name} does not give the same answer twice: no reference")
        self.daemon.settle()
        self.bytes = self.daemon.used_bytes()

    def died(self, what, where):
        status = self.daemon.wait()
        self.sum.check(what, False, f"the daemon ended with status {status}: {where}\n{self.daemon.log()[-1500:]}")
        self.start()

    def disturbed(self, name, n, pick, burst):
        """False: it has fewer calls."""
        what = f"{name}, call {n}" + (f" of {burst}" if burst > 1 else "") + (f", error {pick}" if pick else "")
        self.failing.arm(self.kinds, self.callers, n, burst, pick)
        wrong, kind = "", "ok"
        try:
            got = self.scenarios[name](self.daemon)
            if got != self.references[name]:
                wrong = f"OK, but the answer is {str(got)[:300]}, and not {str(self.references[name])[:300]}"
        except (grpc.RpcError, Refused) as error:
            kind = error.code().name
            if error.code() not in self.refused:
                wrong = f"{error.code().name}: {error.details()}"
        if not self.failing.disarm():
            if wrong and self.daemon.alive():
                self.sum.check(what, False, f"nothing failed, but: {wrong}")
            return False
        self.points.add(self.failing.point())
        self.sum.notes[f"{name}: {kind}"] += 1
        if not self.daemon.alive():
            self.died(what, self.failing.where())
            return True
        if self.sum.check(what, not wrong, wrong and f"{wrong}: {self.failing.where()}"):
            self.after(name, what)
        return True

    def after(self, name, what):
        """The next one is right, and everything is given back."""
        try:
            try:
                got = self.scenarios[name](self.daemon)
            except grpc.RpcError:  # it joined a capture that was failing; the client of that one had gone
                self.daemon.settle()
                got = self.scenarios[name](self.daemon)
            self.sum.check(what, got == self.references[name], f"the next one's answer is {str(got)[:300]}: {self.failing.where()}")
            self.daemon.settle()
            until("all bytes are given back", lambda: self.daemon.used_bytes() <= self.bytes)
        except (AssertionError, grpc.RpcError, Refused, OSError) as error:
            self.sum.check(what, False, f"afterwards: {str(error)[:1000]}: {self.failing.where()}")
            self.daemon.kill()
            self.start()

    def live(self):
        """Bytes of the heap."""
        self.daemon.settle()
        return self.daemon.stats()["heap_bytes"]

    def exhaustive(self):
        for name in self.scenarios:
            before, began = self.live(), time.monotonic()
            n = done = 0
            more = True
            while more:
                n += 1
                more = False
                for pick in self.picks:
                    for burst in self.bursts:
                        again = self.disturbed(name, n, pick, burst)
                        more, done = more or again, done + again
            print(f"{name}: {done} failures at {n - 1} calls, {time.monotonic() - began:.0f} s; {self.live() - before} bytes more",
                  flush=True)
            self.leaks(name, before, done)

    def leaks(self, name, before, done):
        """The heap is as large as before, but for caches that fill up to a bound: each pooled call keeps 4 KiB for the next."""
        grown = self.live() - before
        self.sum.check(f"{name} leaks", grown < 4 << 20, f"{grown} bytes more after {done} failures")

    def bounded(self):
        counts = {}
        for name in self.scenarios:
            self.failing.arm(self.kinds, self.callers, 1 << 40)
            self.scenarios[name](self.daemon)
            self.failing.disarm()
            counts[name] = self.failing.page.counted
        print("calls:", counts, flush=True)
        before, done, random = self.live(), 0, self.args.random
        end = time.monotonic() + (self.args.end - time.monotonic()) * 0.7  # the rest is for starts
        while time.monotonic() < end:
            name = random.choice(list(self.scenarios))
            done += self.disturbed(name, random.randint(1, max(1, counts[name])), random.choice(self.picks), random.choice(self.bursts))
        self.leaks("all of it", before, done)

    def run(self, scenarios):
        self.scenarios = scenarios
        self.start()
        if self.args.seconds:
            self.bounded()
        else:
            self.exhaustive()
        print(f"{len(self.points)} places in which a call failed", flush=True)
        self.daemon.stop()


def starts(args, failing, total, kinds, callers, picks, first=1):
    """The daemon's start: it serves, or ends with a status of its own and a sentence; never by a signal."""
    n = first - 1
    while time.monotonic() < args.end:
        n = args.random.randint(1, STARTS) if args.seconds else n + 1
        pick = args.random.choice(picks) if args.seconds else picks[0]
        failing.arm(kinds, callers, n, 1, pick)
        daemon = start_daemon(failing, "start", model=False, expect_start=False)
        try:
            until("it starts or ends", lambda: not daemon.alive() or daemon.serves(), 10)
        except AssertionError:
            total.check(f"start, call {n}", False, f"it neither serves nor ends: {failing.where()}\n{daemon.log()[-500:]}")
            daemon.kill()
            continue
        fired = failing.disarm()
        what = f"start, call {n}, error {pick}"
        if daemon.alive():
            total.notes["start: serves"] += 1
            try:
                total.check(what, session(daemon) == 9, "another answer")
                daemon.stop()
            except (AssertionError, grpc.RpcError) as error:
                total.check(what, False, f"{str(error)[:1000]}: {failing.where()}")
                daemon.kill()
        else:
            status = daemon.wait()
            total.notes[f"start: exit status {status}"] += 1
            total.check(what, status in (1, 2, 3) and daemon.log().strip(), f"status {status}: {daemon.log()[-500:]}: {failing.where()}")
        if not fired and not args.seconds:
            print(f"start: {n - 1} calls", flush=True)
            return


def chosen(args):
    return {n: f for n, f in SCENARIOS.items() if not args.only or n in args.only}


if __name__ == "__main__":
    ARGS = arguments(__doc__)
    TOTAL, FAILING = Sum(), Failing()
    if chosen(ARGS):
        Sweep(ARGS, FAILING, TOTAL, ALLOC, CALLERS, REFUSED, picks=[0], bursts=[1, 8] if ARGS.seconds else [1]).run(chosen(ARGS))
    if not ARGS.only or "start" in ARGS.only:
        starts(ARGS, FAILING, TOTAL, ALLOC, CALLERS, [0])
    TOTAL.end()
