# SPDX-License-Identifier: Apache-2.0
"""Shared buffers by hand: memfds, the local socket, graphs that take what is in them."""
import array
import contextlib
import fcntl
import mmap
import os
import pathlib
import platform
import socket
import subprocess
import sys

from harness import END_WITH_US, PATIENCE, Skip, pb, until

MIB = 1 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
MFD_HUGETLB = 4

NEG = """npugraph 1
graph "shared.neg" {
  sym B 1..4096 buckets 4096
  input %x : f32[B,64]
  %y = aten.neg(%x)
  return "y" = %y
}
"""
PAIR = """npugraph 1
graph "shared.pair" {
  input %a : f32[16]
  input %b : f32[16]
  %s = aten.add.Tensor(%a, %b)
  %d = aten.mul.Tensor(%a, %b)
  return "s" = %s, "d" = %d
}
"""
SLOW = """npugraph 1
graph "shared.slow" {
  param %w : f32[1024,1024] = "w"
  input %0 : f32[1024,1024]
""" + "".join(f"  %{i + 1} = aten.mm(%{i}, %w)\n" for i in range(8)) + """  return "y" = %8
}
"""
def memfd(size, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
    fd = os.memfd_create("test", flags | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def floats(values):
    return array.array("f", values).tobytes()


def negated(data):
    return floats(-x for x in array.array("f", data))


class Refused(Exception):
    pass


class Door:
    """A connection to the local socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)

    def send(self, data, fds=()):
        socket.send_fds(self.socket, [data], list(fds))

    def answer(self):
        data = self.socket.recv(4096)
        if not data:
            raise EOFError
        return pb.LocalResponse.FromString(data)

    def ask(self, data, fds=()):
        self.send(data if isinstance(data, bytes) else data.SerializeToString(), fds)
        return self.answer()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def request(client, size, **kwargs):
    return pb.LocalRequest(**{"session": client.id, "token": client.token, "share": pb.ShareMemory(bytes=size), **kwargs})


def give(client, fd, size=None, **kwargs):
    """Gives the session a memfd, and returns the buffer. Refused has the reason."""
    with Door(client.opened.local_socket) as door:
        answer = door.ask(request(client, os.fstat(fd).st_size if size is None else size, **kwargs), [fd])
    if answer.HasField("error"):
        assert len(answer.error.message) > 15 and answer.error.code != 0, answer
        raise Refused(answer.error.reason)
    assert answer.buffer != 0
    return answer.buffer


def lies(reason, client, fd, size=None, **kwargs):
    try:
        give(client, fd, size, **kwargs)
    except Refused as got:
        assert str(got) == reason, f"{got}, expected {reason}"
    else:
        raise AssertionError(f"was accepted; expected {reason}")
    finally:
        os.close(fd)


class Memory:
    """A shared buffer of a client, mapped here."""

    def __init__(self, client, size):
        self.fd = memfd(size)
        self.map = mmap.mmap(self.fd, size)
        self.id = give(client, self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.map.close()
        os.close(self.fd)


def quota(client, name):
    return next(q for s in client.call("Admin/ListShares", pb.ListSharesRequest()).shares for q in s.quotas if q.name == name)


def span(index, buffer, offset, size):
    return pb.SharedRange(index=index, buffer=buffer, offset=offset, bytes=size)


def open_fds(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


# ---- a lock that is held -------------------------------------------------------------------------------------------------

# Writes to a file from a page that userfaultfd never provides. The kernel holds the file's lock meanwhile.
HOLD = """
import ctypes, fcntl, mmap, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
uffd = libc.syscall(int(sys.argv[2]), 0o2000000)
if uffd < 0:
    sys.exit(77)
fcntl.ioctl(uffd, 0xc018aa3f, struct.pack("QQQ", 0xaa, 0, 0))
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
fcntl.ioctl(uffd, 0xc020aa00, struct.pack("QQQQ", address, 4096, 1, 0))
print("writing", flush=True)
libc.pwrite(int(sys.argv[1]), ctypes.c_void_p(address), ctypes.c_size_t(16), ctypes.c_long(0))
"""


@contextlib.contextmanager
def locked(fd):
    """Holds the lock of a file, as a hostile client can."""
    number = {"x86_64": 323, "aarch64": 282}.get(platform.machine())
    if number is None:
        raise Skip("the number of userfaultfd is not known here")
    child = subprocess.Popen([*END_WITH_US, sys.executable, "-c", HOLD, str(fd), str(number)], stdout=subprocess.PIPE, pass_fds=[fd])
    try:
        if child.stdout.readline() != b"writing\n":
            raise Skip("userfaultfd is not allowed here")
        until("the write waits for its page", lambda: pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] in "SD")
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
