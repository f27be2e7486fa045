#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences of two users on models with few KV blocks, which come and go meanwhile: every token is right, and all is given back.

  tests/campaign/models.py --seconds N --seed S

Workers of two users take lives: lists of operations that a seed determines (open, step, draft, append, generate, copy). The answers
before others come are what they must get. Operations are cancelled, get deadlines that they cannot keep, or meet another operation
of the same sequence; workers leave without a word; one of two models is unloaded, loaded anew and shared with one of the users.
After each round no sequence, block and byte is left. NGD_ATTACK_OPTIONS has more options of the daemon, NPUGRAPHD_FAULT its faults.
"""
import collections
import hashlib
import json
import os
import pathlib
import random
import sys
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tenants"), str(HERE.parent / "rpc"), str(HERE)]
import part  # noqa: E402
from tenants import *  # noqa: E402,F403
from tenants import CTL, NOBODY, PATIENCE, SOURCE, Client, Tenant, grpc, open_daemon, pb, rss_mib, subprocess, until  # noqa: E402

MODEL = SOURCE / "examples" / "model"
CONTEXT = 320
LIVES = 12     # that are known
THREADS = 3    # of each worker
USERS = [0, NOBODY]
SHORTAGE = {"RESOURCE_EXHAUSTED"}  # too few blocks for all
DISTURBED = {"CANCELLED", "DEADLINE_EXCEEDED"}
# Of a model that comes and goes.
CHANGED = {"CANCELLED", "NOT_FOUND", "FAILED_PRECONDITION", "ABORTED", "UNAVAILABLE", "PERMISSION_DENIED"}


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def words(seed, n):
    """Returns tokens that a seed determines."""
    dice = random.Random(f"words {seed}")
    return [dice.randrange(5, 1800) for _ in range(n)]


class Life:
    """A sequence's operations. take() makes the next one and returns what was answered."""

    def __init__(self, client, model, seed):
        self.c, self.model, self.seed = client, model, seed
        self.dice = random.Random(f"life {seed}")
        self.sequence, self.copies = 0, []
        self.prompt = words(seed, self.dice.choice([3, 16, 47, 48, 90, 200]))
        how = pb.Sampling(temperature=0.8, seed=seed, top_k=50) if seed % 3 else None
        self.sampling = how
        self.plan = ["open"] + [self.dice.choice(["step", "draft", "force", "append", "generate", "copy"]) for _ in range(12)]
        self.numbers = [self.dice.randrange(1 << 20) for _ in self.plan]

    def begin(self, at, timeout=None):
        """Begins an operation: a future, and how its answer becomes a value."""
        kind, n, s = self.plan[at], self.numbers[at], self.sequence

        def call(name, request):
            method = self.c.method(name)
            if name.endswith("Generate"):
                return method(request, metadata=self.c.metadata(), timeout=timeout or PATIENCE)
            return method.future(request, metadata=self.c.metadata(), timeout=timeout or PATIENCE)
        if kind == "open":
            return call("Sequences/Open", pb.OpenRequest(model=self.model, prompt=self.prompt, sampling=self.sampling,
                                                         want_logits=True))
        if kind == "generate":
            return call("Sequences/Generate", pb.GenerateRequest(sequence=s, max_tokens=1 + n % 20, ignore_stop=True))
        if kind == "copy":
            return call("Sequences/Fork", pb.ForkRequest(sequence=s, sampling=self.sampling, want_logits=True))
        more = {"step": {}, "draft": {"draft": words(n, 1 + n % 4)}, "force": {"forced": pb.TokenChoice(token=5 + n % 1700)},
                "append": {"append": words(n, 1 + n % 40)}}[kind]
        return call("Sequences/Step", pb.StepRequest(sequence=s, want_logits=True, **more))

    def value(self, at, future):
        if self.plan[at] == "generate":
            return [t for m in future for t in m.tokens]
        answer = future.result()
        if self.plan[at] == "open":
            self.sequence = answer.sequence
        if self.plan[at] == "copy":
            self.copies.append(answer.sequence)
            made = self.c.call("Sequences/Generate", pb.GenerateRequest(sequence=answer.sequence, max_tokens=3, ignore_stop=True))
            return answer.token, digest(answer.logits), [t for m in made for t in m.tokens]
        return answer.token, digest(answer.logits)

    def take(self, at):
        return self.value(at, self.begin(at))

    def close(self):
        for s in (self.sequence, *self.copies):
            if s:
                try:
                    self.c.call("Sequences/Close", pb.CloseRequest(sequence=s))
                except grpc.RpcError as error:
                    if error.code().name not in ("NOT_FOUND", *CHANGED):
                        raise
        self.sequence, self.copies = 0, []


