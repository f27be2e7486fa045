#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts from GGUF files compute what the same weights compute as safetensors."""
import math
import random
import struct

from gguf_files import *

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


@test("experts in MXFP4 become bf16 on an NPU, from safetensors and from GGUF files, and give transformers' logits")
def mxfp4_on_npu(_):
    libs, name = BUILD / "devices" / "ascend" / "sim" / ".libs", "gpt_oss_mxfp4"
    if not (libs / "libascendcl.so").exists():
        raise Skip("the simulator of CANN was not built")
    config = json.loads((GOLDEN / name / "config.json").read_text())
    tensors = [(name_in_gguf(n, "GptOssForCausalLM"), s, k, d) for n, s, k, d in experts_apart(read_directory(GOLDEN / name))]
    path = write("npu.gguf", {**metadata_of(config), "tokenizer.ggml.eos_token_id": config["eos_token_id"]}, tensors)
    prompt, last = golden_logits(name)
    with Daemon(*FOLDERS, "--device=ascend:0", f"--ascend-libs={libs}", env={"NGD_ASCEND_LIMIT_MS": "600000"}) as npu:
        for checkpoint in (GOLDEN / name, path):
            ctl(npu, "load", checkpoint, "--name", "a", "--max-batch", 2, "--chunk", 16, "--kv-dtype", "f16")
            near(logits_of(npu, "a", prompt), last, 0.03)
            ctl(npu, "unload", "a")


if __name__ == "__main__":
    main(*FOLDERS, "--device=host:0", "--device=host:1")
