# SPDX-License-Identifier: Apache-2.0
"""Shared buffers: memfds given over the local socket, inputs and results in them, copies, lies, ends."""
import contextlib
import fcntl
import hashlib
import os
import random
import secrets
import select
import signal
import socket
import struct
import tempfile
import threading
import time

from harness import Child, Client, Daemon, PATIENCE, Skip, main, pb, refused, test, until
from shared import MIB, MFD_HUGETLB, NEG, PAIR, SEALS, SLOW, Door, Memory, floats, give, lies, locked, memfd, negated, open_fds, quota, request, span

ROWS = 64  # of NEG, where a test does not say

# ---- what it is for -------------------------------------------------------------------------------------------------------

@test("a replay reads an input from a shared buffer and writes its result into one")
def replay(daemon):
    with Client(daemon) as c, Memory(c, MIB) as m:
        graph = c.register(NEG).graph
        data = floats(range(ROWS * 64))
        n = len(data)
        m.map[256:256 + n] = data
        r = c.replay(graph, [b""], [ROWS], shared_inputs=[span(0, m.id, 256, n)])
        assert r.outputs[0] == negated(data) and not r.shared_bytes
        r = c.replay(graph, [data], [ROWS], shared_outputs=[span(0, m.id, MIB // 2, MIB // 2)])
        assert list(r.outputs) == [b""] and list(r.shared_bytes) == [n]
        assert m.map[MIB // 2:MIB // 2 + n] == negated(data)
        r = c.replay(graph, [b""], [ROWS], shared_inputs=[span(0, m.id, 256, n)], shared_outputs=[span(0, m.id, 256, n)])
        assert m.map[256:256 + n] == negated(data)  # the same range: the input was read before


@test("a descriptor that takes long to close does not stop the daemon's loop")
def lingering():
    with Daemon() as daemon, Client(daemon) as c, socket.create_server(("127.0.0.1", 0)) as server:
        slow = socket.create_connection(server.getsockname())
        peer = server.accept()[0]
        slow.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                slow.send(bytes(1 << 16))  # until the peer, which reads nothing, takes no more
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        with Door(c.opened.local_socket) as door:
            daemon.signal(signal.SIGSTOP)
            door.send(b"\xff", [slow.fileno()])
            slow.close()  # the daemon's is the last one, and its close waits for the peer
            daemon.signal(signal.SIGCONT)
            doors = [Door(c.opened.local_socket) for _ in range(10)]
            assert door.answer().error.reason == "MALFORMED_MESSAGE"  # before the descriptor is closed
            doors[-1].send(b"\xff")
            assert daemon.http("/metrics")[0] == 200
            assert not select.select([d.socket for d in doors], [], [], 0.1)[0], "the descriptor's close does not wait"
            peer.close()
            assert doors[-1].answer().error.reason == "MALFORMED_MESSAGE"
            for d in doors:
                d.close()
        fd = memfd(4096)
        assert give(c, fd)
        os.close(fd)


@test("gRPC's socket takes no descriptors")
def no_descriptors():
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.getsockopt(socket.SOL_SOCKET, 83)  # SO_PASSRIGHTS
        except OSError as e:
            raise Skip("this kernel cannot refuse descriptors (Linux 6.16 can)") from e
    with Daemon() as daemon, socket.socket(socket.AF_UNIX) as s:
        s.connect(str(daemon.socket))
        try:
            socket.send_fds(s, [b"PRI"], [0])
        except PermissionError:
            pass
        else:
            raise AssertionError("a descriptor was taken")
        s.sendall(b"PRI")  # bytes alone are


@test("a stream of replays takes shared buffers, and goes on after a refusal")
def replay_stream(daemon):
    with Client(daemon) as c, Memory(c, 4096) as m:
        graph = c.register(PAIR).graph
        a, b = floats(range(16)), floats(range(16, 32))
        m.map[0:64], m.map[64:128] = a, b
        good = pb.ReplayRequest(graph=graph, inputs=[b"", b""], tag=1,
                                shared_inputs=[span(1, m.id, 64, 64), span(0, m.id, 0, 64)], shared_outputs=[span(1, m.id, 128, 64)])
        bad = pb.ReplayRequest(graph=graph, inputs=[b"", b""], shared_inputs=[span(0, m.id, 4095, 2), span(1, m.id, 0, 64)])
        answers = list(c.call("Graphs/ReplayStream", iter([good, bad, good])))
        assert [x.error.reason for x in answers] == ["", "BUFFER_RANGE", ""]
        assert list(answers[2].outputs) == [floats(range(16, 48, 2)), b""]
        assert m.map[128:192] == floats(i * (i + 16) for i in range(16))


@test("each mistake in a request's ranges is refused")
def bad_ranges(daemon):
    with Client(daemon) as c, Memory(c, 4096) as m:
        graph = c.register(PAIR).graph
        x = floats(range(16))
        other = c.allocate(4096)
        run = lambda **kwargs: c.replay(graph, kwargs.pop("inputs", [b"", x]), **kwargs)
        into = lambda *spans, **kwargs: run(inputs=[x, x], shared_outputs=list(spans), **kwargs)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", run, shared_inputs=[span(1, m.id, 0, 64)])  # it has an entry
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", run, shared_inputs=[span(2, m.id, 0, 64)])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", run, shared_inputs=[span(2**32 - 1, m.id, 0, 64)])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", run, shared_inputs=[span(0, m.id, 0, 64)] * 2)
        refused("INPUT_SIZE", "INVALID_ARGUMENT", run, shared_inputs=[span(0, m.id, 0, 60)])
        refused("INPUT_SIZE", "INVALID_ARGUMENT", run, shared_inputs=[span(0, m.id, 0, 0)])
        refused("BUFFER_RANGE", "OUT_OF_RANGE", run, shared_inputs=[span(0, m.id, 4033, 64)])
        refused("BUFFER_RANGE", "OUT_OF_RANGE", run, shared_inputs=[span(0, m.id, 2**64 - 1, 64)])
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", run, shared_inputs=[span(0, m.id, 0, 2**64 - 1)])
        refused("UNKNOWN_ID", "NOT_FOUND", run, shared_inputs=[span(0, other, 0, 64)])
        refused("UNKNOWN_ID", "NOT_FOUND", run, shared_inputs=[span(0, 0, 0, 64)])
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", into, span(2, m.id, 0, 64))
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", into, span(1, m.id, 0, 64), outputs=[0])
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", into, span(0, m.id, 0, 64), outputs=[0, 0])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", into, span(0, m.id, 0, 64), span(0, m.id, 64, 64))
        refused("BUFFER_RANGE", "OUT_OF_RANGE", into, span(0, m.id, 0, 63))
        refused("BUFFER_RANGE", "OUT_OF_RANGE", into, span(0, m.id, 4090, 64))
        refused("UNKNOWN_ID", "NOT_FOUND", into, span(0, other, 0, 64))
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.register, PAIR, {"a": m.id})
        refused("UNKNOWN_ID", "NOT_FOUND", c.read, m.id)
        refused("UNKNOWN_ID", "NOT_FOUND", c.write, m.id, b"x")
        ok = run(inputs=[b"", b""], shared_inputs=[span(0, m.id, 0, 64), span(1, m.id, 0, 64)],
                 shared_outputs=[span(1, m.id, 64, 64), span(0, m.id, 0, 64)])
        assert list(ok.shared_bytes) == [64, 64]


@test("inputs and results in shared buffers may have as many bytes as a message, and are charged")
def too_much():
    with Daemon("--max-message=1M", "--max-host-bytes-per-identity=1M") as daemon, Client(daemon) as c, Memory(c, 4 * MIB) as m:
        graph = c.register(NEG).graph
        big = 4096 * 256
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", c.replay, graph, [b""], [4096],
                shared_inputs=[span(0, m.id, 0, big)], shared_outputs=[span(0, m.id, MIB, big)])
        refused("QUOTA", "RESOURCE_EXHAUSTED", c.replay, graph, [b""], [4096], shared_inputs=[span(0, m.id, 0, big)])
        until("what was charged is given back", lambda: quota(c, "host_bytes").used < 64 << 10)


