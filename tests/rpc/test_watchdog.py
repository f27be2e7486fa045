#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""If a thread hangs or receives no calls, /readyz names it, and systemd's watchdog is no longer fed."""
import socket

from harness import *

WATCHDOG = 1.0  # seconds: the bound
SERVING, NOT_SERVING = 1, 2
HANGS = 700  # hundredths of a second
METHODS = sum(line.startswith("NGD_RPC(") for line in (SOURCE / "daemon/handlers/methods.def").read_text().splitlines())
GRAPH = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'


class Notified:
    """Receives the daemon's messages to systemd."""

    def __init__(self):
        self.path = SCRATCH / f"notify{Daemon.count}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.setblocking(False)

    def messages(self):
        """Returns the messages since the last call."""
        said = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                said += self.socket.recv(4096) + b"\n"
        return said

    def beats(self):
        return self.messages().count(b"WATCHDOG=1")


def open_daemon(fault, *options):
    notified = Notified()
    env = {"NOTIFY_SOCKET": str(notified.path), "WATCHDOG_USEC": str(int(WATCHDOG * 1e6)), "NPUGRAPHD_FAULT": fault}
    daemon = Daemon("--inline-limit=0", *options, env=env)
    if b"READY=1" not in notified.messages():
        daemon.kill()
        raise Skip("built without systemd")
    return daemon, notified


def says(daemon, words):
    status, body = daemon.http("/readyz")
    return status == 503 and words in body and body.startswith("serving; hangs: ")


def withheld(daemon, notified, words):
    """Checks that systemd gets no message while /readyz reports the hang."""
    until(f"/readyz says: {words}", lambda: (notified.messages(), says(daemon, words))[1])  # a full socket would block the loop
    notified.messages()
    time.sleep(WATCHDOG)
    beats = notified.beats()
    assert says(daemon, words), "the hang ended before the test could look"
    assert beats == 0, beats
    assert daemon.http("/healthz")[0] == 200
    assert f"{words} has not answered" in daemon.log() and "systemd's watchdog is not told" in daemon.log(), daemon.log()


def recovers(daemon, notified):
    until("it recovers", lambda: (notified.messages(), daemon.http("/readyz") == (200, "serving\n"))[1])
    notified.messages()
    until("systemd hears of it", lambda: notified.beats() > 0)
    assert "nothing hangs any more" in daemon.log()
    with Client(daemon) as c:
        assert c.replay(c.register(GRAPH).graph, [bytes(16)]).outputs


def hangs_and_recovers(fault, words):
    daemon, notified = open_daemon(f"{fault}:{HANGS}")
    with daemon:
        withheld(daemon, notified, words)
        recovers(daemon, notified)


@test("a receiving thread that hangs is named by /readyz, and systemd's watchdog is not told until it goes on")
def receiving():
    hangs_and_recovers("rpc-hang:20", "receiving thread 1 of 1")


@test("so is the front's thread")
def front():
    hangs_and_recovers("front-hang:4", "the front's thread")


@test("so is the expiry thread")
def expiry():
    hangs_and_recovers("expiry-hang:4", "the expiry thread")

@test("grpc.health.v1 tells that something hangs, and that it goes on")
def health_service():
    daemon, notified = open_daemon(f"expiry-hang:4:{HANGS}")
    with daemon, Client(daemon) as c:
        watch = c.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=lambda m: m.SerializeToString(),
                                       response_deserializer=health.HealthCheckResponse.FromString)
        states = watch(health.HealthCheckRequest(), timeout=PATIENCE)
        seen = [next(states).status]
        while seen[-1] == SERVING:
            seen.append(next(states).status)
        assert seen[-1] == NOT_SERVING and next(states).status == SERVING, seen
        assert daemon.http("/readyz")[0] == 200
        notified.messages()


@test("when the loop hangs, systemd's watchdog is not told")
def loop():
    daemon, notified = open_daemon(f"loop-hang:4:{HANGS}")
    with daemon:
        until("it hangs", lambda: (notified.messages(), time.sleep(WATCHDOG), notified.beats() == 0)[2])
        recovered = time.monotonic()
        assert daemon.http("/readyz")[0] == 200 and time.monotonic() - recovered > 0.5, "it did not hang"
        until("systemd hears again", lambda: notified.beats() > 0)


@test("when calls are not answered any more, though every thread moves, /readyz says so and systemd's watchdog is not told")
def calls():
    daemon, notified = open_daemon(f"post-lost:{(METHODS + 1) * 4}:50")  # after the allocations of gRPC at the start; each event tries again
    with daemon:
        withheld(daemon, notified, "a call of the daemon to itself")
        assert "out of memory: /grpc.health.v1.Health/Check takes one call less" in daemon.log()
        recovers(daemon, notified)


@test("a replay that never ends is named by /readyz, and does not make systemd end the daemon")
def replay():
    daemon, notified = open_daemon("host-stuck", "--max-replay-time=200ms")
    with contextlib.suppress(grpc.RpcError), Client(daemon) as c:
        registered = c.register(GRAPH)
        c.call("Graphs/Capture", pb.CaptureRequest(graph=registered.graph))  # ahead, since the replay would wait for it
        future = c.method("Graphs/Replay").future(pb.ReplayRequest(graph=registered.graph, inputs=[bytes(16)]), metadata=c.metadata())
        words = f"stream slot 0 has run a replay of graph {registered.digest[:16]}"
        until("/readyz says so", lambda: (notified.messages(), says(daemon, words))[1])
        notified.messages()
        until("systemd hears of the others", lambda: notified.beats() > 0)
        assert not future.done()
        daemon.kill()


@test("a daemon that only computes for long, or is stopped for a while, does not hang")
def busy():
    daemon, notified = open_daemon("rpc-hang:20:50")  # half of the bound
    with daemon:
        daemon.signal(signal.SIGSTOP)
        time.sleep(2 * WATCHDOG)
        daemon.signal(signal.SIGCONT)
        until("systemd hears again", lambda: notified.beats() > 0)
        time.sleep(WATCHDOG)
        assert daemon.http("/readyz") == (200, "serving\n") and "hangs: " not in daemon.log(), daemon.log()


if __name__ == "__main__":
    main()
