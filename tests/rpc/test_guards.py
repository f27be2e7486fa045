#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guards of replays: ranges, types and generations; bindings that change; host parameters; pools shared by buckets."""
import json
import struct
import subprocess
import threading

from harness import *


def graph(body, name="g"):
    return f'npugraph 1\ngraph "{name}" {{\n{body}\n}}\n'


SCALE = graph('  sym B 1..8 buckets 2, 8\n  param %w : f32[4] = "w"\n  state %s : f32[4] = "s"\n  input %x : f32[B,4]\n  input %k : i32[B]\n'
              '  %y = aten.mul.Tensor(%x, %w)\n  return "y" = %y', "scale")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def filled(c, *values):
    buffer = c.allocate(4 * len(values))
    c.write(buffer, floats(*values))
    return buffer


def types(b, **changes):
    said = {"x": ("f32", [b, 4]), "k": ("i32", [b]), **changes}
    return [pb.InputType(dtype=said[n][0], dims=said[n][1]) for n in ("x", "k")]


def run(c, g, b=2, **kwargs):
    inputs = [floats(*range(4 * b)), bytes(4 * b)]
    return c.replay(g, inputs, [b], **kwargs)


def bind(c, g, **buffers):
    return c.call("Graphs/Bind", pb.BindRequest(graph=g, bindings=[pb.Binding(name=n, buffer=b) for n, b in buffers.items()]))


@test("types that a client gives are guards: dtype, rank and each dimension, with the value that failed")
def said_types(daemon):
    with Client(daemon) as c:
        g = c.register(SCALE, {"w": filled(c, 1, 2, 3, 4), "s": c.allocate(16)}).graph
        assert unfloats(run(c, g, input_types=types(2)).outputs[0]) == [0, 2, 6, 12, 4, 10, 18, 28]
        wrong = {
            'input "x": dtype is f16 (guard == f32)': types(2, x=("f16", [2, 4])),
            'input "k": dtype is f32 (guard == i32)': types(2, k=("f32", [2])),
            'input "x": rank is 3 (guard == 2)': types(2, x=("f32", [2, 2, 2])),
            'input "x": dimension 1 is 5 (guard == 4, which is 4)': types(2, x=("f32", [2, 5])),
            'input "k": dimension 0 is 3 (guard == B, which is 2)': types(2, k=("i32", [3])),
            'input "x": dtype is ? (guard == f32)': types(2, x=("f33", [2, 4])),
            'input "x": rank is 9 (guard == 2)': types(2, x=("f32", [1] * 12)),
        }
        for text, said in wrong.items():
            got = refused("GUARD_FAILED", "FAILED_PRECONDITION", run, c, g, input_types=said)
            assert text in got.text, (text, got.text)
        refused("INPUT_COUNT", "INVALID_ARGUMENT", run, c, g, input_types=types(2)[:1])


@test("another buffer is another generation: results follow it, and a replay that expects the old one is refused")
def generations(daemon):
    with Client(daemon) as c:
        first = filled(c, 1, 1, 1, 1)
        r = c.register(SCALE, {"w": first, "s": c.allocate(16)})
        assert r.generation > 0
        assert unfloats(run(c, r.graph, 1, generation=r.generation).outputs[0]) == [0, 1, 2, 3]
        b = bind(c, r.graph, w=filled(c, 10, 10, 10, 10))
        assert b.generation > r.generation and not b.unbound
        assert unfloats(run(c, r.graph, 1).outputs[0]) == [0, 10, 20, 30]
        assert unfloats(run(c, r.graph, 1, generation=b.generation).outputs[0]) == [0, 10, 20, 30]
        got = refused("GUARD_FAILED", "FAILED_PRECONDITION", run, c, r.graph, 1, generation=r.generation)
        assert str(r.generation) in got.text and str(b.generation) in got.text, got.text
        info = c.call("Graphs/Describe", pb.DescribeRequest(graph=r.graph)).info
        assert info.captures == 1, "executables belong to the graph, not to addresses"
        assert "rebound" in [e.reason for e in c.call("Graphs/Explain", pb.ExplainRequest(graph=r.graph)).events]
        # binding the same buffer again changes nothing
        again = bind(c, r.graph, w=first).generation
        assert bind(c, r.graph, w=first).generation == again
        c.call("Memory/Free", pb.FreeRequest(buffers=[first]))
        assert unfloats(run(c, r.graph, 1, generation=again).outputs[0]) == [0, 1, 2, 3], "what a graph uses stays"


