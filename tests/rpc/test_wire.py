#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong input from outside: traps of gRPC, and bytes that are not messages."""
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import sys
import threading
import time

from harness import *

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tenants"))
import http2  # noqa: E402


def raw_call(client, path, message=b"", kind="unary_unary", **kwargs):
    method = getattr(client.channel, kind)(path, request_serializer=lambda m: m, response_deserializer=lambda m: m)
    return method(message, timeout=PATIENCE, metadata=client.metadata(), **kwargs)


@test("an unknown method or service is answered UNIMPLEMENTED at once, not at the deadline")
def unknown_method(daemon):
    with Client(daemon) as c:
        for path in ("/npugraph.v1.Graphs/Nope", "/no.such.Service/Call", "/grpc.health.v2.Health/Check"):
            got = refused("UNIMPLEMENTED", "UNIMPLEMENTED", raw_call, c, path)  # at its deadline the call would fail with DEADLINE_EXCEEDED
            assert path in got.text
        refused("UNIMPLEMENTED", "UNIMPLEMENTED", raw_call, c, "/a/b", iter([b"", b""]), "stream_stream")


@test("unknown methods are answered many at a time, and leave nothing behind")
def unknown_methods(daemon):
    with Client(daemon) as c:
        futures = [c.channel.unary_unary(f"/x.Y/{i}", lambda m: m, lambda m: m).future(b"", timeout=PATIENCE) for i in range(500)]
        assert {f.code() for f in futures} == {grpc.StatusCode.UNIMPLEMENTED}
        until("no call is left", lambda: daemon.stats()["requests"]["in_flight"] <= 1)


@test("malformed protobuf is refused for every method, and named")
def malformed(daemon):
    bad = [b"\xff" * 20, b"\x0a\x7fabc", b"\x0b", b"\x00\x01", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80" * 12]
    with Client(daemon) as c:
        for name, (kind, _) in METHODS.items():
            if name == "Admin/Drain" or kind == "stream_unary":
                continue
            for message in bad:
                argument = iter([message]) if kind.startswith("stream") else message
                error = None
                try:
                    answer = c.method(name)(argument, metadata=c.metadata(), timeout=PATIENCE)
                    if kind.endswith("stream"):
                        answer = next(answer)
                        if name in ("Graphs/ReplayStream",):  # there a bad request is answered with `error`
                            assert answer.error.reason == "MALFORMED_MESSAGE", answer
                            continue
                except grpc.RpcError as e:
                    error = Refusal(e)
                assert error and error.reason == "MALFORMED_MESSAGE" and error.code is grpc.StatusCode.INVALID_ARGUMENT, (name, message, error and error.reason)
                assert len(error.text) > 10


@test("text that is not UTF-8, or holds a zero byte, is refused")
def bad_text(daemon):
    with Client(daemon) as c:
        for text in (b"\xff\xfe", b"a\0b", b"\xc0\xaf", b"\xed\xa0\x80"):
            message = b"\x0a" + bytes([len(text)]) + text
            refused("MALFORMED_MESSAGE", "INVALID_ARGUMENT", c.call, "Graphs/Register", message)


@test("random bytes to every method get an answer, and the daemon goes on")
def noise(daemon):
    rng = random.Random(20)
    with Client(daemon) as c:
        for _ in range(30):
            for name, (kind, _reply) in METHODS.items():
                if name in ("Admin/Drain", "Sessions/Open"):
                    continue
                data = rng.randbytes(rng.choice((0, 1, 2, 3, 8, 30, 300)))
                argument = iter([data]) if kind.startswith("stream") else data
                try:
                    answer = c.method(name)(argument, metadata=c.metadata(), timeout=PATIENCE)
                    if kind.endswith("stream"):
                        for _ in answer:
                            pass
                except grpc.RpcError as e:
                    assert e.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL), (name, e)


