#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graphs: registrations, replays, the refusals of both, streams, captures, descriptions."""
import struct

from harness import *


def graph(body, name="g"):
    return f'npugraph 1\ngraph "{name}" {{\n{body}\n}}\n'


ADD = graph('  input %a : f32[4]\n  input %b : f32[4]\n  %c = aten.add.Tensor(%a, %b)\n  return "sum" = %c', "add")
ROWS = graph('  sym B 1..8 buckets 8\n  input %x : f32[B,4]\n  %y = aten.neg(%x)\n  return "neg" = %y', "rows")
EXACT = graph('  sym N 2..6\n  input %x : f32[N]\n  %y = aten.neg(%x)\n  return "neg" = %y', "exact")
TWO = graph('  input %x : f32[2]\n  %a = aten.neg(%x)\n  %b = aten.exp(%x)\n  return "neg" = %a, "exp" = %b', "two")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


BAD_GRAPHS = {  # what is wrong: (reason, status, text)
    "a cycle": ("GRAPH_UNDEFINED", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %a = aten.add.Tensor(%x, %b)\n  %b = aten.neg(%a)\n  return %b")),
    "an unknown operator": ("GRAPH_UNKNOWN_OP", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %y = aten.frobnicate(%x)\n  return %y")),
    "a value defined twice": ("GRAPH_REDEFINED", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %y = aten.neg(%x)\n  %y = aten.neg(%x)\n  return %y")),
    "too many operands": ("GRAPH_ARITY", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %y = aten.neg(%x, %x)\n  return %y")),
    "shapes that do not fit": ("GRAPH_SHAPE", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  input %y : f32[3]\n  %z = aten.add.Tensor(%x, %y)\n  return %z")),
    "a dtype that the operator does not take": ("GRAPH_DTYPE", "INVALID_ARGUMENT", graph("  input %x : i32[2,2]\n  %y = aten.silu(%x)\n  return %y")),
    "rank 9": ("GRAPH_RANK", "INVALID_ARGUMENT", graph("  input %x : f32[1,1,1,1,1,1,1,1,1]\n  %y = aten.neg(%x)\n  return %y")),
    "an annotated type that is wrong": ("GRAPH_TYPE_MISMATCH", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %y = aten.neg(%x) : f32[5]\n  return %y")),
    "no text": ("GRAPH_PARSE", "INVALID_ARGUMENT", ""),
    "no graph": ("GRAPH_PARSE", "INVALID_ARGUMENT", "hello"),
    "an unknown attribute": ("GRAPH_ATTRIBUTE", "INVALID_ARGUMENT", graph("  input %x : f32[4]\n  %y = aten.neg(%x) {speed=9}\n  return %y")),
    "a missing brace": ("GRAPH_PARSE", "INVALID_ARGUMENT", 'npugraph 1\ngraph "g" { input %x : f32[4]'),
}


@test("a bad graph is refused by name, with the place and what would be right")
def bad_graphs(daemon):
    with Client(daemon) as c:
        for what, (reason, code, text) in BAD_GRAPHS.items():
            try:
                refused(reason, code, c.register, text)
            except AssertionError as e:
                raise AssertionError(f"{what}: {e}") from None
        assert not list(c.call("Graphs/List", pb.ListGraphsRequest()).graphs)


@test("shapes that overflow are refused")
def overflow(daemon):
    with Client(daemon) as c:
        for dims in ("4294967296,4294967296,4294967296", "9223372036854775807,2", "99999999999999999999"):
            got = None
            try:
                c.register(graph(f"  input %x : f32[{dims}]\n  %y = aten.neg(%x)\n  return %y"))
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.code is grpc.StatusCode.INVALID_ARGUMENT and got.reason in ("OVERFLOW", "GRAPH_TOO_LARGE", "GRAPH_PARSE"), (dims, got and got.reason)


@test("a graph with too many nodes, or too much text, is refused")
def too_large(daemon):
    with Client(daemon) as c:
        lines = ["  input %v0 : f32[1]"] + [f"  %v{i + 1}=aten.neg(%v{i})" for i in range(65537)] + ["  return %v65537"]
        refused("GRAPH_TOO_LARGE", "INVALID_ARGUMENT", c.register, graph("\n".join(lines)))
        got = None
        try:
            c.register("#" * (12 << 20) + ADD)
        except grpc.RpcError as e:
            got = Refusal(e)
        assert got and got.reason == "GRAPH_TOO_LARGE", got and got.reason


@test("a large graph is parsed beside other calls, and works")
def large(daemon):
    with Client(daemon) as c:
        n = 6000
        lines = ["  input %v0 : f32[1]"] + [f"  %v{i + 1} = aten.neg(%v{i})" for i in range(n)] + [f"  return %v{n}"]
        future = c.method("Graphs/Register").future(pb.RegisterRequest(text=graph("\n".join(lines), "long")), metadata=c.metadata())
        c.call("Admin/Status", pb.StatusRequest())
        assert unfloats(c.replay(future.result().graph, [floats(3)]).outputs[0]) == [3]


@test("options: unknown names and bad values are refused")
def options(daemon):
    with Client(daemon) as c:
        for bad in ({"speed": "fast"}, {"capture_limit": "0"}, {"capture_limit": "x"}, {"capture_limit_policy": "never"}, {"force_eager": "perhaps"}):
            got = None
            try:
                c.register(ADD, options=bad)
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.code is grpc.StatusCode.INVALID_ARGUMENT and len(got.text) > 15, bad
        c.register(ADD, options={"capture_limit": "3", "force_eager": "true"})
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.register, ADD, options={"force_eager": "true", "force_recapture": "true"})


@test("options: the table is listed, defaults are taken, what is not supported yet is refused")
def option_table(daemon):
    with Client(daemon) as c:
        table = {o.name: o for o in c.call("Graphs/ListOptions", pb.ListOptionsRequest()).options}
        assert table["capture_limit"].default_value == "64" and table["capture_limit_policy"].allowed == "evict, eager, reject"
        c.register(ADD, options={name: o.default_value for name, o in table.items()
                                 if o.default_value and not name.startswith(("data_dump", "debug_dump_dir", "reuse_graph_pool"))})
        for name, o in table.items():
            if o.type == pb.OPTION_TYPE_BOOL and not o.supported:
                refused("UNIMPLEMENTED", "UNIMPLEMENTED", c.register, ADD, options={name: "false" if o.default_value == "true" else "true"})


@test("force_recapture captures again: each replay of such a graph, or one Capture")
def force_recapture(daemon):
    with Client(daemon) as c:
        g = c.register(EXACT, options={"force_recapture": "true", "capture_limit": "2"})
        for _ in range(4):
            assert unfloats(c.replay(g.graph, [floats(1, 2)], [2]).outputs[0]) == [-1, -2]
        info = c.call("Graphs/Describe", pb.DescribeRequest(graph=g.graph)).info
        assert info.captures == 4 and info.executables == 1 and info.evictions == 0, info
        h = c.register(EXACT, options={"capture_limit": "3"})
        again = [pb.GraphOption(name="force_recapture", value="true")]
        assert c.call("Graphs/Capture", pb.CaptureRequest(graph=h.graph, symbols=[2])).captured
        assert not c.call("Graphs/Capture", pb.CaptureRequest(graph=h.graph, symbols=[2])).captured
        assert c.call("Graphs/Capture", pb.CaptureRequest(graph=h.graph, symbols=[2], options=again)).captured
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Capture",
                pb.CaptureRequest(graph=h.graph, symbols=[2], options=[pb.GraphOption(name="capture_limit", value="3")]))
        c.call("Graphs/Capture", pb.CaptureRequest(graph=h.graph, symbols=[2], dry_run=True, options=[pb.GraphOption(name="capture_limit", value="3")]))


@test("bindings: what does not exist, does not fit, or comes twice is refused; what is unbound is listed")
def bindings(daemon):
    text = graph('  param %w : f32[4] = "w"\n  input %x : f32[4]\n  %y = aten.add.Tensor(%w, %x)\n  return %y', "bound")
    with Client(daemon) as c:
        buffer = c.allocate(16)
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.register, text, {"nope": buffer})
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.register, text, {"w": c.allocate(15)})
        refused("UNKNOWN_ID", "NOT_FOUND", c.register, text, {"w": 77})
        twice = pb.RegisterRequest(text=text, bindings=[pb.Binding(name="w", buffer=buffer)] * 2)
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.call, "Graphs/Register", twice)
        unbound = c.register(text)
        assert list(unbound.unbound) == ["w"]
        refused("BINDING_MISSING", "FAILED_PRECONDITION", c.replay, unbound.graph, [floats(1, 2, 3, 4)])
        c.write(buffer, floats(10, 20, 30, 40))
        g = c.register(text, {"w": buffer})
        assert unfloats(c.replay(g.graph, [floats(1, 2, 3, 4)]).outputs[0]) == [11, 22, 33, 44]
        # memory that a graph uses stays until the graph goes
        c.call("Memory/Free", pb.FreeRequest(buffers=[buffer]))
        assert unfloats(c.replay(g.graph, [floats(1, 2, 3, 4)]).outputs[0]) == [11, 22, 33, 44]


@test("a state has memory of its own: a binding that gives it a param's or another state's is refused, tied params are not")
def aliases(daemon):
    text = graph('  param %a : f32[4] = "a"\n  param %b : f32[4] = "b"\n  state %s : f32[4] = "s"\n  state %t : f32[4] = "t"\n'
                 '  state %e : f32[0] = "e"\n  input %x : f32[4]\n  %y = aten.add.Tensor(%a, %b)\n  %z = aten.add.Tensor(%y, %x)\n'
                 '  aten.copy_(%s, %z)\n  aten.copy_(%t, %y)\n  return %z', "tied")
    with Client(daemon) as c:
        w, s, t = (c.allocate(16) for _ in range(3))
        for bound in ({"a": w, "s": w}, {"s": s, "t": s}, {"b": t, "t": t}):
            got = refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.register, text, bound)
            assert "a buffer of its own" in got.text, got.text
        c.write(w, floats(1, 2, 3, 4))
        g = c.register(text, {"a": w, "b": w, "s": s, "t": t, "e": w}).graph  # a buffer without bytes overlaps nothing
        assert unfloats(c.replay(g, [floats(1, 1, 1, 1)]).outputs[0]) == [3, 5, 7, 9]
        assert unfloats(c.read(s)) == [3, 5, 7, 9] and unfloats(c.read(t)) == [2, 4, 6, 8]
        request = pb.BindRequest(graph=g, bindings=[pb.Binding(name="t", buffer=s)])
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.call, "Graphs/Bind", request)
        swapped = pb.BindRequest(graph=g, bindings=[pb.Binding(name="t", buffer=s), pb.Binding(name="s", buffer=t)])
        c.call("Graphs/Bind", swapped)
        c.replay(g, [floats(1, 1, 1, 1)])
        assert unfloats(c.read(t)) == [3, 5, 7, 9]


