#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: planes are those of the gguf package, models compute what the same weights compute as safetensors, and files that lie
are refused with the field."""
import math
import random
import re
import struct

from gguf_files import *


def plane_values(got, plane, shape):
    """Scales or minima: f16, or i8 with the factors of their blocks."""
    dtype, is_shape, raw = got[f"x.{plane}"]
    assert is_shape == shape and dtype == ("i8" if f"x.block_{plane}" in got else "f16")
    if dtype == "f16":
        return struct.unpack(f"<{len(raw) // 2}e", raw)
    dtype, is_shape, factors = got[f"x.block_{plane}"]
    assert (dtype, is_shape) == ("f16", [2, 1])
    factors = struct.unpack("<2e", factors)
    return [n * factors[i // shape[1]] for i, n in enumerate(struct.unpack(f"<{len(raw)}b", raw))]


@test("planes of each type: numbers, scales and minima give the values of the gguf package")
def planes(daemon):
    for kind, made in MADE["blocks"].items():
        data, values = bytes.fromhex(made["blocks"]), bytes.fromhex(made["values"])
        values = struct.unpack(f"<{len(values) // 4}f", values)
        near(values_of(kind, data), values)
        path = write(f"{kind}.gguf", {}, [("x", [2, 256], made["id"], data)])
        with Client(daemon) as c:
            got = {t.name: (t.dtype, list(t.shape), c.read(t.buffer)) for t in c.load(path).tensors}
        group = GROUPS.get(kind, 32)
        packed = kind.startswith("Q4")
        dtype, shape, raw = got["x.i8" if packed else "x"]
        assert (dtype, shape) == ("i8", [2, 256])
        numbers = struct.unpack("<512b", raw)
        if packed:
            assert got["x"][:2] == ("i32", [2, 32])
            assert [(b >> s & 15) - 8 for b in got["x"][2] for s in (0, 4)] == list(numbers)
        scales = plane_values(got, "scales", [2, 256 // group])
        minima = plane_values(got, "minima", [2, 256 // group]) if "x.minima" in got else [0] * len(scales)
        assert ("x.minima" in got) == (kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"))
        assert ("x.block_scales" in got, "x.block_minima" in got) == (kind.endswith("K"), kind in ("Q4_K", "Q5_K"))
        zero = (8 if packed else 16) if "x.minima" in got else 0
        near([(n + zero) * scales[i // group] + minima[i // group] for i, n in enumerate(numbers)], values)


# ---- models --------------------------------------------------------------------------------------------------------------

@test("F32 files of llama, qwen2 and qwen3 give the logits and tokens of their checkpoints, with biases and scaled positions")
def floats(daemon):
    for name in ("llama_bias", "llama3_rope_scaled", "qwen2_bias", "qwen3_gqa2_untied"):
        path = convert(GOLDEN / name, f"{name}.gguf")
        ctl(daemon, "load", GOLDEN / name, "--name", "a", "--max-batch", 2, "--chunk", 16)
        ctl(daemon, "load", path, "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
        vocab = json.loads((GOLDEN / name / "config.json").read_text())["vocab_size"]
        same_models(daemon, "a", name, vocab)
        loaded = ["a", name]
        if name == "llama3_rope_scaled":  # by the daemon's path; a long header, and the factors of frequencies are the last tensor
            path = convert(GOLDEN / name, "long.gguf", **{"general.description": "x" * (480 << 10)})
            assert path.stat().st_size > 512 << 10
            subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", path.name, "--name", "away", "--max-batch", "2", "--chunk", "16",
                            "--kv-dtype", "f32"], check=True, cwd="/")
            same_models(daemon, "a", "away", vocab)
            loaded.append("away")
        for model in loaded:
            ctl(daemon, "unload", model)


def embedding_of(daemon, model, prompt):
    with Client(daemon) as c:
        got = c.call("Sequences/Embed", pb.EmbedRequest(model=model, prompts=[pb.EmbedPrompt(tokens=prompt)]))
        return struct.unpack(f"<{got.size}f", got.embeddings)


@test("pooling_type makes a file one for embeddings: of the last row or the mean; the head is left out; other kinds are refused")
def pooling(daemon):
    source, prompt = GOLDEN / "qwen3_gqa2_untied", [5, 100, 3, 77, 12, 12, 9, 64, 30]
    ctl(daemon, "load", source, "--name", "a", "--max-batch", 2)
    last = [embedding_of(daemon, "a", prompt[:n + 1]) for n in range(len(prompt))]
    mean = [sum(column) / len(prompt) for column in zip(*last)]
    for kind, wanted, said in ((0, last[-1], "last"), (1, mean, "mean"), (3, last[-1], "last")):
        path = convert(source, f"pool{kind}.gguf", **{"qwen3.pooling_type": kind})
        ctl(daemon, "load", path, "--max-batch", 2, "--kv-dtype", "f32")
        near(embedding_of(daemon, f"pool{kind}", prompt), wanted, 1e-4)
        with Client(daemon) as c:
            info = c.call("Sequences/ListModels", pb.ListModelsRequest(name=f"pool{kind}")).models[0]
        assert info.no_generation == (kind != 0) and word(info, "pooling") == said
        ctl(daemon, "unload", f"pool{kind}")
    ctl(daemon, "load", MODELS / "pool0.gguf", "--name", "asked", "--max-batch", 2, "--kv-dtype", "f32", "--embedding")
    near(embedding_of(daemon, "asked", prompt), last[-1], 1e-4)
    for kind in (2, 4, 1 << 20):
        path = convert(source, "other.gguf", **{"qwen3.pooling_type": kind})
        assert f"qwen3.pooling_type: is {kind}" in ctl(daemon, "load", path, rc=1).stderr
    for model in ("a", "asked"):
        ctl(daemon, "unload", model)


@test("positions are divided by a linear factor, also if the file does not name the kind of scaling, as llama.cpp does")
def linear_positions(daemon):
    source = GOLDEN / "qwen3_gqa2_untied"
    config = json.loads((source / "config.json").read_text())
    parts = list(read_directory(source))
    scaled = {**config, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    directory = write_directory("linear", scaled, [(n, t["shape"], struct.unpack(f"<{len(d) // 4}f", d)) for n, t, d in parts])
    tensors = [(name_in_gguf(n), t["shape"], F32, d) for n, t, d in parts]
    ctl(daemon, "load", directory, "--name", "a", "--max-batch", 2, "--chunk", 16)
    plain = logits_of(daemon, "a", list(range(40)))
    for more in ({"qwen3.rope.scaling.type": "linear"}, {}):
        path = write("factor.gguf", {**metadata_of(config), "qwen3.rope.scaling.factor": 4.0, **more}, tensors)
        ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
        same_models(daemon, "a", "b", config["vocab_size"])
        ctl(daemon, "unload", "b")
    path = write("none.gguf", {**metadata_of(config), "qwen3.rope.scaling.factor": 0.0}, tensors)
    ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
    assert logits_of(daemon, "b", list(range(40))) != plain
    for model in ("a", "b"):
        ctl(daemon, "unload", model)


def quantised_pair(name, types, tied):
    """Writes random blocks of the types as a GGUF file, and their values as a checkpoint."""
    rng = random.Random(name)
    config = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 64, "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "tie_word_embeddings": tied}
    shapes = {"model.embed_tokens": [64, 256], "lm_head": [64, 256]}
    for module, rows in (("self_attn.q_proj", 256), ("self_attn.k_proj", 128), ("self_attn.v_proj", 128), ("self_attn.o_proj", 256),
                         ("mlp.gate_proj", 256), ("mlp.up_proj", 256), ("mlp.down_proj", 256)):
        shapes["model.layers.0." + module] = [rows, 256]
    if tied:
        del shapes["lm_head"]
    blocks, values = [], []
    for (module, shape), kind in zip(shapes.items(), types):
        data = random_blocks(rng, kind, shape[0] * shape[1])
        blocks.append((name_in_gguf(module + ".weight"), shape, IDS[kind], data))
        values.append((module + ".weight", shape, values_of(kind, data)))
    for module, n in (("model.norm", 256), ("model.layers.0.input_layernorm", 256), ("model.layers.0.post_attention_layernorm", 256),
                      ("model.layers.0.self_attn.q_norm", 64), ("model.layers.0.self_attn.k_norm", 64)):
        gamma = [struct.unpack("<f", struct.pack("<f", rng.uniform(0.5, 1.5)))[0] for _ in range(n)]
        blocks.append((name_in_gguf(module + ".weight"), [n], F32, struct.pack(f"<{n}f", *gamma)))
        values.append((module + ".weight", [n], gamma))
    return write_directory(name, config, values), write(f"{name}.gguf", metadata_of(config), blocks)


@test("quantised files of all types, also as tables and heads, give the logits of their values; on two devices too")
def quantised(daemon):
    for name, types, tied in (
            ("untied", ["Q6_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"], False),
            ("tied", ["Q4_K", "Q5_K", "Q8_0", "Q6_K", "Q4_0", "Q5_0", "Q4_1", "Q8_0"], True),
            ("small", ["Q4_0", "Q8_0", "Q8_0", "Q8_0", "Q8_0", "Q4_0", "Q4_0", "Q4_0"], True)):
        directory, path = quantised_pair(name, types, tied)
        ctl(daemon, "load", directory, "--name", "a", "--max-batch", 2, "--chunk", 64)
        ctl(daemon, "load", path, "--max-batch", 2, "--chunk", 64, "--kv-dtype", "f32")
        same_models(daemon, "a", name, 64)
        if name == "small":
            ctl(daemon, "load", path, "--name", "both", "--max-batch", 2, "--kv-dtype", "f32", "--devices", "host:0,host:1")
            same_models(daemon, "a", "both", 64)
        before = daemon.used_bytes()
        ctl(daemon, "load", path, "--name", "again", "--max-batch", 2, "--kv-bytes", 65536)
        grown = daemon.used_bytes() - before
        assert grown < path.stat().st_size, f"the second load takes {grown} bytes: its weights are not shared"
        for model in ["a", name, "again"] + ["both"] * (name == "small"):
            ctl(daemon, "unload", model)


DENSE = {  # a checkpoint whose tensors serve, and what a file of that architecture cannot say
    "gemma3_two_ropes": {"query_pre_attn_scalar": 12, "num_hidden_layers": 6, "layer_types": None},
    "olmo2_norms": {"rms_norm_eps": 1e-5}, "granite_factors": {}, "gemma2_caps": {"query_pre_attn_scalar": 12},
    "phi3_fused": {"partial_rotary_factor": 1.0, "sliding_window": 9, "rms_norm_eps": 1e-5}}


@test("F32 files of olmo2, granite, gemma2, gemma3 and phi3 give the logits and tokens of their checkpoints")
def dense(daemon):
    for name, fields in DENSE.items():
        config = {**json.loads((GOLDEN / name / "config.json").read_text()), "eos_token_id": None, **fields}
        architecture, tensors, plain = config["architectures"][0], [], []
        parts = list(read_directory(GOLDEN / name))
        if name == "gemma3_two_ropes":  # the sixth layer has no window: the three that there are, twice
            parts += [(re.sub(r"layers\.(\d)", lambda m: f"layers.{int(m[1]) + 3}", tensor), t, data) for tensor, t, data in parts
                      if ".layers." in tensor]
        for tensor, t, data in parts:
            values = struct.unpack(f"<{len(data) // 4}f", data)
            plain.append((tensor, t["shape"], values))
            data = in_file_order(config, tensor, t["shape"], data)
            if architecture.startswith("Gemma") and tensor.endswith("norm.weight"):
                data = struct.pack(f"<{len(values)}f", *(v + 1 for v in values))
            tensors.append((name_in_gguf(tensor, architecture), t["shape"], F32, data))
        ctl(daemon, "load", write_directory(name, config, plain), "--name", "a", "--max-batch", 2, "--chunk", 16)
        metadata = metadata_of(config)
        ctl(daemon, "load", write("dense.gguf", metadata, tensors), "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
        same_models(daemon, "a", "b", config["vocab_size"])
        for model in ("a", "b"):
            ctl(daemon, "unload", model)
        arch = metadata["general.architecture"]
        for key, value, says in {"granite": (("logit_scale", 0.0, "logits_scaling"), ("embedding_scale", "x", "embedding_scale"),
                                             ("attention.sliding_window", 8, "attention.sliding_window")),
                                 "gemma2": (("attention.sliding_window", 0, "attention.sliding_window"), ("attn_logit_softcapping", -1.0, "softcapping"),
                                            ("attention.scale", 0.5, "attention.scale")),
                                 "gemma3": (("attention.sliding_window", 0, "attention.sliding_window"), ("final_logit_softcapping", 3.0, "softcapping")),
                                 "phi3": (("rope.dimension_count", 6, "rope.dimension_count"), ("attention.sliding_window", 2**32 - 1, "sliding_window")),
                                 "olmo2": (("attention.sliding_window", 8, "attention.sliding_window"), ("expert_count", 4, "no experts"))}[arch]:
            out = ctl(daemon, "load", write("bad.gguf", {**metadata, f"{arch}.{key}": value}, tensors), "--name", "bad", rc=1)
            assert says in out.stderr, (arch, key, out)
        if arch == "granite":
            less = {k: v for k, v in metadata.items() if k != "granite.residual_scale"}
            assert "granite.residual_scale: is missing" in ctl(daemon, "load", write("bad.gguf", less, tensors), "--name", "bad", rc=1).stderr
        if arch == "phi3":  # 0 is no window
            for name, window in (("seen", 9), ("all", 0)):
                ctl(daemon, "load", write(f"{name}.gguf", {**metadata, "phi3.attention.sliding_window": window}, tensors), "--name", name)
                with Client(daemon) as c:
                    got = next(m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == name)
                assert list(got.windows) == [window], (window, got)
                ctl(daemon, "unload", name)


GOLDENS = {  # a checkpoint that a file of the architecture can mean, and values of keys that are refused; None: the key is missing
    "smollm3_fourth": (("attention.sliding_window", 8, "not supported"), ("rope.dimension_count", 6, "must turn"),
                       ("attention.layer_norm_rms_epsilon", None, "is missing"), ("expert_count", 4, "no experts")),
    "glm4_partial": (("rope.dimension_count", 7, "even, 2 to 16"), ("rope.dimension_count", 18, "even, 2 to 16"), ("rope.dimension_count", 0, "even"),
                     ("attention.layer_norm_rms_epsilon", None, "is missing"), ("nextn_predict_layers", 1, "not supported"),
                     ("rope.dimension_sections", [8, 12, 12], "not supported"), ("attention.value_length", 8, "as long as")),
    "cohere_parallel": (("logit_scale", None, "is missing"), ("attention.layer_norm_epsilon", None, "is missing"), ("logit_scale", 0.0, "must not be 0"),
                        ("attention.layer_norm_rms_epsilon", 1e-5, "not supported"), ("attention.sliding_window", 8, "not supported")),
    "cohere2_fourth": (("attention.sliding_window", None, "is missing"), ("attention.sliding_window", 0, "must be 1"),
                       ("logit_scale", None, "is missing"), ("attention.sliding_window_pattern", 3, "not supported"),
                       ("rope.dimension_count", 8, "must turn"), ("logit_scale", "x", "not a number")),
}
RESIZED = {36: 64, 48: 64, 24: 32, 52: 256, 104: 512}  # sizes of the golden checkpoints that blocks do not divide
KINDS = {"embed_tokens": "Q8_0", "lm_head": "Q5_0", "q_proj": "Q8_0", "k_proj": "Q4_0", "v_proj": "Q5_1", "o_proj": "Q8_0", "gate_proj": "Q4_1",
         "up_proj": "Q8_0", "gate_up_proj": "Q8_0", "down_proj": "Q4_K"}


def resized_pair(name):
    """Writes random blocks in the form of a golden checkpoint as a GGUF file, and their values as a checkpoint."""
    rng, blocks, values = random.Random(name), [], []
    config = {**json.loads((GOLDEN / name / "config.json").read_text()), "hidden_size": 64, "intermediate_size": 256, "head_dim": 16,
              "eos_token_id": None}
    for tensor, t, _ in read_directory(GOLDEN / name):
        shape, kind = [RESIZED.get(d, d) for d in t["shape"]], KINDS.get(tensor.split(".")[-2])
        n = math.prod(shape)
        if kind and len(shape) == 2:
            data, kind_id = random_blocks(rng, kind, n), IDS[kind]
            plain = values_of(kind, data)
        else:
            data, kind_id = struct.pack(f"<{n}f", *(rng.uniform(0.5, 1.5) for _ in range(n))), F32
            plain = struct.unpack(f"<{n}f", data)
        values.append((tensor, shape, plain))
        blocks.append((name_in_gguf(tensor, config["architectures"][0]), shape, kind_id, in_file_order(config, tensor, shape, data)))
    metadata = metadata_of(config)
    return config, write_directory(name, config, values), write(f"{name}.blocks.gguf", metadata, blocks), metadata, blocks


@test("files of smollm3, glm4, command-r and cohere2 give transformers' logits with F32, and those of their values with blocks")
def goldens(daemon):
    for name, wrong in GOLDENS.items():
        config, directory, blocks_path, metadata, blocks = resized_pair(name)
        whole = convert(GOLDEN / name, "whole.gguf", **{"tokenizer.ggml.eos_token_id": config["vocab_size"] - 1})
        for a, b in ((GOLDEN / name, whole), (directory, blocks_path)):
            ctl(daemon, "load", a, "--name", "a", "--max-batch", 2, "--chunk", 16)
            ctl(daemon, "load", b, "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
            same_models(daemon, "a", "b", config["vocab_size"])
            if b == whole:
                prompt, last = golden_logits(name)
                near(logits_of(daemon, "b", prompt), last, 1e-4)
            for model in ("a", "b"):
                ctl(daemon, "unload", model)
        arch = metadata["general.architecture"]
        for key, value, says in wrong:
            bad = {k: v for k, v in {**metadata, f"{arch}.{key}": value}.items() if v is not None}
            out = ctl(daemon, "load", write("bad.gguf", bad, blocks), "--name", "bad", rc=1)
            assert key in out.stderr and says in out.stderr, (key, out)


# ---- files that lie --------------------------------------------------------------------------------------------------------

def loads(daemon, content):
    """What the daemon and the client say of a file: the refusals' texts, or None."""
    path = MODELS / "bad.gguf"
    path.write_bytes(content)
    try:
        with Client(daemon) as c:
            c.load(path)
        said = None
    except grpc.RpcError as e:
        said = e.details()
    return said, subprocess.run([CTL, "--address", daemon.address, "load", path, "--max-batch", "1"], capture_output=True, text=True,
                                timeout=PATIENCE)


