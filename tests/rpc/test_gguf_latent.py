#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of DeepSeek's models (deepseek2) compute what their checkpoints compute."""
import math
import random
import struct

from gguf_files import *

# Modules of attention over a latent and of DeepSeek's experts.
NAMES.update({"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
              "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
              **{f"mlp.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}})
BIAS = "mlp.gate.e_score_correction_bias"


def floats_of(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def packed(values):
    return struct.pack(f"<{len(values)}f", *values)


def latent_metadata(config, today):
    """What the converter writes: today's, or that of 2024, whose heads are those of the checkpoint."""
    heads, turned, value = config["num_attention_heads"], config["qk_rope_head_dim"], config["v_head_dim"]
    key, latent, v3 = config["qk_nope_head_dim"] + turned, config["kv_lora_rank"], config["architectures"][0] == "DeepseekV3ForCausalLM"
    values = {"context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
              "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"], "attention.head_count": heads,
              "attention.head_count_kv": 1 if today else heads, "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", 1e-6),
              "attention.key_length": latent + turned if today else key, "attention.value_length": latent if today else value,
              "attention.kv_lora_rank": latent, "rope.dimension_count": turned, "rope.freq_base": float(config.get("rope_theta", 10000)),
              "expert_count": config["n_routed_experts"], "expert_used_count": config["num_experts_per_tok"],
              "expert_shared_count": config["n_shared_experts"], "expert_feed_forward_length": config["moe_intermediate_size"],
              "leading_dense_block_count": config["first_k_dense_replace"], "expert_weights_scale": float(config["routed_scaling_factor"]),
              "vocab_size": config["vocab_size"]}
    if today:
        values |= {"attention.key_length_mla": key, "attention.value_length_mla": value}
    if config["q_lora_rank"]:
        values["attention.q_lora_rank"] = config["q_lora_rank"]
    if config["norm_topk_prob"]:
        values["expert_weights_norm"] = True
    if v3:
        values["expert_gating_func"] = 2
    if config["n_group"]:
        values |= {"expert_group_count": config["n_group"], "expert_group_used_count": config["topk_group"]}
    if scaling := config.get("rope_scaling"):
        values |= {"rope.scaling.type": "yarn", "rope.scaling.factor": scaling["factor"],
                   "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
                   "rope.scaling.yarn_beta_fast": scaling["beta_fast"], "rope.scaling.yarn_beta_slow": scaling["beta_slow"],
                   "rope.scaling.yarn_log_multiplier": 0.1 * scaling["mscale_all_dim"]}
    return {"general.architecture": "deepseek2", **{f"deepseek2.{k}": v for k, v in values.items()}}


def heads_apart(config, values):
    """The two matrices of each head: of keys, turned, and of values."""
    heads, plain, value, latent = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    rows = [values[i:i + latent] for i in range(0, len(values), latent)]
    keys, others = [], []
    for h in range(heads):
        of_head = rows[h * (plain + value):(h + 1) * (plain + value)]
        keys += [of_head[p][c] for c in range(latent) for p in range(plain)]
        others += [x for row in of_head[plain:] for x in row]
    return ("k_b", [heads, latent, plain], keys), ("v_b", [heads, value, latent], others)


def in_gguf(config, tensors, today):
    """(name, shape, values) of a checkpoint as tensors of a file: experts are one, and today each head's matrices are apart."""
    experts = {}
    for tensor, shape, values in tensors:
        layer = tensor.split(".")[2] if tensor.startswith("model.layers") else ""
        if ".experts." in tensor:
            part = tensor.split(".")[-2].removesuffix("_proj")
            experts.setdefault((layer, part, tuple(shape)), {})[int(tensor.split(".")[-3])] = values
        elif tensor.endswith(BIAS):
            yield f"blk.{layer}.exp_probs_b.bias", shape, values
        elif today and "kv_b_proj" in tensor:
            for name, of_heads, apart in heads_apart(config, values):
                yield f"blk.{layer}.attn_{name}.weight", of_heads, apart
        else:
            yield name_in_gguf(tensor), shape, values
    for (layer, part, shape), each in experts.items():
        yield f"blk.{layer}.ffn_{part}_exps.weight", [len(each), *shape], [x for e in range(len(each)) for x in each[e]]


def golden(name):
    """A golden checkpoint without biases of attention, which files do not have, and with two equal mscale: a file has one."""
    config = {**json.loads((GOLDEN / name / "config.json").read_text()), "attention_bias": False}
    if scaling := config.get("rope_scaling"):
        scaling["mscale"] = scaling["mscale_all_dim"]
    return config, [(tensor, t["shape"], floats_of(data)) for tensor, t, data in read_directory(GOLDEN / name)
                    if not (".self_attn." in tensor and tensor.endswith(".bias"))]


def compare(daemon, directory, path, config):
    ctl(daemon, "load", directory, "--name", "a", "--max-batch", 2, "--chunk", 64)
    ctl(daemon, "load", path, "--name", "b", "--max-batch", 2, "--chunk", 64, "--kv-dtype", "f32")
    same_models(daemon, "a", "b", config["vocab_size"])
    for model in ("a", "b"):
        ctl(daemon, "unload", model)


@test("files of V2-Lite, V2 and V3 give the logits of their checkpoints, as converters write them today and as they did in 2024")
def forms(daemon):
    for name in ("deepseek_lite", "deepseek_groups", "deepseek_v3"):
        config, tensors = golden(name)
        directory = write_directory(name, config, tensors)
        for today in (True, False):
            path = write(f"{name}.gguf", latent_metadata(config, today), [(n, s, F32, packed(v)) for n, s, v in in_gguf(config, tensors, today)])
            compare(daemon, directory, path, config)


SHAPE = {"architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "tie_word_embeddings": False, "kv_lora_rank": 64, "q_lora_rank": None, "qk_nope_head_dim": 32, "qk_rope_head_dim": 8, "v_head_dim": 32,
         "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
         "routed_scaling_factor": 1.5, "norm_topk_prob": False, "topk_method": "greedy", "scoring_func": "softmax", "n_group": None, "topk_group": None}


def shapes():
    h, heads, latent, ffn = 64, 2, 64, 64
    yield from (("model.embed_tokens", [40, h]), ("lm_head", [40, h]), ("model.norm", [h]))
    for layer in range(2):
        base = f"model.layers.{layer}."
        yield from ((base + name, shape) for name, shape in (
            ("input_layernorm", [h]), ("post_attention_layernorm", [h]), ("self_attn.q_proj", [heads * 40, h]),
            ("self_attn.kv_a_proj_with_mqa", [latent + 8, h]), ("self_attn.kv_a_layernorm", [latent]),
            ("self_attn.kv_b_proj", [heads * 64, latent]), ("self_attn.o_proj", [h, heads * 32])))
        parts = (("gate_proj", [ffn, h]), ("up_proj", [ffn, h]), ("down_proj", [h, ffn]))
        yield from ((f"{base}mlp.{'shared_experts.' if layer else ''}{name}", shape) for name, shape in parts)
        if layer:
            yield base + "mlp.gate", [4, h]
            yield from ((f"{base}mlp.experts.{e}.{name}", [32 if shape[0] == ffn and name != "down_proj" else h, h if name != "down_proj" else 32])
                        for e in range(4) for name, shape in parts)


def heads_together(config, keys, others):
    """The weight of a checkpoint, of each head's matrices."""
    heads, plain, value, latent = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    values = []
    for h in range(heads):
        values += [keys[(h * latent + c) * plain + p] for p in range(plain) for c in range(latent)]
        values += others[h * value * latent:(h + 1) * value * latent]
    return values


def of_blocks(today, kinds):
    """Random tensors of blocks of these types for the weights of heads, as a file, and their values as a checkpoint."""
    rng, values = random.Random(str(kinds)), []
    for name, shape in shapes():
        middle = "norm" in name
        values.append((name + ".weight", shape, [rng.gauss(middle, 0.3 if middle else 1.5 / shape[-1]**0.5) for _ in range(math.prod(shape))]))
    tensors = []
    for name, shape, floats in in_gguf(SHAPE, values, today):
        kind = kinds.get(name.split(".")[2] if name.startswith("blk") else name, "F32")
        if kind == "F32":
            tensors.append((name, shape, F32, packed(floats)))
        else:
            tensors.append((name, shape, IDS[kind], random_blocks(rng, kind, math.prod(shape))))
    made = {name: list(values_of(kind, data)) for kind in set(kinds.values()) for name, _, number, data in tensors if number == IDS[kind]}
    for i, (name, shape, _) in enumerate(values):
        if "kv_b_proj" in name:
            blk = f"blk.{name.split('.')[2]}.attn_"
            values[i] = (name, shape, heads_together(SHAPE, made[blk + "k_b.weight"], made[blk + "v_b.weight"]) if today else made[blk + "kv_b.weight"])
    path = write("blocks.gguf", latent_metadata(SHAPE, today), tensors)
    return write_directory(f"blocks{today}{len(kinds)}{min(kinds.values())}", SHAPE, values), path, tensors


@test("matrices of heads in blocks become floats once, in all forms of blocks that fit their rows")
def blocks(daemon):
    for today, kinds in ((True, {"attn_k_b": "Q8_0", "attn_v_b": "Q4_0"}), (True, {"attn_k_b": "Q5_1", "attn_v_b": "Q4_1"}),
                         (False, {"attn_kv_b": "Q5_0"})):
        directory, path, _ = of_blocks(today, kinds)
        compare(daemon, directory, path, SHAPE)


@test("what a file of deepseek2 cannot have, or does not say, is refused with the key or the tensor")
def refusals(daemon):
    _, path, tensors = of_blocks(True, {"attn_k_b": "Q8_0", "attn_v_b": "Q8_0"})
    metadata = latent_metadata(SHAPE, True)
    for key, value, says in (("attention.key_length_mla", 8, "rope.dimension_count"), ("attention.head_count_kv", 2, "attention.head_count_kv"),
                             ("attention.value_length_mla", 0, "attention.value_length_mla"), ("expert_gating_func", 3, "expert_gating_func"),
                             ("expert_gating_func", 2, "expert_group_count"), ("attention.q_lora_rank", 16, "expert_group_count"),
                             ("expert_group_count", 2, "expert_group_used_count"), ("expert_weights_norm", True, "norm_topk_prob"),
                             ("leading_dense_block_count", 2**32 - 1, "leading_dense_block_count"), ("leading_dense_block_count", 0, "blk.0.ffn_gate_inp"),
                             ("attention.kv_lora_rank", 2**31 - 1, "kv_lora_rank"), ("attention.kv_lora_rank", 96, "blk.0."), ("nextn_predict_layers", 1, "nextn_predict_layers"),
                             ("attention.key_length_mla", 72, "blk.0."), ("rope.scaling.type", "yarn", "rope.scaling.factor"),
                             ("rope.scaling.factor", 2.0, "none and yarn"), ("expert_weights_scale", 0.0, "expert_weights_scale"),
                             ("expert_weights_scale", -1.0, "expert_weights_scale")):
        out = ctl(daemon, "load", write("bad.gguf", {**metadata, "deepseek2." + key: value}, tensors), "--name", "bad", rc=1)
        assert says in out.stderr, (key, out)
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 16}
    for multiplier in (None, 0.0, float("nan")):
        more = {**yarn, **({"yarn_log_multiplier": multiplier} if multiplier is not None else {})}
        bad = write("bad.gguf", {**metadata, **{f"deepseek2.rope.scaling.{k}": v for k, v in more.items()}}, tensors)
        out = ctl(daemon, "load", bad, "--name", "bad", rc=1)
        assert "yarn_log_multiplier" in out.stderr, out
    flat = [(n, [s[0] * s[1], s[2]] if "attn_k_b" in n else s, k, d) for n, s, k, d in tensors]
    out = ctl(daemon, "load", write("bad.gguf", metadata, flat), "--name", "bad", rc=1)
    assert "blk.0.attn_k_b.weight" in out.stderr, out
    out = ctl(daemon, "load", path, "--name", "two", "--devices", "host:0,host:1", rc=1)
    assert "matrices of heads are one tensor" in out.stderr, out


if __name__ == "__main__":
    main(*FOLDERS, "--device=host:0", "--device=host:1")