@test("each enum of the protocol has an unspecified value 0, and values that begin with its name")
def enum_names():
    for enum in pb.DESCRIPTOR.enum_types_by_name.values():
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        assert enum.values_by_number[0].name == prefix + "UNSPECIFIED", enum.name
        assert all(v.name.startswith(prefix) for v in enum.values), enum.name
        assert sorted(enum.values_by_number) == list(range(len(enum.values))), enum.name


def varint(value):
    value &= (1 << 64) - 1
    return bytes([value & 0x7f | 0x80]) + varint(value >> 7) if value >= 0x80 else bytes([value])


@test("a value that an enum does not have is refused by every method that takes one, and named with those that it has")
def unknown_values(daemon):
    seen = set()
    with Client(daemon) as c:
        graph = c.register('npugraph 1\ngraph "g" { input %x : f32[1] %y = aten.neg(%x) return %y }').graph
        known = {"Graphs/Replay": pb.ReplayRequest(graph=graph), "Graphs/ReplayStream": pb.ReplayRequest(graph=graph)}
        methods = [(f"{s.name}/{m.name}", m.input_type) for s in pb.DESCRIPTOR.services_by_name.values() for m in s.methods]
        for name, field in [(n, f) for n, message in methods for f in message.fields if f.enum_type]:
            first = encode(known[name]) if name in known else b""
            for value in (len(field.enum_type.values), -1, 2**31 - 1, 2**31, 2**32 + 1, -2**63):  # 2**32 + 1: its lower 32 bits are allowed
                message = first + varint(field.number << 3) + varint(value)
                if METHODS[name][0] == "stream_stream":  # there a refusal is answered with `error`, and the stream goes on
                    answers = [m.error for m in c.call(name, iter([message] * 2))]
                    assert len(answers) == 2 and {e.reason for e in answers} == {"INVALID_ARGUMENT"}, (name, answers)
                    text = answers[0].message
                else:
                    text = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", lambda: [*c.call(name, message)] if "stream" in METHODS[name][0]
                                   else c.call(name, message)).text
                assert f"{field.full_name.removeprefix('npugraph.v1.')} is {value}; allowed: 0 (unspecified), 1 (" in text, text
                seen.add(name)
        assert c.replay(graph, [bytes(4)], priority=pb.PRIORITY_LOW).outputs
    assert seen == {"Graphs/Describe", "Graphs/Replay", "Graphs/ReplayStream", "Sequences/RegisterModel", "Sequences/Open", "Sequences/Step",
                    "Sequences/Embed", "Sequences/StepStream", "Sequences/Generate", "Admin/Stats", "Admin/ReadTimeline"}, seen


@test("unknown fields are passed over")
def unknown_fields(daemon):
    with Client(daemon) as c:
        message = pb.AllocateRequest(bytes=64).SerializeToString() + b"\xf8\x07\x01" + b"\xfa\x07\x02hi" + b"\xfd\x07abcd" + b"\xf9\x07abcdefgh"
        assert c.call("Memory/Allocate", message).buffer


@test("a small message cannot grow into many objects")
def amplification(daemon):
    with Client(daemon) as c:
        before = daemon.stats()["heap_bytes"]
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Register", b"\x12\x00" * 3_000_000)
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", c.call, "Graphs/Register", b"\x7a\x00" * 1_000_000)
        until("the memory is given back", lambda: daemon.stats()["heap_bytes"] < before + (8 << 20))


@test("a message above the method's or the daemon's limit is RESOURCE_EXHAUSTED")
def too_large(daemon):
    with Client(daemon) as c:
        got = refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", c.call, "Graphs/Capture", pb.CaptureRequest(symbols=[1] * 20000))
        assert "16384" in got.text
        try:
            c.call("Graphs/Replay", pb.ReplayRequest(graph=1, inputs=[bytes(17 << 20)]))
            raise AssertionError("was accepted")
        except grpc.RpcError as e:
            assert e.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, e  # gRPC answers itself; the daemon never sees the call
        c.call("Admin/Status", pb.StatusRequest())


