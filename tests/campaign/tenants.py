#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two tenants: one runs each method at its limits, the other one must not notice.

  tests/campaign/tenants.py --seconds N --seed S [--method NAME...]

The attacker is another user (root is needed, to be two users) with 32 calls at a time: messages that are empty, filled, as large as
the method takes, with as many elements as fit, or noise; some are cancelled, some wait for their answer. The victim replays a small
graph and generates text all the while. Half of the time the daemon's own work is slow (fault points), since calls that are taken back
while their work goes on are the ones that pile up. For each method a line: what the attacker sent and got refused, the victim's latency alone
and beside it, and the daemon's memory. Asserted: every call of the victim is answered, with the right result; memory stays within
its bound; no connection is ended, since both speak HTTP/2 as gRPC does; the daemon lives and stops cleanly. Latencies are shown, not judged: the attacker itself takes a CPU here.
"""
import pathlib
import statistics
import struct
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tenants"))
import part  # noqa: E402
sys.argv = sys.argv[:1]
from tenants import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
# How the daemon is: its name here, and what is slow.
DAEMONS = {"quick": "", "slow": ",".join(f"{point}:0:{1 << 30}" for point in ("free-slow", "store-slow", "reap-late"))}
RSS_MAX = 1024  # MiB that the daemon may have, model and all: no method may make it hold more for one tenant
ADD_ONE = 'npugraph 1\ngraph "victim" {\n  input %x : f32[64]\n  %y = aten.add.Scalar(%x) {other=1}\n  return "y" = %y\n}\n'

ATTACK = '''
import random, struct, threading
random.seed(SEED)
KIND, REPLY = METHODS[NAME]
REQUEST = message_of(NAME)
LIMIT = 1 << 20

def filled(kind, depth=3):
    """A message with something in each field."""
    m = kind()
    for f in kind.DESCRIPTOR.fields:
        repeated = f.label == f.LABEL_REPEATED
        if f.message_type is not None:
            if depth and f.message_type.GetOptions().map_entry is False:
                sub = filled(f.message_type._concrete_class, depth - 1)
                (getattr(m, f.name).add() if repeated else getattr(m, f.name)).CopyFrom(sub)
            continue
        value = {f.CPPTYPE_STRING: random.choice(["", "x", "qwen3", "../../etc/passwd", "y" * 5000]), f.CPPTYPE_BOOL: True}.get(
            f.cpp_type, random.choice([0, 1, 2, 2**31 - 1, *OWN]))
        if f.type == f.TYPE_BYTES:
            value = bytes(random.randrange(64))
        if f.enum_type is not None:
            value = random.choice(f.enum_type.values).number
        if f.cpp_type in (f.CPPTYPE_INT32, f.CPPTYPE_UINT32) and isinstance(value, int):
            value = value if value < 2**31 else 1
        if repeated:
            getattr(m, f.name).extend([value] * random.choice([1, 3]))
        else:
            setattr(m, f.name, value)
    return m

def crowded(kind):
    """One repeated field with as many elements as fit, or noise."""
    fields = [f for f in kind.DESCRIPTOR.fields if f.label == f.LABEL_REPEATED or f.type in (f.TYPE_STRING, f.TYPE_BYTES)]
    if not fields:
        return bytes(random.randrange(256) for _ in range(200))
    f = random.choice(fields)
    tag = bytes([f.number << 3 & 0x7f | 2]) if f.number < 16 else struct.pack("BB", f.number << 3 & 0x7f | 0x82, f.number >> 4)
    if f.type in (f.TYPE_STRING, f.TYPE_BYTES) and f.label != f.LABEL_REPEATED:
        size = LIMIT - 16
        length = bytes([size & 0x7f | 0x80, size >> 7 & 0x7f | 0x80, size >> 14])
        return tag + length + b"z" * size
    return (tag + b"\\0") * (LIMIT // (len(tag) + 1))

def one(call):
    choice = random.randrange(4)
    message = b"" if choice == 0 else crowded(REQUEST) if choice == 1 else encode(filled(REQUEST))
    request = iter([message]) if KIND.startswith("stream") else message
    meta = client.metadata() + (("npugraph-request-id", str(random.randrange(100))),) * (random.randrange(4) == 0)
    try:
        if KIND.endswith("unary"):
            future = call.future(request, metadata=meta, timeout=5)
            if random.randrange(5) == 0:
                future.cancel()
                return "cancelled"
            future.result()
        else:
            stream = call(request, metadata=meta, timeout=2)
            for i, _ in enumerate(stream):
                if i > 20:
                    stream.cancel()
                    break
        return "ok"
    except grpc.RpcError as error:
        return error.code().name
    except Exception as error:
        return type(error).__name__

counts, lock, stop = {}, threading.Lock(), time.monotonic() + SECONDS
def loop():
    call = client.method(NAME)
    while time.monotonic() < stop:
        result = one(call)
        with lock:
            counts[result] = counts.get(result, 0) + 1
client = Client(daemon, name="attacker")
OWN = [client.allocate(4096), client.register('npugraph 1\\ngraph "a" {\\n  sym B 1..8\\n  input %x : f32[B]\\n  %y = aten.neg(%x)\\n  return %y\\n}\\n').graph]
threads = [threading.Thread(target=loop, daemon=True) for _ in range(32)]
for t in threads: t.start()
for t in threads: t.join(SECONDS + 20)
print("|".join(f"{k} {v}" for k, v in sorted(counts.items(), key=lambda kv: -kv[1])), flush=True)
client.channel.close()
'''


def requests_by_method():
    """Name of the request's message of each method, from the protocol itself."""
    found = {}
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            found[f"{service.name}/{method.name}"] = method.input_type.name
    return found


