# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes of PyTorch as expressions of graph text."""
from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch


class Unsupported(Exception):
    """The daemon's operators cannot express a node; the message says what is missing."""


_FUNCTIONS = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min"}


def expression(value: Any) -> sympy.Expr:
    """Returns the expression of an int or a SymInt."""
    if isinstance(value, torch.SymInt):
        return sympy.sympify(value.node.expr)
    if isinstance(value, int):
        return sympy.Integer(value)
    raise Unsupported(f"a size {value!r} that is neither a number nor a symbol")


def names_of(value: Any) -> set[str]:
    """Returns the symbols that a size depends on."""
    return {str(symbol) for symbol in expression(value).free_symbols}


def size_text(value: Any) -> str:
    """Returns a size, or another integer, as graph text."""
    return str(value) if type(value) is int else _text(expression(value))


def _text(e: sympy.Expr) -> str:
    if e.is_Integer or e.is_Symbol:
        return str(e)
    if e.is_Add:
        return "(" + " + ".join(_text(part) for part in e.args) + ")"
    if e.is_Mul:
        return "*".join(_text(part) for part in e.args)
    if e.is_Pow and e.exp.is_Integer and 1 <= e.exp <= 4:
        return "*".join([_text(e.base)] * int(e.exp))
    name = _FUNCTIONS.get(type(e).__name__)
    if name is None:
        raise Unsupported(f"the size {e}")
    text = _text(e.args[0])
    for part in e.args[1:]:
        text = f"{name}({text}, {_text(part)})"
    return text
