#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant that takes all it can get: its quotas hold by default, and administrators can still connect."""
import json
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

HOLD_SESSIONS = """
import time
held, last = [], None
while last is None:
    assert len(held) < 64, "no limit"
    try:
        held.append(Client(daemon))
    except grpc.RpcError as error:
        last = Refusal(error)
print(len(held), last.reason, last.text, flush=True)
time.sleep(600)
"""


@test("a tenant that opens all the sessions it can leaves some to others, two of them leave some to administrators")
def sessions():
    with open_daemon("--max-sessions=16") as daemon:
        first = Tenant(daemon, HOLD_SESSIONS)
        n, reason, text = first.line().split(" ", 2)
        assert (int(n), reason) == (12, "QUOTA") and "12 of 12 open sessions (max-sessions-per-identity)" in text, (n, reason, text)
        second = Tenant(daemon, HOLD_SESSIONS, uid=NOBODY - 1)
        n, reason, text = second.line().split(" ", 2)
        assert (int(n), reason) == (2, "RESOURCE_EXHAUSTED") and "reserved for administrators" in text, (n, reason, text)
        with Client(daemon) as a, Client(daemon):
            refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", Client, daemon)
            shares = a.call("Admin/ListShares", pb.ListSharesRequest()).shares
            said = {s.identity: {q.name: (q.used, q.limit, q.refused) for q in s.quotas}["sessions"] for s in shares if s.quotas}
            first.kill()
            second.kill()
            assert said == {f"uid:{NOBODY}": (12, 12, 1), f"uid:{NOBODY - 1}": (2, 12, 0), "uid:0": (2, 0, 0)}, said

MIB = 1 << 20
BOUND = 'npugraph 1\ngraph "g" { param %w : f32[262144] = "w" input %x : f32[262144] %y = aten.add.Tensor(%w, %x) return %y }'


def quota(client, name, who=f"uid:{os.getuid()}"):
    """(held, limit, refused)"""
    for share in client.call("Admin/ListShares", pb.ListSharesRequest()).shares:
        for q in share.quotas:
            if share.identity == who and q.name == name:
                return q.used, q.limit, q.refused
    return None


def held(client, name):
    return quota(client, name)[0]


def settles(client, name, n):
    """Waits for a value: released memory stays in use until the store has written it, or a thread has freed it."""
    until(f"{name} held are {n}", lambda: held(client, name) == n)


def held_of(client, name, who):
    return quota(client, name, who)[0]


def free(client, *buffers):
    client.call("Memory/Free", pb.FreeRequest(buffers=buffers))


def release(client, graph):
    client.call("Graphs/Release", pb.ReleaseRequest(graph=graph))


@test("a buffer counts until nothing holds its memory: not its handle, a binding, or an instance that was replayed")
def bound_bytes():
    with Daemon("--max-bytes-per-identity=4M") as daemon, Client(daemon) as c:
        graphs = []
        for i in range(4):
            w = c.allocate(MIB)
            graphs.append(c.register(BOUND, {"w": w}).graph)
            c.replay(graphs[-1], [bytes(MIB)])
            free(c, w)
            settles(c, "bytes", (i + 1) * MIB)
        assert "4194304 of 4194304 bytes" in refused("QUOTA", "RESOURCE_EXHAUSTED", c.allocate, 1).text
        release(c, graphs.pop())
        settles(c, "bytes", 3 * MIB)
        other = c.allocate(MIB)
        c.call("Graphs/Bind", pb.BindRequest(graph=graphs[0], bindings=[pb.Binding(name="w", buffer=other)]))
        settles(c, "bytes", 3 * MIB)  # what was bound before is free
        c.end_session()
        with Client(daemon) as after:
            settles(after, "bytes", 0)
            after.allocate(4 * MIB)


