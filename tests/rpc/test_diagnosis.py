#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's reports about graphs: explain, buckets, maps of pools; over gRPC and with npugraphctl."""
import itertools
import struct
import xml.etree.ElementTree as ElementTree

from harness import *


def graph(body, name="g"):
    return f'npugraph 1\ngraph "{name}" {{\n{body}\n}}\n'


# The daemon may hold a graph a little longer than its test, and its counters belong to the graph's text, not to its name. So each
# graph has an output with another name.
def rows(name):
    return graph(f'  sym B 1..64 buckets 64\n  input %x : f32[B,4]\n  %y = aten.neg(%x)\n  %z = aten.exp(%y)\n  return "{name}" = %z', name)


def exact(name):
    return graph(f'  sym N 1..64\n  input %x : f32[N]\n  %y = aten.neg(%x)\n  return "{name}" = %y', name)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def run_rows(c, g, n, **kwargs):
    return c.replay(g, [floats(*[float(i) for i in range(4 * n)])], [n], **kwargs)


def explain(c, **kwargs):
    return c.call("Graphs/Explain", pb.ExplainRequest(**kwargs))


def reasons(answer):
    return [e.reason for e in answer.events]


def ctl(daemon, *arguments, status=0):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    done = subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


@test("explain says why a key was missed, captured, evicted, captured again, and what fell back")
def explains(daemon):
    with Client(daemon) as c:
        g = c.register(exact("evicting"), options={"capture_limit": "1"}).graph
        for n in (3, 4, 3):
            c.replay(g, [floats(*range(n))], [n], tag=100 + n)
        c.replay(g, [floats(*range(3))], [3], eager=True, tag=9)
        got = explain(c, graph=g)
        assert set(reasons(got)) == {"miss-first", "captured", "evicted-limit", "miss-evicted", "recaptured-evicted", "eager-requested"}, reasons(got)
        again = next(e for e in got.events if e.reason == "recaptured-evicted")
        assert again.text.startswith("N==3: ") and again.kind == "recapture" and again.graph == "evicting" and len(again.key) == 16, again
        assert [k.symbols for k in got.keys] == ["N==3"] and got.keys[0].key == again.key, got.keys
        by_key = explain(c, key=again.key)
        assert by_key.events and all(e.key == again.key for e in by_key.events)
        by_tag = explain(c, tag=9)
        assert reasons(by_tag) == ["eager-requested"], by_tag
        assert len(explain(c, graph=g, limit=2).events) == 2


@test("a refused replay is explained by the guard that failed and the value it had")
def refusals(daemon):
    with Client(daemon) as c:
        text = rows("refusing")
        g = c.register(text)
        got = refused("GUARD_FAILED", "FAILED_PRECONDITION", run_rows, c, g.graph, 65, tag=77)
        assert "B = 65" in got.text and "B <= 64" in got.text, got.text
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g.graph, [floats(1)], [2], tag=78)
        events = explain(c, digest=g.digest[:10]).events
        guard = next(e for e in events if e.reason == "refused-guard")
        assert guard.tag == 77 and "GUARD_FAILED" in guard.text and "B = 65" in guard.text, guard
        refused("GUARD_FAILED", "FAILED_PRECONDITION", run_rows, c, g.graph, 66, tag=79)
        repeated = next(e for e in explain(c, digest=g.digest[:10]).events if e.reason == "refused-guard")
        assert (repeated.number, repeated.tag, repeated.count) == (guard.number, 79, 2) and "B = 66" in repeated.text, repeated
        [first] = explain(c, tag=77).events  # still kept separately, with its own values
        assert (first.number, first.tag, first.count, first.text) == (guard.number, 77, 1, guard.text), first
        size = next(e for e in events if e.reason == "refused-request")
        assert size.tag == 78 and "INPUT_SIZE" in size.text, size


