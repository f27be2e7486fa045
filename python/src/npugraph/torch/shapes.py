# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes of PyTorch as expressions of graph text, which are computed here too."""
from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch


class Unsupported(Exception):
    """The daemon's operators cannot express a node; the message says what is missing."""


Size = int | str  # a number, or an expression as text
TEXT_BYTES = 4096  # of one expression
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


def plain_sizes(sizes: Sequence[Any]) -> tuple[Size, ...]:
    """Returns sizes without PyTorch's objects: a symbol of which one value is known is a number."""
    return tuple(size if type(size) is int else _plain(expression(size)) for size in sizes)


def _plain(size: sympy.Expr) -> Size:
    return int(size) if size.is_Integer else _text(size)


_RELATIONS = {"Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">",
              "GreaterThan": ">="}


def condition_text(condition: sympy.Basic) -> str:
    """Returns a condition on sizes as text that `computed` takes."""
    kind = type(condition).__name__
    if kind in ("And", "Or"):
        return f" {kind.lower()} ".join(f"({condition_text(part)})" for part in condition.args)
    if kind == "Not":
        return f"not ({condition_text(condition.args[0])})"
    if kind not in _RELATIONS:
        raise Unsupported(f"the condition {condition}")
    left, right = condition.args
    return f"{_text(left)} {_RELATIONS[kind]} {_text(right)}"


# ---- computing what the functions above wrote -----------------------------------------------------------------------

_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.Load,
          ast.Add, ast.Sub, ast.Mult, ast.USub, ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CALLS: dict[str, Any] = {"floordiv": operator.floordiv, "mod": operator.mod, "min": min, "max": max}


def computed(text: str, symbols: Sequence[str]) -> Callable[[Mapping[str, int]], int]:
    """Returns a function from the values of symbols to the value of an expression of sizes.

    ValueError: the text is something else. It may come from a file: only sums, products, comparisons and the functions
    of graph text are compiled.
    """
    if len(text) > TEXT_BYTES:
        raise ValueError(f"an expression of sizes has {len(text)} characters; at most {TEXT_BYTES} are taken")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is not an expression of sizes") from None
    for node in ast.walk(tree):
        if (not isinstance(node, _NODES) or (isinstance(node, ast.Constant) and type(node.value) is not int)
                or (isinstance(node, ast.Name) and node.id not in symbols and node.id not in _CALLS)
                or (isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.func.id not in _CALLS
                                                    or len(node.args) != 2 or node.keywords))):
            raise ValueError(f"{text!r} is not an expression of the sizes {', '.join(symbols)}")
    code = compile(tree, "<size>", "eval")
    names = {**_CALLS, "__builtins__": {}}

    def value(values: Mapping[str, int]) -> int:
        try:
            return int(eval(code, names, values))  # checked above
        except ZeroDivisionError:
            raise ValueError(f"{text!r} divides by 0 for the sizes {dict(values)}") from None
    return value


def sizes_of(sizes: Sequence[Size], symbols: Sequence[str]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """Returns a function from the values of symbols to sizes."""
    if all(type(size) is int for size in sizes):
        fixed = tuple(int(size) for size in sizes)
        return lambda _: fixed
    parts = [computed(str(size), symbols) for size in sizes]
    return lambda values: tuple(part(values) for part in parts)
