#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Going away in order, also under load."""
import threading
import time

from harness import *

GRAPH = 'npugraph 1\ngraph "g" { input %x : f32[1024] %y = aten.neg(%x) return %y }'


@test("SIGTERM under load: every answer is a result or DRAINING, streams end with UNAVAILABLE, exit 0")
def under_load():
    d = Daemon()
    outcomes, stop = [], threading.Event()

    def work():
        try:
            with Client(d) as c:
                g = c.register(GRAPH).graph
                requests = queue.Queue()
                stream = c.method("Graphs/ReplayStream")(iter(requests.get, None), metadata=c.metadata())
                while not stop.is_set():
                    c.replay(g, [bytes(4096)])
                    requests.put(pb.ReplayRequest(graph=g, inputs=[bytes(4096)]))
                    answer = next(stream)
                    outcomes.append("ok" if not answer.error.reason else answer.error.reason)
        except grpc.RpcError as e:
            outcomes.append(e.code().name)
        except StopIteration:
            outcomes.append("end")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    until("work is done", lambda: outcomes.count("ok") > 100)
    began = time.monotonic()
    d.signal(signal.SIGTERM)
    assert d.wait() == 0, d.log()[-2000:]
    assert SANITIZER or time.monotonic() - began < 5
    stop.set()
    for t in threads:
        t.join()
    assert set(outcomes) <= {"ok", "UNAVAILABLE", "DRAINING"}, set(outcomes)
    assert outcomes.count("ok") > 100


@test("a drain tells sessions, refuses new work by reason, and lets clients look and clean up")
def draining():
    with Daemon() as d, Client(d) as c, Client(d, session=False) as looker:
        g = c.register(GRAPH).graph
        buffer = c.allocate(64)
        looker.call("Admin/Drain", pb.DrainRequest(stay=True))
        assert next(c.stream).HasField("draining")
        refused("DRAINING", "UNAVAILABLE", c.allocate, 64)
        refused("DRAINING", "UNAVAILABLE", c.replay, g, [bytes(4096)])
        refused("DRAINING", "UNAVAILABLE", Client, d)
        assert looker.call("Admin/Status", pb.StatusRequest()).state == "draining"
        assert len(c.read(buffer)) == 64
        c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        c.call("Memory/Free", pb.FreeRequest(buffers=[buffer]))


@test("idle sessions and streams do not hold a drain up; they are ended with UNAVAILABLE and a reason")
def idle_streams():
    d = Daemon()
    c = Client(d)
    requests = queue.Queue()
    stream = c.method("Graphs/ReplayStream")(iter(requests.get, None), metadata=c.metadata())
    until("the stream is open", lambda: d.stats()["requests"]["in_flight"] == 2)
    d.signal(signal.SIGTERM)
    assert next(c.stream).draining.grace_ms == 10000
    refused("DRAINING", "UNAVAILABLE", lambda: c.stream)
    refused("DRAINING", "UNAVAILABLE", lambda: stream)
    assert d.wait() == 0
    c.channel.close()


@test("only an admin may drain")
def permission(daemon):
    with Client(daemon, session=False) as c:
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Admin/Drain", pb.DrainRequest(grace_ms=2**32 - 1))
    assert daemon.alive()


@test("a second SIGTERM ends the wait")
def impatient():
    d = Daemon("--drain-grace=1h")
    d.signal(signal.SIGTERM)
    time.sleep(0.05)
    if d.alive():
        d.signal(signal.SIGTERM)
    assert d.wait() == 0


@test("a kernel that never returns does not hold the process: it logs what is stuck and leaves with status 4")
def stuck():
    d = Daemon("--drain-grace=200ms", "--stop-grace=500ms", "--inline-limit=0", env={"NPUGRAPHD_FAULT": "host-stuck"})
    with contextlib.suppress(grpc.RpcError), Client(d) as c:
        registered = c.register(GRAPH)
        c.call("Graphs/Capture", pb.CaptureRequest(graph=registered.graph))  # which runs nothing, and would be in the way
        future = c.method("Graphs/Replay").future(pb.ReplayRequest(graph=registered.graph, inputs=[bytes(4096)]), metadata=c.metadata())
        until("it runs", lambda: d.stats()["latency"]["queue"]["count"] == 1)  # how long it waited is noted when it begins
        began = time.monotonic()
        d.signal(signal.SIGTERM)
        assert d.wait() == 4, d.log()
        assert SANITIZER or time.monotonic() - began < 6
        assert future.exception()
    log = d.log()
    assert "part=serving" in log and f"stream slot 0 runs graph {registered.digest[:16]}" in log, log
    with Daemon(dir=d.dir) as again, Client(again) as c:  # the socket and its lock are free
        assert c.replay(c.register(GRAPH).graph, [bytes(4096)]).outputs


if __name__ == "__main__":
    main()
