# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with quantised weights in the forms of compressed-tensors, GPTQ, AWQ and FP8 (blocks), and what their weights mean.

quantise() replaces each linear's weight of a state by the values that the stored numbers stand for, so that transformers
computes with exactly these. rewrite() puts the numbers into the file that save_pretrained wrote. quantise_rows() makes a
model round the inputs of its linears as W8A8 checkpoints ask for.

Definitions: AutoGPTQ's and GPTQModel's torch kernels, AutoAWQ's packing_utils, compressed_tensors' pack_quantized. With
these libraries installed, compare_with_libraries() has them unpack what is written here.
"""

import os

import numpy as np
import torch
from safetensors.torch import load_file, save_file


def is_linear(name):
    return name.endswith(("_proj.weight", "_proj_with_mqa.weight"))


def numbers_of(w, bits, group, scale_dtype):
    """Round to nearest, symmetric: q in [-2^(bits-1), 2^(bits-1) - 1], one scale for each group of columns."""
    rows, columns = w.shape
    groups = w.reshape(rows, columns // group, group)
    scale = (groups.abs().amax(-1) / ((1 << bits - 1) - 0.5)).to(scale_dtype)
    q = (groups / scale.float()[..., None]).round().clamp(-(1 << bits - 1), (1 << bits - 1) - 1)
    return q.reshape(rows, columns).to(torch.int8), scale


def meaning(q, scale, group):
    return (q.float().unflatten(1, (-1, group)) * scale.float()[..., None]).reshape(q.shape)


def numbers_with_zeros(w, bits, group, scale_dtype):
    """Round to nearest between the least and the largest of a group: n in [0, 2^bits - 1], (n - zero) * scale."""
    most = (1 << bits) - 1
    groups = w.unflatten(1, (-1, group))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = ((high - low) / most).to(scale_dtype)
    zero = (-low / scale.float()).round().clamp(1, most)  # AutoGPTQ cannot store 0
    n = ((groups / scale.float()[..., None]).round() + zero[..., None]).clamp(0, most)
    return n.reshape(w.shape).long(), zero.long(), scale


def meaning_with_zeros(n, zero, scale, group):
    return ((n.unflatten(1, (-1, group)) - zero[..., None]).float() * scale.float()[..., None]).reshape(n.shape)


def words(n, bits, order=None):
    """Packs neighbours in a row into i32, the first in the low bits; order: the columns that are there instead."""
    each = 32 // bits
    n = n.long().unflatten(1, (-1, each))
    w = (n[..., order or list(range(each))] << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(w >= 1 << 31, w - (1 << 32), w).to(torch.int32)


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def store(base, how, n, zero, scale, index):
    """n, zero [rows, ...], unsigned. index: the group of each column. Returns the tensors of a format."""
    bits, form, middle = how["bits"], how["form"], 1 << how["bits"] - 1
    if form == "awq":
        return {base + "qweight": words(n.t(), 4, AWQ_ORDER), base + "qzeros": words(zero.t(), 4, AWQ_ORDER),
                base + "scales": scale.t().contiguous()}
    if form in ("gptq", "gptq_v2"):
        return {base + "qweight": words(n, bits).t().contiguous(), base + "qzeros": words(zero.t() - int(form == "gptq"), bits),
                base + "scales": scale.t().contiguous(), base + "g_idx": index}
    tensors = {base + "weight_scale": scale} | ({base + "weight_g_idx": index} if how.get("order") else {})
    if how.get("naive"):
        tensors[base + "weight"] = (n - middle).to(torch.int8)
    else:
        tensors |= {base + "weight_packed": words(n, bits), base + "weight_shape": torch.tensor(n.shape)}
    if how["zeros"]:
        tensors[base + "weight_zero_point"] = ((zero - middle).to(torch.int8) if how.get("naive")
                                               else words(zero.t(), bits).t().contiguous())
    return tensors


def largest_of_blocks(w, rows, columns):
    """The largest magnitude of each block, the last ones of which may be cut."""
    padded = torch.nn.functional.pad(w.abs(), (0, -w.shape[1] % columns, 0, -w.shape[0] % rows))
    return padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))


def floats_of(w, how):
    """f8 weights with a scale for each block, each row, or all; and what they mean. FineGrainedFP8 of transformers 5 and
    compressed_tensors' dequantize multiply a weight with its scale."""
    rows, columns = {"block": how.get("block"), "channel": (1, w.shape[1]), "tensor": tuple(w.shape)}[how["strategy"]]
    scale = (largest_of_blocks(w, rows, columns) / 448).to(how["scales"])
    each = scale.float().repeat_interleave(rows, 0)[: w.shape[0]].repeat_interleave(columns, 1)[:, : w.shape[1]]
    q = (w / each).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q, scale.reshape(1) if how["strategy"] == "tensor" else scale, q.float() * each