@test("copies move bytes between buffers and shared buffers, small ones and large ones")
def copies(daemon):
    with Client(daemon) as c, Memory(c, 24 * MIB) as m:
        buffer = c.allocate(24 * MIB)
        data = random.Random(1).randbytes(MIB) * 23 + random.Random(2).randbytes(MIB)
        m.map[:] = data
        copy = lambda **kwargs: c.call("Memory/Copy", pb.CopyRequest(**kwargs)).bytes
        assert copy(to=buffer, to_offset=1, **{"from": m.id}, from_offset=3, bytes=len(data) - 3) == len(data) - 3
        assert c.read(buffer) == b"\0" + data[3:] + b"\0\0"
        assert copy(**{"from": buffer}, from_offset=1, to=m.id, to_offset=0, bytes=len(data) - 3) == len(data) - 3
        assert m.map[:len(data) - 3] == data[3:]
        assert copy(to=buffer, **{"from": m.id}, bytes=0) == 0
        assert copy(to=buffer, to_offset=24 * MIB, **{"from": m.id}, from_offset=24 * MIB) == 0
        for wrong in ({"to_offset": 24 * MIB + 1}, {"from_offset": 2**64 - 1}, {"bytes": 24 * MIB + 1}, {"bytes": 2**64 - 1},
                      {"to_offset": 1, "bytes": 24 * MIB}):
            refused("BUFFER_RANGE", "OUT_OF_RANGE", copy, **{"to": buffer, "from": m.id, "bytes": 1, **wrong})
        for pair in ((buffer, buffer), (m.id, m.id), (99, m.id), (buffer, 99), (0, 0)):
            refused("UNKNOWN_ID", "NOT_FOUND", copy, to=pair[0], **{"from": pair[1]}, bytes=1)


