#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences of the bundled model: refusals and their reasons, and unloading a model that is in use."""
import math
import shutil
import struct
import threading

from harness import *

MODEL = SOURCE / "examples" / "model"
CONTEXT, VOCAB = 1024, 2048  # of the bundled model
PROMPT = [5, 6, 7]
# The bundled model, with a context that takes most of a minute to fill. So a generation of ENDLESS tokens lasts as long as a test needs
# it, however late the test's thread is.
LONG = SCRATCH / "models" / "long"
ENDLESS = 16000

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")
shutil.copytree(MODEL, LONG)
(LONG / "config.json").write_text(json.dumps({**json.loads((MODEL / "config.json").read_text()), "max_position_embeddings": 16384}))


def load(daemon, name="m", model=MODEL, *options):
    if name not in [m.name for m in models(daemon)]:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", *options, str(model), "--name", name], check=True, capture_output=True)


def load_long(daemon, name="long"):
    load(daemon, name, LONG, "--max-context", "16384", "--kv-bytes", "64M")


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
    """Checks around each refusal that another client's sequence gets the same tokens, and that no KV block is lost."""
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
    assert answer[-1].finish == pb.FINISH_REASON_CONTEXT and [t for m in answer for t in m.tokens] == [longest.token]


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


def mask_of(*tokens):
    bits = bytearray(VOCAB // 8)
    for token in tokens:
        bits[token // 8] |= 1 << token % 8
    return bytes(bits)


def bias_of(**biases):
    return [pb.LogitBias(token=int(k[1:]), bias=v) for k, v in biases.items()]


@test("penalties, biases, bad words, min_tokens, min_p, typical_p: values outside their ranges are refused by name")
@undisturbed
def shaped_sampling_is_checked(daemon, c):
    nan, inf = float("nan"), float("inf")
    for bad in ({"min_p": -0.1}, {"min_p": 1.1}, {"min_p": nan}, {"typical_p": 2}, {"repetition_penalty": -1}, {"repetition_penalty": inf},
                {"presence_penalty": 101}, {"frequency_penalty": nan}, {"logit_bias": bias_of(t5=nan)}, {"logit_bias": bias_of(t5=1e7)}):
        got = refused("SAMPLING", "INVALID_ARGUMENT", start, c, **bad)
        assert list(bad)[0] in got.text, got.text
    for bad in ([VOCAB], [-1], [5, 2**31 - 1]):
        refused("TOKEN_RANGE", "INVALID_ARGUMENT", start, c, bad_words=[pb.TokenWord(tokens=bad)])
        refused("TOKEN_RANGE", "INVALID_ARGUMENT", start, c, logit_bias=[pb.LogitBias(token=bad[-1])])
    refused("SAMPLING", "INVALID_ARGUMENT", start, c, bad_words=[pb.TokenWord()])
    for many in ({"logit_bias": [pb.LogitBias(token=5)] * 1025}, {"bad_words": [pb.TokenWord(tokens=[5])] * 257},
                 {"bad_words": [pb.TokenWord(tokens=[5] * 33)]}):
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", start, c, **many)
    most = start(c, logit_bias=[pb.LogitBias(token=t, bias=-1e6) for t in range(1024)], bad_words=[pb.TokenWord(tokens=[5] * 32)] * 256,
                 min_p=1, typical_p=1, repetition_penalty=100, presence_penalty=-100, frequency_penalty=100, min_tokens=2**32 - 1, temperature=1)
    assert 1024 <= most.token < VOCAB


@test("sampling parameters do what they say, alone and beside other sequences, by steps, generations and drafts")
@undisturbed
def shaped_sampling(daemon, c):
    plain = [t for m in generate(c, start(c).sequence, 12) for t in m.tokens]
    banned = [t for m in generate(c, start(c, bad_words=[pb.TokenWord(tokens=[plain[1]])]).sequence, 12) for t in m.tokens]
    assert banned[0] == plain[0] and plain[1] not in banned
    once = [t for m in generate(c, start(c, frequency_penalty=100, presence_penalty=100).sequence, 12) for t in m.tokens]
    assert len(set(once)) == 12
    wanted = start(c, logit_bias=bias_of(t77=1e6))
    assert wanted.token == 77 and step(c, wanted.sequence).token == 77
    ways = [{"frequency_penalty": 1.5}, {"repetition_penalty": 1.3, "temperature": 0.9, "seed": 3, "min_p": 0.02},
            {"temperature": 1.5, "seed": 4, "typical_p": 0.9, "bad_words": [pb.TokenWord(tokens=plain[:2])]}]
    alone = [[t for m in generate(c, start(c, **way).sequence, 12) for t in m.tokens] for way in ways]
    opened = [start(c, **way) for way in ways for _ in range(2)] # one of each is drafted for
    got = {}

    def run(i):
        if i % 2:
            got[i] = [t for m in generate(c, opened[i].sequence, 12) for t in m.tokens]
            return
        said, want = [opened[i].token], alone[i // 2]
        while len(said) < 12:
            at = len(said)
            draft = [want[at], (want[at] + 1) % VOCAB] if at < 11 else []
            answer = step(c, opened[i].sequence, draft=draft)
            said += draft[:answer.accepted] + [answer.token]
        got[i] = said[:12]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(opened))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(len(opened)):
        assert got[i] == alone[i // 2], (i, got[i], alone[i // 2])


@test("a mask of allowed tokens holds for one choice; masks of the wrong size, without a token or with a draft are refused")
@undisturbed
def masks(daemon, c):
    def masked(allowed, **sampling):
        return c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT, allowed=allowed, sampling=pb.Sampling(**sampling)))

    first = masked(mask_of(7, 2000))
    assert first.token in (7, 2000)
    for token in (0, VOCAB - 1, 900):
        assert step(c, first.sequence, allowed=mask_of(token)).token == token
    fork = c.call("Sequences/Fork", pb.ForkRequest(sequence=first.sequence, sampling=pb.Sampling(temperature=50), logprobs=pb.LogprobsRequest(top=2)))
    assert fork.token == 900 and fork.logprobs.token == 900 and len(fork.logprobs.top) == 2
    assert step(c, first.sequence).token != 900 or step(c, first.sequence).token != 900
    position = step(c, first.sequence).position
    for bad in (b"\1", mask_of(5) + b"\0", mask_of(), b"\xff" * 1000):
        refused("SAMPLING", "INVALID_ARGUMENT", step, c, first.sequence, allowed=bad)
        refused("SAMPLING", "INVALID_ARGUMENT", masked, bad)
        assert on_stream(c, pb.StepRequest(sequence=first.sequence, allowed=bad))[0].error.reason == "SAMPLING"
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", step, c, first.sequence, allowed=mask_of(5), draft=[5])
    nothing = start(c, bad_words=[pb.TokenWord(tokens=[9])])
    got = refused("SAMPLING", "INVALID_ARGUMENT", step, c, nothing.sequence, allowed=mask_of(9))
    assert "no token may be chosen" in got.text
    assert step(c, nothing.sequence, allowed=mask_of(9, 10)).token == 10
    assert step(c, first.sequence).position == position + 1


@test("a step appends several tokens as a prompt; what does not fit or go together is refused")
@undisturbed
def appends(daemon, c):
    more = [(i * 37 + 11) % VOCAB for i in range(300)] # more than a chunk
    want = start(c, PROMPT + [9] + more)
    mine = start(c)
    answer = step(c, mine.sequence, append=[9, *more])
    assert (answer.token, answer.position) == (want.token, want.position)
    assert step(c, mine.sequence).token == step(c, want.sequence).token
    position = step(c, mine.sequence).position
    refused("TOKEN_RANGE", "INVALID_ARGUMENT", step, c, mine.sequence, append=[5, VOCAB])
    refused("TOKEN_RANGE", "INVALID_ARGUMENT", step, c, mine.sequence, append=[-1])
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", step, c, mine.sequence, append=[5], draft=[5])
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", step, c, mine.sequence, append=[5], forced=pb.TokenChoice(token=5))
    refused("CONTEXT_FULL", "OUT_OF_RANGE", step, c, mine.sequence, append=[5] * (CONTEXT - position + 1))
    refused("CONTEXT_FULL", "OUT_OF_RANGE", step, c, mine.sequence, append=[5] * 5000)
    on_full = on_stream(c, pb.StepRequest(sequence=mine.sequence, append=[5] * (CONTEXT - position)), pb.StepRequest())
    assert on_full[0].position == CONTEXT and on_full[1].error.reason == "CONTEXT_FULL"


@test("min_tokens holds stop tokens back, for a generation's own too")
@undisturbed
def min_tokens(daemon, c):
    plain = [t for m in generate(c, start(c).sequence, 12) for t in m.tokens]
    at = next(i for i in range(2, 12) if plain[i] not in plain[:i])
    short = [t for m in generate(c, start(c).sequence, 12, stop_tokens=[plain[at]]) for t in m.tokens]
    assert short == plain[:at + 1]
    longer = [t for m in generate(c, start(c, min_tokens=at + 2).sequence, 12, stop_tokens=[plain[at]]) for t in m.tokens]
    assert longer[:at] == plain[:at] and plain[at] not in longer[:at + 2] and len(longer) > at + 1


@test("a generation whose session ends while a message is under way says that the session has ended, not that it was cancelled")
def ended_behind_a_message(daemon):
    load_long(daemon)
    with Client(daemon, options=[("grpc.http2.lookahead_bytes", 5), ("grpc.http2.bdp_probe", 0)]) as c:
        sequence = start(c, model="long").sequence
        unread = generate(c, sequence, ENDLESS, logprobs=pb.LogprobsRequest(top=20))

        def is_under_way():
            return next(s.position for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences
                        if s.sequence == sequence) > len(PROMPT) + 200

        until("the generation has more than its messages' window takes", is_under_way)
        c.end_session()
        refused("SESSION_GONE", "NOT_FOUND", list, unread)


@test("Step, StepStream and Generate: sequences that are closed, foreign, unknown or of another kind, bad tokens, no tokens")
@undisturbed
def steps(daemon, c):
    mine, closed = start(c).sequence, start(c).sequence
    close(c, closed)
    graph = c.register('npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }').graph
    with Client(daemon) as other:
        # Ids belong to a session: an id that this session does not have is unknown, even if another session has it.
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
    load_long(daemon)
    alone = start(c, model="long").sequence
    expected = [t for m in generate(c, alone, 100) for t in m.tokens]
    close(c, alone)
    opened = start(c, model="long")
    stream = generate(c, opened.sequence, ENDLESS)
    tokens = list(next(stream).tokens)
    refused("SEQUENCE_BUSY", "FAILED_PRECONDITION", step, c, opened.sequence)
    refused("SEQUENCE_BUSY", "FAILED_PRECONDITION", generate, c, opened.sequence)
    answer = on_stream(c, pb.StepRequest(sequence=opened.sequence))
    assert answer[0].error.reason == "SEQUENCE_BUSY"
    while len(tokens) < len(expected):
        tokens += next(stream).tokens
    assert tokens[:len(expected)] == expected and tokens[0] == opened.token
    stream.cancel()
    state = lambda: next(word(s, "state") for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences if s.sequence == opened.sequence)
    until("the generation is stopped", lambda: state() in ("stopping", "idle"))
    assert step(c, opened.sequence).position >= len(PROMPT) + len(tokens)  # it may have made more tokens than the client has read


@test("a call after a generation that its client stopped waits for the step in flight; steps, forks and generations go on from there")
@undisturbed
def after_stop(daemon, c):
    opened = start(c)
    state = lambda: next(word(s, "state") for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences if s.sequence == opened.sequence)
    calls = [lambda: step(c, opened.sequence), lambda: list(generate(c, opened.sequence, 2)),
             lambda: close(c, c.call("Sequences/Fork", pb.ForkRequest(sequence=opened.sequence)).sequence),
             lambda: on_stream(c, pb.StepRequest(sequence=opened.sequence))]
    for turn in range(12):
        stream = generate(c, opened.sequence, 60)
        next(stream)
        stream.cancel()
        # The daemon may or may not know of the cancellation yet, and the step may or may not be over.
        until("the generation is stopped", lambda: state() in ("stopping", "idle"))
        answer = calls[turn % len(calls)]()
        assert turn % len(calls) != 3 or not answer[0].HasField("error"), answer
    close(c, opened.sequence)


@test("closed in the middle of a generation: it ends CANCELLED, and its blocks are free")
@undisturbed
def closed_meanwhile(daemon, c):
    load_long(daemon)
    sequence = start(c, model="long").sequence
    stream = generate(c, sequence, ENDLESS)
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
    until("it is idle", lambda: [s.state for s in state() if s.sequence == sequence] == [pb.SEQUENCE_STATE_IDLE])
    position = [s.position for s in state() if s.sequence == sequence][0]
    assert position >= len(PROMPT)
    if position < len(PROMPT) + 59:
        assert step(c, sequence).token == whole[position + 1 - len(PROMPT)]


@test("Unload: a model in use stays, and is named; with force its sequences are closed, generations end, memory is free")
def unload(daemon):
    before = daemon.used_bytes()
    load_long(daemon, "used")
    unload = lambda c, **kwargs: c.call("Sequences/UnloadModel", pb.UnloadModelRequest(name="used", **kwargs))
    with Client(daemon) as a, Client(daemon) as b:
        idle, running = start(a, model="used").sequence, start(b, model="used").sequence
        stream = generate(b, running, ENDLESS)
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


HOW = ({}, {"temperature": 0.8, "top_k": 40, "seed": 11})  # greedy, and drawn


def say(c, n, **how):
    """The first n tokens after the prompt, by plain steps."""
    opened = start(c, **how)
    tokens = [opened.token]
    while len(tokens) < n:
        tokens.append(step(c, opened.sequence).token)
    close(c, opened.sequence)
    return tokens


@test("Steps with drafts, right, wrong and partly right: the tokens are those of plain steps, also on a stream beside others")
@undisturbed
def drafts(daemon, c):
    for how in HOW[-1:] if SANITIZER else HOW:
        whole = say(c, 40, **how)
        stop = threading.Event()

        def others():
            with Client(daemon) as other:
                sequence = start(other).sequence
                while not stop.is_set():
                    list(generate(other, sequence, 5))

        threads = [threading.Thread(target=others) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            for wrong_at, on in ((99, False), (0, False), (2, False), (99, True), (3, True)):
                opened, at, accepted = start(c, **how), 0, 0
                assert opened.token == whole[0]
                while at + 6 < len(whole):
                    draft = [(t + 1) % VOCAB if i >= wrong_at else t for i, t in enumerate(whole[at + 1:at + 6])]
                    request = pb.StepRequest(sequence=opened.sequence, draft=draft)
                    got = on_stream(c, request)[0] if on else c.call("Sequences/Step", request)
                    assert not got.error.reason and got.accepted <= min(wrong_at, 5)
                    at, accepted = at + got.accepted + 1, accepted + got.accepted
                    assert got.token == whole[at] and got.position == len(PROMPT) + at
                assert (accepted > 0) == (wrong_at > 0)
                close(c, opened.sequence)
        finally:
            stop.set()
            for t in threads:
                t.join()


@test("Drafts longer than the context, and of tokens outside the vocabulary, are refused and leave the sequence as it was")
@undisturbed
def bad_drafts(daemon, c):
    opened = start(c)
    room = CONTEXT - len(PROMPT) - 1  # after the token that is appended
    for length in (room + 1, CONTEXT, 100_000):
        got = refused("CONTEXT_FULL", "OUT_OF_RANGE", step, c, opened.sequence, draft=[5] * length)
        assert "draft" in got.text and str(length) in got.text, got.text
    for bad in (-1, VOCAB, 2**31 - 1):
        got = refused("TOKEN_RANGE", "INVALID_ARGUMENT", step, c, opened.sequence, draft=[5, bad])
        assert "draft token 1" in got.text and str(bad) in got.text
        answer = on_stream(c, pb.StepRequest(sequence=opened.sequence, draft=[bad]))
        assert answer[0].error.reason == "TOKEN_RANGE"
    assert step(c, opened.sequence, draft=[5] * room).position >= len(PROMPT) + 1


def log_softmax(logits):
    values = struct.unpack(f"<{len(logits) // 4}f", logits)
    most = max(values)
    total = most + math.log(sum(math.exp(v - most) for v in values))
    return [v - total for v in values]


def check_logprobs(got, token, expected, top):
    assert got.token == token and abs(got.logprob - expected[token]) < 1e-4
    assert len(got.top) == top
    best = sorted(range(len(expected)), key=lambda i: -expected[i])[:top]
    for entry, i in zip(got.top, best):
        assert abs(entry.logprob - expected[i]) < 1e-4 and abs(entry.logprob - expected[entry.token]) < 1e-4


@test("Log-probabilities: of the logits that come with them; with generations too; more than 20 are refused")
@undisturbed
def logprobs(daemon, c):
    ask = lambda top: pb.LogprobsRequest(top=top)
    for how in HOW:
        opened = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT, want_logits=True, logprobs=ask(20),
                                                         sampling=pb.Sampling(**how)))
        check_logprobs(opened.logprobs, opened.token, log_softmax(opened.logits), 20)
        for top in (0, 1, 5, 20):
            got = step(c, opened.sequence, want_logits=True, logprobs=ask(top))
            assert len(got.logprobs) == 1
            check_logprobs(got.logprobs[0], got.token, log_softmax(got.logits), top)
        assert not step(c, opened.sequence).logprobs
        # A generation gives the same as steps with the same sampling. Its first token was chosen without logprobs.
        again = start(c, **how)
        said = list(generate(c, again.sequence, 6, logprobs=ask(3)))
        tokens, given = [t for m in said for t in m.tokens], [p for m in said for p in m.logprobs]
        assert [p.token for p in given] == tokens[1:] and len(tokens) == 6
        plain = start(c, **how)
        for p in given:
            got = step(c, plain.sequence, want_logits=True)
            check_logprobs(p, got.token, log_softmax(got.logits), 3)
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", step, c, opened.sequence, logprobs=ask(21))
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", generate, c, opened.sequence, logprobs=ask(2**32 - 1))
    got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT, logprobs=ask(21)))
    assert "at most 20" in got.text


