# SPDX-License-Identifier: Apache-2.0
"""Rings: replays and steps by shared memory, what is refused there, forged and torn contents, ends."""
import contextlib
import os
import random
import subprocess
import time

import ring as r
from harness import Child, Client, Daemon, main, pb, test, until
from shared import NEG, PAIR, SLOW, Memory, floats, negated, open_fds, quota, span

X = floats(range(16))


def rings(daemon):
    return float(next(line for line in daemon.http("/metrics")[1].splitlines() if line.startswith("npugraphd_rings ")).split()[1])


@test("a replay over a ring gives what it gives over gRPC, on each lane, and after sleeps")
def replays(daemon):
    r.check_layout()
    with Client(daemon) as c, r.Ring(c) as ring:
        graph = c.register(PAIR).graph
        want = list(c.replay(graph, [X, X]).outputs)
        for lane in range(r.LANES):
            got = ring.replay(lane, graph=graph, inputs=[X, X], tag=lane + 7, timing=True)
            assert list(got.outputs) == want and got.tag == lane + 7 and got.timing.requests == 1
        for _ in range(5):
            until("the daemon sleeps", lambda: ring.words.sleeping)
            assert list(ring.replay(3, graph=graph, inputs=[X, X]).outputs) == want
        for lane in range(r.LANES):
            ring.put(lane, pb.ReplayRequest(inputs=[X, X], outputs=[lane % 2]).SerializeToString())  # the lane's graph is kept
        ring.submit((1 << r.LANES) - 1)
        for lane in range(r.LANES):
            assert list(pb.ReplayResponse.FromString(ring.answer(lane)[1]).outputs) == [want[lane % 2]]
        assert rings(daemon) == 1


@test("requests over a ring name shared buffers")
def with_shared_buffers(daemon):
    with Client(daemon) as c, r.Ring(c) as ring, Memory(c, 1 << 20) as m:
        graph = c.register(NEG).graph
        data = floats(range(64 * 1024))
        m.map[:len(data)] = data
        got = ring.replay(0, graph=graph, symbols=[1024], inputs=[b""], shared_inputs=[span(0, m.id, 0, len(data))],
                          shared_outputs=[span(0, m.id, 1 << 19, 1 << 19)])
        assert list(got.shared_bytes) == [len(data)] and m.map[1 << 19:(1 << 19) + len(data)] == negated(data)


@test("refusals have the reasons of gRPC, and the lane goes on")
def refusals(daemon):
    with Client(daemon) as c, r.Ring(c) as ring:
        graph = c.register(PAIR).graph
        error = lambda **kwargs: ring.replay(0, **kwargs).error.reason  # noqa: E731
        assert error(inputs=[X, X]) == "INVALID_ARGUMENT"  # no graph
        assert error(graph=99) == "UNKNOWN_ID"
        assert error(graph=graph, inputs=[X]) == "INPUT_COUNT"
        assert error(graph=graph, inputs=[X, X[:60]]) == "INPUT_SIZE"
        assert error(graph=graph, inputs=[X, X], outputs=[2]) == "OUTPUT_UNKNOWN"
        assert error(graph=graph, inputs=[X, X], stream=1) == "INVALID_ARGUMENT"
        kind, data = ring.ask(0, b"\xff\xff")
        assert pb.ReplayResponse.FromString(data).error.reason == "MALFORMED_MESSAGE"
        assert ring.failure(1, b"\xff\xff", r.STEP) == "MALFORMED_MESSAGE"
        kind, data = ring.ask(1, pb.StepRequest(sequence=5), r.STEP)
        assert kind == r.ANSWER and pb.StepResponse.FromString(data).error.reason == "UNKNOWN_ID"
        kind, data = ring.ask(1, b"\x38\x63", r.STEP)  # a priority that there is not
        assert kind == r.ANSWER and pb.StepResponse.FromString(data).error.reason in ("INVALID_ARGUMENT", "UNKNOWN_ID")
        assert len(ring.replay(1, graph=graph, inputs=[X, X]).outputs) == 2  # another method on the lane
        big = c.register(NEG).graph
        assert ring.ask(2, pb.ReplayRequest(graph=big, symbols=[2048], inputs=[b""], tag=8)) == (r.ELSEWHERE, b"")
        assert error(graph=big, symbols=[1], inputs=[b""], outputs=[1], tag=9) == "OUTPUT_UNKNOWN"
        events = c.call("Graphs/Explain", pb.ExplainRequest(graph=big)).events
        assert [e.tag for e in events if e.tag] == [9], events  # what goes over gRPC then is not refused
        assert len(ring.replay(2, graph=graph, inputs=[X, X]).outputs) == 2


