# SPDX-License-Identifier: Apache-2.0
"""What operators are translated with: values, dtypes, and the writer of graph text."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
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
        self.symbols: set[str] = set()
        self._count = 0

    def _note(self, value: Any) -> None:
        if isinstance(value, torch.SymInt):
            self.symbols |= names_of(value)
        elif isinstance(value, (list, tuple)):
            for part in value:
                self._note(part)

    def node(self, operator: str, operands: Sequence[Value | None], results: Sequence[tuple[torch.dtype, Sequence[Any]]],
             /, **attributes: Any) -> list[Value]:
        """Writes a node with any number of results."""
        values = []
        for dtype, shape in results:
            self._count += 1
            self._note(tuple(shape))
            values.append(Value(f"%v{self._count}", dtype, tuple(shape)))
        shown = []
        for name, value in attributes.items():
            self._note(value)
            shown.append(f"{name}={attribute_text(value)}")
        left = ", ".join(v.name for v in values) + " = " if values else ""
        right = f" {{{', '.join(shown)}}}" if shown else ""
        types = " : " + ", ".join(v.type for v in values) if values else ""
        self.lines.append(f"  {left}{operator}({', '.join(v.name if v else 'none' for v in operands)}){right}{types}")
        return values

    def op(self, operator: str, operands: Sequence[Value | None], dtype: torch.dtype, shape: Sequence[Any], /,
           **attributes: Any) -> Value:
        """Writes a node with one result."""
        return self.node(operator, operands, [(dtype, shape)], **attributes)[0]

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype == dtype:
            return value
        return self.op("aten._to_copy", [value], dtype, value.shape, dtype=dtype)

    def full(self, dtype: torch.dtype, shape: Sequence[Any], fill: float | int | bool) -> Value:
        return self.op("aten.full", [], dtype, shape, size=list(shape), fill_value=float_or_int(fill), dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        shown = self.op("aten.reshape", [value], value.dtype, shape, shape=list(shape))
        return dataclasses.replace(shown, root=value.root)

    def view(self, operator: str, value: Value, shape: Sequence[Any], /, **attributes: Any) -> Value:
        """Writes an operator whose result shows the memory of its operand."""
        shown = self.op(operator, [value], value.dtype, shape, **attributes)
        return dataclasses.replace(shown, root=value.root)


def float_or_int(value: float | int | bool) -> float | int:
    """Returns a number for an attribute of type float. Integers keep all bits; bool is 0 or 1."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return value
    raise Unsupported(f"the number {value!r}")