@test("a replay computes, by one call and eagerly, and gives the outputs that were asked for")
def replays(daemon):
    with Client(daemon) as c:
        g = c.register(ADD).graph
        r = c.replay(g, [floats(1, 2, 3, 4), floats(10, 20, 30, 40)], tag=99)
        assert unfloats(r.outputs[0]) == [11, 22, 33, 44] and r.tag == 99
        assert unfloats(c.replay(g, [floats(1, 2, 3, 4), floats(1, 1, 1, 1)], eager=True).outputs[0]) == [2, 3, 4, 5]
        t = c.register(TWO).graph
        assert len(c.replay(t, [floats(0, 0)]).outputs) == 2
        r = c.replay(t, [floats(0, 0)], outputs=[1])
        assert len(r.outputs) == 1 and unfloats(r.outputs[0]) == [1, 1]
        r = c.replay(t, [floats(2, 2)], outputs=[1, 0])
        assert unfloats(r.outputs[1]) == [-2, -2]


@test("missing, extra, short and long inputs, unknown outputs and ids are refused, each by its reason")
def bad_replays(daemon):
    with Client(daemon) as c:
        g, good = c.register(ADD).graph, floats(1, 2, 3, 4)
        refused("INPUT_COUNT", "INVALID_ARGUMENT", c.replay, g, [good])
        refused("INPUT_COUNT", "INVALID_ARGUMENT", c.replay, g, [good] * 3)
        refused("INPUT_COUNT", "INVALID_ARGUMENT", c.replay, g, [])
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g, [good, good[:-1]])
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g, [good, good + b"\0"])
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g, [good, b""])
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", c.replay, g, [good, good], outputs=[1])
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", c.replay, g, [good, good], outputs=[0, 0])
        refused("HOST_PARAM", "INVALID_ARGUMENT", c.replay, g, [good, good], hosts=[pb.HostValue(values=[1])])
        refused("UNKNOWN_ID", "NOT_FOUND", c.replay, 5, [good, good])
        refused("UNKNOWN_ID", "NOT_FOUND", c.replay, c.allocate(8), [good, good])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.replay, 0, [good, good])
        c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        refused("STALE_ID", "NOT_FOUND", c.replay, g, [good, good])
        refused("STALE_ID", "NOT_FOUND", c.call, "Graphs/Release", pb.ReleaseRequest(graph=g))


