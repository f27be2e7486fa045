#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: planes are those of the gguf package, models compute what the same weights compute as safetensors, tokenizers and
templates come from the file, and files that lie are refused with the field. The writer of GGUF files here is the test's own."""
import math
import random
import re
import struct

from harness import *

GOLDEN = SOURCE / "tests" / "golden"
MODEL = SOURCE / "examples" / "model"
MODELS = SCRATCH / "models"
MODELS.mkdir()
MADE = json.loads((GOLDEN / "gguf.json").read_text())
F32, F16, BF16, MXFP4 = 0, 1, 30, 39
SIZES = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176),
         "Q6_K": (256, 210), "MXFP4": (32, 17)}
IDS = {**{kind: made["id"] for kind, made in MADE["blocks"].items()}, "F32": F32, "MXFP4": MXFP4}
FP4 = [sign * n for sign in (1, -1) for n in (0, 1, 2, 3, 4, 6, 8, 12)]  # twice the values of the codes
GROUPS = {"Q6_K": 16}

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


# ---- files -------------------------------------------------------------------------------------------------------------

def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def typed(v):
    """The type and the bytes of a value: U32, F32, BOOL, STRING, or an array of one of them."""
    if isinstance(v, bool):
        return 7, bytes([v])
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, str):
        return 8, text(v)
    items = [typed(x) for x in v]
    return 9, struct.pack("<IQ", items[0][0], len(v)) + b"".join(data for _, data in items)


