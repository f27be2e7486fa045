#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays of several processes on a graph with a batch symbol run as one, and each gets its own rows back."""
import struct
import threading

from harness import *

TEXT = """npugraph 1
graph "together" {
  sym B 1..32 batch buckets 1, 32
  input %x : f32[B,4]
  %s = aten._softmax(%x) {dim=1}
  %y = aten.add.Tensor(%x, %x)
  return "y" = %y, "s" = %s
}"""
PICK = """npugraph 1
graph "pick" {
  sym B 1..8 batch buckets 8
  param %w : f32[4]
  input %i : i32[B]
  %y = aten.index.Tensor(%w, %i)
  return "y" = %y
}"""
# A chain of products that occupies the device's only slot; it is made longer until that takes long enough.
SLOW = """npugraph 1
graph "slow {n}" {{
  input %x : f32[512,512]
{body}
  return "y" = %v{n}
}}"""
ONE = struct.pack("<4f", 0, 0, 0, 0)
SIMULATOR = BUILD / "devices" / "ascend" / "sim" / ".libs"


def slow_text(n):
    body = "\n".join(f"  %v{i + 1} = aten.mm({'%x' if i == 0 else f'%v{i}'}, %x)" for i in range(n))
    return SLOW.format(n=n, body=body)


def metric(daemon, name):
    found = re.search(rf"^npugraphd_{name} (\S+)$", daemon.http("/metrics")[1], re.M)
    return float(found[1]) if found else 0.0


class Held:
    """The device's slot is taken while `then` runs, and as many requests as it says are queued when it is let go. `then` gets
    a function that says whether the slot is taken still."""

    def __init__(self, daemon, client, n=32):
        self.daemon, self.client, self.n = daemon, client, n

    def run(self, queued, then, prepare=lambda: None):
        for _ in range(8):
            prepare()
            graph = self.client.register(slow_text(self.n)).graph
            x = bytes(512 * 512 * 4)
            self.client.replay(graph, [x], outputs=[0])  # captured
            before = metric(self.daemon, "merged_replays_total")
            begun_before = metric(self.daemon, "queue_seconds_count")  # counts replays that have begun
            held = threading.Thread(target=lambda: self.client.replay(graph, [x]))
            held.start()
            until("the device is held", lambda: metric(self.daemon, "queue_seconds_count") > begun_before)
            begun = then(held.is_alive)
            while held.is_alive() and metric(self.daemon, "queue_depth") < queued:
                time.sleep(0.002)
            in_time = held.is_alive()
            held.join()
            result = [f() for f in begun]
            if in_time:
                return result, int(metric(self.daemon, "merged_replays_total") - before)
            self.n *= 2  # the replay was too short, or the machine was busy
        raise Skip("the device could not be held for long enough")


CHILD = """
graph = None
with Client(daemon, name="child {i}") as c:
    graph = c.register(pathlib.Path({text!r}).read_text()).graph
    rows = {rows}
    x = struct.pack(f"<{{4 * rows}}f", *[{i} * 1000 + k for k in range(4 * rows)])
    alone = c.replay(graph, [x], [rows])
    for line in sys.stdin:
        r = c.replay(graph, [x], [rows], timing=True)
        assert list(struct.unpack(f"<{{4 * rows}}f", r.outputs[0])) == [2.0 * ({i} * 1000 + k) for k in range(4 * rows)]
        assert list(r.outputs) == list(alone.outputs), "other bits than alone"
        t = r.timing
        assert t.copy_in_ns + t.replay_ns + t.copy_out_ns == r.device_ns, r
        print(f"ran {{t.requests}} {{t.charged_ns}} {{r.device_ns}}", flush=True)
"""