# ---- lies ----------------------------------------------------------------------------------------------------------------

@test("only memfds of normal pages with all seals and the size that was said are taken")
def descriptors(daemon):
    with Client(daemon) as c:
        lies("INVALID_ARGUMENT", c, memfd(4096), 4097)
        lies("INVALID_ARGUMENT", c, memfd(4096), 4095)
        lies("INVALID_ARGUMENT", c, memfd(4096), 2**64 - 1)
        lies("INVALID_ARGUMENT", c, memfd(4096), 0)
        lies("INVALID_ARGUMENT", c, memfd(0), 0)
        for seals in (0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
                      fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL):
            lies("INVALID_ARGUMENT", c, memfd(4096, seals))
        lies("INVALID_ARGUMENT", c, memfd(4096, 0, 0))
        regular = os.open(daemon.dir / "regular", os.O_RDWR | os.O_CREAT)
        os.ftruncate(regular, 4096)
        lies("INVALID_ARGUMENT", c, regular)
        if os.path.isdir("/dev/shm"):  # tmpfs too, and cannot be sealed
            path = f"/dev/shm/npugraphd-test-{os.getpid()}"
            shm = os.open(path, os.O_RDWR | os.O_CREAT)
            os.unlink(path)
            os.ftruncate(shm, 4096)
            lies("INVALID_ARGUMENT", c, shm)
        for special in ("/dev/zero", "/dev/null", "/proc/self/mem", str(daemon.dir)):
            lies("INVALID_ARGUMENT", c, os.open(special, os.O_RDONLY), 4096)
        for end in os.pipe():
            lies("INVALID_ARGUMENT", c, end, 4096)
        lies("INVALID_ARGUMENT", c, socket.socket(socket.AF_UNIX).detach(), 4096)
        original = memfd(4096)
        lies("INVALID_ARGUMENT", c, os.open(f"/proc/self/fd/{original}", os.O_WRONLY), 4096)
        os.close(original)
        with contextlib.suppress(OSError):
            huge = os.memfd_create("huge", os.MFD_ALLOW_SEALING | MFD_HUGETLB)
            os.ftruncate(huge, 2 * MIB)
            fcntl.fcntl(huge, fcntl.F_ADD_SEALS, SEALS)
            lies("INVALID_ARGUMENT", c, huge)
        assert quota(c, "shared_buffers").used == 0 and quota(c, "shared_bytes").used == 0