@test("compressed messages are refused before they are inflated")
def compressed(daemon):
    with Client(daemon) as c:
        before = daemon.stats()["heap_bytes"]
        for request in (pb.ReplayRequest(graph=1, inputs=[bytes(1000)]), pb.ReplayRequest(graph=1, inputs=[bytes(200 << 20)])):
            try:
                c.call("Graphs/Replay", request, compression=grpc.Compression.Gzip)
                raise AssertionError("was accepted")
            except grpc.RpcError as e:
                assert e.code() is grpc.StatusCode.UNIMPLEMENTED, e
        assert SANITIZER or peak_rss(daemon) < before + (150 << 20), "it was inflated"  # with shadow memory the size says nothing


def peak_rss(daemon):
    for line in open(f"/proc/{daemon.process.pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


@test("a unary call without a message is refused")
def no_message(daemon):
    with Client(daemon) as c:
        error = None
        try:
            c.channel.stream_unary("/npugraph.v1.Admin/Status", lambda m: m, lambda m: m)(iter([]), timeout=PATIENCE)
        except grpc.RpcError as e:
            error = e
        assert error is not None and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, error


@test("calls above max-inflight are refused at once; status still answers; nothing waits without bound")
def inflight():
    with Daemon("--max-inflight=20") as d, Client(d) as c:  # the session's stream is one of them
        streams = []
        for _ in range(25):
            requests = queue.Queue()
            streams.append((requests, c.method("Graphs/ReplayStream")(iter(requests.get, None), metadata=c.metadata())))
        until("the limit is reached", lambda: d.stats()["requests"]["in_flight"] == 20)
        got = refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", c.allocate, 1)
        assert "max-inflight" in got.text
        assert c.call("Admin/Status", pb.StatusRequest()).state == pb.DAEMON_STATE_SERVING
        until("six are counted", lambda: sum(d.stats()["requests"]["rejected_by_reason"].values()) >= 6)  # the call, and streams
        for requests, stream in streams:
            requests.put(None)
        for requests, stream in streams:
            with contextlib.suppress(grpc.RpcError):
                for _ in stream:
                    pass
        until("the calls are over", lambda: d.stats()["requests"]["in_flight"] <= 1)
        c.allocate(1)


@test("ten thousand calls at once are all answered")
def many_calls(daemon):
    with Client(daemon) as c:
        status = c.channel.unary_unary("/npugraph.v1.Admin/Status", lambda m: b"", pb.StatusResponse.FromString)
        futures = [status.future(None, timeout=4 * PATIENCE) for _ in range(10000)]
        assert all(f.result().state == pb.DAEMON_STATE_SERVING for f in futures)
    until("no call is left", lambda: daemon.stats()["requests"]["in_flight"] == 0)


@test("bytes that are not HTTP/2, and connections that say nothing, harm nobody")
def not_http2(daemon):
    held = []
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000, os.urandom(5000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(2000), b""):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(daemon.socket))
        s.sendall(data)
        held.append(s)
    with Client(daemon) as c:
        c.allocate(1)
    for s in held:
        s.close()


@test("connections above max-connections are closed at once, and counted out when they go")
def max_connections():
    with Daemon("--max-connections=5") as d:
        held = []
        for _ in range(5):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(d.socket))
            held.append(s)
        until("they are counted", lambda: d.stats()["requests"]["connections"] == 5)
        extra = socket.socket(socket.AF_UNIX)
        extra.settimeout(PATIENCE)
        extra.connect(str(d.socket))
        assert extra.recv(100) == b"", "it was not closed"
        extra.close()
        assert "max-connections" in d.log()
        for s in held:
            s.close()
        until("they are forgotten", lambda: d.stats()["requests"]["connections"] == 0)
        with Client(d) as c:
            c.allocate(1)


@test("600 short connections leave no descriptor behind")
def no_leaks(daemon):
    count = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    with Client(daemon):
        pass
    before = count()
    for i in range(600):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(daemon.socket))
        if i % 2:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        s.close()
    until("the descriptors are closed", lambda: count() <= before + 2)


