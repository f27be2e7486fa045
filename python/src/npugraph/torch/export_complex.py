# SPDX-License-Identifier: Apache-2.0
"""Complex numbers of a trace as pairs of floats: rotary embeddings that turn views of heads by e^(i * angle) need no more."""
from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from .export_experts import Refused

# Operators that act on each number by itself: on a pair they act on each part.
_EACH = {f"aten.{name}" for name in ("unsqueeze.default", "squeeze.dim", "squeeze.dims", "view.default", "reshape.default",
                                     "_unsafe_view.default", "expand.default", "permute.default", "transpose.int", "slice.Tensor",
                                     "select.int", "clone.default", "alias.default", "detach.default", "neg.default")}
_OF_ONES = {"aten.ones_like.default", "aten.ones.default"}
_FILLED = {"aten.full.default", "aten.full_like.default"}


@dataclasses.dataclass
class Pair:
    """A complex tensor."""

    real: torch.Tensor
    imag: torch.Tensor

    def times(self, other: Any) -> Pair:
        if isinstance(other, complex):
            raise Refused("its code multiplies by a complex number: the daemon has none")
        if not isinstance(other, Pair):
            return Pair(self.real * other, self.imag * other)
        return Pair(self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real)


def is_complex(gm: GraphModule) -> bool:
    """Returns whether a trace has complex numbers."""
    return any(isinstance(val := n.meta.get("val"), torch.Tensor) and val.is_complex() for n in gm.graph.nodes)


class Parts(Interpreter):
    """Runs a trace with pairs instead of complex tensors. To trace this gives a graph without them."""

    def run_node(self, n: Any) -> Any:
        self.running = n
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and value.is_complex():
            raise Refused(f"its code has complex numbers that are neither read from pairs nor made of angles ({n.target}): the "
                          "daemon has none")
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, first = str(target), args[0] if args else None
        if name == "aten.view_as_complex.default":
            return Pair(args[0].select(-1, 0), args[0].select(-1, 1))
        if name == "aten.complex.default":
            return Pair(*args)
        if name == "aten.polar.default":
            angle = Pair(args[1].cos(), args[1].sin())
            return angle if self._is_one() else angle.times(args[0])
        if not any(isinstance(a, Pair) for a in args):
            return super().call_function(target, args, kwargs)
        if name == "aten.view_as_real.default":
            return torch.stack([args[0].real, args[0].imag], -1)
        if name == "aten.mul.Tensor":
            return first.times(args[1]) if isinstance(first, Pair) else args[1].times(first)
        if name in ("aten.real.default", "aten.imag.default"):
            return getattr(first, name.split(".")[1])
        if name in ("aten._conj.default", "aten.conj_physical.default"):
            return Pair(args[0].real, -args[0].imag)
        if name not in _EACH:
            raise Refused(f"{name} of complex numbers: the daemon has none, and only products, conjugates and views of them are "
                          "written as floats")
        return Pair(*(super(Parts, self).call_function(target, (part, *args[1:]), kwargs) for part in (args[0].real, args[0].imag)))

    def _is_one(self) -> bool:
        """Returns whether the lengths that the running node makes complex numbers of are all 1."""
        lengths = self.running.args[0]
        name = str(lengths.target)
        return name in _OF_ONES or (name in _FILLED and lengths.args[1] == 1)
