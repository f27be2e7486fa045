#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The doctor, traces, verified replays and data dumps. Faults are injected where the build has fault points."""
import random
import struct

from harness import *

PROBE = subprocess.run([DAEMON, "--check-config"], env={**os.environ, "NPUGRAPHD_FAULT": "replay-wrong:9:1"}, capture_output=True, text=True)
FAULTS = PROBE.returncode == 0


def graph(body, name="g"):
    return f'npugraph 1\ngraph "{name}" {{\n{body}\n}}\n'


# Nodes that no pass may change: each is read, and none is a no-op.
CHAIN = graph('  sym B 1..8 buckets 8\n  param %w : f32[4,4] = "w"\n  state %s : f32[4] = "s"\n  input %x : f32[B,4]\n'
              '  %a = aten.mm(%x, %w)\n  %b = aten.silu(%a)\n  %c = aten.mul.Tensor(%b, %a)\n  %t = aten.sum.dim_IntList(%w) {dim=[0]}\n'
              '  %n = aten.add.Tensor(%s, %t)\n  aten.copy_(%s, %n)\n  %d = aten.add.Tensor(%c, %n)\n  return "d" = %d', "chain")
# Nodes that passes change: a double negation, equal nodes, a no-op.
LOOSE = graph('  input %x : f32[8]\n  %z = aten.clone(%x)\n  %e1 = aten.exp(%z)\n  %e2 = aten.exp(%x)\n  %y = aten.add.Tensor(%e1, %e2)\n  return "y" = %y',
              "loose")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def filled(c, *values):
    buffer = c.allocate(4 * len(values))
    c.write(buffer, floats(*values))
    return buffer


WEIGHTS = [0.5 + i / 8 for i in range(16)]
SUMS = [sum(WEIGHTS[i::4]) for i in range(4)]


def chain(c, **options):
    state = filled(c, 0, 0, 0, 0)
    return c.register(CHAIN, {"w": filled(c, *WEIGHTS), "s": state}, options), state


def run(c, g, b=3, **kwargs):
    return unfloats(c.replay(g, [floats(*[i / 4 for i in range(4 * b)])], [b], **kwargs).outputs[0])


def doctor(c, **kwargs):
    return c.call("Graphs/Doctor", pb.DoctorRequest(**kwargs))


def explain(c, g):
    return [e for e in c.call("Graphs/Explain", pb.ExplainRequest(graph=g)).events]


def npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    n = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + n].decode(), {"__builtins__": {}}, {"True": True, "False": False})
    assert (10 + n) % 64 == 0 and not header["fortran_order"], header
    return header["descr"], header["shape"], data[10 + n:]


def ctl(daemon, *arguments, status=0):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    done = subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status in (0, 1) else done.stderr


def needs_faults():
    if not FAULTS:
        raise Skip("this build has no fault points; configure with --enable-fault")


@test("doctor: a healthy graph agrees in every step, whatever passes change, and keeps its states")
def healthy(daemon):
    with Client(daemon) as c:
        r, state = chain(c)
        run(c, r.graph)
        before = c.read(state)
        got = doctor(c, graph=r.graph)
        names = [s.name for s in got.steps]
        assert got.healthy and names[0] == "validate" and names[1] == "eager, no passes", got
        assert {"eager, with passes", "replay of a new capture", "replay of the cached executable"} <= set(names), names
        assert [word(s, "verdict") for s in got.steps][:2] == ["passed", "reference"] and {word(s, "verdict") for s in got.steps[2:]} <= {"same"}, got
        assert c.read(state) == before, "the doctor works on copies"
        loose = doctor(c, digest=c.register(LOOSE).digest)
        assert loose.healthy and any(s.name.startswith("pass ") for s in loose.steps), [s.name for s in loose.steps]
        given = doctor(c, graph=r.graph, symbols=[2], inputs=[floats(*range(8))])
        assert given.healthy, given