@test("a graph with a collective, which nothing binds to a group, registers, and is captured by no policy")
def collectives(daemon):
    text = graph('  input %x : f32[4]\n  %y = _c10d_functional.all_reduce(%x) {reduce_op="sum", group_name="tp"}\n  return "y" = %y')
    with Client(daemon) as c:
        for options in ({}, {"force_eager": "true"}, {"capture_limit": "1"}):
            g = c.register(text, options=options).graph
            for _ in range(2):
                refused("GROUP_UNBOUND", "FAILED_PRECONDITION", c.replay, g, [floats(1, 2, 3, 4)])
            c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        assert unfloats(c.replay(c.register(TWO).graph, [floats(0, 0)]).outputs[1]) == [1, 1]


@test("a shape outside the guards is refused")
def guards(daemon):
    with Client(daemon) as c:
        g = c.register(ROWS).graph
        for b in (1, 5, 8):
            data = [float(i) for i in range(4 * b)]
            assert unfloats(c.replay(g, [floats(*data)], [b]).outputs[0]) == [-x for x in data]
        for symbols in ([], [1, 1]):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.replay, g, [floats(*[0.0] * 4)], symbols)
        for symbols in ([9], [0], [-1], [2**62]):
            refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, [floats(*[0.0] * 4)], symbols)
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g, [floats(*[0.0] * 8)], [3])


