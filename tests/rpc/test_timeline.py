#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The timeline: what stream slots ran, from a start to a stop, as a Chrome trace and as arrivals that schedsim replays."""
from harness import *

SCHEDSIM = BUILD / "bench" / "schedsim"
TEXT = """npugraph 1
graph "lined \\"up\\"" {
  input %x : f32[256,256]
  %a = aten.mm(%x, %x)
  %b = aten.mm(%a, %x)
  return "y" = %b
}"""
INPUT = bytes(256 * 256 * 4)
ME = f"uid:{os.getuid()}"


def start(c, **more):
    return c.call("Admin/StartTimeline", pb.StartTimelineRequest(**more))


def stop(c, **more):
    return c.call("Admin/StopTimeline", pb.StopTimelineRequest(**more))


def read(c, form=pb.TIMELINE_FORM_UNSPECIFIED):
    text, request = "", pb.ReadTimelineRequest(form=form)
    while True:
        page = c.call("Admin/ReadTimeline", request)
        text += page.text
        if not page.next:
            return text
        request.begin = page.next


def replay_many(c, n):
    graph = c.register(TEXT).graph
    c.replay(graph, [INPUT])
    return lambda: [c.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[INPUT], tag=i + 1, timing=True)) for i in range(n)]


@test("spans of each replay: queue, copy in, replay, copy out, as long as the answers say")
def spans(daemon):
    with Client(daemon) as c:
        work = replay_many(c, 5)
        assert start(c).events == 65536
        answers = work()
        said = stop(c)
        assert (said.was_on, said.events, said.lost) == (True, 5, 0), said
        trace = json.loads(read(c))
        assert trace["otherData"] == {"lost_events": 0}
        names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
        assert {"host:0", "slot 0"} <= names, names
        for i, answer in enumerate(answers):
            mine = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["args"]["tag"] == i + 1]
            by = {e["name"]: e for e in mine}
            assert list(by) == ['lined "up"', "copy in", "replay", "copy out"] and len(mine) == 4, mine
            whole, parts = mine[0], mine[1:]
            t = answer.timing
            for e, ns in zip(parts, (t.copy_in_ns, t.replay_ns, t.copy_out_ns)):
                assert abs(e["dur"] * 1000 - ns) < 2 and e["args"]["identity"] == ME, (e, t)
            at = whole["ts"]
            for e in parts:
                assert abs(e["ts"] - at) < 0.01, mine
                at += e["dur"]
            assert abs(at - whole["ts"] - whole["dur"]) < 0.01
            begin, end = [e for e in trace["traceEvents"] if e["ph"] in "be" and e["id"] == i]
            assert (begin["ph"], end["ph"], begin["name"], begin["cat"]) == ("b", "e", ME, "queue")
            assert abs((end["ts"] - begin["ts"]) * 1000 - t.queue_ns) < 2 and end["ts"] <= whole["ts"] + 0.01
        assert stop(c, discard=True).events == 5
        assert stop(c).events == 0


@test("a full ring drops its oldest events and counts them; nothing is recorded after the stop")
def ring(daemon):
    with Client(daemon) as c:
        work = replay_many(c, 7)
        start(c, events=4)
        work()
        said = stop(c)
        assert (said.events, said.lost) == (4, 3), said
        work()
        trace = json.loads(read(c))
        assert trace["otherData"]["lost_events"] == 3
        assert sorted({e["args"]["tag"] for e in trace["traceEvents"] if e["ph"] == "X"}) == [4, 5, 6, 7]


@test("bad requests: two starts, reading while it is on, unknown forms, too many events, others than administrators")
def bad(daemon):
    with Client(daemon) as c:
        start(c)
        refused("BUSY", "FAILED_PRECONDITION", start, c)
        refused("BUSY", "FAILED_PRECONDITION", read, c)
        stop(c)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", read, c, 3)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", start, c, events=1 << 21)
    with Daemon("--allow-plaintext=yes", listen="tcp:127.0.0.1:0") as d, Client(d, address=d.listening("tcp")) as c:  # not an administrator
        for call in (start, stop, read):
            assert "needs the role admin" in refused("ROLE", "PERMISSION_DENIED", call, c).text


@test("npugraphctl trace start, stop; schedsim replays what was recorded")
def recorded(daemon):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    ctl = lambda *a: subprocess.run([CTL, "--address", daemon.address, *a], capture_output=True, text=True, timeout=PATIENCE)
    with Client(daemon) as c:
        work = replay_many(c, 20)
        out = ctl("trace", "start", "--events", "1000")
        assert out.returncode == 0, out
        work()
        path = daemon.dir / "arrivals"
        out = ctl("trace", "stop", "--form", "arrivals", "--output", str(path))
        assert out.returncode == 0 and "20" in out.stdout, out
        lines = path.read_text().splitlines()
        assert lines[0] == "npugraph-arrivals 1" and len([line for line in lines if line[0].isdigit()]) == 20, lines
        assert all(line.endswith(f" 1 100 host:0 {ME}") for line in lines if line[0].isdigit()), lines
        assert SCHEDSIM.exists(), "bench/schedsim was not built"
        out = subprocess.run([SCHEDSIM, f"arrivals={path}"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 0 and "; 20 requests" in out.stdout, out
        out = subprocess.run([SCHEDSIM, f"arrivals={daemon.log_path}"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 1 and "line 1" in out.stderr, out
    assert ctl("trace", "stop", "--form", "svg").returncode == 2 and ctl("trace", "start", "x").returncode == 2


@test("/stats.json and Devices tell the bubble: time in which a slot was idle while something was queued")
def bubble(daemon):
    with Client(daemon) as c:
        replay_many(c, 3)()
        device, = daemon.stats()["devices"]
        info, = c.call("Admin/Devices", pb.DevicesRequest()).devices
        assert 0 <= device["bubble_ratio"] <= 1 and abs(device["bubble_s"] - info.bubble_us / 1e6) < 1, (device, info)
        assert re.search(r'^npugraphd_device_bubble_seconds_total{device="host:0"} [0-9.e-]+$', daemon.http("/metrics")[1], re.M)


if __name__ == "__main__":
    main()