@test("doctor and data dumps: names of nodes and outputs that look like those that they make up")
def tap_names():
    text = graph('  input %x : f32[4]\n  %__tap.0.0 = aten.neg(%x)\n  %__tap1.0 = aten.exp(%__tap.0.0)\n'
                 '  return "tap:__tap.0.0" = %__tap1.0, "y" = %__tap.0.0', "taps")
    place = SCRATCH / "taps"
    place.mkdir()
    with Daemon(f"--dump-dir={place}") as daemon, Client(daemon) as c:
        assert doctor(c, graph=c.register(text).graph).healthy
        g = c.register(text, options={"dump_tensor_data": "true"}).graph
        c.replay(g, [floats(1, 2, 3, 4)])
        assert not [e for e in explain(c, g) if e.reason == "dump-failed"]
        names = sorted(f.name.split(".", 2)[2] for f in place.rglob("*.npy"))
        assert names == ["__tap.0.0.npy", "__tap1.0.npy", "output.tap___tap.0.0.npy", "output.y.npy"], names


@test("doctor: what cannot be run is refused, and a reference that fails is named")
def unfit(daemon):
    text = graph('  param %e : f32[4,2] = "e"\n  input %i : i32[3]\n  %y = aten.embedding(%e, %i)\n  return "y" = %y', "lookup")
    with Client(daemon) as c:
        r, _ = chain(c)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", doctor, c, graph=r.graph, symbols=[1, 2])
        refused("GUARD_FAILED", "FAILED_PRECONDITION", doctor, c, graph=r.graph, symbols=[9])
        refused("INPUT_COUNT", "INVALID_ARGUMENT", doctor, c, graph=r.graph, inputs=[b"", b""])
        refused("NOT_FOUND", "NOT_FOUND", doctor, c, digest="00000000")
        g = c.register(text).graph
        assert doctor(c, graph=g).healthy, "drawn indices fit"
        bad = doctor(c, graph=g, inputs=[struct.pack("<3i", 0, 99, 1)])
        assert not bad.healthy and bad.step == "eager, no passes" and "99" in bad.verdict, bad
        short = doctor(c, graph=g, inputs=[b"1234"])
        assert not short.healthy and "needs 12" in short.verdict, short


@test("doctor: a kernel that is wrong in captured replays is found in the replay, at its node")
def wrong_kernel():
    needs_faults()
    # Kernels of captured replays are counted from the start: mm, silu, ...; the second one is wrong in every replay.
    with Daemon(env={"NPUGRAPHD_FAULT": "replay-wrong:0:100000"}) as daemon, Client(daemon) as c:
        r, _ = chain(c)
        got = doctor(c, graph=r.graph)
        assert not got.healthy and got.step == "replay of a new capture", got
        assert got.node == "%a of aten.mm", got.node
        assert [word(s, "verdict") for s in got.steps].count("differs") == 1 and got.steps[-1].verdict == pb.DOCTOR_VERDICT_DIFFERS
        told = json.loads(ctl(daemon, "--json", "doctor", r.digest, "--symbol", "B=4", "--seed", "7", status=1))
        assert told["healthy"] is False and told["step"] == got.step, told
        assert "Not healthy" in ctl(daemon, "doctor", r.digest, status=1)


@test("doctor: a pass that is wrong is named, with the node")
def wrong_pass():
    needs_faults()
    with Daemon(env={"NPUGRAPHD_FAULT": "pass-wrong:0:100000"}) as daemon, Client(daemon) as c:
        got = doctor(c, graph=c.register(LOOSE).graph)
        assert not got.healthy and got.step.startswith("pass ") and "aten.neg" in got.node, got


def long_chain(nodes):
    lines = ["  input %x : f32[4]", "  %v0 = aten.relu(%x)"]
    lines += [f"  %v{i} = aten.{'neg' if i % 2 else 'exp'}(%v{i - 1})" for i in range(1, nodes)]
    return graph("\n".join(lines) + f'\n  return "y" = %v{nodes - 1}', "long")


@test("doctor: graphs of more nodes than a graph may have outputs, as decoders are, are run too")
def large(daemon):
    with Client(daemon) as c:
        for nodes in (300, 4000):
            found = doctor(c, graph=c.register(long_chain(nodes)).graph)
            assert found.healthy and "eager, no passes" in [s.name for s in found.steps], found
        outputs = graph('  input %x : f32[4]\n  %y = aten.relu(%x)\n  return ' + ", ".join(f'"o{i}" = %y' for i in range(257)), "outputs")
        refused("GRAPH_TOO_LARGE", "INVALID_ARGUMENT", c.register, outputs)  # a client's graph may not have them


