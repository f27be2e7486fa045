#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Days in hours: clients of two users, kills, calls that fail, and restarts on one store; nothing is lost, nothing grows.

  tests/campaign/soak.py --seconds N --seed S

A life is one daemon. The first takes 60 % of the time, in rounds: workers of two users run scenarios (tests/campaign/failing.py), some are
killed and replaced, and in every second round calls of the daemon fail one at a time. When a round's workers are gone, the
daemon must hold what it held before: sessions, bytes, descriptors. Its memory at the end of the life is compared with that of the
second quarter. The lives after it are short: each is ended by SIGTERM or SIGKILL while workers run, and the next one must start on the
same store and give the same answers. An answer is right, or a refusal; refusals only where calls fail or the daemon ends.
"""
import collections
import faulthandler
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics as stat
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tenants"), str(HERE)]
import failing  # noqa: E402
from tenants import Tenant, rss_mib  # noqa: E402

WORKERS = 2        # of each user
ROUND_S = (4, 30)  # a round's length is a 30th of the time, in these bounds
GROWN_MIB = 16     # that a life may grow by between its second quarter and its last one; caches fill slowly
FD_SLACK = 4       # descriptors of gRPC's pollers come and go
PATIENCE = 90      # seconds until a worker's last call counts as lost
PAUSE_S = 0.05     # at most, between two scenarios of a worker
ENDING = ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")  # a daemon that ends, or is gone
FAILING = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "ABORTED", "DATA_LOSS", "FAILED_PRECONDITION", "UNKNOWN",
           "PERMISSION_DENIED",  # EACCES
           "NOT_FOUND")  # a file, or the session, which ends with its connection

# Without lists: what others of the same user have at that moment is in them.
SCENARIOS = {name: run for name, run in failing.SCENARIOS.items()
             if name in ("session", "eager", "stream", "together", "load", "generate", "refusal")}
SCENARIOS["memory"] = lambda daemon: failing.memory(daemon)[1]
SCENARIOS["graph"] = lambda daemon: failing.graph(daemon)[0]
SCENARIOS["steps"] = lambda daemon: failing.steps(daemon)[0]


def digest(answer):
    return hashlib.sha256(repr(answer).encode()).hexdigest()[:16]


def work(daemon, seed, seconds, references):
    """A worker's whole life: prints a line of JSON with what it saw."""
    faulthandler.enable()
    rng, counts, wrong = random.Random(seed), collections.Counter(), []
    end = time.monotonic() + seconds
    print("began", flush=True)
    while time.monotonic() < end:
        name = rng.choice(list(SCENARIOS))
        try:
            answer = SCENARIOS[name](daemon)
        except (failing.grpc.RpcError, failing.Refused) as error:
            counts[f"{name}: {error.code().name}: {error.details()}"] += 1
        else:
            counts["ok"] += 1
            if digest(answer) != references[name]:
                wrong.append(f"{name}: {str(answer)[:300]}")
        time.sleep(rng.uniform(0, PAUSE_S))
    print(json.dumps({"counts": counts, "wrong": wrong[:5]}), flush=True)


def start_worker(daemon, user, seed, seconds, references):
    code = f"sys.path.insert(0, {str(HERE)!r})\nimport soak\nsoak.work(daemon, {seed}, {seconds}, {references!r})\n"
    extra = f"daemon.models = pathlib.Path({str(daemon.models)!r})\n"
    return Tenant(daemon, "import pathlib\n" + extra + code, uid=user)


