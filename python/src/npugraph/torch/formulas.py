# SPDX-License-Identifier: Apache-2.0
"""Operators that are formulas of others. Floats are computed in f32, whatever their dtype."""
from __future__ import annotations

import math
from typing import Any

import torch

from .shapes import Unsupported
from .values import FLOATS, Node, Value, Writer, expanded, handles


class Formula:
    """Writes f32 operators of one shape."""

    def __init__(self, w: Writer, shape: Any) -> None:
        self.w, self.shape = w, shape

    def __call__(self, name: str, *operands: Value, **attributes: Any) -> Value:
        return self.w.op(name, operands, torch.float32, self.shape, **attributes)

    def by(self, x: Value, factor: float) -> Value:
        return x if factor == 1 else self("aten.mul.Scalar", x, other=float(factor))

    def plus(self, x: Value, number: float) -> Value:
        return self("aten.add.Scalar", x, other=float(number))

    def where(self, comparison: str, x: Value, other: float, yes: Value, no: Value) -> Value:
        condition = self.w.op(f"aten.{comparison}.Scalar", [x], torch.bool, self.shape, other=other)
        return self("aten.where.self", condition, yes, no)

    def polynomial(self, x: Value, *coefficients: float) -> Value:
        """Horner's scheme, the highest power first."""
        y = self.by(x, coefficients[0])
        for c in coefficients[1:-1]:
            y = self("aten.mul.Tensor", self.plus(y, c), x)
        return self.plus(y, coefficients[-1])

    def signed(self, x: Value, size: Value) -> Value:
        """Returns the size with the sign of x, also of -0, whose reciprocal is negative."""
        minus = self("aten.neg", size)
        zero = self.where("lt", self("aten.reciprocal", x), 0, minus, size)
        return self.where("eq", x, 0, zero, self.where("lt", x, 0, minus, size))

    # ---- logarithms and exponentials ----

    def log1p(self, x: Value) -> Value:
        """log(1 + x): the quotient corrects what 1 + x rounds off."""
        u = self.plus(x, 1)
        corrected = self("aten.mul.Tensor", self("aten.log", u), self("aten.div.Tensor", x, self("aten.sub.Scalar", u, other=1)))
        infinite = self.where("eq", u, math.inf, u, corrected)
        return self.where("eq", u, 1, x, self.where("eq", u, 0, self("aten.log", u), infinite))

    def expm1(self, x: Value) -> Value:
        """exp(x) - 1: likewise."""
        u = self("aten.exp", x)
        less = self("aten.sub.Scalar", u, other=1)
        corrected = self("aten.div.Tensor", self("aten.mul.Tensor", less, x), self("aten.log", u))
        far = self.where("gt", x, 1, less, self.where("lt", x, -1, less, corrected))
        return self.where("eq", u, 1, x, far)

    # ---- arcs ----

    def atan(self, x: Value) -> Value:
        """The arc tangent: arguments above tan(pi/8) are turned back by pi/4 or pi/2."""
        a = self("aten.abs", x)
        turned = self("aten.div.Tensor", self("aten.sub.Scalar", a, other=1), self.plus(a, 1))
        inverse = self("aten.neg", self("aten.reciprocal", a))
        low, high = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)
        t = self.where("gt", a, high, inverse, self.where("gt", a, low, turned, a))
        zero = self.w.full(torch.float32, self.shape, 0)
        by = self.where("gt", a, high, self.plus(zero, math.pi / 2), self.where("gt", a, low, self.plus(zero, math.pi / 4), zero))
        z = self("aten.mul.Tensor", t, t)
        tail = self("aten.mul.Tensor", self("aten.mul.Tensor", t, z), self.polynomial(z, *_ATAN))
        return self.signed(x, self("aten.add.Tensor", self("aten.add.Tensor", t, tail), by))

    def asin_of_half(self, a: Value) -> Value:
        """The arc sine of 0 to 1/2."""
        z = self("aten.mul.Tensor", a, a)
        return self("aten.add.Tensor", a, self("aten.mul.Tensor", self("aten.mul.Tensor", a, z), self.polynomial(z, *_ASIN)))

    def asin(self, x: Value) -> Value:
        """The arc sine; above 1/2 as pi/2 - 2 asin(sqrt((1 - a) / 2))."""
        a = self("aten.abs", x)
        far = self("aten.rsub.Scalar", self.by(self.asin_of_half(self._half_angle(a)), 2), other=math.pi / 2)
        return self.signed(x, self.where("gt", a, 0.5, far, self.asin_of_half(self("aten.clamp", a, max=0.5))))

    def acos(self, x: Value) -> Value:
        """The arc cosine: pi/2 - asin(x), and next to 1 and -1 by the half angle, which keeps all digits."""
        a = self("aten.abs", x)
        twice = self.by(self.asin_of_half(self._half_angle(a)), 2)
        near = self.where("lt", x, 0, self("aten.rsub.Scalar", twice, other=math.pi), twice)
        small = self.signed(x, self.asin_of_half(self("aten.clamp", a, max=0.5)))
        return self.where("gt", a, 0.5, near, self("aten.rsub.Scalar", small, other=math.pi / 2))

    def _half_angle(self, a: Value) -> Value:
        return self("aten.sqrt", self.by(self("aten.rsub.Scalar", a, other=1), 0.5))

    # ---- hyperbolic functions ----

    def sinh(self, x: Value) -> Value:
        """(u + u / (u + 1)) / 2 with u = exp(a) - 1; above 1 e - 1 / (4 e) with e = exp(a - log 2), which overflows late."""
        a = self("aten.abs", x)
        u = self.expm1(self("aten.clamp", a, max=1.0))
        near = self.by(self("aten.add.Tensor", u, self("aten.div.Tensor", u, self.plus(u, 1))), 0.5)
        e = self._half_exp(a)
        far = self("aten.sub.Tensor", e, self.by(self("aten.reciprocal", e), 0.25))
        return self.signed(x, self.where("le", a, 1, near, far))

    def cosh(self, x: Value) -> Value:
        e = self._half_exp(self("aten.abs", x))
        return self("aten.add.Tensor", e, self.by(self("aten.reciprocal", e), 0.25))

    def _half_exp(self, a: Value) -> Value:
        """exp(a) / 2 by two factors, as exp(a) may overflow where its half does not."""
        root = self("aten.exp", self.by(a, 0.5))
        return self("aten.mul.Tensor", self.by(root, 0.5), root)

    def asinh(self, x: Value) -> Value:
        """log(a + sqrt(a^2 + 1)); small ones by log1p, large ones as log(a) + log(2)."""
        a = self("aten.abs", x)
        square = self("aten.mul.Tensor", a, a)
        root = self.plus(self("aten.sqrt", self.plus(square, 1)), 1)
        near = self.log1p(self("aten.add.Tensor", a, self("aten.div.Tensor", square, root)))
        return self.signed(x, self.where("gt", a, 1e8, self._log_of_twice(a), near))

    def acosh(self, x: Value) -> Value:
        t = self("aten.sub.Scalar", x, other=1)
        root = self("aten.sqrt", self("aten.mul.Tensor", t, self.plus(t, 2)))
        return self.where("gt", x, 1e8, self._log_of_twice(x), self.log1p(self("aten.add.Tensor", t, root)))

    def _log_of_twice(self, a: Value) -> Value:
        return self.plus(self("aten.log", a), math.log(2))

    def atanh(self, x: Value) -> Value:
        a = self("aten.abs", x)
        ratio = self("aten.div.Tensor", self.by(a, 2), self("aten.rsub.Scalar", a, other=1))
        return self.signed(x, self.by(self.log1p(ratio), 0.5))


