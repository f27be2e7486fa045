#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups that span daemons: ranks of one group in two daemons, by root information, on the simulator of CANN.

The daemons are in two network namespaces with a pair of virtual Ethernet devices between them, if namespaces can be made
here, and otherwise both on the loopback device; the first line says which. Clients reach both through Unix sockets."""
import json
import os
import subprocess

import netns

why = netns.enter(__file__)  # precedes the harness: all that follows runs in a private network
print(f"# both daemons are on loopback, since no network namespace can be made here: {why}" if why else
      "# the daemons are in two network namespaces", flush=True)

import random
import struct

from harness import *

NAMESPACES = why is None
HERE, THERE = "10.78.0.1", "10.78.0.2"
LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
if not (LIBS / "libascendcl.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")
V, D, H = 32, 8, 16  # of the decoder below: tokens, width, inner width
LONG_MS = 600_000  # the limit of groups whose ranks come: that nobody waits for it is seen by its not ending
LIMIT_MS = 1000     # that of ranks that do not come
WAITS = "ranks in other daemons are waited for"  # the daemon's log


class Network:
    """The networks of two daemons: two namespaces, or loopback for both."""

    def __enter__(self):
        self.elsewhere = netns.Elsewhere(until, HERE, THERE).__enter__() if NAMESPACES else None
        return self

    def through(self, side):
        return self.elsewhere.through() if NAMESPACES and side else []

    def daemon(self, side, *options, devices=1, replay_limit_ms=60000, **env):
        names = [f"--device=ascend:{i}" for i in range(devices)]
        env = {f"NGD_ACLSIM_{k}": v for k, v in {"DEVICES": str(devices), **env}.items()}
        env["NGD_ASCEND_LIMIT_MS"] = str(replay_limit_ms)
        if NAMESPACES:
            env["HCCL_IF_IP"] = THERE if side else HERE
        return Daemon(f"--ascend-libs={LIBS}", *names, *options, env=env, through=self.through(side))

    def __exit__(self, *exc):
        if NAMESPACES:
            self.elsewhere.__exit__(*exc)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def sums(rows=4, times=1):
    body = "".join(f'  %s{i + 1} = _c10d_functional.all_reduce(%s{i}) {{reduce_op="sum", group_name="tp"}}\n' for i in range(times))
    return f'npugraph 1\ngraph "sum" {{\n  input %s0 : f32[{rows}]\n{body}  return "y" = %s{times}\n}}\n'


SYMBOL = """npugraph 1
graph "rows" {
  sym N 1..64
  input %x : f32[N]
  %y = _c10d_functional.all_reduce(%x) {reduce_op="sum", group_name="tp"}
  return "y" = %y
}
"""
PICK = """npugraph 1
graph "pick" {
  param %w : f32[4,2]
  input %i : i32[1]
  %e = aten.embedding(%w, %i)
  %y = _c10d_functional.all_reduce(%e) {reduce_op="sum", group_name="tp"}
  return "y" = %y
}
"""
PLAIN = 'npugraph 1\ngraph "plain" {\n  input %x : f32[2]\n  %y = aten.add.Tensor(%x, %x)\n  return "y" = %y\n}\n'


# ---- groups -------------------------------------------------------------------------------------------------------------

def root_of(c, device="ascend:0"):
    return c.call("Graphs/GroupRoot", pb.GroupRootRequest(device=device)).root


def ask(c, root, first, ranks=2, devices=("ascend:0",), limit=LONG_MS, name="tp"):
    request = pb.CreateGroupRequest(name=name, devices=devices, time_limit_ms=limit,
                                    span=pb.GroupSpan(ranks=ranks, first_rank=first, root=root))
    return c.method("Graphs/CreateGroup").future(request, metadata=c.metadata(), timeout=2 * PATIENCE)


def answer(future):
    """Returns the group, or the refusal."""
    error = future.exception(2 * PATIENCE)
    return Refusal(error) if error else future.result().group


def span(a, b, **kwargs):
    root = root_of(a)
    asked = [ask(a, root, 0, **kwargs), ask(b, root, 1, **kwargs)]
    groups = [answer(f) for f in asked]
    assert all(isinstance(g, int) for g in groups), groups
    return groups


def rank(c, group, text, device="ascend:0", **bindings):
    request = pb.RegisterRequest(text=text, group=group, device=device)
    for name, buffer in bindings.items():
        request.bindings.add(name=name, buffer=buffer)
    graph = c.call("Graphs/Register", request).graph
    return c.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=[graph])).graph


def start(c, graph, inputs, symbols=(), tag=0, timeout=2 * PATIENCE):
    request = pb.ReplayRequest(graph=graph, inputs=inputs, symbols=symbols, tag=tag)
    return c.method("Graphs/Replay").future(request, metadata=c.metadata(), timeout=timeout)


def outputs(future):
    error = future.exception(2 * PATIENCE)
    return Refusal(error) if error else list(future.result().outputs)


def together(a, b, graphs, inputs, **kwargs):
    """Replays both ranks' graphs at the same time: what both answer."""
    return [outputs(f) for f in [start(c, g, i, **kwargs) for c, g, i in zip((a, b), graphs, inputs)]]