class Worker(Child):
    """A child that replays once for each line that it gets."""

    def __init__(self, daemon, code):
        prelude = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); sys.argv = ['child']\n" \
                  f"import struct\nfrom harness import *\nclass D:\n    address = {daemon.address!r}\n    channel = Daemon.channel\ndaemon = D()\n"
        self.process = subprocess.Popen([*END_WITH_US, sys.executable, "-u", "-c", prelude + code], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tell(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err


def warm(c):
    """The bucket that merged replays run in is captured, so that nobody has to wait for it."""
    graph = c.register(TEXT).graph
    c.replay(graph, [ONE * 32], [32])
    return graph


def run_processes(daemon, n):
    path = daemon.dir / "together.npugraph"
    path.write_text(TEXT)
    rows = [1, 2, 1, 3, 1, 4, 2, 1]
    with Client(daemon) as c:
        warm(c)
        children = [Worker(daemon, CHILD.format(i=i, rows=n, text=str(path))) for i, n in enumerate(rows)]
        # Wait until all are there: each has replayed alone, and holds a session.
        until("the children have replayed", lambda: requests(c) >= len(rows) + 1)
        rows_before = 0

        def tell(_held):
            nonlocal rows_before
            rows_before = metric(daemon, "merged_rows_total")  # rows of this attempt
            for child in children:
                child.tell()
            return [child.line for child in children]
        lines, merged = Held(daemon, c, n).run(len(children), tell)
        said = [[int(v) for v in line.split()[1:]] for line in lines]
        assert merged == 1, (merged, said)
        assert all(n == len(rows) for n, _, _ in said), said
        device = {d for _, _, d in said}
        assert len(device) == 1 and abs(sum(q for _, q, _ in said) - device.pop()) <= len(rows), said
        total = sum(rows)
        for n, (_, charged, whole) in zip(rows, said):
            assert abs(charged - whole * n / total) <= 2, (n, said)
        assert metric(daemon, "merged_rows_total") - rows_before == total
        info = next(g for g in graphs(c) if g["name"] == "together")
        assert info["merged_replays"] >= 1 and info["merged_requests"] >= len(rows), info
        for child in children:
            child.end()


@test("eight processes that wait for the device run in one replay, and each has its own rows, as alone")
def processes(daemon):
    run_processes(daemon, 32)


def graphs(c):
    answer = c.call("Graphs/List", pb.ListGraphsRequest())
    return [{"name": g.name, "replays": g.replays, "merged_replays": g.merged_replays, "merged_requests": g.merged_requests}
            for g in answer.graphs if g.name == "together"]


def requests(c):
    """Returns the number of requests that were replayed; some may have run together already."""
    return sum(g["replays"] - g["merged_replays"] + g["merged_requests"] for g in graphs(c))


@test("one that is cancelled, and a client that is killed, while they wait leave; the others run together")
def leavers(daemon):
    path = daemon.dir / "together.npugraph"
    path.write_text(TEXT)
    with Client(daemon) as c, Client(daemon) as c2:
        graph = warm(c)
        killed = None

        def prepare():
            nonlocal killed
            seen = requests(c)
            killed = Worker(daemon, CHILD.format(i=1, rows=1, text=str(path)))
            until("the child has replayed", lambda: requests(c) > seen or killed.process.poll() is not None)

        def start(held):
            killed.tell()
            calls = [c.method("Graphs/Replay").future(
                pb.ReplayRequest(graph=graph, symbols=[1], inputs=[ONE], stream=i, timing=True), metadata=c.metadata())
                for i in range(4)]
            until("five wait", lambda: metric(daemon, "queue_depth") >= 5 or not held())
            calls[1].cancel()
            killed.kill()
            until("two have left", lambda: metric(daemon, "queue_depth") <= 3)
            return [calls[i].result for i in (0, 2, 3)]
        answers, merged = Held(daemon, c2, 128).run(3, start, prepare)
        assert merged == 1, merged
        assert [a.timing.requests for a in answers] == [3, 3, 3], answers


def run_bad_row(daemon, n):
    with Client(daemon) as c, Client(daemon) as c2:
        w = c.allocate(16, "w")
        c.write(w, struct.pack("<4f", 1, 2, 3, 4))
        graph = c.register(PICK, {"w": w}).graph
        c.replay(graph, [struct.pack("<i", 1)], [1])
        undone = metric(daemon, "merges_undone_total")

        def start(_held):
            index = lambda i: [struct.pack("<i", i)]
            return [c.method("Graphs/Replay").future(
                pb.ReplayRequest(graph=graph, symbols=[1], inputs=index(9 if i == 1 else i), stream=i, timing=True),
                metadata=c.metadata()).exception if i == 1 else c.method("Graphs/Replay").future(
                pb.ReplayRequest(graph=graph, symbols=[1], inputs=index(i), stream=i, timing=True), metadata=c.metadata()).result
                for i in range(3)]
        (first, error, last), _ = Held(daemon, c2, n).run(3, start)
        assert Refusal(error).reason == "INDEX_RANGE", Refusal(error).reason
        assert first.outputs[0] == struct.pack("<f", 1) and last.outputs[0] == struct.pack("<f", 3)
        assert first.timing.requests == 1 and metric(daemon, "merges_undone_total") > undone


@test("an index out of range fails its own request, and not those that ran with it")
def bad_row(daemon):
    run_bad_row(daemon, 32)


@test("an NPU (the simulator) runs them together too: one captured graph for all, each with its rows, and a bad one alone")
def on_npu():
    if not (SIMULATOR / "libascendcl.so").exists():
        raise Skip(f"the simulator was not built in {SIMULATOR}")
    with Daemon("--inline-limit=0", "--device=ascend", f"--ascend-libs={SIMULATOR}") as daemon:
        run_processes(daemon, 1)
        run_bad_row(daemon, 1)
        with Client(daemon) as c:
            found = c.call("Admin/Devices", pb.DevicesRequest(capabilities=True)).devices[0]
        assert found.name == "ascend:0" and ", eager 0, " in found.capabilities, found


@test("what a batch symbol cannot be is refused in words")
def refusals(daemon):
    with Client(daemon) as c:
        text = lambda body: 'npugraph 1\ngraph "g" {\n sym B 1..8 batch buckets 8\n' + body + "\n}"
        said = refused("GRAPH_NOT_ROWWISE", "INVALID_ARGUMENT", c.register,
                       text(" input %x : f32[B,2]\n input %t : f32[1]\n %y = aten.mul.Tensor(%x, %t)\n return %y"))
        assert "batch" in said.text and "without `batch`" in said.text, said.text
        refused("GRAPH_NOT_ROWWISE", "INVALID_ARGUMENT", c.register,
                text(" state %s : f32[2]\n input %x : f32[B,2]\n %a = aten.add.Scalar(%s) {other=1}\n aten.copy_(%s, %a)\n return %x"))
        refused("GRAPH_PARSE", "INVALID_ARGUMENT", c.register, 'npugraph 1\ngraph "g" {\n sym B 1..8 batch\n input %x : f32[B]\n return %x\n}')
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.register, TEXT, None, {"merge_replays": "maybe"})
        described = c.call("Graphs/Describe", pb.DescribeRequest(graph=c.register(TEXT).graph))
        assert described.info.symbols[0].batch and "batch buckets 1, 32" in described.text, described


@test("the option merge_replays=false keeps a graph's replays apart, and so does the daemon's --merge=no")
def apart():
    for options, graph_options in (("--merge=no",), None), ((), {"merge_replays": "false"}):
        with Daemon("--inline-limit=0", *options) as daemon, Client(daemon) as c, Client(daemon) as c2:
            graph = c.register(TEXT, None, graph_options).graph
            c.replay(graph, [ONE * 32], [32])
            c.replay(graph, [ONE], [1])

            def start(_held):
                return [c.method("Graphs/Replay").future(
                    pb.ReplayRequest(graph=graph, symbols=[1], inputs=[ONE], stream=i, timing=True), metadata=c.metadata()).result
                    for i in range(4)]
            answers, merged = Held(daemon, c2).run(4, start)
            assert merged == 0 and [a.timing.requests for a in answers] == [1] * 4, answers


if __name__ == "__main__":
    main("--inline-limit=0")
