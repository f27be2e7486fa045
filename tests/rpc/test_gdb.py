#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gdb.py shows a daemon's programs, run queues, sessions and plans, live and in a core dump."""
import struct

from harness import *

GRAPH = """npugraph 1
graph "shown" {
  sym B 1..8 buckets 8
  input %x : f32[B,4]
  %y = aten.neg(%x)
  %z = aten.exp(%y)
  return "z" = %z
}
"""
ROWS = [struct.pack("<8f", *range(8))]
SCRIPT = SOURCE / "scripts" / "gdb.py"


def gdb(*arguments, commands):
    """Returns gdb's output for the commands. gdb reads no user's settings, and asks no server for debug information."""
    if shutil.which("gdb") is None:
        raise Skip("gdb is not installed")
    run = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", *arguments, "-x", str(SCRIPT),
                          *(word for command in commands for word in ("-ex", command))],
                         capture_output=True, text=True, timeout=4 * PATIENCE, stdin=subprocess.DEVNULL, check=False)
    if "ptrace: Operation not permitted" in run.stderr:
        raise Skip("this machine lets nobody attach to a process (ptrace)")
    if "Scripting in the \"Python\" language is not supported" in run.stderr:
        raise Skip("this gdb has no Python")
    assert "Python Exception" not in run.stderr and "Error occurred in Python" not in run.stderr, run.stderr
    return run.stdout + run.stderr


def attached(daemon, *commands):
    out = gdb("-p", str(daemon.process.pid), commands=commands)
    if SANITIZER and "No struct type named ngd_daemon" in out:
        raise Skip("this build knows lines only (-g1)")
    return out


def found(pattern, out):
    match = re.search(pattern, out, re.M)
    assert match, f"no line like {pattern!r}:\n{out[-4000:]}"
    return match


def check_all(out, session):
    found(r"^1 programs$", out)
    found(r'^program 0x\w+: graph "shown" [0-9a-f]{16} on host:0, 2 nodes, 1 captures, 2 replays, 0 eager runs', out)
    found(r"^  executable 0x\w+: key [0-9a-f]{16}, B==8, 2 runs, expected \S+ ms, plan 0x\w+: 2 calls, \d+ pool bytes$", out)
    found(r"^  binding 0x\w+: generation \d+, 0 buffers, \d+ references$", out)
    found(r"^queue host:0: policy fair, 0 of 2 slots busy, 0 items queued, 0 held by caps, 0 requests wait$", out)
    found(r"^  slot 1: idle, worker sleeps, stream 0x\w+, pool 0x\w+, runs nothing$", out)
    found(r"^1 sessions$", out)
    found(rf'^session 0x\w+: id {session}, client "seen", identity \S+, open, 0 buffers, 1 graphs, 0 sequences, 0 groups', out)


def check_plan(out):
    found(r'^plan 0x\w+ of graph "shown": key [0-9a-f]{16}, B==8, 2 calls, \d+ tensors, \d+ pool bytes, 1 streams', out)
    found(r"^  call 0: aten.neg t\d+ -> t\d+, node 0, stream 0, workspace 0 bytes$", out)
    found(r"^  call 1: aten.exp t\d+ -> t\d+, node 1, stream 0, workspace 0 bytes$", out)
    found(r"^  t0: f32\[8,4\], strides 4,1, pool \+ \d+, 128 bytes, root t0$", out)


@test("gdb shows programs, queues, sessions and a plan of a live daemon and of its core")
def shows():
    with Daemon("--slots=2") as daemon, Client(daemon, name="seen") as c:
        g = c.register(GRAPH).graph
        for _ in range(2):
            c.replay(g, ROWS, [2])
        commands = ("ngd-programs", "ngd-queues", "ngd-sessions")
        core = SCRATCH / "core"
        # A sanitizer's shadow would make the core larger than a disk.
        out = attached(daemon, *commands, *([] if SANITIZER else [f"generate-core-file {core}"]))
        check_all(out, c.id)
        plan = found(r"plan (0x\w+): 2 calls", out)[1]
        check_plan(attached(daemon, f"ngd-plan {plan}"))
        if SANITIZER:
            return
        out = gdb(DAEMON, str(core), commands=(*commands, f"ngd-plan {plan}"))
        check_all(out, c.id)
        check_plan(out)
        assert "usage: ngd-plan ADDR" in gdb(DAEMON, str(core), commands=["ngd-plan"])


@test("gdb shows which request a slot runs and which ones wait")
def queued():
    daemon = Daemon("--slots=1", "--inline-limit=0", env={"NPUGRAPHD_FAULT": "host-stuck"})
    with contextlib.suppress(grpc.RpcError), Client(daemon) as c:
        g = c.register(GRAPH).graph
        c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[2]))
        calls = [c.method("Graphs/Replay").future(pb.ReplayRequest(graph=g, inputs=ROWS, symbols=[2], stream=i),
                                                  metadata=c.metadata()) for i in range(3)]
        until("two requests wait", lambda: daemon.stats()["devices"][0]["queue_depth"] == 2)
        try:
            out = attached(daemon, "ngd-queues")
        finally:
            daemon.kill()
        assert all(call.exception() for call in calls)
    found(r"^queue host:0: policy fair, 1 of 1 slots busy, 2 items queued, 0 held by caps, 2 requests wait$", out)
    found(r"^  slot 0: busy, .* runs graph [0-9a-f]{16}$", out)
    items = re.findall(r'^  queued request 0x\w+ of graph "shown": class normal, share \S+, cost \S+ ms, no deadline$', out, re.M)
    assert len(items) == 2, out


@test("the commands say what is wrong where there is no daemon")
def nothing():
    out = gdb("/bin/true", commands=("ngd-programs", "ngd-plan"))
    assert "no daemon here" in out and "usage: ngd-plan ADDR" in out, out


main()
