#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with a KV cache in int8 or fp8: what it takes, and that sequences say beside others what they say alone."""
from harness import *
from sequences import *

GOLDEN = SOURCE / "tests" / "golden"
MODEL = "qwen3_gqa2_untied"
CONFIG = json.loads((GOLDEN / MODEL / "config.json").read_text())
PROMPTS = [[(5 + 7 * i + 3 * k * k) % 110 for k in range(3 + 9 * i)] for i in range(5)]
# Bytes of a token in each layer: keys and values of a byte, and a scale of four for either of each head.
TOKEN_BYTES = CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * 2 * (CONFIG["head_dim"] + 4)

if CTL is None:
    skip_all("npugraphctl is missing")


def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, check=False)


def load(daemon, name, *options, of=MODEL, dtype="int8"):
    with Client(daemon, session=False) as c:
        if listed(c, name):
            return
    got = ctl(daemon, "load", str(GOLDEN / of), "--name", name, "--max-context", "128", "--kv-dtype", dtype, *options)
    assert got.returncode == 0, got


@test("a token takes a byte for each number and four for each scale, which is what is charged and told")
def sizes(daemon):
    for dtype in "int8", "fp8":
        load(daemon, dtype, dtype=dtype)
        with Client(daemon) as c:
            m = listed(c, dtype)
        assert m.kv_bytes == m.num_blocks * m.block_size * TOKEN_BYTES, (TOKEN_BYTES, m)
        shown = next(x for x in json.loads(ctl(daemon, "--json", "models").stdout)["models"] if x["name"] == dtype)
        assert shown["kv_bytes"] == m.kv_bytes and shown["kv_per_token"] == TOKEN_BYTES, shown
        assert f"KV {dtype}" in m.description, m.description
    load(daemon, "auto", dtype="auto")
    with Client(daemon) as c:
        auto, int8 = listed(c, "auto"), listed(c, "int8")
        assert auto.kv_bytes * 2 > int8.kv_bytes * 3 and auto.num_blocks == int8.num_blocks, (auto, int8)
        assert "KV" not in auto.description, auto
    # What the same bytes hold.
    load(daemon, "small", "--kv-bytes", str(TOKEN_BYTES * 16 * 9))
    with Client(daemon) as c:
        assert listed(c, "small").num_blocks == 9, listed(c, "small")


@test("ten sequences at once have the tokens and the logits' bits that each has alone")
def together(daemon):
    for dtype in "int8", "fp8":
        load(daemon, dtype, dtype=dtype)
        same_beside_others(daemon, dtype, PROMPTS)


@test("prompts in chunks of 7 rows say the same")
def sliced(daemon):
    load(daemon, "int8")
    load(daemon, "slices", "--chunk", "7", "--no-prefix-sharing")
    with Client(daemon) as c:
        for prompt in PROMPTS:
            assert told(c, "int8", prompt)[0] == told(c, "slices", prompt)[0]


@test("a prompt that begins like another one takes its blocks; forks and drafts say what plain steps say")
def shared(daemon):
    load(daemon, "int8")
    with Client(daemon) as c:
        same_in_shared_blocks(c, "int8", [3 + i * i % 107 for i in range(70)], lambda token: (token + 1) % 110)


@test("sequences that lose their blocks to others compute them again")
def preempted(daemon):
    load(daemon, "few", "--kv-policy", "preempt", "--kv-bytes", str(TOKEN_BYTES * 16 * 9), "--no-prefix-sharing")
    with Client(daemon) as c:
        same_after_preemption(c, "few", PROMPTS)


@test("layers with windows give blocks with scales back, alone and beside layers without")
def windows(daemon):
    for of, blocks in (("mistral_window", 4), ("gemma3_two_ropes", 15)):
        whole, tight = f"{of}.whole", f"{of}.tight"
        load(daemon, whole, "--block-size", "128", "--chunk", "16", of=of)
        with Client(daemon) as c:
            m = listed(c, whole)
        token = m.kv_bytes // m.num_blocks // m.block_size  # in the states of one group
        load(daemon, tight, "--kv-bytes", str(token * 16 * blocks), "--chunk", "16", of=of)
        with Client(daemon) as c:
            assert listed(c, tight).num_blocks == blocks < len(m.windows) * 8, (listed(c, tight), m)
            for prompt in PROMPTS[:3]:
                said = []
                for name in whole, tight:
                    q = start(c, name, prompt).sequence
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
        assert not listed(c, "deepseek_lite") and not listed(c, MODEL)


@test("every family that has keys and values of heads says something with a cache in int8")
def families(daemon):
    for of in "llama_gqa3_untied", "phi3_fused", "cohere_parallel", "gpt_oss_mxfp4", "qwen3_moe_bf16":
        load(daemon, of, of=of)
        load(daemon, of + ".floats", of=of, dtype="auto")
        with Client(daemon) as c:
            a, b = (told(c, name, PROMPTS[2]) for name in (of, of + ".floats"))
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
            assert told(c, "one", prompt)[0] == told(c, "two", prompt)[0]
    daemon.stop()


main(f"--models-dir={SOURCE}")