@test("repetitions raise a count, and reasons are counted in the metrics")
def counts(daemon):
    with Client(daemon) as c:
        g = c.register(rows("counting")).graph
        before = {x.reason: x.count for x in explain(c).counts}
        for _ in range(7):
            refused("GUARD_FAILED", "FAILED_PRECONDITION", run_rows, c, g, 65)
        events = [e for e in explain(c, graph=g).events if e.reason == "refused-guard"]
        assert len(events) == 1 and events[0].count == 7, events
        after = {x.reason: x.count for x in explain(c).counts}
        assert after["refused-guard"] == before.get("refused-guard", 0) + 7
        status, text = daemon.http("/metrics")
        assert f'npugraphd_flight_events_total{{reason="refused-guard"}} {after["refused-guard"]}' in text, status


@test("a capture that is refused, a dry run too, is explained by what refused it")
def refused_capture(daemon):
    with Client(daemon) as c:
        g = c.register(exact("uncaptured")).graph

        def capture(n, **kwargs):
            return c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[n], **kwargs))

        for dry_run in (False, True):
            told = refused("GUARD_FAILED", "FAILED_PRECONDITION", capture, 65, dry_run=dry_run)
            event = explain(c, graph=g).events[0]
            assert (event.reason, event.kind, event.graph) == ("refused-guard", "refused", "uncaptured"), event
            assert event.text.startswith("GUARD_FAILED: capture: ") and "N" in event.text and "65" in event.text, (event.text, told.text)
        assert event.count == 2, event
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", capture, 3, options=[pb.GraphOption(name="nonsense", value="1")])
        event = explain(c, graph=g).events[0]
        assert event.reason == "refused-request" and "capture: " in event.text and "nonsense" in event.text, event


@test("explain refuses what names nothing")
def explain_refused(daemon):
    with Client(daemon) as c:
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", explain, c, key="12")
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", explain, c, limit=1001)
        refused("NOT_FOUND", "NOT_FOUND", explain, c, digest="00000000")
        refused("UNKNOWN_ID", "NOT_FOUND", explain, c, graph=12345)


@test("buckets: sizes seen, padding of the present set, a better one, and its application")
def buckets(daemon):
    with Client(daemon) as c:
        g = c.register(rows("learning")).graph
        want = {}
        for n, times in ((3, 30), (8, 20), (40, 5)):
            for _ in range(times):
                want[n] = run_rows(c, g, n).outputs[0]
        ask = pb.BucketsRequest(graph=g, captures=3)
        got = c.call("Graphs/Buckets", ask)
        assert [(s.size, s.count) for s in got.sizes] == [(3, 30), (8, 20), (40, 5)], got.sizes
        assert got.symbol == "B" and list(got.present.buckets) == [64] and got.present.captures == 1
        assert got.present.padding == 30 * 61 + 20 * 56 + 5 * 24 and got.present.rows == 90 + 160 + 200
        assert list(got.proposed.buckets) == [3, 8, 40, 64] and got.proposed.padding == 0 and got.proposed.captures == 3
        assert list(c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, captures=2)).proposed.buckets) == [8, 40, 64]
        assert not got.applied
        assert list(c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, captures=63)).proposed.buckets) == [3, 8, 40, 64]
        told = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Buckets", pb.BucketsRequest(graph=g, captures=64))
        assert "1 to 63" in told.text, told
        applied = c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, captures=3, apply=True))
        assert applied.applied and applied.dropped == 0, applied  # 64 is a bucket still
        for n, outputs in want.items():
            assert run_rows(c, g, n).outputs[0] == outputs, f"results of {n} rows changed with the buckets"
        assert {k.symbols for k in explain(c, graph=g).keys} == {"B<=3", "B<=8", "B<=40", "B<=64"}
        given = c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, set=[16, 64], apply=True))
        assert given.applied and given.dropped == 3 and list(given.proposed.buckets) == [16, 64]
        assert run_rows(c, g, 3).outputs[0] == want[3]
        assert {"buckets-applied", "evicted-buckets"} <= set(reasons(explain(c, graph=g)))