@test("memory that may only be read serves as an input, and is no place for a result")
def sealed_against_writing(daemon):
    with Client(daemon) as c:
        graph = c.register(PAIR).graph
        read_only = []
        fd = memfd(4096, 0)
        os.pwrite(fd, floats(range(16)), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS | fcntl.F_SEAL_WRITE)
        read_only.append(fd)
        original = memfd(4096)
        os.pwrite(original, floats(range(16)), 0)
        read_only += [os.open(f"/proc/self/fd/{original}", os.O_RDONLY)]
        os.close(original)
        buffer = c.allocate(4096)
        for fd in read_only:
            shared = give(c, fd)
            r = c.replay(graph, [b"", floats([1] * 16)], shared_inputs=[span(0, shared, 0, 64)])
            assert r.outputs[0] == floats(range(1, 17))
            refused("IO", "INTERNAL", c.replay, graph, [floats([1] * 16)] * 2, shared_outputs=[span(0, shared, 0, 64)])
            refused("IO", "INTERNAL", c.call, "Memory/Copy", pb.CopyRequest(to=shared, bytes=64, **{"from": buffer}))
            os.close(fd)


@test("a client that holds the lock of its memory stops no thread of the daemon")
def held_lock(daemon):
    with Client(daemon) as c:
        graph = c.register(PAIR).graph
        fd = memfd(4096)
        shared = give(c, fd)
        run = lambda: c.replay(graph, [floats([2] * 16)] * 2, shared_outputs=[span(0, shared, 0, 64)])
        run()
        os.pwrite(fd, bytes(64), 0)
        with locked(fd):
            for _ in range(5):
                run()
        assert os.pread(fd, 64, 0) == floats([4] * 16)
        os.close(fd)


@test("holes, unmapped memory and O_APPEND change bytes at most")
def holes(daemon):
    with Client(daemon) as c:
        graph = c.register(PAIR).graph
        fd = memfd(8 * MIB)
        shared = give(c, fd)
        run = lambda: c.replay(graph, [b"", floats([1] * 16)], shared_inputs=[span(0, shared, 5 * MIB, 64)],
                               shared_outputs=[span(1, shared, MIB, 64)])
        assert run().outputs[0] == floats([1] * 16)  # it was never written
        os.pwrite(fd, floats([2] * 16), 5 * MIB)
        assert run().outputs[0] == floats([3] * 16)
        os.system(f"fallocate --punch-hole --offset 0 --length {8 * MIB} /proc/{os.getpid()}/fd/{fd}")
        assert run().outputs[0] == floats([1] * 16)
        for change in (lambda: os.ftruncate(fd, 0), lambda: os.ftruncate(fd, 9 * MIB)):
            with contextlib.suppress(PermissionError):
                change()
                raise AssertionError("the seals do not hold")
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # the description is the daemon's too
        assert run().outputs[0] == floats([1] * 16)
        os.close(fd)
        assert run().outputs[0] == floats([1] * 16)


@test("a client that writes while replays read can spoil its own results only")
def writes_meanwhile(daemon):
    with Client(daemon) as c, Client(daemon) as neighbour, Memory(c, 4096) as m:
        table = """npugraph 1
graph "shared.rows" {
  param %w : f32[64,16] = "w"
  input %i : i64[32]
  %y = aten.embedding(%w, %i)
  return "y" = %y
}
"""
        weights = floats(range(1024))
        graphs = []
        for client in (c, neighbour):
            w = client.allocate(len(weights))
            client.write(w, weights)
            graphs.append(client.register(table, {"w": w}).graph)
        stop = threading.Event()

        def write():
            good, bad = struct.pack("<32q", *range(32)), struct.pack("<32q", *[2**62] * 32)
            while not stop.wait(0.0001):
                m.map[0:256] = bad
                m.map[0:256] = good
                m.map[0:128] = bad[:128]

        writer = threading.Thread(target=write)
        writer.start()
        seen = set()
        for _ in range(300):
            try:
                c.replay(graphs[0], [b""], shared_inputs=[span(0, m.id, 0, 256)])
                seen.add("")
            except Exception as error:
                seen.add(dict(error.trailing_metadata())["npugraph-reason"])
            assert neighbour.replay(graphs[1], [struct.pack("<32q", *range(32))]).outputs[0] == weights[:2048]
        stop.set()
        writer.join()
        assert seen <= {"", "INDEX_RANGE"}, seen


