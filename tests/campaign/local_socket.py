#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The local socket: random packets and descriptors, forged rings, and workers killed at random points, beside an honest client.

  tests/campaign/local_socket.py --seconds N --seed S

A round sends some thousand packets that are mutated, torn or random, with descriptors of all kinds; or writes whatever it likes into
rings; or kills a worker while it uses shared buffers, or rings. After each round the honest client is served with the right
results, and the daemon has as many descriptors, and counts as few bytes for the strangers, as before. A failure prints the
round's seed.
"""
import collections
import contextlib
import os
import pathlib
import random
import signal
import sys
import time

os.environ.setdefault("top_srcdir", str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("top_builddir", os.path.join(os.environ["top_srcdir"], "build", "check"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
import part  # noqa: E402
from harness import *  # noqa: E402,F403
import ring as rings  # noqa: E402
import shared  # noqa: E402

PACKETS = 5000
WORKER = """
buffer = c.allocate(1 << 20)
while True:
    a, b = shared.Memory(c, 1 << 16), shared.Memory(c, r.choice([1 << 16, 1 << 20, 40 << 20]))
    for _ in range(r.randrange(4)):
        c.replay(graph, [b""], [64], shared_inputs=[shared.span(0, a.id, 0, 16384)], shared_outputs=[shared.span(0, b.id, 0, 16384)])
    c.call("Memory/Copy", pb.CopyRequest(to=buffer, **{"from": b.id}, bytes=r.randrange(65536)))
    c.call("Memory/Free", pb.FreeRequest(buffers=[a.id] + [b.id] * r.randrange(2)))
    a.__exit__(), b.__exit__()
"""
RING_WORKER = """
x = shared.floats(range(16))
while True:
    with rings.Ring(c) as ring:
        for _ in range(r.randrange(40)):
            bits = r.getrandbits(16) | 1
            for lane in range(rings.LANES):
                if bits >> lane & 1:
                    ring.put(lane, pb.ReplayRequest(graph=pair, inputs=[x, x]).SerializeToString())
            ring.submit(bits)
            for lane in range(rings.LANES):
                if bits >> lane & 1:
                    ring.answer(lane)
"""
# Forks a worker for each line "seed program" and prints its process id; the worker prints "ready". A new interpreter for
# each would take most of the campaign's time.
NURSERY = f"""
sys.path.insert(0, {str(pathlib.Path(shared.__file__).parent)!r})
import ctypes, os, random, signal, ring as rings, shared
programs = {[WORKER, RING_WORKER]!r}
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready")
for line in sys.stdin:
    seed, program = map(int, line.split())
    if os.fork():
        continue
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    r = random.Random(seed)
    c = Client(daemon)
    graph, pair = c.register(shared.NEG).graph, c.register(shared.PAIR).graph
    print(os.getpid())
    exec(programs[program])
