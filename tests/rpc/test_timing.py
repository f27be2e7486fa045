#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a replay went: in its answer when asked for, in npugraphctl replay, and in all for each identity."""
from harness import *

TEXT = """npugraph 1
graph "timed" {
  sym B 1..64 buckets 64
  input %x : f32[B,512]
  %w = aten.full() {size=[512,512], fill_value=0.001, dtype=f32}
  %a = aten.mm(%x, %w)
  %b = aten.mm(%a, %w)
  return "y" = %b
}"""
ROW = bytes(512 * 4)
ME = f"uid:{os.getuid()}"


def ask(c, graph, rows, **more):
    return c.call("Graphs/Replay", pb.ReplayRequest(graph=graph, symbols=[rows], inputs=[ROW * rows], **more))


def check_split(r, rows):
    t = r.timing
    assert t.queue_ns == r.queue_ns, r
    assert t.copy_in_ns + t.replay_ns + t.copy_out_ns == r.device_ns, r
    assert min(t.copy_in_ns, t.replay_ns, t.copy_out_ns) > 0, r
    assert abs(t.padding_ns - t.replay_ns * (64 - rows) / 64) < 2, r


@test("a replay's answer has its timing only when it was asked for; padding is the share of the rows beyond")
def unary(daemon):
    with Client(daemon) as c:
        graph = c.register(TEXT).graph
        assert not ask(c, graph, 64).HasField("timing")
        for rows in (64, 16, 1):
            check_split(ask(c, graph, rows, timing=True), rows)


@test("on a stream each request says whether it wants its timing")
def stream(daemon):
    with Client(daemon) as c:
        graph = c.register(TEXT).graph
        requests = [pb.ReplayRequest(graph=graph, symbols=[8], inputs=[ROW * 8], timing=i % 2 == 0) for i in range(6)]
        answers = list(c.call("Graphs/ReplayStream", iter(requests)))
        assert [a.HasField("timing") for a in answers] == [True, False] * 3
        for a in answers[::2]:
            check_split(a, 8)


@test("identities: ListShares, /stats.json and /metrics add up what the answers said")
def identities(daemon):
    with Client(daemon) as c:
        graph = c.register(TEXT).graph
        mine = lambda: next(s for s in c.call("Admin/ListShares", pb.ListSharesRequest()).shares if s.identity == ME)
        ask(c, graph, 4)
        before = mine()
        answers = [ask(c, graph, 4, timing=True).timing for _ in range(10)]
        after = mine()
        assert after.replays - before.replays == 10
        for part in ("queue_ns", "copy_in_ns", "replay_ns", "copy_out_ns", "padding_ns"):
            assert getattr(after.timing, part) - getattr(before.timing, part) == sum(getattr(t, part) for t in answers), part
        share = next(s for s in daemon.stats()["shares"] if s["identity"] == ME)
        assert share["replays_total"] == after.replays
        assert abs(share["replay_s"]["padding"] - after.timing.padding_ns / 1e9) < 1e-6
        text = daemon.http("/metrics")[1]
        for name, ns in (("queue", after.timing.queue_ns), ("replay", after.timing.replay_ns), ("padding", after.timing.padding_ns)):
            value = float(re.search(rf'^npugraphd_identity_{name}_seconds_total{{identity="{ME}"}} (\S+)$', text, re.M)[1])
            assert value >= ns / 1e9 - 2e-6, (name, value, ns)  # a share that went counts on in the metric


@test("npugraphctl replay --timing prints the parts")
def printed(daemon):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    path = daemon.dir / "timed.npugraph"
    path.write_text(TEXT)
    run = lambda *a: subprocess.run([CTL, "--address", daemon.address, "--json", "replay", str(path), "--symbol", "B=16", *a],
                                    capture_output=True, text=True, timeout=PATIENCE)
    said = json.loads(run("--timing").stdout)
    assert abs(said["padding_us"] - said["replay_us"] * 0.75) < 0.01, said
    assert abs(said["copy_in_us"] + said["replay_us"] + said["copy_out_us"] - said["device_us"]) < 0.01, said
    assert "padding_us" not in json.loads(run().stdout)


if __name__ == "__main__":
    main()