@test("a loaded tensor counts for each load of it until that one's last holder goes, and is refused before it is read")
def loaded_bytes():
    models = SCRATCH / "models"
    models.mkdir(exist_ok=True)
    head = json.dumps({"w": {"dtype": "F32", "shape": [262144], "data_offsets": [0, MIB]}}).encode()
    (models / "w.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<f", 3.0) * 262144)
    with Daemon("--max-bytes-per-identity=2M", f"--models-dir={models}") as daemon, Client(daemon) as a, Client(daemon) as b:
        first, second = (c.load("w.safetensors").tensors[0].buffer for c in (a, b))
        settles(a, "bytes", 2 * MIB)
        refused("QUOTA", "RESOURCE_EXHAUSTED", a.load, "w.safetensors")
        graph = a.register(BOUND, {"w": first}).graph
        free(a, first)
        settles(a, "bytes", 2 * MIB)  # the graph holds it
        free(b, second)
        settles(a, "bytes", MIB)  # the second load's charge is over, although the first load still holds the same memory
        same = b.load("w.safetensors")
        assert same.shared and a.replay(graph, [bytes(MIB)]).outputs[0] == b.read(same.tensors[0].buffer)
        release(a, graph)
        settles(a, "bytes", MIB)
        assert b.read(same.tensors[0].buffer)[:4] == struct.pack("<f", 3.0)


