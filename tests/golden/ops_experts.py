# SPDX-License-Identifier: Apache-2.0
"""Cases of mixtures of experts."""

import math

import torch

from ops_cases import FLOATS, case, f64, randint, randn, rounded, tolerance


def routed(x, chosen, experts):
    """What npu.moe_init_routing_v2 gives: rows by expert, where each pair went, and the rows of each expert."""
    flat = chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)
    to = torch.empty_like(flat)
    to[order] = torch.arange(flat.numel())
    return x[order // max(chosen.shape[1], 1)], to.to(torch.int32), torch.bincount(flat, minlength=experts)


def routing():
    for dtype, index in (("f32", torch.int32), ("bf16", torch.int64), ("f16", torch.int32)):
        for t, places, experts, width in ((5, 2, 4, 7), (1, 3, 3, 1), (7, 1, 9, 3), (0, 2, 3, 4), (6, 8, 64, 17)):
            x, chosen = randn(t, width, dtype=dtype), randint(0, experts, t, places)
            outs = routed(x, chosen, experts)
            case("npu.moe_init_routing_v2", [x, chosen.to(index)], list(outs), {"expert_num": experts})


def gates():
    for dtype in FLOATS:
        for shape, k in (((5, 8), 2), ((1, 1), 1), ((3, 128), 8), ((2, 4, 33), 3), ((0, 4), 2), ((4, 60), 60)):
            # Steps of 0.125 in any order: no two of a row are equal, so the choice is sure.
            order = torch.Generator().manual_seed(11)
            rows = [torch.randperm(shape[-1], generator=order) for _ in range(math.prod(shape[:-1]))]
            x = torch.stack(rows) if rows else torch.zeros(0)
            x = rounded((x.reshape(shape).double() - shape[-1] / 2) * 0.125, dtype)
            shares, chosen = torch.softmax(f64(x), -1).topk(k)
            outs = [rounded(shares, dtype), chosen.to(torch.int32)]
            case("npu.moe_gating_top_k_softmax", [x], outs, {"k": k}, tolerance(dtype, outs[0], ulps=8))


def products():
    for dtype, wtype in (("f32", "f32"), ("f32", "bf16"), ("f32", "f16"), ("bf16", "bf16"), ("f16", "f16")):
        for groups, tail, k, n in (
            ([2, 0, 3, 1], 0, 33, 21),
            ([0, 1, 0], 2, 64, 20),
            ([17, 5], 1, 37, 35),
            ([80, 0, 40], 0, 40, 70),
            ([1], 0, 1, 1),
            ([0, 0], 3, 8, 5),
        ):
            for transposed in (False, True):
                if sum(groups) > 100 and (wtype != "bf16" or dtype != "f32"):
                    continue
                x = randn(sum(groups) + tail, k, dtype=dtype)
                ws = [randn(*((n, k) if transposed else (k, n)), dtype=wtype, scale=0.3) for _ in groups]
                parts = [f64(p) @ (f64(w).t() if transposed else f64(w)) for p, w in zip(x.split(groups + [tail]), ws)]
                out = rounded(torch.cat(parts + [torch.zeros(tail, n, dtype=torch.float64)]), dtype)
                counts = torch.tensor(groups)
                case(
                    "npu.grouped_matmul",
                    [x, counts if transposed else counts.cumsum(0), *ws],
                    [out],
                    {"group_list_type": int(transposed), "transpose_weight": transposed},
                    tolerance(dtype, out, ulps=32, loose=2e-6),
                )


def sums():
    for dtype in FLOATS:
        for t, places, width in ((5, 2, 7), (1, 8, 130), (3, 1, 1), (0, 2, 4), (9, 3, 64)):
            x, scales = randn(t * places, width, dtype=dtype), randn(t, places)
            to = torch.randperm(t * places, generator=torch.Generator().manual_seed(7)).to(torch.int32)
            out = (f64(scales)[..., None] * f64(x)[to.long()].reshape(t, places, width)).sum(1)
            out = rounded(out, dtype)
            tol = tolerance(dtype, out, ulps=8, loose=1e-6)
            case("npu.moe_finalize_routing", [x, scales, to], [out], {"drop_pad_mode": 2}, tol)


def experts():
    gates()
    routing()
    products()
    sums()
