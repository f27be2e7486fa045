# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pooling, padding, resampling: operators whose results are elements at fixed places, or sums of them.

Where elements come from depends on sizes alone. It is computed here, by PyTorch itself where that is easy, and goes into
the graph as a constant: a list of places, or the matrix of a linear map along one dimension.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .shapes import Unsupported
from .values import FLOATS, Node, Value, Writer, expanded, handles, product

PLACES_MAX = 1 << 26  # elements of a list of places


def _fixed(node: Node, sizes: Sequence[Any]) -> list[int]:
    if not all(type(size) is int for size in sizes):
        raise Unsupported(f"{node.name} along a dynamic size")
    return list(sizes)


def _pairs(value: Any, n: int, default: int) -> list[int]:
    """Returns n numbers of a list that may have one, or none."""
    given = [value] if isinstance(value, int) else list(value or [])
    return given * n if len(given) == 1 else given or [default] * n


def taken(w: Writer, x: Value, lead: int, places: torch.Tensor, shape: Sequence[Any]) -> Value:
    """Returns the elements at places of the dimensions from `lead` on, taken as one."""
    if places.numel() > PLACES_MAX:
        raise Unsupported(f"a list of {places.numel()} places")
    before = product(x.shape[:lead])
    flat = w.reshape(x, [before, product(x.shape[lead:])])
    rows = w.op("aten.index_select", [flat, w.constant(places.flatten())], x.dtype, [before, places.numel()], dim=1)
    return w.reshape(rows, shape)


# ---- elements at other places ---------------------------------------------------------------------------------------

_MOVING = {"1d": 1, "2d": 2, "3d": 3}  # dimensions, the last ones


@handles("diagonal", "as_strided", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad2d",
         "replication_pad3d", "upsample_nearest2d", "upsample_nearest2d.vec")
def _moved(w: Writer, node: Node, x: Value, *arguments: Any) -> Value:
    """Operators that only move elements: PyTorch moves their numbers."""
    moving = next((n for ending, n in _MOVING.items() if ending in node.name), len(x.shape))
    lead = len(x.shape) - moving
    sizes = _fixed(node, x.shape[lead:])
    if any(not isinstance(a, (int, float, list, tuple, type(None))) for a in arguments):
        raise Unsupported(f"{node.name} with dynamic arguments")
    given = node.fx.args[0].meta["val"]
    numbers = torch.arange(math.prod(sizes), dtype=torch.float64).reshape([1] * lead + sizes)
    if node.name == "aten.as_strided":
        numbers = _laid_out(numbers, _fixed(node, given.stride()), given.storage_offset(), sizes, arguments)
    places = node.fx.target(numbers, *arguments).to(torch.int64)
    if places.numel() and int(places.min()) < 0:
        raise Unsupported(f"{node.name} outside of the tensor")
    return taken(w, x, lead, places, node.out.shape)


def _laid_out(numbers: torch.Tensor, stride: list[int], offset: Any, sizes: list[int], arguments: Any) -> torch.Tensor:
    """Returns the numbers in memory as the tensor's, with -1 around them as far as as_strided reaches."""
    if type(offset) is not int:
        raise Unsupported("aten.as_strided of a tensor with a dynamic offset")
    if any(n > 1 and s == 0 for n, s in zip(sizes, stride, strict=True)):
        raise Unsupported("aten.as_strided of an expanded tensor")
    size, step, start = arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else None
    last = sum((n - 1) * s for n, s in zip(size, step, strict=True)) + (offset if start is None else start)
    own = sum((n - 1) * s for n, s in zip(sizes, stride, strict=True)) + offset
    memory = torch.full([max(last, own, 0) + 1], -1, dtype=numbers.dtype)
    shown = memory.as_strided(sizes, stride, offset)
    shown.copy_(numbers)
    return shown


# ---- windows --------------------------------------------------------------------------------------------------------

def _window(n: int, kernel: int, stride: int, padding: int, dilation: int, out: int, transposed: bool) -> torch.Tensor:
    """Returns the places [kernel, out] along one dimension that a window reads, -1 outside."""
    o, k = torch.arange(out)[None, :], torch.arange(kernel)[:, None]
    if transposed:
        at = o + padding - k * dilation
        place, whole = at.div(stride, rounding_mode="floor"), at % stride == 0
    else:
        place, whole = o * stride - padding + k * dilation, torch.tensor(True)
    return torch.where(whole & (place >= 0) & (place < n), place, -1)


