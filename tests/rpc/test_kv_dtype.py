#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with a KV cache in int8 or fp8: what it takes, and that sequences say beside others what they say alone."""
import threading

from harness import *

GOLDEN = SOURCE / "tests" / "golden"
MODEL = "qwen3_gqa2_untied"
CONFIG = json.loads((GOLDEN / MODEL / "config.json").read_text())
PROMPTS = [[(5 + 7 * i + 3 * k * k) % 110 for k in range(3 + 9 * i)] for i in range(5)]
TOKENS = 16
# Bytes of a token in each layer: keys and values of a byte, and a scale of four for either of each head.
TOKEN_BYTES = CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * 2 * (CONFIG["head_dim"] + 4)

if CTL is None:
    skip_all("npugraphctl is missing")


def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, check=False)


def model(c, name):
    return next((m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == name), None)


def load(daemon, name, *options, of=MODEL, dtype="int8"):
    with Client(daemon, session=False) as c:
        if model(c, name):
            return
    got = ctl(daemon, "load", str(GOLDEN / of), "--name", name, "--max-context", "128", "--kv-dtype", dtype, *options)
    assert got.returncode == 0, got


def start(c, prompt, name="int8", **kwargs):
    return c.call("Sequences/Open", pb.OpenRequest(model=name, prompt=prompt, **kwargs))


def step(c, sequence, **kwargs):
    return c.call("Sequences/Step", pb.StepRequest(sequence=sequence, **kwargs))


def generate(c, sequence, n):
    return [t for m in c.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, max_tokens=n, ignore_stop=True)) for t in m.tokens]


def close(c, sequence):
    c.call("Sequences/Close", pb.CloseRequest(sequence=sequence))


def told(c, prompt, name="int8"):
    """The tokens behind a prompt and the logits of the last one."""
    s = start(c, prompt, name, want_logits=True)
    q, tokens = s.sequence, []
    for _ in range(TOKENS):
        tokens.append(s.token)
        s = step(c, q, want_logits=True)
    close(c, q)
    return tokens, s.logits


@test("a token takes a byte for each number and four for each scale, which is what is charged and told")
def sizes(daemon):
    for dtype in "int8", "fp8":
        load(daemon, dtype, dtype=dtype)
        with Client(daemon) as c:
            m = model(c, dtype)
        assert m.kv_bytes == m.num_blocks * m.block_size * TOKEN_BYTES, (TOKEN_BYTES, m)
        shown = next(x for x in json.loads(ctl(daemon, "--json", "models").stdout)["models"] if x["name"] == dtype)
        assert shown["kv_bytes"] == m.kv_bytes and shown["kv_per_token"] == TOKEN_BYTES, shown
        assert f"KV {dtype}" in m.description, m.description
    load(daemon, "auto", dtype="auto")
    with Client(daemon) as c:
        auto, int8 = model(c, "auto"), model(c, "int8")
        assert auto.kv_bytes * 2 > int8.kv_bytes * 3 and auto.num_blocks == int8.num_blocks, (auto, int8)
        assert "KV" not in auto.description, auto
    # What the same bytes hold.
    load(daemon, "small", "--kv-bytes", str(TOKEN_BYTES * 16 * 9))
    with Client(daemon) as c:
        assert model(c, "small").num_blocks == 9, model(c, "small")


@test("ten sequences at once have the tokens and the logits' bits that each has alone")
def together(daemon):
    for dtype in "int8", "fp8":
        load(daemon, dtype, dtype=dtype)
        with Client(daemon) as c:
            alone = [told(c, prompt, dtype) for prompt in PROMPTS]
        answers, errors = {}, []

        def work(i):
            try:
                with Client(daemon) as mine:
                    answers[i] = told(mine, PROMPTS[i % len(PROMPTS)], dtype)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors, errors
        assert len(answers) == 10 and all(answers[i] == alone[i % len(PROMPTS)] for i in answers)


@test("prompts in chunks of 7 rows say the same")
def sliced(daemon):
    load(daemon, "int8")
    load(daemon, "slices", "--chunk", "7", "--no-prefix-sharing")
    with Client(daemon) as c:
        for prompt in PROMPTS:
            assert told(c, prompt)[0] == told(c, prompt, "slices")[0]


