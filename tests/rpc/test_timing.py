#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of the time of a replay, or of a sequence's operation: in answers on request, in npugraphctl, and as sums of each identity."""
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


@test("a replay's answer has its timing only when it was asked for")
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
            assert value >= ns / 1e9 - 2e-6, (name, value, ns)  # the metric still counts a share that was removed


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


# ---- sequences ----

MODEL = SOURCE / "examples" / "model"
PARTS = ("queue_ns", "copy_in_ns", "replay_ns", "copy_out_ns")


def load(daemon):
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Client(daemon, session=False) as c:
        if not c.call("Sequences/ListModels", pb.ListModelsRequest()).models:
            subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, capture_output=True)


def total(t):
    return sum(getattr(t, part) for part in PARTS)


def check_operation(t, device_ns, elapsed_ns):
    """Checks that the parts do not overlap, and that their sum is within the time that the client saw."""
    assert min(getattr(t, part) for part in PARTS) > 0 and t.padding_ns < t.replay_ns, t
    assert device_ns is None or t.copy_in_ns + t.replay_ns + t.copy_out_ns == device_ns, (t, device_ns)
    assert total(t) <= elapsed_ns, (t, elapsed_ns)


def timed(fn, *args):
    begin = time.monotonic_ns()
    return fn(*args), time.monotonic_ns() - begin


@test("sequences: Open, Step, StepStream and Fork tell where their time went when asked, and only then")
def operations(daemon):
    load(daemon)
    with Client(daemon) as c:
        for tokens in (3, 700):  # the second is several chunks
            opened, ns = timed(c.call, "Sequences/Open", pb.OpenRequest(model="m", prompt=[5 + i % 50 for i in range(tokens)], timing=True))
            check_operation(opened.timing, opened.prefill_ns if tokens == 3 else None, ns)
        sequence = opened.sequence
        stepped, ns = timed(c.call, "Sequences/Step", pb.StepRequest(sequence=sequence, timing=True))
        check_operation(stepped.timing, stepped.device_ns, ns)
        drafted, ns = timed(c.call, "Sequences/Step", pb.StepRequest(sequence=sequence, draft=[1, 2, 3], timing=True))
        check_operation(drafted.timing, drafted.device_ns, ns)
        forked, ns = timed(c.call, "Sequences/Fork", pb.ForkRequest(sequence=sequence, timing=True))
        check_operation(forked.timing, forked.prefill_ns, ns)
        answers, ns = timed(lambda: list(c.call("Sequences/StepStream", iter(
            [pb.StepRequest(sequence=sequence, timing=True), pb.StepRequest(), pb.StepRequest(timing=True)]))))
        assert [a.HasField("timing") for a in answers] == [True, False, True]
        for a in answers[::2]:
            check_operation(a.timing, a.device_ns, ns)
        assert not c.call("Sequences/Step", pb.StepRequest(sequence=sequence)).HasField("timing")
        assert not c.call("Sequences/Fork", pb.ForkRequest(sequence=sequence)).HasField("timing")
        assert not c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5])).HasField("timing")


@test("a generation's messages tell the sums so far; the last one has all of it, and a token that a step chose costs nothing")
def generation(daemon):
    load(daemon)
    with Client(daemon) as c:
        sequence = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7])).sequence
        generate = lambda **more: list(c.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, ignore_stop=True, **more)))
        messages, ns = timed(lambda: generate(max_tokens=40, timing=True))
        assert messages[-1].finish == pb.FINISH_REASON_LENGTH and sum(len(m.tokens) for m in messages) == 40
        assert all(m.HasField("timing") for m in messages)
        check_operation(messages[-1].timing, None, ns)
        for before, after in zip(messages, messages[1:]):
            for part in PARTS:
                assert getattr(before.timing, part) <= getattr(after.timing, part), (before, after)
            if after.tokens:
                assert before.timing.replay_ns < after.timing.replay_ns, (before, after)
        c.call("Sequences/Step", pb.StepRequest(sequence=sequence))
        one = generate(max_tokens=1, timing=True)  # by the step
        assert one[-1].timing.replay_ns == 0 and one[-1].HasField("timing"), one
        assert not any(m.HasField("timing") for m in generate(max_tokens=3))


@test("npugraphctl generate --timing prints the parts, of the prompt and of the tokens")
def generated(daemon):
    load(daemon)
    run = lambda *a: subprocess.run([CTL, "--address", daemon.address, *a], capture_output=True, text=True, timeout=PATIENCE)
    said = json.loads(run("--json", "generate", "m", "--ids", "5,6,7", "--tokens", "5", "--timing").stdout)
    for of in ("prompt_timing", "tokens_timing"):
        assert set(said[of]) == {"queue_us", "copy_in_us", "replay_us", "copy_out_us", "padding_us"} and said[of]["replay_us"] > 0, said
    assert "prompt_timing" not in json.loads(run("--json", "generate", "m", "--ids", "5,6,7", "--tokens", "5").stdout)
    out = run("generate", "m", "--ids", "5,6,7", "--tokens", "5", "--timing")
    assert "[prompt: waited " in out.stderr and "[tokens: waited " in out.stderr and "waited" not in out.stdout, out


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
