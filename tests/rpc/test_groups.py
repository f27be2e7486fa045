#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups of devices: refusals, joint replays of all ranks' graphs, ranks that fail, sessions that end."""
import struct
import threading

from harness import *

PROBE = subprocess.run([DAEMON, "--check-config"], env={**os.environ, "NPUGRAPHD_FAULT": "host-fault:9:1"}, capture_output=True, text=True)
FAULTS = PROBE.returncode == 0
DEVICES = ("--device=host:0", "--device=host:1", "--device=host:2", "--threads=1")


def graph(body, name="sum", head=""):
    return f'npugraph 1\ngraph "{name}" {{\n{head}{body}\n return "y" = %y\n}}\n'


def reduce(value, op="sum", group="tp"):
    return f'_c10d_functional.all_reduce(%{value}) {{reduce_op="{op}", group_name="{group}"}}'


SUM = graph(f" sym N 1..64\n input %x : f32[N]\n %y = {reduce('x')}")
PICK = graph(f" param %w : f32[4,2]\n input %i : i32[1]\n %e = aten.embedding(%w, %i)\n %y = {reduce('e')}", "pick")
DOUBLE = graph(" sym N 1..64\n input %x : f32[N]\n %y = aten.add.Tensor(%x, %x)", "double")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unpack(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def create(c, *devices, name="tp"):
    return c.call("Graphs/CreateGroup", pb.CreateGroupRequest(name=name, devices=devices or ("host:0", "host:1"))).group


def rank(c, group, device, text=SUM, **bindings):
    request = pb.RegisterRequest(text=text, group=group, device=device)
    for name, buffer in bindings.items():
        request.bindings.add(name=name, buffer=buffer)
    return c.call("Graphs/Register", request).graph


def join(c, *graphs, replicated=False):
    return c.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=graphs, replicated=replicated)).graph


def gang(c, text=SUM, devices=("host:0", "host:1"), replicated=False, name="tp"):
    group = create(c, *devices, name=name)
    return join(c, *[rank(c, group, d, text) for d in devices], replicated=replicated)


def groups(c):
    return c.call("Graphs/ListGroups", pb.ListGroupsRequest()).groups


@test("the graphs of two ranks are replayed together: inputs by rank, results by rank; replicated, once")
def together(daemon):
    with Client(daemon) as c:
        g = gang(c, devices=("host:1", "0"))
        for n in (1, 3, 64):
            a, b = [float(i) for i in range(n)], [100.0 * i for i in range(n)]
            got = c.replay(g, [floats(*a), floats(*b)], [n], tag=9, timing=True)
            assert [unpack(o) for o in got.outputs] == [[101.0 * i for i in range(n)]] * 2
            assert got.tag == 9 and got.device_ns > 0 and got.timing.replay_ns > 0
        one = c.replay(g, [floats(1), floats(2)], [1], outputs=[1])
        assert len(one.outputs) == 1 and unpack(one.outputs[0]) == [3]
        r = gang(c, SUM.replace('"tp"', '"tp2"'), ("host:0", "host:2"), True, "tp2")
        for _ in range(50):
            got = c.replay(r, [floats(1, 2)], [2])
            assert [unpack(o) for o in got.outputs] == [[2, 4]]
        info = {i.name: i for i in groups(c)}
        assert list(info["tp"].devices) == ["host:1", "host:0"] and info["tp"].replays == 4
        assert info["tp"].state == pb.GROUP_STATE_OPEN and info["tp"].group and info["tp"].resets == 0
        devices = {d.name: d for d in c.call("Admin/Devices", pb.DevicesRequest()).devices}
        assert all(devices[d].busy_us > 0 for d in ("host:0", "host:1", "host:2"))


@test("guards on symbols are of all ranks: a joint graph has them on each, and is checked by them")
def guards_of_ranks(daemon):
    guarded = graph(f" sym N 1..64\n guard mod(N, 4) != 1\n input %x : f32[N]\n %y = {reduce('x')}")
    with Client(daemon) as c:
        group = create(c)
        zero, plain, one = rank(c, group, "host:0", guarded), rank(c, group, "host:1"), rank(c, group, "host:1", guarded)
        assert "differ from those of rank 0" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", join, c, zero, plain).text
        g = join(c, zero, one)
        assert unpack(c.replay(g, [floats(1, 2), floats(3, 4)], [2]).outputs[0]) == [4, 6]
        got = refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, [floats(*range(5))] * 2, [5])
        assert "guard mod(N, 4) != 1 does not hold: mod(N, 4) is 1 with N = 5" in got.text, got.text