@test("a ring that is never silent does not keep another one asleep")
def floods():
    with Daemon("--local-spin=1ms") as daemon, Client(daemon) as c, r.Ring(c) as quiet, r.Ring(c) as loud, Memory(c, 16 << 20) as m:
        # It takes milliseconds of the rings' thread: its input is read before it is refused.
        slow = pb.ReplayRequest(graph=c.register(NEG).graph, symbols=[1], inputs=[b""], shared_inputs=[span(0, m.id, 0, 16 << 20)],
                                outputs=[0, 0]).SerializeToString()
        assert pb.ReplayResponse.FromString(loud.ask(0, slow)[1]).error.reason == "OUTPUT_UNKNOWN"
        until("the daemon sleeps", lambda: quiet.words.sleeping)
        theirs, mine, refills, asked = loud.words.lanes, quiet.words.lanes[0], 0, False
        while not asked or mine.answered != mine.number:
            free = [i for i in range(r.LANES) if theirs[i].answered == theirs[i].number]
            if loud.words.pending == 0 and len(free) >= r.LANES // 2:  # while the other half is being read
                for i in free:
                    loud.put(i, slow)
                    theirs[i].cpu = 2**32 - 1  # another one than that of the rings' thread
                loud.submit(sum(1 << i for i in free))
                refills += 1
            if not asked and refills == 5:
                assert quiet.words.sleeping
                quiet.put(0, pb.ReplayRequest(graph=99).SerializeToString())
                quiet.words.pending = 1
                quiet.wake()
                asked = True
            assert refills < 20, "the quiet ring waits as long as the other one is loud"


@test("what no client may write ends its ring, and only that")
def breaches(daemon):
    def busy_lane(ring):
        ring.put(0, pb.ReplayRequest(graph=slow, inputs=[b""], shared_inputs=[span(0, m.id, 0, 4 << 20)], outputs=[]).SerializeToString())
        ring.submit(1)
        until("the daemon has taken it", lambda: not ring.words.pending)
        ring.submit(1)

    with Client(daemon) as c, r.Ring(c) as good, Memory(c, 8 << 20) as m:
        graph = c.register(PAIR).graph
        w = c.allocate(4 << 20)
        slow = c.register(SLOW.replace('return "y" = %8', '%z = aten.slice.Tensor(%8) {end=1}\n  return "z" = %z'), {"w": w}).graph
        c.call("Graphs/Capture", pb.CaptureRequest(graph=slow))
        for breach in (lambda ring: (ring.put(0, b"x", method=2), ring.submit(1)),
                       lambda ring: (ring.put(0, b"x", method=2**32 - 1), ring.submit(1)),
                       lambda ring: (ring.put(0, b"x", n=r.MESSAGE + 1), ring.submit(1)),
                       lambda ring: (ring.put(0, b"x", n=2**32 - 1), ring.submit(1)), busy_lane):
            with r.Ring(c) as ring:
                breach(ring)
                until("the ring has ended", ring.ended)
            assert len(good.replay(0, graph=graph, inputs=[X, X]).outputs) == 2
        with r.Ring(c) as ring:  # bits that are no lanes, and words that are the daemon's
            ring.words.pending = 0xffff0000
            ring.words.cancelled = 0xffffffff
            ring.wake()
            ring.words.magic = ring.words.ended = 0
            for lane in ring.words.lanes:
                lane.kind = lane.n_answer = lane.cpu = 0xffffffff
            assert len(ring.replay(15, graph=graph, inputs=[X, X]).outputs) == 2