@test("bucket_policy learn applies a better set by itself, and only where the graph has buckets")
def learning(daemon):
    with Client(daemon) as c:
        g = c.register(rows("learner"), options={"bucket_policy": "learn"}).graph
        want = run_rows(c, g, 3).outputs[0]
        for _ in range(300):
            assert run_rows(c, g, 3).outputs[0] == want
        present = lambda: list(c.call("Graphs/Buckets", pb.BucketsRequest(graph=g)).present.buckets)
        until("the buckets are learned", lambda: present() == [3, 64])
        assert run_rows(c, g, 3).outputs[0] == want
        assert "B<=3" in {k.symbols for k in explain(c, graph=g).keys}
        n = c.register(exact("unlearned"), options={"bucket_policy": "learn"}).graph
        for _ in range(260):
            c.replay(n, [floats(1, 2)], [2])


@test("padding is invisible: whatever the buckets, a replay of n rows gives the bytes that n rows give alone")
def padding(daemon):
    text = graph('  sym B 1..32 buckets 32\n  param %w : f32[6,6] = "w"\n  input %x : f32[B,6]\n  %a = aten.mm(%x, %w)\n'
                 '  %s = aten._softmax(%a) {dim=-1}\n  %m = aten.sum.dim_IntList(%s) {dim=[1], keepdim=true}\n  %y = aten.mul.Tensor(%s, %m)\n'
                 '  return "y" = %y', "padding")
    import random
    draw = random.Random(5)
    with Client(daemon) as c:
        w = c.allocate(6 * 6 * 4)
        c.write(w, floats(*[draw.uniform(-2, 2) for _ in range(36)]))
        g = c.register(text, {"w": w}).graph
        inputs = {n: floats(*[draw.uniform(-3, 3) for _ in range(6 * n)]) for n in range(1, 33)}
        alone = {}
        c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, set=list(range(1, 33)), apply=True))
        for n in inputs:
            alone[n] = c.replay(g, [inputs[n]], [n]).outputs[0]
            assert len(alone[n]) == 24 * n
        for _ in range(6):
            sizes = sorted(draw.sample(range(1, 32), draw.randint(0, 5))) + [32]
            c.call("Graphs/Buckets", pb.BucketsRequest(graph=g, set=sizes, apply=True))
            for n in draw.sample(range(1, 33), 12):
                got = c.replay(g, [inputs[n]], [n]).outputs[0]
                assert got == alone[n], f"{n} rows in buckets {sizes}"


@test("buckets that a symbol cannot have are refused, and so is a stranger who applies them")
def buckets_refused(daemon):
    with Client(daemon) as c, Client(daemon, session=False) as stranger:
        g = c.register(rows("strict"))
        plain = c.register(exact("plain"))
        for bad in ([65], [8, 8, 64], [0, 64], [8], list(range(1, 66))):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Buckets", pb.BucketsRequest(graph=g.graph, set=bad, apply=True))
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Buckets", pb.BucketsRequest(graph=g.graph, symbol="Z"))
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Buckets", pb.BucketsRequest(graph=plain.graph))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Buckets",
                pb.BucketsRequest(graph=plain.graph, symbol="N", set=[64], apply=True))
        refused("SESSION_REQUIRED", "UNAUTHENTICATED", stranger.call, "Graphs/Buckets", pb.BucketsRequest(graph=g.graph))
        # by digest any identity may look; on a Unix socket the test's user is the daemon's own, which may apply too
        assert stranger.call("Graphs/Buckets", pb.BucketsRequest(digest=g.digest)).graph == "strict"


