#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log lines that a stranger can cause are bounded, and the omitted ones are counted."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MANY = 3000
PERIOD = 10  # seconds of a limit's period

# gRPC logs for each such call that its metadata are wrong.
ERRORS_IN_GRPC = r"""
from http2 import *
raw, sent, answered = Raw(str(daemon.socket)), 0, 0
def look(seconds):
    global answered
    answered += sum(kind == HEADERS and flags & END_STREAM > 0 for kind, flags, _, _ in raw.read(seconds))
def call(te):
    global sent
    assert raw.send(headers(2 * sent + 1, request(te=te), END_HEADERS | END_STREAM)), "the connection has ended"
    sent += 1
    look(0)
    until("some are answered", lambda: (sent - answered <= 20 or look(0.1), sent - answered <= 20)[1])
def wait():
    until("all are answered", lambda: (look(0.1), answered == sent)[1])
call(b"x\n2026-11-22T23:59:59.000Z notice daemon: forged\n")
for _ in range(%d):
    call(b"y" * 4000)
wait()
print("sent", flush=True)
sys.stdin.readline()
call(b"z")
wait()
print("again", flush=True)
""" % MANY


def left_out(daemon, component):
    return sum(int(n) for n in re.findall(f" {component}: ([0-9]+) lines like the next one were left out", daemon.log()))


@test("a client that causes errors inside gRPC adds a bounded number of lines, and is told of the others")
def errors_in_grpc():
    with open_daemon() as daemon:
        before, began = len(daemon.log()), time.monotonic()
        stranger = Tenant(daemon, ERRORS_IN_GRPC)
        assert stranger.line() == "sent"
        periods = 1 + int((time.monotonic() - began) / PERIOD)
        lines = daemon.log()[before:].splitlines()
        about = [line for line in lines if "grpc: gRPC reports: " in line and "te" in line]
        assert 0 < len(about) <= 10 * periods, (len(about), lines[:3])
        assert len(lines) < 100 * periods and sum(map(len, lines)) < 40000 * periods, len(lines)
        assert not any(line.startswith("2026-11-22T23:59:59.000Z notice daemon: forged") for line in lines)
        time.sleep(PERIOD + 1)
        stranger.say()
        assert stranger.line() == "again"
        until("it is told how many were left out", lambda: left_out(daemon, "grpc") >= MANY - len(about) - 10 * periods)
        stranger.wait()


@test("a client whose calls fail adds a bounded number of lines")
def failed_calls():
    with open_daemon() as daemon:
        began = time.monotonic()
        stranger = Tenant(daemon, f"""
client = Client(daemon, session=False)
free = client.method("Memory/Free")
for _ in range({MANY}):
    try:
        free(pb.FreeRequest(buffers=[1]))
    except grpc.RpcError:
        pass
print("failed", flush=True)
""")
        assert stranger.line() == "failed"
        periods = 1 + int((time.monotonic() - began) / PERIOD)
        assert 0 < daemon.log().count("Memory/Free failed") <= 1000 * periods
        stranger.wait()


if __name__ == "__main__":
    main()