@test("trace: a span for each kernel, in order, with what it reads and makes")
def traces(daemon):
    with Client(daemon) as c:
        r, state = chain(c)
        before = c.read(state)
        trace = json.loads(c.call("Graphs/Trace", pb.DoctorRequest(graph=r.graph)).json)
        spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        kernels = c.call("Graphs/Capture", pb.CaptureRequest(graph=r.graph, symbols=[8])).kernels
        assert len(spans) == kernels and [s["args"]["call"] for s in spans] == list(range(kernels)), spans
        assert {"aten.mm", "aten.silu"} <= {s["name"] for s in spans}
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(spans, spans[1:])), "kernels run one after the other"
        assert sum(s["dur"] for s in spans) > 0 and c.read(state) == before
        path = SCRATCH / "trace.json"
        assert ctl(daemon, "trace", r.digest, "--symbol", "B=2", "--output", str(path)).strip() == str(path)
        assert json.loads(path.read_text())["traceEvents"]
        ctl(daemon, "trace", status=2)
        ctl(daemon, "doctor", r.digest, "--symbol", "Q=2", status=2)


@test("verified replays: right ones stay as they are, and are counted")
def verified(daemon):
    with Client(daemon) as c:
        r, state = chain(c, verify_every_n="3")
        plain, _ = chain(c)
        assert [run(c, r.graph) for _ in range(9)] == [run(c, plain.graph) for _ in range(9)], "the state is changed once by each"
        assert unfloats(c.read(state)) == [9 * s for s in SUMS]
        status, text = daemon.http("/metrics")
        assert 'npugraphd_graph_verified_replays_total{result="same"} 3' in text, status
        assert "quarantined" not in [e.reason for e in explain(c, r.graph)]


def halves(count, seed, low=-2, high=2):
    """Returns bf16 numbers: the upper halves of f32 numbers."""
    draw = random.Random(seed)
    return b"".join(struct.pack("<f", draw.uniform(low, high))[2:] for _ in range(count))


# Norms as models write them in bf16. They are followed by an index and an f32 output that depend on rounding.
ROUNDED = graph('  param %g : bf16[64] = "g"\n  state %s : bf16[4,64] = "s"\n  input %x : bf16[4,64]\n' + "".join(
    f'  %w{i} = aten._to_copy(%{x}) {{dtype=f32}}\n  %p{i} = aten.pow.Tensor_Scalar(%w{i}) {{exponent=2}}\n'
    f'  %m{i} = aten.mean.dim(%p{i}) {{dim=[-1], keepdim=true}}\n  %e{i} = aten.add.Scalar(%m{i}) {{other=1e-06}}\n'
    f'  %r{i} = aten.rsqrt(%e{i})\n  %n{i} = aten.mul.Tensor(%w{i}, %r{i})\n  %h{i} = aten._to_copy(%n{i}) {{dtype=bf16}}\n'
    f'  %y{i} = aten.mul.Tensor(%g, %h{i})\n' for i, x in enumerate(["x", "y0", "y1"])) +
    '  aten.copy_(%s, %y1)\n  %y = aten._to_copy(%y2) {dtype=f32}\n  %i = aten.argmax(%y) {dim=-1}\n  return "y" = %y, "i" = %i', "rounded")


def rounded(c, **options):
    gamma, state = c.allocate(128), c.allocate(512)
    c.write(gamma, halves(64, 1, 0.95, 1.05))
    c.write(state, halves(256, 2))
    return c.register(ROUNDED, {"g": gamma, "s": state}, options).graph


def answers(c, g):
    return [tuple(c.replay(g, [halves(256, 10 + i, 1.5)]).outputs) for i in range(20)]  # the largest values are close together


@test("verified replays and the doctor: roundings that a graph allows are no fault")
def roundings():
    with Daemon() as daemon, Client(daemon) as c:
        plain, strict = answers(c, rounded(c, force_eager="true")), rounded(c, verify_every_n="1")
        assert answers(c, strict) == plain, "without the option nothing changes"
        g = rounded(c, allow_excess_precision="true", verify_every_n="1")
        got = answers(c, g)
        assert all(a[0] != b[0] for a, b in zip(got, plain)), "fused norms have other bits"
        assert any(a[1] != b[1] for a, b in zip(got, plain)), "and other numbers may be the largest"
        counts = dict(re.findall(r'verified_replays_total{result="(\w+)"} (\d+)', daemon.http("/metrics")[1]))
        assert int(counts["rounded"]) >= 15 and int(counts["rounded"]) + int(counts["same"]) == 40, counts
        assert "different" not in counts or counts["different"] == "0", counts
        assert "quarantined" not in [e.reason for e in explain(c, g)]
        steps = {s.name: s for s in doctor(c, graph=g).steps}
        assert steps["pass fuse_first"].verdict == pb.DOCTOR_VERDICT_ROUNDED and "3 operators" in steps["pass fuse_first"].text, steps
        assert all(word(s, "verdict") in ("passed", "reference", "same") for s in steps.values() if s.name != "pass fuse_first"), steps
        assert doctor(c, graph=g).healthy and pb.DOCTOR_VERDICT_ROUNDED not in [s.verdict for s in doctor(c, graph=strict).steps]