def quantise_floats(state, how):
    meant, stored = dict(state), {}
    for name in filter(is_linear, state):
        q, scale, meant[name] = floats_of(state[name], how)
        base = name[: -len("weight")]
        stored |= {name: q, base + ("weight_scale_inv" if how["form"] == "fp8" else "weight_scale"): scale}
    return meant, stored


F4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def quantise_experts(state):
    """MXFP4 as gpt-oss has it: experts [E, K, N] become numbers [E, N, K / 32, 16], two f4_e2m1 a byte, the low bits first,
    and a power of two for each 32. convert_moe_packed_tensors of transformers' integrations/mxfp4.py reads it so."""
    meant, stored = dict(state), {}
    for name, w in state.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        blocks = w.transpose(1, 2).unflatten(2, (-1, 32))
        power = blocks.abs().amax(-1).clamp(min=2.0**-100).log2().floor() - 2
        n = (blocks[..., None] / 2.0 ** power[..., None, None] - F4).abs().argmin(-1)
        meant[name] = (F4[n] * 2.0 ** power[..., None]).flatten(2).transpose(1, 2).contiguous()
        stored |= {name + "_blocks": (n[..., ::2] | n[..., 1::2] << 4).to(torch.uint8),
                   name + "_scales": (power + 127).to(torch.uint8)}
    return meant, stored