class Soak:
    def __init__(self, args):
        self.args, self.random, self.sum = args, args.random, failing.Sum()
        self.failing = failing.Failing()
        self.length = min(max(args.seconds / 30, ROUND_S[0]), ROUND_S[1])
        self.users = [os.getuid(), 65534]
        self.references = None
        self.kills = self.faults = self.answers = self.refusals = self.lives = 0

    def start(self):
        """A daemon on the store of the last one, which answers as the first one did."""
        self.failing.disarm()
        self.daemon = failing.start_daemon(self.failing, "soak", dir=failing.SCRATCH / "soak-run")
        self.lives += 1
        for path in (failing.SCRATCH, self.daemon.dir, self.daemon.models):
            path.chmod(0o755)
        self.daemon.socket.chmod(0o666)
        answers = {name: digest(run(self.daemon)) for name, run in SCENARIOS.items()}
        self.references = self.references or answers
        self.sum.check(f"life {self.lives} answers as the first one", answers == self.references, str(answers))
        bad = failing.store(self.daemon)[2]
        self.sum.check(f"life {self.lives} finds its store whole", not bad, str(bad))
        self.daemon.settle()
        self.bytes = self.daemon.used_bytes()

    def workers(self, seconds):
        return [start_worker(self.daemon, user, self.random.randrange(1 << 31), seconds, self.references)
                for user in self.users for _ in range(WORKERS)]

    def fail_once(self):
        kinds = self.random.choice([failing.ALLOC, failing.CALLS])
        callers = failing.OWN | failing.HELPERS | failing.LIBC
        self.failing.arm(kinds, callers, self.random.randint(1, 200), 1, self.random.randrange(4) if kinds == failing.CALLS else 0)

    def disturb(self, workers, seconds, faults):
        """Kills and replaces workers, and lets calls fail, for that long."""
        end, next_kill = time.monotonic() + seconds, time.monotonic() + seconds * self.random.uniform(0.2, 0.6)
        while (left := end - time.monotonic()) > 0 and self.daemon.alive():
            if faults:
                self.faults += self.failing.disarm() > 0
                self.fail_once()
            if time.monotonic() > next_kill:
                next_kill += seconds / 3
                worker = workers.pop(self.random.randrange(len(workers)))
                worker.kill()
                self.kills += 1
                if left > 3:
                    workers.append(start_worker(self.daemon, self.random.choice(self.users), self.random.randrange(1 << 31), left - 2,
                                                self.references))
            time.sleep(min(0.3, max(left, 0)))
        if faults:
            self.faults += self.failing.disarm() > 0

    def collect(self, workers, allowed, what):
        """What the workers saw: right answers, and only refusals that may be."""
        good, others, silent = 0, collections.Counter(), []
        for worker in workers:
            try:
                out, err = worker.process.communicate(timeout=PATIENCE)
            except failing.subprocess.TimeoutExpired:
                worker.process.send_signal(signal.SIGABRT)  # faulthandler says where it was
                out, err = worker.process.communicate()
                self.sum.check(f"{what}: a worker that waits for ever", False, err[-3000:] + self.daemon.log()[-1500:])
                continue
            lines = [line for line in out.splitlines() if line.startswith("{")]
            if not lines:
                silent.append(err[-800:])
                continue
            said = json.loads(lines[-1])
            self.sum.check(f"{what}: answers", not said["wrong"], str(said["wrong"]))
            for kind, n in said["counts"].items():
                if kind == "ok":
                    good += n
                else:
                    others[kind] += n
        self.answers += good
        self.refusals += sum(others.values())
        strange = {k: n for k, n in others.items() if not any(f": {code}:" in k for code in allowed)}
        self.sum.check(f"{what}: refusals", not strange, str(strange))
        # A worker may end without a word where its connection or the daemon went away under it.
        self.sum.check(f"{what}: workers that ended", not silent or bool(allowed), "\n".join(silent))
        return good, sum(others.values())

    def held(self):
        pid = self.daemon.process.pid
        return {"rss": rss_mib(self.daemon), "fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
                "bytes": self.daemon.used_bytes(), "heap": self.daemon.stats()["heap_bytes"] >> 20}

    def round(self, number):
        faults = number % 2 == 1
        what = f"round {number}"
        workers = self.workers(self.length)
        self.disturb(workers, self.length + 1, faults)
        good, refused = self.collect(workers, FAILING if faults else (), what)
        if not self.sum.check(f"{what}: the daemon lives", self.daemon.alive(), self.daemon.log()[-1500:]):
            self.daemon.wait()
            self.start()
            return None
        try:
            self.daemon.settle()
            failing.until("all bytes are given back", lambda: self.daemon.used_bytes() <= self.bytes)
        except AssertionError as error:
            self.sum.check(f"{what}: all is given back", False, str(error))
        held = self.held()
        print(f"{number:5}  {'faults' if faults else '':6} {good:8} {refused:8} {held['rss']:8} {held['heap']:8} {held['fds']:5} "
              f"{held['threads']:8}", flush=True)
        return held

    def long_life(self, end):
        print(f"{'ROUND':5}  {'':6} {'ANSWERS':>8} {'REFUSED':>8} {'RSS MiB':>8} {'HEAP MiB':>8} {'FDS':>5} {'THREADS':>8}")
        rounds = []
        while time.monotonic() < end:
            held = self.round(len(rounds))
            if held is None:
                rounds = []
            else:
                rounds.append(held)
        if len(rounds) < 2:
            return
        later = rounds[len(rounds) // 4:max(len(rounds) // 2, len(rounds) // 4 + 1)]
        last = rounds[-max(len(rounds) // 4, 1):]
        for what, most in (("rss", GROWN_MIB), ("heap", GROWN_MIB), ("fds", FD_SLACK), ("threads", FD_SLACK)):
            before, after = (stat.median(held[what] for held in part) for part in (later, last))
            self.sum.check(f"{what} is flat", after - before <= most, f"{before} became {after}")
            print(f"{what}: {before:.0f} in the second quarter, {after:.0f} in the last one")

    def short_life(self):
        """Ends while workers run; the next life starts."""
        workers = self.workers(self.length)
        time.sleep(self.random.uniform(1.5, self.length))
        if self.random.randrange(2):
            self.daemon.kill()
        else:
            try:
                self.daemon.stop()
            except (AssertionError, failing.subprocess.TimeoutExpired) as error:
                self.sum.check(f"life {self.lives} ends in order", False, str(error))
                self.daemon.kill()
        self.collect(workers, ENDING + ("NOT_FOUND", "FAILED_PRECONDITION", "UNAUTHENTICATED"), f"life {self.lives}")
        self.start()

    def run(self):
        began = time.monotonic()
        self.start()
        self.long_life(began + self.args.seconds * 0.6)
        while time.monotonic() < began + self.args.seconds:
            self.short_life()
        self.daemon.stop()
        print(f"{self.lives} lives, {self.kills} workers killed, {self.faults} calls failed, {self.answers} right answers, "
              f"{self.refusals} refusals, {(time.monotonic() - began) / 60:.0f} min")
        self.sum.end()


def main():
    args = failing.arguments(__doc__)
    args.seconds = args.seconds or 7200
    if os.geteuid() != 0:
        failing.part.skip("soak: needs root, to be two users")
    Soak(args).run()


if __name__ == "__main__":
    main()
