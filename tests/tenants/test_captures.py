#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures of one user do not keep those of another one waiting: they are taken in turns."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
MANY = 800
# Captures of a graph whose planning takes a tenth of a second or more, all at once.
FLOOD = """
N = 20000
lines = ["  input %v0 : f32[64]"] + [f"  %v{k + 1} = aten.add.Tensor(%v{k}, %v{max(0, k - 3)})" for k in range(N)]
client = Client(daemon)
graph = client.register('npugraph 1\\ngraph "big" {\\n' + "\\n".join(lines) + '\\n  return "o" = %v20000\\n}\\n').graph
capture = client.method("Graphs/Capture")
def ask(n):
    return [capture.future(pb.CaptureRequest(graph=graph, dry_run=True), metadata=client.metadata()) for _ in range(n)]
"""


def captures_of(client, identity=f"uid:{NOBODY}"):
    """Returns an identity's captures under way, their limit, and the number of refusals."""
    for share in client.call("Admin/ListShares", pb.ListSharesRequest()).shares:
        if share.identity == identity:
            return next(q for q in share.quotas if q.name == "captures")
    return None


def waiting(client):
    return getattr(captures_of(client), "used", 0)


@test("a neighbour's first replay waits for one capture of a flood of them at most")
def neighbour():
    with open_daemon() as daemon, Client(daemon, name="neighbour") as client:
        flood = Tenant(daemon, FLOOD + f"all = ask({MANY})\nprint('sent', flush=True)\nsys.stdin.readline()\nos._exit(0)\n")
        assert flood.line() == "sent"
        until("they wait", lambda: waiting(client) > MANY // 2)
        before = waiting(client)
        graph = client.register(NEG).graph
        reply = client.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[bytes(16)]), timeout=PATIENCE)
        assert reply.outputs[0] == struct.pack("<4f", -0.0, -0.0, -0.0, -0.0)
        # In the order of arrival, all captures of the flood would have come first.
        assert waiting(client) > before // 2, f"{waiting(client)} of {before} wait still"
        # When a client leaves, its captures leave the queue, and its running one ends.
        flood.say()
        until("those of who has gone are dropped", lambda: waiting(client) == 0)


@test("captures of an identity are bounded, and refused with a reason")
def bounded():
    with open_daemon("--max-captures-per-identity=8") as daemon, Client(daemon) as client:
        flood = Tenant(daemon, FLOOD + """
answers = [f.exception() for f in ask(40)]
refused = [e for e in answers if e]
assert 0 < len(refused) < 40, answers
for e in refused:
    assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "max-captures-per-identity" in e.details(), e
print("refused", flush=True)
sys.stdin.readline()
""")
        assert flood.line() == "refused"
        quota = captures_of(client)
        assert (quota.used, quota.limit) == (0, 8) and quota.refused > 0, quota
        flood.say()
        flood.wait()


@test("a capture that takes too long is stopped")
def too_long():
    with open_daemon("--max-capture-time=1ms") as daemon:
        flood = Tenant(daemon, FLOOD + """
refused("CAPTURE_STOPPED", "ABORTED", ask(1)[0].result)
refused("CAPTURE_STOPPED", "ABORTED", lambda: client.call("Graphs/Capture", pb.CaptureRequest(graph=graph)))
print("stopped", flush=True)
""")
        assert flood.line() == "stopped"
        flood.wait()


if __name__ == "__main__":
    main()