@test("bindings that change: what does not fit is refused, and the graph goes on with what it had")
def bad_bindings(daemon):
    with Client(daemon) as c:
        r = c.register(SCALE, {"w": filled(c, 2, 2, 2, 2)})
        assert list(r.unbound) == ["s"]
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", bind, c, r.graph, nope=c.allocate(16))
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", bind, c, r.graph, w=c.allocate(8))
        refused("UNKNOWN_ID", "NOT_FOUND", bind, c, r.graph, w=4711)
        refused("UNKNOWN_ID", "NOT_FOUND", bind, c, 4711)
        assert not bind(c, r.graph, s=c.allocate(16)).unbound
        assert unfloats(run(c, r.graph, 1).outputs[0]) == [0, 2, 4, 6]


@test("bindings change while replays of the graph run: each answer is of one binding or of the other")
def changing(daemon):
    with Client(daemon) as c:
        one, ten = filled(c, 1, 1, 1, 1), filled(c, 10, 10, 10, 10)
        g = c.register(SCALE, {"w": one, "s": c.allocate(16)}).graph
        seen, stop = set(), threading.Event()

        def replays():
            while not stop.is_set():
                seen.add(tuple(unfloats(run(c, g, 1).outputs[0])))

        thread = threading.Thread(target=replays)
        thread.start()
        for i in range(100):
            bind(c, g, w=ten if i % 2 == 0 else one)
        until("both bindings have answered", lambda: bind(c, g, w=ten if len(seen) % 2 else one) and len(seen) >= 2)
        stop.set()
        thread.join()
        assert seen == {(0, 1, 2, 3), (0, 10, 20, 30)}, seen


@test("host parameters change at each replay without a capture")
def host_parameters(daemon):
    text = graph('  state %kc : f32[4,4,1,8] = "kc"\n  state %vc : f32[4,4,1,8] = "vc"\n  input %q : f32[1,1,8]\n  input %bt : i32[1,4]\n'
                 '  host %ql : i64[1]\n  host %kl : i64[1]\n  %y = npu.fused_infer_attention_score(%q, %kc, %vc, %bt, %ql, %kl) '
                 '{num_heads=1, num_key_value_heads=1, scale=0.5, block_size=4}\n  return "y" = %y', "attend")
    with Client(daemon) as c:
        rows = [[float(i)] * 8 for i in range(16)]
        g = c.register(text, {"kc": filled(c, *[0.0] * 128), "vc": filled(c, *[v for row in rows for v in row])}).graph
        for n in (1, 5, 16, 2):
            got = c.replay(g, [floats(*[1.0] * 8), struct.pack("<4i", 0, 1, 2, 3)],
                           hosts=[pb.HostValue(values=[1]), pb.HostValue(values=[n])])
            want = sum(range(n)) / n  # all keys are equal, so the result is the mean of the values so far
            assert all(abs(v - want) < 1e-4 for v in unfloats(got.outputs[0])), (n, want, unfloats(got.outputs[0]))
        assert c.call("Graphs/Describe", pb.DescribeRequest(graph=g)).info.captures == 1