def works(a, b, groups):
    graphs = [rank(c, g, sums()) for c, g in zip((a, b), groups)]
    got = together(a, b, graphs, [[floats([1, 2, 3, 4])], [floats([10, 20, 30, 40])]])
    assert [unfloats(o[0]) for o in got] == [[11, 22, 33, 44]] * 2, got


# ---- a decoder ------------------------------------------------------------------------------------------------------------

def decoder(parts):
    """One step of a decoder whose MLP is divided in `parts`: the token before, and a state, to the next token."""
    lines = [f"  param %emb : f32[{V},{D}]", f"  param %up : f32[{H // parts},{D}]", f"  param %down : f32[{D},{H // parts}]",
             f"  state %seen : f32[1,{D}]", "  input %t : i32[1]", "  %e = aten.embedding(%emb, %t)",
             "  %h = aten.add.Tensor(%e, %seen)", "  %u = aten.linear(%h, %up)", "  %r = aten.relu(%u)", "  %p = aten.linear(%r, %down)"]
    if parts > 1:
        lines.append('  %m = _c10d_functional.all_reduce(%p) {reduce_op="sum", group_name="tp"}')
    last = "m" if parts > 1 else "p"
    lines += [f"  %o = aten.add.Tensor(%h, %{last})", f"  %half = aten.mul.Scalar(%o) {{other=0.5}}", "  aten.copy_(%seen, %half)",
              "  %l = aten.linear(%o, %emb)", "  %y = aten.argmax(%l) {dim=1}", '  return "y" = %y']
    return 'npugraph 1\ngraph "decode" {\n' + "\n".join(lines) + "\n}\n"


def weights():
    r = random.Random(7)
    return [[[r.uniform(-1, 1) for _ in range(columns)] for _ in range(rows)] for rows, columns in ((V, D), (H, D), (D, H))]


def flat(rows):
    return floats([v for row in rows for v in row])


def upload(c, data, device):
    buffer = c.call("Memory/Allocate", pb.AllocateRequest(bytes=len(data), device=device)).buffer
    c.write(buffer, data)
    return buffer


def part_of(c, part, parts, device="ascend:0"):
    """The buffers of one rank: its half of the MLP's weights, and all of the others."""
    emb, up, down = weights()
    n = H // parts
    tensors = {"emb": emb, "up": up[part * n:(part + 1) * n], "down": [row[part * n:(part + 1) * n] for row in down], "seen": [[0.0] * D]}
    return {name: upload(c, flat(rows), device) for name, rows in tensors.items()}


def decode(step, steps=24):
    """What a client does: each token goes to all daemons, and all of them answer the same next one."""
    token, tokens = 3, []
    for i in range(steps):
        answers = step(struct.pack("<i", token), i + 1)
        assert not any(isinstance(o, Refusal) for o in answers), answers
        nexts = [struct.unpack("<q", o[0])[0] for o in answers]
        assert len(set(nexts)) == 1, nexts
        token = nexts[0]
        tokens.append(token)
    return tokens


def in_flight(c):
    """Calls under way. Statistics over HTTP cannot be reached in another network namespace."""
    return json.loads(c.call("Admin/Stats", pb.StatsRequest()).text)["requests"]["in_flight"]


