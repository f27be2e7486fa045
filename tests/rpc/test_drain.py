#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drains: the daemon stops in order, also under load."""
import threading

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
    d.signal(signal.SIGTERM)
    assert d.wait() == 0, d.log()[-2000:]
    assert "the grace period is over" not in d.log(), "it waited for what nobody asked for any more"
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
        assert looker.call("Admin/Status", pb.StatusRequest()).state == pb.DAEMON_STATE_DRAINING
        assert len(c.read(buffer)) == 64
        c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        c.call("Memory/Free", pb.FreeRequest(buffers=[buffer]))


@test("a session that opens while a drain is announced hears that it is open first, and then of the drain")
def opening():
    with Daemon("--cqs=4", env={"NPUGRAPHD_FAULT": "open-late:0:1"}) as d, Client(d, session=False) as looker:
        clients = queue.Queue()
        thread = threading.Thread(target=lambda: clients.put(Client(d)))
        thread.start()
        until("the session is there", lambda: d.stats()["sessions"]["open"] == 1)
        looker.call("Admin/Drain", pb.DrainRequest(stay=True))
        thread.join()
        with clients.get_nowait() as c:
            assert c.id and len(c.token) == 16, c.opened
            assert next(c.stream).HasField("draining")


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
    c = Client(d)
    requests = queue.Queue()  # of an upload that does not end
    buffer = c.allocate(64)
    requests.put(pb.WriteRequest(buffer=buffer, data=b"begun"))
    upload = c.method("Memory/Write").future(iter(requests.get, None), metadata=c.metadata())
    until("the upload is under way", lambda: c.read(buffer, 0, 5) == b"begun")
    d.signal(signal.SIGTERM)
    assert next(c.stream).draining.grace_ms == 3600 * 1000
    d.signal(signal.SIGTERM)
    assert d.wait() == 0 and "work that is left is given up" in d.log(), d.log()
    assert upload.exception(PATIENCE)
    requests.put(None)
    c.close()


@test("a kernel that never returns does not hold the process: it logs what is stuck and leaves with status 4")
def stuck():
    d = Daemon("--drain-grace=200ms", "--stop-grace=500ms", "--inline-limit=0", env={"NPUGRAPHD_FAULT": "host-stuck"})
    with contextlib.suppress(grpc.RpcError), Client(d) as c:
        registered = c.register(GRAPH)
        c.call("Graphs/Capture", pb.CaptureRequest(graph=registered.graph))  # ahead, since the replay would wait for it
        future = c.method("Graphs/Replay").future(pb.ReplayRequest(graph=registered.graph, inputs=[bytes(4096)]), metadata=c.metadata())
        until("it runs", lambda: d.stats()["latency"]["queue"]["count"] == 1)  # its wait is counted when it begins
        d.signal(signal.SIGTERM)
        assert d.wait() == 4, d.log()
        assert future.exception()
    log = d.log()
    assert "part=serving" in log and f"stream slot 0 runs graph {registered.digest[:16]}" in log, log
    with Daemon(dir=d.dir) as again, Client(again) as c:  # the socket and its lock are free
        assert c.replay(c.register(GRAPH).graph, [bytes(4096)]).outputs


if __name__ == "__main__":
    main()
