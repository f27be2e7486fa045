#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that are killed in the middle of something: what they held is freed, and others notice nothing.

How long that takes is told, not demanded: less than a second, on a machine that has the time."""
import os
import random
import struct
import subprocess
import time

from harness import *

MIB = 1 << 20
MODEL = SOURCE / "examples" / "model"


def settled(daemon):
    daemon.settle()
    return daemon.used_bytes()


def vanish(daemon, code, before):
    child = Child(daemon, code)
    child.line()
    time.sleep(0.1)
    child.kill()
    killed = time.monotonic()
    until("what it held is free", lambda: daemon.used_bytes() <= before and daemon.stats()["sessions"]["open"] == 0)
    until("no call is left", lambda: daemon.stats()["requests"]["in_flight"] == 0)
    print(f"# after {time.monotonic() - killed:.3f} s nothing was left", flush=True)


@test("killed in the middle of an upload")
def upload(daemon):
    before = settled(daemon)
    vanish(daemon, """
c = Client(daemon)
buffer = c.allocate(64 << 20)
def chunks():
    for i in range(10**9):
        yield pb.WriteRequest(buffer=buffer, offset=(i % 64) << 20, data=bytes(1 << 20))
        if i == 20: print("uploading")
c.call("Memory/Write", chunks(), timeout=100)
""", before)


@test("killed in the middle of a download")
def download(daemon):
    before = settled(daemon)
    vanish(daemon, """
c = Client(daemon)
buffer = c.allocate(64 << 20)
stream = c.call("Memory/Read", pb.ReadRequest(buffer=buffer))
next(stream)
print("reading")
import time; time.sleep(100)
""", before)


@test("killed in the middle of replays, single and on a stream")
def replay(daemon):
    before = settled(daemon)
    vanish(daemon, """
c = Client(daemon)
g = c.register('npugraph 1\\ngraph "g" { input %x : f32[512,512] %y = aten.mm(%x, %x) %z = aten.mm(%y, %y) return %z }').graph
data = bytes(1 << 20)
futures = [c.method("Graphs/Replay").future(pb.ReplayRequest(graph=g, inputs=[data]), metadata=c.metadata()) for _ in range(40)]
stream = c.call("Graphs/ReplayStream", (pb.ReplayRequest(graph=g, inputs=[data]) for _ in range(10**6)), timeout=100)
next(stream)
print("replaying")
for _ in stream: pass
""", before)
    until("no place in the queue is taken", lambda: daemon.stats()["queue_depth"] == 0)


@test("killed in the middle of a generation: its KV blocks are free, the model stays")
def generation(daemon):
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    load = subprocess.run([CTL, "--address", daemon.address, "load", str(MODEL), "--name", "m"], capture_output=True, text=True)
    assert load.returncode == 0, load.stderr
    before = settled(daemon)
    with Client(daemon) as other:
        mine = other.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7]))
        alone = daemon.stats()["kv"]["blocks_used"]
        child = Child(daemon, """
c = Client(daemon)
for i in range(4):
    c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[1, 2, 3, 4] * 8))
s = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[1, 2, 3]))
stream = c.call("Sequences/Generate", pb.GenerateRequest(sequence=s.sequence, max_tokens=100000, ignore_stop=True))
next(stream)
print("generating")
for _ in stream: pass
import time; time.sleep(100)
""")
        child.line()
        assert daemon.stats()["kv"]["blocks_used"] > alone
        child.kill()
        until("its KV blocks are free", lambda: daemon.stats()["kv"]["blocks_used"] == alone)
        until("its sequences are gone", lambda: daemon.stats()["sequences"]["open"] == 1)
        assert other.call("Sequences/Step", pb.StepRequest(sequence=mine.sequence)).position == 4
    assert daemon.used_bytes() <= before


@test("eight clients killed at once leave no descriptor behind")
def many(daemon):
    before = settled(daemon)
    count = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    descriptors = count()
    children = [Child(daemon, "c = Client(daemon)\nc.allocate(1 << 20)\nprint('there')\nimport time; time.sleep(100)") for _ in range(8)]
    for child in children:
        child.line()
    for child in children:
        child.kill()
    until("what they held is free", lambda: daemon.used_bytes() <= before)
    until("their connections are closed", lambda: count() <= descriptors + 1)


@test("fifty clients killed at random moments: all counters return to their start, and another client's results stay right")
def fifty(daemon):
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    subprocess.run([CTL, "--address", daemon.address, "load", str(MODEL), "--name", "m"], capture_output=True, check=False)
    graph = daemon.dir / "killed.npugraph"
    graph.write_text('npugraph 1\ngraph "killed" { param %w : f32[64,64] = "w" input %x : f32[8,64] %y = aten.mm(%x, %w) return %y }\n')
    commands = [["replay", str(graph), "--repeat", "10000000"],
                ["generate", "m", "--ids", "5,6,7,8", "--tokens", "100000"]]
    settled(daemon)

    def counters():
        stats = daemon.stats()
        return (stats["sessions"]["open"], stats["sequences"]["open"], stats["sequences"]["waiting"], stats["kv"]["blocks_used"],
                stats["queue_depth"], stats["requests"]["in_flight"], daemon.used_bytes(), len(stats["shares"]))

    draw = random.Random(7)
    with Client(daemon) as other:
        g = other.register('npugraph 1\ngraph "other" { input %x : f32[4] %y = aten.neg(%x) return %y }').graph
        ask = lambda: other.replay(g, [struct.pack("<4f", 1, 2, 3, 4)]).outputs[0]
        assert ask() == struct.pack("<4f", -1, -2, -3, -4)
        until("the call of that replay has ended", lambda: daemon.stats()["requests"]["in_flight"] == 1)
        before = counters()
        alive, killed, life = [], 0, 0.3
        replays = daemon.stats()["replays_total"]
        while killed < 50 or daemon.stats()["replays_total"] < replays + 100:
            while len(alive) < 5:
                process = subprocess.Popen([*END_WITH_US, CTL, "--address", daemon.address, *commands[draw.randrange(2)]],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                alive.append((time.monotonic() + draw.random() * life, process))
            assert ask() == struct.pack("<4f", -1, -2, -3, -4)
            due = [c for c in alive if c[0] < time.monotonic()]
            for c in due:
                assert c[1].poll() in (None, 0), "a client failed by itself"
                c[1].kill()
                c[1].wait()
                alive.remove(c)
                killed += 1
                life *= 1 if killed % 50 else 2  # if the clients did not even begin to work
        for _, process in alive:
            process.kill()
            process.wait()
        until(f"the counters return to {before}", lambda: counters() == before)


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