def header(metadata, tensors, version=3):
    """tensors: (name, shape, id of the type, bytes). Returns the header, padded, and the data."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, v in metadata.items():
        kind, data = typed(v)
        head += text(key) + struct.pack("<I", kind) + data
    data = b""
    for name, shape, kind, content in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32), data


def write(name, metadata, tensors):
    path = MODELS / name
    path.write_bytes(b"".join(header(metadata, tensors)))
    return path


def write_directory(name, config, tensors):
    """A checkpoint of f32 tensors: (name, shape, values)."""
    path, at, head = MODELS / name, 0, {}
    path.mkdir()
    for tensor, shape, values in tensors:
        head[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    head = json.dumps(head).encode()
    with open(path / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, _, values in tensors:
            f.write(struct.pack(f"<{len(values)}f", *values))
    (path / "config.json").write_text(json.dumps(config))
    return path


def read_directory(path, file="model.safetensors"):
    data = (path / file).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            yield name, t, data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]


NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         "mlp.router": "ffn_gate_inp",
         **{f"mlp.experts.{x}_proj": f"ffn_{x}_exps" for x in ("gate", "up", "down")},
         **{f"mlp.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}}


# Of architectures with norms behind attention and MLP.
BEHIND = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def name_in_gguf(name, architecture=None):
    for whole, to in (("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")):
        if name.startswith(whole + "."):
            return to + name.removeprefix(whole)
    if name.endswith(".sinks"):
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    _, _, layer, rest = name.split(".", 3)
    module, suffix = rest.rsplit(".", 1)
    behind = architecture in ("Olmo2ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "GptOssForCausalLM")
    return f"blk.{layer}.{(behind and BEHIND.get(module)) or NAMES[module]}.{suffix}"


def metadata_of(config):
    arch = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "MixtralForCausalLM": "llama",
            "Qwen2MoeForCausalLM": "qwen2moe", "Qwen3MoeForCausalLM": "qwen3moe", "OlmoeForCausalLM": "olmoe",
            "Olmo2ForCausalLM": "olmo2", "GraniteForCausalLM": "granite", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3", "Phi3ForCausalLM": "phi3",
            "SmolLM3ForCausalLM": "smollm3", "Glm4ForCausalLM": "glm4", "CohereForCausalLM": "command-r",
            "Cohere2ForCausalLM": "cohere2", "GptOssForCausalLM": "gpt-oss"}[config["architectures"][0]]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    values = {"context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
              "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"], "attention.head_count": heads,
              "attention.head_count_kv": config.get("num_key_value_heads", heads), "attention.key_length": dim, "attention.value_length": dim,
              "rope.dimension_count": dim, "rope.freq_base": float(config.get("rope_theta", 10000))}
    if arch in ("command-r", "cohere2"):
        values |= {"attention.layer_norm_epsilon": config.get("layer_norm_eps", 1e-5), "rope.scaling.type": "none"}
    else:
        values["attention.layer_norm_rms_epsilon"] = float(config.get("rms_norm_eps", 1e-5 if arch == "gpt-oss" else 1e-6))
    if arch == "glm4":
        values["rope.dimension_count"] = int(dim * config.get("partial_rotary_factor", 0.5))
    if arch == "gpt-oss":
        scaling = config["rope_scaling"]
        values |= {"expert_feed_forward_length": config["intermediate_size"], "rope.scaling.type": "yarn", "rope.scaling.factor": scaling["factor"],
                   "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
                   "rope.scaling.yarn_beta_fast": scaling["beta_fast"], "rope.scaling.yarn_beta_slow": scaling["beta_slow"]}
    for field, key in (("num_experts", "expert_count"), ("num_local_experts", "expert_count"), ("num_experts_per_tok", "expert_used_count"),
                       ("moe_intermediate_size", "expert_feed_forward_length"),
                       ("shared_expert_intermediate_size", "expert_shared_feed_forward_length")):
        if field in config:
            values[key] = config[field]
    for field, key in {"granite": (("attention_multiplier", "attention.scale"), ("embedding_multiplier", "embedding_scale"),
                                   ("residual_multiplier", "residual_scale"), ("logits_scaling", "logit_scale")),
                       "gemma2": (("attn_logit_softcapping", "attn_logit_softcapping"), ("final_logit_softcapping", "final_logit_softcapping"),
                                  ("sliding_window", "attention.sliding_window")),
                       "gemma3": (("sliding_window", "attention.sliding_window"),),
                       "phi3": (("sliding_window", "attention.sliding_window"),), "command-r": (("logit_scale", "logit_scale"),),
                       "gpt-oss": (("sliding_window", "attention.sliding_window"),),
                       "cohere2": (("logit_scale", "logit_scale"), ("sliding_window", "attention.sliding_window"))}.get(arch, ()):
        values[key] = config[field]
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in values.items()}}


PAIRED = ("LlamaForCausalLM", "MixtralForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM")


def in_file_order(config, tensor, shape, data):
    """Orders the rows of q and k as llama.cpp's converter does for some architectures."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config.get("num_key_value_heads")}.get(tensor.split(".")[-2])
    return pairs_beside(data, heads, len(data) // shape[0]) if config["architectures"][0] in PAIRED and heads else data


def pairs_beside(data, heads, row):
    """Orders rows so that a pair that turns together is side by side."""
    rows = [data[i:i + row] for i in range(0, len(data), row)]
    dim = len(rows) // heads
    return b"".join(rows[h * dim + p + k * dim // 2] for h in range(heads) for p in range(dim // 2) for k in (0, 1))


def llama3_factors(config):
    """By what each frequency is divided, by the definition of Llama 3's scaling."""
    r, dim = config["rope_scaling"], config["head_dim"]
    low, high = r["low_freq_factor"], r["high_freq_factor"]
    factors = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * config["rope_theta"] ** (i / dim)
        turns = r["original_max_position_embeddings"] / wave
        smooth = min(max((turns - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return factors


def convert(source, name, **more):
    """Writes the checkpoint's tensors as they are, all as F32."""
    config = json.loads((source / "config.json").read_text())
    tensors = []
    for tensor, t, data in read_directory(source):
        assert t["dtype"] == "F32"
        data = in_file_order(config, tensor, t["shape"], data)
        tensors.append((name_in_gguf(tensor, config["architectures"][0]), t["shape"], F32, data))
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        factors = llama3_factors(config)
        tensors.append(("rope_freqs.weight", [len(factors)], F32, struct.pack(f"<{len(factors)}f", *factors)))
    return write(name, {**metadata_of(config), **more}, tensors)


# ---- blocks, by their definition in ggml --------------------------------------------------------------------------------

def half(b, at):
    return struct.unpack_from("<e", b, at)[0]


def parts_of_block(kind, b):
    """Returns the numbers, less their middle, and (scale, minimum) of each group of a block."""
    if kind == "Q8_0":
        return struct.unpack_from("<32b", b, 2), [(half(b, 0), 0)]
    if kind == "MXFP4":
        return [FP4[b[1 + i % 16] >> i // 16 * 4 & 15] for i in range(32)], [(2.0 ** (b[0] - 128), 0)]
    if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        at = 4 if kind.endswith("1") else 2
        bits = int.from_bytes(b[at:at + 4], "little") if kind[1] == "5" else 0
        low = b[at + 4 * (kind[1] == "5"):]
        middle = 16 if kind[1] == "5" else 8
        q = [(low[i % 16] >> i // 16 * 4 & 15 | (bits >> i & 1) << 4) - middle for i in range(32)]
        d = half(b, 0)
        return q, [(d, half(b, 2) + middle * d if kind.endswith("1") else 0)]
    if kind == "Q6_K":
        q = [(b[i // 128 * 64 + i % 64] >> i % 128 // 64 * 4 & 15 | (b[128 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3) << 4) - 32
             for i in range(256)]
        return q, [(half(b, 208) * s, 0) for s in struct.unpack_from("<16b", b, 192)]
    d, least, s, five = half(b, 0), half(b, 2), b[4:16], kind == "Q5_K"
    low = b[48 if five else 16:]
    q = [(low[i // 64 * 32 + i % 32] >> i % 64 // 32 * 4 & 15 | (b[16 + i % 32] >> i // 32 & 1) << 4 if five
          else low[i // 64 * 32 + i % 32] >> i % 64 // 32 * 4 & 15) - (16 if five else 8) for i in range(256)]
    scales = [s[i] & 63 if i < 4 else s[i + 4] & 15 | s[i - 4] >> 6 << 4 for i in range(8)]
    minima = [s[i + 4] & 63 if i < 4 else s[i + 4] >> 4 | s[i] >> 6 << 4 for i in range(8)]
    return q, [(d * x, (16 if five else 8) * d * x - least * m) for x, m in zip(scales, minima)]


def values_of(kind, data):
    elements, size = SIZES[kind]
    values = []
    for at in range(0, len(data), size):
        q, groups = parts_of_block(kind, data[at:at + size])
        each = elements // len(groups)
        for g, (scale, minimum) in enumerate(groups):
            values += [n * scale + minimum for n in q[g * each:g * each + each]]
    return values


def random_blocks(rng, kind, n):
    elements, size = SIZES[kind]
    data = bytearray(rng.randbytes(n // elements * size))
    for at in range(0, len(data), size):
        if kind == "MXFP4":
            data[at] = rng.randrange(122, 126)
            continue
        for factor in {"Q6_K": [208]}.get(kind, [0, 2] if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [0]):
            struct.pack_into("<e", data, at + factor, rng.gauss(0, 0.2) / {"Q8_0": 64, "Q6_K": 900, "Q4_K": 128, "Q5_K": 256}.get(kind, 8))
    return bytes(data)


def near(got, wanted, most=1e-6):
    top = max(map(abs, wanted))
    worst = max(abs(a - b) for a, b in zip(got, wanted))
    assert len(got) == len(wanted) and worst <= most * top, (worst, top)


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
        dtype, shape, raw = got["x.scales"]
        assert shape == [2, 256 // group] and dtype == ("f32" if kind.endswith("K") else "f16")
        scales = struct.unpack(f"<{512 // group}{'f' if dtype == 'f32' else 'e'}", raw)
        minima = struct.unpack(f"<{512 // group}f", got["x.minima"][2]) if "x.minima" in got else [0] * len(scales)
        assert ("x.minima" in got) == (kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"))
        near([n * scales[i // group] + minima[i // group] for i, n in enumerate(numbers)], values)


# ---- models --------------------------------------------------------------------------------------------------------------

def ctl(daemon, *arguments, rc=0):
    out = subprocess.run([CTL, "--address", daemon.address, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == rc, out
    return out


def logits_of(daemon, model, prompt):
    with Client(daemon) as c:
        opened = c.call("Sequences/Open", pb.OpenRequest(model=model, prompt=prompt, want_logits=True))
        return struct.unpack(f"<{len(opened.logits) // 4}f", opened.logits)


def same_models(daemon, a, b, vocab):
    rng = random.Random(a)
    for n in (1, 2, 17, 40):
        prompt = [rng.randrange(vocab) for _ in range(n)]
        wanted = logits_of(daemon, a, prompt)
        near(logits_of(daemon, b, prompt), wanted, 1e-4)
        assert max(wanted) > min(wanted)
    tokens = [json.loads(ctl(daemon, "--json", "generate", m, "--ids", ",".join(map(str, prompt)), "--tokens", 24).stdout)["tokens"]
              for m in (a, b)]
    assert tokens[0] == tokens[1], tokens


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


def golden_logits(name):
    """The prompt of a golden checkpoint, and transformers' logits of its last token."""
    got = {tensor: (t["shape"], data) for tensor, t, data in read_directory(GOLDEN / name, "expect.safetensors")}
    (n,), prompt = got["prompt"]
    (vocab,), last = got["last_logits"]
    return struct.unpack(f"<{n}i", prompt), struct.unpack(f"<{vocab}f", last)


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


# ---- mixtures of experts -------------------------------------------------------------------------------------------------

MIXTURES = {  # architecture: fields of its own, and how its experts are named
    "MixtralForCausalLM": ({"num_local_experts": 5}, "block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1 w2 w3"),
    "OlmoeForCausalLM": ({"num_experts": 4, "norm_topk_prob": False}, "mlp.gate", "mlp.experts.{}.gate_proj down_proj up_proj"),
    "Qwen3MoeForCausalLM": ({"num_experts": 4, "moe_intermediate_size": 32, "norm_topk_prob": True}, "mlp.gate",
                            "mlp.experts.{}.gate_proj down_proj up_proj"),
    "Qwen2MoeForCausalLM": ({"num_experts": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": False},
                            "mlp.gate", "mlp.experts.{}.gate_proj down_proj up_proj"),
}


def mixture_pair(architecture, types, hidden=64):
    """Writes a mixture of experts as a checkpoint of the values and as a GGUF file, whose experts have the types in turn."""
    fields, gate, experts = MIXTURES[architecture]
    rng, name = random.Random(architecture), architecture.removesuffix("ForCausalLM")
    config = {"architectures": [architecture], "vocab_size": 40, "hidden_size": hidden, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": hidden // 4, "intermediate_size": hidden, "max_position_embeddings": 64,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "num_experts_per_tok": 2, **fields}
    if hidden > 64 and "moe_intermediate_size" in config:
        config["moe_intermediate_size"] = hidden
    dim, n = hidden // 4, config.get("num_experts", config.get("num_local_experts"))
    features, layer = config.get("moe_intermediate_size", hidden), "model.layers.0."
    plain = {"model.embed_tokens": [40, hidden], "lm_head": [40, hidden], "model.norm": [hidden], layer + "input_layernorm": [hidden],
             layer + "post_attention_layernorm": [hidden], layer + "self_attn.q_proj": [hidden, hidden], layer + gate: [n, hidden],
             layer + "self_attn.k_proj": [hidden // 2, hidden], layer + "self_attn.v_proj": [hidden // 2, hidden],
             layer + "self_attn.o_proj": [hidden, hidden]}
    if name in ("Olmoe", "Qwen3Moe"):
        plain |= {layer + "self_attn.q_norm": [hidden if name == "Olmoe" else dim], layer + "self_attn.k_norm": [hidden // 2 if name == "Olmoe" else dim]}
    if name == "Qwen2Moe":
        shared = config["shared_expert_intermediate_size"]
        plain |= {layer + "mlp.shared_expert_gate": [1, hidden], layer + "mlp.shared_expert.gate_proj": [shared, hidden],
                  layer + "mlp.shared_expert.up_proj": [shared, hidden], layer + "mlp.shared_expert.down_proj": [hidden, shared]}
    blocks, values = [], []
    weights = [(module + ".weight", shape) for module, shape in plain.items()]
    if name == "Qwen2Moe":
        weights += [(f"{layer}self_attn.{x}_proj.bias", [hidden if x == "q" else hidden // 2]) for x in "qkv"]
    for tensor, shape in weights:
        middle = 1 if "norm" in tensor else 0
        data = struct.pack(f"<{math.prod(shape)}f", *(rng.gauss(middle, 0.3 if middle else 1.5 / shape[-1]**0.5) for _ in range(math.prod(shape))))
        values.append((tensor, shape, struct.unpack(f"<{len(data) // 4}f", data)))
        data = in_file_order(config, tensor, shape, data)
        blocks.append((name_in_gguf(tensor), [hidden] if "shared_expert_gate" in tensor else shape, F32, data))
    each, parts = experts.split(".{}.")[0], experts.split(".{}.")[1].split()
    for part, to, shape, kind in zip(parts, ("gate", "down", "up"), ([features, hidden], [hidden, features], [features, hidden]), types):
        size = n * math.prod(shape)
        data = random_blocks(rng, kind, size) if kind != "F32" else struct.pack(f"<{size}f", *(rng.gauss(0, 0.2) for _ in range(size)))
        all_values = values_of(kind, data) if kind != "F32" else struct.unpack(f"<{size}f", data)
        for e in range(n):
            values.append((f"{layer}{each}.{e}.{part}.weight", shape, all_values[e * size // n:(e + 1) * size // n]))
        blocks.append((f"blk.0.ffn_{to}_exps.weight", [n, *shape], IDS[kind], data))
    metadata = metadata_of(config)
    if name == "Mixtral":  # 10000, whatever its config.json would mean without it
        del metadata["llama.rope.freq_base"]
    return config, write_directory(name, config, values), write(f"{name}.gguf", metadata, blocks), blocks


@test("mixtures of experts give the logits of their values: llama with experts, olmoe, qwen2moe, qwen3moe, and all types of blocks")
def mixtures(daemon):
    for architecture, types, hidden in (("MixtralForCausalLM", ("F32", "F32", "F32"), 64), ("OlmoeForCausalLM", ("Q8_0", "MXFP4", "Q5_0"), 64),
                                        ("Qwen2MoeForCausalLM", ("Q4_0", "Q4_1", "Q5_1"), 64), ("Qwen3MoeForCausalLM", ("Q4_K", "Q6_K", "Q5_K"), 256)):
        config, directory, path, blocks = mixture_pair(architecture, types, hidden)
        ctl(daemon, "load", directory, "--name", "a", "--max-batch", 2, "--chunk", 64)
        ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 64, "--kv-dtype", "f32")
        same_models(daemon, "a", "b", config["vocab_size"])
        for model in ("a", "b"):
            ctl(daemon, "unload", model)
    out = ctl(daemon, "load", path, "--name", "two", "--devices", "host:0,host:1", rc=1)
    assert "experts are one tensor" in out.stderr, out
    metadata = metadata_of(config)
    for key, value, says in (("expert_count", 0, "a mixture of experts has both"), ("expert_used_count", 0, "has both"), ("expert_used_count", 9, "num_experts_per_tok"),
                             ("expert_count", 2**32 - 1, "expert_count"), ("expert_count", 5, "ffn_gate_inp"), ("expert_gating_func", 2, "expert_gating_func"),
                             ("expert_feed_forward_length", 512, "exps.weight"), ("expert_count", "4", "expert_count")):
        bad = write("bad.gguf", {**metadata, "qwen3moe." + key: value}, blocks)
        out = ctl(daemon, "load", bad, "--name", "bad", rc=1)
        assert says in out.stderr, (key, out)
    flat = [(n, [s[0] * s[1], s[2]] if len(s) == 3 and "down" in n else s, k, d) for n, s, k, d in blocks]
    out = ctl(daemon, "load", write("bad.gguf", metadata, flat), "--name", "bad", rc=1)
    assert "blk.0.ffn_down_exps.weight" in out.stderr, out


def floats_of(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def packed_floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def mxfp4_rows(blocks, exponents, columns):
    """Rows of blocks of GGML: the exponent, then numbers 0 to 15 in the low halves of bytes and 16 to 31 in the high ones."""
    rows = []
    for at in range(0, len(exponents), columns // 32):
        row = b""
        for group in range(at, at + columns // 32):
            q = [b >> s & 15 for b in blocks[16 * group:16 * group + 16] for s in (0, 4)]
            row += bytes([exponents[group], *(q[i] | q[i + 16] << 4 for i in range(16))])
        rows.append(row)
    return rows


def experts_apart(parts):
    """Tensors of a checkpoint of gpt-oss as those of a GGUF file: rows are of inputs, and gate and up are two tensors."""
    parts = {tensor: (t["shape"], data) for tensor, t, data in parts}
    for tensor, (shape, data) in parts.items():
        base, part = tensor.rsplit(".", 1)
        if ".experts" not in tensor:
            yield tensor, shape, F32, data
            continue
        if part.endswith("_scales"):
            continue
        kind, proj = F32, part.removesuffix("_blocks").removesuffix("_bias")
        if part.endswith("_bias"):
            suffix, features, rows = "bias", [], [packed_floats([v]) for v in floats_of(data)]
        elif part.endswith("_blocks"):
            suffix, features, kind = "weight", [shape[2] * 32], MXFP4
            rows = mxfp4_rows(data, parts[f"{base}.{proj}_scales"][1], features[0])
        else:
            suffix, features, values = "weight", [shape[1]], floats_of(data)
            size = shape[1] * shape[2]
            rows = [packed_floats(values[e * size + o:(e + 1) * size:shape[2]]) for e in range(shape[0]) for o in range(shape[2])]
        each = len(rows) // shape[0]
        for name, chosen, n in ((("gate_proj", rows[0::2], each // 2), ("up_proj", rows[1::2], each // 2)) if proj == "gate_up_proj"
                                else ((proj, rows, each),)):
            yield f"{base}.{name}.{suffix}", [shape[0], n, *features], kind, b"".join(chosen)


def experts_of_blocks(name, kinds):
    """Writes the golden checkpoint's form with experts of random blocks as a GGUF file, and their values as a checkpoint."""
    rng, blocks, values = random.Random(name), [], []
    config = {**json.loads((GOLDEN / name / "config.json").read_text()), "eos_token_id": None, "intermediate_size": 256}
    n, hidden, ffn = config["num_local_experts"], config["hidden_size"], 256
    config.pop("quantization_config")
    for tensor, t, data in read_directory(GOLDEN / name):
        if ".experts." not in tensor:
            values.append((tensor, t["shape"], floats_of(data)))
            blocks.append((name_in_gguf(tensor, "GptOssForCausalLM"), t["shape"], F32, data))
    for layer in range(config["num_hidden_layers"]):
        base, made = f"model.layers.{layer}.mlp.experts.", {}
        for part, rows, columns in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            data, bias = random_blocks(rng, kinds[part], n * rows * columns), packed_floats([rng.gauss(0, 0.3) for _ in range(n * rows)])
            for suffix, shape, kind, content in (("weight", [n, rows, columns], IDS[kinds[part]], data), ("bias", [n, rows], F32, bias)):
                blocks.append((name_in_gguf(f"{base}{part}_proj.{suffix}"), shape, kind, content))
            made[part] = values_of(kinds[part], data), floats_of(bias)
        for part, sources, rows, columns in (("gate_up", ("gate", "up"), ffn, hidden), ("down", ("down",), hidden, ffn)):
            each = [made[s] for s in sources]
            values.append((f"{base}{part}_proj", [n, columns, rows * len(each)],
                           [w[(e * rows + r) * columns + c] for e in range(n) for c in range(columns) for r in range(rows) for w, _ in each]))
            values.append((f"{base}{part}_proj_bias", [n, rows * len(each)], [b[k] for k in range(n * rows) for _, b in each]))
    metadata = metadata_of(config)
    return write_directory(name, config, values), write("experts.gguf", metadata, blocks), metadata, blocks


@test("files of gpt-oss give transformers' logits with experts of F32 and MXFP4, and those of their values with other blocks")
def gpt_oss(daemon):
    for name in ("gpt_oss", "gpt_oss_mxfp4"):
        config = json.loads((GOLDEN / name / "config.json").read_text())
        tensors = [(name_in_gguf(n, "GptOssForCausalLM"), s, k, d) for n, s, k, d in experts_apart(read_directory(GOLDEN / name))]
        path = write("whole.gguf", {**metadata_of(config), "tokenizer.ggml.eos_token_id": config["eos_token_id"]}, tensors)
        ctl(daemon, "load", GOLDEN / name, "--name", "a", "--max-batch", 2, "--chunk", 16)
        ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
        same_models(daemon, "a", "b", config["vocab_size"])
        prompt, last = golden_logits(name)
        near(logits_of(daemon, "b", prompt), last, 1e-4)
        for model in ("a", "b"):
            ctl(daemon, "unload", model)
    plain = [(n, s, k, d) if n != "blk.0.attn_q.weight" else (n, s, MXFP4, bytes(17 * s[0] * s[1] // 32)) for n, s, k, d in tensors]
    out = ctl(daemon, "load", write("bad.gguf", metadata_of(config), plain), "--name", "bad", rc=1)
    assert "self_attn.q_proj in MXFP4" in out.stderr, out
    directory, path, metadata, blocks = experts_of_blocks("gpt_oss_mxfp4", {"gate": "Q8_0", "up": "Q4_1", "down": "Q4_K"})
    ctl(daemon, "load", directory, "--name", "a", "--max-batch", 2, "--chunk", 16)
    ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f32")
    same_models(daemon, "a", "b", 120)
    for model in ("a", "b"):
        ctl(daemon, "unload", model)
    for key, value, says in (("attention.sliding_window", None, "is missing"), ("expert_feed_forward_length", None, "is missing"),
                             ("expert_count", 0, "has both"), ("rope.scaling.factor", None, "must be a positive"),
                             ("rope.scaling.original_context_length", 0, "must be a positive"), ("rope.scaling.yarn_beta_fast", -1.0, "must be a positive"),
                             ("rope.scaling.yarn_attn_factor", 1.0, "not supported"), ("rope.scaling.type", "longrope", "none and linear")):
        bad = {k: v for k, v in {**metadata, f"gpt-oss.{key}": value}.items() if v is not None}
        out = ctl(daemon, "load", write("bad.gguf", bad, blocks), "--name", "bad", rc=1)
        assert key.split(".")[-1] in out.stderr and says in out.stderr, (key, out)


# ---- tokenizers and templates --------------------------------------------------------------------------------------------

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tokenizer_metadata():
    """The bundled model's tokenizer as metadata."""
    made = json.loads((MODEL / "tokenizer.json").read_text())
    tokens = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
    kinds = [1] * len(tokens) + [3] * len(made["added_tokens"])
    tokens += [t["content"] for t in made["added_tokens"]]
    merges = [m if isinstance(m, str) else " ".join(m) for m in made["model"]["merges"]]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges, "tokenizer.ggml.eos_token_id": 2045,
            "tokenizer.ggml.bos_token_id": 2046, "tokenizer.chat_template": TEMPLATE}


def tokenize(path, *arguments):
    out = subprocess.run([CTL, "tokenize", path, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out
    return out.stdout


@test("a gpt2 tokenizer gives the ids of the checkpoint's tokenizer.json, and begins and ends texts if the file says so")
def byte_level(daemon):
    metadata = tokenizer_metadata()
    path = write("gpt2.gguf", metadata, [])
    for line in ("In the beginning", " In  the\n\nbeginning 123!", "I'll <|im_end|> é中\t", "x"):
        ids = tokenize(MODEL, line)
        assert tokenize(path, line) == ids
        assert tokenize(path, "--decode", ids.strip()) == tokenize(MODEL, "--decode", ids.strip())
    both = write("both.gguf", {**metadata, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}, [])
    assert tokenize(both, "x").strip() == "2046," + tokenize(MODEL, "x").strip() + ",2045"
    for key, value, says in (("pre", "default", "llama-bpe"), ("model", "bert", "gpt2 and llama"), ("merges", 3, "merges"),
                             ("token_type", [1], "token_type"), ("bos_token_id", 9999, "9999"), ("precompiled_charsmap", "x", "precompiled"),
                             ("tokens", ["a", "a"], "twice"), ("add_bos_token", "yes", "bool")):
        wrong = {**metadata, "tokenizer.ggml." + key: value, **({} if key == "add_bos_token" else {"tokenizer.ggml.add_bos_token": True})}
        out = subprocess.run([CTL, "tokenize", write("wrong.gguf", wrong, []), "x"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 1 and f"tokenizer.ggml.{key}" in out.stderr and says in out.stderr, out


@test("a llama tokenizer makes its merges of the scores, with the ids of transformers' conversion")
def sentencepiece(daemon):
    made = MADE["sentencepiece"]
    path = write("spm.gguf", {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": made["tokens"],
                              "tokenizer.ggml.scores": made["scores"], "tokenizer.ggml.token_type": made["token_type"],
                              "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
                              "tokenizer.ggml.unknown_token_id": 0}, [])
    for line, ids in zip(made["texts"], made["ids"]):
        if line:
            assert tokenize(path, line).strip() == ",".join(map(str, [1] + ids)), line
            if len(line) % 4 == 0 or len(line) < 12:
                assert tokenize(path, "--decode", ",".join(map(str, ids))).removesuffix("\n") == line.replace("▁", " ")


@test("chat takes the template from the file, and generation ends with its tokens")
def chat(daemon):
    tensors = [(name_in_gguf(name), t["shape"], BF16, data) for name, t, data in read_directory(MODEL)]
    path = write("chat.gguf", {**metadata_of(json.loads((MODEL / "config.json").read_text())), **tokenizer_metadata()}, tensors)
    ctl(daemon, "load", path, "--max-batch", 2)
    ctl(daemon, "load", MODEL, "--name", "m", "--max-batch", 2)
    prompt = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    wanted = json.loads(ctl(daemon, "--json", "generate", "m", "--tokenizer", MODEL, "--ids", tokenize(MODEL, prompt).strip(),
                            "--tokens", 8).stdout)
    out = subprocess.run([CTL, "--json", "--address", daemon.address, "chat", "chat", "--tokenizer", path, "--tokens", "8"],
                         input="Who?\n", capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out
    assert json.loads(out.stdout.splitlines()[0])["content"] == wanted["text"], (out.stdout, wanted)
    own = subprocess.run([CTL, "--json", "--address", daemon.address, "chat", "chat", "--tokens", "8"], input="Who?\n",
                         capture_output=True, text=True, timeout=PATIENCE)
    assert own.stdout == out.stdout, own
    moved = subprocess.run([CTL, "--json", "--address", daemon.address, "load", path.name, "--name", "moved", "--max-batch", "2"],
                           capture_output=True, text=True, timeout=PATIENCE, cwd="/")
    assert moved.returncode == 0, moved
    assert json.loads(ctl(daemon, "--json", "generate", "moved", "--ids", tokenize(MODEL, prompt).strip(), "--tokens", 8).stdout)["tokens"] \
        == wanted["tokens"]
    bare = write("bare.gguf", {k: v for k, v in tokenizer_metadata().items() if "chat" not in k}, [])
    out = subprocess.run([CTL, "--address", daemon.address, "chat", "chat", "--tokenizer", bare], input="x\n", capture_output=True, text=True,
                         timeout=PATIENCE)
    assert out.returncode == 1 and "tokenizer.chat_template" in out.stderr, out


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
    main(f"--models-dir={MODELS}", f"--models-dir={GOLDEN}", f"--models-dir={MODEL}", "--device=host:0", "--device=host:1")