def windows(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
            dilation: Sequence[int], out: Sequence[int], transposed: bool = False) -> torch.Tensor:
    """Returns the places [kernel, out] that windows over several dimensions read, -1 outside."""
    dims = len(sizes)
    flat = torch.zeros([1] * (2 * dims), dtype=torch.int64)
    valid = torch.ones([1] * (2 * dims), dtype=torch.bool)
    for d in range(dims):
        one = _window(sizes[d], kernel[d], stride[d], padding[d], dilation[d], out[d], transposed)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = one.shape
        one = one.reshape(shape)
        flat, valid = flat * sizes[d] + one, valid & (one >= 0)
    return torch.where(valid, flat, -1).reshape(math.prod(kernel), math.prod(out))


def gathered(w: Writer, x: Value, lead: int, places: torch.Tensor, fill: float) -> Value:
    """Returns [lead dimensions, kernel, out]: elements at places of the dimensions from `lead` on, and `fill` outside."""
    n = product(x.shape[lead:])
    if places.shape[0] == 1 and torch.equal(places[0], torch.arange(n)):
        return w.reshape(x, [*x.shape[:lead], 1, n])
    outside = bool((places < 0).any())
    places = torch.where(places < 0, n, places)
    shape, before = [*x.shape[:lead], *places.shape], product(x.shape[:lead])
    x = w.reshape(x, [before, n])
    if outside:
        x = w.op("aten.cat", [x, w.full(x.dtype, [before, 1], fill)], x.dtype, [before, n + 1], dim=1)
    return taken(w, x, 1, places, shape)


@handles("convolution")
def _convolution(w: Writer, node: Node, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any,
                 dilation: Any, transposed: bool, output_padding: Any, groups: int) -> Value:
    """Each window becomes a column, and the columns are multiplied by the weights, for each group."""
    out = node.out
    if out.dtype not in FLOATS:
        raise Unsupported(f"aten.convolution of {out.dtype}")
    dims = len(weight.shape) - 2
    sizes, kernel = _fixed(node, x.shape[-dims:]), _fixed(node, weight.shape[2:])
    batch, channels = (x.shape[0] if len(x.shape) > dims + 1 else 1), _fixed(node, x.shape[-dims - 1:])[0]
    step, pad, apart = (_pairs(v, dims, d) for v, d in ((stride, 1), (padding, 0), (dilation, 1)))
    places = windows(sizes, kernel, step, pad, apart, out.shape[-dims:], transposed)
    k, n = places.shape
    columns = gathered(w, w.reshape(x, [batch, channels, *sizes]), 2, places, 0)
    inner, outer = channels // groups, out.shape[-dims - 1] // groups
    columns = w.reshape(columns, [batch * groups, inner * k, n])
    if transposed:
        weight = w.reshape(weight, [groups, inner, outer, k])
        weight = w.op("aten.permute", [weight], weight.dtype, [groups, outer, inner, k], dims=[0, 2, 1, 3])
    weight = w.reshape(weight, [1, groups, outer, inner * k])
    weight = w.reshape(expanded(w, weight, [batch, groups, outer, inner * k]), [batch * groups, outer, inner * k])
    y = w.op("aten.bmm", [weight, columns], out.dtype, [batch * groups, outer, n])
    if bias is not None:
        y = w.reshape(y, [batch, groups * outer, n])
        y = w.op("aten.add.Tensor", [y, w.reshape(bias, [1, groups * outer, 1])], out.dtype, y.shape)
    return w.reshape(y, out.shape)


