# SPDX-License-Identifier: Apache-2.0
"""A ring by hand, in the layout of base/ring.h: what a client writes, good or not."""
import contextlib
import ctypes
import mmap
import os
import re
import socket
import time

from harness import PATIENCE, SOURCE, pb

LANES, MESSAGE = 16, 32 << 10
REPLAY, STEP = 0, 1
ANSWER, FAILED, ELSEWHERE = 0, 1, 2


class Lane(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint32), ("method", ctypes.c_uint32), ("n_request", ctypes.c_uint32), ("cpu", ctypes.c_uint32),
                ("waits", ctypes.c_uint32), ("_client", ctypes.c_uint8 * 44),
                ("answered", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("n_answer", ctypes.c_uint32), ("_daemon", ctypes.c_uint8 * 52)]


class Words(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint32), ("_1", ctypes.c_uint8 * 60), ("pending", ctypes.c_uint32), ("cancelled", ctypes.c_uint32),
                ("_2", ctypes.c_uint8 * 56), ("sleeping", ctypes.c_uint32), ("cpu", ctypes.c_uint32), ("ended", ctypes.c_uint32),
                ("_3", ctypes.c_uint8 * 52), ("lanes", Lane * LANES), ("requests", (ctypes.c_uint8 * MESSAGE) * LANES),
                ("answers", (ctypes.c_uint8 * MESSAGE) * LANES)]


class Refused(Exception):
    pass


class Ring:
    """Opens a ring of the client's session. There is no atomic operation here, so one lane at a time is submitted."""

    def __init__(self, client, **kwargs):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(client.opened.local_socket)
        request = pb.LocalRequest(**{"session": client.id, "token": client.token, "ring": pb.OpenRing(), **kwargs})
        self.socket.send(request.SerializeToString())
        data, fds, _flags, _address = socket.recv_fds(self.socket, 4096, 8)
        answer = pb.LocalResponse.FromString(data)
        if answer.HasField("error"):
            self.socket.close()
            raise Refused(answer.error.reason)
        self.memory, self.event = fds
        self.layout = answer.layout
        self.map = mmap.mmap(self.memory, 0)
        self.words = Words.from_buffer(self.map)

    def wake(self):
        if self.words.sleeping:
            os.write(self.event, (1).to_bytes(8, "little"))

    def put(self, lane, data, method=REPLAY, n=None):
        w = self.words.lanes[lane]
        if len(data) <= MESSAGE:
            ctypes.memmove(self.words.requests[lane], data, len(data))
        w.method, w.n_request, w.number = method, len(data) if n is None else n, (w.number + 1) & 0xffffffff

    def submit(self, bits):
        while self.words.pending and not self.words.ended:
            self.wake()
            time.sleep(0)
        self.words.pending = bits
        self.wake()

    def cancel(self, bits):
        self.words.cancelled = bits
        self.wake()

    def answer(self, lane, patience=PATIENCE):
        w = self.words.lanes[lane]
        end = time.monotonic() + patience
        while w.answered != w.number:
            if self.words.ended or self.ended():
                raise EOFError
            if time.monotonic() > end:
                raise TimeoutError
            self.wake()
            time.sleep(0)
        return w.kind, bytes(self.words.answers[lane][:w.n_answer])

    def ask(self, lane, message, method=REPLAY):
        self.put(lane, message if isinstance(message, bytes) else message.SerializeToString(), method)
        self.submit(1 << lane)
        return self.answer(lane)

    def replay(self, lane, **kwargs):
        kind, data = self.ask(lane, pb.ReplayRequest(**kwargs))
        assert kind == ANSWER, (kind, data)
        return pb.ReplayResponse.FromString(data)

    def failure(self, lane, message, method=REPLAY):
        kind, data = self.ask(lane, message, method)
        assert kind == FAILED, (kind, data)
        return pb.ReplayError.FromString(data).reason

    def ended(self):
        return bool(self.words.ended)

    def close(self):
        if self.socket is None:
            return
        self.socket.close()
        self.socket = None
        self.words = None
        with contextlib.suppress(BufferError):  # a lane that someone has still
            self.map.close()
        os.close(self.memory)
        os.close(self.event)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def check_layout():
    """The header's numbers are the ones here."""
    text = (SOURCE / "base/ring.h").read_text()
    assert int(re.search(r"LANES +(\d+)u", text)[1]) == LANES and "(32u << 10)" in text
    assert ctypes.sizeof(Lane) == 128 and Words.lanes.offset == 192 and ctypes.sizeof(Words) == 192 + LANES * (128 + 2 * MESSAGE)