@test("a prompt that begins like another one takes its blocks; forks and drafts say what plain steps say")
def shared(daemon):
    load(daemon, "int8")
    with Client(daemon) as c:
        long = [3 + i * i % 107 for i in range(70)]
        q = start(c, long)
        assert q.shared_tokens == 0
        text = generate(c, q.sequence, TOKENS)
        again = start(c, long)
        assert again.shared_tokens == 64 and again.token == q.token and generate(c, again.sequence, TOKENS) == text
        close(c, q.sequence)
        close(c, again.sequence)
        first = start(c, long).sequence
        assert generate(c, first, 5) == text[:5]
        copy = c.call("Sequences/Fork", pb.ForkRequest(sequence=first)).sequence
        step(c, copy, forced=pb.TokenChoice(token=11))
        generate(c, copy, 3)
        assert generate(c, first, TOKENS - 5) == text[5:]
        close(c, copy)
        close(c, first)
        q = start(c, long).sequence
        got = step(c, q, draft=text[1:5])
        assert got.accepted == 4 and got.token == text[5], (got, text)
        got = step(c, q, draft=[text[6], (text[7] + 1) % 110])
        assert got.accepted == 1 and got.token == text[7], (got, text)
        close(c, q)


@test("sequences that lose their blocks to others compute them again")
def preempted(daemon):
    load(daemon, "few", "--kv-policy", "preempt", "--kv-bytes", str(TOKEN_BYTES * 16 * 9), "--no-prefix-sharing")
    with Client(daemon) as c:
        expected = [told(c, prompt, "few")[0] for prompt in PROMPTS]
        opened = [start(c, prompt, "few") for prompt in PROMPTS]
        tokens, last = [[] for _ in opened], list(opened)
        for _ in range(TOKENS):
            for k, q in enumerate(opened):
                tokens[k].append(last[k].token)
                last[k] = step(c, q.sequence)
        assert model(c, "few").preemptions > 0, model(c, "few")
        assert tokens == expected


@test("layers with windows give blocks with scales back, alone and beside layers without")
def windows(daemon):
    for of, blocks in (("mistral_window", 4), ("gemma3_two_ropes", 15)):
        whole, tight = f"{of}.whole", f"{of}.tight"
        load(daemon, whole, "--block-size", "128", "--chunk", "16", of=of)
        with Client(daemon) as c:
            m = model(c, whole)
        token = m.kv_bytes // m.num_blocks // m.block_size  # in the states of one group
        load(daemon, tight, "--kv-bytes", str(token * 16 * blocks), "--chunk", "16", of=of)
        with Client(daemon) as c:
            assert model(c, tight).num_blocks == blocks < len(m.windows) * 8, (model(c, tight), m)
            for prompt in PROMPTS[:3]:
                said = []
                for name in whole, tight:
                    q = start(c, prompt, name).sequence
                    said.append(generate(c, q, 90))
                    close(c, q)
                assert said[0] == said[1] and len(said[0]) == 90, (of, said)


@test("a cache that cannot have scales, and a dtype that is none, are refused in a sentence")
def refused(daemon):
    got = ctl(daemon, "load", str(GOLDEN / "deepseek_lite"), "--kv-dtype", "int8")
    assert got.returncode == 1 and "kv_dtype is int8" in got.stderr and "floats only" in got.stderr and "OP_UNSUPPORTED" in got.stderr, got
    got = ctl(daemon, "load", str(GOLDEN / MODEL), "--kv-dtype", "int4")
    assert got.returncode == 1 and "must be auto, f32, f16, bf16, int8 or fp8" in got.stderr, got
    with Client(daemon) as c:
        assert not model(c, "deepseek_lite") and not model(c, MODEL)


@test("every family that has keys and values of heads says something with a cache in int8")
def families(daemon):
    for of in "llama_gqa3_untied", "phi3_fused", "cohere_parallel", "gpt_oss_mxfp4", "qwen3_moe_bf16":
        load(daemon, of, of=of)
        load(daemon, of + ".floats", of=of, dtype="auto")
        with Client(daemon) as c:
            a, b = (told(c, PROMPTS[2], name) for name in (of, of + ".floats"))
        assert a[0][0] == b[0][0] and a[1] != b[1], (of, a[0], b[0])
        for name in of, of + ".floats":
            assert ctl(daemon, "unload", name).returncode == 0


@test("two devices that divide the heads have a cache each, and say what one says")
def divided():
    daemon = Daemon(f"--models-dir={SOURCE}", "--device=host:0", "--device=host:1", "--threads=1")
    load(daemon, "one")
    load(daemon, "two", "--devices", "host:0,host:1")
    with Client(daemon) as c:
        for prompt in PROMPTS:
            assert told(c, prompt, "one")[0] == told(c, prompt, "two")[0]
    daemon.stop()


main(f"--models-dir={SOURCE}")