@test("a stream answers in order, goes on after a failure, and ends when the client half-closes")
def stream(daemon):
    with Client(daemon) as c:
        g = c.register(ADD).graph
        one, two = floats(1, 1, 1, 1), floats(2, 2, 2, 2)
        requests = [pb.ReplayRequest(graph=g, inputs=[one, two], tag=1), pb.ReplayRequest(inputs=[one], tag=2),
                    pb.ReplayRequest(graph=12345, tag=3), pb.ReplayRequest(inputs=[two, two], tag=4)]
        answers = list(c.call("Graphs/ReplayStream", iter(requests)))
        assert [a.tag for a in answers] == [1, 2, 3, 4]
        assert [a.error.reason for a in answers] == ["", "INPUT_COUNT", "UNKNOWN_ID", ""]
        assert answers[1].error.code == 3 and len(answers[1].error.message) > 15
        assert unfloats(answers[0].outputs[0]) == [3] * 4 and unfloats(answers[3].outputs[0]) == [4] * 4
        many = list(c.call("Graphs/ReplayStream", (pb.ReplayRequest(graph=g, inputs=[one, two], tag=i) for i in range(2000))))
        assert [a.tag for a in many] == list(range(2000))
        released = c.register(ADD).graph
        requests = queue.Queue()
        answers = c.call("Graphs/ReplayStream", iter(requests.get, None))
        requests.put(pb.ReplayRequest(graph=released, inputs=[one, two]))
        assert next(answers).error.reason == ""
        c.call("Graphs/Release", pb.ReleaseRequest(graph=released))
        requests.put(pb.ReplayRequest(inputs=[one, two]))
        assert next(answers).error.reason == "STALE_ID"
        requests.put(None)
        assert list(answers) == []


@test("streams of one session run beside each other, and end with the session")
def streams(daemon):
    with Client(daemon) as c:
        g = c.register(ADD).graph
        open_streams = []
        for _ in range(3):
            requests = queue.Queue()
            open_streams.append((requests, c.method("Graphs/ReplayStream")(iter(requests.get, None), metadata=c.metadata())))
        for requests, s in open_streams:
            requests.put(pb.ReplayRequest(graph=g, inputs=[floats(1, 2, 3, 4)] * 2))
            assert unfloats(next(s).outputs[0]) == [2, 4, 6, 8]
        c.end_session()
        for requests, s in open_streams:
            refused("SESSION_GONE", "NOT_FOUND", lambda: s)
            requests.put(None)