# With AMX (in CI its emulation), a lower precision gives other bits.
PRODUCT = graph('  param %w : bf16[272,256] = "w"\n  input %x : f32[2,256]\n  %h = aten.linear(%x, %w)\n  %y = aten.silu(%h)\n'
                '  return "y" = %y', "product")


@test("verified replays, the doctor and dumps: what a lower precision of products loses is no fault, and they lose the same")
def precisions():
    row = floats(*[random.Random(i).uniform(-2, 2) for i in range(512)])
    place = SCRATCH / "precisions"
    place.mkdir()
    with Daemon(f"--dump-dir={place}") as daemon, Client(daemon) as c:
        w = c.allocate(2 * 272 * 256)
        c.write(w, halves(272 * 256, 3))
        for precision in ("highest", "high", "medium"):
            plain = c.register(PRODUCT, {"w": w}, {"matmul_precision": precision}).graph
            g = c.register(PRODUCT, {"w": w}, {"matmul_precision": precision, "verify_every_n": "1"}).graph
            want = c.replay(plain, [row]).outputs[0]
            for _ in range(3):
                assert c.replay(g, [row]).outputs[0] == want, precision
            assert "quarantined" not in [e.reason for e in explain(c, g)], precision
            assert doctor(c, graph=plain).healthy, (precision, doctor(c, graph=plain).verdict)
            for stage in ("original", "optimized"):
                dumped = {"dump_tensor_data": "true", "data_dump_stage": stage, "matmul_precision": precision}
                assert c.replay(c.register(PRODUCT, {"w": w}, dumped).graph, [row]).outputs[0] == want, (precision, stage)
        counts = dict(re.findall(r'verified_replays_total{result="(\w+)"} (\d+)', daemon.http("/metrics")[1]))
        assert counts["same"] == "9" and counts.get("different", "0") == "0", counts


@test("verified replays: a wrong one is found out in a graph that allows roundings, too")
def wrong_roundings():
    needs_faults()
    with Daemon(env={"NPUGRAPHD_FAULT": "replay-wrong:0:100000"}) as daemon, Client(daemon) as c:
        g = rounded(c, allow_excess_precision="true", verify_every_n="1")
        plain = answers(c, rounded(c, force_eager="true"))
        assert answers(c, g) == plain, "the shadow's answers"
        assert "quarantined" in [e.reason for e in explain(c, g)]
    with Daemon(env={"NPUGRAPHD_FAULT": "pass-wrong:0:100000"}) as daemon, Client(daemon) as c:
        g = rounded(c, allow_excess_precision="true")
        assert not doctor(c, graph=g).healthy


@test("verified replays: a wrong one is answered rightly, its key quarantined, and the evidence kept")
def quarantine():
    needs_faults()
    dumps = SCRATCH / "evidence"
    dumps.mkdir()
    with Daemon(f"--dump-dir={dumps}", env={"NPUGRAPHD_FAULT": "replay-wrong:0:100000"}) as daemon, Client(daemon) as c:
        r, state = chain(c, verify_every_n="1")
        want, _ = chain(c, force_eager="true")
        for i in range(4):
            assert run(c, r.graph) == run(c, want.graph), f"answer {i}"
            assert unfloats(c.read(state)) == [(i + 1) * s for s in SUMS], f"state after answer {i}"
        events = {e.reason: e for e in explain(c, r.graph)}
        assert "differ" in events["quarantined"].text and events["eager-quarantined"].count >= 3, events
        assert 'npugraphd_graph_verified_replays_total{result="different"} 1' in daemon.http("/metrics")[1]
        kept = list((dumps / "quarantine").iterdir())
        assert len(kept) == 1, kept
        files = {p.name for p in kept[0].iterdir()}
        assert {"why.txt", "graph.txt", "optimized.txt", "plan.txt", "input.x.npy", "replay.d.npy", "shadow.d.npy"} <= files, files
        assert "symbol B = 3" in (kept[0] / "why.txt").read_text()
        assert npy(kept[0] / "shadow.d.npy")[:2] == ("<f4", (3, 4)) and npy(kept[0] / "replay.d.npy")[2] != npy(kept[0] / "shadow.d.npy")[2]