@test("packets that are no requests are answered with errors, and the connection goes on")
def packets(daemon):
    with Client(daemon) as c, Door(c.opened.local_socket) as door:
        ask = lambda data, fds=(): door.ask(data, fds).error.reason
        assert ask(b"\xff\xff") == "MALFORMED_MESSAGE"
        assert ask(b"\x0a" + b"\xff" * 9) == "MALFORMED_MESSAGE"
        assert ask(bytes(257)) == "MESSAGE_TOO_LARGE"
        assert ask(bytes(60000)) == "MESSAGE_TOO_LARGE"
        assert ask(request(c, 4096)) == "INVALID_ARGUMENT"  # no descriptor
        assert ask(pb.LocalRequest(session=c.id, token=c.token)) == "INVALID_ARGUMENT"
        fd = memfd(4096)
        assert ask(request(c, 4096), [fd, fd]) == "INVALID_ARGUMENT"
        assert ask(request(c, 4096), [fd] * 4) == "INVALID_ARGUMENT"
        assert ask(request(c, 4096), [fd] * 5) == "MESSAGE_TOO_LARGE"
        assert ask(request(c, 4096), [fd] * 253) == "MESSAGE_TOO_LARGE"
        chance = random.Random(3)
        for _ in range(3000):
            data = bytearray(request(c, 4096).SerializeToString())
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            door.ask(bytes(data[:chance.randrange(1, len(data) + 1)]), [fd] * chance.randrange(3))
        door.socket.settimeout(PATIENCE)
        assert door.ask(request(c, 4096), [fd]).buffer != 0 or quota(c, "shared_buffers").used == 64
        os.close(fd)


@test("a client that takes no answers loses its connection, and only that")
def takes_nothing(daemon):
    with Client(daemon) as c, Door(c.opened.local_socket) as other:
        with Door(c.opened.local_socket) as door:
            try:
                for _ in range(10000):
                    door.send(b"\xff")
                raise AssertionError("the daemon takes requests whose answers it cannot send")
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert other.ask(b"\xff").error.reason == "MALFORMED_MESSAGE"


@test("no descriptor and no charge is left of what was refused or freed")
def nothing_left(daemon):
    daemon.settle()
    with Client(daemon) as c:
        fd = memfd(4096)
        give(c, fd)
        before = open_fds(daemon)
        for _ in range(50):
            for size, fds in ((4095, 1), (4096, 0), (4096, 2), (4096, 5)):
                with Door(c.opened.local_socket) as door:
                    assert door.ask(request(c, size), [fd] * fds).error.reason
        c.call("Memory/Free", pb.FreeRequest(buffers=[give(c, fd), give(c, fd)]))
        until("the daemon has as many descriptors as before", lambda: open_fds(daemon) <= before)
        assert quota(c, "shared_buffers").used == 1 and quota(c, "shared_bytes").used == 4096
        big = memfd(64 * MIB)
        shared = give(c, big)
        os.close(big)
        c.call("Memory/Free", pb.FreeRequest(buffers=[shared]))
        assert quota(c, "shared_bytes").used == 4096
        refused("STALE_ID", "NOT_FOUND", c.call, "Memory/Free", pb.FreeRequest(buffers=[shared]))
        os.close(fd)
    daemon.settle()
    assert open_fds(daemon) < before