@test("the map of a pool: text and SVG, of the key that was asked for")
def maps(daemon):
    with Client(daemon) as c:
        g = c.register(rows("mapped"))
        ask = pb.DescribeRequest(graph=g.graph, form=pb.DESCRIBE_FORM_MAP)
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/Describe", ask)
        c.call("Graphs/Buckets", pb.BucketsRequest(graph=g.graph, set=[4, 64], apply=True))
        run_rows(c, g.graph, 2)
        run_rows(c, g.graph, 50)
        text = c.call("Graphs/Describe", ask).text
        assert text.count('pool of graph "mapped"') == 2 and "input x" in text, text
        keys = {k.symbols: k for k in explain(c, graph=g.graph).keys}
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Describe", pb.DescribeRequest(graph=g.graph, form=pb.DESCRIBE_FORM_SVG))
        svg = c.call("Graphs/Describe", pb.DescribeRequest(graph=g.graph, form=pb.DESCRIBE_FORM_SVG, key=keys["B<=64"].key)).text
        root = ElementTree.fromstring(svg)
        blocks = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
        titles = [e[0].text for e in blocks]
        assert any(t.startswith("input x: 1024 bytes at ") for t in titles), titles
        assert f"pool of {keys['B<=64'].pool_bytes} bytes" in svg


PROBE = subprocess.run([DAEMON, "--check-config"], env={**os.environ, "NPUGRAPHD_FAULT": "host-fault:9:1"}, capture_output=True, text=True)
FAULTS = PROBE.returncode == 0


def by_reason(c, g):
    return {e.reason: e for e in explain(c, graph=g).events}


@test("explain: forced captures and eager runs, and limits with each policy")
def forced(daemon):
    with Client(daemon) as c:
        three = [floats(*range(3))]
        g = c.register(exact("forced"), options={"force_recapture": "true"}).graph
        for _ in range(2):
            c.replay(g, three, [3], tag=41)
        got = by_reason(c, g)
        assert got["miss-forced"].kind == "miss" and got["recaptured-forced"].text.startswith("N==3: "), got
        assert got["recaptured-forced"].key == got["captured"].key
        assert reasons(explain(c, tag=41)).count("miss-forced") == 1
        g = c.register(exact("eager"), options={"force_eager": "true"}).graph
        ahead = c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[3]))  # like a worker that captures its graphs ahead of use
        assert not ahead.captured and ahead.kernels and ahead.executables == 0, ahead
        c.replay(g, three, [3], tag=42)
        assert by_reason(c, g)["eager-forced"].tag == 42
        assert not explain(c, graph=g).keys and "captured" not in by_reason(c, g)
        g = c.register(exact("full"), options={"capture_limit": "1", "capture_limit_policy": "eager"}).graph
        c.replay(g, three, [3])
        c.replay(g, [floats(1, 2)], [2], tag=43)
        assert by_reason(c, g)["eager-limit"].tag == 43 and "N==2" in by_reason(c, g)["eager-limit"].text
        g = c.register(exact("rejecting"), options={"capture_limit": "1", "capture_limit_policy": "reject"}).graph
        c.replay(g, three, [3])
        refused("CAPTURE_LIMIT", "RESOURCE_EXHAUSTED", c.replay, g, [floats(1, 2)], [2], tag=44)
        got = by_reason(c, g)
        assert {"capture-failed", "refused-limit"} & set(got) and "capture_limit" in "".join(e.text for e in got.values()), got
        assert [e.tag for e in explain(c, tag=44).events] and all(e.tag == 44 for e in explain(c, tag=44).events)