@test("Stop tokens of a generation: it ends with the first of them; too many, and those outside the vocabulary, are refused")
@undisturbed
def stop_tokens(daemon, c):
    whole = say(c, 20)
    end = whole[12]
    said = list(generate(c, start(c).sequence, 20, stop_tokens=[VOCAB - 1, end]))
    assert [t for m in said for t in m.tokens] == whole[:whole.index(end) + 1] and said[-1].finish == pb.FINISH_REASON_STOP
    sequence = start(c).sequence
    got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", generate, c, sequence, stop_tokens=[1] * 17)
    assert "at most 16" in got.text
    refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", generate, c, sequence, stop_tokens=[1] * 1_000_000)
    for bad in (-1, VOCAB):
        refused("TOKEN_RANGE", "INVALID_ARGUMENT", generate, c, sequence, stop_tokens=[bad])
    assert step(c, sequence).token == whole[1]


@test("Priorities: the three classes are taken everywhere and change no token; others are refused")
@undisturbed
def priorities(daemon, c):
    whole = say(c, 6)
    for priority in pb.Priority.values():
        opened = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT, priority=priority))
        assert [opened.token, step(c, opened.sequence, priority=priority).token] == whole[:2]
        assert on_stream(c, pb.StepRequest(sequence=opened.sequence, priority=priority))[0].token == whole[2]
        assert [t for m in generate(c, opened.sequence, 3, priority=priority) for t in m.tokens] == whole[2:5]
    for bad in (4, -1, 2**31 - 1):
        for name, request in (("Open", pb.OpenRequest(model="m", prompt=PROMPT, priority=bad)),
                              ("Step", pb.StepRequest(sequence=opened.sequence, priority=bad)),
                              ("Generate", pb.GenerateRequest(sequence=opened.sequence, max_tokens=1, priority=bad))):
            got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, f"Sequences/{name}", request)
            assert str(bad) in got.text and "high" in got.text
        answer = on_stream(c, pb.StepRequest(sequence=opened.sequence, priority=bad))
        assert answer[0].error.reason == "INVALID_ARGUMENT"


