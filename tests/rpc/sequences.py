# SPDX-License-Identifier: Apache-2.0
"""Sequences of a loaded model: their calls, and what must hold of their tokens whatever KV cache and devices the model has."""
import threading

from harness import Client, pb

TOKENS = 16  # of the text of a sequence


def listed(c, name):
    """The model of a name; None: there is none."""
    return next((m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == name), None)


def start(c, name, prompt, **kwargs):
    return c.call("Sequences/Open", pb.OpenRequest(model=name, prompt=prompt, **kwargs))


def step(c, sequence, token=None, **kwargs):
    forced = None if token is None else pb.TokenChoice(token=token)
    return c.call("Sequences/Step", pb.StepRequest(sequence=sequence, forced=forced, **kwargs))


def generate(c, sequence, n=TOKENS):
    return [t for m in c.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, max_tokens=n, ignore_stop=True)) for t in m.tokens]


def close(c, sequence):
    c.call("Sequences/Close", pb.CloseRequest(sequence=sequence))


def told(c, name, prompt):
    """The tokens behind a prompt and the logits of the last one."""
    s = start(c, name, prompt, want_logits=True)
    q, tokens = s.sequence, []
    for _ in range(TOKENS):
        tokens.append(s.token)
        s = step(c, q, want_logits=True)
    close(c, q)
    return tokens, s.logits


def at_once(daemon, n, work):
    """What work(client, i) returns for i = 0 to n - 1, in threads that each have a client of their own."""
    answers, errors = [None] * n, []

    def run(i):
        try:
            with Client(daemon) as c:
                answers[i] = work(c, i)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors
    return answers


def same_beside_others(daemon, name, prompts):
    """Ten sequences at once have the tokens and the logits' bits that each has alone."""
    with Client(daemon) as c:
        alone = [told(c, name, prompt) for prompt in prompts]
    answers = at_once(daemon, 10, lambda c, i: told(c, name, prompts[i % len(prompts)]))
    assert all(answers[i] == alone[i % len(prompts)] for i in range(10))


def same_in_shared_blocks(c, name, long, wrong):
    """A prompt of 70 tokens that was seen before takes its blocks of 16 tokens; forks and drafts say what plain steps say.
    wrong(token): another token."""
    q = start(c, name, long)
    assert q.shared_tokens == 0
    text = generate(c, q.sequence)
    again = start(c, name, long)
    assert again.shared_tokens == 64 and again.token == q.token and generate(c, again.sequence) == text
    close(c, q.sequence)
    close(c, again.sequence)
    first = start(c, name, long).sequence
    assert generate(c, first, 5) == text[:5]
    copy = c.call("Sequences/Fork", pb.ForkRequest(sequence=first)).sequence
    step(c, copy, 11)
    generate(c, copy, 3)
    assert generate(c, first, TOKENS - 5) == text[5:]
    close(c, copy)
    close(c, first)
    q = start(c, name, long).sequence
    got = step(c, q, draft=text[1:5])
    assert got.accepted == 4 and got.token == text[5], (got, text)
    got = step(c, q, draft=[text[6], wrong(text[7])])
    assert got.accepted == 1 and got.token == text[7], (got, text)
    close(c, q)


def same_after_preemption(c, name, prompts):
    """Sequences that lose their blocks to others compute them again, with the bits that they had. The model preempts, and has no
    room for all of them."""
    expected = [told(c, name, prompt) for prompt in prompts]
    opened = [start(c, name, prompt) for prompt in prompts]
    tokens, last = [[] for _ in opened], list(opened)
    for _ in range(TOKENS):
        for k, q in enumerate(opened):
            tokens[k].append(last[k].token)
            last[k] = step(c, q.sequence, want_logits=True)
    assert listed(c, name).preemptions > 0, listed(c, name)
    assert [(t, q.logits) for t, q in zip(tokens, last, strict=True)] == expected