def quantise(state, how):
    """how: form, bits, group (0: a scale for each row), scales (dtype), zeros (or symmetric), naive: compressed-tensors'
    int-quantized, order: groups are of columns in another order. Returns the new state, and the tensors to store."""
    if how["form"] == "mxfp4":
        return quantise_experts(state)
    if "strategy" in how:
        return quantise_floats(state, how)
    meant, stored = dict(state), {}
    for name, w in state.items():
        if not is_linear(name):
            continue
        columns = w.shape[1]
        group, middle = how["group"] or columns, 1 << how["bits"] - 1
        order = np.random.default_rng(columns).permutation(columns) if how.get("order") else np.arange(columns)
        back = np.argsort(order)
        w = w[:, order]
        if how["zeros"]:
            n, zero, scale = numbers_with_zeros(w, how["bits"], group, how["scales"])
            meant[name] = meaning_with_zeros(n, zero, scale, group)
        else:
            q, scale = numbers_of(w, how["bits"], group, how["scales"])
            meant[name] = meaning(q, scale, group)
            n, zero = q.long() + middle, torch.full(scale.shape, middle)
        meant[name] = meant[name][:, back].contiguous()
        index = torch.from_numpy((np.arange(columns) // group)[back].astype(np.int32))
        base = name[: -len("weight")]
        stored |= store(base, how, n[:, back], zero, scale, index)
        if how.get("rows") == "fixed":
            stored[base + "input_scale"] = input_scale(base)
    return meant, stored


def compare_with_libraries(state, how):
    """Has AutoAWQ's and compressed_tensors' own functions unpack what is stored, for each linear; of AutoGPTQ, the layer that
    computes on the CPU."""
    meant, stored = quantise(state, how)
    for name in filter(is_linear, state):
        base, group = name[: -len("weight")], how["group"] or state[name].shape[1]
        if how["form"] == "awq":
            from awq.utils.packing_utils import dequantize_gemm
            got = dequantize_gemm(stored[base + "qweight"], stored[base + "qzeros"], stored[base + "scales"].float(), 4, group).t()
        elif how["form"] == "ct" and not how.get("naive"):
            from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
            n = unpack_from_int32(stored[base + "weight_packed"], how["bits"], state[name].shape)
            zero = torch.zeros_like(stored[base + "weight_scale"])
            if how["zeros"]:
                zero = unpack_from_int32(stored[base + "weight_zero_point"], how["bits"], zero.shape, packed_dim=0)
            got = meaning_with_zeros(n.float(), zero.float(), stored[base + "weight_scale"], group)
        elif how["form"] == "gptq":
            from auto_gptq.nn_modules.qlinear.qlinear_cuda_old import QuantLinear
            rows, columns = state[name].shape
            layer = QuantLinear(how["bits"], group, columns, rows, False)
            layer.qweight, layer.qzeros, layer.scales = (stored[base + t] for t in ("qweight", "qzeros", "scales"))
            layer.scales, layer.autogptq_cuda_available = layer.scales.float(), False
            got = layer(torch.eye(columns)).t()
        else:
            continue
        assert torch.equal(got, meant[name]), name


def packed_config(how):
    common = {"bits": how["bits"], "group_size": how["group"] or -1}
    if how["form"] == "awq":
        return {**common, "quant_method": "awq", "version": "gemm", "zero_point": True, "backend": "autoawq",
                "modules_to_not_convert": None}
    return {**common, "quant_method": "gptq", "checkpoint_format": how["form"], "sym": not how["zeros"], "desc_act": bool(how.get("order")),
            "static_groups": False, "true_sequential": True, "damp_percent": 0.1, "lm_head": False, "dynamic": None}


def nearest_rows(module, arguments):
    """Round each row to i8 in steps of its largest element / 127, as npu_dynamic_quant and vLLM's kernels do."""
    (x,) = arguments
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.where(scale > 0, (x / scale).round().clamp(-128, 127) * scale, torch.zeros_like(x))


def input_scale(base):
    """A scale of a linear's input, another one for each, as a calibration would find it. base: its name, with a dot."""
    return torch.tensor([0.02 + 0.001 * (sum(map(ord, base)) % 17)])


def quantise_rows(model, fixed=False):
    """fixed: by the scale of the checkpoint for all rows, as int8 kernels of vLLM do it; else nearest_rows."""
    for name, module in model.named_modules():
        if is_linear(name + ".weight") and fixed:
            scale = input_scale(name + ".").item()
            module.register_forward_pre_hook(lambda module, given, scale=scale: (given[0] / scale).round().clamp(-128, 127) * scale)
        elif is_linear(name + ".weight"):
            module.register_forward_pre_hook(nearest_rows)
    return model


def floats_config(how):
    if how["form"] == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": list(how["block"]),
                "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm", "mlp.gate."]}
    number = {"num_bits": 8, "type": "float", "symmetric": True}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {**number, "dynamic": False, "strategy": how["strategy"]}, "output_activations": None,
        "input_activations": {**number, "dynamic": True, "strategy": "token"}}}}


def config_of(how):
    if how["form"] == "mxfp4":
        return {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                   "model.embed_tokens", "lm_head"]}
    if "strategy" in how:
        return floats_config(how)
    if how["form"] != "ct":
        return packed_config(how)
    weights = {
        "num_bits": how["bits"], "type": "int", "symmetric": not how["zeros"], "dynamic": False,
        "actorder": "group" if how.get("order") else None,
        "strategy": "group" if how["group"] else "channel", "group_size": how["group"] or None,
        "block_structure": None, "observer": "minmax", "observer_kwargs": {},
    }
    fixed = how.get("rows") == "fixed"
    rows = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": not fixed, "actorder": None,
            "strategy": "tensor" if fixed else "token", "group_size": None, "block_structure": None, "observer": None, "observer_kwargs": {}}
    return {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "kv_cache_scheme": None,
        "format": "int-quantized" if how.get("naive") else "pack-quantized",
        "ignore": ["re:.*lm_head"] if how["zeros"] else ["lm_head"],
        "global_compression_ratio": None,
        "config_groups": {"group_0": {
            "targets": ["Linear"], "input_activations": rows if how.get("rows") else None, "output_activations": None,
            "weights": weights}},
    }


def rewrite(path, stored, replaced):
    file = os.path.join(path, "model.safetensors")
    kept = {k: v for k, v in load_file(file).items() if k not in replaced}
    save_file({**kept, **stored}, file, metadata={"format": "pt"})