@test("Deadlines that are over, or pass during a generation: DEADLINE_EXCEEDED, and the sequence goes on where it was")
@undisturbed
def deadlines(daemon, c):
    whole = say(c, 8)
    sequence = start(c).sequence

    def late(name, request, timeout):
        try:
            answer = c.call(f"Sequences/{name}", request, timeout=timeout)
            for _ in answer if hasattr(answer, "__next__") else ():
                pass
        except grpc.RpcError as e:
            assert e.code() is grpc.StatusCode.DEADLINE_EXCEEDED, e
            return
        raise AssertionError("was in time")

    for timeout in (-1, -3600):
        late("Step", pb.StepRequest(sequence=sequence), timeout)
        late("Open", pb.OpenRequest(model="m", prompt=PROMPT), timeout)
    late("Generate", pb.GenerateRequest(sequence=sequence, max_tokens=1000, ignore_stop=True), 0.05)
    state = lambda: [s for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences if s.sequence == sequence][0]
    until("it is idle", lambda: state().state == pb.SEQUENCE_STATE_IDLE)
    at = state().position - len(PROMPT)
    if at + 1 < len(whole):
        assert step(c, sequence).token == whole[at + 1]
    else:
        assert step(c, sequence).position == len(PROMPT) + at + 1


@test("Forks and sequences beyond the quota of an identity are refused; those that it has go on, and a close makes room")
def fork_quota(daemon):
    with Daemon("--max-sequences-per-identity=3", f"--models-dir={SOURCE / 'examples'}") as d:
        load(d)
        fork = lambda c, sequence: c.call("Sequences/Fork", pb.ForkRequest(sequence=sequence))
        with Client(d) as c, Client(d) as other:
            first = start(c).sequence
            copies = [fork(c, first).sequence for _ in range(2)]
            for _ in range(2):
                got = refused("QUOTA", "RESOURCE_EXHAUSTED", fork, c, first)
                assert "3 of 3 open sequences" in got.text
                refused("QUOTA", "RESOURCE_EXHAUSTED", start, other)
            assert len({step(c, s).token for s in [first, *copies]}) == 1
            close(c, copies[0])
            assert fork(c, first).sequence
            until("three are open", lambda: d.stats()["sequences"]["open"] == 3)


