#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences that their client restores when the daemon is killed: the tokens are those of a run that nothing disturbs."""
import asyncio
import random
import shutil
import threading

from replacing import *
from python_package import npugraph
from sequences import close, listed

TOKENS = 70
SEEDED = npugraph.Sampling(temperature=0.9, seed=11, top_p=0.95, repetition_penalty=1.2, presence_penalty=0.4, frequency_penalty=0.2, min_tokens=40,
                           logit_bias={17: 2.0}, bad_words=((5, 6), (40,)))
HOWS = {"greedy": None, "seeded": npugraph.Sampling(temperature=0.8, seed=7), "penalties": SEEDED}


def restart(line, load=MODEL, env=None, during=lambda: None):
    """Kills the daemon, and starts another at its address, with a model of the same name."""
    line.now.kill()
    during()
    line.now = Daemon(*line.options, dir=line.now.dir, env=env)
    if load:
        line.ctl("load", str(load), "--name", "m")


def connect(line, **kwargs):
    return npugraph.connect(line.now.address, name="restored", timeout=30, **kwargs)


def generated(sequence, n, disturb=None, **kwargs):
    tokens = []
    for token in sequence.generate(n, **kwargs):
        tokens.append(token)
        if disturb and len(tokens) in disturb:
            disturb[len(tokens)]()
    return tokens


class Meanwhile:
    """Runs a call in a thread. Daemons are started by the main thread: they end with the one that started them."""

    def __init__(self, call):
        self.thread = threading.Thread(target=self._run, args=(call,))
        self.thread.start()

    def _run(self, call):
        try:
            self.value, self.error = call(), None
        except Exception as error:
            self.error = error

    def result(self):
        self.thread.join()
        if self.error:
            raise self.error
        return self.value


def undisturbed(line, how, n=TOKENS, **kwargs):
    with connect(line) as c, c.open("m", PROMPT, how) as s:
        return generated(s, n, ignore_stop=True, **kwargs)


@test("a generation goes on in another daemon with the tokens that it would have had, greedy, seeded and with penalties")
def generations():
    with Line() as line:
        for name, how in HOWS.items():
            expected = undisturbed(line, how)
            with connect(line) as c, c.open("m", PROMPT, how, restore=30) as s:
                cuts = dict.fromkeys(random.sample(range(1, TOKENS), 2), lambda: restart(line))
                tokens = generated(s, TOKENS, cuts, ignore_stop=True)
                assert tokens == expected and s.finish == "length", (name, list(cuts), tokens, expected)
                assert len(generated(s, 5, ignore_stop=True)) == 5, "the sequence stays usable"


@test("steps go on, over the ring and over gRPC, also when the daemon is killed while a step is under way")
def steps():
    with Line() as line:
        for local in (True, False):
            expected = undisturbed(line, SEEDED)
            with connect(line, local_transport=local) as c, c.open("m", PROMPT, SEEDED, restore=30) as s:
                assert not local or s.step().token == expected[1] and c.has_ring
                tokens = expected[:1] if not local else expected[:2]
                while len(tokens) < TOKENS:
                    if len(tokens) == 20:
                        restart(line)
                    if len(tokens) == 50:
                        line.now.signal(signal.SIGSTOP)
                        step = Meanwhile(s.step)
                        time.sleep(0.3)
                        restart(line)
                        tokens.append(step.result().token)
                    tokens.append(s.step().token)
                assert tokens == expected, (local, tokens, expected)