@test("a burst of 1500 clients waits in the socket's queue while the daemon is not at it; none is refused")
def burst(daemon):
    somaxconn = int(pathlib.Path("/proc/sys/net/core/somaxconn").read_text())
    if somaxconn < 1500:
        raise Skip(f"net.core.somaxconn is {somaxconn}")
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, ours[1]), ours[1]))
    held = []
    daemon.signal(signal.SIGSTOP)
    try:
        for _ in range(1500):
            held.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            held[-1].connect(str(daemon.socket))  # as gRPC connects; EAGAIN if the queue is full
    finally:
        daemon.signal(signal.SIGCONT)
        for s in held:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, ours)
    until("the connections are gone", lambda: daemon.stats()["requests"]["connections"] == 0)
    with Client(daemon) as c:
        c.allocate(1)


@test("metadata that is too large costs its client the call, and others nothing")
def metadata(daemon):
    with Client(daemon) as other, Client(daemon, session=False) as c:
        try:
            c.method("Admin/Status")(pb.StatusRequest(), metadata=(("x-big", "v" * 40000),), timeout=PATIENCE)
            raise AssertionError("was accepted")
        except grpc.RpcError as e:
            assert e.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, e
        other.allocate(1)


@test("a deadline ends a call that cannot be served in time")
def deadline(daemon):
    with Client(daemon) as c:
        requests = queue.Queue()
        stream = c.method("Graphs/ReplayStream")(iter(requests.get, None), metadata=c.metadata(), timeout=0.3)
        try:
            next(stream)
            raise AssertionError("was answered")
        except grpc.RpcError as e:
            assert e.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        requests.put(None)
    until("the call is over", lambda: daemon.stats()["requests"]["in_flight"] == 0)


@test("a deadline that is later than nanoseconds can say is no deadline, and not one that has passed")
def late_deadline(daemon):
    with Client(daemon) as c:
        graph = c.register('npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }').graph
        replay = http2.message(pb.ReplayRequest(graph=graph, inputs=[bytes(16)]).SerializeToString())
        for timeout in (b"1H", b"2562047H", b"2562048H", b"4000000H", b"99999999H"):  # 2^63 ns are 2562047.8 hours
            extra = http2.field(b"grpc-timeout", timeout) + http2.field(b"npugraph-session", str(c.id).encode())
            raw = http2.Raw(str(daemon.socket))
            raw.send(http2.headers(1, http2.request(b"/npugraph.v1.Graphs/Replay", extra)) + http2.frame(http2.DATA, http2.END_STREAM, 1, replay))
            end = raw.until(lambda kind, flags, stream, payload: kind == http2.HEADERS and flags & http2.END_STREAM)[-1]
            raw.close()
            assert http2.field(b"grpc-status", b"0", b"\x40") in end[3], (timeout, end)


@test("a client that opens streams and resets them again and again is served out, and others too")
def rapid_reset(daemon):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    # HEADERS with literal :method POST, :scheme http, :path /npugraph.v1.Admin/Status, te: trailers
    def literal(name, value):
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    block = b"\x83\x86" + literal(b":path", b"/npugraph.v1.Admin/Status") + literal(b":authority", b"x") + \
        literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(daemon.socket))
    s.settimeout(0.05)
    with contextlib.suppress(OSError):
        s.sendall(preface)
        for i in range(3000):
            stream = struct.pack(">I", 2 * i + 1)
            s.sendall(struct.pack(">I", len(block))[1:] + b"\1\4" + stream + block + b"\0\0\4\3\0" + stream + b"\0\0\0\x08")
            if i % 50 == 0:
                with contextlib.suppress(TimeoutError):
                    s.recv(65536)
    with Client(daemon) as c:
        c.allocate(1)
    s.close()
    until("no call is left", lambda: daemon.stats()["requests"]["in_flight"] == 0)


if __name__ == "__main__":
    main()
