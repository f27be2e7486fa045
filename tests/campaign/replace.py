#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Upgrades under load, also with a kill of either process at a random moment: no call fails that neither killed process served.

Sixteen workers with libnpugraph make 100 steps a second; their sessions move (docs/decisions/0060). In each round a daemon takes over, and nothing happens to it (plain), the
new one is killed at a random moment (new), or the old one is (old). Models are loaded and unloaded meanwhile. What must hold:

- plain, and new before it took over: no call fails, and no worker waits for long;
- otherwise: a call fails only if the killed process served it (UNAVAILABLE), or was the only one that had its session (SESSION_GONE), and
  workers that connect again go on;
- half of the workers let the library restore their sequences (docs/decisions/0067): none of their calls fails, whoever is killed when;
- always: each text is what it was, and each model that was kept is there.
"""
import collections
import pathlib
import random
import secrets
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
import part  # noqa: E402
from replacing import *  # noqa: E402,F403
from replacing import SLOW, Line, Load, pauses, percentile, pid_of, text_of  # noqa: E402

RESTORING = 8  # of the workers
STEPS = 4 * 0.3  # seconds that the slow steps of a new daemon take


class Rounds:
    def __init__(self, args):
        self.random, self.kinds = random.Random(args.seed), args.kinds.split(",")
        self.line = Line("--drain-grace=120s", "--device-memory=4G")
        self.expected = text_of(self.line.now)
        self.models = {"m"}
        self.load = Load(self.line, tokens=12, restoring=RESTORING)
        # [begin, end): of upgrades, of those whose slow steps were cut short, of other kills, and of as much time without any.
        self.moments, self.slow, self.kills, self.quiet = [], [], [], []
        self.counts, self.daemons = collections.Counter(), {self.line.now}

    def change_models(self):
        name = f"x{self.random.randrange(4)}"
        if name in self.models:
            self.line.ctl("unload", name)
            self.models.remove(name)
        else:
            self.line.ctl("load", str(MODEL), "--name", name)
            self.models.add(name)

    def check(self):
        daemon = self.line.now
        until("the daemon serves", lambda: pid_of(daemon) == daemon.process.pid)
        with Client(daemon) as c:
            names = {m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}
        assert names == self.models, (names, self.models)
        assert text_of(daemon) == self.expected
        self.load.go_on(16)

    def plain(self):
        begin = time.monotonic()
        fresh = self.line.next(expect_start=False)
        if self.random.randrange(2):
            self.change_models()
        self.line.follow(fresh)
        self.check()
        self.line.leave()
        self.moments.append((begin, time.monotonic()))

    def new(self):
        begin = time.monotonic()
        fresh = self.line.next(expect_start=False, env=SLOW)
        time.sleep(self.random.uniform(0, STEPS + 0.5))
        fresh.kill()
        taken = ": ready" in fresh.log()
        self.check()
        (self.kills if taken else self.slow).append((begin, time.monotonic()))

    def old(self):
        begin = time.monotonic()
        old = self.line.now
        fresh = self.line.next(expect_start=False, env=SLOW)
        until("it has the offer", lambda: "taking over from" in fresh.log())
        time.sleep(self.random.uniform(0, STEPS + 0.5))
        old.kill()
        until("the new daemon serves", lambda: fresh._started())
        self.line.now = fresh
        self.check()
        self.kills.append((begin, time.monotonic()))

    def run(self):
        what = self.random.choice(self.kinds)
        try:
            getattr(self, what)()
        except BaseException:
            print(f"not ok - {what}\n{self.line.now.log()[-3000:]}", flush=True)
            raise
        self.counts[what] += 1
        self.daemons.add(self.line.now)
        begin = time.monotonic()
        self.load.go_on(16)
        self.quiet.append((begin, time.monotonic()))

    def end(self):
        """Returns what is wrong with the calls."""
        told = self.load.end()
        self.line.leave()
        self.line.now.stop()
        moved = sum(daemon.log().count("sessions have moved;") for daemon in self.daemons)
        killed = [w for w in told["wrong"] if w[1] >= RESTORING and any(a <= w[0] < b for a, b in self.kills)]
        print(f"{len(told['calls'])} calls, {told['sequences']} sequences; {len(killed)} calls failed with the process that was killed")
        print(f"sessions moved in {moved} upgrades")
        for what, moments in (("in an upgrade", self.moments), ("in one whose slow steps a kill cuts short", self.slow), ("of those that restore, in one where a kill takes their session", self.kills),
                              ("without one", self.quiet)):
            calls = told if moments is not self.kills else {"calls": [call for call in told["calls"] if call[2] < RESTORING]}
            values = pauses(calls, moments)
            print(f"longest call of a worker {what}: median {percentile(values, 50) * 1e3:.0f} ms, p99 {percentile(values, 99) * 1e3:.0f} ms")
        bad = [w for w in told["wrong"] if w not in killed]
        return bad + [w for w in killed if "UNAVAILABLE" not in w[2] and "UNREACHABLE" not in w[2] and "SESSION_GONE" not in w[2]]


def main_loop(args):
    rounds, failed = Rounds(args), 0
    args.end = time.monotonic() + args.seconds  # from when the load is there
    try:
        while time.monotonic() < args.end and sum(rounds.counts.values()) < args.rounds:
            rounds.run()
        for begin, worker, text in rounds.end():
            failed += 1
            print(f"not ok - worker {worker} at {begin:.3f}: {text}", flush=True)
    except Exception as error:
        failed += 1
        print(f"not ok - {error!r}", flush=True)
    print(f"{', '.join(f'{n} {what}' for what, n in sorted(rounds.counts.items()))}")
    part.end(sum(rounds.counts.values()), failed)


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--kinds", default="plain,plain,new,old", help="of rounds, drawn with the same probability")


if __name__ == "__main__":
    main_loop(part.arguments(__doc__, 600, add_arguments, seed=secrets.randbelow(1 << 32)))