@test("doctor and verified replays: one bit is a difference where bits are promised")
def one_bit():
    needs_faults()
    with Daemon(env={"NPUGRAPHD_FAULT": "replay-bit:0:100000"}) as daemon, Client(daemon) as c:
        body = graph('  input %x : f32[4]\n  %y = aten.neg(%x)\n  return "y" = %y', "bit")
        got = doctor(c, graph=c.register(body).graph)
        assert not got.healthy and got.step == "replay of a new capture" and "aten.neg" in got.node, got
        g = c.register(body, options={"verify_every_n": "1"}).graph
        assert unfloats(c.replay(g, [floats(1, 2, 3, 4)]).outputs[0]) == [-1, -2, -3, -4], "the shadow's answer"
        assert "quarantined" in [e.reason for e in explain(c, g)]


@test("data dumps: every node's results, at both stages, below an allowed directory; answers and states as ever")
def dumps():
    place = SCRATCH / "dumps"
    place.mkdir()
    with Daemon(f"--dump-dir={place}") as daemon, Client(daemon) as c:
        plain, _ = chain(c)
        want = [run(c, plain.graph) for _ in range(2)]
        for stage in ("original", "optimized"):
            r, state = chain(c, dump_tensor_data="true", data_dump_stage=stage, data_dump_dir=f"sub/{stage}")
            assert [run(c, r.graph) for _ in range(2)] == want, stage
            assert unfloats(c.read(state)) == [2 * s for s in SUMS]
            where = list((place / "sub" / stage).iterdir())
            assert len(where) == 1 and where[0].name.endswith(stage) and where[0].name.startswith("chain-"), where
            files = sorted(p.name for p in where[0].iterdir())
            for name in ("a", "b", "c", "t", "n", "d"):
                assert sum(f.endswith(f".{name}.npy") and "output" not in f for f in files) == 2, (name, files)
            first = [f for f in files if f.startswith("000000.")]
            descr, shape, data = npy(where[0] / next(f for f in first if f.endswith(".output.d.npy")))
            assert (descr, shape) == ("<f4", (3, 4)) and unfloats(data) == want[0], stage
            assert unfloats(npy(where[0] / next(f for f in first if f.endswith(".t.npy")))[2]) == SUMS


@test("data dumps: of a graph of more nodes than a graph may have outputs; a later registration's runs go behind those that are there")
def dumps_again():
    place = SCRATCH / "again"
    place.mkdir()
    nodes, runs = 300, 0
    for _ in range(2):  # starts of the daemon
        with Daemon(f"--dump-dir={place}") as daemon, Client(daemon) as c:
            for options in ({}, {"inplace_pass": "false"}):
                g = c.register(long_chain(nodes), options={"dump_tensor_data": "true", **options}).graph
                for _ in range(2):
                    want = c.replay(g, [floats(0, 0.5, runs, -1)]).outputs[0]
                    files = sorted(p.name for p in place.rglob(f"{runs:06}.*.npy"))
                    assert len(files) == nodes + 1, (runs, len(files))
                    assert npy(next(place.rglob(files[0])))[2] == want
                    runs += 1
                assert not [e for e in explain(c, g) if e.reason == "dump-failed"]
    assert len(list(place.rglob("*.npy"))) == runs * (nodes + 1)


@test("data dumps: directories outside, through links and without permission are refused")
def dumps_refused():
    place, outside = SCRATCH / "allowed", SCRATCH / "outside"
    place.mkdir()
    outside.mkdir()
    (place / "link").symlink_to(outside)
    with Daemon(f"--dump-dir={place}") as daemon, Client(daemon) as c:
        for bad in (str(outside), "/", f"{place}/../outside", "../outside", f"{place}x", f"{place}/link", "link/below"):
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", chain, c, dump_tensor_data="true", data_dump_dir=bad)
        r, _ = chain(c, dump_tensor_data="true", data_dump_dir=f"{place}/later")
        (place / "later").symlink_to(outside)
        assert run(c, r.graph), "a dump that fails does not fail the replay"
        failed = next(e for e in explain(c, r.graph) if e.reason == "dump-failed")
        assert "link" in failed.text, failed
        assert not list(outside.iterdir())
    with Daemon() as daemon, Client(daemon) as c:
        got = refused("PERMISSION_DENIED", "PERMISSION_DENIED", chain, c, dump_tensor_data="true")
        assert "dump-dir" in got.text