@test("a tensor-parallel decode over two daemons, each with half of the weights: the tokens of one daemon")
def tensor_parallel():
    with Network() as net:
        with net.daemon(0) as d, Client(d) as c:
            g = c.call("Graphs/Register", pb.RegisterRequest(text=decoder(1), bindings=[
                pb.Binding(name=k, buffer=v) for k, v in part_of(c, 0, 1).items()])).graph
            expected = decode(lambda token, tag: [list(c.replay(g, [token], tag=tag).outputs)])
        assert len(set(expected)) > 3, expected
        with net.daemon(0) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
            groups = span(a, b)
            graphs = [rank(c, g, decoder(2), **part_of(c, i, 2)) for i, (c, g) in enumerate(zip((a, b), groups))]
            assert a.call("Graphs/Capture", pb.CaptureRequest(graph=graphs[0])).captured  # of one daemon alone: nobody waits
            got = decode(lambda token, tag: together(a, b, graphs, [[token], [token]], tag=tag))
            assert got == expected, (got, expected)
            for c, first in ((a, 0), (b, 1)):
                info, = c.call("Graphs/ListGroups", pb.ListGroupsRequest()).groups
                assert (info.ranks, info.first_rank, list(info.devices)) == (2, first, ["ascend:0"]) and info.replays == len(expected), info
            table = subprocess.run([CTL, f"--address={db.address}", "groups"], capture_output=True, text=True, timeout=PATIENCE).stdout
            assert "1-1 of 2" in table, table


def one_op(op, attributes, rows):
    return f'npugraph 1\ngraph "one" {{\n  input %x : f32[{rows}]\n  %y = _c10d_functional.{op}(%x) {{{attributes}, group_name="tp"}}\n  return "y" = %y\n}}\n'


def exchange(receives, sends):
    return one_op("all_to_all_single", f"output_split_sizes={receives}, input_split_sizes={sends}", sum(sends))


@test("the example of several daemons prints the same tokens from one daemon and from two")
def example():
    program = BUILD / "examples" / "two_daemons"
    if not program.exists():
        raise Skip("examples/two_daemons is missing")
    with Network() as net, net.daemon(0) as da, net.daemon(1) as db:
        texts = [subprocess.run([program, *addresses], capture_output=True, text=True, timeout=2 * PATIENCE)
                 for addresses in ([da.address], [da.address, db.address])]
        assert all(t.returncode == 0 for t in texts) and texts[0].stdout == texts[1].stdout, texts
        assert len(set(texts[0].stdout.split())) > 3 and len(texts[0].stdout.split()) == 24, texts
        alone = subprocess.run([program, da.address, da.address + ".none"], capture_output=True, text=True, timeout=2 * PATIENCE)
        assert alone.returncode == 1 and ".none" in alone.stderr, alone


@test("each collective between two daemons: what the ranks of one would have")
def collectives():
    with Network() as net, net.daemon(0) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        groups = span(a, b)
        one, two = [1.0, 2, 3, 4], [50.0, 60, 70, 80]
        for texts, inputs, expected in (
                ([one_op("all_reduce", 'reduce_op="max"', 4)] * 2, (one, two), (two, two)),
                ([one_op("all_gather_into_tensor", "group_size=2", 4)] * 2, (one, two), (one + two, one + two)),
                ([one_op("reduce_scatter_tensor", 'reduce_op="sum", group_size=2', 4)] * 2, (one, two), ([51, 62], [73, 84])),
                ([one_op("broadcast", "src=1", 4)] * 2, (one, two), (two, two)),
                ([exchange([1, 2], [1, 3]), exchange([3, 1], [2, 1])], (one, two[:3]), ([1, 50, 60], [2, 3, 4, 70]))):
            graphs = [rank(c, g, t) for c, g, t in zip((a, b), groups, texts)]
            for _ in range(3):
                got = together(a, b, graphs, [[floats(i)] for i in inputs])
                assert [unfloats(o[0]) for o in got] == [list(e) for e in expected], (texts[0], got)
        graphs = [rank(c, g, t) for c, g, t in zip((a, b), groups, (exchange([1, 2], [1, 3]), exchange([2, 1], [2, 1])))]
        got = together(a, b, graphs, [[floats(one)], [floats(two[:3])]])
        assert all(o.reason == "COLLECTIVE_MISMATCH" and "other parts" in o.text for o in got), got
        works(a, b, groups)