@test("what a file counts, types or places wrongly is refused with the field, by the daemon and by the client")
def lies(daemon):
    config = json.loads((GOLDEN / "qwen3_gqa2_untied" / "config.json").read_text())
    good = {"general.architecture": "qwen3"}
    one = [("x", [2, 2], F32, bytes(16))]
    head, data = header(good, one)
    count, at = b"GGUF" + struct.pack("<I", 3), head.index(text("x")) + len(text("x")) + 4 + 16 + 4

    def placed(offset):
        return head[:at] + struct.pack("<Q", offset) + head[at + 8:] + data

    cases = [
        (b"GGUF", "the header"), (count, "the header"), (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (count + struct.pack("<QQ", 2**63, 0), "9223372036854775808 tensors"), (count + struct.pack("<QQ", 0, 2**63), "values of metadata"),
        (count + struct.pack("<QQ", 60000, 0), "60000 tensors"),
        (count + struct.pack("<QQQ", 0, 1, 2**64 - 1) + bytes(40), "value 1 of 1"),
        (count + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<I", 13) + bytes(40), "metadata k"),
        (count + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(40), "array of arrays"),
        (count + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**61) + bytes(40), "metadata k"),
        (count + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IQ", 8, 2**33) + bytes(40), "metadata k"),
        (count + struct.pack("<QQ", 0, 2) + 2 * (text("k") + struct.pack("<II", 4, 1)), "metadata k: is there twice"),
        (count + struct.pack("<QQ", 0, 1) + text("a\x1b[2J") + struct.pack("<II", 4, 1) + bytes(40), "byte 0x1b"),
        (count + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2) + b"a\xa4" + struct.pack("<II", 4, 1) + bytes(40), "byte 0xa4"),
        (b"".join(header({"general.alignment": 24 - 1}, one)), "general.alignment"),
        (b"".join(header({"general.alignment": 0}, one)), "general.alignment"),
        (b"".join(header(good, [("x", [2, 0], F32, bytes(16))])), "tensor x"),
        (b"".join(header(good, [("x", [2**40, 2**40], F32, bytes(16))])), "tensor x"),
        (b"".join(header(good, [("x", [2**62], F32, bytes(16))])), "tensor x"),
        (b"".join(header(good, [("x", [1] * 5, F32, bytes(16))])), "5 dimensions"),
        (b"".join(header(good, [("x", [2, 2], 19, bytes(16))])), "GGML type 19"),
        (b"".join(header(good, [("x", [2, 16], 8, bytes(34))])), "blocks of 32"),
        (b"".join(header(good, 2 * one)), "tensor x: is there twice"),
        (b"".join(header(good, [("x" * 64, [2], F32, bytes(8))])), "name has 64 bytes"),
        (placed(8), "tensor x: its offset is 8"),
        (placed(2**64 - 32), "tensor x"),
        (placed(2**20), "tensor x"),
        (header(good, [("x", [2], F32, b""), ("y", [2], F32, bytes(32))])[0] + bytes(32), "overlap"),
        (b"".join(header(good, [("x", [2, 32], 8, bytes(68)), ("x.scales", [2], F32, bytes(8))])), "x.scales"),
    ]
    cases += [(head[:n], None) for n in range(4, len(head))] + [((head + data)[:-n], None) for n in range(17, 32)]
    for content, says in cases[:30] + cases[30::23]:
        said, out = loads(daemon, content)
        assert said and (says is None or says in said), (says, said)
        assert out.returncode == 1 and "bad.gguf" in out.stderr and (says in (None, "x.scales") or says in out.stderr), (says, out)
    whole = metadata_of(config)
    table = [("token_embd.weight", [8, 40], F32, bytes(4 * 320))]
    for key, value, says in (("general.architecture", "mamba", "mamba"), ("general.architecture", "a\x1b[2J", "ASCII"),
                             ("qwen3.block_count", 0, "must be 1"), ("qwen3.attention.head_count", 100000, "more than embedding_length"),
                             ("tokenizer.ggml.eos_token_id", "x", "integer"), ("tokenizer.ggml.eos_token_id", 8, "has 8 tokens"),
                             ("qwen3.context_length", "x", "integer"), ("qwen3.embedding_length", [1, 2], "array"),
                             ("qwen3.expert_count", 8, "experts"), ("qwen3.rope.scaling.type", "yarn", "yarn"),
                             ("qwen3.rope.dimension_count", 4, "turn"), ("qwen3.vocab_size", 9, "rows"),
                             ("qwen3.attention.sliding_window", 8, "not supported"), ("split.count", 3, "one of 3")):
        _, out = loads(daemon, b"".join(header({**whole, key: value}, table)))
        assert out.returncode == 1 and f"metadata {key}" in out.stderr and says in out.stderr, (key, out)
    for tensors, says in (([], "token_embd.weight"), (table, "has no tensor blk.0."),):
        _, out = loads(daemon, b"".join(header(whole, tensors)))
        assert out.returncode == 1 and says in out.stderr, (says, out)
    path = convert(GOLDEN / "qwen3_gqa2_untied", "more.gguf")
    whole = metadata_of(config)
    tensors = [(name_in_gguf(n), t["shape"], F32, d) for n, t, d in read_directory(GOLDEN / "qwen3_gqa2_untied")]
    _, out = loads(daemon, b"".join(header(whole, tensors + [("blk.0.attn_sinks.weight", [2], F32, bytes(8))])))
    assert out.returncode == 1 and "blk.0.attn_sinks.weight: is not a part" in out.stderr, out
    path.unlink()


if __name__ == "__main__":
    main(*FOLDERS, "--device=host:0", "--device=host:1")
