#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work that a user leaves running ends soon after the user is gone, and its neighbour gets the device."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
# Takes many minutes.
LONG = """
N, COUNT = 1024, 4000
lines = [f"  input %x : f32[{N}]", "  %m0 = aten.expand(%x) {size=[" + f"{N},{N}" + "]}"]
lines += [f"  %m{i + 1} = aten.mm(%m{i}, %m{i})" for i in range(COUNT)]
lines += [f"  %s = aten.sum.dim_IntList(%m{COUNT})"]
client = Client(daemon)
graph = client.register('npugraph 1\\ngraph "long" {\\n' + "\\n".join(lines) + '\\n  return "s" = %s\\n}\\n').graph
client.call("Graphs/Capture", pb.CaptureRequest(graph=graph), timeout=PATIENCE)
future = client.method("Graphs/Replay").future(pb.ReplayRequest(graph=graph, inputs=[bytes(4 * N)]), metadata=client.metadata())
print("sent", flush=True)
"""


def stopped(daemon, reason):
    for line in daemon.http("/metrics")[1].splitlines():
        if line.startswith("npugraphd_graph_replays_stopped_total{") and f'"{reason}"' in line or \
                line.startswith("npugraphd_replays_stopped_total{") and f'"{reason}"' in line:
            return int(float(line.split()[-1]))
    return 0


def serve_after(daemon, code, reason):
    """Checks that a neighbour's replay is served although the only slot ran the stranger's."""
    with Client(daemon, name="neighbour") as neighbour:
        graph = neighbour.register(NEG).graph
        neighbour.replay(graph, [bytes(16)])
        stranger = Tenant(daemon, LONG + code)
        assert stranger.line() == "sent"
        time.sleep(1)
        reply = neighbour.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[bytes(16)]), timeout=PATIENCE)
        assert reply.outputs[0] == struct.pack("<4f", -0.0, -0.0, -0.0, -0.0)
        until("it is counted", lambda: stopped(daemon, reason) == 1)


@test("a replay whose client has gone leaves the slot to others")
def gone():
    with open_daemon() as daemon:
        serve_after(daemon, "time.sleep(2)\nos._exit(0)\n", "CANCELLED")


@test("a replay that exceeds max-replay-time is stopped")
def too_long():
    with open_daemon("--max-replay-time=500ms") as daemon:
        serve_after(daemon, 'refused("ABORTED", "REPLAY_STOPPED", future.result)\n', "REPLAY_STOPPED")


if __name__ == "__main__":
    main()
