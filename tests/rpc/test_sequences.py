#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences of the bundled model: what is refused and by which reason, and unloading a model that is in use."""
import threading

from harness import *

MODEL = SOURCE / "examples" / "model"
CONTEXT, VOCAB = 1024, 2048  # of the bundled model
PROMPT = [5, 6, 7]

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def load(daemon, name="m"):
    if name not in [m.name for m in models(daemon)]:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", name], check=True, capture_output=True)


def models(daemon):
    with Client(daemon, session=False) as c:
        return c.call("Sequences/ListModels", pb.ListModelsRequest()).models


def start(c, prompt=PROMPT, model="m", **sampling):
    return c.call("Sequences/Open", pb.OpenRequest(model=model, prompt=prompt, sampling=pb.Sampling(**sampling)))


def step(c, sequence, **kwargs):
    return c.call("Sequences/Step", pb.StepRequest(sequence=sequence, **kwargs))


def generate(c, sequence, tokens=4, **kwargs):
    return c.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, max_tokens=tokens, ignore_stop=True, **kwargs))


def close(c, sequence):
    c.call("Sequences/Close", pb.CloseRequest(sequence=sequence))


def on_stream(c, *requests):
    return list(c.call("Sequences/StepStream", iter(requests)))


def undisturbed(fn):
    """Around every refusal: another client's sequence says what it would have said, and no KV block is lost."""
    def wrapped(daemon):
        load(daemon)
        with Client(daemon) as other:
            expected = None
            for turn in range(2):
                sequence = start(other).sequence
                got = [t for m in generate(other, sequence, 8) for t in m.tokens]
                assert turn == 0 or got == expected
                expected = got
                close(other, sequence)
                if turn == 0:
                    with Client(daemon) as c:
                        fn(daemon, c)
                    until("all sequences are closed", lambda: daemon.stats()["sequences"]["open"] == 0)
            assert daemon.stats()["kv"]["blocks_used"] == 0
    wrapped.__name__ = fn.__name__
    return wrapped


@test("a prompt longer than the context, an empty one, tokens outside the vocabulary: refused; the longest is taken")
@undisturbed
def prompts(daemon, c):
    got = refused("PROMPT_TOO_LONG", "INVALID_ARGUMENT", start, c, [5] * (CONTEXT + 1))
    assert str(CONTEXT + 1) in got.text and str(CONTEXT) in got.text
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", start, c, [])
    for bad in (-1, VOCAB, 2**31 - 1, -2**31):
        got = refused("TOKEN_RANGE", "INVALID_ARGUMENT", start, c, [5, bad])
        assert str(bad) in got.text and str(VOCAB - 1) in got.text
    got = refused("MODEL_NOT_FOUND", "NOT_FOUND", start, c, model="nobody")
    assert "nobody" in got.text and "m" in got.text
    longest = start(c, [5] * CONTEXT)
    assert longest.position == CONTEXT
    refused("CONTEXT_FULL", "OUT_OF_RANGE", step, c, longest.sequence)
    answer = list(generate(c, longest.sequence))
    assert answer[-1].finish == "context" and [t for m in answer for t in m.tokens] == [longest.token]


@test("sampling values outside their ranges are refused; those at the borders are taken")
@undisturbed
def sampling(daemon, c):
    nan, inf = float("nan"), float("inf")
    for bad in ({"temperature": -0.5}, {"temperature": 101}, {"temperature": nan}, {"temperature": inf}, {"top_k": -1},
                {"temperature": 1, "top_p": 1.5}, {"temperature": 1, "top_p": -0.1}, {"temperature": 1, "top_p": nan}):
        got = refused("SAMPLING", "INVALID_ARGUMENT", start, c, **bad)
        assert list(bad)[-1] in got.text, got.text
    for good in ({"temperature": 0}, {"temperature": 100}, {"temperature": 1, "top_k": 2**31 - 1}, {"temperature": 1, "top_p": 1},
                 {"temperature": 1, "seed": 2**64 - 1}):
        assert 0 <= step(c, start(c, **good).sequence).token < VOCAB


