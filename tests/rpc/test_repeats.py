#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repetitions with one request id: after the answer, while the first call is under way, and after it was cancelled."""
import struct
import threading

from harness import *

MODELS = SCRATCH / "models"
MODELS.mkdir()
MODEL = SOURCE / "examples" / "model"
MIB = 1 << 20
BIG = 160 * MIB
NEG = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'


def sparse(name, size):
    """Makes a file of zeros that takes long enough to load for other calls to arrive meanwhile."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(MODELS / name, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + size)
    return name


def together(n, fn):
    """Returns the values of n concurrent calls of fn."""
    values, gate = [None] * n, threading.Barrier(n)

    def run(i):
        gate.wait()
        values[i] = fn()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return values


def loaded(c, path, request_id):
    return c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=path), request_id=request_id)


def mine(c):
    return [b for b in c.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers if b.buffer]


@test("calls that make something, repeated after their answer: the same answer, one object")
def after(daemon):
    with Client(daemon) as c:
        first = c.allocate(4096, request_id="a")
        assert c.allocate(4096, request_id="a") == first and len(mine(c)) == 1
        sparse("small.safetensors", MIB)
        done = [list(loaded(c, "small.safetensors", "l"))[-1].done for _ in range(3)]
        assert done[0].tensors[0].buffer and done[1:] == [done[0]] * 2 and len(mine(c)) == 2
        graph = c.register(NEG, request_id="g").graph
        assert c.register(NEG, request_id="g").graph == graph


@test("calls that end something, repeated after their answer, succeed again and touch nothing else")
def ends(daemon):
    with Client(daemon) as c:
        buffer, graph = c.allocate(4096), c.register(NEG).graph
        for name, request, again in (("Memory/Free", pb.FreeRequest(buffers=[buffer]), lambda: c.allocate(4096)),
                                     ("Graphs/Release", pb.ReleaseRequest(graph=graph), lambda: c.register(NEG))):
            answer = c.call(name, request, request_id="e")
            again()  # may have the place of what is gone
            assert c.call(name, request, request_id="e") == answer
            refused("STALE_ID", "NOT_FOUND", c.call, name, request)
        assert len(mine(c)) == 1


@test("a replay that changes a state is not done twice under one request id")
def replayed(daemon):
    with Client(daemon) as c:
        state = c.allocate(16)
        graph = c.register("""npugraph 1
graph "acc" {
  state %s : f32[4] = "s"
  input %x : f32[4]
  %t = aten.add.Tensor(%s, %x)
  aten.copy_(%s, %t)
  return %t
}""", {"s": state}).graph
        request = pb.ReplayRequest(graph=graph, inputs=[struct.pack("<4f", 1, 1, 1, 1)])
        answers = [c.call("Graphs/Replay", request, request_id="r").outputs[0] for _ in range(3)]
        assert answers == [struct.pack("<4f", 1, 1, 1, 1)] * 3 and c.read(state) == answers[0]
        assert c.call("Graphs/Replay", request, request_id="r2").outputs[0] == struct.pack("<4f", 2, 2, 2, 2)


@test("an answer too large to keep is not made twice: the repetition is refused")
def too_large(daemon):
    with Client(daemon) as c:
        state = c.allocate(2 * MIB)
        graph = c.register(f"""npugraph 1
