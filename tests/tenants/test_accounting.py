#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What identities are charged with is what they hold: random operations of several at once, by a seed (NGD_TEST_SEED).

Each tenant keeps a list of what it believes to hold. Now and then all of them stop, and what the daemon has counted must be that:
sessions, graphs, sequences and bytes of each identity, and of all together what the device has in buffers. When all have gone,
nothing is counted; the daemon itself aborts at its end (in debug builds) if something is.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
ROUNDS, STEPS, TENANTS = 5, 60, 2

TENANT = r"""
import json, random
GRAPH = 'npugraph 1\ngraph "g%d" { param %%w : f32[%d] = "w" state %%s : f32[%d] = "s" input %%x : f32[%d] %%y = aten.add.Tensor(%%w, %%x) aten.copy_(%%s, %%y) return %%y }'
SIZES = (16, 4096, 50000)
r = random.Random(SEED)


class Session:
    def __init__(self):
        self.client = Client(daemon)
        self.buffers, self.graphs, self.sequences = {}, {}, []  # id: (elements, serial), id: (elements, serials), ids

    def allocate(self):
        n = r.choice(SIZES)
        self.buffers[self.client.allocate(4 * n, request_id=r.choice((None, f"id{r.random()}")))] = (n, object())

    def register(self):
        n = r.choice(SIZES)
        fitting = [(b, key) for b, (m, key) in self.buffers.items() if m == n]
        if len(fitting) < 2:
            return
        w, s = r.sample(fitting, 2)
        graph = self.client.register(GRAPH % (r.randrange(3), n, n, n), {"w": w[0], "s": s[0]}).graph
        self.graphs[graph] = (n, [w[1], s[1]])

    def replay(self):
        if self.graphs:
            graph, (n, _) = r.choice(list(self.graphs.items()))
            self.client.replay(graph, [bytes(4 * n)], eager=r.random() < 0.2)

    def capture(self):
        if self.graphs:
            self.client.call("Graphs/Capture", pb.CaptureRequest(graph=r.choice(list(self.graphs))))

    def rebind(self):
        for graph, (n, keys) in list(self.graphs.items())[:1]:
            for b, (m, key) in self.buffers.items():
                if m == n and key not in keys:
                    self.client.call("Graphs/Bind", pb.BindRequest(graph=graph, bindings=[pb.Binding(name="w", buffer=b)]))
                    self.graphs[graph] = (n, [key, keys[1]])
                    return

    def free(self):
        if self.buffers:
            b = r.choice(list(self.buffers))
            self.client.call("Memory/Free", pb.FreeRequest(buffers=[b]))
            del self.buffers[b]

    def release(self):
        if self.graphs:
            graph = r.choice(list(self.graphs))
            self.client.call("Graphs/Release", pb.ReleaseRequest(graph=graph))
            del self.graphs[graph]

    def open(self):
        if MODEL_LOADED:
            self.sequences.append(self.client.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[1, 2, 3])).sequence)

    def step(self):
        if self.sequences:
            self.client.call("Sequences/Step", pb.StepRequest(sequence=r.choice(self.sequences)))

    def close(self):
        if self.sequences:
            self.client.call("Sequences/Close", pb.CloseRequest(sequence=self.sequences.pop()))

    def fail(self):
        try:
            r.choice((lambda: self.client.allocate(1 << 45), lambda: self.client.register("npugraph 1\n"),
                      lambda: self.client.register(GRAPH % (9, 8, 8, 8), {"w": 12345})))()
        except grpc.RpcError:
            return
        assert False, "was accepted"

    def bytes(self, sizes):
        sizes.update((key, 4 * n) for n, key in self.buffers.values())
        sizes.update((key, 4 * n) for n, keys in self.graphs.values() for key in keys)


sessions = []
OPS = [Session.allocate] * 6 + [Session.register] * 4 + [Session.replay] * 4 + [
    Session.capture, Session.rebind, Session.free, Session.free, Session.release, Session.open, Session.step, Session.close, Session.fail]


def step():
    what = r.random()
    if what < 0.05 or not sessions:
        if len(sessions) < 4:
            sessions.append(Session())
    elif what < 0.08:
        gone = sessions.pop(r.randrange(len(sessions)))
        if r.random() < 0.5:
            gone.client.end_session()
        gone.client.channel.close()
    else:
        r.choice(OPS)(r.choice(sessions))


for line in sys.stdin:
    for _ in range(int(line)):
        step()
    sizes = {}
    for s in sessions:
        s.bytes(sizes)
    print(json.dumps({"sessions": len(sessions), "graphs": sum(len(s.graphs) for s in sessions),
                      "sequences": sum(len(s.sequences) for s in sessions), "bytes": sum(sizes.values())}), flush=True)
"""


def counted(client):
    """{identity: {kind: held}}"""
    shares = client.call("Admin/ListShares", pb.ListSharesRequest()).shares
    return {s.identity: {q.name: q.used for q in s.quotas} for s in shares if s.quotas}


def held_by(client):
    """Returns what is charged, without the asking client's own connection and call."""
    return {who: {k: v for k, v in kinds.items() if v and k not in ("connections", "calls")} for who, kinds in counted(client).items()}


@test("what several identities are charged with is what they hold, after any operations, and nothing in the end")
def random_operations():
    seed = int(os.environ.get("NGD_TEST_SEED", random.randrange(1 << 30)))
    print(f"# NGD_TEST_SEED={seed}", flush=True)
    loaded = CTL is not None and (MODEL / "model.safetensors").exists()
    with open_daemon(*([f"--models-dir={MODEL}"] if loaded else [])) as daemon:
        if loaded:
            subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, capture_output=True)
        with Client(daemon, session=False) as admin:
            tenants = {f"uid:{NOBODY - i}": Tenant(daemon, f"SEED = {seed + i}\nMODEL_LOADED = {loaded}\n" + TENANT, uid=NOBODY - i)
                       for i in range(TENANTS)}
            for _ in range(ROUNDS):
                for tenant in tenants.values():
                    tenant.say(str(STEPS))
                for who, tenant in tenants.items():
                    believed = json.loads(tenant.line())
                    of = lambda: {k: v for k, v in counted(admin).get(who, dict.fromkeys(believed, 0)).items() if k in believed}
                    try:
                        until("the counts are what is held", lambda: of() == believed)
                    except AssertionError:
                        raise AssertionError(f"seed {seed}: {who} holds {believed}, and is charged with {of()}") from None
                everybody = sum(kinds["bytes"] for kinds in counted(admin).values())
                buffers = admin.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers
                # The pools of slots belong to the daemon.
                there = sum(b.bytes for b in buffers if b.kind != pb.BUFFER_KIND_POOL or b.label.startswith("prompts of model"))
                # Sizes on the device are rounded up, by less than 64 bytes each.
                assert 0 <= there - everybody < 64 * len(buffers) + 1, (seed, there, everybody)
            for tenant in tenants.values():
                tenant.wait()
            if loaded:
                subprocess.run([CTL, "--quiet", "--address", daemon.address, "unload", "m"], check=True, capture_output=True)
            try:
                until("nothing is left", lambda: not any(held_by(admin).values()))
            except AssertionError:
                raise AssertionError(f"seed {seed}: in the end there is {held_by(admin)}") from None


if __name__ == "__main__":
    main()
