# SPDX-License-Identifier: Apache-2.0
"""Cases of what gpt-oss has: a gate that is clipped, sinks of attention, experts with biases in one tensor, MXFP4."""

import torch

from ops_cases import DTYPES, FLOATS, case, f64, rounded, tolerance

g = torch.Generator().manual_seed(6)  # its own, so that no other case changes
F4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def draw(*shape, dtype="f32", scale=1.0):
    return (torch.randn(shape, generator=g, dtype=torch.float64) * scale).to(DTYPES[dtype])


def clipped_gates():
    """As GptOssExperts of transformers has it."""
    for dtype in FLOATS:
        for shape, interleaved, alpha, limit, bias in (
            ((5, 34), True, 1.702, 7.0, 1.0), ((3, 130), False, 1.702, 7.0, 1.0), ((2, 3, 6), True, 1.0, 2.5, 0.0),
            ((0, 8), True, 1.702, 7.0, 1.0), ((2, 0), True, 1.702, 7.0, 1.0),
        ):
            x = draw(*shape, dtype=dtype, scale=6.0)
            if interleaved:
                gate, up = f64(x)[..., ::2], f64(x)[..., 1::2]
            else:
                gate, up = f64(x).chunk(2, -1)
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            out = rounded(gate * torch.sigmoid(alpha * gate) * (up + bias), dtype)
            attrs = {"interleaved": interleaved, "alpha": alpha, "limit": limit, "bias": bias}
            case("npu.clipped_swiglu", [x], [out], attrs, tolerance(dtype, out, ulps=8, loose=1e-7))


def packed_f4(*shape):
    """Numbers of MXFP4: bytes [..., K/2], scales [..., K/32], and what they say [..., K]."""
    nibbles = torch.randint(0, 16, shape, generator=g)
    scales = torch.randint(117, 124, (*shape[:-1], -(-shape[-1] // 32)), generator=g)
    each = torch.ldexp(torch.ones(()).double(), scales - 127).repeat_interleave(32, -1)[..., : shape[-1]]
    packed = nibbles[..., ::2] | nibbles[..., 1::2] << 4
    return packed.to(torch.uint8), scales.to(torch.uint8), F4[nibbles] * each


def stacked_experts():
    for dtype, groups, n, k in (("f32", [2, 0, 3], 21, 64), ("bf16", [1, 18], 33, 96), ("f16", [0, 4, 1, 1], 8, 70)):
        rows, e = sum(groups) + 1, len(groups)
        x, bias = draw(rows, k, dtype=dtype), draw(e, n)
        counts = torch.tensor(groups)
        w = draw(e, k, n, dtype=dtype, scale=0.3)
        q, s, wide = packed_f4(e, n, k)
        for weights, lists, attrs in (
            (f64(w), [w, bias], {"bias": True}),
            (wide.transpose(1, 2), [q, bias, s],
             {"bias": True, "antiquant_scale": True, "antiquant_group_size": 32, "transpose_weight": True}),
        ):
            parts = [f64(p) @ v + f64(b) for p, v, b in zip(x.split([*groups, 1]), weights, bias)]
            out = rounded(torch.cat([*parts, torch.zeros(1, n, dtype=torch.float64)]), dtype)
            case("npu.grouped_matmul", [x, counts, *lists], [out], {"group_list_type": 1, **attrs},
                 tolerance(dtype, out, ulps=32, loose=2e-5))


def packed_products():
    for dtype, m, n, k in (("f32", 1, 24, 96), ("bf16", 3, 17, 32), ("f16", 60, 40, 72)):
        x, (q, s, wide) = draw(m, k, dtype=dtype), packed_f4(n, k)
        out = rounded(f64(x) @ wide.t(), dtype)
        case("npu.weight_quant_batchmatmul", [x, q.t(), s.t()], [out], {"antiquant_group_size": 32},
             tolerance(dtype, out, ulps=32, loose=2e-5))


def gpt_oss():
    clipped_gates()
    stacked_experts()
    packed_products()