graph "acc2" {{
  state %s : f32[{MIB // 2}] = "s"
  input %x : f32[1]
  %t = aten.add.Tensor(%s, %x)
  aten.copy_(%s, %t)
  return %t
}}""", {"s": state}).graph
        request = pb.ReplayRequest(graph=graph, inputs=[struct.pack("<f", 1)])
        assert len(c.call("Graphs/Replay", request, request_id="r").outputs[0]) == 2 * MIB
        got = refused("ALREADY_EXISTS", "ALREADY_EXISTS", c.call, "Graphs/Replay", request, request_id="r")
        assert "too large to keep" in got.text
        assert c.read(state, size=4) == struct.pack("<f", 1)


@test("another request under a used id is refused; a refused call may be tried again under its id")
def reuse(daemon):
    with Client(daemon) as c:
        c.allocate(4096, request_id="x")
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.allocate, 8192, request_id="x")
        assert '"x"' in got.text and len(mine(c)) == 1
        (MODELS / "late.safetensors").unlink(missing_ok=True)
        refused("FILE_NOT_FOUND", "NOT_FOUND", lambda: list(loaded(c, "late.safetensors", "late")))
        sparse("late.safetensors", 4096)
        assert list(loaded(c, "late.safetensors", "late"))[-1].done.tensors[0].bytes == 4096


@test("repetitions while the first call is under way: one object, the same answer for all")
def meanwhile(daemon):
    sparse("big.safetensors", BIG)
    with Client(daemon) as c:
        done = together(8, lambda: list(loaded(c, "big.safetensors", "m"))[-1].done)
        assert len({d.tensors[0].buffer for d in done}) == 1 and done.count(done[0]) == 8, done
        assert len(mine(c)) == 1
        # Long enough to be parsed on a job thread, so that the others arrive before its end.
        text = 'npugraph 1\ngraph "long" {\n  input %x0 : f32[4]\n' + "".join(
            f"  %x{i + 1} = aten.neg(%x{i})\n" for i in range(3900)) + "  return %x3900\n}\n"
        graphs = together(8, lambda: c.register(text, request_id="m").graph)
        assert len(set(graphs)) == 1, graphs
        assert len({c.register(text).graph, *graphs}) == 2


@test("repetitions share the refusal of the first call, too")
def failures(daemon):
    with Client(daemon) as c:
        text = 'npugraph 1\ngraph "bad" {\n  input %x0 : f32[4]\n' + "".join(
            f"  %x{i + 1} = aten.neg(%x{i})\n" for i in range(3900)) + "  return %nothing\n}\n"
        got = together(6, lambda: refused("GRAPH_UNDEFINED", "INVALID_ARGUMENT", c.register, text, request_id="f"))
        assert len({g.text for g in got}) == 1


def first_of(c, k, n=8):
    """A replay of a graph whose capture waits for others, and those: it is under way, and not on the device,, for as long as n captures take."""
    if not hasattr(c, "slow"):
        lines = ["  input %v0 : f32[64]"] + [f"  %v{i + 1} = aten.add.Tensor(%v{i}, %v{max(0, i - 3)})" for i in range(20000)]
        c.slow = c.register('npugraph 1\ngraph "slow" {\n' + "\n".join(lines) + '\n  return "o" = %v20000\n}\n').graph
    graph = c.register(f'npugraph 1\ngraph "large" {{ input %x : f32[1] %y = aten.expand(%x) {{size=[{MIB + k}]}} %z = aten.neg(%y) return %z }}').graph
    capture = c.method("Graphs/Capture").future
    captures = [capture(pb.CaptureRequest(graph=c.slow, dry_run=True), metadata=c.metadata()) for _ in range(n)]
    replay = c.method("Graphs/Replay").future
    request = pb.ReplayRequest(graph=graph, inputs=[struct.pack("<f", 1)])
    return captures, lambda i: replay(request, metadata=c.metadata(f"first{k}-{i}"), timeout=PATIENCE)


def errors(daemon, reason):
    return daemon.stats()["requests"]["errors_by_reason"].get(reason, 0)


def waiting(daemon, captures):
    """Returns the number of calls under way, without those and the session's."""
    return daemon.stats()["requests"]["in_flight"] - 1 - sum(not f.done() for f in captures)


@test("of repetitions that wait, those that are cancelled are over at once; the others get the same bytes, which are not copied")
def some_cancelled(daemon):
    with Client(daemon) as c:
        captures, replay = first_of(c, 1)
        before = errors(daemon, "CANCELLED")
        calls = [replay(0) for _ in range(12)]
        until("all wait", lambda: waiting(daemon, captures) >= 12)
        for call in calls[1::2]:
            call.cancel()
        until("they are over", lambda: errors(daemon, "CANCELLED") == before + 6)
        assert not captures[-1].done() and not any(call.done() for call in calls[::2]), "the first call was not slow for long enough"
        for f in captures:
            f.cancel()
        answers = [call.result().outputs[0] for call in calls[::2]]
        assert answers == [struct.pack("<f", -1) * (MIB + 1)] * 6
        assert all(call.cancelled() for call in calls[1::2])


@test("a repetition that was served in the first one's place and is cancelled too, at any moment, is over")
def all_cancelled(daemon):
    with Client(daemon) as c:
        captures, replay = first_of(c, 2, n=24)
        before = errors(daemon, "CANCELLED")
        for i in range(24):
            first, second = replay(i), replay(i)
            until("both wait", lambda: waiting(daemon, captures) >= 2)
            first.cancel()
            time.sleep(i * 1e-4)
            second.cancel()
            until("both are over", lambda: errors(daemon, "CANCELLED") == before + 2 * (i + 1))
        assert not captures[-1].done(), "the first calls were not slow for long enough"
        for f in captures:
            f.cancel()


@test("the first call is given up: the repetition that waits is served in its place")
def given_up(daemon):
    """Repeats a call whose first attempt is cancelled. Whether it arrives in time depends on the machine; the daemon's counter tells."""
    cancelled = lambda: daemon.stats()["requests"]["errors_by_reason"].get("CANCELLED", 0)
    with Client(daemon) as c:
        for attempt in range(10):
            name = sparse(f"given-up-{attempt}.safetensors", BIG)
            before = cancelled()
            first = loaded(c, name, f"u{attempt}")
            next(first)
            got = []
            second = threading.Thread(target=lambda: got.append(list(loaded(c, name, f"u{attempt}"))[-1].done))
            second.start()
            until("both are there", lambda: daemon.stats()["requests"]["in_flight"] >= 3 or got)
            first.cancel()
            second.join()
            buffers = [t.buffer for t in got[0].tensors]
            assert [b.buffer for b in mine(c)] == buffers, (buffers, mine(c))
            c.call("Memory/Free", pb.FreeRequest(buffers=buffers))
            until("it is free", lambda: daemon.used_bytes() < BIG)
            if cancelled() > before:
                return
        raise AssertionError("the first call was never cancelled in time")


@test("a prompt opened by four calls at once is one sequence; a step repeated is one step; a close repeated is fine")
def sequences(daemon):
    if CTL is None:
        raise Skip("npugraphctl was not built")
    subprocess.run([CTL, "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, capture_output=True)
    with Client(daemon) as c:
        opened = together(4, lambda: c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=list(range(5, 400))), request_id="o"))
        assert opened.count(opened[0]) == 4, opened
        assert len(c.call("Sequences/List", pb.ListSequencesRequest()).sequences) == 1
        step = pb.StepRequest(sequence=opened[0].sequence)
        steps = together(4, lambda: c.call("Sequences/Step", step, request_id="s"))
        assert steps.count(steps[0]) == 4 and steps[0].position == 396, steps
        assert c.call("Sequences/Step", step).position == 397
        close = pb.CloseRequest(sequence=opened[0].sequence)
        for _ in range(2):
            c.call("Sequences/Close", close, request_id="c")
        unload = pb.UnloadModelRequest(name="m")
        for _ in range(2):
            c.call("Sequences/UnloadModel", unload, request_id="u")
        refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", unload)


if __name__ == "__main__":
    main(f"--models-dir={MODELS}", f"--models-dir={SOURCE / 'examples'}", "--device-memory=512M")
