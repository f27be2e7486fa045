# SPDX-License-Identifier: Apache-2.0
"""The ATen operators, each written as operators of the daemon (docs/operators.md).

A handler gets the writer, the FX node, and the node's arguments with tensors as Values. It returns the Value of the
result, or a list of them. The daemon has no type promotion, so operands are cast to what PyTorch would compute in.
"""
from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._sympy.functions import Max, Min

from .shapes import Unsupported, expression
from .values import FLOATS, Node, Value, Writer, expanded, float_or_int, handles, lifts, product, same


def _dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


# ---- elementwise ----------------------------------------------------------------------------------------------------

@handles("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "erfc", "sigmoid",
         "silu", "relu", "floor", "ceil", "round", "trunc", "sign")
def _unary(w: Writer, node: Node, x: Value) -> Value:
    out = node.out
    if out.dtype not in FLOATS:
        if node.name in ("aten.floor", "aten.ceil", "aten.round", "aten.trunc"):
            return x
        if node.name == "aten.sign" and out.dtype == torch.bool:
            return x
        if node.name not in ("aten.neg", "aten.abs", "aten.relu", "aten.sign") or out.dtype == torch.bool:
            raise Unsupported(f"{node.name} of {out.dtype}")
    return w.op(node.name, [w.cast(x, out.dtype)], out.dtype, out.shape)


@handles("logical_not", "isnan", "isinf", "bitwise_not")
def _predicate(w: Writer, node: Node, x: Value) -> Value:
    return w.op(node.name, [x], node.out.dtype, node.out.shape)


@handles("gelu")
def _gelu(w: Writer, node: Node, x: Value, approximate: str = "none") -> Value:
    return w.op("aten.gelu", [x], x.dtype, x.shape, approximate=approximate)


@handles("leaky_relu")
def _leaky_relu(w: Writer, node: Node, x: Value, negative_slope: float = 0.01) -> Value:
    return w.op("aten.leaky_relu", [x], x.dtype, x.shape, negative_slope=float(negative_slope))


@handles("clamp", "hardtanh")
def _clamp(w: Writer, node: Node, x: Value, low: Any = None, high: Any = None) -> Value:
    out = node.out
    bounds = {name: float_or_int(v) for name, v in (("min", low), ("max", high)) if v is not None}
    if any(isinstance(v, float) and math.isnan(v) for v in bounds.values()):
        raise Unsupported("aten.clamp with a bound that is NaN")
    return w.op("aten.clamp", [w.cast(x, out.dtype)], out.dtype, out.shape, **bounds)


