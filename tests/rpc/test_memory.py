#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory: allocate, write, read, free, list; ranges, limits, and the texts of refusals."""
import os
import struct
import time

from harness import *

MIB = 1 << 20


@test("memory is zeroed, and what is written in chunks is read back")
def round_trip(daemon):
    with Client(daemon) as c:
        size = 3 * MIB + 12345
        buffer = c.allocate(size, label="tensor")
        assert c.read(buffer) == bytes(size)
        data = os.urandom(size)
        assert c.write(buffer, data) == size
        assert c.read(buffer) == data
        assert c.read(buffer, 100, 50) == data[100:150]
        assert c.write(buffer, b"abc", offset=size - 3) == 3
        assert c.read(buffer, size - 4) == data[-4:-3] + b"abc"


@test("later messages of an upload may leave the buffer away; fields may come in any order")
def upload_forms(daemon):
    with Client(daemon) as c:
        buffer = c.allocate(8)
        assert c.call("Memory/Write", iter([pb.WriteRequest(buffer=buffer, data=b"ab"), pb.WriteRequest(offset=4, data=b"cd")])).bytes == 4
        # in the order data, offset, buffer: no generated code writes this, but the format allows it
        raw = b"\x1a\x02XY" + b"\x10\x06" + pb.WriteRequest(buffer=buffer).SerializeToString()
        assert c.call("Memory/Write", iter([raw])).bytes == 2
        assert c.read(buffer) == b"ab\0\0cdXY"
        assert c.call("Memory/Write", iter([])).bytes == 0


@test("an upload outside the buffer, too large, malformed or to nothing is refused; what came before stays")
def upload_refused(daemon):
    with Client(daemon) as c:
        buffer = c.allocate(MIB)
        write = lambda *messages: c.call("Memory/Write", iter(messages))
        refused("BUFFER_RANGE", "OUT_OF_RANGE", write, pb.WriteRequest(buffer=buffer, offset=MIB - 1, data=b"ab"))
        refused("BUFFER_RANGE", "OUT_OF_RANGE", write, pb.WriteRequest(buffer=buffer, offset=2**64 - 1, data=b"ab"))
        refused("BUFFER_RANGE", "OUT_OF_RANGE", write, pb.WriteRequest(buffer=buffer, data=b"ok"),
                pb.WriteRequest(buffer=buffer, offset=MIB + 1, data=b""))
        assert c.read(buffer, 0, 2) == b"ok"
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", write, pb.WriteRequest(buffer=buffer, data=bytes(MIB + 1)))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", write, pb.WriteRequest(data=b"x"))
        refused("UNKNOWN_ID", "NOT_FOUND", write, pb.WriteRequest(buffer=99, data=b"x"))
        other = c.allocate(16)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", write, pb.WriteRequest(buffer=buffer), pb.WriteRequest(buffer=other))
        for bad in (b"\x1a\x7fabc", b"\xff", b"\x08", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b"):
            refused("MALFORMED_MESSAGE", "INVALID_ARGUMENT", write, bad)


@test("sizes of 0, over the limit, and unknown devices are refused")
def allocate_refused(daemon):
    with Client(daemon) as c:
        for size in (0, 2**46 + 1, 2**64 - 1):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.allocate, size)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.allocate, 1, "l" * 129)
        got = refused("NOT_FOUND", "NOT_FOUND", c.call, "Memory/Allocate", pb.AllocateRequest(bytes=1, device="host:9"))
        assert "host:0" in got.text


@test("a need beyond the budget is refused before anything is allocated, naming need, budget and holders")
def no_device_memory(daemon):
    daemon.settle()
    with Client(daemon) as c:
        c.allocate(100 * MIB, label="the-big-one")
        before = daemon.used_bytes()
        for size in (200 * MIB, 2**46):
            got = refused("NO_DEVICE_MEMORY", "RESOURCE_EXHAUSTED", c.allocate, size, "too-much")
            assert "buffer (100.0 MiB)" in got.text and "host:0" in got.text and "the-big-one" not in got.text, got.text
        assert daemon.used_bytes() == before
        c.allocate(50 * MIB)