@test("KV blocks of an identity: what goes past its quota is refused, what it has goes on, and the end of the session gives them back")
def blocks_quota(daemon):
    with Daemon("--max-kv-blocks-per-identity=8", f"--models-dir={SOURCE / 'examples'}") as d:
        load(d)
        used = lambda: [s for s in d.stats()["shares"] if "quotas" in s][0]["quotas"]["kv_blocks"]["used"]
        with Client(d) as c:
            size, = [m.block_size for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models]
            first = start(c, prompt=[5] * (5 * size)).sequence
            assert used() == 5
            got = refused("QUOTA", "RESOURCE_EXHAUSTED", start, c, prompt=[6] * (4 * size))
            assert "5 of 8 KV blocks" in got.text and "max-kv-blocks-per-identity" in got.text, got.text
            refused("QUOTA", "RESOURCE_EXHAUSTED", c.call, "Sequences/Fork", pb.ForkRequest(sequence=first))
            step(c, first)
            assert used() == 6
            second = start(c, prompt=[6] * (2 * size)).sequence
            refused("QUOTA", "RESOURCE_EXHAUSTED", step, c, second)
            close(c, second)
            assert used() == 6
        with Client(d):
            until("they are given back", lambda: used() == 0)


@test("A worker that is killed and comes back within its grace period goes on with its sequences, idle or generating")
def resumed(daemon):
    load(daemon)
    with Client(daemon) as c:
        whole = {i: say(c, 60, **how) for i, how in enumerate(HOW)}
    child = Child(daemon, """
c = Client(daemon, grace_ms=20000, name="comes back")
opened = [c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7], sampling=pb.Sampling(**how)))
          for how in ({}, {"temperature": 0.8, "top_k": 40, "seed": 11})]
for o in opened:
    for _ in range(5):
        c.call("Sequences/Step", pb.StepRequest(sequence=o.sequence))
running = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7])).sequence
stream = c.call("Sequences/Generate", pb.GenerateRequest(sequence=running, max_tokens=1000, ignore_stop=True))
next(stream)
print(c.id, c.token.hex(), *[o.sequence for o in opened], running)
import time; time.sleep(60)
""")
    session, token, *sequences = child.line().split()
    child.kill()
    until("the session is seen as broken", lambda: [s.broken for s in Client(daemon, session=False).call(
        "Admin/ListSessions", pb.ListSessionsRequest()).sessions if s.client_name == "comes back"] == [True])
    with Client(daemon, resume=pb.SessionResume(session=int(session), token=bytes.fromhex(token))) as c:
        assert c.opened.resumed
        listed = lambda: {s.sequence: s for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences if s.sequence}
        assert set(listed()) == {int(s) for s in sequences}
        for i, sequence in enumerate(sequences[:2]):
            assert [step(c, int(sequence)).token for _ in range(10)] == whole[i][6:16]
        running = int(sequences[2])
        until("its generation has ended with the connection", lambda: listed()[running].state == pb.SEQUENCE_STATE_IDLE)
        at = listed()[running].position - len(PROMPT)
        assert at > 0
        for n in range(at + 1, min(at + 5, 60)):
            assert step(c, running).token == whole[0][n]
        assert step(c, running).position > len(PROMPT) + at
    until("its blocks are free", lambda: daemon.stats()["sequences"]["open"] == 0)


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}", f"--models-dir={LONG.parent}")