@test("on a stream, captured ahead, under a request id, and with guards on types: a joint graph is a graph")
def as_any_other(daemon):
    with Client(daemon) as c:
        group = create(c)
        ranks = [rank(c, group, d) for d in ("host:0", "host:1")]
        request = pb.JoinRanksRequest(graphs=ranks)
        g = c.call("Graphs/JoinRanks", request, request_id="j").graph
        assert c.call("Graphs/JoinRanks", request, request_id="j").graph == g
        got = c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[4]))
        assert got.captured and list(got.input_bytes) == [16, 16] and list(got.output_bytes) == [16, 16]
        assert not c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[4])).captured
        many = [pb.ReplayRequest(graph=g, symbols=[4], inputs=[floats(i, 0, 0, 0), floats(0, i, 0, 0)], tag=i) for i in range(50)]
        for i, reply in enumerate(c.call("Graphs/ReplayStream", iter(many))):
            assert not reply.error.reason and unpack(reply.outputs[1]) == [i, i, 0, 0] and reply.tag == i
        right = [pb.InputType(dtype="f32", dims=[4])] * 2
        c.replay(g, [floats(0, 0, 0, 0)] * 2, [4], input_types=right)
        refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, [floats(0, 0, 0, 0)] * 2, [4], input_types=[right[0], pb.InputType(dtype="i32", dims=[4])])
        got = refused("INPUT_COUNT", "INVALID_ARGUMENT", c.replay, g, [floats(0)], [1])
        assert "2" in got.text
        refused("INPUT_SIZE", "INVALID_ARGUMENT", c.replay, g, [floats(0), floats(0, 0)], [1])
        refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", c.replay, g, [floats(0)] * 2, [1], outputs=[2])
        text = c.call("Graphs/Describe", pb.DescribeRequest(graph=g)).info
        assert text.replays >= 51
        # The ranks' own graphs may be released: the joint graph keeps what it needs.
        for r in ranks:
            c.call("Graphs/Release", pb.ReleaseRequest(graph=r))
        c.call("Graphs/Release", pb.ReleaseRequest(graph=group))
        assert not groups(c)
        assert unpack(c.replay(g, [floats(1), floats(2)], [1]).outputs[0]) == [3]
        c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        refused("STALE_ID", "NOT_FOUND", c.replay, g, [floats(1), floats(2)], [1])


@test("groups that cannot be are refused in words")
def refusals(daemon):
    with Client(daemon) as c, Client(daemon) as other:
        assert "2 to 16" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, "host:0").text
        assert "twice" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, "host:0", "0").text
        assert "host:2" in refused("NOT_FOUND", "NOT_FOUND", create, c, "host:0", "host:9").text
        assert "host:2" in refused("NOT_FOUND", "NOT_FOUND", create, c, "host:0", "3").text
        refused("NOT_FOUND", "NOT_FOUND", create, c, "host:0", "99999999999999999999")
        refused("NOT_FOUND", "NOT_FOUND", create, c, "host:0", "-1")
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, "host:0", "")
        assert "17 devices" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, *["host:0"] * 17).text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, name="")
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", create, c, name="x" * 65)
        group = create(c)
        assert '"tp"' in refused("ALREADY_EXISTS", "ALREADY_EXISTS", create, c).text
        theirs = create(other)  # each session has its own names
        assert theirs
        alien = rank(other, theirs, "host:0")
        refused("UNKNOWN_ID", "NOT_FOUND", rank, c, alien + 12345, "host:0")
        assert "host:2" in refused("GROUP_UNBOUND", "FAILED_PRECONDITION", rank, c, group, "host:2").text
        assert '"dp"' in refused("GROUP_UNBOUND", "FAILED_PRECONDITION", rank, c, group, "host:0", SUM.replace('"tp"', '"dp"')).text
        zero, one = rank(c, group, "host:0"), rank(c, group, "host:1")
        assert "JoinRanks" in refused("GROUP_UNBOUND", "FAILED_PRECONDITION", c.replay, zero, [floats(1)], [1]).text
        refused("GROUP_UNBOUND", "FAILED_PRECONDITION", c.call, "Graphs/Capture", pb.CaptureRequest(graph=zero, symbols=[2]))
        assert "rank 1" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", join, c, zero).text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", join, c)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", join, c, *[zero] * 17)
        assert "two graphs" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", join, c, zero, one, zero).text
        refused("UNKNOWN_ID", "NOT_FOUND", join, c, zero, group)
        largest = rank(c, group, "host:1", SUM.replace('"sum"', '"max"'))
        got = refused("COLLECTIVE_MISMATCH", "FAILED_PRECONDITION", join, c, zero, largest)
        assert "rank 0" in got.text and "rank 1" in got.text and "max" in got.text
        g = join(c, zero, one)
        assert "all ranks" in refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.call, "Graphs/Bind", pb.BindRequest(graph=g)).text
        # A rank's graph with a collective cannot run alone.
        alone = c.register(SUM).graph
        refused("GROUP_UNBOUND", "FAILED_PRECONDITION", c.replay, alone, [floats(1)], [1])