@test("logical streams of a session wait for each other's events, and say why they cannot")
def events(daemon):
    with Client(daemon) as c, Client(daemon) as other:
        g = c.register(ADD).graph
        data = [floats(1, 2, 3, 4)] * 2
        refused("EVENT_UNKNOWN", "FAILED_PRECONDITION", c.replay, g, data, wait_event="start")
        c.replay(g, data, stream=3, record_event="start")
        assert unfloats(c.replay(g, data, stream=15, wait_event="start", record_event="next").outputs[0]) == [2, 4, 6, 8]
        c.replay(g, data, wait_event="next")
        refused("EVENT_UNKNOWN", "FAILED_PRECONDITION", other.replay, other.register(ADD).graph, data, wait_event="start")
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.replay, g, data, stream=16)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.replay, g, data, record_event="n" * 65)
        refused("INPUT_COUNT", "INVALID_ARGUMENT", c.replay, g, data[:1], stream=1, record_event="refused")
        refused("EVENT_UNKNOWN", "FAILED_PRECONDITION", c.replay, g, data, wait_event="refused")
        requests = [pb.ReplayRequest(graph=g, inputs=data, wait_event="next", record_event="streamed"),
                    pb.ReplayRequest(inputs=data, wait_event="gone"), pb.ReplayRequest(inputs=data, stream=1)]
        answers = list(c.call("Graphs/ReplayStream", iter(requests)))
        assert [a.error.reason for a in answers] == ["", "EVENT_UNKNOWN", "INVALID_ARGUMENT"]
        c.replay(g, data, stream=2, wait_event="streamed")


@test("who waits for an event learns that its replay failed, and a session may end with waits pending")
def failed_events():
    with Daemon("--inline-limit=0", env={"NPUGRAPHD_FAULT": "host-hang:0:1"}) as d, Client(d) as c:
        g = c.register(ADD).graph
        data = [floats(1, 2, 3, 4)] * 2
        c.call("Graphs/Capture", pb.CaptureRequest(graph=g))
        send = c.method("Graphs/Replay").future
        first = send(pb.ReplayRequest(graph=g, inputs=data, stream=1, record_event="e"), metadata=c.metadata())
        until("it runs", lambda: d.stats()["latency"]["queue"]["count"] == 1)
        second = send(pb.ReplayRequest(graph=g, inputs=data, stream=2, wait_event="e", record_event="f"), metadata=c.metadata())
        refused("DEVICE_FAULT", "INTERNAL", first.result)
        refused("EVENT_FAILED", "FAILED_PRECONDITION", second.result)
        c.replay(g, data, record_event="e")
        c.replay(g, data, stream=1, wait_event="e")
    with Daemon("--inline-limit=0", env={"NPUGRAPHD_FAULT": "host-hang:0:1"}) as d:
        with Client(d) as c:
            g = c.register(ADD).graph
            c.call("Graphs/Capture", pb.CaptureRequest(graph=g))
            send = c.method("Graphs/Replay").future
            calls = [send(pb.ReplayRequest(graph=g, inputs=data, record_event="e"), metadata=c.metadata())]
            until("it runs", lambda: d.stats()["latency"]["queue"]["count"] == 1)
            calls += [send(pb.ReplayRequest(graph=g, inputs=data, stream=1 + i, wait_event="e"), metadata=c.metadata()) for i in range(5)]
            calls[2].cancel()
            c.end_session()
            for call in calls:
                with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
                    call.result()
        until("nothing is left", lambda: d.stats()["queue_depth"] == 0)
        with Client(d) as c:
            assert unfloats(c.replay(c.register(ADD).graph, data).outputs[0]) == [2, 4, 6, 8]