SIZES = dict(num_attention_heads=4, num_key_value_heads=2, vocab_size=120)

CASES = [
    ("qwen3_int8_channel", "qwen3", "f32", "i8 weights with a scale for each row, odd sizes, tied", dict(
        SIZES, hidden_size=36, head_dim=12, intermediate_size=52, tie_word_embeddings=True, rope_theta=10000.0,
        rms_norm_eps=1e-6, quantise=dict(form="ct", bits=8, group=0, scales=torch.float32, zeros=False, naive=True))),
    ("llama_int4_group32", "llama", "f32", "int4 weights in groups of 32, bf16 scales, biases, untied", dict(
        SIZES, hidden_size=64, intermediate_size=128, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-5, quantise=dict(form="ct", bits=4, group=32, scales=torch.bfloat16, zeros=False))),
    ("phi3_int4_group64", "phi3", "f32", "int4 weights in groups of 64, f16 scales, fused weights", dict(
        SIZES, hidden_size=64, intermediate_size=64, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5,
        sliding_window=None, quantise=dict(form="ct", bits=4, group=64, scales=torch.float16, zeros=False))),
    ("qwen2_int4_channel", "qwen2", "f32", "int4 weights with a scale for each row, biases, tied", dict(
        SIZES, hidden_size=48, intermediate_size=64, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6,
        quantise=dict(form="ct", bits=4, group=0, scales=torch.float32, zeros=False))),
    ("llama_int4_zeros", "llama", "f32", "int4 weights in groups of 32 with zero points, bf16 scales, a pattern in ignore", dict(
        SIZES, hidden_size=64, intermediate_size=128, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5,
        quantise=dict(form="ct", bits=4, group=32, scales=torch.bfloat16, zeros=True))),
    ("qwen2_gptq_int4", "qwen2", "f32", "GPTQ: int4 weights in groups of 32 with zero points, biases, tied", dict(
        SIZES, hidden_size=64, intermediate_size=128, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6,
        quantise=dict(form="gptq", bits=4, group=32, scales=torch.float16, zeros=True))),
    ("qwen3_gptq_int8", "qwen3", "f32", "GPTQ: symmetric int8 weights with a scale for each row", dict(
        SIZES, hidden_size=36, head_dim=12, intermediate_size=56, tie_word_embeddings=True, rope_theta=10000.0,
        rms_norm_eps=1e-6, quantise=dict(form="gptq", bits=8, group=0, scales=torch.float16, zeros=False))),
    ("llama_awq_int4", "llama", "f32", "AWQ: int4 weights in groups of 64 with zero points, untied", dict(
        SIZES, hidden_size=64, head_dim=32, intermediate_size=128, tie_word_embeddings=False, rope_theta=10000.0,
        rms_norm_eps=1e-5, quantise=dict(form="awq", bits=4, group=64, scales=torch.float16, zeros=True))),
    ("llama_w8a8", "llama", "f32", "i8 weights and rows, bf16 scales, biases, untied", dict(
        SIZES, hidden_size=80, intermediate_size=112, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-5,
        quantise=dict(form="ct", bits=8, group=0, scales=torch.bfloat16, zeros=False, naive=True, rows=True))),
    ("qwen3_fp8_blocks", "qwen3", "f32", "FP8: f8 weights in blocks of 32 rows and 64 columns, the last ones cut, bf16 scales", dict(
        SIZES, hidden_size=80, head_dim=32, intermediate_size=128, tie_word_embeddings=False, rope_theta=10000.0,
        rms_norm_eps=1e-6, quantise=dict(form="fp8", strategy="block", block=(32, 64), scales=torch.bfloat16))),
    ("llama_fp8_channel", "llama", "f32", "f8 weights with a scale for each row, biases, f32 scales, tied", dict(
        SIZES, hidden_size=36, head_dim=12, intermediate_size=52, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_theta=10000.0, rms_norm_eps=1e-5,
        quantise=dict(form="ct", strategy="channel", scales=torch.float32))),
    ("qwen2_fp8_tensor", "qwen2", "f32", "f8 weights with one scale each, bf16", dict(
        SIZES, hidden_size=48, intermediate_size=72, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6,
        quantise=dict(form="ct", strategy="tensor", scales=torch.bfloat16))),
]