@test("three ranks in two daemons: two of them meet in one process, and all reduce together")
def uneven():
    with Network() as net, net.daemon(0, devices=2) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        root, both = root_of(a), ("ascend:1", "ascend:0")
        asked = [ask(a, root, 0, ranks=3, devices=both), ask(b, root, 2, ranks=3)]
        ga, gb = [answer(f) for f in asked]
        graphs = [a.call("Graphs/Register", pb.RegisterRequest(text=sums(), group=ga, device=d)).graph for d in both]
        ja = a.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=graphs)).graph
        jb = rank(b, gb, sums())
        for _ in range(5):
            got = together(a, b, (ja, jb), [[floats([1] * 4), floats([2] * 4)], [floats([4] * 4)]])
            assert [[unfloats(o) for o in side] for side in got] == [[[7] * 4] * 2, [[7] * 4]], got


@test("one of two ranks of a daemon fails before it meets: all daemons know at once why, and the group works on")
def sibling_fails():
    with Network() as net, net.daemon(0, devices=2) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        root, both = root_of(a), ("ascend:0", "ascend:1")
        ga, gb = [answer(f) for f in [ask(a, root, 0, ranks=3, devices=both), ask(b, root, 2, ranks=3)]]

        def pick(c, group, devices):
            graphs = [c.call("Graphs/Register", pb.RegisterRequest(text=PICK, group=group, device=d, bindings=[
                pb.Binding(name="w", buffer=upload(c, floats(range(8)), d))])).graph for d in devices]
            return c.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=graphs)).graph

        graphs = [pick(a, ga, both), pick(b, gb, both[:1])]
        row = lambda i: struct.pack("<i", i)
        for failed in range(2):
            got = together(a, b, graphs, [[row(9 if i == failed else 1) for i in range(2)], [row(1)]])
            assert got[0].reason == "INDEX_RANGE", got
            assert got[1].reason == "GROUP_BROKEN" and f"rank {failed} failed" in got[1].text, got
            got = together(a, b, graphs, [[row(1), row(2)], [row(3)]])
            assert [[unfloats(o) for o in side] for side in got] == [[[12, 15]] * 2, [[12, 15]]], got


@test("a local group that fails while another group waits for its daemons is BUSY, and works when that was given up")
def busy_meanwhile():
    with Network() as net, net.daemon(0, devices=2, HCCL_CONNECT_MS="4000", FAIL="aclmdlRIExecuteAsync:3:507015") as da, Client(da) as a:
        both, inputs = ("ascend:0", "ascend:1"), [floats([1] * 4)] * 2
        group = a.call("Graphs/CreateGroup", pb.CreateGroupRequest(name="tp", devices=both)).group
        graphs = [a.call("Graphs/Register", pb.RegisterRequest(text=sums(), group=group, device=d)).graph for d in both]
        joint = a.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=graphs)).graph
        assert unfloats(outputs(start(a, joint, inputs))[0]) == [2] * 4
        waiting = ask(a, root_of(a), 0, name="waits")
        until("it waits", lambda: da.log().count(WAITS) == 1)
        assert outputs(start(a, joint, inputs)).reason == "DEVICE_FAULT"
        got = outputs(start(a, joint, inputs))
        assert got.reason == "BUSY" and "other daemons" in got.text, got
        assert answer(waiting).reason == "COLLECTIVE_TIMEOUT"
        assert unfloats(outputs(start(a, joint, inputs))[0]) == [2] * 4


@test("a root whose group was refused because another group was being made can be used again, as the refusal says")
def refused_root():
    with Network() as net, net.daemon(0) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        first, second = root_of(a), root_of(b)
        waiting = ask(b, first, 1)
        until("it waits", lambda: db.log().count(WAITS) == 1)
        got = answer(ask(b, second, 0, name="second"))
        assert got.reason == "BUSY" and "try again" in got.text, got
        assert all(isinstance(g, int) for g in (answer(ask(a, first, 0)), answer(waiting)))
        got = [answer(f) for f in (ask(b, second, 0, name="second"), ask(a, second, 1, name="second"))]
        assert all(isinstance(g, int) for g in got), got
        got = answer(ask(b, second, 0, name="third"))
        assert got.reason == "INVALID_ARGUMENT" and "used before" in got.text, got


