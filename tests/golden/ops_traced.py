# SPDX-License-Identifier: Apache-2.0
"""Cases of operators in the form in which torch.compile and torch.export write them."""

import torch

from ops_arithmetic import rms
from ops_cases import DTYPES, FLOATS, INF, INTS, NAMES, NAN, case, f64, randint, randn, rounded, tolerance, value
from ops_tensors import sample_of

# ---------------------------------------------------------------- operators of torch.compile and torch.export


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
    """Attention as torch.export leaves it, by PyTorch's own definition in f64."""
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
            least[0, ..., : keys // 2] = torch.finfo(DTYPES[dtype]).min  # as transformers masks keys
            if dtype != "f16":  # scores vanish beside it; beside f16's minimum they do not, in f32
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
        """Return PyTorch's result in the dtype of a; it must not depend on how a quotient was rounded."""
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