@handles("clamp.Tensor")
def _clamp_tensor(w: Writer, node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    out = node.out
    x = w.cast(x, out.dtype)
    largest, least = ("aten.maximum", "aten.minimum") if x.dtype != torch.bool else ("aten.logical_or", "aten.logical_and")
    for bound, name in ((low, largest), (high, least)):
        if bound is not None:
            x = w.op(name, [x, w.cast(bound, out.dtype)], out.dtype, _broadcast(x.shape, bound.shape))
    return x


def _broadcast(a: Any, b: Any) -> list[Any]:
    n = max(len(a), len(b))
    left, right = [1] * (n - len(a)) + list(a), [1] * (n - len(b)) + list(b)
    return [y if same(x, 1) else x for x, y in zip(left, right, strict=True)]


_WITH_SCALAR = {"add", "sub", "mul", "div", "remainder", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge"}
_BARE = {"maximum", "minimum", "logical_and", "logical_or", "logical_xor", "floor_divide"}


def _scalar_value(w: Writer, number: Any, dtype: torch.dtype) -> Value:
    return w.op("aten.scalar_tensor", [], dtype, (), s=float_or_int(number), dtype=dtype)


def _symbolic(w: Writer, number: Any) -> Any:
    """Returns a size as a tensor with one element; what is not symbolic, as it is. Attributes have no symbols."""
    if isinstance(number, torch.SymFloat):
        raise Unsupported("a symbolic fraction")
    if not isinstance(number, torch.SymInt):
        return number
    one = w.op("aten.arange.start_step", [], torch.int64, [1], start=number, end=number + 1, step=1)
    return w.reshape(one, ())


def _computed_in(a: Any, b: Any) -> torch.dtype:
    """Returns the dtype that PyTorch compares two operands in."""
    def sample(v: Any) -> Any:
        return torch.empty((1,) if len(v.shape) else (), dtype=v.dtype, device="meta") if isinstance(v, Value) else v
    return torch.result_type(sample(a), sample(b))


HALVES = (torch.float16, torch.bfloat16)


def _wraps(number: Any, dtype: torch.dtype) -> bool:
    """Says whether a number is outside an integer dtype: PyTorch wraps it around, the daemon compares exactly."""
    if isinstance(number, (Value, float, bool)) or dtype in FLOATS or dtype == torch.bool:
        return False
    return not torch.iinfo(dtype).min <= int(number) <= torch.iinfo(dtype).max


@handles("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar",
         "remainder.Tensor", "remainder.Scalar", "floor_divide", "floor_divide.Scalar", "maximum", "minimum",
         "bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "bitwise_and.Scalar", "bitwise_or.Scalar",
         "bitwise_xor.Scalar", "eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar", "lt.Tensor", "lt.Scalar", "le.Tensor",
         "le.Scalar", "gt.Tensor", "gt.Scalar", "ge.Tensor", "ge.Scalar", "logical_and", "logical_or", "logical_xor")
def _binary(w: Writer, node: Node, a: Any, b: Any, alpha: Any = 1) -> Value:
    out, word = node.out, node.name.split(".")[1]
    a, b = (_symbolic(w, v) for v in (a, b))
    dtype = _computed_in(a, b) if out.dtype == torch.bool else out.dtype
    if any(_wraps(v, dtype) for v in (a, b)) or (word == "floor_divide" and dtype in HALVES):
        raise Unsupported(f"{node.name} of {dtype} with these operands")
    if dtype == torch.bool:
        if word == "sub":
            raise Unsupported("aten.sub of bool")
        word = {"add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}.get(word, word)
    if isinstance(a, Value) and not isinstance(b, Value) and word in _WITH_SCALAR and dtype != torch.bool:
        extra = {"alpha": float_or_int(alpha)} if alpha != 1 else {}
        other = float(b) if dtype in FLOATS and isinstance(b, bool) else float_or_int(b)
        return w.op(f"aten.{word}.Scalar", [w.cast(a, dtype)], out.dtype, out.shape, other=other, **extra)
    a, b = (w.cast(v, dtype) if isinstance(v, Value) else _scalar_value(w, v, dtype) for v in (a, b))
    extra = {"alpha": float_or_int(alpha)} if alpha != 1 else {}
    return w.op(f"aten.{word}" if word in _BARE else f"aten.{word}.Tensor", [a, b], out.dtype, out.shape, **extra)


@handles("rsub.Scalar", "rsub.Tensor")
def _rsub(w: Writer, node: Node, a: Value, b: Any, alpha: Any = 1) -> Value:
    out, extra = node.out, {"alpha": float_or_int(alpha)} if alpha != 1 else {}
    if isinstance(b, Value):
        return w.op("aten.sub.Tensor", [w.cast(b, out.dtype), w.cast(a, out.dtype)], out.dtype, out.shape, **extra)
    return w.op("aten.rsub.Scalar", [w.cast(a, out.dtype)], out.dtype, out.shape, other=float_or_int(b), **extra)


@handles("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(w: Writer, node: Node, a: Value, b: Any, rounding_mode: str | None = None) -> Value:
    out, extra = node.out, {} if rounding_mode is None else {"rounding_mode": rounding_mode}
    if extra and out.dtype in HALVES:  # PyTorch rounds the quotient first, and then differs by one
        raise Unsupported(f"{node.name} of {out.dtype} with a rounding mode")
    ending = "_mode" if extra else ""
    a = w.cast(a, out.dtype)
    if isinstance(b, Value):
        return w.op("aten.div.Tensor" + ending, [a, w.cast(b, out.dtype)], out.dtype, out.shape, **extra)
    return w.op("aten.div.Scalar" + ending, [a], out.dtype, out.shape, other=float_or_int(b), **extra)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(w: Writer, node: Node, a: Any, b: Any) -> Value:
    out = node.out
    if out.dtype not in FLOATS:
        if b == 2 and isinstance(a, Value):
            a = w.cast(a, out.dtype)
            return w.op("aten.mul.Tensor", [a, a], out.dtype, out.shape)
        raise Unsupported(f"{node.name} of {out.dtype}")
    if isinstance(a, Value) and not isinstance(b, Value):
        return w.op("aten.pow.Tensor_Scalar", [w.cast(a, out.dtype)], out.dtype, out.shape, exponent=float_or_int(b))
    a, b = (w.cast(v, out.dtype) if isinstance(v, Value) else _scalar_value(w, v, out.dtype) for v in (a, b))
    return w.op("aten.pow.Tensor_Tensor", [a, b], out.dtype, out.shape)


@handles("where.self")
def _where(w: Writer, node: Node, condition: Value, a: Value, b: Value) -> Value:
    out = node.out
    return w.op("aten.where.self", [w.cast(condition, torch.bool), w.cast(a, out.dtype), w.cast(b, out.dtype)], out.dtype,
                out.shape)


@handles("masked_fill.Scalar")
def _masked_fill(w: Writer, node: Node, x: Value, mask: Value, value: Any) -> Value:
    return w.op("aten.masked_fill.Scalar", [x, mask], x.dtype, node.out.shape, value=float_or_int(value))


@handles("_to_copy")
def _to_copy(w: Writer, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return w.cast(x, node.out.dtype)


@handles("clone", "alias", "detach", "lift_fresh_copy")
def _identity(w: Writer, node: Node, x: Value, **_: Any) -> Value:
    return x


@handles("native_dropout")
def _no_dropout(w: Writer, node: Node, x: Value, p: float, train: bool | None) -> list[Value]:
    if train is not False and p:
        raise Unsupported("aten.native_dropout while training: it draws numbers")
    return [x, w.full(torch.bool, x.shape, True)]


@handles("copy")
def _copy(w: Writer, node: Node, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return expanded(w, w.cast(source, x.dtype), x.shape)


# ---- matrices -------------------------------------------------------------------------------------------------------

@handles("mm", "bmm")
def _mm(w: Writer, node: Node, a: Value, b: Value) -> Value:
    if a.dtype not in FLOATS:
        raise Unsupported(f"{node.name} of {a.dtype}")
    return w.op(node.name, [a, b], a.dtype, node.out.shape)


@handles("addmm")
def _addmm(w: Writer, node: Node, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if a.dtype not in FLOATS:
        raise Unsupported(f"aten.addmm of {a.dtype}")
    extra = {k: float_or_int(v) for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
    return w.op("aten.addmm", [bias, a, b], a.dtype, node.out.shape, **extra)


@handles("embedding")
def _embedding(w: Writer, node: Node, weight: Value, indices: Value, *_: Any) -> Value:
    return w.op("aten.embedding", [weight, indices], weight.dtype, node.out.shape)


# ---- norms, softmax, attention --------------------------------------------------------------------------------------

@handles("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def _softmax(w: Writer, node: Node, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    name = "aten._log_softmax" if "log" in node.name else "aten._softmax"
    return w.op(name, [w.cast(x, node.out.dtype)], node.out.dtype, node.out.shape, dim=dim)


@handles("native_layer_norm")
def _layer_norm(w: Writer, node: Node, x: Value, shape: Any, weight: Value | None, bias: Value | None,
                eps: float) -> list[Value]:
    out, mean, rstd = node.out
    values = w.node("aten.native_layer_norm", [x, weight, bias],
                    [(x.dtype, out.shape), (torch.float32, mean.shape), (torch.float32, rstd.shape)],
                    normalized_shape=list(shape), eps=float(eps))
    return [values[0], *(w.cast(v, meta.dtype) for v, meta in zip(values[1:], (mean, rstd), strict=True))]


@handles("_scaled_dot_product_flash_attention_for_cpu")
def _attention(w: Writer, node: Node, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
               is_causal: bool = False, attn_mask: Value | None = None, scale: float | None = None) -> list[Any]:
    if dropout_p:
        raise Unsupported("attention with dropout")
    if node.uses(1):
        raise Unsupported("the second result of aten._scaled_dot_product_flash_attention_for_cpu")
    key, value = _shared_heads(node, 1, key), _shared_heads(node, 2, value)
    extra: dict[str, Any] = {"is_causal": True} if is_causal else {}
    if scale is not None:
        extra["scale"] = float(scale)
    if not same(query.shape[1], key.shape[1]):
        extra["enable_gqa"] = True
    out = node.out[0]
    return [w.op("aten.scaled_dot_product_attention", [query, key, value, *([attn_mask] if attn_mask else [])], query.dtype,
                 out.shape, **extra), None]


def _shared_heads(node: Node, argument: int, x: Value) -> Value:
    """Returns keys or values before each head was repeated for the queries that share it: the operator does that."""
    fx = node.fx.args[argument]
    for target in ("aten.view.default", "aten.clone.default", "aten.expand.default", "aten.unsqueeze.default"):
        if target == "aten.clone.default" and isinstance(fx, torch.fx.Node) and str(fx.target) != target:
            continue  # nothing to copy where a head is not repeated
        if not isinstance(fx, torch.fx.Node) or str(fx.target) != target:
            return x
        if target == "aten.unsqueeze.default" and fx.args[1] != 2:
            return x
        fx = fx.args[0]
    found = node.values.get(fx) if isinstance(fx, torch.fx.Node) else None
    fits = (isinstance(found, Value) and len(found.shape) == 4
            and all(same(found.shape[d], x.shape[d]) for d in (0, 2, 3)))
    return found if fits and isinstance(found, Value) else x


# ---- reductions -----------------------------------------------------------------------------------------------------

@handles("sum.dim_IntList", "mean.dim")
def _sum_dim(w: Writer, node: Node, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    out = node.out
    if node.name == "aten.mean.dim" or out.dtype in FLOATS:
        x = w.cast(x, out.dtype)
    summed = out.dtype if out.dtype in FLOATS else torch.int64
    return w.cast(w.op(node.name, [x], summed, out.shape, dim=_dims(dim), keepdim=keepdim), out.dtype)


def _dims(dim: Any) -> list[int]:
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


@handles("sum", "mean")
def _sum(w: Writer, node: Node, x: Value, dtype: Any = None) -> Value:
    if node.out.dtype in FLOATS:
        x = w.cast(x, node.out.dtype)
    return w.op(node.name, [x], node.out.dtype, ())


@handles("amax", "amin", "max", "min", "any", "all", "any.dim", "any.dims", "all.dim", "all.dims")
def _extreme(w: Writer, node: Node, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    out = node.out
    if x.dtype == torch.bool and "a" + node.name.split(".")[1][-3:] in ("amax", "amin"):
        word = "any" if "max" in node.name else "all"
        if not dim:
            return w.reshape(w.op(f"aten.{word}", [x], torch.bool, ()), out.shape)
        return w.op(f"aten.{word}.dims", [x], torch.bool, out.shape, dim=_dims(dim), keepdim=keepdim)
    if node.name in ("aten.max", "aten.min", "aten.any", "aten.all"):
        return w.op(node.name, [x], out.dtype, ())
    if node.name in ("aten.any.dim", "aten.all.dim"):
        return w.op(node.name, [x], out.dtype, out.shape, dim=dim, keepdim=keepdim)
    return w.op(node.name, [x], out.dtype, out.shape, dim=_dims(dim), keepdim=keepdim)


@handles("max.dim", "min.dim")
@lifts
def _max_dim(w: Writer, node: Node, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    out, word = node.out[0], node.name[5:8]
    numbers = _numbers(w, x)
    return [w.cast(w.op(f"aten.a{word}", [numbers], numbers.dtype, out.shape, dim=[dim], keepdim=keepdim), x.dtype),
            w.op(f"aten.arg{word}", [numbers], torch.int64, out.shape, dim=dim, keepdim=keepdim)]


def _numbers(w: Writer, x: Value) -> Value:
    """Returns booleans as numbers, which can be ordered."""
    return w.cast(x, torch.uint8) if x.dtype == torch.bool else x


@handles("argmax", "argmin")
@lifts
def _argmax(w: Writer, node: Node, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    if dim is None:
        flat = w.reshape(x, [product(x.shape)])
        return w.reshape(w.op(node.name, [flat], torch.int64, (), dim=0), node.out.shape)
    return w.op(node.name, [x], torch.int64, node.out.shape, dim=dim, keepdim=keepdim)


@handles("prod.dim_int")
def _prod(w: Writer, node: Node, x: Value, dim: int, keepdim: bool = False, dtype: Any = None) -> Value:
    return w.op("aten.prod.dim_int", [w.cast(x, node.out.dtype)], node.out.dtype, node.out.shape, dim=dim, keepdim=keepdim)


@handles("var.correction", "var_mean.correction")
def _var(w: Writer, node: Node, x: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    outs = node.out if isinstance(node.out, (list, tuple)) else [node.out]
    values = w.node(node.name, [x], [(x.dtype, out.shape) for out in outs], dim=_dims(dim),
                    correction=float_or_int(1 if correction is None else correction), keepdim=keepdim)
    return values if len(values) > 1 else values[0]


@handles("prod")
def _prod_of_all(w: Writer, node: Node, x: Value, dtype: Any = None) -> Value:
    flat = w.reshape(w.cast(x, node.out.dtype), [product(x.shape)])
    return w.op("aten.prod.dim_int", [flat], node.out.dtype, (), dim=0)


@handles("var.dim")
def _var_dim(w: Writer, node: Node, x: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    return w.op("aten.var.correction", [x], x.dtype, node.out.shape, dim=_dims(dim), correction=int(unbiased), keepdim=keepdim)


@handles("_cdist_forward")
def _cdist(w: Writer, node: Node, a: Value, b: Value, p: float, mode: Any = None) -> Value:
    out, rank = node.out, len(node.out.shape)
    rows = w.reshape(a, [*a.shape[:-1], 1, a.shape[-1]])
    columns = w.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    shape = [*out.shape, a.shape[-1]]
    return _norm(w, node, w.op("aten.sub.Tensor", [expanded(w, rows, shape), expanded(w, columns, shape)], a.dtype, shape), p, rank)


@handles("_pdist_forward")
def _pdist(w: Writer, node: Node, x: Value, p: float = 2) -> Value:
    n, out = x.shape[0], node.out
    if type(n) is not int:
        raise Unsupported("aten._pdist_forward of a dynamic number of rows")
    pairs = [w.constant(torch.tensor(rows, dtype=torch.int64)) for rows in
             ([i for i in range(n) for _ in range(i + 1, n)], [j for i in range(n) for j in range(i + 1, n)])]
    a, b = (w.op("aten.index_select", [x, rows], x.dtype, [out.shape[0], x.shape[1]], dim=0) for rows in pairs)
    return _norm(w, node, w.op("aten.sub.Tensor", [a, b], x.dtype, a.shape), p, 1)


def _norm(w: Writer, node: Node, x: Value, p: float, dim: int) -> Value:
    """Returns the p-norm of the last dimension."""
    out = node.out
    if x.dtype not in FLOATS:
        raise Unsupported(f"{node.name} of {x.dtype}")
    x = w.op("aten.abs", [x], x.dtype, x.shape)
    if math.isinf(p):
        return w.op("aten.amax", [x], x.dtype, out.shape, dim=[dim], keepdim=False)
    if p == 0:
        x = w.cast(w.op("aten.ne.Scalar", [x], torch.bool, x.shape, other=0), x.dtype)
    elif p != 1:
        x = w.op("aten.pow.Tensor_Scalar", [x], x.dtype, x.shape, exponent=float(p))
    total = w.op("aten.sum.dim_IntList", [x], x.dtype, out.shape, dim=[dim], keepdim=False)
    return total if p in (0, 1) else w.op("aten.pow.Tensor_Scalar", [total], x.dtype, out.shape, exponent=1 / p)


@handles("cumsum")
@lifts
def _cumsum(w: Writer, node: Node, x: Value, dim: int, dtype: Any = None) -> Value:
    out = node.out
    summed = out.dtype if out.dtype in FLOATS else torch.int64
    return w.cast(w.op("aten.cumsum", [w.cast(x, out.dtype)], summed, out.shape, dim=dim), out.dtype)


@handles("topk")
@lifts
def _topk(w: Writer, node: Node, x: Value, k: int, dim: int = -1, largest: bool = True, _sorted: bool = True) -> list[Value]:
    return _largest(w, node, x, k, dim, largest)


def _largest(w: Writer, node: Node, x: Value, k: Any, dim: int, largest: bool) -> list[Value]:
    out, numbers = node.out[0], _numbers(w, x)
    values, places = w.node("aten.topk", [numbers], [(numbers.dtype, out.shape), (torch.int64, out.shape)], k=k, dim=dim,
                            largest=largest)
    return [w.cast(values, x.dtype), places]


@handles("sort", "sort.stable")
@lifts
def _sort(w: Writer, node: Node, x: Value, dim: int = -1, descending: bool = False, stable: Any = None) -> list[Value]:
    return _largest(w, node, x, x.shape[dim], dim, descending)


# ---- indexing -------------------------------------------------------------------------------------------------------

@handles("cat")
def _cat(w: Writer, node: Node, parts: list[Value], dim: int = 0) -> Value:
    out = node.out
    parts = [w.cast(p, out.dtype) for p in parts if not (len(p.shape) == 1 and p.shape[0] == 0 and len(out.shape) != 1)]
    return w.op("aten.cat", parts, out.dtype, out.shape, dim=dim)


@handles("stack")
def _stack(w: Writer, node: Node, parts: list[Value], dim: int = 0) -> Value:
    return w.op("aten.stack", [w.cast(p, node.out.dtype) for p in parts], node.out.dtype, node.out.shape, dim=dim)


@handles("split_with_sizes", "split.Tensor", "unbind.int")
def _split(w: Writer, node: Node, x: Value, sizes: Any = 0, dim: int = 0) -> list[Value]:
    attributes: dict[str, Any] = {"aten.split_with_sizes": {"split_sizes": sizes, "dim": dim},
                                  "aten.split.Tensor": {"split_size": sizes, "dim": dim},
                                  "aten.unbind.int": {"dim": sizes}}[node.name]
    values = w.node(node.name, [x], [(x.dtype, out.shape) for out in node.out], **attributes)
    return [Value(v.name, v.dtype, v.shape, x.root) for v in values]


def _bounded_by_guard(out: Any, size: Any, end: Any) -> bool:
    """Returns whether Dynamo's guards alone say that the end of a slice is inside: the daemon would infer a minimum."""
    if end is None or not (isinstance(size, torch.SymInt) or isinstance(end, torch.SymInt)) or (type(end) is int and end > 1 << 31):
        return False
    shared = expression(size).free_symbols & expression(end).free_symbols
    return not shared and not expression(out).has(Min, Max) and (type(end) is not int or end >= 0)


@handles("slice.Tensor")
def _slice(w: Writer, node: Node, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    if _bounded_by_guard(node.out.shape[dim], x.shape[dim], end):
        rows = w.op("aten.arange.start_step", [], torch.int64, [node.out.shape[dim]], start=start or 0, end=end, step=step)
        return w.op("aten.index_select", [x, rows], x.dtype, node.out.shape, dim=dim)
    extra = {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    return w.view("aten.slice.Tensor", x, node.out.shape, dim=dim, **extra, step=step)


@handles("select.int")
def _select(w: Writer, node: Node, x: Value, dim: int, index: int) -> Value:
    return w.view("aten.select.int", x, node.out.shape, dim=dim, index=index)


@handles("gather")
@lifts
def _gather(w: Writer, node: Node, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    index = w.cast(index, torch.int64) if index.dtype == torch.uint8 else index
    return w.op("aten.gather", [x, index], x.dtype, node.out.shape, dim=dim)


@handles("index_select")
@lifts
def _index_select(w: Writer, node: Node, x: Value, dim: int, index: Value) -> Value:
    return w.op("aten.index_select", [x, index], x.dtype, node.out.shape, dim=dim)


def _with(w: Writer, word: str, x: Value, number: Any, dtype: torch.dtype) -> Value:
    """Writes an operator of integers and a number or a size."""
    other = _symbolic(w, number)
    if isinstance(other, Value):
        return w.op(f"aten.{word}.Tensor", [x, w.cast(other, x.dtype)], dtype, x.shape)
    return w.op(f"aten.{word}.Scalar", [x], dtype, x.shape, other=other)


def _counted(w: Writer, index: Value, size: Any) -> Value:
    """Returns an index whose negative elements count from the end."""
    behind = _with(w, "add", index, size, index.dtype)
    return w.op("aten.where.self", [_with(w, "lt", index, 0, torch.bool), behind, index], index.dtype, index.shape)


@handles("index.Tensor")
def _index(w: Writer, node: Node, x: Value, indices: list[Value | None]) -> Value:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in given):
        raise Unsupported("aten.index.Tensor with a mask: the size of its result depends on data")
    if len(given) > 1:
        return _index_by_several(w, node, x, given)
    dim, index = given[0]
    counted = _counted(w, index, x.shape[dim])
    if dim == 0:
        return w.op("aten.index.Tensor", [x, counted], x.dtype, node.out.shape)
    flat = w.reshape(counted, [product(index.shape)])
    rows = w.op("aten.index_select", [x, flat], x.dtype, [*x.shape[:dim], flat.shape[0], *x.shape[dim + 1:]], dim=dim)
    return w.reshape(rows, node.out.shape)


def _index_by_several(w: Writer, node: Node, x: Value, given: list[tuple[int, Value]]) -> Value:
    """Indices of several dimensions: the dimensions are merged, and the indices become rows of the merged one.

    An index that is out of range becomes -1 there, so that the replay is refused and no other element is read.
    """
    dims = [dim for dim, _ in given]
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise Unsupported("aten.index.Tensor with tensors of indices that are not beside each other")
    rows = _merged(w, x, given)
    before, after = list(x.shape[:dims[0]]), list(x.shape[dims[-1] + 1:])
    flat = w.reshape(x, [*before, product(x.shape[d] for d in dims), *after])
    taken = w.op("aten.index_select", [flat, rows], x.dtype, [*before, rows.shape[0], *after], dim=dims[0])
    return w.reshape(taken, node.out.shape)


def _merged(w: Writer, x: Value, given: list[tuple[int, Value]]) -> Value:
    """Returns indices of several dimensions as one list of indices of the merged dimension, -1 where one is outside."""
    shape: list[Any] = []
    for _, index in given:
        shape = _broadcast(index.shape, shape)
    merged: Value | None = None
    valid: Value | None = None
    for dim, index in given:
        size = x.shape[dim]
        counted = expanded(w, w.cast(_counted(w, index, size), torch.int64), shape)
        for comparison, bound in (("ge", 0), ("lt", size)):
            inside = _with(w, comparison, counted, bound, torch.bool)
            valid = inside if valid is None else w.op("aten.logical_and", [valid, inside], torch.bool, shape)
        if merged is not None:
            scaled = _with(w, "mul", merged, size, torch.int64)
            counted = w.op("aten.add.Tensor", [scaled, counted], torch.int64, shape)
        merged = counted
    outside = w.full(torch.int64, shape, -1)
    return w.reshape(w.op("aten.where.self", [valid, merged, outside], torch.int64, shape), [product(shape)])


def _put_by_several(w: Writer, x: Value, given: list[tuple[int, Value]], values: Value, accumulate: bool) -> Value:
    dims = [dim for dim, _ in given]
    if dims != list(range(len(dims))):
        raise Unsupported("aten.index_put with tensors of indices that are not of the first dimensions")
    rows, after = _merged(w, x, given), list(x.shape[len(dims):])
    shape: list[Any] = []
    for _, index in given:
        shape = _broadcast(index.shape, shape)
    source = w.reshape(expanded(w, values, [*shape, *after]), [rows.shape[0], *after])
    flat = w.reshape(x, [product(x.shape[d] for d in dims), *after])
    return w.reshape(w.op("aten.index_put", [flat, rows, source], x.dtype, flat.shape, accumulate=accumulate), x.shape)


@handles("index_put")
def _index_put(w: Writer, node: Node, x: Value, indices: list[Value | None], values: Value,
               accumulate: bool = False) -> Value:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    values = w.cast(values, x.dtype)
    if len(given) == 1 and given[0][1].dtype == torch.bool and not accumulate and not given[0][0] and not values.shape:
        mask = given[0][1]
        mask = w.reshape(mask, [*mask.shape, *[1] * (len(x.shape) - len(mask.shape))])
        return w.op("aten.where.self", [mask, values, x], x.dtype, x.shape)
    if any(index.dtype not in (torch.int64, torch.int32) for _, index in given):
        raise Unsupported("aten.index_put with a mask")
    if len(given) > 1:
        return _put_by_several(w, x, given, values, accumulate)
    dim, index = given[0]
    counted = _counted(w, index, x.shape[dim])
    if dim == 0:
        return w.op("aten.index_put", [x, counted, expanded(w, values, [*index.shape, *x.shape[1:]])], x.dtype, x.shape,
                    accumulate=accumulate)
    if len(index.shape) != 1 or accumulate:
        raise Unsupported("aten.index_put along an inner dimension, accumulating or with indices of several dimensions")
    source = expanded(w, values, [*x.shape[:dim], index.shape[0], *x.shape[dim + 1:]])
    return w.op("aten.index_copy", [x, counted, source], x.dtype, x.shape, dim=dim)


@handles("index_copy")
def _index_copy(w: Writer, node: Node, x: Value, dim: int, index: Value, source: Value) -> Value:
    return w.op("aten.index_copy", [x, index, source], x.dtype, x.shape, dim=dim)


@handles("scatter.src", "scatter_add")
def _scatter(w: Writer, node: Node, x: Value, dim: int, index: Value, source: Value) -> Value:
    return w.op(node.name, [x, index, source], x.dtype, x.shape, dim=dim)


@handles("scatter.value")
def _scatter_value(w: Writer, node: Node, x: Value, dim: int, index: Value, value: Any) -> Value:
    return w.op("aten.scatter.value", [x, index], x.dtype, x.shape, dim=dim, value=float_or_int(value))


@handles("scatter_reduce.two")
@lifts
def _scatter_reduce(w: Writer, node: Node, x: Value, dim: int, index: Value, source: Value, reduce: str,
                    include_self: bool = True) -> Value:
    """Sums and means by scatter_add, other reductions over a table of what goes where."""
    if reduce in ("sum", "mean"):
        first = x if include_self else w.op("aten.scatter.value", [x, index], x.dtype, x.shape, dim=dim, value=0)
        total = w.op("aten.scatter_add", [first, index, source], x.dtype, x.shape, dim=dim)
        if reduce == "sum":
            return total
        if x.dtype not in FLOATS:
            raise Unsupported("aten.scatter_reduce with the mean of integers")
        own = w.full(torch.float32, x.shape, int(include_self))
        ones = w.full(torch.float32, source.shape, 1)
        count = w.op("aten.scatter_add", [own, index, ones], torch.float32, x.shape, dim=dim)
        count = w.op("aten.clamp", [count], torch.float32, x.shape, min=1)
        return w.op("aten.div.Tensor", [total, w.cast(count, x.dtype)], x.dtype, x.shape)
    raise Unsupported(f"aten.scatter_reduce with {reduce}")


@handles("masked_scatter")
def _masked_scatter(w: Writer, node: Node, x: Value, mask: Value, source: Value) -> Value:
    """The n-th true element of the mask takes the n-th element of the source."""
    out = node.out
    n = product(out.shape)
    mask, x = expanded(w, mask, out.shape), expanded(w, x, out.shape)
    flat = w.reshape(mask, [n])
    count = w.op("aten.cumsum", [w.cast(flat, torch.int64)], torch.int64, [n], dim=0)
    place = w.op("aten.sub.Scalar", [count], torch.int64, [n], other=1)
    place = w.op("aten.where.self", [flat, place, w.full(torch.int64, [n], 0)], torch.int64, [n])
    size = product(source.shape)
    taken = w.op("aten.index_select", [w.reshape(source, [size]), place], x.dtype, [n], dim=0)
    return w.op("aten.where.self", [mask, w.reshape(taken, out.shape), x], x.dtype, out.shape)


@handles("slice_scatter")
def _slice_scatter(w: Writer, node: Node, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None,
                   step: int = 1) -> Value:
    extra = {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    return w.op("aten.slice_scatter", [x, w.cast(source, x.dtype)], x.dtype, x.shape, dim=dim, **extra, step=step)


@handles("select_scatter")
def _select_scatter(w: Writer, node: Node, x: Value, source: Value, dim: int, index: int) -> Value:
    return w.op("aten.select_scatter", [x, w.cast(source, x.dtype)], x.dtype, x.shape, dim=dim, index=index)


@handles("tril", "triu")
def _triangle(w: Writer, node: Node, x: Value, diagonal: int = 0) -> Value:
    return w.op(node.name, [x], x.dtype, x.shape, diagonal=diagonal)


@handles("constant_pad_nd")
def _pad(w: Writer, node: Node, x: Value, pad: Any, value: Any = 0) -> Value:
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(x.shape) - 1 - number
        cut = [-p if isinstance(p, int) and p < 0 else 0 for p in (before, after)]
        if any(cut):
            size = x.shape[dim] - cut[0] - cut[1]
            x = w.op("aten.slice.Tensor", [x], x.dtype, [*x.shape[:dim], size, *x.shape[dim + 1:]], dim=dim, start=cut[0],
                     end=x.shape[dim] - cut[1], step=1)
    fill = bool(value) if x.dtype == torch.bool else value
    return w.op("aten.constant_pad_nd", [x], x.dtype, node.out.shape,
                pad=[max(p, 0) if isinstance(p, int) else p for p in pad], value=float_or_int(fill))


@handles("flip")
def _flip(w: Writer, node: Node, x: Value, dims: Any) -> Value:
    for dim in dims:
        n = x.shape[dim]
        up = w.op("aten.arange", [], torch.int64, [n], end=n)
        down = w.op("aten.rsub.Scalar", [up], torch.int64, [n], other=n - 1)
        x = w.op("aten.index_select", [x, down], x.dtype, x.shape, dim=dim)
    return x


@handles("repeat")
def _repeat(w: Writer, node: Node, x: Value, repeats: Any) -> Value:
    return w.op("aten.repeat", [x], x.dtype, node.out.shape, repeats=list(repeats))


# ---- views ----------------------------------------------------------------------------------------------------------

@handles("view", "_unsafe_view", "squeeze.dim", "squeeze.dims", "squeeze", "unsqueeze")
def _view(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    if len(x.shape) == len(node.out.shape) and all(map(same, x.shape, node.out.shape)):
        return x
    return w.reshape(x, node.out.shape)


@handles("expand")
def _expand(w: Writer, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return expanded(w, x, node.out.shape)


@handles("permute")
def _permute(w: Writer, node: Node, x: Value, dims: Any) -> Value:
    dims = [_dim(d, len(x.shape)) for d in dims]
    if dims == list(range(len(dims))):
        return x
    if dims == [1, 0]:
        return w.view("aten.t", x, node.out.shape)
    return w.view("aten.permute", x, node.out.shape, dims=dims)


@handles("transpose.int")
def _transpose(w: Writer, node: Node, x: Value, dim0: int, dim1: int) -> Value:
    return w.view("aten.transpose.int", x, node.out.shape, dim0=dim0, dim1=dim1)


@handles("t")
def _t(w: Writer, node: Node, x: Value) -> Value:
    return w.view("aten.t", x, node.out.shape) if len(x.shape) == 2 else x


# ---- new tensors ----------------------------------------------------------------------------------------------------

@handles("full", "zeros", "ones", "empty.memory_format", "empty_strided", "scalar_tensor", "full_like", "zeros_like", "ones_like",
         "empty_like", "new_full", "new_zeros", "new_ones", "new_empty", "fill.Scalar")
def _full(w: Writer, node: Node, *arguments: Any, **_: Any) -> Value:
    word = node.name.split(".")[1]
    fill: Any = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1, "empty": 0,
                 "empty_strided": 0, "empty_like": 0, "new_empty": 0}.get(word)
    if fill is None:
        fill = arguments[{"scalar_tensor": 0, "new_full": 2}.get(word, 1)]
    if isinstance(fill, (torch.SymInt, torch.SymFloat)):
        raise Unsupported(f"{node.name} with a symbolic number")
    return w.full(node.out.dtype, node.out.shape, fill)


@handles("arange", "arange.start", "arange.start_step")
def _arange(w: Writer, node: Node, *arguments: Any, **_: Any) -> Value:
    first, end, step = {1: (0, *arguments, 1), 2: (*arguments, 1)}.get(len(arguments), arguments)
    out = node.out
    numbers = (first, end, step)
    symbolic = any(isinstance(v, torch.SymInt) for v in numbers)
    if not symbolic and (step < 1 or any(isinstance(v, float) and not v.is_integer() for v in numbers)):
        return _progression(w, out, first, step)
    first, end, step = (int(v) if isinstance(v, float) else v for v in numbers)
    if isinstance(step, torch.SymInt) or step < 1:
        raise Unsupported("aten.arange with a step below 1")
    count = w.op("aten.arange.start_step", [], torch.int64, out.shape, start=first, end=end, step=step)
    return w.cast(count, out.dtype)


def _progression(w: Writer, out: Any, first: Any, step: Any) -> Value:
    """Returns first + n * step, for steps that may be negative or fractions."""
    n = w.op("aten.arange.start_step", [], torch.int64, out.shape, start=0, end=out.shape[0], step=1)
    dtype = torch.float32 if out.dtype in FLOATS else torch.int64
    if dtype == torch.int64 and not all(float(v).is_integer() for v in (first, step)):
        raise Unsupported("aten.arange of integers with a fraction")
    number = float if dtype == torch.float32 else int
    scaled = w.op("aten.mul.Scalar", [w.cast(n, dtype)], dtype, out.shape, other=number(step))
    return w.cast(w.op("aten.add.Scalar", [scaled], dtype, out.shape, other=number(first)), out.dtype)