@test("forced tokens, drafts, masks, log-probabilities and forks are as if nothing had happened")
def all_of_a_step():
    def script(line, disturb):
        told = []
        with connect(line) as c:
            vocab = c.models("m")[0].vocab
            mask = bytes(0x55 for _ in range((vocab + 7) // 8))  # every other token
            with c.open("m", PROMPT, npugraph.Sampling(temperature=0.8, seed=3), logprobs=2, allowed=mask, restore=30) as s:
                disturb()
                told += [s.last.logprobs, s.step(logprobs=2, allowed=mask).logprobs, s.step(17).token]
                disturb()
                fork = s.fork(npugraph.Sampling(temperature=0.8, seed=4))
                guess = generated(s, 6, ignore_stop=True)
                told += guess
                disturb()
                told += generated(fork, 6, ignore_stop=True)
                told += [fork.step(draft=guess[:3]).accepted, fork.step(9, draft=[1, 2]).position, fork.step(want_logits=True).logits.tolist()]
                disturb()
                told += [fork.step().token, s.step(allowed=mask).token, s.fork(None).token]
                disturb()
                told += [s.fork(npugraph.Sampling(temperature=1, seed=8)).token]  # under the mask of the last step
        return told
    with Line() as line:
        expected = script(line, lambda: None)
        told = script(line, lambda: restart(line))
        for i, (a, b) in enumerate(zip(told, expected, strict=True)):
            assert a == b, (i, a, b)


@test("a stop token, a full context and a limit of tokens end a generation that was cut before its end")
def ends():
    with Line() as line:
        expected = undisturbed(line, None)
        stop = expected[30]
        at = expected.index(stop)
        with connect(line) as c:
            with c.open("m", PROMPT, restore=30) as s:
                tokens = generated(s, 200, {at: lambda: restart(line)}, ignore_stop=True, stop_tokens=[stop])
                assert tokens == expected[:at + 1] and s.finish == "stop", tokens
                assert generated(s, 3, ignore_stop=True) == undisturbed(line, None, at + 4)[at + 1:]
            context = c.models("m")[0].max_context
            with c.open("m", PROMPT * (context // 4 - 8), restore=30) as s:
                before = s.position
                tokens = generated(s, None, {5: lambda: restart(line), 20: lambda: restart(line)}, ignore_stop=True)
                assert s.finish == "context" and before + len(tokens) == context + 1, (s.finish, before, len(tokens), context)


@test("many sequences of an event loop go on together, each with its own tokens")
def many():
    async def run(line, expected):
        async with await npugraph.aio.connect(line.now.address, timeout=30) as c:
            async def one(seed):
                s = await c.open("m", PROMPT, npugraph.Sampling(temperature=0.9, seed=seed), restore=30)
                tokens, known = [], s.generate(400, ignore_stop=True)
                async for token in known:
                    tokens.append(token.id)
                    await asyncio.sleep(0)
                return tokens
            assert await asyncio.gather(*[one(seed) for seed in range(len(expected))]) == expected
    with Line() as line:
        expected = [undisturbed(line, npugraph.Sampling(temperature=0.9, seed=seed), 400) for seed in range(12)]
        running = Meanwhile(lambda: asyncio.run(run(line, expected)))
        for _ in range(2):
            time.sleep(0.1)
            restart(line)
        running.result()


@test("a restart in order, which drains for a while, is a pause too: of steps by the ring and by gRPC, and of generations")
def restarts_in_order():
    def work(line, how, local):
        with connect(line, local_transport=local) as c, c.open("m", PROMPT, how, restore=30) as s:
            tokens = [s.token]
            while len(tokens) < 40:
                time.sleep(0.02)
                tokens.append(s.step().token)
            return tokens + generated(s, TOKENS - 40, dict.fromkeys(range(TOKENS), lambda: time.sleep(0.02)), ignore_stop=True)[1:]

    with Line("--drain-grace=300ms") as line:
        expected = undisturbed(line, SEEDED, TOKENS - 1)
        for local in (True, False):
            for after in (0.2, 1.0):  # in the steps, and in the generation
                running = Meanwhile(lambda: work(line, SEEDED, local))
                time.sleep(after)
                line.now.signal(signal.SIGTERM)
                assert line.now.wait() == 0
                line.now = Daemon(*line.options, dir=line.now.dir)
                line.ctl("load", str(MODEL), "--name", "m")
                assert running.result() == expected, (local, after)


@test("opening waits for a daemon too, and for its model; without `restore` a loss is an error, as before")
def opening():
    with Line() as line:
        with connect(line) as c:
            fails(c.open("m", PROMPT), lambda: restart(line), "UNREACHABLE", "SESSION_GONE")
            line.now.kill()
            opening = Meanwhile(lambda: c.open("m", PROMPT, restore=30))
            time.sleep(0.5)
            restart(line, load=None)
            time.sleep(0.5)  # the daemon serves before its model is loaded
            later = Meanwhile(lambda: c.open("m", PROMPT, restore=30))
            time.sleep(0.1)
            line.ctl("load", str(MODEL), "--name", "m")
            assert opening.result().step().token == later.result().step().token
            begin = time.monotonic()
            try:
                c.open("other", PROMPT, restore=PATIENCE)
                raise AssertionError("there is no such model")
            except npugraph.Error as error:
                assert error.reason == "MODEL_NOT_FOUND" and time.monotonic() - begin < PATIENCE / 2, "it was never there, and is not awaited"


@test("generations whose model is not there yet hold up none whose model is, and one that is cancelled ends at once")
def held_up():
    async def tokens_of(sequence):
        return [token.id async for token in sequence.generate(400, ignore_stop=True)]

    async def run(line, expected, restarted):
        async with await npugraph.aio.connect(line.now.address, timeout=30) as c:
            late = [await c.open("n", PROMPT, restore=PATIENCE) for _ in range(6)]
            slow = [s.generate(900, ignore_stop=True) for s in late]
            opened = [await c.open("m", PROMPT, npugraph.Sampling(temperature=0.9, seed=seed), restore=PATIENCE) for seed in range(3)]
            texts = [asyncio.ensure_future(tokens_of(s)) for s in opened]
            await asyncio.to_thread(restarted.wait)
            assert await asyncio.gather(*texts) == expected
            assert all(generation.running for generation in slow)
            slow[2].cancel()
            await asyncio.wait_for(slow[2].ended(), PATIENCE / 3)
            assert slow[2].finish == "cancelled" and slow[1].running
            back.set()
            for generation in slow[:2] + slow[3:]:
                await generation.ended()
                assert generation.finish == "length", generation.finish

    back = threading.Event()
    with Line() as line:
        expected = [undisturbed(line, npugraph.Sampling(temperature=0.9, seed=seed), 400) for seed in range(3)]
        line.ctl("load", str(MODEL), "--name", "n")
        restarted = threading.Event()
        running = Meanwhile(lambda: asyncio.run(run(line, expected, restarted)))
        with Client(line.now) as watch:
            until("all generate", lambda: listed(watch, "n").sequences == 6 and listed(watch, "m").sequences == 3)
        restart(line)
        restarted.set()
        until("those of the other model wait", lambda: back.is_set() or not running.thread.is_alive())
        if running.thread.is_alive():
            line.ctl("load", str(MODEL), "--name", "n")
        running.result()


@test("a daemon that was lost leaves no thread behind in its clients")
def leaves_no_thread():
    async def run(line, turn):
        async with await npugraph.aio.connect(line.now.address, timeout=30) as c:
            s = await c.open("m", PROMPT, restore=PATIENCE)
            threads = []
            for n in range(8):
                generation = s.generate(3, ignore_stop=True)
                assert [token.id async for token in generation] and generation.finish == "length"
                threads.append(len(os.listdir("/proc/self/task")))
                turn.put(n)
                await asyncio.to_thread(turn.join)
            assert max(threads[5:]) <= max(threads[:3]) + 2, threads

    turn = queue.Queue()
    with Line() as line:
        running = Meanwhile(lambda: asyncio.run(run(line, turn)))
        for n in range(8):
            until("it has generated", lambda: not turn.empty() or not running.thread.is_alive())
            if not running.thread.is_alive():
                break
            if n < 7:
                restart(line)
            turn.get()
            turn.task_done()
        running.result()


def fails(sequence, disturb, *reasons):
    disturb()
    begin = time.monotonic()
    try:
        sequence.step()
    except npugraph.Error as error:
        assert error.reason in reasons, error
        return time.monotonic() - begin
    raise AssertionError("the sequence was restored")


@test("a model that is not there, or is another one, is told, in time")
def other_models():
    other = SCRATCH / "other"
    shutil.copytree(MODEL, other)
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    configs = []
    for field, value in (("rope_theta", 30000.0), ("rms_norm_eps", 0.05)):
        configs.append(SCRATCH / field)
        shutil.copytree(MODEL, configs[-1])
        config = json.loads((MODEL / "config.json").read_text())
        assert field in config
        (configs[-1] / "config.json").write_text(json.dumps({**config, field: value}))
    copy = SCRATCH / "copy"
    shutil.copytree(MODEL, copy)  # with the times of the files
    with Line(f"--models-dir={SCRATCH}") as line, connect(line) as c:
        s, t, u = (c.open("m", PROMPT, restore=1.5) for _ in range(3))
        assert 1 < fails(s, lambda: restart(line, load=None), "MODEL_NOT_FOUND") < 10
        fails(t, lambda: line.ctl("load", str(other), "--name", "m"), "MODEL_CHANGED")
        ids = set()
        with Client(line.now) as raw:
            for at, path in enumerate((other, *configs)):
                line.ctl("load", str(path), "--name", f"m{at}", "--max-context", "256")
                ids.add(raw.call("Sequences/Open", pb.OpenRequest(model=f"m{at}", prompt=PROMPT)).model_id)
            line.ctl("load", str(other), "--name", "short", "--max-context", "128")
            assert raw.call("Sequences/Open", pb.OpenRequest(model="short", prompt=PROMPT)).model_id in ids, "its room is not the model"
            assert len(ids) == 3, "the same weights with another config.json are another model"
        restart(line, load=copy)
        assert u.step().token == undisturbed(line, None)[1], "the same files at another place are the same model"


@test("a call whose daemons die one after another ends with the third, and no daemon at all with its time")
def dies_each_time():
    with Line() as line, connect(line) as c:
        s = c.open("m", PROMPT, restore=20)
        t = c.open("m", PROMPT, restore=1)
        line.now.signal(signal.SIGSTOP)
        stepping = Meanwhile(lambda: fails(s, lambda: None, "UNREACHABLE", "SESSION_GONE"))
        for n in range(3):
            restart(line, env={"NPUGRAPHD_FAULT": "host-stuck:0:99"} if n < 2 else None)
            if n < 2:
                with Client(line.now) as watch:
                    until("the sequence is restored", lambda: listed(watch, "m").sequences == 1)
                time.sleep(0.2)  # its step is under way
        assert stepping.result() < 19
        with Client(line.now) as watch:
            assert listed(watch, "m").sequences == 0
        assert fails(t, line.now.kill, "UNREACHABLE", "SESSION_GONE") < 10
        restart(line)


@test("what a client says of a lost sequence is checked")
def checks():
    with Line() as line, Client(line.now) as c:
        o = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT))
        m = listed(c, "m")
        good = {"model_id": o.model_id, "prompt_tokens": 4, "given_tokens": 4, "draws": 3, "chosen": 9}

        def restore(prompt=(5, 6, 7, 8, 9, 9), model="m", sampling=None, **changes):
            return c.call("Sequences/Open", pb.OpenRequest(model=model, prompt=prompt, sampling=sampling, restore=pb.RestoredSequence(**{**good, **changes})))
        r = restore()
        assert (r.token, r.position, r.model_id, r.stop) == (9, 6, o.model_id, False), r
        assert c.call("Sequences/Step", pb.StepRequest(sequence=r.sequence, position=6)).position == 7
        assert c.call("Sequences/Step", pb.StepRequest(sequence=r.sequence, position=6)).position == 7, "the same step again"
        assert restore(chosen=m.stop_tokens[0]).stop
        for reason, code, changes in (
                ("MODEL_CHANGED", "FAILED_PRECONDITION", {"model_id": b""}), ("MODEL_CHANGED", "FAILED_PRECONDITION", {"model_id": bytes(32)}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt": ()}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt": (5, m.vocab)}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt": (5, -1)}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt": [5] * (m.max_context + 1)}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt_tokens": 0}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"prompt_tokens": 7}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"given_tokens": m.max_context + 1}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"draws": 0}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"draws": 8}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"draws": (1 << 64) - 1}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"chosen": m.vocab}), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"chosen": -1}),
                ("INVALID_ARGUMENT", "INVALID_ARGUMENT", {"logprobs": pb.Logprobs(token=m.vocab)}),
                ("SAMPLING", "INVALID_ARGUMENT", {"sampling": pb.Sampling(temperature=-1)}),
                ("MODEL_NOT_FOUND", "NOT_FOUND", {"model": "n"})):
            refused(reason, code, restore, **changes)
        assert listed(c, "m").sequences == 3 and "\nnpugraphd_sequences_restored_total 2\n" in line.now.http("/metrics")[1]


@test("a full context is computed again within its blocks, whether others give up theirs or not, and its generation ends")
def full():
    for policy in ("refuse", "preempt"):
        with Line() as line, Client(line.now) as c:
            line.ctl("load", str(MODEL), "--name", "full", "--max-context", "96", "--block-size", "16", "--kv-policy", policy)
            o = c.call("Sequences/Open", pb.OpenRequest(model="full", prompt=PROMPT))
            restore = pb.RestoredSequence(model_id=o.model_id, prompt_tokens=4, given_tokens=4, draws=3, chosen=9)
            for _ in range(8):
                r = c.call("Sequences/Open", pb.OpenRequest(model="full", prompt=[5 + i % 40 for i in range(96)], restore=restore))
                end = list(c.call("Sequences/Generate", pb.GenerateRequest(sequence=r.sequence, max_tokens=5, ignore_stop=True)))[-1]
                assert end.finish == pb.FINISH_REASON_CONTEXT, end
                assert [s.blocks for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences if s.sequence == r.sequence] == [6]
                close(c, r.sequence)
            assert listed(c, "full").blocks_used == 1


@test("what is appended to a restored sequence is computed as a prompt is, with the bits that it would have had")
def appended():
    tokens = [11 + i % 900 for i in range(300)]
    with Line() as line, Client(line.now) as c:
        s = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT))
        text = [s.token, *(c.call("Sequences/Step", pb.StepRequest(sequence=s.sequence)).token for _ in range(2))]
        kept = pb.RestoredSequence(model_id=s.model_id, prompt_tokens=4, given_tokens=4, draws=3, chosen=text[2])
        r = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[*PROMPT, *text[:2]], restore=kept))
        answers, replays = [], []
        for sequence in (s.sequence, r.sequence):
            before = listed(c, "m").batches
            answer = c.call("Sequences/Step", pb.StepRequest(sequence=sequence, append=tokens, want_logits=True))
            answers.append(answer.logits)
            after = answer.token
            replays.append(listed(c, "m").batches - before)
        assert answers[0] == answers[1] and replays[0] == replays[1] == 1, replays
        last = c.call("Sequences/Step", pb.StepRequest(sequence=s.sequence, want_logits=True))
        for n, parts in ((2, [6, 305]), (1, [])):  # without the parts it goes on as well, but may have other bits
            kept = pb.RestoredSequence(model_id=s.model_id, prompt_tokens=4, given_tokens=306, draws=4, chosen=0, appended=parts)
            r = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[*PROMPT, *text[:2], *tokens], restore=kept))
            got = c.call("Sequences/Step", pb.StepRequest(sequence=r.sequence, forced=pb.TokenChoice(token=after), want_logits=True))
            assert n == 1 or got.logits == last.logits
        for wrong in ([6], [3, 9], [6, 6], [7, 6], [6, 307], [6, 20, 19, 30]):
            kept = pb.RestoredSequence(model_id=s.model_id, prompt_tokens=4, given_tokens=306, draws=4, chosen=0, appended=wrong)
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Sequences/Open",
                    pb.OpenRequest(model="m", prompt=[*PROMPT, *text[:2], *tokens], restore=kept))


if __name__ == "__main__":
    main(shared=False)