# Least errors of (atan(t) / t - 1) / t^2 on 0..tan(pi/8)^2, and of the same for asin on 0..1/4, as polynomials of t^2.
_ATAN = (-0.06083441898226738, 0.10595996677875519, -0.14243848621845245, 0.19998489320278168, -0.33333316445350647)
_ASIN = (0.037565186619758606, 0.014402614906430244, 0.03181760758161545, 0.04451572149991989, 0.07500510662794113,
         0.16666659712791443)


@handles("log1p", "expm1", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")
def _named(w: Writer, node: Node, x: Value) -> Value:
    f, x = _formula(w, node, x)
    y: Value = getattr(f, node.name.split(".")[1])(x)
    return w.cast(y, node.out.dtype)


def _formula(w: Writer, node: Node, x: Value) -> tuple[Formula, Value]:
    if node.out.dtype not in FLOATS:
        raise Unsupported(f"{node.name} of {node.out.dtype}")
    return Formula(w, node.out.shape), w.cast(x, torch.float32)


@handles("log10", "log2")
def _log(w: Writer, node: Node, x: Value) -> Value:
    """The natural logarithm divided; whole where x is the power of a whole number."""
    f, x = _formula(w, node, x)
    base = 10 if node.name == "aten.log10" else 2
    y = f.by(f("aten.log", x), 1 / math.log(base))
    whole = f("aten.round", y)
    power = f("aten.pow.Tensor_Tensor", w.full(torch.float32, f.shape, base), whole)
    same = w.op("aten.eq.Tensor", [power, x], torch.bool, f.shape)
    return w.cast(f("aten.where.self", same, whole, y), node.out.dtype)


@handles("tan")
def _tan(w: Writer, node: Node, x: Value) -> Value:
    f, x = _formula(w, node, x)
    return w.cast(f("aten.div.Tensor", f("aten.sin", x), f("aten.cos", x)), node.out.dtype)


@handles("elu")
def _elu(w: Writer, node: Node, x: Value, alpha: float = 1, scale: float = 1, inner: float = 1) -> Value:
    f, x = _formula(w, node, x)
    low = f.by(f.expm1(f.by(x, inner)), alpha * scale)
    return w.cast(f.where("gt", x, 0, f.by(x, scale), low), node.out.dtype)


@handles("fmod.Scalar", "fmod.Tensor")
def _fmod(w: Writer, node: Node, a: Value, b: Any) -> Value:
    """The remainder with the sign of a: floats by the remainder of the sizes, which is exact."""
    out = node.out
    if out.dtype == torch.bool:
        raise Unsupported("aten.fmod of bool")
    dtype = torch.float32 if out.dtype in FLOATS else out.dtype
    b = b if isinstance(b, Value) else w.full(dtype, (), b)
    a, b = (expanded(w, w.cast(v, dtype), out.shape) for v in (a, b))
    if dtype == torch.float32:
        f = Formula(w, out.shape)
        return w.cast(f.signed(a, f("aten.remainder.Tensor", f("aten.abs", a), f("aten.abs", b))), out.dtype)
    times = w.op("aten.div.Tensor_mode", [a, b], dtype, out.shape, rounding_mode="trunc")
    return w.op("aten.sub.Tensor", [a, w.op("aten.mul.Tensor", [times, b], dtype, out.shape)], dtype, out.shape)


@handles("atan2")
def _atan2(w: Writer, node: Node, y: Value, x: Value) -> Value:
    """The angle of (x, y): atan(y / x), turned by pi where x is negative. A zero or an infinity has the sign of y."""
    out = node.out
    if out.dtype not in FLOATS:
        raise Unsupported(f"aten.atan2 of {out.dtype}")
    f = Formula(w, out.shape)
    y, x = (expanded(w, w.cast(v, torch.float32), out.shape) for v in (y, x))
    a, b = f("aten.abs", y), f("aten.abs", x)
    infinite = f.where("eq", a, math.inf, f.where("eq", b, math.inf, w.full(torch.float32, out.shape, 1), a), a)
    below = f.where("eq", a, math.inf, f.where("eq", b, math.inf, w.full(torch.float32, out.shape, 1), b), b)
    ratio = f("aten.div.Tensor", infinite, below)
    zero = f.by(f("aten.clamp", b, max=1.0), 0)  # or NaN
    angle = f.atan(f.where("eq", a, 0, zero, ratio))
    behind = f("aten.rsub.Scalar", angle, other=math.pi)
    # 1 / x tells -0 from 0.
    turned = f.where("lt", x, 0, behind, f.where("lt", f("aten.reciprocal", x), 0, f.where("eq", x, 0, behind, angle), angle))
    return w.cast(f.signed(y, turned), out.dtype)
