#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make ops.safetensors and ops.json: operators with inputs and the results that PyTorch gives.

Names, operands and attributes are those of graphs/ops.def.  Floating-point results are computed
in f64 from the inputs as rounded to their dtype, and rounded once to the result's dtype; what is
exact by nature (comparisons, views, casts, integers) must be equal.  README.md has the schema.

Shapes are small, odd and mixed on purpose: vector tails, broadcasting in every position, sizes 0
and 1, values at which shortcuts show (ties, NaN, infinities, overflow, cancellation, wrap-around).
"""

import hashlib
import json
import math
import os

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}
DTYPES = {v: k for k, v in NAMES.items()}
FLOATS = ("f32", "bf16", "f16")
INTS = ("i8", "u8", "i32", "i64")
INF, NAN = float("inf"), float("nan")
# One unit in the last place of the result, for a value just above a power of two.
ULP = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}

tensors, by_content, cases, counts = {}, {}, [], {}
gen = torch.Generator().manual_seed(20240611)


def keep(t):
    """Name a tensor in the file; equal tensors are stored once."""
    if t is None:
        return None
    t = t.detach().contiguous()
    raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    key = (t.dtype, tuple(t.shape), hashlib.sha256(raw).digest())
    if key not in by_content:
        by_content[key] = f"t{len(tensors)}"
        tensors[by_content[key]] = t.clone()
    return by_content[key]


def case(op, inputs, outputs, attrs=None, tol=(0.0, 0.0), mutates=None, tag=None):
    """tol = (relative, absolute): |got - expected| <= absolute + relative * |expected|."""
    main = next((t for t in list(inputs) + list(outputs) if t is not None), None)
    dtype = NAMES[main.dtype] if main is not None else "none"
    counts[op] = counts.get(op, 0) + 1
    row = {
        "name": f"{op}/{counts[op]}_{tag + '_' if tag else ''}{dtype}",
        "op": op,
        "attrs": attrs or {},
        "inputs": [keep(t) for t in inputs],
        "outputs": [keep(t) for t in outputs],
        "tol": {"rel": float(f"{tol[0]:.3g}") or 0, "abs": float(f"{tol[1]:.3g}") or 0},
    }
    if mutates:
        row["mutates"] = [{"input": i, "expected": keep(t)} for i, t in mutates]
    cases.append(row)


def randn(*shape, dtype="f32", scale=1.0, shift=0.0):
    return (torch.randn(shape, generator=gen, dtype=torch.float64) * scale + shift).to(DTYPES[dtype])


def randint(low, high, *shape, dtype="i64"):
    return torch.randint(low, high, shape, generator=gen).to(DTYPES[dtype])


def value(values, dtype="f32"):
    return torch.tensor(values, dtype=torch.float64 if dtype in FLOATS else None).to(DTYPES[dtype])


def f64(t):
    return None if t is None else (t.double() if t.dtype.is_floating_point else t)


def rounded(t, dtype):
    return t.to(DTYPES[dtype])


def tolerance(dtype, expected=None, ulps=2, loose=0.0):
    """ulps units in the last place; loose is an absolute part for sums, relative to the largest result."""
    top = 0.0
    if expected is not None and expected.numel():
        finite = expected.double().abs()
        finite = finite[torch.isfinite(finite)]
        top = finite.max().item() if finite.numel() else 0.0
    n = 1 if dtype != "f32" else ulps  # half-width results: f32 inside, so at most one unit off
    smallest = {"f32": 1e-37, "f16": 2.0**-24, "bf16": 1e-37}[dtype]
    return (n * ULP[dtype], loose * top + smallest)


# ---------------------------------------------------------------- elementwise


def unary(op, fn, inputs, attrs=None, ulps=4, exact=False, absolute=0.0, dtypes=FLOATS):
    for dtype in dtypes:
        for x in inputs:
            x = x.to(DTYPES[dtype])
            out = rounded(fn(f64(x)), dtype) if dtype in FLOATS else fn(x).to(DTYPES[dtype])
            tol = (0.0, 0.0) if exact or dtype not in FLOATS else tolerance(dtype, out, ulps)
            case(op, [x], [out], attrs, (tol[0], tol[1] + (absolute if dtype in FLOATS and not exact else 0.0)))


def elementwise():
    wide, tiny, empty = randn(131, scale=2.5), randn(3, 1, 5), torch.zeros(0, 4)
    positive = wide.abs() + 0.01
    specials = value([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-3, 65504.0, -65504.0])
    unary("aten.neg", torch.neg, [wide, tiny, empty, specials], exact=True)
    unary("aten.abs", torch.abs, [wide, specials], exact=True)
    unary("aten.relu", torch.relu, [wide, specials, empty], exact=True)
    ints = torch.arange(-40, 41)
    for op, fn in (("aten.neg", torch.neg), ("aten.abs", torch.abs), ("aten.relu", torch.relu)):
        unary(op, fn, [ints], dtypes=("i8", "i32", "i64"))
    unary(
        "aten.exp", torch.exp, [wide, tiny, value([0.0, INF, -INF, NAN, 88.0, 89.0, -87.0, -120.0, 11.0, 12.0])], ulps=6
    )
    unary(
        "aten.log",
        torch.log,
        [positive, value([0.0, 1.0, INF, -1.0, NAN, 1.001, 0.999, 60000.0, 1e-4])],
        ulps=6,
        absolute=1e-7,
    )
    unary("aten.sqrt", torch.sqrt, [positive, value([0.0, 1.0, 2.0, INF, -1.0, NAN])], ulps=1)
    unary("aten.rsqrt", torch.rsqrt, [positive, value([0.0, 1.0, 2.0, INF, -1.0, NAN])], ulps=4)
    unary("aten.reciprocal", torch.reciprocal, [positive, value([0.0, 3.0, -7.0, INF, NAN])], ulps=4)
    angles = torch.cat(
        [
            randn(100, scale=3.0),
            randn(31, scale=300.0),
            value([0.0, 100.5, 1023.0, 8191.0, 16383.25, 60000.0, -60000.0, 3.140625, 1.5703125]),
        ]
    )
    unary("aten.sin", torch.sin, [angles, tiny], absolute=5e-7)
    unary("aten.cos", torch.cos, [angles, tiny], absolute=5e-7)
    unary(
        "aten.tanh", torch.tanh, [wide, value([0.0, INF, -INF, NAN, 20.0, -20.0, 1e-3, -1e-4])], ulps=6, absolute=1e-7
    )
    unary("aten.erf", torch.erf, [wide, value([0.0, INF, -INF, NAN, 5.0, -5.0, 1e-3])], ulps=8, absolute=1e-7)
    unary(
        "aten.sigmoid",
        torch.sigmoid,
        [wide, value([0.0, INF, -INF, NAN, 100.0, -100.0, -30.0])],
        ulps=6,
        absolute=1e-37,
    )
    far = value([0.0, 100.0, -100.0, 30.0, -30.0, -12.0, 1e-3, NAN])
    unary("aten.silu", lambda x: x * torch.sigmoid(x), [wide, tiny, far], ulps=6, absolute=1e-30)
    for how in ("none", "tanh"):
        unary(
            "aten.gelu",
            lambda x: torch.nn.functional.gelu(x, approximate=how),
            [wide, far],
            {"approximate": how},
            ulps=16,
            absolute=5e-7,
        )
    unary("aten.gelu", torch.nn.functional.gelu, [tiny], ulps=16, absolute=5e-7)
    halves = value([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.51, 1023.5, 2047.0, 0.0, -0.0, INF, -INF, NAN, 3.0, -3.0])
    for op, fn in (("aten.floor", torch.floor), ("aten.ceil", torch.ceil), ("aten.round", torch.round)):
        unary(op, fn, [wide, halves], exact=True)
    case(
        "aten.round",
        [value([8388607.5, 8388609.0, -4194304.5, 4194303.5])],
        [torch.round(value([8388607.5, 8388609.0, -4194304.5, 4194303.5]))],
    )
    unary("aten.clamp", lambda x: x.clamp(-0.75, 1.5), [wide, specials], {"min": -0.75, "max": 1.5}, exact=True)
    unary("aten.clamp", lambda x: x.clamp(min=0.25), [wide, specials], {"min": 0.25}, exact=True)
    unary("aten.clamp", lambda x: x.clamp(max=-0.25), [wide], {"max": -0.25}, exact=True)
    unary("aten.clamp", lambda x: x.clamp(-3, 17), [ints], {"min": -3, "max": 17}, dtypes=("i8", "i32", "i64"))
    unary("aten.clone", torch.clone, [tiny], exact=True)

    for dtype in FLOATS + INTS + ("bool",):
        x = (randint(-1, 2, 37) if dtype not in ("u8", "bool") else randint(0, 2, 37)).to(DTYPES[dtype])
        case("aten.logical_not", [x], [torch.logical_not(x)])
    case("aten.logical_not", [specials], [torch.logical_not(specials)])
    for dtype in INTS + ("bool",):
        x = (randint(0, 100, 37) if dtype != "bool" else randint(0, 2, 37)).to(DTYPES[dtype])
        case("aten.bitwise_not", [x], [torch.bitwise_not(x)])


BROADCASTS = [
    ((37,), (37,)),
    ((3, 1, 5), (4, 1)),
    ((7,), (2, 3, 7)),
    ((), (4, 3)),
    ((6,), (1,)),
    ((2, 3, 1), (1, 1, 4)),
    ((0, 3), (1, 3)),
    ((5, 17), (5, 1)),
    ((1, 1), (1, 1)),
    ((2, 1, 3, 1), (4, 1, 5)),
]


def binary(op, fn, dtypes=FLOATS, attrs=None, exact=False, ulps=1, absolute=0.0, second=None, shapes=BROADCASTS):
    for dtype in dtypes:
        for one, two in shapes:
            a, b = randn(*one, scale=2.0).to(DTYPES[dtype]), randn(*two, scale=2.0).to(DTYPES[dtype])
            b = second(b) if second else b
            out = rounded(fn(f64(a), f64(b)), dtype)
            tol = (0.0, 0.0) if exact else tolerance(dtype, out, ulps)
            case(op, [a, b], [out], attrs, (tol[0], tol[1] + (absolute if dtype in FLOATS and not exact else 0.0)))


def integers(op, fn, dtypes=INTS, attrs=None, low=0, high=100):
    for dtype in dtypes:
        start = low if dtype == "u8" or low > 0 else -high
        a, b = randint(start, high, 5, 7).to(DTYPES[dtype]), randint(start, high, 7).to(DTYPES[dtype])
        out = fn(a, b)
        assert NAMES[out.dtype] == dtype
        case(op, [a, b], [out], attrs)


def two_operands():
    binary("aten.add.Tensor", torch.add)
    binary("aten.add.Tensor", lambda a, b: a + 0.75 * b, attrs={"alpha": 0.75}, shapes=BROADCASTS[:3], absolute=1e-6)
    binary("aten.sub.Tensor", torch.sub)
    binary("aten.sub.Tensor", lambda a, b: a - 2 * b, attrs={"alpha": 2}, shapes=BROADCASTS[:2], absolute=1e-6)
    binary("aten.mul.Tensor", torch.mul)
    binary(
        "aten.div.Tensor", torch.div, second=lambda b: torch.where(b.abs() < 0.1, 1.0, b.float()).to(b.dtype), ulps=2
    )
    for dtype in FLOATS:
        a, b = value([1.0, -1.0, 0.0, INF, NAN, 1.0], dtype), value([0.0, 0.0, 0.0, INF, 1.0, 3.0], dtype)
        case("aten.div.Tensor", [a, b], [rounded(f64(a) / f64(b), dtype)], tol=tolerance(dtype))
    for op, fn in (("aten.add.Tensor", torch.add), ("aten.sub.Tensor", torch.sub), ("aten.mul.Tensor", torch.mul)):
        integers(op, fn)  # i8 and u8 products wrap
    integers("aten.add.Tensor", lambda a, b: torch.add(a, b, alpha=3), attrs={"alpha": 3})
    big = torch.tensor([2**62, -(2**62), 2**53 + 1, -(2**53) - 1, 2**40])
    case(
        "aten.add.Tensor",
        [big, torch.tensor([1, -1, 1, -1, 3])],
        [big + torch.tensor([1, -1, 1, -1, 3])],
        tag="beyond_f64",
    )
    case(
        "aten.mul.Tensor",
        [torch.tensor([2**31 + 1, 3**20]), torch.tensor([3, 7])],
        [torch.tensor([3 * (2**31 + 1), 7 * 3**20])],
        tag="beyond_i32",
    )

    for dtype in FLOATS:
        a = value([7.5, -7.5, 7.5, -7.5, 0.0, 5.0, -5.0, 1.25, -0.25], dtype)
        b = value([2.0, 2.0, -2.0, -2.0, 3.0, 5.0, 5.0, 0.5, 1.0], dtype)
        case("aten.remainder.Tensor", [a, b], [rounded(torch.remainder(f64(a), f64(b)), dtype)], tol=tolerance(dtype))
    for dtype in ("i8", "i32", "i64"):
        a = torch.tensor([7, -7, 7, -7, 0, 5, -5, 100], dtype=DTYPES[dtype])
        b = torch.tensor([2, 2, -2, -2, 3, 5, 5, -33], dtype=DTYPES[dtype])
        case("aten.remainder.Tensor", [a, b], [torch.remainder(a, b)])

    odd = (value([1.0, NAN, 2.0, -0.5, INF, -INF, NAN]), value([NAN, 1.0, -3.0, -0.25, 1.0, 1.0, NAN]))
    for op, fn in (("aten.maximum", torch.maximum), ("aten.minimum", torch.minimum)):
        binary(op, fn, exact=True)
        integers(op, fn)
        for dtype in FLOATS:
            a, b = (t.to(DTYPES[dtype]) for t in odd)
            case(op, [a, b], [fn(a, b)], tag="nan")
    case(
        "aten.maximum",
        [torch.tensor([2**53 + 1, -5]), torch.tensor([2**53, -6])],
        [torch.tensor([2**53 + 1, -5])],
        tag="beyond_f64",
    )

    for dtype in FLOATS:
        for one, two in ((37,), (37,)), ((5, 1), (7,)):
            a, b = randn(*one, dtype=dtype).abs() + 0.1, randn(*two, dtype=dtype)
            out = rounded(torch.pow(f64(a), f64(b)), dtype)
            case("aten.pow.Tensor_Tensor", [a, b], [out], tol=tolerance(dtype, ulps=32))
        a = value([-2.0, -2.0, 0.0, 0.0, 1.0, -8.0, 2.0, INF, 2.0, NAN, 1.0], dtype)
        b = value([3.0, 2.0, 0.0, 2.0, INF, 1 / 3, -3.0, -1.0, 0.5, 0.0, NAN], dtype)
        case(
            "aten.pow.Tensor_Tensor", [a, b], [rounded(torch.pow(f64(a), f64(b)), dtype)], tol=tolerance(dtype, ulps=32)
        )
        x = randn(19, dtype=dtype)
        for exponent in (2.0, 3.0, 0.0, 1.0, -1.0):
            case(
                "aten.pow.Tensor_Scalar",
                [x],
                [rounded(torch.pow(f64(x), exponent), dtype)],
                {"exponent": exponent},
                tolerance(dtype, ulps=8),
            )
        for exponent in (0.5, -0.5, 1.7):
            y = x.abs() + 0.05
            case(
                "aten.pow.Tensor_Scalar",
                [y],
                [rounded(torch.pow(f64(y), exponent), dtype)],
                {"exponent": exponent},
                tolerance(dtype, ulps=32),
            )
        case(
            "aten.pow.Tensor_Scalar",
            [x],
            [rounded(torch.pow(f64(x), 0.5), dtype)],
            {"exponent": 0.5},
            tolerance(dtype, ulps=8),
            tag="nan",
        )

        x = randn(4, 9, dtype=dtype)
        for op, fn, attrs in (
            ("aten.add.Scalar", lambda x: x + 1.25, {"other": 1.25}),
            ("aten.add.Scalar", lambda x: x + 3 * 0.5, {"other": 0.5, "alpha": 3}),
            ("aten.sub.Scalar", lambda x: x - 0.3, {"other": 0.3}),
            ("aten.sub.Scalar", lambda x: x - 2 * 0.5, {"other": 0.5, "alpha": 2}),
            ("aten.mul.Scalar", lambda x: x * -0.7, {"other": -0.7}),
            ("aten.div.Scalar", lambda x: x / 3, {"other": 3}),
        ):
            out = rounded(fn(f64(x)), dtype)
            # the scalar is exact in f64 and is taken as f32 inside
            case(op, [x], [out], attrs, tolerance(dtype, out, ulps=2, loose=2e-7))
    for dtype in ("i8", "i32", "i64"):
        x = torch.arange(-20, 20, dtype=DTYPES[dtype])
        case("aten.add.Scalar", [x], [x + 7], {"other": 7})
        case("aten.sub.Scalar", [x], [x - 7 * 2], {"other": 7, "alpha": 2})
        case("aten.mul.Scalar", [x], [x * 5], {"other": 5})
    large = torch.tensor([2**53 + 1, 2**40 + 3, -(2**53) - 3])
    case("aten.add.Scalar", [large], [large + 2], {"other": 2}, tag="beyond_f64")


def comparisons():
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        fn = getattr(torch, name)
        for dtype in FLOATS + INTS + ("bool",):
            for one, two in ((37,), (37,)), ((3, 1, 5), (4, 1)):
                if dtype == "bool":
                    a, b = randint(0, 2, *one).bool(), randint(0, 2, *two).bool()
                else:  # few values, so that all three outcomes occur
                    a, b = randint(0, 4, *one).to(DTYPES[dtype]), randint(0, 4, *two).to(DTYPES[dtype])
                case(f"aten.{name}.Tensor", [a, b], [fn(a, b)])
        a, b = value([NAN, 1.0, NAN, INF, -INF, 0.0, -1.0]), value([NAN, NAN, 2.0, INF, INF, -0.0, 1.0])
        for dtype in FLOATS:
            case(f"aten.{name}.Tensor", [a.to(DTYPES[dtype]), b.to(DTYPES[dtype])], [fn(a, b)], tag="nan")
        for dtype in FLOATS + ("i32", "i64"):
            x = randint(-3, 4, 21).to(DTYPES[dtype])
            case(f"aten.{name}.Scalar", [x], [fn(x, 1)], {"other": 1})
        case(f"aten.{name}.Scalar", [a], [fn(a, 0.0)], {"other": 0.0}, tag="nan")
        a, b = torch.tensor([2**53 + 1, -3, 4]), torch.tensor([2**53, -3, 5])
        case(f"aten.{name}.Tensor", [a, b], [fn(a, b)], tag="beyond_f64")
        a, b = torch.tensor([200, 3, 128], dtype=torch.uint8), torch.tensor([100, 3, 127], dtype=torch.uint8)
        case(f"aten.{name}.Tensor", [a, b], [fn(a, b)], tag="unsigned")
    for name in ("logical_and", "logical_or", "logical_xor"):
        fn = getattr(torch, name)
        for dtype in ("bool", "f32", "bf16", "i32", "u8", "i64"):
            a, b = randint(0, 3, 3, 7).to(DTYPES[dtype]), randint(0, 2, 7).to(DTYPES[dtype])
            case(f"aten.{name}", [a, b], [fn(a, b)])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        fn = getattr(torch, name)
        for dtype in INTS + ("bool",):
            low, high = {"bool": (0, 2), "u8": (0, 256), "i8": (-128, 128)}.get(dtype, (-1000, 1000))
            a, b = randint(low, high, 3, 7).to(DTYPES[dtype]), randint(low, high, 3, 1).to(DTYPES[dtype])
            case(f"aten.{name}.Tensor", [a, b], [fn(a, b)])
    for dtype in FLOATS + ("i32", "i64", "u8", "bool"):
        for c, one, two in (
            ((37,), (37,), (37,)),
            ((3, 1), (1, 5), (3, 5)),
            ((2, 3, 4), (), (4,)),
            ((4,), (3, 4), (2, 1, 1)),
            ((1,), (0, 2), (1, 2)),
        ):
            cond = randint(0, 2, *c).bool()
            a, b = (randint(0, 50, *s).to(DTYPES[dtype]) for s in (one, two))
            case("aten.where.self", [cond, a, b], [torch.where(cond, a, b)])
    case(
        "aten.where.self",
        [torch.tensor([True, False]), value([NAN, NAN]), value([1.0, 2.0])],
        [value([NAN, 2.0])],
        tag="nan",
    )


# ---------------------------------------------------------------- matrices


def matmul_tol(dtype, expected, k):
    """f32 sums in any order: about sqrt(k) roundings of the largest partial sums."""
    return tolerance(dtype, expected, ulps=4, loose=2e-7 * math.sqrt(max(k, 1)) + 1e-7)


def matrices():
    for dtype in FLOATS:
        for m, k, n in (
            (1, 37, 19),
            (1, 64, 33),
            (5, 33, 17),
            (16, 32, 18),
            (33, 65, 9),
            (3, 200, 9),
            (1, 1, 1),
            (7, 1, 5),
            (2, 16, 1),
            (0, 8, 5),
            (3, 0, 4),
            (3, 8, 0),
        ):
            a, b = randn(m, k, dtype=dtype), randn(k, n, dtype=dtype)
            out = rounded(f64(a) @ f64(b), dtype)
            case("aten.mm", [a, b], [out], tol=matmul_tol(dtype, out, k))
        for b_, m, k, n in ((3, 1, 24, 7), (2, 5, 9, 11), (1, 17, 16, 3), (0, 2, 3, 4)):
            a, b = randn(b_, m, k, dtype=dtype), randn(b_, k, n, dtype=dtype)
            out = rounded(f64(a) @ f64(b), dtype)
            case("aten.bmm", [a, b], [out], tol=matmul_tol(dtype, out, k))
        for shape in ((11,), (5, 11), (1, 11), (5, 1)):
            bias, a, b = randn(*shape, dtype=dtype), randn(5, 23, dtype=dtype), randn(23, 11, dtype=dtype)
            out = rounded(f64(bias) + f64(a) @ f64(b), dtype)
            case("aten.addmm", [bias, a, b], [out], tol=matmul_tol(dtype, out, 23))
        out = rounded(0.5 * f64(bias) + 2.0 * (f64(a) @ f64(b)), dtype)
        case("aten.addmm", [bias, a, b], [out], {"beta": 0.5, "alpha": 2.0}, matmul_tol(dtype, out, 23))
        poison = torch.full((5, 11), NAN, dtype=DTYPES[dtype])  # beta 0 ignores the bias altogether
        out = rounded(f64(a) @ f64(b), dtype)
        case("aten.addmm", [poison, a, b], [out], {"beta": 0.0}, matmul_tol(dtype, out, 23), tag="beta0")
        for lead, k, n, with_bias in (
            ((1,), 48, 33, False),
            ((1,), 96, 19, True),
            ((2, 3), 17, 10, True),
            ((17,), 40, 12, False),
            ((4,), 100, 8, True),
            ((64,), 24, 5, False),
            ((), 12, 5, True),
            ((0,), 6, 4, True),
        ):
            x, w = randn(*lead, k, dtype=dtype), randn(n, k, dtype=dtype)
            bias = randn(n, dtype=dtype) if with_bias else None
            out = f64(x) @ f64(w).t()
            out = rounded(out if bias is None else out + f64(bias), dtype)
            case("aten.linear", [x, w, bias] if with_bias else [x, w], [out], tol=matmul_tol(dtype, out, k))
        a, b = torch.full((2, 160), 20.0, dtype=DTYPES[dtype]), torch.full((160, 3), 0.25, dtype=DTYPES[dtype])
        case(
            "aten.mm", [a, b], [rounded(f64(a) @ f64(b), dtype)], tol=tolerance(dtype), tag="long_sum"
        )  # 800: too coarse for half-width sums
    for narrow in ("bf16", "f16"):  # weights narrower than the activations
        for m, k, n in ((1, 48, 33), (6, 65, 9), (32, 32, 8)):
            x, w, bias = randn(m, k), randn(n, k, dtype=narrow), randn(n, dtype=narrow)
            out = rounded(f64(x) @ f64(w).t(), "f32")
            case("aten.linear", [x, w], [out], tol=matmul_tol("f32", out, k), tag=f"weight_{narrow}")
            out = rounded(f64(x) @ f64(w).t() + f64(bias), "f32")
            case("aten.linear", [x, w, bias], [out], tol=matmul_tol("f32", out, k), tag=f"weight_{narrow}")
        x, w = randn(5, 37), randn(37, 19, dtype=narrow)
        out = rounded(f64(x) @ f64(w), "f32")
        case("aten.mm", [x, w], [out], tol=matmul_tol("f32", out, 37), tag=f"weight_{narrow}")
    for dtype in FLOATS:
        table = randn(13, 9, dtype=dtype)
        for index in (
            torch.tensor([0, 12, 5, 5, 1]),
            torch.tensor([[3, 1], [0, 12]], dtype=torch.int32),
            torch.zeros(0, dtype=torch.int64),
            torch.tensor(7),
        ):
            case("aten.embedding", [table, index], [table[index.long()]])


# ---------------------------------------------------------------- normalisation, attention


def rms(x, gamma, eps):
    """In f64: the norm, and what it divides by."""
    rstd = (x.double().pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return x.double() * rstd * gamma.double(), rstd


def norms():
    for dtype in FLOATS:
        for shape, normalized in (
            ((5, 37), (37,)),
            ((2, 3, 16), (16,)),
            ((2, 3, 4, 5), (4, 5)),
            ((1, 1), (1,)),
            ((0, 8), (8,)),
            ((130,), (130,)),
        ):
            for affine in (2, 1, 0):
                x = randn(*shape, dtype=dtype, scale=1.5, shift=0.3)
                w = randn(*normalized, dtype=dtype) if affine else None
                b = randn(*normalized, dtype=dtype) if affine == 2 else None
                out = rounded(torch.nn.functional.layer_norm(f64(x), normalized, f64(w), f64(b), 1e-5), dtype)
                case(
                    "aten.layer_norm",
                    [t for t in (x, w, b) if t is not None],
                    [out],
                    {"normalized_shape": list(normalized), "eps": 1e-5},
                    tolerance(dtype, out, ulps=8, loose=2e-6) if normalized != (1,) else (2 * ULP[dtype], 5e-5),
                )
        x = randn(3, 40, dtype=dtype, scale=1e-3)
        out = rounded(torch.nn.functional.layer_norm(f64(x), (40,), eps=1e-5), dtype)
        case(
            "aten.layer_norm",
            [x],
            [out],
            {"normalized_shape": [40], "eps": 1e-5},
            tolerance(dtype, out, ulps=8, loose=2e-6),
            tag="eps",
        )
    x = randn(3, 64, scale=1.0, shift=300.0)  # the variance is not mean(x^2) - mean(x)^2
    out = rounded(torch.nn.functional.layer_norm(f64(x), (64,), eps=1e-5), "f32")
    case("aten.layer_norm", [x], [out], {"normalized_shape": [64], "eps": 1e-5}, (1e-5, 2e-4), tag="shifted")

    for dtype in FLOATS:
        for shape, scale, eps in (
            ((5, 37), 1.0, 1e-6),
            ((1, 64), 1.0, 1e-6),
            ((2, 3, 16), 0.01, 1e-4),
            ((7, 1), 1.0, 1e-6),
            ((0, 12), 1.0, 1e-6),
            ((130,), 3.0, 1e-5),
            ((2, 100), 200.0, 1e-6),
        ):
            x, gamma = randn(*shape, dtype=dtype, scale=scale), randn(shape[-1], dtype=dtype, scale=0.5, shift=1.0)
            y, rstd = rms(x, gamma, eps)
            case(
                "npu.rms_norm",
                [x, gamma],
                [rounded(y, dtype), rstd.float()],
                {"epsilon": eps},
                tolerance(dtype, y, ulps=8, loose=1e-6),
            )
            x2 = randn(*shape, dtype=dtype, scale=scale)
            kept = rounded(f64(x) + f64(x2), dtype)  # y is of the sum as it is returned
            y, rstd = rms(kept, gamma, eps)
            case(
                "npu.add_rms_norm",
                [x, x2, gamma],
                [rounded(y, dtype), rstd.float(), kept],
                {"epsilon": eps},
                tolerance(dtype, y, ulps=8, loose=1e-6),
            )
    for narrow in ("bf16", "f16"):
        x, gamma = randn(4, 33), randn(33, dtype=narrow, scale=0.5, shift=1.0)
        y, rstd = rms(x, gamma, 1e-6)
        case(
            "npu.rms_norm",
            [x, gamma],
            [y.float(), rstd.float()],
            {"epsilon": 1e-6},
            tolerance("f32", y, ulps=8, loose=1e-6),
            tag=f"gamma_{narrow}",
        )
    x, gamma = randn(3, 20), randn(20)
    y, rstd = rms(x, gamma, 1e-6)
    case(
        "npu.rms_norm",
        [x, gamma],
        [y.float(), rstd.float()],
        {},
        tolerance("f32", y, ulps=8, loose=1e-6),
        tag="default_epsilon",
    )

    for op, fn in (("aten._softmax", torch.softmax), ("aten._log_softmax", torch.log_softmax)):
        for dtype in FLOATS:
            for shape, dim in (
                ((5, 37), -1),
                ((5, 37), 0),
                ((2, 3, 16), 1),
                ((4, 1), 1),
                ((0, 5), 1),
                ((130,), 0),
                ((2, 200), 1),
            ):
                x = randn(*shape, dtype=dtype, scale=3.0)
                out = rounded(fn(f64(x), dim), dtype)
                case(op, [x], [out], {"dim": dim, "half_to_float": False}, tolerance(dtype, out, ulps=16, loose=3e-7))
            x = randn(3, 19, dtype=dtype, shift=1000.0, scale=8.0)  # e^x alone overflows
            out = rounded(fn(f64(x), -1), dtype)
            case(op, [x], [out], {"dim": -1}, tolerance(dtype, out, ulps=16, loose=3e-7), tag="large")
            x[:, ::3] = -INF
            out = rounded(fn(f64(x), -1), dtype)
            case(op, [x], [out], {"dim": -1}, tolerance(dtype, out, ulps=16, loose=3e-7), tag="masked")
        for dtype in ("f16", "bf16"):
            x = randn(4, 21, dtype=dtype, scale=3.0)
            out = fn(f64(x), 1).float()
            case(
                op,
                [x],
                [out],
                {"dim": 1, "half_to_float": True},
                tolerance("f32", out, ulps=16, loose=3e-7),
                tag="to_float",
            )


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def fused():
    for dtype in FLOATS:
        for t, h, d, rank3, narrow in (
            (5, 3, 16, True, False),
            (1, 6, 32, False, False),
            (7, 1, 20, False, True),
            (3, 2, 2, True, True),
            (0, 2, 8, True, False),
        ):
            x = randn(t, h, d, dtype=dtype)
            angle = torch.rand(t, d // 2, generator=gen, dtype=torch.float64) * 6.28
            angle = torch.cat([angle, angle], -1)
            if t == 7:  # nothing says that the two halves are equal
                angle = torch.rand(t, d, generator=gen, dtype=torch.float64) * 6.28
            cos, sin = (f(angle).to(DTYPES[dtype] if narrow else torch.float32) for f in (torch.cos, torch.sin))
            if rank3:
                cos, sin = cos[:, None], sin[:, None]
            c, s = (f64(v) if rank3 else f64(v)[:, None] for v in (cos, sin))
            out = rounded(f64(x) * c + rotate_half(f64(x)) * s, dtype)
            case(
                "npu.rotary_mul",
                [x, cos, sin],
                [out],
                {"rotary_mode": "half"},
                tolerance(dtype, out, ulps=4, loose=3e-7),
            )
        for shape, dim in (
            ((5, 34), -1),
            ((1, 128), -1),
            ((2, 3, 2), -1),
            ((4, 6, 5), 1),
            ((6, 7), 0),
            ((0, 8), -1),
            ((3, 2, 62), 2),
        ):
            x = randn(*shape, dtype=dtype, scale=2.0)
            a, b = f64(x).chunk(2, dim)
            out = rounded(a * torch.sigmoid(a) * b, dtype)
            case("npu.swiglu", [x], [out], {"dim": dim}, tolerance(dtype, out, ulps=8, loose=1e-7))


def attend(q, k, v, scale):
    """Causal attention of the last rows: q[Q,H,D] on k, v[L,KH,D] -> [Q,H,D], in f64."""
    (rows, heads, _), (length, kv_heads, _) = q.shape, k.shape
    k, v = (t.double().repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    score = torch.einsum("qhd,lhd->hql", q.double(), k) * scale
    seen = torch.arange(length)[None, :] <= torch.arange(length - rows, length)[:, None]
    return torch.einsum("hql,lhd->qhd", torch.softmax(score.masked_fill(~seen, -INF), -1), v)


def attention():
    # heads, kv heads, head size, block size, [(rows of queries, context length with them)], scale, tail of the table
    table = [
        (4, 4, 8, 8, [(1, 1), (1, 5), (1, 8), (1, 9), (1, 20)], None, 0),
        (6, 2, 20, 8, [(7, 20), (1, 9), (4, 4)], None, 0),
        (8, 2, 16, 4, [(3, 3), (1, 31), (0, 6), (5, 6)], 0.11, 0),
        (4, 1, 32, 16, [(1, 48)], None, 0),
        (3, 1, 8, 1, [(2, 5), (1, 3)], 1.0, 0),
        (2, 2, 12, 8, [(9, 9), (0, 0), (1, 2)], None, -1),
        (6, 2, 32, 8, [(1, 35), (9, 17)], None, 0),
    ]
    for dtype, cache_dtype in (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "f16")):
        for heads, kv_heads, d, bs, lengths, scale, tail in table:
            if (dtype != cache_dtype and d not in (8, 16)) or (dtype != "f32" and d == 32):
                continue
            scale = scale or 1.0 / math.sqrt(d)
            per = [-(-length // bs) for _, length in lengths]
            blocks, width = sum(per) + 1, max(per) + 1
            order = torch.randperm(blocks, generator=gen).tolist()
            # What no sequence owns is garbage: a read beyond a context shows.
            kc, vc = (torch.full((blocks, bs, kv_heads, d), 50.0 * s, dtype=DTYPES[cache_dtype]) for s in (1, -1))
            bt = torch.full((len(lengths), width), tail, dtype=torch.int32)
            qs, outs, used = [], [], 0
            for s, (rows, length) in enumerate(lengths):
                q = randn(rows, heads, d, dtype=dtype, scale=1.5)
                k, v = randn(length, kv_heads, d, dtype=cache_dtype), randn(length, kv_heads, d, dtype=cache_dtype)
                mine = order[used : used + per[s]]
                used += per[s]
                bt[s, : per[s]] = torch.tensor(mine, dtype=torch.int32)
                for i in range(length):
                    kc[mine[i // bs], i % bs], vc[mine[i // bs], i % bs] = k[i], v[i]
                out = rounded(attend(q, k, v, scale), dtype)
                qs.append(q)
                outs.append(out)
                if dtype == cache_dtype == "f32" and rows > 0 and d <= 16:
                    case(
                        "sdpa",
                        [q, k, v],
                        [out],
                        {"scale": scale, "is_causal": True, "enable_gqa": True},
                        tolerance(dtype, out, ulps=32, loose=2e-6),
                        tag="dense",
                    )
            out = torch.cat(outs)
            case(
                "npu.fused_infer_attention_score",
                [
                    torch.cat(qs),
                    kc,
                    vc,
                    bt,
                    torch.tensor([r for r, _ in lengths]).cumsum(0),
                    torch.tensor([n for _, n in lengths]),
                ],
                [out],
                {
                    "num_heads": heads,
                    "num_key_value_heads": kv_heads,
                    "scale": scale,
                    "block_size": bs,
                    "input_layout": "TND",
                    "sparse_mode": 3,
                },
                tolerance(dtype, out, ulps=32, loose=2e-6),
                tag=None if dtype == cache_dtype else f"cache_{cache_dtype}",
            )

    for dtype, cache_dtype in (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "f16")):
        for t, kv_heads, d, nb, bs, slots in (
            (5, 2, 9, 4, 3, [0, 11, 4, -1, 7]),
            (1, 1, 8, 2, 4, [6]),
            (3, 3, 8, 3, 1, [2, 0, 1]),
            (2, 1, 4, 1, 4, [-1, -1]),
        ):
            k, v = randn(t, kv_heads, d, dtype=dtype), randn(t, kv_heads, d, dtype=dtype)
            kc, vc = randn(nb, bs, kv_heads, d, dtype=cache_dtype), randn(nb, bs, kv_heads, d, dtype=cache_dtype)
            k2, v2 = kc.clone(), vc.clone()
            for row, slot in enumerate(slots):
                if slot >= 0:
                    k2[slot // bs, slot % bs], v2[slot // bs, slot % bs] = k[row].to(k2.dtype), v[row].to(v2.dtype)
            case(
                "npu.scatter_pa_kv_cache",
                [k, v, torch.tensor(slots, dtype=torch.int32), kc, vc],
                [],
                mutates=[(3, k2), (4, v2)],
                tag=None if dtype == cache_dtype else f"cache_{cache_dtype}",
            )

    # Only rows whose outcome no draw can change: temperature 0, top_k 1, a top_p below the first share.
    for dtype in ("f32",):
        logits = randn(6, 67, dtype=dtype, scale=3.0)
        logits[1, 5] = logits[1, 60] = 20.0  # a tie: the lower id
        logits[2, 66] = 15.0
        logits[3, 0] = 15.0
        case(
            "npu.top_k_top_p_sample",
            [
                logits,
                value([0.0, 0.0, 0.7, 1.3, 1.0, 0.0]),
                torch.tensor([0, 0, 1, 1, 0, 5], dtype=torch.int32),
                value([1.0, 1.0, 1.0, 0.9, 1e-6, 0.5]),
                torch.arange(6) + 40,
                torch.arange(6),
            ],
            [logits.argmax(1).int()],
            tag="greedy",
        )


# ---------------------------------------------------------------- reductions


def reductions():
    for dtype in FLOATS:
        x = randn(3, 5, 7, dtype=dtype, scale=2.0)
        for dims, keepdim in (
            ([-1], False),
            ([0], True),
            ([1], False),
            ([0, 2], False),
            ([], False),
            ([0, 1, 2], True),
        ):
            over = dims if dims else [0, 1, 2]
            attrs = {"dim": dims, "keepdim": keepdim}
            for op, fn in (("aten.sum.dim_IntList", torch.sum), ("aten.mean.dim", torch.mean)):
                out = rounded(fn(f64(x), over, keepdim=keepdim), dtype)
                case(op, [x], [out], attrs, tolerance(dtype, out, ulps=4, loose=1e-6))
            for op, fn in (("aten.amax", torch.amax), ("aten.amin", torch.amin)):
                case(op, [x], [fn(x, over, keepdim=keepdim)], attrs)
        long = randn(2, 1000, dtype=dtype, shift=0.5) if dtype == "f32" else randn(2, 333, dtype=dtype, shift=0.5)
        out = rounded(f64(long).sum(1), dtype)
        case(
            "aten.sum.dim_IntList",
            [long],
            [out],
            {"dim": [1], "keepdim": False},
            tolerance(dtype, out, ulps=4, loose=1e-6),
            tag="long",
        )
        heavy = torch.full((2, 300), 300.0, dtype=DTYPES[dtype])  # the sum leaves f16, the mean does not
        case(
            "aten.mean.dim",
            [heavy],
            [value([300.0, 300.0], dtype)],
            {"dim": [1], "keepdim": False},
            tolerance(dtype),
            tag="heavy",
        )
        none = torch.zeros(3, 0, dtype=DTYPES[dtype])
        case(
            "aten.sum.dim_IntList",
            [none],
            [torch.zeros(3, dtype=DTYPES[dtype])],
            {"dim": [1], "keepdim": False},
            tag="empty",
        )
        case(
            "aten.sum.dim_IntList",
            [none],
            [torch.zeros(1, 0, dtype=DTYPES[dtype])],
            {"dim": [0], "keepdim": True},
            tag="empty",
        )
        case(
            "aten.mean.dim",
            [none],
            [torch.full((3,), NAN, dtype=DTYPES[dtype])],
            {"dim": [1], "keepdim": False},
            tag="empty",
        )
        case(
            "aten.prod.dim_int", [none], [torch.ones(3, dtype=DTYPES[dtype])], {"dim": 1, "keepdim": False}, tag="empty"
        )
        for dim, keepdim in ((0, False), (-1, True), (1, False)):
            out = rounded(torch.prod(f64(x), dim, keepdim), dtype)
            case("aten.prod.dim_int", [x], [out], {"dim": dim, "keepdim": keepdim}, tolerance(dtype, out, ulps=8))
        poisoned = x.clone()
        poisoned[1, 2, 3] = NAN
        for op, fn in (("aten.amax", torch.amax), ("aten.amin", torch.amin)):
            case(op, [poisoned], [fn(poisoned, [2])], {"dim": [2], "keepdim": False}, tag="nan")
            low = torch.full((2, 37), -INF if op == "aten.amax" else INF, dtype=DTYPES[dtype])
            case(op, [low], [fn(low, [1])], {"dim": [1], "keepdim": False}, tag="infinite")
            signed = (
                -(randn(2, 37, dtype=dtype).abs() + 1) if op == "aten.amax" else randn(2, 37, dtype=dtype).abs() + 1
            )
            case(op, [signed], [fn(signed, [1])], {"dim": [1], "keepdim": False}, tag="one_sign")

        many = randn(4, 67, dtype=dtype)
        few = randint(0, 4, 3, 37).to(DTYPES[dtype])  # ties: the first
        for op, fn in (("aten.argmax", torch.argmax), ("aten.argmin", torch.argmin)):

            def first(t, dim, keepdim, sign=1 if op == "aten.argmax" else -1):
                best = (t.double() * sign).amax(dim, keepdim=True)
                return (t.double() * sign == best).to(torch.uint8).argmax(dim, keepdim)

            for t, dim, keepdim in (
                (many, 1, False),
                (many, 0, True),
                (few, -1, False),
                (x, 1, True),
                (many[0], 0, False),
            ):
                case(op, [t], [first(t, dim, keepdim)], {"dim": dim, "keepdim": keepdim})
            case(op, [poisoned], [fn(poisoned, 2)], {"dim": 2, "keepdim": False}, tag="nan")
            flat = torch.full((2, 20), -INF if op == "aten.argmax" else INF, dtype=DTYPES[dtype])
            case(op, [flat], [torch.zeros(2, dtype=torch.int64)], {"dim": 1, "keepdim": False}, tag="infinite")

        def topk(t, k, dim, largest):
            order = torch.argsort(t.double(), dim=dim, descending=largest, stable=True).narrow(dim, 0, k)
            return [t.gather(dim, order), order]

        for t, k, dim, largest in (
            (many, 5, -1, True),
            (many, 1, 1, True),
            (many, 3, 0, False),
            (few, 9, 1, True),
            (few, 9, 1, False),
            (many, 67, 1, True),
            (many, 20, 1, True),
            (many[0], 0, 0, True),
        ):
            case("aten.topk", [t], topk(t, k, dim, largest), {"k": k, "dim": dim, "largest": largest, "sorted": True})
        for t, dim in ((x, 1), (x, -1), (x, 0), (many, 1)):
            out = rounded(f64(t).cumsum(dim), dtype)
            case("aten.cumsum", [t], [out], {"dim": dim}, tolerance(dtype, out, ulps=4, loose=2e-6))
    for dtype in INTS + ("bool",):
        x = randint(0, 100, 3, 5, 7).to(DTYPES[dtype]) if dtype != "bool" else randint(0, 2, 3, 5, 7).bool()
        case("aten.sum.dim_IntList", [x], [x.sum([1])], {"dim": [1], "keepdim": False})
        case("aten.sum.dim_IntList", [x], [x.sum()], {"dim": [], "keepdim": False})
        case("aten.cumsum", [x], [x.cumsum(1)], {"dim": 1})
        if dtype != "bool":
            case("aten.amax", [x], [x.amax([0, 2])], {"dim": [0, 2], "keepdim": False})
            case("aten.amin", [x], [x.amin([2], keepdim=True)], {"dim": [2], "keepdim": True})
    for dtype in ("i32", "i64"):
        x = randint(-50, 50, 4, 21).to(DTYPES[dtype])
        best = (x == x.amax(1, keepdim=True)).to(torch.uint8).argmax(1)
        case("aten.argmax", [x], [best], {"dim": 1, "keepdim": False})
        case(
            "aten.topk",
            [x],
            [torch.sort(x, 1, True).values[:, :4], torch.argsort(x, dim=1, descending=True, stable=True)[:, :4]],
            {"k": 4, "dim": 1, "largest": True, "sorted": True},
        )
    x = randint(1, 9, 3, 6)
    case("aten.prod.dim_int", [x], [torch.prod(x, 1)], {"dim": 1, "keepdim": False})
    for dtype in ("bf16", "f16"):
        x = randn(3, 50, dtype=dtype, scale=2.0)
        out = f64(x).sum(1).float()
        case(
            "aten.sum.dim_IntList",
            [x],
            [out],
            {"dim": [1], "keepdim": False, "dtype": "f32"},
            tolerance("f32", out, ulps=4, loose=1e-6),
            tag="to_f32",
        )
        out = f64(x).mean(1).float()
        case(
            "aten.mean.dim",
            [x],
            [out],
            {"dim": [1], "keepdim": False, "dtype": "f32"},
            tolerance("f32", out, ulps=4, loose=1e-6),
            tag="to_f32",
        )


# ---------------------------------------------------------------- indexing, views, makers


def sample_of(dtype, *shape):
    if dtype == "bool":
        return randint(0, 2, *shape).bool()
    return randn(*shape, dtype=dtype) if dtype in FLOATS else randint(0, 120, *shape).to(DTYPES[dtype])


def indexing():
    for dtype in ("f32", "bf16", "i64", "u8", "bool"):  # moving data depends on the elements' size alone
        x = sample_of(dtype, 4, 5, 6)
        parts = [sample_of(dtype, 4, n, 6) for n in (1, 0, 3, 2, 5)]
        case("aten.cat", parts, [torch.cat(parts, 1)], {"dim": 1})
        case("aten.cat", [x, x[:1]], [torch.cat([x, x[:1]], 0)], {"dim": 0})
        case("aten.cat", [x, x[..., :1]], [torch.cat([x, x[..., :1]], -1)], {"dim": -1})
        case("aten.cat", [x], [x], {"dim": 2})
        case("aten.split_with_sizes", [x], list(torch.split(x, [2, 0, 3], 1)), {"split_sizes": [2, 0, 3], "dim": 1})
        case("aten.split_with_sizes", [x], list(torch.split(x, [1, 5], -1)), {"split_sizes": [1, 5], "dim": -1})
        for dim, start, end, step in (
            (0, 1, 3, 1),
            (1, 0, 2**63 - 1, 2),
            (2, -3, -1, 1),
            (-1, 1, 100, 3),
            (0, 3, 2, 1),
            (1, -100, 4, 1),
        ):
            sl = [slice(None)] * 3
            sl[dim] = slice(start, end, step)
            case("aten.slice.Tensor", [x], [x[tuple(sl)]], {"dim": dim, "start": start, "end": end, "step": step})
        for dim, index in ((0, 3), (1, -2), (-1, 0)):
            case("aten.select.int", [x], [x.select(dim, index)], {"dim": dim, "index": index})
        rows = torch.tensor([3, 0, 0, 2, 1, 3])
        case("aten.index_select", [x, rows], [x.index_select(0, rows)], {"dim": 0})
        case("aten.index_select", [x, rows[:3].int()], [x.index_select(-1, rows[:3])], {"dim": -1})
        case("aten.index.Tensor", [x, rows], [x[rows]])
        case("aten.index.Tensor", [x, rows.view(2, 3).int()], [x[rows.view(2, 3)]])
        case("aten.index.Tensor", [x, rows[:0]], [x[rows[:0]]])
        for dim in (0, 1, -1):
            index = randint(0, x.shape[dim], 3, 4, 5)  # smaller than x in the other dimensions
            case("aten.gather", [x, index], [x.gather(dim, index)], {"dim": dim})
            index = randint(0, x.shape[dim], 3, 4, 5)
            src, out = sample_of(dtype, 3, 4, 5), x.clone()
            for i in range(3):
                for j in range(4):
                    for k in range(5):  # in order: the last write wins
                        at = [i, j, k]
                        at[dim] = int(index[i, j, k])
                        out[tuple(at)] = src[i, j, k]
            case("aten.scatter.src", [x, index, src], [out], {"dim": dim})
        where, values, out = torch.tensor([2, 0, 2]), sample_of(dtype, 3, 5, 6), x.clone()
        for i in range(3):
            out[where[i]] = values[i]
        case("aten.index_put", [x, where, values], [out])
        case("aten.view", [x], [x.view(20, 6)], {"size": [20, 6]})
        case("aten.view", [x], [x.view(2, 2, 30)], {"size": [2, -1, 30]})
        case("aten.reshape", [x], [x.reshape(-1)], {"shape": [-1]})
        case("aten.permute", [x], [x.permute(2, 0, 1)], {"dims": [2, 0, 1]})
        case("aten.permute", [x], [x.permute(0, 2, 1)], {"dims": [0, -1, 1]})
        case("aten.transpose.int", [x], [x.transpose(0, -1)], {"dim0": 0, "dim1": -1})
        case("aten.t", [x[0]], [x[0].t()])
        thin = x[:, :1]
        case("aten.expand", [thin], [thin.expand(4, 3, 6)], {"size": [-1, 3, 6]})
        case("aten.expand", [thin], [thin.expand(2, 4, 1, 6)], {"size": [2, -1, -1, 6]})
        case("aten.unsqueeze", [x], [x.unsqueeze(1)], {"dim": 1})
        case("aten.unsqueeze", [x], [x.unsqueeze(-1)], {"dim": -1})
        case("aten.squeeze.dim", [thin], [thin.squeeze(1)], {"dim": 1})
        case("aten.squeeze.dim", [thin], [thin], {"dim": 0})
        for diagonal in (0, 2, -3):
            case("aten.tril", [x], [x.tril(diagonal)], {"diagonal": diagonal})
            case("aten.triu", [x], [x.triu(diagonal)], {"diagonal": diagonal})
    six = torch.arange(2 * 3 * 2 * 1 * 2 * 3, dtype=torch.float32).view(2, 3, 2, 1, 2, 3)
    case("aten.permute", [six], [six.permute(5, 1, 3, 0, 4, 2)], {"dims": [5, 1, 3, 0, 4, 2]}, tag="rank6")
    case("aten.view", [torch.zeros(0, 4)], [torch.zeros(2, 0, 3)], {"size": [2, 0, 3]}, tag="empty")

    # Casts: to nearest even, past the range, towards zero, modulo 2^n.
    tricky = value(
        [
            0.0,
            -0.0,
            1.0,
            1.00390625,
            1.01171875,
            1.0078125,
            0.1,
            -0.1,
            3.99,
            -3.99,
            100.5,
            65504.0,
            65519.9,
            65520.0,
            70000.0,
            1e-8,
            6e-8,
            5.9604645e-08,
            2.9802322e-08,
            2.98024e-08,
            1e-40,
            1.0004883,
            1.0014648,
            3.3961776e38,
            INF,
            -INF,
            NAN,
            2049.0,
            2051.0,
        ]
    )
    whole = value([0.0, 1.9, -1.9, 2.5, -2.5, 100.7, -100.7, 120.0, 0.5, -0.99])
    for a in FLOATS:
        for b in FLOATS:
            case("aten._to_copy", [tricky.to(DTYPES[a])], [tricky.to(DTYPES[a]).to(DTYPES[b])], {"dtype": b})
        for b in INTS:
            t = (whole.abs() if b == "u8" else whole).to(DTYPES[a])
            case("aten._to_copy", [t], [t.to(DTYPES[b])], {"dtype": b})
        t = value([0.0, -0.0, 0.25, -1.0, NAN, INF, 1e-7], a)
        case("aten._to_copy", [t], [t.bool()], {"dtype": "bool"})
    numbers = torch.tensor(
        [0, 1, -1, 127, 128, -128, -129, 255, 256, 300, -300, 65535, 2049, 16777217, 2147483647, -2147483648]
    )
    for a in INTS + ("bool",):
        t = numbers.to(DTYPES[a])
        for b in FLOATS + INTS + ("bool",):
            case("aten._to_copy", [t], [t.to(DTYPES[b])], {"dtype": b})
    t = torch.tensor([2**53 + 1, 2**40 + 2**16 + 1, -(2**62) - 12345, 9007199791611905])
    case("aten._to_copy", [t], [t.float()], {"dtype": "f32"}, tag="wide")
    case("aten._to_copy", [t], [t.int()], {"dtype": "i32"}, tag="wide")

    for start, end, step in ((0, 7, 1), (3, 20, 4), (10, 0, -3), (-5, 5, 2), (0, 0, 1), (0, 37, 1)):
        for dtype in ("i64", "i32", "f32", "bf16"):
            case(
                "aten.arange.start_step",
                [],
                [torch.arange(start, end, step).to(DTYPES[dtype])],
                {"start": start, "end": end, "step": step, "dtype": dtype},
            )
    for dtype, fill in (
        ("f32", 0.1),
        ("bf16", -1.5),
        ("f16", 70.0),
        ("i32", -7),
        ("i64", 12345),
        ("bool", 1),
        ("u8", 200),
        ("f32", "-inf"),
    ):
        case(
            "aten.full",
            [],
            [torch.full((3, 5), float(fill), dtype=torch.float64).to(DTYPES[dtype])],
            {"size": [3, 5], "fill_value": fill, "dtype": dtype},
        )
    for a, b, shape in (
        ("f32", "f32", (3, 7)),
        ("bf16", "f32", (5,)),
        ("f32", "f16", (2, 3, 4)),
        ("i64", "i32", (9,)),
        ("u8", "u8", ()),
    ):
        old, new = sample_of(a, *shape), sample_of(b, *shape)
        case("aten.copy_", [old, new], [], mutates=[(0, new.to(DTYPES[a]))])
    case("aten.full", [], [torch.full((), 2.0)], {"size": [], "fill_value": 2.0, "dtype": "f32"})
    case("aten.full", [], [torch.full((0, 2), 2.0)], {"size": [0, 2], "fill_value": 2.0, "dtype": "f32"})


# ---------------------------------------------------------------- quantisation


def steady(t, dtype):
    """t rounded to dtype, and whether an error of f32 sums before that would change nothing."""
    return rounded(t, dtype), torch.equal(rounded(t * (1 + 1e-5), dtype), rounded(t * (1 - 1e-5), dtype))


def whole(t, low, high):
    """t rounded to integers within low..high, and whether no element is near a half."""
    clear = ((t - t.floor() - 0.5).abs() > 2e-3) | (t > high) | (t < low)
    return t.round().clamp(low, high), bool(clear.all())


def tries(make):
    """The first of make()'s results that says it is decided by more than the errors of f32."""
    for _ in range(1000):
        result, clear = make()
        if clear:
            return result
    raise AssertionError("no clear case")


