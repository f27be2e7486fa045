#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The local socket: random packets and descriptors, forged rings, and workers killed at random points, beside an honest client.

  tests/campaign/local_socket.py --seconds N --seed S

A round sends some thousand packets that are mutated, torn or random, with descriptors of all kinds; or writes whatever it likes into
rings; or kills a worker while it uses shared buffers, or rings. After each round the honest client is served with the right results, and the daemon has as many
descriptors, and counts as few bytes for the strangers, as before. A failure prints the round's seed.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import sys

os.environ.setdefault("top_srcdir", str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("top_builddir", os.path.join(os.environ["top_srcdir"], "build", "check"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
from harness import *  # noqa: E402,F403
import ring as rings  # noqa: E402
import shared  # noqa: E402

PACKETS = 5000
WORKER = f"""
sys.path.insert(0, {str(pathlib.Path(shared.__file__).parent)!r})
import random, shared as t
c = Client(daemon)
graph = c.register(t.NEG).graph
buffer = c.allocate(1 << 20)
print("ready")
r = random.Random(SEED)
while True:
    a, b = t.Memory(c, 1 << 16), t.Memory(c, r.choice([1 << 16, 1 << 20, 40 << 20]))
    for _ in range(r.randrange(4)):
        c.replay(graph, [b""], [64], shared_inputs=[t.span(0, a.id, 0, 16384)], shared_outputs=[t.span(0, b.id, 0, 16384)])
    c.call("Memory/Copy", pb.CopyRequest(to=buffer, **{{"from": b.id}}, bytes=r.randrange(65536)))
    c.call("Memory/Free", pb.FreeRequest(buffers=[a.id] + [b.id] * r.randrange(2)))
    a.__exit__(), b.__exit__()
"""

RING_WORKER = f"""
sys.path.insert(0, {str(pathlib.Path(shared.__file__).parent)!r})
import random, ring as r, shared as t
c = Client(daemon)
graph = c.register(t.PAIR).graph
print("ready")
x = t.floats(range(16))
chance = random.Random(SEED)
while True:
    with r.Ring(c) as ring:
        for _ in range(chance.randrange(40)):
            bits = chance.getrandbits(16) | 1
            for lane in range(r.LANES):
                if bits >> lane & 1:
                    ring.put(lane, pb.ReplayRequest(graph=graph, inputs=[x, x]).SerializeToString())
            ring.submit(bits)
            for lane in range(r.LANES):
                if bits >> lane & 1:
                    ring.answer(lane)
"""
FORGED = 1000  # requests of a round


class Round:
    def __init__(self, daemon, honest, seed):
        self.daemon, self.honest, self.random = daemon, honest, random.Random(seed)
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

    def forge(self):
        r = self.random
        with Client(self.daemon) as c:
            graph = c.register(shared.PAIR).graph
            x = shared.floats(range(16))
            good = pb.ReplayRequest(graph=graph, inputs=[x, x]).SerializeToString()
            ring = rings.Ring(c)
            for _ in range(FORGED):
                if ring.ended():
                    ring.close()
                    ring = rings.Ring(c)
                data = bytearray(good if r.random() < 0.8 else r.randbytes(r.randrange(200)))
                for _ in range(r.randrange(4) if data else 0):
                    data[r.randrange(len(data))] = r.randrange(256)
                lane = r.randrange(rings.LANES)
                ring.put(lane, bytes(data), r.choice([0, 0, 0, 1]), r.choice([len(data), r.randrange(len(data) + 1)]))
                if r.random() < 0.05:
                    at = r.choice([r.randrange(2304), r.randrange(len(ring.map))])
                    ring.map[at:at + 4] = r.randbytes(4)[:len(ring.map) - at]
                if r.random() < 0.05:
                    ring.words.cancelled = r.getrandbits(32)
                ring.words.pending |= r.choice([1 << lane, 1 << lane, 1 << lane, r.getrandbits(32)])
                os.write(ring.event, (1).to_bytes(8, "little"))
                if r.random() < 0.5:
                    ring.words.requests[lane][r.randrange(200)] = r.randrange(256)
                with contextlib.suppress(EOFError, TimeoutError):
                    ring.answer(lane, 0.01)
            ring.close()

    def kill(self):
        child = Child(self.daemon, self.random.choice([WORKER, RING_WORKER]).replace("SEED", str(self.random.getrandbits(32))))
        assert child.line() == "ready"
        time.sleep(self.random.random() * 0.03)
        child.kill()

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
    end = time.monotonic() + args.seconds
    daemon = Daemon("--max-shared-buffers-per-identity=256")
    honest = Client(daemon)
    Round(daemon, honest, 0).packets()  # what the daemon keeps open from now on
    until("the first session is gone", lambda: daemon.stats()["sessions"]["open"] == 1)
    before = shared.open_fds(daemon) + 2
    number = args.seed * 1000003
    while time.monotonic() < end and not failed:
        number += 1
        one = Round(daemon, honest, number)
        what = one.random.choice(["packets", "forge", "kill", "kill", "kill"])
        try:
            getattr(one, what)()
            one.check(before)
            counts[what] += 1
        except Exception as error:
            failed += 1
            print(f"not ok - {what}, round {number}: {error!r}\n{daemon.log()[-3000:]}", flush=True)
    honest.close()
    if not failed:
        daemon.stop()
    print(f"{counts['packets'] * PACKETS} packets, {counts['forge'] * FORGED} forged requests, {counts['kill']} kills")
    print(f"{sum(counts.values())} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(main_loop(parser.parse_args()))
