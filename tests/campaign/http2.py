#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile HTTP/2 against a live daemon, over TCP and a guarded Unix socket, beside an honest client.

  tests/campaign/http2.py --seconds N --seed S

Each round draws a way to be hostile and its numbers from the seed: frames of an honest call that are mutated, torn or repeated, frames
at random, floods, header blocks without end, messages in parts, readers that do not read. After each round the honest client is
served, after each hundred the daemon holds no connection, no call and no memory of the strangers. A failure prints the round's seed.
"""
import os
import pathlib
import random
import sys

os.environ.setdefault("top_srcdir", str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("top_builddir", os.path.join(os.environ["top_srcdir"], "build", "check"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tenants"))
import part  # noqa: E402
from tenants import *  # noqa: E402,F403
from http2 import *  # noqa: E402,F403

NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
PATHS = [STATUS, b"/npugraph.v1.Graphs/Replay", b"/npugraph.v1.Graphs/ReplayStream", b"/npugraph.v1.Sessions/Open", b"/none",
         b"/npugraph.v1.Memory/Write", b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]
CEILING = 320  # MiB that strangers may make the daemon's memory grow by, all of them together


def honest(r, stream=1):
    body = r.choice([b"", r.randbytes(r.randrange(300)), bytes(r.randrange(20000))])
    return [headers(stream, request(r.choice(PATHS))), frame(DATA, r.choice([0, END_STREAM]), stream, message(body))]


def any_frame(r):
    kind = r.choice([*range(10), r.randrange(256)])
    size = r.choice([0, 4, 5, 6, 8, r.randrange(64), r.randrange(2000)])
    one = bytearray(frame(kind, r.choice([0, 1, 4, 5, 8, r.randrange(256)]), r.choice([0, 1, 3, r.randrange(40), r.getrandbits(31)]),
                          r.randbytes(size)))
    if r.random() < 0.1:
        one[r.randrange(3)] = r.randrange(256)  # its length is a lie
    return bytes(one)


def send_torn(r, raw, data):
    at = 0
    while at < len(data) and not raw.ended:
        n = r.choice([1, 9, r.randrange(1, 100), 16384])
        raw.send(data[at:at + n])
        at += n
        if r.random() < 0.02:
            raw.read(0.001)


def mutated(r, raw):
    frames = [PREFACE, frame(SETTINGS)]
    for i in range(r.randrange(1, 5)):
        frames += honest(r, 2 * i + 1)
    for _ in range(r.randrange(1, 4)):
        at = r.randrange(len(frames))
        what = r.randrange(4)
        if what == 0:
            frames.insert(at, r.choice(frames))
        elif what == 1 and len(frames) > 1:
            del frames[at]
        elif what == 2 and frames[at]:
            one = bytearray(frames[at])
            one[r.randrange(len(one))] = r.randrange(256)
            frames[at] = bytes(one)
        else:
            frames.insert(at, any_frame(r))
    send_torn(r, raw, b"".join(frames))


def at_random(r, raw):
    raw.send(PREFACE + frame(SETTINGS))
    send_torn(r, raw, b"".join(any_frame(r) for _ in range(r.randrange(1, 40))))


def flood(r, raw):
    raw.send(PREFACE + frame(SETTINGS))
    kinds = [lambda s: frame(PING, 0, 0, bytes(8)), lambda s: frame(SETTINGS), lambda s: frame(PRIORITY, 0, s, bytes(5)),
             lambda s: frame(WINDOW, 0, 0, struct.pack(">I", 1)), lambda s: frame(r.randrange(10, 256)),
             lambda s: headers(s, request(), END_HEADERS | END_STREAM) + frame(RST, 0, s, bytes(4)),
             lambda s: headers(s, request(r.choice(PATHS))) + frame(RST, 0, s, struct.pack(">I", 8))]
    kind = r.choice(kinds)
    raw.socket.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        for i in range(r.randrange(1, 30)):
            raw.send(b"".join(kind(2 * k + 1) for k in range(200 * i, 200 * i + 200)))
            raw.read()


def endless_headers(r, raw):
    raw.send(PREFACE + frame(SETTINGS) + headers(1, request() + b"\x00" + integer(r.getrandbits(30)), 0))
    for _ in range(r.randrange(1, 100)):
        raw.send(frame(CONTINUATION, 0, r.choice([1, 1, 1, 1, 3]), bytes(r.randrange(4000))))


def half(r, raw):
    raw.ended = True
    raw.close()
    stranger = HalfMessages(raw.address, r.randrange(1, 40), r.choice([(16 << 20) - 1, 1 << 20, 70000, 17 << 20]), r.choice(PATHS))
    stranger.push(r.random())
    stranger.close()


def deaf(r, raw):
    raw.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0x7fffffff)))
    raw.socket.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        for i in range(r.randrange(1, 500)):
            raw.send(b"".join(honest(r, 2 * i + 1)) + frame(PING, 0, 0, bytes(8)))


def silent(r, raw):
    raw.send((PREFACE + frame(SETTINGS))[:r.randrange(33)])


def noise(r, raw):
    raw.send(r.randbytes(r.randrange(1, 5000)))


WAYS = [mutated, mutated, mutated, at_random, at_random, flood, endless_headers, half, deaf, silent, noise]


class Campaign:
    def __init__(self):
        self.daemon = Daemon("--allow-plaintext=yes", "--listen=tcp:127.0.0.1:0", "--guard-unix=all", "--max-unfinished-bytes-per-identity=32M")
        host, port = self.daemon.listening("tcp").rsplit(":", 1)
        self.addresses = [(host, int(port)), str(self.daemon.socket)]
        self.client = Client(self.daemon, name="neighbour")
        self.graph = self.client.register(NEG).graph
        for _ in range(50):
            self.serve()
        self.before = rss_mib(self.daemon)
        self.peak = 0

    def serve(self):
        began = time.monotonic()
        assert len(self.client.replay(self.graph, [bytes(16)]).outputs[0]) == 16
        return time.monotonic() - began

    def round(self, seed):
        r = random.Random(seed)
        address = r.choice(self.addresses)
        raw = Raw(address, begin=False, timeout=5)
        raw.address = address
        way = r.choice(WAYS)
        with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
            way(r, raw)
            raw.read(0.01)
        raw.close()
        self.serve()
        grown = rss_mib(self.daemon) - self.before
        self.peak = max(self.peak, grown)
        assert grown < CEILING, f"memory grew by {grown} MiB in {way.__name__}"

    def look(self):
        until("strangers' connections are gone", lambda: self.daemon.stats()["requests"]["connections"] == 1)
        until("strangers' calls are gone", lambda: self.daemon.stats()["requests"]["in_flight"] <= 1)

    def end(self):
        self.look()
        self.client.close()
        self.daemon.stop()


def run(seconds, seed):
    campaign, passed, end = Campaign(), 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            campaign.round(f"{seed}.{passed}")
            passed += 1
            if passed % 100 == 0:
                campaign.look()
        campaign.end()
    except Exception:
        traceback.print_exc()
        sys.stdout.flush()
        print(f"--- log of the daemon ---\n{campaign.daemon.log()[-4000:]}")
        print(f"not ok - round {seed}.{passed}")
        campaign.daemon.kill()
        return passed, 1
    print(f"{passed} connections; memory grew by {campaign.peak} MiB at most")
    return passed, 0


if __name__ == "__main__":
    args = part.arguments(__doc__, 60)
    part.end(*run(args.seconds, str(args.seed)))