def reference(daemon, seeds):
    with Client(daemon) as c:
        known = {}
        for seed in seeds:
            life = Life(c, "m", seed)
            known[seed] = [digest(life.take(at)) for at in range(len(life.plan))]
            life.close()
        return known


class Worker:
    """A thread's clients, and what they saw."""

    def __init__(self, daemon, seed, known, first):
        self.daemon, self.dice, self.known = daemon, random.Random(seed), known
        self.first = first  # lives that this user takes
        self.counts, self.wrong = collections.Counter(), []

    def note(self, what, error, allowed):
        code = error.code().name
        self.counts[f"{what}: {code}: {dict(error.trailing_metadata() or ()).get('npugraph-reason', '')}"] += 1
        if code not in allowed:
            self.wrong.append(f"{what}: {code}: {error.details()}")

    def operate(self, life, at, allowed):
        """Returns whether the life goes on as it is known."""
        fate, kind = self.dice.random(), life.plan[at]
        try:
            if fate < 0.1:  # cancelled
                future = life.begin(at)
                time.sleep(self.dice.choice([0, 0.001, 0.01, 0.05]))
                future.cancel()
                life.value(at, future)
                return False
            if fate < 0.2:
                life.value(at, life.begin(at, self.dice.choice([0.0005, 0.003, 0.02])))
                return False
            if fate < 0.3 and kind != "open":  # two at once
                other = life.begin(at)
                for future in (life.begin(at), other):
                    try:
                        life.value(at, future)
                    except grpc.RpcError as error:
                        self.note(kind + " twice", error, allowed | {"FAILED_PRECONDITION", "ABORTED", "INVALID_ARGUMENT"})
                return False
            got = digest(life.take(at))
        except grpc.RpcError as error:
            self.note(kind, error, allowed | (DISTURBED if fate < 0.2 else set()))
            return False
        except grpc.FutureCancelledError:
            return False
        self.counts["ok"] += 1
        if got != self.known[str(life.seed)][at]:
            self.wrong.append(f"life {life.seed} of {life.model}: operation {at} ({kind}) has another answer")
        return True

    def live(self, client):
        model = self.dice.choice(["m", "m", "n"])
        life = Life(client, model, self.dice.choice(self.first))
        allowed = SHORTAGE | (CHANGED if model == "n" else set())
        known = True
        for at in range(len(life.plan)):
            known = self.operate(life, at, allowed) if known else self.stray(life, at, allowed)
            if not life.sequence or self.dice.random() < 0.03:
                break
        if self.dice.random() < 0.8:
            life.close()

    def stray(self, life, at, allowed):
        """An operation of a sequence in which something was interrupted: whatever its answer is."""
        if not life.sequence:
            return False
        try:
            life.take(at)
        except grpc.RpcError as error:
            self.note("after an interruption", error, allowed | {"CANCELLED", "FAILED_PRECONDITION", "ABORTED", "INVALID_ARGUMENT"})
        return False

    def run(self, end):
        try:
            while time.monotonic() < end:
                client = Client(self.daemon)
                for _ in range(self.dice.randrange(1, 6)):
                    if time.monotonic() < end:
                        self.live(client)
                if self.dice.random() < 0.3:
                    client.channel.close()  # without a word
                else:
                    client.close()
        except Exception as error:
            self.wrong.append(f"a worker ended: {error!r} {traceback.format_exc()[-700:]}")