@test("random contents of the whole ring, and requests that change while they are read, harm nobody")
def forged(daemon):
    chance = random.Random(7)
    with Client(daemon) as c, Client(daemon) as neighbour:
        graph, theirs = c.register(PAIR).graph, neighbour.register(PAIR).graph
        want = list(neighbour.replay(theirs, [X, X]).outputs)
        good = pb.ReplayRequest(graph=graph, inputs=[X, X]).SerializeToString()
        ring = r.Ring(c)
        for i in range(1000):
            if ring.ended():
                ring.close()
                ring = r.Ring(c)
            lane = chance.randrange(r.LANES)
            w = ring.words.lanes[lane]
            data = bytearray(good)
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            ring.put(lane, bytes(data), chance.choice([0, 0, 0, 1]), chance.choice([len(data), chance.randrange(len(data) + 1)]))
            if chance.random() < 0.02:
                w.method = chance.getrandbits(32)
            if chance.random() < 0.02:
                w.n_request = chance.getrandbits(32)
            if chance.random() < 0.05:
                ring.words.cancelled = chance.getrandbits(32)
            ring.submit(chance.choice([1 << lane, 1 << lane, chance.getrandbits(32)]) if chance.random() < 0.1 else 1 << lane)
            for _ in range(chance.randrange(3)):  # while the daemon reads it
                ring.words.requests[lane][chance.randrange(len(data))] = chance.randrange(256)
            with contextlib.suppress(EOFError, TimeoutError):
                ring.answer(lane, 0.1)
            if i % 500 == 0:
                assert list(neighbour.replay(theirs, [X, X]).outputs) == want
        ring.close()
        assert list(neighbour.replay(theirs, [X, X]).outputs) == want


@test("holes in a ring's memory, and an eventfd that is drained or blocks, do not stop the daemon")
def odd_descriptors(daemon):
    with Client(daemon) as c, r.Ring(c) as ring, r.Ring(c) as other:
        graph = c.register(PAIR).graph
        os.set_blocking(ring.event, True)  # the description is the daemon's too
        until("the daemon sleeps", lambda: ring.words.sleeping)
        ring.put(0, pb.ReplayRequest(graph=graph, inputs=[X, X]).SerializeToString())
        ring.words.pending = 1
        os.write(ring.event, (1).to_bytes(8, "little"))
        assert ring.answer(0)[0] == r.ANSWER
        os.read(ring.event, 8)  # it was written before: the read does not wait
        until("the daemon sleeps", lambda: ring.words.sleeping)
        ring.put(0, pb.ReplayRequest(graph=graph, inputs=[X, X]).SerializeToString())
        ring.words.pending = 1
        os.write(ring.event, (2**64 - 2).to_bytes(8, "little"))  # another write would wait
        until("it is answered", lambda: ring.words.lanes[0].answered == ring.words.lanes[0].number)
        os.read(ring.event, 8)
        assert len(other.replay(0, graph=graph, inputs=[X, X]).outputs) == 2
        assert len(ring.replay(0, graph=graph, inputs=[X, X]).outputs) == 2
        with contextlib.suppress(PermissionError):
            os.ftruncate(ring.memory, 0)
            raise AssertionError("the memory can be truncated")
        subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", str(os.fstat(ring.memory).st_size),
                        f"/proc/{os.getpid()}/fd/{ring.memory}"], check=True)
        assert len(other.replay(0, graph=graph, inputs=[X, X]).outputs) == 2
        ring.put(0, pb.ReplayRequest(graph=graph, inputs=[X, X]).SerializeToString())
        ring.words.pending = 1
        os.write(ring.event, (1).to_bytes(8, "little"))  # that the daemon sleeps is forgotten
        assert ring.answer(0)[0] == r.ANSWER


@test("a cancelled request is answered; a lane that is given up holds neither graph nor sequence")
def cancelled(daemon):
    daemon.settle()
    with Client(daemon) as c, r.Ring(c) as ring, Memory(c, 8 << 20) as m:
        before = daemon.used_bytes()
        w = c.allocate(4 << 20)
        slow = c.register(SLOW.replace('return "y" = %8', '%z = aten.slice.Tensor(%8) {end=1}\n  return "z" = %z'), {"w": w}).graph
        c.call("Graphs/Capture", pb.CaptureRequest(graph=slow))
        request = pb.ReplayRequest(graph=slow, inputs=[b""], shared_inputs=[span(0, m.id, 0, 4 << 20)]).SerializeToString()
        ring.put(5, request)
        ring.submit(1 << 5)
        until("the daemon has taken it", lambda: not ring.words.pending)
        ring.cancel(1 << 5)
        kind, data = ring.answer(5)
        assert kind == r.ANSWER and pb.ReplayResponse.FromString(data).error.reason in ("CANCELLED", "")
        c.call("Graphs/Release", pb.ReleaseRequest(graph=slow))
        c.call("Memory/Free", pb.FreeRequest(buffers=[w]))
        assert daemon.used_bytes() > before  # the lane's last graph
        ring.cancel(1 << 5)
        until("it is free", lambda: daemon.used_bytes() == before)


