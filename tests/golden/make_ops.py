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

from ops_arithmetic import attention, comparisons, elementwise, fused, matrices, norms, two_operands
from ops_cases import cases, counts, tensors
from ops_tensors import decoder, indexing, quantised, reductions, updates
from ops_traced import (
    copied_by_index, dense_attention, gemma_norms, joined, quotients, traced_elementwise, traced_makers,
    traced_reductions, traced_views, variances,
)

HERE = os.path.dirname(os.path.abspath(__file__))


def tails():
    x = torch.cat([torch.linspace(-4.5, 10.5, 121), value([0.0, -0.0, INF, -INF, NAN, 9.1, 9.3, 10.04, 1e-3, 60000.0])])
    unary("aten.erfc", torch.erfc, [x, x[60:61].reshape(1, 1), torch.zeros(0, 4), torch.zeros(3, 0)], ulps=8)


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
    save_file(tensors, os.path.join(HERE, "ops.safetensors"))
    os.chmod(os.path.join(HERE, "ops.safetensors"), 0o644)
    with open(os.path.join(HERE, "ops.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), allow_nan=False) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases of {len(counts)} operators, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