@test("Step, StepStream and Generate: sequences that are closed, foreign, unknown or of another kind, bad tokens, no tokens")
@undisturbed
def steps(daemon, c):
    mine, closed = start(c).sequence, start(c).sequence
    close(c, closed)
    graph = c.register('npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }').graph
    with Client(daemon) as other:
        # Ids are a session's own: one that this session has not given is unknown, whoever else has it.
        foreign = [start(other).sequence for _ in range(4)][-1]
        for bad, reason in ((closed, "STALE_ID"), (foreign, "UNKNOWN_ID"), (0, "UNKNOWN_ID"), (2**64 - 1, "UNKNOWN_ID"),
                            (graph, "UNKNOWN_ID")):
            refused(reason, "NOT_FOUND", step, c, bad)
            refused(reason, "NOT_FOUND", generate, c, bad)
            refused(reason, "NOT_FOUND", close, c, bad)
            if bad:
                first, second = on_stream(c, pb.StepRequest(sequence=bad), pb.StepRequest(sequence=mine))
                assert (first.error.reason, first.error.code) == (reason, 5) and not second.error.reason
        assert step(other, foreign).position == len(PROMPT) + 1
    for bad in (VOCAB, -1, -2, 2**31 - 1):
        before = c.call("Sequences/List", pb.ListSequencesRequest()).sequences
        refused("TOKEN_RANGE", "INVALID_ARGUMENT", step, c, mine, forced=pb.TokenChoice(token=bad))
        answer = on_stream(c, pb.StepRequest(sequence=mine, forced=pb.TokenChoice(token=bad)))
        assert answer[0].error.reason == "TOKEN_RANGE", answer
        assert c.call("Sequences/List", pb.ListSequencesRequest()).sequences == before
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", generate, c, mine, 0)
    answer = on_stream(c, pb.StepRequest())
    assert answer[0].error.reason == "INVALID_ARGUMENT" and "name its sequence" in answer[0].error.message
    for name, request in (("Sequences/Step", pb.StepRequest(sequence=mine)), ("Sequences/Generate", pb.GenerateRequest(sequence=mine)),
                          ("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT))):
        with Client(daemon, session=False) as nobody:
            refused("SESSION_REQUIRED", "UNAUTHENTICATED", nobody.call, name, request)
    assert step(c, mine, forced=pb.TokenChoice(token=VOCAB - 1)).position


@test("two operations on one sequence at once: the second is refused, the first goes on")
@undisturbed
def at_once(daemon, c):
    opened = start(c)
    stream = generate(c, opened.sequence, 400)
    tokens = list(next(stream).tokens)
    refused("SEQUENCE_BUSY", "FAILED_PRECONDITION", step, c, opened.sequence)
    refused("SEQUENCE_BUSY", "FAILED_PRECONDITION", generate, c, opened.sequence)
    answer = on_stream(c, pb.StepRequest(sequence=opened.sequence))
    assert answer[0].error.reason == "SEQUENCE_BUSY"
    for message in stream:
        tokens += message.tokens
    assert len(tokens) == 400 and message.finish == "length" and tokens[0] == opened.token
    assert step(c, opened.sequence).position == len(PROMPT) + 400


@test("closed in the middle of a generation: it ends CANCELLED, and its blocks are free")
@undisturbed
def closed_meanwhile(daemon, c):
    sequence = start(c).sequence
    stream = generate(c, sequence, 1000)
    next(stream)
    close(c, sequence)
    refused("CANCELLED", "CANCELLED", lambda: stream)
    refused("STALE_ID", "NOT_FOUND", step, c, sequence)
    until("its blocks are free", lambda: daemon.stats()["kv"]["blocks_used"] == 0)


@test("a generation that is cancelled leaves its sequence usable, and says what it would have said")
@undisturbed
def cancelled(daemon, c):
    whole = [t for m in generate(c, start(c).sequence, 60) for t in m.tokens]
    sequence = start(c).sequence
    stream = generate(c, sequence, 1000)
    next(stream)
    stream.cancel()
    state = lambda: c.call("Sequences/List", pb.ListSequencesRequest()).sequences
    until("it is idle", lambda: [s.state for s in state() if s.sequence == sequence] == ["idle"])
    position = [s.position for s in state() if s.sequence == sequence][0]
    assert position >= len(PROMPT)
    if position < len(PROMPT) + 59:
        assert step(c, sequence).token == whole[position + 1 - len(PROMPT)]


@test("Unload: a model in use stays, and is named; with force its sequences are closed, generations end, memory is free")
def unload(daemon):
    before = daemon.used_bytes()
    load(daemon, "used")
    unload = lambda c, **kwargs: c.call("Sequences/UnloadModel", pb.UnloadModelRequest(name="used", **kwargs))
    with Client(daemon) as a, Client(daemon) as b:
        idle, running = start(a, model="used").sequence, start(b, model="used").sequence
        stream = generate(b, running, 1000)
        next(stream)
        got = refused("BUSY", "FAILED_PRECONDITION", unload, a)
        assert "used" in got.text and "2 open sequences" in got.text and "force" in got.text
        assert len(models(daemon)) >= 1 and next(stream).tokens
        unload(a, force=True)
        refused("CANCELLED", "CANCELLED", lambda: stream)
        for c, sequence in ((a, idle), (b, running)):
            refused("STALE_ID", "NOT_FOUND", step, c, sequence)
            assert len(c.call("Sequences/List", pb.ListSequencesRequest()).sequences) == 0
        refused("MODEL_NOT_FOUND", "NOT_FOUND", start, a, model="used")
        refused("MODEL_NOT_FOUND", "NOT_FOUND", unload, a)
        until("its memory is free", lambda: daemon.used_bytes() <= before)
    load(daemon, "used")
    with Client(daemon) as c:
        assert step(c, start(c, model="used").sequence).position == len(PROMPT) + 1
        until("the others' sequences are gone", lambda: daemon.stats()["sequences"]["open"] == 1)
    with Client(daemon) as c:
        until("it is not in use", lambda: daemon.stats()["sequences"]["open"] == 0)
        unload(c)
    until("its memory is free", lambda: daemon.used_bytes() <= before)


@test("Unload with force while others open sequences: each is served or told so, and none is left")
def unload_race(daemon):
    load(daemon, "race")
    outcomes, go_on = [], threading.Event()

    def work():
        with Client(daemon) as c:
            while not go_on.is_set():
                try:
                    step(c, start(c, [7] * 300, model="race").sequence)
                    outcomes.append("ok")
                except grpc.RpcError as e:
                    outcomes.append(Refusal(e).reason)
                    if outcomes[-1] == "MODEL_NOT_FOUND":
                        break
            go_on.wait(PATIENCE)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    until("they are served", lambda: outcomes.count("ok") >= 8)
    with Client(daemon) as c:
        c.call("Sequences/UnloadModel", pb.UnloadModelRequest(name="race", force=True))
        until("all have been told", lambda: outcomes.count("MODEL_NOT_FOUND") == 4)
        assert daemon.stats()["sequences"]["open"] == 0
    go_on.set()
    for t in threads:
        t.join()
    assert set(outcomes) <= {"ok", "MODEL_NOT_FOUND", "STALE_ID", "CANCELLED"}, set(outcomes)


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