"""
FORGED = 4000  # requests of a round


class Round:
    def __init__(self, daemon, honest, nursery, seed):
        self.daemon, self.honest, self.nursery, self.random = daemon, honest, nursery, random.Random(seed)
        self.fds = [shared.memfd(4096), shared.memfd(4096, 0), shared.memfd(65536), os.open("/dev/zero", os.O_RDWR), os.open("/", os.O_RDONLY),
                    *os.pipe()]

    def packet(self, client):
        r = self.random
        if r.random() < 0.2:
            return r.randbytes(r.randrange(300))
        data = bytearray(shared.request(client, r.choice([4096, 65536, 0, 2**63, r.getrandbits(64)])).SerializeToString())
        for _ in range(r.randrange(4)):
            data[r.randrange(len(data))] = r.randrange(256)
        return bytes(data[:r.randrange(1, len(data) + 1)] if r.random() < 0.3 else data)

    def packets(self):
        with Client(self.daemon) as c:
            door = shared.Door(c.opened.local_socket)
            for _ in range(PACKETS):
                try:
                    door.ask(self.packet(c), [self.random.choice(self.fds) for _ in range(self.random.choice([0, 1, 1, 1, 2, 5, 200]))])
                except EOFError:  # an empty packet without descriptors is the end
                    door.close()
                    door = shared.Door(c.opened.local_socket)
                if self.random.random() < 0.02:
                    door.close()
                    door = shared.Door(c.opened.local_socket)
            door.close()

    def forge_lane(self, ring, lane, good):
        r = self.random
        data = bytearray(good if r.random() < 0.8 else r.randbytes(r.randrange(200)))
        for _ in range(r.randrange(4) if data else 0):
            data[r.randrange(len(data))] = r.randrange(256)
        ring.put(lane, bytes(data), r.choice([0, 0, 0, 0, 0, 0, 0, 1]), len(data) if r.random() < 0.9 else r.randrange(len(data) + 1))

    def tear(self, ring):
        """Writes into words that are the client's, and into those that are not, while the daemon reads."""
        r = self.random
        if r.random() < 0.2:
            at = r.choice([r.randrange(2304), r.randrange(len(ring.map))])
            ring.map[at:at + 4] = r.randbytes(4)[:len(ring.map) - at]
        if r.random() < 0.2:
            ring.words.cancelled = r.getrandbits(32)
        for _ in range(r.randrange(4)):
            ring.words.requests[r.randrange(rings.LANES)][r.randrange(200)] = r.randrange(256)

    def forge(self):
        r = self.random
        with Client(self.daemon) as c:
            good = pb.ReplayRequest(graph=c.register(shared.PAIR).graph, inputs=[shared.floats(range(16))] * 2).SerializeToString()
            ring = rings.Ring(c)
            for _ in range(0, FORGED, rings.LANES):
                if ring.ended():
                    ring.close()
                    ring = rings.Ring(c)
                for lane in range(rings.LANES):
                    self.forge_lane(ring, lane, good)
                ring.words.pending |= r.choice([0xffff, 0xffff, 0xffff, r.getrandbits(16), r.getrandbits(32)])
                os.write(ring.event, (1).to_bytes(8, "little"))
                self.tear(ring)
                with contextlib.suppress(EOFError, TimeoutError):
                    for lane in range(rings.LANES):
                        ring.answer(lane, 0.01)
            ring.close()

    def kill(self):
        pid = self.nursery.ask(f"{self.random.getrandbits(32)} {self.random.randrange(2)}")
        time.sleep(self.random.random() * 0.03)
        os.kill(int(pid), signal.SIGKILL)

    def check(self, before):
        graph = self.honest.register(shared.NEG).graph
        data = shared.floats(self.random.random() for _ in range(64))
        assert self.honest.replay(graph, [data], [1]).outputs[0] == shared.negated(data), "the honest client got another result"
        self.honest.call("Graphs/Release", pb.ReleaseRequest(graph=graph))
        until("the strangers' descriptors are closed", lambda: shared.open_fds(self.daemon) <= before)
        for name in ("shared_buffers", "shared_bytes"):
            until(f"{name} are given back", lambda n=name: shared.quota(self.honest, n).used == 0)
        for fd in self.fds:
            os.close(fd)


def main_loop(args):
    counts = collections.Counter()
    failed = 0
    daemon = Daemon("--max-shared-buffers-per-identity=256")
    honest, nursery = Client(daemon), Child(daemon, NURSERY)
    assert nursery.line() == "ready"
    Round(daemon, honest, nursery, 0).packets()  # what the daemon keeps open from now on
    until("the first session is gone", lambda: daemon.stats()["sessions"]["open"] == 1)
    before = shared.open_fds(daemon) + 2
    number = args.seed * 1000003
    while time.monotonic() < args.end and not failed:
        number += 1
        one = Round(daemon, honest, nursery, number)
        what = one.random.choice(["packets", "forge", *["kill"] * 8])
        try:
            getattr(one, what)()
            one.check(before)
            counts[what] += 1
        except Exception as error:
            failed += 1
            print(f"not ok - {what}, round {number}: {error!r}\n{daemon.log()[-3000:]}", flush=True)
    honest.close()
    nursery.kill()
    if not failed:
        daemon.stop()
    print(f"{counts['packets'] * PACKETS} packets, {counts['forge'] * FORGED} forged requests, {counts['kill']} kills")
    part.end(sum(counts.values()), failed)


if __name__ == "__main__":
    main_loop(part.arguments(__doc__, 300))