@test("data dumps: past dump-limit nothing more is written, and replays go on")
def dump_limit():
    place = SCRATCH / "limited"
    place.mkdir()
    with Daemon(f"--dump-dir={place}", "--dump-limit=32K") as daemon, Client(daemon) as c:
        r, _ = chain(c, dump_tensor_data="true")
        for _ in range(10):
            run(c, r.graph)
        written = sum(p.stat().st_size for p in place.rglob("*.npy"))
        assert 0 < written <= 32768, written
        assert "dump-limit" in next(e for e in explain(c, r.graph) if e.reason == "dump-failed").text


def dumped(place):
    """Returns the files of each directory of debug dumps, in the order of captures."""
    return [{f.name: f.read_text() for f in sorted(d.iterdir())} for d in sorted(place.iterdir(), key=lambda d: int(d.name.rsplit("-", 1)[1]))]


@test("debug dumps: each capture leaves its graphs, plan, map and trace in a directory of its own, from the store too")
def debug_dumps():
    place, store = SCRATCH / "debug", SCRATCH / "debug-store"
    place.mkdir()
    store.mkdir(mode=0o700)
    for start in range(2):
        with Daemon(f"--dump-dir={place}", f"--store-dir={store}/s") as daemon, Client(daemon) as c:
            r = c.register(LOOSE, options={"debug_dump": "true", "debug_dump_dir": f"each{start}"})
            want = c.replay(r.graph, [floats(*range(8))]).outputs[0]
            assert c.replay(r.graph, [floats(*range(8))]).outputs[0] == want
            found = dumped(place / f"each{start}")
            assert len(found) == 1 and next((place / f"each{start}").iterdir()).name.startswith(f"loose-{r.digest[:12]}-"), found
            files = found[0]
            graphs = [n for n in files if n[:3].isdigit()]
            assert graphs[0] == "000.registered.txt" and len(graphs) >= 3 and all(".after_" in n for n in graphs[1:]), graphs
            assert files[graphs[0]].count("aten.exp") == 2 and files[graphs[-1]].count("aten.exp") == 1, files
            assert all(files[n].startswith("npugraph 1\ngraph") for n in graphs)
            assert "remove_noops" in files["passes.txt"] and files["plan.txt"].startswith('plan "loose"')
            assert "<svg" in files["pool.svg"] and files["pool.svg"].rstrip().endswith("</svg>")
            spans = [e for e in json.loads(files["executable.json"])["traceEvents"] if e["ph"] == "X"]
            assert [e["ts"] for e in spans] == list(range(len(spans))) and "aten.exp" in [e["name"] for e in spans], spans
            assert "result captured" in files["capture.txt"] and "debug_dump=true" in files["capture.txt"], files["capture.txt"]
            # With the option in Capture, a captured graph is captured again, once.
            plain = c.register(LOOSE).graph
            assert c.replay(plain, [floats(*range(8))]).outputs[0] == want
            options = [pb.GraphOption(name="debug_dump", value="true"), pb.GraphOption(name="debug_dump_dir", value=f"once{start}")]
            assert c.call("Graphs/Capture", pb.CaptureRequest(graph=plain, options=options)).captured
            assert c.replay(plain, [floats(*range(8))]).outputs[0] == want
            assert not c.call("Graphs/Capture", pb.CaptureRequest(graph=plain)).captured
            once = dumped(place / f"once{start}")
            assert len(once) == 1 and {n for n in once[0]} == set(files), once
            assert "debug_dump=false" in once[0]["capture.txt"]  # the graph's own
    assert not list(place.rglob("*.part")) and all(f.stat().st_mode & 0o777 == 0o600 for f in place.rglob("*.txt"))


