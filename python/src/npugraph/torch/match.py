# SPDX-License-Identifier: Apache-2.0
"""Whether a call has a kept form: compared in full at first, and quickly where it is like the last one."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .entries import Argument, Form, described, settings, structure_of
from .options import Options
from .paths import Path, Tree, walk
from .plain import Malformed
from .runner import Runner
from .shapes import computed, sizes_of
from .watch import Layouts, Watch

_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_FAILURES = (LookupError, AttributeError, TypeError, ValueError)
_CALL = (("item", "args"), ("item", "kwargs"))  # the roots that differ from call to call
_storage = torch.Tensor.untyped_storage
_pointer = torch.Tensor.data_ptr


class Entry:
    """A form that calls can be made with."""

    def __init__(self, form: Form, options: Options) -> None:
        self.form, self.options = form, options
        self.structure = structure_of(form.structure)
        if self.structure.num_leaves != len(form.leaves):
            raise Malformed("the structure of the result has other parts")
        names = list(form.symbols)
        self.conditions = [computed(condition, names) for condition in form.conditions]
        self.arguments = [_Argument(argument, names) for argument in form.arguments]
        self.called = [k for k, argument in enumerate(form.arguments) if argument.path[0] in _CALL]
        self.owned = [k for k, argument in enumerate(form.arguments) if argument.path[0] not in _CALL]
        self.tensors = [k for k, argument in enumerate(form.arguments) if argument.dtype is not None]
        self.model = Tree([path for path, _ in form.model])
        self.model_expected = [_untupled(what) for _, what in form.model]
        self.calls = [(path, _untupled(what)) for path, what in form.call]
        self.runner = Runner(form.program, options)
        self.watch: Watch | None = None  # of the model, and of what else is no argument
        self.parts: list[Any] = []  # the graph's arguments that are the model's
        self.last: _Repeat | None = None
        self.repeated = False  # whether the call that matched is like the last one

    def match(self, roots: dict[str, Any]) -> list[Any] | None:
        """Returns the graph's arguments, if the call has this form."""
        try:
            if self.form.context != settings(roots["owner"]) or not self._model_matches(roots):
                return None
            given = self.last.match(roots) if self.last is not None else None
            self.repeated = given is not None
            return given if given is not None else self._call_matches(roots)
        except _FAILURES:
            return None

    def _model_matches(self, roots: dict[str, Any]) -> bool:
        """Returns whether the model, and what else is no argument, is as when the form was traced."""
        if self.watch is not None and (self.options.frozen_model or self.watch.holds()):
            return True
        self.watch = self.last = None
        if [described(value) for value in self.model.values(roots)] != self.model_expected:
            return False
        paths = [self.form.arguments[k].path for k in self.owned]
        self.parts = Tree(paths).values(roots)
        kept = {name: roots[name] for name in ("function", "owner")}
        paths += [path for pair in self.form.same for path in pair if path[0] not in _CALL]
        self.watch = Watch(Tree(paths + [path for path, _ in self.form.model]).root, kept, self._may_change)
        return True

    def _may_change(self, tensor: torch.Tensor) -> bool:
        return not (self.options.frozen and isinstance(tensor, torch.nn.Parameter))

    def _call_matches(self, roots: dict[str, Any]) -> list[Any] | None:
        given: list[Any] = [None] * len(self.arguments)
        for k, value in zip(self.owned, self.parts, strict=True):
            given[k] = value
        for k in self.called:
            given[k] = walk(roots, self.form.arguments[k].path)
        values = self.sizes(given)
        if not all(argument.fits(value, values) for argument, value in zip(self.arguments, given, strict=True)):
            return None
        if not all(condition(values) for condition in self.conditions) or not self._apart(given):
            return None
        if any(described(walk(roots, path)) != expected for path, expected in self.calls):
            return None
        if any(walk(roots, one) is not walk(roots, other) for one, other in self.form.same):
            return None
        self.last = _Repeat(self, roots, given, values)
        return given

    def sizes(self, given: list[Any]) -> dict[str, int]:
        return {name: given[a] if dim < 0 else given[a].shape[dim] for name, (a, dim) in self.form.symbols.items()}

    def _apart(self, given: list[Any]) -> bool:
        """Returns whether no argument is given twice, and what the graph writes is no part of another argument."""
        if len({id(given[k]) for k in self.tensors}) != len(self.tensors):  # one tensor, given as two, is another form
            return False
        if torch.is_grad_enabled() and any(given[k].requires_grad for k in self.tensors):
            return False
        written = [k for k in self.form.program.states if given[k].numel()]
        memory = self.written(given)
        others = set(self.tensors) - set(written)
        return len(memory) == len(written) and all(_storage(given[k]).data_ptr() not in memory for k in others if given[k].numel())

    def written(self, given: list[Any]) -> set[int]:
        """Returns where the memory is that the graph writes."""
        return {_storage(given[k]).data_ptr() for k in self.form.program.states if given[k].numel()}

    def run(self, given: list[Any], roots: dict[str, Any]) -> Any:
        """Makes the call, with arguments that `match` returned."""
        last, self.last = self.last, None  # after a failure the next call is compared in full
        with torch.no_grad():
            outputs = self.runner(given, self.repeated)
        self.last = last
        leaves = []
        for kind, what in self.form.leaves:
            if kind == "output":
                leaves.append(outputs[what])
            elif kind == "argument":
                leaves.append(given[what])
            else:
                leaves.append(walk(roots, what) if kind == "path" else what)
        return pytree.tree_unflatten(leaves, self.structure)