@test("the number of shared buffers and their bytes are limited for each identity")
def quotas():
    with Daemon("--max-shared-buffers-per-identity=3", "--max-shared-bytes-per-identity=1M") as daemon, Client(daemon) as c:
        fd = memfd(MIB // 4)
        buffers = [give(c, fd) for _ in range(3)]
        lies("QUOTA", c, os.dup(fd))
        c.call("Memory/Free", pb.FreeRequest(buffers=buffers))
        lies("QUOTA", c, memfd(MIB + 1))
        give(c, memfd(MIB))
        lies("QUOTA", c, os.dup(fd))
        assert quota(c, "shared_bytes").used == MIB and quota(c, "shared_buffers").used == 1 and quota(c, "shared_bytes").refused >= 2


# ---- whose it is -----------------------------------------------------------------------------------------------------------

@test("a request needs the session's token, and a session that lives")
def tokens(daemon):
    with Client(daemon) as c, Client(daemon) as other:
        lies("SESSION_TOKEN", c, memfd(4096), token=b"")
        lies("SESSION_TOKEN", c, memfd(4096), token=bytes(16))
        lies("SESSION_TOKEN", c, memfd(4096), token=c.token[:15])
        lies("SESSION_TOKEN", c, memfd(4096), token=c.token + b"\0")
        lies("SESSION_TOKEN", c, memfd(4096), session=other.id)
        lies("SESSION_GONE", c, memfd(4096), session=1)
        lies("SESSION_GONE", c, memfd(4096), session=0)
        fd = memfd(4096)
        shared = give(other, fd)
        refused("UNKNOWN_ID", "NOT_FOUND", c.call, "Memory/Free", pb.FreeRequest(buffers=[shared]))
        other.end_session()
        lies("SESSION_GONE", other, fd)


@test("another user's session is refused, whatever it knows; so is a session over TCP")
def other_users():
    if os.getuid() != 0:
        raise Skip("only root can be another user")
    with Daemon("--listen=tcp:127.0.0.1:0", "--allow-plaintext=yes", "--socket-mode=666") as daemon, Client(daemon) as c:
        os.chmod(daemon.dir, 0o755)
        os.chmod(daemon.dir.parent, 0o755)
        code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import shared
os.setgid(65534), os.setuid(65534)  # who may not read these sources if they lie in /root
class C:
    id, token = {c.id}, {bytes(c.token)!r}
    class opened: local_socket = {c.opened.local_socket!r}
try:
    print(shared.give(C, shared.memfd(4096)))
except shared.Refused as error:
    print(error)
"""
        child = Child(daemon, code)
        assert child.line() == "PERMISSION_DENIED"
        child.wait()
        with Client(daemon, address=daemon.listening("tcp")) as remote:
            assert remote.opened.local_socket == ""
            remote.opened.local_socket = c.opened.local_socket
            lies("PERMISSION_DENIED", remote, memfd(4096))


@test("a session of a bearer token gives shared buffers by its own token")
def bearer():
    bearers = ["npugraph_" + secrets.token_urlsafe(32) for _ in range(2)]
    with tempfile.NamedTemporaryFile("w", prefix="npugraphd-test-tokens-") as f:
        f.writelines(f"{name} sha256:{hashlib.sha256(b.encode()).hexdigest()} 2999-01-01T00:00:00Z\n" for name, b in zip("ab", bearers))
        f.flush()
        with Daemon(f"--token-file={f.name}") as daemon, Client(daemon, bearer=bearers[0]) as a, Client(daemon, bearer=bearers[1]) as b:
            fd = memfd(4096)
            give(a, fd)
            used = {s.identity: q.used for s in Client(daemon).call("Admin/ListShares", pb.ListSharesRequest()).shares
                    for q in s.quotas if q.name == "shared_bytes"}
            assert used["token:a"] == 4096 and used["token:b"] == 0, used
            lies("PERMISSION_DENIED", a, os.dup(fd), token=b"")  # the user of the socket is not who the session belongs to
            lies("PERMISSION_DENIED", a, fd, token=b.token)


# ---- ends ------------------------------------------------------------------------------------------------------------------

@test("a buffer that is freed, or whose session ends, while a replay uses it stays until the replay is over")
def ends_meanwhile(daemon):
    n = 1024 * 1024 * 4
    for end in ("free", "session"):
        with Client(daemon) as c, Memory(c, 2 * n) as m:
            w = c.allocate(n)
            graph = c.register(SLOW, {"w": w}).graph
            c.call("Graphs/Capture", pb.CaptureRequest(graph=graph))
            request_ = pb.ReplayRequest(graph=graph, inputs=[b""], shared_inputs=[span(0, m.id, 0, n)], shared_outputs=[span(0, m.id, n, n)])
            pending = c.method("Graphs/Replay").future(request_, metadata=c.metadata(), timeout=PATIENCE)
            until("it runs", lambda: daemon.stats()["requests"]["in_flight"] > 0)
            if end == "free":
                c.call("Memory/Free", pb.FreeRequest(buffers=[m.id]))
                assert list(pending.result().shared_bytes) == [n]
            else:
                c.end_session()
                with contextlib.suppress(Exception):
                    pending.result()
    daemon.settle()
    with Client(daemon) as c:
        until("all is given back", lambda: quota(c, "shared_bytes").used == 0 and quota(c, "shared_buffers").used == 0)


@test("a killed client leaves nothing")
def killed(daemon):
    daemon.settle()
    before = open_fds(daemon)
    code = f"""
sys.path.insert(0, {os.path.dirname(__file__)!r})
import shared as t
c = Client(daemon)
m = t.Memory(c, 1 << 20)
graph = c.register(t.NEG).graph
print("ready")
while True:
    m2 = t.Memory(c, 1 << 16)
    c.replay(graph, [b""], [64], shared_inputs=[t.span(0, m.id, 0, 64 * 256)], shared_outputs=[t.span(0, m2.id, 0, 64 * 256)])
    c.call("Memory/Free", pb.FreeRequest(buffers=[m2.id]))
    m2.__exit__()
"""
    chance = random.Random(4)
    children = [Child(daemon, code) for _ in range(2)]
    for child in children:
        assert child.line() == "ready"
    time.sleep(chance.random() * 0.05)
    for child in children:
        child.kill()
    daemon.settle()
    until("its descriptors are closed", lambda: open_fds(daemon) <= before)
    with Client(daemon) as c:
        assert quota(c, "shared_bytes").used == 0 and quota(c, "shared_buffers").used == 0


@test("many connections, and silent ones, leave room for others")
def crowd(daemon):
    with Client(daemon) as c:
        doors = [Door(c.opened.local_socket) for _ in range(300)]
        fd = memfd(4096)
        assert give(c, fd)
        alive = 0
        for door in doors:
            door.socket.setblocking(False)
            try:
                alive += door.socket.recv(1) != b""
            except BlockingIOError:
                alive += 1
            except ConnectionError:
                pass
        assert 1 <= alive <= 16, alive
        for door in doors:
            door.close()


@test("local-socket = off, a path, and daemons without a Unix socket")
def option():
    with Daemon("--local-socket=off") as daemon, Client(daemon) as c:
        assert c.opened.local_socket == "" and not os.path.exists(f"{daemon.socket}.local")
    with Daemon() as daemon:
        path = f"{daemon.socket}.local"
        assert os.stat(path).st_mode & 0o777 == 0o660 and f"local:{path}" in daemon.log()
        with Client(daemon) as c:
            assert c.opened.local_socket == path
    assert not os.path.exists(path)
    other = daemon.dir / "elsewhere"
    with Daemon(f"--local-socket={other}") as daemon, Client(daemon) as c:
        assert c.opened.local_socket == str(other)
        give(c, memfd(4096))
    with Daemon("--allow-plaintext=yes", listen="tcp:127.0.0.1:0") as daemon:
        with Client(daemon, address=daemon.listening("tcp")) as c:
            assert c.opened.local_socket == ""
    with Daemon("--local-socket=/nowhere/at/all", expect_start=False) as daemon:
        assert daemon.wait() != 0 and "local-socket" in daemon.log()
        daemon.stop = lambda: None


if __name__ == "__main__":
    main()