@test("a rank that fails: its replay is answered with the reason, others go on, and so does the group")
def failing_rank(daemon):
    with Client(daemon) as c:
        group = create(c)
        w = floats(*range(8))
        ranks = []
        for d in ("host:0", "host:1"):
            buffer = c.call("Memory/Allocate", pb.AllocateRequest(bytes=32, device=d)).buffer
            c.write(buffer, w)
            ranks.append(rank(c, group, d, PICK, w=buffer))
        g = join(c, *ranks)
        plain = c.register(DOUBLE).graph
        for i in range(4):
            got = refused("INDEX_RANGE", "OUT_OF_RANGE", c.replay, g, [struct.pack("<i", 1), struct.pack("<i", 4 + i)])
            assert "rank 1" in got.text and "host:1" in got.text and str(4 + i) in got.text
            assert unpack(c.replay(plain, [floats(2)], [1]).outputs[0]) == [4]
            assert unpack(c.replay(g, [struct.pack("<i", 1), struct.pack("<i", i)]).outputs[0]) == [2.0 + 2 * i, 4.0 + 2 * i]
        info, = groups(c)
        assert info.resets == 4 and info.replays == 8 and info.state == pb.GROUP_STATE_OPEN


@test("a fault of a rank's device fails one replay; the next is captured again")
def fault():
    if not FAULTS:
        raise Skip("this build has no fault points")
    with Daemon(*DEVICES, env={"NPUGRAPHD_FAULT": "host-fault:5:1"}) as d, Client(d) as c:
        g = gang(c)
        failed = 0
        for i in range(6):
            try:
                assert unpack(c.replay(g, [floats(i), floats(1)], [1]).outputs[0]) == [i + 1]
            except grpc.RpcError as e:
                failed += 1
                assert "rank" in e.details() and "host:" in e.details()
        assert failed == 1
        info, = groups(c)
        assert info.state == pb.GROUP_STATE_OPEN and info.resets <= 1


@test("many clients, gangs on overlapping groups and graphs alone: everybody gets his own answer")
def many(daemon):
    errors = []

    def work(n):
        try:
            with Client(daemon) as c:
                devices = [("host:0", "host:1"), ("host:1", "host:0"), ("host:2", "host:1"), ("host:2", "host:0")][n % 4]
                g = gang(c, devices=devices)
                plain = c.call("Graphs/Register", pb.RegisterRequest(text=DOUBLE, device=devices[0])).graph
                for i in range(40):
                    assert unpack(c.replay(g, [floats(n), floats(i)], [1]).outputs[0]) == [n + i]
                    assert unpack(c.replay(plain, [floats(i)], [1], stream=i % 3).outputs[0]) == [2 * i]
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors


@test("a session's end frees its groups, with replays under way too")
def endings(daemon):
    def used():
        with Client(daemon, session=False) as c:
            return [d.used_bytes - d.pool_bytes for d in c.call("Admin/Devices", pb.DevicesRequest()).devices]

    daemon.settle()
    assert not groups_of(daemon)
    before = used()
    for i in range(5):
        c = Client(daemon)
        g = gang(c)
        c.replay(g, [floats(1), floats(2)], [1])
        assert used() != before  # the stages of the group's ranks count
        asked = queue.Queue()
        answers = c.call("Graphs/ReplayStream", iter(asked.get, None))
        for _ in range(50):
            asked.put(pb.ReplayRequest(graph=g, symbols=[64], inputs=[floats(*[1] * 64)] * 2))
        next(answers)
        c.close()
        asked.put(None)
        until("the session's group is gone", lambda: not groups_of(daemon))
        until("its memory is free", lambda: used() == before)


def groups_of(daemon):
    with Client(daemon, session=False) as c:
        return list(groups(c))


@test("npugraphctl groups lists them")
def listed(daemon):
    out = subprocess.run([CTL, "--address", daemon.address, "groups"], capture_output=True, text=True)
    assert out.returncode == 0 and "No groups" in out.stdout, out
    with Client(daemon) as c:
        c.replay(gang(c), [floats(1), floats(2)], [1])
        out = subprocess.run([CTL, "--address", daemon.address, "--json", "groups"], capture_output=True, text=True)
        row, = json.loads(out.stdout)["groups"]
        assert (row["name"], row["devices"], row["state"], row["replays"]) == ("tp", "host:0 host:1", "open", 1), row
    assert subprocess.run([CTL, "--address", daemon.address, "groups", "x"], capture_output=True).returncode == 2


main(*DEVICES)