@test("debug dumps: directories that are not allowed and contradictions are refused; what cannot be written is lost and told")
def debug_dumps_refused():
    place, outside = SCRATCH / "debug-allowed", SCRATCH / "debug-outside"
    place.mkdir()
    outside.mkdir()
    (place / "link").symlink_to(outside)
    with Daemon(f"--dump-dir={place}", "--dump-limit=32K") as daemon, Client(daemon) as c:
        plain = c.register(LOOSE).graph
        for bad in (str(outside), "/", f"{place}/../debug-outside", "../debug-outside", f"{place}x", "link", f"{place}/link/below"):
            options = {"debug_dump": "true", "debug_dump_dir": bad}
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.register, LOOSE, options=options)
            request = pb.CaptureRequest(graph=plain, options=[pb.GraphOption(name=n, value=v) for n, v in options.items()])
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Graphs/Capture", request)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.register, LOOSE, options={"debug_dump_dir": "x"})
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.register, LOOSE, options={"debug_dump": "true", "force_eager": "true"})
        want = c.replay(plain, [floats(*range(8))]).outputs[0]
        for where, why in (("later", "link"), ("much", "dump-limit")):
            r = c.register(LOOSE, options={"debug_dump": "true", "debug_dump_dir": where})
            if where == "later":
                (place / where).symlink_to(outside)
            assert c.replay(r.graph, [floats(*range(8))]).outputs[0] == want, "a dump that fails does not fail the capture"
            failed = [e.text for e in explain(c, r.graph) if e.reason == "dump-failed"]
            assert len(failed) == 1 and why in failed[0] and "debug_dump" in failed[0], failed
        assert daemon.log().count("debug dump of a capture of graph loose is not complete") == 2, daemon.log()
        assert 'npugraphd_flight_events_total{reason="dump-failed"} 2' in daemon.http("/metrics")[1]
        assert not list(outside.iterdir())
        assert 0 < sum(p.stat().st_size for p in (place / "much").rglob("*.*") if p.is_file()) <= 32768
    with Daemon() as daemon, Client(daemon) as c:
        assert "dump-dir" in refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.register, LOOSE, options={"debug_dump": "true"}).text


@test("pools: named ones are shared by the graphs that name them, private ones by nobody")
def pools(daemon):
    def big(name):
        return graph(f'  input %x : f32[16384]\n  %y = aten.exp(%x)\n  %z = aten.mul.Tensor(%y, %x)\n  return "z" = %z', name)

    def held():
        return daemon.stats()["devices"][0]["pool_bytes"]

    with Client(daemon) as c:
        need = c.call("Graphs/Capture", pb.CaptureRequest(graph=c.register(big("p0")).graph, dry_run=True)).pool_bytes
        before = held()
        graphs = []
        for name, options in (("p1", {"use_graph_pool": "mine"}), ("p2", {"use_graph_pool": "mine"}), ("p3", {"use_graph_pool": "(3,0)"})):
            graphs.append(c.register(big(name), options=options).graph)
            assert unfloats(c.replay(graphs[-1], [floats(*[1.0] * 16384)]).outputs[0])[0] == unfloats(floats(2.718281828))[0]
        slots = len(daemon.stats()["devices"]) and c.call("Admin/Devices", pb.DevicesRequest()).devices[0].streams
        assert held() - before >= 2 * need and held() - before <= 2 * need * max(slots, 1) + 8192, (held(), before, need)
        private = c.register(big("p4"), options={"reuse_graph_pool_in_same_fx": "false"}).graph
        now = held()
        c.replay(private, [floats(*[1.0] * 16384)])
        assert held() - now >= need
        for g in graphs + [private]:
            c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        until("pools go with the last graph that names them", lambda: held() <= before)


@test("frozen parameters: another buffer for a param is refused, for a state it is taken")
def frozen(daemon):
    with Client(daemon) as c:
        r, state = chain(c, frozen_parameter="true")
        bind = lambda **b: c.call("Graphs/Bind", pb.BindRequest(graph=r.graph, bindings=[pb.Binding(name=n, buffer=v) for n, v in b.items()]))
        assert "frozen_parameter" in refused("BINDING_MISMATCH", "INVALID_ARGUMENT", bind, w=c.allocate(64)).text
        other = filled(c, 5, 5, 5, 5)
        bind(s=other)
        run(c, r.graph)
        assert unfloats(c.read(other)) == [5 + s for s in SUMS] and unfloats(c.read(state)) == [0] * 4


main()