@test("rings end with their sessions, with their connections, and with their clients' lives")
def ends(daemon):
    daemon.settle()
    until("no ring is left", lambda: rings(daemon) == 0)
    before = open_fds(daemon)
    with Client(daemon) as c:
        c.register(PAIR)
        first, second = r.Ring(c), r.Ring(c)
        first.socket.close()
        until("the ring of the connection has ended", first.ended)
        c.end_session()
        until("the ring of the session has ended", second.ended)
        first.close(), second.close()
    code = f"""
sys.path.insert(0, {os.path.dirname(__file__)!r})
import ring as r, test_ring as t
c = Client(daemon)
graph = c.register(t.PAIR).graph
ring = r.Ring(c)
print("ready")
while True:
    for lane in range(r.LANES):
        ring.put(lane, pb.ReplayRequest(graph=graph, inputs=[t.X, t.X]).SerializeToString())
    ring.submit(0xffff)
    for lane in range(r.LANES):
        ring.answer(lane)
"""
    children = [Child(daemon, code) for _ in range(2)]
    for child in children:
        assert child.line() == "ready"
    time.sleep(0.02)
    for child in children:
        child.kill()
    until("no ring is left", lambda: rings(daemon) == 0)
    daemon.settle()
    until("their descriptors are closed", lambda: open_fds(daemon) <= before)
    with Client(daemon) as c:
        until("their charges are given back", lambda: quota(c, "host_bytes").used < 64 << 10)


@test("a ring needs its session's token; their number is bounded; they can be switched off")
def bounds():
    with Daemon() as daemon, Client(daemon) as c:
        for wrong, reason in (({"token": b""}, "SESSION_TOKEN"), ({"session": 1}, "SESSION_GONE"),
                              ({"share": pb.ShareMemory(bytes=4096)}, "INVALID_ARGUMENT")):
            with contextlib.suppress(r.Refused):
                try:
                    r.Ring(c, **wrong)
                except r.Refused as got:
                    assert str(got) == reason, got
                    raise
                raise AssertionError(f"was accepted: {wrong}")
        many = []
        with contextlib.suppress(r.Refused):
            while len(many) <= 64:
                many.append(r.Ring(c))
        assert len(many) == 64
        graph = c.register(PAIR).graph
        assert all(len(one.replay(1, graph=graph, inputs=[X, X]).outputs) == 2 for one in many)
        for one in many:
            one.close()
        until("they have ended", lambda: rings(daemon) == 0)
        r.Ring(c).close()
    with Daemon("--local-transport=off") as daemon, Client(daemon) as c:
        try:
            r.Ring(c)
            raise AssertionError("was opened")
        except r.Refused as got:
            assert str(got) == "UNIMPLEMENTED"


@test("a drain waits for a ring's requests and refuses new ones; the daemon stops cleanly beside open rings")
def drains():
    with Daemon() as daemon, Client(daemon) as c, r.Ring(c) as ring, Client(daemon, session=False) as admin:
        graph = c.register(PAIR).graph
        ring.replay(0, graph=graph, inputs=[X, X])
        admin.call("Admin/Drain", pb.DrainRequest(grace_ms=5000, stay=True))
        until("it drains", lambda: admin.call("Admin/Status", pb.StatusRequest()).state == pb.DAEMON_STATE_DRAINING)
        with contextlib.suppress(EOFError):  # the drain may have ended the session already
            assert ring.failure(0, pb.ReplayRequest(graph=graph, inputs=[X, X])) == "DRAINING"
    daemon = Daemon()
    c = Client(daemon)
    ring = r.Ring(c)
    ring.replay(0, graph=c.register(PAIR).graph, inputs=[X, X])
    daemon.stop()
    assert ring.ended()
    ring.close()
    c.channel.close()


if __name__ == "__main__":
    main()
