#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make ops.safetensors and ops.json: operators with inputs and the results that PyTorch gives.

Names, operands and attributes are those of graphs/ops.def.  Floating-point results are computed
in f64 from the inputs as rounded to their dtype, and rounded once to the result's dtype; what is
exact by nature (comparisons, views, casts, integers) must be equal.  README.md has the schema.

Shapes are small, odd and mixed on purpose: vector tails, broadcasting in every position, sizes 0
and 1, values at which shortcuts show (ties, NaN, infinities, overflow, cancellation, wrap-around).
"""

import json
import os

import torch
from safetensors.torch import save_file

from ops_arithmetic import attention, comparisons, elementwise, fused, matrices, norms, two_operands, unary
from ops_cases import FLOATS, INF, NAN, ULP, case, cases, counts, f64, randn, rounded, tensors, tolerance, value
from ops_experts import experts
from ops_gptoss import gpt_oss
from ops_latent import latent
from ops_tensors import decoder, indexing, quantised, reductions, updates, quant_matmul, weight_quant
from ops_traced import (
    copied_by_index, dense_attention, gemma_norms, joined, quotients, traced_elementwise, traced_makers,
    traced_reductions, traced_views, variances,
)

HERE = os.path.dirname(os.path.abspath(__file__))


def tails():
    x = torch.cat([torch.linspace(-4.5, 10.5, 121), value([0.0, -0.0, INF, -INF, NAN, 9.1, 9.3, 10.04, 1e-3, 60000.0])])
    unary("aten.erfc", torch.erfc, [x, x[60:61].reshape(1, 1), torch.zeros(0, 4), torch.zeros(3, 0)], ulps=8)


def native_layer_norms():
    for dtype in FLOATS:
        for shape, normalized in (
            ((5, 37), (37,)),
            ((2, 3, 4, 5), (4, 5)),
            ((3, 1), (1,)),
            ((1, 1), (1,)),
            ((0, 8), (8,)),
            ((3, 0), (0,)),
            ((130,), (130,)),
            ((2, 65), (65,)),
        ):
            for w, b in ((True, True), (True, False), (False, True), (False, False)):
                x = randn(*shape, dtype=dtype, scale=1.5, shift=0.3)
                w = randn(*normalized, dtype=dtype) if w else None
                b = randn(*normalized, dtype=dtype) if b else None
                out, mean, rstd = torch.native_layer_norm(f64(x), normalized, f64(w), f64(b), 1e-5)
                out = rounded(out, dtype)
                # One tolerance for all results; normalized over one element, out is a bias, or 0.
                tol = tolerance(dtype, out, ulps=8, loose=2e-6) if normalized != (1,) else (2 * ULP[dtype], 5e-5)
                case(
                    "aten.native_layer_norm",
                    [x, w, b],
                    [out, rounded(mean, "f32"), rounded(rstd, "f32")],
                    {"normalized_shape": list(normalized), "eps": 1e-5},
                    tol,
                )


def main():
    torch.set_num_threads(1)
    elementwise()
    two_operands()
    comparisons()
    matrices()
    norms()
    fused()
    attention()
    reductions()
    indexing()
    quantised()
    decoder()
    updates()
    traced_views()
    traced_makers()
    traced_elementwise()
    copied_by_index()
    traced_reductions()
    gemma_norms()
    dense_attention()
    quotients()
    variances()
    joined()
    tails()
    native_layer_norms()
    experts()
    weight_quant()
    quant_matmul()
    latent()
    gpt_oss()
    save_file(tensors, os.path.join(HERE, "ops.safetensors"))
    os.chmod(os.path.join(HERE, "ops.safetensors"), 0o644)
    with open(os.path.join(HERE, "ops.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), allow_nan=False) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases of {len(counts)} operators, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
