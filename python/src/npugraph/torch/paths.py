# SPDX-License-Identifier: Apache-2.0
"""Where the arguments of a graph are found in the arguments of the function: paths of attributes and subscripts.

Dynamo names each as an expression. It is taken apart here, and walked by getattr and subscripts alone.
"""
from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

Step = tuple[str, Any]  # attribute, has or own and a name, item and a key, size, stride, type, or module and its name
Path = tuple[Step, ...]
KINDS = ("attribute", "has", "own", "item", "size", "stride", "type", "module")
ROOTS = ("function", "owner", "args", "kwargs")
_IMPORT = "__import_"


class Unwalkable(ValueError):
    """An expression of Dynamo's is more than attributes and subscripts."""


def path_of(name: str) -> Path:
    """Returns the steps of a name of Dynamo's, such as L['args'][0].layers[1].keys; the first is a root's."""
    try:
        tree: ast.expr = ast.parse(name, mode="eval").body
    except SyntaxError:
        raise Unwalkable(name) from None
    steps = _steps(tree, name)
    if not steps or (steps[0][0] != "module" and steps[0] not in [("item", root) for root in ROOTS]):
        raise Unwalkable(name)
    return tuple(steps)


def _steps(tree: ast.expr, name: str) -> list[Step]:
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant):
        key = tree.slice.value
        if isinstance(tree.value, ast.Name) and tree.value.id == "G" and isinstance(key, str) and key.startswith(_IMPORT):
            return [("module", key.removeprefix(_IMPORT).replace("_dot_", "."))]
        if type(key) in (str, int):
            return [*_steps(tree.value, name), ("item", key)]
    if isinstance(tree, ast.Attribute):
        return [*_steps(tree.value, name), ("attribute", tree.attr)]
    if isinstance(tree, ast.Name) and tree.id == "L":
        return []
    if isinstance(tree, ast.Call) and not tree.keywords:
        return _call(tree, name)
    raise Unwalkable(name)


def _call(tree: ast.Call, name: str) -> list[Step]:
    called, arguments = ast.unparse(tree.func), tree.args
    if isinstance(tree.func, ast.Attribute) and tree.func.attr in ("size", "stride") and not arguments:
        return [*_steps(tree.func.value, name), (tree.func.attr, None)]
    if called == "type" and len(arguments) == 1:
        return [*_steps(arguments[0], name), ("type", None)]
    if called == "__import__" and len(arguments) == 1 and isinstance(arguments[0], ast.Constant):
        return [("module", str(arguments[0].value))]
    if called == "dict" and len(arguments) == 1:
        return _steps(arguments[0], name)
    if called == "object.__getattribute__" and len(arguments) == 2 and isinstance(arguments[1], ast.Constant):
        return [*_steps(arguments[0], name), ("attribute", arguments[1].value)]
    raise Unwalkable(name)


def checked_path(data: Any) -> Path:
    """Returns a path that was read from a file. ValueError: it is none."""
    if not isinstance(data, list) or not 1 <= len(data) <= 64:
        raise Unwalkable("a path must be a list of 1 to 64 steps")
    for step in data:
        if not isinstance(step, list) or len(step) != 2 or step[0] not in KINDS or (
                step[0] in ("attribute", "has", "own", "module") and type(step[1]) is not str):
            raise Unwalkable(f"{step!r} is not a step of a path")
        if step[0] == "item" and type(step[1]) not in (str, int):
            raise Unwalkable(f"{step!r} is not a step of a path")
    return tuple((str(kind), key) for kind, key in data)


def step_into(value: Any, step: Step) -> Any:
    """Takes one step. LookupError, AttributeError, TypeError: there is nothing."""
    kind, key = step
    if kind == "attribute":
        return getattr(value, key)
    if kind == "item":
        return value[key]
    if kind == "has":
        return hasattr(value, key)
    if kind == "own":
        return key in getattr(value, "__dict__", ())
    if kind == "type":
        return type(value)
    if kind == "module":
        return sys.modules[key]
    return value.size() if kind == "size" else value.stride()


def walk(roots: dict[str, Any], path: Path) -> Any:
    value: Any = roots
    for step in path:
        value = step_into(value, step)
    return value


class Tree:
    """Many paths, walked at once: what they share is walked once."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.count = len(paths)
        self.root: list[Any] = _level([(path, place) for place, path in enumerate(paths)])

    def values(self, roots: dict[str, Any]) -> list[Any]:
        """Returns what the paths lead to, in their order."""
        found = [None] * self.count
        _descend(self.root, roots, found)
        return found


def _level(paths: list[tuple[Path, int]]) -> list[Any]:
    """Returns the next steps, each with the places of paths that end there and what follows."""
    steps: dict[Step, list[tuple[Path, int]]] = {}
    for path, place in paths:
        steps.setdefault(path[0], []).append((path[1:], place))
    return [(step, [place for rest, place in ways if not rest], _level([(rest, place) for rest, place in ways if rest]))
            for step, ways in steps.items()]


def _descend(level: list[Any], value: Any, found: list[Any]) -> None:
    for step, places, below in level:
        kind, key = step
        reached = value[key] if kind == "item" else step_into(value, step)
        for place in places:
            found[place] = reached
        if below:
            _descend(below, reached, found)
