#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences that lose their KV blocks: what they compute again has the bits that it had, whoever computed it first."""
import random
import threading

from harness import *
from sequences import at_once, close, generate, listed, start, step

MODEL = SOURCE / "examples" / "model"
CONTEXT = 320
WORDS = [5 + i * i % 1800 for i in range(CONTEXT)]

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


class Life:
    """A sequence's operations in their order: tokens that are chosen, forced, drafted, generated and appended, and a copy."""

    def __init__(self, c, seed):
        self.c, self.seed = c, seed
        self.sequence, self.seen = 0, []

    def take(self, answer):
        self.seen.append((answer.token, answer.logits))

    def operations(self):
        how = pb.Sampling(temperature=0.8, seed=self.seed) if self.seed % 2 else None
        prompt = WORDS[self.seed:self.seed + (3, 47, 48, 90)[self.seed % 4]]
        yield lambda: self.open(prompt, how)
        for i in range(8):
            yield lambda i=i: self.take(step(self.c, self.sequence, draft=WORDS[i:i + i % 3], want_logits=True))
        yield lambda: self.seen.append(generate(self.c, self.sequence, 20))
        for n in (60, 10, 2):
            yield lambda n=n: self.take(self.c.call("Sequences/Step", pb.StepRequest(sequence=self.sequence, append=WORDS[n:2 * n], want_logits=True)))
            yield lambda: self.seen.append(generate(self.c, self.sequence, 5))
            yield lambda n=n: self.take(step(self.c, self.sequence, WORDS[n], want_logits=True))
        yield self.copy
        yield lambda: self.take(step(self.c, self.sequence, want_logits=True))

    def open(self, prompt, how):
        answer = start(self.c, "m", prompt, sampling=how, want_logits=True)
        self.sequence = answer.sequence
        self.take(answer)

    def copy(self):
        answer = self.c.call("Sequences/Fork", pb.ForkRequest(sequence=self.sequence))
        self.seen.append((answer.token, generate(self.c, answer.sequence, 4)))
        close(self.c, answer.sequence)

    def live(self, between=lambda: None):
        for operation in self.operations():
            operation()
            between()
        close(self.c, self.sequence)
        return self.seen


def rob(c):
    """Takes all blocks of the model for a moment."""
    close(c, start(c, "m", WORDS[:CONTEXT - 1]).sequence)


def load(daemon, *options):
    command = [CTL, "--address", daemon.address, "load", str(MODEL), "--name", "m", "--max-context", str(CONTEXT), "--block-size", "16",
               "--kv-policy", "preempt", *options]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    assert got.returncode == 0, got


def check_lives(daemon, chance, lives=4):
    lives = 1 if SANITIZER else lives
    with Client(daemon) as c:
        for seed in range(lives):
            dice = random.Random(seed)
            expected, before = Life(c, seed).live(), listed(c, "m").preemptions
            got = Life(c, seed).live(lambda: rob(c) if dice.random() < chance else None)
            assert listed(c, "m").preemptions > before
            different = [i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b]
            assert not different, (seed, different)


@test("tokens and logits are the same to the bit when blocks are lost between any two operations")
def lost_between():
    with Daemon(f"--models-dir={MODEL}", "--device-memory=512M") as daemon:
        load(daemon, "--kv-bytes", "1M")
        check_lives(daemon, 1)
        check_lives(daemon, 0.3)


@test("and beside sequences that make steps, so that chunks run in pieces")
def lost_beside():
    over = threading.Event()

    def others(c, i):
        if i == 0:
            try:
                check_lives(daemon, 0.5, 2)
            finally:
                over.set()
        while not over.is_set():
            q = start(c, "m", WORDS[i:i + 3]).sequence
            generate(c, q, 40)
            close(c, q)

    with Daemon(f"--models-dir={MODEL}", "--device-memory=512M") as daemon:
        load(daemon, "--kv-bytes", "1M")
        at_once(daemon, 3, others)


def restore(c):
    """What a sequence says behind a prompt, a text, an appended part and a step, and what one says that is restored there."""
    first = start(c, "m", WORDS[:50])
    q, text = first.sequence, generate(c, first.sequence, 20)
    part = c.call("Sequences/Step", pb.StepRequest(sequence=q, append=WORDS[:60]))
    context = [*WORDS[:50], *text[:-1], *WORDS[:60], part.token]
    known = pb.RestoredSequence(model_id=first.model_id, prompt_tokens=50, given_tokens=len(context) - 1, draws=22, chosen=step(c, q).token,
                                appended=[69, len(context) - 2])
    again = start(c, "m", context, restore=known).sequence
    said = [step(c, s, want_logits=True).logits for s in (q, again)]
    close(c, q)
    close(c, again)
    return said


@test("whichever of the two graphs has only executables of a way, for lost blocks and for sequences that are restored")
def ways():
    with Daemon(f"--models-dir={MODEL}", "--device-memory=512M") as daemon, Client(daemon) as c:
        for options in (), ("--chunk", "7", "--max-batch", "64"), ("--max-batch", "64"), ("--chunk", "7"):
            load(daemon, "--kv-bytes", "1M", *options)
            check_lives(daemon, 0.5, 2)
            lived, restored = restore(c)
            assert lived == restored, options
            assert subprocess.run([CTL, "--address", daemon.address, "unload", "m"], capture_output=True, check=False).returncode == 0


@test("and with other buckets, which are applied to the graph of prompts later: neither lost nor shared blocks have other bits")
def buckets():
    with Daemon(f"--models-dir={MODEL}", "--device-memory=512M") as daemon, Client(daemon) as c:
        load(daemon, "--kv-bytes", "1M")
        prompt = [7 + i * i % 1700 for i in range(200)]
        expected = [start(c, "m", prompt[i:100 + i], want_logits=True).logits for i in (0, 99)]
        graph = listed(c, "m").prefill.digest
        assert c.call("Graphs/Buckets", pb.BucketsRequest(digest=graph, set=[32, 256], apply=True)).applied
        check_lives(daemon, 0.5, 2)
        rob(c)
        for i, logits in zip((0, 99), expected, strict=True):
            close(c, start(c, "m", prompt[i:20 + i]).sequence)
            assert start(c, "m", prompt[i:100 + i], want_logits=True).logits == logits, i


if __name__ == "__main__":
    main(shared=False)