# The graph of a trace that is right only for some sizes: rows are summed in fours, and one row would give another graph.
TRACED = graph('  sym T 1..64\n  sym B 1..6 buckets 4, 8\n  guard mod(T, 4) == 0\n  guard B != 1\n  guard B <= T*2\n  guard T < 65\n'
               '  input %t : f32[floordiv(T, 4)*4]\n  input %b : f32[B]\n  %r = aten.view(%t) {size=[floordiv(T, 4), 4]}\n'
               '  %s = aten.sum.dim_IntList(%r) {dim=[1]}\n  %n = aten.neg(%b)\n  return "s" = %s, "n" = %n', "traced")


def traced(t, b):
    return [floats(*range(t // 4 * 4)), floats(*range(b))], [t, b]


@test("guards that compare symbols: a replay, a capture, a dry run, an eager run, a stream; the sentence has the values")
def relations(daemon):
    fails = {(6, 2): "guard mod(T, 4) == 0 does not hold: mod(T, 4) is 2 with T = 6", (8, 1): "guard B != 1 does not hold: B is 1"}
    with Client(daemon) as c:
        g = c.register(TRACED).graph
        got = c.replay(g, *traced(8, 5))
        assert unfloats(got.outputs[0]) == [6, 22] and unfloats(got.outputs[1]) == [0, -1, -2, -3, -4]
        for (t, b), text in fails.items():
            for how in (dict(), dict(eager=True), dict(stream=3)):
                assert text in refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, *traced(t, b), tag=77, **how).text
            for dry in (False, True):
                request = pb.CaptureRequest(graph=g, symbols=[t, b], dry_run=dry)
                assert text in refused("GUARD_FAILED", "FAILED_PRECONDITION", c.call, "Graphs/Capture", request).text
            request = pb.DoctorRequest(graph=g, symbols=[t, b])
            assert text in refused("GUARD_FAILED", "FAILED_PRECONDITION", c.call, "Graphs/Doctor", request).text
            assert text in refused("GUARD_FAILED", "FAILED_PRECONDITION", c.call, "Graphs/Trace", request).text
        # ranges are checked first
        assert "outside 1..64" in refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, *traced(66, 2)).text
        requests = [pb.ReplayRequest(graph=g, inputs=traced(*s)[0], symbols=s, tag=i) for i, s in enumerate([(8, 2), (9, 2), (4, 6)])]
        answers = list(c.call("Graphs/ReplayStream", iter(requests)))
        assert [a.error.reason for a in answers] == ["", "GUARD_FAILED", ""], answers
        explained = c.call("Graphs/Explain", pb.ExplainRequest(graph=g))
        last = next(e for e in explained.events if e.reason == "refused-guard")
        assert last.tag == 1 and last.text == "GUARD_FAILED: guard mod(T, 4) == 0 does not hold: mod(T, 4) is 1 with T = 9", last
        assert list(explained.guards) == ["B <= T*2", "B != 1", "mod(T, 4) == 0"], explained.guards  # not T < 65: the range of T ends at 64
        assert {e.text.split(":")[0] for e in explained.events if e.kind == "capture"} == {"T==8 B<=8", "T==8 B<=4", "T==4 B<=8"}, explained.events
        described = c.call("Graphs/Describe", pb.DescribeRequest(graph=g))
        assert list(described.info.guards) == list(explained.guards)
        assert "  guard B <= T*2\n  guard B != 1\n  guard mod(T, 4) == 0\n" in described.text
        assert c.register(described.text).digest == described.info.digest
        # Requests have B from 1 to 6, and run at 4 or 8. Guards apply to the requested size only; buckets may have any size.
        c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, symbol="B", apply=True, set=[1, 3, 6]))
        assert unfloats(c.replay(g, *traced(4, 3)).outputs[1]) == [0, -1, -2]
        refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, *traced(4, 1))
        assert c.register(TRACED.replace("B != 1", "B != 2")).digest != described.info.digest


