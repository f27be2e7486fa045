# SPDX-License-Identifier: Apache-2.0
"""GGUF files for tests: a writer of our own, what converters do to names, metadata and tensors, and the values of blocks by their
definition in ggml."""
import math
import random
import re
import struct

from harness import *

GOLDEN = SOURCE / "tests" / "golden"
MODEL = SOURCE / "examples" / "model"
MODELS = SCRATCH / "models"
MODELS.mkdir()
FOLDERS = [f"--models-dir={folder}" for folder in (MODELS, GOLDEN, MODEL)]  # options of a daemon that reads them all
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


def golden_logits(name):
    """The prompt of a golden checkpoint, and transformers' logits of its last token."""
    got = {tensor: (t["shape"], data) for tensor, t, data in read_directory(GOLDEN / name, "expect.safetensors")}
    (n,), prompt = got["prompt"]
    (vocab,), last = got["last_logits"]
    return struct.unpack(f"<{n}i", prompt), struct.unpack(f"<{vocab}f", last)