@test("captures: one per key, counted; a repetition is cheap; a dry run keeps nothing; the limit holds")
def captures(daemon):
    with Client(daemon) as c:
        before = daemon.stats()["captures_total"]
        g = c.register(EXACT, options={"capture_limit": "2", "capture_limit_policy": "reject"}).graph
        dry = c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[3], dry_run=True))
        assert not dry.captured and daemon.stats()["captures_total"] == before
        first = c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[3]))
        assert first.captured and first.key and first.kernels >= 1
        assert not c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[3])).captured
        c.replay(g, [floats(1, 2, 3)], [3])
        c.replay(g, [floats(1, 2)], [2])
        assert daemon.stats()["captures_total"] == before + 2
        refused("CAPTURE_LIMIT", "RESOURCE_EXHAUSTED", c.replay, g, [floats(1, 2, 3, 4)], [4])
        refused("GUARD_FAILED", "FAILED_PRECONDITION", c.call, "Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[99]))


@test("deadlock_check refuses a capture whose streams want more cores together than the device has, of a graph or of one capture")
def deadlock_check():
    text = """npugraph 1
graph "beside" {
  input %%x : f32[4]
  limit_core_num 1, 1 {
    %%a = aten.neg(%%x)
  }
  stream "side" {
    limit_core_num 2, 2 {
      %%b = aten.exp(%s)
    }
  }
  return "a" = %%a, "b" = %%b
}
"""
    with Daemon("--threads=2") as d, Client(d) as c:
        data = [floats(0, 0, 0, 0)]
        check = {"deadlock_check": "true"}
        plain = c.register(text % "%x").graph
        assert unfloats(c.replay(plain, data).outputs[1]) == [1] * 4, "unchecked, it runs"
        option = [pb.GraphOption(name="deadlock_check", value="true"), pb.GraphOption(name="force_recapture", value="true")]
        for got in (refused("GRAPH_DEADLOCK", "INVALID_ARGUMENT", c.replay, c.register(text % "%x", options=check).graph, data),
                    refused("GRAPH_DEADLOCK", "INVALID_ARGUMENT", c.call, "Graphs/Capture", pb.CaptureRequest(graph=plain, options=option))):
            assert "%a (aten.neg)" in got.text and '%b (aten.exp) on stream "side"' in got.text and "has 2" in got.text, got.text
        assert unfloats(c.replay(plain, data).outputs[1]) == [1] * 4, "what was captured stays"
        after = c.register(text % "%a", options=check).graph  # the nodes run one after the other
        assert unfloats(c.replay(after, data).outputs[1]) == [1] * 4


@test("a graph that is registered in several ways is listed once for each, and what is asked of one of them names it by number")
def ways():
    text = 'npugraph 1\ngraph "ways" {\n  sym B 1..8 buckets 8\n  input %x : f32[B]\n  %y = aten.exp(%x)\n  return "y" = %y\n}'
    with Daemon() as d, Client(d) as c:
        plain = c.register(text)
        other = c.register(text, options={"inplace_pass": "false", "verify_every_n": "2"})
        for r in (plain, other):
            c.replay(r.graph, [floats(0)], [1])
        listed = {g.options: g for g in c.call("Graphs/List", pb.ListGraphsRequest()).graphs}
        assert set(listed) == {"", "inplace_pass=false verify_every_n=2"}, listed
        assert {g.digest for g in listed.values()} == {plain.digest} and {(g.registrations, g.device) for g in listed.values()} == {(1, "host:0")}
        names = {options: f"{plain.digest[:12]}/{g.number}" for options, g in listed.items()}
        keys = {options: [k.key for k in c.call("Graphs/Explain", pb.ExplainRequest(digest=name)).keys] for options, name in names.items()}
        assert all(len(k) == 1 for k in keys.values()) and keys[""] != keys["inplace_pass=false verify_every_n=2"], keys
        for options, name in names.items():
            plan = c.call("Graphs/Describe", pb.DescribeRequest(digest=name, form=pb.DESCRIBE_FORM_PLAN))
            assert "aten.exp" in plan.text and plan.info.options == options, plan
            assert c.call("Graphs/Doctor", pb.DoctorRequest(digest=name)).healthy
            c.call("Graphs/Buckets", pb.BucketsRequest(digest=name, apply=True, set=[1, 8] if options else [2, 8]))
        now = {name: list(c.call("Graphs/Buckets", pb.BucketsRequest(digest=name)).present.buckets) for name in names.values()}
        assert list(now.values()) == [[2, 8], [1, 8]], now
        for method, request in (("Explain", pb.ExplainRequest), ("Doctor", pb.DoctorRequest), ("Trace", pb.DoctorRequest),
                                ("Buckets", pb.BucketsRequest)):
            got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, f"Graphs/{method}", request(digest=plain.digest))
            assert all(name in got.text for name in names.values()) and "inplace_pass=false" in got.text, got.text
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Describe", pb.DescribeRequest(digest=plain.digest[:6], form=pb.DESCRIBE_FORM_MAP))
        assert "aten.exp" in c.call("Graphs/Describe", pb.DescribeRequest(digest=plain.digest[:6])).text  # both have the same text
        for bad in ("/1", plain.digest + "/", plain.digest + "/0", plain.digest + "/1x", plain.digest + "/99999999999999999999999"):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Explain", pb.ExplainRequest(digest=bad))
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Explain", pb.ExplainRequest(digest=plain.digest + "/4711"))
        table = subprocess.run([CTL, "--address", d.address, "graphs"], capture_output=True, text=True, check=True).stdout
        assert all(name in table for name in names.values()), table
        told = json.loads(subprocess.run([CTL, "--json", "--address", d.address, "graphs"], capture_output=True, text=True, check=True).stdout)
        assert {(g["digest"], g["number"], g["options"], g["device"]) for g in told["graphs"]} == {
            (g.digest, g.number, g.options, "host:0") for g in listed.values()}, told
        for name in (names[""], f"{plain.digest[:14]}/{listed[''].number}"):  # also with as many digits as a key has
            told = subprocess.run([CTL, "--json", "--address", d.address, "explain", name], capture_output=True, text=True, check=True).stdout
            assert [k["key"] for k in json.loads(told)["keys"]] == keys[""], told
        c.call("Graphs/Release", pb.ReleaseRequest(graph=other.graph))
        until("one way is left", lambda: len(c.call("Graphs/List", pb.ListGraphsRequest()).graphs) == 1)
        assert c.call("Graphs/Doctor", pb.DoctorRequest(digest=plain.digest)).healthy  # only one is left, so no number is needed