def dynamic(v, smooth):
    """v (f64) by rows -> i8, scale, clear."""
    v = v * (f64(smooth) if smooth is not None else 1)
    scale = v.abs().amax(-1, keepdim=True) / 127
    q, clear = whole(torch.where(scale > 0, v / scale.clamp(min=1e-300), torch.zeros_like(v)), -128, 127)
    return q.to(torch.int8), scale.squeeze(-1).float(), clear


def static(v, scale, zero, divide, dtype="i8"):
    low, high = {"i8": (-128, 127), "u8": (0, 255), "i32": (-(2**31), 2**31 - 1)}[dtype]
    v = v / f64(scale) if divide else v * f64(scale)
    q, clear = whole(v + (0 if zero is None else f64(zero)), low, high)
    return q.to(DTYPES[dtype]), clear


def add_norm(x1, x2, gamma, dtype, eps):
    kept = rounded(f64(x1) + f64(x2), dtype)
    total = f64(kept)
    y = total / torch.sqrt((total * total).mean(-1, keepdim=True) + eps) * f64(gamma)
    if dtype == "f32":
        return y, kept, True
    y, clear = steady(y, dtype)
    return y.double(), kept, clear


def quantised():
    eps = 1e-5
    for dtype in FLOATS:
        exact = tolerance("f32", None, ulps=16)
        for shape in ((3, 37), (2, 3, 16), (1, 70)):
            n = shape[-1]
            for smooth in (None, "f32", dtype):

                def one():
                    x = randn(*shape, dtype=dtype, scale=2.0)
                    s = None if smooth is None else randn(n, dtype=smooth, scale=0.2, shift=1.0)
                    q, scale, clear = dynamic(f64(x), s)
                    return ([x, s], [q, scale]), clear

                case("npu.dynamic_quant", *tries(one), {}, exact)

                def gated(left, mode):
                    x = randn(*shape[:-1], 2 * n, dtype=dtype, scale=2.0)
                    s = None if smooth is None else randn(n, dtype=smooth, scale=2.0, shift=9.0)
                    z = None if mode or smooth is None else randn(n, scale=3.0)
                    a, b = f64(x).chunk(2, -1)
                    v = a * torch.sigmoid(a) * b if left else b * torch.sigmoid(b) * a
                    v, sure = (v, True) if dtype == "f32" else steady(v, dtype)
                    if mode:
                        q, scale, clear = dynamic(f64(v), s)
                    else:
                        q, clear = static(f64(v), torch.ones(1) if s is None else s, z, False)
                        scale = torch.ones(shape[:-1])
                    return ([x, s, z], [q, scale]), clear and sure

                for left in (False, True):
                    for mode in (0, 1):
                        case(
                            "npu.swiglu_quant",
                            *tries(lambda: gated(left, mode)),
                            {"activate_left": left, "quant_mode": mode},
                            exact,
                        )

        x = torch.zeros(2, 5, dtype=DTYPES[dtype])
        case("npu.dynamic_quant", [x], [x.to(torch.int8), torch.zeros(2)], tag="zeros")

        for out in ("i8", "u8", "i32"):
            for shape, axis, divide, scales, zeros in (
                ((4, 37), -1, True, dtype, "f32"),
                ((4, 37), 1, False, "f32", None),
                ((3, 5, 4), 1, True, "f32", "i32"),
                ((6, 3), 0, True, "f32", dtype),
                ((2, 33), -1, True, None, "i32"),
            ):

                def one():
                    x = randn(*shape, dtype=dtype, scale=3.0)
                    n = shape[axis] if scales else 1
                    s = randn(n, dtype=scales or "f32", scale=0.005, shift=0.05)
                    s = s if divide else (1 / s.float())
                    z = None
                    if zeros:
                        z = randint(-9, 9, n, dtype="i32") if zeros == "i32" else randn(n, dtype=zeros, scale=5.0)
                    view = [1] * len(shape)
                    view[axis] = n
                    q, clear = static(f64(x), s.view(view), None if z is None else z.view(view), divide, out)
                    return ([x, s, z], [q]), clear

                case("npu.quantize", *tries(one), {"dtype": out, "axis": axis, "div_mode": divide})

        for shape in ((3, 33), (2, 2, 16), (1, 64)):
            n = shape[-1]

            def operands():
                x1, x2 = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype)
                gamma = randn(n, dtype=dtype, scale=0.3, shift=1.0)
                return x1, x2, gamma, *add_norm(x1, x2, gamma, dtype, eps)

            x1, x2, gamma, y, total, _ = tries(lambda: ((o := operands()), o[-1]))
            y = rounded(y, dtype)
            tol = tolerance(dtype, y, ulps=8, loose=1e-6)
            rstd = 1 / torch.sqrt((f64(total) ** 2).mean(-1, keepdim=True) + eps)
            case(
                "npu.add_rms_norm_cast",
                [x1, x2, gamma],
                [y.float(), y, rstd.float(), total],
                {"epsilon": eps},
                (tol[0] * (1 if dtype == "f32" else 2), tol[1]),
            )
            for beta, zero, second, divide in (
                (False, None, False, True),
                (True, "i32", True, True),
                (False, "f32", True, False),
            ):

                def one():
                    x1, x2, gamma, y, total, sure = operands()
                    b = randn(n, scale=0.5) if beta else None
                    y = y if b is None else y + f64(b)
                    s = [randn(k, scale=0.002, shift=0.03) for k in (n, 1)]
                    s = s if divide else [1 / t for t in s]
                    z = None
                    if zero:
                        z = randint(-9, 9, n, dtype="i32") if zero == "i32" else randn(n, dtype=zero, scale=5.0)
                    q1, clear1 = static(y, s[0], z, divide)
                    q2, clear2 = static(y, s[1], None, divide)
                    if not second:
                        q2, clear2 = torch.zeros(0, dtype=torch.int8), True
                    ins = [x1, x2, gamma, s[0], z, b] + ([s[1]] if second else [])
                    return (ins, [q1, q2, total]), sure and clear1 and clear2

                case(
                    "npu.add_rms_norm_quant",
                    *tries(one),
                    {"axis": -1, "epsilon": eps, "div_mode": divide},
                    tolerance(dtype),
                )
            for smooth, second, beta, mask in (
                (0, False, False, []),
                (1, False, True, [1, 0]),
                (2, True, False, []),
                (1, True, False, [1, 1]),
            ):

                def one():
                    x1, x2, gamma, y, total, sure = operands()
                    b = randn(n, scale=0.5) if beta else None
                    y = y if b is None else y + f64(b)
                    s = [randn(n, scale=0.2, shift=1.0) if i < smooth else None for i in range(2)]
                    q1, s1, clear1 = dynamic(y, s[0])
                    q2, s2, clear2 = dynamic(y, s[1])
                    if not second:
                        q2, s2, clear2 = torch.zeros(0, dtype=torch.int8), torch.zeros(0), True
                    return ([x1, x2, gamma, *s, b], [q1, q2, total, s1, s2]), sure and clear1 and clear2

                case(
                    "npu.add_rms_norm_dynamic_quant",
                    *tries(one),
                    {"epsilon": eps, "output_mask": mask},
                    tolerance(dtype, None, ulps=16),
                )