class _Argument:
    """What an argument of the graph must be."""

    def __init__(self, argument: Argument, names: Sequence[str]) -> None:
        self.dtype = argument.dtype
        self.shape, self.stride = sizes_of(argument.shape, names), sizes_of(argument.stride, names)

    def fits(self, value: Any, values: dict[str, int]) -> bool:
        if self.dtype is None:
            return type(value) is int
        return (type(value) in _TENSORS and value.dtype is self.dtype and value.device.type == "cpu"
                and value.layout is torch.strided and tuple(value.shape) == self.shape(values)
                and _strides_match(value, self.stride(values)))


class _Repeat:
    """A call that had the form. What the next one gives again, the same objects unchanged, is not compared anew."""

    def __init__(self, entry: Entry, roots: dict[str, Any], given: list[Any], values: dict[str, int]) -> None:
        self.entry, self.given, self.values = entry, given, values
        self.positions, self.names = len(roots["args"]), tuple(roots["kwargs"])
        inside: dict[Path, list[Path]] = {}  # of arguments that are objects, and what is looked at in each
        self.direct = [(path, what) for path, what in entry.calls if not _inside(path, roots, inside)]
        self.fresh = [k for k in entry.called if not _inside(entry.form.arguments[k].path, roots, inside)]
        self.same = [pair for pair in entry.form.same if any(path[0] in _CALL for path in pair)]
        self.objects = [(path, walk(roots, path)) for path in inside]
        self.watches = [Watch(Tree(inside[path]).root, value, lambda _: False) for path, value in self.objects]
        states = set(entry.form.program.states)
        self.objects += [(entry.form.arguments[k].path, given[k]) for k in self.fresh if k in states]
        self.fresh = [k for k in self.fresh if k not in states]
        new = set(self.fresh)
        known = [k for k in entry.tensors if k not in new]
        self.fresh_tensors = [k for k in entry.tensors if k in new]
        self.ids = {id(given[k]) for k in known}
        self.gradients = any(given[k].requires_grad for k in known)
        self.memory = entry.written(given)
        called = set(entry.called)
        self.layouts = Layouts([given[k] for k in known if k in called or k in states])

    def match(self, roots: dict[str, Any]) -> list[Any] | None:
        """Returns the graph's arguments if the call is like that one. None: it must be compared in full."""
        if len(roots["args"]) != self.positions or tuple(roots["kwargs"]) != self.names:
            return None
        if any(walk(roots, path) is not value for path, value in self.objects) or not all(w.holds() for w in self.watches):
            return None
        if any(described(walk(roots, path)) != what for path, what in self.direct):
            return None
        if any(walk(roots, one) is not walk(roots, other) for one, other in self.same):
            return None
        given = self.given.copy()
        for k in self.fresh:
            given[k] = walk(roots, self.entry.form.arguments[k].path)
        return given if self._tensors_match(given) else None

    def _tensors_match(self, given: list[Any]) -> bool:
        entry, tensors = self.entry, [given[k] for k in self.fresh_tensors]
        if entry.sizes(given) != self.values or not self.layouts.hold():
            return False
        if not all(entry.arguments[k].fits(given[k], self.values) for k in self.fresh):
            return False
        if torch.is_grad_enabled() and (self.gradients or any(t.requires_grad for t in tensors)):
            return False
        ids = set(map(id, tensors))
        return (len(ids) == len(tensors) and ids.isdisjoint(self.ids)
                and all(_storage(t).data_ptr() not in self.memory for t in tensors if t.numel()))


def _inside(path: Path, roots: dict[str, Any], inside: dict[Path, list[Path]]) -> bool:
    """Returns whether a path leads into an argument that is an object, and notes it there."""
    if len(path) <= 2 or isinstance(walk(roots, path[:2]), (torch.Tensor, int, float, str)):
        return False
    inside.setdefault(path[:2], []).append(path[2:])
    return True


def _strides_match(tensor: torch.Tensor, expected: Sequence[Any]) -> bool:
    """Returns whether strides are as expected; those of dimensions with at most one row do not count."""
    stride = tensor.stride()
    return stride == expected or all(a == b or n <= 1 for a, b, n in zip(stride, expected, tensor.shape, strict=True))


def _untupled(value: Any) -> Any:
    return [_untupled(part) for part in value] if isinstance(value, (list, tuple)) else value
