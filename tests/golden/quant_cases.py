# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with quantised weights in the form of compressed-tensors, and what their weights mean.

quantise() replaces each linear's weight of a state by the values that the stored numbers stand for, so that transformers
computes with exactly these. rewrite() puts the numbers into the file that save_pretrained wrote.
"""

import os

import torch
from safetensors.torch import load_file, save_file


def is_linear(name):
    return name.endswith("_proj.weight")


def numbers_of(w, bits, group, scale_dtype):
    """Round to nearest, symmetric: q in [-2^(bits-1), 2^(bits-1) - 1], one scale for each group of columns."""
    rows, columns = w.shape
    groups = w.reshape(rows, columns // group, group)
    scale = (groups.abs().amax(-1) / ((1 << bits - 1) - 0.5)).to(scale_dtype)
    q = (groups / scale.float()[..., None]).round().clamp(-(1 << bits - 1), (1 << bits - 1) - 1)
    return q.reshape(rows, columns).to(torch.int8), scale


def meaning(q, scale, group):
    return (q.float().unflatten(1, (-1, group)) * scale.float()[..., None]).reshape(q.shape)


def pack(q):
    """Eight n + 8 in an i32, the first in the low bits."""
    words = ((q.long() + 8).unflatten(1, (-1, 8)) << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def quantise(state, how):
    """how: bits, group (0: a scale for each row), scales (dtype). Returns the new state, and the tensors to store."""
    meant, stored = dict(state), {}
    for name, w in state.items():
        if not is_linear(name):
            continue
        group = how["group"] or w.shape[1]
        q, scale = numbers_of(w, how["bits"], group, how["scales"])
        meant[name] = meaning(q, scale, group)
        base = name[: -len("weight")]
        stored[base + "weight_scale"] = scale
        if how["bits"] == 8:
            stored[name] = q
        else:
            stored[base + "weight_packed"] = pack(q)
            stored[base + "weight_shape"] = torch.tensor(w.shape)
    return meant, stored


def config_of(how):
    weights = {
        "num_bits": how["bits"], "type": "int", "symmetric": True, "dynamic": False, "actorder": None,
        "strategy": "group" if how["group"] else "channel", "group_size": how["group"] or None,
        "block_structure": None, "observer": "minmax", "observer_kwargs": {},
    }
    return {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "kv_cache_scheme": None,
        "format": "int-quantized" if how["bits"] == 8 else "pack-quantized", "ignore": ["lm_head"],
        "global_compression_ratio": None,
        "config_groups": {"group_0": {
            "targets": ["Linear"], "input_activations": None, "output_activations": None, "weights": weights}},
    }


def rewrite(path, stored):
    file = os.path.join(path, "model.safetensors")
    kept = {k: v for k, v in load_file(file).items() if not is_linear(k)}
    save_file({**kept, **stored}, file, metadata={"format": "pt"})


SIZES = dict(num_attention_heads=4, num_key_value_heads=2, vocab_size=120)

CASES = [
    ("qwen3_int8_channel", "qwen3", "f32", "i8 weights with a scale for each row, odd sizes, tied", dict(
        SIZES, hidden_size=36, head_dim=12, intermediate_size=52, tie_word_embeddings=True, rope_theta=10000.0,
        rms_norm_eps=1e-6, quantise=dict(bits=8, group=0, scales=torch.float32))),
    ("llama_int4_group32", "llama", "f32", "int4 weights in groups of 32, bf16 scales, biases, untied", dict(
        SIZES, hidden_size=64, intermediate_size=128, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-5, quantise=dict(bits=4, group=32, scales=torch.bfloat16))),
    ("phi3_int4_group64", "phi3", "f32", "int4 weights in groups of 64, f16 scales, fused weights", dict(
        SIZES, hidden_size=64, intermediate_size=64, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5,
        sliding_window=None, quantise=dict(bits=4, group=64, scales=torch.float16))),
    ("qwen2_int4_channel", "qwen2", "f32", "int4 weights with a scale for each row, biases, tied", dict(
        SIZES, hidden_size=48, intermediate_size=64, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6,
        quantise=dict(bits=4, group=0, scales=torch.float32))),
]