def work(daemon, seed, seconds, known, first):
    workers = [Worker(daemon, seed * 100 + i, known, first) for i in range(THREADS)]
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=w.run, args=(end,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    counts = sum((w.counts for w in workers), collections.Counter())
    print(json.dumps({"counts": counts, "wrong": [one for w in workers for one in w.wrong][:8]}), flush=True)


class Attack:
    def __init__(self, args):
        self.args, self.dice = args, args.random
        self.passed = self.failed = 0
        # Of both models: prompts in other slices have other bits.
        self.chunk = self.dice.choice([(), ("--chunk", "7"), ("--max-batch", "64")])

    def check(self, what, good, why=""):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"not ok - {what}: {why}", flush=True)

    def ctl(self, *arguments):
        return subprocess.run([CTL, "--quiet", "--address", self.daemon.address, *arguments], capture_output=True, text=True,
                              check=False, timeout=300)

    def load(self, name):
        size = self.dice.choice(["1M", "1536K", "2M"])
        return self.ctl("load", str(MODEL), "--name", name, "--max-context", str(CONTEXT), "--block-size", "16", "--kv-bytes", size,
                       "--kv-policy", self.dice.choice(["preempt", "preempt", "refuse"]) if name == "n" else "preempt", *self.chunk)

    def change(self, end):
        """Unloads, loads and shares the model n until then."""
        changes = collections.Counter()
        while time.monotonic() < end:
            kind = self.dice.choice(["unload", "load", "load", "replace", "share", "wait"])
            if kind == "unload":
                got = self.ctl("unload", "n", *self.dice.choice([(), ("--force",)]))
            elif kind == "load":
                got = self.load("n")
            elif kind == "replace":
                self.ctl("unload", "n", "--force")
                got = self.load("n")
            elif kind == "share":
                got = self.ctl("share", "n", *self.dice.choice([("--public",), ("--with", f"uid:{NOBODY}"), ("--private",)]))
            else:
                time.sleep(self.dice.uniform(0, 4))
                continue
            changes[f"{kind} {'done' if got.returncode == 0 else got.stderr.strip()[:90]}"] += 1
        for change, n in sorted(changes.items()):
            print(f"{n:6}  {change}")

    def round(self, known, seconds):
        workers = []
        for i, user in enumerate(USERS * 2):
            first = [seed for seed in range(LIVES) if seed % 2 == i % 2]
            code = (f"sys.path.insert(0, {str(HERE)!r})\nimport models\n"
                    f"models.work(daemon, {self.dice.randrange(1 << 30)}, {seconds}, {json.dumps(known)}, {first})\n")
            workers.append(Tenant(self.daemon, code, uid=user))
        self.change(time.monotonic() + seconds)
        counts = collections.Counter()
        for worker in workers:
            try:
                out, err = worker.process.communicate(timeout=180)
            except subprocess.TimeoutExpired:
                worker.kill()
                self.check("workers end", False, "one waits for ever")
                continue
            lines = [line for line in out.splitlines() if line.startswith("{")]
            self.check("a worker tells", lines, err[-1500:])
            if lines:
                said = json.loads(lines[-1])
                counts.update(said["counts"])
                self.check("answers", not said["wrong"], "\n  ".join(said["wrong"]))
        for what, n in sorted(counts.items()):
            print(f"{n:6}  {what}")

    def rest(self):
        """What the daemon holds when all have gone."""
        self.daemon.settle()
        self.ctl("unload", "n", "--force")
        with Client(self.daemon) as c:
            def left():
                m = next(m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == "m")
                return m.sequences, m.blocks_used
            try:
                until("no sequence and no block is left", lambda: left() == (0, 0), 30)
                self.check("all sequences are closed", True)
            except AssertionError:
                self.check("all sequences are closed", False, f"sequences, blocks: {left()}")
        self.daemon.settle()
        return self.daemon.used_bytes()

    def run(self):
        self.daemon = open_daemon(f"--models-dir={MODEL}", "--device-memory=512M", *ARGUMENTS)
        got = self.load("m")
        assert got.returncode == 0, got
        known = reference(self.daemon, range(LIVES))
        before, number = self.rest(), 0
        length = min(max(self.args.seconds / 4, 5), 60)
        while time.monotonic() < self.args.end and self.daemon.alive():
            number += 1
            self.round(known, length)
            self.check("the daemon lives", self.daemon.alive(), self.daemon.log()[-3000:])
            if not self.daemon.alive():
                break
            after = self.rest()
            print(f"round {number}: {after - before} bytes more, {rss_mib(self.daemon)} MiB resident", flush=True)
            self.check("bytes are given back", after == before, f"{before} became {after}")
        if self.daemon.alive():
            try:
                self.daemon.stop()
            except AssertionError as error:
                self.check("the daemon ends in order", False, str(error)[-3000:])
        part.end(self.passed, self.failed)


ARGUMENTS = os.environ.get("NGD_ATTACK_OPTIONS", "").split()

if __name__ == "__main__":
    if os.geteuid() != 0:
        part.skip("models: needs root, to be two users")
    Attack(part.arguments(__doc__, 120)).run()
