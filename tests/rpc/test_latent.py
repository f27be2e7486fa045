#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model with a latent KV cache (MLA): what its cache takes, and that sequences say beside others what they say alone. The same
of a model with quantised weights, of which one becomes floats."""
import struct

from harness import *
from sequences import *

MODEL = SOURCE / "tests" / "golden" / "deepseek_lite"
CONFIG = json.loads((MODEL / "config.json").read_text())
PROMPTS = [[(5 + 7 * i + 3 * k * k) % 118 for k in range(3 + 9 * i)] for i in range(5)]
QUANTISED = SOURCE / "tests" / "golden" / "deepseek_fp8"
# Bytes of a token: a latent and the turned part of a key for each layer, in f32, for all heads together.
TOKEN_BYTES = CONFIG["num_hidden_layers"] * (CONFIG["kv_lora_rank"] + CONFIG["qk_rope_head_dim"]) * 4

if CTL is None:
    skip_all("npugraphctl is missing")


def load(daemon, name, *options, path=MODEL):
    with Client(daemon, session=False) as c:
        if listed(c, name):
            return
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(path), "--name", name, "--max-context", "128", *options],
                   check=True, capture_output=True)


@test("the cache has a latent and a turned part for each token and layer, not keys and values of each head")
def sizes(daemon):
    load(daemon, "latent")
    with Client(daemon) as c:
        m = listed(c, "latent")
    assert m.kv_bytes == m.num_blocks * m.block_size * TOKEN_BYTES, (TOKEN_BYTES, m)
    by_heads = CONFIG["num_attention_heads"] * (CONFIG["qk_nope_head_dim"] + CONFIG["qk_rope_head_dim"] + CONFIG["v_head_dim"])
    assert TOKEN_BYTES * 4 < by_heads * CONFIG["num_hidden_layers"] * 4, (TOKEN_BYTES, by_heads)
    out = subprocess.run([CTL, "--json", "--address", daemon.address, "models"], capture_output=True, text=True, check=True)
    shown = next(x for x in json.loads(out.stdout)["models"] if x["name"] == "latent")
    assert int(shown["kv_bytes"]) == m.kv_bytes, shown


@test("ten sequences at once have the tokens and the logits' bits that each has alone")
def of_floats(daemon):
    load(daemon, "latent")
    same_beside_others(daemon, "latent", PROMPTS)


@test("the same with weights in FP8")
def quantised(daemon):
    load(daemon, "fp8", path=QUANTISED)
    same_beside_others(daemon, "fp8", PROMPTS)


def in_bf16(path):
    """A copy of a checkpoint whose floats, but not the scales, are cut to bf16."""
    to = SCRATCH / "bf16"
    to.mkdir()
    content = (path / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", content[:8])[0]
    header, parts, at = json.loads(content[8 : 8 + n]), [], 0
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        part = content[8 + n + begin : 8 + n + end]
        if t["dtype"] == "F32" and not name.endswith("scale_inv"):
            t["dtype"], part = "BF16", b"".join(part[i + 2 : i + 4] for i in range(0, len(part), 4))
        t["data_offsets"] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    head = json.dumps(header).encode()
    (to / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))
    (to / "config.json").write_text((path / "config.json").read_text())
    return to


@test("the quantised weight of a latent is held as floats of the checkpoint's type, and not beside them")
def made(daemon):
    config = json.loads((QUANTISED / "config.json").read_text())
    numbers = config["num_attention_heads"] * (config["qk_nope_head_dim"] + config["v_head_dim"]) * config["kv_lora_rank"]
    load(daemon, "fp8", path=QUANTISED)
    load(daemon, "narrow", path=in_bf16(QUANTISED))
    with Client(daemon) as c:
        held = c.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers
        for name, size in (("fp8", 4), ("narrow", 2)):
            mine = [b.bytes for b in held if b.label.startswith(name + " ") and "kv_b_proj" in b.label]
            assert mine == [numbers * size] * config["num_hidden_layers"], (name, mine, [b.label for b in held])
        wide, narrow = (struct.unpack(f"<{config['vocab_size']}f", told(c, name, PROMPTS[2])[1]) for name in ("fp8", "narrow"))
    most = max(abs(v) for v in wide)
    assert 0 < max(abs(a - b) for a, b in zip(wide, narrow)) < 0.05 * most, (most, wide[:4], narrow[:4])


@test("prompts in chunks of 7 rows say the same")
def sliced(daemon):
    load(daemon, "latent")
    load(daemon, "slices", "--chunk", "7", "--no-prefix-sharing")
    with Client(daemon) as c:
        for prompt in PROMPTS:
            assert told(c, "latent", prompt)[0] == told(c, "slices", prompt)[0]


@test("a prompt that begins like another one takes its latents; forks and drafts say what plain steps say")
def shared(daemon):
    load(daemon, "latent")
    with Client(daemon) as c:
        same_in_shared_blocks(c, "latent", [3 + i * i % 110 for i in range(70)], lambda token: (token + 1) % 118)


@test("sequences that lose their latents to others compute them again")
def preempted(daemon):
    load(daemon, "few", "--kv-policy", "preempt", "--kv-bytes", str(TOKEN_BYTES * 16 * 9), "--no-prefix-sharing")
    with Client(daemon) as c:
        same_after_preemption(c, "few", PROMPTS)


main(f"--models-dir={SOURCE}", f"--models-dir={SCRATCH}")