@test("a group whose call was cancelled is dropped when its daemons have come, and a name that is taken is refused before the wait")
def cancelled():
    with Network() as net, net.daemon(0, HCCL_CONNECT_MS="600000") as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        root = root_of(a)
        waiting = ask(a, root, 0)
        until("it waits", lambda: da.log().count(WAITS) == 1)  # it goes on though its call is cancelled
        waiting.cancel()
        assert isinstance(answer(ask(b, root, 1, name="first")), int)
        until("the call has ended", lambda: in_flight(a) < 2)
        assert not a.call("Graphs/ListGroups", pb.ListGroupsRequest()).groups
        span(a, b)
        got = answer(ask(a, root_of(a), 0))
        assert got.reason == "ALREADY_EXISTS", got


@test("a device that fails while its group is made is blamed for it, and other daemons are not")
def own_fault():
    with Network() as net, net.daemon(0, FAIL="HcclAllReduce:0:507015") as da, net.daemon(1, HCCL_CONNECT_MS="4000") as db, Client(da) as a, Client(db) as b:
        root = root_of(a)
        got = [answer(f) for f in (ask(a, root, 0), ask(b, root, 1))]
        assert [isinstance(g, Refusal) and g.reason for g in got] == ["DEVICE_FAULT", "COLLECTIVE_TIMEOUT"] and "come together" not in got[0].text, got


@test("one daemon killed: the other one's replay fails within the limit with a reason, the group is closed, and the daemon serves on")
def killed():
    with Network() as net, net.daemon(0) as da, Client(da) as a:
        with net.daemon(1) as again:  # for the new group, later
            with Client(again) as c:
                db = net.daemon(1)
                b = Client(db)

                def met():
                    """The groups and graphs of both; None if a rank came later than the limit, which closes the group."""
                    groups = span(a, b, limit=LIMIT_MS)
                    graphs = [rank(c_, g, sums()) for c_, g in zip((a, b), groups)]
                    if not any(isinstance(got, Refusal) for got in together(a, b, graphs, [[floats([1] * 4)]] * 2)):
                        return groups, graphs
                    for c_, g in zip((a, b), groups):
                        c_.call("Graphs/Release", pb.ReleaseRequest(graph=g))
                    return None

                groups, graphs = until("both ranks meet within the limit", met)
                waiting = start(a, graphs[0], [floats([1] * 4)])
                db.kill()
                got = outputs(waiting)
                assert isinstance(got, Refusal) and got.reason == "COLLECTIVE_TIMEOUT" and "within 1 s" in got.text and "daemon" in got.text, got
                got = outputs(start(a, graphs[0], [floats([1] * 4)]))
                assert got.reason == "GROUP_BROKEN" and 'group "tp" is closed' in got.text and "make a new one" in got.text, got
                info, = a.call("Graphs/ListGroups", pb.ListGroupsRequest()).groups
                assert info.state == pb.GROUP_STATE_CLOSED and "within 1 s" in info.reason, info
                plain = a.register(PLAIN).graph
                assert unfloats(a.replay(plain, [floats([1, 2])]).outputs[0]) == [2, 4]
                a.call("Graphs/Release", pb.ReleaseRequest(graph=groups[0]))
                works(a, c, span(a, c))


@test("a wait for other daemons ends with the request: by its deadline, by being cancelled, by max-replay-time; the slot is free then")
def stopped():
    def cancel(future):
        time.sleep(0.1)
        future.cancel()

    for options, kwargs, ends in (((), {"timeout": 1}, outputs), ((), {}, cancel), (("--max-replay-time=1s",), {}, outputs)):
        with Network() as net, net.daemon(0, *options) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
            groups = span(a, b)
            graph, plain = rank(a, groups[0], sums()), a.register(PLAIN).graph

            def given_up():  # a request that ends before its launch gives up nothing: the next one does
                ends(start(a, graph, [floats([1] * 4)], **kwargs))
                info, = a.call("Graphs/ListGroups", pb.ListGroupsRequest()).groups
                return "cancelled, or its time was over" in info.reason

            until("the group is given up", given_up)
            assert unfloats(a.replay(plain, [floats([1, 2])]).outputs[0]) == [2, 4]
            assert outputs(start(a, graph, [floats([1] * 4)])).reason == "GROUP_BROKEN"


