# SPDX-License-Identifier: Apache-2.0
"""What operators are translated with: values, dtypes, and the writer of graph text."""
from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .shapes import Unsupported, names_of, size_text

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8", torch.uint8: "u8",
          torch.int32: "i32", torch.int64: "i64", torch.bool: "bool"}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def dtype_word(dtype: torch.dtype) -> str:
    """Returns a dtype in words of graph text."""
    if dtype not in DTYPES:
        raise Unsupported(f"dtype {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the graph text."""

    name: str  # with its %
    dtype: torch.dtype
    shape: tuple[Any, ...]
    root: str = ""  # the state whose memory it shows, or ""

    @property
    def type(self) -> str:
        return f"{dtype_word(self.dtype)}[{','.join(map(size_text, self.shape))}]"


def attribute_text(value: Any) -> str:
    """Returns the value of an attribute as graph text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, torch.dtype):
        return dtype_word(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return ("-" if value < 0 else "") + "inf" if math.isinf(value) else repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(size_text, value)) + "]"
    return size_text(value)


class Writer:
    """Writes nodes of a graph text. Operators return the value of their result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: list[str] = []
        self.constants: list[torch.Tensor] = []  # labels c0, ...
        self.symbols: set[str] = set()
        self._count = 0

    def _note(self, value: Any) -> None:
        if isinstance(value, torch.SymInt):
            self.symbols |= names_of(value)
        elif isinstance(value, (list, tuple)):
            for part in value:
                self._note(part)

    def node(self, name: str, operands: Sequence[Value | None], results: Sequence[tuple[torch.dtype, Sequence[Any]]],
             /, **attributes: Any) -> list[Value]:
        """Writes a node with any number of results."""
        values = []
        for dtype, shape in results:
            self._count += 1
            self._note(tuple(shape))
            values.append(Value(f"%v{self._count}", dtype, tuple(shape)))
        shown = []
        for attribute, value in attributes.items():
            self._note(value)
            shown.append(f"{attribute}={attribute_text(value)}")
        left = ", ".join(v.name for v in values) + " = " if values else ""
        right = f" {{{', '.join(shown)}}}" if shown else ""
        types = " : " + ", ".join(v.type for v in values) if values else ""
        self.lines.append(f"  {left}{name}({', '.join(v.name if v else 'none' for v in operands)}){right}{types}")
        return values

    def constant(self, tensor: torch.Tensor) -> Value:
        """Declares a tensor that is known when the graph is written. It is uploaded once."""
        label = f"c{len(self.constants)}"
        self.constants.append(tensor)
        value = Value(f"%{label}", tensor.dtype, tuple(tensor.shape))
        self.declarations.append(f'  param {value.name} : {value.type} = "{label}"')
        return value

    def op(self, name: str, operands: Sequence[Value | None], dtype: torch.dtype, shape: Sequence[Any], /,
           **attributes: Any) -> Value:
        """Writes a node with one result."""
        return self.node(name, operands, [(dtype, shape)], **attributes)[0]

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype == dtype:
            return value
        return self.op("aten._to_copy", [value], dtype, value.shape, dtype=dtype)

    def full(self, dtype: torch.dtype, shape: Sequence[Any], fill: float | int | bool) -> Value:
        fill = bool(fill) if dtype == torch.bool else fill
        return self.op("aten.full", [], dtype, shape, size=list(shape), fill_value=float_or_int(fill), dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        shown = self.op("aten.reshape", [value], value.dtype, shape, shape=list(shape))
        return dataclasses.replace(shown, root=value.root)

    def view(self, name: str, value: Value, shape: Sequence[Any], /, **attributes: Any) -> Value:
        """Writes an operator whose result shows the memory of its operand."""
        shown = self.op(name, [value], value.dtype, shape, **attributes)
        return dataclasses.replace(shown, root=value.root)


def float_or_int(value: float | int | bool) -> float | int:
    """Returns a number for an attribute of type float. Integers keep all bits; bool is 0 or 1."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return value
    raise Unsupported(f"the number {value!r}")


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal. Adds no guard."""
    if isinstance(a, torch.SymInt) or isinstance(b, torch.SymInt):
        return str(a) == str(b)
    return bool(a == b)


def product(sizes: Any) -> Any:
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


def expanded(w: Writer, x: Value, shape: Any) -> Value:
    if len(x.shape) == len(shape) and all(map(same, x.shape, shape)):
        return x
    return w.view("aten.expand", x, shape, size=list(shape))


# ---- handlers -------------------------------------------------------------------------------------------------------

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(function: Handler) -> Handler:
        for name in names:
            HANDLERS["aten." + name] = function
        return function
    return register


class Node:
    """The FX node that a handler translates."""

    def __init__(self, fx: Any, values: dict[Any, Any]) -> None:
        self.fx = fx
        self.values = values  # of the nodes before it
        self.name = str(fx.target).removesuffix(".default")
        self.lifted = False  # tensors without dimensions count as vectors of one element

    @property
    def out(self) -> Any:
        """The fake tensor of the result; of several results, a list."""
        out = self.fx.meta["val"]
        return _with_dimension(out) if self.lifted else out

    def uses(self, result: int) -> bool:
        """Whether one of several results is used."""
        return any(user.target is operator.getitem and user.args[1] == result for user in self.fx.users)


def written(w: Writer, fx: Any, handler: Handler, values: dict[Any, Any], value_of: Callable[[Any], Any]) -> Any:
    """Writes an FX node by its handler, and returns what that returns. value_of: the value of an operand's node."""
    node = Node(fx, values)
    kwargs = {k: v for k, v in fx.kwargs.items() if k not in ("layout", "device", "pin_memory", "memory_format")}
    if node.name.startswith(("aten.full", "aten.new_", "aten.zeros", "aten.ones")):
        kwargs.pop("dtype", None)  # it is that of the result
    try:
        return handler(w, node, *torch.fx.node.map_arg(fx.args, value_of), **torch.fx.node.map_arg(kwargs, value_of))
    except (TypeError, AttributeError, KeyError, IndexError) as why:  # a form of the operator that is not handled
        raise Unsupported(f"this form of {node.name} ({why})") from None


def _with_dimension(out: Any) -> Any:
    if isinstance(out, (list, tuple)):
        return [_with_dimension(part) for part in out]
    return torch.empty((1,), dtype=out.dtype, device="meta") if not out.dim() else out


def lifts(function: Handler) -> Handler:
    """A handler that takes tensors without dimensions as vectors: their dimension 0 can be named, as PyTorch allows."""

    @functools.wraps(function)
    def lifted(w: Writer, node: Node, x: Value, *arguments: Any, **keywords: Any) -> Any:
        if x.shape:
            return function(w, node, x, *arguments, **keywords)
        node.lifted = True
        raised = [w.reshape(a, [1]) if isinstance(a, Value) and not a.shape else a for a in (x, *arguments)]
        results = function(w, node, *raised, **keywords)
        node.lifted = False
        shapes = [tuple(out.shape) for out in (node.out if isinstance(node.out, (list, tuple)) else [node.out])]
        if isinstance(results, list):
            return [w.reshape(r, shape) for r, shape in zip(results, shapes, strict=True)]
        return w.reshape(results, shapes[0])

    return lifted
