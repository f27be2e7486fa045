# SPDX-License-Identifier: Apache-2.0
"""Cases of elementwise operators, matrices, norms and attention."""

import math

import torch

from ops_cases import (
    DTYPES, FLOATS, INF, INTS, NAMES, NAN, ULP, case, f64, gen, randint, randn, rounded, tolerance, value,
)

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
    """Tolerance of f32 sums in any order: about sqrt(k) roundings of the largest partial sums."""
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
    """Return the norm in f64, and its divisor."""
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
            # Slots that no sequence owns have garbage, so that a read beyond a context shows.
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

    # Only rows whose result no draw can change: temperature 0, top_k 1, a top_p below the first token's share.
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
