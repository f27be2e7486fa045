# SPDX-License-Identifier: Apache-2.0
"""Whether objects are as they were: a model of many layers is compared in C, a dictionary at a time, at each call."""
from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .paths import Step, step_into

_LARGE = 256  # entries; of larger dictionaries only those that paths lead through are compared
_DICTS = (dict, collections.OrderedDict)
_MADE = (types.MethodType, types.MappingProxyType, int, float, str, tuple, torch.Size)  # anew at each look, and equal
_FAILURES = (LookupError, AttributeError, TypeError, ValueError, RuntimeError)
_NOTHING = object()
_requires_grad = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]
_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_shape = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
_stride, _pointer, _negated = torch.Tensor.stride, torch.Tensor.data_ptr, torch.Tensor.is_neg


class Layouts:
    """Where tensors are and what they are, apart from their contents: .data = and resize_ change it in place."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self.then = self._now()

    def _now(self) -> list[list[Any]]:
        return [list(map(what, self.tensors)) for what in (_pointer, _shape, _stride, _dtype, _negated)]

    def hold(self) -> bool:
        return self._now() == self.then


class Watch:
    """What paths led to, and all that could change it. Where it holds, each path leads to the same object again, or to an equal
    number, text, tuple or dictionary, and lists, dictionaries and sets at their ends have the same contents. It may fail to hold
    where nothing of that has changed. `layouts`: of which tensors at their ends the layouts are compared too."""

    def __init__(self, level: Sequence[Any], value: Any, layouts: Callable[[torch.Tensor], bool] = lambda _: True) -> None:
        self._seen: set[int] = set()
        self.empty: list[Any] = []  # dictionaries
        self.dicts: list[dict[Any, Any]] = []
        self.copies: list[dict[Any, Any]] = []
        self.ordered: list[dict[Any, Any]] = []
        self.orders: list[tuple[Any, ...]] = []
        self.parts: list[Any] = []  # lists and sets
        self.part_copies: list[Any] = []
        self.holders: list[Any] = []  # objects with attributes
        self.types: list[type] = []
        self.tables: list[Any] = []  # entries whose values are compared as objects: 1 == True, but they are not the same
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.steps: list[tuple[Any, Step, Any]] = []  # all other ways from an object to the next
        self.tensors: list[torch.Tensor] = []
        self.gradients: list[bool] = []
        self._visit(level, value)
        self._seen.clear()
        self.layouts = Layouts(list(filter(layouts, self.tensors)))

    def holds(self) -> bool:
        try:
            return (not any(self.empty) and self.dicts == self.copies and list(map(tuple, self.ordered)) == self.orders
                    and self.parts == self.part_copies
                    and all(map(operator.is_, map(type, self.holders), self.types))
                    and all(map(operator.is_, map(operator.getitem, self.tables, self.keys), self.values))
                    and list(map(_requires_grad, self.tensors)) == self.gradients and self.layouts.hold()
                    and all(_as_before(step_into(parent, step), value) for parent, step, value in self.steps))
        except _FAILURES:  # what paths led through is gone, or values cannot be compared
            return False

    def _visit(self, level: Sequence[Any], value: Any) -> None:
        for step, places, below in level:
            reached = step_into(value, step)
            self._way(value, step, reached)
            if places:
                self._contents(reached)
            if below:
                self._visit(below, reached)

    def _way(self, value: Any, step: Step, reached: Any) -> None:
        """Notes how one step led from an object to the next."""
        kind, key = step
        if kind == "item" and type(value) is tuple:
            return
        table = _table(value, step, reached)
        if table is None:
            self.steps.append((value, step, reached))
            return
        if table is not value:
            self._holder(value)
        whole = self._table(table)
        if kind != "own" and not (whole and _equal_is_same(reached)):
            self.tables.append(table)
            self.keys.append(key)
            self.values.append(reached)

    def _holder(self, value: Any) -> None:
        if self._new(value):
            self.holders.append(value)
            self.types.append(type(value))

    def _table(self, table: Any) -> bool:
        """Notes the contents of a dictionary or list that has values of interest. Returns whether all are compared."""
        if type(table) is list:
            self._contents(table)
            return True
        if len(table) > _LARGE:
            return False
        if self._new(table):
            (self.dicts if table else self.empty).append(table)
            if table:
                self.copies.append(dict(table))
        return True

    def _contents(self, value: Any) -> None:
        """Notes the contents of what a path ends at."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self.gradients.append(value.requires_grad)
        elif isinstance(value, dict):
            self._table(value)
            if 1 < len(value) <= _LARGE:
                self.ordered.append(value)
                self.orders.append(tuple(value))
        elif isinstance(value, (list, set)) and self._new(value):
            self.parts.append(value)
            self.part_copies.append(value.copy())

    def _new(self, value: Any) -> bool:
        known = id(value) in self._seen  # no id is used twice while it is noted: all of them are kept
        self._seen.add(id(value))
        return not known


def _table(value: Any, step: Step, reached: Any) -> Any:
    """Returns the dictionary or list in which a step found something (or nothing, for "own"); None: it was computed."""
    kind, key = step
    if kind == "item":
        return value if type(value) in (*_DICTS, list) else None
    if kind not in ("attribute", "own"):
        return None
    own = getattr(value, "__dict__", None)
    plain = type(value) is types.ModuleType or _same(type(value).__getattribute__, object.__getattribute__)
    if type(own) is not dict or not plain:
        return None
    if kind == "own":
        return own if len(own) <= _LARGE else None
    descriptor = getattr(type(value), key, None)
    return own if own.get(key, _NOTHING) is reached and not hasattr(type(descriptor), "__set__") else None


def _equal_is_same(value: Any) -> bool:
    """Returns whether only the object itself is equal to it, or what is equal leads to equal things."""
    if type(value) in _DICTS:
        return len(value) <= _LARGE and all(v is None or _same(type(v).__eq__, object.__eq__) for v in value.values())
    return value is None or type(value) is str or _same(type(value).__eq__, object.__eq__)


def _same(one: Any, other: Any) -> bool:
    return one is other


def _as_before(now: Any, then: Any) -> bool:
    return now is then or (type(now) in _MADE and type(now) is type(then) and now == then)