@test("a kept model's bytes count for who loaded it, also without a session, and are free when it is unloaded")
def kept_bytes():
    model = SOURCE / "examples" / "model"
    if CTL is None or not (model / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Daemon(f"--models-dir={model}") as daemon, Client(daemon, session=False) as c:
        ctl = lambda *args: subprocess.run([CTL, "--quiet", "--address", daemon.address, *args], check=True, capture_output=True)
        ctl("load", str(model), "--name", "kept")
        until("the loading session is gone", lambda: held(c, "sessions") == 0)
        assert held(c, "bytes") > MIB and daemon.used_bytes() >= held(c, "bytes")
        ctl("unload", "kept")
        assert quota(c, "bytes") is None, "nothing is held"

NEG = 'npugraph 1\ngraph "g%d" { input %%x : f32[%d] %%y = aten.neg(%%x) return %%y }'


@test("what objects take of host memory counts, and ends with them: graphs, executables, instances, bindings, buffers")
def host_bytes():
    with Daemon("--max-host-bytes-per-identity=2M") as daemon, Client(daemon) as c:
        before, graphs = held(c, "host_bytes"), []
        steps = [before]
        graphs.append(c.register(NEG % (0, 8)).graph)
        steps.append(held(c, "host_bytes"))
        c.replay(graphs[0], [bytes(32)])
        steps.append(held(c, "host_bytes"))
        buffer = c.allocate(1)
        steps.append(held(c, "host_bytes"))
        assert steps == sorted(set(steps)), steps
        free(c, buffer)
        release(c, graphs.pop())
        settles(c, "host_bytes", before)
        try:
            for i in range(4096):
                graphs.append(c.register(NEG % (i, 8)).graph)
                c.replay(graphs[-1], [bytes(32)])
        except grpc.RpcError as error:
            got = Refusal(error)
        assert got.reason == "QUOTA" and "max-host-bytes-per-identity" in got.text, got.text
        assert len(graphs) > 8
        for graph in graphs:
            release(c, graph)
        settles(c, "host_bytes", before)
        c.replay(c.register(NEG % (0, 8)).graph, [bytes(32)])


@test("a large message counts while a call has it, and its answer until it is sent")
def message_bytes():
    with Daemon("--max-host-bytes-per-identity=4M") as daemon, Client(daemon) as c:
        graph = c.register(NEG % (0, 1 << 18)).graph
        before = held(c, "host_bytes")
        x = bytes(MIB)
        assert len(c.replay(graph, [x]).outputs[0]) == MIB
        until("neither message counts", lambda: held(c, "host_bytes") < before + MIB)
        big = c.register(NEG % (1, 1 << 20)).graph
        assert "max-host-bytes-per-identity" in refused("QUOTA", "RESOURCE_EXHAUSTED", c.replay, big, [bytes(4 * MIB)]).text
        assert len(c.replay(graph, [x]).outputs[0]) == MIB


@test("kept answers of all sessions of an identity are bounded together, and the oldest are forgotten")
def kept_answers():
    with Daemon("--max-answer-bytes-per-identity=64K", "--max-graphs-per-identity=3000") as daemon, Client(daemon) as a, Client(daemon) as b:
        ids = [a.allocate(1, request_id=f"a{i}") for i in range(60)]
        assert [a.allocate(1, request_id=f"a{i}") for i in range(60)] == ids, "all of them are kept"
        kept, limit, refusals = quota(a, "answers")
        assert 0 < kept <= limit == 64 << 10 and refusals == 0
        many = [Client(daemon) for _ in range(4)]
        for n, c in enumerate([b, *many]):
            for i in range(64):
                c.allocate(1, request_id=f"{n}-{i}")
        assert 32 << 10 < held(a, "answers") <= 64 << 10
        assert many[-1].allocate(1, request_id="4-63") == many[-1].allocate(1, request_id="4-63"), "the latest are kept"
        for c in many:
            c.close()
        until("they went with their sessions", lambda: held(a, "sessions") == 2)
        assert held(a, "answers") <= 64 << 10


@test("a model's tables, and its sequences', count for those whose they are; models have a limit of their own")
def model_bytes():
    model = SOURCE / "examples" / "model"
    if CTL is None or not (model / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Daemon(f"--models-dir={model}", "--max-models-per-identity=1") as daemon, Client(daemon) as c:
        ctl = lambda *args: subprocess.run([CTL, "--quiet", "--address", daemon.address, *args], capture_output=True, text=True)
        before = held(c, "host_bytes")
        assert ctl("load", str(model), "--name", "one").returncode == 0
        again = ctl("load", str(model), "--name", "two")
        assert again.returncode != 0 and "max-models-per-identity" in again.stderr, again
        until("the loading sessions are gone", lambda: held(c, "sessions") == 1)
        loaded, info = held(c, "host_bytes"), c.call("Sequences/ListModels", pb.ListModelsRequest()).models[0]
        assert held(c, "models") == 1 and loaded - before > 4 * info.num_blocks * info.block_size
        sequence = c.call("Sequences/Open", pb.OpenRequest(model="one", prompt=[1, 2, 3])).sequence
        assert held(c, "host_bytes") - loaded > 4 * info.max_context
        fork = c.call("Sequences/Fork", pb.ForkRequest(sequence=sequence)).sequence
        assert held(c, "host_bytes") - loaded > 8 * info.max_context
        for s in sequence, fork:
            c.call("Sequences/Close", pb.CloseRequest(sequence=s))
        until("the sequences' tables are free", lambda: held(c, "host_bytes") <= loaded)
        assert ctl("unload", "one").returncode == 0
        until("the model's are, and its graphs'", lambda: held(c, "host_bytes") <= before)
        settles(c, "models", 0)


TAKE_BACK = """
c = Client(daemon)
if SLOW_FREE:
    freed = c.method("Memory/Free").future(pb.FreeRequest(buffers=[c.allocate(100 << 20)]), metadata=c.metadata())
    time.sleep(0.3)
for _ in range(N):
    call = c.method(METHOD).future(REQUEST, metadata=c.metadata())
    time.sleep(0.01)
    call.cancel()
print("all are taken back", flush=True)
sys.stdin.readline()
refused("QUOTA", "RESOURCE_EXHAUSTED", c.call, METHOD, REQUEST)
print("one more is refused", flush=True)
sys.stdin.readline()
"""


def take_back(daemon, method, request, n, slow_free):
    tenant = Tenant(daemon, f"METHOD, REQUEST, N, SLOW_FREE = {method!r}, pb.{request}, {n}, {slow_free}\n" + TAKE_BACK)
    assert tenant.line() == "all are taken back"
    return tenant


@test("calls that their client takes back count until the daemon is done with them")
def withdrawn():
    with open_daemon("--max-inflight=64", env={"NPUGRAPHD_FAULT": "free-slow:0:300"}) as daemon:
        tenant = take_back(daemon, "Memory/Allocate", "AllocateRequest(bytes=16)", 80, True)
        other = Tenant(daemon, "c = Client(daemon)\nfor i in range(8):\n    c.ping(i)\nprint('served', flush=True)", NOBODY - 1)
        assert other.line() == "served"
        with Client(daemon) as c:
            assert 40 < held_of(c, "calls", f"uid:{NOBODY}") <= 48
        tenant.kill()


@test("so do those that only administer, which max-inflight does not count")
def withdrawn_control():
    with open_daemon(f"--store-dir={SCRATCH / 'slow'}", "--max-calls-per-identity=8", env={"NPUGRAPHD_FAULT": "store-slow:0:300"}) as daemon:
        tenant = take_back(daemon, "Admin/ListStore", "ListStoreRequest()", 40, False)
        with Client(daemon) as c:
            assert held_of(c, "calls", f"uid:{NOBODY}") <= 9
        tenant.say()
        assert tenant.line() == "one more is refused"
        tenant.kill()


if __name__ == "__main__":
    main()
