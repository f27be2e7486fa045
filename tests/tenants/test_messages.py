#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One message full of empty elements, in each repeated field of each method: refused, and cheap to refuse."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403
from http2 import HalfMessages  # noqa: E402

MAX_MESSAGE = 16 << 20
HELD_MIB = 160  # memory for a message of 16 MiB: gRPC's pieces, our one piece, and what is read from it
ROW = re.compile(r'NGD_RPC\("(npugraph\.[\w.]+)", "(\w+)", \w+, \w+, \w+, \w+, \w+, (\d+),')
GRAPH = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "s" = %b\n}\n'


def limits():
    """Returns the largest request of each method."""
    rows = ROW.findall((SOURCE / "daemon" / "handlers" / "methods.def").read_text())
    assert len(rows) >= len(METHODS)
    return {f"{service.rpartition('.')[2]}/{name}": int(limit) or MAX_MESSAGE for service, name, limit in rows}


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def filled(field, room):
    """Yields (how, bytes): about `room` bytes of the field, with as many elements as fit."""
    tag = field.number << 3
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE):
        one = varint(tag | 2) + b"\0"
        yield "empty", one * (room // len(one))
        return
    assert field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64), field.full_name
    one = varint(tag) + b"\0"
    yield "one by one", one * (room // len(one))
    yield "packed", varint(tag | 2) + varint(room - 16) + bytes(room - 16)


def repeated(message, depth=0):
    """Yields (path of fields, field) for each repeated field of the message and of the messages in it."""
    for field in message.fields:
        if field.label == field.LABEL_REPEATED:
            yield (), field
        if field.message_type and depth < 3:
            for path, inner in repeated(field.message_type, depth + 1):
                yield (field, *path), inner


def wrapped(path, body):
    for field in reversed(path):
        body = varint(field.number << 3 | 2) + varint(len(body)) + body
    return body


def requests():
    """Yields (method, what, the message)."""
    most = limits()
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            name = f"{service.name}/{method.name}"
            for path, field in repeated(method.input_type):
                for how, body in filled(field, most[name] - 64):
                    yield name, f"{'.'.join([f.name for f in (*path, field)])} {how}", wrapped(path, body)


def peak_mib(daemon):
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) >> 10


@test("no repeated field of a request takes more elements than anybody needs")
def fields(daemon):
    before = peak_mib(daemon)
    seen = 0
    with Client(daemon) as c:
        graph = c.register(GRAPH).graph
        for name, what, body in requests():
            kind = METHODS[name][0]
            try:
                got = c.call(name, iter([body]) if kind.startswith("stream") else body)
                if kind == "stream_stream":  # there a refusal is answered with `error`
                    answer = next(got)
                    assert answer.error.reason == "INVALID_ARGUMENT", f"{name} {what}: {answer.error}"
                    got.cancel()
                    seen += 1
                    continue
                if kind.endswith("stream"):
                    list(got)
            except grpc.RpcError as error:
                why = Refusal(error)
            else:
                raise AssertionError(f"{name} {what}: was accepted")
            assert why.reason == "INVALID_ARGUMENT" or why.reason == "MESSAGE_TOO_LARGE", f"{name} {what}: {why.reason}: {why.text}"
            assert " more " in why.text, f"{name} {what}: refused for another reason: {why.text}"
            assert "more than 0 elements" not in why.text, f"{name} {what}: has no row in daemon/rpc/wire_bounds.def"
            seen += 1
        assert c.replay(graph, [bytes(16)]).outputs
    assert seen > 50, seen
    held = peak_mib(daemon) - before
    print(f"# {seen} messages; at most {held} MiB more than before")
    assert SANITIZER or held < HELD_MIB, f"{held} MiB were held for one message"


@test("8 million unknown fields in a replay are not all looked at")
def unknown(daemon):
    with Client(daemon) as c:
        graph = c.register(GRAPH).graph
        body = pb.ReplayRequest(graph=graph, inputs=[bytes(16)]).SerializeToString() + b"\xf8\x07\x00" * (5 << 20)
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Replay", body)
        assert "fields" in got.text, got.text


@test("under a limit of its address space the daemon survives unfinished messages of peers that the guard does not watch")
def limited():
    if SANITIZER:
        raise Skip("a sanitizer takes more addresses than any limit")
    size = lambda daemon: int(re.search(r"VmSize:\s+(\d+)", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text())[1]) << 10
    with Daemon() as daemon:
        limit = size(daemon) + (300 << 20)
    with Daemon(through=["prlimit", f"--as={limit}", "--"]) as daemon:
        half = []
        for _ in range(6):  # four were once enough to end the daemon
            half.append(HalfMessages(str(daemon.socket), 16, 16 << 20, path=b"/npugraph.v1.Graphs/Replay"))
            half[-1].push(2)
        with Client(daemon, session=False) as c:
            assert c.call("Admin/Status", pb.StatusRequest()).state
        for connection in half:
            connection.close()
        with Client(daemon) as c:
            graph = c.register('npugraph 1\ngraph "g" { input %x : f32[2097152] %y = aten.neg(%x) return %y }').graph
            assert len(until("a message of 8 MiB is served again", lambda: served(c, graph))) == 8 << 20


def served(client, graph):
    try:
        return client.replay(graph, [bytes(8 << 20)]).outputs[0]
    except grpc.RpcError:
        return None


if __name__ == "__main__":
    main()