@test("ranges of a download are checked; nothing is lost in a big one")
def download(daemon):
    with Client(daemon) as c:
        buffer = c.allocate(1000)
        for offset, size in ((1001, 0), (0, 1001), (1000, 1), (2**64 - 1, 2), (999, 2**64 - 1)):
            refused("BUFFER_RANGE", "OUT_OF_RANGE", lambda: c.call("Memory/Read", pb.ReadRequest(buffer=buffer, offset=offset, bytes=size)))
        assert c.read(buffer, 1000) == b""
        big = c.allocate(20 * MIB)
        data = struct.pack("<5242880I", *range(5242880))
        c.write(big, data, chunk=MIB)
        offsets = []
        got = []
        for r in c.call("Memory/Read", pb.ReadRequest(buffer=big)):
            assert len(r.data) <= MIB
            offsets.append(r.offset)
            got.append(r.data)
        assert b"".join(got) == data and offsets == sorted(offsets) and offsets[0] == 0


@test("a client that stops reading a download does not make the daemon hold it all")
def slow_download(daemon):
    with Client(daemon) as c:
        buffer = c.allocate(64 * MIB)
        before = daemon.stats()["heap_bytes"]
        stream = c.call("Memory/Read", pb.ReadRequest(buffer=buffer))
        next(stream)
        time.sleep(0.5)
        assert daemon.stats()["heap_bytes"] < before + 24 * MIB
        stream.cancel()


@test("freed memory is free, and a list with a bad id frees the good ones")
def free(daemon):
    daemon.settle()
    with Client(daemon) as c:
        before = daemon.used_bytes()
        a, b = c.allocate(MIB), c.allocate(MIB)
        refused("UNKNOWN_ID", "NOT_FOUND", c.call, "Memory/Free", pb.FreeRequest(buffers=[a, 424242, b]))
        assert daemon.used_bytes() == before
        refused("STALE_ID", "NOT_FOUND", c.call, "Memory/Free", pb.FreeRequest(buffers=[a]))
        c.call("Memory/Free", pb.FreeRequest())


@test("what a large answer was made in is given back with its call")
def large_answers(daemon):
    """Call objects are reused by any method. Each used to keep the memory of its largest answer."""
    list_buffers = lambda: c.call("Memory/ListBuffers", pb.ListBuffersRequest())  # noqa: E731
    others = [lambda: c.call("Memory/Free", pb.FreeRequest()), lambda: c.call("Graphs/List", pb.ListGraphsRequest()),
              lambda: c.call("Admin/Devices", pb.DevicesRequest()), lambda: c.call("Admin/ListShares", pb.ListSharesRequest()),
              lambda: c.call("Sequences/List", pb.ListSequencesRequest()), lambda: c.call("Sequences/ListModels", pb.ListModelsRequest())]
    with Client(daemon) as c:
        for _ in range(1000):
            c.allocate(64, "b" * 60)
        for other in others:
            other()
        assert len(list_buffers().buffers) >= 1000
        before = daemon.stats()["heap_bytes"]
        for i in range(120):
            list_buffers()
            others[i % len(others)]()
        until("the memory is given back", lambda: daemon.stats()["heap_bytes"] < before + 2 * MIB)


@test("the list of buffers shows everybody's, with the ids of one's own")
def listing(daemon):
    with Client(daemon) as a, Client(daemon) as b:
        mine, theirs = a.allocate(5000, label="mine"), b.allocate(6000, label="theirs")
        seen = {x.label: x for x in a.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers}
        assert seen["mine"].buffer == mine and seen["mine"].bytes == 5000 and seen["mine"].device == "host:0"
        assert seen["theirs"].buffer == 0 and seen["theirs"].kind == pb.BUFFER_KIND_GENERAL and theirs
    with Client(daemon, session=False) as c:
        c.call("Memory/ListBuffers", pb.ListBuffersRequest())


if __name__ == "__main__":
    main()