@test("explain: bindings that are missing, replays that fail, captures that fail and succeed later, deadlines")
def failing():
    lookup = graph('  param %e : f32[4,2] = "e"\n  input %i : i32[3]\n  %y = aten.embedding(%e, %i)\n  return "y" = %y', "lookup")
    large = graph('  input %x : f32[8388608]\n  %y = aten.exp(%x)\n  %s = aten.sum.dim_IntList(%y) {dim=[0]}\n  return "s" = %s', "large")
    with Daemon("--device-memory=96M", "--max-message=64M") as d, Client(d) as c:
        unbound = c.register(lookup).graph
        refused("BINDING_MISSING", "FAILED_PRECONDITION", c.replay, unbound, [struct.pack("<3i", 0, 1, 2)], tag=51)
        assert by_reason(c, unbound)["refused-binding"].tag == 51
        e = c.allocate(32)
        c.write(e, bytes(32))
        g = c.register(lookup, {"e": e}).graph
        refused("INDEX_RANGE", "OUT_OF_RANGE", c.replay, g, [struct.pack("<3i", 0, 99, 2)], tag=52)
        assert "99" in by_reason(c, g)["replay-failed"].text and by_reason(c, g)["replay-failed"].tag == 52
        held = c.allocate(70 << 20)
        g = c.register(large).graph
        data = bytes(4 * 8388608)
        refused("NO_DEVICE_MEMORY", "RESOURCE_EXHAUSTED", c.replay, g, [data], tag=53)
        assert "capture-failed" in by_reason(c, g) and explain(c, tag=53).events
        c.call("Memory/Free", pb.FreeRequest(buffers=[held]))

        def again():  # a capture that failed is not tried again at once
            with contextlib.suppress(grpc.RpcError):
                return struct.unpack("<f", c.replay(g, [data]).outputs[0]) == (8388608.0,)

        until("it is captured after all", again)
        got = by_reason(c, g)
        assert {"miss-first", "miss-failed", "recaptured-failed"} <= set(got), got
        assert all(got[r].key == got["capture-failed"].key for r in ("miss-failed", "recaptured-failed"))
        # The request is small and its replay takes long. So many deadlines are long enough for gRPC to deliver it, and too short for the replay.
        slow = c.register(graph("  input %x : f32[1]\n  %w = aten.full() {size=[512,512], fill_value=0.001, dtype=f32}\n"
                                "  %v0 = aten.add.Tensor(%w, %x)\n" + "".join(f"  %v{i + 1} = aten.mm(%v{i}, %w)\n" for i in range(16)) +
                                '  %s = aten.sum.dim_IntList(%v16) {dim=[0, 1]}\n  return "s" = %s', "slow")).graph
        for _ in range(3):
            c.replay(slow, [floats(1)])
        patience = itertools.cycle(0.004 * 1.5 ** i for i in range(12))

        def late():
            with contextlib.suppress(grpc.RpcError):
                c.call("Graphs/Replay", pb.ReplayRequest(graph=slow, inputs=[floats(1)], tag=54), timeout=next(patience))
            return [e for e in explain(c, tag=54).events if e.reason == "refused-deadline"]

        until("a deadline has passed", late)


@test("explain: shadows that cannot be run, and device faults with what follows")
def faulty():
    stateful = graph('  state %s : f32[8388608] = "s"\n  input %x : f32[1]\n  %y = aten.add.Tensor(%s, %x)\n  aten.copy_(%s, %y)\n  return "x" = %x',
                     "stateful")
    with Daemon("--device-memory=80M") as d, Client(d) as c:
        g = c.register(stateful, {"s": c.allocate(4 * 8388608)}, {"verify_every_n": "1"}).graph
        c.replay(g, [floats(1)], tag=61)
        c.replay(g, [floats(1)], tag=61)
        got = by_reason(c, g)
        assert got["verify-skipped"].tag == 61 and len(got["verify-skipped"].text) > 20, got
    if not FAULTS:
        raise Skip("this build has no fault points; configure with --enable-fault")
    with Daemon(env={"NPUGRAPHD_FAULT": "host-fault:1:1"}) as d, Client(d) as c:
        g = c.register(exact("poisoned")).graph
        three = [floats(*range(3))]
        want = c.replay(g, three, [3]).outputs[0]
        refused("DEVICE_FAULT", "INTERNAL", c.replay, g, three, [3], tag=62)
        assert c.replay(g, three, [3], tag=63).outputs[0] == want
        got = by_reason(c, g)
        assert {"replay-failed", "evicted-poisoned", "miss-poisoned", "recaptured-poisoned"} <= set(got), got
        assert got["replay-failed"].tag == 62 and got["miss-poisoned"].tag == 63 and len({e.key for e in got.values()}) == 1, got


