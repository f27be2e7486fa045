# SPDX-License-Identifier: Apache-2.0
"""Cases of reductions, indexing, quantisation, fused operators of a decoder, and updates."""

import torch

from ops_cases import DTYPES, FLOATS, INF, INTS, NAN, case, f64, randint, randn, rounded, tolerance, value

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
    """Return t rounded to dtype, and whether an error of f32 sums before that would change nothing."""
    return rounded(t, dtype), torch.equal(rounded(t * (1 + 1e-5), dtype), rounded(t * (1 - 1e-5), dtype))


def whole(t, low, high):
    """Return t rounded to integers within low..high, and whether no element is near a half."""
    clear = ((t - t.floor() - 0.5).abs() > 2e-3) | (t > high) | (t < low)
    return t.round().clamp(low, high), bool(clear.all())


def tries(make):
    """Return the first result of make() whose roundings the errors of f32 cannot change."""
    for _ in range(1000):
        result, clear = make()
        if clear:
            return result
    raise AssertionError("no clear case")


def dynamic(v, smooth):
    """Quantise v (f64) by rows; return i8, scale, clear."""
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


# ---------------------------------------------------------------- updates of a tensor, padding, and later cases


def updates():
    """Cases that are appended, so that the operators above keep their random numbers."""
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


# ---------------------------------------------------------------- products with quantised weights


def weight_quant():
    """i8 weights [K,N], and int4 ones packed along K ([K/8,N]) and along N ([K,N/8]), eight in an i32."""
    g = torch.Generator().manual_seed(4)  # its own, so that no other case changes

    def draw(*shape, dtype="f32", scale=1.0):
        return (torch.randn(shape, generator=g, dtype=torch.float64) * scale).to(DTYPES[dtype])

    def pack(q, dim):
        nibbles = (q.movedim(dim, -1).unflatten(-1, (-1, 8)).long() & 15) << torch.arange(0, 32, 4)
        words = nibbles.sum(-1)
        return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).movedim(-1, dim).contiguous()

    op = "npu.weight_quant_batchmatmul"
    for m, n, k, group, dtype, narrow in (
        (1, 16, 64, 32, "f32", "bf16"), (5, 24, 96, 0, "f32", "f16"), (3, 8, 72, 32, "bf16", "bf16"),
        (50, 40, 128, 64, "f16", "f16"), (0, 8, 32, 0, "f32", "f32"), (2, 8, 40, -1, "f32", "f32"),
    ):
        x, bias = draw(m, k, dtype=dtype), draw(n)
        shape = (1,) if group < 0 else (-(-k // group) if group else 1, n)
        scale, offset = draw(*shape, dtype=narrow, scale=0.02), draw(*shape, dtype=narrow, scale=3.0)
        by_k = torch.arange(k) // group if group > 0 else torch.zeros(k, dtype=torch.long)
        wide = [f64(t) if group < 0 else f64(t)[by_k] for t in (scale, offset)]
        attrs = {"antiquant_group_size": max(group, 0)}
        for bits in (8, 4):
            q = torch.randint(-(1 << bits - 1), 1 << bits - 1, (k, n), generator=g)
            stored = [q.to(torch.int8)] if bits == 8 else [pack(q, 0), pack(q, 1)]
            plain = rounded(f64(x) @ (q.double() * wide[0]), dtype)
            full = rounded(f64(x) @ ((q.double() + wide[1]) * wide[0]) + f64(bias), dtype)
            for w in stored:
                tol = tolerance(dtype, plain, ulps=16, loose=2e-5)
                case(op, [x, w, scale], [plain], attrs, tol)
                case(op, [x, w, scale, offset, None, None, bias], [full], attrs, tolerance(dtype, full, 16, 2e-5))


def quant_matmul():
    """i8 rows and i8 weights; scales of columns and of rows; each dtype of bias and result."""
    g = torch.Generator().manual_seed(5)

    def draw(*shape, dtype="f32", scale=1.0):
        return (torch.randn(shape, generator=g, dtype=torch.float64) * scale).to(DTYPES[dtype])

    def whole(*shape):
        return torch.randint(-128, 128, shape, generator=g, dtype=torch.int8)

    op = "npu.quant_matmul"
    for m, n, k, scale, rows, bias, out in (
        (1, 16, 64, "bf16", True, None, "bf16"), (5, 24, 96, "f32", True, "f16", "f16"), (3, 7, 70, "f32", True, "i32", "f32"),
        (9, 33, 40, "f32", False, "f32", "bf16"), (50, 40, 128, "bf16", True, "bf16", "bf16"), (2, 8, 31, "f32", False, "i32", "i32"),
        (4, 5, 200, "bf16", False, None, "f32"), (0, 8, 32, "f32", True, None, "f32"),
    ):
        x, w = whole(m, k), whole(k, n)
        s = draw(1 if m == 4 else n, dtype=scale, scale=0.02)
        r = draw(m, scale=0.02).abs() if rows else None
        b = None if bias is None else torch.randint(-9999, 9999, (n,), generator=g, dtype=torch.int32) if bias == "i32" else draw(n, dtype=bias)
        y = x.double() @ w.double()
        if bias == "i32":
            y = y + b.double()
        if out != "i32":
            y = y * f64(s) * (f64(r)[:, None] if rows else 1)
            y = rounded(y + f64(b) if bias not in (None, "i32") else y, out)
        case(op, [x, w, s, None, r, b], [y.to(DTYPES[out])], {"output_dtype": out},
             (0, 0) if out == "i32" else tolerance(out, y, ulps=8, loose=2e-5))