class Victim:
    """Replays and generates until it is stopped; keeps what it saw."""

    def __init__(self, daemon):
        self.client = Client(daemon, name="victim")
        self.graph = self.client.register(ADD_ONE).graph
        self.input = struct.pack("<64f", *range(64))
        self.output = struct.pack("<64f", *range(1, 65))
        self.text = self.generate()
        self.times, self.wrong, self.tokens = [], [], 0
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.loop, args=(fn,), daemon=True) for fn in (self.replay, self.check_text)]
        for thread in self.threads:
            thread.start()

    def generate(self):
        c = self.client
        opened = c.call("Sequences/Open", pb.OpenRequest(model="campaign", prompt=[5, 6, 7]))
        try:
            return [t for m in c.call("Sequences/Generate", pb.GenerateRequest(sequence=opened.sequence, max_tokens=16, ignore_stop=True))
                    for t in m.tokens]
        finally:
            c.call("Sequences/Close", pb.CloseRequest(sequence=opened.sequence))

    def replay(self):
        began = time.monotonic()
        got = self.client.replay(self.graph, [self.input]).outputs[0]
        self.times.append(time.monotonic() - began)
        if got != self.output:
            raise AssertionError("a replay has another result")

    def check_text(self):
        if self.generate() != self.text:
            raise AssertionError("a generation has other tokens")
        self.tokens += len(self.text)

    def loop(self, fn):
        while not self.stopping.is_set():
            try:
                fn()
            except Exception as error:  # all of them are findings
                self.wrong.append(f"{fn.__name__}: {error.details() if isinstance(error, grpc.RpcError) else error}")
                time.sleep(0.1)

    def take(self):
        """Median and 99th percentile since the last call, in microseconds."""
        times, self.times = sorted(self.times), []
        if len(times) < 2:
            return None
        return statistics.median(times) * 1e6, times[int(len(times) * 0.99)] * 1e6

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.client.close()


def attack(daemon, name, request, seconds, seed):
    code = f"NAME, SEED, SECONDS = {name!r}, {seed}, {seconds}\ndef message_of(name):\n    return pb.{request}\n" + ATTACK
    tenant = Tenant(daemon, code)
    try:
        out, err = tenant.process.communicate(timeout=seconds + 90)
    except subprocess.TimeoutExpired:
        tenant.kill()
        return "the attacker did not end"
    return out.strip() or err.strip().splitlines()[-1][:100]


def metrics_of(daemon, name):
    """{labels: value} of a counter."""
    rows = (line.rsplit(" ", 1) for line in daemon.http("/metrics")[1].splitlines() if line.startswith(name + "{"))
    return {labels: float(value) for labels, value in rows}


def campaign(daemon, how, names, args):
    victim = Victim(daemon)
    time.sleep(1)
    alone = victim.take()
    each = max(args.seconds / len(DAEMONS) / max(len(names), 1) - 1.2, 0.5)  # a tenant takes a second to start
    print(f"a {how} daemon; alone: median {alone[0]:.0f} us, p99 {alone[1]:.0f} us; {each:.1f} s for each of {len(names)} methods")
    print(f"{'METHOD':26} {'p50 us':>8} {'p99 us':>9} {'RSS MiB':>8}  ATTACKER")
    failed = cut_before = 0
    for name in names:
        said = attack(daemon, name, requests_by_method()[name], each, args.seed)
        beside, rss, wrong = victim.take(), rss_mib(daemon), victim.wrong
        victim.wrong = []
        cut = sum(metrics_of(daemon, "npugraphd_connections_refused_total").values()) - cut_before
        cut_before += cut
        bad = [*wrong[:3], *([f"{cut} connections of a client that speaks HTTP/2 as gRPC does were ended"] if cut else []),
               *([f"{rss} MiB resident"] if rss > RSS_MAX else []), *([] if beside else ["the victim stood still"])]
        shown = f"{beside[0]:8.0f} {beside[1]:9.0f}" if beside else f"{'-':>8} {'-':>9}"
        print(f"{name:26} {shown} {rss:8}  {said[:90]}", flush=True)
        failed += bool(bad)
        for text in bad:
            print(f"  not ok - {name}: {text}")
    victim.stop()
    print(f"the victim got {victim.tokens} tokens meanwhile")
    return failed


def serve(how, names, args):
    env = {"NPUGRAPHD_FAULT": DAEMONS[how]} if DAEMONS[how] else None
    with open_daemon(f"--models-dir={MODEL}", "--device-memory=512M", f"--store-dir={SCRATCH / how}", env=env) as daemon:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", "campaign", "--kv-bytes", "32M"],
                       check=True)
        return campaign(daemon, how, names, args)


def main():
    args = part.arguments(__doc__, 600, lambda parser: parser.add_argument("--method", action="append", help="only these, as Service/Method"))
    names = args.method or [n for n in METHODS if n in requests_by_method()]
    run = failed = 0
    try:
        for how in DAEMONS:
            args.random.shuffle(names)
            some = names[:max(int(args.seconds / 3 / len(DAEMONS)), 1)]
            run += len(some)
            failed += serve(how, some, args)
    except Skip as why:
        part.skip(f"two tenants: {why}")
    part.end(run - failed, failed)


if __name__ == "__main__":
    main()