@test("npugraphctl events: a line for each, the oldest first; --follow goes on, and tells repeated ones again")
def events(daemon):
    with Client(daemon) as c:
        g = c.register(rows("followed"))
        run_rows(c, g.graph, 7, tag=701)
        command = [CTL, "--address", daemon.address, "--json", "events", g.digest, "--follow"]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        first = json.loads(follower.stdout.readline())
        assert first["reason"] == "miss-first" and first["graph"] == "followed" and first["tag"] == 701, first
        times, numbers = 0, [first["number"]]
        for _ in range(2):
            for _ in range(3):
                refused("GUARD_FAILED", "FAILED_PRECONDITION", run_rows, c, g.graph, 65)
            wanted = times + 3
            while times < wanted:
                event = json.loads(follower.stdout.readline())
                times += event["count"] if event["reason"] == "refused-guard" else 0
                numbers.append(event["number"])
        follower.kill()
        follower.wait()
        follower.stdout.close()
        assert times == 6 and numbers == sorted(numbers), numbers
        lines = ctl(daemon, "events", g.digest).splitlines()
        assert "miss-first" in lines[0] and "followed" in lines[0] and "tag:701" in lines[0], lines
        assert any("refused-guard" in line and "6 times" in line for line in lines[1:]), lines
        assert len(ctl(daemon, "events", "--limit", "2").splitlines()) == 2
        for bad in (["events", "a", "b"], ["events", "tag:x"], ["events", "--limit", "0"], ["events", "--followed"]):
            out = subprocess.run([CTL, "--address", daemon.address, *bad], capture_output=True, text=True, timeout=PATIENCE)
            assert out.returncode == 2 and "npugraphctl: " in out.stderr, (bad, out)


@test("npugraphctl: explain, buckets and graph map, as tables and as JSON")
def commands(daemon):
    with Client(daemon) as c:
        g = c.register(rows("commanded"))
        for n in (5, 5, 6, 64):
            run_rows(c, g.graph, n, tag=500 + n)
        out = ctl(daemon, "explain", g.digest[:12])
        assert "padded" in out and "B<=64" in out and "captured" in out, out
        told = json.loads(ctl(daemon, "--json", "explain", "tag:505"))
        assert {e["reason"] for e in told["events"]} <= {"miss-first", "padded"} and told["events"], told
        known = json.loads(ctl(daemon, "--json", "explain", g.digest))["keys"][0]
        key = known["key"]
        assert all(isinstance(known[n], float) and known[n] > 0 for n in ("expected_us", "capture_us")), known
        assert "commanded" in ctl(daemon, "explain", key)
        assert "captured" in ctl(daemon, "explain")
        out = ctl(daemon, "buckets", g.digest, "--captures", "2")
        assert "present" in out and "proposed" in out and "6,64" in out, out
        told = json.loads(ctl(daemon, "--json", "buckets", g.digest, "--captures", "2", "--apply"))
        assert told["applied"] is True and told["sets"][1]["buckets"] == "6,64", told
        assert run_rows(c, g.graph, 5).outputs
        assert "pool of graph" in ctl(daemon, "graph", "map", g.digest)
        path = SCRATCH / "map.svg"
        keys = {k.symbols: k.key for k in explain(c, graph=g.graph).keys}
        assert ctl(daemon, "graphs", "map", g.digest, "--key", keys["B<=6"][:8], "--svg", str(path)).strip() == str(path)
        assert path.read_text().startswith("<svg ")
        key = keys["B<=6"][:8]
        assert json.loads(ctl(daemon, "--json", "graphs", "map", g.digest, "--key", key, "--svg", str(path))) == {"file": str(path)}
        assert json.loads(ctl(daemon, "--json", "trace", g.digest, "--output", str(path))) == {"file": str(path)}
        assert "traceEvents" in json.loads(path.read_text()) and "traceEvents" in json.loads(ctl(daemon, "trace", g.digest))
        for bad in (["explain", "a", "b"], ["explain", "tag:x"], ["explain", "--limit", "0"], ["buckets"], ["buckets", "x", "--set", "1,,2"],
                    ["buckets", g.digest, "--captures", "0"], ["graph", "map"], ["graph", "show", g.digest, "--svg", "x"],
                    ["graph", "show", g.digest, "--key", key]):
            ctl(daemon, *bad, status=2)
        ctl(daemon, "explain", "zzzzzzzz", status=1)


main()