@test("a symbol that only a guard names is checked, and with one bucket it is one capture")
def named_only(daemon):
    text = graph('  sym S 1..100 buckets 100\n  guard S != 5\n  input %x : f32[4]\n  %y = aten.neg(%x)\n  return "y" = %y', "named only")
    with Client(daemon) as c:
        g = c.register(text).graph
        for s in (1, 2, 99, 100):
            assert unfloats(c.replay(g, [floats(1, 2, 3, 4)], [s]).outputs[0]) == [-1, -2, -3, -4]
        refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, [floats(1, 2, 3, 4)], [5])
        assert c.call("Graphs/Describe", pb.DescribeRequest(graph=g)).info.captures == 1


@test("guards that can never hold, or cannot be computed for all sizes, are refused with the graph")
def impossible(daemon):
    with Client(daemon) as c:
        for old, new, reason, text in (("B != 1", "B > 6", "GRAPH_SYMBOL", "guard B > 6, with B in 1..6 never holds"),
                                       ("B != 1", "mod(8, B - 1) == 0", "GRAPH_SYMBOL", "divisor can be 0"),
                                       ("B != 1", "T*T*9223372036854775807 > B", "OVERFLOW", "overflows 64 bits"),
                                       ("B != 1", "B", "GRAPH_PARSE", "line 7, column 3: expected a relation (== != < <= > >=)")):
            got = refused(reason, "INVALID_ARGUMENT", c.register, TRACED.replace(old, new))
            assert text in got.text and got.text.startswith("line "), got.text