@test("a device lost in the middle of a launch: its daemon says so, and the other one's replay ends at the limit of replays")
def lost():
    with Network() as net, net.daemon(0, replay_limit_ms=5000) as da, net.daemon(1, LOSE="0:2") as db, Client(da) as a, Client(db) as b:
        groups = span(a, b)
        graphs = [rank(c, g, sums()) for c, g in zip((a, b), groups)]
        for _ in range(2):
            got = together(a, b, graphs, [[floats([1] * 4)]] * 2)
            assert [unfloats(o[0]) for o in got] == [[2] * 4] * 2, got
        got = together(a, b, graphs, [[floats([1] * 4)]] * 2)
        assert got[0].reason == "COLLECTIVE_TIMEOUT" and "within 5000 ms" in got[0].text, (got[0].text, got[1].text)
        assert got[1].reason == "DEVICE_LOST", got[1].text
        assert outputs(start(a, graphs[0], [floats([1] * 4)])).reason == "GROUP_BROKEN"
        plain = a.register(PLAIN).graph
        assert unfloats(a.replay(plain, [floats([1, 2])]).outputs[0]) == [2, 4]
        device, = a.call("Admin/Devices", pb.DevicesRequest()).devices
        assert word(device, "state") == "healthy", device  # it is not to blame


@test("ranks that do not do the same: all daemons say so in the same words, and the group works on")
def disagree():
    with Network() as net, net.daemon(0) as da, net.daemon(1) as db, Client(da) as a, Client(db) as b:
        groups = span(a, b)
        four = floats([1] * 4)

        def differ(texts, inputs, words, reason="COLLECTIVE_MISMATCH", **kwargs):
            graphs = [rank(c, g, t) for c, g, t in zip((a, b), groups, texts)]
            starts = [start(c, g, i, **{k: v[n] for k, v in kwargs.items()}) for n, (c, g, i) in enumerate(zip((a, b), graphs, inputs))]
            got = [outputs(f) for f in starts]
            assert all(isinstance(o, Refusal) and o.reason == reason and words in o.text for o in got), got
            assert got[0].text.partition("group ")[2] == got[1].text.partition("group ")[2], got
            works(a, b, groups)

        differ([sums(times=1), sums(times=2)], [[four]] * 2, "1 collectives")
        differ([sums(rows=4), sums(rows=2)], [[four], [floats([1, 1])]], "rank 0 does")
        differ([SYMBOL, SYMBOL], [[four], [floats([1, 1])]], "same rows", symbols=([4], [2]))
        differ([sums(), sums()], [[four]] * 2, "tag 5, rank 1 that with tag 6", tag=(5, 6))
        tables = [upload(c, floats(range(8)), "ascend:0") for c in (a, b)]
        graphs = [rank(c, g, PICK, w=w) for c, g, w in zip((a, b), groups, tables)]
        got = together(a, b, graphs, [[struct.pack("<i", 2)], [struct.pack("<i", 9)]])
        assert got[0].reason == "GROUP_BROKEN" and "rank 1 failed" in got[0].text and "9" in got[0].text, got
        assert got[1].reason == "INDEX_RANGE", got
        works(a, b, groups)