# ---------------------------------------------------------------- fused operators of a decoder


def linear64(x, w, b, dtype):
    y = f64(x) @ f64(w).t()
    return rounded(y if b is None else y + f64(b), dtype)


def norm64(x, gamma, dtype, eps):
    x = f64(x)
    return rounded(x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * f64(gamma), dtype)


def decoder():
    eps = 1e-5
    # An intermediate result on the edge of two roundings may go either way.
    loose = {"f32": 2e-6, "f16": 1e-3, "bf16": 6e-3}
    for dtype, wtype in (("f32", "f32"), ("f32", "bf16"), ("f32", "f16"), ("bf16", "bf16"), ("f16", "f16")):

        def tol(*outs):
            top = torch.cat([t.double().reshape(-1) for t in outs])
            return (2 * tolerance(dtype, None, ulps=8)[0], tolerance(dtype, top, ulps=8, loose=loose[dtype])[1])

        for shape, sizes in (((3, 37), [21, 5, 16]), ((1, 64), [48]), ((2, 2, 33), [7, 70]), ((9, 32), [64, 17])):
            k = shape[-1]
            for biased in (False, True):
                x = randn(*shape, dtype=dtype)
                gamma = randn(k, dtype=wtype, scale=0.3, shift=1.0)
                ws = [randn(n, k, dtype=wtype, scale=0.3) for n in sizes]
                bs = [randn(n, dtype=wtype) for n in sizes] if biased else []
                none = bs or [None] * len(sizes)
                outs = [linear64(x, w, b, dtype) for w, b in zip(ws, none)]
                case("ngd.multi_linear", [x, *ws, *bs], outs, {"sizes": sizes}, tol(*outs))
                y = norm64(x, gamma, dtype, eps)
                outs = [linear64(y, w, b, dtype) for w, b in zip(ws, none)]
                attrs = {"sizes": sizes, "epsilon": eps}
                case("ngd.rms_norm_linear", [x, gamma, *ws, *bs], outs, attrs, tol(*outs))

                n = sizes[0]
                w, b, residual = ws[0], none[0], randn(*shape[:-1], n, dtype=dtype)
                out = rounded(f64(residual) + f64(linear64(x, w, b, dtype)), dtype)
                case("ngd.linear_add", [x, w, residual, b], [out], {}, tol(out))

                up, ub = randn(n, k, dtype=wtype, scale=0.3), randn(n, dtype=wtype) if biased else None
                for name, rows, extra, attrs in (
                    ("ngd.linear_swiglu", x, [], {}),
                    ("ngd.rms_norm_linear_swiglu", y, [gamma], {"epsilon": eps}),
                ):
                    g, u = f64(linear64(rows, w, b, dtype)), f64(linear64(rows, up, ub, dtype))
                    out = rounded(f64(rounded(g * torch.sigmoid(g), dtype)) * u, dtype)
                    case(name, [x, *extra, w, up, b, ub], [out], attrs, tol(out))

        for cache_dtype in dict.fromkeys((wtype, dtype)):  # a set has another order each time
            for t, heads, kv_heads, d, nb, bs, slots, normed, table in (
                (3, 4, 2, 16, 3, 4, [5, -1, 0], True, "f32"),
                (1, 2, 1, 8, 2, 4, [7], False, dtype),
                (4, 3, 3, 20, 4, 2, [1, 6, 3, 0], True, dtype),
            ):
                q, k, v = (randn(t, h, d, dtype=dtype) for h in (heads, kv_heads, kv_heads))
                gq, gk = (randn(d, dtype=wtype, scale=0.3, shift=1.0) for _ in range(2))
                angle = randn(t, d // 2, scale=3.0).double().repeat(1, 2)
                cos, sin = angle.cos().to(DTYPES[table]), angle.sin().to(DTYPES[table])
                kc, vc = (randn(nb, bs, kv_heads, d, dtype=cache_dtype) for _ in range(2))

                def turned(x, gamma):
                    x = f64(norm64(x, gamma, dtype, eps) if normed else x)
                    a, b = x.chunk(2, -1)
                    return rounded(x * f64(cos)[:, None] + torch.cat((-b, a), -1) * f64(sin)[:, None], dtype)

                out, rotated, k2, v2 = turned(q, gq), turned(k, gk), kc.clone(), vc.clone()
                for row, slot in enumerate(slots):
                    if slot >= 0:
                        k2[slot // bs, slot % bs] = rotated[row].to(k2.dtype)
                        v2[slot // bs, slot % bs] = v[row].to(v2.dtype)
                low = cache_dtype if cache_dtype != "f32" else dtype
                wide = tolerance(low, torch.cat((out.double().reshape(-1), k2.double().reshape(-1))), 8, loose[dtype])
                case(
                    "ngd.qk_norm_rope_scatter",
                    [q, k, v, cos, sin, torch.tensor(slots, dtype=torch.int32), kc, vc] + ([gq, gk] if normed else []),
                    [out],
                    {"epsilon": eps},
                    (2 * wide[0], wide[1]),
                    mutates=[(6, k2), (7, v2)],
                    tag=None if cache_dtype == dtype else f"cache_{cache_dtype}",
                )

    for dtype, wtype in (("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16"), ("f16", "f16")):
        for shape, wshape, px, pw, py in (
            ((2, 3, 16), (2, 16, 5), [], [], []),
            ((3, 2, 16), (2, 16, 5), [1, 0, 2], [0, 1, 2], [1, 0, 2]),
            ((2, 3, 16), (2, 5, 16), [0, 1, 2], [0, 2, 1], [0, 1, 2]),
            ((4, 1, 33), (33, 1, 20), [1, 0, 2], [1, 0, 2], [1, 0, 2]),
            ((2, 50, 32), (2, 32, 40), [0, 1, 2], [0, 1, 2], [1, 0, 2]),
        ):
            x, w = randn(*shape, dtype=dtype), randn(*wshape, dtype=wtype, scale=0.3)
            y = f64(x).permute(px or [0, 1, 2]) @ f64(w).permute(pw or [0, 1, 2])
            out = rounded(y.permute(py or [1, 0, 2]), dtype)
            attrs = {"perm_x1": px, "perm_x2": pw, "perm_y": py}
            case("npu.transpose_batchmatmul", [x, w], [out], attrs, tolerance(dtype, out, ulps=16, loose=1e-6))


# ---------------------------------------------------------------- updates of a tensor, padding, and what came later


def updates():
    """Appended: operators above keep their random numbers."""
    for dtype in ("f32", "bf16", "f16", "i64", "u8", "bool"):
        x = sample_of(dtype, 4, 5, 6)
        floats = dtype in FLOATS
        fill = 2.5 if floats else 1
        for dim in (0, 1, -1):
            index = randint(0, x.shape[dim], 3, 4, 5)
            case("aten.scatter.value", [x, index], [x.scatter(dim, index, fill)], {"dim": dim, "value": fill})
            for start, end, step in ((1, 3, 1), (0, 2**63 - 1, 2), (-3, -1, 1), (3, 2, 1), (-100, 100, 3)):
                at = [slice(None)] * 3
                at[dim] = slice(start, end, step)
                src = sample_of(dtype, *x[tuple(at)].shape)
                out = torch.slice_scatter(x, src, dim, start, end, step)
                attrs = {"dim": dim, "start": start, "end": end, "step": step}
                case("aten.slice_scatter", [x, src], [out], attrs)
            for index in (0, 2, -1):
                src = sample_of(dtype, *x.select(dim, 0).shape)
                case(
                    "aten.select_scatter",
                    [x, src],
                    [torch.select_scatter(x, src, dim, index)],
                    {"dim": dim, "index": index},
                )
        for pad in ([], [1, 2], [0, 3, 2, 0], [1, 0, 0, 1, 2, 3]):
            out = torch.nn.functional.pad(x, pad, value=fill) if pad else x
            case("aten.constant_pad_nd", [x], [out], {"pad": pad, "value": fill})
        case("aten.constant_pad_nd", [x[:0]], [torch.nn.functional.pad(x[:0], [1, 1, 0, 0, 2, 0])], {"pad": [1, 1, 0, 0, 2, 0]})
        where, values = torch.tensor([[3, 2], [0, -3]]), sample_of(dtype, 2, 2, 5, 6)  # no place twice
        case("aten.index_put", [x, where.int(), values], [x.index_put((where,), values)])
        if dtype == "bool":
            continue
        loose = tolerance(dtype) if floats else (0.0, 0.0)
        # sums in order, each rounded
        rows, values, out = torch.tensor([2, 0, 2, -1, 2]), sample_of(dtype, 5, 5, 6), x.clone()
        for i, row in enumerate(rows):
            out[row] += values[i]
        case("aten.index_put", [x, rows, values], [out], {"accumulate": True}, loose)
        for dim in (0, 1, -1):
            index, src, out = randint(0, x.shape[dim], 3, 4, 5), sample_of(dtype, 3, 5, 5), x.clone()
            for i in range(3):
                for j in range(4):
                    for k in range(5):
                        at = [i, j, k]
                        at[dim] = int(index[i, j, k])
                        out[tuple(at)] += src[i, j, k]
            case("aten.scatter_add", [x, index, src], [out], {"dim": dim}, loose)
    for dtype in FLOATS:
        x = value([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 7.9, -7.9, INF, -INF, NAN, 1e-3, -1e-3], dtype)
        wide = randn(3, 37, dtype=dtype, scale=3.0)
        for t in (x, wide):
            case("aten.sign", [t], [torch.sign(t)])
            case("aten.trunc", [t], [torch.trunc(t)])
            case("aten.isnan", [t], [torch.isnan(t)])
            case("aten.isinf", [t], [torch.isinf(t)])
            for slope in (0.01, 0.3, 0.0):
                out = rounded(torch.nn.functional.leaky_relu(f64(t), slope), dtype)
                attrs = {} if slope == 0.01 else {"negative_slope": slope}
                case("aten.leaky_relu", [t], [out], attrs, tolerance(dtype, out))
    for dtype in INTS:
        x = value([0, 1, 5, 100], dtype) if dtype == "u8" else value([0, 1, -1, 100, -100], dtype)
        case("aten.sign", [x], [torch.sign(x)])
        case("aten.isnan", [x], [torch.isnan(x)])
        case("aten.isinf", [x], [torch.isinf(x)])


# ---------------------------------------------------------------- what torch.compile and torch.export write


def traced_views():
    for dtype in ("f32", "bf16", "i64", "u8", "bool"):
        x = sample_of(dtype, 4, 5, 6)
        case("aten.squeeze.dims", [x[:, :1]], [x[:, 0]], {"dim": [-2, 0]})
        case("aten.squeeze.dims", [x[:1, :1]], [x[0, 0]], {"dim": [0, 1]})
        case("aten._unsafe_view", [x], [torch.ops.aten._unsafe_view(x, [4, 30])], {"size": [4, -1]})
        case("aten.alias", [x], [torch.ops.aten.alias(x)])
        case("aten.detach", [x], [x.detach()])
        case("aten.lift_fresh_copy", [x], [torch.ops.aten.lift_fresh_copy(x)])
        case("aten.split.Tensor", [x], list(torch.split(x, 2, 1)), {"split_size": 2, "dim": 1})
        case("aten.split.Tensor", [x], list(torch.split(x, 3, -1)), {"split_size": 3, "dim": -1})
        case("aten.split.Tensor", [x], list(torch.split(x, 9)), {"split_size": 9})
        case("aten.unbind.int", [x], list(x.unbind()))
        case("aten.unbind.int", [x], list(x.unbind(-1)), {"dim": -1})


def traced_makers():
    for start, end in ((0, 7), (-5, 5), (3, 3)):
        for dtype in ("i64", "i32", "f32", "bf16"):
            made = torch.arange(start, end).to(DTYPES[dtype])
            case("aten.arange.start", [], [made], {"start": start, "end": end, "dtype": dtype})
    case("aten.arange", [], [torch.arange(37)], {"end": 37})
    case("aten.arange", [], [torch.arange(5.0)], {"end": 5, "dtype": "f32"})
    case("aten.arange", [], [torch.arange(0)], {"end": 0})
    for dtype in FLOATS + INTS + ("bool",):
        t, x = DTYPES[dtype], sample_of(dtype, 3, 5)
        case("aten.zeros", [], [torch.zeros(3, 5, dtype=t)], {"size": [3, 5], "dtype": dtype})
        case("aten.ones", [], [torch.ones(7, dtype=t)], {"size": [7], "dtype": dtype})
        case("aten.scalar_tensor", [], [torch.scalar_tensor(1.0, dtype=t)], {"s": 1.0, "dtype": dtype})
        case("aten.full_like", [x], [torch.full_like(x, 1)], {"fill_value": 1})
        case("aten.zeros_like", [x], [torch.zeros_like(x)])
        case("aten.ones_like", [x], [torch.ones_like(x)])
        case("aten.new_full", [x], [x.new_full((2, 1), 1)], {"size": [2, 1], "fill_value": 1})
        case("aten.new_zeros", [x], [x.new_zeros(9)], {"size": [9]})
        case("aten.new_ones", [x], [x.new_ones(2, 0)], {"size": [2, 0]})
    x = sample_of("f32", 2, 3)
    case("aten.full_like", [x], [torch.full_like(x, -1.5, dtype=torch.bfloat16)], {"fill_value": -1.5, "dtype": "bf16"})
    case("aten.ones_like", [x], [torch.ones_like(x, dtype=torch.bool)], {"dtype": "bool"})
    case("aten.new_full", [x], [x.new_full((), 300, dtype=torch.int64)], {"size": [], "fill_value": 300, "dtype": "i64"})
    case("aten.scalar_tensor", [], [torch.scalar_tensor(-INF)], {"s": "-inf"})
    case("aten.zeros", [], [torch.zeros(())], {"size": []})


def traced_elementwise():
    for dtype in FLOATS:
        x = randn(4, 9, dtype=dtype)
        for other, alpha in ((1, 1), (0.75, 2.5)):
            out = rounded(other - f64(x) * alpha, dtype)
            tol = tolerance(dtype, out, ulps=2, loose=2e-7)
            case("aten.rsub.Scalar", [x], [out], {"other": other, "alpha": alpha}, tol)
    for dtype in INTS:
        x = randint(0, 100, 40).to(DTYPES[dtype])
        case("aten.rsub.Scalar", [x], [torch.rsub(x, 7)], {"other": 7})
        case("aten.rsub.Scalar", [x], [torch.rsub(x, -3, alpha=2)], {"other": -3, "alpha": 2})
    for dtype in FLOATS + INTS + ("bool",):
        for one, two in (((37,), (37,)), ((3, 1, 5), (4, 1)), ((), (3,)), ((2, 3, 4), (3, 1)), ((0, 2), (2,))):
            x, mask, fill = sample_of(dtype, *one), randint(0, 2, *two).bool(), 1 if dtype == "bool" else 77
            out = torch.ops.aten.masked_fill.Scalar(x, mask, fill)
            case("aten.masked_fill.Scalar", [x, mask], [out], {"value": fill})
    mask = torch.tensor([True, False, True])
    x = value([NAN, NAN, 1.0], "bf16")
    case("aten.masked_fill.Scalar", [x, mask], [x.masked_fill(mask, -INF)], {"value": "-inf"}, tag="nan")
    least = torch.finfo(torch.float16).min
    x = value([0.5, 1.0, 2.0], "f16")
    case("aten.masked_fill.Scalar", [x, mask], [x.masked_fill(mask, least)], {"value": least}, tag="least")


def copied_by_index():
    """transformers' StaticCache: key_cache.index_copy_(2, cache_position, key_states)."""
    for dtype in FLOATS + INTS + ("bool",):
        x = sample_of(dtype, 4, 5, 6)
        for dim, rows in ((0, [3, 1]), (1, [4]), (-2, [0, 2, 1]), (2, [5, 0, 3]), (1, [])):
            shape = list(x.shape)
            shape[dim] = len(rows)
            index, source = torch.tensor(rows, dtype=torch.int64), sample_of(dtype, *shape)
            case("aten.index_copy", [x, index, source], [x.index_copy(dim, index, source)], {"dim": dim})
        rows, source, out = torch.tensor([2, 0, 2]), sample_of(dtype, 4, 3, 6), x.clone()
        for i, row in enumerate(rows):  # in order: the last write wins
            out[:, row] = source[:, i]
        case("aten.index_copy", [x, rows.int(), source], [out], {"dim": 1})
    cache, states = sample_of("bf16", 1, 2, 9, 16), sample_of("bf16", 1, 2, 1, 16)
    at = torch.tensor([7])
    case("aten.index_copy", [cache, at, states], [cache.index_copy(2, at, states)], {"dim": 2})
    x = sample_of("f32", 7)
    case("aten.index_copy", [x, at[:0], x[:0]], [x], {"dim": 0})


def traced_reductions():
    for dtype in FLOATS + INTS + ("bool",):
        x = sample_of(dtype, 3, 5, 7) if dtype == "bool" else randint(0, 2, 3, 5, 7).to(DTYPES[dtype])
        x[0], x[1, :, 2], x[2, 3] = 0, 1, 1  # lines of nothing but 0, or 1
        for t in (x, x[1, 0, 2], x[:0], x[:, :, :0], x[:1, :2]):
            case("aten.any", [t], [t.any()])
            case("aten.all", [t], [t.all()])
        for t, dim, keepdim in ((x, -1, False), (x, 0, True), (x, 1, False), (x[:, :0], 1, True), (x[:, :0], 0, False)):
            attrs = {"dim": dim, "keepdim": keepdim}
            case("aten.any.dim", [t], [t.any(dim, keepdim)], attrs)
            case("aten.all.dim", [t], [t.all(dim, keepdim)], attrs)
        for dims, keepdim in (([0, -1], False), ([1], True), ([2, 1, 0], False)):
            attrs = {"dim": dims, "keepdim": keepdim}
            case("aten.any.dims", [x], [x.any(dims, keepdim)], attrs)
            case("aten.all.dims", [x], [x.all(dims, keepdim)], attrs)
        if dtype != "bool":
            y = sample_of(dtype, 4, 9)
            for t in (y, y[1, 1]):
                case("aten.max", [t], [t.max()])
                case("aten.min", [t], [t.min()])
            if dtype in INTS:
                case("aten.sum", [y], [y.sum()])
    case("aten.sum", [x], [x.sum()])
    case("aten.any", [value([0.0, -0.0, 0.0])], [torch.tensor(False)], tag="zeros")
    case("aten.all", [value([1.0, NAN, -INF])], [torch.tensor(True)], tag="nan")
    for dtype in FLOATS:
        x = value([0.0, NAN, 0.0, 2.0], dtype)
        case("aten.any.dim", [x], [x.any(0)], {"dim": 0}, tag="nan")
        case("aten.max", [x], [x.max()], tag="nan")
        case("aten.min", [x], [x.min()], tag="nan")
        x = randn(3, 5, 7, dtype=dtype, scale=2.0)
        for op, fn in (("aten.sum", torch.sum), ("aten.mean", torch.mean)):
            for t, attrs in ((x, {}), (x[0, 0, 0], {}), (x, {"dtype": "f32"})):
                out = fn(f64(t)).to(DTYPES[attrs.get("dtype", dtype)])
                case(op, [t], [out], attrs, tolerance(NAMES[out.dtype], out, ulps=4, loose=1e-6))
            case(op, [x[:0]], [fn(x[:0])], tag="empty")


def gemma_norms():
    """torch_npu's npu_gemma_rms_norm, which is what Gemma's RMSNorm of transformers computes."""

    def one(x, gamma, dtype, attrs, **more):
        y, rstd = rms(x, 1.0 + gamma.double(), attrs.get("epsilon", 1e-6))
        tol = tolerance(dtype, y, ulps=8, loose=1e-6)
        case("npu.gemma_rms_norm", [x, gamma], [rounded(y, dtype), rstd.float()], attrs, tol, **more)

    for dtype in FLOATS:
        for shape, scale, eps in (
            ((5, 37), 1.0, 1e-6),
            ((1, 64), 1.0, 1e-6),
            ((2, 3, 16), 0.01, 1e-4),
            ((7, 1), 1.0, 1e-6),
            ((0, 12), 1.0, 1e-6),
            ((130,), 3.0, 1e-5),
        ):
            x, gamma = randn(*shape, dtype=dtype, scale=scale), randn(shape[-1], dtype=dtype, scale=0.5)
            one(x, gamma, dtype, {"epsilon": eps})
    for narrow in ("bf16", "f16"):
        one(randn(4, 33), randn(33, dtype=narrow, scale=0.5), "f32", {"epsilon": 1e-6}, tag=f"gamma_{narrow}")
    one(randn(3, 20), randn(20), "f32", {}, tag="default_epsilon")


def dense_attention():
    """As torch.export leaves it, by PyTorch's own definition in f64."""
    name = "aten.scaled_dot_product_attention"

    def attend64(q, k, v, mask=None, **attrs):
        mask = mask if mask is None or mask.dtype == torch.bool else mask.double()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask, **attrs)

    def add(q, k, v, mask=None, tag=None, **attrs):
        dtype = NAMES[q.dtype]
        out = rounded(attend64(q, k, v, mask, **attrs), dtype)
        tol = tolerance(dtype, out, ulps=32, loose=2e-6)
        case(name, [q, k, v] + ([] if mask is None else [mask]), [out], attrs, tol, tag=tag)

    for dtype in FLOATS:
        # batch, heads, heads of keys, queries, keys, size of keys and of values
        for b, h, kh, rows, keys, d, dv in (
            (2, 4, 4, 7, 7, 16, 16),
            (1, 6, 2, 1, 35, 20, 20),
            (2, 3, 1, 5, 9, 8, 24),
            (1, 2, 2, 19, 150, 40, 17),
            (3, 1, 1, 3, 1, 1, 1),
        ):
            q = randn(b, h, rows, d, dtype=dtype, scale=1.5)
            k, v = randn(b, kh, keys, d, dtype=dtype), randn(b, kh, keys, dv, dtype=dtype)
            gqa = {"enable_gqa": True} if h != kh else {}
            add(q, k, v, **gqa)
            add(q, k, v, is_causal=True, **gqa)
            add(q, k, v, scale=0.3, **gqa)
            mask = randint(0, 2, b, 1, rows, keys).bool()
            mask[0, 0, 0] = False  # a row that sees nothing is 0
            add(q, k, v, mask, tag="bool", **gqa)
            add(q, k, v, randint(0, 3, keys) > 0, tag="keys", **gqa)
            add(q, k, v, randn(rows, keys, dtype=dtype), tag="bias", **gqa)
            bias = randn(1, h, rows, keys, dtype=dtype)
            bias[0, :, -1] = -INF
            bias[0, 0, :, :1] = -INF
            add(q, k, v, bias, tag="biases", **gqa)
            least = torch.zeros(b, 1, 1, keys, dtype=DTYPES[dtype])
            least[0, ..., : keys // 2] = torch.finfo(DTYPES[dtype]).min  # as transformers writes what is not seen
            if dtype != "f16":  # beside which scores do not count; beside f16's they do, as far as f32 goes
                least[-1] = torch.finfo(DTYPES[dtype]).min
            add(q, k, v, least, tag="least", **gqa)
        q, k, v = (randn(3, n, 16, dtype=dtype) for n in (5, 6, 6))
        add(q, k, v)
        add(q, k, v, randint(0, 2, 3, 5, 6).bool(), tag="bool")
        add(q, k[:1], v[:1], enable_gqa=True)
        add(q[0], k[0], v[0], is_causal=True)
        add(q[:, :0], k, v, tag="empty")
        add(q, k[:, :0], v[:, :0], tag="empty")
        broken = k.clone()
        broken[1, 2, 3] = NAN
        add(q, broken, v, tag="nan")
    q, k, v = (randn(1, 2, 200, 16, scale=4.0) for _ in range(3))  # several chunks, the first ones not seen
    add(q, k, v, torch.arange(200) >= 190, tag="late")
    add(q, k, v, torch.where(torch.arange(200) >= 130, 0.0, -INF), tag="late")
    q = randn(2, 2, 3, 16, dtype="bf16")
    add(q, q, q, randn(3, 3), tag="wide_bias")


def quotients():
    def divided(a, b, how):
        """PyTorch's in the dtype of a, which must not hang on how a quotient was rounded."""
        out = torch.remainder(a, b) if how == "remainder" else torch.div(a, b, rounding_mode=how)
        if a.dtype.is_floating_point:
            exact = torch.remainder(a.double(), b.double()) if how == "remainder" else None
            exact = torch.div(a.double(), b.double(), rounding_mode=how) if exact is None else exact
            assert torch.equal(out.nan_to_num(), exact.to(a.dtype).nan_to_num()), (a, b, out, exact)
        return out

    def add(a, b, scalar):
        names = {
            "floor": ("aten.floor_divide.Scalar", "aten.div.Scalar_mode")
            if scalar
            else ("aten.floor_divide", "aten.div.Tensor_mode"),
            "trunc": (None, "aten.div.Scalar_mode" if scalar else "aten.div.Tensor_mode"),
            "remainder": ("aten.remainder.Scalar" if scalar else "aten.remainder.Tensor", None),
        }
        for how, (name, with_mode) in names.items():
            other = torch.tensor(b, dtype=a.dtype) if scalar else b
            out, attrs = divided(a, other, how), {"other": b} if scalar else {}
            operands = [a] if scalar else [a, b]
            if name:
                case(name, operands, [out], attrs)
            if with_mode:
                case(with_mode, operands, [out], attrs | {"rounding_mode": how})

    for dtype in FLOATS:
        a = value([7.5, -7.5, 7.5, -7.5, 0.0, -0.0, 5.0, -5.0, 1.25, -0.25, 96.0, -97.0, 33.0, NAN, 3.0, 0.5], dtype)
        b = value([2.0, 2.0, -2.0, -2.0, 3.0, 5.0, 5.0, 5.0, 0.5, 1.0, -8.0, 8.0, 2.0, 1.0, NAN, 4.0], dtype)
        add(a, b, False)
        for other in (2.0, -2.5, 0.75, 64.0):
            add(a, other, True)
        add(value([1.0, -1.0, 0.0, NAN], dtype), 0.0, True)
        add(randint(-400, 400, 5, 1, dtype=dtype) / 4, value([1.0, -3.0, 4.0], dtype), False)
    tenths = value([1.0, 0.3, 0.9, -0.6, 3.0])  # 1 // 0.1 is 9, as 0.1 is a little more
    case("aten.floor_divide", [tenths, torch.tensor(0.1)], [torch.floor_divide(tenths, torch.tensor(0.1))], tag="tenths")
    for dtype in INTS:
        a = torch.tensor([7, 100, 0, 5, 99, 1, 64], dtype=DTYPES[dtype])
        b = torch.tensor([2, 33, 3, 5, 100, 1, 8], dtype=DTYPES[dtype])
        add(a, b, False)
        add(a.reshape(7, 1), b, False)
        for other in (1, 3, 100):
            add(a, other, True)
        if dtype != "u8":
            add(-a, b, False)
            add(a, -b, False)
            add(torch.cat((a, -a)), -3, True)
            add(a, -1, True)
    far = torch.tensor([2**62 + 1, -(2**62) - 1, 2**53 + 1])
    add(far, torch.tensor([3, 7, 1]), False)


def variances():
    for dtype in FLOATS:
        x = randn(3, 5, 7, dtype=dtype, scale=2.0, shift=1.0)
        for dims, correction, keepdim in (
            ([-1], 1, False),
            ([0], 0, True),
            ([0, 2], 1, False),
            ([], 1, False),
            ([1], 2.5, True),
            ([1], 5, False),
            ([2, 0, 1], 0, True),
        ):
            attrs = {"dim": dims, "correction": correction, "keepdim": keepdim}
            over = dims if dims else [0, 1, 2]
            wide, mean = torch.var_mean(f64(x), over, correction=correction, keepdim=keepdim)
            out = rounded(wide, dtype)
            tol = tolerance(dtype, out, ulps=4, loose=1e-6)
            case("aten.var.correction", [x], [out], attrs, tol)
            case("aten.var_mean.correction", [x], [out, rounded(mean, dtype)], attrs, tol)
        far = (randn(2, 300) + 1000).to(DTYPES[dtype])  # a sum of squares would lose it
        out = rounded(torch.var(f64(far), [1]), dtype)
        case("aten.var.correction", [far], [out], {"dim": [1]}, tolerance(dtype, out, ulps=4, loose=1e-6), tag="far")
        none = torch.full((3,), NAN, dtype=DTYPES[dtype])
        case("aten.var.correction", [x[:, 0, :0]], [none], {"dim": [1]}, tag="empty")
        case("aten.var.correction", [x[:, 0, :1]], [none], {"dim": [1]}, tag="single")


def joined():
    for dtype in FLOATS + INTS + ("bool",):
        x, y = sample_of(dtype, 3, 5), sample_of(dtype, 3, 5)
        for dim in (0, 1, 2, -1, -3):
            case("aten.stack", [x, y, x], [torch.stack([x, y, x], dim)], {"dim": dim})
        case("aten.stack", [x], [torch.stack([x])])
        case("aten.stack", [x[0, 0], y[1, 1]], [torch.stack([x[0, 0], y[1, 1]])], {"dim": -1})
        case("aten.stack", [x[:0], y[:0]], [torch.stack([x[:0], y[:0]], 1)], {"dim": 1})
        for t, repeats in (
            (x, [2, 3]),
            (x, [1, 1]),
            (x, [4, 1, 2]),
            (x, [2, 1, 1, 3]),
            (x[:, :1], [1, 6]),
            (x[0, 0], [5]),
            (x[0, 0], []),
            (x, [0, 2]),
            (x[:0], [2, 2]),
        ):
            case("aten.repeat", [t], [t.repeat(repeats)], {"repeats": repeats})
    for dtype in FLOATS:
        x = randn(3, 4, 19, dtype=dtype, scale=2.0)
        for dim in (-1, 0, 1):
            for to in (None, "f32"):
                attrs = {"dim": dim} | ({"dtype": to} if to else {})
                for op, fn in (("aten.softmax.int", torch.softmax), ("aten.log_softmax.int", torch.log_softmax)):
                    out = rounded(fn(f64(x), dim), to or dtype)
                    case(op, [x], [out], attrs, tolerance(to or dtype, out, ulps=16, loose=1e-6))


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
    save_file(tensors, os.path.join(HERE, "ops.safetensors"))
    os.chmod(os.path.join(HERE, "ops.safetensors"), 0o644)
    with open(os.path.join(HERE, "ops.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), allow_nan=False) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases of {len(counts)} operators, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
