# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 written by hand, over a Unix socket or TCP, to send what no honest client sends. Needs only Python."""
import contextlib
import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS = 4
STATUS = b"/npugraph.v1.Admin/Status"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(n, prefix=7, first=0):
    """HPACK's integers (RFC 7541, 5.1)."""
    most = (1 << prefix) - 1
    if n < most:
        return bytes([first | n])
    out, n = bytes([first | most]), n - most
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(name, value, first=b"\x00"):
    return first + integer(len(name)) + name + integer(len(value)) + value


def request(path=STATUS, extra=b"", method=b"POST", scheme=b"http", kind=b"application/grpc", te=b"trailers"):
    return (field(b":method", method) + field(b":scheme", scheme) + field(b":path", path) + field(b":authority", b"x") +
            field(b"content-type", kind) + field(b"te", te) + extra)


def message(payload=b"", said=None):
    return struct.pack(">BI", 0, len(payload) if said is None else said) + payload


def headers(stream, block, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, block)


class Raw:
    """A connection. address: the path of a socket, or (host, port). rcvbuf: bytes that the kernel keeps for it at most."""

    def __init__(self, address, begin=True, timeout=10, rcvbuf=None):
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(address, str) else socket.socket()
        if rcvbuf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self.got = b""
        self.ended = False
        if begin:
            self.send(PREFACE + frame(SETTINGS))

    def send(self, data):
        """False: the other side has ended the connection."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.ended = True
        return not self.ended

    def _answer(self, data):
        """Sends; and reads meanwhile, since the other side may read nothing before what it has sent is read."""
        while data and not self.ended:
            readable, writable, _ = select.select([self.socket], [self.socket], [], self.socket.gettimeout())
            if not readable and not writable:
                raise TimeoutError("the other side neither reads nor writes")
            try:
                if writable:
                    data = data[self.socket.send(data, socket.MSG_DONTWAIT):]
                else:
                    got = self.socket.recv(1 << 16)
                    self.ended = not got
                    self.got += got
            except (BrokenPipeError, ConnectionResetError):
                self.ended = True

    def read(self, seconds=0.0):
        """Returns the received frames (kind, flags, stream, payload). Answers SETTINGS and pings."""
        with contextlib.suppress(BlockingIOError):
            while not self.ended and select.select([self.socket], [], [], seconds)[0]:
                try:
                    data = self.socket.recv(1 << 16)
                except ConnectionResetError:
                    data = b""
                self.ended = not data
                self.got += data
                seconds = 0
        frames = []
        while len(self.got) >= 9 and len(self.got) >= 9 + int.from_bytes(self.got[:3], "big"):
            n = int.from_bytes(self.got[:3], "big")
            kind, flags, stream = self.got[3], self.got[4], int.from_bytes(self.got[5:9], "big") & 0x7fffffff
            payload, self.got = self.got[9:9 + n], self.got[9 + n:]
            frames.append((kind, flags, stream, payload))
            if kind == SETTINGS and not flags & ACK:
                self._answer(frame(SETTINGS, ACK))
            if kind == PING and not flags & ACK:
                self._answer(frame(PING, ACK, 0, payload))
        return frames

    def until(self, condition, seconds=30):
        """Returns frames until one fulfils the condition, or the connection ends."""
        end, frames = time.monotonic() + seconds, []
        while time.monotonic() < end:
            for one in self.read(0.1):
                frames.append(one)
                if condition(*one):
                    return frames
            if self.ended:
                return frames
        raise AssertionError(f"the frame did not come: {frames[-3:]}")

    def wait_end(self, seconds=60):
        end = time.monotonic() + seconds
        while not self.ended:
            assert time.monotonic() < end, "the connection was not closed"
            self.read(0.1)

    def close(self):
        self.socket.close()


class HalfMessages(Raw):
    """Makes calls whose messages lack their last byte. Sends as much as the windows allow."""

    def __init__(self, address, calls, size, path=STATUS):
        super().__init__(address)
        self.window, self.initial = 65535, 65535
        self.windows, self.left = {}, {}
        self.refused = 0
        for i in range(calls):
            stream = 2 * i + 1
            self.send(headers(stream, request(path)))
            self.windows[stream] = 0
            self.left[stream] = [message(said=size), size - 1]

    def pump(self):
        """Reads and sends once; False: there was nothing to do."""
        frames = self.read(0.01)
        for kind, flags, stream, payload in frames:
            if kind == SETTINGS and not flags & ACK:
                for i in range(0, len(payload), 6):
                    key, value = struct.unpack(">HI", payload[i:i + 6])
                    if key == 4:
                        self.initial = value
            elif kind == WINDOW:
                n = struct.unpack(">I", payload)[0]
                if stream == 0:
                    self.window += n
                elif stream in self.windows:
                    self.windows[stream] += n
            elif kind == RST or (kind == HEADERS and flags & END_STREAM):
                self.refused += self.left.pop(stream, None) is not None
        did = bool(frames)
        for stream, state in self.left.items():
            head, left = state
            n = min(self.windows[stream] + self.initial, self.window, 16384)
            body = min(n - len(head), left)
            if body <= 0:
                continue
            did = True
            self.send(frame(DATA, 0, stream, head + bytes(body)))
            self.windows[stream] -= len(head) + body
            self.window -= len(head) + body
            self.left[stream] = [b"", left - body]
        return did and not self.ended

    def push(self, seconds):
        """Sends and reads until nothing happens for a while."""
        end, idle = time.monotonic() + seconds, 0
        while time.monotonic() < end and idle < 50 and not self.ended:
            idle = 0 if self.pump() else idle + 1