@test("graphs are listed and described, as text that parses again, dot and plan")
def describe(daemon):
    with Client(daemon) as c:
        r = c.register(TWO)
        text = c.call("Graphs/Describe", pb.DescribeRequest(graph=r.graph)).text
        assert c.register(text).digest == r.digest and "aten.exp" in text
        by_digest = c.call("Graphs/Describe", pb.DescribeRequest(digest=r.digest[:8], form=pb.DESCRIBE_FORM_DOT))
        assert by_digest.text.lstrip().startswith("digraph") and by_digest.info.digest == r.digest
        fresh = c.register(graph('  input %x : f32[3]\n  %a = aten.neg(%x)\n  %b = aten.sin(%a)\n  return %b')).graph
        for form in (pb.DESCRIBE_FORM_PLAN, pb.DESCRIBE_FORM_MAP, pb.DESCRIBE_FORM_SVG):
            assert "no executable; capture" in refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Describe", pb.DescribeRequest(graph=fresh, form=form)).text
        c.replay(r.graph, [floats(1, 2)])
        key = c.call("Graphs/Explain", pb.ExplainRequest(graph=r.graph)).keys[0].key
        for form in (pb.DESCRIBE_FORM_PLAN, pb.DESCRIBE_FORM_MAP, pb.DESCRIBE_FORM_SVG):
            assert c.call("Graphs/Describe", pb.DescribeRequest(graph=r.graph, form=form, key=key[:6])).text
            assert "begins with " in refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Describe",
                                             pb.DescribeRequest(graph=r.graph, form=form, key="g" + key[1:6])).text
        assert r.digest in [g.digest for g in c.call("Graphs/List", pb.ListGraphsRequest()).graphs]
        for request in (pb.DescribeRequest(graph=r.graph, form=6), pb.DescribeRequest(digest="zz"), pb.DescribeRequest(digest="00000000"),
                        pb.DescribeRequest()):
            got = None
            try:
                c.call("Graphs/Describe", request)
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), request
    with Client(daemon, session=False) as c:
        c.call("Graphs/List", pb.ListGraphsRequest())


@test("an output larger than max-message is refused with what to do")
def big_output(daemon):
    with Client(daemon) as c:
        g = c.register(graph("  input %x : f32[1]\n  %y = aten.expand(%x) {size=[5000000]}\n  %z = aten.neg(%y)\n  return %z", "big")).graph
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", c.replay, g, [floats(1)])


@test("two clients that register the same graph share its capture")
def sharing(daemon):
    with Client(daemon) as a, Client(daemon) as b:
        text = ADD.replace('"add"', '"shared-add"')
        one = a.register(text)
        assert not one.shared
        two = b.register(text)
        assert two.shared and two.digest == one.digest and two.graph != 0
        before = daemon.stats()["captures_total"]
        for c, g in ((a, one), (b, two), (a, one)):
            c.replay(g.graph, [floats(1, 2, 3, 4)] * 2)
        assert daemon.stats()["captures_total"] == before + 1


if __name__ == "__main__":
    main()