@handles("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(w: Writer, node: Node, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False) -> list[Any]:
    out, dims = node.out[0], 2 if "2d" in node.name else 3
    sizes, shape = _fixed(node, x.shape[-dims:]), _fixed(node, out.shape[-dims:])
    kernel = _pairs(kernel, dims, 1)
    places = windows(sizes, kernel, _pairs(stride, dims, 1) if stride else kernel, _pairs(padding, dims, 0),
                     _pairs(dilation, dims, 1), shape)
    lead = product(x.shape[:-dims])
    k, n = places.shape
    least = -math.inf if x.dtype in FLOATS else torch.iinfo(x.dtype).min
    columns = gathered(w, w.reshape(x, [lead, *sizes]), 1, places, least)
    best = w.op("aten.amax", [columns], x.dtype, [lead, n], dim=[1], keepdim=False)
    if not node.uses(1):
        return [w.reshape(best, out.shape), None]
    which = w.op("aten.argmax", [columns], torch.int64, [lead, n], dim=1, keepdim=False)
    first, table = torch.arange(n) * k, places.t().flatten()
    number = w.op("aten.add.Tensor", [which, w.constant(first)], torch.int64, [lead, n])
    found = w.op("aten.index_select", [w.constant(table), w.reshape(number, [lead * n])], torch.int64, [lead * n], dim=0)
    return [w.reshape(best, out.shape), w.reshape(found, out.shape)]


@handles("col2im")
def _col2im(w: Writer, node: Node, x: Value, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Each element of the image is the sum of the elements of columns that windows took it to."""
    if x.dtype not in FLOATS:
        raise Unsupported(f"aten.col2im of {x.dtype}")
    batch = x.shape[0] if len(x.shape) == 3 else 1
    rows, columns = _fixed(node, x.shape[-2:])
    k = math.prod(kernel)
    grid = [(n + 2 * p - d * (f - 1) - 1) // s + 1
            for n, f, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)]
    places = windows(grid, kernel, stride, padding, dilation, size, transposed=True)
    own = torch.arange(k)[:, None] * columns + places
    places = torch.where(places < 0, -1, own)
    spread = gathered(w, w.reshape(x, [batch * (rows // k), k * columns]), 1, places, 0)
    total = w.op("aten.sum.dim_IntList", [spread], x.dtype, [spread.shape[0], math.prod(size)], dim=[1], keepdim=False)
    return w.reshape(total, node.out.shape)


# ---- linear maps along a dimension ----------------------------------------------------------------------------------

def _mapped(w: Writer, node: Node, x: Value, dims: int, along: Callable[[int, torch.Tensor], torch.Tensor]) -> Value:
    """Applies a linear map along each of the last dimensions. along(d, images) maps a batch of images whose dimension
    d has all its elements, and whose others have one: rows of the identity give the map's matrix."""
    out = node.out
    if out.dtype not in FLOATS:
        raise Unsupported(f"{node.name} of {out.dtype}")
    sizes, shape = _fixed(node, x.shape[-dims:]), _fixed(node, out.shape[-dims:])
    y, lead = w.cast(x, torch.float32), product(x.shape[:-dims])
    for d in range(dims):
        n, m = sizes[d], shape[d]
        image = [n, 1, *[1] * dims]
        image[2 + d] = n
        matrix = along(d, torch.eye(n, dtype=torch.float64).reshape(image)).reshape(n, m).to(torch.float32)
        before, after = product(shape[:d]) * lead, math.prod(sizes[d + 1:])
        turned = w.reshape(y, [before, n, after])
        turned = w.op("aten.transpose.int", [turned], torch.float32, [before, after, n], dim0=1, dim1=2)
        y = w.op("aten.mm", [w.reshape(turned, [before * after, n]), w.constant(matrix)], torch.float32, [before * after, m])
        y = w.op("aten.transpose.int", [w.reshape(y, [before, after, m])], torch.float32, [before, m, after], dim0=1, dim1=2)
    return w.cast(w.reshape(y, out.shape), out.dtype)


@handles("avg_pool2d", "avg_pool3d")
def _avg_pool(w: Writer, node: Node, x: Value, kernel: Any, stride: Any = None, padding: Any = 0,
              ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Value:
    dims = 2 if "2d" in node.name else 3
    kernel = _pairs(kernel, dims, 1)
    stride, padding = _pairs(stride, dims, 1) if stride else kernel, _pairs(padding, dims, 0)

    def along(d: int, images: torch.Tensor) -> torch.Tensor:
        def one(values: list[int], other: int) -> list[int]:
            return [values[d] if e == d else other for e in range(dims)]
        divisor = None if divisor_override is None else (divisor_override if d == 0 else 1)
        result: torch.Tensor = node.fx.target(images, one(kernel, 1), one(stride, 1), one(padding, 0), ceil_mode,
                                              count_include_pad, divisor)
        return result

    return _mapped(w, node, x, dims, along)


@handles("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(w: Writer, node: Node, x: Value, size: Any) -> Value:
    dims = 2 if "2d" in node.name else 3

    def along(d: int, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = node.fx.target(images, [size[d] if e == d else 1 for e in range(dims)])
        return result

    return _mapped(w, node, x, dims, along)


@handles("upsample_bilinear2d", "upsample_bilinear2d.vec")
def _bilinear(w: Writer, node: Node, x: Value, size: Any, align_corners: bool, *factors: Any) -> Value:
    shape, scales = node.out.shape, _factors(node, factors)

    def along(d: int, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.upsample_bilinear2d.default(
            images, [shape[2 + e] if e == d else 1 for e in range(2)], align_corners,
            *[scales[e] if e == d else None for e in range(2)])
        return result

    return _mapped(w, node, x, 2, along)


def _factors(node: Node, factors: Any) -> list[Any]:
    """Returns the factors of both dimensions, None where the sizes say them."""
    given = (factors[0] if factors else None) if node.name.endswith(".vec") else factors
    return [*(given or ()), None, None][:2]