@test("roots that are wrong, cut, damaged, used twice or another's, and ranks that cannot be, are refused in words")
def wrong_roots():
    with Network() as net, net.daemon(0, HCCL_CONNECT_MS="4000") as da, net.daemon(1, HCCL_CONNECT_MS="4000") as db, \
            Client(da) as a, Client(db) as b:
        root = root_of(a)

        def refused_at_once(words, root, first=0, reason="INVALID_ARGUMENT", c=a, **kwargs):
            got = answer(ask(c, root, first, **kwargs))
            assert isinstance(got, Refusal) and got.reason == reason and words in got.text, got

        refused_at_once("0 bytes", b"")
        refused_at_once("0 bytes", b"", first=1, c=b)
        refused_at_once(f"{len(root) - 1} bytes", root[:-1])
        refused_at_once(f"{len(root) + 1} bytes", root + b"x", first=1, c=b)
        refused_at_once("9000 bytes", bytes(9000))
        refused_at_once("damaged", bytes(len(root)))
        refused_at_once("damaged", root[:40] + bytes([root[40] ^ 1]) + root[41:], first=1, c=b)
        for ranks, first, words in ((0, 0, "0 ranks"), (1, 0, "1 ranks"), (17, 0, "17 ranks"), (2**32 - 1, 0, "ranks"), (2, 2, "ranks 0 to 1"),
                                    (2, 2**32 - 1, "ranks 0 to 1")):
            refused_at_once(words, root, first, ranks=ranks)
        refused_at_once("no device", root, devices=())
        refused_at_once("allowed: 100", root, limit=99)
        refused_at_once("allowed: 100", root, limit=600001)
        refused_at_once("not of this daemon", root_of(b), first=0)

        # Nobody else comes: HCCL's limit ends it, and meanwhile the daemon serves, and makes no second one.
        before = da.log().count(WAITS)
        alone = ask(a, root, 0)
        until("it waits", lambda: da.log().count(WAITS) == before + 1)
        plain = a.register(PLAIN).graph
        assert unfloats(a.replay(plain, [floats([1, 2])]).outputs[0]) == [2, 4]
        refused_at_once("waits for its ranks", root_of(a), name="other", reason="BUSY")
        got = answer(alone)
        assert isinstance(got, Refusal) and got.reason == "COLLECTIVE_TIMEOUT" and "rank 0" in got.text, got
        refused_at_once("used before", root)
        refused_at_once("rank 1", root, first=1, c=b, reason="COLLECTIVE_TIMEOUT")  # replayed: nobody listens any more

        # Daemons that say other sizes, or the same rank, make no group.
        root = root_of(a)
        asked = [ask(a, root, 0), ask(b, root, 1, ranks=3)]
        got = [answer(f) for f in asked]
        assert all(isinstance(g, Refusal) for g in got) and any("same number" in g.text for g in got), got
        with net.daemon(1, HCCL_CONNECT_MS="4000") as dc, Client(dc) as c:
            root = root_of(a)
            asked = [ask(a, root, 0, ranks=3), ask(b, root, 1, ranks=3), ask(c, root, 1, ranks=3)]
            got = [answer(f) for f in asked]
            assert all(isinstance(g, Refusal) and g.reason != "INTERNAL" for g in got), got
            assert any("each rank once" in g.text for g in got), [g.text for g in got]
        works(a, b, span(a, b))
        before = da.log().count(WAITS)
        last = ask(a, root_of(a), 0, name="last")  # a daemon that stops ends after HCCL's limit
        until("it waits", lambda: da.log().count(WAITS) == before + 1)
        assert not last.done()


@test("host devices have no such groups, only administrators make them, and models do not take their graphs")
def not_for_all():
    with Daemon("--device=host:0", "--device=host:1", "--threads=1") as d, Client(d) as c:
        got = refused("UNIMPLEMENTED", "UNIMPLEMENTED", root_of, c, "host:0")
        assert "one daemon" in got.text, got
        got = answer(ask(c, b"x", 1, devices=("host:0",)))
        assert got.reason == "UNIMPLEMENTED" and "span daemons" in got.text, got
    with Network() as net:
        with net.daemon(0, "--allow-plaintext=yes", f"--listen=tcp:127.0.0.1:0") as da, net.daemon(1) as db:
            with Client(da, address=da.listening("tcp")) as stranger:
                assert "administrators" in refused("PERMISSION_DENIED", "PERMISSION_DENIED", root_of, stranger).text
                got = answer(ask(stranger, b"x", 1))
                assert got.reason == "PERMISSION_DENIED", got
            with Client(da) as a, Client(db) as b:
                groups = span(a, b)
                g = rank(a, groups[0], sums())
                contract = pb.DecodeContract(**{f.name: "s0" for f in pb.DecodeContract.DESCRIPTOR.fields if f.type == f.TYPE_STRING and f.label != f.LABEL_REPEATED})
                got = refused("MODEL_CONTRACT", "INVALID_ARGUMENT", a.call, "Sequences/RegisterModel",
                              pb.RegisterModelRequest(name="m", prefill_graph=g, decode_graph=g, contract=contract))
                assert "other daemons" in got.text, got


if __name__ == "__main__":
    main()