@test("16 batch buckets on 2 slots need two pools of the largest size, whatever ran where")
def pools():
    buckets = [2 * i + 2 for i in range(16)]
    text = graph(f'  sym B 1..32 buckets {", ".join(map(str, buckets))}\n  input %x : f32[B,8192]\n  %a = aten.exp(%x)\n  %b = aten.neg(%a)\n'
                 '  %c = aten.add.Tensor(%a, %b)\n  %d = aten.mul.Tensor(%c, %x)\n  return "d" = %d', "pools")
    with Daemon("--slots=2", "--inline-limit=0") as daemon, Client(daemon) as c:
        r = c.register(text)
        need = {b: c.call("Graphs/Capture", pb.CaptureRequest(graph=r.graph, symbols=[b])).pool_bytes for b in buckets}
        largest = max(need.values())
        dry = c.call("Graphs/Capture", pb.CaptureRequest(graph=r.graph, symbols=[32], dry_run=True))
        assert (dry.pool, dry.pools, dry.streams, dry.executables) == ("slots", 2, 1, 16) and dry.holders >= 1, dry
        assert dry.live_bytes <= dry.pool_bytes == largest and dry.pool_more_bytes == 2 * largest - dry.pool_held_bytes, dry
        assert largest == need[32] and len(set(need.values())) == 16, need

        def dry_run(**options):
            return c.call("Graphs/Capture", pb.CaptureRequest(graph=r.graph, symbols=[32], dry_run=True, options=[
                pb.GraphOption(name=n, value=v) for n, v in options.items()]))
        # with other options it has the result of a registration with them
        named = dry_run(use_graph_pool="mine")
        assert named.pool == "named mine" and named.pool_held_bytes == 0 and named.pool_more_bytes == 2 * largest, named
        assert named.executables == 0 and named.key == dry.key, named  # the option is not a part of the key
        assert dry_run(reuse_graph_pool_in_same_fx="false").pool == "private"
        assert dry_run(inplace_pass="false").key != dry.key and dry_run().key == dry.key
        refused("NOT_FOUND", "NOT_FOUND", dry_run, post_grad_custom_pre_pass="nobody.knows.it")
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", dry_run, dump_tensor_data="true")
        assert len(c.call("Graphs/List", pb.ListGraphsRequest()).graphs) == 1

        def work(order):
            with Client(daemon) as mine:
                g = mine.register(text).graph
                for b in order:
                    mine.replay(g, [bytes(4 * 8192 * b)], [b])

        for order in (buckets, buckets[::-1], buckets[::2] + buckets[1::2]):
            threads = [threading.Thread(target=work, args=(order,)) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        held = daemon.stats()["devices"][0]["pool_bytes"]
        assert largest <= held <= 1.01 * 2 * largest, (held, largest)
        assert c.call("Graphs/Describe", pb.DescribeRequest(graph=r.graph)).info.executables == 16
        # with 16 pools instead of 2 the need would be this:
        assert sum(need.values()) > 3 * 2 * largest


def ctl(daemon, *arguments, status=0):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    done = subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


UNEVEN = graph('  sym A 1..60\n  sym T 1..50\n  guard mod(A, 7) == 0\n  guard A == 2*T\n  input %a : f32[A]\n  input %t : f32[T]\n'
               '  %x = aten.neg(%a)\n  %y = aten.neg(%t)\n  return "x" = %x, "y" = %y', "uneven")
NEVER = graph('  sym A 1..9\n  guard mod(A, 2) == 0\n  guard mod(A, 4) == 1\n  input %a : f32[A]\n  %x = aten.neg(%a)\n  return "x" = %x', "never")


@test("sizes that nobody gave are the largest at which the guards hold, and are told")
def chosen_sizes(daemon):
    with Client(daemon) as c:
        r = c.register(UNEVEN)

        def capture(symbols, graph=r.graph, **kwargs):
            return c.call("Graphs/Capture", pb.CaptureRequest(graph=graph, symbols=symbols, **kwargs))

        for dry_run in (True, False):
            got = capture([-1, -1], dry_run=dry_run)
            assert list(got.symbols) == [56, 28] and got.key.startswith("A==56 T==28") and list(got.input_bytes) == [224, 112], got
        assert list(capture([-1, 7]).symbols) == [14, 7] and list(capture([42, 21]).symbols) == [42, 21]
        told = refused("GUARD_FAILED", "FAILED_PRECONDITION", capture, [-1, 8]).text
        assert "there are no sizes" in told and "with T = 8" in told, told
        assert "outside 1..60" in refused("GUARD_FAILED", "FAILED_PRECONDITION", capture, [61, -1]).text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", capture, [-1])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", capture, [-1] * 40)
        for symbols, want in (([], [56, 28]), ([-1, 14], [28, 14])):
            got = c.call("Graphs/Doctor", pb.DoctorRequest(graph=r.graph, symbols=symbols))
            assert got.healthy and list(got.symbols) == want, got
            assert c.call("Graphs/Trace", pb.DoctorRequest(graph=r.graph, symbols=symbols)).json
        never = c.register(NEVER).graph
        for call in (lambda: capture([-1], never), lambda: c.call("Graphs/Doctor", pb.DoctorRequest(graph=never))):
            assert 'of graph "never" at which all of its guards hold' in refused("GUARD_FAILED", "FAILED_PRECONDITION", call).text


@test("npugraphctl capture, replay and doctor choose sizes that the guards allow, and say which")
def chosen_by_ctl(daemon):
    files = {}
    for name, text in (("uneven", UNEVEN), ("never", NEVER)):
        files[name] = SCRATCH / f"{name}.graph"
        files[name].write_text(text)
    assert "A = 56, T = 28" in ctl(daemon, "capture", str(files["uneven"]), "--dry-run")
    assert json.loads(ctl(daemon, "--json", "capture", str(files["uneven"]), "--symbol", "T=14"))["sizes"] == "A = 28, T = 14"
    assert "there are no sizes" in ctl(daemon, "capture", str(files["never"]), status=1)
    assert "A = 56, T = 28" in ctl(daemon, "replay", str(files["uneven"]))
    with Client(daemon) as c:
        digest = c.register(UNEVEN).digest
        assert "Examined at A = 56, T = 28." in ctl(daemon, "doctor", digest)
        assert json.loads(ctl(daemon, "--json", "doctor", digest, "--symbol", "A=14"))["sizes"] == "A = 14, T = 7"


main()
