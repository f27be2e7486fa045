#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same requests in other ways: bit for bit the same answers.

  tests/campaign/metamorphic.py --seconds N --seed S [--no-poison] [--rounds N]

A round is a seed, which draws graphs with their inputs, and prompts of the bundled model. What a daemon of one slot says, one request
after the other, each size captured for itself, is what another daemon must say: to many clients at once, so that replays run together;
padded to buckets; operator by operator; without passes; on 1 to 4 slots; after a restart, with the plans that it has stored. Prompts are
generated from side by side, with beginnings in common, in a model with so few KV blocks that sequences lose theirs, and by forks. What pools and KV blocks of the other daemon hold before they are written to is NaN (fault points host-poison and kv-poison).
A failure prints the round's seed.
"""
import concurrent.futures
import os
import pathlib
import random
import struct
import sys

os.environ.setdefault("top_srcdir", str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("top_builddir", os.path.join(os.environ["top_srcdir"], "build", "check"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
import part  # noqa: E402
from harness import *  # noqa: E402,F403

MODELS = SOURCE / "examples"
POISON = {"NPUGRAPHD_FAULT": "host-poison:0:4000000000,kv-poison:0:4000000000"}
ROWS = 32       # of a replay at most: fewer than the device computes in another way
RESTART = 4     # the other daemon begins anew each so many rounds, with its stored plans and another number of slots


# ---- graphs -------------------------------------------------------------------------------------------------------------

class Graph:
    """Row by row: values are [B, columns] of one dtype, params are weights and vectors."""

    def __init__(self, r):
        self.r = r
        self.dtype = r.choice(["f32", "f32", "f16", "bf16"])
        self.columns = r.choice([1, 3, 8, 17, 64, 96])
        self.params, self.lines, self.values = {}, [], [("x", self.columns), ("z", self.columns)]
        for _ in range(r.randrange(2, 12)):
            self.node()
        self.outputs = sorted({self.values[-1][0], r.choice(self.values)[0]} - {"x", "z"}) or [self.values[-1][0]]

    def param(self, *dims):
        name = f"w{len(self.params)}"
        self.params[name] = dims
        return "%" + name

    def add(self, columns, call, more=""):
        name = f"v{len(self.lines)}"
        self.lines.append(f"  %{name}{more.format(name)} = {call}")
        self.values.append((name, columns))

    def node(self):
        r = self.r
        name, n = r.choice(self.values)
        same = "%" + r.choice([v for v, m in self.values if m == n])
        v = "%" + name
        kind = r.randrange(12)
        if kind < 3:
            self.add(n, f"{r.choice(['aten.add.Tensor', 'aten.mul.Tensor', 'aten.sub.Tensor', 'aten.maximum'])}({v}, {same})")
        elif kind < 5:
            self.add(n, f"{r.choice(['aten.relu', 'aten.neg', 'aten.sigmoid', 'aten.tanh', 'aten.silu', 'aten.abs'])}({v})")
        elif kind == 5:
            self.add(n, f"aten._softmax({v}) {{dim=1}}")
        elif kind == 6:
            self.add(n, f"npu.rms_norm({v}, {self.param(n)}) {{epsilon=1e-5}}", ", %{}r")
        elif kind < 9:
            m = r.choice([1, 5, 16, 33, 64])
            bias = f", {self.param(m)}" if r.random() < 0.5 else ""
            self.add(m, f"aten.linear({v}, {self.param(m, n)}{bias})")
        elif kind == 9:
            self.add(n, f"aten.mul.Scalar({v}) {{other={r.choice([0.5, -2, 3, 0.1])}}}")
        elif kind == 10 and n > 1:
            end = r.randrange(1, n)
            self.add(end, f"aten.slice.Tensor({v}) {{dim=1, start=0, end={end}}}")
        else:
            self.add(n, f"aten.cumsum({v}) {{dim=1}}" if r.random() < 0.5 else f"aten.add.Tensor({v}, {self.param(n)})")

    def text(self, symbol):
        inputs = "\n".join(f"  input %{x} : {self.dtype}[B,{self.columns}]" for x in ("x", "z"))
        params = "\n".join(f"  param %{name} : {self.dtype}[{','.join(map(str, dims))}]" for name, dims in self.params.items())
        results = ", ".join(f'"{v}" = %{v}' for v in self.outputs)
        return f'npugraph 1\ngraph "rows" {{\n  sym B 1..{ROWS} {symbol}\n{params}\n{inputs}\n' + "\n".join(self.lines) + f"\n  return {results}\n}}"


def values(r, dtype, n):
    """Bytes of n numbers around 1; now and then 0, a large one, or one that is no number."""
    numbers = [r.gauss(0, 1) if r.random() < 0.97 else r.choice([0.0, -0.0, 1e4, float("inf"), 1e-30]) for _ in range(n)]
    if dtype == "f32":
        return struct.pack(f"<{n}f", *numbers)
    if dtype == "f16":
        return struct.pack(f"<{n}e", *numbers)
    return b"".join(struct.pack("<f", x)[2:] for x in numbers)


class Case:
    def __init__(self, seed):
        r = random.Random(seed)
        self.graph = Graph(r)
        width = 4 if self.graph.dtype == "f32" else 2
        self.params = {}
        for name, dims in self.graph.params.items():
            n = 1
            for dim in dims:
                n *= dim
            self.params[name] = values(r, self.graph.dtype, n)
        self.requests = []
        for _ in range(8):
            rows = r.choice([1, 1, 2, 3, r.randrange(1, ROWS + 1), ROWS])
            self.requests.append((rows, [values(r, self.graph.dtype, rows * self.graph.columns) for _ in range(2)]))
        buckets = sorted({r.randrange(1, ROWS) for _ in range(2)} | {ROWS})
        self.bucketed = "buckets " + ", ".join(map(str, buckets))
        self.batch = "batch " + self.bucketed
        self.bytes = width

    def upload(self, client):
        buffers = {}
        for name, data in self.params.items():
            buffers[name] = client.allocate(len(data))
            client.write(buffers[name], data)
        return buffers

    def run(self, client, symbol, options=None, buffers=None, **how):
        graph = client.register(self.graph.text(symbol), bindings=buffers or self.upload(client), options=options).graph
        return [bits(client.replay(graph, inputs, [rows], **how).outputs) for rows, inputs in self.requests]


def bits(outputs):
    return [bytes(o) for o in outputs]


NO_PASSES = {"disable_passes": "all"}


def at_once(daemon, case, client, buffers, threads=8):
    """All requests at the same time, in one session, each on a stream of its own, so that replays run together."""
    graph = client.register(case.graph.text(case.batch), bindings=buffers).graph
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        turns = [list(pool.map(lambda i: bits(client.replay(graph, case.requests[i][1], [case.requests[i][0]], stream=i % 16).outputs),
                               range(len(case.requests)))) for _ in range(3)]
    return turns


def ways(case, client, buffers):
    """(name, answers) of each way."""
    yield "each size for itself", case.run(client, "", buffers=buffers)
    yield "padded", case.run(client, case.bucketed, buffers=buffers)
    yield "operator by operator", case.run(client, case.bucketed, buffers=buffers, eager=True)
    yield "without passes", case.run(client, case.bucketed, NO_PASSES, buffers)
    for answers in at_once(client.daemon, case, client, buffers):
        yield "together", answers


def first_difference(got, want):
    for i, (a, b) in enumerate(zip(got, want)):
        for k, (x, y) in enumerate(zip(a, b)):
            if x != y:
                at = next(n for n in range(max(len(x), len(y))) if x[n:n + 1] != y[n:n + 1])
                return f"request {i}, result {k}, byte {at} of {len(y)}: {x[at:at + 8].hex()} instead of {y[at:at + 8].hex()}"
    return "other numbers of results"


def check(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {first_difference(got, want)}")


def run_graphs(seed, plain, other):
    case = Case(seed)
    try:
        with Client(plain) as c:
            want = case.run(c, "")
        with Client(other) as c:
            buffers = case.upload(c)
            for what, got in ways(case, c, buffers):
                check(what, got, want)
        return len(case.requests) * 7
    except (AssertionError, grpc.RpcError):
        print(case.graph.text(case.batch), flush=True)
        raise


# ---- sequences ------------------------------------------------------------------------------------------------------------

def load(daemon, name, *options):
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODELS / "model"), "--name", name, *options], check=True,
                   capture_output=True)


class Talk:
    """A prompt, how it is sampled, and how many tokens."""

    def __init__(self, r, beginning):
        self.prompt = beginning[:r.randrange(1, len(beginning))] + [r.randrange(7, 1900) for _ in range(r.randrange(1, 40))]
        self.how = {"temperature": r.choice([0, 0.7, 1.5]), "top_k": r.choice([0, 20]), "seed": r.randrange(1 << 40)}
        self.tokens = r.randrange(4, 32)

    def open(self, c, model):
        return c.call("Sequences/Open", pb.OpenRequest(model=model, prompt=self.prompt, sampling=pb.Sampling(**self.how)))

    def say(self, c, sequence, n):
        request = pb.GenerateRequest(sequence=sequence, max_tokens=n, ignore_stop=True)
        return [t for m in c.call("Sequences/Generate", request) for t in m.tokens]

    def logits(self, c, sequence):
        return bytes(c.call("Sequences/Step", pb.StepRequest(sequence=sequence, want_logits=True)).logits)

    def whole(self, c, model):
        s = self.open(c, model).sequence
        said = self.say(c, s, self.tokens), self.logits(c, s)
        c.call("Sequences/Close", pb.CloseRequest(sequence=s))
        return said

    def in_parts(self, c, model, r):
        s, said = self.open(c, model).sequence, []
        while len(said) < self.tokens:
            said += self.say(c, s, min(r.randrange(1, 8), self.tokens - len(said)))
        got = said, self.logits(c, s)
        c.call("Sequences/Close", pb.CloseRequest(sequence=s))
        return got

    def forked(self, c, model):
        """The first half by the parent, the rest by its fork: the fork says the parent's last token again."""
        s = self.open(c, model).sequence
        first = self.say(c, s, self.tokens // 2)
        child = c.call("Sequences/Fork", pb.ForkRequest(sequence=s, sampling=pb.Sampling(**self.how))).sequence
        rest = self.say(c, child, self.tokens - len(first) + 1)
        got = first[:-1] + rest, self.logits(c, child)
        for sequence in (s, child):
            c.call("Sequences/Close", pb.CloseRequest(sequence=sequence))
        return got


def near(a, b):
    """What is computed again by kernels for many rows has other last bits (docs/protocol.md). The model is bf16: a sum that differs
    in its last bit may round to the other neighbour, and a hidden value then differs by 2^-8 of itself."""
    x, y = struct.unpack(f"<{len(a) // 4}f", a), struct.unpack(f"<{len(b) // 4}f", b)
    return len(x) == len(y) and all(abs(p - q) <= 2**-8 * max(map(abs, y)) for p, q in zip(x, y))


def run_talks(seed, plain, other):
    r = random.Random(seed)
    beginning = [r.randrange(7, 1900) for _ in range(r.randrange(2, 80))]
    talks = [Talk(r, beginning) for _ in range(6)]
    with Client(plain) as c:
        want = [t.whole(c, "m") for t in talks]
    with Client(other) as c, concurrent.futures.ThreadPoolExecutor(len(talks)) as pool:
        seeds = [r.randrange(1 << 30) for _ in talks]
        for what, same_bits, fn in (("side by side", True, lambda i: talks[i].whole(c, "m")),
                                    ("with few KV blocks", False, lambda i: talks[i].in_parts(c, "few", random.Random(seeds[i]))),
                                    ("by forks", False, lambda i: talks[i].forked(c, "m"))):
            got = list(pool.map(fn, range(len(talks))))
            for i, (g, w) in enumerate(zip(got, want)):
                assert g[0] == w[0], f"{what}: talk {i} says {g[0]} instead of {w[0]}"
                if same_bits:
                    check(f"{what}: talk {i}, logits after {g[0]}", [[g[1]]], [[w[1]]])
                assert near(g[1], w[1]), f"{what}: talk {i} has other logits after {g[0]}"
    return 3 * len(talks)


# ---- rounds ---------------------------------------------------------------------------------------------------------------

class Pair:
    """A plain daemon, and the one that does everything else; that one begins anew now and then."""

    def __init__(self, seed, poison):
        self.seed, self.poison, self.other, self.starts = seed, poison, None, 0
        self.store = SCRATCH / f"store{seed}"
        self.store.mkdir(mode=0o700)
        self.plain = Daemon(f"--models-dir={MODELS}", "--merge=no", "--slots=1")
        load(self.plain, "m")

    def restart(self):
        r = random.Random(self.seed * 1000 + self.starts)
        if self.other:
            self.other.stop()
        self.other = Daemon(f"--models-dir={MODELS}", f"--store-dir={self.store}", f"--slots={r.randrange(1, 5)}",
                            f"--merge-wait={r.choice(['0', '2ms', '20ms'])}", f"--inline-limit={r.choice(['0', '50us'])}",
                            env=POISON if self.poison else None)
        load(self.other, "m")
        load(self.other, "few", "--max-context", "256", "--max-batch", "1", "--kv-policy", "preempt")
        self.starts += 1

    def close(self):
        for d in (self.plain, self.other):
            if d and d.alive():
                d.stop()


def run_round(seed, pair, n):
    if n % RESTART == 0:
        pair.restart()
    count = run_graphs(seed, pair.plain, pair.other)
    count += run_graphs(seed + 1, pair.plain, pair.other)
    if n % RESTART == RESTART - 1:  # what was stored in this round's turn is what the next daemon has
        pair.restart()
        count += run_graphs(seed, pair.plain, pair.other)
    return count + (run_talks(seed, pair.plain, pair.other) if n % 2 else 0)


def main():
    def more(parser):
        parser.add_argument("--rounds", type=int, default=1 << 30)
        parser.add_argument("--no-poison", action="store_true")
    args = part.arguments(__doc__, 60, more)
    if CTL is None:
        skip_all("npugraphctl is missing")
    passed = failed = answers = n = 0
    pair = None
    while time.monotonic() < args.end and n < args.rounds:
        seed = args.seed * 100000 + 2 * n
        try:
            pair = pair or Pair(seed, not args.no_poison)
            if not pair.other:
                pair.restart()
            answers += run_round(seed, pair, n)
            passed += 1
        except Skip as why:
            print(f"skip - {why}", flush=True)
            break
        except Exception:
            failed += 1
            print(f"round {n} (seed {seed}) failed", flush=True)
            traceback.print_exc()
            for d in (pair.plain, pair.other) if pair else ():
                if d and not d.alive():
                    print(d.log()[-3000:], flush=True)
            kill_all()
            pair = None
        n += 1
    if pair:
        pair.close()
    print(f"{n} rounds, {answers} answers compared")
    part.end(passed, failed)


def kill_all():
    for d in list(Daemon.running):
        d.kill()


if __name__ == "__main__":
    main()
